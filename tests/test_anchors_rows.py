"""Anchors by rows of Y and of the full C: that they agree, over several spectra, and what odd rows do to them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.linalg import qr

from streaming_jsmf.inference.anchors import DegenerateAnchorsError, pivoted_anchors, shrunken_rows
from streaming_jsmf.inference.law import (
    AnchorRules,
    anchor_words,
    low_rank_anchor_words,
)
from tests import reference_anchors as oracle

Floats = NDArray[np.float64]
N = 70
EVERYWHERE = np.full(N, 1000)

#: Scales of the columns of Y: equal, falling slowly, and one topic that hides the others.
SPECTRA = {
    "flat": np.ones(6),
    "slow": 1.0 / np.arange(1, 7),
    "steep": np.geomspace(1.0, 1e-2, 6),
}


def factor(seed: int, spectrum: Floats) -> Floats:
    """Y without a negative entry, so that Y Y' has none either; entries of Y Y' sum to 1."""
    y = np.random.default_rng(seed).gamma(0.4, size=(N, spectrum.size)) * spectrum
    return np.asarray(y / np.linalg.norm(y.sum(axis=0)))


def frequencies(seed: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed + 1000).integers(1, 400, N)


@pytest.mark.parametrize("shrinkage", [0.0, 60.0])
@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("seed", range(4))
def test_law_is_aw_where_no_entry_is_negative(seed: int, spectrum: str, shrinkage: float) -> None:
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
    if shrinkage:
        slow = oracle.shrunken_law(y, 6, frequency >= 40, frequency, shrinkage)
        np.testing.assert_array_equal(low.anchors.words, slow.anchors)
        np.testing.assert_allclose(low.word_topic, slow.word_topic, atol=1e-8)


@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("seed", range(4))
def test_pivots_of_shrunken_rows_are_those_of_lapack(seed: int, spectrum: str) -> None:
    rows = np.random.default_rng(seed).standard_normal((N, 6)) * SPECTRA[spectrum]
    shrunken = shrunken_rows(rows, np.ones(N), frequencies(seed), np.arange(N), 60.0)
    _, r, order = qr(shrunken.T, pivoting=True, mode="economic")
    found = pivoted_anchors(shrunken, np.arange(N), 6)
    np.testing.assert_array_equal(found.words, order[:6])
    np.testing.assert_allclose(found.pivots, np.abs(np.diag(r)), rtol=1e-8)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.0, 1e6))
def test_shrunken_rows_equal_the_oracle_and_turn_with_the_rows(seed: int, shrinkage: float) -> None:
    rng = np.random.default_rng(seed)
    rows, mass = rng.standard_normal((N, 4)), rng.standard_normal(N)
    shrunken = shrunken_rows(rows, mass, frequencies(seed), np.arange(N), shrinkage)
    np.testing.assert_allclose(
        shrunken, oracle.shrunken(rows, mass, frequencies(seed), shrinkage), atol=1e-12
    )
    turn, _ = np.linalg.qr(rng.standard_normal((4, 4)))
    turned = shrunken_rows(rows @ turn, mass, frequencies(seed), np.arange(N), shrinkage)
    np.testing.assert_allclose(turned, shrunken @ turn, atol=1e-12)


def test_of_words_in_one_direction_the_well_measured_one_becomes_the_anchor() -> None:
    # Topic 0 has a rare anchor that noise threw a little too far out, and a frequent one.
    rows = np.array([[1.05, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.3, 0.3, 0.4]])
    frequency, mass = np.array([30, 3000, 3000, 3000, 3000]), np.ones(5)
    assert 0 in pivoted_anchors(rows.copy(), np.arange(5), 3).words
    shrunken = shrunken_rows(rows, mass, frequency, np.arange(5), 100.0)
    assert set(pivoted_anchors(shrunken, np.arange(5), 3).words) == {1, 2, 3}
    # A larger corpus needs no caution: as df grows the rows come back.
    np.testing.assert_allclose(
        shrunken_rows(rows, mass, frequency * 10**9, np.arange(5), 100.0), rows, atol=1e-8
    )


def test_duplicate_columns_give_one_anchor_each_and_equal_topics() -> None:
    y = factor(3, np.ones(4))
    y = np.vstack([y, y[:10]])
    found = low_rank_anchor_words(y, y @ y.sum(axis=0), np.full(N + 10, 100))
    rows = y[found.anchors.words]
    assert np.unique(rows, axis=0).shape[0] == 4, "no word twice under two ids"
    assert (found.anchors.words < N).all(), "the lower id of two equal words"
    np.testing.assert_allclose(found.topic_given_word[:10], found.topic_given_word[N:], atol=1e-12)


def test_zero_rows_and_negative_row_sums_are_words_without_a_topic() -> None:
    y = factor(4, np.ones(4))
    y[5] = 0.0
    y[6] = -y[7]
    for rules in (AnchorRules(), AnchorRules(shrinkage=50.0), AnchorRules("soft-clique")):
        found = low_rank_anchor_words(y, np.abs(y @ y.sum(axis=0)), EVERYWHERE, rules)
        assert found.words_without_mass == 2
        np.testing.assert_array_equal(found.word_topic[[5, 6]], 0.0)
        for values in (found.word_topic, found.topic_given_word, found.topic_topic):
            assert np.isfinite(values).all()


@pytest.mark.parametrize("rules", [AnchorRules(), AnchorRules(shrinkage=50.0), AnchorRules("soft-clique")])
def test_more_topics_than_the_rank_are_refused(rules: AnchorRules) -> None:
    y = factor(5, np.ones(3))
    wide = np.hstack([y, y @ np.array([[1.0], [2.0], [0.5]])])
    with pytest.raises(DegenerateAnchorsError, match="only 3 words are far enough apart"):
        low_rank_anchor_words(wide, wide @ wide.sum(axis=0), EVERYWHERE, rules)
    with pytest.raises(DegenerateAnchorsError, match="only 3 words are far enough apart"):
        anchor_words(y @ y.T, (y @ y.T).sum(axis=1), EVERYWHERE, 4, rules)
    with pytest.raises(DegenerateAnchorsError, match="0 words may be anchors"):
        low_rank_anchor_words(np.zeros((N, 2)), np.zeros(N), EVERYWHERE, rules)


def test_soft_clique_words_are_ordered_by_their_pivots() -> None:
    y = factor(6, SPECTRA["slow"])
    found = low_rank_anchor_words(y, y @ y.sum(axis=0), frequencies(6), AnchorRules("soft-clique", 40))
    assert (np.diff(found.anchors.pivots) <= 0).all()
    c = y @ y.T
    again = anchor_words(c, c.sum(axis=1), frequencies(6), 6, AnchorRules("soft-clique", 40))
    np.testing.assert_array_equal(found.anchors.words, again.anchors.words)
