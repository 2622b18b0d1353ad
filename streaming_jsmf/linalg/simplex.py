"""Least squares over the probability simplex, for many rows and one set of vertices.

Step 3 of Algorithms 1 and 5 of LR-JSMF (Lee et al., ICML 2021) writes each word as the nearest convex combination of
the anchor words. The paper uses exponentiated gradient; this primal active-set method finds the same minimum to
rounding error, with a certificate for each row.

min_b ||x - V'b||^2 subject to b >= 0 and sum(b) = 1 depends only on G = V V' and c = V x; half its gradient is
g = G b - c. The *passive* vertices are those of positive weight, at first the nearest vertex. Each step adds the vertex
whose gradient is farthest below the mean b'g and moves to the minimum over the affine hull of the passive vertices;
where a weight becomes zero on the way, its vertex leaves and the direction is computed again.

P is the block of the passive vertices in G + s e e'. The shift s changes the objective on the simplex by a constant
only, and makes P positive definite if the vertices are *affinely* independent. W, with W P W' = 1, is the inverse of
its lower Cholesky factor. It is in ``inverse[:size, :size]``, with the vertices in the order of ``passive[:size]`` and
the row sums W e in ``totals``. Unlike triangular solves, products with W have no chain of divisions, and rotations of
its rows remove a vertex. All loops access memory contiguously.

No BLAS is used and rows are independent, so on one machine the bits depend only on the row and the vertices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from streaming_jsmf.linalg.compiled import compiled, dot
from streaming_jsmf.linalg.panels import on_each, panel_threads
from streaming_jsmf.linalg.typing import Floats, Integers, Mask
from streaming_jsmf.storage.large_arrays import large_zeros

BLOCK_ROWS = 1024
#: Differences of g below this fraction of ||x||^2 + ||v||^2 are rounding errors.
ROUNDING = 2e-14
#: Smallest squared pivot of a vertex, relative to its diagonal entry in P; see ``_append``.
SMALLEST_PIVOT = 1e-10


@dataclass(frozen=True)
class SimplexSolution:
    """Convex combinations and their certificates.

    ``weights`` are N x K with non-negative rows of sum 1. ``gap`` (N,) is the Frank-Wolfe gap 2 (b'g - min g):
    ||x_i - V'b_i||^2 is at most gap_i above its minimum.
    """

    weights: Floats
    gap: Floats


def simplex_least_squares(
    X: ArrayLike, vertices: ArrayLike, *, block_rows: int = BLOCK_ROWS, threads: int | None = None
) -> SimplexSolution:
    """Minimize ||x_i - V'b_i||^2 over the probability simplex for every row x_i of X.

    X is N x d and may be float32 and memory-mapped, because blocks of ``block_rows`` rows are converted to float64 one
    at a time; V (``vertices``) is K x d. ``threads`` blocks are solved in parallel (None: one per processor). The
    result does not depend on either. Raises ``ValueError`` if entries are not finite.
    """
    rows, corners = np.asarray(X), np.ascontiguousarray(vertices, dtype=np.float64)
    if not np.isfinite(corners).all():
        raise ValueError("vertices has entries that are not finite")
    n_rows, n_vertices = rows.shape[0], corners.shape[0]
    weights, gap = large_zeros((n_rows, n_vertices)), np.empty(n_rows)
    columns = np.ascontiguousarray(corners.T)
    gram = np.empty((n_vertices, n_vertices))
    # The same loop as for c = V x, so that a row equal to a vertex has identical inner products.
    inner_products(corners, columns, gram)

    def solve(start: int) -> None:
        part = slice(start, start + block_rows)
        block = np.ascontiguousarray(rows[part], dtype=np.float64)
        if not np.isfinite(block).all():
            raise ValueError(f"X has entries that are not finite in rows {start} to {start + len(block) - 1}")
        linear = np.empty((len(block), n_vertices))
        inner_products(block, columns, linear)
        squares = np.einsum("ij,ij->i", block, block)
        solve_rows(gram, linear, squares, weights[part], gap[part])

    with panel_threads(threads):
        on_each(solve, range(0, n_rows, block_rows))
    return SimplexSolution(weights, gap)


@compiled(nogil=True)
def inner_products(rows: Floats, columns: Floats, out: Floats) -> None:
    """Set ``out`` to rows @ columns for rows (n x d) and columns (d x K), summed over d in ascending order."""
    for i in range(rows.shape[0]):
        for k in range(columns.shape[1]):
            out[i, k] = 0.0
        for j in range(rows.shape[1]):
            value = rows[i, j]
            for k in range(columns.shape[1]):
                out[i, k] += value * columns[j, k]


@compiled(nogil=True)
def solve_rows(gram: Floats, linear: Floats, squares: Floats, weights: Floats, gap: Floats) -> None:
    """Solve n rows, given c (``linear``, n x K) and ||x||^2 (``squares``); ``weights`` is 0 on entry."""
    n_vertices = gram.shape[0]
    inverse = np.empty((n_vertices, n_vertices))
    work = np.empty((5, n_vertices))
    gradient, totals = work[3], work[4]
    passive = np.empty(n_vertices, dtype=np.int64)
    tried = np.empty(n_vertices, dtype=np.bool_)
    for row in range(linear.shape[0]):
        b = weights[row]
        shift = _start(gram, linear[row], squares[row], inverse, totals, passive, b)
        # Numba would compile the functions below twice if the literal 1 were assigned.
        size = np.int64(1)
        level = _differentiate(gram, linear[row], passive, size, b, gradient)
        tried[:] = False
        # Few vertices enter more than once; the bound only stops cycling due to rounding.
        for _ in range(10 * n_vertices + 100):
            entering = _steepest(gram, gradient, level, squares[row], b, tried)
            if entering < 0:
                break
            if b[entering] == 0.0:
                size = _append(gram, shift, inverse, totals, passive, size, entering, work)
            size = _minimize(inverse, totals, passive, size, b, gradient, level, work)
            level = _differentiate(gram, linear[row], passive, size, b, gradient)
            # A vertex that leaves in the step in which it entered must wait for another one.
            if b[entering] > 0.0:
                tried[:] = False
            else:
                tried[entering] = True
        gap[row] = _gap(gradient, level)


@compiled(nogil=True, internal=True)
def _gap(gradient: Floats, level: float) -> float:
    """Frank-Wolfe gap 2 (b'g - min g)."""
    least = level
    for k in range(gradient.size):
        least = min(least, gradient[k])
    return float(2.0 * (level - least))


@compiled(nogil=True, internal=True)
def _start(
    gram: Floats,
    linear: Floats,
    square: float,
    inverse: Floats,
    totals: Floats,
    passive: Integers,
    weights: Floats,
) -> float:
    """Give all weight to the nearest vertex (of equal ones the first), the only passive one; return the shift s."""
    nearest = 0
    for k in range(1, gram.shape[0]):
        if 0.5 * gram[k, k] - linear[k] < 0.5 * gram[nearest, nearest] - linear[nearest]:
            nearest = k
    weights[nearest] = 1.0
    passive[0] = nearest
    shift = square + gram[nearest, nearest]
    if shift == 0.0:
        shift = 1.0
    inverse[0, 0] = totals[0] = 1.0 / np.sqrt(gram[nearest, nearest] + shift)
    return float(shift)


@compiled(nogil=True, internal=True)
def _differentiate(
    gram: Floats, linear: Floats, passive: Integers, size: int, weights: Floats, gradient: Floats
) -> float:
    """Scale the weights to sum 1 and set ``gradient`` to g = G b - c; return its mean b'g."""
    total = 0.0
    for i in range(size):
        total += weights[passive[i]]
    for i in range(size):
        weights[passive[i]] /= total
    for k in range(gradient.size):
        gradient[k] = -linear[k]
    for i in range(size):
        weight, row = weights[passive[i]], gram[passive[i]]
        for k in range(gradient.size):
            gradient[k] += weight * row[k]
    level = 0.0
    for i in range(size):
        level += weights[passive[i]] * gradient[passive[i]]
    return level


@compiled(nogil=True, internal=True)
def _steepest(
    gram: Floats, gradient: Floats, level: float, square: float, weights: Floats, tried: Mask
) -> int:
    """Vertex whose weight promises the steepest descent beyond rounding, or -1; passive ones may also lose weight."""
    best = -1
    steepest = 0.0
    for k in range(gradient.size):
        descent = level - gradient[k] if weights[k] == 0.0 else abs(level - gradient[k])
        if descent > steepest and descent > ROUNDING * (square + gram[k, k]) and not tried[k]:
            best = k
            steepest = descent
    return best


@compiled(nogil=True, internal=True)
def _append(
    gram: Floats,
    shift: float,
    inverse: Floats,
    totals: Floats,
    passive: Integers,
    size: int,
    vertex: int,
    work: Floats,
) -> int:
    """Add a vertex to the passive set, and its row to W; return the new size."""
    # The pivot of a vertex that (nearly) depends on the others is raised. Steps then assume too large a curvature and
    # stop short of the minimum, but still descend, and further steps follow.
    column, product, row = work[0], work[1], inverse[size]
    for i in range(size):
        column[i] = gram[vertex, passive[i]] + shift
    _multiply(inverse, size, column, product)
    _multiply_transposed(inverse, size, product, row)
    square = gram[vertex, vertex] + shift
    pivot = square
    total = 1.0
    for i in range(size):
        pivot -= product[i] * product[i]
        total -= product[i] * totals[i]
    scale = 1.0 / np.sqrt(max(pivot, SMALLEST_PIVOT * square))
    for j in range(size):
        row[j] *= -scale
    row[size] = scale
    totals[size] = scale * total
    passive[size] = vertex
    return size + 1


@compiled(nogil=True, internal=True)
def _remove(inverse: Floats, totals: Floats, passive: Integers, size: int, place: int) -> int:
    """Remove the vertex at ``place`` from the passive set, and its column from W; return the new size."""
    # Rotations of rows i and i + 1 move this column into the last row, which is then dropped.
    for i in range(place, size - 1):
        upper, lower = inverse[i], inverse[i + 1]
        radius = np.hypot(upper[place], lower[place])
        cosine = lower[place] / radius
        sine = upper[place] / radius
        upper[i + 1] = 0.0
        for j in range(i + 2):
            value = upper[j]
            upper[j] = cosine * value - sine * lower[j]
            lower[j] = sine * value + cosine * lower[j]
        value = totals[i]
        totals[i] = cosine * value - sine * totals[i + 1]
        totals[i + 1] = sine * value + cosine * totals[i + 1]
    for i in range(place, size - 1):
        passive[i] = passive[i + 1]
        for j in range(place, i + 1):
            inverse[i, j] = inverse[i, j + 1]
    return size - 1


@compiled(nogil=True, internal=True)
def _minimize(
    inverse: Floats,
    totals: Floats,
    passive: Integers,
    size: int,
    weights: Floats,
    gradient: Floats,
    level: float,
    work: Floats,
) -> int:
    """Minimize over the passive vertices; remove those whose weight becomes zero and return the new size."""
    residual, product, step = work[0], work[1], work[2]
    for i in range(size):
        residual[i] = level - gradient[passive[i]]
    while True:
        # P step = residual + a e, with the a for which the step sums to zero.
        _multiply(inverse, size, residual, product)
        above = 0.0
        below = 0.0
        for i in range(size):
            above += totals[i] * product[i]
            below += totals[i] * totals[i]
        for i in range(size):
            product[i] -= above / below * totals[i]
        _multiply_transposed(inverse, size, product, step)
        length, blocking = _blocked(passive, size, step, weights)
        for i in range(size):
            weights[passive[i]] = max(0.0, weights[passive[i]] + length * step[i])
        if blocking < 0:
            return size
        # On the way to the minimum the residual decreases in proportion, up to a constant.
        for i in range(size):
            residual[i] *= 1.0 - length
        for i in range(blocking, size - 1):
            residual[i] = residual[i + 1]
        weights[passive[blocking]] = 0.0
        size = _remove(inverse, totals, passive, size, blocking)


@compiled(nogil=True, internal=True)
def _multiply(inverse: Floats, size: int, right: Floats, out: Floats) -> None:
    """Set ``out`` to W right."""
    for i in range(size):
        out[i] = dot(inverse[i], right, i + 1)


@compiled(nogil=True, internal=True)
def _multiply_transposed(inverse: Floats, size: int, right: Floats, out: Floats) -> None:
    """Set ``out`` to W'right."""
    for i in range(size):
        value = right[i]
        for j in range(i):
            out[j] += value * inverse[i, j]
        out[i] = value * inverse[i, i]


@compiled(nogil=True, internal=True)
def _blocked(passive: Integers, size: int, step: Floats, weights: Floats) -> tuple[float, int]:
    """Fraction of ``step`` until a weight becomes zero, and the position of that weight, or -1 for the full step."""
    length = 1.0
    blocking = -1
    for i in range(size):
        weight = weights[passive[i]]
        if weight <= -length * step[i]:
            length = -weight / step[i] if weight > 0.0 else 0.0
            blocking = i
    return length, blocking
