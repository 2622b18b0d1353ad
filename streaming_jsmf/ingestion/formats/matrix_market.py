"""Matrix Market files: a sparse matrix as lines "row column count", in ascending order of documents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_jsmf.errors import option
from streaming_jsmf.ingestion.formats.docword import SIZE, Header, documents, header_line
from streaming_jsmf.ingestion.sources.matrices import words_beside as words
from streaming_jsmf.ingestion.sources.protocol import UnreadableError
from streaming_jsmf.ingestion.sources.streams import open_stream

__all__ = ["read", "words"]

_BANNER = "%%MatrixMarket matrix coordinate integer|real|pattern general"
_COUNTS = {"integer": np.int64, "real": np.float64, "pattern": None}


def read(path: str, options: Any) -> Iterator[pa.RecordBatch]:
    """Yield the documents of a file, whose pattern entries count 1. Memory: as for ``docword``."""
    with open_stream(path) as stream:
        yield from documents(stream, _header(stream, options.documents), words(path, options))


def _header(stream: Any, documents_are: str) -> Header:
    missing = f"its first line must be {_BANNER}"
    banner = header_line(stream, missing)
    number, line = 1, "%"
    while line.startswith("%") or not line.strip():
        number, line = number + 1, header_line(stream, missing)
    *kind, values, form = [*banner.lower().split(), "", ""][:5]
    if [*kind, form] != ["%%matrixmarket", "matrix", "coordinate", "general"] or values not in _COUNTS:
        raise UnreadableError(
            f"line 1 is {banner!r}; only {_BANNER} can be read; write the matrix in this format"
        )
    sizes = line.split()
    if len(sizes) != 3 or not all(map(SIZE.fullmatch, sizes)):
        raise UnreadableError(
            f"line {number} is {line!r}; it must have the numbers of rows, columns and entries"
        )
    document, other = (0, "columns") if documents_are == "rows" else (1, "rows")
    return Header(
        int(sizes[document]),
        int(sizes[1 - document]),
        int(sizes[2]),
        n_lines=number,
        count=_COUNTS[values],
        document=document,
        hint=f"; if the {other} are the documents, use {option.documents(other)}",
    )
