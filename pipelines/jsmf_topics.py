"""Topic table and topic interactions of JSMF 2015: five topics of the NIPS papers, and A as heat maps.

    python -m pipelines.jsmf_topics OUT [--corpus nips=data_specs/uci_nips] [--topics 5] [--words 2000]

Topics are matched with those that the paper prints for the same method, by shared words. A is shown as computed: an
entry is a probability only if A has no negative entries and sums to 1. `Gibbs` uses the 1,000 sweeps of the paper and
requires tomotopy (extra `bench`).

OUT keeps stores and results; it gets jsmf_topics.parquet, jsmf_topics.md, jsmf_topics.svg and jsmf_topics.json.
"""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np

from pipelines.common import options, pictures
from pipelines.common.data import NIPS, prepared
from pipelines.common.methods import Floats, Setup
from pipelines.common.results import Row, publish
from pipelines.common.tables import markdown, number
from pipelines.lr_jsmf_table1 import pairing
from streaming_jsmf.inference.words import prominent_words

#: Prominent words of JSMF 2015 on NIPS, K = 5; its own algorithm is AP. Our text version of the paper lacks two words.
PAPER = {
    "baseline": (
        "neuron layer hidden recognition signal cell noise",
        "neuron layer hidden cell signal representation noise",
        "neuron layer cell hidden signal noise dynamic",
        "neuron layer cell hidden control signal noise",
        "neuron layer hidden cell signal recognition noise",
    ),
    "AP": (
        "neuron circuit cell synaptic signal layer activity",
        "control action dynamic optimal policy controller reinforcement",
        "recognition layer hidden word speech image",
        "cell field visual direction image motion object orientation",
        "gaussian noise hidden approximation matrix bound examples",
    ),
    "Gibbs": (
        "neuron cell visual signal response field activity",
        "control action policy optimal reinforcement dynamic robot",
        "recognition image object feature word speech features",
        "hidden layer dynamic neuron recurrent noise",
        "gaussian approximation matrix bound component variables",
    ),
}

WORDS = 7


def rows_of(setup: Setup, method: str, n_topics: int, names: Floats) -> list[Row]:
    """One row per topic, in the order of the paper's topics of the method if it prints five."""
    found = setup.topics(method, n_topics)
    words = names[prominent_words(found["word_topic"], WORDS)]
    paper = PAPER.get(method.partition(" ")[0]) if n_topics == 5 else None
    order, shared = pairing(words, paper) if paper else (list(range(n_topics)), [])
    return [
        {
            "method": method,
            "topic": number_of + 1,
            "words": " ".join(map(str, words[topic])),
            "shared": shared[number_of][topic] if paper else None,
        }
        for number_of, topic in enumerate(order)
    ]


def interactions(setup: Setup, method: str, n_topics: int) -> Row:
    A = setup.topics(method, n_topics)["topic_topic"]
    return {
        "method": method,
        "smallest": float(A.min()),
        "sum_A": float(A.sum()),
        "diagonal": float(np.trace(A) / A.sum()),
        "A": A.tolist(),
    }


def draw(rows: list[Row], path: Path) -> None:
    """Heat maps of A with the entries as percentages."""
    figure, axes = pictures.panels(1, len(rows), width=2.6, height=2.4)
    for row, panel in zip(rows, axes[0], strict=True):
        A = np.array(row["A"])
        panel.imshow(A / np.abs(A).max(), cmap="RdBu", vmin=-1, vmax=1)
        for (i, j), value in np.ndenumerate(A):
            shown = f"{100 * value:.0f}"
            panel.text(j, i, shown, ha="center", va="center", fontsize=6)
        panel.set(xticks=[], yticks=[])
        panel.set_title(f"{row['method']}: A in %, sum {number(row['sum_A'], 2)}", fontsize=8)
    pictures.save(figure, path)


@click.command(help=__doc__)
@options.DRAWN_OUT
@options.corpora(words=2000)
@click.option("--topics", default=5, show_default=True)
@options.several("methods", ("baseline", "DC", "AP", "LR-JSMF", "Gibbs"))
@options.quick("the shipped corpus, 200 words, 200 sweeps")
@options.ONLY_KEPT
def main(
    out: Path,
    corpora: tuple[str, ...],
    words: int,
    topics: int,
    methods: list[str],
    quick: bool,
    only_kept: bool,
) -> None:
    if quick:
        words, methods = 200, ["baseline", "AP", "Gibbs 200"]
    rows: list[Row] = []
    used, maps = {}, []
    for named in corpora or (f"nips={NIPS}",):
        name, corpus = prepared(named, out / "corpora", words)
        used[name] = corpus
        setup = Setup(corpus, out / f"{name}-{words}", topics, only_kept=only_kept)
        names = np.array(corpus.vocabulary().words)
        for method in methods:
            rows += [{"corpus": name, **row} for row in rows_of(setup, method, topics, names)]
        maps += [{"corpus": name, **interactions(setup, method, topics)} for method in methods]
    lines = [[row["method"], row["topic"], row["words"], number(row["shared"])] for row in rows]
    words_table = markdown(["method", "topic", "seven words", "of the paper's"], lines, text=3)
    columns = ("smallest", "diagonal", "sum_A")
    lines = [[row["method"], *(number(row[column]) for column in columns)] for row in maps]
    maps_table = markdown(["method", "smallest entry of A", "share of the diagonal", "sum(A)"], lines)
    text = f"{words_table}\n\n{maps_table}"
    publish(out, "jsmf_topics", rows, text, used)
    draw(maps, out / "jsmf_topics.svg")
    click.echo(text)


if __name__ == "__main__":
    main()
