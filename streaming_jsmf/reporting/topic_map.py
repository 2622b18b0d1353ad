"""Topics as circles on a plane: near where they use the same words, as large as their share of the corpus."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from streaming_jsmf.reporting.contents import Contents, Floats, Topic
from streaming_jsmf.reporting.wording import percent

#: Of the drawing, in its own units; a browser scales it to the width that it has.
WIDTH, HEIGHT = 720.0, 440.0

#: Share of the drawing that all circles cover together.
COVERED = 0.1

#: Circles keep this far from the edge.
EDGE = 16.0

#: An axis along which topics differ by less than this, as a share of their lengths, holds rounding only.
FLAT = 1e-12

#: Topics up to which each circle has its first word beneath it.
MOST_NAMES = 40

#: Words in the tooltip of a circle.
TOLD_WORDS = 8


@dataclass(frozen=True)
class Plane:
    """Points on two axes.

    Attributes
    ----------
    points
        (K, 2).
    kept
        Share of the squared distances between all points that the two axes keep; 1 where there are none.
    """

    points: Floats
    kept: float


@dataclass(frozen=True)
class Circle:
    """A topic on the map: centre and radius in units of the drawing, its first word, the text of its tooltip."""

    number: int
    x: float
    y: float
    radius: float
    name: str
    tooltip: str


@dataclass(frozen=True)
class TopicMap:
    """The circles, large ones first so that small ones lie on top; ``kept`` as in ``Plane``.

    ``named``: there is room for their names.
    """

    width: float
    height: float
    circles: tuple[Circle, ...]
    kept: float
    named: bool


def hellinger_plane(affinity: Floats) -> Plane:
    """Classical scaling of the Hellinger distances between topics to two dimensions.

    With d_ij^2 = 1 - G_ij for the affinity G the doubly centred matrix of squared distances is J G J / 2, which has the
    topics' coordinates as eigenvectors. Of each axis the entry that is largest by size is positive.

    Parameters
    ----------
    affinity
        G, (K, K), symmetric up to rounding, with a diagonal of 1.

    Examples
    --------
    Two topics without a common word are at a distance of 1.

    >>> plane = hellinger_plane(np.eye(2))
    >>> print(np.round(plane.points, 6).tolist(), round(plane.kept, 6))
    [[0.5, 0.0], [-0.5, 0.0]] 1.0
    """
    n_topics = len(affinity)
    symmetric = (affinity + affinity.T) / 2
    means = symmetric.mean(axis=0)
    centred = (symmetric - means - means[:, None] + means.mean()) / 2
    values, vectors = np.linalg.eigh(centred)
    values = np.where(values > FLAT, values, 0.0)
    points = np.zeros((n_topics, 2))
    for axis, place in enumerate(range(n_topics - 1, max(n_topics - 3, -1), -1)):
        column = vectors[:, place] * math.sqrt(values[place])
        # Equal sizes differ by rounding; the first of them decides.
        leading = int(np.argmax(np.abs(column) >= np.abs(column).max() * (1 - 1e-9)))
        # Adding 0 makes 0 of -0.
        points[:, axis] = np.copysign(1.0, column[leading]) * column + 0.0
    total = float(values.sum())
    return Plane(points, float(values[-2:].sum()) / total if total > 0 else 1.0)


def draw_map(contents: Contents) -> TopicMap:
    """Place a circle for each topic; both axes have one scale."""
    plane = hellinger_plane(contents.affinity)
    shares = np.array([max(topic.share, 0.0) for topic in contents.topics])
    radii = np.sqrt(COVERED * WIDTH * HEIGHT / math.pi * shares / max(float(shares.sum()), FLAT))
    # Small topics must still be seen.
    radii = np.maximum(radii, 3.0)
    low, high = plane.points.min(axis=0), plane.points.max(axis=0)
    room = np.array([WIDTH, HEIGHT]) - 2 * (float(radii.max()) + EDGE)
    spans = high - low
    scale = min((space / span for space, span in zip(room, spans, strict=True) if span > 0), default=0.0)
    centres = (plane.points - (low + high) / 2) * scale
    circles = [
        # y grows downwards in a drawing.
        Circle(topic.number, WIDTH / 2 + x, HEIGHT / 2 - y, radius, _name(topic), _tooltip(topic))
        for topic, (x, y), radius in zip(contents.topics, centres.tolist(), radii.tolist(), strict=True)
    ]
    circles.sort(key=lambda circle: (-circle.radius, circle.number))
    return TopicMap(WIDTH, HEIGHT, tuple(circles), plane.kept, len(circles) <= MOST_NAMES)


def _name(topic: Topic) -> str:
    return topic.label[0] if topic.label else topic.words[0].text


def _tooltip(topic: Topic) -> str:
    words = ", ".join(word.text for word in topic.words[:TOLD_WORDS])
    return f"topic {topic.number}, {percent(topic.share)}: {words}"
