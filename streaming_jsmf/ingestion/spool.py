"""Write data in memory (tables, texts, rows) to a temporary file for the readers."""

from __future__ import annotations

import itertools
import math
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streaming_jsmf.corpus.records import without_views
from streaming_jsmf.errors import InputError, first_line
from streaming_jsmf.ingestion.readers.values import as_texts, kind_of_type
from streaming_jsmf.storage.paths import sha256_of

#: Texts or rows per batch; one batch is in memory at a time.
BATCH = 10_000

_SHOWN = 60  # characters of a text in a message

#: Arrow's name of the index of a pandas object that has no name.
_INDEX = "__index_level_0__"


@dataclass(frozen=True)
class Location:
    """Path or URL of a source; ``sha256`` of a temporary file, which has data that were in memory."""

    path: str
    sha256: str | None = None


@contextmanager
def spool_input(source: Any) -> Iterator[Location]:
    """Yield where a source is; data in memory are in a temporary file during the block.

    They are written one batch at a time. Raises ``InputError`` if the source is not a path, texts, rows or a table.
    """
    if isinstance(source, Location):
        yield source
        return
    if isinstance(source, str | PathLike):
        yield Location(fspath(source))
        return
    with TemporaryDirectory(prefix="streaming-jsmf-") as folder:
        path = Path(folder) / "texts.parquet"
        try:
            _write(_tables(source), path)
        except UnicodeEncodeError as error:
            character, text = error.object[error.start : error.start + 1], error.object[:_SHOWN]
            raise InputError(
                f"a text has {character!a}, which stands for a byte that is not UTF-8, as in {text!a}; decode it with "
                "errors='replace'"
            ) from error
        try:
            yield Location(str(path), sha256_of(path))
        except InputError as error:
            # Hide the temporary file from the user.
            error.args = (str(error).replace(str(path), f"the {type(source).__name__}"),)
            raise


def _write(tables: Iterator[pa.Table], path: Path) -> None:
    """Write tables to one file; if a later one has other columns or types, what was written gets them, too."""
    first = next(tables, None)
    if first is None or not first.num_columns:
        raise InputError("the source is empty; give texts, or a table with a column of text")
    writer = _new_file(path, first.schema)
    try:
        for number, table in enumerate(itertools.chain([first], tables)):
            try:
                if not table.schema.equals(writer.schema):
                    schema = _common(writer.schema, table.schema)
                    if not schema.equals(writer.schema):
                        writer.close()
                        writer = _written_again(path, schema)
                    table = _as(table, schema)
                writer.write_table(table)
            except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
                raise InputError(
                    f"the types of rows {number * BATCH} and later differ from the first ones ({first_line(error)}); "
                    "give all rows the same types"
                ) from error
    finally:
        writer.close()


def _common(before: pa.Schema, added: pa.Schema) -> pa.Schema:
    """Return the columns of both; types that differ become numbers if both are, and strings otherwise."""
    fields = {field.name: field for field in before}
    for field in added:
        known = fields.setdefault(field.name, field).type
        if known != field.type and not pa.types.is_null(field.type):
            kinds = {kind_of_type(known), kind_of_type(field.type)}
            numbers = pa.int64() if kinds == {"integers"} else pa.float64()
            kind = numbers if kinds <= {"integers", "numbers"} else pa.string()
            fields[field.name] = pa.field(field.name, field.type if pa.types.is_null(known) else kind)
    return pa.schema(fields.values(), before.metadata)


