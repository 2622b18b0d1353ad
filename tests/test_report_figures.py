"""view, show and the figures: the page where it is wanted, and figures that say what the arrays say."""

from __future__ import annotations

import html
import sys
import webbrowser
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streaming_jsmf as sj
from streaming_jsmf import (
    InputError,
    document_map,
    evaluate,
    fit,
    open_corpus,
    plot_correlations,
    plot_documents,
    plot_map,
    plot_over_time,
    plot_quality,
    plot_topics,
    report,
    shares_by,
    show,
    transform,
)
from streaming_jsmf.documents import queries as documents
from streaming_jsmf.interface.topic_model import TopicModel
from streaming_jsmf.reporting.contents import read_contents
from streaming_jsmf.reporting.layout import neighbors_kept, times_chance
from streaming_jsmf.reporting.plots import COLORS
from streaming_jsmf.topics.store import Model, read_model, write_model
from tests.cases import first_cases
from tests.corpora import planted, write_corpus
from tests.figure_texts import beside_the_data, require_readable
from tests.html_pages import page_at, values_of
from tests.outcomes import Command, refused
from tests.stores import write_shares
from tests.test_report_values import saved, shares_beside
from tests.test_transform import K, N, write_named

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from matplotlib.figure import Figure
from matplotlib.text import Text


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("figures") / "model"
    return saved(place, planted(90, N, K, length=30, seed=3).word_topic)


@pytest.fixture(scope="module")
def shares(model: Path) -> Path:
    return shares_beside(model)


@pytest.fixture
def correlated(model: Path, tmp_path: Path) -> Path:
    found = read_model(model)
    theta = np.random.default_rng(0).dirichlet(np.full(K, 0.3), size=200)
    arrays = {**found.arrays, "topic_": np.arange(K), "topic_topic": theta.T @ theta / 200}
    write_model(tmp_path / "correlated", Model(arrays, found.settings, found.metrics, found.provenance))
    return tmp_path / "correlated"


