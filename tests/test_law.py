"""LAW against AW on the dense matrix, its invariances, and the guards on anchors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.linalg import qr
from scipy.stats import ortho_group

from streaming_jsmf.evaluation.matching import match_topics
from streaming_jsmf.inference.anchors import DegenerateAnchorsError, anchor_candidates, pivoted_anchors
from streaming_jsmf.inference.law import AnchorRules, low_rank_anchor_words
from streaming_jsmf.inference.words import characteristic_words, prominent_words
from tests import reference

N, K = 60, 4
EVERYWHERE = np.full(N, 1000)


def separable(seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Y with Y Y' = B A B' exactly, words 0..K-1 the anchors; and B and A."""
    rng = np.random.default_rng(seed)
    b = np.vstack([np.diag(rng.uniform(0.05, 0.1, K)), rng.dirichlet(np.full(K, 0.5), N - K)])
    b[K:] *= (1 - b[:K].sum(axis=0)) / b[K:].sum(axis=0)
    theta = rng.dirichlet(np.full(K, 0.4), 200)
    a = theta.T @ theta / 200
    return b @ np.linalg.cholesky(a), b, a


@given(st.integers(0, 10_000))
def test_exact_separable_topics_come_back(seed: int) -> None:
    y, b, a = separable(seed)
    found = low_rank_anchor_words(y, y @ y.sum(axis=0), EVERYWHERE)
    assert sorted(found.anchors.words) == list(range(K))
    matching = match_topics(found.word_topic, b)
    assert matching.mean_l1 < 1e-8
    np.testing.assert_allclose(
        found.topic_topic, a[np.ix_(matching.permutation, matching.permutation)], atol=1e-8
    )
    assert found.topic_topic.sum() == pytest.approx(1.0, abs=1e-8)


@pytest.mark.parametrize("seed", range(5))
def test_law_is_aw_on_the_dense_matrix(seed: int) -> None:
    y = np.abs(np.random.default_rng(seed).standard_normal((N, K)))
    y /= np.sqrt(np.sum(y.sum(axis=0) ** 2))
    found = low_rank_anchor_words(y, y @ y.sum(axis=0), EVERYWHERE)
    for oracle in (
        reference.anchor_word_algorithm(y @ y.T, K),
        reference.low_rank_anchor_word_algorithm(y, K),
    ):
        np.testing.assert_array_equal(found.anchors.words, oracle.anchors)
        np.testing.assert_allclose(found.word_topic, oracle.word_topic, atol=1e-9)
        np.testing.assert_allclose(found.topic_given_word, oracle.topic_given_word, atol=1e-7)
        np.testing.assert_allclose(found.topic_topic, oracle.topic_topic, rtol=1e-7)


@pytest.mark.parametrize("seed", range(5))
def test_pivots_are_those_of_lapack(seed: int) -> None:
    rows = np.random.default_rng(seed).standard_normal((N, K))
    _, r, order = qr(rows.T, pivoting=True, mode="economic")
    found = pivoted_anchors(rows.copy(), np.arange(N), K)
    np.testing.assert_array_equal(found.words, order[:K])
    np.testing.assert_allclose(found.pivots, np.abs(np.diag(r)), rtol=1e-10)


def test_topics_are_invariant_to_rotations_and_follow_the_words() -> None:
    y, _, _ = separable(3)
    found = low_rank_anchor_words(y, y @ y.sum(axis=0), EVERYWHERE)
    turned = y @ ortho_group.rvs(K, random_state=1)
    again = low_rank_anchor_words(turned, y @ y.sum(axis=0), EVERYWHERE)
    np.testing.assert_array_equal(found.anchors.words, again.anchors.words)
    np.testing.assert_allclose(found.word_topic, again.word_topic, atol=1e-9)
    order = np.random.default_rng(0).permutation(N)
    shuffled = low_rank_anchor_words(y[order], (y @ y.sum(axis=0))[order], EVERYWHERE)
    assert match_topics(shuffled.word_topic, found.word_topic[order]).mean_l1 < 1e-8


