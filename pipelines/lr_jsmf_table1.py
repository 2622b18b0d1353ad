"""Table 1 of LR-JSMF: prominent and characteristic words of five topics of the NIPS papers, compared with the paper.

    python -m pipelines.lr_jsmf_table1 OUT [--corpus nips=data_specs/uci_nips] [--words 5000]

Prominent words are the most probable words of a topic; characteristic words co-occur most with its anchor. Topics are
matched with those of the paper by shared words. For other corpora only the words are shown. The baseline illustrates
the statement of JSMF 2015 that its topics repeat each other.

OUT keeps stores and results; it gets words.parquet, words.md and words.json.
"""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from pipelines.common import options
from pipelines.common.data import NIPS, prepared
from pipelines.common.methods import Setup
from pipelines.common.results import Row, publish
from pipelines.common.tables import markdown
from streaming_jsmf.inference.words import characteristic_words, prominent_words

#: Six prominent and six characteristic words of each topic (LR-JSMF, Table 1: NeurIPS, 10,000 words).
LR_JSMF = {
    "prominent": (
        "neuron cell circuit synaptic layer signal",
        "layer recognition hidden word speech net",
        "control action dynamic optimal policy reinforcement",
        "cell field visual image motion direction",
        "gaussian noise approximation bound hidden matrix",
    ),
    "characteristic": (
        "neuron synaptic potential cell biological circuit",
        "character samples kanji recognition radical layer",
        "tpdp control states optimal action dynamic",
        "motion cell direction contrast signal region",
        "conditional bound likelihood cem log gaussian",
    ),
}

#: Methods in the table.
SHOWN = ("LR-JSMF", "AP", "PALM", "baseline")


def words_of(setup: Setup, method: str, n_topics: int, count: int) -> dict[str, NDArray[np.str_]]:
    """Prominent and characteristic words (K, count), and anchors (K,), from the anchors' rows of unrectified C."""
    found, names = setup.topics(method, n_topics), np.array(setup.corpus.vocabulary().words)
    rows = setup.moments().cooccurrence_rows(found["anchors"])
    return {
        "anchor": names[found["anchors"]],
        "prominent": names[prominent_words(found["word_topic"], count)],
        "characteristic": names[characteristic_words(rows, count)],
    }


def pairing(found: NDArray[np.str_], paper: tuple[str, ...]) -> tuple[list[int], list[list[int]]]:
    """Match the paper's topics to found ones by the number of shared words.

    Returns the found topic of each topic of the paper, and all counts of shared words (paper's topic, found topic).
    """
    shared = [[len({*row.split()} & {*words}) for words in found.tolist()] for row in paper]
    _, chosen = linear_sum_assignment(np.array(shared), maximize=True)
    return chosen.tolist(), shared


def beside(name: str, method: str, found: dict[str, NDArray[np.str_]]) -> list[Row]:
    """One row per topic; compared with the paper's words if corpus and K are the paper's."""
    topics, paper = range(len(found["anchor"])), name == "nips" and len(found["anchor"]) == 5
    order = pairing(found["prominent"], LR_JSMF["prominent"])[0] if paper else list(topics)
    rows = []
    for number, topic in enumerate(order):
        row: Row = {
            "corpus": name,
            "method": method,
            "topic": number + 1,
            "anchor": str(found["anchor"][topic]),
        }
        for kind in ("prominent", "characteristic"):
            words = [str(word) for word in found[kind][topic]]
            row[kind] = " ".join(words)
            if paper:
                row[f"{kind}_shared"] = len({*words} & {*LR_JSMF[kind][number].split()})
        rows.append(row)
    return rows


def table(rows: list[Row]) -> str:
    header = [
        "corpus",
        "method",
        "topic",
        "anchor",
        "prominent",
        "of the paper's",
        "characteristic",
        "of the paper's",
    ]
    columns = ("prominent", "prominent_shared", "characteristic", "characteristic_shared")
    lines = [
        [row["corpus"], row["method"], row["topic"], row["anchor"], *(row.get(name, "-") for name in columns)]
        for row in rows
    ]
    return markdown(header, lines, text=len(header))


@click.command(help=__doc__)
@options.OUT
@options.corpora(words=5000)
@click.option("--topics", default=5, show_default=True)
@options.several("methods", SHOWN)
@click.option("--count", default=6, show_default=True, help="Words of each kind per topic.")
@options.label("words")
@options.GUARDS
@options.quick("300 words")
def main(
    out: Path,
    corpora: tuple[str, ...],
    words: int,
    topics: int,
    methods: list[str],
    count: int,
    label: str,
    guards: bool,
    quick: bool,
) -> None:
    words = 300 if quick else words
    rows: list[Row] = []
    used = {}
    for named in corpora or (f"nips={NIPS}",):
        name, corpus = prepared(named, out / "corpora", words)
        used[name] = corpus
        setup = Setup(corpus, out / f"{name}-{words}", topics, guards)
        for method in methods:
            rows += beside(name, method, words_of(setup, method, topics, count))
    publish(out, label, rows, table(rows), used)
    click.echo(table(rows))


if __name__ == "__main__":
    main()
