"""Exact moments of a small law, and tensors of given components, for the tensor engine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.inference.stod import cube
from streaming_jsmf.linalg.tensor import BasisMoments
from tests.reference_stod import Moments

Floats = NDArray[np.float64]

#: Prior of the exact moments.
ALPHA = np.array([0.9, 0.6, 0.3, 0.2])


def law(n_words: int = 40) -> Floats:
    return np.random.default_rng(1).dirichlet(np.full(n_words, 0.3), size=ALPHA.size).T


def in_basis(exact: Moments, basis: Floats) -> BasisMoments:
    third = np.einsum("xyz,xi,yj,zk->ijk", exact.third, basis, basis, basis, optimize=True)
    i, j, k = np.indices(third.shape)
    return BasisMoments(basis, exact.first, exact.second @ basis, third[(i <= j) & (j <= k)])


def tensor_of(values: Floats, vectors: Floats) -> Floats:
    return np.asarray(sum(value * cube(vector) for value, vector in zip(values, vectors.T, strict=True)))
