"""ENN against the dense oracle, which stores E."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.typing import NDArray

from streaming_jsmf.evaluation.matching import yy_error
from streaming_jsmf.linalg.eigen import Eigenpairs
from streaming_jsmf.rectification import enn as enn_module
from streaming_jsmf.rectification.enn import epsilon_nonnegative, relative_change, unrectified
from tests import reference
from tests.corpora import planted

K = 4


@pytest.fixture(scope="module", params=["topics", "short documents", "no gap"])
def cooccurrence(request: pytest.FixtureRequest) -> NDArray[np.float64]:
    """C of three kinds: clean topics, a long negative tail, and a spectrum without a gap."""
    if request.param == "topics":
        return reference.cooccurrence(planted(300, 90, K, seed=3).counts)
    if request.param == "short documents":
        return reference.cooccurrence(planted(400, 70, K, length=4, seed=4).counts)
    return reference.cooccurrence(planted(80, 80, 6, length=25, seed=5).counts)


def pairs_of(c: NDArray[np.float64], count: int) -> Eigenpairs:
    exact = reference.truncated_eig(c, count)
    return Eigenpairs(exact.values, exact.vectors)


@pytest.mark.parametrize("size", [10, 40, 1000])
def test_the_operator_is_the_dense_one_with_stored_correction(
    size: int, cooccurrence: NDArray[np.float64], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enn_module, "BLOCK_ROWS", 16)
    y = reference.positive_factor(cooccurrence, K)
    n = len(y)
    size = min(size, n)
    e = reference.non_negative_correction(y, size)
    r = (1 - (y @ y.T).sum() - e.sum()) / n**2
    assert e.sum() > 0, "a case without negative entries says nothing"
    x = np.random.default_rng(0).standard_normal((n, 7))
    with ThreadPoolExecutor(2) as pool:
        exact = enn_module._Operator(y, size, np.float64, pool).apply(x)
        rounded = enn_module._Operator(y, size, np.float32, pool).apply(x)
    expected = (y @ y.T + e + r) @ x
    scale = np.abs(expected).max()
    np.testing.assert_allclose(exact.product, expected, atol=1e-13 * scale)
    np.testing.assert_allclose(rounded.product, expected, atol=3e-6 * scale)
    assert exact.correction_mass == pytest.approx(e.sum(), rel=1e-12)
    assert exact.uniform_mass == pytest.approx(r * n**2, rel=1e-10)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_result_is_that_of_the_oracle(dtype: type, cooccurrence: NDArray[np.float64]) -> None:
    n = len(cooccurrence)
    expected = reference.enn(cooccurrence, K, n, 120)
    result = epsilon_nonnegative(
        pairs_of(cooccurrence, K + 10), K, tolerance=0.0, max_iterations=120, block_dtype=dtype
    )
    assert yy_error(result.rectified, expected) < 2e-3


def test_checking_all_words_is_alternating_projection(cooccurrence: NDArray[np.float64]) -> None:
    expected = reference.alternating_projection(cooccurrence, K, 120)
    result = epsilon_nonnegative(
        pairs_of(cooccurrence, K + 10), K, tolerance=0.0, max_iterations=120, block_dtype=np.float64
    )
    assert yy_error(result.rectified, expected.factor) < 2e-3


def test_the_corrected_matrix_is_non_negative_up_to_epsilon(cooccurrence: NDArray[np.float64]) -> None:
    size = 30
    y = epsilon_nonnegative(pairs_of(cooccurrence, K + 10), K, checked_words=size).rectified
    e = reference.non_negative_correction(y, size)
    norms = np.sort((y**2).sum(axis=1))[::-1]
    epsilon = norms[size]
    lowest = y @ y.T + e
    assert lowest.min() >= -epsilon - 1e-15
    checked = reference.largest_rows(y, size)
    assert lowest[checked].min() >= -1e-15


def test_the_bits_do_not_depend_on_threads(
    cooccurrence: NDArray[np.float64], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enn_module, "BLOCK_ROWS", 8)
    pairs = pairs_of(cooccurrence, K + 10)
    one, three = (epsilon_nonnegative(pairs, K, max_iterations=5, threads=t) for t in (1, 3))
    np.testing.assert_array_equal(one.rectified, three.rectified)
    assert one.correction_mass == three.correction_mass


def test_iterations_are_told_and_convergence_is_reported(cooccurrence: NDArray[np.float64]) -> None:
    told: list[tuple[int, float]] = []
    pairs = pairs_of(cooccurrence, K + 10)
    result = epsilon_nonnegative(pairs, K, tolerance=1e-3, on_iteration=lambda n, d: told.append((n, d)))
    assert [number for number, _ in told] == list(range(1, result.iterations + 1))
    assert result.converged
    assert result.change == told[-1][1] < 1e-3
    assert not epsilon_nonnegative(pairs, K, tolerance=0.0, max_iterations=2).converged


def test_relative_change_is_the_dense_one() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 30, 3))
    dense = np.linalg.norm(a @ a.T - b @ b.T) / np.linalg.norm(b @ b.T)
    assert relative_change(a, b) == pytest.approx(dense)


def test_without_rectification_y_is_the_positive_part(cooccurrence: NDArray[np.float64]) -> None:
    result = unrectified(pairs_of(cooccurrence, K + 10), K)
    assert yy_error(result.rectified, reference.positive_factor(cooccurrence, K)) < 1e-7
    assert result.converged


def test_too_few_eigenpairs_are_refused(cooccurrence: NDArray[np.float64]) -> None:
    with pytest.raises(ValueError, match="3 eigenpairs"):
        epsilon_nonnegative(pairs_of(cooccurrence, 3), K)
