"""Metrics against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from streaming_jsmf.evaluation.coherence import cooccurrence_counts, distinct_share, npmi
from streaming_jsmf.evaluation.matching import match_topics, yy_error

DOCUMENTS = np.array([[2, 1, 0, 0], [1, 3, 0, 0], [1, 0, 1, 0], [0, 0, 5, 0]], dtype=float)


def test_pair_counts_are_additive_over_blocks():
    whole = cooccurrence_counts([sparse.csr_array(DOCUMENTS)], [2, 0, 1])
    assert whole.tolist() == [[2, 1, 0], [1, 3, 2], [0, 2, 2]]
    halves = [sparse.csr_array(DOCUMENTS[:1]), sparse.csr_matrix(DOCUMENTS[1:])]
    np.testing.assert_array_equal(cooccurrence_counts(halves, [2, 0, 1]), whole)


def test_pair_counts_do_not_count_stored_zeros():
    block = sparse.csr_array((np.array([1.0, 0.0]), np.array([0, 1]), np.array([0, 2])), shape=(1, 2))
    assert cooccurrence_counts([block], [0, 1]).tolist() == [[1, 0], [0, 0]]


@pytest.mark.parametrize(("ids", "message"), [([0, 0], "repeated"), ([0, 9], "0 to 3")])
def test_pair_counts_refuse_bad_ids(ids, message):
    with pytest.raises(ValueError, match=message):
        cooccurrence_counts([sparse.csr_array(DOCUMENTS)], ids)


def test_npmi_by_hand():
    frequency = np.array([3, 2, 2, 4])
    pairs = np.array([[3, 2, 1, 3], [2, 2, 0, 2], [1, 0, 2, 2], [3, 2, 2, 4]])
    values = npmi(frequency, pairs, 4, [[0, 1], [1, 2], [0, 2]])
    # p(0)=3/4, p(1)=p(2)=1/2, p(0,1)=1/2, p(0,2)=1/4; words 1 and 2 never meet.
    expected = [np.log(0.5 / 0.375) / -np.log(0.5), -1.0, np.log(0.25 / 0.375) / -np.log(0.25)]
    np.testing.assert_allclose(values, expected, rtol=1e-14)
    three = npmi(frequency, pairs, 4, [[0, 1, 2]])
    np.testing.assert_allclose(three, [np.mean(expected)], rtol=1e-14)


def test_npmi_extremes():
    assert npmi([5, 5], [[5, 5], [5, 5]], 5, [[0, 1]]).tolist() == [1.0]
    assert npmi([2, 2], [[2, 2], [2, 2]], 5, [[0, 1]]) == pytest.approx([1.0])
    assert npmi([2, 2], np.ones((2, 2)), 4, [[0, 1]]) == pytest.approx([0.0])
    with pytest.raises(ValueError, match="two words"):
        npmi([1], [[1]], 1, [[0]])
    with pytest.raises(ValueError, match="one document"):
        npmi([1, 1], np.ones((2, 2)), 0, [[0, 1]])


def test_distinct_share():
    assert distinct_share([[1, 2], [3, 4]]) == 1.0
    assert distinct_share([[1, 2], [2, 3]]) == 0.75
    with pytest.raises(ValueError, match="empty"):
        distinct_share([])


def test_matching_undoes_a_permutation():
    rng = np.random.default_rng(0)
    B = rng.dirichlet(np.full(30, 0.3), size=6).T
    order = rng.permutation(6)
    found = match_topics(B[:, order], B)
    np.testing.assert_array_equal(found.permutation, order)
    assert found.mean_l1 == 0.0


def test_matching_by_hand():
    first = np.array([[1.0, 0.0], [0.0, 1.0]])
    second = np.array([[0.25, 0.5], [0.75, 0.5]])
    found = match_topics(first, second)
    # Straight: 1.5 + 1 = 2.5; crossed: topic 0 with 1 costs 1, topic 1 with 0 costs 0.5.
    assert found.permutation.tolist() == [1, 0]
    assert found.l1.tolist() == [1.0, 0.5]
    assert found.mean_l1 == 0.75
    with pytest.raises(ValueError, match="one to one"):
        match_topics(first, second[:, :1])


def test_yy_error_against_dense():
    rng = np.random.default_rng(1)
    Y, Z = rng.normal(size=(20, 3)), rng.normal(size=(20, 4))
    dense = np.linalg.norm(Y @ Y.T - Z @ Z.T) / np.linalg.norm(Z @ Z.T)
    assert yy_error(Y, Z) == pytest.approx(dense, rel=1e-12)
    rotation = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    assert yy_error(Y @ rotation, Y) < 1e-14
    assert yy_error(Y * (1 + 1e-9), Y) == pytest.approx(2e-9, rel=1e-5)
    with pytest.raises(ValueError, match="compared"):
        yy_error(Y, Z[:5])
    with pytest.raises(ValueError, match="zero"):
        yy_error(Y, np.zeros((20, 1)))
