"""Topic shares of documents, written by ``transform`` and read by ``queries``.

Tables have the documents in corpus order, with ``document_id``, the metadata columns, ``known_tokens``, and
``topic_shares: list<float32>``, all K of them. If only the n largest shares were kept, they are in descending order,
with ``topics: list<int32>``. CSV, with a column for each topic, is for other programs and is not read again.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from streaming_jsmf.corpus.footer import is_string
from streaming_jsmf.corpus.metadata import free_name
from streaming_jsmf.display import escaped_cell
from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.fingerprint import sealed, unsealed
from streaming_jsmf.storage import kinds
from streaming_jsmf.storage.paths import StorePath, is_file, open_file

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)

KIND, FORMAT_VERSION = "streaming_jsmf.shares", 3

DOCUMENT_ID, SHARES, TOPICS = "document_id", "topic_shares", "topics"
#: Column of the number of tokens of a document whose words are in the model.
KNOWN_TOKENS = "known_tokens"
#: Target number of shares and maximum number of rows of a row group.
ROW_GROUP_SHARES, ROW_GROUP_ROWS = 2**20, 2**16
#: Advice, and a finding with it.
AGAIN = "run transform again"
DAMAGED = f"it is truncated or damaged: {AGAIN}"


@dataclass(frozen=True)
class ShareTotals:
    """Counts over documents.

    ``unknown_tokens`` are tokens whose words are not in the model, ``without_known_words`` documents that get the mean
    of the prior, ``unconverged`` documents that reached the maximum number of steps.
    """

    documents: int = 0
    tokens: float = 0.0
    unknown_tokens: float = 0.0
    without_known_words: int = 0
    unconverged: int = 0

    def __add__(self, other: ShareTotals) -> ShareTotals:
        return ShareTotals(**{name: value + getattr(other, name) for name, value in asdict(self).items()})


@dataclass(frozen=True)
class About:
    """Metadata of topic shares: fingerprints of the model's topics, the corpus, and all inputs (``request``).

    ``top`` is the number of shares kept per document (None: all); ``totals`` is None until all parts are done.
    ``workers`` are "mixed" if workers with other versions or processors were allowed.
    """

    model: str
    corpus: str
    request: str
    n_topics: int
    top: int | None
    totals: ShareTotals | None = None
    workers: str = ""

    def fields(self, **others: Any) -> dict[str, Any]:
        """Return the metadata as stored, with ``others`` of a format and their fingerprint."""
        known = asdict(self)
        if not self.workers:
            del known["workers"]
        return sealed({"kind": KIND, "format_version": FORMAT_VERSION, **known, **others})

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any], path: StorePath) -> About:
        """Inverse of ``fields``; ``InputError`` for another format version, ``StoreError`` if damaged."""
        if (version := fields.get("format_version")) != FORMAT_VERSION:
            raise InputError(
                f"{path}: topic shares of format version {version}, and this release reads {FORMAT_VERSION}; {AGAIN}"
            )
        try:
            values = unsealed(fields)
            known = {name: values[name] for name in cls.__dataclass_fields__ if name in values}
            return cls(**{**known, "totals": ShareTotals(**known["totals"])})
        except (KeyError, TypeError, ValueError) as error:
            raise StoreError(f"{path}: its metadata are damaged ({error}); {AGAIN}") from error

    @property
    def all_totals(self) -> ShareTotals:
        """The totals, which shares have unless they are a part of a directory."""
        assert self.totals is not None, "shares are written at the end"
        return self.totals

    @property
    def width(self) -> int:
        """Number of shares kept per document."""
        return self.n_topics if self.top is None else self.top

    @property
    def row_group_rows(self) -> int:
        """Number of documents in a full row group."""
        return min(ROW_GROUP_ROWS, max(1, ROW_GROUP_SHARES // self.width))

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns needed by ``dense``."""
        return (SHARES,) if self.top is None else (TOPICS, SHARES)

    def dense(self, table: Any) -> NDArray[np.float64]:
        """Return the shares of a table, (documents, K), with 0 for shares not kept; ``StoreError`` if damaged."""
        values = self.matrix(table, SHARES).astype(np.float64)
        if self.top is None:
            return values
        topics = self.matrix(table, TOPICS)
        if topics.size and not (topics.min() >= 0 and topics.max() < self.n_topics):
            raise StoreError(f"column {TOPICS} has topics outside 0..{self.n_topics - 1}; {DAMAGED}")
        shares = np.zeros((len(values), self.n_topics))
        np.put_along_axis(shares, topics.astype(np.int64), values, axis=1)
        return shares

    def matrix(self, table: Any, name: str) -> NDArray[Any]:
        """Return a list column as a matrix (documents, ``width``)."""
        lists = table.column(name).combine_chunks()
        values = np.asarray(lists.flatten())
        if values.size != len(lists) * self.width:
            raise StoreError(f"column {name} has {values.size} numbers for {len(lists)} documents; {DAMAGED}")
        return values.reshape(len(lists), self.width)


