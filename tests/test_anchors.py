"""Anchor words and the algorithms on them: LAW against AW and the oracle, invariances, guards, and odd rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.linalg import qr
from scipy.stats import ortho_group

from streaming_jsmf.evaluation.matching import match_topics
from streaming_jsmf.inference.anchors import (
    DegenerateAnchorsError,
    anchor_candidates,
    pivoted_anchors,
    shrunken_rows,
)
from streaming_jsmf.inference.law import AnchorRules, anchor_words, low_rank_anchor_words
from streaming_jsmf.inference.words import characteristic_words, prominent_words
from tests import reference
from tests import reference_anchors as oracle

Floats = NDArray[np.float64]
N, K = 70, 4
EVERYWHERE = np.full(N, 1000)
#: Scales of the columns of Y: equal, falling slowly, and one topic that hides the others.
SPECTRA = {"flat": np.ones(6), "slow": 1.0 / np.arange(1, 7), "steep": np.geomspace(1.0, 1e-2, 6)}
RULES = pytest.mark.parametrize(
    "rules", [AnchorRules(), AnchorRules(shrinkage=50.0), AnchorRules("soft-clique")]
)


def separable(seed: int = 0) -> tuple[Floats, Floats, Floats]:
    """Y with Y Y' = B A B' exactly, words 0..K-1 the anchors; and B and A."""
    rng = np.random.default_rng(seed)
    b = np.vstack([np.diag(rng.uniform(0.05, 0.1, K)), rng.dirichlet(np.full(K, 0.5), N - K)])
    b[K:] *= (1 - b[:K].sum(axis=0)) / b[K:].sum(axis=0)
    theta = rng.dirichlet(np.full(K, 0.4), 200)
    a = theta.T @ theta / 200
    return b @ np.linalg.cholesky(a), b, a


def noisy(seed: int = 0) -> tuple[Floats, Floats]:
    """Y whose d is zero or negative for some words, and the row sums u before truncation."""
    y, b, _ = separable(seed)
    y = y.copy()
    y[10] = -0.3 * y[11]
    y[12] = 0.0
    return y, np.maximum(b.mean(axis=1), 1e-6)


def factor(seed: int, spectrum: Floats) -> Floats:
    """Y without a negative entry, so that Y Y' has none either; entries of Y Y' sum to 1."""
    y = np.random.default_rng(seed).gamma(0.4, size=(N, spectrum.size)) * spectrum
    return np.asarray(y / np.linalg.norm(y.sum(axis=0)))


def frequencies(seed: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed + 1000).integers(1, 400, N)


def row_sums(y: Floats) -> Floats:
    return np.asarray(y @ y.sum(axis=0))


# Topics


@given(st.integers(0, 10_000))
def test_exact_separable_topics_are_recovered(seed: int) -> None:
    y, b, a = separable(seed)
    found = low_rank_anchor_words(y, row_sums(y), EVERYWHERE)
    assert sorted(found.anchors.words) == list(range(K))
    matching = match_topics(found.word_topic, b)
    assert matching.mean_l1 < 1e-8
    expected = a[np.ix_(matching.permutation, matching.permutation)]
    np.testing.assert_allclose(found.topic_topic, expected, atol=1e-8)
    assert found.topic_topic.sum() == pytest.approx(1.0, abs=1e-8)


@pytest.mark.parametrize("shrinkage", [0.0, 60.0])
@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("seed", range(3))
def test_law_is_aw_and_the_oracle_where_no_entry_is_negative(
    seed: int, spectrum: str, shrinkage: float
) -> None:
    y, frequency = factor(seed, SPECTRA[spectrum]), frequencies(seed)
    c = y @ y.T
    u, rules = c.sum(axis=1), AnchorRules(min_document_frequency=40, shrinkage=shrinkage)
    low, full = low_rank_anchor_words(y, u, frequency, rules), anchor_words(c, u, frequency, 6, rules)
    np.testing.assert_array_equal(low.anchors.words, full.anchors.words)
    np.testing.assert_allclose(low.anchors.pivots, full.anchors.pivots, rtol=1e-9)
    # The rows of a steep spectrum have a condition of 1e4, and the simplex problems work with its square.
    tolerance = 1e-10 if spectrum == "steep" else 1e-12
    np.testing.assert_allclose(low.word_topic, full.word_topic, rtol=0, atol=tolerance)
    np.testing.assert_allclose(low.topic_topic, full.topic_topic, rtol=1e3 * tolerance)
    allowed = frequency >= 40
    slow = (
        oracle.shrunken_law(y, 6, allowed, frequency, shrinkage)
        if shrinkage
        else reference.low_rank_anchor_word_algorithm(y, 6, allowed)
    )
    np.testing.assert_array_equal(low.anchors.words, slow.anchors)
    np.testing.assert_allclose(low.word_topic, slow.word_topic, atol=1e-8)
    np.testing.assert_allclose(low.topic_given_word, slow.topic_given_word, atol=1e-6)
    np.testing.assert_allclose(low.topic_topic, slow.topic_topic, rtol=1e-5)


def test_topics_are_invariant_to_rotations_and_follow_the_words() -> None:
    y, _, _ = separable(3)
    u = row_sums(y)
    found = low_rank_anchor_words(y, u, EVERYWHERE)
    again = low_rank_anchor_words(y @ ortho_group.rvs(K, random_state=1), u, EVERYWHERE)
    np.testing.assert_array_equal(found.anchors.words, again.anchors.words)
    np.testing.assert_allclose(found.word_topic, again.word_topic, atol=1e-9)
    order = np.random.default_rng(0).permutation(N)
    shuffled = low_rank_anchor_words(y[order], u[order], EVERYWHERE)
    assert match_topics(shuffled.word_topic, found.word_topic[order]).mean_l1 < 1e-8


@RULES
def test_words_without_mass_get_no_topic_and_never_a_nan(rules: AnchorRules) -> None:
    y, u = noisy()
    found = low_rank_anchor_words(y, u, EVERYWHERE, rules)
    assert found.words_without_mass == 2
    np.testing.assert_array_equal(found.topic_given_word[[10, 12]], 0.0)
    np.testing.assert_array_equal(found.word_topic[[10, 12]], 0.0)
    np.testing.assert_allclose(found.word_topic.sum(axis=0), 1.0, atol=1e-12)
    with_mass = np.delete(found.topic_given_word, [10, 12], axis=0)
    np.testing.assert_allclose(with_mass.sum(axis=1), 1.0, atol=1e-12)
    assert found.topic_probability.sum() == pytest.approx(1.0)
    assert np.isfinite(found.topic_topic).all()
    assert found.largest_gap < 1e-10


def test_topic_topic_is_never_negative() -> None:
    rng = np.random.default_rng(7)
    y = rng.standard_normal((N, K)) + np.array([3.0, 0, 0, 0])
    found = low_rank_anchor_words(y, row_sums(y), EVERYWHERE)
    assert (y[found.anchors.words] @ y[found.anchors.words].T).min() < 0, "the case must bite"
    assert found.topic_topic.min() >= 0
    np.testing.assert_array_equal(found.topic_topic, found.topic_topic.T)


def test_duplicate_rows_give_one_anchor_each_and_equal_topics() -> None:
    y = factor(3, np.ones(4))
    y = np.vstack([y, y[:10]])
    found = low_rank_anchor_words(y, row_sums(y), np.full(N + 10, 100))
    assert len(np.unique(y[found.anchors.words], axis=0)) == 4, "no word twice under two ids"
    assert (found.anchors.words < N).all(), "the lower id of two equal words"
    np.testing.assert_allclose(found.topic_given_word[:10], found.topic_given_word[N:], atol=1e-12)


# Anchors


@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("shrinkage", [0.0, 60.0])
@pytest.mark.parametrize("seed", range(3))
def test_pivots_are_those_of_lapack(seed: int, shrinkage: float, spectrum: str) -> None:
    rows = np.random.default_rng(seed).standard_normal((N, 6)) * SPECTRA[spectrum]
    rows = shrunken_rows(rows, np.ones(N), frequencies(seed), np.arange(N), shrinkage)
    _, r, order = qr(rows.T, pivoting=True, mode="economic")
    found = pivoted_anchors(rows, np.arange(N), 6)
    np.testing.assert_array_equal(found.words, order[:6])
    np.testing.assert_allclose(found.pivots, np.abs(np.diag(r)), rtol=1e-8)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.0, 1e6))
def test_shrunken_rows_equal_the_oracle_and_rotate_with_the_rows(seed: int, shrinkage: float) -> None:
    rng = np.random.default_rng(seed)
    rows, mass, frequency = rng.standard_normal((N, 4)), rng.standard_normal(N), frequencies(seed)
    shrunken = shrunken_rows(rows, mass, frequency, np.arange(N), shrinkage)
    np.testing.assert_allclose(shrunken, oracle.shrunken(rows, mass, frequency, shrinkage), atol=1e-12)
    rotation, _ = np.linalg.qr(rng.standard_normal((4, 4)))
    rotated = shrunken_rows(rows @ rotation, mass, frequency, np.arange(N), shrinkage)
    np.testing.assert_allclose(rotated, shrunken @ rotation, atol=1e-12)


def test_of_words_in_one_direction_the_well_measured_one_becomes_the_anchor() -> None:
    # Topic 0 has a rare anchor that noise moved a little too far out, and a frequent one.
    rows = np.array([[1.05, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.3, 0.3, 0.4]])
    frequency, mass, ids = np.array([30, 3000, 3000, 3000, 3000]), np.ones(5), np.arange(5)
    assert 0 in pivoted_anchors(rows.copy(), ids, 3).words
    shrunken = shrunken_rows(rows, mass, frequency, ids, 100.0)
    assert set(pivoted_anchors(shrunken, ids, 3).words) == {1, 2, 3}
    # As df grows the rows come back.
    unshrunken = shrunken_rows(rows, mass, frequency * 10**9, ids, 100.0)
    np.testing.assert_allclose(unshrunken, rows, atol=1e-8)


def test_the_guards_equal_the_oracle_under_a_mask() -> None:
    y, u = noisy()
    frequency = np.random.default_rng(2).integers(1, 100, N)
    d = row_sums(y)
    allowed = reference.anchor_guard(d, u, frequency, 30) & (d > 0)
    found = low_rank_anchor_words(y, u, frequency, AnchorRules(min_document_frequency=30))
    expected = reference.low_rank_anchor_word_algorithm(y, K, allowed)
    np.testing.assert_array_equal(found.anchors.words, expected.anchors)
    np.testing.assert_allclose(found.word_topic, expected.word_topic, atol=1e-9)
    assert (frequency[found.anchors.words] >= 30).all()


def test_a_rare_word_with_a_shrunken_row_sum_is_not_a_candidate() -> None:
    d, u = np.array([0.2, 0.009, 0.2, -0.1, 0.0]), np.array([0.2, 0.1, 0.2, 0.2, 0.0])
    frequency = np.array([50, 50, 3, 50, 50])
    np.testing.assert_array_equal(anchor_candidates(d, u, frequency, 20), [True, False, False, False, False])
    papers = anchor_candidates(d, u, frequency, 0, min_row_sum=0.0)
    np.testing.assert_array_equal(papers, [True, True, True, False, False])


def test_ties_go_to_the_lowest_id() -> None:
    rows = np.vstack([np.eye(K), np.eye(K)])[::-1].copy()
    np.testing.assert_array_equal(pivoted_anchors(rows, np.arange(2 * K), K).words, range(K))


def test_too_few_directions_are_refused_with_their_number() -> None:
    rng = np.random.default_rng(0)
    rows, ids = rng.standard_normal((N, 2)) @ rng.standard_normal((2, K)), np.arange(N)
    with pytest.raises(DegenerateAnchorsError, match="only 2 words"):
        pivoted_anchors(rows.copy(), ids, K)
    with pytest.raises(DegenerateAnchorsError, match="3 words"):
        pivoted_anchors(rows[:3], ids[:3], K)
    with pytest.raises(DegenerateAnchorsError):
        pivoted_anchors(np.zeros((N, K)), ids, K)


@RULES
def test_more_topics_than_the_rank_are_refused(rules: AnchorRules) -> None:
    y = factor(5, np.ones(3))
    wide = np.hstack([y, y @ np.array([[1.0], [2.0], [0.5]])])
    with pytest.raises(DegenerateAnchorsError, match="only 3 words"):
        low_rank_anchor_words(wide, row_sums(wide), EVERYWHERE, rules)
    with pytest.raises(DegenerateAnchorsError, match="only 3 words"):
        anchor_words(y @ y.T, row_sums(y), EVERYWHERE, 4, rules)
    with pytest.raises(DegenerateAnchorsError, match="0 words"):
        low_rank_anchor_words(np.zeros((N, 2)), np.zeros(N), EVERYWHERE, rules)


def test_word_lists_fall_and_break_ties_by_id() -> None:
    b = np.array([[0.1, 0.5], [0.4, 0.25], [0.4, 0.25], [0.1, 0.0]])
    np.testing.assert_array_equal(prominent_words(b, 3), [[1, 2, 0], [0, 1, 2]])
    np.testing.assert_array_equal(characteristic_words(b.T, 2), [[1, 2], [0, 1]])
