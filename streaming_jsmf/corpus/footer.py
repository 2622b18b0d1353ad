"""Open shards as Parquet files, check their footers, and compare their hashes."""

from __future__ import annotations

import hashlib
import math
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from upath import UPath

from streaming_jsmf.errors import InputError, StoreError, first_line, pass_on_machine
from streaming_jsmf.storage.local import require_regular
from streaming_jsmf.storage.objects import State, state_in
from streaming_jsmf.storage.paths import AnyPath, file_size, is_chain, is_url, open_file, sha256_of, state_of

#: What to do about a damaged or missing shard.
RESTORE = "restore it or build the corpus again"

_ROW_CHECK = "reading it row by row (ingest) finds the row"


@dataclass(frozen=True)
class RowGroup:
    """Number of rows and (document, word) pairs of a row group; an empty document counts as one pair."""

    rows: int
    nonzeros: int


@dataclass(frozen=True)
class Shard:
    """One Parquet file of documents.

    Attributes
    ----------
    name : POSIX path relative to the corpus, such as "documents/part-00000.parquet".
    nonzeros : Number of (document, word) pairs. In a corpus used in place, it is exact if the writer stored null counts
        (as Arrow, Spark and DuckDB do), and otherwise an upper bound, because each empty list counts as one.
    bytes : File size.
    sha256 : Hex hash of the file, "" if unknown.
    state : ``state_of`` the file when the corpus was opened.
    """

    name: str
    rows: int
    nonzeros: int
    bytes: int
    sha256: str
    row_groups: tuple[RowGroup, ...] = field(repr=False)
    state: State = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class ShardFile:
    """An open shard: a local path or a stream, its size, and what ``state_of`` tells about it."""

    source: Any
    size: int
    state: State

    @contextmanager
    def parquet(self) -> Iterator[Any]:
        """The file as a ``pyarrow.parquet.ParquetFile`` with verified page checksums."""
        # Of a stream, the columns of a row group are read together, which takes one or two requests.
        ahead = not isinstance(self.source, Path)
        with pq.ParquetFile(self.source, page_checksum_verification=True, pre_buffer=ahead) as file:
            yield file


@contextmanager
def open_shard(path: AnyPath | UPath, advice: str = RESTORE, **options: Any) -> Iterator[ShardFile]:
    """Open a file behind a URL with ``options`` of fsspec, or a local one; errors as ``reading``."""
    with reading(str(path), advice):
        if is_url(path):
            with open_file(path, **options) as stream:
                size, details = getattr(stream, "size", None), getattr(stream, "details", None)
                state = state_of(path) if details is None or is_chain(path) else state_in(details)
                yield ShardFile(stream, file_size(path) if size is None else size, state)
        else:
            regular = require_regular(Path(str(path)), StoreError)
            yield ShardFile(regular, regular.stat().st_size, state_of(regular))


@contextmanager
def open_parquet(
    path: AnyPath | UPath, advice: str = RESTORE, sha256: str | None = None, known: State = None
) -> Iterator[Any]:
    """Open a ``pyarrow.parquet.ParquetFile`` with verified page checksums; errors as ``reading``.

    A file of another ``sha256`` is refused; in the state ``known`` it has been compared before (``ShardCheck``).
    """
    # Reading ahead would move 50 MB for a row group of kilobytes.
    with open_shard(path, advice, cache_type="none") as shard:
        if sha256 is not None and (known is None or known != shard.state):
            require_hash(path, hash_of_shard(path, state=shard.state), sha256)
        with shard.parquet() as file:
            yield file


@contextmanager
def reading(name: str, advice: str = RESTORE) -> Iterator[None]:
    """Raise ``StoreError`` with ``name`` and ``advice`` if a file is missing, damaged or not Parquet."""
    try:
        yield
    except FileNotFoundError as error:
        raise StoreError(f"{name} is missing; {advice}") from error
    except (OSError, pa.ArrowException) as error:
        pass_on_machine(error)
        raise StoreError(
            f"{name} cannot be read as Parquet ({first_line(error)}); it is truncated or damaged: {advice}"
        ) from error


