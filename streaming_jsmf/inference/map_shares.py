"""The most probable topic shares of a block of documents: each document's rows of B, single precision, then double."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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
from streaming_jsmf.linalg.compiled import compiled

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@compiled(nogil=True)
def _padded(size: int, step: int) -> int:
    return (size + step - 1) // step * step


@compiled(nogil=True)
def most_probable(
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
