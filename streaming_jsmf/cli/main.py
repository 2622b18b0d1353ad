"""The command line: each verb parses its options, calls one function and prints the result."""

from __future__ import annotations

import codecs
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import Any

import click

from streaming_jsmf.cli import interrupts
from streaming_jsmf.cli.choose_k import choose_k
from streaming_jsmf.cli.evaluate import evaluate
from streaming_jsmf.cli.info import info
from streaming_jsmf.cli.outcome import CLOSED, outcome_of
from streaming_jsmf.cli.plan import plan
from streaming_jsmf.cli.queries import documents, effects, over_time
from streaming_jsmf.cli.report import report, view
from streaming_jsmf.cli.stages import fit, infer, ingest, polish, scan, simulate, transform, update
from streaming_jsmf.cli.topics import topics
from streaming_jsmf.display import location, printable, spelled
from streaming_jsmf.errors import options_named

COMMANDS = (
    plan,
    ingest,
    simulate,
    scan,
    infer,
    fit,
    choose_k,
    update,
    polish,
    topics,
    transform,
    documents,
    over_time,
    effects,
    evaluate,
    report,
    view,
    info,
)


@click.group(
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(package_name="streaming-jsmf")
@click.pass_context
def cli(context: click.Context) -> None:
    """Topics from corpora that do not fit in memory.

    One to three passes over a corpus produce a moments store, from which models of several numbers of topics, up to
    --max-topics, are inferred without reading the corpus again. Run an interrupted command again to resume it.

    Exit codes: 0 done, 2 invalid input, 3 incomplete or damaged store, 130 interrupted (Ctrl-C), 141 output closed
    (as by head), 143 terminated (SIGTERM).
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for _command in COMMANDS:
    cli.add_command(_command)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; messages go to standard error."""
    with escaped_streams(), options_named():
        _log_to_standard_error()
        try:
            cli.main(args=None if arguments is None else list(arguments), standalone_mode=False)
        except BaseException as error:
            return report_outcome(error)
        return 0


def report_outcome(error: BaseException) -> int:
    """Print why a command ended to standard error and return its exit code; bugs are raised again."""
    outcome = outcome_of(error)
    if outcome is None:
        raise error
    prefix = "" if outcome.name == "interrupted" else "error: "
    if outcome.exit_code != CLOSED:
        with suppress(OSError):
            click.echo(f"{prefix}{printable(location(outcome.line))}", err=True)
    interrupts.last_words.clear()
    return outcome.exit_code


def _log_to_standard_error() -> None:
    """Print the log messages of this package as plain lines on standard error."""
    logger = logging.getLogger("streaming_jsmf")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine())
    logger.handlers = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False


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
            # Progress bars are redrawn in place.
            stack.enter_context(redirect_stderr(Escaped(sys.stderr, keep="\n\t\r")))
        yield


class OneLine(logging.Formatter):
    """Formats each message on one line, without the secrets of URLs."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(location(super().format(record)))