def test_view_opens_the_page_that_report_writes(
    invoke: Command,
    model: Path,
    shares: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(webbrowser, "open", lambda place: asked.append(place) or True)
    report(model, tmp_path / "page.html", shares=shares, words=5)
    outcome = invoke("view", model, "--shares", shares, "--words", 5)
    assert outcome.code == 0
    written = Path(outcome.out.removeprefix("view: ").strip())
    assert asked == [written.as_uri()]
    assert written.read_bytes() == (tmp_path / "page.html").read_bytes()
    monkeypatch.setattr(webbrowser, "open", lambda _: False)
    refused(invoke("view", model), 2, "topics.html")
    refused(invoke("view", tmp_path / "none"), 2, str(tmp_path / "none"))


def test_a_notebook_shows_the_page_in_a_frame_and_figures_as_images(
    model: Path, correlated: Path, shares: Path, tmp_path: Path
) -> None:
    report(model, tmp_path / "page.html")
    shown = show(model, height=500)
    assert TopicModel(model).show(height=500) == shown
    frame = shown._repr_html_()
    start = '<iframe srcdoc="'
    assert frame.startswith(start)
    inside = frame[len(start) : frame.index('"', len(start))]
    assert html.unescape(inside) == (tmp_path / "page.html").read_text(encoding="utf-8")
    # Scripts run, but not as those of the notebook.
    assert 'sandbox="allow-scripts allow-downloads"' in frame
    assert "height: 500px" in frame
    for figure in (
        plot_map(correlated),
        plot_topics(correlated),
        plot_correlations(correlated),
        plot_over_time(model, shares),
    ):
        image = figure._repr_png_()  # type: ignore[attr-defined]
        assert image.startswith(b"\x89PNG")
        assert len(image) > 5000


def test_the_map_has_a_circle_for_each_topic_with_areas_like_shares(model: Path) -> None:
    [axes] = plot_map(model).axes
    areas = np.array([patch.radius**2 for patch in axes.patches])
    expected = read_model(model).arrays["topic_probability"]
    np.testing.assert_allclose(areas / areas.sum(), expected, rtol=1e-9)
    assert "by chance" in axes.get_xlabel()


def test_bars_are_the_probabilities_of_the_words(model: Path) -> None:
    figure, arrays = plot_topics(model, [2, 0], words=4), read_model(model).arrays
    for axes, topic in zip(figure.axes, (2, 0), strict=True):
        ids = arrays["prominent_words"][topic, :4]
        widths = [bar.get_width() for bar in axes.patches]
        np.testing.assert_allclose(widths, 100 * arrays["word_topic"][ids, topic])
        assert [label.get_text() for label in axes.get_yticklabels()] == arrays["word"][ids].tolist()
        assert "%" in axes.get_xlabel()
    assert len([axes for axes in plot_topics(model).axes if axes.patches]) == K
    # More than the model lists, and more than there are.
    assert [len(axes.patches) for axes in plot_topics(model, [1], words=25).axes] == [25]
    assert [len(axes.patches) for axes in plot_topics(model, [1], words=999).axes] == [len(arrays["word"])]
    with pytest.raises(InputError, match="words is 0"):
        plot_topics(model, words=0)


def test_correlations_are_against_chance_in_the_order_of_the_tree(correlated: Path) -> None:
    axes, bar = plot_correlations(correlated).axes
    order = [int(label.get_text()) for label in axes.get_xticklabels()]
    assert sorted(order) == list(range(K))
    shown = axes.images[0].get_array()
    ratio = times_chance(read_model(correlated).arrays["topic_topic"])[np.ix_(order, order)]
    between = ~np.eye(K, dtype=bool)
    np.testing.assert_allclose(shown[between], np.maximum(np.log2(ratio[between]), -3))
    assert "by chance" in bar.get_ylabel()


def test_lines_are_mean_shares_with_their_errors(model: Path, shares: Path) -> None:
    [axes] = plot_over_time(model, shares, [1, 3]).axes
    frame = shares_by(model, shares, "year").dropna(subset="year")
    for line, topic in zip(axes.lines, (1, 3), strict=True):
        np.testing.assert_allclose(line.get_ydata(), 100 * frame["share"][topic::K])
    assert [line.get_color() for line in axes.lines] == list(COLORS[:2])
    assert len(axes.get_legend().get_texts()) == 2
    assert axes.get_xlabel() == "year (documents without it, left out: 1)"
    assert "%" in axes.get_ylabel()
    [bars] = plot_over_time(model, shares, [1], by="title").axes
    assert len(bars.patches) == 90


def test_documents_are_near_those_with_similar_shares_and_colored_by_a_column(
    model: Path, shares: Path
) -> None:
    frame = document_map(model, shares)
    theta = documents.shares_table(model, shares)
    assert sorted(frame["document_id"]) == sorted(theta.index)
    theta = theta.loc[frame["document_id"]].to_numpy()
    np.testing.assert_array_equal(frame["topic"], theta.argmax(axis=1))
    np.testing.assert_allclose(frame["share"], theta.max(axis=1))
    apart = np.linalg.norm(np.sqrt(theta)[:, None] - np.sqrt(theta), axis=2)
    points = frame[["x", "y"]].to_numpy()
    assert neighbors_kept(apart, points, 10) > 3 * 10 / len(points)
    assert frame.equals(document_map(model, shares))
    few = document_map(model, shares, number=7, seed=1)
    assert len(few) == 7
    [axes] = plot_documents(model, shares).axes
    assert sum(len(drawn.get_offsets()) for drawn in axes.collections) == len(frame)
    axes, bar = plot_documents(model, shares, color="year").axes
    assert bar.get_ylabel() == "year"
    with pytest.raises(InputError, match="year"):
        plot_documents(model, shares, color="none")
    with pytest.raises(InputError):
        document_map(model, shares, number=0)


def test_columns_may_have_the_names_of_results(model: Path, shares: Path, tmp_path: Path) -> None:
    table = pq.read_table(shares)
    named = table.add_column(1, "share", [[7, 8, 9] * 30]).add_column(1, "x", [[1, 2] * 45])
    write_shares(tmp_path / "s.parquet", named, shares)
    for name, values in {
        "share": {7, 8, 9},
        "x": {1, 2},
        "year": {*table["year"].to_pylist()} - {None},
    }.items():
        [points] = plot_documents(model, tmp_path / "s.parquet", color=name).axes[0].collections
        assert {*points.get_array().compressed().tolist()} == values
    report(model, tmp_path / "page.html", shares=tmp_path / "s.parquet", by="share")
    assert "share_" in values_of(page_at(tmp_path / "page.html"))["scatter"]["columns"]


def test_quality_is_exclusivity_against_coherence_with_names_that_do_not_overlap(tmp_path: Path) -> None:
    """Words are counted once in the corpus beside the model; merged topics have no values."""
    from matplotlib.figure import Figure

    counts = planted(150, 60, 6, length=40, seed=5).counts
    model = TopicModel(
        fit(write_corpus(tmp_path / "corpus", counts), tmp_path / "model", 6, polish=False, workers=1)
    )
    with pytest.raises(InputError, match="run evaluate once with corpus=CORPUS"):
        plot_quality(model)
    own = Figure(figsize=(4, 3))
    axes = own.add_subplot()
    assert plot_quality(model, corpus=open_corpus(tmp_path / "corpus"), ax=axes) is own
    metrics = evaluate(model)["metrics"]
    expected = np.array(
        [metrics["coherence"]["mimno_2011"]["per_topic"], metrics["exclusivity"]["per_topic"]]
    )
    np.testing.assert_allclose(axes.collections[0].get_offsets(), expected.T)
    np.testing.assert_allclose(
        read_contents(model.path, 3).quality, expected, err_msg="also of shorter lists"
    )
    model.label(2, "harbor").merge([1, 4])
    figure = model.plot_quality([2, 1, 5], figsize=(5, 4), title="mine")
    [axes] = figure.axes
    assert (figure.get_size_inches().tolist(), axes.get_title()) == ([5, 4], "mine")
    np.testing.assert_allclose(axes.collections[0].get_offsets(), expected.T[[2, 5]])
    figure = model.plot_quality()
    [axes] = figure.axes
    names = [text.get_text() for text in axes.texts]
    assert {"2", "harbor"} <= set(names)
    assert "1" not in {name.split()[0] for name in names}
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in axes.texts]
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


