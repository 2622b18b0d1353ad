"""Inputs of the metrics: plain arrays, the same for every engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streaming_jsmf.inference.completion import Completion
from streaming_jsmf.linalg.panels import panels, ratio
from streaming_jsmf.linalg.probes import keyed_generator
from streaming_jsmf.linalg.typing import Floats, Integers

if TYPE_CHECKING:
    from scipy.sparse import csr_array

#: Up to so many words, Recovery and Approximation use all rows of C; above, those of a draw of words.
MOST_ROWS = 20_000
#: Number of words drawn: standard errors are 1 to 2 % of the value.
DRAWN_ROWS = 2048
#: Entries of the rows of C that are in memory at a time.
BLOCK_ENTRIES = 2**23


@dataclass(frozen=True)
class TopicArrays:
    """A model with N words and K topics; missing arrays are None.

    word_topic : B, (N, K), p(word | topic); columns sum to 1
    top_words : (K, n) ids of the most probable words in descending order; n >= 10 if N >= 10
    word_probability : (N,) unigram distribution of the training corpus
    topic_topic : A, (K, K), joint topic probabilities as recovered; the sum may differ from 1
    topic_probability : (K,) p(topic)
    anchors : S, (K,) word id of the anchor of each topic
    rectified : Y, (N, K), with C* ~ Y Y'
    """

    word_topic: Floats
    top_words: Integers
    word_probability: Floats
    topic_topic: Floats | None = None
    topic_probability: Floats | None = None
    anchors: Integers | None = None
    rectified: Floats | None = None

    @property
    def representatives(self) -> Integers:
        """Word id of each topic, (K,): its anchor, or its most probable word for engines without anchors."""
        return self.top_words[:, 0] if self.anchors is None else self.anchors


class WordDraw(NamedTuple):
    """Draws of words that stand for all: the mean of y(``words``) / ``density`` over the (n,) draws estimates sum y.

    Draws 2 k and 2 k + 1 are independent and of one stratum, so that half their difference gives its standard error.
    """

    words: Integers
    density: Floats


def draw_words(mass: Floats, count: int) -> WordDraw | None:
    """Draw ``count`` words (even), the same for the same arguments; None if there are no more words than that.

    A word is drawn in proportion to the mean of 1 / N and its share of ``mass`` (N,), because Recovery is a mean over
    words, and norms of C depend mostly on frequent words. Strata are words of similar mass, and of equal density.
    """
    n_words = mass.size
    if n_words <= count:
        return None
    order = np.argsort(-mass, kind="stable")
    density = (1.0 / n_words + ratio(mass, mass.sum(keepdims=True), 1.0 / n_words)[order]) / 2
    above = np.cumsum(density)
    strata, draws = np.arange(count // 2), keyed_generator(0, "words for recovery").random((count // 2, 2))
    points = (strata[:, None] + draws).ravel() * (2 / count) * above[-1]
    found = np.minimum(np.searchsorted(above, points), n_words - 1)
    return WordDraw(order[found], density[found] / above[-1])


@dataclass(frozen=True)
class Cooccurrence:
    """C of a corpus (LR-JSMF, Eq. 1, with document weights), of which rows are computed when they are needed.

    row_sum : u = C e, (N,), exact
    rows : rows of C for word ids (n,), as (n, N) float64
    is_whole : whether C is that of all documents, and not of a sample or a sketch of them
    draw : words whose rows stand for all in Recovery and Approximation; None if all rows are used
    """

    row_sum: Floats
    rows: Callable[[Integers], Floats]
    is_whole: bool = True
    draw: WordDraw | None = None

    @classmethod
    def of_documents(
        cls, documents: csr_array[Any], diagonal: Floats, row_sum: Floats, *, is_whole: bool = True
    ) -> Cooccurrence:
        """C = H'H - diag(D) for H (documents x words, CSR) and D (N,); rows of more than 20,000 words are drawn."""
        from streaming_jsmf.linalg.csr import word_rows

        def rows(words: Integers) -> Floats:
            found = word_rows(documents, words)
            # For a word that occurs once in each of its documents the two terms cancel, up to rounding.
            own = (np.arange(words.size), words)
            found[own] = np.maximum(found[own] - diagonal[words], 0.0)
            return found

        few = row_sum.size <= MOST_ROWS
        return cls(row_sum, rows, is_whole, None if few else draw_words(row_sum, DRAWN_ROWS))

    @classmethod
    def of_rows(
        cls, words: Integers, rows: Floats, row_sum: Floats, draw: WordDraw | None = None
    ) -> Cooccurrence:
        """C of which only the rows of some ``words`` (n,), in ascending order, are known; ``draw`` is among them."""
        return cls(row_sum, lambda chosen: rows[np.searchsorted(words, chosen)], draw=draw)

    def among(self, words: Integers) -> Floats:
        """C restricted to word ids (n,), as (n, n)."""
        blocks = row_blocks(words.size, self.row_sum.size)
        return np.concatenate(
            [np.empty((0, words.size)), *(self.rows(words[few])[:, words] for few in blocks)]
        )


def row_blocks(count: int, n_words: int) -> Iterator[slice]:
    """Slices of ``count`` rows of C, a few at a time so that memory is limited."""
    return panels(count, max(1, BLOCK_ENTRIES // n_words))


@dataclass(frozen=True)
class SelectedCounts:
    """Counts of P selected words in one scan of a training or held-out corpus, for a model.

    words : (P,) ascending word ids, including the top, representative and characteristic words of the model
    pairs : (P, P) number of documents with both words; the diagonal is the document frequency
    n_documents : number of documents with two tokens or more of the model's words
    cooccurrence : C of the documents, of which the rows of ``TopicArrays.representatives`` and those of a draw of words
        are known; if given, Recovery and Approximation refer to it
    corpus : JSON values ``path``, ``fingerprint``, ``n_documents`` (all documents) and ``words_found`` (words of the
        model in the corpus)
    completion : None if unknown
    """

    words: Integers
    pairs: Integers
    n_documents: int
    cooccurrence: Cooccurrence | None = None
    corpus: Mapping[str, Any] = field(default_factory=dict)
    completion: Completion | None = None

    def positions(self, ids: Integers) -> Integers:
        """Positions of word ids in ``words``, in the same shape; raises ``ValueError`` if a word was not counted."""
        found = np.searchsorted(self.words, ids)
        missing = ids[np.append(self.words, -1)[found] != ids]
        if missing.size:
            raise ValueError(f"word {missing[0]} is a top word and was not counted")
        return found.astype(np.int64)


def lookup(metrics: Mapping[str, Any], path: str) -> Any:
    """Value of a metric by its path; None if it is missing."""
    value: Any = metrics
    for key in path.split("."):
        value = None if value is None else value.get(key)
    return value
