"""Matrices with spectra of several kinds, for rectifications."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.linalg.eigen import Eigenpairs
from tests import reference
from tests.corpora import planted

Floats = NDArray[np.float64]

#: Topics of each matrix.
K = 4


def exact_low_rank(n_words: int = 80) -> Floats:
    """B A B' of separable topics: rank K, non-negative, sum 1."""
    rng = np.random.default_rng(6)
    b = rng.dirichlet(np.full(n_words, 0.3), size=K).T
    b[:K] = np.diag(rng.uniform(0.05, 0.1, K))
    b /= b.sum(axis=0)
    theta = rng.dirichlet(np.full(K, 0.3), size=300)
    return b @ (theta.T @ theta / 300) @ b.T


def slow_decay(n_words: int = 90) -> Floats:
    """An indefinite matrix with eigenvalues of order 1 / j and noise."""
    rng = np.random.default_rng(7)
    left, _ = np.linalg.qr(np.abs(rng.standard_normal((n_words, n_words))))
    c = np.maximum((left / np.arange(1, n_words + 1)) @ left.T + 0.005, 0)
    return c / c.sum()


SPECTRA = {
    "low rank": exact_low_rank,
    "clean topics": lambda: reference.cooccurrence(planted(300, 90, K, seed=3).counts),
    "negative tail": lambda: reference.cooccurrence(planted(400, 70, K, length=4, seed=4).counts),
    "no gap": lambda: reference.cooccurrence(planted(80, 80, 6, length=25, seed=5).counts),
    "slow decay": slow_decay,
}


def pairs_of(c: Floats, count: int = K + 10) -> Eigenpairs:
    exact = reference.truncated_eig(c, count)
    return Eigenpairs(exact.values, exact.vectors)
