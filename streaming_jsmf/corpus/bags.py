"""Bags of words: blocks of counts in CSR arrays, documents with ids and metadata, and the checks of list columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming_jsmf.errors import InputError

if TYPE_CHECKING:
    from scipy.sparse import csr_array

BATCH_NONZEROS = 1_000_000
LARGEST_COUNT = int(np.iinfo(np.int32).max)
SMALLEST_COUNT = float(np.finfo(np.float32).tiny)  # smaller counts become 0 or lose precision in float32


@dataclass(frozen=True, eq=False)
class Bags:
    """Counts of the words of m documents: rows of a sparse matrix. Methods share arrays where nothing changes.

    Attributes
    ----------
    indptr : (m + 1,) int64, starts at 0.
    ids : (nonzeros,) int32, distinct within a document; in ascending order in corpora, in any order before.
    counts : (nonzeros,) int32 or float32; positive and finite.
    words : Arrow array of distinct strings by id; None if a vocabulary elsewhere has them.
    """

    indptr: NDArray[np.int64]
    ids: NDArray[Any]
    counts: NDArray[Any]
    words: Any = None

    @classmethod
    def of_matrix(cls, matrix: csr_array[Any]) -> Self:
        return cls(matrix.indptr.astype(np.int64), matrix.indices, matrix.data)

    @classmethod
    def of_lists(cls, ids: Any, counts: Any) -> Self:
        """Return two Arrow list arrays of the same lengths, without nulls."""
        offsets = np.asarray(ids.offsets).astype(np.int64)
        # A sliced array keeps the offsets of the whole array.
        return cls(offsets - offsets[0], np.asarray(ids.flatten()), np.asarray(counts.flatten()))

    @classmethod
    def summed(
        cls,
        rows: NDArray[Any],
        ids: NDArray[Any],
        counts: NDArray[Any],
        m: int,
        words: Any,
        *,
        by_size: bool = False,
    ) -> Self:
        """Group entries in any order, with ids in ascending order and counts that are int64 sums, or float64.

        Counts are added one by one in the given order, or ``by_size``, so that the bits depend on neither the machine
        nor the blocks. Sums of integers are exact below 2^53.
        """
        keys = rows.astype(np.int64) * len(words) + ids
        at, totals = _sums(keys, counts, by_size=by_size)
        ends = np.cumsum(np.bincount(rows[at], minlength=m))
        kind = np.int64 if counts.dtype.kind in "iub" else np.float64
        return cls(np.append(0, ends), ids[at], totals.astype(kind, copy=False), words)

    @classmethod
    def concatenated(cls, parts: Sequence[Bags], words: Any = None) -> Self:
        """Concatenate the documents of one block or more, whose ids mean the same ``words``."""
        lengths, ids, counts = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("lengths", "ids", "counts")
        )
        return cls(np.append(0, np.cumsum(lengths)), ids, counts, words)

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self.indptr) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of distinct words of each document, (m,)."""
        return np.diff(self.indptr)

    @property
    def rows(self) -> NDArray[np.int64]:
        """The document of each entry, (nonzeros,)."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def tokens(self) -> NDArray[np.float64]:
        """Sum of the counts of each document, (m,) float64; the bits do not depend on the blocks."""
        from streaming_jsmf.linalg.csr import add_rows  # numba takes .3 s to import

        sums = np.zeros(len(self))
        add_rows(self.indptr, self.counts, sums)
        return sums

    def slice(self, start: int, stop: int) -> Self:
        """Documents ``start`` to ``stop - 1``, without copying ids and counts."""
        low, high = self.indptr[start], self.indptr[stop]
        indptr = self.indptr[start : stop + 1] - low
        return replace(self, indptr=indptr, ids=self.ids[low:high], counts=self.counts[low:high])

    def take(self, chosen: NDArray[Any]) -> Self:
        """Select documents by mask, or by number in the given order."""
        lengths = self.lengths[chosen]
        indptr = np.append(0, np.cumsum(lengths))
        if chosen.dtype == bool:
            at = np.repeat(chosen, self.lengths)
        else:
            at = np.repeat(self.indptr[:-1][chosen] - indptr[:-1], lengths) + np.arange(indptr[-1])
        return replace(self, indptr=indptr, ids=self.ids[at], counts=self.counts[at])

    def where(self, stays: NDArray[np.bool_]) -> Self:
        """Keep the entries of a mask, (nonzeros,), and all documents."""
        before = np.append(0, np.cumsum(stays))
        return replace(self, indptr=before[self.indptr], ids=self.ids[stays], counts=self.counts[stays])

    def mapped(self, new_ids: NDArray[Any]) -> Self:
        """Replace each id by a new one, and drop the words whose new id is negative. ``words`` become None."""
        new_ids = new_ids.astype(np.int32, copy=False)
        if new_ids.min(initial=0) >= 0:
            return replace(self, ids=new_ids[self.ids], words=None)
        from streaming_jsmf.linalg.csr import map_columns

        # A place more, in which entries that are dropped are written over.
        ends, ids = np.zeros_like(self.indptr), np.empty(len(self.ids) + 1, np.int32)
        counts = np.empty(len(ids), self.counts.dtype)
        map_columns(self.indptr, self.ids, self.counts, new_ids, ends, ids, counts)
        return replace(self, indptr=ends, ids=ids[: ends[-1]], counts=counts[: ends[-1]], words=None)

    def compact(self) -> Self:
        """Leave out the ``words`` that do not occur; the others keep their order."""
        occurs = np.zeros(len(self.words), bool)
        occurs[self.ids] = True
        new_ids = (np.cumsum(occurs) - 1).astype(np.int32)
        return replace(self, ids=new_ids[self.ids], words=self.words.filter(pa.array(occurs)))

    def ordered(self) -> Self:
        """Copy with ids in ascending order within documents."""
        size = int(self.ids.max(initial=-1)) + 1
        matrix = self.matrix(size)
        # Transposing twice sorts the ids in linear time.
        matrix = matrix.tocsc().tocsr() if matrix.nnz > size else matrix.sorted_indices()
        return replace(self, ids=matrix.indices, counts=matrix.data)

    def narrow(self) -> Self:
        """Convert ids to int32, and checked counts to int32 if they are integers, else to float32."""
        kind: Any = np.int32 if np.issubdtype(self.counts.dtype, np.integer) else np.float32
        ids, counts = self.ids.astype(np.int32, copy=False), self.counts.astype(kind, copy=False)
        return replace(self, ids=ids, counts=counts)

    def matrix(self, n_words: int) -> csr_array[Any]:
        """Return the matrix, (m, ``n_words``), whose indices are int32 if they fit, without copying ids and counts."""
        from scipy.sparse import csr_array

        # SciPy copies the index arrays in products unless both are int32.
        kind: Any = np.int32 if self.ids.size < np.iinfo(np.int32).max else np.int64
        ids, indptr = self.ids.astype(kind, copy=False), self.indptr.astype(kind)
        return csr_array((self.counts, ids, indptr), shape=(len(self), n_words), copy=False)

    def lists(self, types: Sequence[Any] = (None, None)) -> tuple[Any, Any]:
        """Return Arrow lists of the words, or of the ids without ``words``, and of the counts; m values below 2^31."""
        offsets, ids = pa.array(self.indptr.astype(np.int32)), pa.array(self.ids)
        if self.words is not None:
            ids = pa.DictionaryArray.from_arrays(ids, self.words, ordered=True)
        lists = pa.ListArray.from_arrays
        return lists(offsets, ids, type=types[0]), lists(offsets, pa.array(self.counts), type=types[1])

    def count_words(self, document_frequency: NDArray[Any], term_count: NDArray[np.float64]) -> None:
        """Add the number of documents and the tokens of each word, both (words,).

        Counts are added one at a time: sums per block would make rounding depend on the blocks.
        """
        from streaming_jsmf.linalg.csr import count_columns  # numba takes .3 s to import

        count_columns(self.ids, self.counts, document_frequency, term_count)


@dataclass(frozen=True, eq=False)
class Documents:
    """Documents with their ids and metadata.

    Attributes
    ----------
    bags : Their words.
    document_id : Arrow array of m strings or int64; None if they have no ids.
    metadata : Further Arrow arrays of length m, by column name.
    """

    bags: Bags
    document_id: Any = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def n_documents(self) -> int:
        return len(self.bags)

    def slice(self, start: int, stop: int) -> Self:
        """Documents ``start`` to ``stop - 1``, without copying."""
        return self._with(self.bags.slice(start, stop), slice(start, stop))

    def take(self, chosen: NDArray[np.bool_]) -> Self:
        """Select documents by mask."""
        return self if chosen.all() else self._with(self.bags.take(chosen), chosen)

    def _with(self, bags: Bags, rows: Any) -> Self:
        """Return the documents of a slice or a mask of rows, which have these bags."""

        def select(column: Any) -> Any:
            return column[rows] if isinstance(rows, slice) else column.filter(pa.array(rows))

        metadata = {name: select(column) for name, column in self.metadata.items()}
        ids = None if self.document_id is None else select(self.document_id)
        return replace(self, bags=bags, document_id=ids, metadata=metadata)


def _sums(keys: NDArray[np.int64], counts: NDArray[Any], *, by_size: bool) -> tuple[Any, NDArray[np.float64]]:
    """Return where each distinct key comes first, in ascending order of keys, and the sum of its counts."""
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


class RecordError(InputError):
    """A bad record, with its ``row`` within the batch and the ``reason``. Pickle needs the defaults."""

    def __init__(self, message: str, row: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.row = row
        self.reason = reason


@dataclass(frozen=True)
class Place:
    """Location of the records of a row group, for messages; rows count from 0."""

    path: str
    row_group: int

    def refuse(self, row: int, reason: str) -> RecordError:
        """Return the error to raise for a record."""
        where = f"{self.path}, row group {self.row_group}, row {row} from 0"
        return RecordError(f"{where}: {reason}; correct the record", row, reason)


def checked_bags(ids: Any, counts: Any, n_words: int, where: Place) -> Bags:
    """Return two Arrow list arrays as bags with ascending ids, without copying their values.

    Raises ``InputError`` with file, row group and row at the first null, lists of different lengths, id outside
    ``0..n_words-1`` or not ascending, or count that is not positive and finite.
    """
    lengths, others = (_lengths(column, name, where) for column, name in ((ids, "ids"), (counts, "counts")))
    uneven = lengths != others
    if uneven.any():
        row = int(np.argmax(uneven))
        raise where.refuse(row, f"{lengths[row]} ids but {others[row]} counts")
    bags = Bags.of_lists(ids, counts)
    values, numbers = bags.ids, bags.counts

    def require(good: NDArray[np.bool_], reason: str) -> None:
        if not good.all():
            at = int(np.argmin(good))
            row = int(np.searchsorted(bags.indptr, at, side="right")) - 1
            raise where.refuse(row, reason.format(id=values[at], before=values[at - 1], count=numbers[at]))

    require((values >= 0) & (values < n_words), f"word id {{id}} is outside 0..{n_words - 1}")
    ascending = np.ones(len(values), bool)
    ascending[1:] = values[1:] > values[:-1]
    starts = bags.indptr[:-1]
    ascending[starts[starts < len(values)]] = True
    require(ascending, "id {id} comes after {before}; ids must be in ascending order")
    # Comparisons with NaN are false, so NaN is refused.
    in_range = (numbers >= SMALLEST_COUNT) & (numbers <= LARGEST_COUNT)
    require(in_range, f"count {{count}} is not in (0, {LARGEST_COUNT}]")
    return bags


def _lengths(column: Any, name: str, where: Place) -> NDArray[np.int64]:
    """Length of each list of a column; refuses null lists and null elements."""
    if column.null_count:
        row = int(np.argmax(np.asarray(column.is_null())))
        raise where.refuse(row, f"{name} is null; an empty document is an empty list")
    offsets, values = np.asarray(column.offsets), column.flatten()
    if values.null_count:
        at = offsets[0] + int(np.argmax(np.asarray(values.is_null())))
        raise where.refuse(int(np.searchsorted(offsets, at, side="right")) - 1, f"{name} holds a null")
    return np.diff(offsets)
