"""NPMI against the share of distinct words: over methods, and after changes of one model that add no information.

    python -m pipelines.coherence_repetition OUT --corpus kos=KOS --corpus nips=data_specs/uci_nips [--topics 20,50]

The first table has the methods of `pipelines.stod_fig2` and, as in `pipelines.quality`, LR-JSMF with and without ten
steps of polish. The second changes the topics of Gibbs sampling (1,000 sweeps) and of polished LR-JSMF:

- *copies*: the lists of the tenth of the topics with the lowest NPMI become copies of those with the highest;
- *merged*: the two nearest topics (L1) become their mean until a tenth of the topics is gone;
- *common words*: each topic is mixed half and half with the words of the whole corpus.

It uses what OUT has of the results of `pipelines.stod_fig2`, and computes what is missing. It writes
coherence_repetition.parquet, coherence_repetition.md and coherence_repetition.svg.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from pipelines import quality, stod_fig2
from pipelines.common import options, pictures
from pipelines.common.chains import chain
from pipelines.common.data import NIPS, prepared
from pipelines.common.held_out import FittedCorpus, coherence_of
from pipelines.common.results import Arrays, CellMissing, Results, Row, publish
from pipelines.common.tables import markdown, spread
from streaming_jsmf.inference.words import prominent_words

Floats = NDArray[np.float64]
Lists = NDArray[np.int64]

#: Columns and their labels.
METRICS = stod_fig2.METRICS

LISTED, SWEEPS, STEPS = 10, 1000, 10


def unchanged(trial: FittedCorpus, found: Arrays) -> Lists:
    del trial
    return prominent_words(found["word_topic"], LISTED)


def copies(trial: FittedCorpus, found: Arrays) -> Lists:
    listed = prominent_words(found["word_topic"], LISTED)
    documents = trial.documents.fitted
    order = np.argsort([coherence_of(documents, words[None]) for words in listed], kind="stable")
    number = max(1, len(listed) // 10)
    listed[order[:number]] = listed[order[-number:]]
    return listed


def merged(trial: FittedCorpus, found: Arrays) -> Lists:
    del trial
    topics = np.asarray(found["word_topic"], np.float64).T
    left = len(topics) - max(1, len(topics) // 10)
    while len(topics) > left:
        distance = cdist(topics, topics, metric="cityblock")
        np.fill_diagonal(distance, np.inf)
        a, b = np.unravel_index(int(distance.argmin()), distance.shape)
        topics[a] = (topics[a] + topics[b]) / 2
        topics = np.delete(topics, b, axis=0)
    return prominent_words(topics.T, LISTED)


def common_words(trial: FittedCorpus, found: Arrays) -> Lists:
    counted = np.asarray(trial.documents.fitted.sum(axis=0), np.float64).ravel()
    return prominent_words((found["word_topic"] + (counted / counted.sum())[:, None]) / 2, LISTED)


CHANGES: dict[str, Callable[[FittedCorpus, Arrays], Lists]] = {
    "none": unchanged,
    "copies": copies,
    "merged": merged,
    "common words": common_words,
}


def models(
    trial: FittedCorpus, n_topics: int, seed: int, out: Path, kept: bool, sampled: bool
) -> Iterator[tuple[str, Arrays]]:
    """LR-JSMF before and after polish, and Gibbs sampling if ``sampled``."""
    own = Results(out / "polished" / trial.name, kept)
    base = {"corpus": trial.corpus.fingerprint, "K": n_topics, "seed": seed}
    keys = {steps: {**base, "steps": steps} for steps in (0, STEPS)}
    if not kept and not all(own.has_arrays(key) for key in keys.values()):
        with tempfile.TemporaryDirectory() as name:
            for steps, found in quality.polished(trial.fitted, n_topics, seed, Path(name), [*keys]):
                own.arrays(keys[steps], partial(dict, found))
    for steps, key in keys.items():
        with suppress(CellMissing):
            yield "LR-JSMF polished" if steps else "LR-JSMF", own.arrays(key, dict)
    of = (trial.documents.fitted, trial.corpus.fingerprint, n_topics, seed, SWEEPS)
    for sweeps, found in chain(*of, Results(out / "chains", kept)) if sampled else ():
        if sweeps == SWEEPS:
            yield f"Gibbs {SWEEPS}", found


def changed_rows(
    trial: FittedCorpus, topics: Sequence[int], seeds: int, out: Path, results: Results, sampled: bool
) -> Iterator[Row]:
    """A row per model and change; LR-JSMF before polish without changes."""
    for n_topics in topics:
        for seed in range(seeds):
            for method, found in models(trial, n_topics, seed, out, results.only_kept, sampled):
                for change, make in CHANGES.items() if method != "LR-JSMF" else [("none", unchanged)]:
                    cell = {"K": n_topics, "method": method, "change": change, "seed": seed}
                    key = {"corpus": trial.corpus.fingerprint, **cell}
                    scored = partial(_scored, trial, make, found)
                    try:
                        yield {"corpus": trial.name, **cell, **results.row(key, scored)}
                    except CellMissing:
                        continue


def _scored(trial: FittedCorpus, make: Callable[[FittedCorpus, Arrays], Lists], found: Arrays) -> Row:
    return {**trial.scores(make(trial, found))}


def table(rows: Sequence[Row], column: str) -> str:
    """Means and standard deviations over seeds; ``column`` is "method" or "change"."""
    names = ["corpus", "K", "method"] + (["change"] if column == "change" else [])
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    lines = [
        [*group, len(several), *(spread([row[name] for row in several]) for name in METRICS)]
        for group, several in groups.items()
    ]
    return markdown([*names, "seeds", *METRICS.values()], lines, text=len(names))


def draw(rows: Sequence[Row], path: Path) -> None:
    """Mean NPMI (fitted, held out) against mean distinct words, a panel per corpus and K; arrows for the changes."""
    cells = list(dict.fromkeys((row["corpus"], row["K"]) for row in rows))
    figure, axes = pictures.panels(2, len(cells), width=2.6)
    for place, (corpus, n_topics) in enumerate(cells):
        there = [row for row in rows if (row["corpus"], row["K"]) == (corpus, n_topics)]
        for column, line in zip(("npmi", "held_out_npmi"), axes, strict=True):
            panel = line[place]
            for method in dict.fromkeys(row["method"] for row in there):
                points = {change: _mean(there, method, change, column) for change in CHANGES}
                look, start = pictures.LOOKS[method], points["none"]
                panel.plot(*start, look.marker, color=look.colour, label=method, markerfacecolor="none")
                for change, end in points.items():
                    if change != "none" and np.isfinite(end[0]):
                        panel.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": look.colour})
                        panel.annotate(change, end, fontsize=6)
            panel.set_title(f"{corpus}, K = {n_topics}: {METRICS[column]}", fontsize=8)
            panel.set_xlabel("distinct top words")
    pictures.legend(figure, columns=4)
    pictures.save(figure, path)


def _mean(rows: Sequence[Row], method: str, change: str, column: str) -> tuple[float, float]:
    own = [row for row in rows if (row["method"], row["change"]) == (method, change)]
    if not own:
        return float("nan"), float("nan")
    return float(np.mean([row["distinct"] for row in own])), float(np.mean([row[column] for row in own]))


@click.command(help=__doc__)
@options.DRAWN_OUT
@options.corpora(words=10_000)
@options.several("topics", [20, 50])
@options.SEEDS
@options.MOST_TOPICS
@options.quick("300 words of the shipped corpus, without Gibbs sampling")
@options.ONLY_KEPT
def main(
    out: Path,
    corpora: tuple[str, ...],
    words: int,
    topics: list[int],
    seeds: int,
    max_topics: int,
    quick: bool,
    only_kept: bool,
) -> None:
    if quick:
        corpora, words, topics, seeds, max_topics = (f"nips={NIPS}",), 300, [5], 2, 5
    rows: list[Row] = []
    used = {}
    for named in corpora:
        name, corpus = prepared(named, out / "corpora", words)
        used[name] = corpus
        trial = stod_fig2.Trial(name, corpus, out / "stod_fig2" / name, max_topics)
        results = Results(trial.folder / "cells", only_kept)
        for row in stod_fig2.rows_of(trial, topics, stod_fig2.METHODS, seeds, results):
            rows.append({**row, "change": "none"})
        rows += changed_rows(trial, topics, seeds, out, results, sampled=not quick)
    rows.sort(key=lambda row: (row["corpus"], row["K"]))
    whole = [row for row in rows if row["change"] == "none"]
    changed = [row for row in rows if row["method"] in ("LR-JSMF polished", f"Gibbs {SWEEPS}")]
    text = "\n\n".join([table(whole, "method"), table(changed, "change")])
    publish(out, "coherence_repetition", rows, text, used)
    draw(rows, out / "coherence_repetition.svg")
    click.echo(text)


if __name__ == "__main__":
    main()
