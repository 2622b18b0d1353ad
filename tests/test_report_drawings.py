"""The map of topics and the square of their correlations: what is drawn is what the arrays say."""

from __future__ import annotations

import doctest
from types import ModuleType

import numpy as np
import pytest
from numpy.typing import NDArray

from streaming_jsmf.reporting import heat_map, topic_map, wording
from streaming_jsmf.reporting.contents import Contents, Topic, Word
from streaming_jsmf.reporting.heat_map import MOST_TOPICS, draw_heat_map
from streaming_jsmf.reporting.topic_map import HEIGHT, WIDTH, draw_map, hellinger_plane


def contents_of(
    word_topic: NDArray[np.float64],
    shares: NDArray[np.float64],
    topic_topic: NDArray[np.float64] | None = None,
) -> Contents:
    root = np.sqrt(word_topic)
    topics = tuple(
        Topic(number, float(share), (Word(f"word{number}", 0.5),)) for number, share in enumerate(shares)
    )
    return Contents("by-hand", len(word_topic), None, topics, root.T @ root, topic_topic)


def drawn(n_topics: int, seed: int = 0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).dirichlet(np.full(50, 0.2), size=n_topics).T


def even(n_topics: int) -> NDArray[np.float64]:
    return np.full(n_topics, 1 / n_topics)


def test_the_plane_has_the_distances_of_topics_that_lie_in_one() -> None:
    # Three points always lie in a plane, so nothing may be lost.
    word_topic = drawn(3)
    root = np.sqrt(word_topic)
    plane = hellinger_plane(root.T @ root)
    apart = np.linalg.norm(plane.points[:, None] - plane.points[None], axis=2)
    expected = np.linalg.norm(root[:, :, None] - root[:, None, :], axis=0) / np.sqrt(2)
    np.testing.assert_allclose(apart, expected, atol=1e-12)
    assert plane.kept == pytest.approx(1)


def test_the_plane_is_that_of_principal_components_with_fixed_signs() -> None:
    word_topic = drawn(12)
    root = np.sqrt(word_topic).T
    centred = root - root.mean(axis=0)
    left, singular, _ = np.linalg.svd(centred / np.sqrt(2), full_matrices=False)
    plane = hellinger_plane(root @ root.T)
    expected = left[:, :2] * singular[:2]
    np.testing.assert_allclose(np.abs(plane.points), np.abs(expected), atol=1e-10)
    assert plane.kept == pytest.approx((singular[:2] ** 2).sum() / (singular**2).sum())
    strongest = np.abs(plane.points).argmax(axis=0)
    assert (plane.points[strongest, [0, 1]] > 0).all()


@pytest.mark.parametrize("n_topics", [1, 2, 3, 30, 100])
def test_circles_lie_in_the_drawing_with_areas_like_shares(n_topics: int) -> None:
    shares = np.random.default_rng(1).dirichlet(np.full(n_topics, 20.0))
    found = draw_map(contents_of(drawn(n_topics), shares))
    assert sorted(circle.number for circle in found.circles) == list(range(n_topics))
    for circle in found.circles:
        assert circle.radius <= circle.x <= WIDTH - circle.radius
        assert circle.radius <= circle.y <= HEIGHT - circle.radius
    areas = np.array([circle.radius**2 for circle in found.circles])
    by_circle = shares[[circle.number for circle in found.circles]]
    np.testing.assert_allclose(areas / areas.sum(), by_circle, rtol=1e-9)
    # Small circles lie on top of large ones.
    assert (np.diff(areas) <= 0).all()


def test_equal_topics_share_one_place_and_rounding_is_not_blown_up() -> None:
    word_topic = np.repeat(drawn(1), 4, axis=1)
    found = draw_map(contents_of(word_topic * (1 + 1e-15), even(4)))
    assert {(circle.x, circle.y) for circle in found.circles} == {(WIDTH / 2, HEIGHT / 2)}
    assert found.kept == 1


def test_two_topics_lie_on_a_line_as_wide_as_the_drawing() -> None:
    first, second = sorted(draw_map(contents_of(np.eye(2), even(2))).circles, key=lambda circle: circle.x)
    assert first.y == second.y == HEIGHT / 2
    assert second.x - first.x > WIDTH / 2


def test_the_square_has_conditional_probabilities() -> None:
    topic_topic = np.array([[0.3, 0.1, 0.1], [0.1, 0.2, -0.01], [0.0, 0.0, 0.0]])
    square = draw_heat_map(contents_of(drawn(3), even(3), topic_topic))
    assert square is not None
    shades = [[cell.shade for cell in row.cells] for row in square.rows]
    assert square.darkest == pytest.approx(0.1 / 0.29)
    np.testing.assert_allclose(shades[0], [1, 0.2 / square.darkest, 0.2 / square.darkest])
    np.testing.assert_allclose(shades[1], [1, 1, 0])
    assert [cell.shade for cell in square.rows[2].cells] == [0, 0, 1]
    assert square.rows[0].cells[1].tooltip == "topic 1 given 0: 20%"
    assert square.rows[1].cells[2].tooltip == "topic 2 given 1: -3.4%"
    assert [[cell.own for cell in row.cells] for row in square.rows] == np.eye(3, dtype=bool).tolist()
    assert draw_heat_map(contents_of(drawn(3), even(3))) is None


@pytest.mark.parametrize("n_topics", [1, 2, MOST_TOPICS, MOST_TOPICS + 5])
def test_the_square_keeps_the_topics_of_the_largest_shares(n_topics: int) -> None:
    shares = np.random.default_rng(2).dirichlet(np.ones(n_topics))
    topic_topic = np.full((n_topics, n_topics), 1 / n_topics**2)
    square = draw_heat_map(contents_of(drawn(n_topics), shares, topic_topic))
    assert square is not None
    shown = min(n_topics, MOST_TOPICS)
    assert square.left_out == n_topics - shown
    assert [row.number for row in square.rows] == sorted(np.argsort(-shares)[:shown])
    assert {len(row.cells) for row in square.rows} == {shown}
    assert square.rows[-1].y + square.step == pytest.approx(square.side)


@pytest.mark.parametrize("module", [heat_map, topic_map, wording])
def test_examples_hold(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


def test_matrices_of_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match=r"topic_topic has the shape \(2, 2\); \(3, 3\) is needed"):
        contents_of(drawn(3), even(3), np.eye(2))
    with pytest.raises(ValueError, match="at least one topic"):
        contents_of(np.ones((2, 0)), np.ones(0))
