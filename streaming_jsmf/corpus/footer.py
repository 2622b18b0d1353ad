"""Open shards as Parquet files, check their footers, and compare their hashes."""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streaming_jsmf.errors import InputError, StoreError, first_line, pass_on_machine
from streaming_jsmf.storage.local import require_regular
from streaming_jsmf.storage.paths import is_url, open_file, sha256_of, state_of

#: What to do about a damaged or missing shard.
RESTORE = "restore it or build the corpus again"

_ROW_CHECK = "reading it row by row (ingest) finds the row"


@dataclass(frozen=True)
class RowGroup:
    """Number of rows and (document, word) pairs of a row group; an empty document counts as one pair."""

    rows: int
    nonzeros: int


@dataclass(frozen=True)
class Footer:
    """Number of rows and (document, word) pairs of a file, in total and by row group.

    ``nonzeros`` is exact if the writer stored null counts (as Arrow, Spark and DuckDB do). Otherwise it is an upper
    bound, because each empty list counts as one.
    """

    rows: int
    nonzeros: int
    row_groups: tuple[RowGroup, ...]


@contextmanager
def open_parquet(path: str, name: str, advice: str = RESTORE) -> Iterator[Any]:
    """Open a ``pyarrow.parquet.ParquetFile`` with verified page checksums; messages have ``name`` and ``advice``.

    Raises ``StoreError`` if the file is missing, damaged or not Parquet, also while the caller reads.
    """
    try:
        if is_url(path):
            with open_file(path) as stream:
                yield pq.ParquetFile(stream, page_checksum_verification=True)
        else:
            regular = require_regular(Path(path), StoreError)
            with pq.ParquetFile(regular, page_checksum_verification=True) as file:
                yield file
    except FileNotFoundError as error:
        raise StoreError(f"{name} is missing; {advice}") from error
    except (OSError, pa.ArrowException) as error:
        pass_on_machine(error)
        raise StoreError(
            f"{name} cannot be read as Parquet ({first_line(error)}); it is truncated or damaged: {advice}"
        ) from error


def read_footer(path: str, n_words: int) -> Footer:
    """Read and check the footer of the shard at ``path``; ``StoreError`` if the file cannot be read.

    Raises ``InputError`` if the columns ``ids`` or ``counts`` are missing or have the wrong type, or the statistics
    show ids outside ``0..n_words-1`` or counts that are not positive and finite.
    """
    with open_parquet(path, path) as file:
        schema, metadata = file.schema_arrow, file.metadata
    check_columns(schema, path)
    leaves = leaf_columns(metadata)
    nonzeros, row_groups = 0, []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        ids, counts = (group.column(leaves[name]) for name in ("ids", "counts"))
        _check_statistics(ids.statistics, counts.statistics, n_words, f"{path}, row group {number}")
        statistics = ids.statistics
        nulls = statistics.null_count if statistics is not None and statistics.has_null_count else 0
        nonzeros += int(ids.num_values) - int(nulls)
        row_groups.append(RowGroup(int(group.num_rows), int(ids.num_values)))
    return Footer(int(metadata.num_rows), nonzeros, tuple(row_groups))


def check_columns(schema: Any, name: str) -> None:
    """Raise ``InputError`` unless ``ids`` is a list of integers and ``counts`` a list of integers or floats."""
    integer, floating = pa.types.is_integer, pa.types.is_floating
    wanted = {"ids": ((integer,), "integers"), "counts": ((integer, floating), "integers or floats")}
    for column, (accepted, described) in wanted.items():
        if column not in schema.names:
            raise InputError(
                f"{name} has no column {column!r} (it has {', '.join(schema.names)}); "
                "a corpus needs the list columns ids and counts"
            )
        kind = schema.field(column).type
        if not (is_list(kind) and any(accepts(kind.value_type) for accepts in accepted)):
            raise InputError(f"{name}: column {column!r} is {kind}; it must be a list of {described}")


def is_string(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def leaf_columns(metadata: Any) -> dict[str, int]:
    """Index of the leaf below each column (the names of leaves depend on the writer)."""
    schema = metadata.schema
    return {schema.column(i).path.split(".")[0]: i for i in range(metadata.num_columns)}


def _check_statistics(ids: Any, counts: Any, n_words: int, where: str) -> None:
    for value in () if ids is None or not ids.has_min_max else (ids.min, ids.max):
        if not 0 <= value < n_words:
            raise InputError(
                f"{where}: word id {value} is outside 0..{n_words - 1}, the ids of the vocabulary; "
                f"give the vocabulary of this corpus ({_ROW_CHECK})"
            )
    for value in () if counts is None or not counts.has_min_max else (counts.min, counts.max):
        if not (value > 0 and math.isfinite(value)):
            raise InputError(
                f"{where}: a count is {value}; counts must be positive and finite, "
                f"leave the word out of the document instead ({_ROW_CHECK})"
            )


#: State of each hashed file before it was read, and its hash.
_hashes: dict[str, tuple[tuple[int | str | None, ...], str]] = {}
_locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


def hash_of_shard(path: str, compute: Callable[[str], str] = sha256_of) -> str:
    """Hex SHA-256 of a file, cached in this process until ``state_of`` the file changes; ``compute`` reads the file."""
    with _locks[path]:
        state = state_of(path)
        if state is None:
            return compute(path)
        if path not in _hashes or _hashes[path][0] != state:
            _hashes[path] = (state, compute(path))
        return _hashes[path][1]


def require_hash(path: str, found: str, expected: str, advice: str = RESTORE) -> None:
    """Raise ``StoreError`` if the hash of a file differs; page checksums do not detect a rewritten file."""
    if found != expected:
        raise StoreError(f"{path} has sha256 {found[:12]}..., expected {expected[:12]}...; {advice}")
