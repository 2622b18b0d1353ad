"""Sparse count matrices with documents as rows, and SciPy's ``.npz`` files.

``scipy.sparse.load_npz`` needs the whole matrix in memory; ``zipfile`` and ``numpy.lib.format`` read it in pieces.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.config import WordListOptions
from streaming_jsmf.corpus.records import LARGEST_COUNT, SMALLEST_COUNT, narrow_counts
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.readers.base import BadRecords, Batch, Unit, UnreadableError, limits
from streaming_jsmf.ingestion.readers.counts import (
    CountFiles,
    Entries,
    merge_entries,
    row_cuts,
    too_large,
)
from streaming_jsmf.ingestion.readers.files import first_link, open_raw, read_as, size_of

#: Batches of values per task.
BATCHES_PER_UNIT = 8


#: m unchecked CSR rows: the number of the first one in its unit, ``indptr`` (m + 1,), words and counts (nonzeros,).
Rows = tuple[int, NDArray[Any], NDArray[Any], NDArray[Any]]


def checked_indptr(indptr: NDArray[Any], n_values: int) -> NDArray[np.int64]:
    """Return a part of an ``indptr`` as int64. Raises UnreadableError if it falls or leaves the values."""
    ends = indptr.astype(np.int64)
    if ends[0] < 0 or ends[-1] > n_values or (np.diff(ends) < 0).any():
        raise UnreadableError("its indptr decreases or points outside the matrix; write the matrix again")
    return ends


def row_units(path: str, indptr: NDArray[Any]) -> list[Unit]:
    """Split a matrix into units of about ``BATCHES_PER_UNIT`` batches of values."""
    size, cuts = size_of(path), row_cuts(indptr, BATCHES_PER_UNIT * limits.BATCH_VALUES)
    share = size / max(int(indptr[-1]) - int(indptr[0]), 1)
    units = [Unit(path, a, b, int(share * int(indptr[b] - indptr[a]))) for a, b in pairwise(cuts)]
    return units or [Unit(path, size=size)]


def bags_of_rows(rows: Rows, n_words: int, bad: BadRecords) -> Batch:
    """Convert rows to bags; a row with a bad word or count is refused as a whole.

    Drops zeros and sums duplicate words. Integer and boolean counts become int32, others float32.
    """
    first, indptr, words, stored = rows
    m, whole = len(indptr) - 1, stored.dtype.kind in "iub"
    document = np.repeat(np.arange(m), np.diff(indptr))
    counts = stored.astype(np.float64) if stored.dtype.kind == "f" else stored
    kept = np.ones(m, bool)

    def refuse(documents: NDArray[Any], wrong: NDArray[np.bool_], explain: Callable[[int], str]) -> None:
        positions = np.flatnonzero(wrong)
        for row, i in zip(*np.unique(documents[positions], return_index=True), strict=True):
            kept[row] = False
            inside = slice(int(indptr[row]), int(indptr[row + 1]))
            record = " ".join(f"{w}:{c}" for w, c in zip(words[inside], stored[inside], strict=True))
            bad.refuse(first + int(row), explain(int(positions[i])), record)

    def explain_entry(i: int) -> str:
        if 0 <= words[i] < n_words:
            return f"count {stored[i]} is not in (0, {LARGEST_COUNT}], as every count must be"
        return f"word {words[i]} (from 0) is not in the vocabulary of {n_words} words"

    # Comparisons with NaN are false, so NaN is refused as well.
    good = (counts == 0) | ((counts >= (1 if whole else SMALLEST_COUNT)) & (counts <= LARGEST_COUNT))
    refuse(document, ~good | (words < 0) | (words >= n_words), explain_entry)
    chosen = kept[document] & (counts != 0)
    document, added = document[chosen], counts[chosen].astype(np.int64 if whole else np.float64)
    sums = merge_entries(Entries(document, words[chosen].astype(np.int64), added, document), n_words)
    refuse(
        sums.document,
        sums.count > LARGEST_COUNT,
        lambda i: too_large(sums.count[i], f"{sums.word[i]} (from 0)"),
    )
    sums = sums.take(kept[sums.document])
    lengths = np.bincount(sums.document, minlength=m)[kept]
    return Batch(
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        sums.word.astype(np.int32),
        narrow_counts(sums.count),
        first + np.flatnonzero(kept),
    )


class NpzSource(CountFiles):
    """Reader "npz": CSR matrices of ``scipy.sparse.save_npz`` over the same words; documents have no ids.

    A compressed file is one unit, because it can only be read from its start.
    """

    reader = "npz"
    options_type = WordListOptions
    patterns = ("*.npz",)

    def usual_word_lists(self, path: str) -> Sequence[str]:
        return (PurePosixPath(first_link(path)).stem + ".vocab.txt", *super().usual_word_lists(path))

    def parts(self, path: str) -> Sequence[Unit]:
        """Split a file by rows if it is not compressed. Reads its ``indptr``, 16 bytes per document."""
        with _open_matrix(path) as matrix:
            return row_units(path, matrix.indptr()) if matrix.stored else super().parts(path)

    def read(self, unit: Unit, bad: BadRecords) -> Iterator[Batch]:
        n_words = len(self.words_of(unit.path))
        with bad.unreadable_file(), _open_matrix(unit.path) as matrix:
            if matrix.n_columns != n_words:
                raise UnreadableError(
                    f"the matrix has {matrix.n_columns} columns, the word list {self.word_list(unit.path)} "
                    f"{n_words} words"
                )
            for rows in matrix.rows(unit.start, unit.stop or matrix.n_rows):
                yield bags_of_rows(rows, n_words, bad)


@contextmanager
def _open_matrix(path: str) -> Iterator[_Matrix]:
    """Open the matrix of a file. Raises UnreadableError, also while the caller reads."""
    with open_raw(path) as stream, read_as("a matrix of scipy.sparse.save_npz"), ExitStack() as stack:
        yield _Matrix(path, stream, stack.enter_context(zipfile.ZipFile(stream)), stack)


@dataclass(frozen=True)
class _Array:
    """One-dimensional array whose values start ``start`` bytes into its archive member."""

    member: zipfile.ZipInfo
    dtype: Any
    length: int
    start: int


class _Matrix:
    """CSR matrix in an open archive, read piece by piece."""

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
        self._n_values = lengths["data"]

    @property
    def stored(self) -> bool:
        """Whether the arrays are uncompressed, so that reading can start anywhere."""
        return all(array.member.compress_type == zipfile.ZIP_STORED for array in self._arrays.values())

    def indptr(self) -> NDArray[np.int64]:
        return checked_indptr(self._reader("indptr", 0)(self.n_rows + 1), self._n_values)

    def rows(self, start: int, stop: int) -> Iterator[Rows]:
        """Yield rows start..stop-1 in pieces of about ``limits.BATCH_VALUES`` values."""
        indptr = self._reader("indptr", start)
        last = checked_indptr(indptr(1), self._n_values)
        words, counts = self._reader("indices", int(last[0])), self._reader("data", int(last[0]))
        for first in range(start, stop, limits.BATCH_VALUES):
            following = indptr(min(limits.BATCH_VALUES, stop - first))
            ends = checked_indptr(np.concatenate([last, following]), self._n_values)
            last = ends[-1:]
            for a, b in pairwise(row_cuts(ends, limits.BATCH_VALUES)):
                n = int(ends[b] - ends[a])
                yield first - start + a, ends[a : b + 1] - ends[a], words(n), counts(n)
        if stop == self.n_rows and last[0] != self._n_values:
            raise UnreadableError("indptr does not end with the number of values; write the matrix again")

    def _reader(self, name: str, first: int) -> Callable[[int], NDArray[Any]]:
        """Return a function that reads the next n values of an array, starting at ``first``."""
        array = self._arrays[name]
        opened = self._stack.enter_context(self._archive.open(array.member))
        # zipfile has just read the member's header, so the stream is at its first byte; seeking would read all before.
        position = self._stream.tell() + array.start + first * array.dtype.itemsize

        def read_on(n: int, /) -> bytes:
            nonlocal position
            self._stream.seek(position)  # the arrays share one stream
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
        member, formats = self._member(name), np.lib.format
        with self._archive.open(member) as stream:
            first_version = formats.read_magic(stream) == (1, 0)
            read = formats.read_array_header_1_0 if first_version else formats.read_array_header_2_0
            shape, _, dtype = read(stream)
            start = stream.tell()
        if dtype.kind not in ("iubf" if name == "data" else "iu"):
            raise InputError(f"{self._path} has {name!r} of type {dtype}; write the matrix with numbers")
        if len(shape) != 1 or member.file_size != start + shape[0] * dtype.itemsize:
            raise UnreadableError(
                f"its array {name!r} does not have the size that its header gives; write the matrix again"
            )
        return _Array(member, dtype, shape[0], start)
