"""Phrases: neighbouring words that are one word, such as "new york"; joined by a space, which no word of a text has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.tokens.lists import TokenLists


def is_phrase(text: str) -> bool:
    """Whether a text is two words with a space between them."""
    return len(text.split(" ")) == 2 and all(text.split(" "))


def check_phrases(phrases: Sequence[str]) -> None:
    """Check a list of phrases.

    Raises
    ------
    InputError
        Names the first that is not two words.
    """
    for phrase in phrases:
        if not is_phrase(phrase):
            raise InputError(f"{phrase!r} is no phrase; give two words with one space between them")


def with_phrases(tokens: TokenLists, phrases: Sequence[str]) -> TokenLists:
    """The tokens with each phrase in place of its two words, from left to right: a word is part of one phrase only.

    One pass over the tokens.

    Parameters
    ----------
    phrases
        Distinct; see ``is_phrase``.

    Examples
    --------
    >>> texts = TokenLists(np.array([0, 3]), np.array([0, 1, 0]), pa.array(["new", "york"]))
    >>> joined = with_phrases(texts, ["new york", "york new"])
    >>> joined.dictionary.take(pa.array(joined.codes)).to_pylist()
    ['new york', 'new']
    """
    size = len(tokens.dictionary)
    keys, places = _keys(tokens.dictionary, phrases)
    at, found = _hits(tokens, size, keys)
    # In a row of hits each shares a word with the one before: the first is taken, the third, and so on.
    starts = np.flatnonzero(np.diff(at, prepend=-2) != 1)
    in_row = np.arange(len(at)) - np.repeat(starts, np.diff(starts, append=len(at)))
    at, found = at[in_row % 2 == 0], found[in_row % 2 == 0]
    codes = tokens.codes.astype(np.int64)
    codes[at] = size + places[found]
    gone = np.zeros(len(codes) + 1, np.int64)
    gone[at + 2] = 1
    indptr = tokens.indptr - np.cumsum(gone)[tokens.indptr]
    # A tokenizer of the user's own may give words with spaces.
    encoded = pa.concat_arrays([tokens.dictionary, pa.array(list(phrases), tokens.dictionary.type)])
    encoded = encoded.dictionary_encode()
    kept = np.asarray(encoded.indices)[np.delete(codes, at + 1)]
    return TokenLists(indptr, kept, encoded.dictionary)


def _keys(dictionary: Any, phrases: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sorted keys, first code * size + second code, of the phrases whose words are all there, and their numbers."""
    halves = [
        pc.index_in(pa.array(words, dictionary.type), value_set=dictionary).fill_null(-1)
        for words in zip(*(phrase.split(" ") for phrase in phrases), strict=True)
    ]
    first, second = (np.asarray(half).astype(np.int64) for half in halves)
    there = np.flatnonzero((first >= 0) & (second >= 0))
    keys = first[there] * len(dictionary) + second[there]
    order = np.argsort(keys)
    return keys[order], there[order]


def _hits(
    tokens: TokenLists, size: int, keys: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where a phrase starts within a document, in order, and the place of its key."""
    begins, ends = np.zeros(size, bool), np.zeros(size, bool)
    if not len(keys):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    begins[keys // size], ends[keys % size] = True, True
    inside = np.ones(len(tokens.codes) + 1, bool)
    inside[tokens.indptr] = False
    pairs = begins[tokens.codes[:-1]] & ends[tokens.codes[1:]] & inside[1 : len(tokens.codes)]
    at = np.flatnonzero(pairs)
    wanted = tokens.codes[at].astype(np.int64) * size + tokens.codes[at + 1]
    found = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    hit = keys[found] == wanted
    return at[hit], found[hit]
