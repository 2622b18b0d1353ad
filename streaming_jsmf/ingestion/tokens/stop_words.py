"""Stop words by language, and language detection from word counts."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import stopwordsiso
from numpy.typing import NDArray

from streaming_jsmf.config import AUTO
from streaming_jsmf.errors import InputError, first_line
from streaming_jsmf.storage.regular import require_regular

ENGLISH = "english"
NONE = "none"
_ENGLISH_FILE = "stop_words_english.txt"

#: Languages with a list, and their ISO 639-1 codes.
_CODES = """
afrikaans=af arabic=ar armenian=hy basque=eu bengali=bn breton=br bulgarian=bg catalan=ca chinese=zh croatian=hr
czech=cs danish=da dutch=nl english=en esperanto=eo estonian=et finnish=fi french=fr galician=gl german=de greek=el
gujarati=gu hausa=ha hebrew=he hindi=hi hungarian=hu indonesian=id irish=ga italian=it japanese=ja korean=ko kurdish=ku
latin=la latvian=lv lithuanian=lt malay=ms marathi=mr norwegian=no persian=fa polish=pl portuguese=pt romanian=ro
russian=ru slovak=sk slovenian=sl somali=so sotho=st spanish=es swahili=sw swedish=sv tagalog=tl thai=th turkish=tr
ukrainian=uk urdu=ur vietnamese=vi yoruba=yo zulu=zu
"""
LANGUAGES: Mapping[str, str] = dict(pair.split("=") for pair in _CODES.split())

#: Minimum share of stop words for guessing a language; a corpus with fewer consists of names and numbers.
_LEAST_SHARE = 0.1


def is_path(choice: str) -> bool:
    """Return whether a choice is the path of a list rather than built-in names."""
    return choice not in (NONE, AUTO) and not all(part in LANGUAGES for part in _parts(choice))


def load_stop_words(choice: str) -> frozenset[str]:
    """Return the words of a setting in lower case: languages such as "german,french", "none", or the path of a list.

    English is this package's list, other languages are from stopwords-iso; "auto" is empty (see ``guess_language``). A
    file is UTF-8 text with one word per line and comments after #. Raises InputError if a list cannot be read.
    """
    if choice in (NONE, AUTO):
        return frozenset()
    if not is_path(choice):
        return frozenset().union(*(_of_language(part) for part in _parts(choice)))
    try:
        return _parse(require_regular(Path(choice).expanduser()).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else first_line(error)
        raise InputError(
            f"cannot read the stop words {choice!r} ({reason}); give auto, none, languages such as "
            "english or german,french, or the path of a UTF-8 text file with one word a line"
        ) from error


def guess_language(tables: Iterable[tuple[Any, NDArray[np.float64]]]) -> str | None:
    """Return the language with the most stop words among the tokens; None if they are less than a tenth.

    ``tables`` yields pairs of words (Arrow strings) and their counts. A word shared by n languages counts 1/n for each.
    One pass over the counts.
    """
    owners = _owners()
    listed = pa.array(list(owners), pa.string())
    held, total = np.zeros(len(LANGUAGES)), 0.0
    for words, counts in tables:
        total += float(counts.sum())
        found = pc.index_in(words, value_set=listed)
        for row in np.flatnonzero(np.asarray(found.is_valid())).tolist():
            languages = owners[words[row].as_py()]
            held[languages] += counts[row] / len(languages)
    best = int(np.argmax(held))
    return list(LANGUAGES)[best] if held[best] > _LEAST_SHARE * total else None


@cache
def _owners() -> dict[str, list[int]]:
    owners: dict[str, list[int]] = {}
    for i, language in enumerate(LANGUAGES):
        for word in _of_language(language):
            owners.setdefault(word, []).append(i)
    return dict(sorted(owners.items()))


def _parts(choice: str) -> list[str]:
    return [part.strip().lower() for part in choice.split(",")]


@cache
def _of_language(language: str) -> frozenset[str]:
    if language != ENGLISH:
        return _parse("\n".join(stopwordsiso.stopwords(LANGUAGES[language])))
    package = files("streaming_jsmf.ingestion.tokens")
    return _parse(package.joinpath(_ENGLISH_FILE).read_text(encoding="utf-8"))


def _parse(text: str) -> frozenset[str]:
    lines = (line.strip().lower() for line in unicodedata.normalize("NFC", text).splitlines())
    return frozenset(line for line in lines if line and not line.startswith("#"))
