"""Matrices of ``scipy.sparse.save_npz``, read whole: rows are documents, and a list beside the file has the words."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.sparse import load_npz

from streaming_jsmf.ingestion.sources.matrices import batches_of, words_beside
from streaming_jsmf.ingestion.sources.protocol import UnreadableError
from streaming_jsmf.ingestion.sources.streams import first_link, open_raw, read_as
from streaming_jsmf.process_limits import machine_memory


def words(path: str, options: Any) -> Sequence[str]:
    """Return the words of a file. Raises InputError if its word list is missing."""
    return words_beside(path, options, (PurePosixPath(first_link(path)).stem + ".vocab.txt",))


def read(path: str, options: Any) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a matrix in any of SciPy's formats. Memory: twice the matrix."""
    with open_raw(path) as stream, read_as("a matrix of scipy.sparse.save_npz"):
        with zipfile.ZipFile(stream) as archive:
            size, most = sum(member.file_size for member in archive.infolist()), machine_memory()
        if 2 * size > most:
            raise UnreadableError(
                f"it is read whole, which takes {2 * size:,} bytes, and the machine has {most:,} bytes of memory; "
                "write it in parts"
            )
        stream.seek(0)
        matrix: Any = load_npz(stream)
        if hasattr(matrix, "indptr"):
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as arrays:
                values = len(arrays["data"])
            # SciPy drops the others without a word.
            if len(matrix.data) < values:
                raise UnreadableError(
                    f"its indptr ends at {len(matrix.data):,} of {values:,} values; write the file again"
                )
    yield from batches_of(matrix.tocsr(), words(path, options))
