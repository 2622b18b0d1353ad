"""The documents that a store holds: scaled counts of all of them, or of a sample, collected by the ``range`` stage."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.linalg.eigen import GUARD_VECTORS, block_width
from streaming_jsmf.linalg.panels import each
from streaming_jsmf.linalg.probes import uniform_probes
from streaming_jsmf.linalg.sampled import SampleParts
from streaming_jsmf.moments.store import Store
from streaming_jsmf.storage.arrays import Variable
from streaming_jsmf.timing import span

#: The documents in CSR order: number of distinct words per document, then word ids and scaled counts.
LENGTHS, WORDS, VALUES = "sample_lengths", "sample_words", "sample_values"

#: Arrays of parts and final arrays.
VARIABLES = {
    LENGTHS: Variable(("sampled_document",), "distinct words of each document of the sample"),
    WORDS: Variable(("sampled_nonzero",), "their word ids, document by document"),
    VALUES: Variable(("sampled_nonzero",), "their counts times sqrt(w / (n (n - 1)))", "H"),
}

#: Bytes of a stored nonzero of the sample.
BYTES_PER_NONZERO = 8


def sample_arrays(block: csr_array[Any]) -> dict[str, NDArray[Any]]:
    """The stored arrays of scaled documents (documents x words, CSR, float32)."""
    lengths = np.diff(block.indptr).astype(np.int32)
    return {LENGTHS: lengths, WORDS: block.indices.astype(np.int32, copy=False), VALUES: block.data}


def read_sample(store: Store) -> csr_array[Any]:
    """H_s (documents x words, CSR, float32), H_s'H_s ~ C + diag(D), equal if the store holds all documents."""
    lengths, words, values = each(store.read, VARIABLES)
    starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    indptr = starts.astype(np.int32) if starts[-1] < np.iinfo(np.int32).max else starts
    values = values * np.float32(1 / np.sqrt(share_of(store) * store.scalars("range")["total_weight"]))
    return csr_array((values, words, indptr), shape=(lengths.size, store.n_words), copy=False)


def read_parts(store: Store) -> SampleParts:
    """The documents of ``read_sample`` by use."""
    return SampleParts.of(read_sample(store), share_of(store))


def share_of(store: Store) -> float:
    """Share of the documents that the store holds."""
    share = store.manifest.sample_share
    assert share is not None, "halko holds no documents"
    return share


def sample_probes(n_words: int, settings: ScanSettings) -> NDArray[np.float32]:
    """Omega (words x block width, float32) for the basis; unit vectors if it has as many columns as there are words."""
    width = min(block_width(settings.basis_width + GUARD_VECTORS), n_words)
    if width == n_words:
        # Unit vectors span the whole space; N random vectors are occasionally nearly dependent.
        return np.eye(n_words, dtype=np.float32)
    with span("probes"):
        return uniform_probes(n_words, width, settings.seed, "sample")
