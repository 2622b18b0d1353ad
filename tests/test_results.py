"""The same command twice is harmless; another one replaces nothing unless it is asked to."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streaming_jsmf as sj
from streaming_jsmf.corpus.format import read_manifest
from streaming_jsmf.errors import InputError, SettingsMismatchError, StoreError
from streaming_jsmf.jobs.checkpoints import PartialResult
from streaming_jsmf.jobs.workspace import Workspace
from streaming_jsmf.storage.results import UNIDENTIFIED, Found, identity_of_files
from tests.campaigns.kills import states
from tests.cases import first_cases
from tests.corpora import file_bytes, planted, words
from tests.outcomes import Command, Outcome, refused
from tests.results import INFER, SCAN, wanted_result, write_stores
from tests.test_own_texts import words_of

ALONE = ("--scheduler", "synchronous", "--quiet")
FIT = (*INFER, "--partition-nonzeros", "900", "--steps", "8", *ALONE)
INGEST = ("--preset", "papers", "--min-tokens", "1", *ALONE)


# -- whether a result is the one asked for ----------------------------------------------------------------------------


def test_something_else_and_damaged_metadata_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    for overwrite in (False, True):
        with pytest.raises(InputError, match="is not a result"):
            wanted_result(tmp_path / "t", {}, overwrite=overwrite).find()
    (tmp_path / "t" / "manifest.json").write_text("{")
    with pytest.raises(StoreError, match="is damaged"):
        wanted_result(tmp_path / "t", {}).find()
    wanted = wanted_result(tmp_path / "t", {}, overwrite=True)
    assert wanted.find() is Found.OTHER
    (tmp_path / "t" / "thesis.txt").touch()
    with pytest.raises(InputError, match=r"thesis\.txt: .* would be deleted"):
        wanted.find()


def test_files_are_identified_by_contents_or_if_they_are_large_by_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.csv"
    path.write_text("one")
    before = path.stat()

    def write(text: str, later: int) -> dict[str, Any]:
        path.write_text(text)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + later))
        return identity_of_files([str(path)])

    first = write("one", 0)
    assert write("one", 5) == first
    assert write("two", 0) != first
    monkeypatch.setattr("streaming_jsmf.storage.results.HASHED_BYTES", 2)
    large = write("one", 0)
    assert write("one", 5) != large
    assert write("one", 0) == large
    assert identity_of_files([str(path), str(path)]) == large


# -- the same command twice -------------------------------------------------------------------------------------------

#: Commands, and options of another request for the same result.
TWICE: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "ingest": (("ingest", "texts.jsonl", "out", *INGEST), ("--min-tokens", "2")),
    "simulate": (
        ("simulate", "out", "--documents", "90", "--vocabulary-size", "40", "--topics", "3", *ALONE),
        ("--seed", "5"),
    ),
    "scan": (("scan", "a", "out", *SCAN, "--quiet"), ("--seed", "5")),
    "infer": (("infer", "m", "out", *INFER), ("--rectify", "none")),
    "infer several": (("infer", "m", "out", "--topics", "2,3"), ("--rectify", "none")),
    "polish": (("polish", "model", "a", "out", "--steps", "8", *ALONE), ("--seed", "5")),
    "fit": (("fit", "texts.jsonl", "out", *FIT, "--preset", "papers"), ("--rectify", "none")),
    "transform file": (("transform", "model", "a", "out.parquet", *ALONE), ("--top", "2")),
    "transform directory": (("transform", "model", "a", "out", *ALONE), ("--top", "2")),
    "transform zarr": (("transform", "model", "a", "out.zarr", *ALONE), ("--top", "2")),
    "transform csv": (("transform", "model", "a", "out.csv", *ALONE), ("--top", "2")),
    "transform texts": (("transform", "fitted", "texts.jsonl", "out", *ALONE), ("--top", "2")),
    "report": (("report", "model", "out.html"), ("--words", "4")),
    "documents": (("documents", "model", "s.parquet", "--topic", "1", "--out", "out.csv"), ("--number", "3")),
    "documents file": (
        ("documents", "model", "s.parquet", "--topic", "1", "--out", "out.parquet"),
        ("--number", "3"),
    ),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_stores(tmp_path_factory.mktemp("made"))
    sj.transform(folder / "model", folder / "a", folder / "s.parquet")
    sj.fit(folder / "texts.jsonl", folder / "fitted", 3, preset="papers", anchor_min_df=2, polish=False)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made, tmp_path / "f")
    monkeypatch.chdir(tmp_path / "f")
    return tmp_path / "f"


@pytest.mark.parametrize("name", first_cases(TWICE, 8))
def test_the_same_command_twice_changes_nothing(name: str, folder: Path, invoke: Command) -> None:
    command, other = TWICE[name]
    first = invoke(*command)
    assert first.code == 0, first.err
    before = {path.name for path in folder.iterdir()}
    kept = file_bytes(folder)
    for more in ((), ("--overwrite",) if name != "scan" else ()):
        again = invoke(*command, *more)
        assert (again.code, again.out) == (0, first.out), again.err
        assert file_bytes(folder) == kept
    assert {path.name for path in folder.iterdir()} == before
    last = refusal(invoke(*command, *other))
    refused(last, 2, "exists already", "overwrite")
    assert file_bytes(folder) == kept
    replaced = invoke(*command, *other, "--overwrite")
    assert replaced.code == 0, replaced.err
    assert file_bytes(folder) != kept
    assert {path.name for path in folder.iterdir()} == before


def refusal(outcome: Outcome) -> Outcome:
    """The last line, since ``documents`` first says which topic it answers for."""
    return replace(outcome, err=outcome.err.splitlines()[-1])


@pytest.mark.parametrize("name", ["ingest", "infer", "transform directory", "transform zarr", "fit"])
def test_a_damaged_result_is_made_again(name: str, folder: Path, invoke: Command) -> None:
    command, _ = TWICE[name]
    assert invoke(*command).code == 0
    whole = arrays(folder)
    found = [*folder.glob("out*/part-00000.parquet"), *folder.glob("out/documents/*.parquet")]
    damaged = (found or [*folder.glob("out*/topic_shares/c/0/0"), *folder.glob("out/word_topic/c/0/0")])[0]
    damaged.write_bytes(damaged.read_bytes()[:-9])
    again = invoke(*command)
    assert again.code == 0, again.err
    assert "is made again" in again.err
    assert arrays(folder) == whole


def arrays(folder: Path) -> dict[str, bytes]:
    return {name: data for name, data in file_bytes(folder).items() if not name.endswith(".json")}


def test_a_model_made_again_keeps_its_edits(folder: Path) -> None:
    model = sj.TopicModel(folder / "model")
    model.label(0, "name")
    chunk = next(path for path in (folder / "model" / "word_topic" / "c").rglob("*") if path.is_file())
    chunk.write_bytes(b"")
    sj.infer(folder / "m", folder / "model", 3, anchor_min_df=2.0)
    assert model.edits.labels == {0: "name"}


def test_polish_in_place_twice_is_polish_once(folder: Path, invoke: Command) -> None:
    command = ("polish", "model", "a", "model", "--steps", "8", "--overwrite", *ALONE)
    assert invoke(*command).code == 0
    before = states(folder)
    assert invoke(*command).code == 0
    assert states(folder) == before


def test_a_corpus_of_the_same_matrix_is_left_as_it_is(tmp_path: Path) -> None:
    counts = planted(30, 9, 3).counts
    sj.corpus_from_matrix(counts, words(9), tmp_path / "c")
    before = states(tmp_path)
    assert sj.corpus_from_matrix(counts, words(9), tmp_path / "c").n_documents == 30
    assert file_bytes(tmp_path).keys() == {
        str(path.relative_to(tmp_path)) for path, _ in before if path.is_file()
    }
    with pytest.raises(InputError, match="c: exists already"):
        sj.corpus_from_matrix(counts[1:], words(9), tmp_path / "c")


@pytest.mark.parametrize("min_tokens", [1, 2])
def test_a_corpus_with_a_shard_of_the_user_is_neither_used_nor_replaced(
    min_tokens: int, tmp_path: Path
) -> None:
    def ingest(min_tokens: int) -> Any:
        texts = [f"some words of text {i}" for i in range(9)]
        return sj.ingest(texts, tmp_path / "c", preset="papers", min_tokens=min_tokens, overwrite=True)

    ingest(1)
    shards = tmp_path / "c" / "documents"
    shutil.copy(next(shards.iterdir()), shards / "mine.parquet")
    before = states(tmp_path)
    with pytest.raises(InputError, match=r"mine\.parquet is not in manifest\.json; move it away"):
        ingest(min_tokens)
    assert states(tmp_path) == before


# -- what a request depends on ----------------------------------------------------------------------------------------


def test_new_stop_words_are_noticed(folder: Path, invoke: Command) -> None:
    stop = folder / "stop.txt"
    fit = ("fit", "texts.jsonl", "out", *FIT, "--preset", "papers", "--stop-words", stop)
    stop.write_text("worda\n")
    assert invoke(*fit).code == 0
    assert {"wordb"} <= words_of(folder / "out.corpus") - {"worda"}
    stop.write_text("worda\nwordb\n")
    refused(invoke(*fit), 2, "out.corpus: exists already", "(the stop words are others; fingerprint")
    assert invoke(*fit, "--overwrite").code == 0
    assert not {"worda", "wordb"} & words_of(folder / "out.corpus")
    assert "wordb" not in sj.open_model("out").coords["word"].values


@pytest.mark.parametrize("overwrite", [True, "auto"])
def test_an_edit_of_the_source_that_keeps_its_size_is_noticed(folder: Path, overwrite: Any) -> None:
    source = folder / "texts.jsonl"
    kept = source.stat()

    def fit() -> set[str]:
        sj.fit(source, folder / "out", 3, preset="papers", polish=False, anchor_min_df=2, overwrite=overwrite)
        return words_of(folder / "out.corpus")

    assert "olive" in fit()
    source.write_text(source.read_text().replace("olive", "melon"))
    os.utime(source, ns=(kept.st_atime_ns, kept.st_mtime_ns))
    assert "melon" in fit()


TOKENIZER = "def split(text):\n    return text.split()\n"


def test_another_tokenizer_is_noticed(folder: Path, invoke: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    module = folder / "own_words.py"
    module.write_text(TOKENIZER)
    monkeypatch.syspath_prepend(folder)
    ingest = ("ingest", "texts.jsonl", "out", *INGEST, "--tokenizer", "own_words:split")
    assert invoke(*ingest).code == 0
    assert invoke(*ingest).code == 0
    module.write_text(TOKENIZER.replace("text.split", "text.upper().split"))
    refused(invoke(*ingest), 2, "own_words.py has changed since it was imported")


def test_files_that_cannot_be_identified_are_read_again(
    folder: Path, invoke: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming_jsmf.storage.results.state_of", lambda _: None)
    memory = fsspec.filesystem("memory")
    url = f"memory://{folder.parent.name}/texts.jsonl"
    memory.pipe_file(url, (folder / "texts.jsonl").read_bytes())
    ingest = ("ingest", url, "out", *INGEST)
    assert invoke(*ingest).code == 0
    assert read_manifest(folder / "out").request[UNIDENTIFIED] == [url]
    memory.pipe_file(url, (folder / "texts.jsonl").read_bytes().replace(b"olive", b"melon"))
    again = invoke(*ingest)
    assert again.code == 0, again.err
    assert f"whether {url} has changed is unknown; {folder / 'out'} is made again" in again.err
    assert "melon" in words_of(folder / "out")


def test_shares_of_files_that_cannot_be_identified_are_not_stale(
    folder: Path, invoke: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming_jsmf.storage.results.state_of", lambda _: None)
    memory = fsspec.filesystem("memory")
    url = f"memory://{folder.parent.name}/new.jsonl"
    memory.pipe_file(url, (folder / "texts.jsonl").read_bytes())
    transform = ("transform", "fitted", url, "out", *ALONE)
    for _ in range(2):
        assert invoke(*transform).code == 0
    assert not (folder / "out.corpus").exists()
    kept = file_bytes(folder / "out")
    memory.pipe_file(url, (folder / "texts.jsonl").read_bytes().replace(b"worda", b"wordb"))
    refused(refusal(invoke(*transform)), 2, "out: exists already")
    assert file_bytes(folder / "out") == kept
    assert invoke(*transform, "--overwrite").code == 0
    assert file_bytes(folder / "out") != kept


def test_unfinished_work_on_unidentified_files_is_not_resumed(tmp_path: Path) -> None:
    work = Workspace(tmp_path / "w", "test", {"a": 1, UNIDENTIFIED: ["http://x"]})
    work.start()
    work.checkpoints().commit_part("00000", PartialResult({}), {})
    work.start()
    assert not work.steps_done


def test_data_in_memory_are_identified_by_their_contents(folder: Path) -> None:
    texts = [f"some words of text {i % 7} and {i % 5} of them" for i in range(60)]

    def ingest(texts: Any, **options: Any) -> Any:
        return sj.ingest(texts, folder / "out", preset="papers", min_tokens=1, **options)

    first = ingest(texts)
    before = file_bytes(folder / "out")
    assert ingest(iter(texts)).fingerprint == first.fingerprint
    assert file_bytes(folder / "out") == before
    with pytest.raises(SettingsMismatchError, match="files"):
        ingest(texts[1:])
    assert ingest(texts[1:], overwrite=True).n_documents == 59


def test_unfinished_work_of_another_request_goes_with_overwrite(folder: Path) -> None:
    work = Workspace.beside(folder / "out", "ingest", {"a": 1})
    work.start()
    work.checkpoints().commit_part("00000", PartialResult({}), {})
    with pytest.raises(SettingsMismatchError, match=r"out\.partial holds an unfinished ingest"):
        sj.ingest(folder / "texts.jsonl", folder / "out", preset="papers")
    sj.ingest(folder / "texts.jsonl", folder / "out", preset="papers", overwrite=True)
    assert not work.root.exists()


# -- what is not replaced, deleted or left behind ---------------------------------------------------------------------


def test_only_tables_of_ours_are_replaced(folder: Path, invoke: Command) -> None:
    pq.write_table(pa.table({"document_id": [1]}), folder / "mine.parquet")
    (folder / "mine.csv").write_text("document_id,score\n1,2\n")
    line = ("documents", "model", "s.parquet", "--topic", "1", "--overwrite", "--out")
    before = states(folder)
    shard = next((folder / "a").glob("*.parquet"))
    assert shard.is_file()
    for target in ("s.parquet", shard, "mine.parquet", "mine.csv"):
        refused(refusal(invoke(*line, target)), 2, f"{target}: is not a table that this command wrote")
    assert states(folder) == before
    for target in ("t.parquet", "t.csv"):
        for number in ("3", "4"):
            assert invoke(*line, target, "--number", number).code == 0
        # One with other columns is not ours as far as can be told.
        by = ("documents", "model", "s.parquet", "--overwrite", "--out", target)
        assert invoke(*by).code == (0 if target.endswith("parquet") else 2)


def test_a_file_of_the_user_in_a_replaced_directory_is_not_deleted(folder: Path, invoke: Command) -> None:
    for name in ("ingest", "transform directory", "infer", "scan", "transform zarr", "simulate"):
        command, other = TWICE[name]
        assert invoke(*command).code == 0
        [target] = folder.glob("out*")
        (target / "thesis.txt").write_text("mine")
        refused(invoke(*command, *other, "--overwrite"), 2, "thesis.txt", "move it away")
        assert (target / "thesis.txt").read_text() == "mine"
        assert invoke(*command).code == 0, "the same request replaces nothing"
        shutil.rmtree(target)


@pytest.mark.parametrize("curation", [{"min_dff": 1}, {"vocabulary_size": -3}, {"stop_words": 7}])
def test_a_call_that_fails_leaves_the_work_of_another_process(folder: Path, curation: Any) -> None:
    work = Workspace.beside(folder / "out", "ingest", {"of": "another process"})
    work.start()
    work.checkpoints().commit_part("00000", PartialResult({}), {})
    before = states(folder)
    with pytest.raises(InputError) as caught:
        sj.ingest(["some text"] * 9, folder / "out", sj.IngestRequest(curation=curation))
    assert "\n" not in str(caught.value)
    assert states(folder) == before


def test_a_killed_writer_of_a_corpus_leaves_nothing_that_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = planted(30, 9, 3).counts

    class Killed(BaseException):
        pass

    def die(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", die)
        patch.setattr("streaming_jsmf.corpus.write.put_in_place", die)
        with pytest.raises(Killed):
            sj.corpus_from_matrix(counts, words(9), tmp_path / "c")
    assert [path.name for path in tmp_path.iterdir()] == [".c.new"]
    sj.corpus_from_matrix(counts, words(9), tmp_path / "c")
    assert [path.name for path in tmp_path.iterdir()] == ["c"]
