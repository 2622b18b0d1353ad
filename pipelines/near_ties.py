"""Near-ties of anchors and their effect on topics.

    python -m pipelines.near_ties OUT --corpus nips=data_specs/uci_nips --corpus kos=KOS [--topics 10,20,50]

Pivoting selects the word with the longest residual in each step. The gap of a step is the relative difference to the
second longest: a small change of C can exchange two words with a small gap. For each step this script selects the
runner-up instead, lets pivoting continue, and measures the L1 distance of the matched topics, the anchors that remain,
and the change of relative recovery. Y is that of ENN, any word can be an anchor; nothing is random.

OUT keeps stores and results and may be that of lr_jsmf_fig3; it gets near_ties.parquet, near_ties.md, near_ties.svg and
near_ties.json.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from pipelines.common import options, pictures
from pipelines.common.data import NIPS, prepared
from pipelines.common.matching import match_topics
from pipelines.common.methods import METHODS, Floats, Setup
from pipelines.common.results import Row, publish
from pipelines.common.scores import Scorer
from pipelines.common.tables import markdown, number
from streaming_jsmf.evaluation.factorization import factorization_errors
from streaming_jsmf.inference.law import AnchorWordTopics, low_rank_anchor_words
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.topics.anchor_words import anchor_rules

#: Upper ends of the classes of gaps in the table.
CLASSES = (0.001, 0.01, 0.05, 1.0)


def runners_up(Y: Floats, anchors: NDArray[np.int64]) -> Iterator[tuple[int, float]]:
    """Word with the second longest residual and its gap to the selected one, for each step of pivoting."""
    sums = Y @ Y.sum(axis=0)
    rows = np.where(sums[:, None] > 0, Y, 0.0) @ np.linalg.qr(Y).R.T / np.where(sums > 0, sums, 1.0)[:, None]
    for anchor in anchors:
        lengths = np.linalg.norm(rows, axis=1)
        own, lengths[anchor] = lengths[anchor], -1.0
        other = int(lengths.argmax())
        yield other, float(1.0 - lengths[other] / own)
        direction = rows[anchor] / np.linalg.norm(rows[anchor])
        rows = rows - np.outer(rows @ direction, direction)


def rows_of(name: str, setup: Setup, n_topics: int) -> Iterator[Row]:
    found, moments, scorer = setup.topics("ENN", n_topics), setup.moments(), Scorer(setup)
    Y, anchors = found["rectified"], found["anchors"]
    rules = anchor_rules(setup.settings(METHODS["ENN"], n_topics), moments.n_documents)

    def law(given: Sequence[int]) -> AnchorWordTopics:
        fixed = replace(rules, given=tuple((word,) for word in given))
        return low_rank_anchor_words(Y, moments.row_sum, moments.document_frequency, fixed)

    def recovery(topics: AnchorWordTopics) -> float:
        arrays = {
            "word_topic": topics.word_topic,
            "topic_topic": topics.topic_topic,
            "topic_probability": topics.topic_probability,
            "anchors": topics.anchors.words,
            "rectified": Y,
        }
        error = factorization_errors(scorer._topics(arrays), scorer.cooccurrence).relative_recovery
        return float(error or np.nan)

    with single_blas_thread():
        own = recovery(law(anchors.tolist()))
        for step, (other, gap) in enumerate(runners_up(Y, anchors)):
            topics = law([*anchors[:step].tolist(), other])
            yield {
                "corpus": name,
                "K": n_topics,
                "step": step + 1,
                "gap": gap,
                "l1": match_topics(topics.word_topic, found["word_topic"]).mean_l1,
                "kept": len({*topics.anchors.words.tolist()} & {*anchors.tolist()}),
                "recovery_change": recovery(topics) / own - 1.0,
            }


def table(rows: Sequence[Row]) -> str:
    """For each corpus, K and class of gaps: steps, L1, anchors exchanged and change of recovery."""
    lines = []
    for corpus, n_topics in dict.fromkeys((row["corpus"], row["K"]) for row in rows):
        for low, high in zip((0.0, *CLASSES), CLASSES, strict=False):
            there = [
                row
                for row in rows
                if (row["corpus"], row["K"]) == (corpus, n_topics) and low <= max(row["gap"], 0.0) < high
            ]
            if there:
                l1 = [row["l1"] for row in there]
                lost = np.median([row["K"] - row["kept"] for row in there])
                worse = [row["recovery_change"] for row in there]
                lines.append(
                    [
                        corpus,
                        n_topics,
                        f"{low:.1%} to {high:.1%}",
                        len(there),
                        f"{number(float(np.median(l1)), 2)} ({number(max(l1), 2)})",
                        f"{lost:g}",
                        f"{np.median(worse):+.1%} ({min(worse):+.1%} to {max(worse):+.1%})",
                    ]
                )
    header = ["corpus", "K", "gap", "steps", "L1: median (largest)", "anchors exchanged", "relative recovery"]
    return markdown(header, lines, text=1)


def draw(rows: Sequence[Row], path: Path) -> None:
    """L1 of the topics against the gap, a panel per corpus and a marker per K."""
    corpora = list(dict.fromkeys(row["corpus"] for row in rows))
    figure, axes = pictures.panels(1, len(corpora), width=2.8, height=2.4)
    markers = dict(zip(dict.fromkeys(row["K"] for row in rows), "osD^v", strict=False))
    for corpus, panel in zip(corpora, axes[0], strict=True):
        for n_topics, marker in markers.items():
            there = [row for row in rows if (row["corpus"], row["K"]) == (corpus, n_topics)]
            gaps = [max(row["gap"], 1e-5) for row in there]
            panel.plot(gaps, [row["l1"] for row in there], marker, markersize=3, label=f"K = {n_topics}")
        panel.set(xscale="log", xlabel="gap to the runner-up")
        panel.set_title(corpus, fontsize=8)
    axes[0][0].set_ylabel("L1 of topics after the exchange")
    pictures.legend(figure)
    pictures.save(figure, path)


@click.command(help=__doc__)
@options.DRAWN_OUT
@options.corpora(words=2000)
@options.several("topics", [10, 20, 50])
@options.MOST_TOPICS
@options.quick("the shipped corpus, 300 words")
def main(
    out: Path, corpora: tuple[str, ...], words: int, topics: list[int], max_topics: int, quick: bool
) -> None:
    if quick:
        corpora, words, topics, max_topics = (f"nips={NIPS}",), 300, [3, 5], 5
    rows: list[Row] = []
    used = {}
    for named in corpora:
        name, corpus = prepared(named, out / "corpora", words)
        used[name] = corpus
        setup = Setup(corpus, out / Path(corpus.root).name, max_topics)
        for n_topics in topics:
            rows += rows_of(name, setup, n_topics)
    publish(out, "near_ties", rows, table(rows), used)
    draw(rows, out / "near_ties.svg")
    click.echo(table(rows))


if __name__ == "__main__":
    main()
