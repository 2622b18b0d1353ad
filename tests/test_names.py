"""One source of names: whatever edits a model has, all that shows a topic has its number, its name and its words."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import streaming_jsmf as sj
from tests.cases import first_cases
from tests.html_pages import page_at, values_of
from tests.outcomes import invoked

#: The subject of a word, a document or a name is its first three letters.
SUBJECTS = ("ant", "bee", "cat", "dog", "elk", "fox")
SIZES = (60, 45, 35, 30, 25, 20)
K = len(SUBJECTS)
A_SUBJECT = re.compile("|".join(SUBJECTS))
NAMED = "all about {}"

#: What a place shows: pairs of the number of a topic and a text about it.
Pairs = Iterator[tuple[Any, str]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of documents that each have one of the subjects, and a few words of the next one."""
    folder, generator = tmp_path_factory.mktemp("names"), np.random.default_rng(0)
    rows = []
    for number, size in enumerate(SIZES):
        own, other = (
            [subject + end for end in "abcdefghijkl"] for subject in (SUBJECTS[number], SUBJECTS[number - 1])
        )
        for row in range(size):
            words = [*generator.choice(own, 36), *generator.choice(other, 4)]
            rows.append((f"{SUBJECTS[number]}{row}", " ".join(words), 2000 + row % 4, "xy"[row % 3 % 2]))
    table = pd.DataFrame(rows, columns=["id", "text", "year", "group"])
    table.to_csv(folder / "table.csv", index=False)
    keep: dict[str, Any] = {"min_df": 1, "max_df": 1.0, "seed": 1}
    model = sj.fit(folder / "table.csv", folder / "model", K, id="id", **keep)
    sj.transform(model, model.corpus, folder / "shares.parquet")
    return folder


def hardest(edits: Any) -> Any:
    return edits.merge([4, 1]).hide(0).label(4, NAMED.format(4)).label(3, NAMED.format(3))


EDITS: dict[str, Callable[[sj.TopicModel], Any]] = {
    "reduce": lambda model: model.reduce(4),
    "all": lambda model: model.edit(hardest),
    "undone": lambda model: model.edit(hardest).unhide().unmerge().label(4, None).label(3, None),
}


class Known:
    """An edited model, and what is right: the subjects of each shown topic."""

    def __init__(self, folder: Path, model: sj.TopicModel) -> None:
        self.folder, self.model, self.shares = folder, model, folder / "shares.parquet"
        top = model.dataset["word"].values[model.dataset["prominent_words"].values[:, 0]]
        self.stored = {number: {word[:3]} for number, word in enumerate(top)}
        assert sorted(map(min, self.stored.values())) == [*SUBJECTS]
        self.shown = {group[0]: set().union(*map(self.stored.get, group)) for group in model.edits.groups}

    def require(self, pairs: Pairs, of: dict[int, Any] | None = None, *, some: bool = False) -> None:
        """Each text is about its topic, and every topic that is shown (or, for ``some``, at least one) has one."""
        right = self.shown if of is None else of
        numbers = set()
        for number, text in pairs:
            numbers.add(int(number))
            found = {*A_SUBJECT.findall(text)}
            labelled = re.search(r"all about (\d)", text)
            if labelled:
                assert int(labelled[1]) == int(number), text
            else:
                assert found, text
                assert found <= right[int(number)], (number, text)
        assert numbers <= {*right}
        assert numbers == {*right} or (some and numbers)


