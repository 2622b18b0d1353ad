"""Topic shares of documents for given topics; each document is processed independently.

The default method, CVB0 (``cvb0``), approximates the mean of the posterior. It is what ``polish`` assumes within
documents, is closer to the true shares of simulated documents, and predicts the words of documents better.

The method ``map`` maximises, for counts c, topics B (words x topics) and prior alpha,

    sum_w c_w log (B theta)_w + sum_k alpha_k log theta_k

over the simplex. This concave function is the log posterior density of the logarithms of the shares. (For the shares
themselves the exponents are alpha_k - 1, and there is no maximum for prior entries below 1.) The iteration is in
``map_shares``; it stops at a bound on the distance from the maximum, because with similar topics the size of the last
step is a poor estimate of that distance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from scipy.sparse import csr_array

from streaming_jsmf.config import ShareMethod, ShareSettings
from streaming_jsmf.inference.cvb0 import iterate_shares, padded_topics, require_matching
from streaming_jsmf.inference.map_shares import most_probable
from streaming_jsmf.linalg.panels import on_each, panel_threads, panels
from streaming_jsmf.linalg.typing import Floats, Integers

#: Documents per block.
BLOCK_DOCUMENTS = 256

#: Defaults of the stopping rule: remaining distance and maximum number of steps or rounds.
TOLERANCE, MAX_ITERATIONS = 1e-3, 200


@dataclass(frozen=True)
class DocumentTopics:
    """Topic shares of documents.

    ``shares`` are M x K, positive, rows sum to 1; ``iterations`` (M,) are steps, or rounds for ``cvb0``. ``remaining``
    (M,) is, for ``map``, a bound on the sum of absolute differences from the most probable shares (up to rounding;
    infinite if unknown), and for ``cvb0`` the sum of absolute changes in the last round. ``tolerance`` is its requested
    maximum.
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
    method: ShareMethod = ShareSettings.method,
    tolerance: float = TOLERANCE,
    max_iterations: int = MAX_ITERATIONS,
    threads: int | None = None,
) -> DocumentTopics:
    """Compute the topic shares of each document. The result depends neither on ``threads`` nor on other documents.

    Words without a topic are ignored; a document with no other words gets the mean of the prior. Raises ``ValueError``
    if shapes do not match, the prior or the tolerance is not positive, or the method is unknown.

    Parameters
    ----------
    counts : Documents x N, non-negative; not necessarily integers.
    word_topic, prior : p(word | topic), N x K, and alpha, (K,), positive.
    method : ``cvb0``: CVB0, as in polish. ``map``: the most probable shares.
    tolerance, max_iterations : Stop at this value of ``DocumentTopics.remaining``, or after this many steps (see
        ``unconverged``).
    threads : Blocks of documents processed in parallel; None: one per core.
    """
    topics, alpha = np.ascontiguousarray(word_topic, np.float64), np.array(prior, np.float64)
    require_matching(counts, topics, alpha)
    if not tolerance > 0:
        raise ValueError(f"tolerance must be positive, not {tolerance}")
    if method not in get_args(ShareMethod):
        raise ValueError(f"method is {method!r}; it can be {' or '.join(get_args(ShareMethod))}")
    if max_iterations < 1 and method == "cvb0":
        raise ValueError(f"max_iterations must be at least 1, not {max_iterations}")
    n_documents = int(counts.shape[0])
    shares = np.empty((n_documents, alpha.size))
    iterations, remaining = np.zeros(n_documents, np.int64), np.zeros(n_documents)
    # Copy, because read-only arrays (as read from a file) have another type for the compiler.
    starts, words = np.array(counts.indptr, np.int64), np.array(counts.indices, np.int64)
    solve, precision = (most_probable, np.float64) if method == "map" else (iterate_shares, np.float32)
    numbers = np.array(counts.data, precision)
    model = (topics, alpha) if method == "map" else padded_topics(topics, alpha)

    def solve_block(part: slice) -> None:
        solve(
            starts[part.start : part.stop + 1], words, numbers, *model, tolerance, max_iterations,
            shares[part], iterations[part], remaining[part],
        )  # fmt: skip

    with panel_threads(threads):
        on_each(solve_block, panels(n_documents, BLOCK_DOCUMENTS))
    return DocumentTopics(shares, iterations, remaining, tolerance)
