"""Speed and accuracy of topic shares of documents, compared with scikit-learn.

    python -m benchmarks.document_shares [--documents 20000] [--peer-documents 2000] [--repeats 5]

Simulated LDA documents with N = 10,000 words, K = 50 and about 90 distinct words each; both libraries get the true
topics and prior. scikit-learn's method is the `transform` of `LatentDirichletAllocation` (variational Bayes) in one
process. Times are CPU seconds of one thread, minimum of the repeats; the ratio is the median over repeats that measure
both in turn. L1 is the mean distance (at most 2) to the true shares; KL is the mean divergence between the word
distributions that follow from the shares.

The hard case has N = 500, K = 10, five pairs of topics that are 90 % equal, and documents of 5,000 tokens. It compares
the error bound of the package with the distance to dense Newton steps, which share no code with it, and with 200 steps
of expectation-maximization.

--corpus measures speed on the documents of a corpus and the perplexity of held-out documents by completion, with
polished topics of LR-JSMF and K = 20, 50, 100; scikit-learn's prior is the mean of ours.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, vstack
from sklearn.decomposition import LatentDirichletAllocation

from pipelines.common.bags import write_corpus
from pipelines.common.held_out import Split
from streaming_jsmf import fit
from streaming_jsmf.config import ShareMethod
from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.corpus.csr import iter_blocks
from streaming_jsmf.corpus.units import list_units
from streaming_jsmf.inference.document_topics import DocumentTopics, document_topics
from streaming_jsmf.inference.perplexity import Completer

Floats = NDArray[np.float64]
N_WORDS, N_TOPICS, N_TOKENS = 10_000, 50, 102
#: Dirichlet parameter of each topic, and mean Dirichlet parameter of the words of a topic.
LAWS = ((0.02, 0.02), (0.1, 0.02), (0.1, 0.1), (0.5, 0.1))
CHECKED = 200
REAL_TOPICS = (20, 50, 100)
METHODS: tuple[ShareMethod, ...] = ("map", "cvb0")


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


def alike(n_documents: int, n_words: int = 500, n_topics: int = 10, length: int = 5000) -> Drawn:
    base, other = np.random.default_rng(7).dirichlet(np.ones(n_words), size=(2, n_topics // 2))
    topics = np.concatenate([base, 0.9 * base + 0.1 * other]).T
    return draw(topics, np.full(n_topics, 0.1), n_documents, length, 1)


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


def find(drawn: Drawn, part: slice = slice(None), method: ShareMethod = "map") -> DocumentTopics:
    return document_topics(drawn.counts[part], drawn.topics, drawn.prior, method=method, threads=1)


def best(counts: Floats, topics: Floats, prior: Floats) -> Floats:
    """Optimal shares of one document: expectation-maximization, then dense Newton steps."""
    here = counts > 0
    B, c, weight = topics[here], counts[here], counts.sum() + prior.sum()
    shares = prior / prior.sum()
    for _ in range(50):
        shares = (prior + shares * (B.T @ (c / (B @ shares)))) / weight
    for _ in range(100):
        expected = B @ shares
        slope = B.T @ (c / expected) + prior / shares - weight
        if abs(slope * shares).max() < 1e-10 * weight:
            return shares
        step = np.linalg.solve((B.T * (c / expected**2)) @ B + np.diag(prior / shares**2), slope)
        shares = shares + step * min(1.0, 0.5 / (-step / shares).max())
    raise AssertionError("the reference did not converge")


def by_small_steps(counts: Floats, topics: Floats, prior: Floats, steps: int = 200) -> Floats:
    shares = np.tile(prior / prior.sum(), (len(counts), 1))
    for _ in range(steps):
        shares = prior + shares * ((counts / (shares @ topics.T)) @ topics)
        shares /= shares.sum(axis=1, keepdims=True)
    return shares


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
    found, theirs = find(drawn), peer(drawn).transform(drawn.counts[part])
    mean = find(drawn, part, "cvb0")
    least = min(seconds(lambda: find(drawn, part, "cvb0")) for _ in range(repeats))
    each = (found.shares[part], mean.shares, theirs)
    l1s = " / ".join(f"{l1(shares, drawn.shares[part]):.4f}" for shares in each)
    divergences = " / ".join(f"{divergence(drawn, shares):.4f}" for shares in each)
    click.echo(
        f"| {alpha:g}, {beta:g} | {cells} | {n_peer / least:,.0f} | {l1s} | {divergences} "
        f"| {found.remaining.max():.1e} | {found.unconverged}, {mean.unconverged} |"
    )


def hard(n_documents: int) -> None:
    drawn = alike(n_documents)
    find(drawn, slice(0, 2))
    start = time.process_time()
    found = find(drawn)
    taken = time.process_time() - start
    dense = drawn.counts[:CHECKED].toarray()
    optimum = np.array([best(row, drawn.topics, drawn.prior) for row in dense])
    distance = abs(found.shares[:CHECKED] - optimum).sum(axis=1)
    slow = abs(by_small_steps(dense, drawn.topics, drawn.prior) - optimum).sum(axis=1)
    click.echo(
        f"\nThe hard case: {n_documents:,} documents, {n_documents / taken:,.0f} a second; {found.unconverged} not "
        f"converged, largest bound {found.remaining.max():.1e}, steps mean {found.iterations.mean():.1f}, most "
        f"{found.iterations.max()}. Of {CHECKED}: largest distance from the best {distance.max():.1e}; 200 small steps "
        f"leave {slow.mean():.3f} on average, {slow.max():.3f} at most."
    )


def real(path: str, n_peer: int, repeats: int) -> None:
    """Speed on all documents of a corpus, and perplexity of every fifth one, which LR-JSMF with polish did not see."""
    corpus = open_corpus(path)
    counts = csr_array(vstack(list(iter_blocks(list_units(corpus), corpus.n_words))))
    split = Split.of(counts)
    click.echo(
        "| corpus | K | words | map/s | scikit-learn/s | ratio | cvb0/s | perplexity map / cvb0 |\n"
        "|---|---:|---:|---:|---:|---:|---:|---|"
    )
    for n_topics in REAL_TOPICS:
        with tempfile.TemporaryDirectory() as folder:
            write_corpus(Path(folder, "corpus"), split.fitted)
            model = fit(Path(folder, "corpus"), Path(folder, "model"), n_topics, workers=1).dataset.load()
        topics, prior = model.word_topic.to_numpy(), model.alpha.to_numpy()
        drawn = Drawn(counts.astype(np.float64), topics, prior, np.empty((0, n_topics)))
        cells = speeds(drawn, min(n_peer, counts.shape[0]), repeats)
        least = min(seconds(partial(find, drawn, method="cvb0")) for _ in range(repeats))
        completer = Completer.of(topics, prior, split.fitted.sum(axis=0).astype(np.float64))
        perplexities = " / ".join(
            f"{completer.complete(split.held_out, method=method).perplexity:.1f}" for method in METHODS
        )
        click.echo(
            f"| {Path(path).name} | {n_topics} | {cells} | {counts.shape[0] / least:,.0f} | {perplexities} |"
        )


@click.command(help=__doc__)
@click.option("--documents", default=20_000, show_default=True)
@click.option("--peer-documents", default=2_000, show_default=True)
@click.option("--repeats", default=5, show_default=True)
@click.option("--corpus", default=None, help="Path of a corpus to use instead of simulated documents.")
def main(documents: int, peer_documents: int, repeats: int, corpus: str | None) -> None:
    if corpus is not None:
        return real(corpus, peer_documents, repeats)
    click.echo(
        "| alpha, beta | words | map/s | scikit-learn/s | ratio | cvb0/s | L1 map / cvb0 / scikit-learn | KL | largest "
        "bound of map | not converged, map and cvb0 |\n|---|---:|---:|---:|---:|---:|---|---|---:|---:|"
    )
    for alpha, beta in LAWS:
        compare(alpha, beta, documents, min(peer_documents, documents), repeats)
    return hard(documents)


if __name__ == "__main__":
    main()
