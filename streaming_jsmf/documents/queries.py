"""Answers from topic shares: documents of a topic, shares by group, similar documents. Each streams the file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming_jsmf.documents.shares import DOCUMENT_ID, SharesFile, dense, share_columns
from streaming_jsmf.errors import InputError

Floats = NDArray[np.float64]

#: Columns of the answers.
SHARE, TOPIC, DOCUMENTS, ERROR, DISTANCE = "share", "topic", "documents", "standard_error", "distance"

#: Most sums of one kind that are held: groups times topics.
MOST_SUMS = 20_000_000


def largest(shares: SharesFile, topic: int, number: int) -> Any:
    """The documents in which a topic is largest: ``document_id``, ``share`` and metadata, largest share first.

    Of equal shares the earlier document comes first. One pass.

    Raises
    ------
    InputError
        If there is no such topic, or ``number`` is below 1.
    StoreError
        If the shares are damaged.
    """
    [found] = largest_of_each(shares, [topic], number)
    return found


def largest_of_each(shares: SharesFile, topics: Sequence[int], number: int) -> list[Any]:
    """For each of some topics the table that ``largest`` gives. One pass for all."""
    for topic in topics:
        require_topic(shares, topic)
    _require_number(number)
    kept = [_Least(number) for _ in topics]
    for table in shares.tables([*shares.columns, *share_columns(shares.about)]):
        values, told = dense(shares.about, table), table.select(shares.columns)
        for topic, least in zip(topics, kept, strict=True):
            least.see(-values[:, topic], told.append_column(SHARE, pa.array(values[:, topic])))
    return [_share_second(least.table(), SHARE) for least in kept]


def by_group(
    shares: SharesFile,
    column: str | None,
    topic: int | None = None,
    label: Callable[[Any], Any] | None = None,
) -> Any:
    """Mean topic shares of the documents of each value of a metadata column; None: of all documents.

    A row for each group and topic: the value, how many documents have it, the topic, its mean share and the standard
    error of that mean (of documents drawn at random; null for one document). Groups in order, null last. One pass.
    ``label`` makes the values of the groups of an Arrow column, such as years of dates; None: they are its values.

    Raises
    ------
    InputError
        If there is no such column or topic, or the column has too many values to be groups.
    StoreError
        If the shares are damaged.
    """
    if topic is not None:
        require_topic(shares, topic)
    if column is not None and column not in shares.columns:
        raise InputError(f"{shares.path} has no column {column!r}; it has {', '.join(shares.columns)}")
    topics = range(shares.about.n_topics) if topic is None else [topic]
    groups = _Groups(len(topics), column, shares)
    for table in shares.tables([*([column] if column else []), *share_columns(shares.about)]):
        values = dense(shares.about, table)[:, list(topics)]
        labels = None if column is None else table.column(column)
        groups.add(labels if label is None else label(labels), values)
    return groups.table(topics)


def similar(shares: SharesFile, document: str, number: int) -> Any:
    """The documents whose shares are nearest to those of a document: ids, distance, metadata, the nearest first.

    The distance is Hellinger's, sqrt(sum_k (sqrt(p_k) - sqrt(q_k))^2 / 2): 0 for equal shares, 1 for none in common.
    The document itself is left out. Up to two passes.

    Raises
    ------
    InputError
        If there is no such document, or ``number`` is below 1.
    StoreError
        If the shares are damaged.
    """
    _require_number(number)
    place, own = _find(shares, document)
    root, kept, before = np.sqrt(own), _Least(number), 0
    for table in shares.tables([*shares.columns, *share_columns(shares.about)]):
        differences = np.sqrt(dense(shares.about, table)) - root
        distance = np.sqrt(0.5 * np.einsum("mk,mk->m", differences, differences))
        told = table.select(shares.columns).append_column(DISTANCE, pa.array(distance))
        others = np.arange(before, before + len(distance)) != place
        before += len(distance)
        kept.see(distance[others], told.filter(pa.array(others)))
    return _share_second(kept.table(), DISTANCE)


def require_topic(shares: SharesFile, topic: int) -> None:
    """Refuse the number of a topic that there is not."""
    if not 0 <= topic < shares.about.n_topics:
        raise InputError(
            f"there is no topic {topic}; the model has topics 0 to {shares.about.n_topics - 1}, as the verb topics "
            "numbers them"
        )


def _require_number(number: int) -> None:
    if number < 1:
        raise InputError(f"number is {number}; give how many documents are wanted, at least 1")


def _share_second(table: Any, name: str) -> Any:
    """The number right behind the id."""
    others = [column for column in table.column_names if column not in (DOCUMENT_ID, name)]
    return table.select([DOCUMENT_ID, name, *others])


def _find(shares: SharesFile, document: str) -> tuple[int, Floats]:
    """Number and shares of the first document of an id."""
    before = 0
    for table in shares.tables([DOCUMENT_ID, *share_columns(shares.about)]):
        names = table.column(DOCUMENT_ID).to_pylist()
        row = next((row for row, name in enumerate(names) if str(name) == document), None)
        if row is not None:
            return before + row, dense(shares.about, table.slice(row, 1))[0]
        before += len(names)
    raise InputError(f"{shares.path} has no document {document!r}; give one of its column {DOCUMENT_ID}")


class _Least:
    """The rows of the least values seen; the earlier of equals."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._values: Floats = np.empty(0)
        self._table: Any = None

    def see(self, values: Floats, table: Any) -> None:
        """Further rows and their values."""
        if self._table is not None:
            values, table = np.concatenate([self._values, values]), pa.concat_tables([self._table, table])
        first = np.argsort(values, kind="stable")[: self._number]
        self._values, self._table = values[first], table.take(pa.array(first))

    def table(self) -> Any:
        """The rows, least first."""
        return self._table


