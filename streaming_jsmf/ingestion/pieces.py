"""Files between source and shards: bags over the words of a piece, counts of these words, and document keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_jsmf.config import EXCERPT
from streaming_jsmf.errors import StoreError, pass_on_machine
from streaming_jsmf.ingestion.hashing import hash_bags, hash_values
from streaming_jsmf.ingestion.readers.base import Batch
from streaming_jsmf.ingestion.readers.values import KINDS, holds_strings, kinds_of, n_given
from streaming_jsmf.linalg.csr import count_columns

#: Entry of a key file: a 128-bit hash, the order among documents with equal keys, and the document: its number in the
#: piece, its unit, and its row in the unit.
KEY = np.dtype(
    [("high", "<u8"), ("low", "<u8"), ("order", "<u8"), ("ordinal", "<i8"), ("unit", "<i8"), ("row", "<i8")]
)

_METADATA = "metadata "  # prefix that separates user columns from our own


class PieceWriter:
    """Write batches of a source as files with the path prefix ``stem``: bags (if ``spill``), word counts, keys.

    If ``n_words`` is None, words are numbered in order of appearance. ``first_order`` is the order of the first
    document, used if ids do not determine the order.
    """

    def __init__(self, stem: Path, n_words: int | None, *, spill: bool, first_order: int) -> None:
        self._stem = stem
        self._open_vocabulary = n_words is None
        self._spill = spill
        self._first_order = first_order
        self._file: Any = None
        self._stream: Any = None
        self._schema: Any = None
        self._words = pa.array([], pa.string())
        self._hashes = hash_values(pa.array(np.arange(n_words or 0, dtype=np.int64)))
        self._document_frequency = np.zeros(n_words or 0, np.int64)
        self._term_count = np.zeros(n_words or 0, np.float64)
        self._keys: dict[str, list[NDArray[Any]]] = {"contents": [], "identities": []}
        #: The kinds (``values.KINDS``) that all strings so far of a metadata column are, how many there are, and the
        #: number of documents in batches with the column.
        self.kinds: dict[str, list[str]] = {}
        self.strings: Counter[str] = Counter()
        self.covered: Counter[str] = Counter()
        #: Names of all metadata columns, in order.
        self.columns: dict[str, None] = {}
        self.documents = self.nonzeros = 0
        self.tokens = 0.0

    def add(self, unit: int, batch: Batch) -> None:
        """Add a batch of the unit with number ``unit``."""
        codes = batch.codes if batch.dictionary is None else self._codes(batch)
        count_columns(codes, batch.counts, self._document_frequency, self._term_count)
        self._add_keys(unit, batch, codes)
        self._add_kinds(batch)
        if self._spill:
            self._write(unit, batch, codes)
        self.documents += batch.n_documents
        self.nonzeros += len(codes)
        self.tokens += float(batch.counts.sum(dtype=np.float64))

    def close(self) -> None:
        self.abort()
        used = np.flatnonzero(self._document_frequency)
        columns = {
            "code": pa.array(used.astype(np.int64)),
            "document_frequency": pa.array(self._document_frequency[used]),
            "term_count": pa.array(self._term_count[used]),
        }
        if self._open_vocabulary:
            columns["word"] = self._words.take(columns["code"])
        table = pa.table(columns)
        write_table(
            self._stem.with_suffix(".words"), table.sort_by("word") if self._open_vocabulary else table
        )
        for kind, parts in self._keys.items():
            if parts:
                keys = np.concatenate(parts)
                keys[np.argsort(keys["high"], kind="stable")].tofile(self._stem.with_suffix(f".{kind}"))

    def abort(self) -> None:
        for opened in (self._stream, self._file):
            if opened is not None:
                opened.close()
        self._stream = self._file = None

    def _codes(self, batch: Batch) -> NDArray[np.int32]:
        """Map the codes of the batch to codes of the piece, adding new words."""
        words = batch.dictionary.cast(pa.string())
        known = pc.index_in(words, value_set=self._words)
        new = np.asarray(known.is_null())
        numbers = np.asarray(known.fill_null(0)).astype(np.int32)
        numbers[new] = len(self._words) + np.arange(new.sum())
        if new.any():
            added = words.filter(pa.array(new))
            self._words = pa.concat_arrays([self._words, added])
            self._hashes = np.concatenate([self._hashes, hash_values(added)])
            self._document_frequency = np.append(self._document_frequency, np.zeros(len(added), np.int64))
            self._term_count = np.append(self._term_count, np.zeros(len(added)))
        codes: NDArray[np.int32] = numbers[batch.codes]
        return codes

    def _add_keys(self, unit: int, batch: Batch, codes: NDArray[Any]) -> None:
        keys = np.empty(batch.n_documents, KEY)
        keys["ordinal"] = self.documents + np.arange(batch.n_documents)
        keys["order"] = (self._first_order + keys["ordinal"]).astype(np.uint64)
        keys["unit"], keys["row"] = unit, batch.rows
        if batch.document_id is not None:
            identities = keys.copy()
            identities["high"], identities["low"] = hash_values(batch.document_id).T
            self._keys["identities"].append(identities)
            if pa.types.is_integer(batch.document_id.type):
                # Flipping the sign bit maps the order of int64 to that of uint64.
                keys["order"] = np.asarray(batch.document_id).view(np.uint64) ^ np.uint64(1 << 63)
            else:
                keys["order"] = identities["high"]
        keys["high"], keys["low"] = hash_bags(batch.indptr, codes, batch.counts, self._hashes).T
        # Empty documents are not repeats of each other.
        self._keys["contents"].append(keys[np.diff(batch.indptr) > 0])

    def _add_kinds(self, batch: Batch) -> None:
        self.columns |= dict.fromkeys(batch.metadata)
        for name, values in batch.metadata.items():
            if not holds_strings(values.type):
                continue
            self.covered[name] += batch.n_documents
            before = self.kinds.get(name, [] if name == EXCERPT else list(KINDS))  # texts are not parsed
            known = batch.kinds.get(name)
            if known is None:
                self.kinds[name] = before and kinds_of(values, before)
                if self.kinds[name]:
                    self.strings[name] += n_given(values)
            else:
                self.kinds[name] = [kind for kind in before if kind in known]

    def _write(self, unit: int, batch: Batch, codes: NDArray[Any]) -> None:
        offsets = pa.array(np.asarray(batch.indptr, np.int32))
        columns = {
            "codes": pa.ListArray.from_arrays(offsets, pa.array(np.asarray(codes, np.int32))),
            "counts": pa.ListArray.from_arrays(offsets, pa.array(batch.counts)),
            "unit": pa.array(np.full(batch.n_documents, unit, np.int64)),
            "row": pa.array(np.asarray(batch.rows, np.int64)),
        }
        if batch.document_id is not None:
            columns["document_id"] = batch.document_id
        columns.update({f"{_METADATA}{name}": array for name, array in batch.metadata.items()})
        record = pa.record_batch(columns)
        if self._file is None:
            self._file = pa.OSFile(str(self._stem.with_suffix(".bags")), "wb")
        if record.schema != self._schema:
            # The file has a stream for each run of batches with the same columns.
            if self._stream is not None:
                self._stream.close()
            self._schema = record.schema
            # Compression would cost more than writing and reading the file.
            self._stream = pa.ipc.new_stream(self._file, record.schema)
        self._stream.write_batch(record)


def read_bags(stem: Path) -> Iterator[tuple[int, Batch]]:
    """Yield unit number and batch, with codes over the words of the piece; ``StoreError`` if damaged."""
    path = stem.with_suffix(".bags")
    # Not memory-mapped: pages of the whole file would count as memory of the process.
    with _own_file(path), pa.OSFile(str(path)) as file:
        for record in _records(file):
            codes, names = record.column("codes"), record.schema.names
            offsets = np.asarray(codes.offsets).astype(np.int64)
            batch = Batch(
                offsets - offsets[0],
                np.asarray(codes.flatten()),
                np.asarray(record.column("counts").flatten()),
                np.asarray(record.column("row")),
                record.column("document_id") if "document_id" in names else None,
                {
                    name.removeprefix(_METADATA): record.column(name)
                    for name in names
                    if name.startswith(_METADATA)
                },
            )
            yield record.column("unit")[0].as_py(), batch


def _records(file: Any) -> Iterator[Any]:
    """Yield the record batches of all streams of a file."""
    while file.tell() < file.size():
        with pa.ipc.open_stream(file) as stream:
            yield from stream


def write_table(path: Path, table: Any) -> None:
    """Write an Arrow table that can be read in parts."""
    with pa.ipc.new_file(str(path), table.schema) as file:
        file.write_table(table.combine_chunks())


def read_table(path: Path) -> Any:
    """Memory-map a table; ``StoreError`` if the file is missing or damaged."""
    with _own_file(path):
        return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


@contextmanager
def _own_file(path: Path) -> Iterator[None]:
    """Convert errors of a file from an earlier step to ``StoreError``."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        pass_on_machine(error)
        raise damaged(path) from error


def damaged(path: Path) -> StoreError:
    root = next(
        parent for parent in (path, *path.parents) if parent.suffix == ".partial" or parent == parent.parent
    )
    return StoreError(f"{path} is missing or damaged; remove {root} and run again")


def in_batch(ordinals: NDArray[np.int64], first: int, count: int) -> NDArray[np.int64]:
    """Select the sorted ordinals in the batch of ``count`` documents from ``first``, relative to its start."""
    low, high = np.searchsorted(ordinals, [first, first + count])
    return ordinals[low:high] - first
