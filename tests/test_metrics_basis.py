"""The measures of the authors' code: A as a distribution, words that belong to topics, anchors among the words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_jsmf.evaluation import topic_shape as basis
from tests import reference_metrics
from tests.metric_models import Case, cases, make_case, reordered


@given(cases())
def test_values_equal_the_dense_ones(case: Case) -> None:
    topics = case.topics
    B, A, anchors = topics.word_topic, topics.topic_topic, topics.anchors
    assert A is not None
    assert anchors is not None
    assert topics.topic_probability is not None
    shares = reference_metrics.topic_given_word(B, topics.topic_probability)
    assert basis.word_entropy(topics) == pytest.approx(reference_metrics.word_entropy(shares))
    other = np.roll(topics.topic_probability, 1)
    for p in (topics.topic_probability, other):
        assert basis.validity(A, p) == pytest.approx(reference_metrics.validity(A, p), abs=1e-12)
    ranks = reference_metrics.ranks(B, anchors)
    np.testing.assert_array_equal(basis.anchor_ranks(B, anchors), ranks)
    rank, quality = basis.basis_rank(B, anchors), basis.basis_quality(B, anchors)
    own, K = B[anchors, np.arange(len(anchors))], len(anchors)
    assert rank["hard"] == pytest.approx(np.trace(ranks) / K)
    assert (rank["soft"] is None) == bool((own == 0).any())
    if rank["soft"] is not None:
        assert rank["soft"] == pytest.approx(np.mean(np.log(B.max(axis=0) / own)))
    if K == 1:
        assert quality is None
        return
    assert quality is not None
    assert quality["hard"] == pytest.approx((ranks.sum() - np.trace(ranks)) / (K * (K - 1)))
    assert quality["soft"] == pytest.approx((B[anchors].sum() - own.sum()) / (K * (K - 1)))


@given(cases(), st.integers(0, 100))
def test_order_of_topics_does_not_matter(case: Case, seed: int) -> None:
    topics = case.topics
    moved = reordered(topics, np.random.default_rng(seed).permutation(len(topics.top_words)))
    for measure in (basis.basis_rank, basis.basis_quality):
        left, right = (measure(each.word_topic, each.anchors) for each in (topics, moved))
        if left is None or right is None:
            assert left is right
            assert len(topics.top_words) == 1
            continue
        assert left == pytest.approx(right)
    assert basis.word_entropy(topics) == pytest.approx(basis.word_entropy(moved))


def test_a_sum_of_correlations_away_from_one_is_no_valid_marginal() -> None:
    A = make_case(0).topics.topic_topic
    assert A is not None
    probability = A.sum(axis=1) / A.sum()
    assert basis.validity(A / A.sum(), probability) == pytest.approx(0, abs=1e-12)
    assert basis.validity(2 * A / A.sum(), probability) == pytest.approx(1.0)


def test_words_of_one_topic_have_no_entropy_and_even_ones_all() -> None:
    topics = replace(make_case(1).topics, topic_probability=None, topic_topic=None)
    even = replace(topics, word_topic=np.full_like(topics.word_topic, 1 / len(topics.word_topic)))
    assert basis.word_entropy(even) == pytest.approx(1.0)
    alone = np.zeros_like(topics.word_topic)
    alone[np.arange(len(alone)), np.arange(len(alone)) % alone.shape[1]] = 1
    assert basis.word_entropy(replace(topics, word_topic=alone)) == 0.0
    assert basis.word_entropy(replace(topics, word_topic=0 * alone)) == 0.0


def test_words_over_panels(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = make_case(3).topics
    whole = basis.word_entropy(topics)
    monkeypatch.setattr("streaming_jsmf.linalg.panels.PANEL_ROWS", 4)
    assert basis.word_entropy(topics) == pytest.approx(whole, rel=1e-12)
