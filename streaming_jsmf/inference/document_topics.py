"""Topic shares of documents, given the topics: the most probable ones, each document from its own words alone.

With counts c of a document, topics B (words x topics) and a prior alpha, the shares theta maximise

    sum_w c_w log (B theta)_w + sum_k alpha_k log theta_k

over the simplex: the posterior density over the logarithms of the shares. Over the shares themselves the exponents
would be alpha_k - 1, and there is no largest value where a prior is below 1, as those of topics are. The function is
concave, so its one maximum does not hang on the start.

A few steps of expectation-maximisation are followed by damped Newton steps (``share_kernel``), first in single
precision and then in double. Where topics are alike, expectation-maximisation alone moves little long before it is
near the maximum; so a document is done when a bound on its distance from the maximum is small enough, whatever the
last step was. Shares stay positive, and no document has a say in those of another.
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

from streaming_jsmf.inference.share_kernel import (
    FIRST_STEPS,
    SINGLE_DONE,
    TOPIC_STEP,
    TOPIC_WORK,
    WORD_STEP,
    WORD_WORK,
    climb,
    gather,
    scale_rows,
)

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

#: Documents that a thread takes at once.
BLOCK_DOCUMENTS = 256

#: Defaults of the stopping rule: the sum of absolute differences from the maximum, and the most steps.
TOLERANCE, MAX_ITERATIONS = 1e-3, 100


@dataclass(frozen=True)
class DocumentTopics:
    """Shares of topics in documents.

    Attributes
    ----------
    shares
        M x K, positive, rows sum to 1.
    iterations
        (M,) steps taken, of every kind.
    error_bound
        (M,) what the sum of absolute differences between the shares and those of the maximum cannot exceed, but for
        rounding; infinite where nothing is known.
    tolerance
        The bound that was asked for.
    """

    shares: Floats
    iterations: Integers
    error_bound: Floats
    tolerance: float

    @property
    def unconverged(self) -> int:
        """Documents whose steps ran out above the tolerance."""
        return int((~(self.error_bound <= self.tolerance)).sum())


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
        A document is done when the sum of absolute differences between its shares, which sum to 1, and those of the
        maximum is at most this, by a bound that holds whatever the topics.
    max_iterations
        Most steps for a document. One that needs more is counted in ``unconverged``.
    threads
        Blocks of documents worked on at once; None: one for each core.

    Raises
    ------
    ValueError
        If shapes do not fit, or the prior or the tolerance is not positive.
    """
    topics, alpha = np.ascontiguousarray(word_topic, np.float64), np.array(prior, np.float64)
    if topics.ndim != 2 or alpha.shape != topics.shape[1:] or counts.shape[1] != topics.shape[0]:
        raise ValueError(
            f"counts {counts.shape}, word_topic {topics.shape} and prior {alpha.shape} do not fit together"
        )
    if not (np.isfinite(alpha).all() and (alpha > 0).all()):
        raise ValueError("prior must be positive and finite")
    if not tolerance > 0:
        raise ValueError(f"tolerance must be positive, not {tolerance}")
    rows = int(counts.shape[0])
    shares = np.empty((rows, alpha.size))
    iterations, bounds = np.zeros(rows, np.int64), np.zeros(rows)
    # Copies: what is read from a file is read-only, which would be another type for the compiler.
    starts, words = np.array(counts.indptr, np.int64), np.array(counts.indices, np.int64)
    numbers = np.array(counts.data, np.float64)

    def one_block(start: int) -> None:
        part = slice(start, start + BLOCK_DOCUMENTS)
        _find_shares(
            starts[start : start + BLOCK_DOCUMENTS + 1], words, numbers, topics, alpha, tolerance, max_iterations,
            shares[part], iterations[part], bounds[part],
        )  # fmt: skip

    with ThreadPoolExecutor(threads or os.cpu_count() or 1) as pool:
        list(pool.map(one_block, range(0, rows, BLOCK_DOCUMENTS)))
    return DocumentTopics(shares, iterations, bounds, tolerance)


@njit(cache=True, nogil=True)
def _padded(size: int, step: int) -> int:
    return (size + step - 1) // step * step


@njit(cache=True, nogil=True)
def _find_shares(
    starts: Integers,
    words: Integers,
    numbers: Floats,
    topics: Floats,
    prior: Floats,
    tolerance: float,
    most: int,
    shares: Floats,
    iterations: Integers,
    bounds: Floats,
) -> None:
    """Shares of each document of a block, into the last three arguments."""
    n_topics, width, widest = prior.size, _padded(prior.size, TOPIC_STEP), 0
    for document in range(starts.size - 1):
        widest = max(widest, _padded(starts[document + 1] - starts[document], WORD_STEP))
    per_word = width + 1 + WORD_WORK
    space, single_space = np.empty(per_word * widest), np.empty(per_word * widest, np.float32)
    work, single_work = np.zeros((TOPIC_WORK, width)), np.zeros((TOPIC_WORK, width), np.float32)
    theta, single = np.zeros(width), np.zeros(width, np.float32)
    mean, single_prior = prior / prior.sum(), prior.astype(np.float32)
    for document in range(starts.size - 1):
        first, last = starts[document], starts[document + 1]
        size = _padded(last - first, WORD_STEP)
        area = space[: per_word * size].reshape((per_word, size))
        rows, counts, per_words = area[:width], area[width], area[width + 1 :]
        gather(words, first, last, topics, rows)
        counts[:] = 0.0
        counts[: last - first] = numbers[first:last]
        single_area = single_space[: per_word * size].reshape((per_word, size))
        tokens = scale_rows(rows, counts, per_words[0], single_area[:width])
        if tokens == 0.0:
            shares[document] = mean
            continue
        weight = tokens + prior.sum()
        single_area[width] = counts
        single[:n_topics] = mean
        taken, _ = climb(
            single_area[:width], single_area[width], single_prior, np.float32(weight), single,
            single_area[width + 1 :], single_work, FIRST_STEPS, most, 0.5 * tolerance, SINGLE_DONE,
        )  # fmt: skip
        theta[:n_topics] = single[:n_topics]
        theta /= theta.sum()
        if not np.isfinite(theta).all():
            theta[:n_topics] = mean
        more, bounds[document] = climb(
            rows, counts, prior, weight, theta, per_words, work, 0, most - taken, tolerance, 0.0
        )
        iterations[document] = taken + more
        shares[document] = theta[:n_topics]
