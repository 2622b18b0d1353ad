"""Numbers in pages: their tables are those of the results, and the tables of the results are those of the rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from benchmarks import text_peers, whole_chain
from benchmarks.peers import tables as peer_tables
from pipelines import (
    authors_code,
    coherence_repetition,
    example_topics,
    jsmf_2015,
    later_papers,
    lr_jsmf_convergence,
    lr_jsmf_fig3,
    lr_jsmf_fig4,
    lr_jsmf_table1,
    near_ties,
    one_pass,
    over_complete,
    rectification_steps,
    softclique,
    stod_any_k,
    stod_fig1,
    stod_fig2,
    stod_tables,
    tod_dense,
    update_steps,
)
from pipelines.common import experiment, quality_tables
from pipelines.pages import PAGES, RESULTS, unknown_numbers, with_tables

Rows = list[dict[str, Any]]


def compared(rows: Rows) -> str:
    metrics = lr_jsmf_fig3.DRAWN
    first = rows[0]["method"]
    return f"{experiment.table(rows, metrics)}\n\n{experiment.summary(rows, metrics, first)}"


def curves(rows: Rows) -> str:
    names = dict.fromkeys(row["curve"] for row in rows)
    of = {name: [row for row in rows if row["curve"] == name] for name in names}
    return "\n\n".join(
        make(name, of[name]) for name in names for make in (stod_fig1.mean_table, stod_fig1.topic_table)
    )


def drawn(rows: Rows) -> str:
    return experiment.table(rows, jsmf_2015.DRAWN)


def repeated(rows: Rows) -> str:
    return coherence_repetition.table([row for row in rows if row["change"] == "none"], "method")


#: Metrics of the comparison of this package's own variants.
OURS = (
    "relative_recovery",
    "relative_approximation",
    "specificity_2021",
    "dissimilarity",
    "npmi",
    "coherence",
)


#: How the tables of each result are made of its rows.
MAKERS: dict[str, Callable[[Rows], str]] = {
    **dict.fromkeys(
        (
            "fig3_nips",
            "fig3_more",
            "checked_rows",
            "palm",
            "palm_low_rank",
            "items",
            "enn_authors",
            "guards",
            "no_guards",
        ),
        compared,
    ),
    **dict.fromkeys(
        ("stod_fig1", "stod_fig1_words", "stod_fig1_topics", "stod_fig1_large", "stod_fig1_restarts"), curves
    ),
    **dict.fromkeys(("stod_tables", "stod_tables_un"), stod_tables.tables),
    **dict.fromkeys(("softclique", "softclique_lda", "softclique_newsgroups"), softclique.coherence_table),
    **dict.fromkeys(("table1", "items_topics"), lr_jsmf_table1.table),
    **dict.fromkeys(("stod_table3_kos", "stod_table3_nips"), example_topics.table),
    "ours": lambda rows: experiment.table(rows, OURS),
    "one_pass": one_pass.table,
    "over_complete": over_complete.table,
    "quality": quality_tables.tables,
    "peers/topics": partial(peer_tables.table, makes="topics"),
    "peers/basis": partial(peer_tables.table, makes="basis"),
    "abstracts_peers/topics": partial(peer_tables.table, makes="topics"),
    "text_peers": text_peers.table,
    "whole_chain": whole_chain.table,
    "later_papers": later_papers.tables,
    **dict.fromkeys(("jsmf_kos", "jsmf_baskets", "jsmf_groceries", "jsmf_ratings"), drawn),
    **dict.fromkeys(("fig4_nips", "fig4_un", "words_15000"), lr_jsmf_fig4.table),
    **dict.fromkeys(("convergence", "convergence_nips"), lr_jsmf_convergence.table),
    **dict.fromkeys(("coherence_repetition", "coherence_repetition_nips"), repeated),
    **dict.fromkeys(("authors", "authors_limit"), authors_code.tables),
    **dict.fromkeys(("stod_fig2_kos", "stod_fig2_nips"), stod_fig2.table),
    "near_ties": near_ties.table,
    "tod_dense": tod_dense.table,
    "update_steps": update_steps.table,
    "rectification_steps": rectification_steps.tables,
    "stod_any_k": stod_any_k.tables,
    "fig4_groups": lambda rows: lr_jsmf_fig4.group_table(rows, (4, 5)),
}


#: Results whose tables list words of topics, which are not in their rows.
WORD_LISTS = {"fig2", "jsmf_topics"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_shows_the_numbers_of_its_results(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert with_tables(text) == text, "run python -m pipelines.pages"
    assert unknown_numbers(text) == []


@pytest.mark.parametrize("name", ["reproduction", "reproduction_stod"])
def test_the_first_table_of_reproduced_claims_has_no_empty_cell(name: str) -> None:
    page = (RESULTS.parent / f"{name}.md").read_text(encoding="utf-8")
    head, _, *rows = next(block for block in page.split("\n\n") if "| record |" in block).splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert {len(row) for row in cells} == {head.count("|") - 1}
    assert not {"", "-"} & {cell for row in cells for cell in row}


@pytest.mark.parametrize("name", MAKERS)
def test_the_tables_of_a_result_are_made_of_its_rows(name: str) -> None:
    [path] = RESULTS.glob(f"{name}.parquet" if "/" in name else f"{name}/*.parquet")
    text = MAKERS[name](pq.read_table(path).to_pylist())
    assert path.with_suffix(".md").read_text(encoding="utf-8").startswith(text)


def test_every_result_has_tables_rows_and_a_record() -> None:
    records = [*RESULTS.glob("*/*.json")]
    assert {path.parent for path in records} == {path for path in RESULTS.iterdir() if path.is_dir()}
    assert all(path.with_suffix(suffix).exists() for path in records for suffix in (".md", ".parquet"))
    assert {path.parent.name for path in records} - {name.partition("/")[0] for name in MAKERS} == WORD_LISTS


PAGE = """# Page

<!-- table 1 of tod_dense/tod_dense -->

{table}

At 3,000 words M2 has .072 GB and takes {seconds} s, {times} times as long. <!-- {times} = 1.7 / .17 -->

| item | paper | record |
|---|---|---|
| seconds: {paper} as in the paper | 2.5 | `results/convergence` |
"""


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({}, []),
        ({"seconds": "1.8"}, ["# Page: 1.8"]),
        ({"times": "11.5"}, ["# Page: 11.5"]),
        ({"paper": "1.7"}, ["# Page: 1.7"]),
    ],
)
def test_a_number_that_no_result_contains_is_found(changed: dict[str, str], found: list[str]) -> None:
    table = "| words |\n|---|"
    text = PAGE.format(**{"table": table, "seconds": "1.7", "times": "10.0", "paper": "2.5"} | changed)
    assert unknown_numbers(text) == found
    assert "| 3,000 | 0.072 |" in with_tables(text)
