"""Fast path from text to words: a byte table for ASCII, and Unicode rules once per distinct non-ASCII piece.

Nearly all bytes of most texts are ASCII, and most words are repeated.
"""

from __future__ import annotations

import unicodedata
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_jsmf.ingestion.tokens.lists import TokenLists
from streaming_jsmf.linalg.compiled import compiled

#: Marks belong to the preceding letter (vowel signs of Indic scripts are marks).
_SEPARATORS = r"[^\p{L}\p{N}\p{M}]+"
_LETTER_OR_DIGIT = r"[\p{L}\p{N}]"
#: U+0338 composes with a preceding =, < or >; no other mark composes with an ASCII character outside words.
_STROKE = "\u0338".encode()


def _ascii_table() -> bytes:
    ascii_characters = (chr(code) for code in range(128))
    mapped = (character.lower() if character.isalnum() else " " for character in ascii_characters)
    return "".join(mapped).encode() + bytes(range(128, 256))


_TABLE = _ascii_table()


def split_words(texts: Any) -> TokenLists:
    """Split an Arrow array of strings without nulls into lower-case words of Unicode letters and digits.

    A word is a run of letters, digits and marks that contains a letter or digit, in normal form C. Each word is
    lower-cased by itself and normalised to form C again. Memory: about four times the text.
    """
    pieces = pc.ascii_split_whitespace(_through_table(texts))
    # A separator at the start or end of a text gives an empty piece.
    encoded = pieces.flatten().dictionary_encode()
    offsets = np.asarray(pieces.offsets).astype(np.int64)
    indptr, codes = offsets - offsets[0], np.asarray(encoded.indices)
    words = _words_of(encoded.dictionary)
    size = int(np.bincount(codes, minlength=len(words.lengths)) @ words.lengths)
    ends, flat = _replace(indptr, codes, words.starts, words.lengths, words.codes, size)
    return TokenLists(ends, flat, words.dictionary)


def _through_table(texts: Any) -> Any:
    """Map the ASCII bytes of strings; lengths and offsets do not change."""
    offsets, content = _content(texts)
    if _STROKE in content:
        offsets, content = _content(pc.utf8_normalize(texts, "NFC"))
    array = pa.LargeStringArray if offsets.dtype == np.int64 else pa.StringArray
    moved = pa.py_buffer(np.ascontiguousarray(offsets - offsets[0]))
    return array.from_buffers(len(texts), moved, pa.py_buffer(content.translate(_TABLE)))


def _content(texts: Any) -> tuple[NDArray[Any], bytes]:
    kind = np.int64 if pa.types.is_large_string(texts.type) else np.int32
    _, offsets_buffer, data = texts.buffers()
    offsets = np.frombuffer(offsets_buffer, kind)[texts.offset : texts.offset + len(texts) + 1]
    used = b"" if data is None else data.slice(int(offsets[0]), int(offsets[-1] - offsets[0])).to_pybytes()
    return offsets, used


class _Words:
    """Words of each distinct piece: ``codes[starts[i]:starts[i] + lengths[i]]``."""

    def __init__(self, words: Any, lengths: NDArray[np.int64]) -> None:
        encoded = words.dictionary_encode()
        self.dictionary = encoded.dictionary
        self.codes = np.asarray(encoded.indices)
        self.lengths = lengths
        self.starts = np.cumsum(lengths) - lengths


@compiled(nogil=True)
def _replace(indptr: Any, codes: Any, starts: Any, lengths: Any, words: Any, size: int) -> Any:
    """Replace each piece by its words; return indptr and codes of the ``size`` words."""
    out = np.empty(size, np.int32)
    ends = np.zeros(len(indptr), np.int64)
    used = 0
    for m in range(len(indptr) - 1):
        for i in range(indptr[m], indptr[m + 1]):
            piece = codes[i]
            for j in range(starts[piece], starts[piece] + lengths[piece]):
                out[used] = words[j]
                used += 1
        ends[m + 1] = used
    return ends, out


def _words_of(pieces: Any) -> _Words:
    """Map pieces to words: ASCII pieces are already words, and the few others are split."""
    plain = np.asarray(pc.string_is_ascii(pieces))
    lengths = np.asarray(pc.binary_length(pieces)).astype(bool).astype(np.int64)
    if plain.all():
        return _Words(pieces.filter(pa.array(lengths > 0)).cast(pa.string()), lengths)
    lists = _split_beyond_ascii(pieces.filter(pa.array(~plain)))
    lengths[~plain] = np.diff(np.asarray(lists.offsets))
    # Start of each piece's words in either source, in the order of the pieces.
    both = pa.concat_arrays([pieces.cast(pa.string()), lists.flatten().cast(pa.string())])
    starts = np.zeros(len(pieces), np.int64)
    starts[plain] = np.flatnonzero(plain)
    starts[~plain] = len(pieces) + np.asarray(lists.offsets)[:-1]
    ends = np.cumsum(lengths)
    take = np.repeat(starts - (ends - lengths), lengths) + np.arange(ends[-1])
    return _Words(both.take(pa.array(take)), lengths)


def _split_beyond_ascii(pieces: Any) -> Any:
    """Return the words of each piece as a list array that starts at offset 0."""
    composed = [unicodedata.normalize("NFC", piece) for piece in pieces.to_pylist()]
    lists = pc.split_pattern_regex(pa.array(composed, pa.string()), _SEPARATORS)
    # Lower-case word by word, because the form of a Greek sigma depends on its context. Normalise again, because a
    # lower-case letter may have a composed form that its capital lacks.
    lowered = [unicodedata.normalize("NFC", word.lower()) for word in lists.flatten().to_pylist()]
    words = pa.array(lowered, pa.string())
    real = np.asarray(pc.match_substring_regex(words, _LETTER_OR_DIGIT))
    kept = np.concatenate([[0], np.cumsum(real)])
    offsets = kept[np.asarray(lists.offsets)].astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), words.filter(pa.array(real)))
