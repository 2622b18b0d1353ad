"""Topic shares of documents for given topics; each document is processed independently.

CVB0 (``cvb0``) approximates the mean of the posterior. It is what ``polish`` assumes within documents, and it is closer
to the true shares of simulated documents, and predicts their words better, than the maximum of the posterior.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from streaming_jsmf.inference.cvb0 import (
    add_documents,
    csr_buffers,
    memory_of_shares,
    padded_topics,
    require_matching,
)
from streaming_jsmf.linalg.panels import on_each, panel_threads, panels
from streaming_jsmf.linalg.typing import Floats, Integers

#: Documents per block.
BLOCK_DOCUMENTS = 256

#: Defaults of the stopping rule: change in a round, and maximum number of rounds.
TOLERANCE, MAX_ITERATIONS = 1e-3, 200


@dataclass(frozen=True)
class DocumentTopics:
    """Topic shares of documents.

    ``shares`` are M x K, positive, rows sum to 1; ``iterations`` (M,) are rounds. ``remaining`` (M,) is the sum of
    absolute changes in the last round, and ``tolerance`` its requested maximum.
    """

    shares: Floats
    iterations: Integers
    remaining: Floats
    tolerance: float

    @property
    def unconverged(self) -> int:
        """Number of documents whose ``remaining`` exceeds the tolerance."""
        return int((~(self.remaining <= self.tolerance)).sum())


def document_topics(
    counts: csr_array[Any],
    word_topic: Floats,
    prior: Floats,
    *,
    tolerance: float = TOLERANCE,
    max_iterations: int = MAX_ITERATIONS,
    threads: int | None = None,
) -> DocumentTopics:
    """Compute the topic shares of each document. The result depends neither on ``threads`` nor on other documents.

    Words without a topic are ignored; a document with no other words gets the mean of the prior. Raises ``ValueError``
    if shapes do not match, or the prior, the tolerance or ``max_iterations`` is not positive.

    Parameters
    ----------
    counts : Documents x N, non-negative; not necessarily integers.
    word_topic, prior : p(word | topic), N x K, and alpha, (K,), positive.
    tolerance, max_iterations : Stop at this value of ``DocumentTopics.remaining``, or after this many rounds (see
        ``unconverged``).
    threads : Blocks of documents processed in parallel; None: one per core.
    """
    topics, alpha = np.ascontiguousarray(word_topic, np.float64), np.array(prior, np.float64)
    require_matching(counts, topics, alpha)
    if not tolerance > 0:
        raise ValueError(f"tolerance must be positive, not {tolerance}")
    if max_iterations < 1:
        raise ValueError(f"max_iterations must be at least 1, not {max_iterations}")
    n_documents = int(counts.shape[0])
    shares, rounds = np.empty((n_documents, alpha.size)), np.empty((n_documents, 2))
    starts, words, numbers = csr_buffers(counts)
    model, no_tokens = padded_topics(topics, alpha), np.empty((0, 0), np.float32)

    def solve_block(part: slice) -> None:
        here = starts[part.start : part.stop + 1]
        weights = np.empty((here.size - 1, model[1].size), np.float32)
        owned = memory_of_shares(here, model[1].size)
        add_documents(
            here,
            words,
            numbers,
            *model,
            max_iterations,
            tolerance,
            np.inf,
            owned,
            no_tokens,
            weights,
            rounds[part],
        )
        # Added in ascending order, as in the kernel.
        mass = np.cumsum(weights, axis=1, dtype=np.float64)[:, -1:]
        np.divide(weights[:, : alpha.size], mass, out=shares[part])

    with panel_threads(threads):
        on_each(solve_block, panels(n_documents, BLOCK_DOCUMENTS))
    return DocumentTopics(shares, rounds[:, 0].astype(np.int64), rounds[:, 1].copy(), tolerance)
