"""Topics of other libraries, fitted once and kept: what polish is compared with takes hours and never changes.

    python -m benchmarks.peer_topics OUT --corpus nips=data_specs/uci_nips --corpus kos=KOS --topics 20,50,100

Every fifth document is held out, as in ``benchmarks.quality``; each peer fits the others, in one thread. For each
corpus, K and peer, ``OUT/<corpus>-k<K>-<peer>.npz`` has ``word_topic`` (N x K, columns sum to 1; words that no fitted
document has are 0), ``prior`` (K,) and the CPU and wall seconds of the fit. What is there already is not fitted again.
One run of tomotopy gives two files, after 200 and after 1,000 sweeps. NMF has no prior: its topics' shares are stored.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from threadpoolctl import threadpool_limits

from benchmarks.bags import read_counts
from benchmarks.quality import split

Floats = NDArray[np.float64]

#: Sweeps of the sampler after which its topics are kept.
SWEEPS = (200, 1000)


@dataclass(frozen=True)
class PeerTopics:
    """Topics of a peer: ``word_topic`` N x K, ``prior`` (K,), seconds of fitting; ``steps``: sweeps or passes made."""

    word_topic: Floats
    prior: Floats
    cpu_seconds: float
    wall_seconds: float
    steps: int


class Clock:
    """CPU and wall seconds since it was made."""

    def __init__(self) -> None:
        self._started = time.process_time(), time.perf_counter()

    def seconds(self) -> tuple[float, float]:
        """CPU seconds of the process, and wall seconds."""
        return time.process_time() - self._started[0], time.perf_counter() - self._started[1]


#: (documents x words counts, K, seed) -> (name, topics) of each state that is kept.
Fit = Callable[[sparse.csr_array, int, int], Iterator[tuple[str, PeerTopics]]]


def tomotopy(counts: sparse.csr_array, n_topics: int, seed: int) -> Iterator[tuple[str, PeerTopics]]:
    """tomotopy's collapsed Gibbs sampler, which learns alpha as it goes."""
    import tomotopy

    clock = Clock()
    model = tomotopy.LDAModel(k=n_topics, seed=seed)
    for start, end in zip(counts.indptr[:-1], counts.indptr[1:], strict=True):
        tokens = np.repeat(counts.indices[start:end], counts.data[start:end]).astype(str).tolist()
        if tokens:
            model.add_doc(tokens)
    done = 0
    for sweeps in SWEEPS:
        model.train(sweeps - done, workers=1)
        done = sweeps
        seconds = clock.seconds()
        ids = np.array([int(word) for word in model.used_vocabs], dtype=np.int64)
        word_topic = np.zeros((counts.shape[1], n_topics))
        for topic in range(n_topics):
            word_topic[ids, topic] = model.get_topic_word_dist(topic)
        alpha = np.array(model.alpha, dtype=np.float64)
        yield f"tomotopy-{sweeps}", PeerTopics(word_topic, alpha, *seconds, sweeps)


def scikit_lda(counts: sparse.csr_array, n_topics: int, seed: int) -> Iterator[tuple[str, PeerTopics]]:
    """scikit-learn's online variational LDA with its defaults."""
    from sklearn.decomposition import LatentDirichletAllocation

    clock = Clock()
    model = LatentDirichletAllocation(n_topics, learning_method="online", random_state=seed).fit(counts)
    prior = np.full(n_topics, 1.0 / n_topics)
    yield "scikit-lda", PeerTopics(_columns(model.components_.T), prior, *clock.seconds(), model.n_iter_)


def scikit_nmf(counts: sparse.csr_array, n_topics: int, seed: int) -> Iterator[tuple[str, PeerTopics]]:
    """scikit-learn's MiniBatchNMF (Frobenius) on the counts, with its defaults."""
    from sklearn.decomposition import MiniBatchNMF

    clock = Clock()
    model = MiniBatchNMF(n_topics, random_state=seed)
    weights = model.fit_transform(counts.astype(np.float64))
    seconds = clock.seconds()
    tokens = weights * model.components_.sum(axis=1)
    shares = tokens / np.maximum(tokens.sum(axis=1, keepdims=True), 1e-300)
    yield (
        "scikit-nmf",
        PeerTopics(_columns(model.components_.T), shares.mean(axis=0), *seconds, model.n_iter_),
    )


def _columns(weights: Floats) -> Floats:
    columns: Floats = weights / np.maximum(weights.sum(axis=0), 1e-300)
    return columns


PEERS: dict[str, Fit] = {"tomotopy": tomotopy, "scikit-nmf": scikit_nmf, "scikit-lda": scikit_lda}

#: Files of each peer.
FILES = {name: (name,) for name in PEERS} | {"tomotopy": tuple(f"tomotopy-{sweeps}" for sweeps in SWEEPS)}


def fit_missing(
    out: Path, corpus: str, counts: sparse.csr_array, n_topics: int, peer: str, seed: int
) -> None:
    """Fit a peer and keep its topics, unless they are there."""
    paths = {name: out / f"{corpus}-k{n_topics}-{name}.npz" for name in FILES[peer]}
    if all(path.exists() for path in paths.values()):
        return
    for name, topics in PEERS[peer](counts, n_topics, seed):
        beside = paths[name].with_suffix(".tmp.npz")
        np.savez(beside, seed=seed, **vars(topics))
        beside.replace(paths[name])
        click.echo(f"{paths[name].stem}: {topics.cpu_seconds:.1f} s CPU, {topics.wall_seconds:.1f} s")


@click.command(help=__doc__)
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
@click.option("--corpus", "corpora", multiple=True, required=True, help="NAME=PATH; several in order.")
@click.option("--topics", default="20,50,100", show_default=True, help="Numbers of topics, with commas.")
@click.option("--peers", default=",".join(PEERS), show_default=True, help="Names, with commas between.")
@click.option("--seed", default=0, show_default=True)
def main(out: Path, corpora: tuple[str, ...], topics: str, peers: str, seed: int) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for corpus in corpora:
        name, _, path = corpus.partition("=")
        counts = split(read_counts(Path(path))).fitted
        for n_topics in map(int, topics.split(",")):
            for peer in peers.split(","):
                with threadpool_limits(1):
                    fit_missing(out, name, counts, n_topics, peer, seed)


if __name__ == "__main__":
    main()
