"""Topic shares and their model -> the documents of a topic, shares by group, similar documents."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from streaming_jsmf.documents import queries
from streaming_jsmf.documents.open_shares import open_shares
from streaming_jsmf.documents.shares import SharesFile, topics_fingerprint
from streaming_jsmf.errors import InputError
from streaming_jsmf.model.store import Model
from streaming_jsmf.storage.paths import StorePath, local_path, normalise, store_path
from streaming_jsmf.workflow.given_topics import given_topics, read_given_topics

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_NUMBER = 10


def documents_of_topic(
    model: str | Path | StorePath | Model, shares: str | Path, topic: int, number: int = DEFAULT_NUMBER
) -> pd.DataFrame:
    """The documents in which a topic is largest: ``document_id``, ``share``, metadata; largest share first.

    One pass over the file that ``transform`` wrote, as it streams.

    Raises
    ------
    InputError
        If the shares are of another model, or there is no such topic.
    StoreError
        If the model or the shares are damaged.
    """
    return _frame(queries.largest(open_shares_of(model, shares), topic, number))


def shares_by(
    model: str | Path | StorePath | Model,
    shares: str | Path,
    column: str | None = None,
    topic: int | None = None,
) -> pd.DataFrame:
    """Mean topic shares by the values of a metadata column, a row for each value and topic; None: over all documents.

    ``documents`` are those with the value, ``standard_error`` is that of the mean ``share``. One pass.

    Raises
    ------
    InputError
        If the shares are of another model, or there is no such column or topic.
    StoreError
        If the model or the shares are damaged.
    """
    return _frame(queries.by_group(open_shares_of(model, shares), column, topic))


def similar_documents(
    model: str | Path | StorePath | Model,
    shares: str | Path,
    document: str | int,
    number: int = DEFAULT_NUMBER,
) -> pd.DataFrame:
    """The documents whose topic shares are nearest to those of a document, by Hellinger's distance (0 to 1).

    Up to two passes.

    Raises
    ------
    InputError
        If the shares are of another model, or there is no such document.
    StoreError
        If the model or the shares are damaged.
    """
    return _frame(queries.similar(open_shares_of(model, shares), str(document), number))


def open_shares_of(model: str | Path | StorePath | Model, shares: str | Path) -> SharesFile:
    """The topic shares at a path, which are those of this model.

    Raises
    ------
    InputError
        If they are of another one, or no topic shares.
    """
    found = open_shares(local_path(normalise(shares), "a file of topic shares"))
    given = (
        given_topics(model) if isinstance(model, Model) else read_given_topics(store_path(model, "a model"))
    )
    if found.about.model != topics_fingerprint(given):
        whose = "this model" if isinstance(model, Model) else str(model)
        raise InputError(
            f"{shares}: these shares are of another model than {whose}; give theirs, or run transform"
        )
    return found


def _frame(table: Any) -> pd.DataFrame:
    """pandas is imported here: with it every command would start a fifth slower."""
    return table.to_pandas()