@dataclass(frozen=True)
class SharesFile:
    """Opened topic shares, read in pieces; ``columns`` are ``document_id`` and the metadata columns.

    ``tables`` yields Arrow tables of some columns in document order, in one pass. It raises ``InputError`` for CSV,
    which is not read again, and ``StoreError`` for damaged files, before any table of an altered file or array.
    """

    path: StorePath
    about: About
    columns: tuple[str, ...]
    tables: Callable[[Sequence[str]], Iterator[Any]] = field(repr=False)

    def __fspath__(self) -> str:
        """Return the path, so that opened shares can be passed as a path."""
        return str(self.path)

    def require_columns(self, names: Iterable[str], hint: str = "") -> None:
        """Raise ``InputError`` for the first of these columns that is missing."""
        for name in names:
            if name not in self.columns:
                raise InputError(
                    f"{self.path} has no column {name!r}; it has {', '.join(self.columns)}{hint}"
                )

    def dense(self, columns: Sequence[str] = ()) -> Iterator[tuple[NDArray[np.float64], Any]]:
        """Yield the shares of some documents, (documents, K), and an Arrow table of ``columns``; see ``tables``."""
        for table in self.tables([*columns, *self.about.columns]):
            yield self.about.dense(table), table.select(list(columns))

    def merged(self, groups: Sequence[Sequence[int]]) -> SharesFile:
        """Return the sums of the shares over groups of topics; topics in no group are omitted."""

        def read(columns: Sequence[str]) -> Iterator[Any]:
            if SHARES not in columns:
                yield from self.tables(columns)
                return
            for theta, table in self.dense([name for name in columns if name != SHARES]):
                sums = np.stack([theta[:, list(group)].sum(axis=1) for group in groups], axis=1)
                yield table.append_column(SHARES, to_lists(sums))

        return SharesFile(self.path, replace(self.about, n_topics=len(groups), top=None), self.columns, read)


def is_text(kind: Any) -> bool:
    """Return whether an Arrow type is one of strings or a dictionary."""
    return is_string(kind) or bool(pa.types.is_dictionary(kind))


def to_lists(values: NDArray[Any]) -> Any:
    """Return the rows of a matrix as an Arrow list array."""
    rows, width = values.shape
    return pa.ListArray.from_arrays(
        pa.array(np.arange(rows + 1, dtype=np.int32) * width), pa.array(values.ravel())
    )


def in_sizes(tables: Iterator[Any], sizes: Iterable[int]) -> Iterator[Any]:
    """Yield the rows of tables in tables of these sizes; the last one may have fewer."""
    pieces: list[Any] = []
    held = 0
    for size in sizes:
        while held < size and (more := next(tables, None)) is not None:
            pieces.append(more)
            held += more.num_rows
        if not held:
            return
        whole = pa.concat_tables(pieces)
        yield whole.slice(0, size)
        pieces, held = [whole.slice(size)], max(held - size, 0)


