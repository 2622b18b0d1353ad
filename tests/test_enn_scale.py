"""The simulated moments of the benchmark: what it measures must be ENN at work, not a matrix that needs none."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import enn_scale
from streaming_jsmf.linalg.gram import gram


def test_the_factor_has_topics_a_tail_and_no_gap() -> None:
    factor = enn_scale.simulated_factor(2000, 10, seed=1)
    assert factor.shape == (2000, 10 + enn_scale.TAIL)
    dense = factor.astype(np.float64) @ factor.T.astype(np.float64)
    pairs = enn_scale.leading_pairs(factor, 15)
    expected = np.linalg.eigvalsh(dense)[::-1][:15]
    np.testing.assert_allclose(pairs.values, expected, rtol=1e-5)
    np.testing.assert_allclose(pairs.vectors.T @ pairs.vectors, np.eye(15), atol=1e-5)
    # The tail lies among the topics: more eigenvalues above the weakest topic than there are topics.
    weakest = np.linalg.eigvalsh(gram(factor[:, :10]))[0]
    assert np.count_nonzero(np.linalg.eigvalsh(gram(factor)) > weakest) > 10
    assert np.array_equal(factor, enn_scale.simulated_factor(2000, 10, seed=1))


def test_a_row_of_the_table_has_steps_and_a_correction() -> None:
    row = enn_scale.measure(1500, 5, threads=1, seed=0, acceleration="momentum")
    assert row["steps"] > 5
    assert row["correction_mass"] > 0
    assert row["converged"]
    assert row["topic_topic_sum"] == pytest.approx(1, abs=0.2)
    assert row["memory"] > 0
