"""Read what a report shows of documents from their topic shares: top documents of each topic, and shares of groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.documents import queries
from streaming_jsmf.documents.outliers import least_explained
from streaming_jsmf.documents.over_time import changes
from streaming_jsmf.documents.shares import SharesFile
from streaming_jsmf.errors import InputError
from streaming_jsmf.reporting.contents import Change, Document, Documents, Floats, Groups, Integers, Outliers
from streaming_jsmf.storage.paths import AnyPath
from streaming_jsmf.topics.store import AnyModel

#: Number of documents of each topic.
NUMBER = 10

#: Maximum length of a metadata value.
MOST_CHARACTERS = 300

#: Maximum number of groups in a chart.
MOST_GROUPS = 200


def documents_of(shares: SharesFile) -> Documents:
    """The documents with the largest share of each topic, with their metadata. One pass."""
    tables = queries.largest(shares, range(shares.about.n_topics), NUMBER)
    return Documents(_columns(tables[0]), tuple(_documents(table) for table in tables))


def outliers_of(model: AnyModel, shares: str | Path, corpus: AnyPath | Corpus) -> Outliers:
    """The documents of a corpus that the topics explain least. One pass over the shares and the corpus."""
    table = least_explained(model, shares, corpus, NUMBER)
    return Outliers(_columns(table), _documents(table))


def _columns(table: pa.Table) -> tuple[str, ...]:
    """Metadata columns, which follow the id and the value of each document."""
    return tuple(table.column_names[2:])


def _documents(table: pa.Table) -> tuple[Document, ...]:
    rows = (tuple(row.values()) for row in table.to_pylist())
    return tuple(
        Document(_short(name), float(value), tuple(map(_short, values))) for name, value, *values in rows
    )


def _short(value: Any) -> str:
    text = "" if value is None else " ".join(str(value).split())
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."


def groups_of(shares: SharesFile, by: str | None) -> Groups | None:
    """Mean topic shares by a column, by default the year if a column contains times. Up to two passes.

    Raises ``InputError`` if there is no such column, or it has too many values.
    """
    first = next(iter(shares.tables(shares.columns)), None)
    schema = pa.schema([]) if first is None else first.schema
    column = _time_column(schema) if by is None else by
    if column is None:
        return None
    table = queries.by_group(shares, column)
    name = table.column_names[0]
    n_topics = shares.about.n_topics
    values = table.column(name).to_pylist()[::n_topics]
    if len(values) > MOST_GROUPS:
        if by is None:
            return None
        raise InputError(
            f"column {name!r} has {len(values)} values; --by takes one of at most {MOST_GROUPS}, such as a year or "
            "a class"
        )
    ordered = all(queries.is_time(value) for value in values if value is not None) and len(values) > 1
    documents = np.asarray(table.column(queries.DOCUMENTS))[::n_topics]
    means, errors = (
        np.asarray(table.column(column).fill_null(np.nan)).reshape(-1, n_topics)
        for column in (queries.SHARE, queries.ERROR)
    )
    return Groups(
        name,
        tuple("not known" if value is None else _short(value) for value in values),
        tuple(documents.tolist()),
        ordered,
        means,
        np.nan_to_num(errors),
        _change(means, errors, documents, len(values) - (None in values)) if ordered else None,
    )


def _change(shares: Floats, errors: Floats, documents: Integers, known: int) -> Change | None:
    """Changes over the ``known`` groups; None if there are fewer than two, or no standard errors."""
    if known < 2:
        return None
    values, deviations = changes(shares[:known], errors[:known], documents[:known])
    return None if np.isnan(deviations).any() else Change(known - 1, values, deviations)


def _time_column(schema: pa.Schema) -> str | None:
    typed = [field.name for field in schema if pa.types.is_temporal(field.type)]
    named = [name for known in queries.TIMES for name in schema.names if name.lower() == known]
    return next(iter([*named, *typed]), None)
