"""Safe output: escapes control characters in data, and characters that the terminal cannot encode."""

from __future__ import annotations

import codecs
import logging
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from typing import Any

from streaming_jsmf.display import location, printable, spelled

_SPELLED = "streaming_jsmf.spelled"


def _spell(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError), "the handler is for encoding"
    return spelled(error.object[error.start : error.end]), error.end


codecs.register_error(_SPELLED, _spell)


class Escaped:
    """A text stream that escapes unencodable and control characters (``display.printable``), except for ``keep``."""

    def __init__(self, stream: Any, keep: str) -> None:
        self._stream = stream
        self._keep = keep

    def write(self, text: str) -> int:
        """Write escaped text."""
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        shown = printable(text, self._keep).encode(encoding, _SPELLED).decode(encoding)
        self._stream.write(shown)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def escaped_streams() -> Iterator[None]:
    """Make standard output and standard error ``Escaped`` in the block."""
    with ExitStack() as stack:
        if sys.stdout is not None:
            stack.enter_context(redirect_stdout(Escaped(sys.stdout, keep="\n\t")))
        if sys.stderr is not None:
            # A bar is redrawn on its own line.
            stack.enter_context(redirect_stderr(Escaped(sys.stderr, keep="\n\t\r")))
        yield


class OneLine(logging.Formatter):
    """Formats each message on one line, without the secrets of URLs."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        return printable(location(super().format(record)))
