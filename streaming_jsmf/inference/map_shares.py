"""Compiled iteration to the most probable topic shares; ``document_topics`` defines the objective.

With p = B theta, lam = n + sum(alpha) and n_k = theta_k sum_w c_w B_wk / p_w, the tokens explained by topic k, the
maximum over the simplex is the minimum over theta > 0 of

    f(theta) = - sum_w c_w log p_w - sum_k alpha_k log theta_k + lam sum_k theta_k,

whose scaled gradient is theta_k df/dtheta_k = -r_k, r_k = alpha_k + n_k - lam theta_k. A step of
expectation-maximisation is theta + r / lam. A Newton step solves, for relative changes y,

    (diag(b) + Q' diag(c) Q) y = r,      Q_wk = B_wk theta_k / p_w.

The barrier term b_k is max(alpha_k, lam theta_k - n_k), the primal-dual rule of interior point methods, instead of
Newton's alpha_k: vanishing topics then need one step instead of a constant factor per step. Conjugate gradients,
preconditioned by b + n, solve the system without a K x K matrix; a product with Q costs as much as a step of
expectation-maximisation. A line search keeps f decreasing, and ``error_bound`` bounds the distance from the maximum.

Inner loops run over words on ``rows``, the transposed copy (K x words) of the document's rows of B.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.linalg.compiled import compiled
from streaming_jsmf.linalg.lanes import divide, dot, fill, load, multiply_add, store, sum_of, total, width
from streaming_jsmf.linalg.typing import Floats, Integers, Single

#: Arrays of single or double precision.
Numbers = NDArray[np.floating[Any]]

#: Topics and words are padded to multiples of these, so that loops have no remainder.
TOPIC_STEP, WORD_STEP = 4, 16
#: Steps of expectation-maximisation before the first Newton step.
FIRST_STEPS = 2
#: Conjugate gradients stop at this fraction of the first residual, or after this many steps.
SOLVED, MOST_SOLVES = 0.1, 30
#: If no share changes by more than this (relative), a full Newton step is taken without a line search.
NEAR = 0.1
#: Largest step, relative to the one at which the first share becomes zero.
TO_ZERO = 0.95
#: Largest relative change of a share at which single precision is exhausted.
SINGLE_DONE = 1e-3

#: Probabilities below this fraction of a word's sum over topics are set to 0 in single precision: their products would
#: be subnormal numbers, which are very slow.
NEGLIGIBLE = 1e-15

#: Numbers of rows of the two work arrays.
WORD_WORK, TOPIC_WORK = 5, 9

inlined = compiled(nogil=True, error_model="numpy", forceinline=True)


@inlined
def gather(words: Integers, first: int, last: int, topics: Floats, rows: Numbers) -> None:
    """Set rows[k, w] = B of the document's words, zero in the padding; four words at a time to write full vectors."""
    width, size = topics.shape[1], last - first
    whole = size // 4 * 4
    for w in range(0, whole, 4):
        # Unsigned indices avoid the check for negative ones.
        i, j = np.uint64(words[first + w]), np.uint64(words[first + w + 1])
        m, n = np.uint64(words[first + w + 2]), np.uint64(words[first + w + 3])
        for k in range(width):
            rows[k, w] = topics[i, k]
            rows[k, w + 1] = topics[j, k]
            rows[k, w + 2] = topics[m, k]
            rows[k, w + 3] = topics[n, k]
    for w in range(whole, size):
        i = np.uint64(words[first + w])
        for k in range(width):
            rows[k, w] = topics[i, k]
    for k in range(width):
        for w in range(size, rows.shape[1]):
            rows[k, w] = 0.0
    for k in range(width, rows.shape[0]):
        for w in range(rows.shape[1]):
            rows[k, w] = 0.0


@inlined
def mix(rows: Numbers, weights: Numbers, out: Numbers) -> None:
    """Set out[w] = sum_k weights[k] rows[k, w]."""
    step = width(out)
    for w in range(0, out.size, step):
        store(out, w, fill(out.dtype.type(0)))
    for k in range(0, rows.shape[0], 4):
        a, b, c, d = fill(weights[k]), fill(weights[k + 1]), fill(weights[k + 2]), fill(weights[k + 3])
        p, q, r, s = rows[k], rows[k + 1], rows[k + 2], rows[k + 3]
        for w in range(0, out.size, step):
            sums = multiply_add(b, load(q, w), multiply_add(a, load(p, w), load(out, w)))
            store(out, w, multiply_add(d, load(s, w), multiply_add(c, load(r, w), sums)))


