"""Metrics of topics from both papers, against the counted C, and comparisons with another method."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pipelines.common.bags import cooccurrence_counts
from pipelines.common.matching import match_topics, yy_error
from pipelines.common.methods import Setup
from pipelines.common.results import Arrays, Row
from pipelines.common.volume import anchor_points, log_relative_volume, log_volume
from streaming_jsmf.evaluation import coherence, topic_shape
from streaming_jsmf.evaluation.coherence import incoherence_in_cooccurrence
from streaming_jsmf.evaluation.factorization import factorization_errors
from streaming_jsmf.evaluation.inputs import Cooccurrence, TopicArrays
from streaming_jsmf.inference.words import prominent_words
from streaming_jsmf.jobs.blas import single_blas_thread

Floats = NDArray[np.float64]

#: Column of a row -> label of its axis.
METRICS = {
    "relative_recovery": "relative recovery",
    "relative_approximation": "relative approximation",
    "relative_dominancy": "relative dominancy",
    "specificity_2021": "specificity (nats)",
    "dissimilarity": "dissimilarity (of 20 words)",
    "recovery": "recovery",
    "approximation": "approximation",
    "dominancy": "dominancy",
    "specificity_2015": "specificity (nats)",
    "coherence": "coherence (20 words)",
    "npmi": "NPMI (10 words)",
    "incoherence": "MST-incoherence",
    "volume": "log relative volume",
    "unit_volume": "log volume, rows of length 1",
    "scaled_recovery": "relative recovery x sqrt(N)",
    "cpu_seconds": "processor seconds",
    "mean_l1": "L1 to the truth (of 2)",
}

#: Coherence of JSMF 2015: its epsilon and number of words.
EPSILON, COHERENT_WORDS = 0.01, 20


@dataclass(frozen=True)
class Scorer:
    """Scores of methods on one corpus, with C of the exact store."""

    setup: Setup

    def row(self, name: str, n_topics: int, seed: int = 0, first: str = "AP") -> Row:
        """Metrics of a method at K, and its distances from the method ``first`` unless that is empty."""
        setup = self.setup
        topics = setup.topics(name, n_topics, seed)
        key = {**setup.key(name, n_topics, seed), "scores": 1}
        row = setup.results.row(key, lambda: self.metrics(topics))
        shown = {"method": name, "K": n_topics, "seed": seed, **row}
        if first:
            shown |= distances(topics, setup.topics(first, n_topics))
        return shown

    def random_volume(self, n_topics: int) -> float:
        """Log of the mean volume of random hulls, which is the same for all methods at one N and K."""
        key = {"random hulls": n_topics, "words": self.setup.corpus.n_words}
        points = np.eye(n_topics)

        def measured() -> Row:
            with single_blas_thread():
                relative = log_relative_volume(points, self.setup.corpus.n_words)
            own = log_volume(points)
            assert relative is not None
            assert own is not None
            return {"log_volume": own - relative.value}

        return float(self.setup.results.row(key, measured)["log_volume"])

    @cached_property
    def cooccurrence(self) -> Cooccurrence:
        """C as counted."""
        moments = self.setup.moments()
        return Cooccurrence(moments.row_sum, moments.cooccurrence().__getitem__)

    def metrics(self, found: Arrays) -> Row:
        """Metrics of topics in the format of ``Setup.topics``."""
        with single_blas_thread():
            topics = self._topics(found)
            errors = factorization_errors(topics, self.cooccurrence)
            rows = self.cooccurrence.rows(topics.representatives)
            A, B = found["topic_topic"], found["word_topic"]
            points = anchor_points(topics, anchor_rows=rows)
            return {
                "relative_recovery": errors.relative_recovery,
                "recovery": errors.recovery,
                "relative_approximation": errors.relative_approximation,
                "approximation": errors.approximation,
                "relative_dominancy": topic_shape.relative_dominancy(A),
                "dominancy": topic_shape.dominancy(A),
                "specificity_2021": topic_shape.specificity(B, self.cooccurrence.row_sum),
                "specificity_2015": topic_shape.specificity(B, topics.word_probability),
                "dissimilarity": topic_shape.dissimilarity(topics.top_words),
                "incoherence": float(
                    incoherence_in_cooccurrence(topics, self.cooccurrence, anchor_rows=rows).mean()
                ),
                "log_volume": float("nan") if points is None else _number(log_volume(points)),
                "sum_A": float(A.sum()),
                "cpu_seconds": float(found["cpu_seconds"]),
                "iterations": int(found["iterations"]),
                "converged": bool(found["converged"]),
            } | self._coherence(topics.top_words)

    def _topics(self, found: Arrays) -> TopicArrays:
        counted = np.asarray(self.setup.counts.sum(axis=0), dtype=np.float64)
        return TopicArrays(
            found["word_topic"],
            prominent_words(found["word_topic"], topic_shape.DISSIMILARITY_WORDS),
            counted / counted.sum(),
            topic_topic=found["topic_topic"],
            topic_probability=found["topic_probability"],
            anchors=found["anchors"] if found["anchors"].size else None,
            rectified=found["rectified"] if found["rectified"].size else None,
        )

    def _coherence(self, top_words: NDArray[np.int64]) -> Row:
        counts = self.setup.counts
        ids = np.unique(top_words)
        pairs = cooccurrence_counts(counts, ids)
        places, frequency = np.searchsorted(ids, top_words), np.diag(pairs)
        ten = places[:, :10]
        return {
            "coherence": float(
                coherence.coherence(frequency, pairs, places[:, :COHERENT_WORDS], epsilon=EPSILON).mean()
            ),
            "npmi": float(coherence.npmi(frequency, pairs, counts.shape[0], ten).mean()),
            "distinct": coherence.distinct_share(top_words[:, :10]),
        }


def distances(found: Arrays, first: Arrays) -> Row:
    """Shared anchors, L1 of matched topics and, if both have a Y, the error of Y Y' and ``pivot_gap``."""
    l1 = match_topics(found["word_topic"], first["word_topic"]).l1
    shared = len({*found["anchors"].tolist()} & {*first["anchors"].tolist()})
    both = found["rectified"].size and first["rectified"].size
    return {
        "anchors_shared": shared if found["anchors"].size else None,
        "l1": float(l1.mean()),
        "median_l1": float(np.median(l1)),
        "yy_error": yy_error(found["rectified"], first["rectified"]) if both else None,
        "pivot_gap": pivot_gap(first, found["anchors"]) if both else None,
    }


def pivot_gap(first: Arrays, anchors: NDArray[np.int64]) -> float | None:
    """How close the first differing choice of anchors is, in the Y of ``first``; None if all anchors agree.

    Relative difference of the residual norms of the two words at the first pivoting step in which ``anchors`` and the
    anchors of ``first`` differ. A value near 0 is a tie.
    """
    Y, own = first["rectified"], first["anchors"]
    apart = np.flatnonzero(own != anchors)
    if not apart.size:
        return None
    step = int(apart[0])
    sums = Y @ Y.sum(axis=0)
    turned = np.linalg.qr(Y).R.T
    chosen = np.concatenate([own[: step + 1], anchors[step : step + 1]])
    rows = Y[chosen] @ turned / sums[chosen, None]
    q = np.linalg.qr(rows[:step].T).Q
    left, other = (float(np.linalg.norm(row - (row @ q) @ q.T)) for row in rows[step:])
    return 1.0 - other / left


def _number(value: float | None) -> float:
    return float("nan") if value is None else value
