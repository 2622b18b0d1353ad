"""Epsilon non-negative rectification, ENN (LR-JSMF, Algorithm 3), and a faster iteration with the same fixed points.

A step replaces Y Y' by the nearest positive semidefinite matrix of rank K to C_op = Y Y' + E + r w w'. E cancels the
negative entries of Y Y' in the rows and columns of I, the longest rows of Y. r is the mass that is then missing for a
sum of 1, and w its distribution over the words (e / N in the paper). ``printed_step`` is that step, line by line; it is
the only one with ``acceleration="none"``.

Otherwise ``_Momentum.step`` takes over after a few steps. It is a gradient step on the matrices of rank K,
Y <- C_op Y (Y' C_op Y)^(-1/2), with one product by C_op instead of two, and with momentum: convergence is sublinear,
because the gradient of the squared distance to the non-negative matrices vanishes slowly. There are many feasible
points, and too long steps end at another one, so friction is higher than usual (docs/decisions/0010-enn-momentum.md).

E is never stored, only the positions of the negative entries of Y Y_I': 3 to 18 % of them in the first step on text,
1 % at the end. The dense product that finds them takes most of the time, and late steps hardly change them, so three of
four steps with momentum reuse those of the fourth.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.config import Acceleration
from streaming_jsmf.linalg.compiled import compiled, dot
from streaming_jsmf.linalg.eigen import Eigenpairs, with_fixed_signs
from streaming_jsmf.linalg.panels import (
    GRAM_FLOOR,
    each,
    gram,
    inverse_square_root,
    panels,
    rotate,
    single_gram,
)
from streaming_jsmf.linalg.typing import FloatArray, Floats, Integers, Mask, Single
from streaming_jsmf.rectification.result import (
    Rectification,
    change_by_step,
    change_of_grams,
    iterated,
    positive_half,
    scaled_vectors,
)
from streaming_jsmf.storage.large_arrays import large_copy, large_empty, large_zeros

#: Increase when the same moments give other bits; part of the fingerprint of a model.
ALGORITHM_VERSION = 3
#: Printed steps before momentum starts, because the leading directions may change while E is large.
PRINTED_STEPS = 5
#: Friction a of the momentum (t - 1) / (t + a - 1). Nesterov's a = 3 ends farther from the limit of plain iteration.
FRICTION = 5.0
#: Steps with momentum that reuse the positions of the negative entries of an earlier one.
REUSED_STEPS = 3
#: Y' C_op Y is treated as singular if its smallest eigenvalue is below this fraction of the largest.
RANK_FLOOR = 1e-10
#: Rows of Y Y_I' computed at a time, and of N x K arrays updated at a time, so that they stay in the cache.
BLOCK_ROWS, STEP_ROWS = 256, 1024
#: Rows of E multiplied by a thread, a multiple of ``BLOCK_ROWS``. Their contributions to rows I are added in order.
GROUP_ROWS = 2048
#: Columns of the nonzeros of some rows, in CSR form: bounds of the rows, and columns.
Positions: TypeAlias = tuple[Integers, NDArray[Any]]


def papers_rows(n_topics: int) -> int:
    """|I| in the experiments of LR-JSMF."""
    return 10 * n_topics + 1000


def epsilon_nonnegative(
    pairs: Eigenpairs,
    n_topics: int,
    *,
    shares: Floats | None = None,
    checked_words: int | None = None,
    acceleration: Acceleration = "momentum",
    **stopping: Any,
) -> Rectification:
    """ENN from truncated eigenpairs of C; no pass over the data, O(N |I| K) per step.

    The topic correlations A of an unconverged result have a sum far from 1.

    Parameters
    ----------
    pairs : Leading algebraic eigenpairs of C, at least K (more speed up the first steps).
    shares : (N,), sum 1, distribute the missing mass over the words, for example row sums of C; None: uniform, as in
        the paper.
    checked_words : |I|, number of rows of largest norm, or all if there are fewer. None: 10 K + 1000, as in the paper.
    acceleration : ``momentum``, or ``none`` for Algorithm 3 as printed.
    stopping : Keyword arguments of ``iterated``.
    """
    n = pairs.vectors.shape[0]
    shares = np.full(n, 1.0 / n) if shares is None else shares
    occurring = np.asarray(pairs.vectors.any(axis=1))
    # C has no entries for the other words; any missing mass given to them would be corrected away again.
    these = pairs if occurring.all() else Eigenpairs(pairs.values, large_copy(pairs.vectors, rows=occurring))
    size = papers_rows(n_topics) if checked_words is None else checked_words
    operator = _Operator(size, shares[occurring])
    y, vectors = positive_half(these, n_topics), large_copy(these.vectors, np.float32)
    momentum: _Momentum | None = None

    def step(number: int) -> float:
        nonlocal y, vectors, momentum
        change: float | None = None
        if acceleration != "none" and number > PRINTED_STEPS:
            momentum = momentum or _Momentum(y)
            change, y = momentum.step(operator), momentum.y
        if change is None:
            # If a direction was lost, the eigenvectors may contain another one to replace it.
            momentum = None
            y, vectors, change = printed_step(operator, y, vectors)
        return change

    ended = iterated(step, **stopping)
    return _result(y, occurring, operator, ended)


def _result(y: Floats, occurring: Mask, operator: _Operator, ended: dict[str, Any]) -> Rectification:
    """Y with zero rows for words that do not occur, and what its operator has left."""
    # The same Y Y' with orthogonal columns, longest first.
    values, rotation = np.linalg.eigh(gram(y))
    y = with_fixed_signs(values, rotate(y, rotation)).vectors
    outside = np.flatnonzero(_outside_longest(y, operator.size))
    squares = np.concatenate([_squares(y[outside[some]]) for some in panels(outside.size)] or [np.zeros(0)])
    rectified = y
    if len(y) < len(occurring):
        rectified = large_zeros((len(occurring), y.shape[1]))
        rectified[occurring] = y
    return Rectification(
        rectified,
        **ended,
        correction_mass=operator.correction_mass,
        uniform_mass=operator.uniform_mass,
        checked_words=len(y) - len(outside),
        epsilon=float(squares.max(initial=0.0)),
        left_out=float(squares.sum() / np.linalg.norm(values)) if squares.any() else 0.0,
    )


def printed_step(operator: _Operator, y: Floats, vectors: Single) -> tuple[Floats, Single, float]:
    """A step of Algorithm 3 from Y and the eigenvectors of the last one: the new ones, and the change of Y Y'."""
    # E_ij <- max(-Y_i Y_j', 0);  r <- (1 - |Y'e|^2 - sum E) / N^2;  C_op: x -> Y (Y'x) + E x + r (e'x) e
    operator.set(large_copy(y, np.float32))
    # (U, Lambda_K) <- Truncated-Eig(C_op, K)
    values, vectors = _truncated_eig(operator, vectors)
    # Y <- U (Lambda_K^+)^(1/2)
    new = scaled_vectors(values, vectors, y.shape[1])
    return new, vectors, change_of_grams(gram(new), gram(y), gram(new, y))


