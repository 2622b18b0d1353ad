"""Effect of stopping early: AP and ENN with the default stopping rule and at full convergence, on the same C.

    python -m pipelines.lr_jsmf_convergence OUT --corpus kos=KOS [--topics 20] [--words 2000] [--iterations 1500]

For pairs of the four results: shared anchors, mean L1 of matched topics, relative difference of Y Y', and the mean L1
with the anchors of the first used for both, which separates the effect of near-ties of pivoting. Anchors are chosen
among all words, weights are uniform, as in the paper.

OUT keeps stores and results; it gets convergence.parquet and convergence.md.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import click

from pipelines.common import options
from pipelines.common.data import NIPS, prepared
from pipelines.common.methods import METHODS, Setup
from pipelines.common.results import Arrays, Row, publish
from pipelines.common.scores import distances
from pipelines.common.tables import markdown, number
from streaming_jsmf.evaluation.matching import match_topics
from streaming_jsmf.inference.law import low_rank_anchor_words
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.topics.anchor_words import anchor_rules


def with_anchors(setup: Setup, found: Arrays, anchors: Arrays) -> Arrays:
    """Topics of LAW from the Y of ``found`` with the anchors of another result."""
    moments = setup.moments()
    rules = anchor_rules(moments, setup.settings(METHODS["ENN"], len(anchors["anchors"])))
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
@options.OUT
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
    publish(out, "convergence", rows, table(rows), used)
    click.echo(table(rows))


if __name__ == "__main__":
    main()
