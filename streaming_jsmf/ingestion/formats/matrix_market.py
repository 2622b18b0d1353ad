"""Matrix Market files: a sparse matrix as lines "row column count", in ascending order of documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_jsmf.errors import option
from streaming_jsmf.ingestion.formats.docword import SIZE
from streaming_jsmf.ingestion.formats.number_lines import Header, documents, header_line, shown
from streaming_jsmf.ingestion.sources.matrices import words_beside
from streaming_jsmf.ingestion.sources.protocol import UnreadableError
from streaming_jsmf.ingestion.sources.streams import open_stream

_BANNER = "%%MatrixMarket matrix coordinate integer|real|pattern general"
_TYPES = {"integer": (np.int64,) * 3, "real": (np.int64, np.int64, np.float64), "pattern": (np.int64,) * 2}


def words(path: str, options: Any) -> Sequence[str]:
    """Return the words of a file. Raises InputError if its word list is missing."""
    return words_beside(path, options)


def read(path: str, options: Any) -> Iterator[pa.RecordBatch]:
    """Yield the documents of a file, whose pattern entries count 1. Memory: as for ``docword``."""
    with open_stream(path) as stream:
        yield from documents(path, stream, _header(stream, options.documents), words(path, options))


def _header(stream: Any, documents_are: str) -> Header:
    missing = f"its first line must be {_BANNER}"
    banner = header_line(stream, 1, missing).decode("latin-1")
    number, line = 1, "%"
    while line.startswith("%") or not line.strip():
        number += 1
        line = header_line(stream, number, missing).decode("latin-1")
    kind = banner.lower().split()
    if kind[:3] != _BANNER.lower().split()[:3] or kind[4:] != ["general"]:
        raise UnreadableError(
            f"line 1 is {shown(banner)}; only {_BANNER} can be read; write the matrix in this format"
        )
    if kind[3] not in _TYPES:
        raise UnreadableError(
            f"line 1 says the numbers are {shown(kind[3])}; they must be integer, real or pattern"
        )
    sizes = line.split()
    if len(sizes) != 3 or not all(map(SIZE.fullmatch, sizes)):
        raise UnreadableError(
            f"line {number} is {shown(line)}; it must have the numbers of rows, columns and entries"
        )
    document, other = (0, "columns") if documents_are == "rows" else (1, "rows")
    return Header(
        int(sizes[document]),
        int(sizes[1 - document]),
        int(sizes[2]),
        n_lines=number,
        types=_TYPES[kind[3]],
        document=document,
        hint=f"; if the {other} are the documents, use {option.documents(other)}",
    )
