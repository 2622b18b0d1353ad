"""Eigenpairs as in the published code of the authors of LR-JSMF (`randEig`, footnote 5 of the paper).

2 K random probes are multiplied by C with a shift, orthonormalized, and multiplied T more times; T is 50 in their code.
The small matrix comes from the first product by least squares, its eigenvectors from the range of the last.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_sylvester

from streaming_jsmf.linalg.eigen import Eigenpairs

Floats = NDArray[np.float64]
Times = Callable[[Floats], Floats]

#: Power iterations T of their code.
ITERATIONS = 50

#: Multiplications that estimate the largest eigenvalue, and the share of it by which C is shifted.
ESTIMATING, SHIFT = 20, 0.1


def shift_of(times: Times, size: int) -> float:
    """A tenth of the largest eigenvalue of C, so that the negative ones do not lead."""
    vector = np.random.default_rng(0).standard_normal((size, 1))
    for _ in range(ESTIMATING):
        vector = times(vector / np.linalg.norm(vector))
    return SHIFT * float(np.linalg.norm(vector))


def rand_eig(times: Times, size: int, n_topics: int, iterations: int, seed: int, shift: float) -> Eigenpairs:
    """2 K eigenpairs of C (size x size), given as its product with a block of columns."""
    probes = np.random.default_rng(seed).standard_normal((size, 2 * n_topics))
    sketch = times(probes) + shift * probes
    q = np.linalg.qr(sketch).Q
    for _ in range(iterations):
        q = np.linalg.qr(times(q) + shift * q).Q
    m, n = q.T @ probes, q.T @ sketch
    b = solve_sylvester(m @ m.T, m @ m.T, n @ m.T + m @ n.T)
    values, rotation = np.linalg.eigh((b + b.T) / 2)
    return Eigenpairs(np.maximum(values[::-1] - shift, 0.0), q @ rotation[:, ::-1])
