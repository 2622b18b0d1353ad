"""Epsilon non-negative rectification (LR-JSMF, Algorithm 3), with an outer iteration that needs a tenth of the work.

A step of the paper replaces Y Y' by the nearest matrix of rank K to A = Y Y' + E + r e e'. There are four differences,
which do not change the fixed points:

- A warm-started block of K + 10 vectors and one power step replace Lanczos.
- After a few such steps A is applied once per step, to Y alone: Y <- A Y (Y'A Y)^(-1/2). This is a gradient step on the
  matrices of rank K, and stays within 3e-4 of the paper's path on the KOS entries.
- Where Y Y_I' is large, three of four of these steps compute only the entries that were negative in the fourth.
- Momentum speeds up the sublinear convergence, which is due to the slowly vanishing gradient of the squared distance to
  the non-negative matrices. There are many feasible points and too long steps end at another one, so friction is higher
  than usual.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streaming_jsmf.config import Acceleration
from streaming_jsmf.linalg.eigen import Eigenpairs, with_fixed_signs
from streaming_jsmf.linalg.gram import GRAM_FLOOR, gram, inverse_square_root, rotate, single_gram
from streaming_jsmf.linalg.panels import panel_threads, panels
from streaming_jsmf.linalg.typing import FloatArray, Floats
from streaming_jsmf.rectification.enn_operator import CHECKED_ENTRIES, Corrections, checked_rows
from streaming_jsmf.rectification.result import (
    OnIteration,
    Rectification,
    change_by_step,
    change_of_grams,
    positive_half,
    require_pairs,
    scaled_vectors,
)

#: Steps with the complete block before momentum starts, because the leading directions may change while E is large.
BLOCK_STEPS = 5

#: Friction a of the momentum (t - 1) / (t + a - 1). Nesterov's a = 3 ends farther from the limit of plain iteration.
FRICTION = 5.0

#: Steps that correct only entries that were negative before, if Y Y_I' has more than ``CHECKED_ENTRIES`` entries.
MOVED_STEPS = 3

#: Increase when the same moments give other bits where ``ENNOptions.keeps_positions``.
ALGORITHM_VERSION = 2

#: Rows of Y updated at a time, so that they stay in the cache.
STEP_ROWS = 1024

#: Y'A Y is treated as singular if its smallest eigenvalue is below this fraction of the largest.
RANK_FLOOR = 1e-10


@dataclass(frozen=True)
class ENNOptions:
    """Options of ENN; all but ``threads`` affect the bits.

    Attributes
    ----------
    max_iterations, tolerance : Stopping rule, see ``Rectification.change``.
    checked_words : |I|, number of rows of largest norm, selected again in each step. None: 10 K + 1000, as in the
        paper, or more where N is so small that N |I| stays below 15 M.
    left_out : Extend I in each step until ``Rectification.left_out`` is at most this; None: do not extend.
    acceleration : ``momentum``, or ``none`` for the paper's steps.
    block_dtype : Type of the blocks of Y Y_I' and of all tall arrays but Y. float32 has the same error and is 1.5 x
        faster.
    threads : Blocks computed in parallel.
    """

    max_iterations: int = 150
    tolerance: float = 1e-5
    checked_words: int | None = None
    left_out: float | None = None
    acceleration: Acceleration = "momentum"
    block_dtype: type[np.floating[Any]] = np.float32
    threads: int = 1

    def size(self, n_words: int, n_topics: int) -> int:
        """|I| before it is extended."""
        affordable = max(10 * n_topics + 1000, CHECKED_ENTRIES // n_words)
        return min(n_words, affordable if self.checked_words is None else self.checked_words)

    def keeps_positions(self, n_words: int, n_topics: int) -> bool:
        """Whether steps use the positions of earlier negative entries; smaller Y Y_I' are computed completely."""
        return self.acceleration == "momentum" and n_words * self.size(n_words, n_topics) > CHECKED_ENTRIES


def epsilon_nonnegative(
    pairs: Eigenpairs,
    n_topics: int,
    options: ENNOptions | None = None,
    *,
    shares: Floats | None = None,
    on_iteration: OnIteration | None = None,
) -> Rectification:
    """ENN from truncated eigenpairs of C; no pass over the data, O(N |I| K) per step.

    ``pairs`` are leading algebraic eigenpairs of C, at least K (more speed up the first steps). ``shares`` (N,), sum 1,
    distribute the missing mass over the words, for example row sums of C; None: uniform, as in the paper.
    ``on_iteration`` receives the number and the relative change of each step. The topic correlations A of an
    unconverged result have a sum far from 1. Raises ``ValueError`` if there are fewer than K eigenpairs.
    """
    options = options or ENNOptions()
    require_pairs(pairs, n_topics, "ENN")
    n = pairs.vectors.shape[0]
    shares = np.full(n, 1.0 / n) if shares is None else shares
    occurring = pairs.vectors.any(axis=1)
    if occurring.all():
        return _rectified(pairs, n_topics, options, shares, on_iteration)
    # C has no entries for the other words; any missing mass given to them would be corrected away again.
    these = Eigenpairs(pairs.values, pairs.vectors[occurring])
    found = _rectified(these, n_topics, options, shares[occurring], on_iteration)
    rectified = np.zeros((n, n_topics))
    rectified[occurring] = found.rectified
    return replace(found, rectified=rectified)


