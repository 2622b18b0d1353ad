"""Epsilon non-negative rectification (LR-JSMF, Algorithm 3), with an outer iteration that needs a tenth of the work.

A step of the paper replaces Y Y' by the nearest matrix of rank K to A = Y Y' + E + r e e'. Three things are done
otherwise, none of which moves the fixed points:

- A warm block of K + 10 vectors and one power step stand in for Lanczos.
- After a few such steps A is applied once a step, to Y alone: Y <- A Y (Y'A Y)^(-1/2). That is a gradient step on the
  matrices of rank K, and stays within 3e-4 of the paper's path on the KOS entries.
- Convergence is sublinear, because the gradient of the squared distance to the non-negative matrices vanishes slowly;
  momentum walks the same way in longer strides. Feasible points are many, and longer strides end at another one, which
  is why its friction is higher than is usual.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.config import Acceleration
from streaming_jsmf.linalg.eigen import Eigenpairs, with_fixed_signs
from streaming_jsmf.linalg.gram import GRAM_FLOOR, gram, inverse_square_root, rotate, single_gram
from streaming_jsmf.linalg.panels import panels
from streaming_jsmf.linalg.typing import FloatArray
from streaming_jsmf.rectification.enn_operator import (
    CHECKED_ENTRIES,
    Corrections,
    checked_rows,
)
from streaming_jsmf.rectification.result import (
    OnIteration,
    Rectification,
    change_by_step,
    change_of_grams,
    positive_half,
    require_pairs,
    scaled_vectors,
)

#: Steps with the whole block before momentum sets in: while E is large, other directions may take over.
BLOCK_STEPS = 5

#: Friction a of the momentum (t - 1) / (t + a - 1). Nesterov's own 3 ends farther from the plain iteration's limit.
FRICTION = 5.0

#: Rows of Y that are moved at a time, in the cache.
STEP_ROWS = 1024

#: Y'A Y is taken for singular below this share of its largest eigenvalue.
RANK_FLOOR = 1e-10


@dataclass(frozen=True)
class ENNOptions:
    """How ENN runs; every field but ``threads`` decides the bits.

    Attributes
    ----------
    max_iterations, tolerance
        When to stop, see ``Rectification.change``.
    checked_words
        |I|, rows of largest norm, chosen anew in each step. None: 10 K + 1000, as in the paper, or more where
        N is so small that N |I| stays below 15 M.
    left_out
        Grow I in each step until ``Rectification.left_out`` is at most this. None: no.
    acceleration
        ``momentum``, or ``none`` for the paper's steps.
    block_dtype
        Of the blocks of Y Y_I' and of all tall arrays but Y. float32 gives the same error 1.5 x faster.
    threads
        Blocks worked on at once.
    """

    max_iterations: int = 150
    tolerance: float = 1e-5
    checked_words: int | None = None
    left_out: float | None = None
    acceleration: Acceleration = "momentum"
    block_dtype: type[np.floating[Any]] = np.float32
    threads: int = 1

    def size(self, n_words: int, n_topics: int) -> int:
        """|I| before it grows."""
        affordable = max(10 * n_topics + 1000, CHECKED_ENTRIES // n_words)
        return min(n_words, affordable if self.checked_words is None else self.checked_words)


def epsilon_nonnegative(
    pairs: Eigenpairs,
    n_topics: int,
    options: ENNOptions | None = None,
    *,
    shares: NDArray[np.float64] | None = None,
    on_iteration: OnIteration | None = None,
) -> Rectification:
    """ENN from truncated eigenpairs of C; no pass over the data, O(N |I| K) a step.

    An unconverged result shows as sum(A) far from 1.

    Parameters
    ----------
    pairs
        Leading algebraic eigenpairs of C, at least K of them; more keep the block warm.
    n_topics
        K.
    options
        When to stop and how to get there.
    shares
        (N,), sums to 1: how the mass that is missing is spread, such as row sums of C. None: evenly, as in the paper.
    on_iteration
        Told about each step.

    Raises
    ------
    ValueError
        If there are fewer than K eigenpairs.
    """
    options = options or ENNOptions()
    require_pairs(pairs, n_topics, "ENN")
    n = pairs.vectors.shape[0]
    shares = np.full(n, 1.0 / n) if shares is None else shares
    occurring = pairs.vectors.any(axis=1)
    if occurring.all():
        return _rectified(pairs, n_topics, options, shares, on_iteration)
    # Of the other words C says nothing, and what they would get of the missing mass would be corrected away again.
    these = Eigenpairs(pairs.values, pairs.vectors[occurring])
    found = _rectified(these, n_topics, options, shares[occurring], on_iteration)
    rectified = np.zeros((n, n_topics))
    rectified[occurring] = found.rectified
    return replace(found, rectified=rectified)


def _rectified(
    pairs: Eigenpairs,
    n_topics: int,
    options: ENNOptions,
    shares: NDArray[np.float64],
    on_iteration: OnIteration | None,
) -> Rectification:
    change, number = np.inf, 0
    with ThreadPoolExecutor(max_workers=options.threads) as pool:
        walk = _Walk(pairs, n_topics, options, shares, pool)
        for number in range(1, options.max_iterations + 1):
            change = walk.step(number)
            if on_iteration is not None:
                on_iteration(number, change)
            if change < options.tolerance:
                break
    y = _rotated(walk.y)
    checked = checked_rows(y, gram(y), walk.size, options.left_out)
    return Rectification(
        y,
        number,
        float(change),
        change < options.tolerance,
        walk.correction_mass,
        walk.uniform_mass,
        checked.words.size,
        checked.epsilon,
        checked.left_out,
    )


class _Walk:
    """Where the iteration is: Y, and what its next step needs. At most the room of four Y at a time.

    Y alone is float64: what a step adds to it is short, and loses nothing in the type of the blocks.
    """

    def __init__(
        self,
        pairs: Eigenpairs,
        n_topics: int,
        options: ENNOptions,
        shares: NDArray[np.float64],
        pool: ThreadPoolExecutor,
    ) -> None:
        self.y = positive_half(pairs, n_topics)
        self.vectors: FloatArray = pairs.vectors.astype(options.block_dtype, order="C")
        self.n_topics, self.options, self.shares, self.pool = n_topics, options, shares, pool
        self.size = options.size(self.y.shape[0], n_topics)
        # By how much the last step moved Y, and the number of steps since the momentum was nothing.
        self.moved: FloatArray = np.zeros(self.y.shape, options.block_dtype)
        self.age = 0
        self.correction_mass = self.uniform_mass = 0.0

    def step(self, number: int) -> float:
        """Move Y; return how far, relative to where the operator was applied."""
        if self.options.acceleration == "none" or number <= BLOCK_STEPS:
            return self._block_step()
        self.age += 1
        momentum = (self.age - 1) / (self.age + FRICTION - 1)
        point = self._point(momentum)
        own = gram(point)
        added = self._times(self._corrections(point, own), point)
        # A Y = Y G + D: all that the small matrices below need of D is Y'D and D'D.
        mixed, length = single_gram(point, added), single_gram(added)
        values, vectors = np.linalg.eigh(own @ own + (mixed + mixed.T) / 2)
        if not values[0] > RANK_FLOOR * values[-1]:
            # A direction is gone; the block may hold another that takes its place.
            return self._block_step()
        # The symmetric root R, so that Y keeps its rotation from one step to the next.
        root = (vectors / np.sqrt(values)) @ vectors.T
        # The step (Y G + D) R - Y is Y T + D R: short, so that it loses nothing if it is rounded.
        turn = own @ root - np.eye(self.n_topics)
        if not self._advance(momentum, point, turn, added, root):
            # What is carried along would go on uphill.
            self.age = 0
        along, across = own @ turn + mixed @ root, turn.T @ mixed @ root
        squared = turn.T @ own @ turn + across + across.T + root @ length @ root
        return change_by_step(own, along, squared)

    def _point(self, momentum: float) -> FloatArray:
        """Y and a part of its last move. Both are in the same rotation, see ``step``."""
        point = np.empty_like(self.moved)
        for part in panels(len(point), STEP_ROWS):
            point[part] = self.y[part] + momentum * self.moved[part]
        return point

    def _advance(
        self,
        momentum: float,
        point: FloatArray,
        turn: NDArray[np.float64],
        added: FloatArray,
        root: NDArray[np.float64],
    ) -> bool:
        """Move Y to point + Y T + D R. False if that step points back to where Y was."""
        turn, root = turn.astype(point.dtype), root.astype(point.dtype)
        ahead = 0.0
        for part in panels(len(point), STEP_ROWS):
            step = point[part] @ turn
            step += added[part] @ root
            moved = self.moved[part]
            moved *= momentum
            moved += step
            self.y[part] += moved
            ahead += float(np.vdot(step, moved))
        return ahead >= 0

    def _block_step(self) -> float:
        """Ritz vectors of A in the span of Z = A V, from Z'A Z and Z'Z: Z itself need not be orthonormal."""
        # Momentum would be in another rotation.
        self.age = 0
        previous, own = self.y, gram(self.y)
        rows = previous.astype(self.vectors.dtype)
        corrections = self._corrections(rows, own, keep=True)
        block = rows @ gram(rows, self.vectors).astype(rows.dtype)
        block += self._times(corrections, self.vectors)
        block = _unit_columns(block)
        inside = gram(rows, block)
        small = inside.T @ inside + corrections.between(block, self.uniform_mass)
        whiten = inverse_square_root(gram(block), GRAM_FLOOR)
        values, rotation = np.linalg.eigh(whiten.T @ ((small + small.T) / 2) @ whiten)
        self.vectors = rotate(block, whiten @ rotation[:, ::-1])
        self.y = scaled_vectors(values[::-1], self.vectors, self.n_topics)
        return change_of_grams(gram(self.y), own, gram(self.y, previous))

    def _corrections(self, y: FloatArray, own_gram: NDArray[np.float64], keep: bool = False) -> Corrections:
        checked = checked_rows(y, own_gram, self.size, self.options.left_out)
        return Corrections(y, checked.words, self.shares, self.pool, keep)

    def _times(self, corrections: Corrections, x: FloatArray) -> FloatArray:
        added = corrections.times(x)
        self.correction_mass, self.uniform_mass = added.correction_mass, added.uniform_mass
        return added.product


def _unit_columns(block: FloatArray) -> FloatArray:
    """Columns scaled to length 1, in their memory: as they are nearly orthogonal, their Gram matrix is sound then."""
    block /= np.maximum(np.sqrt(np.einsum("ij,ij->j", block, block)), np.finfo(block.dtype).tiny)
    return block


def _rotated(y: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same Y Y' with orthogonal columns, longest first."""
    values, rotation = np.linalg.eigh(gram(y))
    return with_fixed_signs(values, rotate(y, rotation)).vectors
