"""Texts in Parquet: row groups in batches of about 8 MB, checked column by column."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_jsmf.ingestion.readers.base import BadRecords, Unit
from streaming_jsmf.ingestion.readers.parquet import parquet_batches
from streaming_jsmf.ingestion.readers.records import as_json, is_text, require, unsound_rows, value_type
from streaming_jsmf.ingestion.readers.streams import UnreadableError, open_parquet_source
from streaming_jsmf.ingestion.readers.text.batches import TextColumns, TextRecords, chosen_columns
from streaming_jsmf.ingestion.readers.text.options import TextOptions

_LARGEST_INTEGER = 2**63 - 1


def parquet_columns(path: str, options: TextOptions) -> TextColumns:
    """The columns of a source, by the footer of its first file.

    Raises
    ------
    UnreadableError
        If the file cannot be read, a column is missing, or the text or id is of another type.
    """
    with open_parquet_source(path) as file:
        schema = file.schema_arrow
    return _typed(schema, options.text, *chosen_columns(schema.names, options))


def _typed(schema: Any, text: str, name: str | None, kept: list[str]) -> TextColumns:
    if not is_text(value_type(schema.field(text).type)):
        raise UnreadableError(f"column {text!r} is {schema.field(text).type}; it must hold strings")
    id_type = None if name is None else _id_type(name, value_type(schema.field(name).type))
    return TextColumns(text, name, id_type, {key: value_type(schema.field(key).type) for key in kept})


def read_parquet_texts(unit: Unit, columns: TextColumns, bad: BadRecords) -> Iterator[TextRecords]:
    """Stream the records of a unit."""
    try:
        yield from _read(unit, columns, bad)
    except UnreadableError as error:
        bad.refuse(None, str(error))


def _read(unit: Unit, columns: TextColumns, bad: BadRecords) -> Iterator[TextRecords]:
    row = 0
    with open_parquet_source(unit.path) as file:
        require(columns.names, file.schema_arrow.names)
        found = _typed(file.schema_arrow, columns.text, columns.id, list(columns.metadata))
        if (found.id_type, found.metadata) != (columns.id_type, columns.metadata):
            raise UnreadableError(
                f"its columns are {_types(found)}, those of the first file {_types(columns)}; make them the same"
            )
        for batch in parquet_batches(file, unit, columns.names):
            yield _checked(batch, columns, row, bad)
            row += batch.num_rows


def _checked(batch: Any, columns: TextColumns, first: int, bad: BadRecords) -> TextRecords:
    """The good records of a batch; the others go to ``bad`` in order of rows."""
    reasons: dict[int, str] = {}
    plain = {name: _plain(batch.column(name)) for name in columns.names}
    required = [columns.text, *([columns.id] if columns.id else [])]
    for name in required:
        for row in np.flatnonzero(np.asarray(plain[name].is_null())).tolist():
            reasons.setdefault(row, f"{name} is null")
    if columns.id and pa.types.is_uint64(plain[columns.id].type):
        for row in np.flatnonzero(np.asarray(plain[columns.id].fill_null(0)) > _LARGEST_INTEGER).tolist():
            reasons.setdefault(row, f"{columns.id} is above {_LARGEST_INTEGER}, the largest integer of an id")
    for name, values in plain.items():
        checked = name in required or not pa.types.is_binary(values.type)
        for row in unsound_rows(values) if checked else ():
            reasons.setdefault(row, f"{name} holds bytes that are not UTF-8")
    for row in sorted(reasons):
        bad.refuse(first + row, reasons[row], as_json(plain, row))
    rows = np.arange(first, first + batch.num_rows)
    if reasons:
        keep = np.ones(batch.num_rows, bool)
        keep[list(reasons)] = False
        rows, mask = rows[keep], pa.array(keep)
        plain = {name: values.filter(mask) for name, values in plain.items()}
    ids = plain[columns.id].cast(columns.id_type) if columns.id else None
    metadata = {name: plain[name].cast(kind) for name, kind in columns.metadata.items()}
    return TextRecords(plain[columns.text].cast(pa.string()), ids, metadata, rows)


def _plain(values: Any) -> Any:
    """Values in place of dictionary codes, and strings as bytes that are not yet known to be UTF-8."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_string(values.type) or pa.types.is_string_view(values.type):
        return values.cast(pa.string())
    return values


def _id_type(name: str, kind: Any) -> Any:
    if pa.types.is_integer(kind):
        return pa.int64()
    if is_text(kind):
        return pa.string()
    raise UnreadableError(f"column {name!r} is {kind}; document ids are strings or integers")


def _types(columns: TextColumns) -> str:
    kinds = {**({columns.id: columns.id_type} if columns.id else {}), **columns.metadata}
    return ", ".join(f"{name}: {kind}" for name, kind in kinds.items())
