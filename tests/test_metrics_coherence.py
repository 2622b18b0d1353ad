"""Coherences of top words: against loops over the documents, and against gensim."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from streaming_jsmf.evaluation.coherence import (
    GENSIM_SMOOTHING,
    coherence,
    cooccurrence_counts,
    npmi,
    pair_npmi,
    u_mass,
)
from tests import reference_metrics
from tests.metric_models import cases, make_case

EPSILONS = (1.0, 0.01, 1e-8)


@given(cases(), st.integers(2, 10))
def test_values_equal_loops_over_the_documents(case, words):
    H, top = case.documents, case.topics.top_words[:, :words]
    places = case.counts.positions(top)
    pairs, M = case.counts.pairs, case.counts.n_documents
    frequency = np.diag(pairs)
    for epsilon in EPSILONS:
        found = coherence(frequency, pairs, places, epsilon=epsilon)
        np.testing.assert_allclose(found, reference_metrics.coherence(H, top, epsilon), rtol=1e-12)
    for smoothing in (0.0, GENSIM_SMOOTHING):
        found = npmi(frequency, pairs, M, places, smoothing=smoothing)
        expected = reference_metrics.npmi(H, top, smoothing)
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
        assert (np.abs(found) <= 1).all()
    found = u_mass(frequency, pairs, M, places)
    np.testing.assert_allclose(found, reference_metrics.u_mass(H, top, GENSIM_SMOOTHING), rtol=1e-10)


@given(cases(), st.integers(0, 100), st.integers(1, 5))
def test_splits_of_the_corpus_and_order_of_topics_do_not_matter(case, seed, parts):
    rng = np.random.default_rng(seed)
    documents = case.documents[rng.permutation(len(case.documents))]
    blocks = [sparse.csr_array(block) for block in np.array_split(documents, parts)]
    np.testing.assert_array_equal(cooccurrence_counts(blocks, case.counts.words), case.counts.pairs)
    places = case.counts.positions(case.topics.top_words[:, :5])
    order = rng.permutation(len(places))
    frequency = np.diag(case.counts.pairs)
    for kernel in (
        lambda top: npmi(frequency, case.counts.pairs, 60, top),
        lambda top: u_mass(frequency, case.counts.pairs, 60, top),
        lambda top: coherence(frequency, case.counts.pairs, top, epsilon=0.01),
    ):
        np.testing.assert_array_equal(kernel(places)[order], kernel(places[order]))


def gensim_values(H, top_words, measure):
    """gensim's coherence of each topic, documents as texts and windows longer than any of them."""
    models = pytest.importorskip("gensim.models.coherencemodel")
    from gensim.corpora import Dictionary

    texts = [[f"w{i}" for i in np.repeat(np.arange(H.shape[1]), h.astype(int))] for h in H]
    # The words in order of their ids, so that gensim's ids are ours.
    dictionary = Dictionary([[f"w{i}" for i in range(H.shape[1])]])
    topics = [[f"w{i}" for i in words] for words in top_words]
    arguments = {"topics": topics, "dictionary": dictionary, "topn": top_words.shape[1], "processes": 1}
    if measure == "u_mass":
        arguments["corpus"] = [dictionary.doc2bow(text) for text in texts]
    else:
        arguments |= {"texts": texts, "window_size": 1 + max(map(len, texts))}
    model = models.CoherenceModel(coherence=measure, **arguments)
    return model.get_coherence_per_topic(), model.get_coherence()


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("measure", ["u_mass", "c_npmi"])
def test_gensim_agrees(seed, measure):
    case = make_case(seed)
    H = case.documents
    # gensim divides by zero for words of no document, and has its own mind about words of all of them.
    frequency = (H > 0).sum(axis=0)
    usable = np.flatnonzero((frequency > 0) & (frequency < len(H)))
    scores = case.topics.word_topic[usable]
    top = usable[np.argsort(-scores, axis=0, kind="stable")[:10].T]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # gensim's own deprecations
        per_topic, mean = gensim_values(H, top, measure)
    pairs = cooccurrence_counts([sparse.csr_array(H)], usable)
    places = np.searchsorted(usable, top)
    assert any((pairs[np.ix_(topic, topic)] == 0).any() for topic in places), "all pairs meet"
    if measure == "u_mass":
        found = u_mass(np.diag(pairs), pairs, len(H), places)
    else:
        found = npmi(np.diag(pairs), pairs, len(H), places, smoothing=GENSIM_SMOOTHING)
    np.testing.assert_allclose(found, per_topic, rtol=0, atol=1e-6)
    assert found.mean() == pytest.approx(mean, abs=1e-6)


def test_words_of_no_document_are_never_nan():
    frequency, pairs = [3, 0, 0], [[3, 0, 0], [0, 0, 0], [0, 0, 0]]
    top = [[0, 1, 2], [1, 2, 0]]
    assert npmi(frequency, pairs, 4, top).tolist() == [-1.0, -1.0]
    assert npmi(frequency, pairs, 4, top, smoothing=GENSIM_SMOOTHING).tolist() == [-1.0, -1.0]
    # Word 0 is in three documents, the others count as if in one.
    expected = [2 * np.log(1e-8 / 3) + np.log(1e-8), 3 * np.log(1e-8)]
    np.testing.assert_allclose(coherence(frequency, pairs, top, epsilon=1e-8), expected)
    np.testing.assert_allclose(u_mass(frequency, pairs, 4, top), [2 * np.log(1e-12 / 0.75) / 3, 0.0])


def test_pair_npmi_stays_within_its_bounds():
    """What a cut factor may give: negative and too large joint probabilities."""
    values = pair_npmi(np.array([-0.1, 0.2, 0.5, 0.1]), np.array([0.1, 1e-6, 0.9, 0.0]))
    assert values[0] == -1.0
    assert values[1] == 1.0
    assert -1 < values[2] < 0
    assert values[3] == -1.0


@pytest.mark.parametrize("kernel", [npmi, u_mass])
def test_too_few_words_or_documents_are_refused(kernel):
    with pytest.raises(ValueError, match="two words"):
        kernel([1], [[1]], 1, [[0]])
    with pytest.raises(ValueError, match="one document"):
        kernel([1, 1], np.ones((2, 2)), 0, [[0, 1]])
    with pytest.raises(ValueError, match="two words"):
        coherence([1], [[1]], [[0]])
