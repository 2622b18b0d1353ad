"""Topics over time: mean shares per period with intervals, changes of topics, and words of a topic in each period."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.config import OverTimeRequest, takes
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.documents.cells import Cell, Cells, count_cells, rows_of_cells
from streaming_jsmf.documents.groups import Grouping, Groups, is_time
from streaming_jsmf.documents.model_shares import AnyShares, ModelShares, token_probabilities
from streaming_jsmf.documents.shares import with_result
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.linalg.panels import ratio
from streaming_jsmf.linalg.typing import Floats
from streaming_jsmf.storage.paths import AnyPath
from streaming_jsmf.topics.edits import EditedTopics
from streaming_jsmf.topics.store import AnyModel

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)

#: Words of each topic among which those of a period are chosen.
CANDIDATES = 200
#: Tokens of the whole topic that are added to those of each period, so that a few tokens do not decide.
SMOOTHING = 50.0
#: Weight of the logarithm of p(word | topic, period) against that of its ratio to p(word | topic).
RELEVANCE = 0.6
#: Result columns besides those of ``groups``.
LOW, HIGH, CHANGE, CHANGE_ERROR, WORDS = "low", "high", "change", "change_error", "words"


@takes(OverTimeRequest)
def over_time(model: AnyModel, shares: AnyShares, by: str | Sequence[str], **options: Any) -> pd.DataFrame:
    """Return mean topic shares in each period of time, one row per period and topic.

    The first column has the period, ``documents`` the number of its documents, ``share`` the mean share and
    ``standard_error`` its standard error; ``low`` and ``high`` are 1.96 of them below and above (of fewer than 30
    documents more, by Student's t), an interval of 95 % if documents are drawn at random. ``change`` is by how much the
    mean share of the topic over the documents of the last third of the periods is above (or below) that of the first
    third, and ``change_error`` its standard error. One pass over the shares, and one over the documents with
    ``corpus``, which adds the column ``words``: characteristic words of the topic in documents of the period. Documents
    without a date are left out.

    Of several columns, ``"party,date:month"`` or a list of them, one is the time: that of dates or years, or else the
    first of numbers. The others are groups of documents, in columns before the period, each with its own changes.

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
    return over_time_of(model, shares, by, **options).table().to_pandas()


def over_time_of(
    model: AnyModel, shares: AnyShares, by: str | Sequence[str], **options: Any
) -> TopicsOverTime:
    """Return ``over_time`` as periods and topics."""
    asked = OverTimeRequest.of({**options, "by": by})
    if asked.words is not None and asked.corpus is None:
        raise InputError(f"{option.words} requires {option.corpus}, whose documents are read; give both")
    if not asked.by:
        raise InputError(f"{option.by} is missing; give a column of dates or numbers")
    found = ModelShares.open(model, shares)
    if asked.topic is not None:
        found = found.only(asked.topic)
    cells = count_cells(found.of_shown, asked.by)
    series = _times(cells, asked.by)
    if asked.corpus is None:
        return TopicsOverTime(series, found.shown)
    columns = [cells.columns[place] for place in cells.time_last]
    return TopicsOverTime(series, found.shown, period_words(found, columns, asked.corpus, asked.words or 5))


def _times(cells: Cells, by: Sequence[str]) -> tuple[Groups, ...]:
    """Periods of each group, without documents that have no date; raise ``InputError`` if no column has times."""
    series = cells.groups(cells.time_last)
    unknown = sum(groups.unknown for groups in series)
    if unknown:
        total, column = f"{sum(cells.documents.values()):,}", by[cells.time_last[-1]]
        logger.warning(
            "over-time: documents without %s, which are left out: %s of %s", column, f"{unknown:,}", total
        )
    if cells.time is None:
        values = (value for groups in series for value in groups.known.values if not is_time(value))
        wrong = next(values, None)
        raise InputError(
            f"column {by[-1]!r} holds {'no dates' if wrong is None else repr(wrong)}; give one of numbers or dates, or "
            f"use documents with {option.by}, which takes any column"
        )
    return tuple(groups.known for groups in series if groups.known.values)


@dataclass(frozen=True)
class TopicsOverTime:
    """Mean shares of the shown topics in periods, a series for each group of documents, by default for all.

    ``words`` are those of the topics (by number) in each cell, a group and a period, if known.
    """

    series: tuple[Groups, ...]
    shown: EditedTopics
    words: Mapping[Cell, Mapping[int, Sequence[str]]] | None = None

    def table(self) -> Any:
        """The columns of ``over_time`` as an Arrow table."""
        return pa.concat_tables([*map(self._table, self.series)])

    def words_of(self, periods: Groups, topic: int) -> list[str]:
        """The words of a topic in each period of a series, separated by commas; empty if they are not known."""
        outer = tuple(value for _, value, _ in periods.within)
        cells = ((self.words or {}).get((*outer, when), {}) for when in periods.values)
        return [", ".join(cell.get(topic, ())) for cell in cells]

    def _table(self, periods: Groups) -> Any:
        topics, change = self.shown.numbers, periods.change
        found = periods.table(topics, self.shown.names)
        low, high = periods.intervals
        columns = {
            LOW: low.ravel(),
            HIGH: high.ravel(),
            CHANGE: np.tile(change[0], len(low)),
            CHANGE_ERROR: np.tile(change[1], len(low)),
        }
        for name, values in columns.items():
            found = with_result(found, name, pa.array(values, mask=np.isnan(values)))
        if self.words is None:
            return found
        of_topics = zip(*(self.words_of(periods, topic) for topic in topics), strict=True)
        return with_result(found, WORDS, [[text for row in of_topics for text in row]])


def period_words(
    shares: ModelShares, columns: Sequence[Grouping], corpus: AnyPath | Corpus, count: int
) -> dict[Cell, dict[int, list[str]]]:
    """Return the ``count`` most characteristic words of each topic in each cell. One pass over the corpus.

    The tokens of each document are assigned to topics given its shares: E[n_kw] = n_w theta_k phi_kw / sum_j theta_j
    phi_jw. With p(w | k, t) from their sums over a period and p(w | k) from those over all periods, the 200 most
    probable words of a topic are sorted by their relevance .6 log p(w | k, t) + .4 log(p(w | k, t) / p(w | k))
    (Sievert and Shirley, 2014).
    """
    shown = shares.shown
    listed = shown.listed_words(CANDIDATES)
    used, places = np.unique(listed, return_inverse=True)
    word_topic = shares.topics.word_topic[used]
    sums: dict[Cell, Floats] = {}
    for counts, theta, table in shares.documents(corpus, [one.column for one in columns]):
        known = counts[:, used]
        ratios = csr_array((_ratios(known, theta, word_topic), known.indices, known.indptr), known.shape)
        for cell, rows in rows_of_cells(columns, table):
            tokens = word_topic * np.asarray(csr_array(ratios[rows]).T @ theta[rows])
            of_shown = np.stack([tokens[:, list(group)].sum(axis=1) for group in shown.groups])
            total = sums.setdefault(cell, np.zeros(listed.shape))
            total += np.take_along_axis(of_shown, places.reshape(listed.shape), axis=1)
    return _chosen(shown, listed, sums, count)


def _ratios(counts: csr_array[Any], theta: Floats, word_topic: Floats) -> Floats:
    """Counts divided by the probability of the word in the document, for each nonzero."""
    found = np.empty(counts.nnz)
    for part, _, probability in token_probabilities(counts, theta, word_topic):
        found[part] = ratio(counts.data[part], probability)
    return found


def _chosen(
    shown: EditedTopics, listed: NDArray[np.int64], sums: dict[Cell, Floats], count: int
) -> dict[Cell, dict[int, list[str]]]:
    words, total = shown.words, np.sum(list(sums.values()), axis=0)
    overall = (total + 1e-9) / (total + 1e-9).sum(axis=1, keepdims=True)
    chosen: dict[Cell, dict[int, list[str]]] = {}
    for cell, tokens in sums.items():
        smoothed = tokens + SMOOTHING * overall
        probability = smoothed / smoothed.sum(axis=1, keepdims=True)
        relevance = RELEVANCE * np.log(probability) + (1 - RELEVANCE) * np.log(probability / overall)
        best = np.take_along_axis(listed, np.argsort(-relevance, axis=1, kind="stable")[:, :count], axis=1)
        rows = zip(shown.numbers, best, tokens, strict=True)
        chosen[cell] = {
            number: [str(words[word]) for word in row] for number, row, own in rows if own.sum() > 0
        }
    return chosen
