"""Topics as circles on a plane: near where they use the same words, as large as their share of the corpus.

The distance of two topics is Hellinger's. In high dimensions all of them are about as far from each other, and the
plane of classical scaling keeps a few per cent of it; who is next to whom is what a reader looks for, and what t-SNE
keeps (van der Maaten and Hinton 2008). It starts from classical scaling, so that there is nothing to draw by chance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.reporting.contents import Floats, Integers

#: Topics from which t-SNE is worth it; fewer lie well in the plane of classical scaling.
FEWEST_TOPICS = 5

#: Neighbours that are compared.
NEIGHBOURS = 5

#: Of t-SNE: about how many topics are near to one; its steps.
PERPLEXITY, STEPS = 8.0, 750

#: Share of the map that all circles cover together, and the least radius as a share of the map's width.
COVERED, SMALLEST = 0.12, 0.006

#: An axis along which topics differ by less than this, as a share of their lengths, holds rounding only.
FLAT = 1e-12


@dataclass(frozen=True)
class TopicMap:
    """Circles on a plane.

    Attributes
    ----------
    points
        (K, 2), centres; y grows downwards.
    radii
        (K,); areas are as the shares of the topics, but for the smallest.
    kept
        Of each topic's nearest topics, the mean share that is nearest on the map too; 1 without ``neighbours``.
    by_chance
        What ``kept`` would be on a map without sense.
    neighbours
        How many nearest topics ``kept`` looks at; 0 where there are too few to tell.
    """

    points: Floats
    radii: Floats
    kept: float
    by_chance: float
    neighbours: int


def hellinger_distances(affinity: Floats) -> Floats:
    """sqrt(1 - G) for the affinity G, (K, K), symmetric with zeros on the diagonal."""
    symmetric = (affinity + affinity.T) / 2
    squares = np.maximum(1.0 - symmetric, 0.0)
    squares[squares < FLAT] = 0.0
    np.fill_diagonal(squares, 0.0)
    distances: Floats = np.sqrt(squares)
    return distances


def classical_scaling(distances: Floats) -> Floats:
    """The two leading principal coordinates of points at these distances, (K, 2).

    Of each axis the entry that is largest by size is positive.

    Examples
    --------
    >>> print(np.round(classical_scaling(np.array([[0.0, 1.0], [1.0, 0.0]])), 6).tolist())
    [[0.5, 0.0], [-0.5, 0.0]]
    """
    squares = np.square(distances)
    means = squares.mean(axis=0)
    centred = -(squares - means - means[:, None] + means.mean()) / 2
    values, vectors = np.linalg.eigh(centred)
    values = np.where(values > FLAT, values, 0.0)
    points = np.zeros((len(distances), 2))
    for axis, place in enumerate(range(len(distances) - 1, max(len(distances) - 3, -1), -1)):
        column = vectors[:, place] * math.sqrt(values[place])
        # Equal sizes differ by rounding; the first of them decides.
        leading = int(np.argmax(np.abs(column) >= np.abs(column).max() * (1 - 1e-9)))
        # Adding 0 makes 0 of -0.
        points[:, axis] = np.copysign(1.0, column[leading]) * column + 0.0
    return points


def draw_map(affinity: Floats, shares: Floats) -> TopicMap:
    """Place a circle for each topic; circles do not overlap. The same topics, the same map.

    Parameters
    ----------
    affinity
        G, (K, K), symmetric up to rounding, with a diagonal of 1.
    shares
        (K,), p(topic).
    """
    distances = hellinger_distances(affinity)
    with single_blas_thread():
        points = classical_scaling(distances)
        if len(points) >= FEWEST_TOPICS and distances.max() > 0:
            points = _neighbourly(distances, points)
        points = _lying(points)
    points = points / max(float(np.ptp(points, axis=0).max()), FLAT)
    known = np.maximum(shares, 0.0)
    radii = np.sqrt(COVERED / math.pi * known / max(float(known.sum()), FLAT))
    radii = np.maximum(radii, SMALLEST)
    points = _apart(points, radii)
    # Never more than half of the others: all of them are always near.
    neighbours = min(NEIGHBOURS, (len(points) - 1) // 2)
    by_chance = neighbours / (len(points) - 1) if neighbours else 1.0
    return TopicMap(points, radii, neighbours_kept(distances, points, neighbours), by_chance, neighbours)


def neighbours_kept(distances: Floats, points: Floats, neighbours: int) -> float:
    """The mean share of each row's nearest that are nearest by ``points`` too, (K, 2); of equals the first."""
    if not neighbours:
        return 1.0
    on_map = np.linalg.norm(points[:, None] - points[None], axis=2)
    both = [_nearest(matrix, neighbours) for matrix in (distances, on_map)]
    return float(np.mean([np.isin(one, other).mean() for one, other in zip(*both, strict=True)]))


def _nearest(distances: Floats, number: int) -> Integers:
    others = distances + np.diag(np.full(len(distances), np.inf))
    return np.argsort(others, axis=1, kind="stable")[:, :number]


def _neighbourly(distances: Floats, start: Floats) -> Floats:
    from sklearn.manifold import TSNE

    # Rounded, so that the last bits of the start are not blown up.
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


def _lying(points: Floats) -> Floats:
    """Turned so that the longer axis lies: drawings are wider than high."""
    centred = points - points.mean(axis=0)
    _, axes = np.linalg.eigh(centred.T @ centred)
    axes = axes[:, ::-1] * np.where(axes.sum(axis=0) < 0, -1.0, 1.0)[::-1]
    turned: Floats = np.round(centred @ axes, 4) + 0.0
    return turned


def _apart(points: Floats, radii: Floats) -> Floats:
    """Push circles apart, pair by pair, until none overlap or the steps are over."""
    points, count = points.copy(), len(points)
    wanted = (radii[:, None] + radii[None]) * 1.08
    # Two circles at one place are pushed in directions of their own: the golden angle never repeats.
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
