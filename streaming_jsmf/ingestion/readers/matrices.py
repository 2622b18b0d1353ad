"""Counts over one vocabulary: the base of their readers, sparse matrices with documents as rows, and SciPy's ``.npz``.

``scipy.sparse.load_npz`` needs the whole matrix in memory; ``zipfile`` and ``numpy.lib.format`` read it in pieces.
"""

from __future__ import annotations

import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import fields
from functools import cached_property
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.corpus.records import LARGEST_COUNT, SMALLEST_COUNT, narrow_counts
from streaming_jsmf.corpus.vocabulary import TEXT_NAMES, VOCABULARY_NAME, read_vocabulary
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.ingestion.readers.base import BadRecords, Batch, Source, Unit, UnreadableError, limits
from streaming_jsmf.ingestion.readers.files import find_beside, first_link, open_raw, read_as, size_of

#: Batches of values per task.
BATCHES_PER_UNIT = 8

_WORD_LISTS = (*TEXT_NAMES, VOCABULARY_NAME)

#: m unchecked CSR rows: the number of the first one in its unit, ``indptr`` (m + 1,), words and counts (nonzeros,).
Rows = tuple[int, NDArray[Any], NDArray[Any], NDArray[Any]]


class CountFiles(Source):
    """Base of readers of files of counts over one vocabulary; word lists are named relative to each file."""

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """Words of all files; reads every word list once. Raises InputError if one is missing, invalid or different."""
        first, words = self.files[0], self.words_of(self.files[0])
        for path in self.files[1:]:
            others = self.words_of(path)
            if others != words:
                pairs = enumerate(zip(words, others, strict=False))
                at = next((i for i, (ours, theirs) in pairs if ours != theirs), min(len(words), len(others)))
                raise InputError(
                    f"{path} has other words than {first} from word {at} on, counted from 0; files that are ingested "
                    "together must share one vocabulary: ingest them separately"
                )
        return words

    def words_of(self, path: str) -> tuple[str, ...]:
        return read_vocabulary(self.word_list(path))[0].words

    def units(self) -> Sequence[Unit]:
        """Return the units of all files. Raises InputError if words are missing or differ."""
        units = super().units()
        _ = self.vocabulary
        return units

    def parts(self, path: str) -> Sequence[Unit]:
        return [Unit(path, size=size_of(path))]

    def place(self, unit: Unit, row: int) -> str:
        return f"{unit.path}, row {unit.start + row} from 0"

    def usual_word_lists(self, path: str) -> Sequence[str]:  # noqa: ARG002
        return _WORD_LISTS

    def word_list(self, path: str) -> str:
        """Return the path of a file's word list. Raises InputError if it is missing."""
        wanted = self.options.vocabulary
        names = self.usual_word_lists(path) if wanted is None else [wanted]
        found = find_beside(path, names)
        if found is None:
            raise InputError(
                f"{path} has no word list ({' or '.join(names)}); name it with {option.read({'vocabulary': 'FILE'})}"
            )
        return found

    def require_words(self, path: str, found: int, hint: str = "") -> None:
        """Raise UnreadableError if a file counts another number of words than its word list has."""
        listed = len(self.words_of(path))
        if found != listed:
            raise UnreadableError(
                f"the number of words is {found} in the file and {listed} in its word list {self.word_list(path)}{hint}"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        # Exclude the words to keep tasks small; each task reads them itself.
        return type(self), tuple(getattr(self, field.name) for field in fields(self))


def sums(
    keys: NDArray[np.int64], counts: NDArray[Any], *, by_size: bool = False
) -> tuple[Any, NDArray[np.float64]]:
    """Return where each distinct key comes first, in ascending order of keys, and the sum of its counts.

    Counts are added one by one in the given order, or ``by_size``, so that the bits depend on neither the machine nor
    the blocks.
    """
    if (np.diff(keys) > 0).all():
        return slice(None), counts.astype(np.float64)
    order = _stable_order(keys)
    keys, counts = keys[order], counts[order]
    new = np.diff(keys, prepend=-1) != 0
    if by_size:
        again = np.flatnonzero(~(new & np.append(new[1:], True)))
        counts[again] = counts[again[np.lexsort((counts[again], keys[again]))]]
    totals = np.bincount(np.cumsum(new) - 1, counts)
    return order[new], totals.astype(np.float64, copy=False)


def _stable_order(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the stable order of keys from 0 on. NumPy sorts 16 bits at a time several times faster than 64."""
    order = np.argsort(keys.astype(np.uint16), kind="stable")
    for shift in range(16, int(keys.max()).bit_length(), 16):
        order = order[np.argsort((keys[order] >> shift).astype(np.uint16), kind="stable")]
    return order


#: Why a count cannot be used.
NO_COUNT = f"is not in (0, {LARGEST_COUNT}], as every count must be"


def are_counts(numbers: NDArray[Any], whole: bool) -> NDArray[np.bool_]:
    """Return which numbers can be counts; NaN cannot, because comparisons with it are false."""
    return (numbers >= (1 if whole else SMALLEST_COUNT)) & (numbers <= LARGEST_COUNT)


def too_large(total: float, word: object) -> str:
    return f"the counts of word {word} add up to {total:.0f}, above {LARGEST_COUNT}"


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
    counts = stored if whole else stored.astype(np.float64)
    kept = np.ones(m, bool)

    def refuse(documents: NDArray[Any], wrong: NDArray[np.bool_], explain: Callable[[int], str]) -> None:
        positions = np.flatnonzero(wrong)
        for row, i in zip(*np.unique(documents[positions], return_index=True), strict=True):
            kept[row] = False
            inside = slice(int(indptr[row]), int(indptr[row + 1]))
            record = " ".join(f"{w}:{c}" for w, c in zip(words[inside], stored[inside], strict=True))
            bad.refuse(first + int(row), explain(int(positions[i])), record)

    good = (counts == 0) | are_counts(counts, whole)
    known = (words >= 0) & (words < n_words)
    reasons = {
        False: f"word {{word}} (from 0) is outside 0..{n_words - 1}",
        True: f"count {{count}} {NO_COUNT}",
    }
    refuse(
        document, ~(good & known), lambda i: reasons[bool(known[i])].format(word=words[i], count=stored[i])
    )
    chosen = kept[document] & (counts != 0)
    document, word = document[chosen], words[chosen].astype(np.int64)
    at, totals = sums(document * n_words + word, counts[chosen])
    document, word = document[at], word[at]
    refuse(document, totals > LARGEST_COUNT, lambda i: too_large(totals[i], f"{word[i]} (from 0)"))
    chosen = kept[document]
    lengths = np.bincount(document[chosen], minlength=m)[kept]
    return Batch(
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        word[chosen].astype(np.int32),
        narrow_counts(totals[chosen].astype(np.int64 if whole else np.float64)),
        first + np.flatnonzero(kept),
    )


class CsrMatrix(ABC):
    """CSR matrix in a file, read piece by piece; ``arrays`` has length and type of indptr, indices and data."""

    def __init__(self, path: str, shape: Sequence[int], arrays: Mapping[str, tuple[int, Any]]) -> None:
        if len(shape) != 2 or min(shape) < 0:
            raise UnreadableError(f"its shape is {[*shape]}, not rows and columns; write it again")
        self.n_rows, self.n_columns = shape
        lengths = {name: length for name, (length, _) in arrays.items()}
        if lengths["indptr"] != self.n_rows + 1 or lengths["indices"] != lengths["data"]:
            raise UnreadableError(f"its arrays do not fit together (lengths {lengths}); write it again")
        for name, (_, kind) in arrays.items():
            if kind.kind not in ("iubf" if name == "data" else "iu"):
                raise InputError(f"{path} has {name!r} of type {kind}; write the matrix with numbers")
        self._n_values = lengths["data"]

    @abstractmethod
    def array(self, name: str, first: int) -> Callable[[int], NDArray[Any]]:
        """Return a function that reads the next n values of an array, starting at ``first``."""

    def indptr(self) -> NDArray[np.int64]:
        return self._checked(self.array("indptr", 0)(self.n_rows + 1))

    def rows(self, start: int, stop: int) -> Iterator[Rows]:
        """Yield rows start..stop-1 in pieces of about ``limits.BATCH_VALUES`` values."""
        indptr = self.array("indptr", start)
        last = self._checked(indptr(1))
        if not start and last[0]:
            raise UnreadableError("its indptr does not start with 0; write the matrix again")
        words, counts = self.array("indices", int(last[0])), self.array("data", int(last[0]))
        for first in range(start, stop, limits.BATCH_VALUES):
            following = indptr(min(limits.BATCH_VALUES, stop - first))
            ends = self._checked(np.concatenate([last, following]))
            last = ends[-1:]
            for a, b in pairwise(row_cuts(ends, limits.BATCH_VALUES)):
                n = int(ends[b] - ends[a])
                yield first - start + a, ends[a : b + 1] - ends[a], words(n), counts(n)
        if stop == self.n_rows and last[0] != self._n_values:
            raise UnreadableError("indptr does not end with the number of values; write the matrix again")

    def _checked(self, indptr: NDArray[Any]) -> NDArray[np.int64]:
        ends = indptr.astype(np.int64)
        if ends[0] < 0 or ends[-1] > self._n_values or (np.diff(ends) < 0).any():
            raise UnreadableError("its indptr decreases or points outside the matrix; write the matrix again")
        return ends


class NpzSource(CountFiles):
    """Reader "npz": CSR matrices of ``scipy.sparse.save_npz`` over the same words; documents have no ids.

    A file is one unit, because an archive is read from its start.
    """

    reader = "npz"
    patterns = ("*.npz",)

    def usual_word_lists(self, path: str) -> Sequence[str]:
        return (PurePosixPath(first_link(path)).stem + ".vocab.txt", *super().usual_word_lists(path))

    def read(self, unit: Unit, bad: BadRecords) -> Iterator[Batch]:
        what = "a matrix of scipy.sparse.save_npz"
        with bad.unreadable_file(), open_raw(unit.path) as stream, read_as(what), ExitStack() as stack:
            matrix = _NpzMatrix(unit.path, stack.enter_context(zipfile.ZipFile(stream)), stack)
            self.require_words(unit.path, matrix.n_columns)
            for rows in matrix.rows(0, matrix.n_rows):
                yield bags_of_rows(rows, matrix.n_columns, bad)


class _NpzMatrix(CsrMatrix):
    """CSR matrix in an open archive."""

    def __init__(self, path: str, archive: zipfile.ZipFile, stack: ExitStack) -> None:
        self._path, self._archive, self._stack = path, archive, stack
        kind = bytes(self._small("format").astype("S"))
        if kind != b"csr":
            raise InputError(
                f"{path} holds a matrix in {kind.decode('ascii', 'replace')} format, which cannot be read by rows; "
                "write it with scipy.sparse.save_npz(path, matrix.tocsr())"
            )
        # By name: where its values start in its archive member, their number and type.
        self._arrays = {name: self._header(name) for name in ("indptr", "indices", "data")}
        shape = [int(size) for size in self._small("shape").ravel()]
        super().__init__(path, shape, {name: array[1:] for name, array in self._arrays.items()})

    def array(self, name: str, first: int) -> Callable[[int], NDArray[Any]]:
        start, _, dtype = self._arrays[name]
        opened = self._stack.enter_context(self._archive.open(self._member(name)))
        opened.seek(start + first * dtype.itemsize)

        def take(n: int) -> NDArray[Any]:
            data = opened.read(n * dtype.itemsize)
            if len(data) < n * dtype.itemsize:
                raise EOFError(f"{name} ends early")
            return np.frombuffer(data, dtype)

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

    def _header(self, name: str) -> tuple[int, int, Any]:
        member, formats = self._member(name), np.lib.format
        with self._archive.open(member) as stream:
            first_version = formats.read_magic(stream) == (1, 0)
            read = formats.read_array_header_1_0 if first_version else formats.read_array_header_2_0
            shape, _, dtype = read(stream)
            start = stream.tell()
        length = shape[0] if len(shape) == 1 else -1
        if not dtype.hasobject and member.file_size != start + length * dtype.itemsize:
            raise UnreadableError(
                f"its array {name!r} does not have the size that its header gives; write the matrix again"
            )
        return start, length, dtype
