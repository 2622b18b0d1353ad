"""A model that follows its source: documents come, change and go, and topics keep their identity."""

from __future__ import annotations

import csv
import dataclasses
import json
import random
import re
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import streaming_jsmf as sj
from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.interface.update import Update
from streaming_jsmf.storage import replace
from streaming_jsmf.storage.paths import store_path
from streaming_jsmf.topics.edits import TopicEdits
from streaming_jsmf.topics.identity import Succession, started_from, topic_distances
from streaming_jsmf.topics.store import Model, read_model
from tests.cases import first_cases
from tests.corpora import iter_documents
from tests.outcomes import called, printed
from tests.processes import command, ended, started
from tests.stores import SYNCHRONOUS, digests
from tests.test_own_texts import SUBJECTS

#: Options of the fit, none of which the update needs again.
OPTIONS: Mapping[str, Any] = {
    "text": "body", "id": "url", "metadata": ["date"], "stop_words": "none", "max_df": 1.0, "execution": SYNCHRONOUS,
}  # fmt: skip

Rows = dict[str, tuple[str, str]]


def texts(number: int, day: int, subjects: Iterable[str] = tuple(SUBJECTS)) -> Rows:
    """Texts of one subject each, by id, with their date."""
    draw, known = random.Random(day), [*subjects]
    return {
        f"u{day}-{i}": (
            f"2024-01-{day + 1:02d}",
            " ".join(
                draw.choices((SUBJECTS.get(known[i % len(known)]) or known[i % len(known)]).split(), k=24)
            ),
        )
        for i in range(number)
    }


