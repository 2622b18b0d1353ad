"""Raw text with one record per document: JSON, CSV, Parquet and plain lines."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_jsmf.config import TextOptions, TokenOptions
from streaming_jsmf.errors import first_line, option, pass_on_machine
from streaming_jsmf.ingestion.readers.base import (
    BadRecords,
    BadValue,
    Batch,
    DamagedError,
    Source,
    Unit,
    UnreadableError,
    limits,
)
from streaming_jsmf.ingestion.readers.files import (
    PARQUET_PATTERNS,
    STREAM_ERRORS,
    bare_suffix,
    compressed,
    describe,
    is_parquet,
    of_first_readable,
    open_parquet_source,
    open_stream,
)
from streaming_jsmf.ingestion.readers.lines import (
    BYTE_ORDER_MARK,
    EMPTY,
    csv_records,
    encoding_of,
    is_array,
    open_text,
    read_lines,
    records_of,
    text_of,
    too_long,
)
from streaming_jsmf.ingestion.readers.record_files import RecordFiles, drop_bad_rows, parquet_batches
from streaming_jsmf.ingestion.readers.text_records import (
    FolderColumns,
    Record,
    TextColumns,
    bag_lines,
    bag_records,
    bag_tokens,
    choose_columns,
    common_kinds,
    conformed,
    fits,
)
from streaming_jsmf.ingestion.readers.values import (
    decoded,
    encoding_hint,
    encoding_name,
    is_text,
    name_encoding,
    require_columns,
    require_utf8,
    utf8_faults,
    value_type,
)
from streaming_jsmf.ingestion.tokens.stop_words import ENGLISH
from streaming_jsmf.ingestion.tokens.tokenizer import Tokenizer
from streaming_jsmf.validation import is_utf8

JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
CSV_SUFFIXES = {".csv": ",", ".tsv": "\t"}

#: Records of the first file that determine the columns of JSON, and the type of its ids.
SAMPLE_RECORDS = 1000

_LARGEST_ID = 2**63 - 1


class TextSource(RecordFiles, Source):
    """Reader "text": each record of a Parquet, JSON or CSV file (by suffix) is a document.

    All files have the text and the id of the first. Other names of later records or files become columns of strings.
    """

    reader = "text"
    options_type = TextOptions
    patterns = (*PARQUET_PATTERNS, *compressed(*(f"*{suffix}" for suffix in (*JSON_SUFFIXES, *CSV_SUFFIXES))))
    stop_words = ENGLISH

    @classmethod
    def open(cls, root: str, files: tuple[str, ...], options: TextOptions, tokenizer: Tokenizer) -> Self:
        """Determine the columns. Raises InputError if no file has them, with the reason for the first file."""
        opened = cls(root, files, options, tokenizer)
        _ = opened.columns
        return opened

    @cached_property
    def columns(self) -> TextColumns:
        """The columns of the first file. Metadata whose types differ between files, or have none, are strings."""
        hint = f"give a file of texts, and name the column with {option.text('NAME')}"
        options = FolderColumns(self.root, self.options).left_to(self.files)
        found = of_first_readable(self.files, lambda path: _columns_of(path, options), hint)
        if all(map(is_parquet, self.files)):
            return replace(found, metadata=common_kinds(found.metadata, self.files[1:]))
        return replace(found, metadata=dict.fromkeys(found.metadata, pa.string()))

    def splittable(self, path: str) -> bool:
        """Return True for JSON lines only: a CSV record may span lines."""
        return bare_suffix(path) in JSON_SUFFIXES and not is_array(path)

    def place(self, unit: Unit, row: int) -> str:
        if is_array(unit.path):
            return f"{unit.path}, element {row + 1} of the array"
        return super().place(unit, row)

    def read(self, unit: Unit, bad: BadRecords) -> Iterator[Batch]:
        if is_parquet(unit.path):
            batches = self._read_parquet(unit, bad)
        else:
            read = self._read_json if bare_suffix(unit.path) in JSON_SUFFIXES else self._read_csv
            batches = bag_records(read(unit, bad), self.columns, self.tokenizer, bad)
        return FolderColumns(self.root, self.options).added(batches, unit.path)

    def _read_parquet(self, unit: Unit, bad: BadRecords) -> Iterator[Batch]:
        columns = self.columns
        with bad.unreadable_file(), open_parquet_source(unit.path) as file:
            names = columns.found_in(file.schema_arrow.names)
            kept = [name for name in names if name in columns.metadata]
            found = _typed(file.schema_arrow, columns.text, columns.id, kept)
            if found.id_type != columns.id_type or not all(
                fits(kind, columns.metadata[name]) for name, kind in found.metadata.items()
            ):
                raise UnreadableError(
                    f"its columns are {found}, those of the first file {columns}; make them the same"
                )
            names += (later := self._later(file.schema_arrow.names))
            columns = replace(columns, metadata={**columns.metadata, **later})
            for first, encoded in parquet_batches(file, unit, names):
                batch = pa.record_batch({name: decoded(encoded.column(name)) for name in names})
                batch, rows = drop_bad_rows(batch, _bad_rows(batch, columns), first, bad)
                # Missing texts are documents without words, which the curation drops and counts.
                tokens = self.tokenizer(pc.fill_null(batch.column(columns.text).cast(pa.string()), ""))
                ids = batch.column(columns.id).cast(columns.id_type) if columns.id else None
                yield bag_tokens(tokens, rows, ids, conformed(batch, columns.metadata))

    def _later(self, names: Sequence[str]) -> dict[str, Any]:
        """The metadata columns of a file that the first file lacks. Raises UnreadableError if a name cannot be used."""
        try:
            later = [name for name in names if self.columns.keeps(name) and name not in self.columns.metadata]
        except BadValue as error:
            raise UnreadableError(str(error)) from error
        require_columns(later, names)
        return dict.fromkeys(later, pa.string())

    def _read_json(self, unit: Unit, bad: BadRecords) -> Iterator[Record]:
        encoding = encoding_of(unit.path, self.options.encoding)

        def parse(line: bytes) -> tuple[str, Any, dict[str, Any]] | None:
            if not line.removeprefix(BYTE_ORDER_MARK).strip():
                return None
            return _values(_json_object(line, self.options, encoding), self.columns)

        for row, (text, identity, metadata) in read_lines(unit, parse, bad, records_of(unit.path)):
            yield row, text, identity, metadata

    def _read_csv(self, unit: Unit, bad: BadRecords) -> Iterator[Record]:
        """Yield the records of a file, each with the number of its last line."""
        columns, delimiter = self.columns, _delimiter_of(unit.path, self.options) or ","
        line = 0
        with bad.unreadable_file(), _open_csv(unit.path, delimiter, self.options) as (header, rows):
            columns.found_in(header)
            self._later(header)
            while True:
                fields: Sequence[str] = ()
                try:
                    fields = next(rows)
                    line = rows.line_num - 1
                    if fields:
                        yield line, *_csv_values(header, fields, columns)
                except StopIteration:
                    break
                except (csv.Error, BadValue) as error:
                    line = rows.line_num - 1
                    bad.refuse(line, str(error), delimiter.join(fields))
                except STREAM_ERRORS as error:
                    pass_on_machine(error)
                    bad.refuse(line + 1, describe(error))
                    break


class LineSource(RecordFiles, Source):
    """Reader "lines": each non-empty line of a file is a document without an id."""

    reader = "lines"
    options_type = TokenOptions
    patterns = compressed("*.txt", "*.text")
    stop_words = ENGLISH

    def read(self, unit: Unit, bad: BadRecords) -> Iterator[Batch]:
        encoding = encoding_of(unit.path, self.options.encoding)

        def text(line: bytes) -> str | None:
            return text_of(line, encoding, encoding_hint).strip() or None

        return bag_lines(unit, text, bad, self.tokenizer)


def _columns_of(path: str, options: TextOptions) -> TextColumns:
    if is_parquet(path):
        with open_parquet_source(path) as file:
            schema = file.schema_arrow
        found = _typed(schema, options.text[0], *choose_columns(schema.names, options))
        return replace(found, extensible=options.metadata == "all")
    suffix = bare_suffix(path)
    if suffix in JSON_SUFFIXES:
        return _json_columns(path, options)
    delimiter = _delimiter_of(path, options)
    if delimiter is None:
        known = ", ".join((".parquet", *JSON_SUFFIXES, *CSV_SUFFIXES))
        raise UnreadableError(
            f"its suffix is {suffix!r}; texts are read from {known}, and from delimited files of any name with "
            f"{option.read({'delimiter': 'CHARACTER'})}"
        )
    with _open_csv(path, delimiter, options) as (header, _):
        id_name, kept = choose_columns(header, options)
    id_type = pa.string() if id_name else None
    return TextColumns(
        options.text[0], id_name, id_type, dict.fromkeys(kept, pa.string()), options.metadata == "all"
    )


def _typed(schema: Any, text: str, name: str | None, kept: Sequence[str]) -> TextColumns:
    kinds = {key: value_type(schema.field(key).type) for key in kept}
    if not is_text(value_type(schema.field(text).type)):
        raise UnreadableError(f"column {text!r} is {schema.field(text).type}; it must hold strings")
    if name is None:
        return TextColumns(text, None, None, kinds)
    id_kind = value_type(schema.field(name).type)
    if not pa.types.is_integer(id_kind) and not is_text(id_kind):
        raise UnreadableError(f"column {name!r} is {id_kind}; document ids are strings or integers")
    return TextColumns(text, name, pa.int64() if pa.types.is_integer(id_kind) else pa.string(), kinds)


def _bad_rows(batch: Any, columns: TextColumns) -> dict[int, str]:
    """Return a reason to refuse each bad row."""
    texts = [*filter(None, [columns.text, columns.id])]
    reasons = utf8_faults(batch, texts, [name for name in batch.schema.names if name not in texts])
    if columns.id:
        ids = batch.column(columns.id)
        if pa.types.is_uint64(ids.type):
            above = f"{columns.id} is above {_LARGEST_ID}, the largest integer of an id; write ids as strings"
            large = np.flatnonzero(np.asarray(ids.fill_null(0)) > _LARGEST_ID)
            reasons |= dict.fromkeys(large.tolist(), above)
        reasons |= dict.fromkeys(np.flatnonzero(np.asarray(ids.is_null())).tolist(), f"{columns.id} is null")
    return reasons


def _delimiter_of(path: str, options: TextOptions) -> str | None:
    return options.delimiter or CSV_SUFFIXES.get(bare_suffix(path))


def _json_columns(path: str, options: TextOptions) -> TextColumns:
    """Determine the columns of a JSON source, and the type of the ids, from the first records of its first file."""
    kinds: dict[str, set[type]] = {}
    reason = ""
    split, encoding = records_of(path), encoding_of(path, options.encoding)
    try:
        with open_stream(path) as stream:
            for line in islice(split(stream, Unit(path)), SAMPLE_RECORDS):
                try:
                    for name, value in _json_object(line, options, encoding).items():
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
    return TextColumns(
        options.text[0], id_name, id_type, dict.fromkeys(kept, pa.string()), options.metadata == "all"
    )


def _json_object(line: bytes, options: TextOptions, encoding: str) -> dict[str, Any]:
    try:
        value = json.loads(text_of(line, encoding, encoding_hint))
    except (ValueError, RecursionError) as error:
        raise BadValue(f"the line is not JSON ({first_line(error)})") from error
    if not isinstance(value, dict):
        raise BadValue("the line is not a JSON object")
    return _flattened(value, options)


def _flattened(record: dict[str, Any], options: TextOptions) -> dict[str, Any]:
    """Add the values that names such as ``content.body`` stand for, and leave out the objects that hold them."""
    kept = () if options.metadata == "all" else options.metadata
    nested = [name for name in (*options.text, options.id, *kept) if name and "." in name]
    if not nested:
        return record
    found: dict[str, Any] = {}
    for name in nested:
        value: Any = record
        for key in name.split(".") if name not in record else ():
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None and value is not record:
            found[name] = value
    parents = {name.partition(".")[0] for name in nested}
    return {**{key: value for key, value in record.items() if key not in parents}, **found}


def _values(record: Mapping[str, Any], columns: TextColumns) -> tuple[str, Any, dict[str, Any]]:
    """Return text, id and metadata of a record."""
    text = record.get(columns.text)
    if text is None:
        text = ""
    if not isinstance(text, str):
        raise BadValue(f"{columns.text} is of type {type(text).__name__}, not a string")
    require_utf8(columns.text, text)
    identity = None
    if columns.id:
        identity = _json_id(columns.id, record.get(columns.id), columns.id_type)
        if identity is None:
            raise BadValue(f"{columns.id} is null")
    return (
        text,
        identity,
        {name: _json_text(name, value) for name, value in record.items() if columns.keeps(name)},
    )


def _json_text(name: str, value: Any) -> Any:
    """Return numbers, booleans and None as they are, other values as a string."""
    if isinstance(value, dict | list):
        value = json.dumps(value, ensure_ascii=False)
    return require_utf8(name, value) if isinstance(value, str) else value


def _json_id(name: str, value: Any, kind: Any) -> Any:
    if pa.types.is_string(kind) and value is not None:
        return require_utf8(name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    if type(value) is int and not -_LARGEST_ID - 1 <= value <= _LARGEST_ID:
        raise BadValue(f"{name} {str(value)[:40]} does not fit 64 bits; write ids as strings")
    if value is None or type(value) is int:
        return value
    raise BadValue(f"{name} is {str(value)[:40]!r}, but {kind} in the first {SAMPLE_RECORDS} records")


@contextmanager
def _open_csv(path: str, delimiter: str, options: TextOptions) -> Iterator[tuple[list[str], Any]]:
    """Yield the header and ``csv.reader`` of a CSV file; undecodable bytes are kept for the quarantine."""
    encoding = options.encoding
    with open_text(path, encoding) as text:
        rows = csv_records(_bounded_lines(text), delimiter)
        try:
            header: list[str] | None = list(options.columns) or next(rows, None)
        except csv.Error as error:
            raise UnreadableError(f"its header is not CSV ({first_line(error)})") from error
        if not header:
            raise UnreadableError(EMPTY)
        if not all(map(is_utf8, header)):
            raise UnreadableError(f"its header is not {encoding_name(encoding)}; {name_encoding()}")
        header[0] = header[0] or ("" if "index" in header else "index")  # of pandas, which writes no name
        yield header, rows


def _bounded_lines(text: io.TextIOWrapper) -> Iterator[str]:
    while line := text.readline(limits.LONGEST_LINE + 1):
        if len(line) > limits.LONGEST_LINE and line[-1] not in "\r\n":
            raise UnreadableError(f"{too_long()}; give a file of records")
        yield line


def _csv_values(
    header: Sequence[str], fields: Sequence[str], columns: TextColumns
) -> tuple[str, Any, dict[str, Any]]:
    if len(fields) != len(header):
        raise BadValue(f"the record has {len(fields)} fields, the header {len(header)}")
    try:
        values = _values(dict(zip(header, fields, strict=True)), columns)
    except BadValue as error:
        raise BadValue(f"{error}{encoding_hint()}") from error
    if columns.id and not values[1]:
        raise BadValue(f"{columns.id} is empty")
    return values
