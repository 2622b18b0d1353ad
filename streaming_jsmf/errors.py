"""One family of errors, each with the exit code the command line ends with.

Every message says what is wrong, where (file, row group, row, key) and what to do, in one line.
"""

from __future__ import annotations

import errno

from streaming_jsmf.display import location


class StreamingJSMFError(Exception):
    """Base of all errors this package raises on purpose. URLs in the message are without passwords and keys."""

    exit_code = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(location(message))


class InputError(StreamingJSMFError):
    """The user's input is wrong: a corpus, a setting, a path. Exit code 2."""

    exit_code = 2


class SettingsMismatchError(InputError):
    """A store was made with other settings or from another corpus than the ones asked for. Exit code 2."""


class TooFewFactorsError(InputError):
    """The corpus or the scan cannot carry as many topics as were asked for. Exit code 2."""


class LogError(StreamingJSMFError):
    """The log of a job cannot be written. Exit code 2; unlike after an ``InputError``, what is done is kept."""

    exit_code = 2


class MachineError(StreamingJSMFError):
    """The machine has no more memory, threads or open files to give; no word about the data. Exit code 2."""

    exit_code = 2


class StoreError(StreamingJSMFError):
    """A store is incomplete or damaged; the message names the part. Exit code 3."""

    exit_code = 3


def finding(error: StreamingJSMFError) -> str:
    """What is wrong, by a message about damage, without the advice at its end."""
    what, _, _ = str(error).rpartition("; ")
    return what or str(error)


def first_line(error: BaseException) -> str:
    """First line of an error's text, so that our messages stay on one line."""
    return (str(error).splitlines() or [type(error).__name__])[0]


_SCARCE = (errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE)

#: What Python, Arrow, the loader and C++ libraries say, in errors of several types and without a number.
_SCARCE_TEXTS = (
    "can't start new thread",
    "Failed to launch worker thread",
    "Cannot allocate memory",
    "not enough memory",
    "failed to map segment",
    "std::bad_alloc",
)


def is_of_machine(error: BaseException) -> bool:
    """Whether the machine failed rather than what was read: memory (Arrow's errors, too), threads, open files."""
    if isinstance(error, MachineError | MemoryError):
        return True
    if isinstance(error, OSError) and error.errno in _SCARCE:
        return True
    if isinstance(error, SystemError):
        # Compiled code lost the error that it should have passed on, or raised this one after it.
        before = error.__cause__ or error.__context__
        return before is not None and is_of_machine(before)
    # Messages of the excluded types may quote data.
    quoting = isinstance(error, StreamingJSMFError | ValueError | LookupError)
    return not quoting and any(text in str(error) for text in _SCARCE_TEXTS)


def machine_error(error: BaseException) -> MachineError:
    """What to say of an error of the machine."""
    if isinstance(error, MachineError):
        return error
    return MachineError(
        f"the machine gives no more memory, threads or open files ({first_line(error)}); lower --workers, raise the "
        "limits (ulimit) or stop other programs, and run the same command again"
    )


def pass_on_machine(error: BaseException) -> None:
    """For a handler that would call what was read damaged: raise ``MachineError`` if the machine failed."""
    if is_of_machine(error):
        raise machine_error(error) from error
