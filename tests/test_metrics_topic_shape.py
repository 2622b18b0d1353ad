"""Metrics of B, A, p(topic) and the anchors alone, and how topics and factors are compared: against dense oracles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_jsmf.evaluation import topic_shape
from streaming_jsmf.evaluation.coherence import distinct_share
from streaming_jsmf.evaluation.inputs import TopicArrays
from streaming_jsmf.evaluation.matching import match_topics, recovery_error, stability, yy_error
from tests import reference_metrics as oracle
from tests.metric_models import cases, make_case


def values(topics: TopicArrays) -> list[float]:
    B, A = topics.word_topic, topics.topic_topic
    rank, quality = (
        measure(B, topics.anchors) for measure in (topic_shape.basis_rank, topic_shape.basis_quality)
    )
    return [
        topic_shape.dominancy(A),
        topic_shape.relative_dominancy(A),
        topic_shape.specificity(B, topics.word_probability),
        topic_shape.dissimilarity(topics.top_words),
        topic_shape.effective_topics(topics.topic_probability),
        topic_shape.hoyer_sparsity(B),
        distinct_share(topics.top_words[:, :10]),
        topic_shape.word_entropy(topics),
        topic_shape.validity(A, topics.topic_probability[::-1]),
        rank["hard"],
        np.nan if rank["soft"] is None else rank["soft"],
        *(quality or {"hard": np.nan, "soft": np.nan}).values(),
    ]


@given(cases())
def test_values_equal_the_dense_ones(case):
    topics = case.topics
    B, A, p, anchors = topics.word_topic, topics.topic_topic, topics.topic_probability, topics.anchors
    ranks = oracle.ranks(B, anchors)
    np.testing.assert_array_equal(topic_shape.anchor_ranks(B, anchors), ranks)
    own, K = B[anchors, np.arange(len(anchors))], len(anchors)
    others = ~np.eye(K, dtype=bool)
    with np.errstate(divide="ignore"):
        soft = np.mean(np.log(B.max(axis=0) / own))
    expected = [
        oracle.dominancy(A),
        oracle.relative_dominancy(A),
        oracle.specificity(B, topics.word_probability),
        oracle.dissimilarity(topics.top_words),
        oracle.effective_topics(p),
        oracle.hoyer_sparsity(B),
        oracle.distinct_share(topics.top_words),
        oracle.word_entropy(oracle.topic_given_word(B, p)),
        oracle.validity(A, p[::-1]),
        np.trace(ranks) / K,
        soft if (own > 0).all() else np.nan,
        ranks[others].mean() if K > 1 else np.nan,
        B[anchors][others].mean() if K > 1 else np.nan,
    ]
    np.testing.assert_allclose(values(topics), expected, rtol=1e-10, atol=1e-12)


@given(cases())
def test_bounds_hold(case):
    K = len(case.topics.top_words)
    found = values(replace(case.topics, topic_probability=case.topics.topic_topic.sum(axis=1)))
    upper = [1, 1 / np.sqrt(K), np.inf, 20, K, 1, 1, 1, np.inf]
    lower = [0, 0, 0, 0, 1, 0, 1 / K, 0, 0]
    assert (np.array(found[:9]) <= np.array(upper) + 1e-9).all()
    assert (np.array(found[:9]) >= np.array(lower) - 1e-12).all()


def test_more_words_than_a_panel_holds(monkeypatch):
    topics = make_case(3).topics
    whole = values(topics)
    monkeypatch.setattr("streaming_jsmf.linalg.panels.PANEL_ROWS", 4)
    np.testing.assert_allclose(values(topics), whole, rtol=1e-12)


def test_specificity_of_words_that_the_corpus_lacks_and_of_any_sum():
    """Half of the first topic is on a word of no document; the second topic has no other word."""
    B = np.array([[0.5, 0.0], [0.0, 0.0], [0.5, 1.0]])
    assert topic_shape.specificity(B, np.array([0.25, 0.75, 0.0])) == pytest.approx((np.log(4) + 0.0) / 2)
    assert topic_shape.specificity(B, np.zeros(3)) == 0.0
    topics = make_case(4).topics
    B, p = topics.word_topic, topics.word_probability
    assert topic_shape.specificity(B, 7 * p) == pytest.approx(topic_shape.specificity(B, p), rel=1e-10)


def test_a_sum_of_correlations_other_than_one_increases_validity():
    A = make_case(0).topics.topic_topic
    probability = A.sum(axis=1) / A.sum()
    assert topic_shape.validity(A / A.sum(), probability) == pytest.approx(0, abs=1e-12)
    assert topic_shape.validity(2 * A / A.sum(), probability) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("measure", "argument", "expected"),
    [
        ("dominancy", np.zeros((2, 2)), 0.0),
        ("relative_dominancy", np.zeros((2, 2)), 0.0),
        ("relative_dominancy", np.ones((1, 1)), 1.0),
        ("hoyer_sparsity", np.zeros((4, 1)), 0.0),
        ("hoyer_sparsity", np.ones((1, 3)), 1.0),
        ("hoyer_sparsity", np.full((9, 2), 1 / 9), 0.0),
        ("effective_topics", np.array([1.0, 0.0]), 1.0),
        ("effective_topics", np.zeros(3), 3.0),
        ("dissimilarity", np.array([[4]]), 1.0),
    ],
)
def test_empty_topics_and_single_words(measure, argument, expected):
    assert getattr(topic_shape, measure)(argument) == pytest.approx(expected, abs=1e-12)


def test_words_of_one_topic_have_no_entropy_and_even_ones_all():
    topics = replace(make_case(1).topics, topic_probability=None, topic_topic=None)
    B = topics.word_topic
    alone = np.eye(B.shape[1])[np.arange(len(B)) % B.shape[1]]
    for matrix, entropy in ((np.full_like(B, 1 / len(B)), 1.0), (alone, 0.0), (0 * alone, 0.0)):
        assert topic_shape.word_entropy(replace(topics, word_topic=matrix)) == pytest.approx(entropy)


def test_prior_without_topic_probability():
    topics, rows = make_case(9).topics, slice(0, 30)
    from_rows = replace(topics, topic_probability=None)
    expected = topic_shape.topic_given_word(topics, rows)
    np.testing.assert_array_equal(topic_shape.topic_given_word(from_rows, rows), expected)
    uniform = topic_shape.topic_given_word(replace(from_rows, topic_topic=None), rows)
    even = oracle.topic_given_word(topics.word_topic, np.ones(4))
    np.testing.assert_allclose(uniform, even, rtol=1e-12)


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 4))
def test_recovery_error_equals_all_assignments_tried(seed, K, K_true):
    rng = np.random.default_rng(seed)
    first, second = (rng.dirichlet(np.full(8, 0.5), size=k).T for k in (K, K_true))
    found = recovery_error(first, second)
    assert found == pytest.approx(oracle.recovery_error(first, second), rel=1e-12, abs=1e-12)
    assert found == pytest.approx(recovery_error(first[:, rng.permutation(K)], second), abs=1e-12)
    assert 0 <= found <= 2 + 1e-12
    assert recovery_error(first, first[:, rng.permutation(K)]) == 0.0


@given(st.integers(0, 10**6), st.integers(1, 3))
def test_stability_equals_the_plain_mean(seed, replicas):
    rng = np.random.default_rng(seed)
    B = rng.dirichlet(np.ones(6), size=3).T
    others = [rng.dirichlet(np.ones(6), size=int(k)).T for k in rng.integers(2, 5, size=replicas)]
    found = stability(B, others)
    assert found.value == pytest.approx(oracle.stability(B, others), rel=1e-12)
    assert 0 <= found.value <= 1
    assert (found.standard_error is None) == (replicas == 1)
    if replicas > 1:
        each = [stability(B, [other]).value for other in others]
        assert found.standard_error == pytest.approx(np.std(each, ddof=1) / np.sqrt(replicas))
    assert stability(B, [B[:, ::-1]]).value == 1.0


def test_matching_undoes_a_permutation_and_takes_the_cheapest_total():
    rng = np.random.default_rng(0)
    B = rng.dirichlet(np.full(30, 0.3), size=6).T
    order = rng.permutation(6)
    found = match_topics(B[:, order], B)
    np.testing.assert_array_equal(found.permutation, order)
    assert found.mean_l1 == 0.0
    # Straight: 1.5 + 1 = 2.5; crossed: topic 0 with 1 costs 1, topic 1 with 0 costs 0.5.
    crossed = match_topics(np.eye(2), np.array([[0.25, 0.5], [0.75, 0.5]]))
    assert (crossed.permutation.tolist(), crossed.l1.tolist(), crossed.mean_l1) == ([1, 0], [1.0, 0.5], 0.75)


def test_yy_error_against_dense():
    rng = np.random.default_rng(1)
    Y, Z = rng.normal(size=(20, 3)), rng.normal(size=(20, 4))
    dense = np.linalg.norm(Y @ Y.T - Z @ Z.T) / np.linalg.norm(Z @ Z.T)
    assert yy_error(Y, Z) == pytest.approx(dense, rel=1e-12)
    rotation = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    assert yy_error(Y @ rotation, Y) < 1e-14
    assert yy_error(Y * (1 + 1e-9), Y) == pytest.approx(2e-9, rel=1e-5)


@pytest.mark.parametrize(
    ("refused", "arguments"),
    [
        (match_topics, (np.eye(2), np.ones((2, 1)))),
        (recovery_error, (np.ones((2, 1)), np.ones((3, 1)))),
        (stability, (np.eye(2), [])),
        (yy_error, (np.ones((3, 1)), np.ones((2, 1)))),
        (yy_error, (np.ones((3, 1)), np.zeros((3, 1)))),
        (distinct_share, ([],)),
    ],
)
def test_topics_that_cannot_be_compared_are_refused(refused, arguments):
    with pytest.raises(ValueError):
        refused(*arguments)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("word_topic", np.zeros(3)),
        ("word_probability", np.zeros(3)),
        ("topic_topic", np.zeros((2, 2))),
        ("topic_probability", np.zeros(3)),
        ("anchors", np.zeros(3, np.int64)),
        ("rectified", np.zeros((3, 4))),
        ("top_words", np.zeros((2, 10), np.int64)),
    ],
)
def test_arrays_that_do_not_fit_are_refused(field, value):
    with pytest.raises(ValueError, match=field):
        replace(make_case(1).topics, **{field: value})


@pytest.mark.parametrize("field", ["factor", "diagonal", "row_sum"])
def test_cooccurrences_that_do_not_fit_are_refused(field):
    with pytest.raises(ValueError, match="has the shape"):
        replace(make_case(1).cooccurrence, **{field: np.zeros((2, 2))})
