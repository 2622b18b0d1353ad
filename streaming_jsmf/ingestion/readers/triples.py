"""Tables with one row per (document, word, count), in any order, in Parquet or delimited text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_jsmf.config import ReaderName
from streaming_jsmf.corpus.records import LARGEST_COUNT, SMALLEST_COUNT
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.readers.base import BadRecords, Batch, Unit, UnreadableError
from streaming_jsmf.ingestion.readers.files import (
    TABLE_PATTERNS,
    is_compressed,
    is_parquet,
    open_parquet_source,
)
from streaming_jsmf.ingestion.readers.grouping import MAX_BUCKETS, read_bucket, write_buckets
from streaming_jsmf.ingestion.readers.records import RecordFiles
from streaming_jsmf.ingestion.readers.tables import Delimited, TableBatch, read_table
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
    """A column of n rows: ``codes`` (n,) int32 into ``values``, -1 for null.

    ``faults`` has the reasons to refuse values, by index.
    """

    name: str
    codes: NDArray[np.int32]
    values: Any
    faults: dict[int, str]

    def bad_rows(self) -> dict[int, str]:
        """Return the reason to refuse each row that cannot be used."""
        good = np.ones(len(self.values) + 1, bool)
        good[[-1, *self.faults]] = False  # the last element is for code -1
        codes = {i: int(self.codes[i]) for i in np.flatnonzero(~good[self.codes]).tolist()}
        return {i: f"{self.name} {self.faults.get(code, 'is null')}" for i, code in codes.items()}


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

    @property
    def roles(self) -> list[str]:
        """Names of the columns of documents, words and, if there are any, counts."""
        return [self.document, self.word, *([self.count] if self.count else [])]


class TriplesSource(RecordFiles):
    """Reader "triples": files of rows whose documents are grouped by ``scatter`` and ``gather`` (see ``grouping``).

    Two passes over the rows, one of them over the files. Equal (document, word) are summed.
    """

    reader: ClassVar[ReaderName] = "triples"
    options_type: ClassVar[type[Delimited]] = TriplesOptions
    patterns = TABLE_PATTERNS
    refuses_documents = False

    def count_kind(self, kind: Any) -> str:
        """Return "int" or "float" for the Arrow type of the count column, or None without counts."""
        if kind is None or pa.types.is_integer(kind):
            return "int"
        return "float" if pa.types.is_floating(kind) else str(self.options.count_type)

    def counts(self, found: Keys) -> Keys:
        """Return counts int32 or float32; they must be positive, and whole numbers for "int"."""
        whole = self.count_kind(found.values.type) == "int"
        numbers = parse_numbers(found.values)
        # Comparisons with NaN are false.
        good = (numbers >= SMALLEST_COUNT) & (numbers <= LARGEST_COUNT)
        if whole:
            good &= numbers == np.floor(numbers)
        faults = {}
        for i in np.flatnonzero(~good).tolist():
            number, written = numbers[i], str(found.values[i].as_py())
            if np.isnan(number) and written != "nan":
                faults[i] = f"{written!r} is not a number"
            elif whole and number > 0 and number != np.floor(number):
                faults[i] = f"{written} is not a whole number; set count_type to float to keep such counts"
            else:
                faults[i] = f"{written} is not in (0, {LARGEST_COUNT}], as every count must be"
        values = np.where(good, numbers, 0).astype(np.int32 if whole else np.float32)
        return replace(found, values=values, faults=faults | found.faults)

    def rename_words(self, path: str) -> Callable[[Keys], Keys]:  # noqa: ARG002
        """Return a function that replaces the words of a file by their names."""
        return lambda words: words

    def splittable(self, path: str) -> bool:  # noqa: ARG002
        """Return False: each file starts with a header."""
        return False

    def units(self) -> Sequence[Unit]:
        """Return runs of row groups, or whole text files. Raises InputError if there is no file or types differ."""
        kinds = [(path, kind) for path in self.files if (kind := self._kind(path)) is not None]
        for path, kind in kinds[1:]:
            if kind != kinds[0][1]:
                ours, theirs = (f"{ids} ids and {counts} counts" for ids, counts in (kind, kinds[0][1]))
                raise InputError(
                    f"{path} has {ours}, {kinds[0][0]} has {theirs}; make the columns of the same types"
                )
        return super().units()

    def place(self, unit: Unit, row: int) -> str:
        header = self.options.header and not is_parquet(unit.path)
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

    def gather(self, files: Sequence[Path], bucket: int, bad: BadRecords) -> Iterator[Batch]:
        """Yield the documents of a bucket, from the files of all units (see ``grouping.read_bucket``)."""
        return read_bucket(files, bucket, bad)

    def _kind(self, path: str) -> tuple[str, str] | None:
        """Return the types of ids and counts of a file; None if columns are missing, which reading reports."""
        document, _, *count = self.options.roles
        if not is_parquet(path):
            ids = "int64" if self.options.integer_ids else "string"
            return ids, self.count_kind(pa.string() if count else None)
        try:
            with open_parquet_source(path) as file:
                schema = file.schema_arrow
            require_columns([document, *count], schema.names)
        except UnreadableError:
            return None
        ids = "int64" if pa.types.is_integer(schema.field(document).type) else "string"
        return ids, self.count_kind(schema.field(count[0]).type if count else None)

    def _checked_rows(self, unit: Unit, bad: BadRecords) -> Iterator[Any]:
        document, word, *count = self.options.roles
        parse_ids = self.options.integer_ids and not is_parquet(unit.path)
        rename = self.rename_words(unit.path)
        with bad.unreadable_file():
            for batch in read_table(unit, self.options.roles, self.options, bad):
                documents = document_keys(encode(batch.columns[document], document), parse_ids)
                words = encode(batch.columns[word], word)
                words = rename(replace(words, values=words.values.cast(pa.string())))
                counts = Keys("", np.zeros(len(batch.rows), np.int32), np.ones(1, np.int32), {})
                if count:
                    counts = self.counts(encode(batch.columns[count[0]], count[0], numbers=True))
                yield _good_rows(batch, documents, words, counts, bad)


def _good_rows(batch: TableBatch, documents: Keys, words: Keys, counts: Keys, bad: BadRecords) -> Any:
    """Return a record batch of the good rows (see ``write_buckets``); the others go to ``bad`` in order."""
    reasons = counts.bad_rows() | words.bad_rows() | documents.bad_rows()
    for row in sorted(reasons):
        bad.refuse(int(batch.rows[row]), reasons[row], batch.record(row))
    kept: Any = slice(None)
    if reasons:
        kept = np.ones(len(batch.rows), bool)
        kept[list(reasons)] = False
    columns = [pa.DictionaryArray.from_arrays(keys.codes[kept], keys.values) for keys in (documents, words)]
    values = counts.values[counts.codes[kept]]
    return pa.record_batch([*columns, pa.array(values)], names=["document", "word", "count"])


def encode(column: Any, name: str, *, numbers: bool = False) -> Keys:
    """Encode a column of strings or integers, or of any ``numbers``; strings that are empty or not UTF-8 are faults.

    Raises UnreadableError for other types.
    """
    kind = value_type(column.type)
    if not (is_text(kind) or pa.types.is_integer(kind) or (numbers and pa.types.is_floating(kind))):
        wanted = "numbers" if numbers else "strings or integers"
        raise UnreadableError(f"column {name!r} is {kind}; it must hold {wanted}")
    if numbers and kind == column.type and not is_text(kind):
        codes = np.where(np.asarray(column.is_null()), -1, np.arange(len(column), dtype=np.int32))
        return Keys(name, codes, column.fill_null(0), {})
    if not pa.types.is_dictionary(column.type):
        column = (as_bytes(column) if is_text(kind) else column).dictionary_encode()
    codes = np.asarray(column.indices.fill_null(-1)).astype(np.int32, copy=False)
    if len(codes) and not (codes.min() >= -1 and codes.max() < len(column.dictionary)):
        raise UnreadableError(
            f"column {name!r} has a code that is missing in its dictionary; it is damaged: fetch it again"
        )
    if not is_text(kind):
        return Keys(name, codes, column.dictionary, {})
    values = as_bytes(column.dictionary)
    empty = np.flatnonzero(np.asarray(pc.binary_length(values).fill_null(0)) == 0)
    faults = dict.fromkeys(empty.tolist(), "is empty")
    if invalid := invalid_rows(values):
        faults |= dict.fromkeys(invalid, "holds bytes that are not UTF-8")
        values = pa.array([(value or b"").decode("utf-8", "replace") for value in values.to_pylist()])
    return Keys(name, codes, values.cast(pa.string()).fill_null(""), faults)


def parse_numbers(values: Any) -> NDArray[np.float64]:
    """Return the numbers of an Arrow array of numbers or strings; NaN for other strings."""
    if is_text(values.type):
        numeric = pc.match_substring_regex(values, _NUMBER)
        values = pc.if_else(numeric, values, "nan")
    return np.asarray(values.cast(pa.float64(), safe=False))


def document_keys(keys: Keys, parse: bool) -> Keys:
    """Return document ids: int64 for integers, and for text if ``parse``."""
    values, faults = keys.values, dict(keys.faults)
    if pa.types.is_uint64(values.type):
        numbers = np.asarray(values)
        large = np.flatnonzero(numbers > np.iinfo(np.int64).max)
        faults = dict.fromkeys(large.tolist(), "is above 2^63 - 1; write ids as strings")
        values = pa.array(numbers.view(np.int64))
    elif parse and is_text(values.type):
        usable = np.asarray(pc.match_substring_regex(values, _INTEGER))
        for i in np.flatnonzero(~usable).tolist():
            reason = f"{values[i].as_py()!r} is not an integer; set integer_ids to false to keep such ids"
            faults.setdefault(i, reason)
        # Numbers of nineteen digits may not fit.
        for i in np.flatnonzero(usable & (np.asarray(pc.binary_length(values)) > 18)).tolist():
            if not -(2**63) <= int(values[i].as_py()) < 2**63:
                usable[i] = False
                faults[i] = (
                    f"{values[i].as_py()} does not fit 64 bits; set integer_ids to false to keep such ids"
                )
        values = pc.if_else(pa.array(usable), values, "0")
    is_number = parse or pa.types.is_integer(values.type)
    return replace(keys, values=values.cast(pa.int64()) if is_number else values, faults=faults)
