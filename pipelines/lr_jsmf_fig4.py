"""Figure 4 of LR-JSMF: volume of the anchors' hull, incoherence, recovery and run time as the vocabulary grows.

    python -m pipelines.lr_jsmf_fig4 OUT --corpus un=UN --ngrams 2 [--sizes 1000,2000,4000,8000,16000,32000,64000]

Vocabularies consist of the words with the highest tf-idf, and of bigrams of texts with `--ngrams 2`. AP needs C (words
x words) and runs up to `--whole` words, up to which the others are compared with it; LR-JSMF and PALM on the factor of
the scan run for all sizes. As in the paper, any word can be an anchor and weights are uniform; `--guards` selects
anchors as `infer` does.

Volume is the log of the volume of the hull relative to random hulls; incoherence uses spanning trees over C; relative
recovery is estimated with 64 probes of C; times are CPU seconds of one thread, those of the scans apart. A simulated
corpus (`--corpus nytimes=simulated:nytimes --sizes 15000`) also gives the L1 distance to its topics.

Two of these depend on N by definition, so each is shown with a size-corrected version. Random hulls shrink with N: the
curve `fixed hull` is the relative volume that the first hull would have if it did not change, and the volume of rows
scaled to length 1 does not use random hulls. Relative recovery divides a mean over words by the Frobenius norm, a root
of a sum over words: multiplied by sqrt(N) it is the error relative to the length of a typical row.

OUT keeps corpora, stores and results, so an interrupted command can be run again; it gets NAME.parquet, NAME.md,
NAME.svg and NAME.json.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pipelines.common import options, pictures
from pipelines.common.data import NIPS, planted_topics, prepared
from pipelines.common.methods import METHODS, Setup
from pipelines.common.results import Arrays, Row, publish
from pipelines.common.scores import METRICS, Scorer, distances
from pipelines.common.tables import markdown, spread
from pipelines.common.volume import anchor_points, log_volume
from streaming_jsmf.evaluation.coherence import NODES, incoherence_in_cooccurrence
from streaming_jsmf.evaluation.factorization import factorization_errors
from streaming_jsmf.evaluation.inputs import Cooccurrence, TopicArrays
from streaming_jsmf.evaluation.topic_shape import recovery_error
from streaming_jsmf.inference.words import prominent_words
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.moments.store import Moments

DRAWN = ("volume", "unit_volume", "relative_recovery", "scaled_recovery", "incoherence", "cpu_seconds")

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SparseScorer:
    """Metrics without N x N arrays, from the scaled documents H^ (M x N) with H^'H^ = C + D."""

    setup: Setup
    first: str = ""
    truth: Floats | None = None

    @cached_property
    def scaled(self) -> sparse.csr_array:
        """H^ of Eq. 1, divided by the square root of the number of documents."""
        counts = self.setup.counts.astype(np.float64)
        lengths = counts.sum(axis=1)
        kept = lengths >= 2
        scale = 1.0 / np.sqrt(lengths[kept] * (lengths[kept] - 1.0) * kept.sum())
        return sparse.csr_array(sparse.diags_array(scale) @ counts[kept])

    @cached_property
    def moments(self) -> Moments:
        """The store of the first scan, scanned where its time is measured."""
        self.setup.scan_seconds("usual", 0)
        return self.setup.moments("usual")

    @cached_property
    def cooccurrence(self) -> Cooccurrence:
        return Cooccurrence.of_documents(self.scaled, self.moments.diagonal, self.moments.row_sum)

    def row(self, name: str, n_topics: int, seed: int = 0) -> Row:
        n_words = self.setup.corpus.n_words
        scanned = self.setup.scan_seconds(METHODS[name].store, seed)
        found = self.setup.topics(name, n_topics, seed)
        key = {**self.setup.key(name, n_topics, seed), "growth": 3}
        row = self.setup.results.row(key, lambda: self._metrics(found))
        row["random_volume"] = Scorer(self.setup).random_volume(n_topics)
        row["volume"] = row["log_volume"] - row["random_volume"]
        row["scaled_recovery"] = row["relative_recovery"] * float(np.sqrt(n_words))
        row["scan_seconds"] = scanned
        if self.first:
            row |= distances(found, self.setup.topics(self.first, n_topics))
        if self.truth is not None:
            row["mean_l1"] = recovery_error(found["word_topic"], self.truth)
        return {"method": name, "K": n_topics, "words": n_words, "seed": seed, **row}

    def _metrics(self, found: Arrays) -> Row:
        moments = self.moments
        topics = TopicArrays(
            found["word_topic"],
            prominent_words(found["word_topic"], NODES),
            moments.term_count / moments.term_count.sum(),
            topic_topic=found["topic_topic"],
            topic_probability=found["topic_probability"],
            anchors=found["anchors"],
            rectified=found["rectified"],
        )
        with single_blas_thread():
            recovery = factorization_errors(topics, self.cooccurrence).relative_recovery
            anchor_rows = self.cooccurrence.rows(topics.representatives)
            incoherence = incoherence_in_cooccurrence(topics, self.cooccurrence, anchor_rows)
            points = anchor_points(topics)
        # Of more words than are compared, an estimate from a draw.
        value, error = (recovery, None) if isinstance(recovery, float) else astuple(recovery)
        unit = None if points is None else points / np.linalg.norm(points, axis=1, keepdims=True)
        volume, unit_volume = (None if each is None else log_volume(each) for each in (points, unit))
        return {
            "relative_recovery": value,
            "recovery_error": error,
            "log_volume": float("nan") if volume is None else volume,
            "unit_volume": float("nan") if unit_volume is None else unit_volume,
            "incoherence": float(incoherence.mean()),
            "cpu_seconds": float(found["cpu_seconds"]),
            "iterations": int(found["iterations"]),
            "sum_A": float(found["topic_topic"].sum()),
        }


