"""Metrics of B, A and p(topic) alone, and how topics are matched."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_jsmf.evaluation import topic_shape
from streaming_jsmf.evaluation.coherence import distinct_share
from streaming_jsmf.evaluation.inputs import TopicArrays
from streaming_jsmf.evaluation.matching import recovery_error, stability
from tests import reference_metrics
from tests.metric_models import cases, make_case, reordered


def values(topics: TopicArrays) -> list[float]:
    return [
        topic_shape.dominancy(topics.topic_topic),
        topic_shape.relative_dominancy(topics.topic_topic),
        topic_shape.specificity(topics.word_topic, topics.word_probability),
        topic_shape.dissimilarity(topics.top_words),
        topic_shape.effective_topics(topics.topic_probability),
        topic_shape.hoyer_sparsity(topics.word_topic),
        distinct_share(topics.top_words[:, :10]),
    ]


@given(cases())
def test_values_equal_the_dense_ones(case):
    topics = case.topics
    expected = [
        reference_metrics.dominancy(topics.topic_topic),
        reference_metrics.relative_dominancy(topics.topic_topic),
        reference_metrics.specificity(topics.word_topic, topics.word_probability),
        reference_metrics.dissimilarity(topics.top_words),
        reference_metrics.effective_topics(topics.topic_probability),
        reference_metrics.hoyer_sparsity(topics.word_topic),
        reference_metrics.distinct_share(topics.top_words),
    ]
    np.testing.assert_allclose(values(topics), expected, rtol=1e-10, atol=1e-12)


@given(cases(), st.integers(0, 100))
def test_order_of_topics_does_not_matter_and_bounds_hold(case, seed):
    topics = case.topics
    K = len(topics.top_words)
    order = np.random.default_rng(seed).permutation(K)
    found = values(topics)
    np.testing.assert_allclose(values(reordered(topics, order)), found, rtol=1e-12, atol=1e-15)
    dominancy, relative, specificity, dissimilarity, effective, hoyer, distinct = found
    assert 0 <= dominancy <= 1
    assert 0 <= relative <= 1 / np.sqrt(K) + 1e-12
    assert specificity >= 0
    assert 0 <= dissimilarity <= 20
    assert 1 - 1e-12 <= effective <= K + 1e-9
    assert 0 <= hoyer <= 1
    assert 1 / K - 1e-12 <= distinct <= 1


def test_specificity_over_panels(monkeypatch):
    topics = make_case(3).topics
    whole = topic_shape.specificity(topics.word_topic, topics.word_probability)
    monkeypatch.setattr("streaming_jsmf.linalg.panels.PANEL_ROWS", 4)
    split = topic_shape.specificity(topics.word_topic, topics.word_probability)
    assert split == pytest.approx(whole, rel=1e-12)


def test_specificity_of_words_that_the_corpus_lacks():
    """Half of the first topic is on a word of no document; the second topic has no other word."""
    B = np.array([[0.5, 0.0], [0.0, 0.0], [0.5, 1.0]])
    found = topic_shape.specificity(B, np.array([0.25, 0.75, 0.0]))
    assert found == pytest.approx((np.log(4) + 0.0) / 2)
    assert topic_shape.specificity(B, np.zeros(3)) == 0.0


def test_a_corpus_distribution_of_any_sum():
    topics = make_case(4).topics
    B, p = topics.word_topic, topics.word_probability
    assert topic_shape.specificity(B, 7 * p) == pytest.approx(topic_shape.specificity(B, p), rel=1e-10)


def test_empty_topics_and_single_words():
    assert topic_shape.dominancy(np.zeros((2, 2))) == 0.0
    assert topic_shape.relative_dominancy(np.zeros((2, 2))) == 0.0
    assert topic_shape.relative_dominancy(np.ones((1, 1))) == 1.0
    assert topic_shape.hoyer_sparsity(np.zeros((4, 1))) == 0.0
    assert topic_shape.hoyer_sparsity(np.ones((1, 3))) == 1.0
    assert topic_shape.hoyer_sparsity(np.full((9, 2), 1 / 9)) == pytest.approx(0.0, abs=1e-12)
    assert topic_shape.effective_topics(np.array([1.0, 0.0])) == 1.0
    assert topic_shape.effective_topics(np.zeros(3)) == pytest.approx(3.0)
    assert topic_shape.dissimilarity(np.array([[4]])) == 1.0


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 4))
def test_recovery_error_equals_all_assignments_tried(seed, K, K_true):
    rng = np.random.default_rng(seed)
    first, second = (rng.dirichlet(np.full(8, 0.5), size=k).T for k in (K, K_true))
    found = recovery_error(first, second)
    assert found == pytest.approx(reference_metrics.recovery_error(first, second), rel=1e-12, abs=1e-12)
    assert found == pytest.approx(recovery_error(first[:, rng.permutation(K)], second), abs=1e-12)
    assert 0 <= found <= 2 + 1e-12
    assert recovery_error(first, first[:, rng.permutation(K)]) == 0.0


def test_topics_without_a_common_word_are_two_apart():
    assert recovery_error(np.array([[1.0], [0.0]]), np.array([[0.0], [1.0]])) == 2.0
    with pytest.raises(ValueError, match="same words"):
        recovery_error(np.ones((2, 1)), np.ones((3, 1)))


@given(st.integers(0, 10**6), st.integers(1, 3))
def test_stability_equals_the_plain_mean(seed, replicas):
    rng = np.random.default_rng(seed)
    B = rng.dirichlet(np.ones(6), size=3).T
    others = [rng.dirichlet(np.ones(6), size=int(k)).T for k in rng.integers(2, 5, size=replicas)]
    found = stability(B, others)
    assert found.value == pytest.approx(reference_metrics.stability(B, others), rel=1e-12)
    assert 0 <= found.value <= 1
    assert (found.standard_error is None) == (replicas == 1)
    if replicas > 1:
        each = [stability(B, [other]).value for other in others]
        assert found.standard_error == pytest.approx(np.std(each, ddof=1) / np.sqrt(replicas))
    assert stability(B, [B[:, ::-1]]).value == 1.0


def test_stability_needs_replicas():
    with pytest.raises(ValueError, match="at least one replica"):
        stability(np.eye(2), [])


def test_arrays_that_do_not_fit_are_refused():
    topics = make_case(1).topics
    for field, value, message in [
        ("word_topic", np.zeros(3), "word_topic"),
        ("word_probability", np.zeros(3), "word_probability"),
        ("topic_topic", np.zeros((2, 2)), "topic_topic"),
        ("anchors", np.zeros(3, np.int64), "anchors"),
        ("rectified", np.zeros((3, 4)), "rectified"),
        ("top_words", np.zeros((2, 10), np.int64), "top_words"),
    ]:
        with pytest.raises(ValueError, match=message):
            replace(topics, **{field: value})
