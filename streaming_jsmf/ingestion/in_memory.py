"""Data in memory as temporary Parquet files, which readers read as those of users: texts, rows, tables and cells."""

from __future__ import annotations

import hashlib
import itertools
import logging
import math
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streaming_jsmf.corpus.footer import is_list
from streaming_jsmf.corpus.metadata import without_views
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.sources.matrices import COUNTS, WORDS
from streaming_jsmf.ingestion.sources.values import (
    ID_NAMES,
    as_characters,
    from_python,
    id_name,
    is_list_of_strings,
    storable,
)
from streaming_jsmf.storage.paths import StorePath, sha256_of
from streaming_jsmf.storage.replace import put_files, temporary_folder, temporary_place

logger = logging.getLogger(__name__)

#: Texts or rows per batch; one batch is in memory at a time.
BATCH = 10_000

#: Arrow arrays of one length by name.
Columns = Mapping[Any, Any]

#: Arrow's name of the index of a pandas object that has no name.
_INDEX = "__index_level_0__"


@dataclass(frozen=True)
class Location:
    """Path or URL of a source; ``sha256`` of temporary files, which have data that were in memory."""

    path: str
    sha256: str | None = None


@contextmanager
def located(source: Any, near: StorePath | None = None, *, numbered: bool = False) -> Iterator[Location]:
    """Yield where a source is; data in memory are in temporary files during the block.

    They are written one batch at a time, next to the path or URL ``near`` if other machines have to see them. Numbers
    of the rows of a slice of a pandas object are ids, unless documents are ``numbered``. Raises ``InputError`` if the
    source is not a path, texts, rows, a table or cells.
    """
    if isinstance(source, Location | str | PathLike):
        yield source if isinstance(source, Location) else Location(fspath(source))
        return
    rows: Any = getattr(source, "index", None)
    if type(rows).__name__ == "RangeIndex" and (rows.start, rows.step) != (0, 1) and not numbered:
        source = source.set_axis(rows.to_numpy())
    with ExitStack() as held:
        if isinstance(near, Path):
            near.parent.mkdir(parents=True, exist_ok=True)
        folder = held.enter_context(temporary_place(near and near.parent))
        local = folder if isinstance(folder, Path) else held.enter_context(temporary_folder())
        if hasattr(source, "write_h5ad"):
            _write_cells(source, local / "cells.h5ad")
        else:
            _write_tables(_batches(source), local)
        files = sorted(local.iterdir())
        if local != folder:
            put_files([(path, folder / path.name) for path in files])
        place = folder / files[0].name if len(files) == 1 else folder
        hashes = [sha256_of(path) for path in files]
        try:
            yield Location(str(place), hashlib.sha256("".join(hashes).encode()).hexdigest())
        except InputError as error:
            # Hide the temporary files from the user.
            error.args = (str(error).replace(str(place), f"the {type(source).__name__}"),)
            raise


def _write_cells(cells: Any, path: Path) -> None:
    """Write what the reader "h5ad" takes of an AnnData object; columns of mixed objects as strings."""
    obs = cells.obs.apply(
        lambda column: column.map(str, "ignore").astype("category") if column.dtype == "O" else column
    )
    type(cells)(cells.X, obs, cells.var[[]], layers=dict(cells.layers)).write_h5ad(path)


def _write_tables(batches: Iterator[Columns], folder: Path) -> None:
    """Write a file for each run of batches with the same columns and types."""
    tables = itertools.groupby(_storable(batches), key=lambda table: table.schema)
    for number, (schema, run) in enumerate(tables):
        with pq.ParquetWriter(folder / f"texts-{number:05d}.parquet", schema) as writer:
            for table in run:
                writer.write_table(table)
    if not any(folder.iterdir()):
        raise InputError("the source is empty; give texts, or a table with a column of text")


def _storable(batches: Iterator[Columns]) -> Iterator[pa.Table]:
    """The batches as a corpus can hold them, but for lists of tokens; what that changes is logged once per column."""
    noted: set[str] = set()
    for columns in batches:
        kept = {}
        for given, value in columns.items():
            values = value.cast(without_views(value.type))
            name = as_characters(str(given).encode("utf-8", "surrogatepass"))
            # Lists of tokens stay lists, and readers repair them.
            is_bag = name == COUNTS and is_list(values.type) and is_list(columns.get(WORDS, values).type)
            stored, line = (
                (values, "") if is_bag or is_list_of_strings(values.type) else storable(name, values)
            )
            if line and name not in noted:
                logger.warning("%s", line)
                noted.add(name)
            if stored is not None:
                kept[name] = stored.cast(pa.string()) if pa.types.is_null(stored.type) else stored
        if kept:
            yield pa.table(kept)


def _opened(source: Any) -> Any:
    """Return the result of a callable, and the record batches of a dataset or a scanner of Arrow."""
    if isinstance(source, FunctionType | MethodType | partial):
        source = source()
    source = source.scanner() if hasattr(source, "scanner") else source
    return source.to_reader() if hasattr(source, "projected_schema") else source


