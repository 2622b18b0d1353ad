"""Probes, factors and eigenpairs against dense algebra, over several spectra."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.evaluation.matching import yy_error
from streaming_jsmf.linalg import csr as csr_module
from streaming_jsmf.linalg.csr import apply_gram, document_weights
from streaming_jsmf.linalg.eigen import nystrom_factor, single_view_eigenpairs
from streaming_jsmf.linalg.gram import gram, inverse_square_root, rotate, single_gram, stacked_qr
from streaming_jsmf.linalg.probes import ROWS_PER_COUNTER, gaussian_probes, uniform_probes
from streaming_jsmf.linalg.sampled import sample_eigenpairs
from tests import reference
from tests.corpora import planted

N = 60


def sparse_rows(rank: int, rows: int = 200, seed: int = 0, decay: float = 0.7) -> csr_array:
    """H (rows x N) of the given rank with a falling spectrum, as float32 CSR."""
    rng = np.random.default_rng(seed)
    left, _ = np.linalg.qr(rng.standard_normal((rows, rank)))
    right, _ = np.linalg.qr(rng.standard_normal((N, rank)))
    return csr_array((left * decay ** np.arange(rank)) @ right.T, dtype=np.float32)


def symmetric(values: NDArray[np.float64], seed: int = 0) -> NDArray[np.float64]:
    vectors, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((values.size, values.size)))
    return (vectors * values) @ vectors.T


@pytest.mark.parametrize(
    ("make", "width", "quartiles"),
    [
        (gaussian_probes, 6, [-0.674, 0, 0.674]),
        *((uniform_probes, width, [-0.5, 0, 0.5]) for width in (1, 3, 8)),
    ],
)
def test_probes_are_a_function_of_their_arguments_of_the_stated_distribution(
    make: Callable[..., NDArray[np.float32]], width: int, quartiles: list[float]
) -> None:
    probes = make(20_001, width, seed=3, label="a")
    np.testing.assert_array_equal(probes, make(20_001, width, 3, "a"))
    assert np.abs(np.quantile(probes, [0.25, 0.5, 0.75]) - quartiles).max() < 0.02
    if make is uniform_probes:
        assert np.abs(probes).max() < 1
    # Rows do not depend on those after them, and no block of rows repeats another.
    np.testing.assert_array_equal(probes[:ROWS_PER_COUNTER], make(9_000, width, 3, "a")[:ROWS_PER_COUNTER])
    others = make(20_001, width, 4, "a"), make(20_001, width, 3, "b"), np.roll(probes, ROWS_PER_COUNTER, 0)
    for other in others:
        assert abs(np.corrcoef(probes.ravel(), other.ravel())[0, 1]) < 0.03


@pytest.mark.parametrize("scheme", ["capped", "uniform", "length"])
def test_document_weights_equal_the_oracle_and_leave_out_short_documents(scheme: str) -> None:
    lengths = np.array([0, 1, 2, 57, 200, 90_000], dtype=float)
    weights = document_weights(lengths, scheme)  # type: ignore[arg-type]
    np.testing.assert_array_equal(weights[2:], reference.document_weights(lengths, scheme)[2:])
    np.testing.assert_array_equal(weights[:2], 0.0)


def test_apply_gram_is_the_dense_product_however_its_rows_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    h = sparse_rows(30)
    x = gaussian_probes(N, 7, 0, "")
    dense = h.toarray().astype(float)
    whole = apply_gram(h, x)
    np.testing.assert_allclose(whole, dense.T @ (dense @ x), rtol=0, atol=2e-6 * np.abs(whole).max())
    monkeypatch.setattr(csr_module, "ROW_BLOCK_BYTES", 4 * 7 * 13)
    np.testing.assert_allclose(apply_gram(h, x), whole, rtol=0, atol=2e-6 * np.abs(whole).max())


def test_a_rotation_in_place_is_a_product_and_may_be_narrower(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming_jsmf.linalg.panels.PANEL_ROWS", 128)
    rng = np.random.default_rng(0)
    for width in (6, 4, 0):
        tall, small = rng.standard_normal((500, 6)).astype(np.float32), rng.standard_normal((6, width))
        expected = tall @ small
        rotated = rotate(tall, small)
        np.testing.assert_allclose(rotated, expected, atol=1e-5)
        assert rotated.flags.c_contiguous


def test_a_gram_matrix_in_single_precision_is_exact_to_the_lengths_of_its_columns() -> None:
    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal((5000, 4)).astype(np.float32) * 10.0 ** -np.arange(4) for _ in "ab")
    left, right = left.astype(np.float32), right.astype(np.float32)
    for other in (None, right):
        exact = gram(left, other)
        lengths = np.linalg.norm(left, axis=0)[:, None] * np.linalg.norm(
            left if other is None else other, axis=0
        )
        assert (np.abs(single_gram(left, other) - exact) / lengths).max() < 1e-6


@pytest.mark.parametrize("n_rows", [3, 9000])
def test_stacked_qr_of_several_parts_is_that_of_all_side_by_side(n_rows: int) -> None:
    rng = np.random.default_rng(0)
    left = rng.standard_normal((n_rows, 3))
    # So close to the first part that their difference would drown in a Gram matrix.
    right = (left + 1e-10 * rng.standard_normal(left.shape))[:, :2]
    upper = stacked_qr(left, right)
    both = np.hstack([left, right])
    np.testing.assert_allclose(upper.T @ upper, both.T @ both, rtol=1e-12)
    np.testing.assert_array_equal(upper, np.triu(upper))
    apart = np.linalg.norm(upper[:, :2] - upper[:, 3:], axis=0)
    np.testing.assert_allclose(apart, np.linalg.norm(left[:, :2] - right, axis=0), rtol=1e-4)


def test_nothing_has_no_directions() -> None:
    nothing, probes = csr_array((5, N), dtype=np.float32), gaussian_probes(N, 4, 0, "p")
    np.testing.assert_array_equal(apply_gram(nothing, probes), 0)
    np.testing.assert_array_equal(apply_gram(nothing[:0], probes), 0)
    assert inverse_square_root(np.zeros((3, 3))).shape == (3, 0)
    assert nystrom_factor(np.eye(N)[:, :3], np.zeros((N, 3))).shape == (N, 0)


@pytest.mark.parametrize("rank", [3, 20])
def test_nystrom_agrees_with_the_matrix_on_the_basis_and_nowhere_exceeds_it(rank: int) -> None:
    a = symmetric(np.r_[np.logspace(0, -3, rank), np.zeros(N - rank)])
    basis = np.linalg.qr(a @ np.random.default_rng(0).standard_normal((N, 8)))[0]
    factor = nystrom_factor(basis, a @ basis).astype(np.float64)
    np.testing.assert_allclose(factor @ (factor.T @ basis), a @ basis, atol=2e-6)
    assert np.linalg.eigvalsh(a - factor @ factor.T)[0] > -2e-6
    if rank < 8:
        np.testing.assert_allclose(factor @ factor.T, a, atol=2e-6)


def test_single_view_is_exact_on_a_matrix_of_the_range_rank() -> None:
    c = symmetric(np.r_[1.0, 0.5, 0.25, np.zeros(N - 3)])
    probes = gaussian_probes(N, 12, 0, "halko")
    pairs = single_view_eigenpairs(c @ probes, probes, 3)
    np.testing.assert_allclose(pairs.values, [1.0, 0.5, 0.25], atol=1e-9)


@pytest.mark.parametrize("length", [4, 40])
def test_block_davidson_finds_what_dense_algebra_finds(length: float) -> None:
    h = planted(2000, 700, 6, length=length, seed=9).counts.astype(float)
    n = h.sum(axis=1)
    h, n = h[n >= 2], n[n >= 2]
    rows = csr_array(h / np.sqrt(n * (n - 1) * len(n))[:, None], dtype=np.float32)
    diagonal = (h / (n * (n - 1))[:, None]).sum(axis=0) / len(n)
    found = sample_eigenpairs(rows, diagonal, uniform_probes(700, 64, 0, "p"), 20, steps=8)
    values, vectors = np.linalg.eigh(rows.toarray().astype(float).T @ rows.toarray() - np.diag(diagonal))
    values, vectors = values[::-1], vectors[:, ::-1]
    if length == 4:
        assert values[-1] < -values[6], "the case must bite"
    np.testing.assert_allclose(found.values[:10], values[:10], rtol=0.02)
    y, y_exact = (x[:, :6] * np.sqrt(d[:6]) for x, d in ((found.vectors, found.values), (vectors, values)))
    assert yy_error(y, y_exact) < 1e-3
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(20), atol=1e-12)
