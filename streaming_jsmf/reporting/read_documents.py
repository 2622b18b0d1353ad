"""What a report says of documents, from their topic shares: the first of each topic, and shares of groups."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_jsmf.documents import queries
from streaming_jsmf.documents.shares import DOCUMENT_ID, SharesFile
from streaming_jsmf.errors import InputError
from streaming_jsmf.reporting.contents import Document, Documents, Groups

#: Documents of each topic.
NUMBER = 10

#: Characters of a value of the metadata that are shown.
MOST_CHARACTERS = 240

#: Groups that a chart has room for.
MOST_GROUPS = 200

#: Names of columns that hold a time, unless their type says so; the first that is there is taken.
TIMES = ("year", "date", "time", "timestamp", "published", "created")

Label = Callable[[Any], Any]


def documents_of(shares: SharesFile) -> Documents:
    """The documents in which each topic is largest, with their metadata. One pass."""
    tables = queries.largest(shares, range(shares.about.n_topics), NUMBER)
    columns = tuple(name for name in shares.columns if name != DOCUMENT_ID)
    return Documents(columns, tuple(_listed(table, columns) for table in tables))


def _listed(table: Any, columns: tuple[str, ...]) -> tuple[Document, ...]:
    rows = table.to_pylist()
    return tuple(
        Document(
            _short(row[DOCUMENT_ID]), float(row[queries.SHARE]), tuple(_short(row[name]) for name in columns)
        )
        for row in rows
    )


def _short(value: Any) -> str:
    text = "" if value is None else " ".join(str(value).split())
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."


def groups_of(shares: SharesFile, by: str | None) -> Groups | None:
    """Mean topic shares by a column; None: by year where a column holds a time. Up to two passes.

    Raises
    ------
    InputError
        If there is no such column, or it has too many values.
    """
    column = _time_column(shares) if by is None else by
    if column is None:
        return None
    label = _year_label(shares, column)
    table = queries.by_group(shares, column, label=label)
    found = _groups(shares, table, column, label is not None)
    if len(found.names) <= MOST_GROUPS:
        return found
    if by is None:
        return None
    raise InputError(
        f"column {column!r} has {len(found.names)} values; --by takes one of at most {MOST_GROUPS}, such as a year "
        "or a class"
    )


def _groups(shares: SharesFile, table: Any, column: str, years: bool) -> Groups:
    shape = (-1, shares.about.n_topics)
    values = table.column(column).to_pylist()[:: shares.about.n_topics]
    errors = np.asarray(table.column(queries.ERROR).fill_null(0.0)).reshape(shape)
    ordered = all(_is_ordered(value) for value in values if value is not None)
    return Groups(
        f"year of {column}" if years else column,
        tuple("not known" if value is None else _short(value) for value in values),
        tuple(table.column(queries.DOCUMENTS).to_pylist()[:: shares.about.n_topics]),
        ordered and len(values) > 1,
        np.asarray(table.column(queries.SHARE)).reshape(shape),
        errors,
    )


def _is_ordered(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int | float | datetime.date) or bool(re.fullmatch(r"[0-9]{4}", str(value)))


def _time_column(shares: SharesFile) -> str | None:
    schema = _schema(shares)
    if schema is None:
        return None
    typed = [field.name for field in schema if pa.types.is_temporal(field.type)]
    named = [name for known in TIMES for name in schema.names if name.lower() == known]
    return next(iter([*named, *typed]), None)


def _year_label(shares: SharesFile, column: str) -> Label | None:
    """How years are made of a column of dates; None for what is to be taken as it is."""
    schema = _schema(shares)
    if schema is None or column not in schema.names:
        return None
    kind = schema.field(column).type
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return lambda values: pc.year(values)
    if column.lower() in TIMES[1:] and (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        # A year of four digits at the start, as in 1999-12-31; anything else is not known.
        return lambda values: pc.struct_field(
            pc.extract_regex(values, r"^(?P<year>[0-9]{4})(?:[^0-9]|$)"), "year"
        )
    return None


def _schema(shares: SharesFile) -> Any:
    """Names and types of the metadata; None if there are no documents."""
    table = next(iter(shares.tables(shares.columns)), None)
    return None if table is None else table.schema