class _Momentum:
    """Steps with momentum from a Y, which they change."""

    def __init__(self, y: Floats) -> None:
        self.y = y
        # The last change of Y, and the number of steps since the momentum was reset.
        self.moved: Single = large_zeros(y.shape, np.float32)
        self.age = 0
        # Number of steps that have reused the positions of the negative entries.
        self.reused = REUSED_STEPS

    def step(self, operator: _Operator) -> float | None:
        """Y <- C_op Z (Z' C_op Z)^(-1/2) at Z = Y + b (Y - previous Y).

        Returns the relative change from Z Z'; None if a direction was lost, and Y is as it was.
        """
        self.age += 1
        momentum = (self.age - 1) / (self.age + FRICTION - 1)
        z: Single = large_empty(self.moved.shape, np.float32)
        for rows in panels(len(z), STEP_ROWS):
            z[rows] = self.y[rows] + momentum * self.moved[rows]
        reuse = self.reused < REUSED_STEPS
        self.reused = self.reused + 1 if reuse else 0
        operator.set(z, reuse=reuse)
        # C_op Z = Z G + D: the small matrices need only Z'D of D.
        own, step = single_gram(z), operator.corrections(z)
        mixed = single_gram(z, step)
        values, vectors = np.linalg.eigh(own @ own + (mixed + mixed.T) / 2)
        if not values[0] > RANK_FLOOR * values[-1]:
            return None
        # The symmetric root R, so that Y keeps its rotation from one step to the next.
        root = (vectors / np.sqrt(values)) @ vectors.T
        # The step (Z G + D) R - Z equals Z T + D R with small T, so its rounding errors are small too.
        turn = (own @ root - np.eye(len(root))).astype(np.float32)
        ahead = 0.0
        for rows in panels(len(z), STEP_ROWS):
            step[rows] = z[rows] @ turn + step[rows] @ root.astype(np.float32)
            self.moved[rows] = momentum * self.moved[rows] + step[rows]
            self.y[rows] += self.moved[rows]
            ahead += float(np.vdot(step[rows], self.moved[rows]))
        if ahead < 0:
            # The step points back to the previous Y; the momentum would continue uphill.
            self.age = 0
        return change_by_step(own, single_gram(z, step), single_gram(step))


def _truncated_eig(operator: _Operator, vectors: Single) -> tuple[Floats, Single]:
    """Leading eigenpairs of C_op by a power step from those of the previous one, which replaces Lanczos."""
    # Ritz pairs in the span of Z = C_op U, from Z' C_op Z and Z'Z, so that Z need not be orthonormal.
    block = operator.times(vectors)
    # With unit columns, which are nearly orthogonal, the Gram matrix is well conditioned.
    block /= np.maximum(np.sqrt(np.einsum("ij,ij->j", block, block)), np.finfo(np.float32).tiny)
    whiten = inverse_square_root(gram(block), GRAM_FLOOR)
    small = whiten.T @ gram(block, operator.times(block)) @ whiten
    values, rotation = np.linalg.eigh((small + small.T) / 2)
    return values[::-1], rotate(block, whiten @ rotation[:, ::-1])


