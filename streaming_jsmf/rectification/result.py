"""The result of a rectification, the omitted negative mass, and small matrices shared by the algorithms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from streaming_jsmf.linalg.eigen import Eigenpairs
from streaming_jsmf.linalg.panels import panel_threads, panels
from streaming_jsmf.linalg.probes import Estimate, keyed_generator
from streaming_jsmf.linalg.typing import FloatArray, Floats, Integers
from streaming_jsmf.storage.large_arrays import large_copy, large_zeros

#: Defaults of the stopping rule: number of iterations, and relative change of the last one.
MAX_ITERATIONS, TOLERANCE = 150, 1e-5
#: Called after each iteration with its number and the relative change.
OnIteration = Callable[[int, float], None]


@dataclass(frozen=True)
class Rectification:
    """Result of a rectification; quantities that an algorithm does not compute are 0 or None.

    rectified, matrix : Y, N x K, float64, with C* ~ Y Y'; C*, N x N.
    iterations, change, converged : Number of steps; relative change of the last one (Frobenius norm); whether it is
        below the tolerance.
    correction_mass, uniform_mass : Sum of E, and the mass added by the normalization (usually negative), at the last Y.
    checked_words, epsilon : |I|, the number of words whose rows are kept non-negative. No entry of Y Y' + E is below
        -epsilon, where epsilon is the largest squared norm of a row of Y outside I.
    left_out : Bound on the Frobenius norm of the remaining negative entries, relative to that of Y Y'.
    """

    rectified: Floats
    iterations: int
    change: float
    converged: bool
    correction_mass: float = 0.0
    uniform_mass: float = 0.0
    checked_words: int = 0
    epsilon: float = 0.0
    left_out: float = 0.0
    objective: float | None = None
    matrix: Floats | None = None

    def report(self) -> dict[str, Any]:
        """All fields except arrays, as JSON values."""
        arrays = ("rectified", "matrix")
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name not in arrays}


def iterated(
    step: Callable[[int], float],
    *,
    max_iterations: int = MAX_ITERATIONS,
    tolerance: float = TOLERANCE,
    threads: int = 1,
    on_iteration: OnIteration | None = None,
) -> dict[str, Any]:
    """Repeat a step until the relative change that it returns is below ``tolerance``; return how it ended.

    ``step`` is called with its number, from 1, and ``on_iteration`` with the number and the change. Bits do not depend
    on ``threads``, which ``panels.panel_threads`` gives to the step.
    """
    change, number = np.inf, 0
    with panel_threads(threads):
        for number in range(1, max_iterations + 1):
            change = float(step(number))
            if on_iteration is not None:
                on_iteration(number, change)
            if change < tolerance:
                break
    return {"iterations": number, "change": change, "converged": change < tolerance}


def positive_half(pairs: Eigenpairs, n_topics: int) -> Floats:
    """Y = U_K (Lambda_K^+)^(1/2), N x K: Y Y' is the nearest positive semidefinite matrix of rank K.

    Columns without a positive eigenvalue are zero.
    """
    return scaled_vectors(pairs.values, pairs.vectors, n_topics)


def scaled_vectors(values: Floats, vectors: FloatArray, n_topics: int) -> Floats:
    """``positive_half`` for eigenvectors in float32 or float64."""
    roots = np.sqrt(np.maximum(values[:n_topics], 0.0))
    half = large_zeros((len(vectors), n_topics))
    np.multiply(vectors[:, : roots.size], roots, out=half[:, : roots.size])
    return half


def unrectified(pairs: Eigenpairs, n_topics: int) -> Rectification:
    """Y = V max(D, 0)^(1/2) from the truncated eigenpairs, unchanged.

    The papers' baseline is AW on the complete, counted C (``inference.law.anchor_words``); truncation to rank K already
    removes most of what fails there.
    """
    y = positive_half(pairs, n_topics)
    mass = float(np.sum(y.sum(axis=0) ** 2))
    return Rectification(y, 0, 0.0, True, uniform_mass=1.0 - mass)


def change_of_grams(new: Floats, old: Floats, mixed: Floats) -> float:
    """||Y1 Y1' - Y0 Y0'||_F / ||Y0 Y0'||_F from Y1'Y1, Y0'Y0 and Y1'Y0."""
    old_norm = float(np.sum(old**2))
    squared = float(np.sum(new**2)) + old_norm - 2 * float(np.sum(mixed**2))
    return float(np.sqrt(max(squared, 0.0) / old_norm)) if old_norm > 0 else 0.0


def change_by_step(own: Floats, along: Floats, squared: Floats) -> float:
    """``change_of_grams`` for Y1 = Y0 + S from Y0'Y0, Y0'S and S'S, without cancellation for small S."""
    moved = 2 * np.sum(own * squared) + 2 * np.sum(along * along.T) + np.sum(squared * (squared + 4 * along))
    old_norm = float(np.sum(own**2))
    return float(np.sqrt(max(float(moved), 0.0) / old_norm)) if old_norm > 0 else 0.0


#: Number of sampled rows; if no more remain, all are used and the result is exact.
SAMPLED_ROWS = 256
#: Rows multiplied at a time.
BLOCK_ROWS = 32


def omitted_mass(rectified: Floats, checked_words: int, seed: int = 0) -> Estimate:
    """Estimate the negative mass of Y Y' outside the rows and columns that ENN corrects (LR-JSMF, Algorithm 3).

    That is the sum of max(-(Y Y')_ij, 0) over unchecked pairs of words, as a share of all co-occurrences.

    Y is (N, K); the ``checked_words`` rows of largest norm are excluded. Rows are drawn with replacement, with
    probabilities proportional to their norms: an unbiased estimate, O(N K) per row, deterministic for a given seed.
    """
    norms = np.sqrt(np.einsum("ij,ij->i", rectified, rectified))
    # Ties go to the lowest id, as in ENN.
    rest = np.sort(np.argsort(-norms, kind="stable")[checked_words:])
    rows = large_copy(rectified, rows=rest)
    total = float(norms[rest].sum())
    if total == 0.0:
        return Estimate(0.0, 0.0)
    if rest.size <= SAMPLED_ROWS:
        return Estimate(float(_negative_sums(rows, np.arange(rest.size)).sum()), 0.0)
    shares = norms[rest] / total
    generator = keyed_generator(seed, rest.size)
    drawn = np.searchsorted(np.cumsum(shares), generator.random(SAMPLED_ROWS)).clip(max=rest.size - 1)
    scaled = _negative_sums(rows, drawn) / shares[drawn]
    return Estimate(float(scaled.mean()), float(scaled.std(ddof=1) / np.sqrt(SAMPLED_ROWS)))


def _negative_sums(rows: Floats, chosen: Integers) -> Floats:
    """Minus the sum of the negative entries of each chosen row of Y Y'."""
    sums = np.empty(chosen.size)
    for part in panels(chosen.size, BLOCK_ROWS):
        product = rows[chosen[part]] @ rows.T
        sums[part] = -np.minimum(product, 0.0, out=product).sum(axis=1)
    return sums
