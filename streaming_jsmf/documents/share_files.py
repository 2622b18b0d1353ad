"""Files of topic shares: a Parquet file, a directory of Parquet parts with ``_shares.json``, a Zarr group, or CSV.

A Zarr group has ``topic_shares`` (document, topic), with ids and metadata as coordinates. ``About`` is stored in the
Parquet schema, ``_shares.json``, or the attributes of the group. A CSV file has a column per topic; it is for other
programs and is not read again.
"""

from __future__ import annotations

import csv
import json
import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from streaming_jsmf.corpus.records import free_name
from streaming_jsmf.display import escaped_cell
from streaming_jsmf.documents.shares import (
    DAMAGED,
    DOCUMENT_ID,
    SHARES,
    TOPICS,
    About,
    SharesFile,
    is_text,
    not_shares,
    to_lists,
)
from streaming_jsmf.errors import InputError, StoreError, first_line, pass_on_machine
from streaming_jsmf.storage.arrays import (
    CHUNK_BYTES,
    ArrayDigest,
    create_group,
    read_attributes,
    read_panels,
    write_array,
    write_panels,
)
from streaming_jsmf.storage.paths import ROOT, inside, node_exists
from streaming_jsmf.validation import stays_inside

logger = logging.getLogger(__name__)

#: Key of ``About`` in the metadata of a Parquet schema.
METADATA_KEY = b"streaming_jsmf"

#: ``About`` of a directory; Parquet readers ignore names that begin with an underscore.
ABOUT_NAME = "_shares.json"

#: Dimensions of a Zarr group.
DOCUMENT, TOPIC, RANK = "document", "topic", "rank"

_HINT = "run transform again"
#: Length in bytes of the name of a file with room for that of a temporary one.
_LONGEST_NAME = 200

_MEANINGS = {
    SHARES: {"long_name": "share of each topic in a document", "symbol": "theta"},
    TOPICS: {"long_name": "topics with the largest shares in a document, the largest first"},
    TOPIC: {"long_name": "topic number"},
}


def open_shares(path: Path) -> SharesFile:
    """Open the output of ``transform`` without reading shares.

    Raises ``InputError`` if the path is missing or has something else, ``StoreError`` if a file is missing or damaged.
    """
    if not path.exists():
        raise InputError(f"there are no topic shares at {path}; make them with transform")
    if is_csv(path):
        raise _not_read(path)
    if node_exists(path):
        return _open_zarr(path)
    return _open_file(path) if path.is_file() else _open_directory(path)


def parquet_shares(path: Path, about: About, schema: Any, files: Sequence[Path]) -> SharesFile:
    """Return the shares in Parquet files with this schema."""
    names = Counter(schema.names)
    if repeated := next((name for name in names if names[name] > 1), None):
        raise InputError(f"{path}: two columns are called {repeated!r}; rename one of them")
    if missing := next((name for name in (DOCUMENT_ID, *about.columns) if name not in names), None):
        raise InputError(f"{path}: column {missing!r} is missing; {_HINT}")
    columns = tuple(name for name in names if name not in (TOPICS, SHARES))
    return SharesFile(path, about, columns, partial(_row_groups, files))


def _row_groups(files: Sequence[Path], columns: Sequence[str]) -> Iterator[Any]:
    for path in files:
        with _opened(path) as file:
            for number in range(file.num_row_groups):
                yield file.read_row_group(number, columns=list(columns), use_threads=False)


def is_csv(path: Path) -> bool:
    """Whether shares at ``path`` are or will be a CSV file."""
    return path.suffix.lower() == ".csv"


def _not_read(path: Path) -> InputError:
    return InputError(f"{path}: shares in CSV are for other programs; transform to .parquet, and give that")


def csv_shares(path: Path, about: About) -> SharesFile:
    """Return the shares in a CSV file, which cannot be read again."""

    def read(columns: Sequence[str]) -> Iterator[Any]:
        del columns
        raise _not_read(path)

    return SharesFile(path, about, (), read)


def require_csv(path: Path) -> None:
    """Raise ``InputError`` unless the header of a file is one of ``write_csv``."""
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        header = next(csv.reader(file), [])
    if header[:1] != [DOCUMENT_ID] or not re.match("[0-9]+(: |$)", header[-1]):
        raise not_shares(path)


