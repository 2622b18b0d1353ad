"""Exceptions of this package with the exit codes of the command line.

Every message states in one line what is wrong, where (file, row group, row, key) and what to do.
"""

from __future__ import annotations

import errno
import shlex
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import isfinite
from numbers import Real
from typing import Any

from streaming_jsmf.display import location

#: Names of options that differ from those of their keyword arguments; ``streaming_jsmf.config`` declares them.
_FLAGS = {
    "alpha0": "--stod-alpha0",
    "n_topics": "--topics",
    "range_finder": "--range",
    "iterations": "--stod-iterations",
}

#: Verbs of options, for messages of verbs and functions that lack these; ``streaming_jsmf.config`` adds others.
VERB_OF = {"draws": "effects", "partitions": "infer", "n_topics": "fit", "follow": "scan"}
#: What a verb has instead: the scan is for the largest of several numbers of topics.
_INSTEAD = {"max_topics": "n_topics"}

#: Whether messages name options (``--min-df 5``), as on the command line, or keyword arguments (``min_df=5``).
names_options = ContextVar("names_options", default=False)
_taken: Collection[str] | None = None


@contextmanager
def taking(names: Collection[str]) -> Iterator[None]:
    """In the block, what runs takes these options (on the command line), or keyword arguments; the first block counts.

    Messages then tell the verb of an option that it lacks, as in ``--max-topics of scan``.
    """
    global _taken
    before, _taken = _taken, names if _taken is None else _taken
    try:
        yield
    finally:
        _taken = before


@contextmanager
def options_named(wanted: bool = True) -> Iterator[None]:
    """Messages name options in the block."""
    token = names_options.set(wanted)
    try:
        yield
    finally:
        names_options.reset(token)


class Option:
    """An option in a message: a keyword argument in Python, and an option on the command line (``options_named``).

    Its text is made for the process that makes the message, so a message cannot be a constant of a module.

    Examples
    --------
    >>> print(f"lower {option.n_topics}, or use {option.rectify('enn')} and {option.overwrite(True)}")
    lower n_topics, or use rectify='enn' and overwrite=True
    >>> with options_named():
    ...     print(f"lower {option.n_topics}, or use {option.rectify('enn')} and {option.overwrite(True)}")
    lower --topics, or use --rectify enn and --overwrite
    """

    def __init__(self, name: str, flag: str = "", value: Any = None) -> None:
        self._name, self._value = name, value
        self._flag = flag or _FLAGS.get(name) or f"--{name.replace('_', '-')}"

    def __call__(self, value: Any) -> Option:
        """The option with a value: True for one without, capitals for a placeholder."""
        return Option(self._name, self._flag, value)

    def __str__(self) -> str:
        if self._is_taken:
            return self.alone
        if self._name in _INSTEAD and (other := Option(_INSTEAD[self._name], value=self._halved))._is_taken:
            return other.alone
        verb = VERB_OF.get(self._name, "")
        return f"{self.alone} of {verb}" if verb else self.alone

    @property
    def _halved(self) -> list[int] | None:
        return None if self._value is None else [self._value // 2, self._value]

    @property
    def _is_taken(self) -> bool:
        return _taken is None or (self._flag if names_options.get() else self._name) in _taken

    @property
    def alone(self) -> str:
        """The text where the message names the verb, as in ``scan with --exact``."""
        value = self._value
        if names_options.get():
            return self.on_command_line
        quoted = isinstance(value, str) and not value.isupper()
        shown = repr(value) if quoted else value
        return self._name if value is None else f"{self._name}={shown}"

    @property
    def on_command_line(self) -> str:
        """The text for a command that is shown in Python, too."""
        value = self._value
        if value is None or value is True:
            return self._flag
        if isinstance(value, list):
            value = ",".join(map(str, value))
        return f"{self._flag} {shlex.quote(str(value))}"


class _Options:
    """``option.NAME`` is the option of the keyword argument NAME."""

    def __getattr__(self, name: str) -> Option:
        if name.startswith("_"):
            raise AttributeError(name)
        return Option(name)


option = _Options()


#: ``extra`` of a log message that a command prints again when it ends.
LAST = {"last": True}


def as_event(name: str, **fields: Any) -> dict[str, Any]:
    """``extra`` of a log message that the JSON log also writes as an event with these fields."""
    return {"event": {"event": name, **fields}}


class StreamingJSMFError(Exception):
    """Base class of the exceptions of this package. Passwords and keys are removed from URLs in the message.

    Notebooks and IPython show the message alone; after ``%xmode Verbose``, also the calls that led to it, which ``%tb``
    then shows of the last error, too.
    """

    exit_code = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(location(message))

    def _render_traceback_(self) -> list[str]:
        """The lines that IPython shows."""
        shown = sys.modules["IPython"].get_ipython().InteractiveTB
        if shown.mode == "Verbose":
            lines: list[str] = shown.structured_traceback(type(self), self, self.__traceback__)
            return lines
        return [f"{type(self).__name__}: {self}"]


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


def as_word(value: object, what: str) -> str:
    """Return a word, or a number, as text; raise ``InputError`` for what is neither, such as None, NaN and bytes."""
    is_number = isinstance(value, float | int | Real) and type(value) is not bool
    if isinstance(value, str) or (is_number and isfinite(value)):  # type: ignore[arg-type]
        return str(value)
    raise InputError(
        f"{what} has {value!r} ({type(value).__name__}), which is not a word; give words as text"
    )


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
        f"the machine gives no more memory, threads or open files ({first_line(error)}); lower {option.workers}, raise "
        "the limits (ulimit) or stop other programs, and run the same command again"
    )


def pass_on_machine(error: BaseException) -> None:
    """Raise an error that is not of the data, for handlers that would otherwise report damaged data.

    That is ``MachineError`` if the machine failed, or ``error`` if it names a file that may not be read.
    """
    if is_of_machine(error):
        raise machine_error(error) from error
    if isinstance(error, PermissionError) and error.filename is not None:
        raise error
