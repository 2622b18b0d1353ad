"""One family of errors, each with the exit code the command line ends with.

Every message says what is wrong, where (file, row group, row, key) and what to do, in one line.
"""

from __future__ import annotations


class StreamingJSMFError(Exception):
    """Base of all errors this package raises on purpose."""

    exit_code = 1


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


class StoreError(StreamingJSMFError):
    """A store is incomplete or damaged; the message names the part. Exit code 3."""

    exit_code = 3


def first_line(error: BaseException) -> str:
    """First line of an error's text, so that our messages stay on one line."""
    return (str(error).splitlines() or [type(error).__name__])[0]