def write_csv(path: Path, shares: SharesFile, schema: Any, names: Sequence[str]) -> None:
    """Write shares as CSV: id, metadata as in ``schema``, and a column for each topic with its name. One pass.

    Texts that a spreadsheet would evaluate get a leading apostrophe. Lists and other nested columns are skipped with a
    warning.
    """
    kinds = {}
    for name in shares.columns:
        kind = schema.field(name).type
        if is_text(kind):
            kinds[name] = pa.string()
        elif pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            logger.warning("%s: column %r is %s and is left out of CSV", path, name, kind)
        else:
            kinds[name] = kind
    columns = [
        *((escaped_cell(free_name(name, names)), kind) for name, kind in kinds.items()),
        *((name, pa.float32()) for name in names),
    ]
    with pa_csv.CSVWriter(path, pa.schema(columns)) as file:
        for table in shares.tables([*kinds, SHARES]):
            known = [_csv_values(table.column(name), kind) for name, kind in kinds.items()]
            values = shares.about.matrix(table, SHARES).astype(np.float32)
            file.write_table(pa.table([*known, *map(pa.array, values.T)], schema=pa.schema(columns)))


def _csv_values(column: Any, kind: Any) -> Any:
    if kind != pa.string():
        return column
    return pa.array([escaped_cell(text) for text in column.to_pylist()], kind)


def _open_file(path: Path) -> SharesFile:
    with path.open("rb") as stream:
        if stream.read(4) != b"PAR1":
            raise not_shares(path)
    with _opened(path) as file:
        schema = file.schema_arrow
    text = (schema.metadata or {}).get(METADATA_KEY)
    if text is None:
        raise not_shares(path)
    return parquet_shares(path, About.from_fields(json.loads(text), path), schema, (path,))


def _open_directory(path: Path) -> SharesFile:
    try:
        fields = json.loads((path / ABOUT_NAME).read_text(encoding="utf-8"))
        parts = dict(fields["parts"])
    except FileNotFoundError as error:
        raise not_shares(path) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path / ABOUT_NAME} cannot be read ({first_line(error)}); {DAMAGED}") from error
    about = About.from_fields(fields, path)
    files = tuple(inside(path, name) for name in parts)
    for part, rows in zip(files, parts.values(), strict=True):
        with _opened(part) as file:
            if file.metadata.num_rows != rows:
                raise StoreError(f"{part} has {file.metadata.num_rows} documents, not {rows}; {DAMAGED}")
            schema = file.schema_arrow
    return parquet_shares(path, about, schema, files)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            yield file
    except FileNotFoundError as error:
        raise StoreError(f"{path} is missing; {_HINT}") from error
    except (OSError, pa.ArrowException) as error:
        pass_on_machine(error)
        raise StoreError(f"{path} cannot be read as Parquet ({first_line(error)}); {DAMAGED}") from error


def shares_schema(about: About, id_type: Any, metadata: Sequence[Any]) -> Any:
    """Return the Arrow schema of a Parquet file with these metadata fields."""
    numbers = [pa.field(SHARES, pa.list_(pa.float32()))]
    if about.top is not None:
        numbers.insert(0, pa.field(TOPICS, pa.list_(pa.int32())))
    plain = [field.with_metadata(None) for field in metadata]
    text = json.dumps(about.fields(), sort_keys=True, ensure_ascii=False)
    return pa.schema(
        [pa.field(DOCUMENT_ID, id_type), *plain, *numbers], metadata={METADATA_KEY: text.encode()}
    )


class RowGroupWriter:
    """Writes tables of any length as a Parquet file with equal row groups; the same rows give the same bytes."""

    def __init__(self, path: Path, schema: Any, rows: int) -> None:
        self._schema, self._rows, self._held = schema, rows, 0
        self._pieces: list[Any] = []
        lists = {name for name in schema.names if pa.types.is_list(schema.field(name).type)}
        self._file = pq.ParquetWriter(
            path,
            schema,
            compression="zstd",
            use_dictionary=[name for name in schema.names if name not in {*lists, DOCUMENT_ID}],
            column_encoding={f"{SHARES}.list.element": "BYTE_STREAM_SPLIT"},
            write_page_checksum=True,
        )

    def __enter__(self) -> RowGroupWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._held:
            self._write(pa.concat_tables(self._pieces))
        self._file.close()

    def write(self, table: Any) -> None:
        """Append rows."""
        self._pieces.append(table.cast(self._schema))
        self._held += table.num_rows
        while self._held >= self._rows:
            whole = pa.concat_tables(self._pieces)
            self._write(whole.slice(0, self._rows))
            self._pieces, self._held = [whole.slice(self._rows)], self._held - self._rows

    def _write(self, table: Any) -> None:
        self._file.write_table(table.combine_chunks(), row_group_size=table.num_rows)


