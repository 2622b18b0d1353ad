"""Shards as Parquet files, and what their footers tell: sizes, and records that cannot be right. No data is read."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streaming_jsmf.errors import InputError, StoreError, first_line, pass_on_machine
from streaming_jsmf.storage.paths import is_url, open_file

_ROW_CHECK = "reading it row by row (ingest) finds the row"


@dataclass(frozen=True)
class RowGroup:
    """Rows of a row group and its (document, word) pairs, an empty document counted as one."""

    rows: int
    nonzeros: int


@dataclass(frozen=True)
class Footer:
    """Rows of a file and its (document, word) pairs, as a whole and by row group.

    ``nonzeros`` is exact where the writer stored null counts (Arrow, Spark and DuckDB do): an empty list is one
    null value of its column. Without them each empty list is counted as one, which makes it an upper bound.
    """

    rows: int
    nonzeros: int
    row_groups: tuple[RowGroup, ...]


@contextmanager
def open_parquet(path: str, name: str) -> Iterator[Any]:
    """A ``pyarrow.parquet.ParquetFile``, page checksums verified; ``name`` is what messages call the file.

    Raises
    ------
    StoreError
        For a file that is missing, truncated, damaged or no Parquet, also when the damage shows only while
        the caller reads.
    """
    try:
        if is_url(path):
            with open_file(path) as stream:
                yield pq.ParquetFile(stream, page_checksum_verification=True)
        else:
            with pq.ParquetFile(path, page_checksum_verification=True) as file:
                yield file
    except FileNotFoundError as error:
        raise StoreError(f"{name} is missing; restore it or build the corpus again ({path})") from error
    except (OSError, pa.ArrowException) as error:
        pass_on_machine(error)
        raise StoreError(
            f"{name} cannot be read as Parquet ({first_line(error)}); it is truncated or damaged: "
            "restore it or build the corpus again"
        ) from error


def read_footer(path: str, name: str, n_words: int) -> Footer:
    """Read and check the footer of the shard ``name`` at ``path``.

    Raises
    ------
    InputError
        For missing or mistyped columns ``ids`` and ``counts``, and for ids outside ``0..n_words-1`` or counts
        that are not positive and finite where the statistics show it.
    StoreError
        For an unreadable file.
    """
    with open_parquet(path, name) as file:
        schema, metadata = file.schema_arrow, file.metadata
    check_columns(schema, name)
    leaves = leaf_columns(metadata)
    nonzeros, row_groups = 0, []
    for g in range(metadata.num_row_groups):
        group = metadata.row_group(g)
        ids = group.column(leaves["ids"])
        _check_ids(ids.statistics, n_words, f"{name}, row group {g}")
        _check_counts(group.column(leaves["counts"]).statistics, f"{name}, row group {g}")
        nonzeros += _values(ids)
        row_groups.append(RowGroup(int(group.num_rows), int(ids.num_values)))
    return Footer(int(metadata.num_rows), nonzeros, tuple(row_groups))


def check_columns(schema: Any, name: str) -> None:
    """Check that ``ids`` is a list of integers and ``counts`` a list of integers or floats.

    Raises
    ------
    InputError
        If one of the columns is missing or of another type.
    """
    wanted = {"ids": (_is_integer, "integers"), "counts": (_is_number, "integers or floats")}
    for column, (accepts, what) in wanted.items():
        if column not in schema.names:
            raise InputError(
                f"{name} has no column {column!r} (it has {', '.join(schema.names)}); "
                "a corpus needs the list columns ids and counts"
            )
        kind = schema.field(column).type
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        if not (is_list and accepts(kind.value_type)):
            raise InputError(f"{name}: column {column!r} is {kind}; it must be a list of {what}")


def _is_integer(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind))


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def leaf_columns(metadata: Any) -> dict[str, int]:
    """Index of the leaf column under ``ids`` and ``counts`` (the names below depend on the writer)."""
    schema = metadata.schema
    return {schema.column(i).path.split(".")[0]: i for i in range(metadata.num_columns)}


def _values(column: Any) -> int:
    statistics = column.statistics
    nulls = statistics.null_count if statistics is not None and statistics.has_null_count else 0
    return int(column.num_values) - int(nulls)


def _check_ids(statistics: Any, n_words: int, where: str) -> None:
    if statistics is None or not statistics.has_min_max:
        return
    for value in (statistics.min, statistics.max):
        if not 0 <= value < n_words:
            raise InputError(
                f"{where}: word id {value} is outside 0..{n_words - 1}, the ids of the vocabulary; "
                f"give the vocabulary of this corpus ({_ROW_CHECK})"
            )


def _check_counts(statistics: Any, where: str) -> None:
    if statistics is None or not statistics.has_min_max:
        return
    for value in (statistics.min, statistics.max):
        if not (value > 0 and math.isfinite(value)):
            raise InputError(
                f"{where}: a count is {value}; counts must be positive and finite, "
                f"leave the word out of the document instead ({_ROW_CHECK})"
            )
