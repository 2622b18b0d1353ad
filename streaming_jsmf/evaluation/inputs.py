"""What the metrics are computed from: plain arrays, the same for every engine, and where each may be missing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.linalg.probes import gaussian_probes
from streaming_jsmf.linalg.typing import FloatArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

#: Probes of a sketch: standard errors of some per cent, in 8 N s bytes.
SKETCH_PROBES = 64

#: Label of these probes, which makes them independent of all others.
SKETCH_LABEL = "evaluation"


@dataclass(frozen=True)
class Estimate:
    """A value that random numbers took part in, and its standard error."""

    value: float
    standard_error: float


@dataclass(frozen=True)
class TopicArrays:
    """A model, as the metrics see it. N words, K topics; None where an engine has no such array.

    Attributes
    ----------
    word_topic
        B, (N, K), p(word | topic); columns sum to 1.
    top_words
        (K, n) ids of the most probable words of each topic, best first; n >= 10 where there are as many words.
    word_probability
        (N,) share of each word in the tokens of the training corpus; sums to 1.
    topic_topic
        A, (K, K), joint topic probabilities as recovered (their sum need not be 1).
    topic_probability
        (K,) p(topic); sums to 1.
    anchors
        S, (K,) word ids, anchor k for topic k.
    rectified
        Y, (N, K), with C* ~ Y Y'.

    Raises
    ------
    ValueError
        If a shape does not fit ``word_topic``.
    """

    word_topic: Floats
    top_words: Integers
    word_probability: Floats
    topic_topic: Floats | None = None
    topic_probability: Floats | None = None
    anchors: Integers | None = None
    rectified: Floats | None = None

    def __post_init__(self) -> None:
        if self.word_topic.ndim != 2 or 0 in self.word_topic.shape:
            raise ValueError(f"word_topic has the shape {self.word_topic.shape}; words x topics are needed")
        n_words, n_topics = self.word_topic.shape
        _require_shape("word_probability", self.word_probability, (n_words,))
        _require_shape("topic_topic", self.topic_topic, (n_topics, n_topics))
        _require_shape("topic_probability", self.topic_probability, (n_topics,))
        _require_shape("anchors", self.anchors, (n_topics,))
        if self.rectified is not None:
            _require_shape("rectified", self.rectified, (n_words, self.rectified.shape[-1]))
        if self.top_words.ndim != 2 or len(self.top_words) != n_topics or self.top_words.shape[1] == 0:
            raise ValueError(f"top_words has the shape {self.top_words.shape}; topics x words are needed")

    @property
    def representatives(self) -> Integers:
        """(K,) one word id a topic: its anchor, or its most probable word where the engine has no anchors."""
        return self.top_words[:, 0] if self.anchors is None else self.anchors


@dataclass(frozen=True)
class Cooccurrence:
    """C of a corpus (LR-JSMF, Eq. 1, with document weights) through what a moments store holds; never N x N.

    Attributes
    ----------
    factor
        F, (N, L) float32, with F F' ~ C + diag(D).
    diagonal
        D, (N,), exact.
    row_sum
        u = C e, (N,), exact.

    Raises
    ------
    ValueError
        If the lengths differ.
    """

    factor: NDArray[np.float32]
    diagonal: Floats
    row_sum: Floats

    def __post_init__(self) -> None:
        n_words = len(self.factor)
        _require_shape("factor", self.factor, (n_words, self.factor.shape[-1]))
        _require_shape("diagonal", self.diagonal, (n_words,))
        _require_shape("row_sum", self.row_sum, (n_words,))


@dataclass(frozen=True)
class RowSketch:
    """C G for random probes G, from the scan that counts: what a factor lost of C can be estimated from it.

    Additive over partitions like the second scan of a moments store, with G in the place of its basis.

    Attributes
    ----------
    products
        C G, (N, s), divided by the total weight; s >= 2, and ``SKETCH_PROBES`` by custom.
    row_sum
        u = C e of the same documents, (N,).
    seed
        G is ``sketch_probes(N, s, seed)``.

    Raises
    ------
    ValueError
        If the lengths differ, or there are fewer than two probes.
    """

    products: FloatArray
    row_sum: Floats
    seed: int = 0

    def __post_init__(self) -> None:
        if self.products.ndim != 2 or self.products.shape[1] < 2:
            raise ValueError(f"the sketch has the shape {self.products.shape}; words x at least 2 are needed")
        _require_shape("row_sum", self.row_sum, (len(self.products),))

    @property
    def probes(self) -> NDArray[np.float32]:
        """G, (N, s), drawn again."""
        n_words, width = self.products.shape
        return sketch_probes(n_words, width, self.seed)


def sketch_probes(n_words: int, width: int = SKETCH_PROBES, seed: int = 0) -> NDArray[np.float32]:
    """The standard normal probes G of ``RowSketch``, (n_words, width); a pure function of its arguments."""
    return gaussian_probes(n_words, width, seed, SKETCH_LABEL)


@dataclass(frozen=True)
class SelectedCounts:
    """What one scan of a corpus, training or held out, counts of P selected words.

    ``words``, ``pairs`` and ``n_documents`` of parts of a corpus add up to those of the whole.

    Attributes
    ----------
    words
        (P,) ids, rising: at least the top words and the representatives of the model. MST-Incoherence on documents
        chooses its characteristic words among these, so those of the model belong here too.
    pairs
        (P, P) documents that hold both words; the diagonal is the document frequency.
    n_documents
        Documents counted.
    anchor_rows
        (K, N) exact rows of C, divided by the total weight, of ``TopicArrays.representatives``.
    sketch
        Of C; with it Recovery and Approximation are those of the documents, and not of the factor.

    Raises
    ------
    ValueError
        If ``words`` does not rise, ``pairs`` does not fit it, or there are no documents.
    """

    words: Integers
    pairs: Integers
    n_documents: int
    anchor_rows: Floats | None = None
    sketch: RowSketch | None = None

    def __post_init__(self) -> None:
        if self.words.ndim != 1 or bool((np.diff(self.words) <= 0).any()):
            raise ValueError("the selected words must be distinct ids in rising order")
        _require_shape("pairs", self.pairs, (self.words.size, self.words.size))
        if self.n_documents < 1:
            raise ValueError("counts of selected words need at least one document")

    def places(self, ids: Integers) -> Integers:
        """Places in ``words`` of word ids, in an array of the same shape; -1 for an id that was not counted."""
        if self.words.size == 0:
            return np.full(ids.shape, -1, dtype=np.int64)
        found = np.minimum(np.searchsorted(self.words, ids), self.words.size - 1)
        return np.where(self.words[found] == ids, found, -1).astype(np.int64)


def _require_shape(name: str, array: NDArray[np.generic] | None, wanted: tuple[int, ...]) -> None:
    if array is not None and array.shape != wanted:
        raise ValueError(f"{name} has the shape {array.shape}; {wanted} is needed")
