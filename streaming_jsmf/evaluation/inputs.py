"""Inputs of the metrics: plain arrays, the same for every engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.inference.perplexity import Completion
from streaming_jsmf.linalg.probes import gaussian_probes
from streaming_jsmf.linalg.typing import FloatArray, Floats, Integers

#: Default number of probes s: standard errors of a few percent, using 8 N s bytes.
SKETCH_PROBES = 64
#: Makes these probes independent of all others.
SKETCH_LABEL = "evaluation"


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


@dataclass(frozen=True)
class Cooccurrence:
    """C of a corpus (LR-JSMF, Eq. 1, with document weights) as a moments store holds it.

    ``factor`` is F (N, L) float32 with F F' ~ C + diag(D); ``diagonal`` D and ``row_sum`` u = C e, (N,), are exact.
    ``counted`` is C itself, (N, N), if all pairs of words were counted.
    """

    factor: NDArray[np.float32]
    diagonal: Floats
    row_sum: Floats
    counted: Floats | None = None


@dataclass(frozen=True)
class RowSketch:
    """C G for random probes G, to estimate the part of C that the factor of a moments store lost; additive.

    ``products`` is C G (N, s), s >= 2, divided by the total weight; ``row_sum`` (N,) is u = C e of the same documents;
    G is ``sketch_probes(N, s, seed)``.
    """

    products: FloatArray
    row_sum: Floats
    seed: int = 0

    @property
    def probes(self) -> NDArray[np.float32]:
        """G, (N, s), regenerated."""
        n_words, width = self.products.shape
        return sketch_probes(n_words, width, self.seed)


def sketch_probes(n_words: int, width: int = SKETCH_PROBES, seed: int = 0) -> NDArray[np.float32]:
    """Standard normal probes G of ``RowSketch``, (n_words, width), determined by the arguments.

    Counts use the default seed whatever that of the metrics, so that changing the latter needs no new scan.
    """
    return gaussian_probes(n_words, width, seed, SKETCH_LABEL)


@dataclass(frozen=True)
class SelectedCounts:
    """Counts of P selected words in one scan of a training or held-out corpus, for a model.

    words : (P,) ascending word ids, including the top, representative and characteristic words of the model
    pairs : (P, P) number of documents with both words; the diagonal is the document frequency
    n_documents : number of documents with two tokens or more of the model's words
    anchor_rows : (K, N) exact rows of C of ``TopicArrays.representatives``, divided by the total weight
    sketch : sketch of C; if given, Recovery and Approximation refer to its documents and are estimated
    characteristic_words : (K, ranks) word ids by the anchor rows
    corpus : JSON values ``path``, ``fingerprint``, ``n_documents`` (all documents) and ``words_found`` (words of the
        model in the corpus)
    completion : None if unknown
    """

    words: Integers
    pairs: Integers
    n_documents: int
    anchor_rows: Floats | None = None
    sketch: RowSketch | None = None
    characteristic_words: Integers | None = None
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
