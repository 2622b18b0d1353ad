"""The oracle itself, where no test compares it with the package and the answers are known."""

from __future__ import annotations

import numpy as np
import pytest

from tests import reference as ref


def test_cooccurrence_of_two_documents_by_hand():
    H = np.array([[2.0, 1.0, 0.0], [0.0, 1.0, 1.0], [0.0, 0.0, 1.0]])
    # Document 0, n = 3: (hh' - diag h) / 6; document 1, n = 2: the two off-diagonal cells get 1/2; the last drops.
    first = np.array([[2, 2, 0], [2, 0, 0], [0, 0, 0]]) / 6
    second = np.array([[0, 0, 0], [0, 0, 1], [0, 1, 0]]) / 2
    np.testing.assert_allclose(ref.cooccurrence(H), (first + second) / 2, atol=1e-16)
    weighted = ref.cooccurrence(H, np.array([3.0, 1.0, 7.0]))
    np.testing.assert_allclose(weighted, (3 * first + second) / 4, atol=1e-16)


def test_document_weights():
    lengths = np.array([1, 150, 200, 5000])
    assert ref.document_weights(lengths, "capped").tolist() == [1, 150, 200, 200]
    assert ref.document_weights(lengths, "uniform").tolist() == [1, 1, 1, 1]
    assert ref.document_weights(lengths, "length").tolist() == [1, 150, 200, 5000]
    with pytest.raises(ValueError, match="square"):
        ref.document_weights(lengths, "square")


def test_correction_covers_the_longest_rows_only():
    Y = np.array([[3.0, 0.0], [-1.0, 0.0], [0.5, 0.0]])
    E = ref.non_negative_correction(Y, 1)
    np.testing.assert_allclose(E, [[0, 3, 0], [3, 0, 0], [0, 0, 0]])
    np.testing.assert_allclose(ref.non_negative_correction(Y, 2)[1], [3, 0, 0.5])


@pytest.mark.parametrize("seed", range(20))
def test_simplex_row_agrees_with_trying_all_supports(seed):
    rng = np.random.default_rng(seed)
    S = rng.normal(size=(rng.integers(1, 6), rng.integers(2, 6)))
    x = rng.normal(size=S.shape[1]) * 2
    exact = ref.simplex_row_by_supports(x, S)
    found = ref.simplex_row(x, S)
    np.testing.assert_allclose(found @ S, exact @ S, atol=1e-10)
    assert ref.simplex_gap(x, S, found) < 1e-10