def fixed_hulls(rows: Sequence[Row]) -> list[Row]:
    """For each K and N the relative volume of a hull that keeps the volume of LR-JSMF's hull at the smallest N."""
    found: dict[tuple[int, int], Row] = {}
    for row in rows:
        if row["method"] == "LR-JSMF" and row["seed"] == 0:
            first = next((each for (k, _), each in found.items() if k == row["K"]), row)
            volume = first["volume"] + first["random_volume"] - row["random_volume"]
            found[row["K"], row["words"]] = {**row, "volume": volume}
    kept = ("K", "words", "volume")
    return [{"method": "fixed hull", **{name: row[name] for name in kept}} for row in found.values()]


#: Column of a row -> header of the table.
COLUMNS = {
    "anchors_shared": "anchors shared with AP",
    "l1": "L1 to AP",
    "volume": "log relative volume",
    "fixed": "of a fixed hull",
    "unit_volume": "log volume, rows of length 1",
    "relative_recovery": "relative recovery",
    "recovery_error": "± (estimate)",
    "scaled_recovery": "recovery x sqrt(N)",
    "incoherence": "MST-incoherence",
    "sum_A": "sum(A)",
    "mean_l1": "L1 to the truth",
    "cpu_seconds": "processor seconds",
    "scan_seconds": "of the scan",
    "iterations": "steps",
}


def table(rows: Sequence[Row]) -> str:
    """Means and standard deviations over seeds, without empty columns."""
    fixed = {(row["K"], row["words"]): row["volume"] for row in fixed_hulls(rows)}
    shown = [{**row, "fixed": fixed[row["K"], row["words"]]} for row in rows]
    columns = {
        name: label for name, label in COLUMNS.items() if any(row.get(name) is not None for row in shown)
    }
    cells: dict[tuple[str, int, int], list[Row]] = {}
    for row in shown:
        cells.setdefault((row["method"], row["K"], row["words"]), []).append(row)
    return markdown(["method", "K", "words N", *columns.values()], _lines(cells, columns))


