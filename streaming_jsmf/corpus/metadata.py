"""Ids and metadata of documents as Arrow columns: their names and types."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_jsmf.corpus.bags import Place
from streaming_jsmf.corpus.footer import is_string
from streaming_jsmf.errors import InputError

ID_COLUMNS = ("document_id", "doc_id")

#: Columns of corpora and of topic shares that are not metadata.
OWN_COLUMNS = ("ids", "counts", "document_id", "known_tokens", "topics", "topic_shares", "topic")


def free_name(name: str, taken: Container[str]) -> str:
    """Return a name that is not taken: the given one, with as many ``_`` behind it as that needs."""
    while name in taken:
        name += "_"
    return name


def id_column(names: Sequence[str]) -> str | None:
    """Return the column of document ids, by its usual names; None if it is missing."""
    return next((name for name in ID_COLUMNS if name in names), None)


def without_views(kind: Any) -> Any:
    """Return an Arrow type with plain strings and bytes in place of views, whose rows Arrow cannot select."""
    types = pa.types
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return pa.string() if types.is_string_view(kind) else pa.binary()
    if types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, without_views(kind.value_type), kind.ordered)
    if types.is_struct(kind):
        return pa.struct([field.with_type(without_views(field.type)) for field in kind])
    if types.is_list(kind) or types.is_large_list(kind):
        item = kind.value_field.with_type(without_views(kind.value_type))
        return pa.list_(item) if types.is_list(kind) else pa.large_list(item)
    return kind


def registers_pandas(file: Any) -> bool:
    """Whether a file of Parquet or Arrow has types of pandas that Arrow did not know before: it must be opened again.

    Periods and intervals are numbers and objects until pandas, which takes .3 s to import, makes its first array.
    """
    schema = getattr(file, "schema_arrow", None) or file.schema
    types = {(field.metadata or {}).get(b"ARROW:extension:name", b"") for field in schema}
    if not any(name.startswith(b"pandas.") for name in types):
        return False
    import pandas as pd

    pa.array(pd.PeriodIndex([], freq="D"))
    return True


def without_extension(values: Any) -> Any:
    """Return an Arrow array of an extension type as one of a plain type, by default its storage.

    Periods of pandas become the times at which they begin, and its intervals strings.
    """
    name = values.type.extension_name
    if name == "pandas.period":
        periods = values.to_pandas().array.asfreq("us", "start")
        return pa.array(periods.asi8, pa.timestamp("us"), mask=periods.isna())
    if name == "pandas.interval":
        return pa.array(values.to_pandas().map(str, "ignore"), pa.string())
    if name == "arrow.uuid":
        return pa.array([None if value is None else str(value) for value in values.to_pylist()], pa.string())
    return values.storage


def document_ids(column: Any, name: str, where: Place) -> Any:
    """Convert an Arrow id column to int64 or string; ``InputError`` for nulls and other types."""
    column = column.cast(without_views(column.type))
    if column.null_count:
        row = int(np.argmax(np.asarray(column.is_null())))
        raise where.refuse(row, f"{name} is null")
    if pa.types.is_integer(column.type):
        return column.cast(pa.int64())
    if is_string(column.type):
        return column.cast(pa.string())
    raise InputError(f"{where.path}: column {name!r} is {column.type}; document ids are strings or integers")
