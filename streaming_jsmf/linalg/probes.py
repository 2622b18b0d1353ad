"""Random probes from a counter-based generator: any block of rows can be made anywhere, in any order."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

#: Rows drawn from one counter position. Part of the bits: another value gives other probes.
ROWS_PER_COUNTER = 8192


def gaussian_probes(n_words: int, width: int, seed: int, label: str) -> NDArray[np.float32]:
    """Standard normal test matrix Omega of Halko et al. (2011), a pure function of its arguments.

    Parameters
    ----------
    n_words, width
        Shape of the result.
    seed
        The user's seed.
    label
        What the probes are for, such as the content hash of a partition: other labels give
        independent probes. A partition's probes must not depend on its place among the others.

    Returns
    -------
    (n_words, width) float32
    """
    digest = hashlib.sha256(f"{seed}:{label}".encode()).digest()
    key = np.frombuffer(digest[:16], dtype=np.uint64)
    probes = np.empty((n_words, width), dtype=np.float32)
    for block, start in enumerate(range(0, n_words, ROWS_PER_COUNTER)):
        # The two high words of the counter name the block; the low ones are the generator's own.
        counter = np.array([0, 0, block, 0], dtype=np.uint64)
        generator = np.random.Generator(np.random.Philox(key=key, counter=counter))
        rows = probes[start : start + ROWS_PER_COUNTER]
        generator.standard_normal(out=rows, dtype=np.float32)
    return probes
