"""Tokens of many documents in flat arrays: counts, n-grams and two-word phrases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_jsmf.errors import InputError
from streaming_jsmf.linalg.compiled import compiled


@dataclass(frozen=True, eq=False)
class TokenLists:
    """Tokens of m documents: ``indptr`` (m + 1,) int64, ``codes`` int32 into an Arrow array of distinct strings.

    ``excerpts`` is an Arrow array of m strings, or None; ``boilerplate`` has the numbers of texts that lost words to
    ``without_boilerplate`` and of these words. Tokens of passages have the number of the text of each in ``texts``.
    """

    indptr: NDArray[np.int64]
    codes: NDArray[np.int32]
    dictionary: Any
    excerpts: Any = None
    boilerplate: tuple[int, int] = (0, 0)
    texts: NDArray[np.int64] | None = None


@dataclass(frozen=True, eq=False)
class CodeCounts:
    """Distinct codes of m documents in order of first use: ``indptr`` int64, ``codes`` and ``counts`` int32."""

    indptr: NDArray[np.int64]
    codes: NDArray[np.int32]
    counts: NDArray[np.int32]


def count_codes(tokens: TokenLists) -> CodeCounts:
    """Count each code in each document, in one pass over the tokens and without sorting."""
    return CodeCounts(*_count(tokens.indptr, tokens.codes, len(tokens.dictionary)))


@compiled(nogil=True)
def _count(indptr: Any, codes: Any, n_codes: int) -> Any:
    # Place of the count of each code; one before the document's first place is that of another document.
    places = np.full(n_codes, -1, np.int64)
    distinct = np.empty(len(codes), np.int32)
    counts = np.empty(len(codes), np.int32)
    out = np.zeros(len(indptr), np.int64)
    used = 0
    for m in range(len(indptr) - 1):
        first = used
        for j in range(indptr[m], indptr[m + 1]):
            code = codes[j]
            place = places[code]
            if place >= first:
                counts[place] += 1
            else:
                places[code] = used
                distinct[used] = code
                counts[used] = 1
                used += 1
        out[m + 1] = used
    return out, distinct[:used].copy(), counts[:used].copy()


def given_tokens(lists: Any) -> TokenLists:
    """Return an Arrow array of lists of strings as tokens, without empty and missing ones."""
    ends = np.concatenate(
        [[0], np.cumsum(np.asarray(pc.list_value_length(lists).fill_null(0)), dtype=np.int64)]
    )
    encoded = lists.flatten().cast(pa.string()).dictionary_encode()
    codes = np.asarray(encoded.indices.fill_null(-1))
    kept = np.append(np.asarray(pc.binary_length(encoded.dictionary)) > 0, False)[codes]
    before = np.concatenate([[0], np.cumsum(kept)])
    return TokenLists(before[ends], codes[kept], encoded.dictionary)


def with_ngrams(tokens: TokenLists, longest: int, among: NDArray[np.bool_] | None = None) -> TokenLists:
    """Add the runs of 2 to ``longest`` adjacent tokens of a document, joined by spaces; the order of tokens is lost.

    ``among`` is a mask of the dictionary words that runs may contain; None allows all.
    """
    codes = [tokens.codes]
    rows = [np.repeat(np.arange(len(tokens.indptr) - 1), np.diff(tokens.indptr))]
    words = tokens.dictionary.to_pylist()
    known: list[Any] = [tokens.dictionary]
    size, offset = len(words), len(words)
    shorter, shorter_words = tokens.codes.astype(np.int64), words
    for length in range(2, longest + 1):
        # A run starts where all its tokens belong to the same document.
        inside = rows[0][: len(rows[0]) - length + 1] == rows[0][length - 1 :]
        if among is not None:
            inside &= np.all([among[tokens.codes[i : i + len(inside)]] for i in range(length)], axis=0)
        starts = np.flatnonzero(inside)
        keys = shorter[starts] * size + tokens.codes[starts + length - 1]
        distinct, inverse = np.unique(keys, return_inverse=True)
        joined = [f"{shorter_words[k // size]} {words[k % size]}" for k in distinct.tolist()]
        known.append(pa.array(joined, pa.string()))
        codes.append((inverse + offset).astype(np.int32))
        rows.append(rows[0][starts])
        # Number of the run that starts at each token; unused where no run starts.
        shorter = np.zeros(len(tokens.codes), np.int64)
        shorter[starts], shorter_words = inverse, joined
        offset += len(joined)
    all_rows = np.concatenate(rows)
    order = np.argsort(all_rows, kind="stable")
    counts = np.bincount(all_rows, minlength=len(tokens.indptr) - 1)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    # A user's tokenizer may return words with spaces that equal an n-gram.
    encoded = pa.concat_arrays(known).dictionary_encode()
    kept = np.asarray(encoded.indices)[np.concatenate(codes)[order]]
    return replace(tokens, indptr=indptr, codes=kept, dictionary=encoded.dictionary)


def is_phrase(text: str) -> bool:
    """Return whether a text is two words separated by one space; single words contain no space."""
    return len(text.split(" ")) == 2 and all(text.split(" "))


def check_phrases(phrases: Sequence[str]) -> None:
    """Raise InputError, naming the first phrase that is not two words."""
    for phrase in phrases:
        if not is_phrase(phrase):
            raise InputError(f"{phrase!r} is not a phrase; give two words with one space between them")


def with_phrases(tokens: TokenLists, phrases: Sequence[str]) -> TokenLists:
    """Replace the word pairs of the distinct phrases, from left to right; each token is part of at most one phrase.

    One pass over the tokens.

    Examples
    --------
    >>> texts = TokenLists(np.array([0, 3]), np.array([0, 1, 0]), pa.array(["new", "york"]))
    >>> joined = with_phrases(texts, ["new york", "york new"])
    >>> joined.dictionary.take(pa.array(joined.codes)).to_pylist()
    ['new york', 'new']
    """
    size = len(tokens.dictionary)
    keys, numbers = _phrase_keys(tokens.dictionary, phrases)
    at, found = _hits(tokens, size, keys)
    # From a run of overlapping hits, take the first, the third, and so on.
    starts = np.flatnonzero(np.diff(at, prepend=-2) != 1)
    in_run = np.arange(len(at)) - np.repeat(starts, np.diff(starts, append=len(at)))
    at, found = at[in_run % 2 == 0], found[in_run % 2 == 0]
    codes = tokens.codes.astype(np.int64)
    codes[at] = size + numbers[found]
    gone = np.zeros(len(codes) + 1, np.int64)
    gone[at + 2] = 1
    indptr = tokens.indptr - np.cumsum(gone)[tokens.indptr]
    # A user's tokenizer may return words with spaces.
    encoded = pa.concat_arrays([tokens.dictionary, pa.array(list(phrases), tokens.dictionary.type)])
    encoded = encoded.dictionary_encode()
    kept = np.asarray(encoded.indices)[np.delete(codes, at + 1)]
    return TokenLists(indptr, kept, encoded.dictionary)


def _phrase_keys(dictionary: Any, phrases: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return sorted keys (first code * size + second code) of phrases whose words are present, and phrase numbers."""
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
    """Return the positions in order at which phrases start within documents, and the indices of their keys."""
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
