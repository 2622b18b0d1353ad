"""Choosing K: the sums of losses, the page, and the verb on a corpus whose number of topics is known."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from streaming_jsmf import InferSettings, ScanSettings, infer, scan
from streaming_jsmf.evaluation.choice import Measures, choice_of, choose, fields_of
from streaming_jsmf.evaluation.topic_shape import stability
from streaming_jsmf.moments.select import resampled
from streaming_jsmf.moments.store import open_moments
from streaming_jsmf.reporting.layout import draw_lines
from streaming_jsmf.reporting.page import render_comparison
from streaming_jsmf.topics.infer import fit_moments
from streaming_jsmf.topics.store import read_model
from tests.corpora import planted, write_corpus
from tests.html_pages import parse
from tests.outcomes import Command, refused

TRUE_K = 6
ASKED = "3,6,12"
SYNCHRONOUS = ("--scheduler", "synchronous")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1,200 documents of six topics."""
    counts = planted(1200, 90, TRUE_K, length=60, seed=4).counts
    return write_corpus(tmp_path_factory.mktemp("choose") / "corpus", counts, shards=2, row_group_rows=30)


def test_losses_are_added_up_in_the_units_of_each_column() -> None:
    rows = [
        Measures(20, 1000.0, 0.10, 0.8, 0.7, 0.01),
        Measures(5, 1500.0, 0.20, 1.0, 0.9, 0.5),
        Measures(10, 1100.0, 0.18, 0.9, 0.9, 0.3),
    ]
    choice = choose(rows)
    assert [row.n_topics for row in choice.rows] == [5, 10, 20]
    slow = [
        math.log(row.perplexity / 1000) / 0.1  # type: ignore[operator]
        + (0.20 - row.npmi) / 0.05  # type: ignore[operator]
        + (1.0 - row.distinct_share) / 0.1  # type: ignore[operator]
        + (0.9 - row.stability) / 0.1  # type: ignore[operator]
        for row in choice.rows
    ]
    assert choice.losses == pytest.approx(slow)
    assert choice.suggested == [5, 10, 20][int(np.argmin(slow))] == 10
    assert "with 5, perplexity is 1,500 instead of 1,100" in choice.reason
    assert "with 20, stability is 0.700 instead of 0.900" in choice.reason
    assert "also compare" not in choice.reason
    assert "also compare more" in choose(rows[1:]).reason
    assert "also compare fewer" in choose(rows[::2]).reason


def test_equal_losses_give_the_fewer_topics_and_columns_with_gaps_do_not_count() -> None:
    assert choose([Measures(9, npmi=0.2), Measures(4, npmi=0.2)]).suggested == 4
    gaps = choose([Measures(4, npmi=0.1, distinct_share=0.5), Measures(9, distinct_share=0.6)])
    assert gaps.losses == pytest.approx((1.0, 0.0))
    nothing = choose([Measures(4), Measures(9)])
    assert (nothing.suggested, nothing.reason) == (4, "there is nothing to compare it with")


def test_the_page_has_the_table_and_a_line_for_each_measure() -> None:
    choice = choose(
        [Measures(5, 1500.0, 0.2, 0.9), Measures(10, 1200.0, 0.2, 0.8), Measures(20, 1190.0, 0.12, 0.7)]
    )
    page = parse(
        render_comparison(
            choice,
            {"stability": "<no> replicas"},
        )
    )
    [head, *rows] = page.one("table", "choice").all("tr")
    assert [cell.text for cell in head.all("th")][:3] == ["topics", "perplexity", "NPMI"]
    assert [row.one("th").text for row in rows] == ["5", "10", "20"]
    assert [row.classes == ["suggested"] for row in rows] == [False, True, False]
    assert "<no> replicas" in page.text
    older = {"rows": [{**row, "loss": 0} for row in fields_of(choice, {})["rows"]], "missing": {}}
    for row in older["rows"]:
        del row["coherence"], row["exclusivity"]
    assert choice_of({"format_version": 1, **older}) == (choice, {}), "of a release without these columns"
    lines = draw_lines(choice)
    assert [line["title"] for line in lines] == ["perplexity", "NPMI", "distinct"]
    assert len(page.all("svg")) == 3
    heights = [point["y"] for point in lines[0]["points"]]
    assert heights == sorted(heights), "falling values fall in the drawing"
    assert len({point["y"] for point in lines[1]["points"][:2]}) == 1, "equal values are level"


