"""Texts in Parquet, in batches of about 8 MB that are checked column by column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_jsmf.ingestion.readers.base import BadRecords, Unit, UnreadableError
from streaming_jsmf.ingestion.readers.files import open_parquet_source
from streaming_jsmf.ingestion.readers.text_records import (
    TextColumns,
    TextOptions,
    TextRecords,
    choose_columns,
)
from streaming_jsmf.ingestion.readers.units import drop_bad_rows, parquet_batches
from streaming_jsmf.ingestion.readers.values import (
    invalid_rows,
    is_text,
    require_columns,
    value_type,
)

_LARGEST_INTEGER = 2**63 - 1


def parquet_columns(path: str, options: TextOptions) -> TextColumns:
    """Return the columns of a file from its footer; UnreadableError if one is missing or has a wrong type."""
    with open_parquet_source(path) as file:
        schema = file.schema_arrow
    return _typed(schema, options.text, *choose_columns(schema.names, options))


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


def read_parquet_texts(unit: Unit, columns: TextColumns, bad: BadRecords) -> Iterator[TextRecords]:
    """Stream the records of a unit."""
    with bad.unreadable_file(), open_parquet_source(unit.path) as file:
        require_columns(columns.names, file.schema_arrow.names)
        found = _typed(file.schema_arrow, columns.text, columns.id, list(columns.metadata))
        if (found.id_type, found.metadata) != (columns.id_type, columns.metadata):
            raise UnreadableError(
                f"its columns are {_types(found)}, those of the first file {_types(columns)}; make them the same"
            )
        for first, encoded in parquet_batches(file, unit, columns.names):
            batch = pa.record_batch({name: _decoded(encoded.column(name)) for name in columns.names})
            batch, rows = drop_bad_rows(batch, _bad_rows(batch, columns), first, bad)
            ids = batch.column(columns.id).cast(columns.id_type) if columns.id else None
            metadata = {name: batch.column(name).cast(kind) for name, kind in columns.metadata.items()}
            yield TextRecords(batch.column(columns.text).cast(pa.string()), ids, metadata, rows)


def _bad_rows(batch: Any, columns: TextColumns) -> dict[int, str]:
    """Return the first reason to refuse each bad row."""
    reasons: dict[int, str] = {}
    required = [columns.text, *([columns.id] if columns.id else [])]
    for name in required:
        for row in np.flatnonzero(np.asarray(batch.column(name).is_null())).tolist():
            reasons.setdefault(row, f"{name} is null")
    if columns.id and pa.types.is_uint64(batch.column(columns.id).type):
        ids = np.asarray(batch.column(columns.id).fill_null(0))
        for row in np.flatnonzero(ids > _LARGEST_INTEGER).tolist():
            reasons.setdefault(row, f"{columns.id} is above {_LARGEST_INTEGER}, the largest integer of an id")
    for name in columns.names:
        if name in required or not pa.types.is_binary(batch.column(name).type):
            for row in invalid_rows(batch.column(name)):
                reasons.setdefault(row, f"{name} holds bytes that are not UTF-8")
    return reasons


def _decoded(values: Any) -> Any:
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values.cast(pa.string()) if pa.types.is_string_view(values.type) else values


def _types(columns: TextColumns) -> str:
    kinds = {**({columns.id: columns.id_type} if columns.id else {}), **columns.metadata}
    return ", ".join(f"{name}: {kind}" for name, kind in kinds.items())
