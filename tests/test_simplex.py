"""Simplex least squares: against the oracle and its own certificate, also on hard problems."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from streaming_jsmf.linalg.simplex import SimplexSolution, simplex_least_squares
from tests import reference

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


def test_the_gap_bounds_the_distance_from_the_minimum() -> None:
    x, v = problem(2, 30.0)
    exact = reference.simplex_least_squares(x, v)
    found = simplex_least_squares(x, v)
    reached, least = (((x - b @ v) ** 2).sum(axis=1) for b in (found.weights, exact))
    assert (reached - least <= found.gap + 1e-13).all()


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


@pytest.mark.parametrize("condition", [3.0, 1e3, 5e4])
@pytest.mark.parametrize("n_vertices", [12, 60])
def test_kkt_conditions_hold_below_1e_8(condition: float, n_vertices: int) -> None:
    x, v = problem(1, condition, n_vertices=n_vertices)
    b = simplex_least_squares(x, v).weights
    scale = (x**2).sum(axis=1)[:, None]
    gradient = (b @ v - x) @ v.T
    level = (b * gradient).sum(axis=1, keepdims=True)
    # No vertex descends, and every one that is used is level with the others.
    assert ((gradient - level) / scale).min() > -1e-8
    assert np.abs(np.where(b > 0, gradient - level, 0.0) / scale).max() < 1e-8


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


@pytest.mark.parametrize(
    ("X", "V", "options"),
    [
        (np.zeros((2, 3)), np.zeros((2, 4)), {}),
        (np.zeros(3), np.zeros((2, 3)), {}),
        (np.zeros((2, 3)), np.zeros((0, 3)), {}),
        (np.zeros((2, 3)), np.eye(3), {"threads": 0}),
        (np.zeros((2, 3)), np.eye(3), {"block_rows": 0}),
    ],
)
def test_arguments_that_do_not_fit_are_refused(X: Floats, V: Floats, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be|needed"):
        simplex_least_squares(X, V, **options)
