"""Sums of cubes by slabs against sums written out, at widths around those of a slab and of its halves."""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from streaming_jsmf.linalg.tensor import ROW_BLOCK, SLAB, CubeSum, packed_size, unpacked

#: Halves of one slab less one column, of whole slabs, of one column more; and those without a second half.
WIDTHS = (0, 1, 2, 3, SLAB - 1, SLAB, SLAB + 1, 2 * SLAB - 1, 2 * SLAB, 2 * SLAB + 1, 4 * SLAB + 3)


def rows_of(n: int, width: int, dtype: type[np.floating[Any]] = np.float64, seed: int = 0) -> NDArray[Any]:
    return np.random.default_rng(seed).standard_normal((n, width)).astype(dtype)


def in_order(tensor: NDArray[np.float64]) -> NDArray[np.float64]:
    """The packed form, an entry at a time."""
    entries = combinations_with_replacement(range(len(tensor)), 3)
    return np.array([tensor[entry] for entry in entries])


@pytest.mark.parametrize("width", WIDTHS)
def test_cubes_are_those_of_the_definition(width: int) -> None:
    rows, weights = rows_of(9, width), rows_of(9, 1, seed=1)[:, 0]
    total = CubeSum(width, np.float64)
    total.add_cubes(rows[:4], weights[:4])
    total.add_cubes(rows[4:], weights[4:])
    exact = np.einsum("xi,xj,xk,x->ijk", rows, rows, rows, weights)
    packed = total.packed()
    assert packed.shape == (packed_size(width),)
    np.testing.assert_allclose(packed, in_order(exact), atol=1e-13)
    np.testing.assert_allclose(unpacked(packed, width), exact, atol=1e-13)


@pytest.mark.parametrize("width", WIDTHS)
def test_mixed_products_are_those_of_the_definition(width: int) -> None:
    q, f = rows_of(9, width), rows_of(9, width, seed=1)
    total = CubeSum(width, np.float64)
    total.add_mixed(q, f)
    exact = sum(np.einsum("xi,xj,xk->ijk", *three) for three in ((f, q, q), (q, f, q), (q, q, f)))
    np.testing.assert_allclose(total.packed(), in_order(np.asarray(exact)), atol=1e-13)


@pytest.mark.parametrize("n", [0, 1, ROW_BLOCK - 1, ROW_BLOCK, ROW_BLOCK + 1, 2 * ROW_BLOCK + 1])
def test_no_summand_is_lost_between_blocks(n: int) -> None:
    rows, weights = rows_of(n, 5), rows_of(n, 1, seed=1)[:, 0]
    total = CubeSum(5, np.float64)
    total.add_cubes(rows, weights)
    exact = np.einsum("xi,xj,xk,x->ijk", rows, rows, rows, weights)
    np.testing.assert_allclose(unpacked(total.packed(), 5), exact, atol=1e-11)


def test_products_are_single_and_sums_double() -> None:
    rows, weights = rows_of(40 * ROW_BLOCK, 6, np.float32), np.ones(40 * ROW_BLOCK)
    exact, found = CubeSum(6, np.float64), CubeSum(6, np.float32)
    exact.add_cubes(rows.astype(np.float64), weights)
    found.add_cubes(rows, weights)
    error = np.linalg.norm(found.packed() - exact.packed()) / np.linalg.norm(exact.packed())
    assert 1e-10 < error < 1e-6
    # One summand that float32 would lose beside the rest, each in a block of its own.
    large, small = np.full((1, 1), 2.0**8, np.float32), np.ones((1, 1), np.float32)
    found = CubeSum(1, np.float32)
    found.add_cubes(large, np.array([2.0**8]))
    found.add_cubes(small, np.ones(1))
    assert found.packed()[0] == 2.0**32 + 1
