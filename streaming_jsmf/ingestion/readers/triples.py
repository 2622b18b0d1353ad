"""Tables with one row per (document, word, count), in any order, in Parquet or delimited text."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_jsmf.corpus.records import LARGEST_COUNT, SMALLEST_COUNT
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.readers.base import BadRecords, SourceBatch, Unit, UnreadableError
from streaming_jsmf.ingestion.readers.files import is_compressed, open_parquet_source
from streaming_jsmf.ingestion.readers.grouping import MAX_BUCKETS, read_bucket, write_buckets
from streaming_jsmf.ingestion.readers.tables import Delimited, TableBatch, read_table
from streaming_jsmf.ingestion.readers.units import TABLE_PATTERNS, RecordFiles, is_parquet
from streaming_jsmf.ingestion.readers.values import (
    as_bytes,
    invalid_rows,
    is_text,
    require_columns,
    value_type,
)

BUCKET_BYTES = 64 << 20
_ROW_BYTES = 24  # approximate size of a (document, word, count) outside Parquet
_TEXT_GROWTH = 5  # approximate decompression ratio of text

_INTEGER = r"^-?[0-9]{1,19}$"
_NUMBER = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"


@dataclass(frozen=True, eq=False)
class Keys:
    """n ids or words: ``codes`` (n,) int32 into ``values``, -1 for null; ``faults``: reasons to refuse values."""

    name: str
    codes: NDArray[np.int32]
    values: Any
    faults: dict[int, str]

    def good(self) -> NDArray[np.bool_]:
        """Return (n,) whether each value can be used."""
        good = np.ones(len(self.values) + 1, bool)
        good[list(self.faults)] = False
        good[-1] = False  # for code -1
        return good[self.codes]

    def explain(self, i: int) -> str | None:
        """Return why row i cannot be used; None if it can."""
        code = int(self.codes[i])
        reason = "is null" if code < 0 else self.faults.get(code)
        return None if reason is None else f"{self.name} {reason}"


@dataclass(frozen=True, eq=False)
class CheckedCounts:
    """n counts int32 or float32, whether each can be used, and the reasons."""

    values: NDArray[Any]
    good: NDArray[np.bool_]
    explain: Callable[[int], str]


@dataclass(frozen=True)
class TableSource(RecordFiles):
    """Files of rows whose documents are grouped by ``scatter`` and ``gather`` (see ``grouping``).

    Two passes over the rows, one of them over the files. Equal (document, word) are summed.
    """

    files: tuple[str, ...]
    options: Any

    patterns = TABLE_PATTERNS

    @property
    @abstractmethod
    def roles(self) -> tuple[str, str, str | None]:
        """Names of the columns of documents, words and counts; without counts (None), each row counts 1."""

    @abstractmethod
    def count_kind(self, kind: Any) -> str:
        """Return "int" or "float" for the Arrow type of the count column (None for text)."""

    @abstractmethod
    def counts(self, batch: TableBatch) -> CheckedCounts:
        """Return the counts of a batch."""

    def rename_words(self, path: str) -> Callable[[Keys], Keys]:  # noqa: ARG002
        """Return a function that replaces the words of a file by their names."""
        return lambda words: words

    def splittable(self, path: str) -> bool:  # noqa: ARG002
        """Return False: each file starts with a header."""
        return False

    def units(self) -> Sequence[Unit]:
        """Return runs of row groups, or whole text files. Raises InputError if no file is found or types differ."""
        if not self.files:
            raise InputError("there are no files to read; name at least one")
        kinds = [(path, kind) for path in self.files if (kind := self._kind(path)) is not None]
        for path, kind in kinds[1:]:
            if kind != kinds[0][1]:
                ours, theirs = (f"{ids} ids and {counts} counts" for ids, counts in (kind, kinds[0][1]))
                raise InputError(
                    f"{path} has {ours}, {kinds[0][0]} has {theirs}; make the columns of the same types"
                )
        return super().units()

    def place(self, unit: Unit, row: int) -> str:
        header = 0 if is_parquet(unit.path) else int(self.options.header)
        return super().place(unit, row + header)

    def n_buckets(self) -> int:
        """Return the number of buckets of about 64 MB, 1 to 4096. Reads only the footers of Parquet files."""
        total = 0
        for path in filter(is_parquet, self.files):
            try:
                with open_parquet_source(path) as file:
                    total += int(file.metadata.num_rows) * _ROW_BYTES
            except UnreadableError:
                continue  # reading reports the reason
        for unit in self.units():
            if not is_parquet(unit.path):
                total += unit.size * (_TEXT_GROWTH if is_compressed(unit.path) else 1)
        return min(max(-(-total // BUCKET_BYTES), 1), MAX_BUCKETS)

    def scatter(self, unit: Unit, bad: BadRecords, target: Path, n_buckets: int) -> None:
        """Read one unit and write its rows to ``target``. One pass, with about a million rows in memory."""
        write_buckets(self._checked_rows(unit, bad), target, n_buckets)

    def gather(self, files: Sequence[Path], bucket: int, bad: BadRecords) -> Iterator[SourceBatch]:
        """Yield the documents of a bucket, from the files of all units (see ``grouping.read_bucket``)."""
        return read_bucket(files, bucket, bad)

    def _kind(self, path: str) -> tuple[str, str] | None:
        """Return the types of ids and counts of a file; None if columns are missing, which reading reports."""
        document, _, count = self.roles
        if not is_parquet(path):
            return "int64" if self.options.integer_ids else "string", self.count_kind(None)
        try:
            with open_parquet_source(path) as file:
                schema = file.schema_arrow
            require_columns([document, *([count] if count else [])], schema.names)
        except UnreadableError:
            return None
        ids = "int64" if pa.types.is_integer(schema.field(document).type) else "string"
        return ids, self.count_kind(schema.field(count).type if count else None)

    def _checked_rows(self, unit: Unit, bad: BadRecords) -> Iterator[Any]:
        document, word, count = self.roles
        parse_ids = self.options.integer_ids and not is_parquet(unit.path)
        rename = self.rename_words(unit.path)
        names = [document, word, *([count] if count else [])]
        with bad.unreadable_file():
            for batch in read_table(unit, names, self.options, bad):
                documents = document_keys(batch.columns[document], document, parse_ids)
                words = rename(word_keys(batch.columns[word], word))
                yield _good_rows(batch, documents, words, self.counts(batch), bad)


class TriplesOptions(Delimited):
    """Names of the columns. In Parquet, the column types override ``count_type`` and ``integer_ids``.

    Without a ``count`` column, every row counts 1. The count type "int" refuses counts such as 2.5; "float" keeps them
    as float32. With ``integer_ids``, document ids become int64 rather than strings.
    """

    document: str = "document"
    word: str = "word"
    count: str | None = "count"
    count_type: Literal["int", "float"] = "int"
    integer_ids: bool = False


@dataclass(frozen=True)
class TriplesSource(TableSource):
    """Reader "triples"; see ``TableSource``."""

    options: TriplesOptions

    reader = "triples"
    options_type = TriplesOptions

    @property
    def roles(self) -> tuple[str, str, str | None]:
        return self.options.document, self.options.word, self.options.count

    def count_kind(self, kind: Any) -> str:
        if self.options.count is None or (kind is not None and pa.types.is_integer(kind)):
            return "int"
        return "float" if kind is not None and pa.types.is_floating(kind) else self.options.count_type

    def counts(self, batch: TableBatch) -> CheckedCounts:
        """Return positive counts, which must be whole numbers for "int"."""
        name = self.options.count
        if name is None:
            return CheckedCounts(np.ones(len(batch.rows), np.int32), np.ones(len(batch.rows), bool), str)
        column = batch.columns[name]
        numbers, text = parse_numbers(column, name)
        whole = self.count_kind(column.type) == "int"
        # Comparisons with NaN are false.
        good = (numbers >= SMALLEST_COUNT) & (numbers <= LARGEST_COUNT)
        if whole:
            good &= numbers == np.floor(numbers)

        def explain(i: int) -> str:
            number, written = numbers[i], text(i)
            if not written or written == "null":
                return f"{name} is {written or 'empty'}"
            if np.isnan(number) and written != "nan":
                return f"{name} {written!r} is not a number"
            if whole and number > 0 and number != np.floor(number):
                return f"{name} {written} is not a whole number; set count_type to float to keep such counts"
            return f"{name} {written} is not in (0, {LARGEST_COUNT}], as every count must be"

        values = np.where(good, numbers, 0).astype(np.int32 if whole else np.float32)
        return CheckedCounts(values, good, explain)


def _good_rows(
    batch: TableBatch, documents: Keys, words: Keys, counts: CheckedCounts, bad: BadRecords
) -> Any:
    """Return a record batch of the good rows (see ``write_buckets``); the others go to ``bad`` in order."""
    good = documents.good() & words.good() & counts.good
    for i in np.flatnonzero(~good).tolist():
        reason = documents.explain(i) or words.explain(i) or counts.explain(i)
        bad.refuse(int(batch.rows[i]), reason, batch.record(i))
    kept = slice(None) if good.all() else good
    columns = [pa.DictionaryArray.from_arrays(keys.codes[kept], keys.values) for keys in (documents, words)]
    return pa.record_batch([*columns, pa.array(counts.values[kept])], names=["document", "word", "count"])


def document_keys(column: Any, name: str, parse: bool) -> Keys:
    """Return document ids: int64 for integers, and for text if ``parse``. Raises UnreadableError for other types."""
    keys = _keys(column, name)
    if pa.types.is_integer(keys.values.type):
        return _as_int64(keys)
    return _parse_integers(keys) if parse else keys


def word_keys(column: Any, name: str) -> Keys:
    """Return words, with integers as their digits. Raises UnreadableError for other types."""
    keys = _keys(column, name)
    return Keys(name, keys.codes, keys.values.cast(pa.string()), keys.faults)


def parse_numbers(column: Any, name: str) -> tuple[NDArray[np.float64], Callable[[int], str]]:
    """Return numbers (NaN for other text) and a function from a row to its text; UnreadableError for other types."""
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        values = np.asarray(column.cast(pa.float64(), safe=False))
        return values, lambda i: "null" if column[i].as_py() is None else str(column[i].as_py())
    if not is_text(value_type(column.type)):
        raise UnreadableError(f"column {name!r} is {column.type}; it must hold numbers")
    keys = _keys(column, name)
    numeric = pc.match_substring_regex(keys.values, _NUMBER)
    parsed = np.asarray(pc.if_else(numeric, keys.values, "nan").cast(pa.float64()))
    # The last element is for code -1.
    numbers = np.append(parsed, np.nan)[keys.codes]
    return numbers, lambda i: "null" if keys.codes[i] < 0 else str(keys.values[int(keys.codes[i])].as_py())


def _keys(column: Any, name: str) -> Keys:
    """Encode a column of strings or integers; strings that are empty or not UTF-8 are faults."""
    kind = value_type(column.type)
    if not is_text(kind) and not pa.types.is_integer(kind):
        raise UnreadableError(f"column {name!r} is {kind}; it must hold strings or integers")
    if not pa.types.is_dictionary(column.type):
        column = (as_bytes(column) if is_text(kind) else column).dictionary_encode()
    codes = np.asarray(column.indices.fill_null(-1)).astype(np.int32, copy=False)
    if len(codes) and not (codes.min() >= -1 and codes.max() < len(column.dictionary)):
        raise UnreadableError(
            f"column {name!r} has a code that is missing in its dictionary; it is damaged: fetch it again"
        )
    if pa.types.is_integer(kind):
        return Keys(name, codes, column.dictionary, {})
    values = as_bytes(column.dictionary)
    empty = np.flatnonzero(np.asarray(pc.binary_length(values).fill_null(0)) == 0)
    faults = dict.fromkeys(empty.tolist(), "is empty")
    if invalid := invalid_rows(values):
        faults |= dict.fromkeys(invalid, "holds bytes that are not UTF-8")
        values = pa.array([(value or b"").decode("utf-8", "replace") for value in values.to_pylist()])
    return Keys(name, codes, values.cast(pa.string()).fill_null(""), faults)


def _as_int64(keys: Keys) -> Keys:
    values, faults = keys.values, {}
    if pa.types.is_uint64(values.type):
        numbers = np.asarray(values)
        large = np.flatnonzero(numbers > np.iinfo(np.int64).max)
        faults = dict.fromkeys(large.tolist(), "is above 2^63 - 1; write ids as strings")
        values = pa.array(numbers.view(np.int64))
    return Keys(keys.name, keys.codes, values.cast(pa.int64()), faults)


def _parse_integers(keys: Keys) -> Keys:
    texts, faults = keys.values, dict(keys.faults)
    usable = np.asarray(pc.match_substring_regex(texts, _INTEGER))
    for i in np.flatnonzero(~usable).tolist():
        faults.setdefault(
            i, f"{texts[i].as_py()!r} is not an integer; set integer_ids to false to keep such ids"
        )
    # Numbers of nineteen digits may not fit.
    for i in np.flatnonzero(usable & (np.asarray(pc.binary_length(texts)) > 18)).tolist():
        if not -(2**63) <= int(texts[i].as_py()) < 2**63:
            usable[i] = False
            faults[i] = f"{texts[i].as_py()} does not fit 64 bits; set integer_ids to false to keep such ids"
    values = pc.if_else(pa.array(usable), texts, "0").cast(pa.int64())
    return Keys(keys.name, keys.codes, values, faults)
