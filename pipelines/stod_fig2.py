"""Figure 2 of the STOD paper: coherence against the number of topics on real corpora, with TOD and Gibbs sampling.

    python -m pipelines.stod_fig2 OUT --corpus nips=data_specs/uci_nips --corpus kos=KOS [--topics 20,50] [--gibbs 1000]

Every fifth document is held out. NPMI uses the 10 top words of a topic, in fitted and held-out documents. The share of
distinct top words is reported with it, because NPMI increases with near-duplicate topics. STOD and TOD get a prior of
sum 1, as in the paper. *As printed* lists the largest entries of the printed topics; *STOD* and *TOD* list what exceeds
the noise sixfold, as `infer` does, and *STOD, unfiltered* the same with `--stod-threshold 0`. `STOD polished`
adds the steps over the documents to `STOD, alpha0 found`, which has the defaults of `infer`. TOD has its own whitening
with all words; its tensor is formed at once. Seeds are those of the scans and the methods; the documents are the same.

OUT keeps topics and results, so an interrupted command can be run again; it gets stod_fig2.parquet, stod_fig2.md and
stod_fig2.svg. Chains of Gibbs sampling are kept in OUT/chains, for all experiments.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import click
import numpy as np

from pipelines.common import as_printed, options, pictures
from pipelines.common.chains import chain
from pipelines.common.data import NIPS, prepared
from pipelines.common.held_out import FittedCorpus
from pipelines.common.results import Arrays, CellMissing, Results, Row, publish
from pipelines.common.tables import markdown, number, spread
from pipelines.common.tod import DocumentMoments, tod
from streaming_jsmf import PolishSettings, ScanSettings, StodSettings, infer, polish, scan
from streaming_jsmf.config import AUTO
from streaming_jsmf.inference.words import prominent_words
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.moments.store import Moments
from streaming_jsmf.topics.store import Model

METHODS = (
    "STOD as printed",
    "STOD, unfiltered",
    "STOD",
    "STOD, alpha0 found",
    "STOD polished",
    "TOD as printed",
    "TOD",
)

#: Plotted columns and their labels.
METRICS = {"npmi": "NPMI", "held_out_npmi": "NPMI, held out", "distinct": "distinct top words"}

LISTED, ALPHA0 = 10, 1.0


@dataclass(frozen=True)
class Trial(FittedCorpus):
    """One corpus; ``folder`` contains the corpus of the fitted documents, its moments stores and the models."""

    max_topics: int = 100
    _stores: dict[int, Moments] = field(default_factory=dict)

    def moments(self, seed: int) -> Moments:
        if seed not in self._stores:
            settings = ScanSettings(max_topics=self.max_topics, third_moment=True, seed=seed)
            self._stores[seed] = scan(
                self.fitted, self.folder / f"moments-{seed}", settings, options.ONE_THREAD
            )
        return self._stores[seed]

    def topics(self, method: str, n_topics: int, seed: int) -> Arrays:
        """Top words (K x 10) and CPU seconds, without the scan."""
        if method.startswith("STOD") and method != "STOD as printed":
            self.moments(seed)
        started = time.process_time()
        if method.endswith("as printed"):
            listed = self._printed(method, n_topics, seed)
        else:
            listed = self._tod(n_topics, seed) if method == "TOD" else self._stod(method, n_topics, seed)
        return {"listed": listed[:, :LISTED], "seconds": np.array(time.process_time() - started)}

    def _printed(self, method: str, n_topics: int, seed: int) -> np.ndarray:
        find = as_printed.stod_as_printed if method.startswith("STOD") else as_printed.tod_as_printed
        with single_blas_thread():
            moments = DocumentMoments(self.documents.fitted, ALPHA0, "uniform")
            return prominent_words(find(moments, n_topics, seed).phi, LISTED)

    def _tod(self, n_topics: int, seed: int) -> np.ndarray:
        with single_blas_thread():
            moments = DocumentMoments(self.documents.fitted, ALPHA0)
            found = tod(moments, StodSettings(n_topics, ALPHA0, seed=seed), by_passes=False)
        return prominent_words(found.recovered.listing, LISTED)

    def _stod(self, method: str, n_topics: int, seed: int) -> np.ndarray:
        alpha0: float | Literal["auto"] = ALPHA0 if method in ("STOD", "STOD, unfiltered") else AUTO
        start, end = (self.folder / f"k{n_topics}-{alpha0}{stage}" for stage in ("", "-polished"))
        threshold = {"threshold": 0.0} if method == "STOD, unfiltered" else {}
        settings = StodSettings(n_topics, alpha0, seed=seed, **threshold)
        model: Model = infer(self.moments(seed), start, settings, workers=1, overwrite=True)
        if method == "STOD polished":
            steps = PolishSettings(held_out=0, seed=seed)
            model = polish(start, self.fitted, end, steps, execution=options.ONE_THREAD, overwrite=True)
        return np.asarray(model.arrays["prominent_words"])


def rows_of(
    trial: Trial, topics: Sequence[int], methods: Sequence[str], seeds: int, results: Results
) -> Iterator[Row]:
    """Yield a row per cell that is stored or may be computed."""
    for n_topics in topics:
        for method in methods:
            for seed in range(seeds):
                cell = {"corpus": trial.name, "K": n_topics, "method": method, "seed": seed}
                try:
                    yield {**cell, **row(trial, n_topics, method, seed, results)}
                except CellMissing:
                    continue


def row(trial: Trial, n_topics: int, method: str, seed: int, results: Results) -> Row:
    """Scores and seconds of a cell; the scores and top words are stored."""
    key = {"corpus": trial.corpus.fingerprint, "K": n_topics, "method": method, "seed": seed}
    if method.startswith("STOD"):
        key["scan"] = trial.max_topics
    found = results.arrays(key, lambda: trial.topics(method, n_topics, seed))
    return results.row({**key, "scores": 1}, lambda: trial.scores(found["listed"])) | {
        "seconds": float(found["seconds"]),
        "topics_found": len(found["listed"]),
    }


def gibbs_rows(
    trial: Trial, topics: Sequence[int], sweeps: Sequence[int], seeds: int, out: Path, results: Results
) -> Iterator[Row]:
    """Rows of Gibbs sampling from the chains in ``out / "chains"``."""
    chains = Results(out / "chains", results.only_kept)
    for n_topics in topics if sweeps else ():
        for seed in range(seeds):
            of = (trial.documents.fitted, trial.corpus.fingerprint, n_topics, seed, max(sweeps))
            for number_of_sweeps, found in chain(*of, chains):
                if number_of_sweeps not in sweeps:
                    continue
                method = f"Gibbs {number_of_sweeps}"
                key = {"corpus": trial.corpus.fingerprint, "K": n_topics, "method": method, "seed": seed}
                listed = prominent_words(found["word_topic"], LISTED)
                try:
                    scored = results.row({**key, "scores": 1}, lambda listed=listed: trial.scores(listed))  # type: ignore[misc]
                except CellMissing:
                    continue
                cell = {"corpus": trial.name, "K": n_topics, "method": method, "seed": seed}
                yield {**cell, **scored, "seconds": float(found["seconds"]), "topics_found": n_topics}


def table(rows: Sequence[Row]) -> str:
    """One line per corpus, K and method: means and standard deviations over seeds."""
    order = list(pictures.LOOKS)
    groups: dict[tuple[str, int, str], list[Row]] = {}
    for each in sorted(rows, key=lambda r: (r["corpus"], r["K"], order.index(r["method"]))):
        groups.setdefault((each["corpus"], each["K"], each["method"]), []).append(each)
    lines = [
        [
            corpus,
            method,
            n_topics,
            len(several),
            *(spread([each[name] for each in several]) for name in METRICS),
            number(float(np.mean([each["seconds"] for each in several])), 2),
        ]
        for (corpus, n_topics, method), several in groups.items()
    ]
    return markdown(["corpus", "method", "K", "seeds", *METRICS.values(), "seconds"], lines, text=2)


@click.command(help=__doc__)
@options.DRAWN_OUT
@options.corpora(words=10_000)
@options.several("topics", [20, 50])
@options.several("methods", METHODS, ";")
@options.GIBBS
@options.SEEDS
@options.MOST_TOPICS
@options.quick("the shipped corpus, 300 words")
@options.ONLY_KEPT
def main(
    out: Path,
    corpora: tuple[str, ...],
    words: int,
    topics: list[int],
    methods: list[str],
    sweeps: tuple[str, ...],
    seeds: int,
    max_topics: int,
    quick: bool,
    only_kept: bool,
) -> None:
    if quick:
        corpora, words, topics, max_topics, sweeps, seeds = (f"nips={NIPS}",), 300, [3, 5], 5, (), 2
    rows: list[Row] = []
    used = {}
    for named in corpora:
        name, corpus = prepared(named, out / "corpora", words)
        used[name] = corpus
        folder = out / "stod_fig2" / name
        trial, results = Trial(name, corpus, folder, max_topics), Results(folder / "cells", only_kept)
        rows += rows_of(trial, topics, methods, seeds, results)
        rows += gibbs_rows(trial, topics, sorted(map(int, sweeps)), seeds, out, results)
    text = table(rows)
    publish(out, "stod_fig2", rows, text, used)
    pictures.save(pictures.grid(rows, "corpus", "K", METRICS), out / "stod_fig2.svg")
    click.echo(text)


if __name__ == "__main__":
    main()
