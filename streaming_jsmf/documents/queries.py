"""Queries that stream topic shares: documents of a topic, mean shares by group, similar documents, and outliers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from streaming_jsmf.config import DEFAULT_NUMBER, EXCERPT, DocumentQuery, takes
from streaming_jsmf.corpus.format import Corpus, open_corpus
from streaming_jsmf.documents.cells import count_cells
from streaming_jsmf.documents.groups import SHARE
from streaming_jsmf.documents.model_shares import (
    OF_TOPICS,
    AnyShares,
    ModelShares,
    token_probabilities,
    topics_mark,
)
from streaming_jsmf.documents.shares import DOCUMENT_ID, KNOWN_TOKENS, SharesFile, frame, with_result
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.inference.completion import SMOOTHING
from streaming_jsmf.linalg import hellinger
from streaming_jsmf.linalg.panels import ratio
from streaming_jsmf.linalg.typing import Floats
from streaming_jsmf.storage.paths import AnyPath
from streaming_jsmf.topics.store import AnyModel, Model

if TYPE_CHECKING:
    import pandas as pd
    from scipy.sparse import csr_array

logger = logging.getLogger(__name__)

#: Columns of distances, and of how much more probable the topics make the words of a document.
DISTANCE, GAIN = "distance", "gain"
#: Documents with less than this part of the mean number of distinct words are no outliers: few words say too little.
SHORTEST = 0.5


def documents_of_topic(
    model: AnyModel | Model,
    shares: AnyShares,
    topic: int,
    number: int = DEFAULT_NUMBER,
    columns: Literal["all"] | Sequence[str] | None = None,
) -> pd.DataFrame:
    """Return the documents with the largest shares of a topic, in descending order: id, ``share`` and text.

    ``shares`` is what ``transform`` wrote, or the table that ``TopicModel.transform`` returns. The text is the column
    ``excerpt``, followed by the metadata ``columns``; without texts, the default is all columns. The share of a merged
    topic is the sum over its parts. One pass over the shares. Raises ``InputError`` if they are of another model or
    there is no such topic or column, ``StoreError`` if the model or shares are damaged.
    """
    return frame(query(model, shares, topic=topic, number=number, columns=columns))


def shares_by(
    model: AnyModel | Model,
    shares: AnyShares,
    column: str | Sequence[str] | None = None,
    topic: int | None = None,
) -> pd.DataFrame:
    """Return mean topic shares by the values of a metadata column, one row per value and topic.

    Without ``column`` the mean is over all documents; of several columns, ``"party,date:year"`` or a list, it is over
    the documents of each combination of values that occurs. ``documents`` is the number of these documents,
    ``standard_error`` that of the mean ``share``, and ``label`` the name of the topic. Shares of merged topics are
    added, and hidden topics are omitted. One pass. Raises ``InputError`` if the shares are of another model
    or there is no such column or topic, ``StoreError`` if the model or shares are damaged.
    """
    return frame(query(model, shares, topic=topic, by=column, grouped=True))


def similar_documents(
    model: AnyModel | Model, shares: AnyShares, document: str | int, number: int = DEFAULT_NUMBER
) -> pd.DataFrame:
    """Return the documents nearest to a document by the Hellinger distance (0 to 1) of the stored, unmerged topics.

    Up to two passes. Raises ``InputError`` if the shares are of another model or there is no such document,
    ``StoreError`` if the model or shares are damaged.
    """
    return frame(query(model, shares, similar=str(document), number=number))


def least_explained_documents(
    model: AnyModel | Model, shares: AnyShares, corpus: AnyPath | Corpus, number: int = DEFAULT_NUMBER
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
    return frame(query(model, shares, outliers=corpus, number=number))


@takes(DocumentQuery)
def query(model: AnyModel | Model, shares: AnyShares, *, grouped: bool = False, **options: Any) -> Any:
    """Return ``similar_documents``, ``documents_of_topic``, ``least_explained_documents`` or ``shares_by``.

    The result is an Arrow table; errors are the same.

    The fields of ``DocumentQuery`` are keyword arguments; ``grouped`` requests ``shares_by`` for a ``topic`` without
    ``by``. Raises ``InputError`` if arguments exclude each other.
    """
    asked = DocumentQuery.of(options)
    topic, by, similar = asked.topic, asked.by, asked.similar
    grouped = grouped or (similar is None and asked.outliers is None and (topic is None or by is not None))
    if grouped and asked.number is not None:
        raise InputError(
            f"{option.number} requires {option.similar}, {option.outliers}, or {option.topic} without {option.by}; "
            "leave it out"
        )
    if grouped and asked.columns is not None:
        raise InputError(f"{option.columns} is for lists of documents; leave it out")
    count = asked.number or DEFAULT_NUMBER
    found = ModelShares.open(model, shares)
    if not grouped:
        found = replace(found, file=with_columns(found.file, asked.columns))
    if asked.outliers is not None:
        return least_explained(found, open_corpus(asked.outliers), count)
    if similar is not None:
        return nearest(found.file, similar, count)
    if topic is not None:
        found = found.only(topic)
    if grouped:
        groups = count_cells(found.of_shown, by).groups()
        return pa.concat_tables([one.table(found.shown.numbers, found.shown.names) for one in groups])
    if name := found.shown.names[0]:
        logger.info("topic %s: %s", topic, name)
    return largest(found.of_shown, count)[0]


def with_columns(shares: SharesFile, wanted: Literal["all"] | Sequence[str] | None) -> SharesFile:
    """The shares with the id, the text and the wanted columns only; without a text, the default is all metadata."""
    known = shares.columns
    if wanted == "all":
        return shares
    if wanted is None and EXCERPT not in known:
        wanted = [name for name in known if name != KNOWN_TOKENS]
    chosen = [*dict.fromkeys([*(name for name in (DOCUMENT_ID, EXCERPT) if name in known), *(wanted or ())])]
    shares.require_columns(chosen)
    return replace(shares, columns=tuple(chosen))


def shares_table(model: AnyModel, shares: AnyShares) -> pd.DataFrame:
    """Return the shares of all documents (rows) and shown topics (columns)."""
    import pandas as pd

    found = ModelShares.open(model, shares)
    columns = pd.Index(found.shown.numbers, name="topic")
    parts = []
    for theta, table in found.of_shown.dense([DOCUMENT_ID]):
        index = pd.Index(table.column(DOCUMENT_ID).to_pandas(), name=DOCUMENT_ID)
        parts.append(pd.DataFrame(theta, index, columns))
    table = pd.concat(parts)
    table.attrs[OF_TOPICS] = topics_mark(found.topics.topics_fingerprint, found.shown)
    return table


class Least:
    """Keep the rows with the ``number`` smallest values; ties keep the earlier row."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._values: Floats = np.empty(0)
        self._table: Any = None

    def add(self, values: Floats, table: Any) -> None:
        if self._table is not None:
            values, table = np.concatenate([self._values, values]), pa.concat_tables([self._table, table])
        first = np.argsort(values, kind="stable")[: self._number]
        self._values, self._table = values[first], table.take(pa.array(first))

    def result(self, second: str) -> Any:
        """Return the rows in order, with column ``second`` after the id."""
        others = [name for name in self._table.column_names if name not in (DOCUMENT_ID, second)]
        return self._table.select([DOCUMENT_ID, second, *others])


