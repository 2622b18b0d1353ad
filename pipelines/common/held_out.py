"""Held-out documents of a corpus in memory, and the coherence of topics in documents."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from streaming_jsmf.evaluation.coherence import cooccurrence_counts, npmi

#: Every fifth document is held out.
HELD_OUT = 5


@dataclass(frozen=True)
class Split:
    """Counts (documents x words, CSR, int32) of fitted and held-out documents."""

    fitted: sparse.csr_array
    held_out: sparse.csr_array

    @classmethod
    def of(cls, counts: sparse.csr_array) -> Split:
        held_out = np.arange(counts.shape[0]) % HELD_OUT == HELD_OUT - 1
        return cls(counts[~held_out], counts[held_out])


def coherence_of(counts: sparse.csr_array, words: NDArray[np.int64]) -> float:
    """Mean NPMI in documents of the words of topics (K, n)."""
    chosen, places = np.unique(words, return_inverse=True)
    pairs = cooccurrence_counts([counts], chosen)
    return float(npmi(np.diag(pairs), pairs, counts.shape[0], places.reshape(words.shape)).mean())
