"""Exceptions of this package with the exit codes of the command line.

Every message states in one line what is wrong, where (file, row group, row, key) and what to do.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

from streaming_jsmf.display import location

#: An option in a message with the words before and after it. Complete commands match too, because they are not changed.
_OPTION = re.compile(
    r"streaming-jsmf [^,;]*|(such as |with )?(?<![^\s(])--([a-z][a-z0-9]*(?:-[a-z0-9]+)*)(?: ([^\s;()]*[^\s;(),.]))?"
)

#: A value after an option: a number, a placeholder, or a choice that messages recommend.
_VALUE = re.compile(r"\d[\d.]*%?|[A-Z]{2,}|ap|dykstra|dc|enn|palm|quarantine")

#: Options whose keyword argument has another name, and options without a value.
_RENAMED = {"topics": "n_topics", "range": "range_finder", "stod-alpha0": "alpha0"}
_FLAGS = frozenset({"exact", "keep-partitions", "overwrite", "third-moment"})

_on_command_line = False


@contextmanager
def options_named() -> Iterator[None]:
    """In the block messages name options (``--min-df 5``); elsewhere they name keyword arguments (``min_df=5``)."""
    global _on_command_line
    before, _on_command_line = _on_command_line, True
    try:
        yield
    finally:
        _on_command_line = before


def names_options() -> bool:
    """Whether messages name options."""
    return _on_command_line


def in_python(message: str) -> str:
    """Name options as keyword arguments.

    Examples
    --------
    >>> in_python("it exists; use --overwrite, lower --min-df 5, or use --rectify enn")
    "it exists; use overwrite=True, lower min_df=5, or use rectify='enn'"
    """

    def keyword(option: re.Match[str]) -> str:
        before, name, after = option.groups(default="")
        if not name:
            return option[0]
        argument = _RENAMED.get(name, name.replace("-", "_"))
        if name in _FLAGS:
            argument += "=True"
        elif name == "read" and "=" in after:
            key, _, value = after.partition("=")
            return f"{before}read={{{key!r}: {value!r}}}"
        elif after and (before == "such as " or _VALUE.fullmatch(after)):
            plain = after.isupper() or after.replace(".", "").isdigit()
            return f"{before}{argument}={after if plain else repr(after)}"
        elif before == "with ":
            argument += "="
        return f"{before}{argument} {after}".rstrip()

    return _OPTION.sub(keyword, message)


class StreamingJSMFError(Exception):
    """Base class of the exceptions of this package. Passwords and keys are removed from URLs in the message."""

    exit_code = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(location(message))

    def __str__(self) -> str:
        message = super().__str__()
        return message if _on_command_line else in_python(message)


class InputError(StreamingJSMFError):
    """Invalid user input: a corpus, a setting or a path. Exit code 2."""

    exit_code = 2


def require_unicode(text: str, what: str) -> str:
    """Return a string; raise ``InputError`` if it has a lone surrogate, which no file in UTF-8 can contain."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{what} is {text[:40]!a}, where {text[error.start]!a} stands for a byte that is not UTF-8; give it in "
            "UTF-8"
        ) from error
    return text


class SettingsMismatchError(InputError):
    """A store was made with settings or a corpus other than the requested ones. Exit code 2."""


class TooFewFactorsError(InputError):
    """The corpus or the scan supports fewer topics than requested. Exit code 2."""


class LogError(StreamingJSMFError):
    """The log of a job cannot be written. Exit code 2; unlike after an ``InputError``, completed work is kept."""

    exit_code = 2


class MachineError(StreamingJSMFError):
    """The machine ran out of memory, threads or open files; the data are not at fault. Exit code 2."""

    exit_code = 2


class StoreError(StreamingJSMFError):
    """A store is incomplete or damaged; the message names the part. Exit code 3."""

    exit_code = 3


def finding(error: StreamingJSMFError) -> str:
    """Return a message about damage without the advice at its end."""
    what, _, _ = str(error).rpartition("; ")
    return what or str(error)


def first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


_SCARCE = (errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE)

#: Messages of Python, Arrow, the loader and C++ libraries, whose exceptions have various types and no errno.
_SCARCE_TEXTS = (
    "can't start new thread",
    "Failed to launch worker thread",
    "Cannot allocate memory",
    "not enough memory",
    "failed to map segment",
    "std::bad_alloc",
)


def is_of_machine(error: BaseException) -> bool:
    """Whether the machine rather than the input caused the error: memory (including Arrow's), threads or open files."""
    if isinstance(error, MachineError | MemoryError):
        return True
    if isinstance(error, OSError) and error.errno in _SCARCE:
        return True
    if isinstance(error, SystemError):
        # Compiled code replaced the original exception.
        before = error.__cause__ or error.__context__
        return before is not None and is_of_machine(before)
    # Messages of the excluded types may quote data.
    quoting = isinstance(error, StreamingJSMFError | ValueError | LookupError)
    return not quoting and any(text in str(error) for text in _SCARCE_TEXTS)


def machine_error(error: BaseException) -> MachineError:
    """Convert an error of the machine to a ``MachineError``."""
    if isinstance(error, MachineError):
        return error
    return MachineError(
        f"the machine gives no more memory, threads or open files ({first_line(error)}); lower --workers, raise the "
        "limits (ulimit) or stop other programs, and run the same command again"
    )


def pass_on_machine(error: BaseException) -> None:
    """Raise ``MachineError`` if the machine failed; for handlers that would otherwise report damaged data."""
    if is_of_machine(error):
        raise machine_error(error) from error
