"""Held-out documents of a corpus in memory, and the coherence of topics in documents."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pipelines.common.bags import cooccurrence_counts, read_counts, write_corpus
from streaming_jsmf.corpus import Corpus
from streaming_jsmf.evaluation.coherence import distinct_share, npmi

#: Every fifth document is held out.
HELD_OUT = 5


def is_held_out(n_documents: int, seed: int = 0) -> NDArray[np.bool_]:
    """Whether each document is held out: every fifth is, beginning elsewhere for each seed."""
    return np.arange(n_documents) % HELD_OUT == HELD_OUT - 1 - seed % HELD_OUT


@dataclass(frozen=True)
class Split:
    """Counts (documents x words, CSR, int32) of fitted and held-out documents."""

    fitted: sparse.csr_array
    held_out: sparse.csr_array

    @classmethod
    def of(cls, counts: sparse.csr_array, seed: int = 0) -> Split:
        """Split documents as ``is_held_out``."""
        held_out = is_held_out(counts.shape[0], seed)
        return cls(counts[~held_out], counts[held_out])


@dataclass(frozen=True)
class FittedCorpus:
    """A corpus, its split, and below ``folder`` the corpus of its fitted documents and what is computed from it."""

    name: str
    corpus: Corpus
    folder: Path

    @cached_property
    def documents(self) -> Split:
        return Split.of(read_counts(Path(self.corpus.root)))

    @cached_property
    def fitted(self) -> Path:
        path = self.folder / "fitted"
        if not path.exists():
            write_corpus(path, self.documents.fitted)
        return path

    def scores(self, listed: NDArray[np.int64]) -> dict[str, float]:
        """NPMI of lists of words (K x 10) in fitted and held-out documents, and the share of distinct words."""
        return scores_of(self.documents, listed)


def scores_of(documents: Split, listed: NDArray[np.int64]) -> dict[str, float]:
    """NPMI of lists of words (K x 10) in fitted and held-out documents, and the share of distinct words."""
    return {
        "npmi": coherence_of(documents.fitted, listed),
        "held_out_npmi": coherence_of(documents.held_out, listed),
        "distinct": distinct_share(listed),
    }


def coherence_of(counts: sparse.csr_array, words: NDArray[np.int64]) -> float:
    """Mean NPMI in documents of the words of topics (K, n)."""
    chosen, places = np.unique(words, return_inverse=True)
    pairs = cooccurrence_counts(counts, chosen)
    return float(npmi(np.diag(pairs), pairs, counts.shape[0], places.reshape(words.shape)).mean())
