"""Locates the partitions described by a manifest and reads them as scaled counts with their exact sums."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from streaming_jsmf.config import DocumentWeights
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.corpus.units import Partition, iter_blocks, list_units, shard_name, split_by_value
from streaming_jsmf.errors import StoreError, option
from streaming_jsmf.jobs.checkpoints import PartialResult
from streaming_jsmf.linalg.csr import pair_scales, row_totals, scale_rows, word_sums
from streaming_jsmf.linalg.typing import Floats, Mask
from streaming_jsmf.moments.manifest import StoreManifest

#: Size of the buffers of a sample relative to its expected size; larger samples are copied.
ROOM = 1.02


def load_partitions(manifest: StoreManifest, corpus: Corpus) -> tuple[Partition, ...]:
    """The partitions of a manifest with their units in its corpus, as tasks read them.

    Raises ``StoreError`` if the corpus has other contents.
    """
    by, units = manifest.scan_settings.partition_by, list_units(corpus)
    if by is not None:
        units = tuple(part for unit in units for part in split_by_value(unit, by).values())
    known = {
        (shard_name(unit, corpus.root), unit.row_group, None if unit.only is None else unit.only.value): unit
        for unit in units
    }
    partitions = []
    for index, described in enumerate(manifest.partitions):
        keys = [(name, group, described.label) for name, group in described.units]
        held = tuple(known[key] for key in keys if key in known)
        partition = Partition(index, held, described.label)
        if len(held) < len(keys) or partition.content != described.content:
            raise StoreError(
                f"{corpus.root} has other contents than the store was made of; put the corpus back, or scan again with "
                f"{option.follow(True)}"
            )
        partitions.append(partition)
    return tuple(partitions)


class _Buffers:
    """CSR buffers of rows of a partition, filled block by block, so that at most one block is in memory twice."""

    def __init__(self, rows: int, nonzeros: int) -> None:
        self.data = np.empty(nonzeros, dtype=np.float32)
        self.indices = np.empty(nonzeros, dtype=np.int32)
        self.indptr = np.zeros(rows + 1, dtype=np.int64)
        self.rows = self.nonzeros = 0

    def append(self, block: csr_array[Any], row_scale: Floats) -> None:
        rows, nonzeros = block.shape[0], block.nnz
        if self.nonzeros + nonzeros > self.data.size:
            self._grow(self.nonzeros + nonzeros)
        values = slice(self.nonzeros, self.nonzeros + nonzeros)
        scale_rows(block.indptr, block.data, row_scale, self.data[values])
        self.indices[values] = block.indices
        self.indptr[self.rows + 1 : self.rows + rows + 1] = block.indptr[1:].astype(np.int64) + self.nonzeros
        self.rows += rows
        self.nonzeros += nonzeros

    def _grow(self, needed: int) -> None:
        # Documents selected by metadata, or drawn, may be longer than estimated from their share of the row group.
        more = max(needed, 5 * self.data.size // 4) - self.data.size
        self.data = np.concatenate([self.data, np.empty(more, self.data.dtype)])
        self.indices = np.concatenate([self.indices, np.empty(more, self.indices.dtype)])

    def finish(self, n_words: int) -> csr_array[Any]:
        indptr = self.indptr[: self.rows + 1]
        # scipy's products are fastest, and make no copies, when both index arrays are 32-bit.
        if self.nonzeros < np.iinfo(np.int32).max:
            indptr = indptr.astype(np.int32)
        buffers = (self.data[: self.nonzeros], self.indices[: self.nonzeros], indptr)
        return csr_array(buffers, shape=(self.rows, n_words), copy=False)


class PartitionSums:
    """Accumulates the sums of ``load_partition`` over blocks, in float64."""

    def __init__(self, n_words: int) -> None:
        self.weighted = np.zeros((n_words, 3))
        self.document_frequency = np.zeros(n_words, dtype=np.int64)
        self.n_documents = self.n_dropped = 0
        self.total_weight = 0.0

    def append(
        self,
        block: csr_array[Any],
        weights: Floats,
        scales: tuple[Floats, Floats],
    ) -> None:
        kept = weights > 0
        columns = np.stack([*scales, kept.astype(np.float64)], axis=1)
        weighted, frequency = word_sums(block, columns)
        self.weighted += weighted
        self.document_frequency += frequency
        self.n_documents += int(np.count_nonzero(kept))
        self.n_dropped += int(np.count_nonzero(~kept))
        self.total_weight += float(weights.sum())

    def finish(self) -> PartialResult:
        columns = map(np.ascontiguousarray, self.weighted.T)
        arrays = dict(zip(("row_sum", "diagonal", "term_count"), columns, strict=True))
        scalars = {
            "n_documents": self.n_documents,
            "n_dropped": self.n_dropped,
            "n_tokens": float(arrays["term_count"].sum()),
            "total_weight": self.total_weight,
        }
        return PartialResult({**arrays, "document_frequency": self.document_frequency}, scalars)


def load_partition(
    partition: Partition,
    n_words: int,
    scheme: DocumentWeights,
    chosen: Mask | None = None,
) -> tuple[csr_array[Any], PartialResult]:
    """Read a partition and its exact sums, in one pass over its part of the data.

    ``chosen`` is a (documents,) mask of the rows that the block holds (None: all); the sums cover all documents.
    Raises ``InputError`` or ``StoreError`` as ``read_block`` does.

    Returns the scaled counts sqrt(w / (n (n - 1))) h, documents x words, float32, and the sums before the division by
    ``total_weight``. Documents with fewer than two tokens are counted only in ``n_dropped``. Arrays over words:
    ``row_sum`` is the sum of w h / n, equal to C e and to the first moment M1; ``diagonal`` of w h / (n (n - 1)), the
    diagonal correction of Eq. 1, where for a count below 1 h is replaced by its square, so that the diagonal of C stays
    nonnegative (``linalg.csr.pair_totals``); ``term_count`` are tokens, and ``document_frequency`` documents. Scalars:
    ``n_documents`` kept and ``n_dropped``, ``n_tokens`` kept, ``total_weight`` the sum of w.
    """
    sums = PartitionSums(n_words)
    return load_block(partition, n_words, scheme, chosen, sums), sums.finish()


def load_block(
    partition: Partition,
    n_words: int,
    scheme: DocumentWeights,
    chosen: Mask | None = None,
    sums: PartitionSums | None = None,
) -> csr_array[Any]:
    """Read the scaled counts of a partition, as in ``load_partition``, and add to ``sums`` if they are given."""
    rows = partition.rows if chosen is None else int(np.count_nonzero(chosen))
    buffers, first = _Buffers(rows, _expected(rows, partition)), 0
    for block, row_scale in _with_scales(partition, n_words, scheme, sums):
        if chosen is not None:
            drawn = np.flatnonzero(chosen[first : first + row_scale.size])
            first += row_scale.size
            block, row_scale = block[drawn], row_scale[drawn]
        buffers.append(block, row_scale)
    return buffers.finish(n_words)


def _expected(rows: int, partition: Partition) -> int:
    """Nonzeros to make room for if so many rows of a partition are kept."""
    all_rows, nonzeros = partition.rows, partition.nonzeros
    return nonzeros if rows == all_rows else math.ceil(ROOM * nonzeros * rows / all_rows)


def iter_scaled(
    partition: Partition, n_words: int, scheme: DocumentWeights, sums: PartitionSums | None = None
) -> Iterator[csr_array[Any]]:
    """Yield the row groups of a partition as scaled counts, which together are the rows of ``load_block``."""
    for block, row_scale in _with_scales(partition, n_words, scheme, sums):
        yield _scaled(block, row_scale)


def _scaled(block: csr_array[Any], row_scale: Floats) -> csr_array[Any]:
    values = np.empty(block.nnz, np.float32)
    scale_rows(block.indptr, block.data, row_scale, values)
    return csr_array((values, block.indices, block.indptr), shape=block.shape, copy=False)


def _with_scales(
    partition: Partition, n_words: int, scheme: DocumentWeights, sums: PartitionSums | None
) -> Iterator[tuple[csr_array[Any], Floats]]:
    """Yield the counts of each row group and the factors of its rows, and add to ``sums`` if they are given."""
    for block in iter_blocks(partition.units, n_words):
        weights, scales = pair_scales(block.indptr, block.data, scheme)
        if sums is not None:
            sums.append(block, weights, scales)
        yield block, np.sqrt(scales[1])


def iter_shares(partition: Partition, n_words: int) -> Iterator[tuple[csr_array[Any], Floats]]:
    """Yield the row groups of a partition divided by document lengths, in one pass over its data.

    Each is h / n (documents x words, float32 CSR) and n (documents,). Errors as in ``read_block``.
    """
    for block in iter_blocks(partition.units, n_words):
        lengths = row_totals(block.indptr, block.data)
        # Documents shorter than one token have zero weight, so clipping their length changes no result.
        yield _scaled(block, 1 / np.maximum(lengths, 1.0)), lengths
