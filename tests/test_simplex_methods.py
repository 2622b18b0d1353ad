"""The certificates of every method of simplex least squares, and what is asked of the default."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from streaming_jsmf.linalg.simplex import simplex_least_squares
from tests import reference

Floats = NDArray[np.float64]


def problem(seed: int, condition: float, n_rows: int = 150, n_vertices: int = 12) -> tuple[Floats, Floats]:
    """Rows near mixtures of vertices of a given condition."""
    rng = np.random.default_rng(seed)
    left, right = (np.linalg.qr(rng.standard_normal((n_vertices, n_vertices)))[0] for _ in range(2))
    vertices = left @ np.diag(np.geomspace(1.0, 1.0 / condition, n_vertices)) @ right
    mixtures = rng.dirichlet(np.full(n_vertices, 0.3), size=n_rows)
    return mixtures @ vertices + 1e-3 * rng.standard_normal((n_rows, n_vertices)), vertices


@pytest.mark.parametrize("condition", [3.0, 1e3, 5e4])
@pytest.mark.parametrize("n_vertices", [12, 60])
def test_kkt_conditions_of_the_default_hold_below_1e_8(condition: float, n_vertices: int) -> None:
    x, v = problem(1, condition, n_vertices=n_vertices)
    b = simplex_least_squares(x, v).weights
    scale = (x**2).sum(axis=1)[:, None]
    gradient = (b @ v - x) @ v.T
    level = (b * gradient).sum(axis=1, keepdims=True)
    # No vertex descends, and every one that is used is level with the others.
    assert ((gradient - level) / scale).min() > -1e-8
    assert np.abs(np.where(b > 0, gradient - level, 0.0) / scale).max() < 1e-8


@pytest.mark.parametrize("method", ["active-set", "exponentiated-gradient"])
def test_the_gap_bounds_what_is_missing(method: str) -> None:
    x, v = problem(2, 30.0)
    exact = reference.simplex_least_squares(x, v)
    found = simplex_least_squares(x, v, method=method, tolerance=1e-6)
    assert found.weights.min() >= 0
    np.testing.assert_allclose(found.weights.sum(axis=1), 1.0, atol=1e-12)
    reached, least = (((x - b @ v) ** 2).sum(axis=1) for b in (found.weights, exact))
    assert (reached - least <= found.gap + 1e-13).all()
    own = np.array([reference.simplex_gap(row, v, b) for row, b in zip(x, found.weights, strict=True)])
    np.testing.assert_allclose(found.gap, own, atol=1e-12)


def test_exponentiated_gradient_reaches_its_tolerance_where_vertices_are_apart() -> None:
    x, v = problem(3, 2.0)
    found = simplex_least_squares(x, v, method="exponentiated-gradient", tolerance=1e-3)
    assert (found.gap <= 1e-3 * (x**2).sum(axis=1)).all()
    assert 0 < found.iterations < 2000


def test_exponentiated_gradient_says_where_it_did_not_get_there() -> None:
    x, v = problem(4, 5e4)
    found = simplex_least_squares(x, v, method="exponentiated-gradient", tolerance=1e-12)
    assert found.iterations == 2000
    assert (found.gap > 1e-12 * (x**2).sum(axis=1)).any()
    assert np.isfinite(found.weights).all()


@pytest.mark.parametrize("factor", [1e-100, 1e100])
def test_exponentiated_gradient_does_not_overflow(factor: float) -> None:
    x, v = problem(5, 2.0)
    plain = simplex_least_squares(x, v, method="exponentiated-gradient", tolerance=1e-3).weights
    scaled = simplex_least_squares(x * factor, v * factor, method="exponentiated-gradient", tolerance=1e-3)
    np.testing.assert_allclose(scaled.weights, plain, atol=1e-6)


def test_many_passive_vertices_enter_and_leave_without_losing_the_solution() -> None:
    # Mixtures of half of sixty vertices: dozens of vertices enter and leave again in each row.
    rng = np.random.default_rng(6)
    _, v = problem(7, 5e4, n_vertices=60)
    truth = np.zeros((80, 60))
    for row in truth:
        row[rng.permutation(60)[:30]] = rng.dirichlet(np.ones(30))
    found = simplex_least_squares(truth @ v, v)
    assert found.iterations > 40
    assert (found.gap / ((truth @ v) ** 2).sum(axis=1)).max() < 1e-12
    np.testing.assert_allclose(found.weights, truth, atol=1e-4)
