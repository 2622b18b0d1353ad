"""Queries that stream topic shares: documents of a topic, mean shares by group, and similar documents."""

from __future__ import annotations

import datetime
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_jsmf.config import DEFAULT_NUMBER, DocumentQuery, takes
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.documents.merged_shares import MergedShares, open_shares_of, shown_shares_of
from streaming_jsmf.documents.outliers import least_explained
from streaming_jsmf.documents.shares import DOCUMENT_ID, SHARES, Least, SharesFile
from streaming_jsmf.errors import InputError
from streaming_jsmf.storage.paths import AnyPath
from streaming_jsmf.topics.edits import shown_topics
from streaming_jsmf.topics.store import AnyModel, Model

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)

Floats = NDArray[np.float64]

#: Result columns.
SHARE, TOPIC, LABEL = "share", "topic", "label"
DOCUMENTS, ERROR, DISTANCE = "documents", "standard_error", "distance"

#: Names of columns that contain times regardless of their type, in order of preference.
TIMES = ("year", "date", "time", "timestamp", "published", "created")

#: Periods of dates, and how many of year, month and day they need.
PERIODS = {"year": 1, "quarter": 2, "month": 2, "day": 3}

#: The start of a text with a date, from the year on; what is missing is empty.
_DATE = r"^(?P<year>[0-9]{4})(?:[-/.](?P<month>[0-9]{1,2})(?:[-/.](?P<day>[0-9]{1,2}))?)?(?:[^0-9]|$)"

#: Maximum number of groups times topics, since their sums are in memory.
MOST_SUMS = 20_000_000


def documents_of_topic(
    model: AnyModel | Model, shares: str | Path, topic: int, number: int = DEFAULT_NUMBER
) -> pd.DataFrame:
    """Return the documents with the largest shares of a topic, in descending order, with ``share`` and metadata.

    The share of a merged topic is the sum over its parts. One pass over the output of ``transform``. Raises
    ``InputError`` if the shares are of another model or there is no such topic, ``StoreError`` if the model or shares
    are damaged.
    """
    return query(model, shares, topic=topic, number=number).to_pandas()


def shares_by(
    model: AnyModel | Model, shares: str | Path, column: str | None = None, topic: int | None = None
) -> pd.DataFrame:
    """Return mean topic shares by the values of a metadata column, one row per value and topic.

    Without ``column`` the mean is over all documents. ``documents`` is the number of documents with the value,
    ``standard_error`` that of the mean ``share``, and ``label`` the name of the topic. Shares of merged topics are
    added, and hidden topics are omitted. One pass. Raises ``InputError`` if the shares are of another model
    or there is no such column or topic, ``StoreError`` if the model or shares are damaged.
    """
    return query(model, shares, topic=topic, by=column, grouped=True).to_pandas()


def similar_documents(
    model: AnyModel | Model, shares: str | Path, document: str | int, number: int = DEFAULT_NUMBER
) -> pd.DataFrame:
    """Return the documents nearest to a document by the Hellinger distance (0 to 1) of the stored, unmerged topics.

    Up to two passes. Raises ``InputError`` if the shares are of another model or there is no such document,
    ``StoreError`` if the model or shares are damaged.
    """
    return query(model, shares, similar=str(document), number=number).to_pandas()


def least_explained_documents(
    model: AnyModel | Model, shares: str | Path, corpus: AnyPath | Corpus, number: int = DEFAULT_NUMBER
) -> pd.DataFrame:
    """Return the documents whose words the topics explain least, in ascending order of ``gain``, with their metadata.

    The gain of a document is the mean over its tokens of log(p(w | theta) / p(w)), in nats: how much more probable the
    topics of the document make its words than their frequencies in the training corpus. p(w | theta) = .99 (B theta)_w
    + .01 p(w) with its topic shares theta. Unknown words do not count, and documents with fewer than half of the mean
    number of distinct words are left out. One pass over the shares and the corpus.

    Parameters
    ----------
    shares, corpus
        The file that ``transform`` wrote with the model, and the corpus of these documents.

    Raises
    ------
    InputError
        If the shares are of another model, or documents of the corpus have no shares.

    Examples
    --------
    >>> least_explained_documents("model", "shares.parquet", "corpus", number=20)  # doctest: +SKIP
    """
    return query(model, shares, outliers=corpus, number=number).to_pandas()


