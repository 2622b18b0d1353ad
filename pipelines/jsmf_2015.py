"""Experiments of the JSMF paper (NIPS 2015): baseline, DC, AP and Gibbs sampling on real and on drawn documents.

    python -m pipelines.jsmf_2015 OUT --corpus kos=KOS --corpus ratings=simulated:ratings [--semi kos] [--seeds 5]

Metrics: recovery, approximation, dominancy, specificity, dissimilarity and coherence, against the counted C. `--semi
NAME` adds the semi-synthetic corpus of NAME: for each K, documents of the original lengths drawn from the topics and
prior that Gibbs sampling finds, and the L1 distance of each method to these topics. Gibbs sampling requires tomotopy
(extra `bench`); `Gibbs` uses the 1,000 sweeps of the paper, `Gibbs 200` a fifth.

As in the paper, every method runs several times with the objects in random order. Seed 0 has the order of the corpus;
each other seed has its own order, and is the seed of Gibbs sampling. Columns *of the first order* compare the topics of
a method in an order with those of seed 0.

OUT keeps stores and results, so an interrupted command can be run again; it gets NAME.parquet, NAME.md and NAME.svg.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from pipelines.common import options
from pipelines.common.bags import write_corpus
from pipelines.common.data import NIPS, draw_documents, planted_topics, prepared
from pipelines.common.experiment import published, rows_of
from pipelines.common.matching import match_topics
from pipelines.common.methods import METHODS, Floats, Setup
from pipelines.common.results import Row
from streaming_jsmf import open_corpus
from streaming_jsmf.evaluation.topic_shape import recovery_error

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
        write_corpus(path, draw_documents(fitted["word_topic"], shares, lengths, seed=n_topics))
    return Setup(
        open_corpus(path), folder / f"k{n_topics}", setup.max_topics, max_iterations=setup.max_iterations
    )


def order_of(n_words: int, seed: int) -> NDArray[np.int64]:
    """Word at each place; seed 0 leaves the words as they are."""
    random = np.random.Generator(np.random.Philox(key=np.array([seed, 4], np.uint64)))
    return random.permutation(n_words) if seed else np.arange(n_words)


def reordered(setup: Setup, seed: int) -> Setup:
    """The same documents with the words in the order of a seed."""
    if not seed:
        return setup
    path = setup.folder / f"order-{seed}" / "corpus"
    if not path.exists():
        counts = setup.counts[:, order_of(setup.corpus.n_words, seed)]
        counts.sort_indices()
        write_corpus(path, counts)
    return replace(setup, corpus=open_corpus(path), folder=path.parent)


def rows_of_orders(
    name: str, setup: Setup, numbers: list[int], methods: list[str], seeds: int, truth: Floats | None
) -> Iterator[Row]:
    """Rows of a corpus in each order; where ``truth`` has K topics, with the distance to it."""
    for seed in range(seeds):
        here, order = reordered(setup, seed), order_of(setup.corpus.n_words, seed)
        for row in rows_of(name, here, numbers, methods, [seed], "AP"):
            found, first = (
                each.topics(row["method"], row["K"], seed) for each, seed in ((here, seed), (setup, 0))
            )
            word_topic = np.empty_like(found["word_topic"])
            word_topic[order] = found["word_topic"]
            if seed:
                row["order_l1"] = float(match_topics(word_topic, first["word_topic"]).l1.mean())
                if found["anchors"].size:
                    row["order_anchors"] = len({*order[found["anchors"]]} & {*first["anchors"]})
            if truth is not None and row["K"] == truth.shape[1]:
                row["mean_l1"] = recovery_error(word_topic, truth)
            yield row | {"seed": seed}


def rows_of_semi(
    name: str, setup: Setup, folder: Path, numbers: list[int], methods: list[str], seeds: int
) -> Iterator[Row]:
    """Rows of documents drawn from the topics that Gibbs sampling, the first of ``methods``, finds at each K."""
    sampler = next((method for method in methods if method.startswith("Gibbs")), "Gibbs")
    for n_topics in numbers:
        drawn = semi_synthetic(setup, sampler, n_topics, folder)
        truth = setup.topics(sampler, n_topics)["word_topic"]
        yield from rows_of_orders(f"{name}, drawn", drawn, [n_topics], methods, seeds, truth)


@click.command(help=__doc__)
@options.DRAWN_OUT
@options.corpora(words=2000)
@click.option(
    "--semi", multiple=True, metavar="NAME", help="Also use documents drawn from the topics of this corpus."
)
@options.several("topics", [5, 10, 20, 50, 100])
@options.several("methods", ["baseline", "DC", "AP", "Gibbs"])
@options.label("jsmf")
@options.SEEDS
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
    label: str,
    seeds: int,
    iterations: int,
    quick: bool,
    only_kept: bool,
) -> None:
    if quick:
        corpora, semi, words, topics, seeds, iterations = (f"nips={NIPS}",), ("nips",), 200, [3], 2, 20
        methods = ["baseline", "DC", "DP", "AP", "Gibbs 200"]
    unknown = [name for name in methods if name not in METHODS]
    if unknown:
        raise click.BadParameter(f"{unknown[0]!r} is none of {', '.join(METHODS)}", param_hint="--methods")
    rows: list[Row] = []
    used = {}
    for named in corpora:
        name, corpus = prepared(named, out / "corpora", words)
        used[name] = corpus
        setup = Setup(
            corpus, out / Path(corpus.root).name, max(topics), max_iterations=iterations, only_kept=only_kept
        )
        kind = named.partition("=simulated:")[2]
        truth = planted_topics(kind, Path(corpus.root)) if kind else None
        rows += rows_of_orders(name, setup, topics, methods, seeds, truth)
        if name in semi:
            rows += rows_of_semi(name, setup, out / f"{setup.folder.name}-drawn", topics, methods, seeds)
    published(out, label, rows, DRAWN, "AP", used)


if __name__ == "__main__":
    main()
