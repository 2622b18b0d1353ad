"""The benchmark of quality: every model fits the same counts and names words of them; scores are those of the words."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from benchmarks.quality import Fitted, Scores, Split, format_row, read_counts, score, split
from benchmarks.topic_models import LISTED, MODELS
from pipelines.common.bags import write_corpus
from streaming_jsmf.evaluation.matching import match_topics
from tests.corpora import Planted, planted

PACKAGES = {
    "gensim": "gensim",
    "tomotopy": "tomotopy",
    "scikit": "sklearn",
    "lr": "streaming_jsmf",
    "stod": "streaming_jsmf",
}
K, N_WORDS = 3, 40


@pytest.fixture(scope="module")
def documents() -> Planted:
    return planted(300, N_WORDS, K, length=40, seed=6)


def counts_of(documents: Planted) -> sparse.csr_array:
    return sparse.csr_array(documents.counts.astype(np.int32))


@pytest.mark.parametrize("name", MODELS)
def test_a_model_names_the_words_of_planted_topics(name: str, documents: Planted) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of peers about their own affairs
        pytest.importorskip(PACKAGES[name.split("-")[0]])
        found = MODELS[name](counts_of(documents), K, 0)
    assert found.shape == (K, LISTED)
    assert all(len({*words}) == LISTED for words in found.tolist())
    truth = np.argsort(-documents.word_topic, axis=0)[:LISTED].T

    def indicator(lists: np.ndarray) -> np.ndarray:
        marked = np.zeros((N_WORDS, K))
        marked[lists, np.arange(K)[:, None]] = 1 / LISTED
        return marked

    # L1 of two lists of ten: a fifth for each word that is not shared.
    assert match_topics(indicator(found), indicator(truth)).mean_l1 <= 1.0


def test_a_corpus_is_read_as_it_was_written(documents: Planted, tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus", counts_of(documents), documents_per_shard=70)
    np.testing.assert_array_equal(read_counts(tmp_path / "corpus").toarray(), documents.counts)


def test_every_fifth_document_is_held_out(documents: Planted) -> None:
    found = split(counts_of(documents))
    np.testing.assert_array_equal(found.held_out.toarray(), documents.counts[4::5])
    assert found.fitted.shape == (240, N_WORDS)


def test_scores_are_of_both_kinds_of_documents() -> None:
    # Words 0 and 1 always together, among the held out never.
    fitted = sparse.csr_array(np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1]], dtype=np.int32))
    held_out = sparse.csr_array(np.array([[1, 0, 0], [0, 1, 0]], dtype=np.int32))
    found = score(Split(fitted, held_out), Fitted(np.array([[0, 1], [1, 0]]), 2.0, 3_000_000))
    assert (found.npmi, found.held_out) == (pytest.approx(1.0), -1.0)
    assert (found.distinct, found.seconds, found.megabytes) == (0.5, 2.0, 3.0)


def test_a_row_has_means_and_spreads() -> None:
    runs = [Scores(0.2, 0.1, 0.5, 1.0, 100.0), Scores(0.4, 0.1, 0.7, 3.0, 100.0)]
    row = "| x | 5 | 0.300 (0.141) | 0.100 (0.000) | 0.60 (0.14) | 2.0 (1.4) | 100 (0) |"
    assert format_row("x", 5, runs) == row
    assert format_row("x", 5, runs[:1]) == "| x | 5 | 0.200 | 0.100 | 0.50 | 1.0 | 100 |"
