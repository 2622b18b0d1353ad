"""What a file holds, from its name and its start: its format, and the first records of a table."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from itertools import islice
from typing import Any

import pyarrow as pa

from streaming_jsmf.config import Delimited, check_options, declared
from streaming_jsmf.corpus.format import PARQUET_SUFFIXES
from streaming_jsmf.errors import option
from streaming_jsmf.ingestion.formats.csv_layout import CSV_SUFFIXES, is_table, skipping
from streaming_jsmf.ingestion.formats.csv_scan import whole_lines
from streaming_jsmf.ingestion.formats.delimited import DELIMITED
from streaming_jsmf.ingestion.formats.functions import ARROW
from streaming_jsmf.ingestion.formats.json_records import JSON, RECORD_SEPARATOR, first_objects
from streaming_jsmf.ingestion.formats.parquet import PARQUET
from streaming_jsmf.ingestion.formats.spreadsheet import SPREADSHEET
from streaming_jsmf.ingestion.sources.protocol import BadRecords, Format, Unit, UnreadableError
from streaming_jsmf.ingestion.sources.streams import (
    bare_suffix,
    of_first_readable,
    open_stream,
)
from streaming_jsmf.ingestion.sources.values import from_python, is_binary, listed
from streaming_jsmf.storage.heads import found_once
from streaming_jsmf.storage.objects import of_each_file

_SAMPLE_RECORDS = 100  # of the first file

_SEPARATORS = "\t;,|"  # of the items of a basket, other than white space

#: Formats of files of records by suffix; files with other suffixes are recognized by their contents.
FORMATS: dict[str, Format] = {
    **dict.fromkeys(PARQUET_SUFFIXES, PARQUET),
    **dict.fromkeys((".arrow", ".feather"), ARROW),
    **dict.fromkeys((".jsonl", ".ndjson", ".json", ".json-seq", ".geojson", ".geojsonl", ".geojsons"), JSON),
    **dict.fromkeys(CSV_SUFFIXES, DELIMITED),
    **dict.fromkeys((".xlsx", ".xlsm", ".xlsb", ".xls", ".ods"), SPREADSHEET),
}

BY_CONTENTS: dict[str, Format] = {"parquet": PARQUET, "json": JSON, "delimited": DELIMITED}

#: What files of other names must hold to be read if a folder has no file whose name suits the reader.
_CONTENTS = {"text": (*BY_CONTENTS,), "lines": ("lines", "text")}

SAMPLE = 1 << 16  # bytes that show what a file holds

_SAMPLE_LINES = 20

#: The start of an array of objects, and of a dict of Python, for which the reader has the reason.
_ARRAY = re.compile(rb"\s*\[\s*\{|\s*\{'\w+': ")

_MBOX = re.compile(rb"From (?=\S.*[0-9]:[0-9]{2}).*\n[!-9;-~]+:")

#: The start of each of several texts in a file, as of WikiExtractor, TREC and Reuters.
_MARKED = re.compile(rb"(?im)^<(?:doc|reuters)\b[^>]*>")

_HEADER = re.compile(rb"(?:[!-9;-~]+:|[ \t]).*")

_MAIL_FIELDS = re.compile(
    rb"(?im)^(?:from|to|date|subject|message-id|received|return-path|newsgroups|mime-version):"
)

#: The start of a line of a log or chat, such as 2020-01-31 or [1/31/20, 10:15.
_TIME = re.compile(rb"[\[(<]?[0-9]{1,4}[-/.:][0-9]{1,2}[-/.:][0-9]{1,4}")


def ask() -> str:
    return f"say which reader with {option.reader('NAME')}"


def is_parquet(path: str) -> bool:
    return format_of(path) is PARQUET


def format_of(path: str) -> Format | None:
    """Return the format of a file of records, by its suffix or else by its contents; None for other files."""
    return FORMATS.get(bare_suffix(path)) or BY_CONTENTS.get(contents_of(path))


@found_once
def contents_of(path: str) -> str:
    """Return what the start of a file shows, see ``contents``; "" if it cannot be read."""
    try:
        with open_stream(path) as stream:
            return contents(stream.read(SAMPLE))
    except (UnreadableError, FileNotFoundError):
        return ""


def suited(reader: str, paths: Sequence[str]) -> tuple[str, ...]:
    """Return the files that hold what a reader reads, whatever their names."""
    holding = _CONTENTS.get(reader, ())
    found = of_each_file(contents_of, paths) if holding else []
    return tuple(path for path, held in zip(paths, found, strict=False) if held in holding)


def contents(head: bytes) -> str:
    """Return what the first bytes of a file show; "" for none.

    That is parquet, json (an array of objects, or one object per line), marked (several texts with tags), mail,
    delimited (surely a table with a header), lines (of a log, a chat or another table), binary or text.
    """
    head = head.removeprefix(codecs.BOM_UTF8)
    is_cut = len(head) > SAMPLE - 4
    lines = head.splitlines()[: _SAMPLE_LINES + 1]
    lines = [line for line in lines[: -1 if is_cut and len(lines) > 1 else None] if line.strip()]
    if not lines or head.startswith(b"PAR1") or is_binary(head):
        return "parquet" if head.startswith(b"PAR1") else "binary" if lines else ""
    if _ARRAY.match(head) or _most(_is_object, lines):
        return "json"
    if len(_MARKED.findall(head[: head.rfind(b">") + 1])) > 1:
        return "marked"
    header = re.split(rb"\r?\n\r?\n", head, maxsplit=1)[0].splitlines()
    if _MBOX.match(head) or (
        all(map(_HEADER.match, header)) and len({*_MAIL_FIELDS.findall(b"\n".join(header))}) > 1
    ):
        return "mail"
    if is_table(head[: whole_lines(head)] if is_cut else head):
        return "delimited"
    tabs = lines[0].count(b"\t")
    if len(lines) > 4 and _most(lambda line: _TIME.match(line) or line.count(b"\t") == tabs > 0, lines):
        return "lines"
    return "text"


def _most(test: Callable[[bytes], object], lines: Sequence[bytes]) -> bool:
    return 2 * sum(bool(test(line)) for line in lines) > len(lines)


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line.decode("utf-8", "replace").lstrip(RECORD_SEPARATOR)), dict)
    except (ValueError, RecursionError):
        return len(line) >= SAMPLE and re.match(rb'\s*\{\s*"', line) is not None


class Table:
    """The files of a source of records, and what the first one that can be read holds."""

    def __init__(self, files: Sequence[str], given: Mapping[str, Any]) -> None:
        self.files = files
        self.form = format_of(files[0]) or DELIMITED if files else None
        keys = {"sheet", *declared(Delimited)} - {"member"}
        self._options: Any = check_options("text", {key: given[key] for key in keys & given.keys()})

    @cached_property
    def columns(self) -> dict[str, Any]:
        """Arrow arrays of the first records by column. Raises InputError if no file can be read."""
        read = partial(_first_records, options=self._options)
        return of_first_readable(self.files, read, f"give a file with a header, or {ask()}")

    def listed(self) -> str:
        """Return the columns, and what to do if they are wrong."""
        ways_out = [f"{option.sheet('NAME')} names another sheet"] * (self.form is SPREADSHEET)
        if self.form in (DELIMITED, SPREADSHEET):
            ways_out.append(f"{skipping('N')} skips lines above the header")
        if len(self.files) > 1:
            ways_out.append(f"{option.member('FILE')} reads one of the {len(self.files)} files alone")
        return listed(self.columns) + f" ({', and '.join(ways_out)})" * bool(ways_out)

    def separator(self) -> str | None:
        """Return the first separator that at least half of the first lines have, or None for white space."""
        with suppress(UnreadableError), open_stream(self.files[0]) as stream:
            text = stream.read(SAMPLE).decode("utf-8", "replace")
            lines = [line for line in text.splitlines() if line.strip()][:_SAMPLE_RECORDS]
            for separator in _SEPARATORS:
                if 2 * sum(separator in line for line in lines) >= max(len(lines), 1):
                    return separator
        return None


@found_once
def _first_records(path: str, options: Any) -> dict[str, Any]:
    form = format_of(path) or DELIMITED
    if form is JSON:
        return _of_objects(path, options.encoding)
    whole = Unit(path) if form is DELIMITED else form.units(path, options)[0]
    for part in (form.beginning(whole), whole):
        first = next(form.records(part, options, BadRecords("quarantine", part, form.place)), None)
        if first is not None:
            return {name: values[:_SAMPLE_RECORDS] for name, values in first.columns.items()}
    return dict.fromkeys(form.names(path, options), pa.array([], pa.string()))


def _of_objects(path: str, encoding: str) -> dict[str, Any]:
    """Return the first values of JSON by name, also those within objects; others than texts and tokens are null."""
    columns: dict[str, list[Any]] = {}
    try:
        for record in islice(first_objects(path, encoding), _SAMPLE_RECORDS):
            for name, value in record.items() if isinstance(record, dict) else ():
                inner = value.items() if isinstance(value, dict) else ()
                for key, each in ((name, value), *((f"{name}.{key}", each) for key, each in inner)):
                    columns.setdefault(key, []).append(each)
    except UnreadableError:
        if not columns:
            raise
    return {name: _of_texts(values) for name, values in columns.items()}


def _of_texts(values: Sequence[Any]) -> Any:
    given = [value for value in values if value is not None]
    lists = bool(given) and all(isinstance(value, list) for value in given)
    if all(isinstance(item, str) for value in given for item in (value if lists else [value])):
        return from_python(values)
    return pa.nulls(len(values), pa.list_(pa.null()) if lists else None)
