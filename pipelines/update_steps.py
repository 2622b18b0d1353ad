"""Topics after ten updates, for several numbers of steps of polish in each, against a fit of all documents.

    python -m pipelines.update_steps OUT --corpus un/2=TEXTS --corpus news=NEWS [--topics 20,50] [--seeds 3]

Seed s holds out every fifth document, as in `pipelines.quality`. The first seven tenths of the others, in the order of
the corpus, are fitted; ten updates add the rest. Each infers topics from the moments of all documents, as `update`
does, and polishes from the present topics: by *a* steps that may use samples and draws, and then *b* steps with all
documents (*a+b*; with two numbers, *b* is 2). A topic that is unrelated to all in the moments is replaced, and polish
then takes the ten steps of `fit`. *fit* are the topics of a fit of all documents.

Measures after the last update: perplexity of held-out documents, of all and of those among the days added; NPMI of the
10 top words in fitted and held-out documents; the share of distinct words; the mean and largest Hellinger distance of a
topic from that of the updates with ten steps; the topics within .7 of what they were before the first update; CPU
seconds of polish for each update. OUT gets update_steps.parquet and update_steps.md.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import click
import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from pipelines.common import options
from pipelines.common.bags import read_counts, write_corpus
from pipelines.common.data import NIPS, prepared
from pipelines.common.held_out import Split, is_held_out, scores_of
from pipelines.common.quality_tables import METRICS
from pipelines.common.results import Results, Row, publish
from pipelines.common.tables import markdown, spread
from streaming_jsmf import InferSettings, ScanSettings, scan
from streaming_jsmf.inference.cvb0 import smoothed
from streaming_jsmf.inference.perplexity import Completer
from streaming_jsmf.inference.polish import (
    FULL_STEPS,
    SAMPLE_DRAW,
    STEPS,
    Schedule,
    document_draws,
    log_lengths,
    longest_document,
    plan_steps,
)
from streaming_jsmf.inference.words import prominent_words
from streaming_jsmf.linalg.typing import Floats
from streaming_jsmf.topics.identity import SAME, best_match, started_from, topic_distances
from streaming_jsmf.topics.infer import fit_moments
from streaming_jsmf.topics.parameters import prior_of
from streaming_jsmf.topics.store import Model

#: Share of the documents that are fitted first, and number of updates that add the others.
FIRST, UPDATES = 0.7, 10

COLUMNS = {
    "perplexity": "perplexity, held out",
    "recent_perplexity": "of the days added",
    **{name: METRICS[name] for name in ("npmi", "held_out_npmi", "distinct")},
    "distance": "mean distance from 8+2",
    "farthest": "largest",
    "kept": "topics kept",
    "seconds": "CPU s of polish",
}
DIGITS = {"perplexity": 4, "recent_perplexity": 4, "distance": 2, "farthest": 2, "seconds": 2}


@dataclass(frozen=True)
class Chain:
    """A model that follows a corpus, with so many ``early`` and ``full`` steps of each update."""

    early: int
    full: int

    @property
    def name(self) -> str:
        return f"{self.early}+{self.full}"

    def polished(self, counts: sparse.csr_array, start: Model, seed: int, *, entirely: bool) -> Floats:
        """Topics, after all steps of ``fit`` if they are polished ``entirely``."""
        early, full = (STEPS - FULL_STEPS, FULL_STEPS) if entirely else (self.early, self.full)
        planned = plan_steps(counts.nnz, counts.shape[0], early + FULL_STEPS)
        planned = (*planned[:early], *planned[len(planned) - full :])
        prior, common = prior_of(start), np.asarray(counts.sum(axis=0), np.float64).ravel()
        schedule = Schedule(planned, prior, longest_document(*log_lengths(counts), prior.size))
        draws = document_draws("update", counts.shape[0], SAMPLE_DRAW, seed)
        topics = smoothed(np.asarray(start.arrays["word_topic"], np.float64), common)
        return schedule.in_memory(len(planned), topics, counts, draws, threads=1)[0]


def spectral(counts: sparse.csr_array, n_topics: int, seed: int) -> Model:
    with tempfile.TemporaryDirectory() as name:
        write_corpus(Path(name) / "fitted", counts)
        settings = ScanSettings(max_topics=n_topics, seed=seed)
        moments = scan(Path(name) / "fitted", str(Path(name) / "moments"), settings, options.ONE_THREAD)
        return fit_moments(moments, InferSettings(n_topics), threads=1)


def with_topics(model: Model, topics: Floats) -> Model:
    return replace(model, arrays={**model.arrays, "word_topic": topics})


def rows_of(counts: sparse.csr_array, n_topics: int, seed: int, chains: Sequence[Chain]) -> Iterator[Row]:
    """A row for each chain, and that of a fit of all documents, in one thread."""
    split, held = Split.of(counts, seed), is_held_out(counts.shape[0], seed)
    n_fitted = split.fitted.shape[0]
    ends = np.linspace(FIRST, 1, UPDATES + 1) * n_fitted
    recent = counts[np.flatnonzero(held & (np.cumsum(~held) > ends[0]))]
    base = split.fitted[: int(ends[0])]
    found, whole = spectral(base, n_topics, seed), Chain(STEPS - FULL_STEPS, FULL_STEPS)
    first = with_topics(found, whole.polished(base, found, seed, entirely=True))
    models, seconds = dict.fromkeys(chains, first), dict.fromkeys(chains, 0.0)
    for end in ends[1:].astype(int):
        known = split.fitted[:end]
        found = spectral(known, n_topics, seed)
        for chain, present in models.items():
            start, replaced = started_from(found, present)
            began = time.process_time()
            topics = chain.polished(known, start, seed, entirely=replaced.size > 0)
            seconds[chain] += time.process_time() - began
            models[chain] = with_topics(start, topics)
    began = time.process_time()
    again = with_topics(found, whole.polished(split.fitted, found, seed, entirely=True))
    spent = {chain.name: each / UPDATES for chain, each in seconds.items()}
    spent["fit"] = time.process_time() - began
    named = {chain.name: model for chain, model in models.items()} | {"fit": again}
    for name, model in named.items():
        topics = model.arrays["word_topic"]
        completer = Completer.of(topics, prior_of(model), np.asarray(split.fitted.sum(axis=0)).ravel())
        to_whole = np.diagonal(matched(models[whole].arrays["word_topic"], topics))
        yield {
            "K": n_topics,
            "seed": seed,
            "steps": name,
            "perplexity": completer.complete(split.held_out, threads=1).perplexity,
            "recent_perplexity": completer.complete(recent, threads=1).perplexity,
            **scores_of(split, prominent_words(topics, 10)),
            "distance": float(to_whole.mean()),
            "farthest": float(to_whole.max()),
            "kept": int(np.sum(np.diagonal(matched(first.arrays["word_topic"], topics)) <= SAME)),
            "seconds": spent[name],
        }


def matched(first: Floats, second: Floats) -> Floats:
    """Distances between topics, the second ones in the order of the first."""
    distances = topic_distances(first, second)
    return distances[:, best_match(distances)]


def table(rows: Sequence[Row]) -> str:
    """Means over seeds."""
    lines = []
    for cell in dict.fromkeys((row["corpus"], row["K"], row["steps"]) for row in rows):
        there = [row for row in rows if (row["corpus"], row["K"], row["steps"]) == cell]
        means = [spread([round(row[name], 4) for row in there], DIGITS.get(name, 3)) for name in COLUMNS]
        lines.append([*cell, *means])
    return markdown(["corpus", "K", "steps", *COLUMNS.values()], lines, text=1)


@click.command(help=__doc__)
@options.OUT
@options.corpora(words=10_000)
@options.several("topics", [20, 50])
@options.SEEDS
@options.several("steps", ["8+2", "3+2", "1+2", "0+2", "0+1"])
@options.quick("300 words of the shipped corpus")
def main(
    out: Path,
    corpora: tuple[str, ...],
    words: int,
    topics: list[int],
    seeds: int,
    steps: list[str],
    quick: bool,
) -> None:
    if quick:
        corpora, words, topics, seeds = (f"nips={NIPS}",), 300, [5], 1
    chains = [Chain(*map(int, each.split("+"))) for each in steps]
    rows, used, results = list[Row](), {}, Results(out / "cells")
    for named in corpora:
        name, corpus = prepared(named, out / "corpora", words)
        used[name], counts = corpus, read_counts(Path(corpus.root))
        for n_topics, seed in product(topics, range(seeds)):
            key = {"fingerprint": corpus.fingerprint, "K": n_topics, "seed": seed, "steps": steps}
            with threadpool_limits(1):
                kept = results.row(
                    key, lambda c=counts, k=key: {"rows": [*rows_of(c, k["K"], k["seed"], chains)]}
                )
            rows += [{"corpus": name, **row} for row in kept["rows"]]
    publish(out, "update_steps", rows, table(rows), used)
    click.echo(table(rows))


if __name__ == "__main__":
    main()
