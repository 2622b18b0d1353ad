"""Coherences against loops over the documents and against gensim; MST-Incoherence against Kruskal."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_jsmf.evaluation.coherence import (
    GENSIM_SMOOTHING,
    coherence,
    incoherence_in_cooccurrence,
    incoherence_in_documents,
    npmi,
    pair_npmi,
    spanning_tree_weight,
    u_mass,
)
from streaming_jsmf.evaluation.inputs import SelectedCounts, TopicArrays
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
    present = (H[:, usable] > 0).astype(np.int64)
    pairs = present.T @ present
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


@given(st.integers(0, 10**6), st.integers(1, 8), st.booleans())
def test_trees_equal_kruskal(seed, n, coarse):
    """Coarse weights have ties and zeros."""
    weights = np.random.default_rng(seed).random((n, n))
    weights = np.round(weights * 2) / 2 if coarse else weights
    weights = np.minimum(weights, weights.T)
    assert spanning_tree_weight(weights) == pytest.approx(reference_metrics.spanning_tree(weights), abs=1e-12)
    assert spanning_tree_weight(np.zeros((n - 1, n - 1))) == 0.0


@given(cases(), st.booleans())
def test_incoherence_in_cooccurrence_equals_the_dense_one(case, exact):
    C = reference_metrics.dense_cooccurrence(case.cooccurrence.factor, case.cooccurrence.diagonal)
    rows = case.counts.anchor_rows if exact else C[case.topics.anchors]
    found = incoherence_in_cooccurrence(case.topics, case.cooccurrence, rows)
    expected = reference_metrics.mst_incoherence(case.topics.top_words, rows, C, case.cooccurrence.row_sum)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    assert (found >= 0).all()
    assert (found <= 13).all()
    counted = replace(case.cooccurrence, counted=C)
    np.testing.assert_allclose(incoherence_in_cooccurrence(case.topics, counted, rows), found, rtol=1e-9)


@given(cases())
def test_incoherence_in_documents_equals_the_dense_one(case):
    H, rows = case.documents, case.counts.anchor_rows
    present = (H > 0).astype(float)
    joint = present.T @ present / len(H)
    found = incoherence_in_documents(case.topics, case.counts, rows)
    expected = reference_metrics.mst_incoherence(
        case.topics.top_words, rows, joint, np.diag(joint), case.counts.words
    )
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_words_that_meet_always_and_never():
    """Words 0 and 1 are in the same document, word 2 in the other."""
    topics = TopicArrays(np.ones((3, 1)) / 3, np.array([[0, 1, 2]]), np.ones(3) / 3)
    counts = SelectedCounts(np.arange(3), np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1]]), 2)
    # The edge between 0 and 1 costs nothing (NPMI 1), the way to 2 the whole of 1.
    assert incoherence_in_documents(topics, counts, np.zeros((1, 3))).tolist() == [1.0]


def test_an_anchor_without_documents_has_no_characteristic_words():
    """Rows of zeros would otherwise name the words of the lowest ids."""
    case = make_case(2)
    topics = replace(case.topics, top_words=case.topics.top_words[:, :3])
    none = incoherence_in_documents(topics, case.counts, np.zeros((4, 30)))
    assert (none <= 2).all()
    assert not np.array_equal(none, incoherence_in_documents(topics, case.counts, case.counts.anchor_rows))


def test_positions_of_words():
    counts = SelectedCounts(np.array([2, 5, 9]), np.zeros((3, 3), np.int64), 1)
    assert counts.positions(np.array([[9, 2], [5, 5]])).tolist() == [[2, 0], [1, 1]]
    empty = SelectedCounts(np.zeros(0, np.int64), np.zeros((0, 0), np.int64), 1)
    for where, word in ((counts, 1), (counts, 7), (counts, 10), (empty, 0)):
        with pytest.raises(ValueError, match=f"word {word} "):
            where.positions(np.array([word]))


@pytest.mark.parametrize(
    ("words", "size", "documents"), [([1, 1], 2, 1), ([2, 1], 2, 1), ([1, 2], 3, 1), ([1], 1, 0)]
)
def test_counts_that_do_not_fit_are_refused(words, size, documents):
    with pytest.raises(ValueError):
        SelectedCounts(np.array(words), np.zeros((size, size), np.int64), documents)
