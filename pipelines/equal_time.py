"""Quality against CPU seconds: a spectral start with CVB0 steps, and collapsed Gibbs sampling.

    python -m pipelines.equal_time OUT --corpus kos=KOS --corpus news=NEWS [--topics 20,50] [--seeds 5]

Every fifth document is held out. *LR-JSMF polished* is the spectral model (scan and inference with the defaults of
`infer`) after several numbers of steps of `polish`, which are CVB0 within documents; 0 steps is the spectral model
itself. *Gibbs* is tomotopy after several numbers of sweeps of one chain. Seconds are those of one thread: scan,
inference and steps, or adding the documents and sweeps. Quality is the perplexity of held-out documents by completion
(the same halves for all), NPMI of the 10 top words in fitted and held-out documents, and the share of distinct words.

OUT keeps topics and results, so an interrupted command can be run again; it gets equal_time.parquet, equal_time.md and
equal_time.svg. Chains of Gibbs sampling are kept in OUT/chains, for all experiments.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import click
import numpy as np
from scipy import sparse

from pipelines.common import options, pictures
from pipelines.common.bags import write_corpus
from pipelines.common.chains import chain
from pipelines.common.data import NIPS, prepared
from pipelines.common.held_out import FittedCorpus
from pipelines.common.results import Arrays, CellMissing, Results, Row, publish
from pipelines.common.tables import markdown, number, spread
from streaming_jsmf import InferSettings, PolishSettings, ScanSettings, infer, polish, scan
from streaming_jsmf.inference.perplexity import Completer
from streaming_jsmf.inference.words import prominent_words
from streaming_jsmf.topics.parameters import prior_of

#: Numbers of steps of polish; 10 is the default.
STEPS = (0, 2, 5, 10, 20, 30)

#: Plotted columns and their labels.
METRICS = {
    "perplexity": "perplexity, held out",
    "npmi": "NPMI",
    "held_out_npmi": "NPMI, held out",
    "distinct": "distinct top words",
}

LISTED = 10

POLISHED, GIBBS = "LR-JSMF polished", "Gibbs"


def polished(trial: FittedCorpus, n_topics: int, seed: int, results: Results) -> Iterator[tuple[int, Arrays]]:
    """Number of steps and topics, prior, and CPU seconds of scan, inference and steps; a start is computed once."""
    base = {"corpus": trial.corpus.fingerprint, "K": n_topics, "method": POLISHED, "seed": seed}
    keys = {steps: {**base, "steps": steps} for steps in STEPS}
    if not results.only_kept and not all(results.has_arrays(key) for key in keys.values()):
        _load_compiled_code()
        folder = trial.folder / f"k{n_topics}-{seed}"
        shutil.rmtree(folder, ignore_errors=True)
        for steps, arrays in dict(_polished(trial.fitted, n_topics, seed, folder)).items():
            results.arrays(keys[steps], lambda arrays=arrays: arrays)  # type: ignore[misc]
    for steps, key in keys.items():
        try:
            yield steps, results.arrays(key, dict)
        except CellMissing:
            continue


@cache
def _load_compiled_code() -> None:
    """Fit few documents, so that the seconds of the first model do not include it."""
    counts = sparse.csr_array(np.random.default_rng(0).poisson(0.5, (300, 60)).astype(np.int32))
    with tempfile.TemporaryDirectory() as name:
        write_corpus(Path(name) / "few", counts)
        deque(_polished(Path(name) / "few", 3, 0, Path(name)), maxlen=0)


def _polished(corpus: Path, n_topics: int, seed: int, folder: Path) -> Iterator[tuple[int, Arrays]]:
    started = time.process_time()
    moments = scan(
        corpus, folder / "moments", ScanSettings(max_topics=n_topics, seed=seed), options.ONE_THREAD
    )
    model = infer(moments, folder / "start", InferSettings(n_topics), workers=1)
    spectral = time.process_time() - started
    for steps in STEPS:
        started = time.process_time()
        if steps:
            wanted = PolishSettings(steps=steps, seed=seed)
            model = polish(
                folder / "start", corpus, folder / str(steps), wanted, execution=options.ONE_THREAD
            )
        arrays = {"word_topic": model.arrays["word_topic"].astype(np.float32), "prior": prior_of(model)}
        yield steps, arrays | {"seconds": np.array(spectral + time.process_time() - started)}


def quality(trial: FittedCorpus, found: Arrays) -> Row:
    """Perplexity, both NPMI and distinct words."""
    word_topic = found["word_topic"].astype(np.float64)
    counted = np.asarray(trial.documents.fitted.sum(axis=0), np.float64).ravel()
    completer = Completer.of(word_topic, found["prior"], counted)
    completed = completer.complete(trial.documents.held_out, threads=1)
    return {"perplexity": completed.perplexity, **trial.scores(prominent_words(word_topic, LISTED))}


def rows_of(
    trial: FittedCorpus, topics: Sequence[int], seeds: int, last: int, out: Path, kept: bool
) -> Iterator[Row]:
    """Rows of both methods; Gibbs sampling up to ``last`` sweeps, none with 0."""
    results, chains = Results(trial.folder / "cells", kept), Results(out / "chains", kept)

    for n_topics in topics:
        for seed in range(seeds):
            found = [(POLISHED, *each) for each in polished(trial, n_topics, seed, results)]
            if last:
                of = (trial.documents.fitted, trial.corpus.fingerprint, n_topics, seed, last)
                found += [(GIBBS, *each) for each in chain(*of, chains)]
            for method, steps, arrays in found:
                cell = {"K": n_topics, "method": method, "steps": steps, "seed": seed}
                key = {"corpus": trial.corpus.fingerprint, **cell, "quality": 1}
                try:
                    row = results.row(key, lambda arrays=arrays: quality(trial, arrays))  # type: ignore[misc]
                except CellMissing:
                    continue
                yield {"corpus": trial.name, **cell, **row, "seconds": float(arrays["seconds"])}


def table(rows: Sequence[Row]) -> str:
    """One line per corpus, K, method and number of steps or sweeps: means and standard deviations over seeds."""
    groups: dict[tuple[str, int, str, int], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["corpus"], row["K"], row["method"], row["steps"]), []).append(row)
    lines = [
        [
            corpus,
            n_topics,
            method,
            steps,
            len(several),
            *(spread([row[name] for row in several], 4 if name == "perplexity" else 3) for name in METRICS),
            number(float(np.mean([row["seconds"] for row in several])), 2),
        ]
        for (corpus, n_topics, method, steps), several in sorted(groups.items(), key=lambda g: g[0][:2])
    ]
    header = ["corpus", "K", "method", "steps or sweeps", "seeds", *METRICS.values(), "seconds"]
    return markdown(header, lines, text=3)


def draw(rows: Sequence[Row], path: Path) -> None:
    """A line of panels per corpus and K, a column per measure, mean quality against mean seconds."""
    cells = list(dict.fromkeys((row["corpus"], row["K"]) for row in rows))
    figure, axes = pictures.panels(len(cells), len(METRICS))
    for (corpus, n_topics), line in zip(cells, axes, strict=True):
        for (column, label), panel in zip(METRICS.items(), line, strict=True):
            for method in (POLISHED, GIBBS):
                points: dict[float, list[float | None]] = {}
                own = [r for r in rows if (r["corpus"], r["K"], r["method"]) == (corpus, n_topics, method)]
                for steps in sorted({row["steps"] for row in own}):
                    there = [row for row in own if row["steps"] == steps]
                    points[float(np.mean([row["seconds"] for row in there]))] = [row[column] for row in there]
                pictures.curve(panel, method, points)
            panel.set(xscale="log")
            panel.set_title(f"{corpus}, K = {n_topics}: {label}", fontsize=8)
    for panel in axes[-1]:
        panel.set_xlabel("processor seconds")
    pictures.legend(figure)
    pictures.save(figure, path)


@click.command(help=__doc__)
@options.DRAWN_OUT
@options.corpora(words=10_000)
@options.several("topics", [20, 50])
@options.SEEDS
@click.option("--sweeps", default=1000, show_default=True, help="Most sweeps of Gibbs sampling; 0 for none.")
@options.quick("300 words of the shipped corpus, without Gibbs sampling")
@options.ONLY_KEPT
def main(
    out: Path,
    corpora: tuple[str, ...],
    words: int,
    topics: list[int],
    seeds: int,
    sweeps: int,
    quick: bool,
    only_kept: bool,
) -> None:
    if quick:
        corpora, words, topics, seeds, sweeps = (f"nips={NIPS}",), 300, [5], 2, 0
    rows: list[Row] = []
    used = {}
    for named in corpora:
        name, corpus = prepared(named, out / "corpora", words)
        used[name] = corpus
        trial = FittedCorpus(name, corpus, out / "equal_time" / name)
        rows += rows_of(trial, topics, seeds, sweeps, out, only_kept)
    text = table(rows)
    publish(out, "equal_time", rows, text, used)
    draw(rows, out / "equal_time.svg")
    click.echo(text)


if __name__ == "__main__":
    main()
