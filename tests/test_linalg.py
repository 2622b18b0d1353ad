"""Probes, factors and eigenpairs against dense algebra, over several spectra."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.evaluation.matching import yy_error
from streaming_jsmf.linalg import eigen as eigen_module
from streaming_jsmf.linalg import factor as factor_module
from streaming_jsmf.linalg.csr import document_weights
from streaming_jsmf.linalg.eigen import factor_eigenpairs, nystrom_eigenpairs, single_view_eigenpairs
from streaming_jsmf.linalg.factor import apply_gram, merge_factors, partition_factor
from streaming_jsmf.linalg.gram import gram, inverse_square_root, rotate, single_gram, stacked_qr
from streaming_jsmf.linalg.probes import ROWS_PER_COUNTER, gaussian_probes, uniform_probes
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
    monkeypatch.setattr(factor_module, "ROW_BLOCK_BYTES", 4 * 7 * 13)
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


@pytest.mark.parametrize("rank", [1, 5, 12])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_factor_wide_enough_for_the_rank_is_exact(rank: int, steps: int) -> None:
    h = sparse_rows(rank)
    f = partition_factor(h, gaussian_probes(N, 12, 0, "p"), steps)
    assert f.shape[1] <= 12
    dense = h.toarray().astype(float)
    np.testing.assert_allclose(f.astype(float) @ f.T, dense.T @ dense, atol=5e-6)


def test_power_steps_lower_the_error_of_a_narrow_factor() -> None:
    h = sparse_rows(60, decay=0.93)
    dense = h.toarray().astype(float)
    second = dense.T @ dense
    errors = [
        np.linalg.norm(second - (f := partition_factor(h, gaussian_probes(N, 10, 0, "p"), steps)) @ f.T)
        for steps in (1, 2, 4)
    ]
    best = np.linalg.norm(np.linalg.eigvalsh(second)[:-10])
    assert errors[0] > 1.2 * errors[1] > 1.2 * best * 0.9
    assert errors[2] < 1.08 * best


def test_merging_is_exact_while_the_ranks_fit() -> None:
    parts = [partition_factor(sparse_rows(4, seed=s), gaussian_probes(N, 4, 0, "p"), 2) for s in range(3)]
    merged = merge_factors(merge_factors(parts[0], parts[1], 12), parts[2], 12)
    expected = sum(part.astype(float) @ part.T for part in parts)
    np.testing.assert_allclose(merged.astype(float) @ merged.T, expected, atol=2e-6)
    assert merged.shape[1] == 12


@given(st.integers(0, 2**31), st.integers(1, 10))
def test_a_truncated_merge_never_exceeds_the_sum_and_keeps_its_best_part(seed: int, width: int) -> None:
    a, b = (
        partition_factor(sparse_rows(8, seed=seed + i), gaussian_probes(N, 8, i, "p"), 2) for i in range(2)
    )
    before = a.astype(float) @ a.T + b.astype(float) @ b.T
    merged = merge_factors(a, b, width).astype(float)
    values = np.linalg.eigvalsh(before)
    assert np.linalg.eigvalsh(before - merged @ merged.T).min() > -1e-5
    assert np.linalg.norm(before - merged @ merged.T) <= np.linalg.norm(values[: N - width]) + 1e-5


SPECTRA = {
    "low rank": np.r_[np.linspace(1, 0.2, 8), np.zeros(N - 8)],
    "slow decay": 1.0 / (1 + np.arange(N)),
    "negative tail": np.r_[0.9 ** np.arange(20), -0.5 * np.ones(N - 20)],
}


@pytest.mark.parametrize("spectrum", SPECTRA)
def test_eigenpairs_are_the_largest_algebraic_ones(spectrum: str) -> None:
    values = SPECTRA[spectrum]
    shift = max(0.0, -values.min()) + 0.1
    vectors, _ = np.linalg.qr(np.random.default_rng(1).standard_normal((N, N)))
    factor = vectors * np.sqrt(values + shift)
    pairs = factor_eigenpairs(factor, np.full(N, shift), 6)
    expected = reference.truncated_eig((vectors * values) @ vectors.T, 6)
    np.testing.assert_allclose(pairs.values, expected.values, atol=1e-6)
    every = factor_eigenpairs(factor[:4, :2], np.full(4, 0.5), 4).values
    tiny = factor[:4, :2] @ factor[:4, :2].T - 0.5 * np.eye(4)
    np.testing.assert_allclose(every, np.linalg.eigvalsh(tiny)[::-1])
    y, y_expected = (p.vectors * np.sqrt(np.maximum(p.values, 0)) for p in (pairs, expected))
    assert yy_error(y, y_expected) < 1e-5


def test_nystrom_is_exact_on_a_positive_matrix_of_the_basis_rank_and_drops_what_is_negative() -> None:
    c = symmetric(np.r_[1.0, 0.5, 0.25, np.zeros(N - 3)])
    basis, _ = np.linalg.qr(c @ np.random.default_rng(0).standard_normal((N, 3)))
    np.testing.assert_allclose(nystrom_eigenpairs(basis, c @ basis).values, [1.0, 0.5, 0.25])
    mixed = symmetric(np.r_[1.0, 0.5, np.full(N - 2, -0.3)])
    exact = reference.truncated_eig(mixed, 6)
    pairs = nystrom_eigenpairs(exact.vectors, mixed @ exact.vectors)
    np.testing.assert_allclose(pairs.values, [1.0, 0.5])
    np.testing.assert_allclose(np.abs(pairs.vectors.T @ exact.vectors[:, :2]), np.eye(2), atol=1e-10)


@pytest.mark.parametrize("rows", [40, 400])
def test_a_factor_keeps_weak_directions_whether_documents_or_words_are_fewer(rows: int) -> None:
    """Steps from the columns of a factor would lose directions below 3e-4 of the strongest."""
    rng = np.random.default_rng(3)
    left, right = (np.linalg.qr(rng.standard_normal((n, 30)))[0] for n in (rows, N))
    strengths = np.logspace(0, -3, 30)  # of H; their squares are those of H'H
    block = csr_array(((left * strengths) @ right.T).astype(np.float32))
    factor = partition_factor(block, gaussian_probes(N, 40, 0, "weak"), 3).astype(np.float64)
    np.testing.assert_allclose(factor @ factor.T, (right * strengths**2) @ right.T, atol=2e-6)
    assert np.linalg.matrix_rank(factor, tol=2e-3) >= 27


def test_nothing_has_no_directions() -> None:
    nothing, probes = csr_array((5, N), dtype=np.float32), gaussian_probes(N, 4, 0, "p")
    np.testing.assert_array_equal(apply_gram(nothing, probes), 0)
    np.testing.assert_array_equal(apply_gram(nothing[:0], probes), 0)
    assert inverse_square_root(np.zeros((3, 3))).shape == (3, 0)
    empty = partition_factor(nothing, probes, 3)
    assert empty.shape == (N, 0)
    part = partition_factor(sparse_rows(4), probes, 2)
    for merged in (merge_factors(part, empty, 8), merge_factors(empty, part, 8)):
        np.testing.assert_allclose(merged @ merged.T, part @ part.T, atol=1e-6)


@pytest.mark.parametrize(
    ("diagonal", "width", "outside", "expected"),
    [
        # A thousand times weaker than the first, as topics are relative to word frequencies.
        ([1.0, 4e-4, 2e-4, 1e-4, 0.0], 4, 0.0, [1.0, 4e-4, 2e-4, 1e-4]),
        # The residual of the third pair outside the basis is seven times its own length.
        ([1.0, 0.5, 0.01, 0.0, 0.0], 3, 0.05, [1.0, 0.5]),
    ],
)
def test_nystrom_keeps_weak_pairs_and_drops_those_with_long_residuals(
    diagonal: list[float], width: int, outside: float, expected: list[float]
) -> None:
    c, basis = np.diag(diagonal), np.eye(5)[:, :width]
    c[2, 3:] += outside
    c[3:, 2] += outside
    np.testing.assert_allclose(nystrom_eigenpairs(basis, c @ basis).values, expected)


def test_single_view_is_exact_on_a_matrix_of_the_range_rank() -> None:
    c = symmetric(np.r_[1.0, 0.5, 0.25, np.zeros(N - 3)])
    probes = gaussian_probes(N, 12, 0, "halko")
    pairs = single_view_eigenpairs(c @ probes, probes, 3)
    np.testing.assert_allclose(pairs.values, [1.0, 0.5, 0.25], atol=1e-9)


@pytest.mark.parametrize("length", [4, 40])
def test_block_davidson_finds_what_dense_algebra_finds(
    length: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    h = planted(2000, 700, 6, length=length, seed=9).counts.astype(float)
    n = h.sum(axis=1)
    h, n = h[n >= 2], n[n >= 2]
    factor = partition_factor(
        csr_array(h / np.sqrt(n * (n - 1) * len(n))[:, None], dtype=np.float32),
        gaussian_probes(700, 80, 0, "p"),
        3,
    )
    diagonal = (h / (n * (n - 1))[:, None]).sum(axis=0) / len(n)
    found = factor_eigenpairs(factor, diagonal, 20)
    monkeypatch.setattr(eigen_module, "DENSE_WORDS", 1000)
    exact = factor_eigenpairs(factor, diagonal, 20)
    if length == 4:
        assert np.linalg.eigvalsh(factor @ factor.T - np.diag(diagonal))[0] < -exact.values[6], (
            "the case must bite"
        )
    np.testing.assert_allclose(found.values[:10], exact.values[:10], rtol=0.02)
    y, y_exact = (pairs.leading(6).vectors * np.sqrt(pairs.leading(6).values) for pairs in (found, exact))
    assert yy_error(y, y_exact) < 1e-3
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(20), atol=1e-12)
