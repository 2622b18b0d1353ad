"""PALM and its inertial version against the oracle's steps, on the matrix itself and on its operators."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from streaming_jsmf.evaluation.matching import yy_error
from streaming_jsmf.linalg.panels import panel_threads
from streaming_jsmf.rectification import palm as module
from streaming_jsmf.rectification.palm import (
    PALMOptions,
    SymmetricOperator,
    eigen_operator,
    factor_operator,
    matrix_operator,
    palm,
)
from tests import reference
from tests.spectra import SPECTRA, K, exact_low_rank, pairs_of

Floats = NDArray[np.float64]


@pytest.fixture(scope="module", params=SPECTRA)
def cooccurrence(request: pytest.FixtureRequest) -> Floats:
    return SPECTRA[request.param]()


def dense(c: Floats) -> SymmetricOperator:
    return SymmetricOperator(lambda x: c @ x, float(np.sum(c**2)))


def test_each_step_is_the_oracles(cooccurrence: Floats) -> None:
    steps = reference.palm(cooccurrence, K, 25)
    options = PALMOptions(max_iterations=25, tolerance=0)
    result = palm(dense(cooccurrence), pairs_of(cooccurrence), K, options)
    np.testing.assert_allclose(result.rectified, steps[-1].Y, atol=1e-9 * steps[-1].Y.max())
    slack = 1e-12 * np.sum(cooccurrence**2)
    assert result.objective == pytest.approx(steps[-1].objective, rel=1e-8, abs=slack)
    assert result.rectified.min() >= 0


@pytest.mark.parametrize("inertial", [False, True])
def test_the_objective_never_rises(inertial: bool, cooccurrence: Floats) -> None:
    pairs, objectives = pairs_of(cooccurrence), []
    for count in range(1, 40):
        options = PALMOptions(inertial, max_iterations=count, tolerance=0)
        objectives.append(palm(dense(cooccurrence), pairs, K, options).objective)
    assert np.all(np.diff(objectives) <= 1e-12 * np.sum(cooccurrence**2))
    assert objectives[-1] < objectives[0]


@pytest.mark.parametrize("name", ["clean topics", "no gap"])
def test_inertia_gets_farther_in_the_same_steps(name: str) -> None:
    c = SPECTRA[name]()
    plain, inertial = (
        palm(dense(c), pairs_of(c), K, PALMOptions(i, 150, 0.0)).objective for i in (False, True)
    )
    assert inertial < plain


def test_a_step_that_would_raise_the_objective_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    # Inertia that throws far past the minimum; without the check J explodes.
    c = SPECTRA["clean topics"]()
    step = module._step

    def thrown(operator, point, before, inertia, penalty):  # type: ignore[no-untyped-def]
        return step(operator, point, before, 50 * inertia, penalty)

    monkeypatch.setattr(module, "_step", thrown)
    objectives = [palm(dense(c), pairs_of(c), K, PALMOptions(True, i, 0.0)).objective for i in range(1, 25)]
    assert np.all(np.diff(objectives) <= 1e-12 * np.sum(c**2))


def test_the_operators_are_the_matrices_they_stand_for() -> None:
    rng = np.random.default_rng(0)
    factor = np.abs(rng.standard_normal((700, 20))).astype(np.float32)
    diagonal = np.abs(rng.standard_normal(700))
    exact = factor.astype(np.float64) @ factor.T.astype(np.float64) - np.diag(diagonal)
    x = rng.standard_normal((700, 5))
    pairs = pairs_of(exact, 12)
    low_rank = (pairs.vectors * pairs.values) @ pairs.vectors.T
    with panel_threads(2):
        for operator, matrix in (
            (factor_operator(factor, diagonal), exact),
            (eigen_operator(pairs), low_rank),
            (matrix_operator(exact), exact),
        ):
            np.testing.assert_allclose(operator.multiply(x), matrix @ x, rtol=1e-10, atol=1e-8)
            assert operator.squared_norm == pytest.approx(np.sum(matrix**2), rel=1e-10)


def test_an_exact_low_rank_operator_gives_what_the_matrix_gives() -> None:
    c = exact_low_rank()
    pairs, options = pairs_of(c), PALMOptions(max_iterations=100, tolerance=0)
    whole = palm(dense(c), pairs, K, options)
    low_rank = palm(eigen_operator(pairs), pairs, K, options)
    assert yy_error(low_rank.rectified, whole.rectified) < 1e-7


def test_it_stops_at_the_tolerance_and_says_so() -> None:
    c = SPECTRA["clean topics"]()
    told: list[float] = []
    result = palm(
        dense(c), pairs_of(c), K, PALMOptions(tolerance=1e-2), on_iteration=lambda _, d: told.append(d)
    )
    assert result.converged
    assert result.change == told[-1] < 1e-2
    assert len(told) == result.iterations
    assert not palm(dense(c), pairs_of(c), K, PALMOptions(max_iterations=2, tolerance=0)).converged


def test_words_that_never_occur_and_lost_directions_stay_finite() -> None:
    c = exact_low_rank()
    c[5] = c[:, 5] = 0.0
    # More topics than the rank has: the last columns start at zero.
    for inertial in (False, True):
        result = palm(dense(c), pairs_of(c), K + 3, PALMOptions(inertial, 20))
        assert np.isfinite(result.rectified).all()
        assert np.all(result.rectified[5] < 1e-8)


def test_too_few_eigenpairs_are_refused() -> None:
    c = exact_low_rank()
    with pytest.raises(ValueError, match="3 eigenpairs cannot start PALM for 4"):
        palm(dense(c), pairs_of(c, 3), K)
