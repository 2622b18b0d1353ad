"""ENN against the dense oracle, which stores E; its momentum against its own plain steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.evaluation.matching import yy_error
from streaming_jsmf.linalg.eigen import Eigenpairs
from streaming_jsmf.linalg.panels import panel_threads
from streaming_jsmf.rectification import enn, enn_operator
from streaming_jsmf.rectification.enn import ENNOptions, epsilon_nonnegative
from streaming_jsmf.rectification.enn_operator import Checked, Corrections, negative_entries
from streaming_jsmf.rectification.result import change_by_step, change_of_grams, unrectified
from tests import reference
from tests.spectra import SPECTRA, K, exact_low_rank, pairs_of

Floats = NDArray[np.float64]

#: The paper's iteration, in float64 throughout.
PLAIN = ENNOptions(acceleration="none", block_dtype=np.float64, tolerance=0.0, max_iterations=120)


@pytest.fixture(scope="module", params=SPECTRA)
def cooccurrence(request: pytest.FixtureRequest) -> Floats:
    return SPECTRA[request.param]()


def checked_rows(y: Floats, size: int, left_out: float | None = None) -> Checked:
    return enn_operator.checked_rows(y, y.T @ y, size, left_out)


def frequent(c: Floats) -> Floats:
    """Shares of the words, as the row sums have them."""
    return c.sum(axis=1) / c.sum()


def stored(y: Floats, size: int) -> tuple[Floats, float]:
    """E of the oracle, and the mass that is missing."""
    e = reference.non_negative_correction(y, size)
    return e, float(1 - (y @ y.T).sum() - e.sum())


@pytest.mark.parametrize("sparse_share", [0.0, 0.2, 1.0])
@pytest.mark.parametrize(("by_word", "keep"), [(False, True), (True, False)])
@pytest.mark.parametrize("size", [10, 40, 1000])
def test_corrections_are_the_stored_ones_of_the_oracle(
    size: int,
    keep: bool,
    by_word: bool,
    sparse_share: float,
    cooccurrence: Floats,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(enn_operator, "BLOCK_ROWS", 16)
    # Dense products of every block, of some, of none.
    monkeypatch.setattr(enn_operator, "SPARSE_SHARE", sparse_share)
    y = reference.positive_factor(cooccurrence, K)
    n = len(y)
    size = min(size, n)
    shares = frequent(cooccurrence) if by_word else np.full(n, 1 / n)
    e, missing = stored(y, size)
    x = np.random.default_rng(0).standard_normal((n, 7))
    checked = checked_rows(y, size).words
    with panel_threads(2):
        corrections = Corrections(y, checked, shares, keep=keep)
        exact = corrections.times(x)
        between = corrections.between(x, exact.uniform_mass)
        single = y.astype(np.float32)
        rounded = Corrections(single, checked, shares).times(x.astype(np.float32))
    expected = (e + missing * np.outer(shares, shares)) @ x
    scale = np.abs(expected).max()
    of_all = np.abs((y @ y.T + e) @ x).max()
    np.testing.assert_allclose(exact.product, expected, atol=1e-13 * of_all)
    np.testing.assert_allclose(between, x.T @ expected, atol=1e-11 * of_all)
    # Of the Y that it is given, whose mass is not quite that of Y.
    e_single, missing_single = stored(single.astype(np.float64), size)
    expected_single = (e_single + missing_single * np.outer(shares, shares)) @ x
    np.testing.assert_allclose(rounded.product, expected_single, atol=3e-6 * max(scale, 1e-3 * of_all))
    assert exact.correction_mass == pytest.approx(e.sum(), rel=1e-12, abs=1e-15)
    assert exact.uniform_mass == pytest.approx(missing, rel=1e-10, abs=1e-14)


@pytest.mark.parametrize("kept", [True, False])
def test_corrections_of_a_nearby_y_are_at_the_kept_positions(
    kept: bool, cooccurrence: Floats, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enn_operator, "BLOCK_ROWS", 16)
    monkeypatch.setattr(enn_operator, "SPARSE_SHARE", 1.0)
    monkeypatch.setattr(enn_operator, "KEPT_PER_ENTRY", 1000)
    if not kept:
        monkeypatch.setattr(enn_operator, "negative_entries", lambda *_: False)
    y = reference.positive_factor(cooccurrence, K)
    n, rng = len(y), np.random.default_rng(1)
    near = y * (1 + 0.1 * rng.standard_normal(y.shape))
    checked = checked_rows(y, 40).words
    # The oracle checks the longest rows of the Y it is given; those of Y stay.
    entries = np.minimum(near @ near.T, 0)
    inside = np.zeros(n, bool)
    inside[checked] = True
    e = np.where(inside[:, None] | inside, -entries, 0)
    before, _ = stored(y, 40)
    if kept:
        e[before == 0] = 0
    shares, x = frequent(cooccurrence), rng.standard_normal((n, 7))
    missing = 1 - (near @ near.T).sum() - e.sum()
    with panel_threads(2):
        corrections = Corrections(y, checked, shares, keep=True)
        corrections.times(x)
        corrections.move_to(near)
        found = corrections.times(x)
    expected = (e + missing * np.outer(shares, shares)) @ x
    np.testing.assert_allclose(found.product, expected, atol=1e-13 * np.abs((near @ near.T + e) @ x).max())
    assert found.correction_mass == pytest.approx(e.sum(), rel=1e-12, abs=1e-15)


def test_some_spectra_have_something_to_correct() -> None:
    corrected = {
        name: reference.non_negative_correction(reference.positive_factor(make(), K), 40).sum()
        for name, make in SPECTRA.items()
    }
    assert [name for name, mass in corrected.items() if mass < 1e-12] == ["low rank"]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_plain_steps_are_those_of_the_oracle(dtype: type, cooccurrence: Floats) -> None:
    n = len(cooccurrence)
    expected = reference.enn(cooccurrence, K, n, 120)
    result = epsilon_nonnegative(pairs_of(cooccurrence), K, replace(PLAIN, block_dtype=dtype))
    assert yy_error(result.rectified, expected) < 2e-3


def test_the_missing_mass_can_follow_the_words(cooccurrence: Floats) -> None:
    shares = frequent(cooccurrence)
    expected = reference.enn_by_words(cooccurrence, K, 40, shares, 60)
    options = replace(PLAIN, checked_words=40, max_iterations=60)
    result = epsilon_nonnegative(pairs_of(cooccurrence), K, options, shares=shares)
    assert yy_error(result.rectified, expected) < 2e-3
    evenly = epsilon_nonnegative(pairs_of(cooccurrence), K, options)
    if evenly.correction_mass > 1e-6:
        assert yy_error(result.rectified, evenly.rectified) > 1e-6


def test_momentum_keeps_the_answer_in_fewer_steps(cooccurrence: Floats) -> None:
    pairs = pairs_of(cooccurrence)
    limit = epsilon_nonnegative(pairs, K, replace(PLAIN, max_iterations=800))
    plain = epsilon_nonnegative(pairs, K, ENNOptions(acceleration="none"))
    quick = epsilon_nonnegative(pairs, K)
    start = yy_error(unrectified(pairs, K).rectified, limit.rectified)
    assert quick.iterations <= max(plain.iterations, 6)
    error = yy_error(quick.rectified, limit.rectified)
    assert error <= max(1.5 * yy_error(plain.rectified, limit.rectified), 0.1 * start, 1e-6)


def test_kept_positions_save_products_and_keep_the_answer(
    cooccurrence: Floats, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs, size = pairs_of(cooccurrence), len(cooccurrence)
    complete = epsilon_nonnegative(pairs, K, ENNOptions(checked_words=size))
    limit = epsilon_nonnegative(pairs, K, ENNOptions(checked_words=size, tolerance=1e-9, max_iterations=1000))
    # As if Y Y_I' were large.
    monkeypatch.setattr(enn, "CHECKED_ENTRIES", 0)
    made, move_to = enn.checked_rows, Corrections.move_to
    steps: list[str] = []

    def counted(*given: Any) -> Checked:
        steps.append("complete")
        return made(*given)

    def counted_move(self: Corrections, y: Floats) -> None:
        steps.append("moved")
        move_to(self, y)

    monkeypatch.setattr(enn, "checked_rows", counted)
    monkeypatch.setattr(Corrections, "move_to", counted_move)
    found = epsilon_nonnegative(pairs, K, ENNOptions(checked_words=size))
    # The last call describes the result.
    steps.pop()
    assert found.converged
    assert len(steps) == found.iterations <= complete.iterations + enn.MOVED_STEPS
    error = yy_error(complete.rectified, limit.rectified)
    assert yy_error(found.rectified, limit.rectified) <= 1.1 * error + 1e-6
    # Only a step that computes all entries may be the last.
    assert steps[-1] == "complete"
    assert steps.count("moved") >= (len(steps) - enn.BLOCK_STEPS) // 2


@pytest.mark.parametrize("friction", [enn.FRICTION, 0.5])
def test_momentum_takes_the_steps_of_the_oracle(
    friction: float, cooccurrence: Floats, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With little friction it overshoots, and has to start anew.
    monkeypatch.setattr(enn, "FRICTION", friction)
    # Without block steps, which have one power step in the place of the oracle's exact eigenpairs.
    monkeypatch.setattr(enn, "BLOCK_STEPS", 0)
    options = replace(PLAIN, acceleration="momentum", max_iterations=12, checked_words=40)
    result = epsilon_nonnegative(pairs_of(cooccurrence), K, options)
    expected = reference.enn_momentum(cooccurrence, K, 40, 12, 0, friction)
    assert yy_error(result.rectified, expected) < 1e-9


def test_momentum_has_the_plain_fixed_points(cooccurrence: Floats) -> None:
    pairs = pairs_of(cooccurrence)
    quick = replace(PLAIN, acceleration="momentum", max_iterations=1000)
    arrived = epsilon_nonnegative(pairs, K, quick).rectified
    once_more = reference.enn_step(arrived, K, len(arrived))
    assert yy_error(once_more, arrived) < 3e-6


def test_the_corrected_matrix_is_non_negative_up_to_epsilon(cooccurrence: Floats) -> None:
    size = 30
    result = epsilon_nonnegative(pairs_of(cooccurrence), K, ENNOptions(checked_words=size))
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


def test_the_checked_rows_grow_until_little_is_left_out() -> None:
    c = SPECTRA["no gap"]()
    options = ENNOptions(checked_words=5, left_out=0.02, max_iterations=20)
    grown = epsilon_nonnegative(pairs_of(c), K, options)
    assert 5 < grown.checked_words < len(c)
    assert grown.left_out <= 0.02
    one_less = checked_rows(grown.rectified, grown.checked_words - 1)
    assert one_less.left_out > 0.02
    whole = checked_rows(grown.rectified, 0, left_out=0.0)
    assert (whole.words.size, whole.epsilon, whole.left_out) == (len(c), 0.0, 0.0)
    few = epsilon_nonnegative(pairs_of(c), K, replace(options, left_out=None))
    assert few.checked_words == 5
    assert few.left_out > 0.02


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
        result = epsilon_nonnegative(start, K + 3, ENNOptions(max_iterations=20, tolerance=0.0))
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


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [1, 8, 37])
@pytest.mark.parametrize("share", [0.0, 0.05, 1.0])
def test_the_negative_entries_of_a_block_are_found_if_there_is_room(
    share: float, width: int, dtype: type
) -> None:
    rng = np.random.default_rng(3)
    block = np.abs(rng.standard_normal((9, width))).astype(dtype)
    block[rng.random(block.shape) < share] *= -1
    # Zeros with a sign are no negative entries.
    block[4] = -0.0
    count = np.count_nonzero(block < 0)

    def found(room: int) -> csr_array | None:
        indptr, columns = np.full(10, -1, np.int64), np.full(room, -1, np.int32)
        values = np.zeros(room, dtype)
        if not negative_entries(block, block.view(f"i{block.itemsize}"), indptr, columns, values):
            return None
        return csr_array((values[: indptr[-1]], columns[: indptr[-1]], indptr), shape=block.shape)

    entries = found(count + width + 1)
    assert entries is not None
    assert entries.nnz == count
    np.testing.assert_array_equal(entries.toarray(), np.minimum(block, 0))
    # The last row needs its own room, and that of all before it.
    if count > width:
        assert found(count) is None
