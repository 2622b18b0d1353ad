"""Tokens of many documents in flat arrays, and how often each word is in each document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.linalg.compiled import compiled


@dataclass(frozen=True, eq=False)
class TokenLists:
    """The tokens of m documents, in order.

    Attributes
    ----------
    indptr
        (m + 1,) int64, starts at 0.
    codes
        (tokens,) int32; places in ``dictionary``.
    dictionary
        Arrow array of distinct strings; some may be used by no token.
    """

    indptr: NDArray[np.int64]
    codes: NDArray[np.int32]
    dictionary: Any


@dataclass(frozen=True, eq=False)
class CodeCounts:
    """Distinct codes of m documents in order of their first use: indptr int64, codes and counts int32."""

    indptr: NDArray[np.int64]
    codes: NDArray[np.int32]
    counts: NDArray[np.int32]


def count_codes(tokens: TokenLists) -> CodeCounts:
    """How often each code is in each document. One pass over the tokens; no sort."""
    return CodeCounts(*_count(tokens.indptr, tokens.codes, len(tokens.dictionary)))


@compiled(nogil=True)
def _count(indptr: Any, codes: Any, n_codes: int) -> Any:
    seen_in = np.full(n_codes, -1, np.int64)
    place = np.empty(n_codes, np.int64)
    distinct = np.empty(len(codes), np.int32)
    counts = np.empty(len(codes), np.int32)
    out = np.zeros(len(indptr), np.int64)
    used = 0
    for m in range(len(indptr) - 1):
        for j in range(indptr[m], indptr[m + 1]):
            code = codes[j]
            if seen_in[code] == m:
                counts[place[code]] += 1
            else:
                seen_in[code] = m
                place[code] = used
                distinct[used] = code
                counts[used] = 1
                used += 1
        out[m + 1] = used
    return out, distinct[:used].copy(), counts[:used].copy()


def with_ngrams(tokens: TokenLists, longest: int, among: NDArray[np.bool_] | None = None) -> TokenLists:
    """Add the runs of 2..longest adjacent tokens of a document, joined by a space. Order within a document is lost.

    ``among``: runs of these words of the dictionary alone; None for all.
    """
    import pyarrow as pa

    codes, rows = [tokens.codes], [_rows(tokens.indptr)]
    words = tokens.dictionary.to_pylist()
    known: list[Any] = [tokens.dictionary]
    size, offset = len(words), len(words)
    shorter, shorter_words = tokens.codes.astype(np.int64), words
    for length in range(2, longest + 1):
        # A run of this length starts where the next tokens are of the same document.
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
        # The run that starts at a token, by its number; never looked up where none starts.
        shorter = np.zeros(len(tokens.codes), np.int64)
        shorter[starts], shorter_words = inverse, joined
        offset += len(joined)
    all_rows = np.concatenate(rows)
    order = np.argsort(all_rows, kind="stable")
    counts = np.bincount(all_rows, minlength=len(tokens.indptr) - 1)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    # A tokenizer of the user's own may give words with spaces, which a run of words can spell too.
    encoded = pa.concat_arrays(known).dictionary_encode()
    places = np.asarray(encoded.indices)[np.concatenate(codes)[order]]
    return TokenLists(indptr, places, encoded.dictionary)


def _rows(indptr: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
