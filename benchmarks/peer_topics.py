"""Topics of other libraries, fitted once and kept: what polish is compared with takes hours and never changes.

    python -m benchmarks.peer_topics OUT --corpus nips=data_specs/uci_nips --corpus kos=KOS --topics 20,50,100

Every fifth document is held out, as in ``benchmarks.quality``; each peer fits the others, in one thread. For each
corpus, K and peer, ``OUT/<corpus>-k<K>-<peer>.npz`` has ``word_topic`` (N x K, columns sum to 1; words that no fitted
document has are 0), ``prior`` (K,) and the CPU and wall seconds of the fit. What is there already is not fitted again.
One run of tomotopy gives two files, after 200 and after 1,000 sweeps. NMF has no prior: its shares are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import click
import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from benchmarks.quality import split
from pipelines.common import peers
from pipelines.common.bags import read_counts
from pipelines.common.peers import PeerTopics

#: Sweeps of the sampler after which its topics are kept.
SWEEPS = (200, 1000)


#: (documents x words counts, K, seed) -> (name, topics) of each state that is kept.
Fit = Callable[[sparse.csr_array, int, int], Iterator[tuple[str, PeerTopics]]]


def tomotopy(counts: sparse.csr_array, n_topics: int, seed: int) -> Iterator[tuple[str, PeerTopics]]:
    """Gibbs sampling, at each of the ``SWEEPS``."""
    for topics in peers.gibbs(counts, n_topics, seed, SWEEPS):
        yield f"tomotopy-{topics.steps}", topics


def scikit_lda(counts: sparse.csr_array, n_topics: int, seed: int) -> Iterator[tuple[str, PeerTopics]]:
    """Online variational LDA."""
    yield "scikit-lda", peers.scikit_lda(counts, n_topics, seed)


def scikit_nmf(counts: sparse.csr_array, n_topics: int, seed: int) -> Iterator[tuple[str, PeerTopics]]:
    """MiniBatchNMF."""
    yield "scikit-nmf", peers.scikit_nmf(counts, n_topics, seed)


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
@click.option(
    "--peers", "names", default=",".join(PEERS), show_default=True, help="Names, with commas between."
)
@click.option("--seed", default=0, show_default=True)
def main(out: Path, corpora: tuple[str, ...], topics: str, names: str, seed: int) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for corpus in corpora:
        name, _, path = corpus.partition("=")
        counts = split(read_counts(Path(path))).fitted
        for n_topics in map(int, topics.split(",")):
            for peer in names.split(","):
                with threadpool_limits(1):
                    fit_missing(out, name, counts, n_topics, peer, seed)


if __name__ == "__main__":
    main()
