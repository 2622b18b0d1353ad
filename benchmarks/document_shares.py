"""Speed and accuracy of topic shares of documents, compared with scikit-learn.

    python -m benchmarks.document_shares [--documents 20000] [--peer-documents 2000] [--repeats 5]

Simulated LDA documents with N = 10,000 words, K = 50 and about 90 distinct words each; both libraries get the true
topics and prior. scikit-learn's method is the `transform` of `LatentDirichletAllocation` (variational Bayes) in one
process. Times are CPU seconds of one thread, minimum of the repeats; the ratio is the median over repeats that measure
both in turn. L1 is the mean distance (at most 2) to the true shares; KL is the mean divergence between the word
distributions that follow from the shares.

--corpus measures speed on the documents of a corpus and the perplexity of held-out documents by completion, with
polished topics of LR-JSMF and K = 20, 50, 100; scikit-learn's prior is the mean of ours.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, vstack
from sklearn.decomposition import LatentDirichletAllocation

from pipelines.common.bags import write_corpus
from pipelines.common.held_out import Split
from streaming_jsmf import fit
from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.corpus.units import iter_blocks, list_units
from streaming_jsmf.inference.cvb0 import DocumentTopics, document_topics
from streaming_jsmf.inference.perplexity import Completer

Floats = NDArray[np.float64]
N_WORDS, N_TOPICS, N_TOKENS = 10_000, 50, 102
#: Dirichlet parameter of each topic, and mean Dirichlet parameter of the words of a topic.
LAWS = ((0.02, 0.02), (0.1, 0.02), (0.1, 0.1), (0.5, 0.1))
REAL_TOPICS = (20, 50, 100)


@dataclass(frozen=True)
class Drawn:
    """Documents (M x N) and their shares (M x K), with the true topics (N x K) and prior (K)."""

    counts: csr_array[np.float64]
    topics: Floats
    prior: Floats
    shares: Floats


def draw(topics: Floats, prior: Floats, n_documents: int, n_tokens: int, seed: int) -> Drawn:
    random = np.random.default_rng(seed)
    shares = random.dirichlet(prior, n_documents)
    of_topics = random.multinomial(n_tokens, shares)
    rows, columns = [], []
    for topic, numbers in enumerate(of_topics.T):
        cumulative = np.cumsum(topics[:, topic])
        places = random.random(int(numbers.sum())) * cumulative[-1]
        columns.append(np.searchsorted(cumulative, places))
        rows.append(np.repeat(np.arange(n_documents), numbers))
    places = (np.concatenate(rows), np.concatenate(columns))
    counts = csr_array(coo_array((np.ones(len(places[0])), places), shape=(n_documents, len(topics))))
    counts.sum_duplicates()
    return Drawn(counts, topics, prior, shares)


def simulated(alpha: float, beta: float, n_documents: int) -> Drawn:
    topics = np.random.default_rng(0).dirichlet(np.full(N_WORDS, beta), size=N_TOPICS).T
    return draw(topics, np.full(N_TOPICS, alpha), n_documents, N_TOKENS, 1)


def peer(drawn: Drawn) -> LatentDirichletAllocation:
    """scikit-learn's model with the true topics and prior, without fitting."""
    model = LatentDirichletAllocation(len(drawn.prior))
    model.components_ = np.ascontiguousarray(drawn.topics.T)
    model.exp_dirichlet_component_ = np.maximum(model.components_, np.finfo(float).tiny)
    model.doc_topic_prior_, model.n_features_in_ = float(drawn.prior.mean()), len(drawn.topics)
    return model


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def l1(shares: Floats, others: Floats) -> float:
    return float(abs(shares - others).sum(axis=1).mean())


def divergence(drawn: Drawn, shares: Floats) -> float:
    true, ours = drawn.shares[: len(shares)] @ drawn.topics.T, shares @ drawn.topics.T
    there = true > 0
    return float((true[there] * np.log(true[there] / np.maximum(ours[there], 1e-300))).sum() / len(shares))


