"""What only the experiments have: rectifications, variants of the tensor engine, and metrics, against dense oracles."""

from __future__ import annotations

import doctest
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pipelines.common import authors_metrics, volume
from pipelines.common import diagonal_completion as dc
from pipelines.common.diagonal_completion import completed_diagonal, diagonal_completion
from pipelines.common.dykstra import dykstra_projection
from pipelines.common.matching import yy_error
from pipelines.common.tensor_variants import refine, share_alpha0
from pipelines.common.volume import anchor_points, log_relative_volume, log_volume
from streaming_jsmf.config import StodSettings
from streaming_jsmf.inference.correlations import HIGHEST_SUM, LOWEST_SUM
from streaming_jsmf.inference.stod import core_moments
from streaming_jsmf.inference.stod_recovery import decompose
from streaming_jsmf.linalg.probes import Estimate
from streaming_jsmf.rectification import ap
from tests import reference, reference_metrics, reference_stod
from tests import reference_metrics as oracle
from tests.exact_tensors import ALPHA, in_basis, law, tensor_of
from tests.metric_models import cases, make_case
from tests.spectra import SPECTRA, K, exact_low_rank, pairs_of

Floats = NDArray[np.float64]


@pytest.mark.parametrize("module", [authors_metrics, volume])
def test_examples_hold(module: object) -> None:
    found = doctest.testmod(module)  # type: ignore[arg-type]
    assert found.attempted
    assert not found.failed


# -- Rectifications --


@pytest.fixture(scope="module", params=SPECTRA)
def spectrum(request: pytest.FixtureRequest) -> Floats:
    return SPECTRA[request.param]()


@pytest.fixture(autouse=True)
def _several_panels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ap, "PANEL_ROWS", 13)


def test_dykstra_is_that_of_the_oracle(spectrum: Floats) -> None:
    expected = reference.dykstra(spectrum, K, 15)
    result = dykstra_projection(spectrum.copy(), pairs_of(spectrum), K, max_iterations=15, tolerance=0)
    assert result.matrix is not None
    assert result.matrix.min() >= 0
    np.testing.assert_allclose(result.matrix, expected, atol=1e-7 * expected.max())
    assert yy_error(result.rectified, reference.positive_factor(expected, K)) < 1e-6


# Diagonal completion


