"""Words of languages that are written without spaces between them, by segmenters that are installed as extras."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from threading import local

from streaming_jsmf.errors import InputError

Segmenter = Callable[[str], list[str]]

#: Sudachi takes 49,149 bytes at once, and a character has three at most here and four elsewhere.
_LONGEST_PIECE = 10_000
_PIECE = re.compile(rf"[^。\n]{{1,{_LONGEST_PIECE}}}[。\n]?|[。\n]")


@cache
def chinese_words() -> Segmenter:
    """By jieba's dictionary and hidden Markov model (``rjieba``).

    Raises
    ------
    InputError
        If the package is not there.
    """
    try:
        import rjieba
    except ImportError as error:
        raise InputError(_missing("rjieba", "chinese")) from error
    return lambda text: _real(rjieba.cut(text))


@cache
def japanese_words() -> Segmenter:
    """By Sudachi, in its shortest units, as they stand in the text.

    Raises
    ------
    InputError
        If the package or its dictionary is not there.
    """
    try:
        from sudachipy import Dictionary, SplitMode

        dictionary = Dictionary(dict="small")
    except ImportError as error:
        raise InputError(_missing("sudachipy and sudachidict_small", "japanese")) from error
    # A tokenizer of Sudachi keeps the text it works on, and tasks may be threads.
    own = local()

    def words(text: str) -> list[str]:
        if not hasattr(own, "tokenizer"):
            own.tokenizer = dictionary.tokenizer(mode=SplitMode.A)
        found: list[str] = []
        for piece in _PIECE.findall(text):
            found += [morpheme.surface() for morpheme in own.tokenizer.tokenize(piece)]
        return _real(found)

    return words


def _real(words: list[str]) -> list[str]:
    """Those with a letter or digit, in lower case."""
    return [word.lower() for word in words if any(map(str.isalnum, word))]


def _missing(packages: str, extra: str) -> str:
    return f"the tokenizer {extra} needs {packages}; pip install 'streaming-jsmf[{extra}]'"
