"""Topic shares of documents, given the topics, each document's from its own words alone.

The default are the most probable ones. With counts c of a document, topics B (words x topics) and a prior alpha they
maximise

    sum_w c_w log (B theta)_w + sum_k alpha_k log theta_k

over the simplex: the posterior density over the logarithms of the shares. Over the shares themselves the exponents
would be alpha_k - 1, and there is no largest value where a prior is below 1, as those of topics are. The function is
concave, so its one maximum does not hang on the start.

A few steps of expectation-maximisation are followed by damped Newton steps (``share_kernel``), first in single
precision and then in double. Where topics are alike, expectation-maximisation alone moves little long before it is
near the maximum; so a document is done when a bound on its distance from the maximum is small enough, whatever the
last step was.

CVB0 (``cvb0_shares``) comes near the mean of the posterior instead, which predicts the words of short documents better.
Either way shares are positive, and no document has a say in those of another.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.sparse import csr_array

from streaming_jsmf.inference.cvb0 import iterate_shares, padded_topics
from streaming_jsmf.inference.map_shares import most_probable
from streaming_jsmf.linalg.typing import Floats, Integers

ShareMethod = Literal["map", "cvb0"]

#: Documents that a thread takes at once.
BLOCK_DOCUMENTS = 256

#: Defaults of the stopping rule: the distance that may remain, and the most steps or rounds.
TOLERANCE, MAX_ITERATIONS = 1e-3, 200


@dataclass(frozen=True)
class DocumentTopics:
    """Shares of topics in documents.

    Attributes
    ----------
    shares
        M x K, positive, rows sum to 1.
    iterations
        (M,) steps taken, of every kind; with ``cvb0`` rounds.
    remaining
        (M,) ``map``: what the sum of absolute differences between the shares and the most probable ones cannot exceed,
        but for rounding; infinite where nothing is known. ``cvb0``: the sum of absolute changes in the last round.
    tolerance
        What was asked for of ``remaining``.
    """

    shares: Floats
    iterations: Integers
    remaining: Floats
    tolerance: float

    @property
    def unconverged(self) -> int:
        """Documents whose steps ran out above the tolerance."""
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
    """Topic shares of each document. The result does not depend on ``threads``, nor on other documents.

    Words that no topic has say nothing. A document without any other gets the mean of the prior.

    Parameters
    ----------
    counts
        Documents x N, not negative; whole numbers or not.
    word_topic
        N x K, p(word | topic).
    prior
        (K,) alpha, positive.
    method
        ``map``, the most probable shares, or ``cvb0``, which is better for documents of some ten words.
    tolerance
        ``map``: a document is done when the sum of absolute differences between its shares, which sum to 1, and the
        most probable ones is at most this, by a bound that holds whatever the topics. ``cvb0``: when a round changes
        the shares by no more in all.
    max_iterations
        Most steps for a document. One that needs more is counted in ``unconverged``.
    threads
        Blocks of documents worked on at once; None: one for each core.

    Raises
    ------
    ValueError
        If shapes do not fit, the prior or the tolerance is not positive, or there is no such method.
    """
    topics, alpha = np.ascontiguousarray(word_topic, np.float64), np.array(prior, np.float64)
    _require(counts, topics, alpha, method, tolerance)
    n_documents = int(counts.shape[0])
    shares = np.empty((n_documents, alpha.size))
    iterations, remaining = np.zeros(n_documents, np.int64), np.zeros(n_documents)
    # Copies: what is read from a file is read-only, which would be another type for the compiler.
    starts, words = np.array(counts.indptr, np.int64), np.array(counts.indices, np.int64)
    find, precision = (most_probable, np.float64) if method == "map" else (iterate_shares, np.float32)
    numbers = np.array(counts.data, precision)
    known = (topics, alpha) if method == "map" else padded_topics(topics, alpha)

    def one_block(start: int) -> None:
        part = slice(start, start + BLOCK_DOCUMENTS)
        find(
            starts[start : start + BLOCK_DOCUMENTS + 1], words, numbers, *known, tolerance, max_iterations,
            shares[part], iterations[part], remaining[part],
        )  # fmt: skip

    with ThreadPoolExecutor(threads or os.cpu_count() or 1) as pool:
        list(pool.map(one_block, range(0, n_documents, BLOCK_DOCUMENTS)))
    return DocumentTopics(shares, iterations, remaining, tolerance)


def _require(
    counts: csr_array[Any], topics: Floats, prior: Floats, method: ShareMethod, tolerance: float
) -> None:
    if topics.ndim != 2 or prior.shape != topics.shape[1:] or counts.shape[1] != topics.shape[0]:
        raise ValueError(
            f"counts {counts.shape}, word_topic {topics.shape} and prior {prior.shape} do not fit together"
        )
    if not (np.isfinite(prior).all() and (prior > 0).all()):
        raise ValueError("prior must be positive and finite")
    if not tolerance > 0:
        raise ValueError(f"tolerance must be positive, not {tolerance}")
    if method not in ("map", "cvb0"):
        raise ValueError(f"method is {method!r}; it can be map or cvb0")
