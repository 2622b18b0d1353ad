"""Simplex least squares by gradients, many rows at once: FISTA and exponentiated gradient.

Both are products of whole blocks with the Gram matrix of the vertices and stop, row by row, at a duality gap.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.linalg.typing import BlockSolver

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

FISTA_ITERATIONS = 20_000
EXPONENTIATED_ITERATIONS = 2_000
#: The gap is looked at only every so often: it costs as much as a step.
CHECK_EVERY = 10
#: Steps of exponentiated gradient grow by this after a descent, and halve otherwise.
LONGER, SHORTER = 1.5, 0.5


def project_to_simplex(points: Floats) -> Floats:
    """Nearest points of the probability simplex, row by row (n x K), by sorting (Held et al. 1974)."""
    descending = -np.sort(-points, axis=1)
    excess = np.cumsum(descending, axis=1) - 1.0
    ranks = np.arange(1, points.shape[1] + 1)
    support = np.count_nonzero(descending * ranks > excess, axis=1)
    threshold = np.take_along_axis(excess, support[:, None] - 1, axis=1) / support[:, None]
    projected: Floats = np.maximum(points - threshold, 0.0)
    return projected


def fista(vertices: Floats, tolerance: float) -> BlockSolver:
    """Batched FISTA with restarts, in coordinates centred on the mean vertex.

    Centring changes nothing on the simplex and takes the largest eigenvalue, which sets the step, out of G.
    """
    centre = vertices.mean(axis=0)
    centred = vertices - centre
    gram = centred @ centred.T
    lipschitz = float(np.linalg.eigvalsh(gram)[-1]) or 1.0

    def solve(block: Floats, weights: Floats, gap: Floats, steps: Integers) -> None:
        target = tolerance * np.einsum("ij,ij->i", block, block)
        linear = (block - centre) @ centred.T
        weights[:] = 0.0
        nearest = np.argmin(0.5 * np.diag(gram) - linear, axis=1)
        weights[np.arange(len(block)), nearest] = 1.0
        _fista_block(gram, linear, lipschitz, target, weights, gap, steps)

    return solve


def _fista_block(
    gram: Floats,
    linear: Floats,
    lipschitz: float,
    target: Floats,
    weights: Floats,
    gap: Floats,
    steps: Integers,
) -> None:
    """Iterate the rows not yet done; fills weights (n x K, holding the start), gap and steps in place."""
    active = np.arange(len(weights))
    current = weights.copy()
    point = current.copy()
    momentum = np.ones((len(weights), 1))
    for iteration in range(FISTA_ITERATIONS + 1):
        if iteration % CHECK_EVERY == 0:
            gradient = current @ gram - linear[active]
            reached = 2.0 * (np.einsum("ij,ij->i", current, gradient) - gradient.min(axis=1))
            weights[active], gap[active], steps[active] = current, np.maximum(reached, 0.0), iteration
            open_rows = reached > target[active]
            if iteration == FISTA_ITERATIONS or not open_rows.any():
                return
            active, current, point = active[open_rows], current[open_rows], point[open_rows]
            momentum = momentum[open_rows]
        step = project_to_simplex(point - (point @ gram - linear[active]) / lipschitz)
        following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        # O'Donoghue and Candes 2015: momentum that points uphill is forgotten, row by row.
        uphill = np.einsum("ij,ij->i", point - step, step - current)[:, None] > 0
        following[uphill] = 1.0
        point = np.where(uphill, step, step + (momentum - 1.0) / following * (step - current))
        current, momentum = step, following


def exponentiated_gradient(vertices: Floats, tolerance: float) -> BlockSolver:
    """Weights times exp(-step x gradient), rescaled to sum to 1: how the papers' own code recovers topics.

    Every row has its own step, which grows while the objective falls and is halved where it would rise. From
    equal weights. No weight becomes exactly zero, and the gap closes slowly where vertices are close.
    """
    gram = vertices @ vertices.T

    def solve(block: Floats, weights: Floats, gap: Floats, steps: Integers) -> None:
        target = tolerance * np.einsum("ij,ij->i", block, block)
        weights[:] = 1.0 / len(vertices)
        _exponentiated_block(gram, block @ vertices.T, target, weights, gap, steps)

    return solve


def _exponentiated_block(
    gram: Floats, linear: Floats, target: Floats, weights: Floats, gap: Floats, steps: Integers
) -> None:
    """Iterate the rows not yet done; fills weights (n x K, holding the start), gap and steps in place."""
    active = np.arange(len(weights))
    current = weights.copy()
    product = current @ gram
    pace = np.full(len(weights), 1.0 / (float(np.abs(gram).max()) or 1.0))
    for iteration in range(EXPONENTIATED_ITERATIONS + 1):
        gradient = product - linear[active]
        if iteration % CHECK_EVERY == 0:
            reached = 2.0 * (np.einsum("ij,ij->i", current, gradient) - gradient.min(axis=1))
            weights[active], gap[active], steps[active] = current, np.maximum(reached, 0.0), iteration
            going = reached > target[active]
            if iteration == EXPONENTIATED_ITERATIONS or not going.any():
                return
            active, current, product, pace, gradient = (
                values[going] for values in (active, current, product, pace, gradient)
            )
        # Up to a factor per row the exponent may be shifted: the largest becomes 0 and nothing overflows.
        exponent = -pace[:, None] * (gradient - gradient.min(axis=1)[:, None])
        trial = current * np.exp(exponent)
        trial /= trial.sum(axis=1)[:, None]
        trial_product = trial @ gram
        # Half the change of the objective, exactly: (b1 - b0)'(G (b0 + b1) / 2 - c).
        change = np.einsum("ij,ij->i", trial - current, 0.5 * (product + trial_product) - linear[active])
        down = change <= 0.0
        current[down], product[down] = trial[down], trial_product[down]
        pace = np.where(down, LONGER * pace, SHORTER * pace)
