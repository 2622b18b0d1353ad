"""What the scripts of the experiments share: cells kept once, tables, pictures with one look a method, peers."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy import sparse

from pipelines.common import peers, pictures, tables
from pipelines.common.results import CellMissing, Results, publish


@pytest.mark.parametrize("name", ["results", "tables"])
def test_examples_hold(name: str) -> None:
    found = doctest.testmod(importlib.import_module(f"pipelines.common.{name}"))
    assert found.attempted > 0
    assert found.failed == 0


def test_a_cell_is_made_once_and_by_all_of_its_key(tmp_path: Path) -> None:
    results, made = Results(tmp_path), []

    def make() -> dict[str, float]:
        made.append(1)
        return {"error": len(made) / 4, "undefined": float("nan")}

    key = {"method": "AP", "K": 5, "corpus": "0123456789abcdef" * 4}
    assert results.row(key, make) == {"error": 0.25, "undefined": None}
    assert results.row(key, make) == {"error": 0.25, "undefined": None}
    assert results.row({**key, "corpus": "f" * 64}, make)["error"] == 0.5
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".json"]
    with pytest.raises(CellMissing):
        Results(tmp_path, only_kept=True).row({**key, "K": 6}, make)


def test_what_was_cut_off_is_made_again(tmp_path: Path) -> None:
    results = Results(tmp_path)

    def killed() -> dict[str, float]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        results.row({"K": 5}, killed)
    arrays = results.arrays({"K": 5}, lambda: {"B": np.eye(2)})
    assert results.row({"K": 5}, lambda: {"error": 1.0}) == {"error": 1.0}
    again = results.arrays({"K": 5}, lambda: {})
    np.testing.assert_array_equal(again["B"], arrays["B"])
    assert not list(tmp_path.glob("*.part"))


def test_a_cell_of_another_key_is_refused(tmp_path: Path) -> None:
    results = Results(tmp_path)
    results.row({"K": 5}, lambda: {"error": 1.0})
    path = next(tmp_path.iterdir())
    path.write_text(path.read_text().replace('"K": 5', '"K": 6'))
    with pytest.raises(ValueError, match="another cell"):
        results.row({"K": 5}, lambda: {"error": 1.0})


def test_results_are_published_as_parquet_and_markdown(tmp_path: Path) -> None:
    publish(tmp_path / "out", "fig", [{"K": 5, "error": float("inf")}, {"K": 6, "error": 0.5}], "| K |")
    assert pq.read_table(tmp_path / "out" / "fig.parquet").to_pylist() == [
        {"K": 5, "error": None},
        {"K": 6, "error": 0.5},
    ]
    assert (tmp_path / "out" / "fig.md").read_text() == "| K |\n"


def test_a_table_aligns_words_and_numbers() -> None:
    assert tables.markdown(["corpus", "method", "K"], [["kos", "AP", 5]], text=2).splitlines() == [
        "| corpus | method | K |",
        "|---|---|---:|",
        "| kos | AP | 5 |",
    ]


def test_methods_can_be_told_apart() -> None:
    looks = [(look.colour, look.marker, look.line) for look in pictures.LOOKS.values()]
    assert len({*looks}) == len(looks)


def test_a_picture_has_one_legend_and_the_same_bytes(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("first.svg", "again.svg"):
        figure, axes = pictures.panels(1, 2)
        for panel in axes[0]:
            pictures.curve(panel, "ENN", {5: [1.0, 2.0], 10: [None], 20: [3.0]})
            pictures.curve(panel, "AP", {5: [1.0], 20: [2.0]})
            pictures.ticks(panel, [5, 20])
        pictures.curve(axes[0][0], "PALM", {5: [None]})
        pictures.legend(figure)
        pictures.save(figure, tmp_path / name)
    first, again = ((tmp_path / name).read_bytes() for name in ("first.svg", "again.svg"))
    assert first == again
    text = first.decode()
    # AP comes first in the legend as in LOOKS; what had nothing to draw is not in it.
    assert [text.count(f">{name}<") for name in ("AP", "ENN", "PALM")] == [1, 1, 0]
    assert text.index(">AP<") < text.index(">ENN<")


def test_peers_see_the_tokens_of_the_counts() -> None:
    counts = sparse.csr_array(np.array([[2, 0, 1], [0, 0, 0], [0, 3, 0]]))
    assert list(peers.documents(counts)) == [["0", "0", "2"], ["1", "1", "1"]]


def test_gibbs_gives_topics_after_each_number_of_sweeps() -> None:
    pytest.importorskip("tomotopy")
    counts = sparse.csr_array(np.array([[9, 1, 0, 0], [0, 0, 0, 9]] * 10))
    few, many = peers.gibbs(counts, 2, 0, [5, 50])
    assert (few.steps, many.steps) == (5, 50)
    for found in (few, many):
        np.testing.assert_allclose(found.word_topic.sum(axis=0), 1, rtol=1e-5)
        # A word of no document has no probability.
        assert (found.word_topic[2] == 0).all()
    assert (many.word_topic.max(axis=0) > 0.8).all()
