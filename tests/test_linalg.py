"""Linear algebra against dense formulas."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array

from pipelines.common.matching import yy_error
from streaming_jsmf.inference.stod import unpacked
from streaming_jsmf.linalg import csr as csr_module
from streaming_jsmf.linalg import tensor
from streaming_jsmf.linalg.csr import (
    add_transposed,
    apply_gram,
    document_weights,
    multiply_rows,
)
from streaming_jsmf.linalg.eigen import RitzBlock, nystrom_factor, single_view_eigenpairs
from streaming_jsmf.linalg.panels import gram, inverse_square_root, rotate, single_gram, stacked_qr
from streaming_jsmf.linalg.probes import ROWS_PER_COUNTER, gaussian_probes, uniform_probes
from streaming_jsmf.linalg.sampled import sample_eigenpairs
from streaming_jsmf.linalg.simplex import SimplexSolution, simplex_least_squares
from streaming_jsmf.linalg.tensor import (
    ROW_BLOCK,
    SLAB,
    CubeSum,
    add_products,
    basis_moments,
    packed_size,
    tensor_sums,
)
from streaming_jsmf.moments.needs import tensor_bytes
from tests import reference, reference_stod
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


def test_corrections_count_however_short_they_are() -> None:
    """D, which only guides the corrections, makes them a billionth of the vectors."""
    values = np.concatenate([np.linspace(2, 1, 5), np.linspace(0.5, 0, 95)])
    c = symmetric(values)

    def times(vectors: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        out[...] = c @ vectors

    start = np.random.default_rng(1).standard_normal((values.size, 10)).astype(np.float32)
    found = RitzBlock(times, np.full(values.size, 1e9), start, 10).leading(5, steps=20)
    np.testing.assert_allclose(found.values, values[:5], rtol=1e-6)


# -- Simplex least squares: against the oracle and its own certificate, also on hard problems --


Floats = NDArray[np.float64]


def conditioned(rng: np.random.Generator, n_vertices: int, condition: float) -> Floats:
    """Square vertices with singular values from 1 down to 1 / condition."""
    left, right = (np.linalg.qr(rng.normal(size=(n_vertices, n_vertices)))[0] for _ in range(2))
    return left @ np.diag(np.geomspace(1.0, 1.0 / condition, n_vertices)) @ right


def problem(seed: int, condition: float, n_rows: int = 150, n_vertices: int = 12) -> tuple[Floats, Floats]:
    """Rows near mixtures of vertices of a given condition."""
    rng = np.random.default_rng(seed)
    vertices = conditioned(rng, n_vertices, condition)
    mixtures = rng.dirichlet(np.full(n_vertices, 0.3), size=n_rows)
    return mixtures @ vertices + 1e-3 * rng.standard_normal((n_rows, n_vertices)), vertices


def require_certified(X: Floats, V: Floats, solution: SimplexSolution, tolerance: float = 1e-10) -> None:
    """Feasible; the oracle's gap, computed afresh, is small relative to the numbers involved, and the one reported."""
    b = solution.weights
    assert b.min() >= 0.0
    np.testing.assert_allclose(b.sum(axis=1), 1.0, atol=1e-12)
    scale = np.maximum((X**2).sum(axis=1), (V**2).sum(axis=1).max())
    gaps = np.array([reference.simplex_gap(x, V, row) for x, row in zip(X, b, strict=True)])
    assert (gaps <= tolerance * scale).all()
    assert (np.abs(gaps - solution.gap) <= 1e-10 * scale).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 12), st.integers(1, 10), st.sampled_from([1e-3, 0.1, 1.0, 30.0]))
def test_the_solution_is_that_of_the_oracle(seed: int, n_vertices: int, width: int, spread: float) -> None:
    rng = np.random.default_rng(seed)
    V = rng.normal(size=(n_vertices, width))
    X = rng.normal(size=(7, width)) * spread
    solution = simplex_least_squares(X, V)
    require_certified(X, V, solution)
    exact = reference.simplex_least_squares(X, V)
    np.testing.assert_allclose(solution.weights @ V, exact @ V, atol=1e-6 * max(1.0, spread))
    if width >= n_vertices:
        # Independent vertices: the weights themselves are unique, not only the point.
        np.testing.assert_allclose(solution.weights, exact, atol=1e-6 * np.linalg.cond(V))


def test_one_vertex_takes_all() -> None:
    one = simplex_least_squares(np.array([[0.0, 0.0], [6.0, 2.0]]), [[3.0, 1.0]])
    np.testing.assert_array_equal(one.weights, [[1.0], [1.0]])
    assert one.gap.max() == 0.0