def _new_file(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    try:
        return pq.ParquetWriter(path, schema)
    except pa.ArrowNotImplementedError as error:
        raise InputError(
            f"a column has a type that cannot be stored ({first_line(error)}); make it numbers, texts or dates"
        ) from error


def _written_again(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """Write a file again with other columns, and leave it open for more."""
    before = path.rename(path.with_suffix(".before"))
    writer = _new_file(path, schema)
    with pq.ParquetFile(before) as file:
        for batch in file.iter_batches(BATCH):
            writer.write_table(_as(pa.Table.from_batches([batch]), schema))
    before.unlink()
    return writer


def _as(table: pa.Table, schema: pa.Schema) -> pa.Table:
    names = set(table.column_names)
    columns = [
        table.column(field.name).cast(field.type)
        if field.name in names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _tables(source: Any) -> Iterator[pa.Table]:
    if hasattr(source, "__arrow_c_stream__"):
        try:
            yield from _arrow_tables(source)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise InputError(
                f"the {type(source).__name__} cannot be read ({first_line(error)}); give columns of one type each"
            ) from error
    elif hasattr(source, "tocsr") or (isinstance(source, np.ndarray) and source.ndim > 1):
        raise InputError(
            f"the source is a matrix ({type(source).__name__}); corpus_from_matrix(matrix, words, path) makes a corpus "
            "of counts, and LRJSMF fits one"
        )
    elif hasattr(source, "partitions") and hasattr(source, "columns"):  # a data frame of Dask
        for part in source.partitions:
            yield from _tables(part.compute())
    elif isinstance(source, Mapping) or not isinstance(source, Iterable) or hasattr(source, "columns"):
        lazy = ", collected if it is lazy" if hasattr(source, "collect") else ""
        raise InputError(
            f"the source is of type {type(source).__name__}; give a path, texts, rows or a table with a column of text"
            f"{lazy}"
        )
    else:
        rows, all_files = iter(source), None
        while batch := list(itertools.islice(rows, BATCH)):
            all_files = all_files is not False and all(map(_is_file, batch))
            yield _table(batch)
        if all_files:
            warnings.warn(
                "every text is the path of an existing file, and the paths are read as the texts; to read the "
                "files, give their folder or a glob, such as 'texts/*.txt', instead of a list",
                stacklevel=2,
            )


def _arrow_tables(source: Any) -> Iterator[pa.Table]:
    """Yield an object that exports Arrow as tables; columns of objects of several types become strings."""
    try:
        reader = pa.RecordBatchReader.from_stream(source)
    # Of Arrow, or of pandas for a table that Arrow does not take, such as one of complex numbers or large integers.
    except (ValueError, TypeError, OverflowError, pa.ArrowNotImplementedError):
        if not hasattr(source, "iloc") or not hasattr(source, "columns"):
            column = pa.chunked_array(source)  # such as a series of polars
            yield pa.table({"text": column.cast(without_views(column.type))})
            return
        if not source.columns.is_unique:
            names = ", ".join(map(str, source.columns[source.columns.duplicated()]))
            raise InputError(f"the table has several columns {names}; rename all but one of each") from None
        for start in range(0, len(source), BATCH):
            part = source.iloc[start : start + BATCH].astype(object)
            part = part.where(part.notna(), None)
            yield pa.table({str(name): _column(part[name].tolist()) for name in part})
        return
    named = reader.schema.names
    if "index" not in named:
        named = ["index" if name == _INDEX else name for name in named]
    plain = pa.schema([*zip(named, map(without_views, reader.schema.types), strict=True)])
    yield from (pa.Table.from_batches([batch]).rename_columns(named).cast(plain) for batch in reader)


def _is_file(row: Any) -> bool:
    # Not ``Path.is_file``, which raises OSError for a text that is longer than a path can be.
    return isinstance(row, str) and os.path.isfile(row)  # noqa: PTH113


def _is_missing(value: Any) -> bool:
    """Whether a value is None, NaN or NA, as pandas has them among texts."""
    return (
        value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and math.isnan(value))
    )


def _table(rows: list[Any]) -> pa.Table:
    if all(isinstance(row, str) or _is_missing(row) for row in rows):
        return pa.table({"text": pa.array([None if _is_missing(row) else row for row in rows], pa.string())})
    if not all(isinstance(row, Mapping) for row in rows):
        kinds = ", ".join(sorted({type(row).__name__ for row in rows}))
        raise InputError(
            f"the source has rows of type {kinds}; give texts only, or mappings with a text only (counts of words go "
            "to corpus_from_matrix or corpus_from_gensim)"
        )
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({str(name): _column([row.get(name) for row in rows]) for name in names})


def _column(values: list[Any]) -> pa.Array:
    values = [None if _is_missing(value) else value for value in values]
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return as_texts(values)[0]