@takes(DocumentQuery)
def query(model: AnyModel | Model, shares: str | Path, *, grouped: bool = False, **options: Any) -> Any:
    """Return ``similar_documents``, ``documents_of_topic``, ``least_explained_documents`` or ``shares_by``.

    The result is an Arrow table; errors are the same.

    The fields of ``DocumentQuery`` are keyword arguments; ``grouped`` requests ``shares_by`` for a ``topic`` without
    ``by``. Raises ``InputError`` if arguments exclude each other.
    """
    asked = DocumentQuery.of(options)
    topic, by, similar = asked.topic, asked.by, asked.similar
    grouped = grouped or (similar is None and asked.outliers is None and (topic is None or by is not None))
    if grouped and asked.number is not None:
        raise InputError("--number requires --similar, --outliers, or --topic without --by; leave it out")
    count = asked.number or DEFAULT_NUMBER
    if asked.outliers is not None:
        return least_explained(model, shares, asked.outliers, count)
    opened = open_shares_of(model, shares)
    if similar is not None:
        return nearest(opened, similar, count)
    shown = shown_topics(model)
    if topic is not None:
        shown = replace(shown, edits=shown.edits.unhide(topic))
    rows = [row for row, number in enumerate(shown.numbers) if topic in (None, number)]
    merged = MergedShares.of(opened, [shown.groups[row] for row in rows])
    if not grouped:
        if name := shown.names[rows[0]]:
            logger.info("topic %s: %s", topic, name)
        return largest(merged, [0], count)[0]
    table = by_group(merged, by)
    place = table.schema.get_field_index(TOPIC)
    topics = np.array(rows)[np.asarray(table.column(TOPIC))].tolist()
    table = table.set_column(place, TOPIC, [[shown.numbers[row] for row in topics]])
    return table.add_column(place + 1, LABEL, [[shown.names[row] for row in topics]])


def shares_table(model: AnyModel, shares: str | Path) -> pd.DataFrame:
    """Return the shares of all documents (rows) and shown topics (columns)."""
    import pandas as pd

    shown = shown_shares_of(model, shares)
    columns = pd.Index(shown_topics(model).numbers, name="topic")
    parts = []
    for table in shown.tables([DOCUMENT_ID, SHARES]):
        index = pd.Index(table.column(DOCUMENT_ID).to_pandas(), name=DOCUMENT_ID)
        parts.append(pd.DataFrame(shown.about.dense(table), index, columns))
    return pd.concat(parts)


def largest(shares: SharesFile, topics: Sequence[int], number: int) -> list[Any]:
    """Return the documents with the largest shares of each topic: ``document_id``, ``share`` and metadata.

    Documents are in descending order, ties in document order. One pass for all topics. Raises ``InputError`` if there
    is no such topic; ``StoreError`` if the shares are damaged.
    """
    for topic in topics:
        if not 0 <= topic < shares.about.n_topics:
            raise InputError(
                f"there is no topic {topic}; the model has topics 0 to {shares.about.n_topics - 1}, as the verb topics "
                "numbers them"
            )
    kept = [Least(number) for _ in topics]
    for table in shares.tables([*shares.columns, *shares.about.columns]):
        values, metadata = shares.about.dense(table), table.select(shares.columns)
        for topic, least in zip(topics, kept, strict=True):
            least.add(-values[:, topic], metadata.append_column(SHARE, pa.array(values[:, topic])))
    return [least.result(SHARE) for least in kept]