@pytest.mark.parametrize("condition", [1e1, 1e3, 5e4])
@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_ill_conditioned_vertices(condition: float, noise: float) -> None:
    rng = np.random.default_rng(int(condition))
    V = conditioned(rng, 40, condition)
    truth = rng.dirichlet(np.full(40, 0.1), size=300)
    X = truth @ V + noise * rng.normal(size=(300, 40))
    solution = simplex_least_squares(X, V)
    assert (solution.gap / (X**2).sum(axis=1)).max() < 1e-10
    require_certified(X, V, solution)
    if noise == 0.0:
        assert np.abs(solution.weights - truth).max() < 1e-13 * condition**2


def test_many_passive_vertices_enter_and_leave_without_losing_the_solution() -> None:
    # Mixtures of half of sixty vertices: dozens of vertices enter and leave again in each row.
    rng = np.random.default_rng(6)
    _, v = problem(7, 5e4, n_vertices=60)
    truth = np.zeros((80, 60))
    for row in truth:
        row[rng.permutation(60)[:30]] = rng.dirichlet(np.ones(30))
    found = simplex_least_squares(truth @ v, v)
    assert (found.gap / ((truth @ v) ** 2).sum(axis=1)).max() < 1e-12
    np.testing.assert_allclose(found.weights, truth, atol=1e-4)


def test_rows_that_are_vertices_give_exact_unit_vectors() -> None:
    V = conditioned(np.random.default_rng(2), 30, 5e4)
    np.testing.assert_array_equal(simplex_least_squares(V, V).weights, np.eye(30))


def test_points_outside_the_hull_land_on_its_border() -> None:
    V = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    X = np.array([[2.0, 2.0], [-1.0, -1.0], [5.0, 0.0], [0.25, -3.0], [0.25, 0.25]])
    expected = [[0, 0.5, 0.5], [1, 0, 0], [0, 1, 0], [0.75, 0.25, 0], [0.5, 0.25, 0.25]]
    np.testing.assert_allclose(simplex_least_squares(X, V).weights, expected, atol=1e-12)


@pytest.mark.parametrize("offset", [0.0, 1e-12, 1e-9, 1e-6])
def test_duplicate_and_nearly_duplicate_vertices(offset: float) -> None:
    rng = np.random.default_rng(3)
    base = rng.normal(size=(6, 6))
    V = np.vstack([base, base + offset * rng.normal(size=(6, 6)), base[:2].mean(axis=0, keepdims=True)])
    X = np.vstack([rng.normal(size=(40, 6)) * 3, rng.dirichlet(np.ones(6), size=40) @ base, base])
    require_certified(X, V, simplex_least_squares(X, V))


def test_vertices_of_very_different_lengths() -> None:
    rng = np.random.default_rng(8)
    V = rng.normal(size=(18, 39)) * 10.0 ** rng.uniform(-8, 8, size=(18, 1))
    X = np.vstack([rng.dirichlet(np.ones(18), size=40) @ V, rng.normal(size=(40, 39)) * V.max()])
    require_certified(X, V, simplex_least_squares(X, V), tolerance=1e-12)


