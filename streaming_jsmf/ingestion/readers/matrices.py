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

from streaming_jsmf.corpus.records import LARGEST_COUNT, SMALLEST_COUNT, narrow_counts
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.readers import limits
from streaming_jsmf.ingestion.readers.base import BadRecords, SourceBatch, Unit, UnreadableError
from streaming_jsmf.ingestion.readers.counts import CountFiles, Entries, merge_entries, too_large, whole_file
from streaming_jsmf.ingestion.readers.files import open_raw, read_as
from streaming_jsmf.validation import Strict

#: Batches of values per task.
BATCHES_PER_UNIT = 8


@dataclass(frozen=True, eq=False)
class Rows:
    """m unchecked CSR rows, from row ``first`` of the unit; shapes (m + 1,), (nonzeros,), (nonzeros,)."""

    first: int
    indptr: NDArray[Any]
    words: NDArray[Any]
    counts: NDArray[Any]


def row_cuts(indptr: NDArray[Any], values: int) -> list[int]:
    """Return cuts 0 = a < b < ... = m into runs of rows; rows plus values of a run are about ``values``."""
    weight = np.arange(len(indptr))
    weight += indptr
    cuts = [0]
    while cuts[-1] < len(indptr) - 1:
        fitting = int(np.searchsorted(weight, weight[cuts[-1]] + values, side="right")) - 1
        cuts.append(max(fitting, cuts[-1] + 1))
    return cuts


def row_units(path: str, indptr: NDArray[Any]) -> list[Unit]:
    """Split a matrix into units of about ``BATCHES_PER_UNIT`` batches of values."""
    size, cuts = whole_file(path).size, row_cuts(indptr, BATCHES_PER_UNIT * limits.BATCH_VALUES)
    share = size / max(int(indptr[-1]) - int(indptr[0]), 1)
    units = [Unit(path, a, b, int(share * int(indptr[b] - indptr[a]))) for a, b in pairwise(cuts)]
    return units or [Unit(path, size=size)]


def bags_of_rows(rows: Rows, n_words: int, bad: BadRecords) -> SourceBatch:
    """Convert rows to bags; a row with a bad word or count is refused as a whole.

    Drops zeros and sums duplicate words. Integer and boolean counts become int32, others float32.
    """
    m, whole = len(rows.indptr) - 1, rows.counts.dtype.kind in "iub"
    document = np.repeat(np.arange(m), np.diff(rows.indptr))
    counts = rows.counts.astype(np.float64) if rows.counts.dtype.kind == "f" else rows.counts
    kept = np.ones(m, bool)

    def refuse(documents: NDArray[Any], wrong: NDArray[np.bool_], explain: Callable[[int], str]) -> None:
        positions = np.flatnonzero(wrong)
        for row, i in zip(*np.unique(documents[positions], return_index=True), strict=True):
            kept[row] = False
            inside = slice(int(rows.indptr[row]), int(rows.indptr[row + 1]))
            pairs = zip(rows.words[inside], rows.counts[inside], strict=True)
            bad.refuse(
                rows.first + int(row), explain(int(positions[i])), " ".join(f"{w}:{c}" for w, c in pairs)
            )

    def explain_entry(i: int) -> str:
        if 0 <= rows.words[i] < n_words:
            return f"count {rows.counts[i]} is not in (0, {LARGEST_COUNT}], as every count must be"
        return f"word {rows.words[i]} (from 0) is not in the vocabulary of {n_words} words"

    # Comparisons with NaN are false, so NaN is refused as well.
    good = (counts == 0) | ((counts >= (1 if whole else SMALLEST_COUNT)) & (counts <= LARGEST_COUNT))
    refuse(document, ~good | (rows.words < 0) | (rows.words >= n_words), explain_entry)
    chosen = kept[document] & (counts != 0)
    document, added = document[chosen], counts[chosen].astype(np.int64 if whole else np.float64)
    sums = merge_entries(Entries(document, rows.words[chosen].astype(np.int64), added, document), n_words)
    refuse(
        sums.document,
        sums.count > LARGEST_COUNT,
        lambda i: too_large(sums.count[i], f"{sums.word[i]} (from 0)"),
    )
    sums = sums.take(kept[sums.document])
    lengths = np.bincount(sums.document, minlength=m)[kept]
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return SourceBatch(
        indptr, sums.word.astype(np.int32), narrow_counts(sums.count), rows.first + np.flatnonzero(kept)
    )


class NpzOptions(Strict):
    """``vocabulary``: the word list, relative to the file; default for ``X.npz``: ``X.vocab.txt`` or a usual name."""

    vocabulary: str | None = None


class NpzSource(CountFiles):
    """Reader "npz": CSR matrices of ``scipy.sparse.save_npz`` over the same words; documents have no ids.

    A compressed file is one unit, because it can only be read from its start.
    """

    reader = "npz"
    options_type = NpzOptions
    patterns = ("*.npz",)

    def usual_word_lists(self, path: str) -> Sequence[str]:
        return (PurePosixPath(path).stem + ".vocab.txt", *super().usual_word_lists(path))

    def units(self) -> list[Unit]:
        """Split each file by rows. Reads ``indptr`` (16 bytes per document) of files that can be split."""
        _ = self.vocabulary
        return [unit for path in self.files for unit in _units_of(path)]

    def read(self, unit: Unit, bad: BadRecords) -> Iterator[SourceBatch]:
        n_words = len(self.words_of(unit.path))
        with bad.unreadable_file(), _open_matrix(unit.path) as matrix:
            if matrix.n_columns != n_words:
                raise UnreadableError(
                    f"the matrix has {matrix.n_columns} columns, the word list {self.word_list(unit.path)} "
                    f"{n_words} words"
                )
            for rows in matrix.rows(unit.start, unit.stop or matrix.n_rows):
                yield bags_of_rows(rows, n_words, bad)


def _units_of(path: str) -> list[Unit]:
    whole = whole_file(path)
    try:
        with _open_matrix(path) as matrix:
            return row_units(path, matrix.indptr()) if matrix.stored else [whole]
    except UnreadableError:
        return [whole]  # reading reports the reason


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

    @property
    def stored(self) -> bool:
        """Whether the arrays are uncompressed, so that reading can start anywhere."""
        return all(array.member.compress_type == zipfile.ZIP_STORED for array in self._arrays.values())

    def indptr(self) -> NDArray[np.int64]:
        return self._checked(self._reader("indptr", 0)(self.n_rows + 1))

    def rows(self, start: int, stop: int) -> Iterator[Rows]:
        """Yield rows start..stop-1 in pieces of about ``limits.BATCH_VALUES`` values."""
        indptr = self._reader("indptr", start)
        last = self._checked(indptr(1))
        words, counts = self._reader("indices", int(last[0])), self._reader("data", int(last[0]))
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
            raise UnreadableError(f"its array {name!r} has another size than it says; write the matrix again")
        return _Array(member, dtype, shape[0], start)
