"""Diagonal completion: the oracle's linear system, and a low-rank matrix whose diagonal is lost."""

from __future__ import annotations

import numpy as np
import pytest

from streaming_jsmf.evaluation.matching import yy_error
from streaming_jsmf.rectification import diagonal
from streaming_jsmf.rectification.diagonal import completed_diagonal, diagonal_completion
from tests import reference
from tests.spectra import SPECTRA, K, exact_low_rank


@pytest.mark.parametrize("name", SPECTRA)
def test_a_halving_solves_the_oracles_system(name: str) -> None:
    c = SPECTRA[name]()
    permutation = np.random.default_rng(1).permutation(len(c))
    middle = len(c) // 2
    a, b = permutation[:middle], permutation[middle:]
    found = diagonal._halving_estimate(c, np.diagonal(c).copy(), K, permutation)
    scale = np.abs(np.diagonal(c)).max()
    np.testing.assert_allclose(found[a], reference.completed_half(c, a, b, K), atol=1e-8 * scale)
    np.testing.assert_allclose(found[b], reference.completed_half(c, b, a, K), atol=1e-8 * scale)


def test_a_lost_diagonal_is_found_again() -> None:
    # Lengths of rows differ from word to word, so a permutation that is not undone cannot pass.
    c = exact_low_rank()
    spoilt = c.copy()
    np.fill_diagonal(spoilt, 0.0)
    result = diagonal_completion(spoilt, K)
    assert result.matrix is not None
    np.testing.assert_allclose(np.diagonal(result.matrix), np.diagonal(c), atol=1e-6 * np.diagonal(c).max())
    assert result.matrix.sum() == pytest.approx(1)
    assert yy_error(result.rectified, reference.positive_factor(c, K)) < 1e-5
    np.testing.assert_array_equal(np.diagonal(spoilt), 0, "the caller's matrix is not touched")


def test_only_the_diagonal_changes_and_it_is_not_negative() -> None:
    c = SPECTRA["negative tail"]()
    result = diagonal_completion(c, K)
    assert result.matrix is not None
    off = ~np.eye(len(c), dtype=bool)
    ratio = result.matrix[off & (c > 0)] / c[off & (c > 0)]
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-12)
    assert np.diagonal(result.matrix).min() >= 0
    assert (result.iterations, result.converged) == (diagonal.HALVINGS, True)
    assert result.change > 0


def test_the_median_over_halvings_is_taken() -> None:
    c = SPECTRA["no gap"]()
    old = np.diagonal(c).copy()
    permutations = [diagonal._permutation(len(c), 3, i) for i in range(5)]
    estimates = np.array([diagonal._halving_estimate(c, old, K, p) for p in permutations])
    expected = np.maximum(np.median(estimates, axis=0), 0)
    result = diagonal_completion(c, K, halvings=5, seed=3)
    assert result.matrix is not None
    whole = c.copy()
    np.fill_diagonal(whole, expected)
    np.testing.assert_allclose(result.matrix, whole / whole.sum(), rtol=1e-12)
    assert len({tuple(p) for p in permutations}) == 5
    again = diagonal_completion(c, K, halvings=5, seed=3)
    np.testing.assert_array_equal(again.rectified, result.rectified)
    assert not np.array_equal(diagonal_completion(c, K, halvings=5, seed=4).rectified, result.rectified)


def test_a_word_that_is_a_direction_of_its_own_keeps_its_entry() -> None:
    # The subspace holds word 0 wholly, so that nothing but the old entry says anything about it.
    basis = np.zeros((6, 2))
    basis[0, 0] = 1.0
    basis[1:, 1] = 1 / np.sqrt(5)
    off = 0.2 * (1 - np.eye(6))
    off[0] = off[:, 0] = 0.0
    found = completed_diagonal(off, basis, np.full(6, 0.7))
    np.testing.assert_allclose(found, [0.7, 0.2, 0.2, 0.2, 0.2, 0.2], atol=1e-10)


def test_words_that_never_occur_stay_finite() -> None:
    c = SPECTRA["clean topics"]().copy()
    c[5] = c[:, 5] = 0.0
    result = diagonal_completion(c, K, halvings=3)
    assert np.isfinite(result.rectified).all()
    assert result.rectified[5] == pytest.approx(0, abs=1e-9)


def test_too_few_words_are_refused() -> None:
    with pytest.raises(ValueError, match="7 words cannot be halved for 4 topics"):
        diagonal_completion(np.eye(7), K)