def test_zero_rows_zero_vertices_and_no_rows() -> None:
    V = np.array([[0.0, 0.0], [3.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
    X = np.array([[0.0, 0.0], [6.0, 2.0]])
    np.testing.assert_array_equal(simplex_least_squares(X, V).weights, [[1, 0, 0, 0], [0, 1, 0, 0]])
    assert (simplex_least_squares(X, np.zeros((3, 2))).weights.sum(axis=1) == 1).all()
    assert simplex_least_squares(np.empty((0, 2)), V).weights.shape == (0, 4)


@pytest.mark.parametrize("factor", [1e-150, 1e-20, 1e20, 1e100])
def test_scale_does_not_matter(factor: float) -> None:
    rng = np.random.default_rng(4)
    V, X = rng.normal(size=(5, 5)), rng.normal(size=(20, 5))
    plain = simplex_least_squares(X, V).weights
    np.testing.assert_allclose(simplex_least_squares(X * factor, V * factor).weights, plain, atol=1e-9)


def test_same_bits_for_any_threads_and_blocks() -> None:
    rng = np.random.default_rng(5)
    V, X = rng.normal(size=(20, 20)), rng.normal(size=(3001, 20))
    one, *others = (
        simplex_least_squares(X, V, threads=threads, block_rows=rows)
        for threads, rows in ((1, 256), (2, 256), (None, 1000))
    )
    for other in others:
        assert one.weights.tobytes() == other.weights.tobytes()
        assert one.gap.tobytes() == other.gap.tobytes()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_input_that_is_not_finite_is_refused(bad: float) -> None:
    V, X = np.eye(3), np.zeros((5, 3))
    X[4, 1] = bad
    with pytest.raises(ValueError, match=r"X .* rows 4 to 4"):
        simplex_least_squares(X, V, block_rows=2)
    with pytest.raises(ValueError, match="vertices"):
        simplex_least_squares(np.zeros((5, 3)), np.where(V > 0, bad, 0.0))


# -- Sums of cubes by slabs against sums written out, at widths around those of a slab and of its halves --


#: Halves of one slab less one column, of whole slabs, of one column more; and those without a second half.
WIDTHS = (0, 1, 2, 3, SLAB - 1, SLAB, SLAB + 1, 2 * SLAB - 1, 2 * SLAB, 2 * SLAB + 1, 4 * SLAB + 3)


def rows_of(n: int, width: int, dtype: type[np.floating[Any]] = np.float64, seed: int = 0) -> NDArray[Any]:
    return np.random.default_rng(seed).standard_normal((n, width)).astype(dtype)


def in_order(tensor: NDArray[np.float64]) -> NDArray[np.float64]:
    """The packed form, an entry at a time."""
    entries = combinations_with_replacement(range(len(tensor)), 3)
    return np.array([tensor[entry] for entry in entries])


@pytest.mark.parametrize("width", WIDTHS)
def test_cubes_are_those_of_the_definition(width: int) -> None:
    rows, weights = rows_of(9, width), rows_of(9, 1, seed=1)[:, 0]
    total = CubeSum(width, np.float64)
    total.add_cubes(rows[:4], weights[:4])
    total.add_cubes(rows[4:], weights[4:])
    exact = np.einsum("xi,xj,xk,x->ijk", rows, rows, rows, weights)
    packed = total.packed()
    assert packed.shape == (packed_size(width),)
    np.testing.assert_allclose(packed, in_order(exact), atol=1e-13)
    np.testing.assert_allclose(unpacked(packed, width), exact, atol=1e-13)


@pytest.mark.parametrize("width", WIDTHS)
def test_mixed_products_are_those_of_the_definition(width: int) -> None:
    q, f = rows_of(9, width), rows_of(9, width, seed=1)
    total = CubeSum(width, np.float64)
    total.add_mixed(q, f)
    exact = sum(np.einsum("xi,xj,xk->ijk", *three) for three in ((f, q, q), (q, f, q), (q, q, f)))
    np.testing.assert_allclose(total.packed(), in_order(np.asarray(exact)), atol=1e-13)


@pytest.mark.parametrize("n", [0, 1, ROW_BLOCK - 1, ROW_BLOCK, ROW_BLOCK + 1, 2 * ROW_BLOCK + 1])
def test_no_summand_is_lost_between_blocks(n: int) -> None:
    rows, weights = rows_of(n, 5), rows_of(n, 1, seed=1)[:, 0]
    total = CubeSum(5, np.float64)
    total.add_cubes(rows, weights)
    exact = np.einsum("xi,xj,xk,x->ijk", rows, rows, rows, weights)
    np.testing.assert_allclose(unpacked(total.packed(), 5), exact, atol=1e-11)


def test_products_are_single_and_sums_double() -> None:
    rows, weights = rows_of(40 * ROW_BLOCK, 6, np.float32), np.ones(40 * ROW_BLOCK)
    exact, found = CubeSum(6, np.float64), CubeSum(6, np.float32)
    exact.add_cubes(rows.astype(np.float64), weights)
    found.add_cubes(rows, weights)
    error = np.linalg.norm(found.packed() - exact.packed()) / np.linalg.norm(exact.packed())
    assert 1e-10 < error < 1e-6
    # One summand that float32 would lose beside the rest, each in a block of its own.
    large, small = np.full((1, 1), 2.0**8, np.float32), np.ones((1, 1), np.float32)
    found = CubeSum(1, np.float32)
    found.add_cubes(large, np.array([2.0**8]))
    found.add_cubes(small, np.ones(1))
    assert found.packed()[0] == 2.0**32 + 1


# -- The blocks of documents of the tensor pass --


N_WORDS = 4 * SLAB + 3


def corpus(n_documents: int, n_words: int, tokens: int) -> NDArray[np.int64]:
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, tokens, size=n_documents)
    return np.array([rng.multinomial(n, rng.dirichlet(np.full(n_words, 0.3))) for n in lengths])


def basis_of(n_words: int, width: int) -> NDArray[np.float64]:
    return np.linalg.qr(np.random.default_rng(1).standard_normal((n_words, width))).Q


def sums_of(counts: NDArray[np.int64], basis: NDArray[np.float64]) -> tensor.TensorSums:
    lengths = counts.sum(axis=1).astype(np.float64)
    shares = csr_array(counts / np.maximum(lengths, 1.0)[:, None])
    return tensor_sums([(shares, lengths)], basis, "capped")


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
    monkeypatch.setattr(tensor, "DOCUMENT_BLOCK", documents)
    monkeypatch.setattr(tensor, "NONZERO_BLOCK", nonzeros)
    for name, values in vars(sums_of(counts, basis)).items():
        np.testing.assert_allclose(values, getattr(whole, name), rtol=1e-12, atol=1e-15, err_msg=name)


def peak_of(shares: csr_array[Any], width: int) -> int:
    """Most bytes allocated by the sums of three batches, each ``shares``."""
    basis, lengths = basis_of(shares.shape[1], width).astype(np.float32), np.full(shares.shape[0], 5000.0)
    # Compiling allocates more than the sums.
    tensor_sums([(shares[:1], lengths[:1])], basis, "capped")
    tracemalloc.start()
    tensor_sums([(shares, lengths)] * 3, basis, "capped")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.mark.parametrize(("n_words", "width"), [(2000, 20), (150, 120)])
def test_memory_is_as_planned_for_long_documents(n_words: int, width: int) -> None:
    # Dense documents, more nonzeros in a batch than a block may have.
    n_documents = 2 * tensor.NONZERO_BLOCK // n_words
    shares = csr_array(np.full((n_documents, n_words), 1 / n_words, np.float32))
    planned = tensor_bytes(n_words, width) + 8 * tensor.NONZERO_BLOCK
    assert peak_of(shares, width) < planned


# -- Compiled sparse products, which take four nonzeros at once, against dense ones for rows and words of 0 to 9 --


N_RAGGED = 23


def ragged(dtype: type[np.floating[Any]] = np.float64) -> csr_array[Any]:
    """Rows of 0 to 9 nonzeros and back, whose words are in no order; words of as many rows as it comes."""
    rng = np.random.default_rng(0)
    sizes = [*range(10), *range(9, -1, -1)]
    words = [rng.permutation(N_RAGGED - 1)[:size] for size in sizes]
    indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    values = rng.standard_normal(indptr[-1]).astype(dtype)
    return csr_array((values, np.concatenate(words).astype(np.int32), indptr), shape=(len(sizes), N_RAGGED))


def gaussian(*shape: int, seed: int = 1) -> NDArray[np.float64]:
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize("width", [0, 1, 2, 7, 8, 17, 33])
def test_rows_times_vectors(width: int) -> None:
    block, vectors = ragged(), gaussian(N_RAGGED, width)
    # What lies in the memory before does not count.
    out = np.full((block.shape[0], width), np.nan)
    multiply_rows(block.indptr, block.indices, block.data, vectors, out)
    np.testing.assert_allclose(out, block.toarray() @ vectors, atol=1e-14)


def test_single_products_and_their_transpose() -> None:
    block, vectors = ragged(np.float32), gaussian(N_RAGGED, 5).astype(np.float32)
    out = np.empty((block.shape[0], 5), np.float32)
    multiply_rows(block.indptr, block.indices, block.data, vectors, out)
    np.testing.assert_allclose(out, block.toarray() @ vectors, atol=5e-6)
    total = np.ones((N_RAGGED, 5), np.float32)
    add_transposed(block.indptr, block.indices, block.data, out, total)
    np.testing.assert_allclose(total, 1 + block.toarray().T @ out, atol=5e-5)


@pytest.mark.parametrize("width", [1, 2, 7, 8, 17])
def test_words_get_the_sums_over_their_documents(width: int) -> None:
    block = ragged()
    # Words of 0 to 9 documents as well: these are the rows of the transpose.
    for counts in (block, block.T.tocsr()):
        n_documents, n_words = counts.shape
        projected, scales = gaussian(n_documents, width), gaussian(n_documents, 2, seed=2)
        triples, pairs = np.ones((n_words, width)), np.ones((n_words, width))
        of_word = counts.tocsc()
        add_products(of_word.indptr, of_word.indices, of_word.data, projected, scales, triples, pairs)
        dense = counts.toarray()
        np.testing.assert_allclose(triples, 1 + dense.T @ (scales[:, :1] * projected), atol=1e-13)
        np.testing.assert_allclose(pairs, 1 + dense.T @ (scales[:, 1:] * projected), atol=1e-13)
