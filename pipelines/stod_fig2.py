"""Figure 2 of the STOD paper: coherence against the number of topics on real corpora, with TOD and Gibbs sampling.

    python -m pipelines.stod_fig2 OUT --corpus nips=data_specs/uci_nips --corpus kos=KOS [--topics 20,50,100]

Every fifth document is held out. NPMI uses the 10 top words of a topic, in fitted and held-out documents. The share of
 distinct top words is reported with it, because NPMI increases with near-duplicate topics. STOD and TOD get a
prior of sum 1, as in the paper; `STOD, alpha0 found` uses the defaults of `infer`, and `STOD polished` adds the steps
over the documents. TOD has its own whitening with all words; its tensor is formed at once.

OUT keeps topics and results, so an interrupted command can be run again; it gets stod_fig2.parquet, stod_fig2.md and
stod_fig2.svg.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import click
import numpy as np

from pipelines.common import options, peers, pictures
from pipelines.common.bags import read_counts, write_corpus
from pipelines.common.data import NIPS, prepared
from pipelines.common.held_out import Split, coherence_of
from pipelines.common.results import Arrays, CellMissing, Results, Row, publish
from pipelines.common.tables import markdown, number
from pipelines.common.tod import DocumentMoments, tod
from streaming_jsmf import PolishSettings, ScanSettings, StodSettings, infer, polish, scan
from streaming_jsmf.config import AUTO
from streaming_jsmf.corpus import Corpus
from streaming_jsmf.evaluation.coherence import distinct_share
from streaming_jsmf.inference.words import prominent_words
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.moments.reader import Moments

METHODS = ("STOD", "STOD, alpha0 found", "STOD polished", "TOD")

#: Plotted columns and their labels.
METRICS = {"npmi": "NPMI", "held_out_npmi": "NPMI, held out", "distinct": "distinct top words"}

LISTED, ALPHA0 = 10, 1.0


@dataclass(frozen=True)
class Trial:
    """One corpus; ``folder`` contains the corpus of the fitted documents, its moments store and the models."""

    name: str
    corpus: Corpus
    folder: Path
    max_topics: int

    @cached_property
    def documents(self) -> Split:
        return Split.of(read_counts(Path(self.corpus.root)))

    @cached_property
    def fitted(self) -> Path:
        path = self.folder / "fitted"
        if not path.exists():
            part = self.folder / "fitted.part"
            write_corpus(part, self.documents.fitted)
            part.rename(path)
        return path

    @cached_property
    def moments(self) -> Moments:
        settings = ScanSettings(max_topics=self.max_topics, third_moment=True)
        return scan(self.fitted, self.folder / "moments", settings, options.ONE_THREAD)

    def topics(self, method: str, n_topics: int) -> Arrays:
        """Top words (K x 10) and CPU seconds, without the scan."""
        started = time.process_time()
        if method.startswith("Gibbs"):
            found = next(peers.gibbs(self.documents.fitted, n_topics, 0, [int(method.split()[1])]))
            return {
                "listed": prominent_words(found.word_topic, LISTED),
                "seconds": np.array(found.cpu_seconds),
            }
        listed = self._tod(n_topics) if method == "TOD" else self._stod(method, n_topics)
        return {"listed": listed[:, :LISTED], "seconds": np.array(time.process_time() - started)}

    def _tod(self, n_topics: int) -> np.ndarray:
        with single_blas_thread():
            moments = DocumentMoments(self.documents.fitted, ALPHA0)
            found = tod(moments, StodSettings(n_topics, ALPHA0), by_passes=False)
        return prominent_words(found.recovered.listing, LISTED)

    def _stod(self, method: str, n_topics: int) -> np.ndarray:
        alpha0: float | Literal["auto"] = ALPHA0 if method == "STOD" else AUTO
        start, end = (self.folder / f"k{n_topics}-{alpha0}{stage}" for stage in ("", "-polished"))
        model = infer(self.moments, start, StodSettings(n_topics, alpha0), threads=1, overwrite=True)
        if method == "STOD polished":
            settings = PolishSettings(held_out=0)
            model = polish(start, self.fitted, end, settings, execution=options.ONE_THREAD, overwrite=True)
        return np.asarray(model.arrays["prominent_words"])

    def scores(self, listed: np.ndarray) -> Row:
        return {
            "npmi": coherence_of(self.documents.fitted, listed),
            "held_out_npmi": coherence_of(self.documents.held_out, listed),
            "distinct": distinct_share(listed),
            "topics_found": len(listed),
        }


def rows_of(trial: Trial, topics: Sequence[int], methods: Sequence[str], results: Results) -> Iterator[Row]:
    """Yield a row per cell that is stored or may be computed."""
    for n_topics in topics:
        for method in methods:
            try:
                yield {
                    "corpus": trial.name,
                    "K": n_topics,
                    "method": method,
                    **row(trial, n_topics, method, results),
                }
            except CellMissing:
                continue


def row(trial: Trial, n_topics: int, method: str, results: Results) -> Row:
    """Scores and seconds of a cell; the scores and top words are stored."""
    key: dict[str, object] = {"corpus": trial.corpus.fingerprint, "K": n_topics, "method": method}
    if method.startswith("STOD"):
        key["scan"] = trial.max_topics
    found = results.arrays(key, lambda: trial.topics(method, n_topics))
    scores = results.row({**key, "scores": 1}, lambda: trial.scores(found["listed"]))
    return {**scores, "seconds": float(found["seconds"])}


def table(rows: Sequence[Row]) -> str:
    """One row per cell: both NPMI, fraction of distinct words, and seconds."""
    lines = [
        [
            row["corpus"],
            row["method"],
            row["K"],
            *(f"{row[name]:.3f}" for name in METRICS),
            number(row["seconds"], 2),
        ]
        for row in rows
    ]
    return markdown(["corpus", "method", "K", *METRICS.values(), "seconds"], lines, text=2)


@click.command(help=__doc__)
@options.OUT
@options.corpora(words=10_000)
@options.several("topics", [20, 50, 100])
@options.several("methods", METHODS, ";")
@options.GIBBS
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
    max_topics: int,
    quick: bool,
    only_kept: bool,
) -> None:
    if quick:
        corpora, words, topics, max_topics, sweeps = (f"nips={NIPS}",), 300, [3, 5], 5, ()
    names = [*methods, *(f"Gibbs {number}" for number in sweeps)]
    rows: list[Row] = []
    used = {}
    for named in corpora:
        name, corpus = prepared(named, out / "corpora", words)
        used[name] = corpus
        folder = out / "stod_fig2" / name
        folder.mkdir(parents=True, exist_ok=True)
        trial = Trial(name, corpus, folder, max_topics)
        rows += rows_of(trial, topics, names, Results(folder / "cells", only_kept))
    text = table(rows)
    publish(out, "stod_fig2", rows, text, used)
    pictures.save(pictures.grid(rows, "corpus", "K", METRICS), out / "stod_fig2.svg")
    click.echo(text)


if __name__ == "__main__":
    main()
