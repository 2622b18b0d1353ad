"""The certificates of a model: what they measure, against dense answers, and the sentences of their thresholds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.errors import options_named
from streaming_jsmf.evaluation.verdicts import warnings_of
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.moments.scan import scan
from streaming_jsmf.moments.store import Moments
from streaming_jsmf.rectification.result import omitted_mass
from streaming_jsmf.topics.anchor_words import spectral_certificates
from tests import reference
from tests.corpora import Planted

SOUND: dict[str, Any] = {
    "topic_topic_sum": 1.05,
    "largest_simplex_gap": 1e-15,
    "eigenvalue_gap": 0.02,
    "ritz_residual": 0.03,
    "range_change": 0.01,
    "rectification": {
        "change": 1.5e-5,
        "converged": False,
        "omitted_mass": {"value": 1e-4, "standard_error": 1e-5},
    },
}


def scanned(corpus: Path, place: Path, **settings: Any) -> Moments:
    return scan(corpus, place, ScanSettings(max_topics=5, **settings), Execution("synchronous"))


@pytest.fixture(scope="module")
def moments(corpus_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Moments:
    # All documents would leave nothing to see.
    return scanned(corpus_path, tmp_path_factory.mktemp("certificates") / "moments", sample_share=0.05)


def test_the_spectrum_is_certified_by_exact_products(moments: Moments, documents: Planted) -> None:
    weights = reference.document_weights(documents.counts.sum(axis=1), "capped")
    exact = reference.cooccurrence(documents.counts, weights)
    basis = moments.read("basis")
    values, rotation = np.linalg.eigh(basis.T @ exact @ basis)
    residuals = np.linalg.norm(exact @ (basis @ rotation) - (basis @ rotation) * values, axis=0) / np.abs(
        values
    )
    pairs = moments.eigenpairs(5)
    found = spectral_certificates(moments, pairs, 5)
    assert found["ritz_residual"] == pytest.approx(residuals[::-1][:5].max(), rel=1e-3)
    assert found["eigenvalue_gap"] == pytest.approx(1 - pairs.values[5] / pairs.values[4])
    before = basis[:, :5] * np.sqrt(moments.read("basis_eigenvalues")[:5])
    after = pairs.vectors[:, :5] * np.sqrt(pairs.values[:5])
    dense = np.linalg.norm(after @ after.T - before @ before.T) / np.linalg.norm(before @ before.T)
    assert dense > 1e-3
    assert found["range_change"] == pytest.approx(dense, rel=1e-6)


def test_a_single_pass_certifies_the_gap_alone(corpus_path: Path, tmp_path: Path) -> None:
    single = scanned(corpus_path, tmp_path / "single", range_finder="halko")
    found = spectral_certificates(single, single.eigenpairs(5), 5)
    assert (found["ritz_residual"], found["range_change"]) == (None, None)
    assert 0 < found["eigenvalue_gap"] < 1


def dense_omitted(y: np.ndarray, checked: int) -> float:
    rest = np.argsort(-np.linalg.norm(y, axis=1), kind="stable")[checked:]
    return float(-np.minimum(y[rest] @ y[rest].T, 0).sum())


def factor(n_words: int, seed: int) -> np.ndarray:
    """Rows of falling norms, mostly positive: like a rectified factor."""
    rng = np.random.default_rng(seed)
    return (rng.normal(0.4, 1.0, size=(n_words, 6)).T / np.arange(1, n_words + 1)).T


@pytest.mark.parametrize("checked", [0, 50, 199, 200])
def test_few_words_are_summed_exactly(checked: int) -> None:
    y = factor(200, 1)
    found = omitted_mass(y, checked)
    assert found.value == pytest.approx(dense_omitted(y, checked), rel=1e-12)
    assert found.standard_error == 0.0


def test_many_words_are_estimated_with_an_honest_error() -> None:
    y = factor(3000, 2)
    truth = dense_omitted(y, 100)
    found = [omitted_mass(y, 100, seed) for seed in range(100)]
    values = np.array([estimate.value for estimate in found])
    spread = values.std(ddof=1)
    assert abs(values.mean() - truth) < 4 * spread / 10
    claimed = np.mean([estimate.standard_error for estimate in found])
    # The spread of 100 draws is known to 7 %: three times that.
    assert claimed == pytest.approx(spread, rel=0.25)
    assert found[0] == omitted_mass(y, 100, 0)


def test_a_sound_model_gives_no_warning() -> None:
    assert warnings_of(SOUND) == []
    assert warnings_of({}) == [], "another engine has others"
    assert warnings_of({**SOUND, "topic_topic_sum": 1.35, "polish": {}}) == [], (
        "polish has correlations of its own"
    )
    assert warnings_of(dict.fromkeys(SOUND)) == []


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        (
            {"topic_topic_sum": 1.35},
            ("add up to 1.35", "--max-iterations", "to polish"),
        ),
        ({"topic_topic_sum": 0.7}, ("add up to 0.70", "fewer topics")),
        ({"rectification": {"change": 3e-4, "converged": False}}, ("3.0e-04", "--max-iterations")),
        (
            {"rectification": {"omitted_mass": {"value": 0.05, "standard_error": 0.001}}},
            ("5.0% of the pairs", "smaller vocabulary"),
        ),
        ({"ritz_residual": 0.4}, ("error of 40%", "--max-topics")),
        ({"range_change": 0.3}, ("summary by 30%", "--max-topics")),
        ({"eigenvalue_gap": 1e-5}, ("difference 1.0e-05", "one topic more or less")),
        ({"largest_simplex_gap": 1e-3}, ("error 1.0e-03", "--anchor-min-df")),
        (
            {"topics_asked": 10, "topics_found": 7, "effective_rank": 7},
            ("7 topics, 10 were asked for", "larger corpus"),
        ),
        ({"topics_found": 7, "discarded": 3}, ("3 of the topics", "7 were", "--stod-alpha0")),
        ({"duplicates": 2}, ("2 topics repeat others", "fewer topics")),
        ({"largest_step": 1e-3}, ("moved by 0.001 in its last step", "fewer topics")),
        ({"mass_without_topic": 0.03}, ("3.0% of all tokens", "engine lr-jsmf")),
        ({"alpha0": 50.0, "alpha0_at_end": True}, ("alpha0 is 50", "--stod-alpha0")),
    ],
)
def test_each_threshold_has_a_warning_with_advice(changes: dict[str, Any], parts: tuple[str, ...]) -> None:
    with options_named():
        [sentence] = warnings_of({**SOUND, **changes})
    for part in parts:
        assert part in sentence
    assert "\n" not in sentence
    with options_named():
        [of_few] = warnings_of({**SOUND, **changes}, 5)
    of_few = of_few.replace("--max-topics 10)", "--max-topics)")
    assert of_few == sentence or ("fewer topics" in sentence and "fewer" not in of_few)


def test_an_estimate_within_its_error_of_the_threshold_causes_no_warning() -> None:
    doubtful = {"omitted_mass": {"value": 0.02, "standard_error": 0.008}}
    assert warnings_of({**SOUND, "rectification": doubtful}) == []