@dataclass
class _Sums:
    documents: int
    total: Floats
    squares: Floats


class _Groups:
    """Sums of shares and of their squares for each value of a column."""

    def __init__(self, n_topics: int, column: str | None, shares: SharesFile) -> None:
        self._n_topics, self._column, self._shares = n_topics, column, shares
        self._sums: dict[Any, _Sums] = {}
        self._type: Any = pa.null()

    def add(self, labels: Any, values: Floats) -> None:
        """Further documents: their values of the column (None: all alike), and shares x topics."""
        if labels is None:
            self._add(None, values)
            return
        self._type = labels.type
        coded = labels.combine_chunks().dictionary_encode(null_encoding="encode")
        codes = np.asarray(coded.indices)
        order = np.argsort(codes, kind="stable")
        names = coded.dictionary.to_pylist()
        for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
            if rows.size:
                self._add(names[codes[rows[0]]], values[rows])

    def _add(self, name: Any, values: Floats) -> None:
        sums = self._sums.setdefault(name, _Sums(0, np.zeros(self._n_topics), np.zeros(self._n_topics)))
        if len(self._sums) * self._n_topics > MOST_SUMS:
            raise InputError(
                f"{self._shares.path}: column {self._column!r} has more than {len(self._sums) - 1:,} values; give one "
                "that makes groups of documents"
            )
        sums.documents += len(values)
        sums.total += values.sum(axis=0)
        sums.squares += np.square(values).sum(axis=0)

    def table(self, topics: Sequence[int]) -> Any:
        """A row for each group and topic."""
        names = sorted((name for name in self._sums if name is not None), key=_order)
        if None in self._sums:
            names.append(None)
        sums = [self._sums[name] for name in names]
        documents = np.repeat([one.documents for one in sums], len(topics)).astype(np.int64)
        means = np.concatenate([one.total / one.documents for one in sums])
        squares = np.concatenate([one.squares / one.documents for one in sums])
        spread = np.sqrt(np.maximum(squares - means**2, 0.0) / np.maximum(documents - 1, 1))
        columns = {
            DOCUMENTS: pa.array(documents),
            TOPIC: pa.array(np.tile(np.asarray(topics, np.int64), len(names))),
            SHARE: pa.array(means),
            ERROR: pa.array(spread, mask=documents < 2),
        }
        if self._column is not None:
            repeated = [name for name in names for _ in topics]
            kind = self._type.value_type if pa.types.is_dictionary(self._type) else self._type
            columns = {self._column: pa.array(repeated, kind), **columns}
        return pa.table(columns)


def _order(name: Any) -> Any:
    """NaN equals nothing: it comes last of the numbers."""
    return (name != name, name)
