"""Figure 4 of LR-JSMF: volume of the anchors' hull, incoherence, recovery and run time as the vocabulary grows.

    python -m pipelines.lr_jsmf_fig4 OUT --corpus un=UN --ngrams 2 [--sizes 1000,2000,4000,8000,16000,32000,64000]

Vocabularies consist of the words with the highest tf-idf, and of bigrams of texts with `--ngrams 2`. AP needs C (words
x words) and runs up to `--whole` words; LR-JSMF and PALM on the factor of the scan run for all sizes. As in the paper,
any word can be an anchor and weights are uniform; `--guards` selects anchors as `infer` does.

Volume is the log of the volume of the hull relative to random hulls; incoherence uses spanning trees over C; relative
recovery is estimated with 64 probes of C; times are CPU seconds of one thread without the scans.

OUT keeps corpora, stores and results, so an interrupted command can be run again; it gets fig4.parquet, fig4.md and
fig4.svg.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pipelines.common import options, pictures
from pipelines.common.data import NIPS, prepared
from pipelines.common.methods import Setup
from pipelines.common.results import Arrays, Row, publish
from pipelines.common.scores import METRICS, Scorer
from pipelines.common.tables import markdown, number
from streaming_jsmf.evaluation.coherence import NODES, incoherence_in_cooccurrence
from streaming_jsmf.evaluation.factorization import estimated_errors
from streaming_jsmf.evaluation.inputs import Cooccurrence, RowSketch, TopicArrays, sketch_probes
from streaming_jsmf.evaluation.volume import anchor_points, log_volume
from streaming_jsmf.inference.words import characteristic_words, prominent_words
from streaming_jsmf.jobs.blas import single_blas_thread

DRAWN = ("volume", "incoherence", "relative_recovery", "cpu_seconds")

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SparseScorer:
    """Metrics without N x N arrays, from the scaled documents H^ (M x N) with H^'H^ = C + D."""

    setup: Setup

    @cached_property
    def scaled(self) -> sparse.csr_array:
        """H^ of Eq. 1, divided by the square root of the number of documents."""
        counts = self.setup.counts.astype(np.float64)
        lengths = counts.sum(axis=1)
        kept = lengths >= 2
        scale = 1.0 / np.sqrt(lengths[kept] * (lengths[kept] - 1.0) * kept.sum())
        return sparse.csr_array(sparse.diags_array(scale) @ counts[kept])

    @cached_property
    def sketch(self) -> RowSketch:
        moments = self.setup.moments("usual")
        probes = sketch_probes(self.setup.corpus.n_words).astype(np.float64)
        products = self.scaled.T @ (self.scaled @ probes) - moments.diagonal[:, None] * probes
        return RowSketch(products, moments.row_sum)

    def row(self, name: str, n_topics: int) -> Row:
        found = self.setup.topics(name, n_topics)
        key = {**self.setup.key(name, n_topics, 0), "growth": 1}
        row = self.setup.results.row(key, lambda: self._metrics(found))
        row["volume"] = row["log_volume"] - Scorer(self.setup).random_volume(n_topics)
        return {"method": name, "K": n_topics, "words": self.setup.corpus.n_words, **row}

    def _metrics(self, found: Arrays) -> Row:
        moments = self.setup.moments("usual")
        topics = TopicArrays(
            found["word_topic"],
            prominent_words(found["word_topic"], NODES),
            moments.term_count / moments.term_count.sum(),
            topic_topic=found["topic_topic"],
            topic_probability=found["topic_probability"],
            anchors=found["anchors"],
            rectified=found["rectified"],
        )
        factor = moments.factor()
        assert factor is not None
        with single_blas_thread():
            errors = estimated_errors(
                topics, Cooccurrence(factor, moments.diagonal, moments.row_sum), self.sketch
            )
            points = anchor_points(topics)
        volume = None if points is None else log_volume(points)
        return {
            "relative_recovery": errors.relative_recovery.value,
            "recovery_error": errors.relative_recovery.standard_error,
            "log_volume": float("nan") if volume is None else volume,
            "incoherence": self._incoherence(topics),
            "cpu_seconds": float(found["cpu_seconds"]),
            "iterations": int(found["iterations"]),
            "sum_A": float(found["topic_topic"].sum()),
        }

    def _incoherence(self, topics: TopicArrays) -> float:
        """Incoherence from exact C, computed only for the words of the trees."""
        moments, anchors = self.setup.moments("usual"), topics.representatives
        rows = (self.scaled.T @ self.scaled[:, anchors]).toarray().T
        rows[np.arange(len(anchors)), anchors] -= moments.diagonal[anchors]
        words = np.union1d(topics.top_words, characteristic_words(rows, NODES))
        few = TopicArrays(
            topics.word_topic[words],
            np.searchsorted(words, topics.top_words),
            np.ones(words.size) / words.size,
        )
        dense = np.asarray(self.scaled[:, words].toarray().T, dtype=np.float32)
        c = Cooccurrence(dense, moments.diagonal[words], moments.row_sum[words])
        return float(incoherence_in_cooccurrence(few, c, anchor_rows=rows[:, words]).mean())


def table(rows: Sequence[Row]) -> str:
    header = [
        "method",
        "K",
        "words N",
        "log relative volume",
        "MST-incoherence",
        "relative recovery",
        "± (estimate)",
    ]
    columns = (
        "volume",
        "incoherence",
        "relative_recovery",
        "recovery_error",
        "sum_A",
        "cpu_seconds",
        "iterations",
    )
    lines = [
        [row["method"], row["K"], f"{row['words']:,}", *(number(row[name]) for name in columns)]
        for row in rows
    ]
    return markdown([*header, "sum(A)", "processor seconds", "steps"], lines)


def method_names(n_words: int, whole: int) -> list[str]:
    """Names of the methods; AP only up to ``whole`` words."""
    return [*(["AP"] if n_words <= whole else []), "LR-JSMF", "PALM low-rank"]


@click.command(help=__doc__)
@options.OUT
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
    whole: int,
    guards: bool,
    iterations: int,
    quick: bool,
) -> None:
    if quick:
        named, sizes, ngrams, topics, whole, iterations = f"nips={NIPS}", [200, 400], None, [3, 5], 300, 20
    read = {} if ngrams is None else {"ngrams": ngrams}
    # Read texts once; smaller vocabularies are subsets of the largest.
    name, _ = prepared(named, out / "corpora", max(sizes), **read)
    largest = f"{name}={out / 'corpora' / f'{name}-{max(sizes)}'}"
    rows: list[Row] = []
    used = {}
    for size in sorted(sizes):
        _, corpus = prepared(largest, out / "corpora", size)
        used[f"{name}-{size}"] = corpus
        setup = Setup(corpus, out / f"{name}-{size}", max(topics), guards, iterations)
        scorer = SparseScorer(setup)
        for n_topics in topics:
            rows += [scorer.row(method, n_topics) for method in method_names(size, whole)]
    publish(out, "fig4", rows, table(rows), used)
    figure = pictures.grid(rows, "K", "words", {column: METRICS[column] for column in DRAWN})
    pictures.save(figure, out / "fig4.svg")
    click.echo(table(rows))


if __name__ == "__main__":
    main()
