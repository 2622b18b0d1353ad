"""The Dirichlet prior that shares and correlations of topics tell."""

from __future__ import annotations

import numpy as np
import pytest

from streaming_jsmf.inference.correlations import HIGHEST_SUM, LOWEST_SUM, dirichlet_prior, prior_sum


@pytest.mark.parametrize("total", [0.05, 0.7, 3.0, 20.0])
def test_the_second_moment_of_a_prior_gives_it_back(total: float) -> None:
    mean = np.array([0.5, 0.3, 0.15, 0.05])
    alpha = total * mean
    second = (np.outer(alpha, alpha) + np.diag(alpha)) / (total * (total + 1))
    assert prior_sum(second, mean) == pytest.approx(total, rel=1e-10)
    # Correlations are often known up to a factor only.
    assert prior_sum(1.3 * second, mean) == pytest.approx(total, rel=1e-10)
    np.testing.assert_allclose(dirichlet_prior(mean, total), alpha)


def test_correlations_that_no_prior_has_end_at_the_limits() -> None:
    mean = np.full(4, 0.25)
    assert prior_sum(np.diag(mean), mean) == LOWEST_SUM
    assert prior_sum(np.diag([1.2, 0.1, 0.1, 0.1]), mean) == LOWEST_SUM
    assert prior_sum(np.ones((1, 1)), np.ones(1)) == LOWEST_SUM, "of a topic alone each document is one topic"
    assert prior_sum(np.outer(mean, mean), mean) == HIGHEST_SUM
    assert prior_sum(np.full((4, 4), 1 / 12) * (1 - np.eye(4)), mean) == HIGHEST_SUM


def test_a_topic_that_the_corpus_lacks_keeps_a_little() -> None:
    prior = dirichlet_prior(np.array([0.6, 0.4, 0.0]), 2.0)
    assert prior.sum() == pytest.approx(2.0)
    assert 0 < prior[2] < 1e-5
