"""Topic shares of documents for given topics; each document is processed independently.

By default the most probable shares. With counts c of a document, topics B (words x topics) and a prior alpha they
maximise

    sum_w c_w log (B theta)_w + sum_k alpha_k log theta_k

over the simplex: the posterior density of the logarithms of the shares. (For the shares themselves the exponents would
be alpha_k - 1, and there is no maximum where a prior is below 1, as priors of topics are.) The function is concave.

A few steps of expectation-maximisation are followed by damped Newton steps (``map_shares``), first in single and then
in double precision. A document is finished when a bound on its distance from the maximum is small enough: with similar
topics the last step of expectation-maximisation says little about the distance.

CVB0 (``cvb0``) approximates the posterior mean instead, which predicts the words of short documents better.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from scipy.sparse import csr_array

from streaming_jsmf.inference.cvb0 import iterate_shares, padded_topics, require_matching
from streaming_jsmf.inference.map_shares import most_probable
from streaming_jsmf.linalg.panels import on_each, panel_threads, panels
from streaming_jsmf.linalg.typing import Floats, Integers

ShareMethod = Literal["map", "cvb0"]

#: Documents of a block.
BLOCK_DOCUMENTS = 256

#: Defaults of the stopping rule: remaining distance, and maximum number of steps or rounds.
TOLERANCE, MAX_ITERATIONS = 1e-3, 200


@dataclass(frozen=True)
class DocumentTopics:
    """Topic shares of documents.

    Attributes
    ----------
    shares
        M x K, positive, rows sum to 1.
    iterations
        (M,) steps of all kinds; rounds of ``cvb0``.
    remaining
        (M,) ``map``: bound on the sum of absolute differences between the shares and the most probable ones, up to
        rounding; infinite where none is known. ``cvb0``: the sum of absolute changes in the last round.
    tolerance
        The requested maximum of ``remaining``.
    """

    shares: Floats
    iterations: Integers
    remaining: Floats
    tolerance: float

    @property
    def unconverged(self) -> int:
        """Number of documents above the tolerance."""
        return int((~(self.remaining <= self.tolerance)).sum())


def document_topics(
    counts: csr_array[Any],
    word_topic: Floats,
    prior: Floats,
    *,
    method: ShareMethod = "map",
    tolerance: float = TOLERANCE,
    max_iterations: int = MAX_ITERATIONS,
    threads: int | None = None,
) -> DocumentTopics:
    """Topic shares of each document. The result depends neither on ``threads`` nor on other documents.

    Words without a topic are ignored. A document without other words gets the mean of the prior.

    Raises ``ValueError`` if shapes do not match, the prior or the tolerance is not positive, or the method is unknown.

    Parameters
    ----------
    counts
        Documents x N, non-negative; integers or not.
    word_topic
        N x K, p(word | topic).
    prior
        (K,) alpha, positive.
    method
        ``map``, the most probable shares, or ``cvb0``, which is better for documents of about ten words.
    tolerance
        Of ``DocumentTopics.remaining``.
    max_iterations
        Maximum number of steps per document. Documents that need more are counted in ``unconverged``.
    threads
        Blocks of documents processed in parallel; None: one per core.
    """
    topics, alpha = np.ascontiguousarray(word_topic, np.float64), np.array(prior, np.float64)
    require_matching(counts, topics, alpha)
    if not tolerance > 0:
        raise ValueError(f"tolerance must be positive, not {tolerance}")
    if method not in get_args(ShareMethod):
        raise ValueError(f"method is {method!r}; it can be {' or '.join(get_args(ShareMethod))}")
    n_documents = int(counts.shape[0])
    shares = np.empty((n_documents, alpha.size))
    iterations, remaining = np.zeros(n_documents, np.int64), np.zeros(n_documents)
    # Copies: arrays read from a file are read-only, which would be another type for the compiler.
    starts, words = np.array(counts.indptr, np.int64), np.array(counts.indices, np.int64)
    solve, precision = (most_probable, np.float64) if method == "map" else (iterate_shares, np.float32)
    numbers = np.array(counts.data, precision)
    model = (topics, alpha) if method == "map" else padded_topics(topics, alpha)

    def solve_block(part: slice) -> None:
        solve(
            starts[part.start : part.stop + 1], words, numbers, *model, tolerance, max_iterations,
            shares[part], iterations[part], remaining[part],
        )  # fmt: skip

    with panel_threads(threads or os.cpu_count() or 1):
        on_each(solve_block, panels(n_documents, BLOCK_DOCUMENTS))
    return DocumentTopics(shares, iterations, remaining, tolerance)
