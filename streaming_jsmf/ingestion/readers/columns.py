"""What the columns of a table are for, by what they are usually called and by what is in the first records."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.readers.base import Unit
from streaming_jsmf.ingestion.readers.delimited import open_text, records_of, split
from streaming_jsmf.ingestion.readers.lines import lines_of
from streaming_jsmf.ingestion.readers.parquet import is_parquet
from streaming_jsmf.ingestion.readers.records import BadValue, is_text, value_type
from streaming_jsmf.ingestion.readers.streams import UnreadableError, open_parquet_source, open_stream

#: In small letters, without anything between the words; the first that is there is taken.
TEXT_NAMES = (
    "text fulltext rawtext body bodytext content contents article articletext articlebody abstract review reviewtext "
    "reviewbody comment commenttext message post posttext tweet tweettext speech speechtext transcript story "
    "description"
)
USER_NAMES = (
    "user userid username customer customerid reviewer reviewerid reader readerid listener listenerid"
)
ITEM_NAMES = (
    "item itemid movie movieid film filmid product productid asin isbn book bookid artist artistid song songid track "
    "trackid game gameid business businessid anime animeid"
)
RATING_NAMES = "rating ratings stars score overall bookrating"
TITLE_NAMES = "name title itemname movietitle producttitle"

#: Records of the first file that are looked at.
_SAMPLE = 100
#: Records that must have equally many fields to tell what is between them.
_RECORDS_CUT = 20
#: Characters that the strings of a column have on average if they are texts.
_TEXT_LENGTH = 20


def by_name(names: Iterable[str], known: str) -> str | None:
    """The column that has the first of the known names, whatever its case and what is between its words."""
    plain: dict[str, str] = {}
    for name in names:
        plain.setdefault(re.sub(r"[\W_]+", "", name.lower()), name)
    return next((plain[name] for name in known.split() if name in plain), None)


def text_by_name(columns: Mapping[str, Any]) -> str | None:
    """The column of strings that is called as texts are; ``columns`` are Arrow types by name."""
    strings = [name for name, kind in columns.items() if is_text(value_type(kind))]
    return "text" if "text" in columns else by_name(strings, TEXT_NAMES)


def long_column(sample: Mapping[str, Sequence[str]]) -> str | None:
    """The column with the longest strings, if they are long enough for texts; addresses of pages are none."""
    lengths = {
        name: sum(len(value) for value in values if "://" not in value[:8]) / len(values)
        for name, values in sample.items()
        if values
    }
    longest = max(lengths, key=lambda name: lengths[name], default=None)
    return longest if longest is not None and lengths[longest] >= _TEXT_LENGTH else None


@dataclass(frozen=True)
class Layout:
    """How a delimited file is read: what is between its fields, and its encodings (see ``delimited.open_text``)."""

    delimiter: str
    encoding: str = "utf-8"


def csv_header(path: str, layout: Layout) -> list[str]:
    """The names in the first line of a delimited file.

    Raises
    ------
    InputError
        If the file cannot be read or its first line is no header.
    """
    ask = "say which reader with --reader"
    try:
        with open_text(path, layout.encoding, "replace") as text:
            line = text.readline(1 << 20)
        if not line.strip():
            raise UnreadableError(f"the file is empty; give one with a header, or {ask}")
        names = split(line.strip().encode(), layout.delimiter, '"' if len(layout.delimiter) == 1 else "")
    except UnreadableError as error:
        raise InputError(f"{path}: {error}") from error
    except BadValue as error:
        raise InputError(f"{path}, line 1: {error}; mend the header, or {ask}") from error
    return [name.strip() for name in names]


def found_delimiter(path: str, usual: str, encoding: str) -> str:
    """What is between the fields of a delimited file: the usual one, unless another alone cuts its first records alike.

    Of the usual one, ``;``, a tab, ``|`` and a comma the first that gives the first twenty records equally many fields,
    two or more; a file of one column, and one that cannot be read, has the usual one.
    """
    candidates: Sequence[str] = (usual, ";", "\t", "|", ",")
    for delimiter in candidates:
        with suppress(UnreadableError, csv.Error), open_text(path, encoding, "replace") as text:
            rows = islice(records_of(text, delimiter), _RECORDS_CUT)
            widths = {len(row) for row in rows if row}
            if len(widths) == 1 and max(widths) > 1:
                return delimiter
    return usual


def sampled_columns(files: Sequence[str], layout: Layout | None) -> dict[str, list[str]]:
    """The strings in the first hundred records of the first file that can be read, by column; all of its columns.

    ``layout``: of delimited files; None if they are of another kind.
    """
    for path in files:
        with suppress(UnreadableError, BadValue, csv.Error, ValueError):
            return _of_parquet(path) if is_parquet(path) else _gathered(_records(path, layout))
    return {}


def _of_parquet(path: str) -> dict[str, list[str]]:
    with open_parquet_source(path) as file:
        names = [field.name for field in file.schema_arrow if is_text(value_type(field.type))]
        batch = next(file.iter_batches(_SAMPLE, columns=names, use_threads=False), None)
        rows = [] if batch is None else batch.to_pylist()
    return {name: [str(row[name]) for row in rows if row[name] is not None] for name in names}


def _gathered(records: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for record in islice(records, _SAMPLE):
        for name, value in record.items():
            if isinstance(value, str):
                found.setdefault(name, []).append(value)
    return found


def _records(path: str, layout: Layout | None) -> Iterator[Mapping[str, Any]]:
    if layout is not None:
        with open_text(path, layout.encoding, "replace") as text:
            rows = records_of(text, layout.delimiter)
            header: list[str] = next(rows, [])
            yield from (dict(zip(header, row, strict=False)) for row in rows)
        return
    with open_stream(path) as stream:
        for line in lines_of(stream, Unit(path)):
            value = json.loads(line.decode("utf-8-sig", "replace"))
            if isinstance(value, dict):
                yield value
