"""Random probes from a counter-based generator: blocks of rows can be generated independently, in any order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from streaming_jsmf.linalg.typing import Mask, Single
from streaming_jsmf.storage.large_arrays import large_empty

#: Rows drawn from one counter position; affects the bits.
ROWS_PER_COUNTER = 8192


@dataclass(frozen=True)
class Estimate:
    """A Monte Carlo estimate and its standard error, which is None for a single sample."""

    value: float
    standard_error: float | None


def gaussian_probes(n_words: int, width: int, seed: int, label: str) -> Single:
    """Standard normal test matrix Omega (Halko et al. 2011), (n_words, width) float32, a pure function.

    ``label`` is the purpose of the probes, such as the content hash of a partition (not its position); different labels
    give independent probes.
    """
    probes = large_empty((n_words, width), np.float32)
    for rows, random in _blocks(probes, seed, label):
        random.standard_normal(out=rows, dtype=np.float32)
    return probes


def uniform_probes(n_words: int, width: int, seed: int, label: str) -> Single:
    """Test matrix of independent entries, uniform over the odd multiples of 2^-8 in (-1, 1); see ``gaussian_probes``.

    As good as a normal one if power steps follow, in a seventh of the time. Random signs are not used, because a small
    square matrix of signs is often singular.
    """
    probes = large_empty((n_words, width), np.float32)
    for rows, random in _blocks(probes, seed, label):
        raw = random.bit_generator.random_raw(-(-rows.size // 8)).astype("<u8", copy=False)
        np.multiply(raw.view("i1")[: rows.size].reshape(rows.shape), np.float32(2**-7), out=rows)
        rows += np.float32(2**-8)
    return probes


def drawn_rows(n_rows: int, share: float, seed: int, label: str) -> Mask:
    """Mask of a random sample of rows, each with probability ``share``, at least one; see ``gaussian_probes``."""
    draws = keyed_generator(seed, label).random(n_rows)
    return np.asarray(draws <= max(share, draws.min(initial=1.0)))


def keyed_generator(seed: int, stream: int | str, block: int = 0) -> np.random.Generator:
    """Counter-based generator (Philox), independent for each seed, stream and block.

    A stream that is a text, such as a content hash, gives the key by SHA-256.
    """
    if isinstance(stream, str):
        key = np.frombuffer(hashlib.sha256(f"{seed}:{stream}".encode()).digest()[:16], dtype=np.uint64)
    else:
        key = np.array([seed, stream], dtype=np.uint64)
    # The two high words of the counter identify the block; the generator uses the low ones.
    counter = np.array([0, 0, block, 0], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def _blocks(probes: Single, seed: int, label: str) -> Iterator[tuple[Single, np.random.Generator]]:
    """Row blocks of a matrix to fill, each with its own generator."""
    for block, start in enumerate(range(0, probes.shape[0], ROWS_PER_COUNTER)):
        yield probes[start : start + ROWS_PER_COUNTER], keyed_generator(seed, label, block)