def test_wrong_topics_and_models_are_refused(model: Path, shares: Path) -> None:
    with pytest.raises(InputError, match=r"topic 9; .* 0 to 3"):
        plot_topics(model, [9])
    with pytest.raises(InputError, match="topics is empty"):
        plot_over_time(model, shares, [])
    with pytest.raises(InputError, match="by is 3; give names"):
        plot_over_time(model, shares, by=3)  # type: ignore[arg-type]
    with pytest.raises(
        InputError, match="these topics are the largest of no document; give others, or number of"
    ):
        plot_documents(
            model, shares, number=1, topics=[document_map(model, shares, number=1)["topic"][0] ^ 1]
        )
    with pytest.raises(InputError, match="correlations"):
        plot_correlations(model)


@pytest.fixture(scope="module")
def edited(tmp_path_factory: pytest.TempPathFactory) -> TopicModel:
    """A model of 16 topics with correlations and edits, and the shares of 300 documents beside it."""
    folder, generator = tmp_path_factory.mktemp("pictures"), np.random.default_rng(1)
    own = generator.dirichlet(np.full(120, 0.05), size=16).T
    spelled = [f"{'abcdefghijkl'[word % 12] * (4 + word % 9)}{word}" for word in range(120)]
    stored = read_model(saved(folder / "plain", own, spelled))
    theta = generator.dirichlet(np.full(16, 0.1), size=300)
    arrays = {**stored.arrays, "topic_": np.arange(16), "topic_topic": theta.T @ theta / 300}
    write_model(folder / "model", Model(arrays, stored.settings, stored.metrics, stored.provenance))
    counts = np.stack([generator.multinomial(40, row) for row in theta @ own.T])
    transform(folder / "model", write_named(folder / "corpus", counts, spelled), folder / "shares.parquet")
    table, rows = pq.read_table(folder / "shares.parquet"), np.arange(300)
    columns = {
        "date": [f"{2000 + row % 10}-{1 + row % 12:02d}-07" for row in rows],
        "party": [("Labour", "Liberal Democrats", "Greens $ Co")[row % 7 % 3] for row in rows],
        "region": ["north" if row < 250 else "south" for row in rows],
    }
    for name, values in columns.items():
        table = table.add_column(1, name, pa.array(values))
    write_shares(folder / "model.shares.parquet", table, folder / "shares.parquet")
    model = (
        TopicModel(folder / "model")
        .merge([4, 1])
        .hide(0)
        .label(5, "Taxes & welfare, of $ and more than that")
    )
    model._corpus = str(folder / "corpus")
    return model


