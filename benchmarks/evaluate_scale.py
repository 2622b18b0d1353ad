"""Time and memory of all metrics of a large model.

    python -m benchmarks.evaluate_scale [--words 100000] [--topics 100] [--replicas 5]

Topics, documents and counts are random, with the shapes and sizes of a real model of this vocabulary; nothing is read.
Prints seconds and peak memory of the process, and the memory of the inputs alone.
"""

from __future__ import annotations

import time

import click
import numpy as np
from scipy.sparse import csr_array

from streaming_jsmf.evaluation.inputs import Cooccurrence, SelectedCounts, TopicArrays
from streaming_jsmf.evaluation.metrics import evaluate_topics
from streaming_jsmf.inference.words import prominent_words
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.process_limits import peak_memory

#: Listed words per topic, documents of the corpus, those that the store holds, and their tokens.
LISTED, DOCUMENTS, HELD, LENGTH = 20, 1_000_000, 100_000, 100


def draw_topics(rng: np.random.Generator, n_words: int, n_topics: int) -> TopicArrays:
    """Sparse topics with Zipf's law over all words; word k is the anchor of topic k."""
    share = 1.0 / np.arange(1, n_words + 1)
    word_topic = rng.gamma(0.05, size=(n_words, n_topics)) * rng.permutation(share)[:, None]
    word_topic[:n_topics] = np.diag(word_topic.sum(axis=0) * 0.01)
    word_topic /= word_topic.sum(axis=0)
    probability = rng.dirichlet(np.full(n_topics, 5.0))
    correlations = np.diag(0.5 * probability) + 0.5 * np.outer(probability, probability)
    return TopicArrays(
        word_topic,
        prominent_words(word_topic, LISTED),
        word_topic @ probability,
        correlations,
        probability,
        np.arange(n_topics),
        word_topic @ np.linalg.cholesky(correlations),
    )


def draw_cooccurrence(rng: np.random.Generator, topics: TopicArrays) -> Cooccurrence:
    """C of documents that have one topic each."""
    of_topic = np.bincount(rng.choice(topics.topic_probability.size, HELD, p=topics.topic_probability))
    words = [
        rng.choice(len(topics.word_topic), (count, LENGTH), p=topics.word_topic[:, topic])
        for topic, count in enumerate(of_topic)
    ]
    indices = np.vstack(words).ravel()
    documents = csr_array(
        (np.ones(indices.size, np.float32), indices, np.arange(0, indices.size + 1, LENGTH)),
        shape=(HELD, len(topics.word_topic)),
    )
    documents.sum_duplicates()
    term_count = np.asarray(documents.sum(axis=0), dtype=np.float64).ravel()
    documents.data /= np.sqrt(np.float32(HELD * LENGTH * (LENGTH - 1)))
    diagonal = term_count / (HELD * LENGTH * (LENGTH - 1))
    return Cooccurrence.of_documents(documents, diagonal, term_count / (HELD * LENGTH))


def draw_counts(rng: np.random.Generator, topics: TopicArrays) -> SelectedCounts:
    """Counts of top words and anchors in such documents."""
    words = np.unique(np.concatenate([topics.top_words.ravel(), topics.anchors]))
    frequency = rng.binomial(DOCUMENTS, 1 - np.exp(-100 * topics.word_probability[words]))
    expected = np.outer(frequency, frequency / DOCUMENTS)
    pairs = np.minimum(rng.poisson(expected), np.minimum.outer(frequency, frequency))
    pairs = np.triu(pairs, 1)
    pairs += pairs.T + np.diag(frequency)
    return SelectedCounts(words, pairs, DOCUMENTS)


@click.command(help=__doc__)
@click.option("--words", default=100_000, show_default=True, help="Number of words.")
@click.option("--topics", default=100, show_default=True, help="Number of topics.")
@click.option("--replicas", default=5, show_default=True, help="Number of models for stability.")
@click.option("--seed", default=0, show_default=True)
def main(words: int, topics: int, replicas: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = draw_topics(rng, words, topics)
    cooccurrence = draw_cooccurrence(rng, model)
    counts = draw_counts(rng, model)
    others = [np.roll(model.word_topic, shift, axis=1) for shift in range(1, replicas + 1)]
    inputs = peak_memory()
    started = time.perf_counter()
    with single_blas_thread():
        _, missing = evaluate_topics(
            model,
            cooccurrence=cooccurrence,
            counts=counts,
            truth=model.word_topic,
            replicas=others,
            seed=seed,
        )
    seconds = time.perf_counter() - started
    click.echo(
        f"N = {words}, K = {topics}, {counts.words.size} words counted, {replicas} replicas, one thread"
    )
    click.echo(f"all metrics: {seconds:.1f} s; missing: {', '.join(missing) or 'none'}")
    click.echo(f"peak memory: {peak_memory() / 1e9:.2f} GB, {inputs / 1e9:.2f} GB of it before the metrics")


if __name__ == "__main__":
    main()