def _open_zarr(path: Path) -> SharesFile:
    attributes = read_attributes(path)
    about = About.from_fields(attributes, path)
    try:
        digests = {name: ArrayDigest.from_fields(fields) for name, fields in attributes["digests"].items()}
        return SharesFile(path, about, tuple(attributes["columns"]), partial(_chunks, path, digests))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(f"{path}/zarr.json: metadata are damaged ({error}); {_HINT}") from error


def _chunks(path: Path, digests: Mapping[str, ArrayDigest], columns: Sequence[str]) -> Iterator[Any]:
    panels = [read_panels(path, name, digests[name], hint=_HINT) for name in columns]
    for parts in zip(*panels, strict=True):
        arrays = [to_lists(values) if values.ndim == 2 else pa.array(values) for _, values in parts]
        yield pa.table(dict(zip(columns, arrays, strict=True)))


def write_zarr(path: Path, shares: SharesFile, about: About, schema: Any) -> None:
    """Write shares with metadata as in ``schema`` as a Zarr group, its root last. One pass per column.

    Only numbers, booleans, strings and times are stored; other columns, and those whose name is no name of a file, are
    skipped with a warning.
    """
    assert about.totals is not None, "all parts are done"
    documents = about.totals.documents
    rows = max(1, min(CHUNK_BYTES // (4 * about.width), documents))
    digests: dict[str, ArrayDigest] = {}
    for name in shares.columns:
        kind = schema.field(name).type
        dtype = _dtype_of(shares, name, kind)
        if not stays_inside(name) or "/" in name or name == ROOT or len(name.encode()) > _LONGEST_NAME:
            logger.warning(
                "%s: %r cannot be the name of an array; the column is left out of Zarr", path, name
            )
            continue
        if dtype is None:
            logger.warning("%s: column %r is %s and is left out of Zarr", path, name, kind)
            continue
        panels = (_values(table.column(name), dtype) for table in shares.tables([name]))
        digests[name] = write_panels(path, name, panels, (documents,), dtype, (DOCUMENT,), rows=rows)
    columns = list(digests)
    for name in about.columns:
        digests[name] = write_panels(
            path,
            name,
            (about.matrix(table, name) for table in shares.tables([name])),
            (documents, about.width),
            np.dtype(np.float32 if name == SHARES else np.int32),
            (DOCUMENT, TOPIC if about.top is None else RANK),
            _MEANINGS[name],
            rows=rows,
        )
    if about.top is None:
        numbers = np.arange(about.n_topics)
        digests[TOPIC] = write_array(path, TOPIC, numbers, (TOPIC,), _MEANINGS[TOPIC], compress=True)
    # The attribute ``coordinates`` separates names by spaces.
    coordinates = " ".join(name for name in columns if " " not in name)
    stored = {name: digest.fields() for name, digest in digests.items()}
    create_group(path, {**about.fields(), "columns": columns, "digests": stored, "coordinates": coordinates})


def _dtype_of(shares: SharesFile, name: str, kind: Any) -> np.dtype[Any] | None:
    """Return the Zarr type of a column, float for integers with nulls; None if it cannot be stored."""
    if name == DOCUMENT_ID and pa.types.is_integer(kind):
        return np.dtype(np.int64)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        nulls = any(table.column(name).null_count for table in shares.tables([name]))
        return np.dtype(np.float64) if nulls else np.dtype(kind.to_pandas_dtype())
    if pa.types.is_floating(kind):
        return np.dtype(np.float32 if kind == pa.float32() else np.float64)
    return np.dtype(object) if is_text(kind) or pa.types.is_temporal(kind) else None


def _values(column: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the values of an Arrow column, with nulls as NaN or empty strings."""
    if dtype.kind == "O":
        return np.array(pc.fill_null(column.cast(pa.string()), "").to_pylist(), dtype=object)
    plain = column.cast(pa.float64()) if dtype.kind == "f" else column
    return np.asarray(plain.combine_chunks().to_numpy(zero_copy_only=False), dtype)