def find(drawn: Drawn, part: slice = slice(None)) -> DocumentTopics:
    return document_topics(drawn.counts[part], drawn.topics, drawn.prior, threads=1)


def speeds(drawn: Drawn, n_peer: int, repeats: int) -> str:
    """Cells of a table: words per document, documents per second of the package and of the peer, and the ratio."""
    model, part = peer(drawn), slice(0, n_peer)
    find(drawn, part)
    times = [seconds(lambda: find(drawn)) for _ in range(repeats)]
    pairs = [
        (seconds(lambda: find(drawn, part)), seconds(lambda: model.transform(drawn.counts[part])))
        for _ in range(repeats)
    ]
    n_documents = drawn.counts.shape[0]
    ratio = float(np.median([theirs / ours for ours, theirs in pairs]))
    return (
        f"{drawn.counts.nnz / n_documents:.0f} | {n_documents / min(times):,.0f} "
        f"| {n_peer / min(theirs for _, theirs in pairs):,.0f} | {ratio:.1f}"
    )


def compare(alpha: float, beta: float, n_documents: int, n_peer: int, repeats: int) -> None:
    drawn, part = simulated(alpha, beta, n_documents), slice(0, n_peer)
    cells = speeds(drawn, n_peer, repeats)
    found = find(drawn, part)
    each = (found.shares, peer(drawn).transform(drawn.counts[part]))
    l1s = " / ".join(f"{l1(shares, drawn.shares[part]):.4f}" for shares in each)
    divergences = " / ".join(f"{divergence(drawn, shares):.4f}" for shares in each)
    click.echo(f"| {alpha:g}, {beta:g} | {cells} | {l1s} | {divergences} | {found.unconverged} |")


def real(path: str, n_peer: int, repeats: int) -> None:
    """Speed on all documents of a corpus, and perplexity of every fifth one, which LR-JSMF with polish did not see."""
    corpus = open_corpus(path)
    counts = csr_array(vstack(list(iter_blocks(list_units(corpus), corpus.n_words))))
    split = Split.of(counts)
    click.echo(
        "| corpus | K | words | documents/s | scikit-learn/s | ratio | perplexity |\n"
        "|---|---:|---:|---:|---:|---:|---:|"
    )
    for n_topics in REAL_TOPICS:
        with tempfile.TemporaryDirectory() as folder:
            write_corpus(Path(folder, "corpus"), split.fitted)
            model = fit(Path(folder, "corpus"), Path(folder, "model"), n_topics, workers=1).dataset.load()
        topics, prior = model.word_topic.to_numpy(), model.alpha.to_numpy()
        drawn = Drawn(counts.astype(np.float64), topics, prior, np.empty((0, n_topics)))
        cells = speeds(drawn, min(n_peer, counts.shape[0]), repeats)
        completer = Completer.of(topics, prior, split.fitted.sum(axis=0).astype(np.float64))
        perplexity = completer.complete(split.held_out).perplexity
        click.echo(f"| {Path(path).name} | {n_topics} | {cells} | {perplexity:.1f} |")


@click.command(help=__doc__)
@click.option("--documents", default=20_000, show_default=True)
@click.option("--peer-documents", default=2_000, show_default=True)
@click.option("--repeats", default=5, show_default=True)
@click.option("--corpus", default=None, help="Path of a corpus to use instead of simulated documents.")
def main(documents: int, peer_documents: int, repeats: int, corpus: str | None) -> None:
    if corpus is not None:
        return real(corpus, peer_documents, repeats)
    click.echo(
        "| alpha, beta | words | documents/s | scikit-learn/s | ratio | L1, scikit-learn | KL, scikit-learn "
        "| not converged |\n"
        "|---|---:|---:|---:|---:|---|---|---:|"
    )
    for alpha, beta in LAWS:
        compare(alpha, beta, documents, min(peer_documents, documents), repeats)
    return None


if __name__ == "__main__":
    main()
