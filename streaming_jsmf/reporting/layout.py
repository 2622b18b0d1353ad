"""Layout of the drawings of a report: the topic map, tree and correlations, and the measures of several K.

A plane preserves only a few percent of the Hellinger distances, so the map preserves neighbors by t-SNE (van der
Maaten and Hinton 2008), which starts from classical scaling and uses no randomness.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from streaming_jsmf.evaluation.choice import COLUMNS, EIGENGAP, Choice, number_text
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.linalg import hellinger
from streaming_jsmf.linalg.panels import ratio
from streaming_jsmf.linalg.typing import Floats, Integers

#: Minimum number of topics for t-SNE; classical scaling is good enough for fewer.
FEWEST_TOPICS = 5
#: Number of nearest topics that ``neighbors_kept`` compares.
NEIGHBORS = 5
#: Perplexity (about the number of neighbors) and steps of t-SNE.
PERPLEXITY, STEPS = 8.0, 750
#: Share of the map's area covered by all circles, and the minimum radius as a share of its width.
COVERED, SMALLEST = 0.12, 0.006
#: Relative differences along an axis below this are rounding errors.
FLAT = 1e-12
#: Size of the drawing of a measure, the margins around its points and below them, and how far labels are from points.
WIDTH, HEIGHT, EDGE, FOOT, LABEL = 320.0, 180.0, 34.0, 48.0, 13.0


@dataclass(frozen=True)
class TopicMap:
    """Circles on a plane: centers (K, 2) with y downwards, and radii (K,).

    Areas are proportional to the shares, except for the smallest. ``kept`` is the mean share of each topic's
    ``neighbors`` nearest topics that are also nearest on the map, ``by_chance`` its value for a random map.
    """

    points: Floats
    radii: Floats
    kept: float
    by_chance: float
    neighbors: int


def hellinger_distances(affinity: Floats) -> Floats:
    """Those of the affinity (K, K), symmetric with a zero diagonal; 0 for topics that differ by rounding."""
    found = hellinger.distances((affinity + affinity.T) / 2)
    found[found**2 < FLAT] = 0.0
    np.fill_diagonal(found, 0.0)
    return found


def classical_scaling(distances: Floats) -> Floats:
    """First two principal coordinates of points, (K, 2); the largest absolute entry on each axis is positive."""
    squares = np.square(distances)
    means = squares.mean(axis=0)
    centered = -(squares - means - means[:, None] + means.mean()) / 2
    values, vectors = np.linalg.eigh(centered)
    values = np.where(values > FLAT, values, 0.0)
    points = np.zeros((len(distances), 2))
    for axis, place in enumerate(range(len(distances) - 1, max(len(distances) - 3, -1), -1)):
        column = vectors[:, place] * math.sqrt(values[place])
        # Equal entries may differ by rounding; the first one determines the sign.
        leading = int(np.argmax(np.abs(column) >= np.abs(column).max() * (1 - 1e-9)))
        # Adding 0 turns -0 into 0.
        points[:, axis] = np.copysign(1.0, column[leading]) * column + 0.0
    return points


def draw_map(affinity: Floats, shares: Floats) -> TopicMap:
    """Place a circle for each topic without overlaps, deterministically, by affinity (K, K) and p(topic) (K,)."""
    distances = hellinger_distances(affinity)
    with single_blas_thread():
        points = classical_scaling(distances)
        if len(points) >= FEWEST_TOPICS and distances.max() > 0:
            points = _tsne(distances, points)
        points = rotated(points)
    points = points / max(float(np.ptp(points, axis=0).max()), FLAT)
    known = np.maximum(shares, 0.0)
    radii = np.sqrt(COVERED / math.pi * known / max(float(known.sum()), FLAT))
    radii = np.maximum(radii, SMALLEST)
    points = _separated(points, radii)
    # At most half of the others: with all of them, every map would keep all neighbors.
    neighbors = min(NEIGHBORS, (len(points) - 1) // 2)
    by_chance = neighbors / (len(points) - 1) if neighbors else 1.0
    return TopicMap(points, radii, neighbors_kept(distances, points, neighbors), by_chance, neighbors)


def neighbors_kept(distances: Floats, points: Floats, neighbors: int) -> float:
    """Mean share of each row's nearest topics that are also nearest by ``points`` (K, 2); ties go to the first."""
    if not neighbors:
        return 1.0
    on_map = np.linalg.norm(points[:, None] - points[None], axis=2)
    both = [_nearest(matrix, neighbors) for matrix in (distances, on_map)]
    return float(np.mean([np.isin(one, other).mean() for one, other in zip(*both, strict=True)]))


def _nearest(distances: Floats, number: int) -> Integers:
    others = distances + np.diag(np.full(len(distances), np.inf))
    return np.argsort(others, axis=1, kind="stable")[:, :number]


def _tsne(distances: Floats, start: Floats) -> Floats:
    from sklearn.manifold import TSNE

    # Round because t-SNE would amplify differences in the last bits of the start.
    start = np.round(start / max(float(start.std()), FLAT), 6) * 1e-4
    perplexity = min(PERPLEXITY, (len(start) - 1) / 3)
    layout = TSNE(
        metric="precomputed",
        init=start,
        method="exact",
        perplexity=perplexity,
        max_iter=STEPS,
        random_state=0,
    )
    return np.asarray(layout.fit_transform(distances), dtype=np.float64)