def largest(shares: SharesFile, number: int) -> list[Any]:
    """Return the documents with the largest shares of each topic: ``document_id``, ``share`` and metadata.

    Documents are in descending order, ties in document order. One pass for all topics. Raises ``StoreError`` if the
    shares are damaged.
    """
    kept = [Least(number) for _ in range(shares.about.n_topics)]
    for theta, table in shares.dense(shares.columns):
        for topic, least in enumerate(kept):
            least.add(-theta[:, topic], with_result(table, SHARE, pa.array(theta[:, topic])))
    return [least.result(SHARE) for least in kept]


def nearest(shares: SharesFile, document: str, number: int) -> Any:
    """Return the documents nearest to a document, excluding itself: ``document_id``, ``distance`` and metadata.

    By the Hellinger distance. Up to two passes. Raises ``InputError`` if there is no such document; ``StoreError`` if
    the shares are damaged.
    """
    kept, before = Least(number), 0
    row, own = _find(shares, document)
    for theta, table in shares.dense(shares.columns):
        distance = hellinger.distances_from(own, theta)
        found = with_result(table, DISTANCE, pa.array(distance))
        others = np.arange(before, before + len(distance)) != row
        before += len(distance)
        kept.add(distance[others], found.filter(pa.array(others)))
    return kept.result(DISTANCE)


def _find(shares: SharesFile, document: str) -> tuple[int, Floats]:
    """Return the row and shares of the first document with this id."""
    before = 0
    for theta, table in shares.dense([DOCUMENT_ID]):
        names = table.column(DOCUMENT_ID).to_pylist()
        row = next((row for row, name in enumerate(names) if str(name) == document), None)
        if row is not None:
            return before + row, theta[row]
        before += len(names)
    raise InputError(f"{shares.path} has no document {document!r}; give one of its column {DOCUMENT_ID}")


def least_explained(shares: ModelShares, corpus: Corpus, number: int) -> Any:
    """Return the ``number`` documents with the smallest ``gains`` as an Arrow table, with their metadata."""
    topics, columns = shares.topics, shares.file.columns
    unigram = topics.term_count / topics.term_count.sum()
    fewest = SHORTEST * corpus.nonzeros / max(corpus.n_documents, 1)
    least = Least(number)
    for counts, theta, table in shares.documents(corpus, columns):
        gain = gains(counts, theta, topics.word_topic, unigram)
        rows = np.flatnonzero(np.diff(counts.indptr) >= max(fewest, 1))
        least.add(gain[rows], with_result(table.select(columns).take(pa.array(rows)), GAIN, [gain[rows]]))
    return least.result(GAIN)


def gains(counts: csr_array[Any], theta: Floats, word_topic: Floats, unigram: Floats) -> Floats:
    """Mean of log(p(w | theta) / p(w)) over the tokens of each document, (M,); 0 without tokens.

    ``counts`` are M x N, ``theta`` M x K, ``word_topic`` N x K, and ``unigram`` p(w), (N,).
    """
    sums, tokens = np.zeros(counts.shape[0]), np.zeros(counts.shape[0])
    for part, rows, given in token_probabilities(counts, theta, word_topic):
        words, weights = counts.indices[part], counts.data[part]
        logs = np.log((1 - SMOOTHING) * ratio(given, unigram[words], 1.0) + SMOOTHING)
        sums += np.bincount(rows, weights * logs, counts.shape[0])
        tokens += np.bincount(rows, weights, counts.shape[0])
    return sums / np.maximum(tokens, 1e-300)
