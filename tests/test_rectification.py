"""All rectifications: one contract for their results, each against the dense oracle, and as `infer` selects them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array

import streaming_jsmf as sj
from pipelines.common.matching import yy_error
from streaming_jsmf.config import InferSettings, Rectifier, ScanSettings, StodSettings
from streaming_jsmf.errors import InputError, TooFewFactorsError
from streaming_jsmf.linalg.eigen import Eigenpairs
from streaming_jsmf.linalg.panels import panel_threads
from streaming_jsmf.moments.store import Moments
from streaming_jsmf.rectification import ap, enn
from streaming_jsmf.rectification import palm as palm_module
from streaming_jsmf.rectification.ap import alternating_projection
from streaming_jsmf.rectification.enn import epsilon_nonnegative
from streaming_jsmf.rectification.palm import (
    SymmetricOperator,
    eigen_operator,
    factor_operator,
    matrix_operator,
    palm,
)
from streaming_jsmf.rectification.result import (
    OnIteration,
    Rectification,
    change_by_step,
    change_of_grams,
    unrectified,
)
from streaming_jsmf.topics import requirements
from streaming_jsmf.topics.infer import fit_moments
from streaming_jsmf.topics.store import Model
from tests import reference
from tests.cases import first_cases
from tests.corpora import Planted, planted, write_corpus
from tests.spectra import SPECTRA, K, exact_low_rank, pairs_of
from tests.stores import SMALL, dense, scanned

Floats = NDArray[np.float64]

# -- All rectifications as arrays: one contract for their results, and each algorithm against the operator_of oracle --


@pytest.fixture(scope="module", params=SPECTRA)
def spectrum(request: pytest.FixtureRequest) -> Floats:
    return SPECTRA[request.param]()


@pytest.fixture(autouse=True)
def _several_panels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ap, "PANEL_ROWS", 13)


def operator_of(c: Floats) -> SymmetricOperator:
    return SymmetricOperator(lambda x: c @ x, float(np.sum(c**2)))


EACH = pytest.mark.parametrize("name", ["enn", "plain enn", "ap", "palm", "ipalm"])


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
        return palm(operator_of(c), pairs, k, inertial=name == "ipalm", **stop)
    return alternating_projection(c.copy(), pairs, k, **stop)


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


# Alternating projections


def test_alternating_projection_is_that_of_the_oracle(spectrum: Floats) -> None:
    expected = reference.alternating_projection(spectrum, K, 40)
    changes: list[float] = []
    result = rectified("ap", spectrum, told=lambda _, d: changes.append(d), max_iterations=40, tolerance=0)
    assert result.matrix is not None
    np.testing.assert_allclose(result.matrix, expected.matrix, atol=1e-6 * expected.matrix.max())
    assert yy_error(result.rectified, expected.factor) < 1e-6
    assert result.matrix.min() >= 0
    # The oracle's lengths are absolute.
    first = expected.distances[0] / np.linalg.norm(spectrum)
    np.testing.assert_allclose(changes[0], first, rtol=1e-6, atol=1e-14)
    # Steps shrink, up to rounding.
    tail = np.array(changes[1:])
    assert np.all(np.diff(tail) <= np.maximum(0.02 * tail[:-1], 1e-9))
    assert tail[-1] <= max(0.2 * tail[0], 1e-9)


# PALM


def test_each_step_of_palm_is_that_of_the_oracle(spectrum: Floats) -> None:
    steps = reference.palm(spectrum, K, 25)
    result = rectified("palm", spectrum, max_iterations=25, tolerance=0)
    np.testing.assert_allclose(result.rectified, steps[-1].Y, atol=1e-9 * steps[-1].Y.max())
    slack = 1e-12 * np.sum(spectrum**2)
    assert result.objective == pytest.approx(steps[-1].objective, rel=1e-8, abs=slack)
    assert result.rectified.min() >= 0


@pytest.mark.parametrize("name", ["palm", "ipalm"])
def test_the_objective_of_palm_never_rises(name: str, spectrum: Floats) -> None:
    objectives = [
        rectified(name, spectrum, max_iterations=count, tolerance=0).objective for count in range(1, 40)
    ]
    assert np.all(np.diff(objectives) <= 1e-12 * np.sum(spectrum**2))
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


# -- ENN against the dense oracle, which stores E; its momentum against its own printed steps --


PRINTED: dict[str, Any] = {"acceleration": "none", "tolerance": 0.0, "max_iterations": 120}


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
    size: int, by_word: bool, near: bool, spectrum: Floats
) -> None:
    n, rng = len(spectrum), np.random.default_rng(0)
    y = reference.positive_factor(spectrum, K).astype(np.float32)
    shares = frequent(spectrum) if by_word else np.full(n, 1 / n)
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


def test_printed_steps_are_those_of_the_oracle(spectrum: Floats) -> None:
    n = len(spectrum)
    expected = reference.enn(spectrum, K, n, 120)
    result = epsilon_nonnegative(pairs_of(spectrum), K, **PRINTED)
    assert yy_error(result.rectified, expected) < 2e-3


def test_the_missing_mass_can_follow_the_words(spectrum: Floats) -> None:
    shares = frequent(spectrum)
    expected = reference.enn_by_words(spectrum, K, 40, shares, 60)
    options = {**PRINTED, "checked_words": 40, "max_iterations": 60}
    result = epsilon_nonnegative(pairs_of(spectrum), K, **options, shares=shares)
    assert yy_error(result.rectified, expected) < 2e-3
    evenly = epsilon_nonnegative(pairs_of(spectrum), K, **options)
    if evenly.correction_mass > 1e-6:
        assert yy_error(result.rectified, evenly.rectified) > 1e-6


@pytest.mark.parametrize("reused", [0, enn.REUSED_STEPS])
def test_reused_positions_keep_the_answer(
    reused: int, spectrum: Floats, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs, complete_steps, chosen = pairs_of(spectrum), 0, enn._outside_longest
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
    friction: float, spectrum: Floats, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With little friction it overshoots, and has to start anew.
    monkeypatch.setattr(enn, "FRICTION", friction)
    # Without printed steps, which have one power step in the place of the oracle's exact eigenpairs.
    monkeypatch.setattr(enn, "PRINTED_STEPS", 0)
    monkeypatch.setattr(enn, "REUSED_STEPS", 0)
    options = {"tolerance": 0.0, "max_iterations": 12, "checked_words": 40}
    result = epsilon_nonnegative(pairs_of(spectrum), K, **options)
    expected = reference.enn_momentum(spectrum, K, 40, 12, 0, friction)
    assert yy_error(result.rectified, expected) < 1e-5


def test_momentum_has_the_printed_fixed_points(spectrum: Floats) -> None:
    pairs = pairs_of(spectrum)
    arrived = epsilon_nonnegative(pairs, K, tolerance=0.0, max_iterations=1000).rectified
    once_more = reference.enn_step(arrived, K, len(arrived))
    assert yy_error(once_more, arrived) < 3e-6


def test_the_corrected_matrix_is_non_negative_up_to_epsilon(spectrum: Floats) -> None:
    size = 30
    result = epsilon_nonnegative(pairs_of(spectrum), K, checked_words=size)
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


def test_without_rectification_y_is_the_positive_part(spectrum: Floats) -> None:
    result = unrectified(pairs_of(spectrum), K)
    assert yy_error(result.rectified, reference.positive_factor(spectrum, K)) < 1e-7
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


# -- Rectifications as `infer` selects them: what they need of a store, and what they leave in the model --


TOPICS = 5


@pytest.fixture(scope="module")
def exact(corpus_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Moments:
    settings = ScanSettings(max_topics=TOPICS, partition_nonzeros=5000, exact=True)
    return scanned(corpus_path, tmp_path_factory.mktemp("infer") / "exact", settings)


@pytest.fixture(scope="module")
def usual(corpus_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Moments:
    return scanned(corpus_path, tmp_path_factory.mktemp("infer") / "usual", SMALL)


def fitted(moments: Moments, name: str, **settings: object) -> Model:
    return fit_moments(moments, InferSettings(TOPICS, rectify=name, **settings), threads=1)  # type: ignore[arg-type]


def oracle(name: str, documents: Planted) -> np.ndarray:
    """Y of an algorithm by the oracle, 40 steps."""
    c = dense(documents.counts)
    if name == "enn":
        return reference.enn(c, TOPICS, len(c), 40)
    if name == "ap":
        return reference.alternating_projection(c, TOPICS, 40).factor
    if name == "palm":
        return reference.palm(c, TOPICS, 40)[-1].Y
    return reference.positive_factor(c, TOPICS)


@pytest.mark.parametrize("name", ["enn", "ap", "palm", "none"])
def test_the_model_holds_what_the_oracle_finds(name: str, exact: Moments, documents: Planted) -> None:
    model = fitted(exact, name, max_iterations=40, tolerance=0.0, acceleration="none")
    assert yy_error(model.arrays["rectified"], oracle(name, documents)) < 2e-3
    told = model.metrics["rectification"]
    assert told["iterations"] == (0 if name == "none" else 40)
    assert {"epsilon", "change", "converged", "objective", "checked_words", "left_out"} <= told.keys()
    assert (told["objective"] is not None) == (name == "palm")
    assert told["epsilon"] == 0.0, "all rows are checked"


def test_what_a_method_lacks_is_said_before_it_runs(
    usual: Moments, exact: Moments, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = f"{usual.path}: rectify='ap' needs the whole co-occurrences; scan with exact=True, or use"
    with pytest.raises(InputError, match=wanted):
        fitted(usual, "ap")
    monkeypatch.setattr(requirements, "machine_memory", lambda: 50_000)
    with pytest.raises(InputError, match=r"120 words and this machine has 48.83 kiB; use rectify='enn'"):
        fitted(exact, "ap")


@pytest.mark.parametrize("name", ["palm", "ipalm"])
def test_palm_runs_on_the_factor_where_there_is_no_matrix(name: str, usual: Moments, exact: Moments) -> None:
    low_rank, whole = (fitted(m, name, max_iterations=60).arrays["rectified"] for m in (usual, exact))
    assert yy_error(low_rank, whole) < 1e-3
    assert low_rank.min() >= 0


def test_palm_runs_on_eigenpairs_of_a_sketch(corpus_path: Path, tmp_path: Path, exact: Moments) -> None:
    settings = ScanSettings(max_topics=TOPICS, partition_nonzeros=5000, range_finder="halko")
    sketched = scanned(corpus_path, tmp_path / "m", settings)
    found = fitted(sketched, "palm", max_iterations=60).arrays["rectified"]
    assert yy_error(found, fitted(exact, "palm", max_iterations=60).arrays["rectified"]) < 0.2


def test_options_of_enn_reach_it(usual: Moments) -> None:
    plain = fitted(usual, "enn")
    by_words = fitted(usual, "enn", missing_mass="marginals")
    assert not np.array_equal(plain.arrays["rectified"], by_words.arrays["rectified"])
    assert plain.metrics["rectification"]["checked_words"] == 120
    steps = fitted(usual, "enn", acceleration="none", tolerance=1e-6).metrics["rectification"]["iterations"]
    assert steps > fitted(usual, "enn", tolerance=1e-6).metrics["rectification"]["iterations"]


def test_more_topics_than_the_corpus_has_directions(tmp_path: Path) -> None:
    # Three different documents, so C has at most three positive eigenvalues.
    counts = np.repeat(planted(3, 60, 3, length=30, seed=1).counts, 20, axis=0)
    corpus = write_corpus(tmp_path / "corpus", counts)
    for exactly in (False, True):
        moments = scanned(corpus, tmp_path / f"m{exactly}", ScanSettings(max_topics=TOPICS, exact=exactly))
        for name in {*get_args(Rectifier)} - {*(() if exactly else ("ap",))}:
            with pytest.raises(
                TooFewFactorsError, match=r"have 3 positive eigenvalues, 5 topics were asked for"
            ):
                fitted(moments, name)


@pytest.mark.parametrize("name", ["none", "enn", "palm"])
def test_words_whose_row_sum_is_lost_are_counted_and_never_nan(name: str, tmp_path: Path) -> None:
    # Documents of four words: truncation leaves rare words below zero, a projection some at zero.
    corpus = write_corpus(tmp_path / "corpus", planted(500, 150, 3, length=4, seed=4).counts)
    moments = scanned(corpus, tmp_path / "m", ScanSettings(max_topics=3))
    model = fit_moments(moments, InferSettings(3, rectify=name), threads=1)  # type: ignore[arg-type]
    d = model.arrays["rectified_row_sum"]
    lost = d <= 0
    assert model.metrics["words_without_mass"] == lost.sum()
    assert lost.any(), "a case without lost words says nothing"
    np.testing.assert_array_equal(model.arrays["topic_given_word"][lost], 0.0)
    for array, values in model.arrays.items():
        if values.dtype.kind == "f":
            assert np.isfinite(values).all(), array


DEGENERATE = {
    "one word": np.array([[3], [2], [5]]),
    "two words": np.array([[2, 1], [1, 2], [3, 0]]),
    "one word per document": 3 * np.eye(6, dtype=int),
    "proportional documents": np.outer(np.arange(1, 9), np.arange(1, 9)),
    "one document": np.array([[2, 3, 1, 1, 4, 2]]),
    "two disjoint blocks": np.kron(np.eye(2, dtype=int), np.full((5, 4), 2)),
    "three random documents": np.random.default_rng(0).poisson(0.7, (3, 6)) + 2 * np.eye(1, 6, dtype=int),
    "two documents of many words": np.tile(np.random.default_rng(0).integers(0, 3, (2, 402)), (5, 1)),
}


@pytest.mark.parametrize("name", first_cases(DEGENERATE, 3))
def test_degenerate_stores_give_topics_or_one_line(name: str, tmp_path: Path) -> None:
    counts = DEGENERATE[name]
    names = [f"w{word}" for word in range(counts.shape[1])]
    corpus = sj.corpus_from_matrix(csr_array(counts.astype(np.int32)), names, tmp_path / "corpus")
    most = min(3, len(names))
    exact = sj.scan(corpus, tmp_path / "exact", exact=True, max_topics=most)
    third = sj.scan(corpus, tmp_path / "third", third_moment=True, max_topics=min(2, most))

    for n_topics in (1, 3):
        for method in get_args(Rectifier):
            with suppress(InputError):
                topics = fit_moments(exact, InferSettings(n_topics, rectify=method)).arrays["word_topic"]
                np.testing.assert_allclose(topics.sum(axis=0), 1)
        with suppress(InputError):
            topics = fit_moments(third, StodSettings(n_topics)).arrays["word_topic"]
            np.testing.assert_allclose(topics.sum(axis=0), 1)
        with suppress(InputError):
            polished = sj.fit(corpus, tmp_path / f"polished-{n_topics}", n_topics, steps=2)
            np.testing.assert_allclose(polished.dataset.word_topic.sum("word"), 1)
