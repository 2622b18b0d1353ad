"""The map, the tree and the correlations that a report draws: what is drawn is what the arrays say."""

from __future__ import annotations

import doctest
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from streaming_jsmf import display
from streaming_jsmf.evaluation.verdicts import Frequency, spelling_ranks, topic_warnings
from streaming_jsmf.reporting.layout import (
    classical_scaling,
    conditional,
    draw_map,
    hellinger_distances,
    neighbors_kept,
    times_chance,
    topic_tree,
)


def drawn(n_topics: int, seed: int = 0, n_words: int = 50) -> NDArray[np.float64]:
    return np.random.default_rng(seed).dirichlet(np.full(n_words, 0.2), size=n_topics).T


def affinity_of(word_topic: NDArray[np.float64]) -> NDArray[np.float64]:
    root = np.sqrt(word_topic)
    return root.T @ root


def families(n_topics: int, seed: int = 0) -> NDArray[np.float64]:
    """Topics in families of five around a center of their own, as topics of real corpora are."""
    generator = np.random.default_rng(seed)
    centers = generator.dirichlet(np.full(400, 0.05), size=n_topics // 5)
    return np.array([generator.dirichlet(6 * centers[topic // 5] + 0.002) for topic in range(n_topics)]).T


def apart(points: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.linalg.norm(points[:, None] - points[None], axis=2)


@pytest.mark.parametrize("n_topics", [1, 2, 3, 30, 100])
def test_circles_do_not_overlap_and_have_areas_like_shares(n_topics: int) -> None:
    shares = np.random.default_rng(1).dirichlet(np.full(n_topics, 20.0))
    found = draw_map(affinity_of(drawn(n_topics)), shares)
    touching = found.radii[:, None] + found.radii[None]
    assert (apart(found.points) + np.diag(np.full(n_topics, np.inf)) >= touching).all()
    np.testing.assert_allclose(found.radii**2 / (found.radii**2).sum(), shares, rtol=1e-9)
    assert np.isfinite(found.points).all()


@pytest.mark.slow
def test_the_map_of_a_hundred_topics_keeps_more_neighbors_than_classical_scaling() -> None:
    affinity = affinity_of(families(100))
    distances = hellinger_distances(affinity)
    found = draw_map(affinity, np.full(100, 0.01))
    plane = neighbors_kept(distances, classical_scaling(distances), found.neighbors)
    assert found.kept > 0.6
    assert found.kept > 1.5 * plane
    assert found.by_chance == pytest.approx(5 / 99)


def test_the_same_topics_give_the_same_map() -> None:
    affinity = affinity_of(families(40))
    first, second = (draw_map(affinity.copy(), np.full(40, 1 / 40)) for _ in range(2))
    assert first.points.tobytes() == second.points.tobytes()


def test_neighbors_kept_are_counted_one_by_one() -> None:
    line = np.arange(6.0)
    distances = np.abs(line[:, None] - line[None])
    assert neighbors_kept(distances, np.stack([line, line * 0], axis=1), 2) == 1
    swapped = np.array([5.0, 1, 2, 3, 4, 0])

    def near(at: NDArray[np.float64], topic: int) -> set[int]:
        others = sorted(set(range(6)) - {topic}, key=lambda other: (abs(at[topic] - at[other]), other))
        return set(others[:2])

    kept = [len(near(line, topic) & near(swapped, topic)) / 2 for topic in range(6)]
    found = neighbors_kept(distances, np.stack([swapped, line * 0], axis=1), 2)
    assert found == pytest.approx(np.mean(kept))


def test_equal_topics_stand_side_by_side_and_rounding_is_not_blown_up() -> None:
    word_topic = np.repeat(drawn(1), 4, axis=1)
    found = draw_map(affinity_of(word_topic * (1 + 1e-15)), np.full(4, 0.25))
    distances = apart(found.points)
    assert (distances + 9 * np.eye(4) >= 2 * found.radii[0]).all()
    assert distances.max() < 8 * found.radii[0]


def test_the_tree_merges_what_is_nearest_by_the_farthest_pair() -> None:
    affinity = affinity_of(drawn(8, seed=4))
    distances = hellinger_distances(affinity)
    found = topic_tree(affinity)
    members = {topic: [topic] for topic in range(8)}

    def farthest(pair: tuple[int, int]) -> float:
        return float(distances[np.ix_(members[pair[0]], members[pair[1]])].max())

    for step, (pair, height) in enumerate(zip(found.merges.tolist(), found.heights, strict=True)):
        best = min(combinations(sorted(members), 2), key=farthest)
        assert tuple(pair) == best
        assert height == pytest.approx(farthest(best))
        members[8 + step] = members.pop(pair[0]) + members.pop(pair[1])
        group = sorted(members[8 + step])
        assert [(group, height) in found.merged(steps) for steps in (step, step + 1)] == [False, True]
    # Topics of one branch stand together.
    order = found.order.tolist()
    assert sorted(order) == list(range(8))
    first, second = found.merges[0].tolist()
    assert abs(order.index(first) - order.index(second)) == 1


def test_correlations_are_conditional_and_against_chance() -> None:
    topic_topic = np.array([[0.3, 0.1, 0.1], [0.1, 0.2, -0.01], [0.0, 0.0, 0.0]])
    np.testing.assert_allclose(conditional(topic_topic)[0], [0.6, 0.2, 0.2])
    np.testing.assert_array_equal(conditional(topic_topic)[2], 0)
    shares = np.array([0.5, 0.3, 0.2])
    np.testing.assert_allclose(times_chance(np.outer(shares, shares)), np.ones((3, 3)))
    assert times_chance(topic_topic)[1, 2] == 0
    np.testing.assert_array_equal(times_chance(topic_topic)[2], 1)


def test_warnings_say_what_is_wrong_with_a_topic() -> None:
    affinity = np.eye(4)
    affinity[1, 3] = affinity[3, 1] = 0.9
    numbers, good, (few, chance), copy = topic_warnings(
        [["1990s", "12", "7th", "may"], ["sea", "ship", "w1234"], ["qx", "zz", "kk", "sea"], ["sea", "boat"]],
        np.array([0.4, 0.3, 0.2, 0.1]),
        affinity,
        frequency=Frequency(
            [[500, 900, 300, 100], [40, 60, 80], [2, 3, 2, 900], [40, 50]], np.full((4, 4), 0.5), 2
        ),
        npmi=[0.2, 0.0, -0.1, None],
    )
    assert numbers == ("mostly numbers",)
    assert good == ()
    assert "2.5 documents" in few
    assert "by chance" in chance
    assert copy == ("nearly a copy of topic 1",)
    found = topic_warnings([["a"], ["b"]], np.full(2, 0.5), np.full((2, 2), 0.85), numbers=[4, 7])
    assert found == [(), ("nearly a copy of topic 4",)]


@pytest.mark.parametrize(
    ("frequency", "spelling", "n_documents", "found"),
    [
        ([9, 9, 9, 900], 0.5, 18_000, ["9 of 18,000 documents"]),
        ([9, 9, 9, 900], 0.5, 3_000, []),
        ([9, 9, 9, 900], 0.5, None, []),
        ([11, 11, 11, 900], 0.5, 18_000, []),
        ([4, 4, 4, 900], 0.5, 500, ["4 documents"]),
        ([4, 4, 4, 900], 0.5, 200, []),
        ([40, 50], 0.02, 1_000, ["spelled unlike"]),
        ([40, 50], 0.03, 1_000, []),
        ([60, 50], 0.02, 1_000, []),
        ([60, 50], 0.02, None, ["spelled unlike"]),
    ],
)
def test_words_are_doubtful_that_are_rare_or_spelled_unlike_the_rest(
    frequency: list[int], spelling: float, n_documents: int | None, found: list[str]
) -> None:
    words = Frequency([frequency], np.full((1, 4), spelling), 2, n_documents)
    warnings = topic_warnings([["some", "words"]], np.ones(1), frequency=words)[0]
    assert len(warnings) == len(found)
    assert all(part in warning for part, warning in zip(found, warnings, strict=True))


def test_words_of_no_document_have_a_spelling() -> None:
    """Documents of one token are left out of document frequencies."""
    ranks = spelling_ranks(["cat", "can", "x9q"], np.array([9, 9, 0]), np.array([[0, 2]]))
    assert ranks[0, 0] > ranks[0, 1] > 0


def test_examples_hold() -> None:
    result = doctest.testmod(display)
    assert result.attempted > 0
    assert result.failed == 0
