"""Simplex least squares against the oracle and its own certificate."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_jsmf.linalg import simplex
from streaming_jsmf.linalg.simplex import simplex_least_squares
from tests import reference as ref


def conditioned(rng: np.random.Generator, n_vertices: int, condition: float) -> np.ndarray:
    """Square vertices with singular values from 1 down to 1 / condition."""
    left, right = (np.linalg.qr(rng.normal(size=(n_vertices, n_vertices)))[0] for _ in range(2))
    return left @ np.diag(np.geomspace(1.0, 1.0 / condition, n_vertices)) @ right


def assert_certified(
    X: np.ndarray, V: np.ndarray, solution: simplex.SimplexSolution, tolerance: float = 1e-10
):
    """Feasible, and the oracle's own gap, worked out afresh, is small beside the numbers involved."""
    b = solution.weights
    assert b.min() >= 0.0
    np.testing.assert_allclose(b.sum(axis=1), 1.0, atol=1e-12)
    scale = np.maximum((X**2).sum(axis=1), (V**2).sum(axis=1).max())
    gaps = np.array([ref.simplex_gap(x, V, row) for x, row in zip(X, b, strict=True)])
    assert (gaps <= tolerance * scale).all()
    assert (np.abs(gaps - solution.gap) <= 1e-10 * scale).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 12), st.integers(1, 10), st.sampled_from([1e-3, 0.1, 1.0, 30.0]))
def test_objective_equals_the_oracle(seed, n_vertices, width, spread):
    rng = np.random.default_rng(seed)
    V = rng.normal(size=(n_vertices, width))
    X = rng.normal(size=(7, width)) * spread
    solution = simplex_least_squares(X, V)
    assert_certified(X, V, solution)
    exact = ref.simplex_least_squares(X, V)
    np.testing.assert_allclose(solution.weights @ V, exact @ V, atol=1e-6 * max(1.0, spread))
    if width >= n_vertices:
        # Independent vertices: the weights themselves are unique, not only the point.
        np.testing.assert_allclose(solution.weights, exact, atol=1e-6 * np.linalg.cond(V))


@pytest.mark.parametrize("condition", [1e1, 1e3, 5e4])
@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_ill_conditioned_vertices(condition, noise):
    rng = np.random.default_rng(int(condition))
    V = conditioned(rng, 40, condition)
    truth = rng.dirichlet(np.full(40, 0.1), size=300)
    X = truth @ V + noise * rng.normal(size=(300, 40))
    solution = simplex_least_squares(X, V)
    relative = solution.gap / (X**2).sum(axis=1)
    assert relative.max() < 1e-10
    assert_certified(X, V, solution)
    if noise == 0.0:
        assert np.abs(solution.weights - truth).max() < 1e-13 * condition**2


def test_rows_that_are_vertices_give_exact_unit_vectors():
    V = conditioned(np.random.default_rng(2), 30, 5e4)
    solution = simplex_least_squares(V, V)
    np.testing.assert_array_equal(solution.weights, np.eye(30))


def test_points_outside_the_hull_land_on_its_border():
    V = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    X = np.array([[2.0, 2.0], [-1.0, -1.0], [5.0, 0.0], [0.25, -3.0], [0.25, 0.25]])
    expected = [[0, 0.5, 0.5], [1, 0, 0], [0, 1, 0], [0.75, 0.25, 0], [0.5, 0.25, 0.25]]
    np.testing.assert_allclose(simplex_least_squares(X, V).weights, expected, atol=1e-6)


@pytest.mark.parametrize("offset", [0.0, 1e-12, 1e-9, 1e-6])
def test_duplicate_and_nearly_duplicate_vertices(offset):
    rng = np.random.default_rng(3)
    base = rng.normal(size=(6, 6))
    V = np.vstack([base, base + offset * rng.normal(size=(6, 6)), base[:2].mean(axis=0, keepdims=True)])
    X = np.vstack([rng.normal(size=(40, 6)) * 3, rng.dirichlet(np.ones(6), size=40) @ base, base])
    assert_certified(X, V, simplex_least_squares(X, V))


def test_zero_rows_zero_vertices_and_one_vertex():
    V = np.array([[0.0, 0.0], [3.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
    X = np.array([[0.0, 0.0], [6.0, 2.0]])
    np.testing.assert_array_equal(simplex_least_squares(X, V).weights, [[1, 0, 0, 0], [0, 1, 0, 0]])
    assert (simplex_least_squares(X, np.zeros((3, 2))).weights.sum(axis=1) == 1).all()
    for method in ("active-set", "exponentiated-gradient"):
        one = simplex_least_squares(X, V[1:2], method=method)
        np.testing.assert_array_equal(one.weights, [[1.0], [1.0]])
        assert one.gap.max() == 0.0
    assert simplex_least_squares(np.empty((0, 2)), V).weights.shape == (0, 4)


@pytest.mark.parametrize("factor", [1e-150, 1e-20, 1e20, 1e100])
def test_scale_does_not_matter(factor):
    rng = np.random.default_rng(4)
    V, X = rng.normal(size=(5, 5)), rng.normal(size=(20, 5))
    plain = simplex_least_squares(X, V).weights
    np.testing.assert_allclose(simplex_least_squares(X * factor, V * factor).weights, plain, atol=1e-9)


def test_same_bits_for_any_number_of_threads():
    rng = np.random.default_rng(5)
    V, X = rng.normal(size=(20, 20)), rng.normal(size=(3001, 20))
    one, two = (simplex_least_squares(X, V, threads=n, block_rows=256) for n in (1, 2))
    assert one.weights.tobytes() == two.weights.tobytes()
    assert one.gap.tobytes() == two.gap.tobytes()
    # The rows know nothing of each other: block size does not matter either.
    other = simplex_least_squares(X, V, block_rows=1000)
    assert one.weights.tobytes() == other.weights.tobytes()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_input_that_is_not_finite_is_refused(bad):
    V, X = np.eye(3), np.zeros((5, 3))
    X[4, 1] = bad
    with pytest.raises(ValueError, match="X has entries that are not finite in rows 4 to 4"):
        simplex_least_squares(X, V, block_rows=2)
    with pytest.raises(ValueError, match="vertices"):
        simplex_least_squares(np.zeros((5, 3)), np.where(V > 0, bad, 0.0))


@pytest.mark.parametrize(
    ("X", "V", "options"),
    [
        (np.zeros((2, 3)), np.zeros((2, 4)), {}),
        (np.zeros(3), np.zeros((2, 3)), {}),
        (np.zeros((2, 3)), np.zeros((0, 3)), {}),
        (np.zeros((2, 3)), np.eye(3), {"method": "newton"}),
        (np.zeros((2, 3)), np.eye(3), {"threads": 0}),
        (np.zeros((2, 3)), np.eye(3), {"block_rows": 0}),
        (np.zeros((2, 3)), np.eye(3), {"tolerance": 0.0}),
    ],
)
def test_arguments_that_do_not_fit_are_refused(X, V, options):
    with pytest.raises(ValueError, match=r"must be|needed"):
        simplex_least_squares(X, V, **options)
