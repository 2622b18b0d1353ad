"""All rectifications as arrays: one contract for their results, and each algorithm against the dense oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from streaming_jsmf.evaluation.matching import yy_error
from streaming_jsmf.linalg.eigen import Eigenpairs
from streaming_jsmf.linalg.panels import panel_threads
from streaming_jsmf.rectification import complete
from streaming_jsmf.rectification import palm as palm_module
from streaming_jsmf.rectification.complete import (
    alternating_projection,
    completed_diagonal,
    diagonal_completion,
)
from streaming_jsmf.rectification.enn import epsilon_nonnegative
from streaming_jsmf.rectification.palm import (
    SymmetricOperator,
    eigen_operator,
    factor_operator,
    matrix_operator,
    palm,
)
from streaming_jsmf.rectification.result import OnIteration, Rectification
from tests import reference
from tests.spectra import SPECTRA, K, exact_low_rank, pairs_of

Floats = NDArray[np.float64]


@pytest.fixture(scope="module", params=SPECTRA)
def cooccurrence(request: pytest.FixtureRequest) -> Floats:
    return SPECTRA[request.param]()


@pytest.fixture(autouse=True)
def _several_panels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(complete, "PANEL_ROWS", 13)


def dense(c: Floats) -> SymmetricOperator:
    return SymmetricOperator(lambda x: c @ x, float(np.sum(c**2)))


EACH = pytest.mark.parametrize("name", ["enn", "plain enn", "ap", "dykstra", "palm", "ipalm"])


def rectified(
    name: str,
    c: Floats,
    k: int = K,
    *,
    pairs: Eigenpairs | None = None,
    told: OnIteration | None = None,
    threads: int = 1,
    **stop: Any,
) -> Rectification:
    """The result of an iterative algorithm; ``stop`` are its tolerance and largest number of iterations."""
    pairs = pairs_of(c) if pairs is None else pairs
    stop |= {"on_iteration": told, "threads": threads}
    if name in ("enn", "plain enn"):
        return epsilon_nonnegative(pairs, k, acceleration="momentum" if name == "enn" else "none", **stop)
    if name in ("palm", "ipalm"):
        return palm(dense(c), pairs, k, inertial=name == "ipalm", **stop)
    return alternating_projection(c.copy(), pairs, k, dykstra=name == "dykstra", **stop)


@EACH
def test_it_stops_at_the_tolerance_and_tells_each_iteration(name: str) -> None:
    c, told = SPECTRA["clean topics"](), []
    result = rectified(name, c, told=lambda *step: told.append(step), tolerance=1e-2)
    assert [number for number, _ in told] == list(range(1, result.iterations + 1))
    assert result.converged
    assert result.change == told[-1][1] < 1e-2
    assert all(change >= 1e-2 for _, change in told[:-1])
    cut = rectified(name, c, tolerance=0.0, max_iterations=2)
    assert (cut.iterations, cut.converged) == (2, False)


@EACH
def test_the_bits_do_not_depend_on_threads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming_jsmf.rectification.enn.BLOCK_ROWS", 8)
    monkeypatch.setattr("streaming_jsmf.rectification.enn.GROUP_ROWS", 16)
    c = SPECTRA["no gap"]()
    one, three = (rectified(name, c, max_iterations=12, tolerance=0.0, threads=t) for t in (1, 3))
    np.testing.assert_array_equal(one.rectified, three.rectified)
    if one.matrix is not None:
        np.testing.assert_array_equal(one.matrix, three.matrix)
    assert one.report() == three.report()


@EACH
@pytest.mark.parametrize("more", [0, 3])
def test_missing_words_and_lost_directions_stay_finite(name: str, more: int) -> None:
    c = exact_low_rank()
    c[5] = c[:, 5] = 0.0
    result = rectified(name, c, K + more, max_iterations=20)
    assert result.rectified.shape == (len(c), K + more)
    assert np.isfinite(result.rectified).all()
    assert result.matrix is None or np.isfinite(result.matrix).all()
    if name in ("palm", "ipalm"):
        assert result.rectified[5].max() < 1e-8


@EACH
def test_too_few_eigenpairs_are_refused(name: str) -> None:
    c = exact_low_rank()
    with pytest.raises(ValueError, match=f"3 eigenpairs .* {K} topics"):
        rectified(name, c, pairs=pairs_of(c, 3))


# Alternating projections


def test_alternating_projection_is_that_of_the_oracle(cooccurrence: Floats) -> None:
    expected = reference.alternating_projection(cooccurrence, K, 40)
    changes: list[float] = []
    result = rectified(
        "ap", cooccurrence, told=lambda _, d: changes.append(d), max_iterations=40, tolerance=0
    )
    assert result.matrix is not None
    np.testing.assert_allclose(result.matrix, expected.matrix, atol=1e-6 * expected.matrix.max())
    assert yy_error(result.rectified, expected.factor) < 1e-6
    assert result.matrix.min() >= 0
    # The oracle's lengths are absolute.
    first = expected.distances[0] / np.linalg.norm(cooccurrence)
    np.testing.assert_allclose(changes[0], first, rtol=1e-6, atol=1e-14)
    # Steps shrink, up to rounding.
    tail = np.array(changes[1:])
    assert np.all(np.diff(tail) <= np.maximum(0.02 * tail[:-1], 1e-9))
    assert tail[-1] <= max(0.2 * tail[0], 1e-9)


def test_dykstra_is_that_of_the_oracle(cooccurrence: Floats) -> None:
    expected = reference.dykstra(cooccurrence, K, 15)
    result = rectified("dykstra", cooccurrence, max_iterations=15, tolerance=0)
    assert result.matrix is not None
    assert result.matrix.min() >= 0
    np.testing.assert_allclose(result.matrix, expected, atol=1e-7 * expected.max())
    assert yy_error(result.rectified, reference.positive_factor(expected, K)) < 1e-6


# PALM


def test_each_step_of_palm_is_that_of_the_oracle(cooccurrence: Floats) -> None:
    steps = reference.palm(cooccurrence, K, 25)
    result = rectified("palm", cooccurrence, max_iterations=25, tolerance=0)
    np.testing.assert_allclose(result.rectified, steps[-1].Y, atol=1e-9 * steps[-1].Y.max())
    slack = 1e-12 * np.sum(cooccurrence**2)
    assert result.objective == pytest.approx(steps[-1].objective, rel=1e-8, abs=slack)
    assert result.rectified.min() >= 0


@pytest.mark.parametrize("name", ["palm", "ipalm"])
def test_the_objective_of_palm_never_rises(name: str, cooccurrence: Floats) -> None:
    objectives = [
        rectified(name, cooccurrence, max_iterations=count, tolerance=0).objective for count in range(1, 40)
    ]
    assert np.all(np.diff(objectives) <= 1e-12 * np.sum(cooccurrence**2))
    assert objectives[-1] < objectives[0]


@pytest.mark.parametrize("spectrum", ["clean topics", "no gap"])
def test_inertia_gets_farther_in_the_same_steps(spectrum: str) -> None:
    c = SPECTRA[spectrum]()
    plain, inertial = (rectified(name, c, tolerance=0.0).objective for name in ("palm", "ipalm"))
    assert inertial < plain


def test_an_inertial_step_that_would_raise_the_objective_is_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Extrapolation far past the minimum; without the check J explodes.
    c, step = SPECTRA["clean topics"](), palm_module._step
    monkeypatch.setattr(
        palm_module, "_step", lambda operator, a, b, inertia: step(operator, a, b, 50 * inertia)
    )
    objectives = [rectified("ipalm", c, max_iterations=i, tolerance=0.0).objective for i in range(1, 25)]
    assert np.all(np.diff(objectives) <= 1e-12 * np.sum(c**2))


def test_the_operators_are_the_matrices_they_stand_for() -> None:
    rng = np.random.default_rng(0)
    factor = np.abs(rng.standard_normal((700, 20))).astype(np.float32)
    diagonal_entries = np.abs(rng.standard_normal(700))
    exact = factor.astype(np.float64) @ factor.T.astype(np.float64) - np.diag(diagonal_entries)
    x, pairs = rng.standard_normal((700, 5)), pairs_of(exact, 12)
    low_rank = (pairs.vectors * pairs.values) @ pairs.vectors.T
    with panel_threads(2):
        for operator, matrix in (
            (factor_operator(factor, diagonal_entries), exact),
            (eigen_operator(pairs), low_rank),
            (matrix_operator(exact), exact),
        ):
            np.testing.assert_allclose(operator.multiply(x), matrix @ x, rtol=1e-10, atol=1e-8)
            assert operator.squared_norm == pytest.approx(np.sum(matrix**2), rel=1e-10)


# Diagonal completion


@pytest.mark.parametrize("spectrum", SPECTRA)
def test_a_halving_solves_the_oracles_system(spectrum: str) -> None:
    c = SPECTRA[spectrum]()
    permutation = np.random.default_rng(1).permutation(len(c))
    a, b = np.split(permutation, [len(c) // 2])
    found = complete._halving_estimate(c, np.diagonal(c).copy(), K, permutation)
    scale = np.abs(np.diagonal(c)).max()
    np.testing.assert_allclose(found[a], reference.completed_half(c, a, b, K), atol=1e-8 * scale)
    np.testing.assert_allclose(found[b], reference.completed_half(c, b, a, K), atol=1e-8 * scale)


def test_a_lost_diagonal_is_found_again() -> None:
    # Lengths of rows differ from word to word, so a permutation that is not undone cannot pass.
    c = exact_low_rank()
    spoilt = c.copy()
    np.fill_diagonal(spoilt, 0.0)
    result = diagonal_completion(spoilt, K)
    assert result.matrix is not None
    np.testing.assert_allclose(np.diagonal(result.matrix), np.diagonal(c), atol=1e-6 * np.diagonal(c).max())
    assert result.matrix.sum() == pytest.approx(1)
    assert yy_error(result.rectified, reference.positive_factor(c, K)) < 1e-5


def test_the_diagonal_is_the_non_negative_median_over_halvings() -> None:
    c = SPECTRA["negative tail"]()
    old = np.diagonal(c).copy()
    permutations = [complete._permutation(len(c), 3, i) for i in range(5)]
    estimates = np.array([complete._halving_estimate(c, old, K, p) for p in permutations])
    assert len({tuple(p) for p in permutations}) == 5
    result, whole = diagonal_completion(c.copy(), K, halvings=5, seed=3), c.copy()
    np.fill_diagonal(whole, np.maximum(np.median(estimates, axis=0), 0))
    np.testing.assert_allclose(result.matrix, whole / whole.sum(), rtol=1e-12)
    assert (result.iterations, result.converged) == (5, True)
    change = np.linalg.norm(np.diagonal(whole) - old) / np.linalg.norm(c)
    assert result.change == pytest.approx(change)
    assert not np.array_equal(
        diagonal_completion(c.copy(), K, halvings=5, seed=4).rectified, result.rectified
    )
    assert diagonal_completion(c.copy(), K).iterations == complete.HALVINGS


def test_a_word_that_spans_a_direction_alone_keeps_its_entry() -> None:
    basis = np.zeros((6, 2))
    basis[0, 0] = 1.0
    basis[1:, 1] = 1 / np.sqrt(5)
    off = 0.2 * (1 - np.eye(6))
    off[0] = off[:, 0] = 0.0
    found = completed_diagonal(off, basis, np.full(6, 0.7))
    np.testing.assert_allclose(found, [0.7, 0.2, 0.2, 0.2, 0.2, 0.2], atol=1e-10)
    # In a subspace of all words, no equation is left, whatever rounding makes of it.
    rotation, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((6, 6)))
    np.testing.assert_array_equal(completed_diagonal(off, rotation, np.full(6, 0.7)), np.full(6, 0.7))


def test_completion_of_missing_words_stays_finite_and_needs_words_for_two_halves() -> None:
    c = SPECTRA["clean topics"]().copy()
    c[5] = c[:, 5] = 0.0
    result = diagonal_completion(c, K, halvings=3)
    assert np.isfinite(result.rectified).all()
    assert result.rectified[5] == pytest.approx(0, abs=1e-9)
    with pytest.raises(ValueError, match=r"7 words .* 4 topics"):
        diagonal_completion(np.eye(7), K)
