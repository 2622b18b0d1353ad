"""Topic correlations: recovered from the anchors, fitted to all words, and the prior that they imply."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from streaming_jsmf.inference.correlations import (
    HIGHEST_SUM,
    LOWEST_SUM,
    diagonal_correlations,
    dirichlet_prior,
    prior_sum,
    reconstruction_error,
    refined_correlations,
)
from tests import reference_anchors as oracle

Floats = NDArray[np.float64]


def problem(seed: int, n_topics: int = 4, noise: float = 0.0) -> tuple[Floats, Floats, Floats]:
    """B, A and Y with Y Y' = B A B' but for the noise."""
    rng = np.random.default_rng(seed)
    b = rng.dirichlet(np.full(25, 0.3), n_topics).T
    theta = rng.dirichlet(np.full(n_topics, 0.3), 100)
    a = theta.T @ theta / 100
    y = b @ np.linalg.cholesky(a)
    return b, a, y + noise * rng.standard_normal(y.shape)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4), st.sampled_from([0.0, 1e-3, 3e-2]))
def test_the_fit_equals_the_oracle(seed: int, n_topics: int, noise: float) -> None:
    b, _, y = problem(seed, n_topics, noise)
    found, gap = refined_correlations(b, y, np.ones((n_topics, n_topics)), tolerance=1e-12)
    assert gap <= 1e-12
    assert found.min() >= 0
    np.testing.assert_array_equal(found, found.T)
    assert found.sum() == pytest.approx(1.0, abs=1e-14)
    c = y @ y.T
    best = oracle.refined_correlations(b, c)
    reached, least = (np.linalg.norm(c - b @ a @ b.T) ** 2 for a in (found, best))
    assert reached - least <= 1e-11 * np.linalg.norm(c) ** 2
    error = reconstruction_error(b, found, y)
    assert error == pytest.approx(np.sqrt(reached) / np.linalg.norm(c), abs=1e-9)


def test_exact_correlations_come_back_from_any_start() -> None:
    b, a, y = problem(3)
    for start in (np.ones((4, 4)), np.eye(4)):
        found, _ = refined_correlations(b, y, start, tolerance=1e-14)
        np.testing.assert_allclose(found, a, atol=1e-5)
        assert reconstruction_error(b, found, y) < 1e-6


def test_the_certificate_tells_of_a_fit_that_was_cut_off() -> None:
    b, _, y = problem(5, 4, 1e-3)
    early = refined_correlations(b, y, np.eye(4), max_iterations=20)
    late = refined_correlations(b, y, np.eye(4))
    assert early[1] > 1e-8 >= late[1]
    scale = np.linalg.norm(y @ y.T) ** 2
    above = np.square([reconstruction_error(b, x[0], y) for x in (early, late)])
    assert 0 <= (above[0] - above[1]) <= early[1] + 1e-12 * scale


def test_recovery_from_the_anchors_is_exact_for_separable_topics_and_never_negative() -> None:
    b, a, _ = problem(7)
    b[:4] = np.diag([0.1, 0.2, 0.05, 0.3])
    c = b @ a @ b.T
    mass = c.sum(axis=1)
    # An anchor's share of its topic is its probability there.
    np.testing.assert_allclose(
        diagonal_correlations(c[:4, :4], mass[:4], mass[:4] / np.diag(b[:4])), a, rtol=1e-10
    )
    block = c[:4, :4] - 0.01
    assert diagonal_correlations(block, mass[:4], a.sum(axis=1)).min() == 0.0


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
