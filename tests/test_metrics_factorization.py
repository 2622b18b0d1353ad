"""Recovery and Approximation against dense C, and what happens where a factor was cut."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_jsmf.evaluation.factorization import cooccurrence_rows, factorization_errors
from streaming_jsmf.evaluation.inputs import Cooccurrence, TopicArrays
from streaming_jsmf.evaluation.topic_shape import topic_given_word
from tests import reference, reference_metrics
from tests.corpora import planted
from tests.metric_models import Case, cases, exact_factor, make_case, reordered


def oracle(case: Case, C: np.ndarray | None = None) -> list[float]:
    """The four errors with the dense C of the factor, or another."""
    topics, u = case.topics, case.cooccurrence.row_sum
    found = case.cooccurrence
    C = reference_metrics.dense_cooccurrence(found.factor, found.diagonal) if C is None else C
    prior = topics.topic_probability
    prior = np.ones(len(topics.top_words)) if prior is None else prior
    shares = reference_metrics.topic_given_word(topics.word_topic, prior)
    return [
        reference_metrics.recovery(C, u, shares, topics.representatives),
        reference_metrics.relative_recovery(C, u, shares, topics.representatives),
        reference_metrics.approximation(C, topics.word_topic, topics.topic_topic),
        reference_metrics.relative_approximation(C, topics.word_topic, topics.topic_topic),
    ]


def errors(topics: TopicArrays, found: Cooccurrence) -> list[float]:
    return list(vars(factorization_errors(topics, found)).values())[:4]


@given(cases())
def test_errors_equal_the_dense_ones(case):
    np.testing.assert_allclose(errors(case.topics, case.cooccurrence), oracle(case), rtol=1e-8)


@given(cases(), st.integers(0, 100))
def test_order_of_topics_and_words_does_not_matter(case, seed):
    rng = np.random.default_rng(seed)
    straight = errors(case.topics, case.cooccurrence)
    order = rng.permutation(len(case.topics.top_words))
    np.testing.assert_allclose(errors(reordered(case.topics, order), case.cooccurrence), straight, rtol=1e-9)
    words = rng.permutation(len(case.topics.word_topic))
    place = np.argsort(words)
    moved = replace(
        case.topics,
        word_topic=case.topics.word_topic[words],
        top_words=place[case.topics.top_words],
        word_probability=case.topics.word_probability[words],
        anchors=place[case.topics.anchors],
        rectified=None,
    )
    found = case.cooccurrence
    shuffled = Cooccurrence(found.factor[words], found.diagonal[words], found.row_sum[words])
    np.testing.assert_allclose(errors(moved, shuffled), straight, rtol=1e-9)


def test_more_words_than_a_panel_holds(monkeypatch):
    case = make_case(3, 30, 4)
    straight = errors(case.topics, case.cooccurrence)
    monkeypatch.setattr("streaming_jsmf.linalg.panels.PANEL_ROWS", 7)
    np.testing.assert_allclose(errors(case.topics, case.cooccurrence), straight, rtol=1e-9)
    np.testing.assert_allclose(errors(case.topics, case.cooccurrence), oracle(case), rtol=1e-8)


def test_a_whole_factor_gives_the_errors_of_the_documents():
    case = make_case(5)
    C = reference.cooccurrence(case.documents)
    np.testing.assert_allclose(errors(case.topics, case.cooccurrence), oracle(case, C), rtol=2e-6)
    rows = cooccurrence_rows(case.cooccurrence, case.topics.anchors)
    np.testing.assert_allclose(rows, C[case.topics.anchors], atol=1e-8)


def test_planted_topics_have_next_to_no_error():
    """C = B A B' exactly: errors are those of a float32 factor, and the anchors recover every row."""
    rng = np.random.default_rng(0)
    B = np.vstack([0.1 * np.eye(3), 0.9 * rng.dirichlet(np.ones(9), size=3).T])
    A = np.array([[0.3, 0.1, 0.0], [0.1, 0.2, 0.05], [0.0, 0.05, 0.2]])
    C = B @ A @ B.T
    D = 0.5 * np.diag(C)
    values, vectors = np.linalg.eigh(C + np.diag(D))
    factor = (vectors * np.sqrt(values)).astype(np.float32)
    p = A.sum(axis=1)
    top = np.argsort(-B, axis=0)[:10].T
    topics = TopicArrays(B, top, C.sum(axis=1), A, p, np.arange(3))
    found = factorization_errors(topics, Cooccurrence(factor, D, C.sum(axis=1)))
    assert found.relative_recovery < 1e-6
    assert found.relative_approximation < 1e-6


def test_a_cut_factor_is_nearer_to_the_documents_without_negative_diagonal():
    """Short documents: most of D lies in the directions that a cut drops."""
    H = planted(400, 80, 4, length=8, seed=2).counts.astype(float)
    C = reference.cooccurrence(H)
    cut = exact_factor(H, 15)
    raw = cut.factor.astype(float) @ cut.factor.astype(float).T - np.diag(cut.diagonal)
    assert np.diag(raw).min() < 0
    kept = cooccurrence_rows(cut, np.arange(80))
    assert np.linalg.norm(kept - C) < 0.9 * np.linalg.norm(raw - C)


def test_topics_that_share_a_representative():
    case = make_case(7)
    topics = replace(case.topics, anchors=np.array([2, 5, 2, 2]))
    np.testing.assert_allclose(
        errors(topics, case.cooccurrence), oracle(replace(case, topics=topics)), rtol=1e-8
    )


def test_without_anchors_the_top_words_stand_for_them():
    case = make_case(8)
    topics = replace(case.topics, anchors=None)
    named = replace(case.topics, anchors=case.topics.top_words[:, 0])
    assert errors(topics, case.cooccurrence) == errors(named, case.cooccurrence)


def test_prior_without_topic_probability():
    case = make_case(9)
    from_rows = replace(case.topics, topic_probability=None)
    rows = slice(0, 30)
    np.testing.assert_array_equal(topic_given_word(from_rows, rows), topic_given_word(case.topics, rows))
    uniform = replace(from_rows, topic_topic=None)
    even = reference_metrics.topic_given_word(case.topics.word_topic, np.ones(4))
    np.testing.assert_allclose(topic_given_word(uniform, rows), even, rtol=1e-12)


def test_nothing_at_all_gives_numbers():
    """No word occurs, and one topic that holds no word."""
    topics = TopicArrays(np.zeros((5, 1)), np.arange(5)[None], np.zeros(5), np.zeros((1, 1)))
    empty = Cooccurrence(np.zeros((5, 2), np.float32), np.zeros(5), np.zeros(5))
    assert errors(topics, empty) == [0.0, 0.0, 0.0, 0.0]


def test_without_a_there_is_no_approximation():
    case = make_case(10)
    found = factorization_errors(replace(case.topics, topic_topic=None), case.cooccurrence)
    assert found.approximation is None
    assert found.relative_approximation is None
    assert found.recovery == pytest.approx(oracle(case)[0])


def test_other_words_are_refused():
    case, other = make_case(1, 20), make_case(1, 21)
    with pytest.raises(ValueError, match="21 words in C, 20 in the model"):
        factorization_errors(case.topics, other.cooccurrence)
