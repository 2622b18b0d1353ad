"""Topic shares on disk: what ``transform`` writes and ``queries`` reads.

A Parquet file, a directory of Parquet parts with ``_shares.json`` beside them, or a Zarr group (``shares_zarr``): in
each the documents in the order of the corpus, with ``document_id``, the metadata columns, and

- ``topic_shares: list<float32>``, all K of them; or
- ``topics: list<int32>`` and ``topic_shares``, the largest n with the largest first, where only these were kept.

What was computed, of which model and from which corpus is kept beside the columns (``About``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from streaming_jsmf.errors import InputError, StoreError, first_line, pass_on_machine
from streaming_jsmf.inference.document_topics import ShareMethod
from streaming_jsmf.storage.paths import inside

KIND, FORMAT_VERSION = "streaming_jsmf.shares", 1

DOCUMENT_ID, SHARES, TOPICS = "document_id", "topic_shares", "topics"

#: Key of ``About`` in the metadata of a Parquet schema.
METADATA_KEY = b"streaming_jsmf"

#: ``About`` of a directory; readers of Parquet pass over names with an underscore.
ABOUT_NAME = "_shares.json"

#: Numbers in a row group, and the most rows of one.
ROW_GROUP_SHARES, ROW_GROUP_ROWS = 2**20, 2**16

_DAMAGED = "it is truncated or damaged: run transform again"


@dataclass(frozen=True)
class Totals:
    """Of all documents.

    Attributes
    ----------
    documents
        M.
    tokens, unknown_tokens
        Tokens, and those of words that the model lacks.
    without_known_words
        Documents without any other: their shares are the mean of the prior.
    unconverged
        Documents whose steps ran out.
    """

    documents: int = 0
    tokens: float = 0.0
    unknown_tokens: float = 0.0
    without_known_words: int = 0
    unconverged: int = 0

    def __add__(self, other: Totals) -> Totals:
        mine, others = asdict(self), asdict(other)
        return Totals(**{name: mine[name] + others[name] for name in mine})


@dataclass(frozen=True)
class About:
    """What is known of shares.

    Attributes
    ----------
    model
        Which topics: ``TopicParameters.topics_fingerprint``.
    corpus
        Fingerprint of the corpus.
    request
        Of all that decides the shares.
    n_topics
        K.
    top
        How many shares of a document were kept; None: all.
    method
        How they were computed: ``map`` or ``cvb0``.
    totals
        None in a part of a directory.
    """

    model: str
    corpus: str
    request: str
    n_topics: int
    top: int | None
    method: ShareMethod
    totals: Totals | None = None

    def fields(self) -> dict[str, Any]:
        """JSON values."""
        return {"kind": KIND, "format_version": FORMAT_VERSION, **asdict(self)}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any], where: object) -> About:
        """Read back what ``fields`` gave.

        Raises
        ------
        InputError
            If it is of something else, or of a later release.
        StoreError
            If something is missing.
        """
        if fields.get("kind") != KIND:
            raise not_shares(where)
        if fields.get("format_version") != FORMAT_VERSION:
            raise InputError(
                f"{where}: format version {fields.get('format_version')} is unknown; this release reads "
                f"{FORMAT_VERSION}"
            )
        try:
            known = {name: fields[name] for name in cls.__dataclass_fields__}
            totals = known.pop("totals")
            return cls(**known, totals=None if totals is None else Totals(**totals))
        except (KeyError, TypeError) as error:
            raise StoreError(f"{where}: what it says of itself lacks {error}; {_DAMAGED}") from error

    @property
    def width(self) -> int:
        """Shares of a document that are kept."""
        return self.n_topics if self.top is None else self.top

    @property
    def row_group_rows(self) -> int:
        """Documents of a full row group."""
        return min(ROW_GROUP_ROWS, max(1, ROW_GROUP_SHARES // self.width))


def not_shares(where: object) -> InputError:
    """The refusal of what is no file of shares."""
    return InputError(f"{where}: these are no topic shares; give what transform wrote")


class SharesFile(Protocol):
    """Topic shares, opened; no more than a piece of them is in memory."""

    @property
    def path(self) -> Path:
        """Where they are."""

    @property
    def about(self) -> About:
        """What is known of them."""

    @property
    def columns(self) -> tuple[str, ...]:
        """``document_id`` and the metadata columns."""

    def tables(self, columns: Sequence[str]) -> Iterator[Any]:
        """Arrow tables of some columns, in order of the documents. One pass.

        Raises
        ------
        StoreError
            If a file is missing or damaged.
        """


def dense(about: About, table: Any) -> NDArray[np.float64]:
    """Shares of a table as documents x K; what was not kept is 0.

    Raises
    ------
    StoreError
        If a document has another number of them than ``about`` says.
    """
    values = _matrix(table, SHARES, about.width).astype(np.float64)
    if about.top is None:
        return values
    topics = _matrix(table, TOPICS, about.width)
    if topics.size and not (topics.min() >= 0 and topics.max() < about.n_topics):
        raise StoreError(f"column {TOPICS} names topics outside 0..{about.n_topics - 1}; {_DAMAGED}")
    all_of_them = np.zeros((len(values), about.n_topics))
    np.put_along_axis(all_of_them, topics.astype(np.int64), values, axis=1)
    return all_of_them


def share_columns(about: About) -> tuple[str, ...]:
    """The columns that ``dense`` needs."""
    return (SHARES,) if about.top is None else (TOPICS, SHARES)


def _matrix(table: Any, name: str, width: int) -> NDArray[Any]:
    lists = table.column(name).combine_chunks()
    values = np.asarray(lists.flatten())
    if values.size != len(lists) * width:
        raise StoreError(f"column {name} holds {values.size} numbers for {len(lists)} documents; {_DAMAGED}")
    return values.reshape(len(lists), width)


def lists_of(values: NDArray[Any]) -> Any:
    """The rows of a matrix as an Arrow array of lists."""
    rows, width = values.shape
    return pa.ListArray.from_arrays(
        pa.array(np.arange(rows + 1, dtype=np.int32) * width), pa.array(values.ravel())
    )


def shares_schema(about: About, identity: Any, metadata: Sequence[Any]) -> Any:
    """The Arrow schema of a file: type of ``document_id``, and the fields of the metadata."""
    numbers = [pa.field(SHARES, pa.list_(pa.float32()))]
    if about.top is not None:
        numbers.insert(0, pa.field(TOPICS, pa.list_(pa.int32())))
    plain = [field.with_metadata(None) for field in metadata]
    fields = [pa.field(DOCUMENT_ID, identity), *plain, *numbers]
    text = json.dumps(about.fields(), sort_keys=True, ensure_ascii=False)
    return pa.schema(fields, metadata={METADATA_KEY: text.encode()})


class RowGroupWriter:
    """Writes tables of any length as one Parquet file in row groups of equal length. The same rows, the same bytes."""

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
        """The next rows."""
        self._pieces.append(table.cast(self._schema))
        self._held += table.num_rows
        while self._held >= self._rows:
            whole = pa.concat_tables(self._pieces)
            self._write(whole.slice(0, self._rows))
            self._pieces, self._held = [whole.slice(self._rows)], self._held - self._rows

    def _write(self, table: Any) -> None:
        self._file.write_table(table.combine_chunks(), row_group_size=table.num_rows)


@dataclass(frozen=True)
class ParquetShares:
    """Topic shares in one Parquet file, or in several, one after the other."""

    path: Path
    about: About
    schema: Any
    files: tuple[Path, ...]

    def __fspath__(self) -> str:
        """Where they are: open ones can stand where their path can."""
        return str(self.path)

    @property
    def columns(self) -> tuple[str, ...]:
        """``document_id`` and the metadata columns."""
        return tuple(name for name in self.schema.names if name not in (TOPICS, SHARES))

    def tables(self, columns: Sequence[str]) -> Iterator[Any]:
        """Arrow tables of some columns, a row group each; ``StoreError`` for damage."""
        for path in self.files:
            with _opened(path) as file:
                for number in range(file.num_row_groups):
                    yield file.read_row_group(number, columns=list(columns), use_threads=False)


def open_parquet_shares(path: Path) -> ParquetShares:
    """Open a Parquet file of shares, or a directory of them.

    Raises
    ------
    InputError
        If they are no topic shares.
    StoreError
        If a part is missing or a file is damaged.
    """
    if path.is_file():
        return _open_file(path)
    try:
        fields = json.loads((path / ABOUT_NAME).read_text(encoding="utf-8"))
        parts = dict(fields["parts"])
    except FileNotFoundError as error:
        raise not_shares(path) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path / ABOUT_NAME} cannot be read ({first_line(error)}); {_DAMAGED}") from error
    about = About.from_fields(fields, path)
    files = tuple(inside(path, name) for name in parts)
    for part, rows in zip(files, parts.values(), strict=True):
        with _opened(part) as file:
            if file.metadata.num_rows != rows:
                raise StoreError(f"{part} has {file.metadata.num_rows} documents, not {rows}; {_DAMAGED}")
            schema = file.schema_arrow
    return ParquetShares(path, about, schema, files)


def _open_file(path: Path) -> ParquetShares:
    with path.open("rb") as stream:
        if stream.read(4) != b"PAR1":
            raise not_shares(path)
    with _opened(path) as file:
        schema = file.schema_arrow
    text = (schema.metadata or {}).get(METADATA_KEY)
    if text is None:
        raise not_shares(path)
    return ParquetShares(path, About.from_fields(json.loads(text), path), schema, (path,))


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            yield file
    except FileNotFoundError as error:
        raise StoreError(f"{path} is missing; run transform again") from error
    except (OSError, pa.ArrowException) as error:
        pass_on_machine(error)
        raise StoreError(f"{path} cannot be read as Parquet ({first_line(error)}); {_DAMAGED}") from error
