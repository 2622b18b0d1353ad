"""Sparse matrices of counts as SciPy saves them, and what readers of matrices share: rows become bags."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.corpus.records import Counts
from streaming_jsmf.errors import InputError, first_line
from streaming_jsmf.sources.base import BATCH_VALUES, BadRecords, SourceBatch, Unit
from streaming_jsmf.sources.counts.grouped import (
    LARGEST_COUNT,
    SMALLEST_COUNT,
    WORD_LISTS,
    CountFiles,
    Entries,
    merged,
    read_words,
    size_of,
    too_large,
    word_list,
)
from streaming_jsmf.storage.paths import open_file
from streaming_jsmf.validation import Strict

BATCHES_PER_UNIT = 8

_SMALL_MEMBER = 4096  # bytes; far more than the shape and the format of a matrix need
_LOCAL_HEADER = struct.Struct(
    "<4s22xHH"
)  # of a zip member: magic, 22 bytes for others, lengths of name and extra


@dataclass(frozen=True, eq=False)
class Rows:
    """m rows of a sparse matrix.

    Attributes
    ----------
    first
        Number of the first one within its unit.
    indptr
        (m + 1,) integers from 0.
    words, counts
        (nonzeros,) as they were found; not checked.
    """

    first: int
    indptr: NDArray[Any]
    words: NDArray[Any]
    counts: NDArray[Any]


def row_cuts(indptr: NDArray[Any], values: int) -> list[int]:
    """Places 0 = a < b < ... = m that cut rows into pieces of about ``values`` values, rows counted in."""
    weight = np.arange(len(indptr))
    weight += indptr
    cuts = [0]
    while cuts[-1] < len(indptr) - 1:
        fitting = int(np.searchsorted(weight, weight[cuts[-1]] + values, side="right")) - 1
        cuts.append(max(fitting, cuts[-1] + 1))
    return cuts


def row_units(path: str, indptr: NDArray[Any]) -> list[Unit]:
    """Units of about ``BATCHES_PER_UNIT`` batches of the values of a matrix."""
    size, cuts = size_of(path), row_cuts(indptr, BATCHES_PER_UNIT * BATCH_VALUES)
    share = size / max(int(indptr[-1]) - int(indptr[0]), 1)
    units = [Unit(path, a, b, int(share * int(indptr[b] - indptr[a]))) for a, b in pairwise(cuts)]
    return units or [Unit(path, size=size)]


def row_place(unit: Unit, row: int) -> str:
    """File and row of a matrix."""
    return f"{unit.path}, row {unit.start + row} from 0"


def bags_of_rows(rows: Rows, n_words: int, bad: BadRecords) -> SourceBatch:
    """The bags of rows; a row with a word or count that is bad is refused and left out as a whole.

    Zeros are dropped and counts of the same word added. Integer and boolean counts become int32, others float32.
    """
    m, whole = len(rows.indptr) - 1, rows.counts.dtype.kind in "iub"
    document = np.repeat(np.arange(m), np.diff(rows.indptr))
    counts = rows.counts.astype(np.float64) if rows.counts.dtype.kind == "f" else rows.counts
    kept = np.ones(m, bool)

    def refuse(documents: NDArray[Any], wrong: NDArray[np.bool_], why: Callable[[int], str]) -> None:
        places = np.flatnonzero(wrong)
        for row, i in zip(*np.unique(documents[places], return_index=True), strict=True):
            kept[row] = False
            bad.refuse(rows.first + int(row), why(int(places[i])), _record(rows, int(row)))

    def why_wrong(i: int) -> str:
        if 0 <= rows.words[i] < n_words:
            return f"count {rows.counts[i]} is not in (0, {LARGEST_COUNT}], as every count must be"
        return f"word {rows.words[i]} (from 0) is not in the vocabulary of {n_words} words"

    # Comparisons with NaN are false, so it is refused as well.
    good = (counts == 0) | ((counts >= (1 if whole else SMALLEST_COUNT)) & (counts <= LARGEST_COUNT))
    refuse(document, ~good | (rows.words < 0) | (rows.words >= n_words), why_wrong)
    chosen = kept[document] & (counts != 0)
    document, added = document[chosen], counts[chosen].astype(np.int64 if whole else np.float64)
    sums = merged(Entries(document, rows.words[chosen].astype(np.int64), added, document), n_words)
    refuse(
        sums.document,
        sums.count > LARGEST_COUNT,
        lambda i: too_large(sums.count[i], f"{sums.word[i]} (from 0)"),
    )
    sums = sums.take(kept[sums.document])
    lengths = np.bincount(sums.document, minlength=m)[kept]
    narrow: Counts = sums.count.astype(np.int32) if whole else sums.count.astype(np.float32)
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return SourceBatch(indptr, sums.word.astype(np.int32), narrow, rows.first + np.flatnonzero(kept))


def _record(rows: Rows, row: int) -> str:
    """A row as text: word:count, with a space between."""
    inside = slice(int(rows.indptr[row]), int(rows.indptr[row + 1]))
    return " ".join(f"{w}:{c}" for w, c in zip(rows.words[inside], rows.counts[inside], strict=True))


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
        except _DamagedError as error:
            bad.refuse(None, str(error))

    def _word_list(self, path: str) -> str:
        own = PurePosixPath(path).stem + ".vocab.txt"
        return word_list(path, self.options.vocabulary, (own, *WORD_LISTS))


class _DamagedError(Exception):
    """The reason why a file cannot be read to its end."""


def _units_of(path: str) -> list[Unit]:
    whole = [Unit(path, size=size_of(path))]
    try:
        with _open_matrix(path) as matrix:
            return row_units(path, matrix.indptr()) if matrix.stored else whole
    except _DamagedError:
        return whole  # reading it tells


@contextmanager
def _open_matrix(path: str) -> Iterator[_Matrix]:
    """The matrix of a file. Raises _DamagedError, also while the caller reads."""
    try:
        with ExitStack() as stack:
            stream = stack.enter_context(open_file(path))
            yield _Matrix(path, stream, stack.enter_context(zipfile.ZipFile(stream)), stack)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({first_line(error)}); check the path") from error
    except (EOFError, RuntimeError, zipfile.BadZipFile, zlib.error, struct.error) as error:
        raise _DamagedError(
            f"it cannot be read as a matrix of scipy.sparse.save_npz ({first_line(error)}); it is truncated or "
            "damaged: write or fetch it again"
        ) from error


@dataclass(frozen=True)
class _Array:
    """Where a one-dimensional array lies: its values start ``start`` bytes into its member."""

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
            raise _DamagedError(f"its shape is {shape}, not rows and columns; write it again")
        self.n_rows, self.n_columns = shape
        self._arrays = {name: self._array(name) for name in ("indptr", "indices", "data")}
        lengths = {name: array.length for name, array in self._arrays.items()}
        if lengths["indptr"] != self.n_rows + 1 or lengths["indices"] != lengths["data"]:
            raise _DamagedError(f"its arrays do not fit together (lengths {lengths}); write it again")

    @property
    def stored(self) -> bool:
        """Whether the arrays are not compressed, so that reading can start anywhere."""
        return all(array.member.compress_type == zipfile.ZIP_STORED for array in self._arrays.values())

    def indptr(self) -> NDArray[np.int64]:
        """All of indptr, (n_rows + 1,)."""
        return self._checked(self._take("indptr", 0)(self.n_rows + 1))

    def rows(self, start: int, stop: int) -> Iterator[Rows]:
        """Rows start..stop-1 in pieces of about ``BATCH_VALUES`` values."""
        indptr = self._take("indptr", start)
        last = self._checked(indptr(1))
        words, counts = self._take("indices", int(last[0])), self._take("data", int(last[0]))
        for first in range(start, stop, BATCH_VALUES):
            ends = self._checked(np.concatenate([last, indptr(min(BATCH_VALUES, stop - first))]))
            last = ends[-1:]
            for a, b in pairwise(row_cuts(ends, BATCH_VALUES)):
                n = int(ends[b] - ends[a])
                yield Rows(first - start + a, ends[a : b + 1] - ends[a], words(n), counts(n))
        if stop == self.n_rows and last[0] != self._arrays["data"].length:
            raise _DamagedError("indptr does not end with the number of values; write the matrix again")

    def _checked(self, indptr: NDArray[Any]) -> NDArray[np.int64]:
        ends = indptr.astype(np.int64)
        if ends[0] < 0 or ends[-1] > self._arrays["data"].length or (np.diff(ends) < 0).any():
            raise _DamagedError("its indptr falls or leaves the matrix; write the matrix again")
        return ends

    def _take(self, name: str, first: int) -> Callable[[int], NDArray[Any]]:
        """A function that reads the next n values of an array, the first time from ``first`` on."""
        array = self._arrays[name]
        start = array.start + first * array.dtype.itemsize
        if first and self.stored:
            # Python's own seek would read all that lies before.
            read = self._from(array.member, start)
        else:
            stream = self._stack.enter_context(self._archive.open(array.member))
            stream.seek(start)
            read = stream.read

        def take(n: int) -> NDArray[Any]:
            data = read(n * array.dtype.itemsize)
            if len(data) < n * array.dtype.itemsize:
                raise EOFError(f"{name} ends early")
            return np.frombuffer(data, array.dtype)

        return take

    def _from(self, member: zipfile.ZipInfo, start: int) -> Callable[[int], bytes]:
        """A function that reads on in a member that is not compressed, the first time from a byte of it."""
        self._stream.seek(member.header_offset)
        _, name, extra = _LOCAL_HEADER.unpack(self._stream.read(_LOCAL_HEADER.size))
        position = member.header_offset + _LOCAL_HEADER.size + name + extra + start

        def read(n: int) -> bytes:
            nonlocal position
            self._stream.seek(position)  # the arrays are read in turn, from one stream
            data: bytes = self._stream.read(n)
            position += len(data)
            return data

        return read

    def _member(self, name: str) -> zipfile.ZipInfo:
        try:
            return self._archive.getinfo(f"{name}.npy")
        except KeyError:
            raise InputError(
                f"{self._path} has no array {name!r}; write it with scipy.sparse.save_npz(path, matrix.tocsr())"
            ) from None

    def _small(self, name: str) -> NDArray[Any]:
        member = self._member(name)
        if member.file_size > _SMALL_MEMBER:
            raise _DamagedError(f"its array {name!r} is too large; write the matrix again")
        with self._archive.open(member) as stream:
            try:
                return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))
            except ValueError as error:
                raise _DamagedError(f"its array {name!r} cannot be read ({first_line(error)})") from error

    def _array(self, name: str) -> _Array:
        member = self._member(name)
        with self._archive.open(member) as stream:
            try:
                version = np.lib.format.read_magic(stream)
                read = (
                    np.lib.format.read_array_header_1_0
                    if version == (1, 0)
                    else np.lib.format.read_array_header_2_0
                )
                shape, _, dtype = read(stream)
            except ValueError as error:
                raise _DamagedError(f"its array {name!r} cannot be read ({first_line(error)})") from error
            start = stream.tell()
        if dtype.kind not in ("iubf" if name == "data" else "iu"):
            raise InputError(f"{self._path} has {name!r} of type {dtype}; write the matrix with numbers")
        if len(shape) != 1 or member.file_size != start + shape[0] * dtype.itemsize:
            raise _DamagedError(f"its array {name!r} has another size than it says; write the matrix again")
        return _Array(member, dtype, shape[0], start)
