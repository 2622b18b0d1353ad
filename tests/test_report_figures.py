"""view, show and the figures: the page where it is wanted, and figures that say what the arrays say."""

from __future__ import annotations

import html
import webbrowser
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

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
)
from streaming_jsmf.documents import queries as documents
from streaming_jsmf.interface.topic_model import TopicModel
from streaming_jsmf.reporting.contents import read_contents
from streaming_jsmf.reporting.layout import neighbors_kept, times_chance
from streaming_jsmf.reporting.plots import COLORS
from streaming_jsmf.topics.store import Model, read_model, write_model
from tests.corpora import planted, write_corpus
from tests.outcomes import Command, refused
from tests.test_report_values import saved, shares_beside
from tests.test_transform import K, N

pytest.importorskip("matplotlib", reason="matplotlib is not installed")


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
    assert "2 harbor" in names
    assert "1" not in {name.split()[0] for name in names}
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in axes.texts]
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


def test_wrong_topics_and_models_are_refused(model: Path, shares: Path) -> None:
    with pytest.raises(InputError, match=r"topic 9; .* 0 to 3"):
        plot_topics(model, [9])
    with pytest.raises(InputError, match="topics is empty"):
        plot_over_time(model, shares, [])
    with pytest.raises(InputError, match="correlations"):
        plot_correlations(model)
