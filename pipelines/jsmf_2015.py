"""Experiments of the JSMF paper (NIPS 2015): baseline, DC, AP and Gibbs sampling on real and on drawn documents.

    python -m pipelines.jsmf_2015 OUT --corpus kos=KOS --corpus ratings=simulated:ratings [--semi kos]

Metrics: recovery, approximation, dominancy, specificity, dissimilarity and coherence, against the counted C. `--semi
NAME` adds the semi-synthetic corpus of NAME: for each K, documents of the original lengths drawn from the topics and
prior that Gibbs sampling finds, and the L1 distance of each method to these topics. Gibbs sampling requires tomotopy
(extra `bench`); `Gibbs` uses the 1,000 sweeps of the paper, `Gibbs 200` a fifth.

OUT keeps stores and results, so an interrupted command can be run again; it gets jsmf.parquet, jsmf.md and jsmf.svg.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np

from pipelines.common import options
from pipelines.common.bags import write_corpus
from pipelines.common.data import NIPS, draw_documents, planted_topics, prepared
from pipelines.common.experiment import published, rows_of
from pipelines.common.methods import METHODS, Setup
from pipelines.common.results import Row
from streaming_jsmf import open_corpus
from streaming_jsmf.evaluation.matching import recovery_error

DRAWN = (
    "recovery",
    "approximation",
    "dominancy",
    "specificity_2015",
    "dissimilarity",
    "coherence",
    "mean_l1",
)


def semi_synthetic(setup: Setup, sampler: str, n_topics: int, folder: Path) -> Setup:
    """Setup of documents drawn from the topics that Gibbs sampling finds at K in the corpus of ``setup``."""
    fitted = setup.topics(sampler, n_topics)
    path = folder / f"k{n_topics}" / "corpus"
    if not path.exists():
        lengths = np.asarray(setup.counts.sum(axis=1)).ravel()
        random = np.random.Generator(np.random.Philox(key=np.array([n_topics, 3], np.uint64)))
        shares = random.dirichlet(fitted["prior"], len(lengths))
        part = path.with_name("part")
        part.parent.mkdir(parents=True, exist_ok=True)
        write_corpus(part, draw_documents(fitted["word_topic"], shares, lengths, seed=n_topics))
        part.rename(path)
    return Setup(
        open_corpus(path), folder / f"k{n_topics}", setup.max_topics, max_iterations=setup.max_iterations
    )


def rows_of_semi(
    name: str, setup: Setup, folder: Path, numbers: list[int], methods: list[str], sampler: str
) -> Iterator[Row]:
    for n_topics in numbers:
        drawn = semi_synthetic(setup, sampler, n_topics, folder)
        truth = setup.topics(sampler, n_topics)["word_topic"]
        for row in rows_of(f"{name}, drawn", drawn, [n_topics], methods, 1, "AP"):
            found = drawn.topics(row["method"], n_topics)
            yield row | {"mean_l1": recovery_error(found["word_topic"], truth)}


def rows_of_real(
    name: str, source: str, setup: Setup, numbers: list[int], methods: list[str]
) -> Iterator[Row]:
    """Rows of a corpus; if it is simulated, with the distance to the planted topics."""
    kind = source.partition("simulated:")[2]
    truth = planted_topics(kind, Path(setup.corpus.root)) if kind else None
    for row in rows_of(name, setup, numbers, methods, 1, "AP"):
        if truth is not None and row["K"] == truth.shape[1]:
            row["mean_l1"] = recovery_error(setup.topics(row["method"], row["K"])["word_topic"], truth)
        yield row


@click.command(help=__doc__)
@options.OUT
@options.corpora(words=2000)
@click.option(
    "--semi", multiple=True, metavar="NAME", help="Also use documents drawn from the topics of this corpus."
)
@options.several("topics", [5, 10, 20, 50, 100])
@options.several("methods", ["baseline", "DC", "AP", "Gibbs"])
@options.ITERATIONS
@options.quick("the shipped corpus, 200 words, 200 sweeps")
@options.ONLY_KEPT
def main(
    out: Path,
    corpora: tuple[str, ...],
    words: int,
    semi: tuple[str, ...],
    topics: list[int],
    methods: list[str],
    iterations: int,
    quick: bool,
    only_kept: bool,
) -> None:
    if quick:
        corpora, semi, words, topics, iterations = (f"nips={NIPS}",), ("nips",), 200, [3], 20
        methods = ["baseline", "DC", "AP", "Gibbs 200"]
    unknown = [name for name in methods if name not in METHODS]
    if unknown:
        raise click.BadParameter(f"{unknown[0]!r} is none of {', '.join(METHODS)}", param_hint="--methods")
    sampler = next((name for name in methods if name.startswith("Gibbs")), "Gibbs")
    rows: list[Row] = []
    used = {}
    for named in corpora:
        name, corpus = prepared(named, out / "corpora", words)
        used[name] = corpus
        setup = Setup(
            corpus, out / Path(corpus.root).name, max(topics), max_iterations=iterations, only_kept=only_kept
        )
        rows += rows_of_real(name, named, setup, topics, methods)
        if name in semi:
            rows += rows_of_semi(name, setup, out / f"{setup.folder.name}-drawn", topics, methods, sampler)
    published(out, "jsmf", rows, DRAWN, "AP", used)


if __name__ == "__main__":
    main()