WIDE = {"figsize": (8.0, 5.0), "title": "A title of mine"}
#: Pictures by the method that draws them, with their default size.
PICTURES: dict[str, tuple[str, dict[str, Any], tuple[float, float]]] = {
    "map": ("plot_map", {}, (9.0, 6.5)),
    "map of mine": ("plot_map", {**WIDE, "topics": [5, 4, 9]}, (8.0, 5.0)),
    "topics": ("plot_topics", {}, (3.6 * 3, 2 * (0.7 + 1.9))),
    "topics of mine": ("plot_topics", {**WIDE, "topics": [5, 4]}, (8.0, 5.0)),
    "correlations": ("plot_correlations", {}, (4.5 + 2.16 + 2, 4.5 + 2.16)),
    "all correlations": ("plot_correlations", {**WIDE, "topics": [*range(2, 16)]}, (8.0, 5.0)),
    "months": ("plot_over_time", {"by": "date:month"}, (9.0, 4.5)),
    "parties": ("plot_over_time", {"by": "party", "topics": [5, 4]}, (9.0, 4.5)),
    "parties over time": ("plot_over_time", {"by": "party,date"}, (11.7, 6.0)),
    "one topic": ("plot_over_time", {**WIDE, "by": ["date", "party"], "topics": [5]}, (8.0, 5.0)),
    "cells": ("plot_over_time", {"by": "party,region", "topics": [5, 4]}, (8.3, 3.0)),
    "documents": ("plot_documents", {"number": 80}, (9.0, 6.0)),
    "parties on a map": ("plot_documents", {**WIDE, "number": 80, "color": "party", "topics": [5, 4, 9]}, (8.0, 5.0)),
}  # fmt: skip


@pytest.mark.parametrize("name", first_cases(PICTURES, 4))
def test_pictures_can_be_shown_on_a_slide(name: str, edited: TopicModel) -> None:
    """Their texts are legible, their legends hide no data, and they show the names of the topics."""
    method, options, size = PICTURES[name]
    figure = getattr(edited, method)(**options)
    require_readable(figure, size)
    if "title" in options:
        titles = [figure.get_suptitle(), *(axes.get_title() for axes in figure.axes)]
        assert any(text.startswith("A title of mine") for text in titles)
    assert all(beside_the_data(axes) for axes in figure.axes if axes.get_legend())
    assert figure.axes[0].get_legend_handles_labels()[1] == [] or any(
        axes.get_legend() for axes in figure.axes
    )
    drawn = options.get("topics", [5] if method in ("plot_map", "plot_correlations") else [])
    if 5 in drawn and "color" not in options and name != "all correlations":
        assert any("Taxes & welfare" in text.get_text() for text in figure.findobj(Text))
    assert not any(r"\\$" in text.get_text() for text in figure.findobj(Text))


def test_every_circle_has_a_name(edited: TopicModel) -> None:
    [axes] = edited.plot_map().axes
    names = [text for text in axes.texts if not text.get_text().isdigit()]
    assert len(names) == len(axes.patches) == 14
    centers = {tuple(patch.center) for patch in axes.patches}
    assert {text.get_position() for text in axes.texts} == centers


def test_pictures_are_drawn_on_given_axes(edited: TopicModel) -> None:
    figure = Figure(figsize=(12, 8))
    grid = figure.subplots(2, 3)
    assert edited.plot_map(ax=grid[0, 0], title="mine") is figure
    assert edited.plot_topics([5, 4], ax=grid[0, 1:]) is figure
    edited.plot_correlations(ax=grid[1, 0])
    edited.plot_over_time("date", ax=grid[1, 1])
    edited.plot_documents(ax=grid[1, 2], number=30)
    titles = [axes.get_title() for axes in grid.ravel()]
    assert titles[0] == "mine"
    assert titles[1].startswith("Topic 5: Taxes & welfare")
    assert titles[4] == "Topics over time"
    with pytest.raises(InputError, match="ax has 6 axes, and 1 are drawn"):
        edited.plot_map(ax=grid)
    with pytest.raises(InputError, match="figsize is that of the figure of ax"):
        edited.plot_map(ax=grid[0, 0], figsize=(3, 3))


