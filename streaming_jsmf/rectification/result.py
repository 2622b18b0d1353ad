"""What every rectification leaves, and the small matrices they share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.linalg.eigen import Eigenpairs
from streaming_jsmf.linalg.typing import FloatArray

#: Told after each iteration: its number and how far it was from the one before.
OnIteration = Callable[[int, float], None]


@dataclass(frozen=True)
class Rectification:
    """What a rectification leaves. Masses and counts that an algorithm does not have are 0, its objective None.

    Attributes
    ----------
    rectified
        Y, N x K, float64: C* ~ Y Y'.
    iterations, change, converged
        Steps taken; how far the last one moved what it was applied to, relative and in the Frobenius norm; whether
        that fell below the tolerance.
    correction_mass, uniform_mass
        Sum of E, and the mass that the normalisation adds (negative is normal), at the last Y.
    checked_words
        |I|: words whose rows are kept non-negative.
    epsilon
        No entry of Y Y' + E is below -epsilon: the largest squared length of a row of Y outside I.
    left_out
        Bound on the Frobenius norm of all that is left negative, relative to that of Y Y'.
    objective
        What the algorithm minimises, where it has such a thing.
    matrix
        C*, N x N, of an algorithm that holds it; None else.
    """

    rectified: NDArray[np.float64]
    iterations: int
    change: float
    converged: bool
    correction_mass: float = 0.0
    uniform_mass: float = 0.0
    checked_words: int = 0
    epsilon: float = 0.0
    left_out: float = 0.0
    objective: float | None = None
    matrix: NDArray[np.float64] | None = None

    def report(self) -> dict[str, Any]:
        """All but the arrays, as JSON values."""
        arrays = ("rectified", "matrix")
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name not in arrays}


def positive_half(pairs: Eigenpairs, n_topics: int) -> NDArray[np.float64]:
    """Y = U_K (Lambda_K^+)^(1/2), so that Y Y' is the nearest matrix of rank K without negative eigenvalues.

    N x K; columns for which there is no positive eigenvalue are zero.
    """
    return scaled_vectors(pairs.values, pairs.vectors, n_topics)


def scaled_vectors(values: NDArray[np.float64], vectors: FloatArray, n_topics: int) -> NDArray[np.float64]:
    """``positive_half`` of eigenvectors of either type."""
    roots = np.sqrt(np.maximum(values[:n_topics], 0.0))
    half = np.zeros((len(vectors), n_topics))
    np.multiply(vectors[:, : roots.size], roots, out=half[:, : roots.size])
    return half


def require_pairs(pairs: Eigenpairs, n_topics: int, what: str) -> None:
    """Raise ``ValueError`` if there are fewer than K eigenpairs to start from."""
    if pairs.values.size < n_topics:
        raise ValueError(f"{pairs.values.size} eigenpairs cannot start {what} for {n_topics} topics")


def unrectified(pairs: Eigenpairs, n_topics: int) -> Rectification:
    """Y = V max(D, 0)^(1/2): the truncated eigenpairs as they are.

    Not the baseline that the papers compare with, which is AW on the whole of C as it was counted
    (``inference.law.anchor_words``): cut to rank K, C has lost most of what fails there.
    """
    y = positive_half(pairs, n_topics)
    mass = float(np.sum(y.sum(axis=0) ** 2))
    return Rectification(y, 0, 0.0, True, uniform_mass=1.0 - mass)


def relative_change(new: NDArray[np.float64], old: NDArray[np.float64]) -> float:
    """||Y1 Y1' - Y0 Y0'||_F / ||Y0 Y0'||_F from three K x K Gram matrices."""
    return change_of_grams(new.T @ new, old.T @ old, new.T @ old)


def change_of_grams(new: NDArray[np.float64], old: NDArray[np.float64], mixed: NDArray[np.float64]) -> float:
    """``relative_change`` from Y1'Y1, Y0'Y0 and Y1'Y0."""
    old_norm = float(np.sum(old**2))
    squared = float(np.sum(new**2)) + old_norm - 2 * float(np.sum(mixed**2))
    return float(np.sqrt(max(squared, 0.0) / old_norm)) if old_norm > 0 else 0.0


def change_by_step(
    own: NDArray[np.float64], along: NDArray[np.float64], squared: NDArray[np.float64]
) -> float:
    """``relative_change`` from Y to Y + S, of Y'Y, Y'S and S'S: nothing cancels where the step is short."""
    moved = 2 * np.sum(own * squared) + 2 * np.sum(along * along.T) + np.sum(squared * (squared + 4 * along))
    old_norm = float(np.sum(own**2))
    return float(np.sqrt(max(float(moved), 0.0) / old_norm)) if old_norm > 0 else 0.0
