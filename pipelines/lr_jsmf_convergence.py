"""Convergence of AP and ENN, and the effect of stopping early, on the same C.

    python -m pipelines.lr_jsmf_convergence OUT --corpus kos=KOS [--topics 20] [--words 2000] [--iterations 1500]

The figure shows the relative change of each step, and its ratio to that of the step before: JSMF 2015 states that AP
converges linearly near its limit, which means a ratio that stays below 1 by a constant. ENN is that of the paper (|I| =
10 K + 1000, no momentum). The table compares the default stopping rule with full convergence.

For pairs of the four results: shared anchors, mean L1 of matched topics, relative difference of Y Y', and the mean L1
with the anchors of the first used for both, which separates the effect of near-ties of pivoting. Anchors are chosen
among all words, weights are uniform, as in the paper.

OUT keeps stores and results; it gets convergence.parquet, convergence.md, convergence.svg and convergence.json.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import click
import numpy as np

from pipelines.common import options, pictures
from pipelines.common.data import NIPS, prepared
from pipelines.common.matching import match_topics
from pipelines.common.methods import METHODS, Floats, Setup
from pipelines.common.results import Arrays, Row, publish
from pipelines.common.scores import distances
from pipelines.common.tables import markdown, number
from streaming_jsmf.inference.law import low_rank_anchor_words
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.rectification.ap import alternating_projection
from streaming_jsmf.rectification.enn import epsilon_nonnegative
from streaming_jsmf.topics.anchor_words import anchor_rules


def with_anchors(setup: Setup, found: Arrays, anchors: Arrays) -> Arrays:
    """Topics of LAW from the Y of ``found`` with the anchors of another result."""
    moments = setup.moments()
    rules = anchor_rules(setup.settings(METHODS["ENN"], len(anchors["anchors"])), moments.n_documents)
    given = tuple((int(word),) for word in anchors["anchors"])
    with single_blas_thread():
        topics = low_rank_anchor_words(
            found["rectified"], moments.row_sum, moments.document_frequency, replace(rules, given=given)
        )
    return {"word_topic": topics.word_topic}


def compared(setup: Setup, first: tuple[str, Arrays], second: tuple[str, Arrays]) -> Row:
    (name, found), (other, beside) = first, second
    own, same = (with_anchors(setup, arrays, found)["word_topic"] for arrays in (found, beside))
    return {
        "first": f"{name}, {int(found['iterations'])} steps",
        "second": f"{other}, {int(beside['iterations'])} steps",
        **distances(beside, found),
        "l1_same_anchors": match_topics(own, same).mean_l1,
    }


def changes(setup: Setup, method: str, n_topics: int, steps: int) -> Floats:
    """Relative change of each of ``steps`` steps, (steps,)."""
    found: list[float] = []

    def made() -> Arrays:
        moments = setup.moments()
        pairs = moments.eigenpairs(n_topics)
        stop: dict[str, Any] = {
            "max_iterations": steps,
            "tolerance": 0.0,
            "on_iteration": lambda _, change: found.append(change),
        }
        with single_blas_thread():
            if method == "AP":
                alternating_projection(moments.cooccurrence(), pairs, n_topics, **stop)
            else:
                epsilon_nonnegative(pairs, n_topics, acceleration="none", **stop)
        return {"change": np.array(found)}

    key = {"steps of": method, "K": n_topics, "steps": steps, "corpus": setup.corpus.fingerprint}
    return setup.results.arrays(key, made)["change"]


#: Steps at which the table shows the ratio.
SHOWN_STEPS = (20, 50, 100, 200, 400, 800, 1500)


def ratios(change: Floats) -> dict[int, float]:
    """Ratio of the change to that of the step before, its geometric mean over ten steps, at ``SHOWN_STEPS``."""
    return {
        step: float((change[step - 1] / change[step - 11]) ** 0.1)
        for step in SHOWN_STEPS
        if 11 <= step <= len(change)
    }


def draw(curves: dict[tuple[str, int, str], Floats], path: Path) -> None:
    """Change of each step, and one minus its ratio to the change before, on logarithmic axes."""
    figure, axes = pictures.panels(1, 2, width=3.6, height=2.6)
    for (corpus, n_topics, method), change in curves.items():
        ratio = (change[10:] / change[:-10]) ** 0.1
        style = {"linestyle": "-" if method == "AP" else ":", "linewidth": 1.2}
        label = f"{corpus}, K = {n_topics}: {method}"
        axes[0][0].plot(np.arange(1, len(change) + 1), change, label=label, **style)
        axes[0][1].plot(np.arange(11, len(change) + 1), 1 - ratio, label=label, **style)
    axes[0][0].set(xscale="log", yscale="log", xlabel="step", ylabel="relative change")
    axes[0][1].set(xscale="log", yscale="log", xlabel="step", ylabel="1 - ratio to the step before")
    pictures.legend(figure, columns=2)
    pictures.save(figure, path)


def ratio_table(curves: dict[tuple[str, int, str], Floats]) -> str:
    lines = []
    for (corpus, n_topics, method), change in curves.items():
        at = ratios(change)
        lines.append([corpus, n_topics, method, *(number(at.get(step), 4) for step in SHOWN_STEPS)])
    return markdown(["corpus", "K", "method", *(f"step {step:,}" for step in SHOWN_STEPS)], lines, text=3)


def table(rows: list[Row]) -> str:
    columns = ("anchors_shared", "l1", "l1_same_anchors", "yy_error")
    header = [
        "corpus",
        "K",
        "first",
        "second",
        "anchors shared",
        "mean L1",
        "mean L1, same anchors",
        "Y Y' off",
    ]
    lines = [
        [row["corpus"], row["K"], row["first"], row["second"], *(number(row[name]) for name in columns)]
        for row in rows
    ]
    return markdown(header, lines, text=4)


@click.command(help=__doc__)
@options.DRAWN_OUT
@options.corpora(words=2000)
@options.several("topics", [20])
@click.option(
    "--iterations", default=1500, show_default=True, help="Maximum number of steps at full convergence."
)
@click.option("--tolerance", default=1e-9, show_default=True, help="Tolerance at full convergence.")
@options.quick("the shipped corpus, 200 words, 200 steps")
def main(
    out: Path,
    corpora: tuple[str, ...],
    words: int,
    topics: list[int],
    iterations: int,
    tolerance: float,
    quick: bool,
) -> None:
    if quick:
        corpora, words, topics, iterations = (f"nips={NIPS}",), 200, [4], 200
    rows: list[Row] = []
    used = {}
    curves: dict[tuple[str, int, str], Floats] = {}
    for named in corpora:
        name, corpus = prepared(named, out / "corpora", words)
        used[name] = corpus
        stopped = Setup(corpus, out / Path(corpus.root).name, max(topics))
        converged = replace(stopped, max_iterations=iterations, tolerance=tolerance)
        for n_topics in topics:
            results = [
                (m, setup.topics(m, n_topics)) for setup in (stopped, converged) for m in ("AP", "ENN")
            ]
            for first, second in combinations(results, 2):
                rows.append({"corpus": name, "K": n_topics, **compared(stopped, first, second)})
            for method in ("AP", "ENN"):
                curves[name, n_topics, method] = changes(stopped, method, n_topics, iterations)
    text = "\n\n".join([table(rows), ratio_table(curves)])
    publish(out, "convergence", rows, text, used)
    draw(curves, out / "convergence.svg")
    click.echo(text)


if __name__ == "__main__":
    main()
