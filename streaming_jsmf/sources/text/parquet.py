"""Texts in Parquet: row groups in batches of about 8 MB, checked column by column."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_jsmf.sources.base import BATCH_BYTES, UNIT_BYTES, BadRecords, Unit
from streaming_jsmf.sources.files import UnreadableError, open_parquet_source
from streaming_jsmf.sources.text.records import (
    TextColumns,
    TextRecords,
    chosen_id,
    chosen_metadata,
    require,
)

_MOST_ROWS = 100_000
_LARGEST_INTEGER = 2**63 - 1


def parquet_units(path: str) -> list[Unit]:
    """Runs of row groups of about ``UNIT_BYTES``; one whole-file unit if the footer cannot be read (reading tells)."""
    try:
        with open_parquet_source(path) as file:
            sizes = [file.metadata.row_group(g).total_byte_size for g in range(file.metadata.num_row_groups)]
    except UnreadableError:
        return [Unit(path)]
    units, start, size = [], 0, 0
    for g, group_bytes in enumerate(sizes):
        size += group_bytes
        if size >= UNIT_BYTES or g == len(sizes) - 1:
            units.append(Unit(path, start, g + 1, size))
            start, size = g + 1, 0
    return units or [Unit(path)]


def batch_rows(group: Any) -> int:
    """Rows of a row group that are about ``BATCH_BYTES``.

    The footer gives bytes as encoded: values that come again and again are written once, so there is an upper bound.
    """
    return max(1, min(_MOST_ROWS, int(BATCH_BYTES * group.num_rows / max(group.total_byte_size, 1))))


def parquet_place(unit: Unit, row: int) -> str:
    """File, row group and row of a record of a unit."""
    with open_parquet_source(unit.path) as file:
        for g in range(unit.start, unit.stop):
            rows = file.metadata.row_group(g).num_rows
            if row < rows:
                return f"{unit.path}, row group {g}, row {row} from 0"
            row -= rows
    return unit.path


def parquet_first_row(unit: Unit) -> int:
    """Rows of the file before the unit."""
    with open_parquet_source(unit.path) as file:
        return sum(file.metadata.row_group(g).num_rows for g in range(unit.start))


def parquet_columns(
    path: str, text: str, identity: str | None, metadata: str | tuple[str, ...]
) -> TextColumns:
    """The columns of a source, by the footer of its first file.

    Raises
    ------
    UnreadableError
        If the file cannot be read, a column is missing, or the text or id is of another type.
    """
    with open_parquet_source(path) as file:
        schema = file.schema_arrow
    require(schema.names, [text, *([identity] if identity else []), *(metadata if metadata != "all" else ())])
    return _columns(schema, text, chosen_id(schema.names, identity), metadata)


def _columns(schema: Any, text: str, name: str | None, metadata: str | tuple[str, ...]) -> TextColumns:
    kept = chosen_metadata(schema.names, metadata, (text, name))
    if not is_text(_value_type(schema.field(text).type)):
        raise UnreadableError(f"column {text!r} is {schema.field(text).type}; it must hold strings")
    id_type = None if name is None else _id_type(name, _value_type(schema.field(name).type))
    return TextColumns(text, name, id_type, {key: _value_type(schema.field(key).type) for key in kept})


def read_parquet_texts(unit: Unit, columns: TextColumns, bad: BadRecords) -> Iterator[TextRecords]:
    """Stream the records of a unit."""
    try:
        yield from _read(unit, columns, bad)
    except UnreadableError as error:
        bad.refuse(None, str(error))


def _read(unit: Unit, columns: TextColumns, bad: BadRecords) -> Iterator[TextRecords]:
    row = 0
    with open_parquet_source(unit.path) as file:
        require(file.schema_arrow.names, columns.names)
        found = _columns(file.schema_arrow, columns.text, columns.id, tuple(columns.metadata))
        if (found.id_type, found.metadata) != (columns.id_type, columns.metadata):
            raise UnreadableError(
                f"its columns are {_types(found)}, those of the first file {_types(columns)}; make them the same"
            )
        for g in range(unit.start, unit.stop):
            size = batch_rows(file.metadata.row_group(g))
            for batch in file.iter_batches(size, row_groups=[g], columns=columns.names, use_threads=False):
                if batch.num_rows:
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
        for row in _rows_not_utf8(values) if checked else ():
            reasons.setdefault(row, f"{name} holds bytes that are not UTF-8")
    for row in sorted(reasons):
        bad.refuse(first + row, reasons[row], _as_json(plain, row))
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


def _rows_not_utf8(values: Any) -> list[int]:
    """Rows of an array with strings of invalid bytes; Arrow does not look when it reads Parquet."""
    if pa.types.is_nested(values.type):
        return [] if _is_sound(values) else [i for i in range(len(values)) if not _is_sound(values.take([i]))]
    if not is_text(values.type):
        return []
    raw = values.cast(pa.large_binary())
    try:
        raw.cast(pa.large_string())
    except pa.ArrowInvalid:
        return [row for row, value in enumerate(raw.to_pylist()) if value is not None and not _is_utf8(value)]
    return []


def _is_sound(values: Any) -> bool:
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _as_json(columns: dict[str, Any], row: int) -> bytes:
    """The record for the quarantine; bytes that are not UTF-8 stay as they are."""

    def value(array: Any) -> Any:
        if is_text(array.type):
            raw = array.slice(row, 1).cast(pa.large_binary())[0].as_py()
            return None if raw is None else raw.decode("utf-8", "surrogateescape")
        try:
            return array[row].as_py()
        except UnicodeDecodeError:
            return "not UTF-8"

    record = {name: value(array) for name, array in columns.items()}
    return json.dumps(record, ensure_ascii=False, default=str).encode("utf-8", "surrogateescape")


def _value_type(kind: Any) -> Any:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _id_type(name: str, kind: Any) -> Any:
    if pa.types.is_integer(kind):
        return pa.int64()
    if is_text(kind):
        return pa.string()
    raise UnreadableError(f"column {name!r} is {kind}; document ids are strings or integers")


def is_text(kind: Any) -> bool:
    """Whether an Arrow type holds strings, or bytes that may be strings."""
    types = pa.types
    is_string = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    return bool(is_string or types.is_binary(kind) or types.is_large_binary(kind))


def _types(columns: TextColumns) -> str:
    kinds = {**({columns.id: columns.id_type} if columns.id else {}), **columns.metadata}
    return ", ".join(f"{name}: {kind}" for name, kind in kinds.items())
