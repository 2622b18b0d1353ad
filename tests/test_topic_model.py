"""A model in a notebook: it prints as its topics; names, merged and hidden topics stay beside its arrays."""

from __future__ import annotations

import copy
import gc
import hashlib
import json
import pickle
import re
import shutil
import threading
from pathlib import Path
from typing import Any

import dask.dataframe
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xarray as xr
from scipy.cluster.hierarchy import fcluster
from scipy.stats import entropy

import streaming_jsmf as sj
from streaming_jsmf.reporting.topics import read_topics
from streaming_jsmf.topics.edits import TopicEdits, edit_topics, read_edits
from streaming_jsmf.topics.store import read_model
from tests.cases import first_cases
from tests.corpora import planted, words
from tests.html_pages import parse, values_of
from tests.outcomes import Command, refused
from tests.stores import write_shares
from tests.test_in_memory import TEXTS

K, N = 6, 90
HOSTILE = "<script>alert(1)</script>"
COUNTS = planted(300, N, K, length=60, seed=7).counts
NAMES = [HOSTILE, "line\x1b[31m", *words(N)[2:]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of documents with a year, and their shares."""
    folder = tmp_path_factory.mktemp("topics")
    corpus = sj.corpus_from_matrix(COUNTS, NAMES, folder / "corpus")
    sj.fit(corpus, folder / "model", K, polish=False)
    sj.transform(folder / "model", corpus, folder / "shares.parquet")
    table = pq.read_table(folder / "shares.parquet")
    years = pa.array([1990 + row % 3 for row in range(len(table))])
    dated = table.add_column(1, "year", years)
    write_shares(folder / "years.parquet", dated, folder / "shares.parquet")
    return folder


@pytest.fixture
def model(made: Path, tmp_path: Path) -> sj.TopicModel:
    shutil.copytree(made / "model", tmp_path / "model")
    return sj.TopicModel(tmp_path / "model")


def files_of(path: Path) -> dict[str, str]:
    found = (file for file in path.rglob("*") if file.is_file() and "edits" not in file.parts)
    return {str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest() for file in found}


def test_groups_of_topics() -> None:
    edits = TopicEdits(8)
    assert edits.groups == tuple((topic,) for topic in range(8))
    edits = edits.merge([5, 2]).label(5, "gone").merge([1, 5]).merge([3, 4]).hide(0, 3)
    assert edits.groups == ((1, 5, 2), (6,), (7,))
    assert edits.members(3) == (3, 4)
    assert edits.labels == {}, "the name of a part goes with it"
    assert edits.unmerge(1).groups == ((1,), (2,), (5,), (6,), (7,))
    assert edits.unhide(3).groups == ((1, 5, 2), (3, 4), (6,), (7,))
    assert edits.unhide().unmerge(1).unmerge(3).groups == TopicEdits(8).groups
    assert edits.merge([6, 3]).hidden == (0,)
    assert TopicEdits(8).label(2, " a\n name ").labels == {2: "a name"}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda edits: edits.label(8, "x"), "there is no topic 8; the model has topics 0 to 7"),
        (lambda edits: edits.label(-1, "x"), "there is no topic -1"),
        (lambda edits: edits.label(1, ""), "1 to 200 characters"),
        (lambda edits: edits.label(1, 7), "'7'; .* None"),
        (lambda edits: edits.label(1, "a\ud800b"), r"the name of a topic is 'a\\ud800b', where .* not UTF-8"),
        (lambda edits: edits.merge([3, 3]), "two or more different topics"),
        (lambda edits: edits.merge("37"), "give a list of topics, such as"),
        (lambda edits: edits.merge([3, 4]).hide(4), "topic 4 was merged into topic 3"),
        (lambda edits: edits.merge([1, 2]).merge([2, 1]), "topic 2 was merged into topic 1"),
        (lambda edits: edits.hide(*range(8)), "no topic would be left"),
        (lambda edits: edits.hide(1, *range(2, 8)).merge([1, 0]), "no topic would be left"),
        (lambda edits: edits.merge(range(7)).hide(7).hide(0), "no topic would be left"),
    ],
)
def test_wrong_edits_are_refused(change: Any, line: str) -> None:
    with pytest.raises(sj.InputError, match=line):
        change(TopicEdits(8))


@pytest.mark.parametrize(
    "arguments",
    [
        ("--merge", "0,1"),
        ("--merge", "3,4", "--merge", "0,3", "--label", "0=both"),
        ("--unmerge", "2", "--merge", "1,0", "--hide", "1"),
        ("--label", "5=", "--label", "4= a  name "),
    ],
)
def test_edits_that_were_made_already_change_nothing(
    model: sj.TopicModel, invoke: Command, arguments: tuple[str, ...]
) -> None:
    first = invoke("topics", model.path, *arguments)
    edits, place = model.edits, Path(model.path) / "edits" / "zarr.json"
    stored = place.stat() if place.exists() else None
    second = invoke("topics", model.path, *arguments)
    assert (first.code, second.code, second.err) == (0, 0, first.err)
    assert second.out == first.out
    assert model.edits == edits
    if stored is not None:
        assert (place.stat().st_ino, place.stat().st_mtime_ns) == (stored.st_ino, stored.st_mtime_ns)


def test_edits_that_show_no_topic_are_refused(model: sj.TopicModel, invoke: Command) -> None:
    path, rest = model.path, [part for topic in range(1, K) for part in ("--hide", topic)]
    assert invoke("topics", path, *rest[2:]).code == 0
    assert invoke("topics", path, "--hide", 1).code == 0
    before = model.edits
    refused(invoke("topics", path, "--merge", "1,0"), 2, "no topic would be left to show")
    refused(invoke("topics", path, *rest, "--hide", 0), 2, "no topic would be left to show")
    assert model.edits == before
    assert invoke("topics", path, "--merge", "1,0", "--unhide", 1).code == 0
    assert model.edits.groups == ((1, 0),)


def test_a_merge_that_hides_a_topic_says_so(
    model: sj.TopicModel, invoke: Command, caplog: pytest.LogCaptureFixture
) -> None:
    line = "merged into topic 3, which is hidden: 1, 2; unhide 3 to show them"
    model.hide(3, 4).merge([3, 1, 2])
    assert caplog.messages.count(line) == 1
    model.label(3, "gone").merge([0, 4])
    model.unhide().unmerge().merge([3, 1]).hide(3)
    assert caplog.messages.count(line) == len([one for one in caplog.messages if "is hidden:" in one]) == 1
    model.unhide().unmerge().hide(3)
    assert "warn" not in invoke("topics", model.path, "--merge", "3,1", "--unhide", 3).err
    model.unmerge().hide(3)
    assert (
        "merged into topic 3, which is hidden: 1; unhide 3"
        in invoke("topics", model.path, "--merge", "3,1").err
    )


def test_merged_topics_are_the_mean_of_their_parts_by_share(model: sj.TopicModel) -> None:
    before, files = model.topics(N), files_of(Path(model.path))
    share = model.dataset["topic_probability"].values
    given = model.dataset["word_topic"].values
    model.merge([4, 1]).merge([4, 0]).hide(2)
    parts = [4, 1, 0]
    after = model.topics(N).set_index("topic")
    assert sorted(after.index) == [3, 4, 5]
    assert after["share"][4] == pytest.approx(share[parts].sum(), rel=1e-15)
    expected = given[:, parts] @ share[parts] / share[parts].sum()
    found = dict(after["words"][4])
    np.testing.assert_allclose([found[word] for word in NAMES], expected, rtol=1e-12, atol=1e-300)
    assert [p for _, p in after["words"][4]] == sorted(found.values(), reverse=True)
    others = before.set_index("topic")
    for topic in (3, 5):
        pd.testing.assert_series_equal(after.loc[topic], others.loc[topic])
    assert model.n_topics == K
    assert files_of(Path(model.path)) == files, "nothing but the edits was written"
    assert read_model(model.path).arrays["topic_probability"].size == K
    model.unmerge(4).unhide()
    pd.testing.assert_frame_equal(model.topics(N), before)


def test_a_model_prints_as_its_topics(model: sj.TopicModel) -> None:
    model.label(3, f"{HOSTILE} & more")
    text = repr(model)
    assert text.startswith(f"TopicModel of {K} topics (lr-jsmf): ")
    assert max(map(len, text.splitlines()[1:])) <= 80
    assert "\x1b" not in text
    assert "\\u001b" in text
    page = model._repr_html_()
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in page
    assert page.count("<tr>") == K + 1
    assert f"{K} topics, {K - 1} shown" in repr(model.hide(0))
    assert f"{K} topics, {K - 1} shown" in model._repr_html_()


def test_the_command_line_reads_and_writes_the_same(
    model: sj.TopicModel, made: Path, invoke: Command
) -> None:
    path = model.path
    assert invoke("topics", path, "--label", "3=elections = votes", "--merge", "4,1", "--hide", 0).code == 0
    assert model.edits == TopicEdits(K, {3: "elections = votes"}, ((4, 1),), (0,))
    rows = {row["topic"]: row for row in json.loads(invoke("topics", path, "--json").out)}
    assert sorted(rows) == [2, 3, 4, 5]
    assert rows[3]["label"] == ["elections = votes"]
    assert (rows[4]["label"], len(rows[4]["characteristic"]), rows[4].get("anchor")) == ([], 10, None)
    assert "elections = votes" in invoke("topics", path).out
    listed = invoke("documents", path, made / "shares.parquet", "--topic", 3)
    assert (listed.code, listed.err) == (0, "topic 3: elections = votes\n")
    page = invoke("info", path).out
    for line in ("named topics      3 (elections = votes)", "merged topics     4 + 1", "hidden topics     0"):
        assert f"  {line}\n" in page
    assert json.loads(invoke("info", path, "--json").out)["topic_edits"]["merged"] == [[4, 1]]
    assert invoke("topics", path, "--label", "3=", "--unmerge", 4, "--unhide", 0).code == 0
    assert model.edits == TopicEdits(K)
    for arguments, line in (
        (("--label", "3"), "--label is 3; give a topic and its name"),
        (("--label", "x=y"), "--label is 'x=y'; give numbers of topics, such as 3=elections"),
        (("--merge", "1;2"), "--merge is '1;2'; give numbers of topics"),
        (("--label", "1=kept", "--hide", "9"), "there is no topic 9"),
    ):
        refused(invoke("topics", path, *arguments), 2, line)
    assert model.edits == TopicEdits(K), "all or nothing"


def test_documents_and_reports_show_edits(model: sj.TopicModel, made: Path, tmp_path: Path) -> None:
    shares, years = made / "shares.parquet", made / "years.parquet"
    stored = model.transform(model_corpus(made))
    model.label(3, "elections").merge([4, 1]).hide(0)
    table = model.transform(model_corpus(made))
    assert table.columns.tolist() == [2, 3, 4, 5]
    np.testing.assert_allclose(table[4], stored[4] + stored[1], atol=1e-6)
    np.testing.assert_allclose(table[3], stored[3], atol=0)
    largest = model.documents(shares, 4, number=5)
    np.testing.assert_allclose(largest["share"], np.sort(stored[4] + stored[1])[::-1][:5], atol=1e-6)
    means = model.documents(shares)
    assert means["topic"].tolist() == [2, 3, 4, 5]
    assert means["label"][1] == "elections"
    assert means.set_index("topic")["label"].to_dict() == model.topics().set_index("topic")["label"].to_dict()
    np.testing.assert_allclose(means["share"], table.mean(), atol=1e-6)
    by_year = sj.shares_by(model, years, "year", 4)
    np.testing.assert_allclose(by_year["share"], table[4].groupby(np.arange(300) % 3).mean(), atol=1e-6)
    sj.report(model, tmp_path / "page.html", shares=years)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    values = values_of(parse(page))
    assert [topic["number"] for topic in values["topics"]] == [2, 3, 4, 5]
    assert values["topics"][1]["name"] == ["elections"]
    assert len(values["documents"]["of_topic"]) == 4
    assert page.count('<tr id="topic-') == 4
    figure = pytest.importorskip("matplotlib.figure")
    assert isinstance(sj.plot_topics(model, [4]), figure.Figure)
    with pytest.raises(sj.InputError, match=r"there is no topic 0; .* 2 to 5$"):
        sj.plot_topics(model, [0])
    with pytest.raises(
        sj.InputError, match=r"there is no topic 3; .* 2 to 5, without those merged or hidden"
    ):
        sj.plot_topics(model.hide(3), [3])


def test_documents_of_anything(tmp_path: Path, invoke: Command) -> None:
    table = pd.DataFrame({"body": TEXTS, "year": 1990}, index=[f"d{row}" for row in range(len(TEXTS))])
    model = sj.fit(table, tmp_path / "model", 3, polish=False).merge([2, 0])
    shares = model.transform(table)
    order = shares[2].sort_values(ascending=False, kind="stable").index[:5]
    found = model.documents(topic=2, number=5, columns=["year"])
    assert [*found.columns] == ["document_id", "share", "excerpt", "year"]
    assert found["document_id"].tolist() == [*order]
    assert found["excerpt"][0] == table["body"][order[0]]
    new = found.drop(columns="year")
    pd.testing.assert_frame_equal(model.documents(topic=2, number=5), new)
    pd.testing.assert_frame_equal(model.documents(table, topic=2, number=5, text="body"), new)
    pd.testing.assert_frame_equal(model.documents(shares, 2, number=5), new.drop(columns="excerpt"))
    np.testing.assert_allclose(model.documents(shares)["share"], shares.mean(), rtol=1e-12)
    passages = model.transform(table[:2].assign(body="nuclear weapons of states"), split=2)
    assert [*passages.index] == ["d0/1", "d0/2", "d1/1", "d1/2"]
    assert model.documents(TEXTS[:4], topic=2, number=1)["excerpt"][0] in TEXTS[:4]
    table.to_csv(tmp_path / "new.csv", index_label="id")
    asked = (model.path, tmp_path / "new.csv", "--topic", 2, "--number", 5, "--text", "body", "--json")
    assert json.loads(invoke("documents", *asked).out) == new.to_dict("records")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("model", "model.corpus", "model.moments", "model.shares.parquet", "new.csv")
    ]
    with pytest.raises(sj.InputError, match="has shares of topics 1, 2, and the model shows 0, 1, 2"):
        model.unmerge(2).documents(shares, topic=2)
    with pytest.raises(sj.InputError, match="another model, or its topics were merged otherwise"):
        model.merge([1, 0]).documents(shares, topic=2)
    shown = model.unmerge().hide(1).transform(table)
    with pytest.raises(sj.InputError, match="topic 1 is hidden, and the table lacks it"):
        model.documents(shown, topic=1)
    shutil.rmtree(tmp_path / "model.corpus")
    with pytest.raises(sj.InputError, match="the corpus of this model is unknown"):
        sj.TopicModel(model.path).documents(topic=2)


def test_a_table_of_shares_belongs_to_its_model(model: sj.TopicModel, made: Path, tmp_path: Path) -> None:
    other = sj.fit(made / "corpus", tmp_path / "other", K)
    table = model.transform(made / "corpus")
    assert len(model.documents(table.tail(20), topic=2, number=3)) == 3
    with pytest.raises(sj.InputError, match="the table is of another model"):
        other.documents(table, topic=2)


def test_a_short_list_of_words_does_not_change_a_name(model: sj.TopicModel) -> None:
    names = dict(model.merge([0, 1]).topics()[["topic", "label"]].to_numpy())
    assert {topic.number: topic.name for topic in read_topics(model, 1)} == names


def test_models_outlive_a_change_of_the_directory(
    model: sj.TopicModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    opened, dataset = sj.TopicModel("model"), sj.open_model("model")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir("below")
    assert opened.label(0, "kept").edits == model.edits
    assert dataset["word_topic"].sum() == pytest.approx(K)
    assert sj.TopicModel(dataset).edits.labels == {0: "kept"}
    monkeypatch.chdir(made)
    moments = sj.open_moments("model.moments")
    monkeypatch.chdir(tmp_path)
    assert sj.infer(moments, "found", 2).arrays["word_topic"].shape == (N, 2)


def test_infer_returns_what_fit_returns(made: Path, tmp_path: Path) -> None:
    found = sj.infer(made / "model.moments", tmp_path / "model", 4, partitions=None)
    assert isinstance(found, sj.TopicModel)
    assert found.corpus == model_corpus(made), "of the moments"
    assert found.label(1, "name").topics().query("topic == 1")["label"].tolist() == ["name"]
    assert len(found.documents(topic=1, number=2)) == 2
    assert found.provenance["moments"] == str(made / "model.moments")
    np.testing.assert_array_equal(found.arrays["word_topic"], found.dataset["word_topic"])
    assert sj.infer(made / "model.moments", tmp_path / "model", 4).edits.labels == {1: "name"}


def model_corpus(made: Path) -> Any:
    return sj.open_corpus(made / "corpus")


def test_topics_are_named_by_a_function(
    model: sj.TopicModel, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.merge([0, 1]).hide(2)
    seen: dict[str, list[str]] = {}

    def name(listed: list[str], excerpts: list[str]) -> str | None:
        seen[listed[0]] = excerpts
        return None if listed[0] == top[3] else f"about {listed[0]}"

    tops = model.topics(1)
    top = {topic: pairs[0][0] for topic, pairs in zip(tops["topic"], tops["words"], strict=True)}
    assert model.label_with(name, words=4) is model
    assert model.edits.labels == {topic: f"about {' '.join(top[topic].split())}" for topic in (0, 4, 5)}
    assert seen == {word: [] for word in top.values()}
    monkeypatch.setattr(
        sj.TopicModel, "documents", lambda *_: pd.DataFrame({"excerpt": ["a text", None]}), raising=True
    )
    model.label_with(name, made / "shares.parquet")
    assert seen == {word: ["a text"] for word in top.values()}
    with pytest.raises(sj.InputError, match="text of 1 to 200"):
        model.label_with(lambda *_: 3)  # type: ignore[arg-type,return-value]
    assert len(model.edits.labels) == 3


def test_edits_of_another_model_are_ignored_and_damaged_ones_reported(model: sj.TopicModel) -> None:
    model.label(1, "name")
    stored = read_model(model.path)
    other = stored.__class__(stored.arrays, {}, {}, {**stored.provenance, "fingerprint": "other"})
    assert read_edits(model.path, other) == TopicEdits(K)
    place = Path(model.path) / "edits" / "zarr.json"
    place.write_text(place.read_text().replace("name", "nome"))
    with pytest.raises(sj.StoreError, match=r"edits/zarr.json: .* damaged.*; delete .*edits"):
        model.topics()
    place.unlink()
    assert model.edits == TopicEdits(K), "the advice helps"


def test_a_failed_change_leaves_the_edits(model: sj.TopicModel, monkeypatch: pytest.MonkeyPatch) -> None:
    model.label(1, "name")

    def fail(*_: Any) -> None:
        raise OSError("no space")

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.replace", fail)
        with pytest.raises(OSError, match="no space"):
            model.label(1, "other")
    assert model.edits.labels == {1: "name"}
    with pytest.raises(sj.InputError, match="no topic would be left"):
        edit_topics(model.path, read_model(model.path), lambda edits: edits.hide(*range(K)))
    assert model.edits.labels == {1: "name"}
    assert len([*(Path(model.path) / "edits").iterdir()]) == 1


def test_names_that_are_not_unicode_leave_nothing_behind(
    model: sj.TopicModel, made: Path, tmp_path: Path, invoke: Command
) -> None:
    name = "a\ud800b"
    moments = made / "model.moments"
    table = pd.DataFrame([[text, 1] for text in TEXTS], columns=pd.Index(["text", name], dtype=object))
    calls: list[Any] = [
        lambda: model.label(0, name),
        lambda: model.label_with(lambda *_: name),
        lambda: sj.shares_by(model, made / "years.parquet", name),
        lambda: sj.over_time(model, made / "years.parquet", name),
        lambda: sj.report(model, tmp_path / "page.html", shares=made / "years.parquet", by=name),
        lambda: sj.report(model, tmp_path / f"{name}.html"),
        lambda: sj.infer(moments, tmp_path / "other", 3, anchor_words=[[name]]),
        lambda: sj.scan(made / "corpus", tmp_path / "other", partition_by=name),
        lambda: sj.ingest(TEXTS, tmp_path / "other", stop_words=name),
        lambda: sj.ingest(TEXTS, tmp_path / "other", vocabulary=[name, "x"]),
        lambda: sj.ingest(table, tmp_path / "other", metadata=[name]),
        lambda: sj.corpus_from_matrix(COUNTS[:, :2], [name, "x"], tmp_path / "other"),
        lambda: sj.LRJSMF(n_topics=2, feature_names=[name, "x"]).fit(COUNTS[:, :2]),
        lambda: model.save(tmp_path / name),
    ]
    before = sorted(tmp_path.rglob("*"))
    for call in calls:
        with pytest.raises(sj.InputError) as raised:
            call()
        assert "\n" not in str(raised.value)
        assert "ud800" in str(raised.value)
    assert sorted(tmp_path.rglob("*")) == before
    # An argument with a byte that is not UTF-8.
    refused(invoke("topics", model.path, "--label", "0=\udcff"), 2, "stands for a byte that is not UTF-8")


def test_a_saved_model_keeps_its_edits(model: sj.TopicModel, made: Path, tmp_path: Path) -> None:
    saved = model.label(1, "name").merge([2, 3]).save(tmp_path / "saved")
    assert saved.edits == model.edits
    pd.testing.assert_frame_equal(saved.topics(), model.topics())
    xr.testing.assert_identical(saved.dataset.load().drop_attrs(), model.dataset.load().drop_attrs())
    assert model.save(tmp_path / "saved").edits == model.edits, "the same model is there"
    other = sj.infer(made / "model.moments", tmp_path / "other", K - 1)
    assert other.arrays["anchors"].size == K - 1
    with pytest.raises(sj.InputError, match=r"exists already.*n_topics: stored 5, asked 6"):
        model.save(tmp_path / "other")
    assert model.save(tmp_path / "other", overwrite=True).edits == model.edits


def test_texts_in_memory_are_fitted_as_a_file_is(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": TEXTS}), tmp_path / "texts.parquet")
    first = sj.fit(tmp_path / "texts.parquet", tmp_path / "model", 3)
    assert first.corpus is not None
    assert first.corpus.root == str(tmp_path / "model.corpus")
    for source in (TEXTS, pd.DataFrame({"text": TEXTS}), (text for text in TEXTS)):
        arrays = sj.fit(source, n_topics=3).dataset  # the model is gone
        for name, values in first.dataset.variables.items():
            np.testing.assert_array_equal(arrays[name].values, values, err_msg=str(name))
    model = sj.fit(TEXTS, n_topics=3)
    home = Path(model.path).parent
    assert model.corpus is not None
    assert model.corpus.n_documents == len(TEXTS)
    del model
    gc.collect()
    assert not home.exists(), "it went with the model"


def test_a_temporary_model_is_pickled_as_a_whole(model: sj.TopicModel) -> None:
    assert pickle.loads(pickle.dumps(model)).path == model.path, "a model at a path is its path"
    found = sj.fit(TEXTS, n_topics=3, progress=False).label(1, "name")
    topics, data = found.topics(), pickle.dumps(found)
    copied, again = copy.deepcopy(found), sj.TopicModel(found)
    del found
    gc.collect()
    for other in (copied, pickle.loads(data), again, pickle.loads(pickle.dumps(again))):
        assert other.topics().equals(topics)
        assert len(other.transform(TEXTS[:2])) == 2
    place = copied.path
    del copied, other
    gc.collect()
    assert not place.exists()


def test_a_fit_of_the_same_texts_resumes_and_of_others_is_refused(tmp_path: Path) -> None:
    made = sj.fit(TEXTS, tmp_path / "m", 3, polish=False)
    written = (Path(made.path) / "zarr.json").stat().st_mtime_ns
    shutil.rmtree(made.path)
    manifest = (tmp_path / "m.corpus" / "manifest.json").stat().st_mtime_ns
    again = sj.fit([*TEXTS], tmp_path / "m", 3, polish=False)
    assert (tmp_path / "m.corpus" / "manifest.json").stat().st_mtime_ns == manifest
    assert (Path(again.path) / "zarr.json").stat().st_mtime_ns != written
    shutil.rmtree(made.path)
    other = [TEXTS[0][::-1], *TEXTS[1:]]  # as long as before
    with pytest.raises(sj.InputError, match="made of other input"):
        sj.fit(other, tmp_path / "m", 3, polish=False)


def test_similar_topics_are_merged(model: sj.TopicModel) -> None:
    stored = read_model(model.path)
    model.hide(0)
    before = model.edits
    linkage = model.hierarchy()
    roots = np.sqrt(np.maximum(stored.arrays["word_topic"][:, 1:], 0))
    expected = np.sqrt(np.square(roots[:, :, None] - roots[:, None]).sum(axis=0) / 2)
    first, second, height, size = linkage[0]
    nearest = expected[np.triu_indices(K - 1, 1)].min()
    assert (height, size) == (pytest.approx(nearest, abs=1e-6), 2)
    assert expected[int(first), int(second)] == pytest.approx(nearest, abs=1e-6)
    assert model.merge_similar(height - 1e-6).edits == before
    assert model.merge_similar(height + 1e-6).edits.merged == (
        tuple(sorted((int(first) + 1, int(second) + 1))),
    )
    assert len(model.topics()) == len(model.hierarchy()) + 1 == K - 2
    assert model.unmerge().unhide().edits == TopicEdits(K)


def test_topics_are_reduced_to_a_number(model: sj.TopicModel, invoke: Command) -> None:
    shown = model.hide(0).topics()["topic"].sort_values().to_numpy()
    tree = model.hierarchy()
    for number in (4, 3, 2, 1, 5):
        clusters = fcluster(tree, number, criterion="maxclust")
        expected = sorted(tuple(shown[clusters == cluster].tolist()) for cluster in set(clusters))
        assert len(expected) == number
        model.unmerge()
        assert invoke("topics", model.path, "--reduce", number).code == 0
        assert sorted(model.edits.groups) == expected
    said = invoke("topics", model.path, "--reduce", 2)
    assert said.err.count("merged") == sum(len(group) > 1 for group in model.edits.groups)
    assert f"distance {tree[2, 2]:.2f}" in said.err
    edits = model.edits
    assert model.reduce(2).reduce(3).edits == edits, "no more than two are left"
    with pytest.raises(sj.InputError, match=r"reduce is 1.5; give a whole number"):
        model.reduce(1.5)  # type: ignore[arg-type]
    assert invoke("topics", model.path, "--unmerge", edits.merged[0][0], "--reduce", 2).code == 0
    assert len(model.topics()) == 2
    for option, value in (("--reduce", 0), ("--merge-similar", 1.5)):
        refused(invoke("topics", model.path, option, value), 2, f"{option} is {value}")
    with pytest.raises(sj.InputError, match="distance from 0 to 1"):
        model.merge_similar(1.5)
    assert invoke("topics", model.path, "--merge-similar", 1).code == 0
    assert len(model.topics()) == 1


def test_words_of_most_topics_are_candidates_for_stop_words(tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    own = [[f"{letter}word{number}x" for number in range(30)] for letter in "abcd"]
    texts = [
        " ".join([*generator.choice(own[row % 4], 20), "thing", *["again"] * (row % 3 == 0)])
        for row in range(400)
    ]
    model = sj.fit(texts, tmp_path / "model", 4, max_df=1.0, polish=False)
    found = model.stop_word_candidates()
    assert found["word"].tolist() == ["thing", "again"]
    np.testing.assert_allclose(found["frequency"], [1, 134 / 400])
    p = model.dataset["word_topic"].values * model.dataset["topic_probability"].values
    for word, row in found.set_index("word").iterrows():
        given = p[model.dataset["word"].values.tolist().index(word)]
        assert row["entropy"] == pytest.approx(entropy(given))
        assert row["topics"] == pytest.approx(np.exp(entropy(given)))
    assert len(model.stop_word_candidates(1)) == 1
    words = ["auto", set(found["word"])]
    model = sj.fit(texts, tmp_path / "model", 4, max_df=1.0, polish=False, stop_words=words, overwrite=True)
    assert model.stop_word_candidates().empty


def test_a_cell_of_a_notebook_can_be_run_again(tmp_path: Path) -> None:
    def fit(topics: int, **options: Any) -> sj.TopicModel:
        return sj.fit(TEXTS, tmp_path / "m", topics, polish=False, **options)

    with pytest.raises(sj.InputError, match="overwrite is 'always'"):
        fit(3, overwrite="always")
    fit(3).label(0, "name")
    for overwrite in (False, True, "auto"):
        assert fit(3, overwrite=overwrite).edits.labels == {0: "name"}, "the same model is kept"
    with pytest.raises(sj.InputError):
        fit(3, overwrite="auto", tolerance=1e-3)
    with pytest.raises(sj.InputError):
        fit(4, overwrite="auto")
    assert fit(3, overwrite="auto").edits.labels == {0: "name"}, "a refusal changes nothing"
    assert fit(4, overwrite=True, seed=5).n_topics == 4, "the scan is of three topics and seed 0"
    assert fit(5, overwrite="auto", min_df=7).n_topics == 5, "the corpus is another one"
    with pytest.raises(sj.InputError, match="other settings"):
        sj.fit(
            tmp_path / "m.corpus",
            tmp_path / "other",
            6,
            polish=False,
            moments=tmp_path / "m.moments",
            overwrite=True,
        )
    sj.infer(tmp_path / "m.moments", tmp_path / "own", 4)
    (tmp_path / "m.corpus").rename(tmp_path / "own.corpus")
    with pytest.raises(sj.InputError, match="own: not made by fit"):
        sj.fit(TEXTS, tmp_path / "own", 4, overwrite="auto")


@pytest.mark.parametrize("place", first_cases(["m", "linked/m", "memory://auto/m", "~/here/m", "./m/"], 2))
def test_what_fit_made_is_replaced_however_its_path_is_spelled(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "linked").symlink_to(tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    first = place if "://" in place else "m"
    sj.fit(TEXTS, first, 3, polish=False)
    assert sj.fit(TEXTS, place, 4, polish=False, overwrite="auto").n_topics == 4
    if place == "m":
        (tmp_path / "else").mkdir()
        monkeypatch.chdir(tmp_path / "else")
        assert sj.fit(TEXTS, "../here/m", 5, polish=False, overwrite="auto").n_topics == 5
        shutil.copytree(tmp_path / "here" / "m", "m")
        with pytest.raises(sj.InputError, match="m: not made by fit with this path"):
            sj.fit(TEXTS, "m", 3, polish=False, overwrite="auto")


def test_bars_are_shown_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for progress in (True, False, None):
        sj.fit(TEXTS, tmp_path / str(progress), 2, polish=False, progress=progress)
        assert ("reading the source" in capsys.readouterr().err) == (progress is True)


@pytest.mark.parametrize("path", [None, "m"])
def test_bars_end_with_the_call(path: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = sj.fit(TEXTS, path, 2, progress=True)
    assert [each.name for each in threading.enumerate() if "_tick" in each.name] == []
    assert model.n_topics == 2, "which is still there"


@pytest.mark.slow
def test_no_call_leaves_threads_or_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    monkeypatch.chdir(tmp_path)
    counts = sj.corpus_to_matrix(sj.ingest(TEXTS, "corpus"))[0]
    sj.choose_k("corpus", [2, 3], "ks", replicas=1)
    calls: dict[str, Any] = {
        "fit": lambda: sj.fit(TEXTS, "m", 3, progress=True),
        "without a path": lambda: sj.fit(TEXTS, None, 3, progress=True),
        "ingest": lambda: sj.ingest(TEXTS, "other", progress=True),
        "choose_k": lambda: sj.choose_k("corpus", [2, 3], "ks", replicas=1),
        "transform": lambda: sj.transform("m", TEXTS, "shares.parquet"),
        "evaluate": lambda: sj.evaluate("m", "m.corpus"),
        "documents": lambda: sj.TopicModel("m").documents(TEXTS, topic=0),
        "update": lambda: sj.update("m", [*TEXTS, "another text"]),
        "estimator": lambda: sj.LRJSMF(3).fit(counts).transform(counts),
        "batches": lambda: sj.LRJSMF(3).partial_fit(counts).partial_fit(counts),
    }
    own = {"MainThread", "blas-control_0"}
    others = {thread.name for thread in threading.enumerate()}
    for name, call in calls.items():
        call()
        gc.collect()
        assert {thread.name for thread in threading.enumerate()} - others - own == set(), name
        assert [*(tmp_path / "temporary").iterdir()] == [], name


def test_a_table_is_fitted_in_one_flat_call(tmp_path: Path) -> None:
    table = pd.DataFrame(
        {"body": TEXTS, "url": [f"u{n}" for n in range(len(TEXTS))], "year": 1990, "other": 1}
    )
    made = sj.fit(
        table, tmp_path / "m", topics=3, random_state=4, text="body", id="url", metadata=["year"], min_df=6
    )
    assert (made.n_topics, made.dataset.attrs["provenance"]["scan_settings"]["seed"]) == (3, 4)
    assert made.corpus is not None
    sj.transform(made, made.corpus, tmp_path / "shares.parquet")
    shares = pq.read_table(tmp_path / "shares.parquet")
    assert shares.column_names[:2] == ["document_id", "year"]
    assert shares.column("document_id")[0].as_py() == "u0"
    other = pd.DataFrame({"body": [TEXTS[0], None, TEXTS[1]], "url": list("abc")}, index=[7, 8, 9])
    found = made.transform(other, text="body")
    assert [*found.index] == [7, 8, 9], "a missing text keeps its row"
    parts = made.transform(dask.dataframe.from_pandas(other, npartitions=2), text="body")
    assert parts.equals(found)
    named = made.transform(other, text="body", id="url")
    assert [*named.index] == ["a", "b", "c"]
    np.testing.assert_array_equal(found, named)
    assert len(made.transform(other, text="body", split=2)) > len(other)
    unknown, mixed = made.transform(["xyzzy", ""]), made.transform(["xyzzy", TEXTS[0]])
    np.testing.assert_array_equal(
        unknown, mixed.iloc[[0, 0]], "documents without known words have the prior's shares"
    )
    with pytest.raises(TypeError, match="'n_topics' and 'n_components', which are the same"):
        sj.fit(table, n_topics=3, n_components=4)


def test_what_the_command_line_says_python_warns_of(
    tmp_path: Path, invoke: Command, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only warnings, which Python shows unless logging is set up."""
    monkeypatch.chdir(tmp_path)
    dates = [f"2020-01-{row % 28 + 1:02d}" for row in range(len(TEXTS))]
    table = pd.DataFrame({"text": TEXTS, "date": dates, "n": 1})
    more = pd.DataFrame({"text": [TEXTS[0], "", None], "date": "soon", "n": 1})
    pd.concat([table, more]).to_csv("t.csv", index=False)
    with caplog.at_level("WARNING"):
        model = sj.fit("t.csv", "m", 3)
        found = model.over_time("date:year")
    shares = sj.transform(model, "t.csv", "s.parquet")
    sj.over_time(model, shares, "date:year")
    line = "over-time: documents without date:year, which are left out: 3 of 153"
    lost = (
        "3 of 153 documents are dropped: 2 empty documents, 1 with the words of another (duplicates='keep')"
    )
    dated = "date: strings, because only 150 of 153 values are dates, not 'soon' (3)"
    assert caplog.messages[:2] == [dated, lost]
    done = invoke("fit", "t.csv", "other", "--topics", 3)
    assert dated in done.err
    report = model.ingest_report
    assert report is not None
    for step, row in report.iterrows():
        numbers = [f"{number:,.0f}" for number in row if number]
        assert re.search(rf"^{re.escape(str(step))} +{' +'.join(numbers)}$", done.err, re.M), step
    assert report["documents"].iloc[:-1].tolist()[0] == report["documents"].iloc[1:].sum() == 153
    assert found["documents"].unique().tolist() == [150]
    assert sj.corpus_from_matrix(COUNTS, NAMES, "matrix").ingest_report is None
    assert line in caplog.messages
    assert line in invoke("over-time", "m", "s.parquet", "--by", "date:year").err


def test_doubts_of_every_k_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, invoke: Command
) -> None:
    numbers = [f"{number}" for number in range(1000, 1020)]
    generator = np.random.default_rng(0)
    texts = [*TEXTS, *(" ".join(generator.choice(numbers, 20)) for _ in range(150))]
    given = {"numbers": "keep", "min_df": 1, "max_df": 1.0, "polish": False}
    fitted = sj.fit(texts, tmp_path / "m", [2, 3], **given)
    told = [record.getMessage() for record in caplog.records if record.name.endswith("interface.fit")]
    doubts = [line for line in told if line.startswith(("k=2: ", "k=3: "))]
    assert doubts
    for path in fitted.models:
        err = invoke("topics", path).err
        lines = [line.removeprefix(f"{path.name}: ") for line in doubts if line.startswith(f"{path.name}: ")]
        assert err.splitlines() == [f"warning: {line}" for line in lines]
        assert [
            line for line in repr(sj.TopicModel(path)).splitlines() if line.startswith("warning: ")
        ] == err.splitlines()


