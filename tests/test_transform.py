"""transform: the shares it writes are those of document_topics on the same matrix, in every form, however it runs."""

from __future__ import annotations

import re
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xarray as xr
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf import Execution, InputError, TopicModel, documents_of_topic, ingest, transform
from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.corpus.units import Partition
from streaming_jsmf.documents import transform_job
from streaming_jsmf.documents.share_files import open_shares
from streaming_jsmf.documents.transform_job import PartContext, write_part
from streaming_jsmf.errors import SettingsMismatchError
from streaming_jsmf.inference import cvb0
from streaming_jsmf.inference.cvb0 import document_topics
from streaming_jsmf.jobs.workspace import Workspace
from streaming_jsmf.topics.store import Model, read_model, write_model
from tests.corpora import Planted, as_lists, file_bytes, planted, words
from tests.outcomes import Command, refused

SYNCHRONOUS = Execution("synchronous")
N, K = 60, 4
PRIOR = np.array([0.1, 0.2, 0.3, 0.4])


@pytest.fixture(scope="module")
def drawn() -> Planted:
    made = planted(90, N, K, length=30, seed=3)
    made.counts[7] = 0
    return made


@pytest.fixture(scope="module")
def corpus(drawn: Planted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three shards of three row groups, with ids and metadata."""
    return write_named(tmp_path_factory.mktemp("corpora") / "named", drawn.counts, words(N))


@pytest.fixture(scope="module")
def model(drawn: Planted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "model", drawn.word_topic)


def write_named(path: Path, counts: NDArray[np.int64], vocabulary: list[str]) -> Path:
    path.mkdir()
    (path / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    for shard, rows in enumerate(np.array_split(np.arange(len(counts)), 3)):
        ids, numbers = as_lists(counts[rows])
        table = pa.table(
            {
                "document_id": [f"d{row}" for row in rows],
                "ids": pa.array(ids, pa.list_(pa.int32())),
                "counts": pa.array(numbers, pa.list_(pa.int32())),
                "year": pa.array([None if row == 5 else 1990 + row % 3 for row in rows], pa.int16()),
                "title": [f"title {row}" for row in rows],
            }
        )
        pq.write_table(table, path / f"part-{shard}.parquet", row_group_size=10)
    return path


def save_model(path: Path, word_topic: NDArray[np.float64], vocabulary: list[str] | None = None) -> Path:
    arrays = {
        "word": np.array(vocabulary or words(len(word_topic)), dtype=object),
        "word_topic": word_topic,
        "topic_probability": PRIOR,
        "term_count": np.ones(len(word_topic)),
        "alpha": PRIOR,
    }
    write_model(path, Model(arrays, {}, {}, {"fingerprint": "f"}))
    return path


def shares_of(path: Path) -> NDArray[np.float64]:
    found = open_shares(path)
    return np.concatenate([theta for theta, _ in found.dense()])


def expected(drawn: Planted) -> NDArray[np.float64]:
    return document_topics(csr_array(drawn.counts), drawn.word_topic, PRIOR).shares


def made_by(model: Path, corpus: Path, out: Path, **settings: Any) -> Any:
    """The shares that transform writes, on one thread."""
    made = transform(model, corpus, out, **{"execution": SYNCHRONOUS, **settings})
    assert made.about.totals is not None
    return made


@pytest.mark.parametrize("name", ["shares.parquet", "shares.zarr", "shares"])
def test_the_shares_are_those_of_the_same_matrix(
    corpus: Path, model: Path, drawn: Planted, tmp_path: Path, name: str
) -> None:
    made = made_by(model, corpus, tmp_path / name)
    np.testing.assert_array_equal(shares_of(tmp_path / name), expected(drawn).astype(np.float32))
    assert made.columns == ("document_id", "year", "title", "known_tokens")
    known = np.concatenate([np.asarray(table.column(0)) for table in made.tables(["known_tokens"])])
    np.testing.assert_array_equal(known, drawn.counts.sum(axis=1))
    assert (made.about.totals.documents, made.about.totals.without_known_words) == (90, 1)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_readers_of_parquet_and_zarr_need_nothing_of_ours(corpus: Path, model: Path, tmp_path: Path) -> None:
    for name in ("one.parquet", "many", "s.zarr"):
        made_by(model, corpus, tmp_path / name)
    one = pq.read_table(tmp_path / "one.parquet")
    assert one.equals(pq.read_table(tmp_path / "many"))
    assert one.schema.names == ["document_id", "year", "title", "known_tokens", "topic_shares"]
    assert one.schema.field("topic_shares").type == pa.list_(pa.float32())
    assert one.column("document_id").to_pylist() == [f"d{row}" for row in range(90)]
    assert one.column("year").to_pylist()[4:7] == [1991, None, 1990]
    data = xr.open_zarr(str(tmp_path / "s.zarr"), consolidated=False)
    assert data["topic_shares"].dims == ("document", "topic")
    assert data["topic_shares"].attrs["symbol"] == "theta"
    assert set(data.coords) == {"document_id", "year", "title", "known_tokens", "topic"}
    assert data["document_id"].values[3] == "d3"
    assert np.isnan(data["year"].values[5])
    assert data["title"].values[8] == "title 8"


def test_metadata_may_be_views_of_strings(corpus: Path, model: Path, tmp_path: Path) -> None:
    """As newer writers of Parquet leave them; Arrow cannot select their rows."""
    table = pa.concat_tables([pq.read_table(path) for path in sorted(corpus.glob("part-*.parquet"))])
    views = {name: table[name].cast(pa.string_view()) for name in ("document_id", "title")}
    (tmp_path / "views").mkdir()
    pq.write_table(
        pa.table({**{name: table[name] for name in table.column_names}, **views}),
        tmp_path / "views/a.parquet",
    )
    (tmp_path / "views" / "vocab.txt").write_text("\n".join(open_corpus(corpus).vocabulary().words))
    for name in ("s.parquet", "s.zarr", "s.csv"):
        made_by(model, tmp_path / "views", tmp_path / name)
        made_by(model, corpus, tmp_path / f"as_{name}")
    assert pq.read_table(tmp_path / "s.parquet").equals(pq.read_table(tmp_path / "as_s.parquet"))
    assert (tmp_path / "s.csv").read_bytes() == (tmp_path / "as_s.csv").read_bytes()
    copied = ingest(
        tmp_path / "views", tmp_path / "copy", preset="papers", min_tokens=1, min_distinct_words=1
    )
    assert pq.read_schema(copied.shard_path(copied.shards[0])).field("title").type == pa.string()


def test_columns_that_would_leave_the_group_are_left_out_of_zarr(
    corpus: Path, model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = ["", ".", "..", "../up", "a/b", "zarr.json", str(tmp_path / "outside"), "x" * 300]
    table = pq.read_table(next(corpus.rglob("part-*.parquet")))
    for name in [*names, "a b"]:
        table = table.append_column(name, [range(len(table))])
    (tmp_path / "other").mkdir()
    pq.write_table(table, tmp_path / "other" / "part-0.parquet")
    (tmp_path / "other" / "vocab.txt").write_text("\n".join(open_corpus(corpus).vocabulary().words))
    made_by(model, tmp_path / "other", tmp_path / "s.zarr")
    data = xr.open_zarr(str(tmp_path / "s.zarr"), consolidated=False)
    assert data["a b"].values[3] == 3
    assert {*data.variables} == {
        "topic_shares",
        "topic",
        "document_id",
        "known_tokens",
        "year",
        "title",
        "a b",
    }
    assert caplog.text.count("the column is left out of Zarr") == len(names)
    assert {path.name for path in tmp_path.iterdir()} == {"other", "s.zarr"}


@pytest.mark.parametrize("name", ["top.parquet", "top.zarr"])
def test_top_keeps_the_largest(corpus: Path, model: Path, drawn: Planted, tmp_path: Path, name: str) -> None:
    made = made_by(model, corpus, tmp_path / name, top=2)
    table = pa.concat_tables(list(made.tables(["topics", "topic_shares"])))
    whole = expected(drawn)
    order = np.argsort(-whole, axis=1, kind="stable")[:, :2]
    assert table.column("topics").to_pylist() == order.tolist()
    kept = np.array(table.column("topic_shares").to_pylist(), np.float32)
    np.testing.assert_array_equal(kept, np.take_along_axis(whole, order, axis=1).astype(np.float32))
    assert ((shares_of(tmp_path / name) > 0).sum(axis=1) == 2).all()


def test_words_are_matched_by_string(
    model: Path, drawn: Planted, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Other order, and two words that the model lacks; a word that no topic has is unknown too."""
    rng = np.random.default_rng(0)
    order, strange = rng.permutation(N), rng.integers(1, 4, size=(90, 2))
    names = [*np.array(words(N))[order], "x", "y"]
    path = write_named(tmp_path / "other", np.hstack([drawn.counts[:, order], strange]), names)
    with caplog.at_level("INFO"):
        totals = made_by(model, path, tmp_path / "s").about.totals
    np.testing.assert_allclose(shares_of(tmp_path / "s"), expected(drawn), atol=2e-3)
    assert totals.unknown_tokens == strange.sum()
    assert totals.tokens == strange.sum() + drawn.counts.sum()
    assert totals.without_known_words == 1
    assert f"{strange.sum():,} of" in caplog.text
    assert "1 of 90 documents have no word" in caplog.text
    topics = drawn.word_topic.copy()
    topics[11] = 0
    totals = made_by(save_model(tmp_path / "model", topics), path, tmp_path / "t").about.totals
    assert totals.unknown_tokens - strange.sum() == drawn.counts[:, 11].sum() > 0


def test_documents_that_did_not_converge_are_reported(
    corpus: Path,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    hasty = partial(document_topics, max_iterations=1)
    monkeypatch.setattr(cvb0, "document_topics", hasty)
    assert made_by(model, corpus, tmp_path / "s").about.totals.unconverged > 50
    [told] = [record for record in caplog.records if "did not converge" in record.message]
    assert told.levelname == "WARNING"


def test_documents_may_be_longer_than_single_precision_counts(
    model: Path, drawn: Planted, tmp_path: Path
) -> None:
    counts = drawn.counts[:6].copy()
    counts[0, 0] = 2**24 + 1
    made = made_by(model, write_named(tmp_path / "corpus", counts, words(counts.shape[1])), tmp_path / "out")
    (table,) = made.tables(["known_tokens"])
    np.testing.assert_array_equal(table.column(0), counts.sum(axis=1).astype(np.float32))


def test_ids_count_where_the_corpus_has_none(corpus_path: Path, drawn: Planted, tmp_path: Path) -> None:
    made = made_by(save_model(tmp_path / "m", drawn.word_topic), corpus_path, tmp_path / "s")
    ids = pa.concat_tables(list(made.tables(["document_id"])))
    assert ids.column("document_id").to_pylist() == list(range(600))


@pytest.fixture
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transform_job, "PARTITION_NONZEROS", 300)


def files(path: Path) -> dict[str, bytes]:
    return {"": path.read_bytes()} if path.is_file() else file_bytes(path)


@pytest.mark.usefixtures("small_tasks")
@pytest.mark.parametrize("name", ["s.parquet", "s.zarr", "s", "s.csv"])
def test_same_bytes_after_a_kill(
    corpus: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    out, workspace = tmp_path / name, Workspace.beside(tmp_path / name, "transform")
    (tmp_path / "whole").mkdir()
    made_by(model, corpus, tmp_path / "whole" / name)
    done: list[int] = []

    def dying(context: PartContext, part: Partition) -> Any:
        number = part.index
        if len(done) == 2:
            # As a kill leaves it: a part without record.
            (workspace.root / "parts" / f"part-{number:05d}.parquet").write_bytes(b"PAR1 half")
            raise KeyboardInterrupt
        done.append(number)
        return write_part(context, part)

    monkeypatch.setattr(transform_job, "write_part", dying)
    with pytest.raises(KeyboardInterrupt):
        made_by(model, corpus, out)
    assert workspace.steps_done == {"transform": 2}
    assert not out.exists()
    with pytest.raises(SettingsMismatchError, match="top"):
        made_by(model, corpus, out, top=1)
    damaged, whole = done
    (workspace.root / "parts" / f"part-{damaged:05d}.parquet").write_bytes(b"a crash of the machine")
    done.clear()
    monkeypatch.setattr(
        transform_job, "write_part", lambda c, part: (done.append(part.index), write_part(c, part))[1]
    )
    made_by(model, corpus, out)
    assert damaged in done
    assert whole not in done
    assert files(out) == files(tmp_path / "whole" / name)
    assert not workspace.root.exists()


@pytest.mark.usefixtures("small_tasks")
@pytest.mark.parametrize("scheduler", ["threads", pytest.param("processes", marks=pytest.mark.slow)])
def test_same_bytes_on_every_scheduler(corpus: Path, model: Path, tmp_path: Path, scheduler: str) -> None:
    made_by(model, corpus, tmp_path / "a.parquet")
    made_by(model, corpus, tmp_path / "b.parquet", execution=Execution(scheduler, 2))
    assert files(tmp_path / "a.parquet") == files(tmp_path / "b.parquet")


@pytest.mark.parametrize("name", ["diary.parquet", "diary.csv"])
def test_overwrite_replaces_shares_alone(name: str, corpus: Path, model: Path, tmp_path: Path) -> None:
    (tmp_path / name).write_text("document_id,mine")
    with pytest.raises(InputError):
        made_by(model, corpus, tmp_path / name, overwrite=True)
    assert (tmp_path / name).read_text() == "document_id,mine"


def test_csv_has_a_column_for_each_shown_topic(
    model: Path, drawn: Planted, tmp_path: Path, invoke: Command
) -> None:
    odd = write_named(tmp_path / "odd", drawn.counts, words(N))
    path = next(odd.glob("part-0*"))
    table = pq.read_table(path)
    for name, values in (("title", ["=2+3", 'a "b",\r\nc', None, *["é"] * 27]), ("tags", [["x"]] * 30)):
        column = pa.array(values)
        known = name in table.column_names
        table = table.set_column(4, name, column) if known else table.append_column(name, column)
    named = tmp_path / "named"
    write_model(named, read_model(model))
    TopicModel(named).label(3, "prices").merge([0, 2]).hide(1)
    pq.write_table(table, path)
    for other in odd.glob("part-[12]*"):
        other.unlink()
    out = tmp_path / "s.csv"
    made = invoke("transform", named, odd, out, "--workers", 1)
    assert (made.code, made.out) == (0, f"shares: {out} (30 documents, 1 without known words, 4 topics)\n")
    assert "'tags' is list" in made.err
    found, theta = pd.read_csv(out), expected(drawn)[:30]
    assert list(found) == ["document_id", "year", "title", "known_tokens", "topic_0", "topic_3_prices"]
    assert found["title"].tolist()[:2] == ["'=2+3", 'a "b",\r\nc']
    assert found["title"].isna().sum() == 1
    np.testing.assert_allclose(found["topic_0"], theta[:, 0] + theta[:, 2], rtol=1e-6)
    np.testing.assert_array_equal(found["topic_3_prices"].astype(np.float32), theta[:, 3].astype(np.float32))
    assert invoke("transform", named, odd, out, "--raw", "--overwrite").code == 0
    assert pd.read_csv(out)["title"][0] == "=2+3"
    assert invoke("transform", named, odd, tmp_path / "s.parquet", "--raw").code == 2
    with pytest.raises(InputError, match="not topic shares in Parquet or Zarr"):
        open_shares(out)
    # A spreadsheet writes them in another way; they are not texts, whose excerpts would be transformed again.
    found.to_csv(tmp_path / "again.csv", sep=";")
    assert invoke("documents", named, tmp_path / "again.csv", "--topic", 3).code == 2


def without_a_row(table: pa.Table) -> pa.Table:
    return table.slice(1)


def without_a_column(table: pa.Table) -> pa.Table:
    return table.drop_columns("title")


def with_another_title(table: pa.Table) -> pa.Table:
    return table.set_column(2, "title", pa.array([*table["title"].to_pylist()[:-1], "other"]))


@pytest.mark.parametrize("change", [without_a_row, without_a_column, with_another_title, None])
@pytest.mark.parametrize("name", ["s.parquet", "s"])
def test_a_changed_file_is_found(
    corpus: Path, model: Path, tmp_path: Path, invoke: Command, name: str, change: Any
) -> None:
    out = tmp_path / name
    made_by(model, corpus, out)
    assert invoke("info", out, "--verify").code == 0
    file = out if out.is_file() else out / "part-00000.parquet"
    if change is None:
        # A change of the footer alone, in its statistics.
        data = file.read_bytes()
        at = data.rindex(b"title ")
        file.write_bytes(data[:at] + b"T" + data[at + 1 :])
    else:
        pq.write_table(change(pq.read_table(file)), file)  # with its metadata
    refused(invoke("info", out, "--verify"), 3, f"{file} has ", "transform again")
    refused(invoke("documents", model, out), 3, f"{file} has ", "transform again")


def test_a_directory_of_other_parts_is_found(
    corpus: Path, model: Path, drawn: Planted, tmp_path: Path, invoke: Command
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    made_by(model, corpus, one)
    made_by(save_model(tmp_path / "other", drawn.word_topic[:, ::-1]), corpus, two)
    shutil.copy(two / "part-00000.parquet", one)
    refused(invoke("documents", model, one, "--topic", 1), 3, f"{one}/part-00000.parquet has sha256 ")
    # A part is no result.
    with pytest.raises(InputError, match="is a file, not topic shares"):
        documents_of_topic(model, two / "part-00000.parquet", 1)


@pytest.mark.parametrize("name", ["s.parquet", "s", "s.zarr"])
def test_changed_metadata_are_found(
    corpus: Path, model: Path, tmp_path: Path, invoke: Command, name: str
) -> None:
    out = tmp_path / name
    made_by(model, corpus, out)
    file = {"s.parquet": out, "s": out / "_shares.json", "s.zarr": out / "zarr.json"}[name]
    data = file.read_bytes()
    at = re.search(rb'"without_known_words": ?1', data)
    assert at is not None
    for flipped in (at.start(), at.end() - 1):  # no JSON, and another number
        file.write_bytes(data[:flipped] + bytes([data[flipped] ^ 2]) + data[flipped + 1 :])
        refused(invoke("documents", model, out), 3, str(out), "metadata are damaged", "transform again")
    version = re.search(rb'"format_version": ?3', data)
    assert version is not None
    file.write_bytes(data[: version.end() - 1] + b"1" + data[version.end() :])
    said = f"{out}: topic shares of format version 1, and this release reads 3; run transform again"
    refused(invoke("info", out), 2, said)
    refused(invoke("documents", model, out), 2, said)
    made_by(model, corpus, out, overwrite=True)
    assert file.read_bytes() == data


def test_bad_requests(corpus: Path, model: Path, tmp_path: Path, invoke: Command) -> None:
    for name, options, said in (
        ("s", ("--top", 5), "1 to 4"),
        ("s", ("--top", 0), "top is 0"),
        ("s", ("--memory", "1MB"), "--memory"),
        ("s.xlsx", (), "as .xlsx"),
    ):
        refused(invoke("transform", model, corpus, tmp_path / name, *options), 2, said)
        assert not list(tmp_path.iterdir())


def test_bad_corpora(model: Path, drawn: Planted, tmp_path: Path) -> None:
    for name in ("texts.txt", "texts.jsonl"):
        (tmp_path / name).write_text("one\ntwo\n")
    write_named(tmp_path / "strange", drawn.counts, [f"strange{i}" for i in range(N)])
    uneven, taken = (write_named(tmp_path / name, drawn.counts, words(N)) for name in ("uneven", "taken"))
    last = uneven / "part-2.parquet"
    pq.write_table(pq.read_table(last).drop(["title"]), last)
    for path in taken.glob("*.parquet"):
        pq.write_table(pq.read_table(path).rename_columns({"year": "topics"}), path)
    for name, said in (
        ("texts.txt", r"texts\.txt"),
        ("texts.jsonl", "ingest"),
        ("strange", "none of the 60 words"),
        ("uneven", r"part-2\.parquet has the metadata columns year"),
        ("taken", "'topics' has the name of a result"),
    ):
        with pytest.raises(InputError, match=said):
            made_by(model, tmp_path / name, tmp_path / "s")
        assert not list(tmp_path.glob("s*.partial"))
        assert not (tmp_path / "s").exists()