def _batches(source: Any) -> Iterator[Columns]:
    source = _opened(source)
    # A series of pandas exports Arrow from version 3 on, but without its index.
    is_series = hasattr(source, "iloc") and not hasattr(source, "columns")
    if (hasattr(source, "__arrow_c_stream__") and not is_series) or isinstance(source, pa.Array):
        yield from _arrow_batches(source)
    elif getattr(source, "features", None) and hasattr(
        source, "with_format"
    ):  # of Hugging Face, without its decoding
        for table in source.with_format("arrow").iter(BATCH):
            yield from (_with_labels(batch, source.features) for batch in table.to_batches())
    elif hasattr(source, "tocsr") or (isinstance(source, np.ndarray) and source.ndim > 1):
        raise InputError(
            f"the source is a matrix ({type(source).__name__}); corpus_from_matrix(matrix, words, path) makes a corpus "
            "of counts, and LRJSMF fits one"
        )
    elif hasattr(source, "partitions") and hasattr(source, "columns"):  # a data frame of Dask
        for part in source.partitions:
            yield from _batches(part.compute())
    elif isinstance(source, Mapping) or not isinstance(source, Iterable) or hasattr(source, "columns"):
        more = ", collected if it is lazy" if hasattr(source, "collect") else ""
        more = ", such as one split of the data sets" if hasattr(source, "with_format") else more
        raise InputError(
            f"the source is of type {type(source).__name__}; give a path, texts, rows or a table with a column of text"
            f"{more}"
        )
    else:
        yield from _of_iterable(source)


def _of_iterable(source: Iterable[Any]) -> Iterator[Columns]:
    """The columns of record batches, tables or rows, one after the other."""
    rows, all_files, ids = iter(source), None, _ids(source)
    first = list(itertools.islice(rows, 1))
    rows = itertools.chain(first, rows)
    if first and isinstance(first[0], pa.RecordBatch | pa.Table):
        for held in rows:
            yield from map(_columns, [held] if isinstance(held, pa.RecordBatch) else held.to_batches())
        return
    while batch := list(itertools.islice(rows, BATCH)):
        # Not ``Path.is_file``, which raises OSError for a text that is longer than a path can be.
        are_files = (isinstance(row, str) and os.path.isfile(row) for row in batch)  # noqa: PTH113
        all_files = all_files is not False and all(are_files)
        named = {ID_NAMES[0]: from_python([*itertools.islice(ids, len(batch))])} if ids else {}
        yield {**_of_rows(batch), **named}
    if all_files:
        warnings.warn(
            "every text is the path of an existing file, and the paths are read as the texts; to read the "
            "files, give their folder or a glob, such as 'texts/*.txt', instead of a list",
            stacklevel=2,
        )


def _arrow_batches(source: Any) -> Iterator[Columns]:
    """Yield the columns of an object that exports Arrow; those of objects of several types become strings."""
    source = pa.chunked_array([source]) if isinstance(source, pa.Array) else source
    index = ID_NAMES[0] if _ids(source) and not id_name(source.columns) else "index"
    try:
        reader = pa.RecordBatchReader.from_stream(source)
    # Of Arrow, or of pandas for a table that Arrow does not take, such as one of complex numbers or large integers.
    except (ValueError, TypeError, OverflowError, pa.ArrowNotImplementedError):
        if not hasattr(source, "iloc") or not hasattr(source, "columns"):
            chunks = pa.chunked_array(source).chunks  # such as a series of polars
            yield from ({"text": chunk} for chunk in chunks)
            return
        _require_distinct(source.columns)
        for start in range(0, len(source), BATCH):
            part = source.iloc[start : start + BATCH].astype(object)
            columns = {name: from_python([*map(_or_none, part[name])]) for name in part}
            yield columns | ({index: from_python([*part.index])} if index in ID_NAMES else {})
        return
    _require_distinct(reader.schema.names)
    yield from (_columns(batch, index) for batch in reader)


def _with_labels(batch: pa.RecordBatch, features: Mapping[str, Any]) -> Columns:
    """The columns of a data set of Hugging Face, in which labels are numbers that have names, and -1 for none."""
    columns = {**_columns(batch)}
    for name, values in columns.items():
        if names := getattr(features.get(name), "names", None):
            columns[name] = pa.array(names).take(pc.if_else(pc.less(values, 0), None, values))
    return columns


def _ids(source: Any) -> Iterator[Any] | None:
    """The index of a pandas object if it has ids, rather than numbers of rows."""
    index: Any = getattr(source, "index", None)
    is_unique = getattr(index, "is_unique", False) and type(index).__name__ != "RangeIndex"
    return iter(index) if is_unique and index.inferred_type in ("string", "integer") else None


def _columns(batch: pa.RecordBatch, index: str = "index") -> Columns:
    names = batch.schema.names
    names = names if index in names else [index if name == _INDEX else name for name in names]
    return dict(zip(names, batch.columns, strict=True))


def _require_distinct(names: Iterable[Any]) -> None:
    repeated = [str(name) for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise InputError(f"the table has several columns {', '.join(repeated)}; rename all but one of each")


def _or_none(value: Any) -> Any:
    """The value, or None for NaN and NA, as pandas has them among texts, and masked values of NumPy."""
    missing = type(value).__name__ in ("NAType", "NaTType", "MaskedConstant") or (
        isinstance(value, float) and math.isnan(value)
    )
    return None if missing else value


def _of_rows(rows: list[Any]) -> Columns:
    """The columns of texts, lists of tokens, or mappings."""
    rows = [*map(_or_none, rows)]
    given = [row for row in rows if row is not None]
    if all(isinstance(row, str) for row in given):
        return {"text": from_python(rows)}
    if all(isinstance(row, list | tuple) and all(isinstance(word, str) for word in row) for row in given):
        return {"text": from_python([None if row is None else [*row] for row in rows])}
    if not all(isinstance(row, Mapping) for row in rows):
        kinds = ", ".join(sorted({type(row).__name__ for row in rows}))
        raise InputError(
            f"the source has rows of type {kinds}; give texts, lists of tokens, or mappings with a text only (counts "
            "of words go to corpus_from_matrix or corpus_from_gensim)"
        )
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: from_python([_or_none(row.get(name)) for row in rows]) for name in names}