def test_failures_leave_no_temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(sj.InputError, match="3 documents and"):
        sj.fit([*TEXTS[:3]], n_topics=100, ingest_request=sj.IngestRequest(preset="papers"))
    assert [*tmp_path.iterdir()] == []


def test_the_home_directory_is_written_with_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    made = sj.fit(TEXTS, "~/m", 3, polish=False, progress=False)
    for place in ("~/m", Path("~/m"), tmp_path / "home" / "m"):
        assert sj.TopicModel(place).topics().equals(made.topics())
    made.save("~/kept")
    sj.transform("~/m", "~/m.corpus", "~/s.parquet")
    sj.report("~/m", "~/r.html", shares="~/s.parquet")
    names = {path.name for path in (tmp_path / "home").iterdir()}
    assert names == {"m", "m.corpus", "m.moments", "kept", "s.parquet", "r.html"}
    (tmp_path / "work" / "~draft.csv").write_text("text\nant bee\n")
    assert sj.ingest("~draft.csv", "~c", preset="papers", min_tokens=1, min_distinct_words=1).n_documents == 1
    assert {path.name for path in (tmp_path / "work").iterdir()} == {"~draft.csv", "~c"}


def test_several_topics_need_a_path(tmp_path: Path) -> None:
    with pytest.raises(sj.InputError, match="several numbers of topics need a path"):
        sj.fit(TEXTS, n_topics=[2, 3])
    for given in ("auto", 2.5):
        with pytest.raises(sj.InputError, match=f"n_topics is {given!r}; give a whole number"):
            sj.fit(TEXTS, n_topics=given)  # type: ignore[call-overload]
    fitted = sj.fit(TEXTS, tmp_path / "m", [2, 3], polish=False)
    assert [path.name for path in fitted.models] == ["k=2", "k=3"]
    assert fitted.corpus == str(tmp_path / "m.corpus")


def test_behind_a_url_all_is_the_same(made: Path, model: sj.TopicModel) -> None:
    there = model.label(1, "name").merge([2, 3]).save("memory://topics/model")
    try:
        assert str(there.path) == "memory://topics/model"
        assert sj.TopicModel("memory://topics/model").hide(0).edits == model.edits.hide(0)
        pd.testing.assert_frame_equal(there.unhide().topics(), model.topics())
        assert sj.evaluate(there, made / "corpus")["n_topics"] == K
    finally:
        there.path.fs.rm("/topics", recursive=True)