def noisy(seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Y whose d is zero or negative for some words, and the row sums u before truncation."""
    y, b, _ = separable(seed)
    y = y.copy()
    y[10] = -0.3 * y[11]
    y[12] = 0.0
    u = np.maximum(b.mean(axis=1), 1e-6)
    return y, u


def test_words_without_mass_get_no_topic_and_never_a_nan() -> None:
    y, u = noisy()
    found = low_rank_anchor_words(y, u, EVERYWHERE)
    assert found.words_without_mass == 2
    np.testing.assert_array_equal(found.topic_given_word[[10, 12]], 0.0)
    np.testing.assert_array_equal(found.word_topic[[10, 12]], 0.0)
    assert np.isfinite(found.word_topic).all()
    np.testing.assert_allclose(found.word_topic.sum(axis=0), 1.0, atol=1e-12)
    with_mass = np.delete(found.topic_given_word, [10, 12], axis=0)
    np.testing.assert_allclose(with_mass.sum(axis=1), 1.0, atol=1e-12)


def test_the_guards_equal_the_oracle_under_a_mask() -> None:
    y, u = noisy()
    frequency = np.random.default_rng(2).integers(1, 100, N)
    d = y @ y.sum(axis=0)
    allowed = reference.anchor_guard(d, u, frequency, 30) & (d > 0)
    found = low_rank_anchor_words(y, u, frequency, AnchorRules(min_document_frequency=30))
    oracle = reference.low_rank_anchor_word_algorithm(y, K, allowed)
    np.testing.assert_array_equal(found.anchors.words, oracle.anchors)
    np.testing.assert_allclose(found.word_topic, oracle.word_topic, atol=1e-9)
    assert (frequency[found.anchors.words] >= 30).all()


def test_a_rare_word_with_a_shrunken_row_sum_is_no_candidate() -> None:
    d, u = np.array([0.2, 0.009, 0.2, -0.1, 0.0]), np.array([0.2, 0.1, 0.2, 0.2, 0.0])
    frequency = np.array([50, 50, 3, 50, 50])
    np.testing.assert_array_equal(anchor_candidates(d, u, frequency, 20), [True, False, False, False, False])
    papers = anchor_candidates(d, u, frequency, 0, min_row_sum=0.0)
    np.testing.assert_array_equal(papers, [True, True, True, False, False])


def test_ties_go_to_the_lowest_id() -> None:
    rows = np.vstack([np.eye(K), np.eye(K)])[::-1]
    np.testing.assert_array_equal(pivoted_anchors(rows, np.arange(2 * K), K).words, range(K))


def test_too_few_directions_are_refused_with_their_number() -> None:
    rows = np.random.default_rng(0).standard_normal((N, 2)) @ np.random.default_rng(1).standard_normal((2, K))
    with pytest.raises(DegenerateAnchorsError, match="only 2 words"):
        pivoted_anchors(rows.copy(), np.arange(N), K)
    with pytest.raises(DegenerateAnchorsError, match="3 words may be anchors"):
        pivoted_anchors(rows[:3], np.arange(3), K)
    with pytest.raises(DegenerateAnchorsError):
        pivoted_anchors(np.zeros((N, K)), np.arange(N), K)


def test_topic_topic_is_never_negative() -> None:
    rng = np.random.default_rng(7)
    y = rng.standard_normal((N, K)) + np.array([3.0, 0, 0, 0])
    found = low_rank_anchor_words(y, y @ y.sum(axis=0), EVERYWHERE)
    assert (y[found.anchors.words] @ y[found.anchors.words].T).min() < 0, "the case must bite"
    assert found.topic_topic.min() >= 0
    np.testing.assert_array_equal(found.topic_topic, found.topic_topic.T)


def test_the_certificate_is_small() -> None:
    y, u = noisy()
    assert low_rank_anchor_words(y, u, EVERYWHERE).largest_gap < 1e-10


def test_word_lists_fall_and_break_ties_by_id() -> None:
    b = np.array([[0.1, 0.5], [0.4, 0.25], [0.4, 0.25], [0.1, 0.0]])
    np.testing.assert_array_equal(prominent_words(b, 3), [[1, 2, 0], [0, 1, 2]])
    np.testing.assert_array_equal(characteristic_words(b.T, 2), [[1, 2], [0, 1]])
