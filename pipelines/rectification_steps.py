"""Polished topics from a rectification that stops early, against those of one that goes to its end.

    python -m pipelines.rectification_steps OUT --corpus kos=KOS --corpus un=UN@2 [--topics 20,50] [--seeds 5]

All topics of a seed come from one scan of the fitted documents (every fifth is held out, as in `pipelines.quality`),
and get the steps of `polish`, with the same samples and draws. The rectification stops

- at the default tolerance of `infer` (*end*, to which the others are compared, and *other*: the same after another
  scan, and with other samples and draws, which tells how much chance there is);
- after so many steps (2, 5; 0 leaves the eigenpairs as they are), or at a larger tolerance (1e-3).

Measures: perplexity of held-out documents by completion, NPMI of the 10 top words in fitted and held-out documents, the
share of distinct words, the mean L1 distance of a topic from its match at the *end*, and CPU seconds of one thread for
inference and polish. NAME=SOURCE@2 uses every other document. OUT gets rectification_steps.parquet,
rectification_steps.md and rectification_steps.json; an interrupted command continues.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path

import click
import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from pipelines.common import options
from pipelines.common.bags import read_counts, write_corpus
from pipelines.common.data import NIPS, prepared
from pipelines.common.held_out import Split, scores_of
from pipelines.common.matching import match_topics
from pipelines.common.quality_tables import SHORT, difference, shown
from pipelines.common.results import Results, Row, publish
from pipelines.common.tables import markdown, spread
from pipelines.over_complete import Run
from pipelines.quality import load_compiled_code
from streaming_jsmf import InferSettings, ScanSettings, scan
from streaming_jsmf.inference.cvb0 import smoothed
from streaming_jsmf.inference.perplexity import Completer
from streaming_jsmf.inference.words import prominent_words
from streaming_jsmf.moments.store import Moments
from streaming_jsmf.topics.infer import fit_moments
from streaming_jsmf.topics.parameters import prior_of

#: Names of stops; ``CHOSEN`` is that of `fit`.
END, OTHER, CHOSEN = "end", "other", "1e-4"
#: Added to a seed for *other*.
APART = 100


def settings_for(n_topics: int, stop: str) -> InferSettings:
    """The settings of a rectification that stops at the ``end``, after so many steps, or at a tolerance."""
    if stop in (END, OTHER):
        return InferSettings(n_topics)
    if stop == "0":
        return InferSettings(n_topics, rectify="none")
    if stop.isdecimal():
        return InferSettings(n_topics, max_iterations=int(stop))
    return InferSettings(n_topics, tolerance=float(stop))


def fitted(moments: Moments, counts: sparse.csr_array, settings: InferSettings, seed: int) -> tuple[Run, Row]:
    """The polished topics of moments, with the steps and CPU seconds that they took."""
    started = time.process_time()
    model = fit_moments(moments, settings, threads=1)
    common = np.asarray(counts.sum(axis=0), np.float64).ravel()
    topics = smoothed(np.asarray(model.arrays["word_topic"], np.float64), common)
    run = Run(topics, prior_of(model), time.process_time() - started)
    run.polish(counts, seed)
    rectification = model.metrics["rectification"]
    return run, {
        "rectified": rectification["iterations"],
        "change": rectification["change"],
        "infer_seconds": run.seconds,
        "polish_seconds": run.times[-1],
    }


def rows_of(counts: sparse.csr_array, n_topics: int, seed: int, stops: Sequence[str]) -> Iterator[Row]:
    """A row for the *end*, for *other* and for each of the ``stops``."""
    load_compiled_code()
    split = Split.of(counts, seed)
    common, end = np.asarray(split.fitted.sum(axis=0), np.float64).ravel(), None
    with tempfile.TemporaryDirectory() as name:
        write_corpus(Path(name) / "fitted", split.fitted)
        moments = {
            chosen: scan(
                Path(name) / "fitted",
                Path(name) / f"moments-{chosen}",
                ScanSettings(max_topics=n_topics, seed=chosen),
                options.ONE_THREAD,
            )
            for chosen in (seed, seed + APART)
        }
        for stop in (END, OTHER, *stops):
            chosen = seed + APART if stop == OTHER else seed
            run, row = fitted(moments[chosen], split.fitted, settings_for(n_topics, stop), chosen)
            end = run if end is None else end
            completer = Completer.of(run.topics, run.prior, common)
            yield {
                "stop": stop,
                **row,
                "l1": match_topics(end.topics, run.topics).mean_l1,
                "perplexity": completer.complete(split.held_out, threads=1).perplexity,
                **scores_of(split, prominent_words(run.topics, 10)),
            }


def tables(rows: Sequence[Row]) -> str:
    """Measures minus those at the end, seed by seed: in the mean of all, then of the ``CHOSEN`` stop, then of each."""
    ends = {(row["corpus"], row["K"], row["seed"]): row for row in rows if row["stop"] == END}
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        for cell in (("all", ""), (row["corpus"], row["K"])):
            groups.setdefault((*cell, row["stop"]), []).append(row)
    lines = {key: [*key, len(several), *_cells(several, ends)] for key, several in groups.items()}
    labels = [f"{label}, %" if name == "perplexity" else label for name, label in SHORT.items()]
    header = ["corpus", "K", "stop", "runs", "steps", "L1", *labels, "CPU s of infer", "of polish"]
    parts = (
        [line for key, line in lines.items() if key[0] == "all"],
        [line for key, line in lines.items() if key[0] != "all" and key[2] in (OTHER, CHOSEN)],
        [line for key, line in lines.items() if key[0] != "all"],
    )
    return "\n\n".join(markdown(header, part, text=3) for part in parts)


def _cells(rows: Sequence[Row], ends: Mapping[tuple[object, ...], Row]) -> Iterator[str]:
    pairs = [(row, ends[row["corpus"], row["K"], row["seed"]]) for row in rows]
    yield from (spread([row[name] for row in rows], 2) for name in ("rectified", "l1"))
    for name in SHORT:
        yield shown([difference(name, *pair) for pair in pairs], 2 if name == "perplexity" else 3)
    yield from (spread([row[name] for row in rows], 2) for name in ("infer_seconds", "polish_seconds"))


@click.command(help=__doc__)
@options.OUT
@options.corpora(words=10_000)
@options.several("topics", [20, 50])
@options.SEEDS
@options.several("stops", ["0", "2", "5", "1e-3", "3e-4", "1e-4", "3e-5"])
@options.quick("300 words of the shipped corpus")
def main(
    out: Path, corpora: tuple[str, ...], words: int, topics: list[int], seeds: int, stops: list[str], quick: bool
) -> None:  # fmt: skip
    if quick:
        corpora, words, topics, seeds, stops = (f"nips={NIPS}",), 300, [5], 1, ["0", "5", CHOSEN]
    read, used = {}, {}
    for named in corpora:
        source, _, part = named.partition("@")
        name, corpus = prepared(source, out / "corpora", words)
        name = f"{name}/{part}" if part else name
        used[name], read[name] = corpus, read_counts(Path(corpus.root))[:: int(part or 1)]
    found: dict[tuple[str, int, int], list[Row]] = {}
    results = Results(out / "cells")
    for seed, name, n_topics in product(range(seeds), read, topics):
        key = {"corpus": used[name].fingerprint, "name": name, "K": n_topics, "seed": seed, "stops": stops}
        with threadpool_limits(1):
            kept = results.row(
                key, lambda k=key: {"rows": [*rows_of(read[k["name"]], k["K"], k["seed"], stops)]}
            )
        found[name, n_topics, seed] = kept["rows"]
    rows = [
        {"corpus": name, "K": n_topics, "seed": seed, **row}
        for name, n_topics, seed in product(read, topics, range(seeds))
        for row in found[name, n_topics, seed]
    ]
    publish(out, "rectification_steps", rows, tables(rows), used)
    click.echo(tables(rows))


if __name__ == "__main__":
    main()
