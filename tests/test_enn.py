"""ENN against the dense oracle, which stores E; its momentum against its own printed steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from streaming_jsmf.evaluation.matching import yy_error
from streaming_jsmf.linalg.eigen import Eigenpairs
from streaming_jsmf.linalg.panels import panel_threads
from streaming_jsmf.rectification import enn
from streaming_jsmf.rectification.enn import epsilon_nonnegative
from streaming_jsmf.rectification.result import change_by_step, change_of_grams, unrectified
from tests import reference
from tests.spectra import SPECTRA, K, exact_low_rank, pairs_of

Floats = NDArray[np.float64]

PRINTED: dict[str, Any] = {"acceleration": "none", "tolerance": 0.0, "max_iterations": 120}


@pytest.fixture(scope="module", params=SPECTRA)
def cooccurrence(request: pytest.FixtureRequest) -> Floats:
    return SPECTRA[request.param]()


@pytest.fixture(autouse=True)
def _several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enn, "BLOCK_ROWS", 16)
    monkeypatch.setattr(enn, "GROUP_ROWS", 32)


def frequent(c: Floats) -> Floats:
    """Shares of the words, as the row sums have them."""
    return c.sum(axis=1) / c.sum()


@pytest.mark.parametrize("near", [False, True])
@pytest.mark.parametrize("by_word", [False, True])
@pytest.mark.parametrize("size", [10, 40, 1000])
def test_corrections_are_the_stored_ones_of_the_oracle(
    size: int, by_word: bool, near: bool, cooccurrence: Floats
) -> None:
    n, rng = len(cooccurrence), np.random.default_rng(0)
    y = reference.positive_factor(cooccurrence, K).astype(np.float32)
    shares = frequent(cooccurrence) if by_word else np.full(n, 1 / n)
    x = rng.standard_normal((n, 7)).astype(np.float32)
    with panel_threads(2):
        operator = enn._Operator(size, shares)
        operator.set(y)
        e = reference.non_negative_correction(y.astype(np.float64), size)
        if near:
            # I stays, and so do the positions at which E may be nonzero.
            y = y * (1 + 0.1 * rng.standard_normal(y.shape)).astype(np.float32)
            operator.set(y, reuse=True)
            e = np.where(e > 0, np.maximum(-(y.astype(np.float64) @ y.T), 0), 0)
        found, whole = operator.corrections(x), operator.times(x)
    low_rank = y.astype(np.float64) @ y.T
    missing = 1 - low_rank.sum() - e.sum()
    expected = (e + missing * np.outer(shares, shares)) @ x
    of_all = np.abs((low_rank + e) @ x).max()
    np.testing.assert_allclose(found, expected, atol=3e-6 * max(np.abs(expected).max(), 1e-3 * of_all))
    np.testing.assert_allclose(whole, low_rank @ x + expected, atol=3e-6 * of_all)
    assert operator.correction_mass == pytest.approx(e.sum(), rel=1e-5, abs=1e-8)
    assert operator.uniform_mass == pytest.approx(missing, rel=1e-5, abs=1e-7)


def test_printed_steps_are_those_of_the_oracle(cooccurrence: Floats) -> None:
    n = len(cooccurrence)
    expected = reference.enn(cooccurrence, K, n, 120)
    result = epsilon_nonnegative(pairs_of(cooccurrence), K, **PRINTED)
    assert yy_error(result.rectified, expected) < 2e-3


def test_the_missing_mass_can_follow_the_words(cooccurrence: Floats) -> None:
    shares = frequent(cooccurrence)
    expected = reference.enn_by_words(cooccurrence, K, 40, shares, 60)
    options = {**PRINTED, "checked_words": 40, "max_iterations": 60}
    result = epsilon_nonnegative(pairs_of(cooccurrence), K, **options, shares=shares)
    assert yy_error(result.rectified, expected) < 2e-3
    evenly = epsilon_nonnegative(pairs_of(cooccurrence), K, **options)
    if evenly.correction_mass > 1e-6:
        assert yy_error(result.rectified, evenly.rectified) > 1e-6


def test_momentum_keeps_the_answer_in_fewer_steps(cooccurrence: Floats) -> None:
    pairs = pairs_of(cooccurrence)
    limit = epsilon_nonnegative(pairs, K, **{**PRINTED, "max_iterations": 800})
    plain = epsilon_nonnegative(pairs, K, acceleration="none")
    quick = epsilon_nonnegative(pairs, K)
    start = yy_error(unrectified(pairs, K).rectified, limit.rectified)
    assert quick.iterations <= max(plain.iterations, 6)
    error = yy_error(quick.rectified, limit.rectified)
    assert error <= max(1.5 * yy_error(plain.rectified, limit.rectified), 0.1 * start, 1e-6)


@pytest.mark.parametrize("reused", [0, enn.REUSED_STEPS])
def test_reused_positions_keep_the_answer(
    reused: int, cooccurrence: Floats, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs, complete_steps, chosen = pairs_of(cooccurrence), 0, enn._outside_longest
    limit = epsilon_nonnegative(pairs, K, tolerance=1e-9, max_iterations=1000)
    monkeypatch.setattr(enn, "REUSED_STEPS", 0)
    complete = epsilon_nonnegative(pairs, K)

    def counted(y: Floats, size: int) -> Floats:
        nonlocal complete_steps
        complete_steps += 1
        return chosen(y, size)

    monkeypatch.setattr(enn, "_outside_longest", counted)
    monkeypatch.setattr(enn, "REUSED_STEPS", reused)
    found = epsilon_nonnegative(pairs, K)
    assert found.converged
    printed = min(found.iterations, enn.PRINTED_STEPS)
    # One more call describes the result.
    assert complete_steps == 1 + printed + -(-(found.iterations - printed) // (1 + reused))
    error = yy_error(complete.rectified, limit.rectified)
    assert yy_error(found.rectified, limit.rectified) <= 1.1 * error + 1e-6


@pytest.mark.parametrize("friction", [enn.FRICTION, 0.5])
def test_momentum_takes_the_steps_of_the_oracle(
    friction: float, cooccurrence: Floats, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With little friction it overshoots, and has to start anew.
    monkeypatch.setattr(enn, "FRICTION", friction)
    # Without printed steps, which have one power step in the place of the oracle's exact eigenpairs.
    monkeypatch.setattr(enn, "PRINTED_STEPS", 0)
    monkeypatch.setattr(enn, "REUSED_STEPS", 0)
    options = {"tolerance": 0.0, "max_iterations": 12, "checked_words": 40}
    result = epsilon_nonnegative(pairs_of(cooccurrence), K, **options)
    expected = reference.enn_momentum(cooccurrence, K, 40, 12, 0, friction)
    assert yy_error(result.rectified, expected) < 1e-5


def test_momentum_has_the_printed_fixed_points(cooccurrence: Floats) -> None:
    pairs = pairs_of(cooccurrence)
    arrived = epsilon_nonnegative(pairs, K, tolerance=0.0, max_iterations=1000).rectified
    once_more = reference.enn_step(arrived, K, len(arrived))
    assert yy_error(once_more, arrived) < 3e-6


def test_the_corrected_matrix_is_non_negative_up_to_epsilon(cooccurrence: Floats) -> None:
    size = 30
    result = epsilon_nonnegative(pairs_of(cooccurrence), K, checked_words=size)
    y = result.rectified
    e = reference.non_negative_correction(y, size)
    assert result.epsilon == pytest.approx(np.sort((y**2).sum(axis=1))[::-1][size])
    lowest = y @ y.T + e
    assert lowest.min() >= -result.epsilon - 1e-15
    checked = reference.largest_rows(y, size)
    assert lowest[checked].min() >= -1e-15
    others = np.setdiff1d(np.arange(len(y)), checked)
    left = np.minimum(lowest[np.ix_(others, others)], 0)
    assert np.linalg.norm(left) <= result.left_out * np.linalg.norm(y @ y.T)


def test_relative_change_is_the_dense_one() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 30, 3))
    dense = np.linalg.norm(a @ a.T - b @ b.T) / np.linalg.norm(b @ b.T)
    assert change_of_grams(a.T @ a, b.T @ b, a.T @ b) == pytest.approx(dense)
    step = a - b
    assert change_by_step(b.T @ b, b.T @ step, step.T @ step) == pytest.approx(dense)


def test_the_change_of_a_short_step_is_not_lost_in_rounding() -> None:
    rng = np.random.default_rng(0)
    y, direction = rng.standard_normal((2, 30, 3))
    changes = [
        change_by_step(y.T @ y, y.T @ step, step.T @ step) for step in (1e-6 * direction, 1e-12 * direction)
    ]
    assert changes[1] == pytest.approx(1e-6 * changes[0], rel=1e-5)


def test_without_rectification_y_is_the_positive_part(cooccurrence: Floats) -> None:
    result = unrectified(pairs_of(cooccurrence), K)
    assert yy_error(result.rectified, reference.positive_factor(cooccurrence, K)) < 1e-7
    assert result.converged


def test_more_topics_than_directions_stay_finite_and_empty() -> None:
    c = exact_low_rank()
    pairs = pairs_of(c, K + 10)
    # Rounding alone is beyond the rank; a start with exact zeros is what a store of few documents gives.
    values = np.where(np.arange(K + 10) < K, pairs.values, 0.0)
    for start in (pairs, Eigenpairs(values, pairs.vectors)):
        result = epsilon_nonnegative(start, K + 3, max_iterations=20, tolerance=0.0)
        assert result.rectified.shape == (len(c), K + 3)
        assert np.isfinite(result.rectified).all()
        # An eigenvalue of rounding size, 1e-10, is a column of 1e-5 in Y; how large it is depends on the processor.
        assert yy_error(result.rectified, reference.positive_factor(c, K)) < 2e-5


@pytest.mark.parametrize("by_word", [False, True])
def test_words_that_never_occur_keep_a_zero_row_and_change_nothing(by_word: bool) -> None:
    c = SPECTRA["negative tail"]()
    n = len(c)
    kept = np.delete(np.arange(n + 2), [5, n])
    wider = np.zeros((n + 2, n + 2))
    wider[np.ix_(kept, kept)] = c
    values, vectors = pairs_of(c).values, np.zeros((n + 2, K + 10))
    vectors[kept] = pairs_of(c).vectors
    # Evenly means over all words, and the part of those that never occur is lost.
    shares = frequent(wider) if by_word else np.full(n + 2, 1 / (n + 2))
    expected = epsilon_nonnegative(pairs_of(c), K, shares=shares[kept])
    found = epsilon_nonnegative(Eigenpairs(values, vectors), K, shares=shares if by_word else None)
    np.testing.assert_array_equal(found.rectified[kept], expected.rectified)
    assert not found.rectified[[5, n]].any()
    assert found.report() == expected.report()
