"""The blocks of documents of the tensor pass: nothing depends on where they end but rounding, and they bound memory."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.linalg import document_tensor
from streaming_jsmf.linalg.document_tensor import WeightedShares, basis_moments, tensor_sums, tensor_weights
from streaming_jsmf.linalg.tensor import SLAB, unpacked
from streaming_jsmf.moments.stages.third_moment import tensor_memory
from tests import reference_stod

N_WORDS = 4 * SLAB + 3


def corpus(n_documents: int, n_words: int, tokens: int) -> NDArray[np.int64]:
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, tokens, size=n_documents)
    return np.array([rng.multinomial(n, rng.dirichlet(np.full(n_words, 0.3))) for n in lengths])


def basis_of(n_words: int, width: int) -> NDArray[np.float64]:
    return np.linalg.qr(np.random.default_rng(1).standard_normal((n_words, width))).Q


def sums_of(counts: NDArray[np.int64], basis: NDArray[np.float64]) -> document_tensor.TensorSums:
    lengths = counts.sum(axis=1).astype(np.float64)
    shares = csr_array(counts / np.maximum(lengths, 1.0)[:, None])
    return tensor_sums([WeightedShares(shares, lengths, tensor_weights(lengths, "capped"))], basis)


@pytest.mark.parametrize(
    "width", [1, 2, SLAB - 1, SLAB, SLAB + 1, 2 * SLAB - 1, 2 * SLAB, 2 * SLAB + 1, N_WORDS]
)
def test_the_third_moment_in_any_width_is_that_of_the_oracle(width: int) -> None:
    counts, basis = corpus(20, N_WORDS, 12), basis_of(N_WORDS, width)
    exact = reference_stod.dense_moments(counts, reference_stod.tensor_weights(counts, "capped"))
    found = basis_moments(sums_of(counts, basis), basis, np.float64)
    third = np.einsum("xyz,xi,yj,zk->ijk", exact.third, basis, basis, basis, optimize=True)
    np.testing.assert_allclose(unpacked(found.third, width), third, atol=1e-14)
    np.testing.assert_allclose(found.pair_projection, exact.second @ basis, atol=1e-14)


@pytest.mark.parametrize(("documents", "nonzeros"), [(1, 2**20), (7, 2**20), (4096, 1), (4096, 40), (5, 40)])
def test_where_blocks_end_is_rounding(monkeypatch: pytest.MonkeyPatch, documents: int, nonzeros: int) -> None:
    counts, basis = corpus(60, N_WORDS, 30), basis_of(N_WORDS, 6)
    whole = sums_of(counts, basis)
    monkeypatch.setattr(document_tensor, "DOCUMENT_BLOCK", documents)
    monkeypatch.setattr(document_tensor, "NONZERO_BLOCK", nonzeros)
    for name, values in vars(sums_of(counts, basis)).items():
        np.testing.assert_allclose(values, getattr(whole, name), rtol=1e-12, atol=1e-15, err_msg=name)


def peak_of(shares: csr_array[Any], width: int) -> int:
    """Most bytes allocated by the sums of three batches, each ``shares``."""
    basis, lengths = basis_of(shares.shape[1], width).astype(np.float32), np.full(shares.shape[0], 5000.0)
    batch = WeightedShares(shares, lengths, tensor_weights(lengths, "capped"))
    few = WeightedShares(shares[:1], lengths[:1], batch.weights[:1])
    # Compiling allocates more than the sums.
    tensor_sums([few], basis)
    tracemalloc.start()
    tensor_sums([batch] * 3, basis)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.mark.parametrize(("n_words", "width"), [(2000, 20), (150, 120)])
def test_memory_is_as_planned_for_long_documents(n_words: int, width: int) -> None:
    # Dense documents, more nonzeros in a batch than a block may have.
    n_documents = 2 * document_tensor.NONZERO_BLOCK // n_words
    shares = csr_array(np.full((n_documents, n_words), 1 / n_words, np.float32))
    planned = tensor_memory(n_words, width) + 8 * document_tensor.NONZERO_BLOCK
    assert peak_of(shares, width) < planned
