"""Compiled sparse products, which take four nonzeros at once, against dense ones for rows and words of 0 to 9."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.linalg.csr import add_transposed, count_columns, multiply_rows
from streaming_jsmf.linalg.document_tensor import add_counts, add_products, sort_by_word

N_WORDS = 23


def ragged(dtype: type[np.floating[Any]] = np.float64) -> csr_array[Any]:
    """Rows of 0 to 9 nonzeros and back, whose words are in no order; words of as many rows as it comes."""
    rng = np.random.default_rng(0)
    sizes = [*range(10), *range(9, -1, -1)]
    words = [rng.permutation(N_WORDS - 1)[:size] for size in sizes]
    indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    values = rng.standard_normal(indptr[-1]).astype(dtype)
    return csr_array((values, np.concatenate(words).astype(np.int32), indptr), shape=(len(sizes), N_WORDS))


def gaussian(*shape: int, seed: int = 1) -> NDArray[np.float64]:
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_sums_of_columns(dtype: Any) -> None:
    block = ragged()
    counts = (block.data * 10).astype(dtype)
    frequency, total = np.full(N_WORDS, 1), np.full(N_WORDS, 0.5)
    count_columns(block.indices, counts, frequency, total)
    np.testing.assert_array_equal(frequency - 1, np.bincount(block.indices, minlength=N_WORDS))
    np.testing.assert_allclose(total - 0.5, np.bincount(block.indices, counts, N_WORDS), atol=1e-6)


@pytest.mark.parametrize("width", [0, 1, 2, 7, 8, 17, 33])
def test_rows_times_vectors(width: int) -> None:
    block, vectors = ragged(), gaussian(N_WORDS, width)
    # What lies in the memory before does not count.
    out = np.full((block.shape[0], width), np.nan)
    multiply_rows(block.indptr, block.indices, block.data, vectors, out)
    np.testing.assert_allclose(out, block.toarray() @ vectors, atol=1e-14)


def test_single_products_and_their_transpose() -> None:
    block, vectors = ragged(np.float32), gaussian(N_WORDS, 5).astype(np.float32)
    out = np.empty((block.shape[0], 5), np.float32)
    multiply_rows(block.indptr, block.indices, block.data, vectors, out)
    np.testing.assert_allclose(out, block.toarray() @ vectors, atol=5e-6)
    total = np.ones((N_WORDS, 5), np.float32)
    add_transposed(block.indptr, block.indices, block.data, out, total)
    np.testing.assert_allclose(total, 1 + block.toarray().T @ out, atol=5e-5)


def by_word(block: csr_array[Any]) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[Any]]:
    ends = np.full(block.shape[1], -1, np.int64)
    documents, values = np.full(block.nnz, -1, np.int32), np.full(block.nnz, np.nan)
    sort_by_word(block.indptr, block.indices, block.data, ends, documents, values)
    return ends, documents, values


def test_sorting_by_word_is_the_change_to_columns() -> None:
    for block in (ragged(), csr_array((4, N_WORDS)), csr_array((0, 3))):
        ends, documents, values = by_word(block)
        columns = block.tocsc()
        np.testing.assert_array_equal(ends, columns.indptr[1:])
        np.testing.assert_array_equal(documents, columns.indices)
        np.testing.assert_array_equal(values, columns.data)


@pytest.mark.parametrize("width", [1, 2, 7, 8, 17])
def test_words_get_the_sums_over_their_documents(width: int) -> None:
    block = ragged()
    # Words of 0 to 9 documents as well: these are the rows of the transpose.
    for counts in (block, block.T.tocsr()):
        n_documents, n_words = counts.shape
        projected, scales = gaussian(n_documents, width), gaussian(n_documents, 2, seed=2)
        triples, pairs = np.ones((n_words, width)), np.ones((n_words, width))
        add_products(*by_word(counts), projected, scales, triples, pairs)
        dense = counts.toarray()
        np.testing.assert_allclose(triples, 1 + dense.T @ (scales[:, :1] * projected), atol=1e-13)
        np.testing.assert_allclose(pairs, 1 + dense.T @ (scales[:, 1:] * projected), atol=1e-13)
        weights, sums = gaussian(n_documents, 3, seed=3), np.ones((n_words, 3))
        add_counts(*by_word(counts), weights, sums)
        np.testing.assert_allclose(sums, 1 + dense.T @ weights, atol=1e-13)
