"""Sparse matrices of counts as SciPy saves them, read in pieces of rows.

Not by ``scipy.sparse.load_npz``, which needs the whole matrix in memory: a file may be larger than that. An ``.npz``
is a zip archive of arrays, so Python's ``zipfile`` and NumPy's ``lib.format`` read it; nothing here knows their bytes.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.readers import limits
from streaming_jsmf.ingestion.readers.base import BadRecords, SourceBatch, Unit
from streaming_jsmf.ingestion.readers.counts.matrix_rows import (
    Rows,
    bags_of_rows,
    row_cuts,
    row_place,
    row_units,
)
from streaming_jsmf.ingestion.readers.counts.word_lists import (
    WORD_LISTS,
    CountFiles,
    read_words,
    whole_file,
    word_list,
)
from streaming_jsmf.ingestion.readers.streams import UnreadableError, open_raw, read_as
from streaming_jsmf.validation import Strict


class NpzOptions(Strict):
    """Keys of the reader.

    Attributes
    ----------
    vocabulary
        Path or URL of the word list, relative to the file; by default, of ``X.npz``, ``X.vocab.txt``, ``vocab.txt``,
        ``vocabulary.txt`` or ``vocabulary.parquet`` beside it.
    """

    vocabulary: str | None = None


@dataclass(frozen=True)
class NpzSource(CountFiles):
    """Files of ``scipy.sparse.save_npz`` with a CSR matrix, documents in rows.

    Documents have no ids. A row with a bad word or count is put aside as a whole. Units are rows; a file that is
    compressed is one unit, because it can only be read from its start. Each unit reads its part once.

    Attributes
    ----------
    files
        Absolute local paths or URLs; all with the same words.
    options
        The keys.
    """

    reader: ClassVar[str] = "npz"
    options: NpzOptions = field(default_factory=NpzOptions)

    def words_of(self, path: str) -> tuple[str, ...]:
        """The words of one file. Reads its word list."""
        return read_words(self._word_list(path))

    def units(self) -> list[Unit]:
        """Rows of each file. Reads ``indptr`` where a file is cut: 16 bytes a document.

        Raises
        ------
        InputError
            For a missing file, a matrix that is no CSR matrix of numbers, and word lists that differ.
        """
        _ = self.vocabulary
        return [unit for path in self.files for unit in _units_of(path)]

    def place(self, unit: Unit, row: int) -> str:
        """File and row, from 0, of a record."""
        return row_place(unit, row)

    def read(self, unit: Unit, bad: BadRecords) -> Iterator[SourceBatch]:
        """Stream the documents of a unit. Memory: a batch of values and the words.

        Raises
        ------
        InputError
            If the file cannot be opened or is no CSR matrix, and under "fail" for the first bad row.
        """
        listed = self._word_list(unit.path)
        n_words = len(read_words(listed))
        try:
            with _open_matrix(unit.path) as matrix:
                if matrix.n_columns != n_words:
                    sizes = (
                        f"the matrix has {matrix.n_columns} columns, the word list {listed} {n_words} words"
                    )
                    bad.refuse(None, sizes)
                    return
                for rows in matrix.rows(unit.start, unit.stop or matrix.n_rows):
                    batch = bags_of_rows(rows, n_words, bad)
                    if batch.n_documents:
                        yield batch
        except UnreadableError as error:
            bad.refuse(None, str(error))

    def _word_list(self, path: str) -> str:
        own = PurePosixPath(path).stem + ".vocab.txt"
        return word_list(path, self.options.vocabulary, (own, *WORD_LISTS))


def _units_of(path: str) -> list[Unit]:
    whole = whole_file(path)
    try:
        with _open_matrix(path) as matrix:
            return row_units(path, matrix.indptr()) if matrix.stored else [whole]
    except UnreadableError:
        return [whole]  # reading it tells


@contextmanager
def _open_matrix(path: str) -> Iterator[_Matrix]:
    """The matrix of a file. Raises UnreadableError, also while the caller reads."""
    with open_raw(path) as stream, read_as("a matrix of scipy.sparse.save_npz"), ExitStack() as stack:
        yield _Matrix(path, stream, stack.enter_context(zipfile.ZipFile(stream)), stack)


@dataclass(frozen=True)
class _Array:
    """A one-dimensional array: its values start ``start`` bytes into its member."""

    member: zipfile.ZipInfo
    dtype: Any
    length: int
    start: int


class _Matrix:
    """A CSR matrix in an open archive; its arrays are read piece by piece."""

    def __init__(self, path: str, stream: Any, archive: zipfile.ZipFile, stack: ExitStack) -> None:
        self._path, self._stream, self._archive, self._stack = path, stream, archive, stack
        kind = bytes(self._small("format").astype("S"))
        if kind != b"csr":
            raise InputError(
                f"{path} holds a matrix in {kind.decode('ascii', 'replace')} format, which cannot be read by rows; "
                "write it with scipy.sparse.save_npz(path, matrix.tocsr())"
            )
        shape = [int(size) for size in self._small("shape").ravel()]
        if len(shape) != 2 or min(shape) < 0:
            raise UnreadableError(f"its shape is {shape}, not rows and columns; write it again")
        self.n_rows, self.n_columns = shape
        self._arrays = {name: self._array(name) for name in ("indptr", "indices", "data")}
        lengths = {name: array.length for name, array in self._arrays.items()}
        if lengths["indptr"] != self.n_rows + 1 or lengths["indices"] != lengths["data"]:
            raise UnreadableError(f"its arrays do not fit together (lengths {lengths}); write it again")

    @property
    def stored(self) -> bool:
        """Whether the arrays are not compressed, so that reading can start anywhere."""
        return all(array.member.compress_type == zipfile.ZIP_STORED for array in self._arrays.values())

    def indptr(self) -> NDArray[np.int64]:
        """All of indptr, (n_rows + 1,)."""
        return self._checked(self._take("indptr", 0)(self.n_rows + 1))

    def rows(self, start: int, stop: int) -> Iterator[Rows]:
        """Rows start..stop-1 in pieces of about ``limits.BATCH_VALUES`` values."""
        indptr = self._take("indptr", start)
        last = self._checked(indptr(1))
        words, counts = self._take("indices", int(last[0])), self._take("data", int(last[0]))
        for first in range(start, stop, limits.BATCH_VALUES):
            ends = self._checked(np.concatenate([last, indptr(min(limits.BATCH_VALUES, stop - first))]))
            last = ends[-1:]
            for a, b in pairwise(row_cuts(ends, limits.BATCH_VALUES)):
                n = int(ends[b] - ends[a])
                yield Rows(first - start + a, ends[a : b + 1] - ends[a], words(n), counts(n))
        if stop == self.n_rows and last[0] != self._arrays["data"].length:
            raise UnreadableError("indptr does not end with the number of values; write the matrix again")

    def _checked(self, indptr: NDArray[Any]) -> NDArray[np.int64]:
        ends = indptr.astype(np.int64)
        if ends[0] < 0 or ends[-1] > self._arrays["data"].length or (np.diff(ends) < 0).any():
            raise UnreadableError("its indptr falls or leaves the matrix; write the matrix again")
        return ends

    def _take(self, name: str, first: int) -> Callable[[int], NDArray[Any]]:
        """A function that reads the next n values of an array, the first time from ``first`` on."""
        array = self._arrays[name]
        opened = self._stack.enter_context(self._archive.open(array.member))
        # zipfile has just read the member's header and stands at its first byte; to seek, it would read all before.
        position = self._stream.tell() + array.start + first * array.dtype.itemsize

        def read_on(n: int, /) -> bytes:
            nonlocal position
            self._stream.seek(position)  # the arrays are read in turn, from one stream
            data: bytes = self._stream.read(n)
            position += len(data)
            return data

        jump = first and self.stored
        if not jump:
            opened.read(array.start)
        read = read_on if jump else opened.read

        def take(n: int) -> NDArray[Any]:
            data = read(n * array.dtype.itemsize)
            if len(data) < n * array.dtype.itemsize:
                raise EOFError(f"{name} ends early")
            return np.frombuffer(data, array.dtype)

        return take

    def _member(self, name: str) -> zipfile.ZipInfo:
        try:
            return self._archive.getinfo(f"{name}.npy")
        except KeyError:
            raise InputError(
                f"{self._path} has no array {name!r}; write it with scipy.sparse.save_npz(path, matrix.tocsr())"
            ) from None

    def _small(self, name: str) -> NDArray[Any]:
        member = self._member(name)
        if member.file_size > limits.LARGEST_SCALAR:
            raise UnreadableError(f"its array {name!r} is too large; write the matrix again")
        with self._archive.open(member) as stream:
            return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))

    def _array(self, name: str) -> _Array:
        member = self._member(name)
        with self._archive.open(member) as stream:
            version = np.lib.format.read_magic(stream)
            read = (
                np.lib.format.read_array_header_1_0
                if version == (1, 0)
                else np.lib.format.read_array_header_2_0
            )
            shape, _, dtype = read(stream)
            start = stream.tell()
        if dtype.kind not in ("iubf" if name == "data" else "iu"):
            raise InputError(f"{self._path} has {name!r} of type {dtype}; write the matrix with numbers")
        if len(shape) != 1 or member.file_size != start + shape[0] * dtype.itemsize:
            raise UnreadableError(f"its array {name!r} has another size than it says; write the matrix again")
        return _Array(member, dtype, shape[0], start)
