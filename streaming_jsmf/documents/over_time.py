"""Topics over time: mean shares per period with intervals, changes of topics, and words of a topic in each period."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.config import OverTimeRequest, takes
from streaming_jsmf.corpus.format import Corpus, open_corpus
from streaming_jsmf.corpus.vocabulary import over_vocabulary
from streaming_jsmf.documents import queries
from streaming_jsmf.documents.matched import matched_documents
from streaming_jsmf.documents.merged_shares import open_shares_of
from streaming_jsmf.documents.queries import DOCUMENTS, ERROR, SHARE, TOPIC
from streaming_jsmf.errors import InputError
from streaming_jsmf.storage.paths import AnyPath
from streaming_jsmf.topics.edits import EditedTopics, shown_topics
from streaming_jsmf.topics.parameters import NEEDED, OPTIONAL, TopicParameters
from streaming_jsmf.topics.store import AnyModel, model_path, read_model

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)

Floats = NDArray[np.float64]

#: Standard errors on each side of a mean in an interval of 95 %.
NORMAL = 1.96

#: Words of each topic among which those of a period are chosen.
CANDIDATES = 200

#: Tokens of the whole topic that are added to those of each period, so that a few tokens do not decide.
SMOOTHING = 50.0

#: Weight of the logarithm of p(word | topic, period) against that of its ratio to p(word | topic).
RELEVANCE = 0.6

#: Nonzeros whose topic shares are computed together.
NONZEROS = 100_000

#: Result columns besides those of ``queries``.
LOW, HIGH, CHANGE, CHANGE_ERROR, WORDS = "low", "high", "change", "change_error", "words"


@takes(OverTimeRequest)
def over_time(model: AnyModel, shares: str | Path, by: str, **options: Any) -> pd.DataFrame:
    """Return mean topic shares in each period of time, one row per period and topic.

    The first column has the period, ``documents`` the number of its documents, ``share`` the mean share and
    ``standard_error`` its standard error; ``low`` and ``high`` are 1.96 of them below and above, an interval of 95 % if
    documents are drawn at random. ``change`` is by how much the mean share of the topic over the documents of the last
    third of the periods is above (or below) that of the first third, and ``change_error`` its standard error. One pass
    over the shares, and one over the documents with ``corpus``, which adds the column ``words``: characteristic words
    of the topic in documents of the period. Documents without a date are left out.

    Parameters
    ----------
    shares
        The file that ``transform`` wrote with the model.

    Raises
    ------
    InputError
        If the shares are of another model, there is no such column or topic, the values are not times, or documents of
        the corpus have no shares.

    Examples
    --------
    >>> over_time("model", "shares.parquet", "date:month")  # doctest: +SKIP
    """
    return over_time_table(model, shares, by, **options).to_pandas()


def over_time_table(model: AnyModel, shares: str | Path, by: str, **options: Any) -> Any:
    """Return ``over_time`` as an Arrow table."""
    asked = OverTimeRequest.of({**options, "by": by})
    if asked.words is not None and asked.corpus is None:
        raise InputError("--words requires --corpus, whose documents are read; give both")
    found = queries.query(model, shares, by=by, topic=asked.topic, grouped=True)
    period = found.column_names[0]
    found = _with_times_only(found, by)
    n_topics = len(set(found.column(TOPIC).to_pylist()))
    share, error, documents = (
        np.asarray(found.column(name).fill_null(np.nan) if name == ERROR else found.column(name)).reshape(
            -1, n_topics
        )
        for name in (SHARE, ERROR, DOCUMENTS)
    )
    change, change_error = changes(share, error, documents[:, 0])
    columns = {
        LOW: np.maximum(share - NORMAL * error, 0.0).ravel(),
        HIGH: np.minimum(share + NORMAL * error, 1.0).ravel(),
        CHANGE: np.tile(change, len(share)),
        CHANGE_ERROR: np.tile(change_error, len(share)),
    }
    for name, values in columns.items():
        found = found.append_column(name, pa.array(values, mask=np.isnan(values)))
    if asked.corpus is None:
        return found
    words = period_words(model, shares, by, asked.corpus, asked.words or 5)
    rows = zip(found.column(period).to_pylist(), found.column(TOPIC).to_pylist(), strict=True)
    return found.append_column(WORDS, [[", ".join(words[when].get(topic, ())) for when, topic in rows]])


def _with_times_only(found: Any, by: str) -> Any:
    """Leave out the group without a date; raise ``InputError`` unless the others are times."""
    column = found.column(0)
    missing = found.filter(column.is_null())
    if missing.num_rows:
        number = missing.column(DOCUMENTS)[0].as_py()
        logger.info("over-time: documents without %s, which are left out: %s", by, f"{number:,}")
    found = found.filter(column.is_valid())
    wrong = next((value for value in found.column(0).to_pylist() if not queries.is_time(value)), None)
    if wrong is not None or not found.num_rows:
        raise InputError(
            f"column {by!r} holds {'no dates' if wrong is None else repr(wrong)}; give one of numbers or dates, or "
            "documents --by, which takes any column"
        )
    return found


def thirds(documents: NDArray[Any]) -> Floats:
    """Weights (2, P) of periods in the mean over documents of the first, and of the last third of the periods.

    ``documents`` (P,) are their numbers; fewer than three periods count as one each.
    """
    third = max(1, len(documents) // 3)
    weights: Floats = np.zeros((2, len(documents)))
    weights[0, :third], weights[1, -third:] = documents[:third], documents[-third:]
    weights /= weights.sum(axis=1, keepdims=True)
    return weights


def changes(share: Floats, error: Floats, documents: NDArray[Any]) -> tuple[Floats, Floats]:
    """Changes of topics (K,) from the first to the last third of the periods, and their standard errors.

    ``share`` and its standard ``error`` are (P, K), ``documents`` (P,). A period of one document, whose error is NaN,
    has the mean standard deviation of the others. NaN for a single period, or without any error.
    """
    if len(share) < 2:
        return np.full(share.shape[1], np.nan), np.full(share.shape[1], np.nan)
    first, last = thirds(documents)
    weight = documents.astype(float)[:, None]
    variance = weight * np.square(error)
    known = np.where(np.isnan(variance), 0.0, weight)
    with np.errstate(invalid="ignore", divide="ignore"):
        pooled = (known * np.nan_to_num(variance)).sum(axis=0) / known.sum(axis=0)
    variance = np.where(np.isnan(variance), pooled, variance) / weight
    return (last - first) @ share, np.sqrt(np.square(last - first) @ variance)


def period_words(
    model: AnyModel, shares: str | Path, by: str, corpus: AnyPath | Corpus, count: int
) -> dict[Any, dict[int, list[str]]]:
    """Return the ``count`` most characteristic words of each topic in each period. One pass over the corpus.

    The tokens of each document are assigned to topics given its shares: E[n_kw] = n_w theta_k phi_kw / sum_j theta_j
    phi_jw. With p(w | k, t) from their sums over a period and p(w | k) from those over all periods, the 200 most
    probable words of a topic are sorted by their relevance .6 log p(w | k, t) + .4 log(p(w | k, t) / p(w | k))
    (Sievert and Shirley, 2014).
    """
    shown = shown_topics(model)
    topics = TopicParameters.of(read_model(model_path(model), NEEDED, OPTIONAL))
    listed = shown.listed_words(CANDIDATES)
    used, places = np.unique(listed, return_inverse=True)
    word_topic = topics.word_topic[used]
    file = open_shares_of(model, shares)
    opened = corpus if isinstance(corpus, Corpus) else open_corpus(corpus)
    ids, places_of = topics.ids_of_corpus(opened), np.full(len(topics.words), -1)
    places_of[used] = np.arange(used.size)
    ids = np.where(ids >= 0, places_of[ids], -1)
    sums: dict[Any, Floats] = {}
    column, label, _ = queries.grouping(file, by)
    for counts, table in matched_documents(file, opened, [column]):
        theta, values = file.about.dense(table), table.column(column)
        known = over_vocabulary(counts, ids, used.size)
        ratios = csr_array((_ratios(known, theta, word_topic), known.indices, known.indptr), known.shape)
        for period, rows in queries.rows_by_value(values if label is None else label(values)):
            tokens = word_topic * np.asarray(csr_array(ratios[rows]).T @ theta[rows])
            of_shown = np.stack([tokens[:, list(group)].sum(axis=1) for group in shown.groups])
            total = sums.setdefault(period, np.zeros(listed.shape))
            total += np.take_along_axis(of_shown, places.reshape(listed.shape), axis=1)
    return _chosen(shown, listed, sums, count)


def _ratios(counts: csr_array[Any], theta: Floats, word_topic: Floats) -> Floats:
    """Counts divided by the probability of the word in the document, for each nonzero."""
    rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    found = np.empty(len(rows))
    for start in range(0, len(rows), NONZEROS):
        part = slice(start, start + NONZEROS)
        probability = np.einsum("nk,nk->n", theta[rows[part]], word_topic[counts.indices[part]])
        found[part] = np.divide(
            counts.data[part], probability, out=np.zeros(len(probability)), where=probability > 0
        )
    return found


def _chosen(
    shown: EditedTopics, listed: NDArray[np.int64], sums: dict[Any, Floats], count: int
) -> dict[Any, dict[int, list[str]]]:
    words, total = shown.model.arrays["word"], np.sum(list(sums.values()), axis=0)
    overall = (total + 1e-9) / (total + 1e-9).sum(axis=1, keepdims=True)
    chosen: dict[Any, dict[int, list[str]]] = {}
    for period, tokens in sums.items():
        smoothed = tokens + SMOOTHING * overall
        probability = smoothed / smoothed.sum(axis=1, keepdims=True)
        relevance = RELEVANCE * np.log(probability) + (1 - RELEVANCE) * np.log(probability / overall)
        best = np.take_along_axis(listed, np.argsort(-relevance, axis=1, kind="stable")[:, :count], axis=1)
        rows = zip(shown.numbers, best, tokens, strict=True)
        chosen[period] = {
            number: [str(words[word]) for word in row] for number, row, own in rows if own.sum() > 0
        }
    return chosen
