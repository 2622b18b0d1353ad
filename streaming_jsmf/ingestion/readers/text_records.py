"""Types of metadata columns that files of bags of words have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.readers.base import UnreadableError
from streaming_jsmf.ingestion.readers.files import open_parquet_source
from streaming_jsmf.ingestion.readers.values import as_texts, decoded, holds_strings, value_type
from streaming_jsmf.storage.objects import in_threads


def fits(found: Any, wanted: Any) -> bool:
    """Whether the values of a column of a file can have the type of the source: numbers and times can be strings."""
    types = pa.types
    simple = (types.is_integer, types.is_floating, types.is_boolean, types.is_temporal, types.is_null)
    strings = holds_strings(wanted) and (holds_strings(found) or any(is_kind(found) for is_kind in simple))
    return bool(found == wanted or strings)


def as_type(values: Any, wanted: Any) -> tuple[Any, list[str] | None]:
    """Convert a column as ``fits`` allows; see ``as_texts``."""
    if values.type == wanted or holds_strings(values.type):
        return values.cast(wanted), None
    texts, kinds = as_texts(values.to_pylist())
    return texts.cast(wanted), kinds


def conformed(batch: Any, kinds: Mapping[str, Any]) -> dict[str, Column]:
    """The columns of a batch with these types, if ``fits`` allows them; null where the batch lacks a column."""
    return {
        name: as_type(decoded(batch.column(name)), kind)
        if name in batch.schema.names
        else (pa.nulls(batch.num_rows, kind), None)
        for name, kind in kinds.items()
    }


def common_kinds(kinds: Mapping[str, Any], files: Sequence[str]) -> dict[str, Any]:
    """Types of metadata columns for other Parquet files as well: strings where types differ, if all can be strings."""
    others = in_threads(partial(_kinds_of, names=list(kinds)), files)
    strings = {
        name
        for name, kind in kinds.items()
        if any(each.get(name, kind) != kind for each in others)
        and all(fits(each.get(name, kind), pa.string()) for each in [*others, kinds])
    }
    return {**kinds, **dict.fromkeys(strings, pa.string())}


def _kinds_of(path: str, names: Sequence[str]) -> dict[str, Any]:
    """Types of the columns of a Parquet file; none if it cannot be read, which reading reports."""
    try:
        with open_parquet_source(path) as file:
            schema = file.schema_arrow
    except (UnreadableError, InputError):
        return {}
    return {name: value_type(schema.field(name).type) for name in names if schema.names.count(name) == 1}


#: An Arrow array and its kinds (``values.KINDS``); the kinds are None if they have to be found.
Column = tuple[Any, Sequence[str] | None]
