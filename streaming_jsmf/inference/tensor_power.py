"""Components of a symmetric, nearly orthogonal tensor: the power method with deflation (lines 1.6 to 1.16)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.linalg.probes import keyed_generator
from streaming_jsmf.linalg.tensor import pair_products
from streaming_jsmf.linalg.typing import Floats, Single

#: A restart stops when a step moves it less than this; only the best one is polished. Restarts use float32, which
#: halves their time.
RESTART_TOLERANCE = 1e-4

#: The best restart is iterated until a step moves it less than this, or this many times.
POLISH_TOLERANCE, POLISH_STEPS = 1e-12, 5000

Float = TypeVar("Float", np.float32, np.float64)


@dataclass(frozen=True)
class Components:
    """T ~ sum over t of ``values[t]`` v_t (x) v_t (x) v_t, in the order in which the components were found.

    ``values`` (k,) are non-negative, ``vectors`` (k, k) have unit columns v_t, and ``largest_step`` is the largest last
    step of a polished vector.
    """

    values: Floats
    vectors: Floats
    largest_step: float


def decompose(
    tensor: Floats, *, restarts: int, iterations: int, seed: int, tolerance: float = POLISH_TOLERANCE
) -> Components:
    """Find as many components as the width of the symmetric k x k x k tensor, the strongest first.

    The active restarts of a component form one matrix, so a step is one product. At most k x ``iterations`` x
    ``restarts`` x k^3 / 2 multiplications. The best restart is iterated until a step moves it by less than
    ``tolerance``; the error of its value is then about ``tolerance`` squared.
    """
    k = tensor.shape[0]
    random = keyed_generator(seed, 0)
    # Rows T(i, j, :), i <= j, in the order of ``_pairs``, times their multiplicity in T, so that T(I, v, v) is their
    # product with the pairs of v.
    j, i = np.tril_indices(k)
    multiplicity = np.where(i == j, 1.0, 2.0)
    rest = tensor[i, j] * multiplicity[:, None]
    values, vectors, largest = np.zeros(k), np.zeros((k, k)), 0.0
    for t in range(k):
        start = _best_start(rest.astype(np.float32), random.standard_normal((restarts, k)), iterations)
        vector, step = _polished(rest, start, tolerance)
        value = float((_step(rest, vector) @ vector.T)[0, 0])
        rest -= (value * multiplicity * _pairs(vector)[0])[:, None] * vector[0]
        values[t], vectors[:, t], largest = value, vector[0], max(largest, step)
    return Components(values, vectors, largest)


def _pairs(rows: NDArray[Float]) -> NDArray[Float]:
    """v_i v_j of each row v, i <= j."""
    k = rows.shape[1]
    products = np.empty((len(rows), k * (k + 1) // 2), rows.dtype)
    pair_products(rows, rows, 0, 0, k, products)
    return products


def _step(rest: NDArray[Float], rows: NDArray[Float]) -> NDArray[Float]:
    """T(I, v, v) for each row v."""
    return np.asarray(_pairs(rows) @ rest)


def _best_start(rest: Single, starts: Floats, steps: int) -> Floats:
    """Iterate each row until it converges; return the one with the largest T(v, v, v), 1 x k."""
    rows = _unit(starts).astype(np.float32)
    moving = np.arange(len(rows))
    for _ in range(steps):
        following = _unit(_step(rest, rows[moving]))
        moved = np.abs(following - rows[moving]).max(axis=1)
        rows[moving] = following
        moving = moving[moved >= RESTART_TOLERANCE]
        if not moving.size:
            break
    best = int(np.argmax(np.einsum("ri,ri->r", _step(rest, rows), rows)))
    return rows[best : best + 1].astype(np.float64)


def _unit(rows: NDArray[Float]) -> NDArray[Float]:
    lengths = np.sqrt(np.einsum("ri,ri->r", rows, rows))
    # A zero tensor maps everything to zero.
    lengths[lengths == 0] = 1
    return np.asarray(rows / lengths[:, None])


def _polished(rest: Floats, vector: Floats, tolerance: float) -> tuple[Floats, float]:
    """Iterate a vector (1 x k) until it converges; also return the length of its last step."""
    moved = 0.0
    for _ in range(POLISH_STEPS):
        following = _unit(_step(rest, vector))
        moved = float(np.linalg.norm(following - vector))
        vector = following
        if moved < tolerance:
            break
    return vector, moved


def refine(tensor: Floats, components: Components, sweeps: int) -> Components:
    """Fit T by components that need not be orthogonal: alternating least squares from those of ``decompose``.

    Each sweep solves for one factor with the other two fixed and uses it for all three, until the vectors converge or
    ``sweeps`` is reached. This improves the fit of the tensor, but not necessarily the topics.
    """
    k = tensor.shape[0]
    flat = tensor.reshape(k, k * k)
    values, vectors = components.values.copy(), components.vectors.copy()
    moved = 0.0
    for _ in range(sweeps):
        products = (vectors[:, None, :] * vectors[None, :, :]).reshape(k * k, -1)
        gram = (vectors.T @ vectors) ** 2
        # A repeated component makes this singular.
        solved = flat @ products @ np.linalg.pinv(gram, hermitian=True)
        values = np.linalg.norm(solved, axis=0)
        following = solved / np.where(values > 0, values, 1.0)
        moved = float(np.linalg.norm(following - vectors, axis=0).max(initial=0.0))
        vectors = following
        if moved < POLISH_TOLERANCE:
            break
    return Components(values, vectors, moved)