def nearest(shares: SharesFile, document: str, number: int) -> Any:
    """Return the documents nearest to a document, excluding itself: ``document_id``, ``distance`` and metadata.

    The Hellinger distance is sqrt(sum_k (sqrt(p_k) - sqrt(q_k))^2 / 2). Up to two passes. Raises ``InputError`` if
    there is no such document; ``StoreError`` if the shares are damaged.
    """
    kept, before = Least(number), 0
    row, own = _find(shares, document)
    root = np.sqrt(own)
    for table in shares.tables([*shares.columns, *shares.about.columns]):
        differences = np.sqrt(shares.about.dense(table)) - root
        distance = np.sqrt(0.5 * np.einsum("mk,mk->m", differences, differences))
        found = table.select(shares.columns).append_column(DISTANCE, pa.array(distance))
        others = np.arange(before, before + len(distance)) != row
        before += len(distance)
        kept.add(distance[others], found.filter(pa.array(others)))
    return kept.result(DISTANCE)


def _find(shares: SharesFile, document: str) -> tuple[int, Floats]:
    """Return the row and shares of the first document with this id."""
    before = 0
    for table in shares.tables([DOCUMENT_ID, *shares.about.columns]):
        names = table.column(DOCUMENT_ID).to_pylist()
        row = next((row for row, name in enumerate(names) if str(name) == document), None)
        if row is not None:
            return before + row, shares.about.dense(table.slice(row, 1))[0]
        before += len(names)
    raise InputError(f"{shares.path} has no document {document!r}; give one of its column {DOCUMENT_ID}")


def is_time(value: Any) -> bool:
    """Whether a value of a column is a number, a time, or a text such as 1999, 1999-Q4 or 1999-12-31."""
    if isinstance(value, bool):
        return False
    return isinstance(value, int | float | datetime.date) or bool(
        re.fullmatch(r"[0-9]{4}(-Q[1-4]|-[0-9]{2}(-[0-9]{2})?)?", str(value))
    )


def grouping(shares: SharesFile, by: str) -> tuple[str, Callable[[Any], Any] | None, str]:
    """The column of ``by``, a function from its values to groups (None: each is one), and the name of the groups."""
    column, colon, unit = by.rpartition(":")
    if not colon or unit not in PERIODS or by in shares.columns:
        column, unit = by, ""
    asked = unit
    if column not in shares.columns:
        raise InputError(f"{shares.path} has no column {column!r}; it has {', '.join(shares.columns)}")
    first = next(iter(shares.tables([column])), None)
    if first is None:
        return column, None, column
    kind = first.schema.field(column).type
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind)
    dated = pa.types.is_date(kind) or pa.types.is_timestamp(kind)
    if not unit and (dated or (text and column.lower() in TIMES[1:])):
        unit = "year"
    if not unit or pa.types.is_integer(kind):
        return column, None, column
    periods = partial(_periods, unit=unit)
    known = first.column(0).drop_null()
    if not (text or dated) or (len(known) and periods(known).null_count == len(known)):
        if unit != asked:
            return column, None, column
        held = repr(known[0].as_py()) if text else kind
        raise InputError(
            f"column {column!r} holds {held}; {unit}s are made of dates and of texts such as 1999-12-31 or 1999/12/31"
        )
    return column, periods, f"{unit} of {column}"


def _periods(values: Any, unit: str) -> Any:
    """The period of each date of a column, such as 1999, 1999-Q4, 1999-12 or 1999-12-31; null if it has none."""
    found = pc.extract_regex(values.cast(pa.string()), _DATE)
    names = ("year", "month", "day")[: PERIODS[unit]]
    parts = [pc.utf8_lpad(pc.struct_field(found, name), 2, "0") for name in names]
    known = pc.if_else(pc.equal(parts[-1], "00"), None, parts[-1])
    if unit == "quarter":
        month = known.cast(pa.int64())
        quarter = pc.add(pc.divide(pc.subtract(month, 1), 3), 1).cast(pa.string())
        return pc.binary_join_element_wise(parts[0], quarter, "-Q")
    return pc.binary_join_element_wise(*parts[:-1], known, "-")