def _squares(rows: FloatArray) -> Floats:
    """Squared norms of rows."""
    return np.asarray(np.einsum("ij,ij->i", rows, rows))


def _outside_longest(y: FloatArray, size: int) -> Mask:
    """Whether each row of Y is not among the ``size`` longest. Ties go to the lowest id."""
    outside = np.ones(len(y), np.bool_)
    outside[np.argsort(-_squares(y), kind="stable")[:size]] = False
    return outside


class _Operator:
    """C_op of Algorithm 3 for a Y: X -> Y (Y'X) + E X + r w (w'X), with E_ij = max(-Y_i Y_j', 0) if i or j is in I.

    The sum of E, ``correction_mass``, and r, ``uniform_mass``, are those of the last product. No bits depend on the
    threads of ``panels.panel_threads``.
    """

    y: Single
    outside: Mask
    checked: Integers

    def __init__(self, size: int, shares: Floats) -> None:
        self.size, self.shares = size, shares.astype(np.float32)[:, None]
        self.positions: list[Positions] = []
        self.correction_mass = self.uniform_mass = 0.0

    def set(self, y: Single, *, reuse: bool = False) -> None:
        """Use Y = ``y``; with ``reuse``, keep I, and compute E only where the last Y Y_I' was negative."""
        self.y = y
        if reuse:
            return
        # Free the memory of the old ones first.
        self.positions.clear()
        self.outside = _outside_longest(y, self.size)
        self.checked = np.flatnonzero(~self.outside)
        columns, width = np.ascontiguousarray(y[self.checked].T), self.checked.size
        kind = np.uint16 if width < 1 << 16 else np.uint32

        def negative(rows: slice) -> Positions:
            places = np.flatnonzero(y[rows] @ columns < 0)
            bounds = np.searchsorted(places, width * np.arange(rows.stop - rows.start + 1))
            return bounds, (places % width).astype(kind)

        self.positions.extend(each(negative, panels(len(y), BLOCK_ROWS)))

    def times(self, x: Single) -> Single:
        """C_op X for X N x c."""
        product = self.corrections(x)
        small = gram(self.y, x).astype(np.float32)
        product += np.matmul(self.y, small, out=large_empty(x.shape, np.float32))
        return product

    def corrections(self, x: Single) -> Single:
        """(E + r w w') X. E is symmetric, so its rows outside I also contribute to the rows I."""
        others, right, product = self.y[self.checked], x[self.checked], large_zeros(x.shape, np.float32)
        mirrored, total = np.zeros(right.shape), 0.0

        def group(rows: slice) -> tuple[Single, float]:
            part, mass = np.zeros_like(right), 0.0
            for start in range(rows.start, rows.stop, BLOCK_ROWS):
                block = slice(start, min(start + BLOCK_ROWS, rows.stop))
                bounds, columns = self.positions[start // BLOCK_ROWS]
                rest = self.outside[block], product[block], part
                mass += add_corrections(bounds, columns, self.y[block], others, x[block], right, *rest)
            return part, mass

        for part, mass in each(group, panels(len(x), GROUP_ROWS)):
            mirrored += part
            total += mass
        product[self.checked] += mirrored
        self.correction_mass = total
        self.uniform_mass = 1.0 - float(np.sum(self.y.sum(axis=0, dtype=np.float64) ** 2)) - total
        added = (self.uniform_mass * single_gram(self.shares, x)).astype(np.float32)
        for rows in panels(len(x), STEP_ROWS):
            product[rows] += self.shares[rows] * added
        return product


@compiled(nogil=True)
def add_corrections(
    bounds: Integers,
    columns: NDArray[Any],
    rows: Single,
    others: Single,
    given: Single,
    right: Single,
    outside: Mask,
    product: Single,
    mirrored: Single,
) -> float:
    """Add E_b X_I to ``product`` and, for rows outside I, E_b' X_b to ``mirrored``; return their part of sum(E).

    E_b = max(-Y_b Y_I', 0) at the positions of a CSR matrix, |b| x |I|, and 0 elsewhere. ``rows`` is Y_b, ``others``
    Y_I, ``given`` X_b and ``right`` X_I, all in C order.
    """
    total, depth, width = 0.0, rows.shape[1], given.shape[1]
    for i in range(bounds.size - 1):
        row, own, out, times = rows[i], given[i], product[i], 1.0 + outside[i]
        for k in range(bounds[i], bounds[i + 1]):
            j = columns[k]
            entry = -dot(row, others[j], depth)
            if entry > 0:
                total += times * entry
                vector, mirror = right[j], mirrored[j]
                for column in range(width):
                    out[column] += entry * vector[column]
                if outside[i]:
                    for column in range(width):
                        mirror[column] += entry * own[column]
    return total
