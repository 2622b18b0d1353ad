"""Read what a report shows of documents from their topic shares: top documents of each topic, outliers, and groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from streaming_jsmf.corpus.format import open_corpus
from streaming_jsmf.documents.groups import TIMES, Groups, by_group, has_groups, short_text
from streaming_jsmf.documents.model_shares import ModelShares
from streaming_jsmf.documents.queries import largest, least_explained
from streaming_jsmf.documents.shares import SharesFile
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.reporting.contents import Document, Documents

#: Number of documents in a list.
NUMBER = 10

#: Maximum number of groups in a chart.
MOST_GROUPS = 200


def documents_of(shares: SharesFile) -> Documents:
    """The documents with the largest share of each topic, with their metadata. One pass."""
    return _documents(largest(shares, NUMBER))


def outliers_of(shares: ModelShares, corpus: Any) -> Documents:
    """The documents of a corpus that the topics explain least. One pass over the shares and the corpus."""
    return _documents([least_explained(shares, open_corpus(corpus), NUMBER)])


def _documents(tables: Sequence[pa.Table]) -> Documents:
    """Rows of tables that have the id of a document, its value, and metadata columns."""
    lists = [
        tuple(
            Document(short_text(name), float(value), tuple(map(short_text, metadata)))
            for name, value, *metadata in (row.values() for row in table.to_pylist())
        )
        for table in tables
    ]
    return Documents(tuple(tables[0].column_names[2:]), tuple(lists))


def groups_of(shares: SharesFile, by: str | None) -> Groups | None:
    """Mean topic shares by a column, by default the year if a column contains times. Up to two passes.

    Raises ``InputError`` if there is no such column, or it has too many values.
    """
    column = _time_column(shares) if by is None else by
    if column is None:
        return None
    groups = by_group(shares, column)
    if len(groups.values) <= MOST_GROUPS:
        return groups
    if by is None:
        return None
    raise InputError(
        f"column {groups.column!r} has {len(groups.values)} values; {option.by} takes one of at most {MOST_GROUPS}, "
        "such as a year or a class"
    )


def _time_column(shares: SharesFile) -> str | None:
    first = next(iter(shares.tables(shares.columns)), None)
    schema = pa.schema([]) if first is None else first.schema
    typed = [field.name for field in schema if pa.types.is_temporal(field.type)]
    plain = [field.name for field in schema if has_groups(field.type)]
    named = [name for known in TIMES for name in plain if name.lower() == known]
    return next(iter([*named, *typed]), None)