def rows_by_value(values: Any) -> Iterator[tuple[Any, NDArray[np.int64]]]:
    """Yield each value of an Arrow column (null as None), and its rows in order."""
    coded = values.combine_chunks().dictionary_encode(null_encoding="encode")
    codes, names = np.asarray(coded.indices), coded.dictionary.to_pylist()
    order = np.argsort(codes, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        if rows.size:
            yield names[codes[rows[0]]], rows


def by_group(shares: SharesFile, by: str | None) -> Any:
    """Return mean topic shares of the documents with each value of a metadata column; None: of all documents.

    There is a row per group (in order, null last) and topic: the value, number of documents, topic, mean share and its
    standard error (null for one document). One pass. ``COLUMN:year``, ``:quarter``, ``:month`` and ``:day`` make
    periods of typed dates and of texts that start with a year, month and day; the column of the result is then called,
    for example, ``year of COLUMN``. A column of typed dates, or of texts with one of the names ``TIMES``, is grouped by
    year by default. Raises ``InputError`` if there is no such column, it has too many values, or periods are of other
    values; ``StoreError`` if the shares are damaged.
    """
    column, label, name = (None, None, "") if by is None else grouping(shares, by)
    groups = _Groups(shares, name)
    for table in shares.tables([*([column] if column else []), *shares.about.columns]):
        values = shares.about.dense(table)
        if column is None:
            groups.add(None, values)
            continue
        labels = table.column(column)
        groups.add_labelled(labels if label is None else label(labels), values)
    return groups.table()


class _Groups:
    """Number of documents and sums of shares and squared shares for each group; ``name`` is empty for a single one."""

    def __init__(self, shares: SharesFile, name: str) -> None:
        self._shares, self._name, self._n_topics = shares, name, shares.about.n_topics
        self._documents: dict[Any, int] = {}
        self._sums: dict[Any, Floats] = {}
        self._type: Any = pa.null()

    def add_labelled(self, labels: Any, values: Floats) -> None:
        self._type = labels.type
        for name, rows in rows_by_value(labels):
            self.add(name, values[rows])

    def add(self, name: Any, values: Floats) -> None:
        sums = self._sums.setdefault(name, np.zeros((2, self._n_topics)))
        if len(self._sums) * self._n_topics > MOST_SUMS:
            raise InputError(
                f"{self._shares.path}: column {self._name!r} has more than {len(self._sums) - 1:,} values; give one "
                "that makes groups of documents"
            )
        self._documents[name] = self._documents.get(name, 0) + len(values)
        sums += values.sum(axis=0), np.square(values).sum(axis=0)

    def table(self) -> Any:
        # Sort NaN, which differs from itself, after other numbers.
        names = sorted(
            (name for name in self._sums if name is not None), key=lambda name: (name != name, name)
        )
        if None in self._sums:
            names.append(None)
        documents = np.repeat([self._documents[name] for name in names], self._n_topics).astype(np.int64)
        total, squares = (
            np.concatenate([self._sums[name][row] for name in names]) / documents for row in range(2)
        )
        error = np.sqrt(np.maximum(squares - total**2, 0.0) / np.maximum(documents - 1, 1))
        columns = {
            DOCUMENTS: pa.array(documents),
            TOPIC: pa.array(np.tile(np.arange(self._n_topics, dtype=np.int64), len(names))),
            SHARE: pa.array(total),
            ERROR: pa.array(error, mask=documents < 2),
        }
        if self._name:
            repeated = [name for name in names for _ in range(self._n_topics)]
            kind = self._type.value_type if pa.types.is_dictionary(self._type) else self._type
            columns = {self._name: pa.array(repeated, kind), **columns}
        return pa.table(columns)
