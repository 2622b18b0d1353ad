"""MST-Incoherence against Kruskal on dense matrices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_jsmf.evaluation.coherence import (
    incoherence_in_cooccurrence,
    incoherence_in_documents,
    spanning_tree_weight,
)
from streaming_jsmf.evaluation.inputs import SelectedCounts, TopicArrays
from tests import reference_metrics
from tests.metric_models import cases, make_case, reordered


@given(st.integers(0, 10**6), st.integers(1, 8), st.booleans())
def test_trees_equal_kruskal(seed, n, coarse):
    """Coarse weights have ties and zeros."""
    weights = np.random.default_rng(seed).random((n, n))
    weights = np.round(weights * 2) / 2 if coarse else weights
    weights = np.minimum(weights, weights.T)
    assert spanning_tree_weight(weights) == pytest.approx(reference_metrics.spanning_tree(weights), abs=1e-12)


def test_edges_of_no_weight_are_edges():
    assert spanning_tree_weight(np.zeros((4, 4))) == 0.0
    assert spanning_tree_weight(np.zeros((0, 0))) == 0.0


@given(cases(), st.booleans())
def test_incoherence_in_cooccurrence_equals_the_dense_one(case, exact):
    C = reference_metrics.dense_cooccurrence(case.cooccurrence.factor, case.cooccurrence.diagonal)
    rows = case.counts.anchor_rows if exact else C[case.topics.anchors]
    found = incoherence_in_cooccurrence(case.topics, case.cooccurrence, rows)
    expected = reference_metrics.mst_incoherence(case.topics.top_words, rows, C, case.cooccurrence.row_sum)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    assert (found >= 0).all()
    assert (found <= 13).all()
    own_rows = incoherence_in_cooccurrence(case.topics, case.cooccurrence)
    assert own_rows.shape == found.shape
    assert np.isfinite(own_rows).all()


@given(cases(), st.integers(0, 100))
def test_incoherence_in_documents_equals_the_dense_one(case, seed):
    H, rows = case.documents, case.counts.anchor_rows
    present = (H > 0).astype(float)
    joint = present.T @ present / len(H)
    found = incoherence_in_documents(case.topics, case.counts, rows)
    expected = reference_metrics.mst_incoherence(
        case.topics.top_words, rows, joint, np.diag(joint), case.counts.words
    )
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    order = np.random.default_rng(seed).permutation(len(rows))
    moved = incoherence_in_documents(reordered(case.topics, order), case.counts, rows[order])
    np.testing.assert_array_equal(moved, found[order])


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


def test_one_word_needs_no_tree():
    topics = TopicArrays(np.ones((1, 2)), np.array([[0], [0]]), np.ones(1))
    counts = SelectedCounts(np.array([0]), np.array([[3]]), 5)
    assert incoherence_in_documents(topics, counts, np.ones((2, 1))).tolist() == [0.0, 0.0]


def test_a_prominent_word_that_was_not_counted_is_refused():
    case = make_case(1)
    some = SelectedCounts(np.array([0]), np.array([[3]]), 60)
    with pytest.raises(ValueError, match="was not counted"):
        incoherence_in_documents(case.topics, some, case.counts.anchor_rows)


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