def write_day(folder: Path, day: int, rows: Rows) -> None:
    folder.mkdir(exist_ok=True)
    with (folder / f"day{day}.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([("url", "date", "body"), *((key, *row) for key, row in rows.items())])


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of three days of news, with edits and shares."""
    folder = tmp_path_factory.mktemp("update")
    for day in range(3):
        write_day(folder / "news", day, texts(60, day))
    model = sj.fit(folder / "news", folder / "model", len(SUBJECTS), **OPTIONS)
    model.label(1, "the first").merge([2, 4]).hide(5).documents(topic=0)
    return folder


@pytest.fixture
def folder(fitted: Path, tmp_path: Path) -> Path:
    """The same in another place, where the files of the source are found by their contents."""
    folder = shutil.copytree(fitted, tmp_path / "all")
    assert not sj.update(folder / "model", folder / "news").anything
    return folder


def ids_of(folder: Path) -> list[str]:
    return [
        key
        for batch in iter_documents(open_corpus(folder / "model.corpus"))
        for key in batch.document_id.to_pylist()
    ]


def require_consistent(folder: Path) -> None:
    """The corpus, the moments, the model and the shares are of the same documents."""
    corpus, model = open_corpus(folder / "model.corpus"), read_model(folder / "model")
    counts = np.zeros(corpus.n_words)
    for batch in iter_documents(corpus):
        np.add.at(counts, batch.bags.ids, batch.bags.counts)
    np.testing.assert_array_equal(corpus.vocabulary().term_count, counts)
    # Documents of a single token have no pairs, and are in no moments.
    np.testing.assert_allclose(model.arrays["term_count"], counts)
    fresh = sj.scan(corpus, folder / "fresh", max_topics=len(SUBJECTS), execution=SYNCHRONOUS)
    grown = sj.open_moments(folder / "model.moments")
    for name in ("row_sum", "diagonal", "document_frequency", "term_count"):
        np.testing.assert_allclose(grown.read(name), fresh.read(name), rtol=1e-6)
    found, wanted = (store.eigenpairs(len(SUBJECTS)).values[:6] for store in (grown, fresh))
    np.testing.assert_allclose(found, wanted, rtol=1e-3)
    shares = pq.read_table(folder / "model.shares.parquet")
    assert sorted(shares.column("document_id").to_pylist()) == sorted(ids_of(folder))
    assert sj.over_time(folder / "model", folder / "model.shares.parquet", "date:month") is not None
    manifest = json.loads((folder / "model.corpus" / "manifest.json").read_text())
    read = manifest["totals"]["documents"] + sum(step["documents"] for step in manifest["dropped"])
    assert read == manifest["settings"]["documents_read"]


def require_same_topics(folder: Path, before: Model) -> None:
    """Each topic has the words that it had, and the edits are those of the fixture."""
    after = read_model(folder / "model")
    tops = [model.arrays["word_topic"].argmax(axis=0) for model in (before, after)]
    subject = {word: name for name, text in SUBJECTS.items() for word in text.split()}
    first, second = ([subject[str(before.arrays["word"][word])] for word in top] for top in tops)
    assert first == second
    edits = sj.TopicModel(folder / "model").edits
    assert edits == TopicEdits(len(SUBJECTS), {1: "the first"}, ((2, 4),), (5,))


CHANGES: dict[str, tuple[dict[int, Rows | None], tuple[int, int, int]]] = {
    "a file is added": ({3: texts(30, 3)}, (30, 0, 0)),
    "a file has more": ({1: {**texts(60, 1), **texts(9, 7)}}, (9, 60, 0)),
    "a file is gone": ({0: None}, (0, 0, 60)),
    "documents come again": ({3: {**texts(5, 0), **texts(20, 3)}}, (20, 5, 0)),
    "days without documents": ({1: {}, 3: {}}, (0, 0, 60)),
    "all at once": ({0: None, 1: texts(50, 1), 3: texts(30, 3)}, (30, 50, 70)),
}


def change_files(folder: Path, change: str) -> None:
    for day, rows in CHANGES[change][0].items():
        if rows is None:
            (folder / f"day{day}.csv").unlink()
        else:
            write_day(folder, day, rows)


@pytest.mark.parametrize("change", first_cases(CHANGES, 2))
def test_the_model_follows_its_source(folder: Path, change: str) -> None:
    before, files = read_model(folder / "model"), CHANGES[change][0]
    change_files(folder / "news", change)
    out = json.loads(
        printed("update", folder / "model", folder / "news", "--scheduler", "synchronous", "--json")
    )
    assert tuple(out[f"documents_{what}"] for what in ("added", "changed", "removed")) == CHANGES[change][1]
    rows = {day: texts(60, day) for day in range(3)} | files
    wanted = {key for day, each in rows.items() for key in each or ()}
    assert sorted(ids_of(folder)) == sorted(wanted)
    assert out["documents"] == len(wanted)
    require_consistent(folder)
    require_same_topics(folder, before)
    if None in files.values():
        assert digests(folder / "fresh") == digests(folder / "model.moments")


@pytest.mark.slow
def test_a_corpus_that_has_grown_is_one_corpus(folder: Path) -> None:
    """Evaluate, report, choose-k and info say what they say of a model that was fitted at once."""
    model, corpus, moments = (folder / name for name in ("model", "model.corpus", "model.moments"))
    k = ("--scheduler", "synchronous")
    for gone, new in ((), (3,)), ((), (4, 5)), ((0, 4), (6,)):
        for day in gone:
            (folder / "news" / f"day{day}.csv").unlink()
        for day in new:
            write_day(folder / "news", day, texts(30, day))
        printed("update", model, folder / "news", *k)
        counted = json.loads(printed("evaluate", model, "--corpus", corpus, "--json", *k))
        assert counted["corpus"]["training"]
        assert json.loads(printed("evaluate", model, "--json", *k))["metrics"] == counted["metrics"]
        info = json.loads(printed("info", moments, "--json"))
        assert info["corpus"]["fingerprint"] == open_corpus(corpus).fingerprint
        assert info["corpus"]["shards"] == sum(shard.rows > 0 for shard in open_corpus(corpus).shards)
        assert not sj.update(model, folder / "news", execution=SYNCHRONOUS).anything
    made = read_model(model)
    listed = {**made.provenance, "corpus_fingerprints": [*made.corpora, *made.corpora]}
    assert dataclasses.replace(made, provenance=listed).corpora == made.corpora, "as models before 2026-11-28"
    fresh = sj.fit(corpus, folder / "fresh", len(SUBJECTS), execution=SYNCHRONOUS)
    wanted = json.loads(printed("evaluate", fresh.path, "--corpus", corpus, "--json", *k))
    assert counted["metrics"].keys() == wanted["metrics"].keys()
    assert counted["missing"] == wanted["missing"]
    pages = [printed_page(path, folder / "page.html") for path in (model, fresh.path)]
    assert "one whole corpus" not in "".join(pages)
    assert [re.findall("corpus [0-9]", page) for page in pages] == [["corpus 0"]] * 2
    topics = ("--topics", "3,6", "--json", *k)
    grown, at_once = (json.loads(printed("choose-k", place, *topics)) for place in (moments, corpus))
    assert [row.keys() for row in grown["rows"]] == [row.keys() for row in at_once["rows"]]
    assert grown["suggested"] == at_once["suggested"] == len(SUBJECTS)


def printed_page(model: Path, page: Path) -> str:
    printed("report", model, page, "--overwrite")
    return page.read_text()


@pytest.fixture(params=["memory", pytest.param("s3", marks=pytest.mark.slow)])
def root(request: pytest.FixtureRequest) -> Iterator[str]:
    """A URL."""
    if request.param == "memory":
        yield f"memory://{uuid.uuid4().hex}"
        return
    pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    from benchmarks.s3_requests import counting_server

    with counting_server():
        yield "s3://bucket/u"


def behind(root: str, folder: Path) -> str:
    """Put a model and what is beside it behind a URL."""
    files = fsspec.filesystem(root.partition(":")[0])
    for path in folder.glob("model*"):
        end = "/" if path.is_dir() else ""
        files.put(f"{path}{end}", f"{root}/{path.name}{end}", recursive=path.is_dir())
    return f"{root}/model"


#: Number of copied files after which updates are killed: of the corpus, the model, and none.
KILLED = (0, 2, 4, 6, 12)


@pytest.mark.slow
def test_an_update_behind_urls_is_that_of_a_local_model(
    root: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, put, left = behind(root, folder), replace._put, [0]
    assert not sj.update(model, folder / "news", execution=SYNCHRONOUS).anything
    change_files(folder / "news", "all at once")
    sj.update(folder / "model", folder / "news", execution=SYNCHRONOUS)

    def put_some(*pair: Any) -> None:
        if not left:
            raise KeyboardInterrupt
        left.pop()
        put(*pair)

    with monkeypatch.context() as patch:
        patch.setattr(replace, "_put", put_some)
        patch.setattr(replace, "in_threads", lambda function, items: [function(item) for item in items])
        for number in KILLED:
            left[:] = range(number)
            with pytest.raises(KeyboardInterrupt):
                sj.update(model, folder / "news", execution=SYNCHRONOUS)
    found = sj.update(model, folder / "news", execution=SYNCHRONOUS)
    assert not sj.update(model, folder / "news", execution=SYNCHRONOUS).anything
    assert tuple(found.corpus[f"documents_{what}"] for what in ("added", "changed", "removed")) == (
        30,
        50,
        70,
    )
    remote, local = (read_model(store_path(path)) for path in (model, folder / "model"))
    for name, values in local.arrays.items():
        np.testing.assert_array_equal(remote.arrays[name], values)
    assert sj.TopicModel(model).edits == sj.TopicModel(folder / "model").edits
    corpora = [open_corpus(f"{path}.corpus").fingerprint for path in (model, folder / "model")]
    assert corpora[0] == corpora[1]
    shares = [sj.TopicModel(path).documents(topic=0, number=99) for path in (model, folder / "model")]
    assert shares[0].equals(shares[1])


def test_nothing_is_done_without_changes(folder: Path) -> None:
    def states() -> dict[str, int]:
        return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}

    before = states()
    (folder / "news" / "day1.csv").touch()
    out = printed("update", folder / "model", f"{folder}/news/*.csv")
    assert "nothing to update" in out
    after = states()
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert {Path(path).name for path in changed} <= {"files.arrow", "day1.csv"}
    left = folder / "model.moments/partials/sums-fold-0"  # as by a run that was killed after its commit
    left.mkdir()
    printed("update", folder / "model", f"{folder}/news/*.csv")
    assert not left.exists()


def test_a_moved_model_whose_documents_come_again(fitted: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(fitted, tmp_path / "all")
    write_day(folder / "news", 3, texts(5, 0))
    found = sj.update(folder / "model", folder / "news", execution=SYNCHRONOUS)
    assert found.corpus["documents_changed"] == 5
    require_consistent(folder)


def test_a_file_without_words_of_the_vocabulary_is_counted(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_day(folder / "news", 3, texts(4, 3, ["vaccine virus"]))
    assert not sj.update(folder / "model", folder / "news", execution=SYNCHRONOUS).anything
    assert "100%" in caplog.text
    require_consistent(folder)


def test_vanished_files(folder: Path) -> None:
    """The documents of most files are removed only on request; a missing disk must not empty a corpus."""
    for day in (0, 1):
        (folder / "news" / f"day{day}.csv").unlink()
    refused = called("update", folder / "model", folder / "news")
    assert refused.code == 2
    assert "--vanished" in refused.err
    kept = sj.update(folder / "model", folder / "news", vanished="keep")
    assert not kept.anything
    assert len(ids_of(folder)) == 180
    removed = sj.update(folder / "model", folder / "news", vanished="remove", execution=SYNCHRONOUS)
    assert removed.corpus["documents_removed"] == 120
    assert removed.corpus["files_removed"] == 2
    require_consistent(folder)


def test_new_words_are_told(folder: Path) -> None:
    write_day(folder / "news", 3, texts(40, 3, ["space", "virus vaccine mask lockdown ward fever"]))
    outcome = called("update", folder / "model", folder / "news")
    assert outcome.code == 0
    assert "vaccine" in outcome.err
    assert "aged" in outcome.err
    found = sj.update(folder / "model", folder / "news").corpus
    assert found["new_tokens"] == 20 * 24
    assert len(found["new_words"]) == 6
    # Documents without a word of the vocabulary are dropped, as by fit.
    assert found["documents_added"] == 20
    assert found["tokens_added"] == 20 * 24


def test_words_that_fit_left_out_are_not_new(tmp_path: Path) -> None:
    """They were in too many documents for a topic, so that the vocabulary lacks them is no sign of its age."""
    for day in range(2):
        common = {
            key: (date, f"{text} war war part problems") for key, (date, text) in texts(40, day).items()
        }
        write_day(tmp_path / "news", day, common)
    sj.fit(tmp_path / "news", tmp_path / "model", 3, **{**OPTIONS, "max_df": 0.5})
    # In fewer of the new documents they would be chosen.
    some = {key: (date, f"{text} war part") for key, (date, text) in texts(8, 2).items()}
    write_day(tmp_path / "news", 2, {**texts(40, 3), **some})
    outcome = called("update", tmp_path / "model", tmp_path / "news")
    assert outcome.code == 0
    assert "aged" not in outcome.err
    found = sj.update(tmp_path / "model", tmp_path / "news").corpus
    assert (found["new_words"], found["new_tokens"]) == ([], 0)
    manifest = json.loads((tmp_path / "model.corpus" / "manifest.json").read_text())
    assert manifest["settings"]["frequent_words"].split("\n") == ["part", "problems", "war"]


def test_bad_records_of_an_update_are_quarantined_on_request(folder: Path) -> None:
    write_day(folder / "news", 3, texts(20, 3))
    with (folder / "news" / "day3.csv").open("a") as file:
        file.write("one,2024-01-01,too,many,fields\n")
    line = ("update", folder / "model", folder / "news", "--scheduler", "synchronous")
    assert called(*line).code == 2
    assert called(*line, "--on-bad-record", "quarantine").code == 0
    assert len(ids_of(folder)) == 200


def test_data_in_memory_are_added_once(tmp_path: Path) -> None:
    def of_day(day: int) -> list[str]:
        return [text for _, text in texts(40, day).values()]

    options = {**OPTIONS, "id": None, "text": None, "metadata": None}
    model = sj.fit(of_day(0) + of_day(1), tmp_path / "model", len(SUBJECTS), **options)
    for _ in range(2):
        assert model.update(of_day(2)).corpus["documents_added"] == 40
    assert model.update(of_day(3)).anything
    assert ids_of(tmp_path) == [*range(160)]
    assert len(model.documents(topic=0, number=200)) > 100


@pytest.mark.parametrize("has_ids", [True, False])
def test_numbers_of_documents_are_not_ids(tmp_path: Path, has_ids: bool) -> None:
    """A document without an id must not replace another one whose id is its number, and numbers do not repeat."""
    rows = [text for _, text in texts(90, 0).values()]
    frame = pd.DataFrame({"body": rows[:80]}, index=[*range(50, 130)] if has_ids else None)
    options = {**OPTIONS, "metadata": None, "id": None}
    model = sj.fit(frame, tmp_path / "model", len(SUBJECTS), **options)
    added = pd.DataFrame({"body": rows[80:], "uid": range(10)})
    with pytest.raises(sj.InputError):
        model.update(added.drop(columns="uid")) if has_ids else model.update(added, id="uid")
    assert model.corpus is not None
    assert model.corpus.n_documents == 80


def test_columns_that_the_corpus_lacks_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [text for _, text in texts(90, 0).values()]
    model = sj.fit(pd.DataFrame({"body": rows[:80], "date": 1}), tmp_path / "model", len(SUBJECTS))
    model.update(pd.DataFrame({"body": rows[80:85], "date": 2}))
    assert "no such columns" not in caplog.text
    model.update(pd.DataFrame({"body": rows[85:], "Date": 3, "size": 4}))
    assert "the corpus has no such columns: Date, size;" in caplog.text


def test_values_are_read_as_those_before(tmp_path: Path) -> None:
    """Dates of early days of a month, and integers beside missing values, which pandas writes as 2.0."""

    def write(day: int, *rows: tuple[str, str]) -> None:
        with (tmp_path / "news" / f"{day}.csv").open("w", newline="") as file:
            lines = [(*row, text) for row, (_, text) in zip(rows, texts(60, day).values(), strict=False)]
            csv.writer(file).writerows([("date", "number", "body"), *lines])

    (tmp_path / "news").mkdir()
    write(0, *((f"{day:02d}/01/2024", str(day)) for day in range(1, 32)))
    options = {**OPTIONS, "id": None, "metadata": ["date", "number"]}
    model = sj.fit(tmp_path / "news", tmp_path / "model", 3, **options)
    write(1, ("05/02/2024", "2.0"), ("06/02/2024", ""))
    model.update(tmp_path / "news")
    added = pq.read_table(tmp_path / "model.corpus" / "documents").slice(31)
    assert [str(each) for each in added.column("date").to_pylist()] == ["2024-02-05", "2024-02-06"]
    assert added.column("number").to_pylist() == [2, None]
    # In a data frame, dates are times.
    table = pd.DataFrame(texts(60, 2).values(), columns=["number", "body"])
    table = table.assign(number=1, date=pd.Timestamp("2024-03-07"))
    model.update(table[:30])
    model.update(table[30:].astype({"date": str}).assign(date=lambda each: each["date"] + " 00:00:00"))
    dates = pq.read_table(tmp_path / "model.corpus" / "documents").column("date").to_pylist()[-60:]
    assert {*map(str, dates)} == {"2024-03-07"}


@pytest.mark.parametrize("engine", first_cases(["lr-jsmf", "stod"]))
def test_models_of_several_k_and_engines(tmp_path: Path, engine: str) -> None:
    for day in range(3):
        write_day(tmp_path / "news", day, texts(60, day))
    sj.fit(tmp_path / "news", tmp_path / "models", (3, 6), engine=engine, polish=False, **OPTIONS)
    labels = {k: sj.TopicModel(tmp_path / "models" / f"k={k}").label(k - 1, f"last of {k}") for k in (3, 6)}
    tops = {k: model.topics(1) for k, model in labels.items()}
    write_day(tmp_path / "news", 3, texts(30, 3))
    best = tmp_path / "best"
    best.symlink_to(tmp_path / "models" / "k=6")
    found = sj.update(best, tmp_path / "news", execution=SYNCHRONOUS)
    assert len(found.models) == 2
    assert sj.TopicModel(best).corpus.n_documents == 210
    model = labels[6]
    assert model.edits.labels == {5: "last of 6"}
    assert model.topics(1)["topic"].nunique() == len(tops[6])


def test_a_corpus_whose_shards_change(folder: Path, tmp_path: Path) -> None:
    """A model that was fitted to a corpus follows the corpus."""
    shutil.copytree(folder / "model.corpus", tmp_path / "corpus")
    model = sj.fit(tmp_path / "corpus", tmp_path / "model", len(SUBJECTS), execution=SYNCHRONOUS)
    model.label(3, "mine")
    write_day(folder / "news", 3, texts(30, 3))
    sj.update(folder / "model", folder / "news", execution=SYNCHRONOUS)
    shutil.rmtree(tmp_path / "corpus")
    shutil.copytree(folder / "model.corpus", tmp_path / "corpus")
    assert model.update(tmp_path / "corpus", execution=SYNCHRONOUS).corpus["documents_added"] == 30
    assert model.edits.labels == {3: "mine"}
    assert sj.open_moments(tmp_path / "model.moments").n_documents == 210
    assert not model.update(tmp_path / "corpus").anything


@pytest.mark.parametrize("what", ["no corpus", "another corpus", "no files.arrow", "no keys.arrow"])
def test_what_cannot_be_updated_is_refused(folder: Path, what: str) -> None:
    source: Any = folder / "news"
    if what == "no corpus":
        shutil.rmtree(folder / "model.corpus")
    elif what.endswith(".arrow"):
        (folder / "model.corpus" / what.removeprefix("no ")).unlink()
    else:
        source = sj.corpus_from_matrix(np.ones((5, 3), int), ["a", "b", "c"], folder / "other")
    before = digests(folder / "model.moments")
    with pytest.raises(sj.InputError):
        sj.update(folder / "model", source)
    assert digests(folder / "model.moments") == before


def topics_of(*columns: Iterable[int]) -> Model:
    """A model whose topics are uniform over words, (12, K)."""
    words = np.zeros((12, len(columns)))
    for topic, column in enumerate(columns):
        words[[*column], topic] = 1 / len([*column])
    arrays = {
        "word_topic": words,
        "topic_probability": np.arange(1.0, len(columns) + 1),
        "prominent_words": np.argsort(-words, axis=0, kind="stable")[:6].T,
    }
    return Model(arrays, {}, {}, {"engine": "lr-jsmf"})


def test_what_becomes_of_topics() -> None:
    """Topics are matched at the least distance; a half of a topic split from it, and a sum took up its parts."""
    before = topics_of(range(6), [6, 7], [8, 9], [10, 11])
    model, found = Succession.between(before, topics_of([10, 11], range(6, 10), range(3), range(3, 6)))
    np.testing.assert_allclose(found.distances, [0.5412, 0.5412, 1, 0], atol=1e-3)
    assert [(each.topic, each.event, each.nearest, each.related) for each in found.changes] == [
        (2, "vanished", 1, True),
        (2, "new", 0, True),
    ]
    assert model.arrays["topic_probability"].tolist() == [3, 2, 4, 1]
    edits = TopicEdits(4, {2: "gone", 3: "kept"}, ((1, 2, 3),), (2,))
    assert found.edits(edits) == TopicEdits(4, {3: "kept"}, ((1, 3),))


@pytest.mark.parametrize(
    ("distances", "gone", "tokens", "advice"),
    [
        ((0.1, 0.3, 0.2, 0.2, 0.1), (), 1, "the topics mean what they did, and can be used as before"),
        (
            (0.1, 0.6, 0.2, 0.2, 0.1),
            (),
            1,
            "not all (with other words than at first: 1); read their words and check",
        ),
        ((0.1, 0.6, 0.2, 0.9, 0.1), (3,), 1, "not all (new: 3; with other words than at first: 1)"),
        (
            (0.9, 0.6, 0.2, 0.9, 0.1),
            (0, 3),
            1,
            "cannot be compared with earlier results, as 2 of 5 topics are new; fit again",
        ),
        (
            (0.1, 0.3, 0.2, 0.2, 0.1),
            (),
            20,
            "the words of 17% of the tokens added are unknown to them; fit again",
        ),
    ],
)
def test_an_update_says_whether_its_topics_can_be_trusted(
    distances: tuple[float, ...], gone: tuple[int, ...], tokens: int, advice: str
) -> None:
    about = {"name": "x", "nearest": 4, "distance": 0.8, "related": False}
    changes = [{"topic": topic, "event": event, **about} for topic in gone for event in ("vanished", "new")]
    numbers = {"documents": 9, "tokens_added": 100, "new_tokens": tokens, "new_words": ["virus"]}
    found = Update(True, numbers, {"m": {"distances": distances, "changes": changes}})
    assert advice in str(found)
    assert ("fit again" in str(found)) == (len(gone) > 1 or tokens > 5)
    assert advice in found.fields()["models"]["m"]["advice"]


def test_a_topic_whose_listed_words_are_a_part_of_it_is_what_it_was() -> None:
    """Its other words are unknown, so their probability does not count as a change."""
    present = topics_of(range(10), range(2, 12))
    _, found = Succession.between(present, topics_of(range(2, 12), range(10)))
    assert (found.distances, found.changes) == ((0.0, 0.0), ())


def test_duplicates_of_renumbered_topics_name_their_new_numbers() -> None:
    first, second, third = range(4), range(4, 8), range(8, 12)
    found = topics_of(third, first, second)
    arrays = {**found.arrays, "duplicate_of": np.array([-1, 0, -1])}
    found = dataclasses.replace(found, arrays=arrays, provenance={"engine": "stod"})
    model, _ = Succession.between(topics_of(first, second, third), found)
    assert model.arrays["duplicate_of"].tolist() == [2, -1, -1]


def test_a_new_topic_replaces_one_without_support() -> None:
    present = topics_of(range(3), range(3, 6), range(6, 9))
    start, replaced = started_from(topics_of(range(9, 12), range(6, 9), range(2)), present)
    assert replaced.tolist() == [1]
    wanted = topics_of(range(3), range(9, 12), range(6, 9)).arrays["word_topic"]
    np.testing.assert_array_equal(start.arrays["word_topic"], wanted)


N_WORDS, N_TRUE, PER_DAY = 300, 7, 60
SPELLED = ["w" + "".join(chr(97 + int(digit)) for digit in f"{word:03d}") for word in range(N_WORDS)]


def of_stream(draw: np.random.Generator, word_topic: Any, active: list[int], day: int) -> Rows:
    shares = np.zeros((PER_DAY, N_TRUE))
    shares[:, active] = draw.dirichlet(np.full(len(active), 0.15), PER_DAY)
    counts = [draw.multinomial(60, share @ word_topic) for share in shares]
    return {
        f"u{day}-{i}": (f"2024-{1 + day // 28:02d}-{1 + day % 28:02d}", " ".join(np.repeat(SPELLED, row)))
        for i, row in enumerate(counts)
    }


def killed_at_random(line: Any, draw: np.random.Generator, seconds: float) -> int:
    """Start a command that takes about so long up to twice and kill it; return how often it had not ended."""
    kills = 0
    for _ in range(int(draw.integers(0, 3))):
        with started(line) as process:
            try:
                process.wait(seconds * float(draw.uniform(0.1, 1)))
            except subprocess.TimeoutExpired:
                process.kill()
                kills += 1
    return kills


@pytest.mark.campaign
def test_thirty_days_of_a_stream(tmp_path: Path) -> None:
    """Topics drift, one ends and another begins, documents are withdrawn, and commands are killed once or twice."""
    draw, news = np.random.default_rng(5), tmp_path / "news"
    truth, days = draw.dirichlet(np.full(N_WORDS, 0.05), N_TRUE), dict[int, Any]()
    rows = dict[int, Rows]()

    def next_day(day: int) -> None:
        nonlocal truth
        active = [k for k in range(N_TRUE) if k != (N_TRUE - 1 if day < 10 else 0)]
        days[day], rows[day] = truth, of_stream(draw, truth, active, day)
        write_day(news, day, rows[day])
        truth = 0.985 * truth + 0.015 * draw.dirichlet(np.full(N_WORDS, 0.05), N_TRUE)

    def distances() -> Any:
        """Between the topics of the model and the true topics of the present documents."""
        model = read_model(tmp_path / "model")
        ids = [SPELLED.index(str(word)) for word in model.arrays["word"]]
        mean = np.mean([days[day] for day in rows], axis=0)[:, ids].T
        return topic_distances(model.arrays["word_topic"], mean / mean.sum(axis=0))

    for day in range(5):
        next_day(day)
    model = sj.fit(news, tmp_path / "model", N_TRUE - 1, **OPTIONS)
    first = distances().argmin(axis=1)
    for topic, true in enumerate(first.tolist()):
        model.label(topic, f"true {true}")
    kills, wrong, seconds, events = 0, 0, 5.0, list[dict[str, Any]]()
    for day in range(5, 35):
        next_day(day)
        if day > 12 and day % 2 == 0:
            gone = min(rows)
            del rows[gone]
            (news / f"day{gone}.csv").unlink()
        if day % 5 == 0:
            changed = max(rows) - 1
            rows[changed] = dict([*rows[changed].items()][5:])
            write_day(news, changed, rows[changed])
        verb = ("update", tmp_path / "model", news, "--json", "--quiet")
        kills += killed_at_random(command(*verb), draw, seconds)
        if day == 5:
            begun = time.monotonic()
            done = ended(command(*verb))
            seconds = time.monotonic() - begun
        else:
            done = called(*verb)
        assert done.code == 0, done.err
        out = json.loads(done.out)
        assert sorted(ids_of(tmp_path)) == sorted(key for each in rows.values() for key in each)
        events += out["models"][str(tmp_path / "model")]["changes"] if out["changed"] else []
        nearest = distances().argmin(axis=1)
        wrong += sum(name != f"true {nearest[topic]}" for topic, name in model.edits.labels.items())
    assert kills >= 10
    found = distances()
    assert sorted(found.argmin(axis=1)) == [*range(1, N_TRUE)]
    assert found.min(axis=1).max() < 0.25
    # The ended topic loses its label, and for some days labels of the mixture that follows may be wrong.
    assert "true 0" not in model.edits.labels.values()
    assert {event["event"] for event in events} == {"vanished", "new"}
    assert len(model.edits.labels) == N_TRUE - 2
    assert wrong <= 5
    require_final_state(tmp_path, news)


def require_final_state(folder: Path, news: Path) -> None:
    """The corpus and the moments are those of the present source, with the same words and partitions."""
    place = folder / "model.corpus"
    fresh = sj.ingest(
        news, folder / "fresh.corpus", vocabulary=place, **{**OPTIONS, "stop_words": None, "max_df": None}
    )
    for name in ("words", "document_frequency", "term_count"):
        np.testing.assert_array_equal(
            getattr(fresh.vocabulary(), name), getattr(open_corpus(place).vocabulary(), name)
        )
    bags = [
        {
            key: (bag.ids.tolist(), bag.counts.tolist())
            for batch in iter_documents(corpus)
            for i, key in enumerate(batch.document_id.to_pylist())
            for bag in [batch.bags.slice(i, i + 1)]
        }
        for corpus in (fresh, open_corpus(place))
    ]
    assert bags[0] == bags[1]
    shutil.copytree(folder / "model.moments", folder / "again.moments")
    for path in [
        *(folder / "again.moments" / "records").iterdir(),
        *(folder / "again.moments" / "partials").iterdir(),
    ]:
        if path.is_dir() and path.name != "words":
            shutil.rmtree(path)
    sj.scan(place, folder / "again.moments", execution=SYNCHRONOUS, max_topics=N_TRUE - 1)
    assert digests(folder / "again.moments") == digests(folder / "model.moments")
