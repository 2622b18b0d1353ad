"""Compare the error that a scan estimates for its eigenpairs with their distance to converged ones, and its CPU time.

    python -m benchmarks.sample_error [--topics 20,50] [--share 0.2] [--seeds 3]
    python -m benchmarks.sample_error CORPUS [CORPUS ...] [--topics 20,50,100] [--share 0.13]

Without arguments it simulates corpora: latent Dirichlet allocation, and documents by authors who have topics of their
own. Each corpus is scanned sorted by author and shuffled. The store holds all documents or the given share. Prints a
Markdown table and the number of cases in which the estimate is an upper bound. The error is ||Y Y' - Y* Y*'||_F / ||Y*
Y*'||_F with Y = V_+ D_+^(1/2) from the K leading eigenpairs; Y* comes from block Davidson with all documents in memory,
run to convergence. CPU seconds are those of one thread, without imports and compilation.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from benchmarks.peers.methods import diagonal_of, scaled
from pipelines.common.bags import read_counts, write_corpus
from pipelines.common.matching import yy_error
from pipelines.common.options import ONE_THREAD, Several
from streaming_jsmf import ScanSettings, scan
from streaming_jsmf.linalg.csr import apply_gram
from streaming_jsmf.linalg.eigen import Eigenpairs, RitzBlock, block_width, subtract_diagonal
from streaming_jsmf.linalg.probes import uniform_probes
from streaming_jsmf.rectification.result import positive_half

Floats = NDArray[np.float64]

#: The reference has converged when a step changes Y Y' by less than this; maximum number of steps.
REFERENCE_CHANGE, REFERENCE_STEPS = 5e-5, 60


@dataclass(frozen=True)
class Law:
    """Distribution of simulated documents.

    ``authors`` have own topics of ``own_words`` words with the mean share ``own`` (0: latent Dirichlet allocation) and
    a Pareto(``spread``) number of documents. ``topics`` are common to all authors; ``concentration`` and ``mass`` are
    sums of Dirichlet parameters of documents and topics; ``zipf`` is the exponent of Zipf's law; ``length`` is the
    median length.
    """

    authors: int = 400
    own: float = 0.5
    own_words: int = 40
    topics: int = 30
    concentration: float = 2.0
    zipf: float = 1.0
    mass: float = 150.0
    spread: float = 1.2
    length: int = 60

    def documents(self, number: int, n_words: int, rng: np.random.Generator) -> sparse.csr_array:
        """Counts (documents x words) sorted by author, without words that do not occur."""
        base = 1 / np.arange(1, n_words + 1) ** self.zipf
        base /= base.sum()
        topics = rng.dirichlet(base * self.mass + 1e-6, size=self.topics)
        sizes = rng.pareto(self.spread, self.authors) + 1
        written = rng.multinomial(number, sizes / sizes.sum())
        counts = sparse.vstack([self._of_author(n, topics, base, rng) for n in written[written > 0]])
        return sparse.csr_array(counts.tocsc()[:, np.flatnonzero(counts.sum(axis=0))])

    def _of_author(self, number: int, topics: Floats, base: Floats, rng: np.random.Generator) -> Any:
        shares = rng.dirichlet(rng.dirichlet(np.full(self.topics, 0.2)) * self.concentration + 1e-3, number)
        words = shares @ topics
        if self.own:
            mine = np.zeros(base.size)
            mine[rng.choice(base.size, self.own_words, p=base)] = rng.standard_gamma(0.3, self.own_words)
            own = rng.beta(2 * self.own, 2 - 2 * self.own, (number, 1))
            words = (1 - own) * words + own * mine / mine.sum()
        lengths = np.exp(rng.normal(np.log(self.length), 0.6, number)).astype(int)
        return sparse.csr_array(
            rng.multinomial(np.maximum(lengths, 2), words / words.sum(axis=1, keepdims=True))
        )


LAWS = {
    "LDA, 25 topics": Law(authors=1, own=0, topics=25, concentration=1),
    "LDA, 100 topics": Law(authors=1, own=0, topics=100, concentration=5),
    "LDA, 200 topics, zipf .5": Law(authors=1, own=0, topics=200, concentration=10, zipf=0.5, mass=60),
    "400 authors": Law(),
    "400 authors, topics of 15 words": Law(own=0.7, own_words=15),
    "3000 authors": Law(authors=3000, own=0.6, own_words=30),
    "60 authors, zipf .6": Law(authors=60, own=0.6, own_words=150, zipf=0.6),
    "400 authors, 60 topics": Law(own=0.3, topics=60, concentration=5),
    "1000 authors, short documents": Law(authors=1000, own=0.8, own_words=60, length=30),
    "400 authors, long documents, zipf 1.2": Law(own=0.4, zipf=1.2, length=150),
}


def reference(counts: sparse.csr_array, n_topics: int) -> Eigenpairs:
    """Leading eigenpairs of C, ``n_topics`` of them converged, by block Davidson with all documents."""
    rows, diagonal = scaled(counts), diagonal_of(counts)
    n_words = counts.shape[1]

    def times(vectors: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        out[:] = apply_gram(rows, vectors)
        subtract_diagonal(diagonal, vectors, out)

    width = min(block_width(2 * n_topics), n_words)
    block = RitzBlock(times, diagonal, apply_gram(rows, uniform_probes(n_words, width, 0, "start")), width)
    half = np.zeros((n_words, n_topics))
    for _ in range(REFERENCE_STEPS):
        # Otherwise the block stops at the accuracy of float32.
        block.residual = np.inf
        block.correct(n_topics)
        before, half = half, positive_half(block.leading(n_topics, 0), n_topics)
        if before.any() and yy_error(half, before) < REFERENCE_CHANGE:
            break
    return block.leading(n_topics, 0)


@dataclass(frozen=True)
class Case:
    """Settings of a scan, the error of its eigenpairs, the estimate of that error, and its CPU seconds."""

    settings: ScanSettings
    error: float
    estimate: float
    seconds: float

    @classmethod
    def of(cls, corpus: Path, store: Path, settings: ScanSettings, exact: Eigenpairs) -> Case:
        started, n_topics = time.process_time(), settings.max_topics
        moments = scan(corpus, store, settings, ONE_THREAD)
        seconds = time.process_time() - started
        found, best = (
            positive_half(pairs, n_topics) for pairs in (moments.eigenpairs(n_topics, extra=0), exact)
        )
        estimate = moments.scalars_of("eigenvectors")["estimated_error"]
        return cls(settings, yy_error(found, best), estimate, seconds)


def cases(
    counts: sparse.csr_array, topics: list[int], share: float | None, seeds: int, name: str
) -> Iterator[Case]:
    """Scan documents in the given order and shuffled; prints each case."""
    exact = reference(counts, max(topics))
    order = np.random.default_rng(0).permutation(counts.shape[0])
    for label, ordered in (("sorted", counts), ("shuffled", sparse.csr_array(counts[order]))):
        with tempfile.TemporaryDirectory() as folder:
            write_corpus(Path(folder) / "corpus", ordered)
            for number, (n_topics, seed) in enumerate((k, seed) for k in topics for seed in range(seeds)):
                settings = ScanSettings(max_topics=n_topics, sample_share=share, seed=seed)
                case = Case.of(Path(folder) / "corpus", Path(folder) / str(number), settings, exact)
                click.echo(
                    f"| {name} | {label} | {counts.shape[0]} | {counts.shape[1]} | {n_topics} | {seed} | "
                    f"{case.error:.4f} | {case.estimate:.4f} | {case.estimate / case.error:.2f} | {case.seconds:.1f} |"
                )
                yield case


@click.command(help=__doc__)
@click.argument("corpora", nargs=-1, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--topics", type=Several(int), default="20,50", show_default=True)
@click.option("--share", type=float, help="Share of the documents held.  [default: all, .2 if simulated]")
@click.option("--seeds", default=1, show_default=True, help="Number of seeds.")
@click.option("--documents", default=16_000, show_default=True, help="Size of simulated corpora.")
@click.option("--words", default=2_000, show_default=True, help="Size of simulated corpora.")
def main(
    corpora: tuple[Path, ...], topics: list[int], share: float | None, seeds: int, documents: int, words: int
) -> None:
    click.echo("| corpus | order | documents | N | K | seed | error | estimate | estimate / error | CPU s |")
    click.echo("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    found = [case for path in corpora for case in cases(read_counts(path), topics, share, seeds, path.name)]
    for name, law in {} if corpora else LAWS.items():
        for seed in range(seeds):
            counts = law.documents(documents, words, np.random.default_rng(seed))
            found += cases(counts, topics, share or 0.2, 1, f"{name} ({seed})")
    ratios = np.array([case.estimate / case.error for case in found])
    bounds = np.count_nonzero(ratios >= 1)
    click.echo(
        f"\nUpper bound in {bounds} of {ratios.size}; estimate / error: median {np.median(ratios):.2f}, "
        f"largest {ratios.max():.2f}"
    )


if __name__ == "__main__":
    main()