@inlined
def collect(rows: Numbers, weights: Numbers, out: Numbers) -> None:
    """Set out[k] = sum_w rows[k, w] weights[w]."""
    zero = fill(rows.dtype.type(0))
    for k in range(0, rows.shape[0], 4):
        p, q, r, s = rows[k], rows[k + 1], rows[k + 2], rows[k + 3]
        a = b = c = d = zero
        for w in range(0, weights.size, width(weights)):
            weight = load(weights, w)
            a = multiply_add(load(p, w), weight, a)
            b = multiply_add(load(q, w), weight, b)
            c = multiply_add(load(r, w), weight, c)
            d = multiply_add(load(s, w), weight, d)
        out[k], out[k + 1], out[k + 2], out[k + 3] = total(a), total(b), total(c), total(d)


@inlined
def scale_rows(rows: Floats, counts: Floats, sums: Floats, single: Single) -> float:
    """Scale each word's probabilities to sum 1 (all 1 with count 0 for words without a topic); return known tokens."""
    for w in range(sums.size):
        sums[w] = 0.0
    for k in range(rows.shape[0]):
        for w in range(sums.size):
            sums[w] += rows[k, w]
    for w in range(sums.size):
        known = sums[w] > 0.0
        counts[w] = counts[w] if known else 0.0
        sums[w] = 1.0 / sums[w] if known else 0.0
    for k in range(rows.shape[0]):
        for w in range(sums.size):
            scaled = rows[k, w] * sums[w] if sums[w] > 0.0 else 1.0
            rows[k, w] = scaled
            single[k, w] = scaled if scaled > NEGLIGIBLE else 0.0
    return float(sum_of(counts, counts.size))


@inlined
def error_bound(prior: Numbers, shares: Numbers, topics: Numbers) -> float:
    """Bound the sum of absolute differences between the shares and the maximum; call after ``explain``.

    For theta and the optimum o, let m_k^2 = theta_k o_k. The difference of the gradients, multiplied by theta - o, is
    at least sum_k alpha_k (theta_k - o_k)^2 / m_k^2, since the words' part is non-negative; applying Cauchy-Schwarz
    twice gives e = sum |theta - o| <= sqrt(sum m^2 / alpha) sqrt(sum (r m / theta)^2 / alpha). With o_k <= theta_k + e
    this is e^2 <= (a + b e) (c + d e), and e is at most the larger root; infinite if b d >= 1.
    """
    residual, part = topics[1], topics[2]
    for k in range(prior.size):
        part[k] = shares[k] / prior[k]
    a, b = np.float64(dot(shares, part, prior.size)), np.float64(sum_of(part, prior.size))
    for k in range(prior.size):
        part[k] = residual[k] / prior[k]
    c = np.float64(dot(residual, part, prior.size))
    for k in range(prior.size):
        part[k] /= shares[k]
    d = np.float64(dot(residual, part, prior.size))
    lead = 1.0 - b * d
    if not lead > 0.0:
        return np.inf
    half = 0.5 * (a * d + b * c)
    return float((half + np.sqrt(half * half + lead * a * c)) / lead)


@inlined
def explain(
    rows: Numbers,
    counts: Numbers,
    prior: Numbers,
    weight: float,
    shares: Numbers,
    words: Numbers,
    topics: Numbers,
) -> None:
    """Compute p, c / p, n and r at the shares; ``weight`` is lam."""
    expected, ratio, tokens, residual = words[0], words[1], topics[0], topics[1]
    mix(rows, shares, expected)
    for w in range(expected.size):
        ratio[w] = counts[w] / expected[w]
    collect(rows, ratio, tokens)
    for k in range(prior.size):
        tokens[k] *= shares[k]
        residual[k] = prior[k] + tokens[k] - weight * shares[k]


@inlined
def start_solve(prior: Numbers, weight: float, shares: Numbers, words: Numbers, topics: Numbers) -> Any:
    """Set the curvature, barrier and first direction after ``explain``; return the residual's preconditioned norm."""
    tokens, residual, barrier, front = topics[0], topics[1], topics[2], topics[3]
    y, direction, moved = topics[4], topics[5], topics[7]
    for w in range(words.shape[1]):
        words[1, w] /= words[0, w]
        words[3, w] = 0.0
    for k in range(prior.size):
        front[k] = max(prior[k] + tokens[k], weight * shares[k])
        barrier[k] = front[k] - tokens[k]
        y[k] = 0.0
        direction[k] = residual[k] / front[k]
        moved[k] = shares[k] * direction[k]
    return dot(residual, direction, prior.size)


