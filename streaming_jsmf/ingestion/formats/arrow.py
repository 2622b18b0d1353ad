"""Record batches of Arrow in files: streams, as ``save_to_disk`` of Hugging Face writes, or Feather."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from streaming_jsmf.corpus.metadata import registers_pandas
from streaming_jsmf.ingestion.formats.functions import FunctionFormat
from streaming_jsmf.ingestion.sources.streams import is_compressed, open_stream, read_as, size_of

_ARROW_FILE, _ARROW_ENDS = b"ARROW1\0\0", (b"ARROW1", b"\xff" * 4 + bytes(4))


def read(path: str) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of a file, after an empty one of its columns."""
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
    yield from read(path)


ARROW = FunctionFormat(read, "Arrow")
