"""Figure 3 of LR-JSMF: metrics and run times of five methods against the number of topics.

    python -m pipelines.lr_jsmf_fig3 OUT --corpus nips=data_specs/uci_nips --corpus kos=KOS --corpus un=UN [--seeds 5]

As in the paper, C has uniform weights and any word can be an anchor; `--guards` selects anchors as `infer` does. All
methods are measured against the counted C (words x words), which must fit in memory. `ENN printed` is ENN with the
paper's |I| = 10 K + 1000 and no momentum, `LR-JSMF one pass` starts from the paper's single pass; both run beside our
variants. `iPALM` runs until it converges, `PALM` for 150 steps. Further methods: `PALM converged`, `ENN printed
momentum`, `ENN 200 rows` and other |I|, `LR-JSMF capped` (default weights), `LR-JSMF sampled` (the scan starts from a
quarter of the documents), `LR-JSMF polished`, `DC`, `DP`, `SC`. Times are CPU
seconds of one thread, from eigenpairs to topics.

OUT keeps stores and results, so an interrupted command can be run again; it gets fig3.parquet, fig3.md and fig3.svg.
"""

from __future__ import annotations

from pathlib import Path

import click

from pipelines.common import options
from pipelines.common.data import NIPS, prepared
from pipelines.common.experiment import published, rows_of
from pipelines.common.methods import Setup
from pipelines.common.results import Row
from pipelines.common.scores import METRICS

PAPER = ("AP", "ENN printed", "ENN", "LR-JSMF one pass", "LR-JSMF", "iPALM", "PALM", "baseline")

#: Metrics of the paper's figure.
DRAWN = (
    "relative_recovery",
    "relative_approximation",
    "relative_dominancy",
    "specificity_2021",
    "dissimilarity",
    "cpu_seconds",
)


@click.command(help=__doc__)
@options.DRAWN_OUT
@options.corpora(words=2000)
@options.several("topics", [5, 10, 20, 50, 100])
@options.several("methods", PAPER)
@options.several("metrics", DRAWN, help=f"Metrics, of {', '.join(METRICS)}.")
@options.label("fig3")
@click.option(
    "--first", default="AP", show_default=True, help="Method to which the others are compared; '' for none."
)
@options.SEEDS
@options.MOST_TOPICS
@options.GUARDS
@options.ITERATIONS
@click.option("--tolerance", default=1e-5, show_default=True, help="Tolerance of a rectification.")
@options.quick("the shipped corpus, 300 words")
@options.ONLY_KEPT
def main(
    out: Path,
    corpora: tuple[str, ...],
    words: int,
    topics: list[int],
    methods: list[str],
    metrics: list[str],
    label: str,
    first: str,
    seeds: int,
    max_topics: int,
    guards: bool,
    iterations: int,
    tolerance: float,
    quick: bool,
    only_kept: bool,
) -> None:
    if quick:
        corpora, words, topics, max_topics, seeds, iterations = (f"nips={NIPS}",), 300, [3, 5], 5, 2, 30
    rows: list[Row] = []
    used = {}
    for named in corpora:
        name, corpus = prepared(named, out / "corpora", words)
        used[name] = corpus
        setup = Setup(
            corpus, out / Path(corpus.root).name, max_topics, guards, iterations, tolerance, only_kept
        )
        rows += rows_of(name, setup, topics, methods, range(seeds), first)
    published(out, label, rows, metrics, first, used)


if __name__ == "__main__":
    main()
