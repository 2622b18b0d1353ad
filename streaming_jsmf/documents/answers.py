"""Topic shares and their model -> the documents of a topic, shares by group, similar documents."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streaming_jsmf.documents import queries
from streaming_jsmf.documents.grouped import GroupedShares
from streaming_jsmf.documents.open_shares import open_shares
from streaming_jsmf.documents.shares import DOCUMENT_ID, SHARES, SharesFile, dense
from streaming_jsmf.errors import InputError
from streaming_jsmf.storage.paths import local_path, normalise
from streaming_jsmf.topics.edits import TopicEdits, read_edits
from streaming_jsmf.topics.parameters import NEEDED, OPTIONAL, TopicParameters
from streaming_jsmf.topics.store import AnyModel, Model, model_path, read_model

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_NUMBER = 10


def documents_of_topic(
    model: AnyModel | Model, shares: str | Path, topic: int, number: int = DEFAULT_NUMBER
) -> pd.DataFrame:
    """The documents in which a topic is largest: ``document_id``, ``share``, metadata; largest share first.

    The share of a topic that was merged is the sum over its parts. One pass over the file that ``transform`` wrote, as
    it streams.

    Raises
    ------
    InputError
        If the shares are of another model, or there is no such topic.
    StoreError
        If the model or the shares are damaged.
    """
    return _frame(largest(model, shares, topic, number))


def shares_by(
    model: AnyModel | Model,
    shares: str | Path,
    column: str | None = None,
    topic: int | None = None,
) -> pd.DataFrame:
    """Mean topic shares by the values of a metadata column, a row for each value and topic; None: over all documents.

    ``documents`` are those with the value, ``standard_error`` is that of the mean ``share``. Topics are those that the
    model shows: merged ones have the sum of the shares of their parts, hidden ones are left out, and if any has a name,
    ``label`` is a column. One pass.

    Raises
    ------
    InputError
        If the shares are of another model, or there is no such column or topic.
    StoreError
        If the model or the shares are damaged.
    """
    return _frame(by_group(model, shares, column, topic))


def similar_documents(
    model: AnyModel | Model,
    shares: str | Path,
    document: str | int,
    number: int = DEFAULT_NUMBER,
) -> pd.DataFrame:
    """The documents whose topic shares are nearest to those of a document, by Hellinger's distance (0 to 1).

    By all topics as they are stored, merged or not. Up to two passes.

    Raises
    ------
    InputError
        If the shares are of another model, or there is no such document.
    StoreError
        If the model or the shares are damaged.
    """
    return _frame(queries.similar(open_shares_of(model, shares), str(document), number))


def shares_table(model: AnyModel, shares: str | Path) -> pd.DataFrame:
    """All shares of the shown topics: a row for each document, by its id, a column for each topic's number."""
    import pandas as pd

    shown, numbers = shown_shares_of(model, shares), [group[0] for group in _edits_of(model).groups]
    parts = []
    for table in shown.tables([DOCUMENT_ID, SHARES]):
        index = pd.Index(table.column(DOCUMENT_ID).to_pandas(), name=DOCUMENT_ID)
        parts.append(pd.DataFrame(dense(shown.about, table), index, pd.Index(numbers, name="topic")))
    return pd.concat(parts)


def query(
    model: AnyModel,
    shares: str | Path,
    *,
    topic: int | None = None,
    by: str | None = None,
    similar: str | None = None,
    number: int | None = None,
) -> Any:
    """Answer a question as an Arrow table: ``similar_documents``, ``documents_of_topic``, or else ``shares_by``.

    Raises
    ------
    InputError
        If the arguments exclude each other, and as these functions.
    StoreError
        If the model or the shares are damaged.
    """
    if similar is not None and (by is not None or topic is not None):
        raise InputError("--similar excludes --topic and --by; give one")
    if similar is None and (topic is None or by is not None):
        if number is not None:
            raise InputError("--number requires --similar, or --topic without --by; leave it out")
        return by_group(model, shares, by, topic)
    count = DEFAULT_NUMBER if number is None else number
    if similar is not None:
        return queries.similar(open_shares_of(model, shares), similar, count)
    assert topic is not None
    return largest(model, shares, topic, count)


def largest(model: AnyModel | Model, shares: str | Path, topic: int, number: int) -> Any:
    """``documents_of_topic`` as an Arrow table."""
    found, edits = open_shares_of(model, shares), _edits_of(model)
    return queries.largest(GroupedShares(found, [edits.members(topic)]), 0, number)


def by_group(model: AnyModel | Model, shares: str | Path, column: str | None, topic: int | None) -> Any:
    """``shares_by`` as an Arrow table."""
    found, edits = open_shares_of(model, shares), _edits_of(model)
    groups = edits.groups if topic is None else (edits.members(topic),)
    table = queries.by_group(GroupedShares(found, groups), column)
    numbers = np.array([group[0] for group in groups])[np.asarray(table.column(queries.TOPIC))]
    place = table.schema.get_field_index(queries.TOPIC)
    table = table.set_column(place, queries.TOPIC, [numbers])
    if not edits.labels:
        return table
    return table.add_column(place + 1, "label", [[edits.labels.get(number) for number in numbers.tolist()]])


def open_shares_of(model: AnyModel | Model, shares: str | Path) -> SharesFile:
    """The topic shares at a path, which are those of this model.

    Raises
    ------
    InputError
        If they are of another one, or no topic shares.
    """
    found = open_shares(local_path(normalise(shares, "a file of topic shares"), "a file of topic shares"))
    read = model if isinstance(model, Model) else read_model(model_path(model), NEEDED, OPTIONAL)
    given = TopicParameters.of(read)
    if found.about.model != given.topics_fingerprint:
        whose = "this model" if isinstance(model, Model) else str(model_path(model))
        raise InputError(
            f"{shares}: these shares are of another model than {whose}; give theirs, or run transform"
        )
    return found


def shown_shares_of(model: AnyModel, shares: str | Path) -> SharesFile:
    """As ``open_shares_of``, of the topics that the model shows; without those that are hidden."""
    return GroupedShares(open_shares_of(model, shares), _edits_of(model).groups)


def _edits_of(model: AnyModel | Model) -> TopicEdits:
    if isinstance(model, Model):
        return TopicEdits(int(model.arrays["topic_probability"].size))
    path = model_path(model)
    return read_edits(path, read_model(path, ("topic_probability",)))


def _frame(table: Any) -> pd.DataFrame:
    """pandas is imported here: with it every command would start a fifth slower."""
    return table.to_pandas()
