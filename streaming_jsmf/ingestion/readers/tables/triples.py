"""Tables with one row for each (document, word, count), in any order, in Parquet or delimited text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_jsmf.corpus.records import LARGEST_COUNT, SMALLEST_COUNT
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.readers.base import BadRecords, SourceBatch, Unit
from streaming_jsmf.ingestion.readers.parquet import is_parquet
from streaming_jsmf.ingestion.readers.record_files import RecordFiles
from streaming_jsmf.ingestion.readers.records import as_bytes, is_text, require, unsound_rows, value_type
from streaming_jsmf.ingestion.readers.streams import UnreadableError, open_parquet_source
from streaming_jsmf.ingestion.readers.tables.rows import Delimited, TableBatch, read_table
from streaming_jsmf.ingestion.readers.tables.shuffle import Coded, Triples, gather, write_buckets

_INTEGER = r"^-?[0-9]{1,19}$"
_NUMBER = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"


class TriplesOptions(Delimited):
    """What the columns are called. In Parquet the types of the columns decide, not the last two options.

    Attributes
    ----------
    document, word
        Columns of strings or integers.
    count
        Column of positive numbers; None if every row counts 1.
    count_type
        "int" refuses counts such as 2.5, "float" keeps them as float32.
    integer_ids
        Whether document ids become int64 rather than strings.
    """

    document: str = "document"
    word: str = "word"
    count: str | None = "count"
    count_type: Literal["int", "float"] = "int"
    integer_ids: bool = False


@dataclass(frozen=True)
class TableSource(RecordFiles, ABC):
    """Files of rows whose documents come together by ``scatter`` and ``gather`` (see ``shuffle``). Adds ``options``.

    Attributes
    ----------
    files
        Absolute local paths or URLs: Parquet by their suffix, any other is delimited text.
    """

    files: tuple[str, ...]
    options: Any

    vocabulary: ClassVar[None] = None

    def splittable(self, path: str) -> bool:  # noqa: ARG002
        """A header stands at the start of each file only."""
        return False

    def units(self) -> Sequence[Unit]:
        """Runs of row groups, or whole text files. Raises InputError if there are none or they differ in kind."""
        if not self.files:
            raise InputError("there are no files to read; name at least one")
        check_kinds(self.files, [self._kind(path) for path in self.files])
        return super().units()

    def place(self, unit: Unit, row: int) -> str:
        """File and line (from 1, header counted), or file, row group and row."""
        header = 0 if is_parquet(unit.path) else int(self.options.header)
        return super().place(unit, row + header)

    @abstractmethod
    def scatter(self, unit: Unit, bad: BadRecords, target: Path, n_buckets: int) -> None:
        """Read one unit and write its rows to ``target``."""

    def gather(self, files: Sequence[Path], bucket: int, bad: BadRecords) -> Iterator[SourceBatch]:
        """The documents of a bucket (see ``shuffle.gather``)."""
        return gather(files, bucket, bad)

    @abstractmethod
    def _kind(self, path: str) -> Kind | None:
        """Types of ids and counts of a file; None if that cannot be told."""


@dataclass(frozen=True)
class TriplesSource(TableSource):
    """Reader "triples": documents come together by ``scatter`` and ``gather`` (see ``shuffle``).

    Two passes over the rows, one of the files. Equal (document, word) are summed.
    """

    options: TriplesOptions

    reader: ClassVar[str] = "triples"

    def scatter(self, unit: Unit, bad: BadRecords, target: Path, n_buckets: int) -> None:
        """Read one unit and write its rows to ``target``. One pass, about a million rows in memory.

        Raises
        ------
        InputError
            Under "fail" for the first bad record.
        """
        write_buckets(self._triples(unit, bad), target, n_buckets)

    def _kind(self, path: str) -> Kind | None:
        options = self.options
        if is_parquet(path):
            return parquet_kind(path, options.document, options.count, options.count_type)
        return Kind(
            "int64" if options.integer_ids else "string", options.count_type if options.count else "int"
        )

    def _triples(self, unit: Unit, bad: BadRecords) -> Iterator[Triples]:
        options = self.options
        names = [options.document, options.word, *([options.count] if options.count else [])]
        as_integers = options.integer_ids and not is_parquet(unit.path)
        try:
            for batch in read_table(unit, names, options, bad):
                documents = document_keys(batch.columns[options.document], options.document, as_integers)
                words = word_keys(batch.columns[options.word], options.word)
                yield checked(batch, documents, words, self._counts(batch), bad)
        except UnreadableError as error:
            bad.refuse(None, str(error))

    def _counts(self, batch: TableBatch) -> Counted:
        name = self.options.count
        if name is None:
            return Counted(np.ones(len(batch.rows), np.int32), np.ones(len(batch.rows), bool), str)
        column = batch.columns[name]
        numbers = as_numbers(column, name)
        kind = column.type
        whole = pa.types.is_integer(kind) or (
            not pa.types.is_floating(kind) and self.options.count_type == "int"
        )
        # Comparisons with NaN are false.
        good = (numbers.values >= SMALLEST_COUNT) & (numbers.values <= LARGEST_COUNT)
        if whole:
            good &= numbers.values == np.floor(numbers.values)
        values = np.where(good, numbers.values, 0).astype(np.int32 if whole else np.float32)

        def explain(i: int) -> str:
            number, text = numbers.values[i], numbers.text(i)
            if not text or text == "null":
                return f"{name} is {text or 'empty'}"
            if np.isnan(number) and text != "nan":
                return f"{name} {text!r} is not a number"
            if whole and number > 0 and number != np.floor(number):
                return f"{name} {text} is not a whole number; set count_type to float to keep such counts"
            return f"{name} {text} is not in (0, {LARGEST_COUNT}], as every count must be"

        return Counted(values, good, explain)


@dataclass(frozen=True)
class Kind:
    """What a file gives: document ids "int64" or "string", counts "int" or "float"."""

    documents: str
    counts: str


@dataclass(frozen=True, eq=False)
class Keys:
    """n ids or words; codes are -1 for null. ``faults`` says why some of the values cannot be used."""

    coded: Coded
    name: str
    faults: dict[int, str]

    def good(self) -> NDArray[np.bool_]:
        """(n,) whether there is a value that can be used."""
        good = np.ones(len(self.coded.values) + 1, bool)
        good[list(self.faults)] = False
        good[-1] = False  # where code -1 looks
        return good[self.coded.codes]

    def explain(self, i: int) -> str | None:
        """Why row i cannot be used; None if it can."""
        code = int(self.coded.codes[i])
        reason = "is null" if code < 0 else self.faults.get(code)
        return None if reason is None else f"{self.name} {reason}"


@dataclass(frozen=True, eq=False)
class Counted:
    """n counts int32 or float32, whether each can be used, and why not."""

    values: NDArray[Any]
    good: NDArray[np.bool_]
    explain: Callable[[int], str]


@dataclass(frozen=True, eq=False)
class Numbers:
    """n float64, NaN where there is no number, and what is written there."""

    values: NDArray[np.float64]
    text: Callable[[int], str]


def parquet_kind(path: str, document: str, count: str | None, text_counts: str = "int") -> Kind | None:
    """The kind of a Parquet file, counts in text as said; None if columns are missing, which reading it tells."""
    try:
        with open_parquet_source(path) as file:
            schema = file.schema_arrow
        require([document, *([count] if count else [])], schema.names)
    except UnreadableError:
        return None
    documents = "int64" if pa.types.is_integer(schema.field(document).type) else "string"
    counts = pa.int32() if count is None else schema.field(count).type
    if not pa.types.is_integer(counts) and not pa.types.is_floating(counts):
        return Kind(documents, text_counts)
    return Kind(documents, "float" if pa.types.is_floating(counts) else "int")


def check_kinds(files: Sequence[str], kinds: Sequence[Kind | None]) -> None:
    """Check that all files give ids and counts of one kind. Raises InputError, which names two that do not."""
    known = [(path, kind) for path, kind in zip(files, kinds, strict=True) if kind is not None]
    for path, kind in known[1:]:
        if kind != known[0][1]:
            ours, theirs = (f"{k.documents} ids and {k.counts} counts" for k in (kind, known[0][1]))
            raise InputError(
                f"{path} has {ours}, {known[0][0]} has {theirs}; make the columns of the same types"
            )


def document_keys(column: Any, name: str, integer_ids: bool) -> Keys:
    """Document ids, int64 for integers, and for text if ``integer_ids``. Raises UnreadableError for other types."""
    keys = _keys(column, name)
    if pa.types.is_integer(keys.coded.values.type):
        return _signed(keys)
    return _parsed(keys) if integer_ids else keys


def word_keys(column: Any, name: str) -> Keys:
    """Words; integers become their digits. Raises UnreadableError for other types."""
    keys = _keys(column, name)
    return Keys(Coded(keys.coded.codes, keys.coded.values.cast(pa.string())), name, keys.faults)


def as_numbers(column: Any, name: str) -> Numbers:
    """Numbers of a column of any numeric type or of text. Raises UnreadableError for other types."""
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        values = np.asarray(column.cast(pa.float64(), safe=False))
        return Numbers(values, lambda i: "null" if column[i].as_py() is None else str(column[i].as_py()))
    if not is_text(value_type(column.type)):
        raise UnreadableError(f"column {name!r} is {column.type}; it must hold numbers")
    keys = _keys(column, name)
    texts = keys.coded.values
    numeric = pc.match_substring_regex(texts, _NUMBER)
    parsed = np.asarray(pc.if_else(numeric, texts, "nan").cast(pa.float64()))
    # The last place is where code -1 looks.
    values = np.append(parsed, np.nan)[keys.coded.codes]
    return Numbers(values, lambda i: _written(keys, i))


def checked(batch: TableBatch, documents: Keys, words: Keys, counts: Counted, bad: BadRecords) -> Triples:
    """The good rows of a batch; the others go to ``bad`` in their order."""
    good = documents.good() & words.good() & counts.good
    for i in np.flatnonzero(~good).tolist():
        reason = documents.explain(i) or words.explain(i) or counts.explain(i)
        bad.refuse(int(batch.rows[i]), reason, batch.record(i))
    kept = slice(None) if good.all() else good
    return Triples(
        Coded(documents.coded.codes[kept], documents.coded.values),
        Coded(words.coded.codes[kept], words.coded.values),
        counts.values[kept],
    )


def _keys(column: Any, name: str) -> Keys:
    """Distinct strings or integers of a column; strings that are empty or not UTF-8 are faults."""
    kind = value_type(column.type)
    if not is_text(kind) and not pa.types.is_integer(kind):
        raise UnreadableError(f"column {name!r} is {kind}; it must hold strings or integers")
    if not pa.types.is_dictionary(column.type):
        column = (as_bytes(column) if is_text(kind) else column).dictionary_encode()
    codes = np.asarray(column.indices.fill_null(-1)).astype(np.int32, copy=False)
    if len(codes) and not (codes.min() >= -1 and codes.max() < len(column.dictionary)):
        raise UnreadableError(
            f"column {name!r} has a code that its dictionary lacks; it is damaged: fetch it again"
        )
    if pa.types.is_integer(kind):
        return Keys(Coded(codes, column.dictionary), name, {})
    return _texts(codes, as_bytes(column.dictionary), name)


def _texts(codes: NDArray[np.int32], values: Any, name: str) -> Keys:
    empty = np.flatnonzero(np.asarray(pc.binary_length(values).fill_null(0)) == 0)
    faults = dict.fromkeys(empty.tolist(), "is empty")
    if unsound := unsound_rows(values):
        faults |= dict.fromkeys(unsound, "holds bytes that are not UTF-8")
        values = pa.array([(value or b"").decode("utf-8", "replace") for value in values.to_pylist()])
    texts = values.cast(pa.string())
    return Keys(Coded(codes, texts.fill_null("")), name, faults)


def _signed(keys: Keys) -> Keys:
    """Integers of any type as int64."""
    values, faults = keys.coded.values, {}
    if pa.types.is_uint64(values.type):
        numbers = np.asarray(values)
        large = np.flatnonzero(numbers > np.iinfo(np.int64).max)
        faults = dict.fromkeys(large.tolist(), "is above 2^63 - 1; write ids as strings")
        values = pa.array(numbers.view(np.int64))
    return Keys(Coded(keys.coded.codes, values.cast(pa.int64())), keys.name, faults)


def _parsed(keys: Keys) -> Keys:
    """Texts as int64; what is no integer becomes a fault."""
    texts, faults = keys.coded.values, dict(keys.faults)
    usable = np.asarray(pc.match_substring_regex(texts, _INTEGER))
    for i in np.flatnonzero(~usable).tolist():
        faults.setdefault(
            i, f"{texts[i].as_py()!r} is not an integer; set integer_ids to false to keep such ids"
        )
    # Nineteen digits may be too many.
    for i in np.flatnonzero(usable & (np.asarray(pc.binary_length(texts)) > 18)).tolist():
        if not -(2**63) <= int(texts[i].as_py()) < 2**63:
            usable[i] = False
            faults[i] = f"{texts[i].as_py()} does not fit 64 bits; set integer_ids to false to keep such ids"
    values = pc.if_else(pa.array(usable), texts, "0").cast(pa.int64())
    return Keys(Coded(keys.coded.codes, values), keys.name, faults)


def _written(keys: Keys, i: int) -> str:
    code = int(keys.coded.codes[i])
    return "null" if code < 0 else str(keys.coded.values[code].as_py())
