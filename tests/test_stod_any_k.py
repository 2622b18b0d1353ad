"""The tensor engine at numbers of topics that no corpus was made of: alpha0, topics, and what they predict."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf import InferSettings, ScanSettings, StodSettings
from streaming_jsmf.errors import TooFewFactorsError
from streaming_jsmf.evaluation.matching import recovery_error
from streaming_jsmf.evaluation.verdicts import warnings_of
from streaming_jsmf.inference.correlations import dirichlet_prior, prior_sum
from streaming_jsmf.inference.perplexity import Completer, Completion
from streaming_jsmf.moments.store import Moments
from streaming_jsmf.topics.infer import fit_moments
from streaming_jsmf.topics.store import Model, read_model, write_model
from tests.corpora import write_corpus
from tests.stores import scanned
from tests.test_stod_models import K, Law

LAW = Law()
#: Sum of the prior that the documents of the law are drawn with.
TRUE_SUM = 0.3 * K
ASKED = (K, 2 * K)


@pytest.fixture(scope="module")
def documents() -> NDArray[np.int64]:
    return LAW.documents(np.random.default_rng(5).poisson(60, 2400))


@pytest.fixture(scope="module")
def moments(documents: NDArray[np.int64], tmp_path_factory: pytest.TempPathFactory) -> Moments:
    """Of the first 2,000 documents."""
    return scanned_third(documents[:2000], max(ASKED), tmp_path_factory.mktemp("any-k"))


def scanned_third(counts: NDArray[np.int64], max_topics: int, folder: Path) -> Moments:
    corpus = write_corpus(folder / "corpus", counts, row_group_rows=500)
    settings = ScanSettings(max_topics=max_topics, third_moment=True)
    return scanned(corpus, folder / "m", settings)


def error(model: Model) -> float:
    return recovery_error(model.arrays["word_topic"], LAW.word_topic)


@pytest.mark.parametrize("n_topics", ASKED)
def test_alpha0_is_found_whatever_k_is(n_topics: int, moments: Moments) -> None:
    true = fit_moments(moments, StodSettings(n_topics, alpha0=TRUE_SUM), threads=1)
    found = fit_moments(moments, StodSettings(n_topics), threads=1)
    assert error(found) < 1.35 * error(true)
    assert found.metrics["alpha0"] == pytest.approx(TRUE_SUM, rel=0.7)
    assert not found.metrics["alpha0_at_end"]
    shares = fit_moments(moments, StodSettings(n_topics, alpha0="shares"), threads=1)
    if n_topics == K:
        assert shares.metrics["alpha0"] == pytest.approx(TRUE_SUM, rel=0.15)
        assert shares.metrics["share_sum"] == pytest.approx(1.0, abs=1e-3)
    else:
        assert shares.metrics["alpha0"] > 3 * TRUE_SUM, "what is wrong with that rule"
        assert error(shares) > 1.35 * error(true)


def test_topics_predict_documents_nearly_as_anchor_words_do(
    moments: Moments, documents: NDArray[np.int64]
) -> None:
    n_topics = K + 2

    def completed(topics: NDArray[np.float64], prior: NDArray[np.float64]) -> Completion:
        completer = Completer.of(topics, prior, moments.term_count)
        return completer.complete(csr_array(documents[2000:]), threads=1)

    lr = fit_moments(moments, InferSettings(n_topics, correlations="refined"), threads=1).arrays
    prior = dirichlet_prior(lr["topic_probability"], prior_sum(lr["topic_topic"], lr["topic_probability"]))
    anchored = completed(lr["word_topic"], prior)
    model = fit_moments(moments, StodSettings(n_topics), threads=1).arrays
    found = completed(model["word_topic"], model["alpha"])
    assert found.perplexity < 1.1 * anchored.perplexity < anchored.unigram_perplexity


def test_the_threshold_changes_word_lists_alone(moments: Moments) -> None:
    settings = StodSettings(K + 2, threshold=0.0)
    plain, usual = (
        fit_moments(moments, each, threads=1) for each in (settings, replace(settings, threshold=2.0))
    )
    lists = {"prominent_words", "characteristic_words", "label_words"}
    for name in plain.arrays.keys() - lists:
        np.testing.assert_array_equal(plain.arrays[name], usual.arrays[name], err_msg=name)
    assert not np.array_equal(plain.arrays["prominent_words"], usual.arrays["prominent_words"])


def test_words_of_short_documents_get_their_share_and_a_warning(tmp_path: Path) -> None:
    """The third moment sees documents of three tokens and more; the last ten words are in shorter ones."""
    random = np.random.default_rng(3)
    long = np.hstack([LAW.documents(np.full(400, 20)), np.zeros((400, 10), np.int64)])
    short = np.zeros((300, long.shape[1]), np.int64)
    short[:, -10:] = random.multinomial(2, np.full(10, 0.1), size=300)
    moments = scanned_third(np.vstack([long, short]), K, tmp_path)
    model = fit_moments(moments, StodSettings(K), threads=1)
    assert (model.arrays["word_topic"][-10:] > 0).all()
    assert (model.arrays["word_topic"].sum(axis=1) > 0)[moments.term_count > 0].all()
    assert model.metrics["mass_without_topic"] == pytest.approx(600 / 8600)
    write_model(tmp_path / "model", model)
    warnings = warnings_of(read_model(tmp_path / "model", ()).metrics)
    assert any("7.0% of all tokens" in sentence for sentence in warnings)


def test_without_anchor_words_alpha0_must_be_given(tmp_path: Path) -> None:
    """Words of five documents each, of 1,000: none is frequent enough for an anchor."""
    counts = np.zeros((1000, 600), np.int64)
    for document, row in enumerate(counts):
        row[document % 200 * 3 : document % 200 * 3 + 3] = 2
    with pytest.raises(TooFewFactorsError, match=r"\b0 words .* 4 topics.*alpha0") as caught:
        fit_moments(scanned_third(counts, 4, tmp_path), StodSettings(4), threads=1)
    assert "\n" not in str(caught.value)
