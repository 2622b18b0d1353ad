"""What an estimator is given, as blocks of documents."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, TypeGuard

import numpy as np
from dask import array as da
from dask import delayed
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.blocks.csr import iter_blocks
from streaming_jsmf.blocks.units import list_units
from streaming_jsmf.corpus import Corpus, open_corpus
from streaming_jsmf.corpus.matrices import tidy_rows
from streaming_jsmf.errors import InputError


def is_corpus(X: object) -> TypeGuard[str | os.PathLike[str] | Corpus]:
    """Whether ``X`` is a corpus, or the path or URL of one."""
    return isinstance(X, (str, os.PathLike, Corpus))


def is_dask_array(X: object) -> bool:
    """Whether ``X`` is a Dask array."""
    return isinstance(X, da.Array)


def opened(X: str | os.PathLike[str] | Corpus) -> Corpus:
    """The corpus; errors as ``open_corpus``."""
    return X if isinstance(X, Corpus) else open_corpus(X)


def corpus_blocks(corpus: Corpus) -> Iterator[csr_array[Any]]:
    """The documents of a corpus by row groups, in order of shards and rows. One pass over the data.

    Raises
    ------
    InputError, StoreError
        As ``read_block``.
    """
    return iter_blocks(list_units(corpus), corpus.n_words)


def dask_shape(X: Any) -> tuple[float, int]:
    """Documents (NaN where Dask does not know) and words of a Dask array.

    Raises
    ------
    InputError
        If it is not documents x words with whole documents in each block.
    """
    if X.ndim != 2:
        raise InputError(f"X is a Dask array of {X.ndim} dimensions; give documents x words")
    if X.numblocks[1] != 1:
        raise InputError(
            f"X is a Dask array with {X.numblocks[1]} blocks across the words; rechunk it with X.rechunk({{1: -1}})"
        )
    return X.shape[0], int(X.shape[1])


def dask_blocks(X: Any) -> Iterator[csr_array[Any]]:
    """The blocks of a Dask array, computed one after the other; one is in memory at a time.

    Raises
    ------
    InputError
        For a block of another width than ``X``, or with a count that is negative or not finite, with its number.
    """
    for number in range(X.numblocks[0]):
        yield _checked(X.blocks[number, 0].compute(), number, X.shape[1])


def _checked(block: Any, number: int, n_words: int) -> csr_array[Any]:
    counts = tidy_rows(block)
    if counts.shape[1] != n_words:
        raise InputError(
            f"block {number} of X, from 0, has {counts.shape[1]} columns, and X has {n_words}; mend it"
        )
    if not (np.isfinite(counts.data).all() and (counts.data >= 0).all()):
        raise InputError(f"block {number} of X, from 0, has a count that is negative or not finite; mend it")
    return counts


def map_documents(X: Any, function: Callable[[csr_array[Any]], NDArray[np.float64]], width: int) -> Any:
    """A function of each block of documents of a Dask array, lazily: documents x ``width``, the same blocks of rows.

    What it carries is one key of the graph, not a copy for each block. Blocks are checked as in ``dask_blocks`` when
    they are computed.
    """
    carried, n_words = delayed(function, pure=True, traverse=False), X.shape[1]

    def of_block(
        block: Any, apply: Callable[[csr_array[Any]], NDArray[np.float64]], block_id: tuple[int, int]
    ) -> NDArray[np.float64]:
        return apply(_checked(block, block_id[0], n_words))

    return X.map_blocks(
        of_block, carried, dtype=np.float64, chunks=(X.chunks[0], (width,)), meta=np.empty((0, 0))
    )