@pytest.mark.slow
def test_the_planted_number_is_suggested(corpus: Path, invoke: Command, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ("choose-k", corpus, "--topics", ASKED, "--out", out, *SYNCHRONOUS)
    shown = invoke(*command).without_progress()
    assert (shown.code, shown.err) == (0, "")
    found = json.loads((out / "choose-k.json").read_text(encoding="utf-8"))
    assert found["suggested"] == TRUE_K
    assert found["missing"] == {}
    starred = next(line for line in shown.out.splitlines() if line.startswith("*"))
    assert starred.split()[1] == str(TRUE_K)
    assert f"suggested: {TRUE_K} topics: " in shown.out
    assert sorted(path.name for path in out.iterdir()) == [
        "choose-k.html", "choose-k.json", "k=12", "k=3", "k=6", "moments",
    ]  # fmt: skip
    page = (out / "choose-k.html").read_bytes()
    row = next(row for row in found["rows"] if row["n_topics"] == TRUE_K)
    model = read_model(out / f"k={TRUE_K}")
    assert row["perplexity"] == model.metrics["polish"]["perplexity"][-1]["perplexity"]
    assert row["eigengap"] == model.metrics["eigenvalue_gap"]
    moments = open_moments(out / "moments")
    own, *drawn = (
        fit_moments(of, InferSettings(TRUE_K)).arrays["word_topic"]
        for of in (moments, *(resampled(moments, 0, number) for number in range(3)))
    )
    assert row["stability"] == stability(own, drawn).value
    told = invoke("evaluate", out / f"k={TRUE_K}", "--json", *SYNCHRONOUS)
    assert told.code == 0, told.err
    evaluated = json.loads(told.out)
    assert row["npmi"] == evaluated["metrics"]["npmi"]["mean"]
    assert row["distinct_share"] == evaluated["metrics"]["distinct_share"]
    assert row["coherence"] == evaluated["metrics"]["coherence"]["mimno_2011"]["mean"]
    assert row["exclusivity"] == evaluated["metrics"]["exclusivity"]["mean"]
    again = invoke(*command, "--json")
    assert json.loads(again.out) == found
    assert (out / "choose-k.html").read_bytes() == page


def test_a_corpus_of_one_row_group_has_stability_and_prints_its_table_only(
    invoke: Command, tmp_path: Path
) -> None:
    counts = planted(300, 60, 3, length=60, seed=4).counts
    corpus = write_corpus(tmp_path / "small", counts, shards=1, row_group_rows=300)
    shown = invoke("choose-k", corpus, "--topics", "3,6", *SYNCHRONOUS)
    assert (shown.code, shown.err) == (0, "")
    found = json.loads((tmp_path / "small.choose-k" / "choose-k.json").read_text(encoding="utf-8"))
    assert found["missing"] == {}
    heading, *lines = shown.out.splitlines()
    assert heading.split() == [
        *(
            "topics",
            "perplexity",
            "NPMI",
            "distinct",
            "stability",
            "coherence",
            "exclusive",
            "eigengap",
            "loss",
        ),
    ]
    for line, row in zip(lines, found["rows"], strict=False):
        values = line.removeprefix("*").split()
        assert values[5:7] == [f"{row['coherence']:.3f}", f"{row['exclusivity']:.3f}"]
    true, more = (row["stability"] for row in found["rows"])
    assert 0 < more < true <= 1


def test_moments_are_compared_with_what_they_allow(corpus: Path, invoke: Command, tmp_path: Path) -> None:
    scan(corpus, tmp_path / "m", ScanSettings(max_topics=6))
    shown = invoke("choose-k", tmp_path / "m", "--topics", "3,6", "--json", *SYNCHRONOUS)
    found = json.loads(shown.out)
    assert list(found["missing"]) == ["stability"]
    assert "4 are needed" in found["missing"]["stability"]
    assert all(row["perplexity"] and row["npmi"] for row in found["rows"])
    assert (tmp_path / "m.choose-k" / "k=3").is_dir()
    moved = corpus.rename(corpus.with_name("moved"))
    try:
        out = ("--out", tmp_path / "bare")
        bare = json.loads(
            invoke("choose-k", tmp_path / "m", "--topics", "3,6", "--json", *out, *SYNCHRONOUS).out
        )
        assert list(bare["missing"]) == ["perplexity", "npmi", "coherence", "stability"]
        assert "name it with --corpus" in bare["missing"]["npmi"]
        named = ("--corpus", moved, "--out", tmp_path / "named")
        told = json.loads(
            invoke("choose-k", tmp_path / "m", "--topics", "3,6", "--json", *named, *SYNCHRONOUS).out
        )
        assert told["rows"] == found["rows"]
    finally:
        moved.rename(corpus)


@pytest.mark.parametrize("name", ["choose-k.html", "choose-k.json"])
def test_a_file_of_the_user_under_the_name_of_a_result_is_refused_before_any_work(
    name: str, corpus: Path, invoke: Command, tmp_path: Path
) -> None:
    (tmp_path / name).write_text('{"suggested": 3}')
    line = ("choose-k", corpus, "--topics", "3,6", "--out", tmp_path, "--overwrite", *SYNCHRONOUS)
    refused(invoke(*line), 2, str(tmp_path / name))
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, '{"suggested": 3}')]


def test_wrong_input_ends_in_one_line_before_any_work(corpus: Path, invoke: Command, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "out", *SYNCHRONOUS)
    refused(invoke("choose-k", corpus, "--topics", "5", *out), 2, "a single number of topics", "5,10,20,50")
    refused(
        invoke("choose-k", corpus, "--topics", "5,500", *out),
        2,
        "1,200 documents and 90 words",
        "at most 90 topics",
    )
    refused(invoke("choose-k", corpus, "--topics", "5,6", "--replicas", "-1", *out), 2, "replicas is -1")
    scan(corpus, tmp_path / "m", ScanSettings(max_topics=4))
    refused(invoke("choose-k", tmp_path / "m", "--topics", "3,6", *out), 2, "supports up to 4 topics")
    refused(
        invoke("choose-k", tmp_path / "m", "--topics", "3,4", "--corpus", tmp_path / "none", *out),
        2,
        "no such file or directory",
    )
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    infer(tmp_path / "m", tmp_path / "model", InferSettings(3))
    refused(invoke("choose-k", tmp_path / "model", "--topics", "3,4", *out), 2)
