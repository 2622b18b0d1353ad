"""Topic models of other libraries, fitted to a count matrix in one thread, with results in one form.

They use the defaults of their libraries unless stated. tomotopy and gensim are in the extra `bench`; each library is
imported only where it is used.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Floats = NDArray[np.float64]

#: Steps of ENN after which anchortopics stops.
ENN_STEPS = 20


@dataclass(frozen=True)
class PeerTopics:
    """Topics of another library: ``word_topic`` (N x K), ``prior`` (K,), seconds of fitting, and sweeps or passes.

    Columns of ``word_topic`` sum to 1; words without occurrences are 0. ``topic_topic`` (K x K): joint probabilities of
    topics, the mean over documents of the products of their shares, or that of the prior if shares were not computed.
    """

    word_topic: Floats
    prior: Floats
    cpu_seconds: float
    wall_seconds: float
    steps: int
    topic_topic: Floats


class Clock:
    """CPU and wall seconds since construction."""

    def __init__(self) -> None:
        self._started = time.process_time(), time.perf_counter()

    def seconds(self) -> tuple[float, float]:
        return time.process_time() - self._started[0], time.perf_counter() - self._started[1]


def gibbs(
    counts: sparse.csr_array,
    n_topics: int,
    seed: int,
    sweeps: Sequence[int],
    *,
    alpha: float = 0.1,
    eta: float = 0.01,
    learn_alpha: bool = True,
) -> Iterator[PeerTopics]:
    """Topics of tomotopy's collapsed Gibbs sampler after each number of ``sweeps``, optionally with a learned alpha.

    One run gives all results, so ``sweeps`` must increase. Seconds are those of adding the documents and of the sweeps.
    ``alpha`` is the parameter of each topic, ``eta`` that of each word.
    """
    import tomotopy

    clock, cpu, wall = Clock(), 0.0, 0.0
    model = tomotopy.LDAModel(k=n_topics, alpha=alpha, eta=eta, seed=seed)
    if not learn_alpha:
        model.optim_interval = 0
    for tokens in documents(counts):
        model.add_doc(tokens)
    done = 0
    for number in sweeps:
        model.train(number - done, workers=1)
        done = number
        more_cpu, more_wall = clock.seconds()
        cpu, wall = cpu + more_cpu, wall + more_wall
        ids = np.array([int(word) for word in model.used_vocabs], dtype=np.int64)
        word_topic = np.zeros((counts.shape[1], n_topics))
        for topic in range(n_topics):
            word_topic[ids, topic] = model.get_topic_word_dist(topic)
        shares = np.array([document.get_topic_dist() for document in model.docs], dtype=np.float64)
        alpha_found = np.array(model.alpha, dtype=np.float64)
        yield PeerTopics(word_topic, alpha_found, cpu, wall, number, shares.T @ shares / len(shares))
        clock = Clock()  # reading the topics of this step is not part of the next one


def documents(counts: sparse.csr_array) -> Iterator[list[str]]:
    """Tokens of each non-empty document, as decimal word ids."""
    names = np.arange(counts.shape[1]).astype(str)
    for start, end in zip(counts.indptr[:-1], counts.indptr[1:], strict=True):
        if end > start:
            yield names[np.repeat(counts.indices[start:end], counts.data[start:end])].tolist()


def scikit_lda(counts: sparse.csr_array, n_topics: int, seed: int) -> PeerTopics:
    from sklearn.decomposition import LatentDirichletAllocation

    clock = Clock()
    model = LatentDirichletAllocation(n_topics, learning_method="online", random_state=seed).fit(counts)
    prior = np.full(n_topics, 1.0 / n_topics)
    return PeerTopics(
        _columns(model.components_.T), prior, *clock.seconds(), model.n_iter_, _second_moment(prior)
    )


def scikit_nmf(counts: sparse.csr_array, n_topics: int, seed: int) -> PeerTopics:
    """scikit-learn's MiniBatchNMF (Frobenius) of the counts; NMF has no prior, so ``prior`` contains mean shares."""
    from sklearn.decomposition import MiniBatchNMF

    clock = Clock()
    model = MiniBatchNMF(n_topics, random_state=seed)
    weights = model.fit_transform(counts.astype(np.float64))
    seconds = clock.seconds()
    tokens = weights * model.components_.sum(axis=1)
    shares = tokens / np.maximum(tokens.sum(axis=1, keepdims=True), 1e-300)
    moment = shares.T @ shares / max(shares.sum(), 1.0)
    return PeerTopics(_columns(model.components_.T), shares.mean(axis=0), *seconds, model.n_iter_, moment)


def gensim_lda(counts: sparse.csr_array, n_topics: int, seed: int, passes: int) -> PeerTopics:
    """gensim's online variational LDA; the default of one pass is meant for streams."""
    from gensim.matutils import Sparse2Corpus
    from gensim.models import LdaModel

    clock = Clock()
    words = {i: str(i) for i in range(counts.shape[1])}
    corpus = Sparse2Corpus(counts.tocsr(), documents_columns=False)
    model = LdaModel(corpus, n_topics, id2word=words, passes=passes, random_state=seed)
    topics = np.asarray(model.get_topics(), dtype=np.float64).T
    prior = np.asarray(model.alpha, dtype=np.float64)
    return PeerTopics(topics, prior, *clock.seconds(), passes, _second_moment(prior))


def anchor_topics(counts: sparse.csr_array, n_topics: int, seed: int) -> PeerTopics:
    """anchortopics, LR-JSMF by one of its authors, with its defaults; nothing depends on the seed."""
    from anchortopics import OTFR

    del seed
    clock = Clock()
    found = OTFR(n_topics).fit(counts.astype(np.float64))
    seconds, moment = clock.seconds(), found.topic_correlation_
    shares = np.maximum(moment.sum(axis=1), 1e-6)
    topics = _columns(np.maximum(found.components_.T, 0.0))
    return PeerTopics(topics, shares / shares.sum(), *seconds, ENN_STEPS, moment)


def _second_moment(alpha: Floats) -> Floats:
    """E[theta theta'] of a Dirichlet distribution."""
    total = alpha.sum()
    moment: Floats = (np.outer(alpha, alpha) + np.diag(alpha)) / (total * (total + 1.0))
    return moment


def _columns(weights: Floats) -> Floats:
    columns: Floats = weights / np.maximum(weights.sum(axis=0), 1e-300)
    return columns
