"""From texts to words, n-grams and phrases, in flat arrays.

Words take one compiled pass over the bytes for ASCII, and Unicode rules once per distinct non-ASCII piece.
Nearly all bytes of most texts are ASCII, and most words are repeated.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_jsmf.corpus.bags import Bags
from streaming_jsmf.corpus.hashes import string_buffers
from streaming_jsmf.ingestion.tokens.pieces import find_pieces
from streaming_jsmf.linalg.compiled import compiled

Form = Literal["NFC", "NFKC"]

#: Marks belong to the preceding letter (vowel signs of Indic scripts are marks).
_SEPARATORS = r"[^\p{L}\p{N}\p{M}]+"
_BEGINNING, _MARKS = r"^[\p{L}\p{N}]", r"^\p{M}+"
#: Characters that are not shown, as in \p{Default_Ignorable_Code_Point}, are left out of words. The space of width zero
#: is missing here, because it separates the words of Thai, Lao, Khmer and Burmese. The tatweel stretches Arabic words.
_INVISIBLE = (
    r"[\x{AD}\x{34F}\x{61C}\x{640}\x{115F}\x{1160}\x{17B4}\x{17B5}\x{180B}-\x{180F}\x{200C}-\x{200F}\x{202A}-\x{202E}"
    r"\x{2060}-\x{206F}\x{3164}\x{FE00}-\x{FE0F}\x{FEFF}\x{FFA0}\x{FFF0}-\x{FFF8}\x{1BCA0}-\x{1BCA3}"
    r"\x{1D173}-\x{1D17A}\x{E0000}-\x{E0FFF}]+"
)
_MANY = 50
_MANY_MARKS, _ORDER, _normal = re.compile(rf"\W{{{_MANY},}}"), unicodedata.combining, unicodedata.normalize
#: Pieces beyond ASCII and their words by normal form: words recur in every batch. So many bytes are kept, those of
#: about 500,000 words; pieces of texts without spaces are long.
_KNOWN: dict[Form, tuple[Any, Any]] = {}
_MOST_BYTES, _NOTHING = 1 << 24, (pa.array([], pa.string()), pa.array([], pa.list_(pa.string())))


@dataclass(frozen=True, eq=False)
class TokenLists:
    """Tokens of m documents: ``indptr`` (m + 1,) int64, ``codes`` int32 into an Arrow array of distinct strings.

    ``excerpts`` is an Arrow array of m strings, or None; ``boilerplate`` has the numbers of texts that lost words to
    ``without_boilerplate`` and of these words. Tokens of passages have the number of the text of each in ``texts``.
    ``forms`` counts the words of each stem, in an Arrow table of ``word`` (the stem), ``form`` and ``count``.
    """

    indptr: NDArray[np.int64]
    codes: NDArray[np.int32]
    dictionary: Any
    excerpts: Any = None
    boilerplate: tuple[int, int] = (0, 0)
    texts: NDArray[np.int64] | None = None
    forms: Any = None


def split_words(texts: Any, form: Form = "NFC") -> TokenLists:
    """Split an Arrow array of strings without nulls into lower-case words of Unicode letters and digits.

    A word is a run of letters, digits and marks that starts with a letter or digit, in normal form C, or KC as
    ``form``. Invisible characters, such as joiners and soft hyphens, are left out. Each word is lower-cased by itself
    and normalized again. Memory: about four times the text.
    """
    indptr, codes, offsets, letters = find_pieces(*string_buffers(texts))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content := letters.tobytes())]
    distinct = pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)
    if content.isascii():
        return TokenLists(indptr, codes, distinct)
    starts, lengths, words = _words_of(distinct, form)
    listed = np.append(words.indices, np.int32(-1))
    # Nearly all pieces are one word, and one table of these stays in the cache.
    only = np.where(lengths == 1, listed[starts], np.int32(-1))
    ends, found = _with_words(indptr, codes, only, starts, lengths, listed)
    return TokenLists(ends, found, words.dictionary)


@compiled(nogil=True)
def _with_words(indptr: Any, codes: Any, only: Any, starts: Any, lengths: Any, words: Any) -> Any:
    """Replace each piece by its ``only`` word, or ``words[starts[piece]:][:lengths[piece]]``: indptr and codes."""
    size, ends, used = 0, np.zeros(len(indptr), np.int64), np.uint64(0)
    for i in range(len(codes)):
        size += lengths[np.uint64(codes[i])]
    found = np.empty(size, np.int32)
    for m in range(len(indptr) - 1):
        for i in range(np.uint64(indptr[m]), np.uint64(indptr[m + 1])):
            piece = np.uint64(codes[i])
            if only[piece] >= 0:
                found[used] = only[piece]
                used += np.uint64(1)
            else:
                for j in range(starts[piece], starts[piece] + lengths[piece]):
                    found[used] = words[j]
                    used += np.uint64(1)
        ends[m + 1] = used
    return ends, found


def _words_of(pieces: Any, form: Form) -> tuple[NDArray[np.int32], NDArray[np.int32], Any]:
    """Return the start and the number of the words of each piece in a dictionary array of words."""
    plain = np.asarray(pc.string_is_ascii(pieces))
    lists = _split_once(pieces.filter(pa.array(~plain)), form)
    words = pa.concat_arrays([pieces.filter(pa.array(plain)), lists.flatten()])
    starts, lengths = np.cumsum(plain, dtype=np.int32) - np.int32(1), np.ones(len(pieces), np.int32)
    starts[~plain] = plain.sum() + np.asarray(lists.offsets)[:-1]
    lengths[~plain] = np.diff(np.asarray(lists.offsets))
    return starts, lengths, words.dictionary_encode()


def _split_once(pieces: Any, form: Form) -> Any:
    """As ``_split_beyond_ascii``, but only for pieces that no text before had."""
    known, lists = _KNOWN.get(form, _NOTHING)
    if known.nbytes + lists.nbytes > _MOST_BYTES:
        known, lists = _NOTHING
    places = pc.index_in(pieces, value_set=known)
    if places.null_count:
        new = pieces.filter(places.is_null())
        known, lists = (
            pa.concat_arrays(both) for both in ((known, new), (lists, _split_beyond_ascii(new, form)))
        )
        _KNOWN[form] = known, lists
        places = pc.index_in(pieces, value_set=known)
    return lists.take(places)


def _split_beyond_ascii(pieces: Any, form: Form) -> Any:
    """Return the words of each piece as a list array that starts at offset 0."""
    seen = pc.replace_substring_regex(pieces, _INVISIBLE, "")
    if pc.max(pc.utf8_length(seen)).as_py() >= _MANY:
        ordered = (_MANY_MARKS.sub(_with_ordered_marks, piece) for piece in seen.to_pylist())
        seen = pa.array(ordered, pa.string())
    lists = pc.split_pattern_regex(_in_one_text(seen, partial(_normal, form)), _SEPARATORS)
    words = lists.flatten()
    odd = pc.invert(pc.match_substring_regex(words, _BEGINNING))
    words = pc.replace_with_mask(words, odd, pc.replace_substring_regex(words.filter(odd), _MARKS, ""))
    # Lower-case word by word, because the form of a Greek sigma depends on its context. Normalize again, because a
    # lower-case letter may have a composed form that its capital lacks.
    words = _in_one_text(words, lambda text: _normal(form, text.replace("İ", "i").lower()))
    real = np.asarray(pc.not_equal(words, ""))
    kept = np.concatenate([[0], np.cumsum(real)])
    offsets = kept[np.asarray(lists.offsets)].astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), words.filter(pa.array(real)))


def _in_one_text(pieces: Any, change: Callable[[str], str]) -> Any:
    """Change an Arrow array of strings, joined by line ends: these are in no piece, and end the context of letters."""
    text = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(pieces)], pa.int32()), pieces), "\n")[0]
    return pa.array(change(text.as_py()).split("\n"), pa.string())


def _with_ordered_marks(run: re.Match[str]) -> str:
    """Put marks in the order of normal forms, for which normalization takes quadratic time."""
    groups = groupby(run[0], lambda mark: _ORDER(mark) > 0)
    return "".join("".join(sorted(marks, key=_ORDER) if ordered else marks) for ordered, marks in groups)


def count_codes(tokens: TokenLists) -> Bags:
    """Return the bags of the documents, with codes in order of first use. One pass without sorting."""
    places = np.full(len(tokens.dictionary), -1, np.int64)
    distinct, counts = (np.empty(len(tokens.codes), np.int32) for _ in range(2))
    ends = np.zeros(len(tokens.indptr), np.int64)
    _count(tokens.indptr, tokens.codes, places, distinct, counts, ends)
    return Bags(ends, distinct[: ends[-1]].copy(), counts[: ends[-1]].copy(), tokens.dictionary)


@compiled(nogil=True)
def _count(indptr: Any, codes: Any, places: Any, distinct: Any, counts: Any, ends: Any) -> None:
    # Place of the count of each code; one before the document's first place is that of another document.
    used = 0
    for m in range(len(indptr) - 1):
        first = used
        for j in range(np.uint64(indptr[m]), np.uint64(indptr[m + 1])):
            code = np.uint64(codes[j])
            place = places[code]
            if place >= first:
                counts[np.uint64(place)] += 1
            else:
                places[code] = used
                distinct[used] = code
                counts[used] = 1
                used += 1
        ends[m + 1] = used


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
    size, kind = len(tokens.dictionary), tokens.dictionary.type
    first, second = (
        np.asarray(pc.index_in(pa.array(words, kind), value_set=tokens.dictionary).fill_null(-1), np.int64)
        for words in zip(*(phrase.split(" ") for phrase in phrases), strict=True)
    )
    known = np.flatnonzero((first >= 0) & (second >= 0))
    keys = first[known] * size + second[known]
    order = np.argsort(keys)
    begins = np.zeros(size, bool)
    begins[first[known]] = True
    indptr, codes = _joined(tokens.indptr, tokens.codes, begins, keys[order], size + known[order])
    # A user's tokenizer may return words with spaces.
    encoded = pa.concat_arrays([tokens.dictionary, pa.array(list(phrases), kind)]).dictionary_encode()
    codes = np.asarray(encoded.indices)[codes]
    return replace(tokens, indptr=indptr, codes=codes, dictionary=encoded.dictionary)


@compiled(nogil=True)
def _joined(indptr: Any, codes: Any, begins: Any, keys: Any, joined: Any) -> Any:
    """Replace pairs of codes whose sorted ``keys`` are FIRST * len(begins) + SECOND; return indptr and codes."""
    ends, found, used = np.zeros(len(indptr), np.int64), np.empty(len(codes), np.int64), 0
    for m in range(len(indptr) - 1):
        i = indptr[m]
        while i < indptr[m + 1]:
            code = np.int64(codes[i])
            if begins[code] and i + 1 < indptr[m + 1]:
                key = code * len(begins) + codes[i + 1]
                at = np.searchsorted(keys, key)
                if at < len(keys) and keys[at] == key:
                    code = joined[at]
                    i += 1
            found[used] = code
            used += 1
            i += 1
        ends[m + 1] = used
    return ends, found[:used].copy()