@pytest.fixture(params=first_cases(["all", "undone", "reduce"]))
def known(made: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Known:
    folder = Path(shutil.copytree(made, tmp_path / "names"))
    # Shares tell the model by its topics, not by its place.
    model = sj.TopicModel(folder / "model")
    EDITS[request.param](model)
    return Known(folder, model)


def printed(*arguments: object) -> str:
    done = invoked(*arguments)
    assert done.code == 0, done.err
    return done.out


def rows_of(text: str) -> list[dict[str, str]]:
    return [*csv.DictReader(io.StringIO(text))]


def frame_pairs(frame: pd.DataFrame, *columns: str) -> Pairs:
    for _, row in frame.iterrows():
        yield from ((row["topic"], str(row[column])) for column in columns if str(row[column]))


def listed(text: str) -> Pairs:
    """The topics of a list on a terminal: a line that begins with a number, and the lines below."""
    number = None
    for line in text.splitlines():
        found = re.match(r" *(\d+) +\d+\.\d%  ", line)
        number = found[1] if found else number
        if number is not None and A_SUBJECT.search(line):
            yield number, line


def test_lists_of_topics(known: Known) -> None:
    model = known.model
    known.require(frame_pairs(model.topics(), "label", "words"))
    known.require(listed(repr(model)))
    known.require(listed(printed("topics", model.path)))
    known.require(listed(printed("topics", model.path, "--sort", "topic", "--characteristic")))
    for row in rows_of(printed("topics", model.path, "--csv")):
        known.require([(row["topic"], row["label"] + row["words"] + row["anchor"])], some=True)
    rows = json.loads(printed("topics", model.path, "--json"))
    known.require((row["topic"], f"{row['prominent']} {row['characteristic']}") for row in rows)
    known.require((row["topic"], str(row["label"] or row["prominent"])) for row in rows)
    row = r"<tr><th>(\d+)</th>\s*<td>.*?</td>\s*<td>(.*?)</td>\s*<td[^>]*>(.*?)</td></tr>"
    html = re.findall(row, model._repr_html_(), re.S)
    known.require((number, text) for number, *texts in html for text in texts)
    assert len(model.hierarchy()) == len(known.shown) - 1
    saved = model.save(known.folder / "saved")
    known.require(frame_pairs(saved.topics(), "label", "words"))
    told = json.loads(printed("info", model.path, "--json"))["topic_edits"]
    assert {int(number): name for number, name in told["labels"].items()} == model.edits.labels
    assert [tuple(group) for group in told["merged"]] == [*model.edits.merged]


def test_documents_of_topics(known: Known) -> None:
    model, shares = known.model, known.shares
    for number in known.shown:
        known.require([(number, name) for name in model.documents(shares, number)["document_id"]], some=True)
        rows = rows_of(printed("documents", model.path, shares, "--topic", number, "--csv"))
        known.require([(number, row["document_id"]) for row in rows], some=True)
    for by in (None, "year", "group,year"):
        known.require(frame_pairs(model.documents(shares, by=by), "label"))
        given = ("documents", model.path, shares, *(("--by", by) if by else ()))
        for form in ("--csv", "--json"):
            text = printed(*given, form)
            rows = rows_of(text) if form == "--csv" else json.loads(text)
            known.require((row["topic"], row["label"]) for row in rows)
    means = model.documents(shares).set_index("topic")["share"]
    table = model.transform(known.folder / "table.csv")
    assert [*table.columns] == [*known.shown]
    np.testing.assert_allclose(table.mean(), means[[*table.columns]], rtol=1e-5)
    for name, row in table.iterrows():
        if any(name[:3] in subjects for subjects in known.shown.values()):
            known.require([(row.idxmax(), name)], some=True)
    sj.transform(model, model.corpus, known.folder / "s.csv")
    first, *rest = csv.reader((known.folder / "s.csv").read_text().splitlines())
    columns = [place for place, name in enumerate(first) if name.startswith("topic_")]
    known.require(
        (number, " ".join(words)) for _, number, *words in (first[place].split("_") for place in columns)
    )
    np.testing.assert_allclose(
        np.array([[float(row[place]) for place in columns] for row in rest]), table, rtol=1e-4, atol=1e-6
    )
    seen: list[tuple[str, str]] = []
    model.label_with(lambda words, excerpts: seen.append((" ".join(words), " ".join(excerpts))), shares)
    numbers = sorted(known.shown)
    known.require((number, words) for number, (words, _) in zip(numbers, seen, strict=True))


def test_topics_over_time(known: Known) -> None:
    model, shares = known.model, known.shares
    found = sj.over_time(model, shares, "year", corpus=model.corpus)
    known.require(frame_pairs(found, "label", "words"))
    means = sj.shares_by(model, shares, "year")
    both = found.merge(means, on=["year", "topic"])
    np.testing.assert_allclose(both["share_x"], both["share_y"], rtol=1e-6)
    assert (both["label_x"] == both["label_y"]).all()
    given = ("over-time", model.path, shares, "--by", "year", "--corpus", f"{model.path}.corpus")
    known.require((row["topic"], row["label"] + row["words"]) for row in rows_of(printed(*given, "--csv")))
    known.require(
        (row["topic"], row["label"] + row["words"]) for row in json.loads(printed(*given, "--json"))
    )
    text = printed(*given)
    known.require(re.findall(r"^ +(\d) .*?% +.*?([a-z].*)$", text, re.M), some=True)
    known.require(re.findall(r"^topic (\d): (.*)$", text, re.M), some=True)
    for number in known.shown:
        [line, *_] = printed(*given, "--topic", number).splitlines()
        known.require(re.findall(r"^topic (\d): (.*);", line), some=True)


def test_effects_of_covariates(known: Known) -> None:
    found = known.model.effects("year", known.shares)
    known.require(frame_pairs(found.frame, "label"))
    known.require(frame_pairs(found.predicted("year"), "label"))
    given = (
        "effects",
        known.model.path,
        known.shares,
        "--formula",
        "year",
        "--corpus",
        f"{known.model.path}.corpus",
    )
    for row in (*rows_of(printed(*given, "--csv")), *json.loads(printed(*given, "--json"))):
        known.require([(row["topic"], row["label"])], some=True)
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    [axes] = sj.plot_effects(found).axes
    known.require((label[0], label[2:]) for label in labels_of(axes.yaxis))


def test_maps_of_documents(known: Known) -> None:
    found = known.model.document_map(known.shares, number=60)
    visible = set().union(*known.shown.values())
    known.require(
        (
            (row["topic"], row["document_id"])
            for _, row in found.iterrows()
            if row["document_id"][:3] in visible
        ),
        some=True,
    )
    assert {*found["topic"]} <= {*known.shown}


def labels_of(axis: Any) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


def test_figures(known: Known) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    model = known.model
    [axes] = sj.plot_map(model).axes
    at = {text.get_position()[0]: text.get_text() for text in axes.texts if text.get_text().isdigit()}
    assert sorted(map(int, at.values())) == sorted(known.shown)
    names = [text for text in axes.texts if not text.get_text().isdigit()]
    known.require(((at[text.get_position()[0]], text.get_text()) for text in names), some=True)
    for axes in sj.plot_topics(model, [*known.shown]).axes:
        if title := re.match(r"Topic (\d)", axes.get_title()):
            known.require([(title[1], name) for name in labels_of(axes.yaxis)], some=True)
    axes = sj.plot_correlations(model).axes[0]
    names = [text.partition(" ") for text in labels_of(axes.yaxis)]
    known.require((number, text) for number, _, text in names)
    assert labels_of(axes.xaxis) == [number for number, *_ in names]
    [axes] = sj.plot_over_time(model, known.shares, by="year").axes
    lines = axes.get_legend_handles_labels()
    known.require((text.split(" ", 1) for text in lines[1]), some=True)
    means = sj.shares_by(model, known.shares, "year").set_index("topic")["share"]
    for line, text in zip(*lines, strict=True):
        np.testing.assert_allclose(line.get_ydata(), 100 * means[int(text.split()[0])], rtol=1e-6)
    for axes in model.plot_over_time("group,year", known.shares, topics=[*known.shown]).axes:
        known.require([axes.get_title().split(" ", 1)], some=True)
    if importlib.util.find_spec("plotly"):
        [circles] = model.plot_map(interactive=True).data
        known.require(text.split(" ", 1) for text in circles.hovertext)
        drawn = model.plot_over_time("year", known.shares, topics=[*known.shown], interactive=True).data
        known.require(trace.name.split(" ", 1) for trace in drawn if trace.name)
    axes = sj.plot_documents(model, known.shares, number=60).axes[0]
    points = {
        tuple(row): number
        for *row, number in sj.document_map(model, known.shares, number=60)[["x", "y", "topic"]].values
    }
    for drawn in axes.collections:
        number, _, name = drawn.get_label().partition(" ")
        known.require([(number, name)], some=True)
        for place in drawn.get_offsets():
            assert points[tuple(place)] == int(number)


def test_the_report(known: Known) -> None:
    model, page = known.model, known.folder / "report.html"
    sj.report(model, page, shares=known.shares, by="year", corpus=model.corpus)
    tree = page_at(page)
    [table] = tree.all("table", "topics")
    rows = [row for row in table.all("tr") if "data-topic" in row.attributes]
    known.require((row.attributes["data-topic"], row.text) for row in rows)
    values = values_of(tree)
    numbers = [topic["number"] for topic in values["topics"]]
    known.require((topic["number"], " ".join(topic["name"])) for topic in values["topics"])
    known.require((topic["number"], " ".join(topic["words"])) for topic in values["topics"])
    lists = zip(numbers, values["documents"]["of_topic"], strict=True)
    known.require((number, document[0]) for number, documents in lists for document in documents)
    visible = set().union(*known.shown.values())
    drawn = zip(values["scatter"]["topic"], values["scatter"]["rows"], strict=True)
    known.require(((numbers[topic], row[0]) for topic, row in drawn if row[0][:3] in visible), some=True)
    for line in tree.all("tr"):
        cells = [cell.text.strip() for cell in line.all("td")]
        if cells and re.fullmatch(r"\d [a-z].*", cells[0]):
            known.require([cells[0].split(" ", 1)], some=True)


def test_exports_have_the_stored_topics(known: Known) -> None:
    """Their numbers are those of the model without edits, and so are those of ``evaluate``."""
    model, stored = known.model, known.stored
    found = sj.evaluate(model, model.corpus)
    known.require(((row["topic"], f"{row['prominent']} {row['anchor']}") for row in found["topics"]), stored)
    text = printed("evaluate", model.path, "--words", 5)
    known.require(re.findall(r"^ +(\d) +\S+  (.*)$", text, re.M), stored)
    dictionary = dict(enumerate(model.dataset["word"].values[::-1]))
    gensim = sj.model_to_gensim(model, dictionary).get_topics()
    known.require(((number, dictionary[row.argmax()]) for number, row in enumerate(gensim)), stored)
    arguments = sj.model_to_pyldavis(model, model.corpus, known.shares)
    best = arguments["topic_term_dists"].argmax(axis=1)
    known.require(((number, arguments["vocab"][word]) for number, word in enumerate(best)), stored)
    ids = [subject for subject, size in zip(SUBJECTS, SIZES, strict=True) for _ in range(size)]
    of_documents = zip(arguments["doc_topic_dists"].argmax(axis=1), ids, strict=True)
    known.require(of_documents, stored)
    words = model.dataset["word"][model.dataset["prominent_words"]]
    known.require(((number, " ".join(row[:5])) for number, row in enumerate(words.values)), stored)
    known.require(frame_pairs(sj.LRJSMF.load(model.path).topics(), "label", "words"), stored)


def test_stems_are_shown_by_their_most_frequent_form(tmp_path: Path) -> None:
    pytest.importorskip("snowballstemmer")
    texts = [
        "voting parties elections",
        "galaxies orbiting planets",
        "voting elections parties",
        "planets galaxies",
    ]
    table = pd.DataFrame({"text": texts * 30, "year": [2000, 2001, 2002] * 40})
    keep: dict[str, Any] = {"min_df": 1, "max_df": 1.0, "duplicates": "keep", "seed": 1, "min_tokens": 0}
    model = sj.fit(table, tmp_path / "model", 2, stemmer="english", **keep)
    whole = {word for text in texts for word in text.split()}
    assert {word for row in model.topics()["words"] for word, _ in row} == whole
    found = model.over_time("year", words=3)
    assert {word for row in found["words"] for word in row.split(", ")} == whole
    assert {word for row in sj.evaluate(model, model.corpus)["topics"] for word in row["prominent"]} == whole
