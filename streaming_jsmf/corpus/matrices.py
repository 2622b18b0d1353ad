"""Write matrices of counts as corpora, block by block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array

from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.corpus.records import (
    BATCH_NONZEROS,
    LARGEST_COUNT,
    SMALLEST_COUNT,
    Documents,
    narrow_counts,
)
from streaming_jsmf.corpus.write import CorpusWriter
from streaming_jsmf.errors import InputError
from streaming_jsmf.linalg.panels import panels
from streaming_jsmf.validation import is_utf8


def matrix_blocks(X: Any) -> Iterator[csr_array[Any]]:
    """Yield the rows of a CSR or dense matrix (documents x words), about a million nonzeros at a time."""
    nonzeros = X.size  # of a sparse matrix its stored values
    step = max(1, int(BATCH_NONZEROS * X.shape[0] / max(nonzeros, 1)))
    for rows in panels(X.shape[0], step):
        yield tidy_rows(X[rows])


def column_words(given: Any, n_columns: int, name: str) -> list[str]:
    """Return the words of the columns, from a list or a transformer with ``get_feature_names_out``.

    Raises ``InputError``, with the argument ``name``, if there is not one word for each column.
    """
    listed = given.get_feature_names_out() if hasattr(given, "get_feature_names_out") else given
    if isinstance(listed, str) or not isinstance(listed, Iterable):
        raise InputError(f"{name} is {listed!r}; give a list of words, or the vectorizer that has them")
    words = [str(word) for word in listed]
    if len(words) != n_columns:
        raise InputError(
            f"{name} has {len(words)} words and the matrix has {n_columns} columns; give one word for each column"
        )
    return words


def write_corpus(
    blocks: Iterable[csr_array[Any]], words: Sequence[str], path: Path, first: int = 0
) -> Corpus:
    """Write blocks of documents as a corpus, keeping all words and empty documents. Removes zeros in place.

    Integers become int32 and other numbers float32. Documents are numbered from ``first``. The bytes do not depend on
    the blocks. Raises ``InputError`` if a count is too large, a block does not have one column per word, words are
    repeated, empty or not UTF-8, or no document has a word.
    """
    word, times = next(iter(Counter(words).most_common(1)), ("", 0))
    if times > 1:
        raise InputError(f"the words have {word!r} {times} times; give each column its own word")
    if wrong := next((word for word in words if not is_utf8(word)), None):
        raise InputError(f"the word {wrong!a} is not UTF-8; give each column a word of characters")
    with CorpusWriter(path, words) as writer:
        for block in blocks:
            if block.shape[1] != len(words):
                raise InputError(
                    f"the rows from {first} on have {block.shape[1]} columns, and there are {len(words)} words; "
                    "give one word for each column"
                )
            writer.write(_documents(block, first))
            first += block.shape[0]
        return writer.commit()


def _documents(block: csr_array[Any], first: int) -> Documents:
    if block.data.max(initial=0) > LARGEST_COUNT:
        raise InputError(f"X has the count {block.data.max()}; the largest allowed is {LARGEST_COUNT}")
    block.data[block.data < SMALLEST_COUNT] = 0
    block.eliminate_zeros()
    ids = pa.array(np.arange(first, first + block.shape[0], dtype=np.int64))
    indptr, words = block.indptr.astype(np.int64), block.indices.astype(np.int32)
    return Documents(indptr, words, narrow_counts(block.data), ids, {})


def tidy_rows(rows: Any) -> csr_array[Any]:
    """Copy rows to CSR with sorted, distinct words and without zeros."""
    block = csr_array(rows, copy=True)
    if block.dtype == np.bool_:
        block = block.astype(np.int32)
    block.sum_duplicates()
    block.eliminate_zeros()
    return block
