"""Formats that are functions, as that of Arrow: from the path of a file to record batches, one row a document.

A function yields these columns, by name: ``text``, strings or lists of tokens; or bags of words, lists ``text`` of
words and lists ``counts`` of the same lengths; ``document_id``, strings or integers, if there are ids; all others are
metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_jsmf.corpus.metadata import registers_pandas
from streaming_jsmf.ingestion.sources.protocol import (
    BadRecords,
    Format,
    Records,
    Unit,
    UnreadableError,
    distinct_names,
    limits,
)
from streaming_jsmf.ingestion.sources.streams import is_compressed, open_stream, read_as, size_of
from streaming_jsmf.ingestion.sources.values import decoded

#: From the path of a file to its record batches.
Function = Callable[[str], Iterable[pa.RecordBatch]]

_ARROW_FILE, _ARROW_ENDS = b"ARROW1\0\0", (b"ARROW1", b"\xff" * 4 + bytes(4))


class FunctionFormat(Format):
    """The record batches of a function, of which a file is a unit."""

    def __init__(self, function: Function, name: str) -> None:
        self._function, self._name = function, name

    def names(self, path: str, options: Any) -> list[str]:  # noqa: ARG002
        first = next(self._batches(path), None)
        if first is None:
            raise UnreadableError(f"{self._name} yields nothing for it")
        return list(first.schema.names)

    def units(self, path: str, options: Any) -> list[Unit]:  # noqa: ARG002
        return [Unit(path, size=size_of(path))]

    def records(
        self, unit: Unit, options: Any, bad: BadRecords, wanted: Collection[str] | None = None  # noqa: ARG002
    ) -> Iterator[Records]:  # fmt: skip
        row = 0
        for batch in self._batches(unit.path):
            step = max(1, limits.BATCH_BYTES * batch.num_rows // max(batch.nbytes, 1))
            names = distinct_names(batch.schema.names)
            for start in range(0, batch.num_rows, step):
                columns = zip(names, batch.slice(start, step).columns, strict=True)
                kept = {name: decoded(values) for name, values in columns if wanted is None or name in wanted}
                yield Records(row + np.arange(start, min(start + step, batch.num_rows)), kept)
            row += batch.num_rows

    def _batches(self, path: str) -> Iterator[pa.RecordBatch]:
        with read_as(f"what {self._name} reads"):
            for batch in self._function(path):
                if not isinstance(batch, pa.RecordBatch):
                    raise UnreadableError(
                        f"{self._name} yields {type(batch).__name__} for it; it must yield record batches of Arrow"
                    )
                yield batch


def _arrow(path: str) -> Iterator[pa.RecordBatch]:
    """Yield an empty record batch of the columns, and those of a file: a stream, as of Hugging Face, or Feather."""
    with open_stream(path) as stream:
        in_file = stream.read(len(_ARROW_FILE)) == _ARROW_FILE  # a stream follows, and a table of its batches
        whole = is_compressed(path)
        if not whole:
            stream.seek(max(0, size_of(path) - 8))
            whole = stream.read().endswith(_ARROW_ENDS)
    with open_stream(path) as stream, read_as("Arrow"):
        if not whole:  # cut between two batches, perhaps
            raise EOFError("its end mark is missing")
        stream.read(len(_ARROW_FILE) * in_file)
        batches = pa.ipc.open_stream(stream)
        if not registers_pandas(batches):
            columns = [column.combine_chunks() for column in batches.schema.empty_table().columns]
            yield pa.record_batch(columns, schema=batches.schema)
            for batch in batches:
                batch.validate(full=True)  # offsets are as they are in the file
                yield batch
            return
    yield from _arrow(path)


ARROW = FunctionFormat(_arrow, "Arrow")
