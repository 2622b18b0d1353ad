"""Record batches of Arrow in files as a format of records."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_jsmf.corpus.metadata import registers_pandas
from streaming_jsmf.ingestion.sources.protocol import (
    BadRecords,
    Format,
    Records,
    Unit,
    distinct_names,
    limits,
)
from streaming_jsmf.ingestion.sources.streams import (
    is_compressed,
    open_stream,
    read_as,
    size_of,
)
from streaming_jsmf.ingestion.sources.values import decoded

_ARROW_FILE, _ARROW_ENDS = b"ARROW1\0\0", (b"ARROW1", b"\xff" * 4 + bytes(4))


class ArrowFormat(Format):
    """Record batches of Arrow, in streams as ``save_to_disk`` of Hugging Face writes, or Feather. A unit is a file."""

    def names(self, path: str, options: Any = None) -> list[str]:  # noqa: ARG002
        with _open_arrow(path) as reader:
            return list(reader.schema.names)

    def units(self, path: str, options: Any = None) -> list[Unit]:  # noqa: ARG002
        return [Unit(path, size=size_of(path))]

    def records(
        self, unit: Unit, options: Any, bad: BadRecords, wanted: Collection[str] | None = None  # noqa: ARG002
    ) -> Iterator[Records]:  # fmt: skip
        row = 0
        with _open_arrow(unit.path) as reader:
            names = distinct_names(reader.schema.names)
            for batch in reader:
                batch.validate(full=True)  # offsets are as they are in the file
                step = max(1, limits.BATCH_BYTES * batch.num_rows // max(batch.nbytes, 1))
                for start in range(0, batch.num_rows, step):
                    columns = zip(names, batch.slice(start, step).columns, strict=True)
                    kept = {name: decoded(each) for name, each in columns if wanted is None or name in wanted}
                    yield Records(row + np.arange(start, min(start + step, batch.num_rows)), kept)
                row += batch.num_rows


ARROW = ArrowFormat()


@contextmanager
def _open_arrow(path: str) -> Iterator[Any]:
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
        reader = pa.ipc.open_stream(stream)
        if not registers_pandas(reader):
            yield reader
            return
    with _open_arrow(path) as reader:
        yield reader
