"""Topic shares of documents, given the topics: the most probable ones, each document from its own words alone.

With counts c of a document, topics B (words x topics) and a prior alpha, the shares theta maximise

    sum_w c_w log (B theta)_w + sum_k alpha_k log theta_k

over the simplex: the posterior density over the logarithms of the shares. Over the shares themselves the exponents
would be alpha_k - 1, and there is no largest value where a prior is below 1, as those of topics are. The function is
concave, so its one maximum does not hang on the start.

A step of expectation-maximisation puts alpha_k + theta_k sum_w c_w B_wk / (B theta)_w over its sum in the place of
theta_k; the function never falls. Shares stay positive, and no document has a say in those of another.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array

Floats = NDArray[np.float64]

#: Documents that a thread takes at once.
BLOCK_DOCUMENTS = 256

#: Defaults of the stopping rule. The 1,493 NIPS papers at K = 50 are then within .005 of their maxima (sum of absolute
#: differences), most after 50 steps and all after 110.
TOLERANCE, MAX_ITERATIONS = 1e-4, 200


@dataclass(frozen=True)
class DocumentTopics:
    """Shares of topics in documents.

    Attributes
    ----------
    shares
        M x K, positive, rows sum to 1.
    iterations
        (M,) steps taken.
    last_change
        (M,) sum of the absolute changes of the shares in the last step; above the tolerance where the steps ran out.
    """

    shares: Floats
    iterations: NDArray[np.int64]
    last_change: Floats


def document_topics(
    counts: csr_array[Any],
    word_topic: Floats,
    prior: Floats,
    *,
    tolerance: float = TOLERANCE,
    max_iterations: int = MAX_ITERATIONS,
    threads: int | None = None,
) -> DocumentTopics:
    """Most probable topic shares of each document. The result does not depend on ``threads``.

    Words that no topic has say nothing. A document without any other gets the mean of the prior.

    Parameters
    ----------
    counts
        Documents x N, not negative; whole numbers or not.
    word_topic
        N x K, p(word | topic).
    prior
        (K,) alpha, positive.
    tolerance
        A document is done when a step changes its shares, which sum to 1, by no more than this in all.
    max_iterations
        Most steps for a document.
    threads
        Blocks of documents worked on at once; None: one for each core.

    Raises
    ------
    ValueError
        If shapes do not fit or the prior is not positive.
    """
    topics, alpha = np.ascontiguousarray(word_topic, np.float64), np.array(prior, np.float64)
    if topics.ndim != 2 or alpha.shape != topics.shape[1:] or counts.shape[1] != topics.shape[0]:
        raise ValueError(
            f"counts {counts.shape}, word_topic {topics.shape} and prior {alpha.shape} do not fit together"
        )
    if not (np.isfinite(alpha).all() and (alpha > 0).all()):
        raise ValueError("prior must be positive and finite")
    rows = int(counts.shape[0])
    shares = np.tile(alpha / alpha.sum(), (rows, 1))
    iterations, change = np.zeros(rows, np.int64), np.zeros(rows)
    # Copies: what is read from a file is read-only, which would be another type for the compiler.
    starts, words = np.array(counts.indptr, np.int64), np.array(counts.indices, np.int64)
    numbers = np.array(counts.data, np.float64)

    def one_block(start: int) -> None:
        part = slice(start, start + BLOCK_DOCUMENTS)
        bounds = starts[start : start + BLOCK_DOCUMENTS + 1]
        _find_shares(
            bounds, words, numbers, topics, alpha, tolerance, max_iterations,
            shares[part], iterations[part], change[part],
        )  # fmt: skip

    with ThreadPoolExecutor(threads or os.cpu_count() or 1) as pool:
        list(pool.map(one_block, range(0, rows, BLOCK_DOCUMENTS)))
    return DocumentTopics(shares, iterations, change)


@njit(cache=True, nogil=True)
def _find_shares(
    starts: NDArray[np.int64],
    words: NDArray[np.int64],
    numbers: Floats,
    topics: Floats,
    prior: Floats,
    tolerance: float,
    max_iterations: int,
    shares: Floats,
    iterations: NDArray[np.int64],
    change: Floats,
) -> None:
    """Steps for each document, from the rows of ``shares`` on, which are overwritten like the last two arguments."""
    width = prior.size
    weights = np.empty(width)
    for document in range(starts.size - 1):
        theta = shares[document]
        for step in range(max_iterations):
            weights[:] = 0.0
            for place in range(starts[document], starts[document + 1]):
                row = topics[words[place]]
                expected = 0.0
                for k in range(width):
                    expected += row[k] * theta[k]
                if expected > 0.0:
                    scale = numbers[place] / expected
                    for k in range(width):
                        weights[k] += scale * row[k]
            total = 0.0
            for k in range(width):
                weights[k] = prior[k] + theta[k] * weights[k]
                total += weights[k]
            moved = 0.0
            for k in range(width):
                moved += abs(weights[k] / total - theta[k])
                theta[k] = weights[k] / total
            iterations[document], change[document] = step + 1, moved
            if moved <= tolerance:
                break
