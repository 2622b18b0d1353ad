"""Files of topic shares: a Parquet file, a directory of Parquet parts with ``_shares.json``, or a Zarr group.

``About`` is stored in the footer of the file, ``_shares.json``, or the attributes of the group, with hashes of files or
digests of arrays. The group has the array ``topic_shares`` (document, topic), with ids and metadata as coordinates.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from io import BufferedIOBase
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from streaming_jsmf.corpus.footer import hash_of_shard, open_parquet, require_hash
from streaming_jsmf.documents.shares import (
    AGAIN,
    DAMAGED,
    DOCUMENT_ID,
    FORMAT_VERSION,
    KIND,
    SHARES,
    TOPICS,
    About,
    SharesFile,
    in_sizes,
    is_csv,
    is_text,
    not_read,
    to_lists,
)
from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.ingestion.sources.values import storable
from streaming_jsmf.storage import kinds
from streaming_jsmf.storage.arrays import (
    CHUNK_BYTES,
    ArrayDigest,
    create_group,
    read_array,
    read_attributes,
    read_panels,
    write_array,
    write_panels,
)
from streaming_jsmf.storage.objects import in_threads
from streaming_jsmf.storage.paths import (
    ROOT,
    StorePath,
    exists,
    inside,
    is_file,
    node_exists,
    open_file,
    read_bytes,
    write_json,
)
from streaming_jsmf.validation import stays_inside

logger = logging.getLogger(__name__)

#: Keys in the metadata of a Parquet file: ``About``, and the sha256 of the file with zeros in its place.
METADATA_KEY, HASH_KEY = b"streaming_jsmf", b"streaming_jsmf.sha256"

_ZEROS = b"0" * 64
#: ``About`` of a directory; Parquet readers ignore names that begin with an underscore.
ABOUT_NAME = "_shares.json"

#: Dimensions of a Zarr group.
DOCUMENT, TOPIC, RANK = "document", "topic", "rank"
#: Length in bytes of the name of a file with room for that of a temporary one.
_LONGEST_NAME = 200

_MEANINGS = {
    SHARES: {"long_name": "share of each topic in a document", "symbol": "theta"},
    TOPICS: {"long_name": "topics with the largest shares in a document, the largest first"},
    TOPIC: {"long_name": "topic number"},
}


def open_shares(path: StorePath) -> SharesFile:
    """Open the output of ``transform`` without reading shares.

    Raises ``InputError`` if something else is there or it has another format version, ``StoreError`` if a file is
    missing or damaged.
    """
    fields = _stored(path)
    about = About.from_fields(fields, path)
    try:
        return (_open_zarr if "digests" in fields else _open_parquet)(path, about, fields)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise StoreError(f"{path}: its metadata are damaged ({error}); {AGAIN}") from error


def stored_about(path: StorePath) -> About | None:
    """Return the metadata of topic shares without opening their parts; None if they have another format version.

    Raises ``InputError`` if something else is there, ``StoreError`` if the metadata are damaged.
    """
    fields = _stored(path)
    return About.from_fields(fields, path) if fields.get("format_version") == FORMAT_VERSION else None


def is_shares(path: StorePath) -> bool:
    """Whether a path has topic shares, of any version, that are not CSV."""
    try:
        _stored(path)
    except InputError:
        return False
    return True


def _stored(path: StorePath) -> Mapping[str, Any]:
    """Return the metadata of topic shares, which are not verified."""
    if is_csv(path) and exists(path):
        raise not_read(path)
    try:
        # Asked first, because a server may answer any name below a file.
        if is_file(path):
            fields: Any = json.loads(_text_of(path))
        elif node_exists(path):
            fields = read_attributes(path, hint=AGAIN)
        else:
            fields = json.loads(read_bytes(path / ABOUT_NAME))
    except FileNotFoundError as error:
        raise kinds.unsuitable(path, kinds.SHARES) from error
    except ValueError as error:
        raise StoreError(f"{path}: its metadata are damaged ({error}); {AGAIN}") from error
    if not isinstance(fields, Mapping) or fields.get("kind") != KIND:
        raise kinds.unsuitable(path, kinds.SHARES)
    return fields


def _text_of(path: StorePath) -> bytes:
    """Return the metadata in a Parquet file."""
    with open_file(path) as stream:
        if stream.read(4) != b"PAR1":
            raise kinds.unsuitable(path, kinds.SHARES)
    with _opened(path) as file:
        metadata = file.metadata.metadata or {}
    if METADATA_KEY not in metadata:
        raise kinds.unsuitable(path, kinds.SHARES)
    return bytes(metadata[METADATA_KEY])


def _open_parquet(path: StorePath, about: About, fields: Mapping[str, Any]) -> SharesFile:
    """Open a file, or a directory whose metadata have the rows and sha256 of its parts."""
    columns = tuple(fields["columns"])
    parts = {inside(path, name): part for name, part in fields.get("parts", {}).items()}
    parts = parts or {path: {"documents": fields["totals"]["documents"]}}
    hashes = {}
    for (file, part), (rows, names, own) in zip(parts.items(), in_threads(_footer, [*parts]), strict=True):
        if rows != part["documents"]:
            raise StoreError(f"{file} has {rows} documents, not {part['documents']}; {DAMAGED}")
        if names != [*columns, *about.columns]:
            raise StoreError(f"{file} has other columns than transform wrote; {DAMAGED}")
        hashes[file] = part.get("sha256", own)
    return SharesFile(path, about, columns, partial(_row_groups, hashes, set()))


def _footer(path: StorePath) -> tuple[int, list[str], str]:
    """The rows and columns of a file, and its own sha256 if it has that."""
    with _opened(path) as file:
        own = (file.metadata.metadata or {}).get(HASH_KEY, b"").decode()
        return file.metadata.num_rows, file.schema_arrow.names, own


def unfinished_shares(path: StorePath, about: About, schema: Any, files: Sequence[StorePath]) -> SharesFile:
    """Return the shares in Parquet files with this schema that were just written."""
    names = Counter(schema.names)
    if repeated := next((name for name in names if names[name] > 1), None):
        raise InputError(f"{path}: two columns are called {repeated!r}; rename one of them")
    columns = tuple(name for name in names if name not in (TOPICS, SHARES))
    return SharesFile(path, about, columns, partial(_row_groups, dict.fromkeys(files), set()))


def _row_groups(
    hashes: Mapping[StorePath, str | None], noted: set[str], columns: Sequence[str]
) -> Iterator[Any]:
    """Yield the row groups of files, each compared with its hash first unless that is None."""
    lost: Counter[str] = Counter()
    for path, sha256 in hashes.items():
        with _opened(path) as file:
            if sha256 is not None:
                require_hash(path, hash_of_shard(path, partial(_hash_of, sha256)), sha256, AGAIN)
            for number in range(file.num_row_groups):
                table = file.read_row_group(number, columns=list(columns), use_threads=False)
                # Answers made of these rows are not shares.
                yield _with_shown_dates(table.replace_schema_metadata(None), lost)
    for name in lost.keys() - noted:
        logger.warning(
            "%s: dates before year 1 or after 9999, which are left out: %s", name, f"{lost[name]:,}"
        )
        noted.add(name)


def _with_shown_dates(table: Any, lost: Counter[str]) -> Any:
    """Replace dates that Python cannot show by null, and count them."""
    for place, field in enumerate(table.schema):
        if pa.types.is_date(field.type) or pa.types.is_timestamp(field.type):
            column = table.column(place)
            shown = storable(field.name, column.combine_chunks())[0].cast(field.type)
            if missing := shown.null_count - column.null_count:
                lost[field.name] += missing
                table = table.set_column(place, field, shown)
    return table


def _opened(path: StorePath) -> AbstractContextManager[Any]:
    return open_parquet(path, AGAIN)


def _hash_of(own: str, path: StorePath) -> str:
    """Return the sha256 of a Parquet file whose footer has zeros in place of the hash ``own``, if it has that."""
    total = hashlib.sha256()
    with open_file(path) as stream:
        left = _footer_start(stream)
        while piece := stream.read(min(left, 2**20)):
            total.update(piece)
            left -= len(piece)
        total.update(stream.read().replace(own.encode(), _ZEROS))
    return total.hexdigest()


def _footer_start(stream: BufferedIOBase) -> int:
    """Return the place of the footer of a Parquet file, and go to the start of the file."""
    end = stream.seek(-8, os.SEEK_END)
    length = int.from_bytes(stream.read(4), "little")
    stream.seek(0)
    return max(0, end - length)


def write_parquet(path: Path, shares: SharesFile, schema: Any) -> None:
    """Write shares as a Parquet file with its own sha256. One pass."""
    text = json.dumps(shares.about.fields(columns=shares.columns), sort_keys=True, ensure_ascii=False)
    whole = schema.with_metadata({METADATA_KEY: text.encode(), HASH_KEY: _ZEROS})
    write_row_groups(path, whole, shares.tables(whole.names), shares.about.row_group_rows)
    own = _hash_of(_ZEROS.decode(), path).encode()
    with path.open("r+b") as stream:
        start = _footer_start(stream)
        stream.seek(start)
        footer = stream.read()
        stream.seek(start + footer.index(_ZEROS, footer.rindex(HASH_KEY)))
        stream.write(own)


def write_directory(
    path: StorePath, shares: SharesFile, names: Sequence[str], rows: Sequence[int], hashes: Sequence[str]
) -> None:
    """Write the metadata of a directory of Parquet files, with the name, documents and sha256 of each."""
    parts = {
        name: {"documents": documents, "sha256": sha256}
        for name, documents, sha256 in zip(names, rows, hashes, strict=True)
    }
    write_json(path / ABOUT_NAME, shares.about.fields(columns=shares.columns, parts=parts))


def shares_schema(about: About, id_type: Any, metadata: Sequence[Any]) -> Any:
    """Return the Arrow schema of a Parquet file with these metadata fields."""
    numbers = [pa.field(SHARES, pa.list_(pa.float32()))]
    if about.top is not None:
        numbers.insert(0, pa.field(TOPICS, pa.list_(pa.int32())))
    return pa.schema(
        [pa.field(DOCUMENT_ID, id_type), *(field.with_metadata(None) for field in metadata), *numbers]
    )


def write_row_groups(path: Path, schema: Any, tables: Iterator[Any], rows: int) -> None:
    """Write tables of any length as a Parquet file with equal row groups; the same rows give the same bytes."""
    # What a killed run left here, perhaps changed into a link or a FIFO, is not written to.
    path.unlink(missing_ok=True)
    lists = {name for name in schema.names if pa.types.is_list(schema.field(name).type)}
    with pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        use_dictionary=[name for name in schema.names if name not in {*lists, DOCUMENT_ID}],
        column_encoding={f"{SHARES}.list.element": "BYTE_STREAM_SPLIT"},
        write_page_checksum=True,
    ) as file:
        for table in in_sizes((table.cast(schema) for table in tables), repeat(rows)):
            file.write_table(table.combine_chunks(), row_group_size=table.num_rows)


def _open_zarr(path: StorePath, about: About, fields: Mapping[str, Any]) -> SharesFile:
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
