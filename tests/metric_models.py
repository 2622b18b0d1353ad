"""Small models and the counts that their metrics need, with the irregularities of real ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.evaluation.inputs import Cooccurrence, SelectedCounts, TopicArrays
from tests.reference import mean_of_shares

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """documents: H, (M, N) counts; the other fields are arguments of evaluate_topics."""

    documents: Floats
    topics: TopicArrays
    cooccurrence: Cooccurrence
    counts: SelectedCounts


def cooccurrence_of(H: Floats) -> Cooccurrence:
    """C of the documents (uniform weights), as a store that holds them all gives it."""
    kept = H[H.sum(axis=1) >= 2]
    n = kept.sum(axis=1)
    scaled = kept / np.sqrt(n * (n - 1) * len(kept))[:, None]
    diagonal = (kept / (n * (n - 1))[:, None]).sum(axis=0) / len(kept)
    return Cooccurrence.of_documents(csr_array(scaled), diagonal, mean_of_shares(H))


def counts_of(H: Floats, topics: TopicArrays) -> SelectedCounts:
    """Document frequencies of top words, anchors and every third word."""
    chosen = np.unique(
        np.concatenate([topics.top_words.ravel(), topics.representatives, np.arange(0, H.shape[1], 3)])
    )
    present = (H[:, chosen] > 0).astype(np.int64)
    return SelectedCounts(chosen, present.T @ present, len(H))


def make_case(seed: int, n_words: int = 30, n_topics: int = 4) -> Case:
    """Documents of random topics, with rare words and one without occurrences, and a model near the truth."""
    rng = np.random.default_rng(seed)
    B = rng.dirichlet(np.full(n_words, 0.3), size=n_topics).T
    B[-1] = 0.0
    B /= B.sum(axis=0)
    lengths = rng.integers(2, 25, size=60)
    shares = rng.dirichlet(np.full(n_topics, 0.4), size=60)
    H = np.array([rng.multinomial(n, B @ share) for n, share in zip(lengths, shares, strict=True)], float)
    B = np.where(rng.random(B.shape) < 0.2, 0.0, B) + 1e-3 * (rng.random(B.shape) < 0.3)
    B[0] += 1e-6
    B /= B.sum(axis=0)
    A = shares.T @ shares / len(shares)
    top = np.argsort(-B, axis=0, kind="stable")[:20].T.astype(np.int64)
    Y = np.abs(rng.normal(size=(n_words, n_topics))) / n_words
    anchors = rng.choice(n_words - 1, size=n_topics, replace=False).astype(np.int64)
    topics = TopicArrays(B, top, H.sum(axis=0) / H.sum(), A, A.sum(axis=1), anchors, Y)
    return Case(H, topics, cooccurrence_of(H), counts_of(H, topics))


def reordered(topics: TopicArrays, order: NDArray[np.int64]) -> TopicArrays:
    return replace(
        topics,
        word_topic=topics.word_topic[:, order],
        top_words=topics.top_words[order],
        topic_topic=None if topics.topic_topic is None else topics.topic_topic[np.ix_(order, order)],
        topic_probability=None if topics.topic_probability is None else topics.topic_probability[order],
        anchors=None if topics.anchors is None else topics.anchors[order],
    )


def cases() -> st.SearchStrategy[Case]:
    """Models of 1 to 5 topics and 6 to 30 words."""
    return st.builds(make_case, st.integers(0, 10**6), st.integers(6, 30), st.integers(1, 5))
