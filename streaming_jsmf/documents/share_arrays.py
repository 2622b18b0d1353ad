"""Topic shares as a Zarr group: ``topic_shares`` (document, topic), with ids and metadata as coordinates."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_jsmf.documents.shares import (
    AGAIN,
    DOCUMENT_ID,
    SHARES,
    TOPICS,
    About,
    SharesFile,
    is_text,
    to_lists,
)
from streaming_jsmf.storage.arrays import (
    CHUNK_BYTES,
    ArrayDigest,
    create_group,
    read_array,
    read_panels,
    write_array,
    write_panels,
)
from streaming_jsmf.storage.paths import ROOT, StorePath
from streaming_jsmf.validation import stays_inside

logger = logging.getLogger(__name__)

#: Dimensions of a Zarr group.
DOCUMENT, TOPIC, RANK = "document", "topic", "rank"
#: Length in bytes of the name of a file with room for that of a temporary one.
_LONGEST_NAME = 200

_MEANINGS = {
    SHARES: {"long_name": "share of each topic in a document", "symbol": "theta"},
    TOPICS: {"long_name": "topics with the largest shares in a document, the largest first"},
    TOPIC: {"long_name": "topic number"},
}


def open_zarr(path: StorePath, about: About, fields: Mapping[str, Any]) -> SharesFile:
    digests = {name: ArrayDigest.from_fields(stored) for name, stored in fields["digests"].items()}
    if TOPIC in digests:
        read_array(path, TOPIC, digests[TOPIC], hint=AGAIN)
    return SharesFile(path, about, tuple(fields["columns"]), partial(_chunks, path, digests, set()))


def _chunks(
    path: StorePath, digests: Mapping[str, ArrayDigest], verified: set[str], columns: Sequence[str]
) -> Iterator[Any]:
    """Yield the chunks of arrays, each of which is compared with its digest before it is used first."""
    for name in columns:
        if name not in verified:
            for _ in read_panels(path, name, digests[name], hint=AGAIN):
                pass
            verified.add(name)
    panels = [read_panels(path, name, None, hint=AGAIN) for name in columns]
    for parts in zip(*panels, strict=True):
        yield pa.table({name: _arrow(values) for name, (_, values) in zip(columns, parts, strict=True)})


def _arrow(values: Any) -> Any:
    if values.ndim == 2:
        return to_lists(values)
    # Older releases of Arrow do not know NumPy's strings of variable width.
    return pa.array(values.astype(object) if values.dtype.kind == "T" else values)


def write_zarr(path: StorePath, shares: SharesFile, schema: Any) -> None:
    """Write shares with metadata as in ``schema`` as a Zarr group, its root last. One pass per column.

    Only numbers, booleans, strings and times are stored; other columns, and those whose name is no name of a file, are
    skipped with a warning.
    """
    about = shares.about
    documents = about.all_totals.documents
    rows = max(1, min(CHUNK_BYTES // (4 * about.width), documents))
    digests: dict[str, ArrayDigest] = {}
    for name in shares.columns:
        kind = schema.field(name).type
        dtype = _dtype_of(shares, name, kind)
        if not stays_inside(name) or "/" in name or name == ROOT or len(name.encode()) > _LONGEST_NAME:
            logger.warning(
                "%s: %r cannot be the name of an array; the column is left out of Zarr", shares.path, name
            )
            continue
        if dtype is None:
            logger.warning("%s: column %r is %s and is left out of Zarr", shares.path, name, kind)
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
    create_group(path, about.fields(columns=columns, digests=stored, coordinates=coordinates))


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