def test_few_documents_are_marked_and_have_wide_intervals(edited: TopicModel) -> None:
    frame = edited.over_time("date,party", topic=5)
    axes, *_ = edited.plot_over_time("date,party", topics=[5]).axes
    marked = sum(
        len(points.get_offsets()) for points in axes.collections if points.get_offsets().any(axis=1).all()
    )
    assert "fewer than 30 documents" in axes.get_legend().get_title().get_text()
    assert marked >= (frame["documents"] < 30).sum()
    for line, party in zip(axes.lines, sorted(frame["party"].unique()), strict=True):
        assert line.get_label() == party.replace("$", r"\$")
        np.testing.assert_allclose(line.get_ydata(), 100 * frame.loc[frame["party"] == party, "share"])


def test_interactive_figures_have_the_same_numbers_and_names(edited: TopicModel) -> None:
    pytest.importorskip("plotly", reason="plotly is not installed")
    figure = edited.plot_over_time("date", topics=[5, 4], title="mine", interactive=True)
    frame = edited.over_time("date")
    drawn = {trace.name: trace for trace in figure.data if trace.name}
    for number, trace in zip((5, 4), drawn.values(), strict=True):
        assert trace.name.startswith(f"{number} ")
        np.testing.assert_allclose(trace.y, 100 * frame.loc[frame["topic"] == number, "share"])
    assert figure.layout.title.text == "mine"
    panels = edited.plot_over_time("party,date", interactive=True)
    assert {trace.name for trace in panels.data if trace.name} == {
        "Greens &#36; Co",
        "Labour",
        "Liberal Democrats",
    }
    assert len(panels.layout.annotations) == 6
    bars = edited.plot_over_time("party", interactive=True)
    assert {trace.type for trace in bars.data} == {"bar"}
    [circles] = edited.plot_map(interactive=True).data
    assert len(circles.x) == 14
    assert [text.split()[0] for text in circles.text] == [*map(str, sorted({*range(1, 16)} - {1}))]
    documents = edited.plot_documents(number=80, interactive=True).data
    assert sum(len(trace.x) for trace in documents) == 80
    assert {trace.name.split()[0] for trace in documents} - {"other"} <= {*map(str, range(2, 16))}
    first = documents[-1].hovertext[0].split("<br>")
    assert first[1].startswith(documents[-1].name)
    [scaled] = edited.plot_documents(number=80, color="known_tokens", interactive=True).data
    assert scaled.marker.showscale
    with pytest.raises(InputError, match="interactive figures are made by plotly"):
        edited.plot_map(ax=Figure().subplots(), interactive=True)


@pytest.mark.parametrize(("library", "options"), [("matplotlib", {}), ("plotly", {"interactive": True})])
def test_a_library_that_is_missing_is_named(
    library: str, options: dict[str, Any], edited: TopicModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    for draw in (edited.plot_map, edited.plot_over_time, edited.plot_documents):
        with pytest.raises(InputError, match=f"figures need {library}; install it, or .* the extra notebook"):
            draw(**options)


def test_plots_compute_the_shares_of_the_corpus_of_fit(tmp_path: Path) -> None:
    texts = [
        f"{a} {b} {a}" for a, b in zip(["north", "south", "east"] * 20, ["wind", "rain"] * 30, strict=True)
    ]
    table = pd.DataFrame({"text": texts, "year": [2000, 2001, 2002, 2003] * 15})
    model = sj.fit(
        table, tmp_path / "model", 2, min_df=1, max_df=1.0, min_tokens=0, duplicates="keep", polish=False
    )
    [axes] = model.plot_over_time().axes
    assert [len(line.get_ydata()) for line in axes.lines] == [4, 4]
    assert (tmp_path / "model.shares.parquet").exists()
    assert "Map of 60 documents" in model.plot_documents().axes[0].get_title()
    [axes] = plot_over_time(tmp_path / "model", by="year").axes
    assert len(axes.lines) == 2