def read_footer(path: str, n_words: int, expected: int | None = None, *, hashing: bool = False) -> Shard:
    """Read and check the footer of a file, and with ``hashing`` all of it for its hash; the shard is named by its path.

    Raises ``StoreError`` if the file cannot be read or its size is not ``expected``, and ``InputError`` if the columns
    ``ids`` or ``counts`` are missing or have the wrong type, or the statistics show ids outside ``0..n_words-1`` or
    counts that are not positive and finite.
    """
    options = {} if hashing else {"cache_type": "none"}
    with open_shard(path, **options) as shard:
        if expected is not None:
            require_size(path, shard.size, expected)
        sha256 = hash_of_shard(path, partial(_hash_of_source, shard.source), shard.state) if hashing else ""
        with shard.parquet() as file:
            schema, metadata = file.schema_arrow, file.metadata
    check_columns(schema, path)
    leaves = leaf_columns(metadata)
    nonzeros, row_groups = 0, []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        ids, counts = (_leaf(metadata, number, leaves[name], path) for name in ("ids", "counts"))
        _check_statistics(ids.statistics, counts.statistics, n_words, f"{path}, row group {number}")
        statistics = ids.statistics
        nulls = statistics.null_count if statistics is not None and statistics.has_null_count else 0
        nonzeros += int(ids.num_values) - int(nulls)
        row_groups.append(RowGroup(int(group.num_rows), int(ids.num_values)))
    rows = int(metadata.num_rows)
    if rows != sum(group.rows for group in row_groups) or any(group.rows < 0 for group in row_groups):
        raise StoreError(
            f"{path}: its footer is damaged (the rows of its row groups differ from its own); {RESTORE}"
        )
    return Shard(path, rows, nonzeros, shard.size, sha256, tuple(row_groups), shard.state)


def _hash_of_source(source: Any, path: str) -> str:
    """The hash of an open file. The end of a stream, with the footer, is then in its cache."""
    if isinstance(source, Path):
        return sha256_of(path)
    return hashlib.file_digest(source, "sha256").hexdigest()


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


def _leaf(metadata: Any, row_group: int, index: int, path: str) -> Any:
    """Metadata of a column in a row group; the statistics of one with another type would end the process."""
    leaf = metadata.row_group(row_group).column(index)
    if leaf.physical_type != metadata.schema.column(index).physical_type:
        raise StoreError(f"{path}: its footer is damaged (a column has two types); {RESTORE}")
    return leaf


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
_hashes: dict[AnyPath | UPath, tuple[State, str]] = {}
_locks: defaultdict[AnyPath | UPath, threading.Lock] = defaultdict(threading.Lock)


def hash_of_shard(
    path: AnyPath | UPath, compute: Callable[[Any], str] = sha256_of, state: State = None
) -> str:
    """Hex SHA-256 of a file, cached in this process until ``state_of`` the file changes; ``compute`` reads the file."""
    with _locks[path]:
        state = state or state_of(path)
        if state is None:
            return compute(path)
        if path not in _hashes or _hashes[path][0] != state:
            _hashes[path] = (state, compute(path))
        return _hashes[path][1]


@dataclass(frozen=True)
class ShardCheck:
    """The comparison of a shard with its hash, which holds for all processes while the shard is in this ``state``."""

    path: str
    sha256: str
    state: State

    def __call__(self) -> None:
        """Read the shard once, unless this process has; raise ``StoreError`` if it differs."""
        with open_shard(self.path) as shard:
            compute = partial(_hash_of_source, shard.source)
            require_hash(self.path, hash_of_shard(self.path, compute, shard.state), self.sha256)

    def is_known(self) -> bool:
        """Whether this process knows that the shard has this hash."""
        return _hashes.get(self.path) == (self.state, self.sha256)

    def passed(self) -> None:
        """Note that another process has compared it."""
        _hashes[self.path] = (self.state, self.sha256)


def require_size(path: str, found: int, expected: int) -> None:
    """Raise ``StoreError`` if the size of a file differs from that in the manifest."""
    if found != expected:
        raise StoreError(f"{path} has {found} bytes, its manifest says {expected}; {RESTORE}")


def require_hash(path: AnyPath | UPath, found: str, expected: str, advice: str = RESTORE) -> None:
    """Raise ``StoreError`` if the hash of a file differs; page checksums do not detect a rewritten file."""
    if found != expected:
        # The bytes may have been damaged on their way, so the next reader asks for them again.
        _hashes.pop(path, None)
        raise StoreError(f"{path} has sha256 {found[:12]}..., expected {expected[:12]}...; {advice}")