def _rectified(
    pairs: Eigenpairs, n_topics: int, options: ENNOptions, shares: Floats, on_iteration: OnIteration | None
) -> Rectification:
    change, number = np.inf, 0
    state = _State(pairs, n_topics, options, shares)
    with panel_threads(options.threads):
        for number in range(1, options.max_iterations + 1):
            change = state.step(number)
            if on_iteration is not None:
                on_iteration(number, change)
            if change < options.tolerance and state.corrections_are_complete():
                break
    # The same Y Y' with orthogonal columns, longest first.
    values, rotation = np.linalg.eigh(gram(state.y))
    y = with_fixed_signs(values, rotate(state.y, rotation)).vectors
    checked = checked_rows(y, gram(y), state.size, options.left_out)
    return Rectification(
        y,
        number,
        float(change),
        change < options.tolerance,
        state.correction_mass,
        state.uniform_mass,
        checked.words.size,
        checked.epsilon,
        checked.left_out,
    )


class _State:
    """Y and the data that the next step needs, at most four times the memory of Y; only Y is float64."""

    def __init__(self, pairs: Eigenpairs, n_topics: int, options: ENNOptions, shares: Floats) -> None:
        self.y = positive_half(pairs, n_topics)
        self.vectors: FloatArray = pairs.vectors.astype(options.block_dtype, order="C")
        self.n_topics, self.options, self.shares = n_topics, options, shares
        self.size = options.size(self.y.shape[0], n_topics)
        # The last change of Y, and the number of steps since the momentum was reset.
        self.moved: FloatArray = np.zeros(self.y.shape, options.block_dtype)
        self.age = 0
        self.correction_mass = self.uniform_mass = 0.0
        # Corrections whose positions the next steps may use, and the number of steps that have used them.
        self.kept: Corrections | None = None
        self.moved_steps = 0

    def step(self, number: int) -> float:
        """Update Y; return the relative change from the point at which the operator was applied."""
        if self.options.acceleration == "none" or number <= BLOCK_STEPS:
            return self._block_step()
        self.age += 1
        momentum = (self.age - 1) / (self.age + FRICTION - 1)
        point = np.empty_like(self.moved)
        for part in panels(len(point), STEP_ROWS):
            point[part] = self.y[part] + momentum * self.moved[part]
        own = gram(point)
        added = self._apply(self._corrections_near(point, own), point)
        # A Y = Y G + D: the small matrices below need only Y'D and D'D of D.
        mixed, length = single_gram(point, added), single_gram(added)
        values, vectors = np.linalg.eigh(own @ own + (mixed + mixed.T) / 2)
        if not values[0] > RANK_FLOOR * values[-1]:
            # A direction was lost; the block may contain another one to replace it.
            return self._block_step()
        # The symmetric root R, so that Y keeps its rotation from one step to the next.
        root = (vectors / np.sqrt(values)) @ vectors.T
        # The step (Y G + D) R - Y equals Y T + D R, which is small, so its rounding errors are small too.
        turn = own @ root - np.eye(self.n_topics)
        if not self._advance(momentum, point, turn, added, root):
            # The momentum would continue uphill.
            self.age = 0
        along, across = own @ turn + mixed @ root, turn.T @ mixed @ root
        squared = turn.T @ own @ turn + across + across.T + root @ length @ root
        return change_by_step(own, along, squared)

    def _advance(
        self, momentum: float, point: FloatArray, turn: Floats, added: FloatArray, root: Floats
    ) -> bool:
        """Move Y to point + Y T + D R. Return False if that step points back to the previous Y."""
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
        """Ritz vectors of A in the span of Z = A V, from Z'A Z and Z'Z, so Z need not be orthonormal."""
        # The stored momentum refers to another rotation of Y.
        self.age, self.kept = 0, None
        previous, own = self.y, gram(self.y)
        rows = previous.astype(self.vectors.dtype)
        corrections = self._corrections(rows, own, keep=True)
        block = rows @ gram(rows, self.vectors).astype(rows.dtype)
        block += self._apply(corrections, self.vectors)
        # With unit columns, which are nearly orthogonal, the Gram matrix is well conditioned.
        block /= np.maximum(np.sqrt(np.einsum("ij,ij->j", block, block)), np.finfo(block.dtype).tiny)
        inside = gram(rows, block)
        small = inside.T @ inside + corrections.between(block, self.uniform_mass)
        whiten = inverse_square_root(gram(block), GRAM_FLOOR)
        values, rotation = np.linalg.eigh(whiten.T @ ((small + small.T) / 2) @ whiten)
        self.vectors = rotate(block, whiten @ rotation[:, ::-1])
        self.y = scaled_vectors(values[::-1], self.vectors, self.n_topics)
        return change_of_grams(gram(self.y), own, gram(self.y, previous))

    def corrections_are_complete(self) -> bool:
        """Whether the last step computed all entries of Y Y_I'; if not, the next one will."""
        complete, self.kept = self.kept is None or self.moved_steps == 0, None
        return complete

    def _corrections(self, y: FloatArray, own_gram: Floats, keep: bool = False) -> Corrections:
        checked = checked_rows(y, own_gram, self.size, self.options.left_out)
        return Corrections(y, checked.words, self.shares, keep)

    def _corrections_near(self, point: FloatArray, own_gram: Floats) -> Corrections:
        """Corrections of a small step, from the positions of the last complete ones if they are not too old."""
        if self.kept is not None and self.moved_steps < MOVED_STEPS:
            self.kept.move_to(point)
            self.moved_steps += 1
            return self.kept
        keep = self.options.keeps_positions(*point.shape)
        corrections = self._corrections(point, own_gram, keep=keep)
        self.kept, self.moved_steps = corrections if keep else None, 0
        return corrections

    def _apply(self, corrections: Corrections, x: FloatArray) -> FloatArray:
        added = corrections.times(x)
        self.correction_mass, self.uniform_mass = added.correction_mass, added.uniform_mass
        return added.product
