"""What metrics are computed from: models of any engine, moments of any scan, a truth over other words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.errors import InputError
from streaming_jsmf.evaluation.evaluate import cooccurrence_of, topic_arrays, truth_of
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.moments.scan import scan
from streaming_jsmf.simulation import simulate_lda
from streaming_jsmf.simulation.truth import read_truth
from streaming_jsmf.topics.store import Model

WORD_TOPIC = np.array([[0.6, 0.0], [0.4, 0.1], [0.0, 0.9]])
NEEDED: dict[str, Any] = {
    "word": np.array(["a", "b", "c"], dtype=object),
    "word_topic": WORD_TOPIC,
    "prominent_words": np.array([[0, 1, 2], [2, 1, 0]]),
}


def model(**arrays: Any) -> Model:
    return Model({**NEEDED, **arrays}, {}, {}, {})


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ({"term_count": np.array([1.0, 1.0, 2.0]), "row_sum": np.ones(3)}, [0.25, 0.25, 0.5]),
        ({"row_sum": np.array([2.0, 1.0, 1.0])}, [0.5, 0.25, 0.25]),
        ({"topic_probability": np.array([0.5, 0.5])}, [0.3, 0.25, 0.45]),
        ({}, [0.3, 0.25, 0.45]),
    ],
)
def test_the_share_of_words_comes_from_the_best_there_is(
    arrays: dict[str, Any], expected: list[float]
) -> None:
    np.testing.assert_allclose(topic_arrays(model(**arrays)).word_probability, expected)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    corpus = tmp_path_factory.mktemp("truth") / "corpus"
    simulate_lda(corpus, n_documents=40, n_words=30, n_topics=3, mean_length=30, separable=True)
    return corpus


def test_a_truth_is_matched_by_words_and_normalised_again(simulated: Path) -> None:
    truth, words = read_truth(simulated).word_topic, read_truth(simulated).words
    assert truth.shape[0] == len(words) == 30
    # Every other word, backwards, and one that the truth lacks.
    chosen = np.arange(28, -1, -2)
    named = np.array([*words[chosen], "unknown"], dtype=object)
    found = truth_of(str(simulated), Model({"word": named}, {}, {}, {}))
    np.testing.assert_allclose(found.sum(axis=0), 1.0)
    np.testing.assert_array_equal(found[-1], 0.0)
    kept = truth[chosen]
    np.testing.assert_allclose(found[:-1], kept / kept.sum(axis=0))


def test_a_lost_topic_of_the_truth_is_reported(simulated: Path) -> None:
    truth = read_truth(simulated)
    words = truth.words
    assert truth.anchors is not None
    # Anchors belong to one topic each: with two of three the third topic is gone.
    named = np.array(words[truth.anchors[:2]], dtype=object)
    with pytest.raises(InputError, match="none of the words of 1 of the 3 true topics"):
        truth_of(str(simulated), Model({"word": named}, {}, {}, {}))


def test_a_basis_of_all_words_gives_the_co_occurrences(corpus_path: Path, tmp_path: Path) -> None:
    settings = ScanSettings(max_topics=60)
    moments = scan(corpus_path, tmp_path / "moments", settings, Execution("synchronous"))
    found = cooccurrence_of(moments)
    dense = found.factor.astype(np.float64) @ found.factor.T - np.diag(found.diagonal)
    rows = moments.cooccurrence_rows(np.arange(120))
    np.testing.assert_allclose(dense, rows, atol=1e-5 * np.abs(rows).max())
    np.testing.assert_allclose(found.row_sum, rows.sum(axis=1), atol=1e-5 * found.row_sum.max())
