"""Figure 1 of the STOD paper: recovery error and time against documents, words and topics of simulated corpora.

    python -m pipelines.stod_fig1 OUT [--vary documents] [--corpora 2] [--gibbs 200 --gibbs 1000]

The error is the mean L1 distance (at most 2) between matched topics; times are CPU seconds of one thread, from the
corpus to the topics. STOD and TOD get the true sum of the prior, as in the paper; `STOD, alpha0 found` uses the
defaults of `infer`, and `STOD polished` adds the steps over the documents. Gibbs sampling starts from the true
hyperparameters. TOD runs its passes for up to `--tod-passes` documents; beyond that its topics come from the same
tensor formed at once, and its time is extrapolated from one pass.

OUT keeps the results of each method and corpus, so an interrupted command can be run again and other options add to it;
it gets stod_fig1.parquet, stod_fig1.md and stod_fig1.svg.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import click
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pipelines.common import options, peers, pictures
from pipelines.common.bags import read_counts
from pipelines.common.results import CellMissing, Results, Row, publish
from pipelines.common.tables import markdown, number, spread
from pipelines.common.tod import DocumentMoments, seconds_a_pass, tod
from streaming_jsmf import ScanSettings, StodSettings, infer, open_corpus, open_model, polish, scan
from streaming_jsmf.config import AUTO
from streaming_jsmf.corpus import Corpus
from streaming_jsmf.evaluation.matching import match_topics
from streaming_jsmf.ingestion.simulation import read_truth, simulate_lda
from streaming_jsmf.jobs.blas import single_blas_thread

Floats = NDArray[np.float64]

#: Values of the paper's figure.
PAPER_VALUES = {
    "documents": [5000, 20_000, 50_000, 100_000, 500_000],
    "words": [3000, 10_000, 30_000, 100_000],
    "topics": [10, 25, 50, 100],
}

#: Parameters of the simulated corpora, as in the paper.
MEAN_LENGTH, DIRICHLET_MASS, ALPHA0 = 100, 200, 1.0

METHODS = ("uniform", "STOD", "STOD, alpha0 found", "STOD polished", "TOD")


@dataclass(frozen=True)
class Law:
    """One point of a curve, and the seed of its corpus."""

    documents: int
    words: int
    topics: int
    seed: int = 0


class Trial:
    """A simulated corpus in ``folder``; the corpus and shared results are computed on first use."""

    def __init__(self, law: Law, folder: Path) -> None:
        self.law, self.folder = law, folder
        self._models: dict[object, tuple[Path, float]] = {}

    @cached_property
    def corpus(self) -> Corpus:
        law = self.law
        simulate_lda(
            self.folder / "corpus",
            n_documents=law.documents,
            n_words=law.words,
            n_topics=law.topics,
            mean_length=MEAN_LENGTH,
            seed=law.seed,
        )
        return open_corpus(self.folder / "corpus")

    @cached_property
    def truth(self) -> Floats:
        return read_truth(Path(self.corpus.root)).word_topic

    @cached_property
    def counts(self) -> sparse.csr_array:
        return read_counts(Path(self.corpus.root))

    @cached_property
    def scan_seconds(self) -> float:
        """CPU seconds of the scans for all variants of STOD, into ``folder / "moments"``."""
        corpus = self.corpus
        settings = ScanSettings(max_topics=self.law.topics, third_moment=True)
        return _seconds(lambda: scan(corpus, self.folder / "moments", settings, options.ONE_THREAD))

    def error(self, word_topic: Floats) -> float:
        """Mean L1 distance to the truth; missing topics count as the uniform distribution."""
        n, k = self.truth.shape
        padded = np.hstack([word_topic, np.full((n, k - word_topic.shape[1]), 1 / n)])
        return match_topics(padded, self.truth).mean_l1

    def stod(self, alpha0: float | Literal["auto"] = ALPHA0) -> Row:
        """Error and seconds of two scans and the inference."""
        model, seconds = self._inferred(alpha0)
        return {"error": self.error(_topics(model)), "seconds": seconds}

    def polished(self) -> Row:
        (model, seconds), out = self._inferred(ALPHA0), self.folder / "polished"
        seconds += _seconds(lambda: polish(model, self.corpus, out, execution=options.ONE_THREAD))
        return {"error": self.error(_topics(out)), "seconds": seconds}

    def tod(self, passes_up_to: int) -> Row:
        """Error and seconds of TOD; above ``passes_up_to`` documents, seconds are extrapolated from one pass."""
        settings, run = StodSettings(self.law.topics, ALPHA0), self.law.documents <= passes_up_to
        with single_blas_thread():
            moments = DocumentMoments(self.counts, ALPHA0)
            found = tod(moments, settings, by_passes=run)
            power = found.power
            if not run:
                values, vectors = moments.whiten(settings.n_topics)
                one = seconds_a_pass(moments, vectors / np.sqrt(values), settings.restarts)
                power = one * settings.n_topics * settings.iterations
        error = self.error(found.recovered.word_topic)
        return {"error": error, "seconds": found.spectral + power, "extrapolated": not run}

    def gibbs(self, sweeps: Sequence[int]) -> Iterator[tuple[int, Row]]:
        """Error and seconds after each number of sweeps."""
        law = self.law
        prior = {"alpha": ALPHA0 / law.topics, "eta": DIRICHLET_MASS / law.words}
        for found in peers.gibbs(self.counts, law.topics, law.seed, sweeps, **prior):
            yield found.steps, {"error": self.error(found.word_topic), "seconds": found.cpu_seconds}

    def uniform(self) -> Row:
        return {"error": self.error(np.full_like(self.truth, 1 / self.law.words)), "seconds": None}

    def _inferred(self, alpha0: float | Literal["auto"]) -> tuple[Path, float]:
        """Path of the model, and total seconds of scans and inference."""
        if alpha0 not in self._models:
            scanned, model = self.scan_seconds, self.folder / f"stod-{alpha0}"
            settings = StodSettings(self.law.topics, alpha0)
            seconds = _seconds(lambda: infer(self.folder / "moments", model, settings, threads=1))
            self._models[alpha0] = model, scanned + seconds
        return self._models[alpha0]


def _topics(model: Path) -> Floats:
    return np.asarray(open_model(model)["word_topic"].values, dtype=np.float64)


def _seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


@dataclass(frozen=True)
class Experiment:
    """Methods run at each point, by their names in the table; Gibbs sampling is separate."""

    methods: tuple[str, ...]
    sweeps: tuple[int, ...]
    tod_passes: int

    def rows(self, law: Law, results: Results) -> Iterator[Row]:
        """One row per method; a temporary corpus is simulated only if a row is missing."""
        with tempfile.TemporaryDirectory() as name:
            trial = Trial(law, Path(name))
            makers: dict[str, Callable[[], Row]] = {
                "uniform": trial.uniform,
                "STOD": trial.stod,
                "STOD, alpha0 found": lambda: trial.stod(AUTO),
                "STOD polished": trial.polished,
                "TOD": lambda: trial.tod(self.tod_passes),
            }
            for method in self.methods:
                yield from _kept(results, law, method, makers[method])
            yield from self._gibbs(trial, results)

    def _gibbs(self, trial: Trial, results: Results) -> Iterator[Row]:
        """Rows of all numbers of sweeps, from one chain."""
        if results.only_kept or all(self._has(results, trial.law, sweeps) for sweeps in self.sweeps):
            for sweeps in self.sweeps:
                yield from _kept(results, trial.law, f"Gibbs {sweeps}", trial.uniform)
            return
        for sweeps, row in trial.gibbs(self.sweeps):
            yield from _kept(results, trial.law, f"Gibbs {sweeps}", lambda row=row: row)  # type: ignore[misc]

    def _has(self, results: Results, law: Law, sweeps: int) -> bool:
        return bool([*_kept(replace(results, only_kept=True), law, f"Gibbs {sweeps}", dict)])


def _kept(results: Results, law: Law, method: str, make: Callable[[], Row]) -> Iterator[Row]:
    """Yield the row of a cell unless it is missing and may not be computed."""
    try:
        yield {**asdict(law), "method": method, **results.row({**asdict(law), "method": method}, make)}
    except CellMissing:
        return


#: Parameter that varies along a curve, and the rows of the curve.
Curve = tuple[str, list[Row]]


def table(vary: str, rows: Sequence[Row]) -> str:
    """Mean error with standard deviation, and seconds: one row per value, one column per method."""
    methods = [name for name in pictures.LOOKS if any(row["method"] == name for row in rows)]
    lines = []
    for value in sorted({row[vary] for row in rows}):
        at = [row for row in rows if row[vary] == value]
        cells = [_cell([row for row in at if row["method"] == method]) for method in methods]
        lines.append([f"{value:,}", len({row["seed"] for row in at}), *cells])
    return markdown([vary, "corpora", *methods], lines, text=0)


def _cell(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    seconds = [row["seconds"] for row in rows if row["seconds"] is not None]
    told = "~" if any(row.get("extrapolated") for row in rows) else ""
    timed = f", {told}{number(float(np.mean(seconds)), 2)} s" if seconds else ""
    return spread([row["error"] for row in rows]) + timed


def draw(curves: Sequence[Curve], path: Path) -> None:
    figure, axes = pictures.panels(2, len(curves), width=2.8)
    for (vary, rows), error, seconds in zip(curves, *axes, strict=True):
        for method in pictures.LOOKS:
            for panel, column in ((error, "error"), (seconds, "seconds")):
                points: dict[float, list[float | None]] = {}
                for row in rows:
                    if row["method"] == method:
                        points.setdefault(row[vary], []).append(row[column])
                pictures.curve(panel, method, points)
        for panel in (error, seconds):
            panel.set(xscale="log", yscale="log", xlabel=f"{vary}")
            pictures.ticks(panel, [row[vary] for row in rows])
    axes[0][0].set_ylabel("L1 of matched topics (of 2)")
    axes[1][0].set_ylabel("processor seconds")
    pictures.legend(figure, columns=4)
    pictures.save(figure, path)


@click.command(help=__doc__)
@options.OUT
@click.option("--vary", type=click.Choice(list(PAPER_VALUES)), multiple=True, default=list(PAPER_VALUES))
@click.option(
    "--values",
    type=options.Several(int),
    default=None,
    help="Values of the varied quantity.  [default: as in the paper]",
)
@click.option(
    "--documents", "n_documents", default=100_000, show_default=True, help="Documents, unless varied."
)
@click.option("--words", default=10_000, show_default=True)
@click.option("--topics", default=50, show_default=True)
@click.option("--corpora", default=2, show_default=True, type=click.IntRange(1), help="Corpora per value.")
@options.several("methods", METHODS, ";")
@options.GIBBS
@click.option(
    "--tod-passes", default=5000, show_default=True, help="Maximum number of documents for TOD's passes."
)
@click.option("--seed", default=0, show_default=True, help="Seed of the first corpus.")
@options.quick("small corpora")
@options.ONLY_KEPT
def main(
    out: Path,
    vary: tuple[str, ...],
    values: list[int] | None,
    n_documents: int,
    words: int,
    topics: int,
    corpora: int,
    methods: list[str],
    sweeps: tuple[str, ...],
    tod_passes: int,
    seed: int,
    quick: bool,
    only_kept: bool,
) -> None:
    if quick:
        vary, values, words, topics, sweeps = ("documents",), [300, 1500], 500, 3, ("200",)
    base = Law(n_documents, words, topics)
    experiment = Experiment(tuple(methods), tuple(sorted(map(int, sweeps))), tod_passes)
    results, curves = Results(out / "stod_fig1", only_kept), []
    for name in vary:
        rows: list[Row] = []
        for value in values or PAPER_VALUES[name]:
            for trial in range(corpora):
                rows += experiment.rows(replace(base, **{name: value}, seed=seed + trial), results)
        curves.append((name, rows))
    text = "\n\n".join(table(name, rows) for name, rows in curves)
    publish(out, "stod_fig1", [{"curve": name, **row} for name, rows in curves for row in rows], text)
    draw(curves, out / "stod_fig1.svg")
    click.echo(text)


if __name__ == "__main__":
    main()