def with_result(table: Any, name: str, values: Any) -> Any:
    """Append a column of results to a table; a metadata column of the same name gets another one."""
    names = table.column_names
    if name in names:
        table = table.rename_columns([free_name(name, names) if other == name else other for other in names])
    return table.append_column(name, values)


def metadata_name(name: str, names: Collection[str], results: Collection[str]) -> str:
    """The name of a metadata column among ``names``, which differs from ``name`` if a result has it."""
    result = name in results
    while result and f"{name}_" in names:
        name = f"{name}_"
    return name


def frame(table: Any) -> pd.DataFrame:
    """A table as one of pandas, with Python numbers where whole ones beside null are too large for a float64."""
    nullable = (one for one in table.columns if pa.types.is_integer(one.type) and one.null_count)
    exact = all(abs(bound or 0) <= 2**53 for one in nullable for bound in pc.min_max(one).as_py().values())
    return table.to_pandas(integer_object_nulls=not exact)


def is_csv(path: StorePath) -> bool:
    """Whether shares at ``path`` are or will be a CSV file."""
    return path.suffix.lower() == ".csv"


def not_read(path: StorePath) -> InputError:
    return kinds.unsuitable(
        path, f"{kinds.SHARES} in Parquet or Zarr", "a CSV file, which is for other programs"
    )


def csv_shares(path: StorePath, about: About) -> SharesFile:
    """Return the shares in a CSV file, which cannot be read again."""

    def read(columns: Sequence[str]) -> Iterator[Any]:
        del columns
        raise not_read(path)

    return SharesFile(path, about, (), read)


def has_csv_shares(path: StorePath) -> bool:
    """Whether there is a file whose header is one of ``write_csv``, perhaps written anew by another program."""
    if not is_file(path):
        return False
    with open_file(path) as file:
        header = next(iter(file), b"").decode("utf-8-sig", errors="replace")
    return {DOCUMENT_ID, KNOWN_TOKENS} <= {*re.split("[,;\t]", re.sub('["\r\n]', "", header))}


@dataclass(frozen=True)
class CsvColumns:
    """The columns of shares in CSV: the topics whose shares each adds, and whether texts are ``raw``."""

    topics: Mapping[str, Sequence[int]]
    raw: bool = False

    def cell(self, text: Any) -> Any:
        """The text as it is stored: one that a spreadsheet would evaluate gets a leading apostrophe, unless raw."""
        return text if self.raw else escaped_cell(text)


def write_csv(path: Path, shares: SharesFile, schema: Any, shown: CsvColumns) -> None:
    """Write shares as CSV: id, metadata as in ``schema``, and a column for each topic with its name. One pass.

    Lists and other nested columns are skipped with a warning.
    """
    kinds, names = {}, [*shown.topics]
    shares = shares.merged([*shown.topics.values()])
    for name in shares.columns:
        kind = schema.field(name).type
        if is_text(kind):
            kinds[name] = pa.string()
        elif pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            logger.warning("%s: column %r is %s and is left out of CSV", shares.path, name, kind)
        else:
            kinds[name] = kind
    columns = [
        *((shown.cell(free_name(name, names)), kind) for name, kind in kinds.items()),
        *((name, pa.float32()) for name in names),
    ]
    path.unlink(missing_ok=True)
    with pa_csv.CSVWriter(path, pa.schema(columns)) as file:
        for table in shares.tables([*kinds, SHARES]):
            known = [_csv_values(table.column(name), kind, shown) for name, kind in kinds.items()]
            values = shares.about.matrix(table, SHARES).astype(np.float32)
            file.write_table(pa.table([*known, *map(pa.array, values.T)], schema=pa.schema(columns)))


def _csv_values(column: Any, kind: Any, shown: CsvColumns) -> Any:
    if kind != pa.string():
        return column
    return pa.array([shown.cell(text) for text in column.to_pylist()], kind)
