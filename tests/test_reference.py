"""The oracle itself, on cases whose answers are known."""

from __future__ import annotations

import numpy as np
import pytest

from tests import reference as ref


def counts(seed: int, n_documents: int = 60, n_words: int = 25, length: int = 12) -> np.ndarray:
    """Documents x words; uneven word shares, ragged lengths from 0 up."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(n_words, 0.4), size=n_documents)
    return np.array([rng.multinomial(rng.poisson(length), share) for share in shares], dtype=float)


def separable(seed: int, n_words: int, n_topics: int) -> tuple[np.ndarray, np.ndarray]:
    """B (N x K) whose first K words are anchors, and a joint topic distribution A."""
    rng = np.random.default_rng(seed)
    B = rng.dirichlet(np.full(n_words, 0.5), size=n_topics).T
    B[:n_topics] = np.diag(rng.uniform(0.05, 0.2, n_topics))
    B /= B.sum(axis=0)
    theta = rng.dirichlet(np.full(n_topics, 0.3), size=400)
    return B, theta.T @ theta / 400


def test_cooccurrence_of_two_documents_by_hand():
    H = np.array([[2.0, 1.0, 0.0], [0.0, 1.0, 1.0], [0.0, 0.0, 1.0]])
    # Document 0, n = 3: (hh' - diag h) / 6; document 1, n = 2: the two off-diagonal cells get 1/2; the last drops.
    first = np.array([[2, 2, 0], [2, 0, 0], [0, 0, 0]]) / 6
    second = np.array([[0, 0, 0], [0, 0, 1], [0, 1, 0]]) / 2
    np.testing.assert_allclose(ref.cooccurrence(H), (first + second) / 2, atol=1e-16)
    weighted = ref.cooccurrence(H, np.array([3.0, 1.0, 7.0]))
    np.testing.assert_allclose(weighted, (3 * first + second) / 4, atol=1e-16)


@pytest.mark.parametrize("scheme", ["capped", "uniform", "length"])
def test_row_sums_are_the_mean_share(scheme):
    H = counts(1)
    w = ref.document_weights(H.sum(axis=1), scheme)
    C = ref.cooccurrence(H, w)
    np.testing.assert_allclose(C.sum(axis=1), ref.mean_of_shares(H, w), atol=1e-15)
    assert C.sum() == pytest.approx(1.0, abs=1e-14)
    np.testing.assert_array_equal(C, C.T)


def test_document_weights():
    lengths = np.array([1, 150, 200, 5000])
    assert ref.document_weights(lengths, "capped").tolist() == [1, 150, 200, 200]
    assert ref.document_weights(lengths, "uniform").tolist() == [1, 1, 1, 1]
    assert ref.document_weights(lengths, "length").tolist() == [1, 150, 200, 5000]
    with pytest.raises(ValueError, match="square"):
        ref.document_weights(lengths, "square")


def test_eigenpairs_are_the_largest_algebraic_ones():
    pairs = ref.truncated_eig(np.diag([-9.0, 3.0, 1.0, 2.0]), 2)
    np.testing.assert_allclose(pairs.values, [3.0, 2.0])


@pytest.mark.parametrize("n_topics", [3, 6])
def test_anchor_words_recover_an_exact_separable_model(n_topics):
    B, A = separable(2, 40, n_topics)
    found = ref.anchor_word_algorithm(B @ A @ B.T, n_topics)
    assert sorted(found.anchors) == list(range(n_topics))
    # Topic k of the answer is the one of anchor S[k].
    np.testing.assert_allclose(found.word_topic, B[:, found.anchors], atol=1e-8)
    np.testing.assert_allclose(found.topic_topic, A[np.ix_(found.anchors, found.anchors)], atol=1e-8)
    np.testing.assert_allclose(found.topic_given_word.sum(axis=1), 1.0)


def test_projection_steps_shrink_and_end_non_negative():
    C = ref.cooccurrence(counts(4))
    result = ref.alternating_projection(C, 4, 60)
    assert result.matrix.min() >= 0.0
    assert result.distances[-1] < 0.02 * result.distances[0]
    # From the second step on the lengths fall without exception (projections onto closed sets).
    assert np.all(np.diff(result.distances[1:]) <= 1e-12)
    np.testing.assert_allclose(
        result.factor @ result.factor.T, ref.positive_factor(result.matrix, 4) @ result.factor.T, atol=1e-12
    )


def test_enn_over_all_rows_follows_alternating_projection():
    C = ref.cooccurrence(counts(5))
    Y = ref.enn(C, 4, len(C), 150)
    target = ref.alternating_projection(C, 4, 150).factor
    error = np.linalg.norm(Y @ Y.T - target @ target.T) / np.linalg.norm(target @ target.T)
    assert error < 1e-3
    assert (Y @ Y.T).sum() == pytest.approx(1.0, abs=0.01)


def test_correction_covers_the_longest_rows_only():
    Y = np.array([[3.0, 0.0], [-1.0, 0.0], [0.5, 0.0]])
    E = ref.non_negative_correction(Y, 1)
    np.testing.assert_allclose(E, [[0, 3, 0], [3, 0, 0], [0, 0, 0]])
    np.testing.assert_allclose(ref.non_negative_correction(Y, 2)[1], [3, 0, 0.5])


def test_pivots_respect_the_mask_and_prefer_low_ids():
    rows = np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 2.0], [2.0, 0.0]])
    assert ref.pivots(rows, 2).tolist() == [1, 2]
    assert ref.pivots(rows, 2, np.array([True, False, True, False])).tolist() == [2, 0]
    with pytest.raises(ValueError, match="only 2"):
        ref.pivots(rows, 3)


@pytest.mark.parametrize("seed", range(20))
def test_simplex_row_agrees_with_trying_all_supports(seed):
    rng = np.random.default_rng(seed)
    S = rng.normal(size=(rng.integers(1, 6), rng.integers(2, 6)))
    x = rng.normal(size=S.shape[1]) * 2
    exact = ref.simplex_row_by_supports(x, S)
    found = ref.simplex_row(x, S)
    np.testing.assert_allclose(found @ S, exact @ S, atol=1e-10)
    assert ref.simplex_gap(x, S, found) < 1e-10


def test_whole_pipeline_separates_two_planted_topics():
    rng = np.random.default_rng(7)
    topics = np.zeros((2, 20))
    topics[0, :10] = topics[1, 10:] = 0.1
    H = np.array([rng.multinomial(40, t * topics[0] + (1 - t) * topics[1]) for t in rng.beta(0.3, 0.3, 800)])
    found = ref.lr_jsmf(H, 2).topics
    order = [int(anchor >= 10) for anchor in found.anchors]
    assert sorted(order) == [0, 1]
    assert np.abs(found.word_topic - topics[order].T).sum(axis=0).max() < 0.15
    assert found.topic_topic.sum() == pytest.approx(1.0, abs=0.1)