def rotated(points: Floats) -> Floats:
    """Rotate points so that the longer axis is horizontal, because drawings are wider than high."""
    centered = points - points.mean(axis=0)
    _, axes = np.linalg.eigh(centered.T @ centered)
    axes = axes[:, ::-1] * np.where(axes.sum(axis=0) < 0, -1.0, 1.0)[::-1]
    return np.asarray(np.round(centered @ axes, 4) + 0.0)


def _separated(points: Floats, radii: Floats) -> Floats:
    """Push overlapping circles apart, pair by pair, in at most 300 steps."""
    points, count = points.copy(), len(points)
    wanted = (radii[:, None] + radii[None]) * 1.08
    # Concentric circles are pushed in different directions: multiples of the golden angle never repeat.
    angles = np.arange(count) * 2.399963
    aside = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    for _ in range(300):
        between = points[:, None] - points[None]
        gaps = np.sqrt(np.square(between).sum(axis=2))
        over = np.where(gaps < wanted, wanted - gaps, 0.0)
        np.fill_diagonal(over, 0.0)
        if over.max() < 1e-6:
            break
        same = gaps < FLAT
        direction = np.where(same[..., None], aside[:, None] - aside[None], between)
        lengths = np.maximum(np.sqrt(np.square(direction).sum(axis=2)), FLAT)
        points = points + 0.5 * np.einsum("ij,ijd->id", over / lengths, direction)
    return points


@dataclass(frozen=True)
class Tree:
    """A hierarchy of K topics.

    ``linkage`` (K - 1, 4) is in the format of ``scipy.cluster.hierarchy``; a distance is the largest Hellinger distance
    between topics of the two parts.
    """

    linkage: Floats

    @property
    def order(self) -> Integers:
        """Topic indices with similar topics next to each other, (K,)."""
        from scipy.cluster.hierarchy import leaves_list

        return leaves_list(self.linkage).astype(np.int64) if len(self.linkage) else np.zeros(1, np.int64)

    @property
    def merges(self) -> Integers:
        """What each step merges, (K - 1, 2): topics by index, and the result of step s as K + s."""
        # scipy orders the two sides of a merge for drawing; here the leaves determine the order.
        return np.sort(self.linkage[:, :2].astype(np.int64), axis=1)

    @property
    def heights(self) -> Floats:
        """Distances of what each step merges, (K - 1,), ascending."""
        return self.linkage[:, 2]

    def merged(self, steps: int) -> list[tuple[list[int], float]]:
        """Groups of several topics after the first ``steps``, with the largest distance within each of them."""
        parts = {topic: ([topic], 0.0) for topic in range(len(self.linkage) + 1)}
        for step, ((one, other), height) in enumerate(zip(self.merges, self.heights, strict=True)):
            if step < steps:
                joined = sorted(parts.pop(one)[0] + parts.pop(other)[0])
                parts[len(self.linkage) + 1 + step] = joined, float(height)
        return sorted(part for part in parts.values() if len(part[0]) > 1)


def topic_tree(affinity: Floats) -> Tree:
    """Complete linkage of Hellinger distances, with the leaf order of Bar-Joseph, Gifford and Jaakkola (2001)."""
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import squareform

    if len(affinity) == 1:
        return Tree(np.zeros((0, 4)))
    distances = squareform(hellinger_distances(affinity), checks=False)
    return Tree(linkage(distances, method="complete", optimal_ordering=True))


def conditional(topic_topic: Floats) -> Floats:
    """p(j | i) = A_ij / sum_l A_il, (K, K); rows sum to 1, or are 0 where the sum is not positive."""
    return ratio(topic_topic, topic_topic.sum(axis=1, keepdims=True))


def times_chance(topic_topic: Floats) -> Floats:
    """Observed over expected co-occurrence of two topics, A_ij sum A / (A_i. A_.j), (K, K).

    The ratio is 1 where a topic has no probability; estimates slightly below 0 become 0.
    """
    rows, columns = topic_topic.sum(axis=1, keepdims=True), topic_topic.sum(axis=0, keepdims=True)
    return np.maximum(ratio(topic_topic * topic_topic.sum(), rows * columns, 1.0), 0.0)


def draw_lines(choice: Choice) -> list[dict[str, Any]]:
    """Lines of the measures with at least two values, for the template; K are equally spaced, larger values higher."""
    lines = []
    for measure in COLUMNS:
        values = {i: value for i, row in enumerate(choice.rows) if (value := measure.of(row)) is not None}
        if len(values) < 2:
            continue
        low, span = min(values.values()), max(values.values()) - min(values.values())
        step = (WIDTH - 2 * EDGE) / (len(choice.rows) - 1)
        # y grows downwards; equal values are drawn in the middle.
        places = [(value - low) / span if span > 0 else 0.5 for value in values.values()]
        heights = [HEIGHT - FOOT - (HEIGHT - EDGE - FOOT) * place for place in places]
        points = [
            {
                "n_topics": choice.rows[i].n_topics,
                "x": EDGE + i * step,
                "y": y,
                # Below a point from which the line rises.
                "label": y + (LABEL if np.mean(heights[max(place - 1, 0) : place + 2]) < y else -LABEL),
                "text": number_text(measure, values[i]),
                "suggested": choice.rows[i].n_topics == choice.suggested,
            }
            for place, (i, y) in enumerate(zip(values, heights, strict=True))
        ]
        good = "" if measure is EIGENGAP else "lower is better" if measure.lower else "higher is better"
        path = " ".join(f"{point['x']:.1f},{point['y']:.1f}" for point in points)
        line = {"title": measure.title, "good": good, "width": WIDTH, "height": HEIGHT}
        lines.append({**line, "points": points, "path": path})
    return lines
