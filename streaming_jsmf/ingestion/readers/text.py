"""Raw text with one record per document: JSON lines, CSV, Parquet (``text_parquet``) and plain lines."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Self

import pyarrow as pa

from streaming_jsmf.errors import InputError, first_line, pass_on_machine
from streaming_jsmf.ingestion.readers import limits
from streaming_jsmf.ingestion.readers.base import (
    BadRecords,
    BadValue,
    DamagedError,
    Source,
    SourceBatch,
    Unit,
    UnreadableError,
)
from streaming_jsmf.ingestion.readers.files import STREAM_ERRORS, bare_suffix, describe, open_stream
from streaming_jsmf.ingestion.readers.lines import (
    BYTE_ORDER_MARK,
    EMPTY,
    csv_records,
    lines_of,
    open_text,
    read_lines,
    text_of,
    too_long,
)
from streaming_jsmf.ingestion.readers.text_parquet import parquet_columns, read_parquet_texts
from streaming_jsmf.ingestion.readers.text_records import (
    LineOptions,
    Record,
    TextColumns,
    TextOptions,
    batch_records,
    choose_columns,
)
from streaming_jsmf.ingestion.readers.units import PARQUET_PATTERNS, RecordFiles, compressed, is_parquet
from streaming_jsmf.ingestion.readers.values import (
    ENCODING_HINT,
    NAME_ENCODING,
    encoding_name,
    is_utf8,
    require_columns,
    require_utf8,
)
from streaming_jsmf.ingestion.tokens.stop_words import ENGLISH
from streaming_jsmf.ingestion.tokens.tokenizer import Tokenizer

JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
CSV_SUFFIXES = {".csv": ",", ".tsv": "\t"}

#: Records of the first file that determine the types of JSON metadata.
SAMPLE_RECORDS = 1000

_LARGEST_INTEGER = 2**63


@dataclass(frozen=True)
class TextSource(RecordFiles, Source):
    """Reader "text": each record of a Parquet, JSON-lines or CSV file (by suffix) is a document; columns must match."""

    files: tuple[str, ...]
    options: TextOptions
    tokenizer: Tokenizer
    columns: TextColumns

    reader = "text"
    options_type = TextOptions
    patterns = (*PARQUET_PATTERNS, *compressed(*(f"*{suffix}" for suffix in (*JSON_SUFFIXES, *CSV_SUFFIXES))))
    stop_words = ENGLISH

    @classmethod
    def open(cls, root: str, files: tuple[str, ...], options: TextOptions, tokenizer: Tokenizer) -> Self:  # noqa: ARG003
        """Determine the columns. Raises InputError if no file has them, with the reason for the first file."""
        first: str | None = None
        for path in files:
            try:
                return cls(files, options, tokenizer, _columns_of(path, options))
            except UnreadableError as error:
                first = first or f"{path}: {error}"
        raise InputError(f"{first}; give a file of texts, and name the column with --read text=NAME")

    def splittable(self, path: str) -> bool:
        """Return True for JSON lines only: a CSV record may span lines."""
        return bare_suffix(path) in JSON_SUFFIXES

    def read(self, unit: Unit, bad: BadRecords) -> Iterator[SourceBatch]:
        if is_parquet(unit.path):
            batches = read_parquet_texts(unit, self.columns, bad)
        elif bare_suffix(unit.path) in JSON_SUFFIXES:
            batches = batch_records(self._read_json(unit, bad), self.columns)
        else:
            batches = batch_records(self._read_csv(unit, bad), self.columns)
        for batch in batches:
            yield batch.tokenized(self.tokenizer)

    def _read_json(self, unit: Unit, bad: BadRecords) -> Iterator[Record]:
        def parse(line: bytes) -> tuple[str, Any, list[Any]] | None:
            if not line.removeprefix(BYTE_ORDER_MARK).strip():
                return None
            return _json_values(_json_object(line, self.options.encoding), self.columns)

        for row, (text, identity, metadata) in read_lines(unit, parse, bad):
            yield row, text, identity, metadata

    def _read_csv(self, unit: Unit, bad: BadRecords) -> Iterator[Record]:
        """Yield the records of a file, each with the number of its last line."""
        columns, delimiter = self.columns, _delimiter_of(unit.path, self.options) or ","
        line = 0
        with bad.unreadable_file(), _open_csv(unit.path, delimiter, self.options.encoding) as (header, rows):
            require_columns(columns.names, header)
            positions = [header.index(name) for name in columns.names]
            while True:
                fields: Sequence[str] = ()
                try:
                    fields = next(rows)
                    line = rows.line_num - 1
                    if fields:
                        yield line, *_csv_values(fields, len(header), positions, columns)
                except StopIteration:
                    break
                except (csv.Error, BadValue) as error:
                    line = rows.line_num - 1
                    bad.refuse(line, str(error), delimiter.join(fields))
                except STREAM_ERRORS as error:
                    pass_on_machine(error)
                    bad.refuse(line + 1, describe(error))
                    break


@dataclass(frozen=True)
class LineSource(RecordFiles, Source):
    """Reader "lines": each non-empty line of a file is a document without an id."""

    files: tuple[str, ...]
    options: LineOptions
    tokenizer: Tokenizer

    reader = "lines"
    options_type = LineOptions
    patterns = compressed("*.txt", "*.text")
    stop_words = ENGLISH

    def read(self, unit: Unit, bad: BadRecords) -> Iterator[SourceBatch]:
        lines = read_lines(unit, self._text, bad)
        records: Iterator[Record] = ((row, text, None, ()) for row, text in lines)
        for batch in batch_records(records, TextColumns("text", None, None, {})):
            yield batch.tokenized(self.tokenizer)

    def _text(self, line: bytes) -> str | None:
        return text_of(line, self.options.encoding, ENCODING_HINT).strip() or None


def _columns_of(path: str, options: TextOptions) -> TextColumns:
    if is_parquet(path):
        return parquet_columns(path, options)
    suffix = bare_suffix(path)
    if suffix in JSON_SUFFIXES:
        return _json_columns(path, options)
    delimiter = _delimiter_of(path, options)
    if delimiter is None:
        known = ", ".join((".parquet", *JSON_SUFFIXES, *CSV_SUFFIXES))
        raise UnreadableError(
            f"its suffix is {suffix!r}; texts are read from {known}, and from delimited files of any name with --read "
            "delimiter=CHARACTER"
        )
    with _open_csv(path, delimiter, options.encoding) as (header, _):
        id_name, kept = choose_columns(header, options)
    return TextColumns(
        options.text, id_name, pa.string() if id_name else None, dict.fromkeys(kept, pa.string())
    )


def _delimiter_of(path: str, options: TextOptions) -> str | None:
    return options.delimiter or CSV_SUFFIXES.get(bare_suffix(path))


def _json_columns(path: str, options: TextOptions) -> TextColumns:
    """Determine the columns of a JSON-lines source from the first records of its first file."""
    kinds: dict[str, set[type]] = {}
    reason = ""
    try:
        with open_stream(path) as stream:
            for line in islice(lines_of(stream, Unit(path)), SAMPLE_RECORDS):
                try:
                    for name, value in _json_object(line, options.encoding).items():
                        kinds.setdefault(name, set()).update(() if value is None else (type(value),))
                except BadValue as error:
                    reason = reason or str(error)
    except DamagedError:
        if not kinds:
            raise
    if not kinds:
        raise UnreadableError(f"it holds no JSON objects, one per line ({reason or EMPTY})")
    id_name, kept = choose_columns(list(kinds), options)
    id_type = None if id_name is None else (pa.int64() if kinds[id_name] <= {int} else pa.string())
    return TextColumns(options.text, id_name, id_type, {key: _json_type(kinds[key]) for key in kept})


def _json_type(kinds: set[type]) -> Any:
    """Return int64, float64 or bool if all values have that type, else string (other values are written as JSON)."""
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {int}:
        return pa.int64()
    if kinds and kinds <= {int, float}:
        return pa.float64()
    return pa.string()


def _json_object(line: bytes, encoding: str) -> dict[str, Any]:
    try:
        value = json.loads(text_of(line, encoding, ENCODING_HINT))
    except (ValueError, RecursionError) as error:
        raise BadValue(f"the line is not JSON ({first_line(error)})") from error
    if not isinstance(value, dict):
        raise BadValue("the line is not a JSON object")
    return value


def _json_values(record: dict[str, Any], columns: TextColumns) -> tuple[str, Any, list[Any]]:
    """Return text, id and metadata of a record, converted to the column types."""
    text = record.get(columns.text)
    if text is None:
        raise BadValue(f"{columns.text} is null")
    if not isinstance(text, str):
        raise BadValue(f"{columns.text} is of type {type(text).__name__}, not a string")
    identity = None
    if columns.id:
        identity = _json_value(columns.id, record.get(columns.id), columns.id_type)
        if identity is None:
            raise BadValue(f"{columns.id} is null")
    metadata = [_json_value(name, record.get(name), kind) for name, kind in columns.metadata.items()]
    return require_utf8(columns.text, text), identity, metadata


def _json_value(name: str, value: Any, kind: Any) -> Any:
    if value is None:
        return None
    if pa.types.is_string(kind):
        return require_utf8(name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    if pa.types.is_floating(kind) and type(value) in (int, float):
        with suppress(OverflowError):
            return float(value)
    if pa.types.is_boolean(kind) and type(value) is bool:
        return value
    if pa.types.is_integer(kind) and type(value) is int and -_LARGEST_INTEGER <= value < _LARGEST_INTEGER:
        return value
    raise BadValue(f"{name} is {str(value)[:40]!r}, but {kind} in the first {SAMPLE_RECORDS} records")


@contextmanager
def _open_csv(path: str, delimiter: str, encoding: str) -> Iterator[tuple[list[str], Any]]:
    """Yield the header and ``csv.reader`` of a CSV file; undecodable bytes are kept for the quarantine."""
    with open_text(path, encoding) as text:
        rows = csv_records(_bounded_lines(text), delimiter)
        try:
            header: list[str] | None = next(rows, None)
        except csv.Error as error:
            raise UnreadableError(f"its header is not CSV ({first_line(error)})") from error
        if not header:
            raise UnreadableError(EMPTY)
        if not all(map(is_utf8, header)):
            raise UnreadableError(f"its header is not {encoding_name(encoding)}; {NAME_ENCODING}")
        yield header, rows


def _bounded_lines(text: io.TextIOWrapper) -> Iterator[str]:
    while line := text.readline(limits.LONGEST_LINE + 1):
        if len(line) > limits.LONGEST_LINE and line[-1] not in "\r\n":
            raise UnreadableError(f"{too_long()}; give a file of records")
        yield line


def _csv_values(
    fields: Sequence[str], width: int, positions: Sequence[int], columns: TextColumns
) -> tuple[str, str | None, list[str]]:
    if len(fields) != width:
        raise BadValue(f"the record has {len(fields)} fields, the header {width}")
    try:
        values = [
            require_utf8(name, fields[position])
            for name, position in zip(columns.names, positions, strict=True)
        ]
    except BadValue as error:
        raise BadValue(f"{error}{ENCODING_HINT}") from error
    if not columns.id:
        return values[0], None, values[1:]
    if not values[1]:
        raise BadValue(f"{columns.id} is empty")
    return values[0], values[1], values[2:]
