"""PALM rectification (LR-JSMF, Algorithm 4) and its inertial version (Pock and Sabach 2016).

Minimizes J = ||C - X Y'||_F^2 / 2 + s ||X - Y||_F^2 / 2 over X, Y >= 0 by alternating proximal gradient steps. Only C
X, C Y and the norm of C are needed, so C can be the full matrix, F F' - D or V D V'.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from streaming_jsmf.linalg.eigen import Eigenpairs, multiply
from streaming_jsmf.linalg.panels import gram, panels
from streaming_jsmf.linalg.typing import FloatArray, Floats
from streaming_jsmf.rectification.result import Rectification, change_of_grams, iterated, positive_half

#: The step size is 1 / (GAMMA L) for the Lipschitz constant L of the gradient.
GAMMA = 1.005
#: s, the penalty on the difference between X and Y.
PENALTY = 1e-4


@dataclass(frozen=True)
class SymmetricOperator:
    """A symmetric matrix C: ``multiply`` maps X (N x k) to C X; ``squared_norm`` is ||C||_F^2."""

    multiply: Callable[[Floats], Floats]
    squared_norm: float


def matrix_operator(matrix: Floats) -> SymmetricOperator:
    """The operator of C, N x N."""
    return SymmetricOperator(lambda x: multiply(matrix, x), float(np.vdot(matrix, matrix)))


def factor_operator(factor: FloatArray, diagonal: Floats) -> SymmetricOperator:
    """The operator of F F' - diag(D) for F (N x L) and D (N,), the result of a scan without the complete C."""

    def apply(x: Floats) -> Floats:
        inner, product = gram(factor, x), np.empty_like(x)
        for rows in panels(factor.shape[0]):
            product[rows] = factor[rows].astype(np.float64) @ inner - diagonal[rows, None] * x[rows]
        return product

    squares = np.einsum("ij,ij->i", factor, factor, dtype=np.float64)
    cross = 2.0 * float(diagonal @ squares)
    return SymmetricOperator(apply, float(np.sum(gram(factor) ** 2)) - cross + float(diagonal @ diagonal))


def eigen_operator(pairs: Eigenpairs) -> SymmetricOperator:
    """The operator of V D V'."""
    return SymmetricOperator(
        lambda x: pairs.vectors @ (pairs.values[:, None] * (pairs.vectors.T @ x)),
        float(np.sum(pairs.values**2)),
    )


@dataclass(frozen=True)
class _Point:
    """X and Y (both N x K, non-negative after the first step), C Y, and J."""

    x: Floats
    y: Floats
    product: Floats
    objective: float


def palm(
    operator: SymmetricOperator,
    pairs: Eigenpairs,
    n_topics: int,
    *,
    inertial: bool = False,
    **stopping: Any,
) -> Rectification:
    """PALM from truncated eigenpairs of C: two multiplications by C per step. J never rises after the first step.

    Y is non-negative, so Y Y' needs no epsilon. Convergence is slow: check ``converged``. J is returned as
    ``objective``. With ``inertial``, each step is extrapolated from the last two points, unless that raises J.
    ``pairs`` are the leading algebraic eigenpairs of C, at least K; ``stopping`` are keyword arguments of ``iterated``.
    """
    half = positive_half(pairs, n_topics)
    # The sign of an eigenvector is arbitrary; choose it so that projection keeps the longer part of each column.
    kept = np.sum(np.maximum(half, 0.0) ** 2, axis=0)
    lost = np.sum(np.minimum(half, 0.0) ** 2, axis=0)
    half = half * np.where(lost > kept, -1.0, 1.0)
    # The start has negative entries and is not feasible, so its J is infinite.
    before = point = _Point(half, half, operator.multiply(half), np.inf)
    age = 1

    def step(number: int) -> float:
        nonlocal before, point, age
        inertia = (age - 1) / (age + 2) if inertial else 0.0
        new = _step(operator, point, before, inertia)
        if inertia > 0 and new.objective > point.objective:
            new, age = _step(operator, point, before, 0.0), 0
        change = change_of_grams(new.y.T @ new.y, point.y.T @ point.y, new.y.T @ point.y)
        # The first point is not feasible, so do not extrapolate from it.
        before, point, age = (point if number > 1 else new), new, age + 1
        return change

    ended = iterated(step, **stopping)
    return Rectification(point.y, **ended, objective=float(point.objective))


def _step(operator: SymmetricOperator, point: _Point, before: _Point, inertia: float) -> _Point:
    x = _proximal(point.x, before.x, point.y, point.product, inertia)
    product = operator.multiply(x)
    y = _proximal(point.y, before.y, x, product, inertia)
    fit = operator.squared_norm - 2 * float(np.vdot(product, y)) + float(np.sum(gram(x) * gram(y)))
    objective = (fit + PENALTY * float(np.sum((x - y) ** 2))) / 2
    return _Point(x, y, operator.multiply(y), objective)


def _proximal(own: Floats, before: Floats, other: Floats, product: Floats, inertia: float) -> Floats:
    """Step of X or Y, extrapolated by ``inertia``; ``product`` is C times the other one."""
    start = own + inertia * (own - before) if inertia else own
    curvature = gram(other)
    step = 1.0 / (GAMMA * (float(np.linalg.eigvalsh(curvature)[-1]) + PENALTY))
    gradient = start @ curvature - product + PENALTY * (start - other)
    return np.maximum(start - step * gradient, 0.0)
