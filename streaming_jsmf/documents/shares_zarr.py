"""Topic shares as a Zarr group: ``topic_shares`` (document x topic, theta), ids and metadata as its coordinates."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_jsmf.documents.shares import (
    DOCUMENT_ID,
    SHARES,
    TOPICS,
    About,
    ParquetShares,
    lists_of,
    not_shares,
    share_columns,
)
from streaming_jsmf.errors import StoreError
from streaming_jsmf.storage.arrays import (
    CHUNK_BYTES,
    ArrayDigest,
    create_group,
    read_attributes,
    read_panels,
    write_array,
    write_panels,
)
from streaming_jsmf.storage.paths import node_exists

logger = logging.getLogger(__name__)

DOCUMENT, TOPIC, RANK = "document", "topic", "rank"

#: Names that are taken besides those of every form.
RESERVED = (TOPIC,)

_REMEDY = "run transform again"

_MEANINGS = {
    SHARES: {"long_name": "share of each topic in a document", "symbol": "theta"},
    TOPICS: {"long_name": "topics with the largest shares in a document, the largest first"},
    TOPIC: {"long_name": "topic number"},
}


def write_zarr(path: Path, shares: ParquetShares, about: About) -> None:
    """Write shares that lie in Parquet files as a Zarr group at ``path``, its root last.

    One pass over each column. All arrays of documents have chunks of the same rows. Columns that are neither numbers,
    truth values, strings nor times are left out, with a warning.
    """
    assert about.totals is not None, "all parts are done"
    documents = about.totals.documents
    # At least one row, and no more than there are: Zarr has no chunks without.
    rows = max(1, min(CHUNK_BYTES // (4 * about.width), documents))
    digests = _write_columns(path, shares, documents, rows)
    columns = list(digests)
    second = TOPIC if about.top is None else RANK
    for name in share_columns(about):
        digests[name] = write_panels(
            path,
            name,
            (_matrix(table.column(name), about.width) for table in shares.tables([name])),
            (documents, about.width),
            np.dtype(np.float32 if name == SHARES else np.int32),
            (DOCUMENT, second),
            _MEANINGS[name],
            rows=rows,
        )
    if about.top is None:
        numbers = np.arange(about.n_topics)
        digests[TOPIC] = write_array(path, TOPIC, numbers, (TOPIC,), _MEANINGS[TOPIC], compress=True)
    # xarray takes what ``coordinates`` names as such; a name with a space it could not tell from two.
    coordinates = " ".join(name for name in columns if " " not in name)
    kept = {name: made.fields() for name, made in digests.items()}
    create_group(path, {**about.fields(), "columns": columns, "digests": kept, "coordinates": coordinates})


def _write_columns(path: Path, shares: ParquetShares, documents: int, rows: int) -> dict[str, ArrayDigest]:
    """Ids and metadata, a pass over each; the digests of those that can be kept."""
    digests = {}
    for name in shares.columns:
        dtype = _dtype_of(shares, name)
        if dtype is None:
            kind = shares.schema.field(name).type
            logger.warning("%s: column %r is %s and is left out of Zarr", path, name, kind)
            continue
        panels = (_plain(table.column(name), dtype) for table in shares.tables([name]))
        digests[name] = write_panels(path, name, panels, (documents,), dtype, (DOCUMENT,), rows=rows)
    return digests


def _matrix(column: Any, width: int) -> NDArray[Any]:
    lists = column.combine_chunks()
    return np.asarray(lists.flatten()).reshape(len(lists), width)


@dataclass(frozen=True)
class ZarrShares:
    """Topic shares in a Zarr group."""

    path: Path
    about: About
    columns: tuple[str, ...]
    digests: Mapping[str, ArrayDigest]

    def __fspath__(self) -> str:
        """Where they are: open ones can stand where their path can."""
        return str(self.path)

    def tables(self, columns: Sequence[str]) -> Iterator[Any]:
        """Arrow tables of some columns, a chunk of rows each; ``StoreError`` for damage."""
        panels = [read_panels(self.path, name, self.digests[name], hint=_REMEDY) for name in columns]
        for parts in zip(*panels, strict=True):
            arrays = [lists_of(values) if values.ndim == 2 else pa.array(values) for _, values in parts]
            yield pa.table(dict(zip(columns, arrays, strict=True)))


def open_zarr_shares(path: Path) -> ZarrShares:
    """Open a Zarr group of shares.

    Raises
    ------
    InputError
        If it is something else.
    StoreError
        If its metadata are damaged.
    """
    if not node_exists(path):
        raise not_shares(path)
    attributes = read_attributes(path)
    about = About.from_fields(attributes, path)
    try:
        digests = {name: ArrayDigest.from_fields(fields) for name, fields in attributes["digests"].items()}
        return ZarrShares(path, about, tuple(attributes["columns"]), digests)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(f"{path}/zarr.json: metadata are damaged ({error}); {_REMEDY}") from error


def _dtype_of(shares: ParquetShares, name: str) -> np.dtype[Any] | None:
    """How a column is kept: text, numbers, numbers with NaN where there are nulls, or None: not at all."""
    kind = shares.schema.field(name).type
    if name == DOCUMENT_ID and pa.types.is_integer(kind):
        return np.dtype(np.int64)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        nulls = any(table.column(name).null_count for table in shares.tables([name]))
        return np.dtype(np.float64) if nulls else np.dtype(kind.to_pandas_dtype())
    if pa.types.is_floating(kind):
        return np.dtype(np.float32 if kind == pa.float32() else np.float64)
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind)
    return np.dtype(object) if text or pa.types.is_temporal(kind) else None


def _plain(column: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The values of an Arrow column; a null is NaN, or no text."""
    if dtype.kind == "O":
        text = pc.fill_null(column.cast(pa.string()), "")
        return np.array(text.to_pylist(), dtype=object)
    if dtype.kind == "f":
        return np.asarray(column.cast(pa.float64()).combine_chunks().to_numpy(zero_copy_only=False), dtype)
    return np.asarray(column.combine_chunks().to_numpy(zero_copy_only=False), dtype)
