"""Arrow tables in files with a checksum of each batch. Local ones are mapped into memory when they are read."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from io import BufferedReader
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming_jsmf.errors import StoreError, pass_on_machine
from streaming_jsmf.storage.objects import Ranges, asked
from streaming_jsmf.storage.paths import StorePath, file_size, read_bytes, write_bytes

#: Bytes of a request for an object, and for one of its parts; larger ones are read whole.
_READ_BYTES, _PART_BYTES = 1 << 20, 1 << 18

#: Metadata of a batch with its checksum, which Arrow does not have.
_CHECKSUM = b"crc32"


def write_table(path: StorePath, table: Any, rows: int | None = None) -> None:
    """Write an Arrow table as one batch, or in batches of so many ``rows``."""
    batches = table.combine_chunks().to_batches(rows)
    if isinstance(path, Path):
        _write(path, table.schema, batches)
        return
    sink = pa.BufferOutputStream()
    _write(sink, table.schema, batches)
    write_bytes(path, sink.getvalue().to_pybytes())


def write_pieces(path: Path, pieces: Iterable[tuple[Any, NDArray[Any]]], number: int) -> None:
    """Write the rows of tables with equal columns by range, in their order: of each table, one batch for each range."""
    batches = _batches_of(pieces, number)
    first = next(batches, None)
    schema = pa.schema([]) if first is None else first.schema
    batches = chain([] if first is None else [first], batches)
    del first
    _write(path, schema, batches)


def write_merged(path: Path, pieces: Iterable[tuple[Any, NDArray[Any]]], number: int) -> None:
    """As ``write_pieces``, with one batch for each range, which has the rows of all pieces; one piece is in memory."""
    beside = path.with_suffix(".pieces")
    write_pieces(beside, pieces, number)
    with opened(beside) as source:
        file = pa.ipc.open_file(source)
        numbers = [range(i, file.num_record_batches, number) for i in range(number)]
        _write(path, file.schema, (_merged(file, each) for each in numbers))
    beside.unlink()


def _merged(file: Any, numbers: Iterable[int]) -> Any:
    batches = [checked(file.get_batch_with_custom_metadata(i)) for i in numbers]
    # Empty tables have no batches.
    return next(iter(pa.Table.from_batches(batches, file.schema).combine_chunks().to_batches()), batches[0])


def _batches_of(pieces: Iterable[tuple[Any, NDArray[Any]]], number: int) -> Iterator[Any]:
    for table, ranges in pieces:
        yield from _by_range(table, ranges, number)
        del table, ranges  # before the next piece is read


def _by_range(table: Any, ranges: NDArray[Any], number: int) -> Iterator[Any]:
    order = np.argsort(ranges, kind="stable")
    whole = table.take(pa.array(order)).combine_chunks()
    columns = [
        column.chunk(0) if column.num_chunks else pa.array([], column.type) for column in whole.columns
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=whole.schema)
    ends = np.searchsorted(ranges[order], np.arange(number), side="right").tolist()
    return (batch.slice(start, end - start) for start, end in pairwise([0, *ends]))


def _write(sink: Any, schema: Any, batches: Iterable[Any]) -> None:
    with pa.ipc.new_file(str(sink) if isinstance(sink, Path) else sink, schema) as writer:
        for batch in batches:
            write_checked(writer, batch)
            del batch  # it may be a view of all of its piece


def write_checked(writer: Any, batch: Any) -> None:
    """Write a batch with its checksum to a file or stream of Arrow."""
    writer.write_batch(batch, custom_metadata={_CHECKSUM: _checksum(batch)})


def checked(read: tuple[Any, Any]) -> Any:
    """Return a batch that was read with its metadata; raise ``ArrowInvalid`` if it differs from its checksum."""
    batch, metadata = read
    batch.validate()  # Arrow would follow a damaged offset outside of the file
    known = None if metadata is None else metadata.get(_CHECKSUM)
    if known not in (None, _checksum(batch)):
        raise pa.ArrowInvalid("a batch differs from its checksum")
    return batch


def _checksum(batch: Any) -> bytes:
    return b"%08x" % zlib.crc32(batch.serialize(), zlib.crc32(batch.schema.remove_metadata().serialize()))


def read_table(path: StorePath) -> Any:
    """Read a table; ``StoreError`` if the file is missing or damaged."""
    with own_file(path):
        source = pa.memory_map(str(path)) if isinstance(path, Path) else pa.py_buffer(read_bytes(path))
        file = pa.ipc.open_file(source)
        numbers = range(file.num_record_batches)
        batches = [checked(file.get_batch_with_custom_metadata(number)) for number in numbers]
        return pa.Table.from_batches(batches, file.schema)


def read_range(path: StorePath, number: int, of: int | None = None) -> Any:
    """Read one batch of a table, or that of each piece of ``write_pieces`` with so many ranges; as ``read_table``."""
    with own_file(path), opened(path, parts=True) as source:
        file = pa.ipc.open_file(source)
        numbers = [number] if of is None else range(number, file.num_record_batches, of)
        return pa.Table.from_batches(
            [checked(file.get_batch_with_custom_metadata(i)) for i in numbers], file.schema
        )


def table_batches(path: StorePath) -> Iterator[Any]:
    """Read a table batch by batch, as tables; the file is not open in between."""
    with own_file(path), opened(path) as file:
        number = pa.ipc.open_file(file).num_record_batches
    return (read_range(path, i) for i in range(number))


@contextmanager
def opened(path: StorePath, *, parts: bool = False) -> Iterator[Any]:
    """Open a file for Arrow. It is not mapped: pages of the whole file would count as memory of the process.

    Of an object, ``parts`` take one request each, after one for the end with their places.
    """
    if isinstance(path, Path):
        with pa.OSFile(str(path)) as file:
            yield file
    else:
        raw = _WithEnd(path, file_size(path)) if parts else Ranges(path, file_size(path))
        with BufferedReader(raw, _PART_BYTES if parts else _READ_BYTES) as stream:
            yield pa.PythonFile(stream, "r")


class _WithEnd(Ranges):
    """An object whose end is requested once."""

    @cached_property
    def _end(self) -> tuple[int, bytes]:
        start = max(0, self._size - _PART_BYTES)
        return start, bytes(asked("cat_file", self._path, start=start, end=self._size))

    def read_at(self, size: int) -> bytes:
        start, end = self._end
        return end[self.position - start :][:size] if self.position >= start else super().read_at(size)


@contextmanager
def own_file(path: StorePath) -> Iterator[None]:
    """Convert errors of a file from an earlier step to ``StoreError``."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        pass_on_machine(error)
        raise damaged(path) from error


def damaged(path: StorePath) -> StoreError:
    root = next(
        parent for parent in (path, *path.parents) if parent.suffix == ".partial" or parent == parent.parent
    )
    return StoreError(f"{path} is missing or damaged; remove {root} and run again")
