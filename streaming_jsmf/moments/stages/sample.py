"""The documents that a store holds: scaled counts of all of them, or of a sample, collected by the ``range`` stage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.jobs.checkpoints import Checkpoints, PartialResult
from streaming_jsmf.linalg.eigen import GUARD_VECTORS, block_width
from streaming_jsmf.linalg.probes import uniform_probes
from streaming_jsmf.moments.store import Store
from streaming_jsmf.timing import span

#: The documents in CSR order: number of distinct words per document, then word ids and counts times
#: sqrt(w / (n (n - 1))).
LENGTHS, WORDS, VALUES = "sample_lengths", "sample_words", "sample_values"

#: Arrays of a part, with their axes.
VARIABLES = {LENGTHS: ("sampled_document",), WORDS: ("sampled_nonzero",), VALUES: ("sampled_nonzero",)}

#: Name in ``Store.recent`` of the documents.
SAMPLE = "sample"

#: Bytes of a stored nonzero of the sample.
BYTES_PER_NONZERO = 8


def sample_arrays(block: csr_array[Any]) -> dict[str, NDArray[Any]]:
    """The stored arrays of scaled documents (documents x words, CSR, float32)."""
    lengths = np.diff(block.indptr).astype(np.int32)
    return {LENGTHS: lengths, WORDS: block.indices.astype(np.int32, copy=False), VALUES: block.data}


def read_sample(store: Store) -> csr_array[Any]:
    """H_s (documents x words, CSR, float32), H_s'H_s ~ C + diag(D), equal if the store holds all documents."""

    def read() -> csr_array[Any]:
        checkpoints = store.checkpoints("range")
        arrays = joined(checkpoints.read_part(key) for key in store.manifest.part_keys)
        return scaled(store, arrays)

    return store.once(SAMPLE, read)


def joined(parts: Iterable[PartialResult]) -> dict[str, NDArray[Any]]:
    """The documents of several parts, in order."""
    found = [{name: part.arrays[name] for name in VARIABLES} for part in parts]
    return {name: np.concatenate([arrays.pop(name) for arrays in found]) for name in VARIABLES}


def scaled(store: Store, arrays: Mapping[str, NDArray[Any]]) -> csr_array[Any]:
    """H_s from the arrays of all its documents, whose values are overwritten."""
    values = arrays[VALUES]
    values *= np.float32(1 / np.sqrt(share_of(store) * store.scalars("range")["total_weight"]))
    return _rows(arrays, store.n_words)


def _rows(arrays: Mapping[str, NDArray[Any]], n_words: int) -> csr_array[Any]:
    lengths, words, values = (arrays[name] for name in VARIABLES)
    starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    indptr = starts.astype(np.int32) if starts[-1] < np.iinfo(np.int32).max else starts
    return csr_array((values, words, indptr), shape=(lengths.size, n_words), copy=False)


@dataclass(frozen=True)
class HeldPart:
    """The documents of a partition in a store that holds all, as tasks read them."""

    checkpoints: Checkpoints
    key: str
    content: str

    def read(self, n_words: int) -> csr_array[Any]:
        """The scaled counts, as of ``load_block``. Raises ``StoreError`` if they are damaged."""
        return _rows(self.checkpoints.read_part(self.key).arrays, n_words)


def held_parts(store: Store) -> list[HeldPart]:
    """The documents of a store that holds all, by partition."""
    checkpoints, manifest = store.checkpoints("range"), store.manifest
    contents = (partition.content for partition in manifest.partitions)
    return [HeldPart(checkpoints, *each) for each in zip(manifest.part_keys, contents, strict=True)]


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
