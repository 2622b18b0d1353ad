"""A map of documents: a random sample of them on a plane, near each other if they have similar topic shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from streaming_jsmf.documents.model_shares import AnyShares, ModelShares
from streaming_jsmf.documents.queries import Least
from streaming_jsmf.documents.shares import (
    DOCUMENT_ID,
    KNOWN_TOKENS,
    SHARES,
    SharesFile,
    frame,
    to_lists,
    with_result,
)
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.linalg import hellinger
from streaming_jsmf.linalg.typing import Floats, Integers
from streaming_jsmf.reporting.layout import FEWEST_TOPICS, FLAT, classical_scaling, neighbors_kept, rotated
from streaming_jsmf.topics.store import AnyModel

if TYPE_CHECKING:
    import pandas as pd

#: Number of documents of a map, by default.
SAMPLED = 1000
#: Perplexity (about the number of neighbors), steps and angle of t-SNE, and the number of neighbors that ``kept``
#: compares. An angle of 0.5 and 500 steps take twice the time, and keep one in a hundred neighbors more.
PERPLEXITY, STEPS, ANGLE, NEIGHBORS = 30.0, 420, 0.8, 10


@dataclass(frozen=True, eq=False)
class DocumentMap:
    """A sample of n documents on a plane.

    ``points`` (n, 2) have y downwards, ``topic`` (n,) is the index of the topic with the largest ``share`` (n,), and
    ``table`` has ids and metadata. ``theta`` (n, K) are the shares.
    """

    points: Floats
    topic: Integers
    share: Floats
    table: Any
    theta: Floats

    @property
    def neighbors(self) -> int:
        """Number of neighbors that ``kept`` compares."""
        return min(NEIGHBORS, (len(self.points) - 1) // 2)

    @cached_property
    def kept(self) -> float:
        """Mean share of each document's nearest in the sample that are also nearest on the map. Memory is O(n^2)."""
        return neighbors_kept(hellinger.distances_between(self.theta), self.points, self.neighbors)


def map_documents(shares: SharesFile, number: int = SAMPLED, seed: int = 0) -> DocumentMap:
    """Draw ``number`` documents and place them by their shares; those without known words come last. One pass."""
    if number < 1:
        raise InputError(f"{option.number} is {number}; give at least 1")
    generator, drawn = np.random.default_rng(seed), Least(number)
    for theta, table in shares.dense(shares.columns):
        order = generator.random(len(theta))
        if KNOWN_TOKENS in table.column_names:
            order += np.asarray(table.column(KNOWN_TOKENS)) == 0
        drawn.add(order, table.append_column(SHARES, to_lists(theta)))
    table = drawn.result(SHARES)
    theta = np.stack(table.column(SHARES).to_numpy())
    share = theta.max(axis=1)
    return DocumentMap(_placed(theta, seed), theta.argmax(axis=1), share, table.drop_columns([SHARES]), theta)


def _placed(theta: Floats, seed: int) -> Floats:
    """Positions of documents by their shares, (n, 2), at most 1 apart along each axis."""
    # t-SNE (van der Maaten and Hinton 2008, Barnes-Hut) starts from principal components and runs in one thread, so
    # that the same shares and seed give the same map.
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    with single_blas_thread(), threadpool_limits(1):
        if len(theta) < FEWEST_TOPICS or not np.ptp(theta, axis=0).any():
            points = classical_scaling(hellinger.distances_between(theta))
        else:
            perplexity = min(PERPLEXITY, (len(theta) - 1) / 3)
            layout = TSNE(init="pca", perplexity=perplexity, max_iter=STEPS, angle=ANGLE, random_state=seed)
            points = np.asarray(layout.fit_transform(np.sqrt(theta)), np.float64)
        points = rotated(points)
    return np.asarray(points / max(float(np.ptp(points, axis=0).max()), FLAT))


def document_map(model: AnyModel, shares: AnyShares, *, number: int = SAMPLED, seed: int = 0) -> pd.DataFrame:
    """Return a map of documents: ``document_id``, ``x``, ``y``, ``topic`` and ``share``, and their metadata.

    A random sample of ``number`` documents, near each other if they have similar topic shares; ``topic`` is the one
    with the largest share. The axes have no meaning. The same shares, number and seed give the same map. One pass over
    ``shares``, which are those of ``transform``. Raises ``InputError`` if ``number`` is below 1 or the shares are from
    another model, ``StoreError`` if they are damaged.

    Examples
    --------
    >>> document_map("model", "shares.parquet").plot.scatter("x", "y", c="topic")  # doctest: +SKIP
    """
    found = ModelShares.open(model, shares)
    drawn = map_documents(found.of_shown, number, seed)
    table = drawn.table
    placed: Sequence[tuple[str, Any]] = (
        ("x", drawn.points[:, 0]),
        ("y", -drawn.points[:, 1]),
        ("topic", np.array(found.shown.numbers)[drawn.topic]),
        ("share", drawn.share),
    )
    for name, values in placed:
        table = with_result(table, name, [values])
    others = [name for name in table.column_names if name not in (DOCUMENT_ID, *dict(placed))]
    return frame(table.select([DOCUMENT_ID, *dict(placed), *others]))
