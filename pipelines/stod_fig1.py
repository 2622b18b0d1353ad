"""Figure 1 of the STOD paper: recovery error and time against documents, words and topics of simulated corpora.

    python -m pipelines.stod_fig1 OUT [--vary documents] [--values 5000,20000] [--seeds 5] [--gibbs 1000]

Errors are L1 distances (at most 2) between matched topics; times are CPU seconds of one thread, from the corpus to the
topics. STOD and TOD get the true sum of the prior, as in the paper, in three versions: *as printed* (*N = n = 10*: with
ten instead of 30 restarts and iterations); with *negatives cut*, the negative entries of the printed topics set to 0;
and ours, *STOD* and *TOD, noise removed*, with the last step of `infer`, noise removal and mixing (*noise subtracted*:
its first half, after the printed STOD). *STOD, alpha0 found* uses the defaults of `infer`, and *STOD polished* adds the
steps over the documents. Gibbs sampling starts from the true hyperparameters. TOD's topics come from its tensor formed
at once, and its time is extrapolated from one pass; up to --tod-passes documents it runs its passes.

Seed s is the seed of the corpus and of the methods. With --same-corpus every seed uses the first corpus, as in the
paper, and the files are named stod_fig1_same_corpus. A true topic is *merged* if its nearest estimated topic is also
the nearest of another true topic.

OUT keeps the results of each method and corpus, so an interrupted command can be run again and other options add to it;
it gets stod_fig1.parquet, stod_fig1.md and stod_fig1.svg.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import click
import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from pipelines.common import as_printed, options, peers, pictures
from pipelines.common.bags import read_counts
from pipelines.common.results import Arrays, CellMissing, Results, Row, publish
from pipelines.common.tables import markdown, number, spread
from pipelines.common.tod import DocumentMoments, seconds_a_pass, tod
from streaming_jsmf import (
    PolishSettings,
    ScanSettings,
    StodSettings,
    infer,
    open_corpus,
    open_model,
    polish,
    scan,
)
from streaming_jsmf.config import AUTO
from streaming_jsmf.corpus import Corpus
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.simulation import read_truth, simulate_lda

Floats = NDArray[np.float64]

PAPER_VALUES = {
    "documents": [5000, 20_000, 50_000, 100_000, 500_000],
    "words": [3000, 10_000, 30_000, 100_000],
    "topics": [10, 25, 50, 100],
}

#: Parameters of the simulated corpora, as in the paper.
MEAN_LENGTH, DIRICHLET_MASS, ALPHA0 = 100, 200, 1.0

#: Methods by the computation that gives them.
GROUPS = {
    "uniform": ("uniform",),
    "printed": ("STOD as printed", "STOD, N = n = 10", "STOD, negatives cut", "STOD, noise subtracted"),
    "STOD": ("STOD",),
    "alpha0": ("STOD, alpha0 found",),
    "polished": ("STOD polished",),
    "TOD": ("TOD as printed", "TOD, negatives cut", "TOD, noise removed"),
}


@dataclass(frozen=True)
class Law:
    """One point of a curve: size of the corpus, seed of the corpus, seed of the methods, mean tokens of a document."""

    documents: int
    words: int
    topics: int
    seed: int = 0
    run: int = 0
    length: int = MEAN_LENGTH


class Trial:
    """A simulated corpus in ``folder``; the corpus and shared results are computed on first use."""

    def __init__(self, law: Law, folder: Path, tod_passes: int = 0) -> None:
        self.law, self.folder, self.tod_passes = law, folder, tod_passes
        self._models: dict[object, tuple[Path, float]] = {}

    @cached_property
    def corpus(self) -> Corpus:
        law = self.law
        simulate_lda(
            self.folder / "corpus",
            n_documents=law.documents,
            n_words=law.words,
            n_topics=law.topics,
            mean_length=law.length,
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
        corpus, law = self.corpus, self.law
        settings = ScanSettings(max_topics=law.topics, third_moment=True, seed=law.run)
        return _seconds(lambda: scan(corpus, self.folder / "moments", settings, options.ONE_THREAD))

    def found(self, word_topic: Floats, seconds: float | None, extrapolated: bool = False) -> Arrays:
        """L1 distances of true (rows) and found topics, K x K; missing topics count as the uniform distribution."""
        n, k = self.truth.shape
        padded = np.hstack([word_topic, np.full((n, k - word_topic.shape[1]), 1 / n)])
        return {
            "distances": cdist(self.truth.T, padded.T, metric="cityblock"),
            "seconds": np.array(np.nan if seconds is None else seconds),
            "extrapolated": np.array(extrapolated),
        }

    def uniform(self) -> dict[str, Arrays]:
        return {"uniform": self.found(np.full_like(self.truth, 1 / self.law.words), None)}

    def stod(self, method: str, alpha0: float | Literal["auto"]) -> dict[str, Arrays]:
        """Two scans and the inference."""
        model, seconds = self._inferred(alpha0)
        return {method: self.found(_topics(model), seconds)}

    def polished(self) -> dict[str, Arrays]:
        (model, seconds), out = self._inferred(ALPHA0), self.folder / "polished"
        corpus, settings = self.corpus, PolishSettings(seed=self.law.run)
        seconds += _seconds(lambda: polish(model, corpus, out, settings, execution=options.ONE_THREAD))
        return {"STOD polished": self.found(_topics(out), seconds)}

    def printed(self) -> dict[str, Arrays]:
        with single_blas_thread():
            moments = DocumentMoments(self.counts, ALPHA0, "uniform")
            found, fewer = (
                as_printed.stod_as_printed(moments, self.law.topics, self.law.run, restarts)
                for restarts in (as_printed.RESTARTS, as_printed.FEWER_RESTARTS)
            )
        return {
            "STOD as printed": self.found(found.phi, found.seconds),
            "STOD, N = n = 10": self.found(fewer.phi, fewer.seconds),
            "STOD, negatives cut": self.found(as_printed.cut(found.phi), found.seconds),
            "STOD, noise subtracted": self.found(
                as_printed.less_noise(found.phi, moments.word_mean), found.seconds
            ),
        }

    def tod(self) -> dict[str, Arrays]:
        """TOD as printed, cut, and with our last step, which needs the passes only for its seconds."""
        law, run = self.law, self.law.documents <= self.tod_passes
        settings = StodSettings(law.topics, ALPHA0, seed=law.run)
        with single_blas_thread():
            moments = DocumentMoments(self.counts, ALPHA0, "uniform")
            printed = as_printed.tod_as_printed(moments, law.topics, law.run)
            found = tod(DocumentMoments(self.counts, ALPHA0), settings, by_passes=run)
            seconds = found.spectral + found.power
            if not run:
                values, vectors = moments.whiten(settings.n_topics)
                one = seconds_a_pass(moments, vectors / np.sqrt(values), settings.restarts)
                seconds = found.spectral + one * settings.n_topics * settings.iterations
        return {
            "TOD as printed": self.found(printed.phi, seconds, not run),
            "TOD, negatives cut": self.found(as_printed.cut(printed.phi), seconds, not run),
            "TOD, noise removed": self.found(found.recovered.word_topic, seconds, not run),
        }

    def gibbs(self, sweeps: Sequence[int]) -> dict[str, Arrays]:
        """One chain, after each number of sweeps."""
        law = self.law
        prior = {"alpha": ALPHA0 / law.topics, "eta": DIRICHLET_MASS / law.words}
        chain = peers.gibbs(self.counts, law.topics, law.run, sweeps, **prior)  # type: ignore[arg-type]
        return {f"Gibbs {each.steps}": self.found(each.word_topic, each.cpu_seconds) for each in chain}

    def _inferred(self, alpha0: float | Literal["auto"]) -> tuple[Path, float]:
        """Path of the model, and total seconds of scans and inference."""
        if alpha0 not in self._models:
            scanned, model = self.scan_seconds, self.folder / f"stod-{alpha0}"
            settings = StodSettings(self.law.topics, alpha0, seed=self.law.run)
            seconds = _seconds(lambda: infer(self.folder / "moments", model, settings, workers=1))
            self._models[alpha0] = model, scanned + seconds
        return self._models[alpha0]


def _topics(model: Path) -> Floats:
    return np.asarray(open_model(model)["word_topic"].values, dtype=np.float64)


def _seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def scores(found: Mapping[str, NDArray[np.generic]]) -> Row:
    """Mean L1 of matched topics, the L1 of each topic, the number of merged topics, and seconds."""
    distances = np.asarray(found["distances"], dtype=np.float64)
    l1 = distances[linear_sum_assignment(distances)]
    _, place, served = np.unique(distances.argmin(axis=1), return_inverse=True, return_counts=True)
    return {
        "error": float(l1.mean()),
        "topic_errors": l1.tolist(),
        "merged": int(np.count_nonzero(served[place] > 1)),
        "seconds": float(found["seconds"]),
        "extrapolated": bool(found["extrapolated"]),
    }


@dataclass(frozen=True)
class Experiment:
    """Groups of methods run at each point; Gibbs sampling is separate."""

    groups: tuple[str, ...]
    sweeps: tuple[int, ...]
    tod_passes: int

    def rows(self, law: Law, results: Results) -> Iterator[Row]:
        """One row per method; a temporary corpus is simulated only if a row is missing."""
        with tempfile.TemporaryDirectory() as name:
            trial = Trial(law, Path(name), self.tod_passes)
            makers: dict[str, Callable[[], dict[str, Arrays]]] = {
                "uniform": trial.uniform,
                "printed": trial.printed,
                "STOD": lambda: trial.stod("STOD", ALPHA0),
                "alpha0": lambda: trial.stod("STOD, alpha0 found", AUTO),
                "polished": trial.polished,
                "TOD": trial.tod,
            }
            for group in self.groups:
                yield from _kept(results, law, GROUPS[group], makers[group])
            chain = tuple(f"Gibbs {sweeps}" for sweeps in self.sweeps)
            yield from _kept(results, law, chain, lambda: trial.gibbs(self.sweeps))


def _kept(
    results: Results, law: Law, methods: Sequence[str], make: Callable[[], dict[str, Arrays]]
) -> Iterator[Row]:
    """Rows of the methods of one computation, which runs if one of them is missing and may be computed."""
    keys = {method: {**asdict(law), "method": method} for method in methods}
    if not results.only_kept and not all(results.has_arrays(key) for key in keys.values()):
        for method, arrays in make().items():
            results.arrays(keys[method], lambda arrays=arrays: arrays)  # type: ignore[misc]
    for method, key in keys.items():
        try:
            yield {**asdict(law), "method": method, **scores(results.arrays(key, dict))}
        except CellMissing:
            continue


#: Parameter that varies along a curve, and the rows of the curve.
Curve = tuple[str, list[Row]]


def mean_table(vary: str, rows: Sequence[Row]) -> str:
    """Mean error with standard deviation over seeds: one row per value, one column per method."""
    methods = [name for name in pictures.LOOKS if any(row["method"] == name for row in rows)]
    lines = []
    for value in sorted({row[vary] for row in rows}):
        cells = [
            spread([row["error"] for row in rows if row[vary] == value and row["method"] == method])
            for method in methods
        ]
        lines.append([f"{value:,}", *cells])
    return markdown([vary, *methods], lines, text=0)


def topic_table(vary: str, rows: Sequence[Row]) -> str:
    """Seeds, mean, median and quartiles of the errors of topics, merged topics, and seconds of each method."""
    methods = [name for name in pictures.LOOKS if any(row["method"] == name for row in rows)]
    lines = []
    for value in sorted({row[vary] for row in rows}):
        for method in methods:
            there = [row for row in rows if row[vary] == value and row["method"] == method]
            if there and method != "uniform":
                lines.append([f"{value:,}", method, *_told(there)])
    header = ["seeds", "mean", "range over seeds", "median topic", "quartiles", "merged topics", "seconds"]
    return markdown([vary, "method", *header], lines, text=2)


def _told(rows: Sequence[Row]) -> list[str]:
    errors = [row["error"] for row in rows]
    low, middle, high = np.percentile(np.concatenate([row["topic_errors"] for row in rows]), [25, 50, 75])
    merged = [row["merged"] for row in rows]
    seconds = float(np.mean([row["seconds"] for row in rows]))
    return [
        str(len(rows)),
        number(float(np.mean(errors))),
        f"{number(min(errors))} to {number(max(errors))}" if len(rows) > 1 else "-",
        number(float(middle)),
        f"{number(float(low))}, {number(float(high))}",
        f"{np.mean(merged):.1f} of {rows[0]['topics']}",
        ("~" if any(row["extrapolated"] for row in rows) else "") + number(seconds, 2),
    ]


def draw(curves: Sequence[Curve], path: Path) -> None:
    """Mean error, median error of a topic, and seconds, against the varied quantity."""
    figure, axes = pictures.panels(3, len(curves), width=2.8)
    labels = ("mean L1 of topics (of 2)", "median L1 of topics", "processor seconds")
    for column, (vary, rows) in enumerate(curves):
        for line, label in enumerate(labels):
            panel = axes[line][column]
            for method in pictures.LOOKS:
                points: dict[float, list[float | None]] = {}
                for row in rows:
                    if row["method"] == method:
                        shown = (row["error"], float(np.median(row["topic_errors"])), row["seconds"])
                        points.setdefault(row[vary], []).append(shown[line])
                pictures.curve(panel, method, points)
            panel.set(xscale="log", yscale="log", xlabel=vary)
            pictures.ticks(panel, [row[vary] for row in rows])
            if column == 0:
                panel.set_ylabel(label)
    pictures.legend(figure, columns=4)
    pictures.save(figure, path)


@click.command(help=__doc__)
@options.DRAWN_OUT
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
@click.option("--length", default=MEAN_LENGTH, show_default=True, help="Mean tokens of a document.")
@options.SEEDS
@click.option("--first-seed", default=0, show_default=True)
@click.option("--same-corpus", is_flag=True, help="Seeds of the methods only, on the first corpus.")
@options.several("methods", GROUPS, help="Groups of methods; none with ''.")
@options.GIBBS
@click.option(
    "--tod-passes", default=0, show_default=True, help="Maximum number of documents for TOD's passes."
)
@options.quick("small corpora")
@options.ONLY_KEPT
def main(
    out: Path,
    vary: tuple[str, ...],
    values: list[int] | None,
    n_documents: int,
    words: int,
    topics: int,
    length: int,
    seeds: int,
    first_seed: int,
    same_corpus: bool,
    methods: list[str],
    sweeps: tuple[str, ...],
    tod_passes: int,
    quick: bool,
    only_kept: bool,
) -> None:
    if quick:
        vary, values, words, topics = ("documents",), [300, 1500], 500, 3
        seeds, sweeps, tod_passes = 2, ("200",), 300
    base = Law(n_documents, words, topics, length=length)
    groups = tuple(name for name in methods if name)
    experiment = Experiment(groups, tuple(sorted(map(int, sweeps))), tod_passes)
    results, curves = Results(out / "stod_fig1", only_kept), []
    for name in vary:
        rows: list[Row] = []
        for value in values or PAPER_VALUES[name]:
            for seed in range(first_seed, first_seed + seeds):
                law = replace(base, **{name: value}, seed=0 if same_corpus else seed, run=seed)
                rows += experiment.rows(law, results)
        curves.append((name, rows))
    stem = "stod_fig1_same_corpus" if same_corpus else "stod_fig1"
    tables = [table(name, rows) for name, rows in curves for table in (mean_table, topic_table)]
    publish(out, stem, [{"curve": name, **row} for name, rows in curves for row in rows], "\n\n".join(tables))
    draw(curves, out / f"{stem}.svg")
    click.echo("\n\n".join(tables))


if __name__ == "__main__":
    main()
