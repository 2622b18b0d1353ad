"""Random probes from a counter-based generator: any block of rows can be made anywhere, in any order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

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
    probes = np.empty((n_words, width), dtype=np.float32)
    for rows, bits in _blocks(probes, seed, label):
        np.random.Generator(bits).standard_normal(out=rows, dtype=np.float32)
    return probes


def uniform_probes(n_words: int, width: int, seed: int, label: str) -> NDArray[np.float32]:
    """Test matrix of independent entries, uniform over the odd multiples of 2^-8 in (-1, 1).

    As good as a normal one where power steps follow, at a seventh of the time; the arguments are those of
    ``gaussian_probes``. Not signs: a small square matrix of signs is often singular.

    Returns
    -------
    (n_words, width) float32
    """
    probes = np.empty((n_words, width), dtype=np.float32)
    for rows, bits in _blocks(probes, seed, label):
        raw = bits.random_raw(-(-rows.size // 8)).astype("<u8", copy=False)
        np.multiply(raw.view("i1")[: rows.size].reshape(rows.shape), np.float32(2**-7), out=rows)
        rows += np.float32(2**-8)
    return probes


def drawn_rows(n_rows: int, share: float, seed: int, label: str) -> NDArray[np.bool_]:
    """Which rows are in a random sample, each on its own with probability ``share``; never none of them all.

    A pure function of its arguments, see ``gaussian_probes``.
    """
    draws = np.random.Generator(np.random.Philox(key=_key(seed, label))).random(n_rows)
    return np.asarray(draws <= max(share, draws.min(initial=1.0)))


def _key(seed: int, label: str) -> NDArray[np.uint64]:
    return np.frombuffer(hashlib.sha256(f"{seed}:{label}".encode()).digest()[:16], dtype=np.uint64)


def _blocks(
    probes: NDArray[np.float32], seed: int, label: str
) -> Iterator[tuple[NDArray[np.float32], np.random.Philox]]:
    """Row blocks of a matrix to fill, each with a generator of its own."""
    key = _key(seed, label)
    for block, start in enumerate(range(0, probes.shape[0], ROWS_PER_COUNTER)):
        # The two high words of the counter name the block; the low ones are the generator's own.
        counter = np.array([0, 0, block, 0], dtype=np.uint64)
        yield probes[start : start + ROWS_PER_COUNTER], np.random.Philox(key=key, counter=counter)