def group_table(rows: Sequence[Row], sizes: Sequence[int]) -> str:
    """Means over groups of so many consecutive K, and the deviations between their K."""
    columns = {
        name: COLUMNS[name] for name in ("volume", "relative_recovery", "scaled_recovery", "incoherence")
    }
    groups = np.split(sorted({row["K"] for row in rows}), np.cumsum(sizes)[:-1])
    of_k = {k: ", ".join(map(str, group)) for group in groups for k in group}
    per_k: dict[tuple[str, int, int], list[Row]] = {}
    for row in rows:
        per_k.setdefault((row["method"], row["K"], row["words"]), []).append(row)
    cells: dict[tuple[str, str, int], list[Row]] = {}
    for (method, k, words), several in per_k.items():
        means = {name: float(np.mean([row[name] for row in several])) for name in columns}
        cells.setdefault((method, of_k[k], words), []).append(means)
    return markdown(["method", "group of K", "words N", *columns.values()], _lines(cells, columns))


def _lines(cells: Mapping[tuple[str, Any, int], list[Row]], columns: Iterable[str]) -> list[list[object]]:
    return [
        [method, k, f"{words:,}", *(spread([row.get(name) for row in several]) for name in columns)]
        for (method, k, words), several in cells.items()
    ]


@click.command(help=__doc__)
@options.DRAWN_OUT
@click.option(
    "--corpus",
    "named",
    default=f"nips={NIPS}",
    metavar="NAME=SOURCE",
    help="[default: the corpus that ships with the project]",
)
@options.several("sizes", [1000, 2000, 4000, 8000, 16_000, 32_000, 64_000], help="Sizes of vocabularies.")
@click.option("--ngrams", type=int, default=None, help="For texts: 2 also counts bigrams.")
@options.several("topics", [10, 50])
@click.option("--groups", type=options.Several(int), help="Sizes of groups of K for a table of means.")
@options.label("fig4")
@options.SEEDS
@options.several("methods", ("AP", "LR-JSMF", "PALM low-rank"))
@click.option("--whole", default=4000, show_default=True, help="Maximum number of words for AP.")
@options.GUARDS
@options.ITERATIONS
@options.quick("the shipped corpus, 200 and 400 words")
def main(
    out: Path,
    named: str,
    sizes: list[int],
    ngrams: int | None,
    topics: list[int],
    groups: list[int] | None,
    label: str,
    seeds: int,
    methods: list[str],
    whole: int,
    guards: bool,
    iterations: int,
    quick: bool,
) -> None:
    if quick:
        named, sizes, ngrams, topics, seeds = f"nips={NIPS}", [200, 400], None, [3, 5], 2
        whole, iterations = 300, 20
    read = {} if ngrams is None else {"ngrams": ngrams}
    # Read texts once; smaller vocabularies are subsets of the largest.
    name, largest = prepared(named, out / "corpora", max(sizes), **read)
    kind = named.partition("=simulated:")[2]
    rows: list[Row] = []
    used = {}
    for size in sorted(sizes):
        complete = size >= largest.n_words
        corpus = largest if complete else prepared(f"{name}={largest.root}", out / "corpora", size)[1]
        used[f"{name}-{size}"] = corpus
        setup = Setup(corpus, out / f"{name}-{size}", max(topics), guards, iterations)
        here = [method for method in methods if method != "AP" or size <= whole]
        truth = planted_topics(kind, Path(corpus.root)) if kind and complete else None
        scorer = SparseScorer(setup, "AP" if "AP" in here else "", truth)
        for n_topics in topics:
            for method in here:
                tried = seeds if METHODS[method].random else 1
                rows += [scorer.row(method, n_topics, seed) for seed in range(tried)]
    text = table(rows) if groups is None else f"{group_table(rows, groups)}\n\n{table(rows)}"
    publish(out, label, rows, text, used)
    drawn = [*fixed_hulls(rows), *rows]
    figure = pictures.grid(drawn, "K", "words", {column: METRICS[column] for column in DRAWN})
    pictures.save(figure, out / f"{label}.svg")
    click.echo(text)


if __name__ == "__main__":
    main()