@pytest.mark.parametrize("spectrum", SPECTRA)
def test_a_halving_solves_the_oracles_system(spectrum: str) -> None:
    c = SPECTRA[spectrum]()
    permutation = np.random.default_rng(1).permutation(len(c))
    a, b = np.split(permutation, [len(c) // 2])
    found = dc._halving_estimate(c, np.diagonal(c).copy(), K, permutation)
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
    permutations = [dc._permutation(len(c), 3, i) for i in range(5)]
    estimates = np.array([dc._halving_estimate(c, old, K, p) for p in permutations])
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
    assert diagonal_completion(c.copy(), K).iterations == dc.HALVINGS


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


def test_completion_of_missing_words_stays_finite() -> None:
    c = SPECTRA["clean topics"]().copy()
    c[5] = c[:, 5] = 0.0
    result = diagonal_completion(c, K, halvings=3)
    assert np.isfinite(result.rectified).all()
    assert result.rectified[5] == pytest.approx(0, abs=1e-9)


# -- The tensor engine --


@pytest.mark.parametrize("truth", [0.3, 1.0, 5.0])
def test_alpha0_is_found_from_exact_moments(truth: float) -> None:
    basis = np.eye(40)
    moments = in_basis(reference_stod.population_moments(law(), ALPHA / ALPHA.sum() * truth), basis)
    seen: list[tuple[int, float, float]] = []
    found = share_alpha0(core_moments(moments), StodSettings(4), lambda *step: seen.append(step))
    assert found == pytest.approx(truth, rel=2e-3)
    assert [number for number, *_ in seen] == list(range(1, len(seen) + 1))
    assert len(seen) < 20
    sums = [total for _, _, total in sorted(seen, key=lambda step: step[1])]
    assert sums == sorted(sums, reverse=True), "the sum of the shares falls as alpha0 grows"


@pytest.mark.parametrize(("factor", "end"), [(0.1, HIGHEST_SUM), (10.0, LOWEST_SUM)])
def test_alpha0_beyond_the_range_ends_at_its_limit(factor: float, end: float) -> None:
    basis = np.eye(40)
    core = core_moments(in_basis(reference_stod.population_moments(law(), ALPHA), basis))
    # A third moment too small gives shares too large, whatever alpha0 is.
    shrunk = replace(core, third=factor * core.third, mean=0 * core.mean)
    assert share_alpha0(shrunk, StodSettings(4)) == end


@pytest.mark.parametrize("truth", [0.03, 0.87, 12.0])
def test_noise_far_from_alpha0_does_not_mislead_the_search(
    truth: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Components of noise may have any shares: above 20 they seem too large here, and below .012 too small."""

    def share_sum(_: object, alpha0: float, __: object) -> float:
        if not 0.012 < alpha0 < 20:
            return 3.0 if alpha0 > 1 else 0.3
        return 1.0 - 0.1 * np.log(alpha0 / truth)

    monkeypatch.setattr("pipelines.common.tensor_variants._share_sum", share_sum)
    found = share_alpha0(None, StodSettings(4))  # type: ignore[arg-type]
    assert found == pytest.approx(truth, rel=2e-3)


def test_the_refinement_fits_components_that_are_not_orthogonal() -> None:
    rng = np.random.default_rng(4)
    vectors = np.linalg.qr(rng.standard_normal((6, 6))).Q + 0.08 * rng.standard_normal((6, 6))
    vectors /= np.linalg.norm(vectors, axis=0)
    values = np.linspace(1, 2, 6)
    tensor = tensor_of(values, vectors)
    rough = decompose(tensor, restarts=20, iterations=30, seed=0)
    fine = refine(tensor, rough, 500)
    assert abs(np.sort(rough.values) - values).max() > 1e-3
    order = np.argsort(fine.values)
    np.testing.assert_allclose(fine.values[order], values, atol=1e-8)
    np.testing.assert_allclose(fine.vectors[:, order], vectors, atol=1e-8)


# -- Metrics of the authors' code --


@given(cases())
def test_metrics_of_the_authors_code_equal_the_dense_ones(case):
    topics = case.topics
    B, A, p, anchors = topics.word_topic, topics.topic_topic, topics.topic_probability, topics.anchors
    ranks = oracle.ranks(B, anchors)
    np.testing.assert_array_equal(authors_metrics.anchor_ranks(B, anchors), ranks)
    own, K = B[anchors, np.arange(len(anchors))], len(anchors)
    others = ~np.eye(K, dtype=bool)
    with np.errstate(divide="ignore"):
        soft = np.mean(np.log(B.max(axis=0) / own))
    expected = {
        "validity": oracle.validity(A, p[::-1]),
        "entropy": oracle.word_entropy(oracle.topic_given_word(B, p[::-1])),
        "basis_rank_hard": np.trace(ranks) / K,
        "basis_rank_soft": soft if (own > 0).all() else None,
        "basis_quality_hard": ranks[others].mean() if K > 1 else None,
        "basis_quality_soft": B[anchors][others].mean() if K > 1 else None,
    }
    arrays = {"word_topic": B, "topic_topic": A, "topic_probability": p[::-1], "anchors": anchors}
    found = authors_metrics.authors_metrics(arrays)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == (value if value is None else pytest.approx(value, rel=1e-10, abs=1e-12)), name


# -- LogRelativeVolume --


@given(st.integers(0, 10**6), st.integers(2, 6))
def test_volumes_equal_cayley_menger(seed, K):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(K, 8))
    found = log_volume(points)
    assert found == pytest.approx(reference_metrics.log_volume(points), abs=1e-6)
    assert log_volume(points[rng.permutation(K)]) == pytest.approx(found, abs=1e-9)
    rotation = np.linalg.qr(rng.normal(size=(8, 8)))[0]
    assert log_volume(points @ rotation + 3.0) == pytest.approx(found, abs=1e-9)


def test_flat_hulls_have_no_volume():
    assert log_volume(np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]])) is None
    assert log_volume(np.ones((2, 3))) is None
    assert log_volume(np.arange(4.0)[:, None]) is None
    assert log_volume(np.ones((1, 3))) == 0.0
    assert log_relative_volume(np.vstack([np.eye(3), np.eye(3)[:1]]), 3) is None
    assert log_relative_volume(np.eye(4), 3) is None, "more topics than words"
    assert log_relative_volume(np.array([[0.2, 0.8]]), 2) == Estimate(0.0, 0.0), "one topic is a point"
    # Long and short edges, but at right angles.
    assert log_volume(np.array([[0.0, 0.0], [1e-9, 0.0], [0.0, 1.0]])) == pytest.approx(np.log(0.5e-9))


def test_the_standard_error_is_that_of_a_hundred_repetitions():
    points = np.eye(5, 30) + 0.1
    found = [log_relative_volume(points, 30, seed=seed) for seed in range(100)]
    spread = np.std([estimate.value for estimate in found], ddof=1)
    stated = np.sqrt(np.mean([estimate.standard_error**2 for estimate in found]))
    assert spread > 0
    # Both are known to about 7 %.
    assert 0.75 < stated / spread < 1.33
    exact = log_volume(points) - np.log(
        reference_metrics.random_hull_volumes(30, 5, 2000, np.random.default_rng(1)).mean()
    )
    assert np.mean([estimate.value for estimate in found]) == pytest.approx(exact, abs=0.05)


def test_rows_without_a_choice_have_the_squared_volume_of_theory(monkeypatch):
    """As many rows as vertices: the mean of the squared volume has a closed form."""
    monkeypatch.setattr(volume, "_pivots", lambda _, count: np.arange(count))
    logs = np.array([volume._random_log_volume(40, 4, 0, hull) for hull in range(3000)])
    ratio = np.exp(2 * logs) / reference_metrics.mean_squared_volume(40, 4)
    assert abs(ratio.mean() - 1) < 4 * ratio.std() / np.sqrt(len(ratio))


def test_random_rows_sum_to_one_in_blocks_of_any_width(monkeypatch):
    for columns in (volume.COLUMNS, 3):
        monkeypatch.setattr(volume, "COLUMNS", columns)
        inner = volume._random_gram(10, 6, 0, 0)
        assert (np.linalg.eigvalsh(inner) > -1e-9).all()
        assert (np.diag(inner) >= 1 / 10 - 1e-6).all()
        assert (np.diag(inner) <= 1).all()


def test_points_keep_the_distances_of_normalised_rows():
    case = make_case(3)
    topics, C = case.topics, case.topics.rectified @ case.topics.rectified.T
    rows = (C / C.sum(axis=1, keepdims=True))[topics.anchors]
    assert log_volume(anchor_points(topics)) == pytest.approx(log_volume(rows), abs=1e-6)
    raw = replace(topics, rectified=None)
    exact = case.cooccurrence.rows(topics.representatives)
    np.testing.assert_allclose(anchor_points(raw, exact), exact / exact.sum(axis=1, keepdims=True))
    assert anchor_points(raw) is None
    assert anchor_points(raw, np.zeros((4, 30))) is None
    assert anchor_points(replace(topics, rectified=np.zeros((30, 4)))) is None
