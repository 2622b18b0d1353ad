"""Lists of words that carry grammar rather than a subject."""

from __future__ import annotations

import unicodedata
from functools import cache
from importlib.resources import files
from pathlib import Path

from streaming_jsmf.errors import InputError

ENGLISH = "english"
NONE = "none"
_ENGLISH_FILE = "stop_words_english.txt"


def load_stop_words(choice: str) -> frozenset[str]:
    """The set named by a setting: "english" (the list of this package), "none", or the path of a list.

    A list is UTF-8 text, one word a line; blank lines and lines that start with # are passed over. Words are
    lower-cased here, and so must be what is looked up.

    Raises
    ------
    InputError
        For a list that cannot be read.
    """
    if choice == NONE:
        return frozenset()
    if choice == ENGLISH:
        return _english()
    try:
        return _parse(Path(choice).expanduser().read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"cannot read the stop words {choice!r} ({type(error).__name__}); give english, none or the path "
            "of a UTF-8 text file with one word a line"
        ) from error


@cache
def _english() -> frozenset[str]:
    package = files("streaming_jsmf.tokens")
    return _parse(package.joinpath(_ENGLISH_FILE).read_text(encoding="utf-8"))


def _parse(text: str) -> frozenset[str]:
    lines = (line.strip().lower() for line in unicodedata.normalize("NFC", text).splitlines())
    return frozenset(line for line in lines if line and not line.startswith("#"))