@inlined
def newton(
    rows: Numbers, prior: Numbers, weight: float, shares: Numbers, words: Numbers, topics: Numbers
) -> None:
    """Compute the relative changes y and the change B (theta y) of p after ``explain``; overwrites its residual."""
    curvature, image, change, pulled = words[1], words[2], words[3], words[4]
    residual, barrier, front = topics[1], topics[2], topics[3]
    y, direction, product, moved = topics[4], topics[5], topics[6], topics[7]
    scaled, zero = topics[8], rows.dtype.type(0)
    size = start_solve(prior, weight, shares, words, topics)
    enough = rows.dtype.type(SOLVED * SOLVED) * size
    for _ in range(MOST_SOLVES):
        mix(rows, moved, image)
        for w in range(change.size):
            pulled[w] = curvature[w] * image[w]
        collect(rows, pulled, product)
        for k in range(prior.size):
            product[k] = shares[k] * product[k] + barrier[k] * direction[k]
        along = dot(product, direction, prior.size)
        step = size / along if along > zero else zero
        for w in range(change.size):
            change[w] += step * image[w]
        for k in range(prior.size):
            y[k] += step * direction[k]
            residual[k] -= step * product[k]
            scaled[k] = residual[k] / front[k]
        left = dot(residual, scaled, prior.size)
        if left <= enough or step == zero:
            break
        ratio, size = left / size, left
        for k in range(prior.size):
            direction[k] = scaled[k] + ratio * direction[k]
            moved[k] = shares[k] * direction[k]


@inlined
def slope(
    counts: Numbers,
    prior: Numbers,
    weight: float,
    shares: Numbers,
    words: Numbers,
    topics: Numbers,
    step: float,
) -> Any:
    """Derivative of f along the Newton step, at ``step``."""
    expected, change, y, per_topic = words[0], words[3], topics[4], topics[6]
    one = counts.dtype.type(1)
    pace, rise = fill(step), fill(counts.dtype.type(0))
    for w in range(0, counts.size, width(counts)):
        moved = load(change, w)
        rise = multiply_add(
            load(counts, w), divide(moved, multiply_add(pace, moved, load(expected, w))), rise
        )
    for k in range(prior.size):
        per_topic[k] = prior[k] / (one + step * y[k]) - weight * shares[k]
    return -(total(rise) + dot(per_topic, y, prior.size))


@inlined
def step_length(
    counts: Numbers, prior: Numbers, weight: float, shares: Numbers, words: Numbers, topics: Numbers
) -> Any:
    """A step along y that decreases the convex f: 1, the largest that keeps shares positive, or found by bracketing."""
    lowest = topics[4, : prior.size].min()
    high = TO_ZERO / -lowest if lowest < -TO_ZERO else 1.0
    at_low = slope(counts, prior, weight, shares, words, topics, counts.dtype.type(0))
    at_high = slope(counts, prior, weight, shares, words, topics, counts.dtype.type(high))
    if at_high <= 0.0:
        return high
    low, least = 0.0, 0.5 * at_low
    for _ in range(30):
        share = min(max(at_low / (at_low - at_high), 0.1), 0.9)
        middle = low + (high - low) * share
        at_middle = slope(counts, prior, weight, shares, words, topics, counts.dtype.type(middle))
        if at_middle > 0.0:
            high, at_high = middle, at_middle
        else:
            low, at_low = middle, at_middle
            if at_middle >= least:
                break
    return low


@inlined
def newton_solve(
    rows: Numbers,
    counts: Numbers,
    prior: Numbers,
    weight: float,
    shares: Numbers,
    words: Numbers,
    topics: Numbers,
    first: int,
    most: int,
    tolerance: float,
    smallest: float,
) -> tuple[int, float]:
    """Iterate from ``shares``, in place, until the error bound is within ``tolerance``; return (steps, bound).

    Takes ``first`` steps of expectation-maximisation, then Newton steps, at most ``most`` in total, until one changes
    no share by more than ``smallest`` (relative). Padded topics stay 0.
    """
    bound = np.inf
    y, one = topics[4], rows.dtype.type(1)
    for number in range(most + 1):
        explain(rows, counts, prior, weight, shares, words, topics)
        if number < min(first, most):
            for k in range(prior.size):
                shares[k] += topics[1, k] / weight
            continue
        bound = error_bound(prior, shares, topics)
        if bound <= tolerance or number == most:
            return number, bound
        newton(rows, prior, weight, shares, words, topics)
        largest = rows.dtype.type(0)
        for k in range(prior.size):
            largest = max(largest, abs(y[k]))
        step = one
        if largest > NEAR:
            step = rows.dtype.type(step_length(counts, prior, weight, shares, words, topics))
        for k in range(prior.size):
            shares[k] *= one + step * y[k]
        mass = sum_of(shares, prior.size)
        for k in range(prior.size):
            shares[k] /= mass
        if largest <= smallest:
            return number + 1, bound
    return most, bound


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
    """Compute the shares of a block of documents in single, then double precision; fills the last three arguments."""
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
        taken, _ = newton_solve(
            single_area[:width], single_area[width], single_prior, np.float32(weight), single,
            single_area[width + 1 :], single_work, FIRST_STEPS, most, 0.5 * tolerance, SINGLE_DONE,
        )  # fmt: skip
        theta[:n_topics] = single[:n_topics]
        theta /= theta.sum()
        if not np.isfinite(theta).all():
            theta[:n_topics] = mean
        more, bounds[document] = newton_solve(
            rows, counts, prior, weight, theta, per_words, work, 0, most - taken, tolerance, 0.0
        )
        iterations[document] = taken + more
        shares[document] = theta[:n_topics]
