"""After any history, a corpus that follows its source is that of one ingest of the present files with its words."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st

import streaming_jsmf as sj
from streaming_jsmf.config import IngestRequest
from streaming_jsmf.corpus import Corpus, open_corpus
from streaming_jsmf.corpus.format import read_manifest, verify_corpus
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.grow import grow_corpus
from streaming_jsmf.ingestion.ingest import ingest
from streaming_jsmf.jobs.events import silent
from streaming_jsmf.storage.paths import store_path
from streaming_jsmf.storage.tables import read_table
from tests.corpora import bags_of, rows_of
from tests.outcomes import called, refused
from tests.stores import SYNCHRONOUS
from tests.test_own_texts import SUBJECTS

#: Id, a note, and the text.
Row = tuple[str, str, str]

WORDS = [f"w{letter * 3}" for letter in "abcdefgh"]
TEXTS = [*(" ".join(WORDS[i : i + 1 + i % 3]) for i in range(8)), "", "unknown words", "waaa unknown"]

#: Has each word, and stays.
BASE = {"base.csv": [(f"z{i}", "", " ".join(WORDS[: 2 + i])) for i in range(7)]}

KEPT: Mapping[str, Any] = {"stop_words": "none", "min_tokens": 0, "min_distinct_words": 1}
RULES: Mapping[str, Any] = {"min_document_frequency": 1, "max_document_frequency": 99, **KEPT}


def write_files(folder: Path, files: Mapping[str, Sequence[Row]]) -> Path:
    """Make these the files of a folder, which has no others."""
    for path in [path for path in folder.rglob("*.csv") if path.relative_to(folder).as_posix() not in files]:
        path.unlink()
    for name, rows in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with (folder / name).open("w", newline="") as file:
            csv.writer(file).writerows([("id", "note", "text"), *rows])
    return folder


class Growing:
    """A corpus that follows a folder of CSV files."""

    def __init__(self, folder: Path, *, ids: bool = True, duplicates: str = "drop", **read: Any) -> None:
        self.source, self.place, self.kept = folder / "in", folder / "c", {**KEPT, "duplicates": duplicates}
        self.read = {"text": ("text",), "id": "id" if ids else "none", **read}
        self.ids, self._number = ids, 0

    def made(self, files: Mapping[str, Sequence[Row]]) -> Growing:
        """Make the corpus of these files, and of ``BASE``."""
        write_files(self.source, {**BASE, **files})
        rules = {**RULES, **self.kept}
        request = IngestRequest(
            options=self.read, curation=rules, tokens_per_shard=9, max_dropped=1, made_for="fit"
        )
        ingest(self.source, self.place, request, SYNCHRONOUS)
        return self

    def grow(self, source: Any = None, **options: Any) -> Corpus:
        source = self.source if source is None else source
        return grow_corpus(source, store_path(self.place), None, SYNCHRONOUS, silent, **options)

    def becomes(self, files: Mapping[str, Sequence[Row]]) -> Corpus:
        """Follow the folder, and compare the corpus with a new one; following it again changes nothing."""
        write_files(self.source, {**BASE, **files})
        corpus = self.grow(vanished="remove", since=open_corpus(self.place).fingerprint)
        verify_corpus(corpus)
        self._number += 1
        request = IngestRequest(
            options=self.read, curation=self.kept, vocabulary=str(self.place), max_dropped=1
        )
        fresh = ingest(self.source, self.place.with_name(f"fresh{self._number}"), request, SYNCHRONOUS)
        assert self.documents(corpus, corpus) == self.documents(fresh, corpus)
        words, others = corpus.vocabulary(), fresh.vocabulary()
        assert words.term_count.tolist() == others.term_count.tolist()
        assert words.document_frequency.tolist() == others.document_frequency.tolist()
        manifest = read_manifest(self.place)
        for what, kept in (("documents", manifest.totals.documents), ("tokens", manifest.totals.tokens)):
            lost = sum(getattr(step, what) for step in manifest.dropped)
            assert manifest.settings[f"{what}_read"] == kept + lost
        self.grow(since=corpus.fingerprint)
        assert read_manifest(self.place) == manifest
        return corpus

    def documents(self, corpus: Corpus, like: Corpus) -> list[str]:
        """All documents with the metadata that another corpus has; numbers differ."""
        names = [name for name in like.schema().names if self.ids or name != "document_id"]
        return sorted(str([row.get(name) for name in names]) for row in rows_of(corpus))


FILES = st.sampled_from(["a.csv", "b.csv", "in/c.csv", "year=1/d.csv", "year=2/e.csv"])
CONTENTS = st.lists(
    st.tuples(st.sampled_from([f"i{i}" for i in range(6)]), st.sampled_from("xy"), st.sampled_from(TEXTS)),
    max_size=4,
    unique_by=lambda row: row[0],
)


@pytest.mark.slow
@settings(max_examples=6)
@given(
    contents=st.lists(CONTENTS, min_size=4, max_size=4),
    # Few contents, so that files are edited, moved, swapped and copied, together.
    history=st.lists(st.dictionaries(FILES, st.integers(0, 3), max_size=5), min_size=3, max_size=4),
    how=st.fixed_dictionaries(
        {
            "ids": st.sampled_from([True, True, False]),
            "duplicates": st.sampled_from(["drop", "keep"]),
            "split": st.sampled_from([None, 2]),
        }
    ),
)
def test_any_history_is_one_ingest_of_the_present_files(
    contents: list[list[Row]],
    history: list[dict[str, int]],
    how: dict[str, Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    states = [{name: contents[number] for name, number in state.items()} for state in history]
    growing = Growing(tmp_path_factory.mktemp("history"), **how).made(states[0])
    for state in states[1:]:
        growing.becomes(state)


def rows(ids: Iterable[object], note: str, text: str = "waaa wbbb") -> list[Row]:
    """Rows with different texts."""
    return [(f"{key}", note, f"{text} {WORDS[i % 8]} " * (i + 2)) for i, key in enumerate(ids)]


def notes(corpus: Corpus) -> dict[str, str]:
    return {row["document_id"]: row["note"] for row in rows_of(corpus) if row["note"]}


def test_the_last_file_wins_until_it_goes(tmp_path: Path) -> None:
    old, new, edited = rows("xyz", "old"), rows("xyz", "new", "wccc"), rows("xyz", "edited", "wddd")
    growing = Growing(tmp_path).made({"day1.csv": old})
    for day1, expected in ((old, "new"), (edited, "new")):
        assert notes(growing.becomes({"day1.csv": day1, "day2.csv": new})) == dict.fromkeys("xyz", expected)
    table = read_table(growing.place / "files.arrow").to_pylist()
    assert {Path(row["path"]).name: row["documents"] for row in table} == {
        "base.csv": 7,
        "day1.csv": 0,
        "day2.csv": 3,
    }
    fewer = {"day1.csv": edited, "day2.csv": new[:1]}
    assert notes(growing.becomes(fewer)) == {"x": "new", "y": "edited", "z": "edited"}
    assert notes(growing.becomes({"day1.csv": edited})) == dict.fromkeys("xyz", "edited")
    settings = read_manifest(growing.place).settings
    assert (settings["documents_changed"], settings["files_removed"]) == (1, 1)


def test_a_text_comes_back_when_its_copy_goes(tmp_path: Path) -> None:
    """Also if the copy stays out because of its id: a chain of two."""
    first, copy = [("b", "first", "weee wggg")], [("a", "copy", "weee wggg")]
    growing = Growing(tmp_path).made({"1.csv": first})
    assert len(notes(growing.becomes({"1.csv": first, "2.csv": copy}))) == 1
    files = {"1.csv": first, "2.csv": copy, "3.csv": [("a", "other", "wccc whhh")]}
    assert notes(growing.becomes(files)) == {"a": "other", "b": "first"}


@pytest.mark.parametrize("ids", [True, False])
def test_equal_files_that_are_moved_count_once(ids: bool, tmp_path: Path) -> None:
    one = rows("ab", "one")
    growing = Growing(tmp_path, ids=ids, duplicates="keep").made({"a.csv": one, "b.csv": one})
    corpus = growing.becomes({"c.csv": one, "d.csv": one})
    assert corpus.n_documents == 7 + (2 if ids else 4)
    assert read_manifest(growing.place).settings.get("documents_added", 0) == 0


def test_an_interrupted_update_of_files_that_were_swapped_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = rows("xy", "old"), rows("xy", "new", "wccc")
    growing = Growing(tmp_path).made({"day1.csv": old, "day2.csv": new})
    write_files(growing.source, {**BASE, "day1.csv": new, "day2.csv": old})

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("streaming_jsmf.ingestion.revision.finish_directory", killed)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                growing.grow()
    assert notes(growing.becomes({"day1.csv": new, "day2.csv": old})) == dict.fromkeys("xy", "old")


def test_a_passage_of_a_replaced_document_does_not_stay(tmp_path: Path) -> None:
    growing = Growing(tmp_path, split=2).made({"a.csv": [("x", "old", "waaa wbbb wccc wddd weee wfff")]})
    files = {"a.csv": [("x", "old", "waaa wbbb wccc wddd weee wfff")], "b.csv": [("x", "new", "whhh")]}
    assert notes(growing.becomes(files)) == {"x/1": "new"}


def test_data_in_memory_come_after_the_files_and_cannot_come_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    growing = Growing(tmp_path).made({"a.csv": rows("xy", "file")})
    tables = [
        pa.table(dict(zip(("id", "note", "text"), zip(*rows("x", note, text), strict=True), strict=True)))
        for note, text in (("first", "wccc"), ("second", "wddd"))
    ]
    growing.grow(tables[0])
    assert notes(growing.grow(tables[1])) == {"x": "second", "y": "file"}
    # Its file changes, but is not the last that has the id.
    write_files(growing.source, {**BASE, "a.csv": rows("xy", "edited", "weee")})
    assert notes(growing.grow()) == {"x": "second", "y": "edited"}
    other = write_files(tmp_path / "other", {"c.csv": rows("x", "third", "wfff")})
    assert notes(growing.grow(other))["x"] == "third"
    write_files(other, {"d.csv": rows("q", "fourth")})
    assert "x" not in {key for key, note in notes(growing.grow(other)).items() if note == "third"}
    assert "1 document" in caplog.text
    assert notes(growing.grow(tables[1]))["x"] == "second"


def test_equal_documents_have_the_same_words_whatever_their_numbers(tmp_path: Path) -> None:
    """Of sources of counts, whose lists of words differ in their order."""

    def counts(name: str, words: str, *rows: list[int]) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        scipy.sparse.save_npz(folder / "a.npz", scipy.sparse.csr_array(np.array(rows)))
        (folder / "a.vocab.txt").write_text("\n".join(words) + "\n")
        return folder

    request = IngestRequest(curation={**KEPT, "duplicates": "drop"}, made_for="fit")
    place = tmp_path / "c"
    ingest(counts("first", "abc", [2, 1, 0], [0, 0, 3]), place, request, SYNCHRONOUS)
    other = counts("other", "bac", [1, 2, 0], [2, 1, 0])
    corpus = grow_corpus(other, store_path(place), None, SYNCHRONOUS, silent)
    assert [*bags_of(corpus).values()] == [{"a": 2, "b": 1}, {"c": 3}, {"b": 2, "a": 1}]


def test_bad_records_of_all_updates_are_kept(tmp_path: Path) -> None:
    growing = Growing(tmp_path).made({})
    request = IngestRequest(on_bad_record="quarantine")
    for number, line in enumerate(("a,b,c,d\n", "p,q\n" + "ok,n,waaa\n", "ok2,n,wbbb\nok2,n,wccc\n")):
        (growing.source / f"bad{number}.csv").write_text(f"id,note,text\n{line}")
        grow_corpus(growing.source, store_path(growing.place), request, SYNCHRONOUS, silent)
        found = pq.read_table(growing.place / "quarantine.parquet").column("file").to_pylist()
        assert [Path(path).name for path in found] == [f"bad{i}.csv" for i in range(number + 1)]
    manifest = read_manifest(growing.place)
    lost = sum(step.documents for step in manifest.dropped)
    assert manifest.settings["documents_read"] == manifest.totals.documents + lost == 9 + 3
    assert {"ok", "ok2"} <= {*bags_of(open_corpus(growing.place))}


# -- the command line -------------------------------------------------------------------------------------------------


def texts(n: int, key: str = "x", shift: int = 0) -> list[Row]:
    """Texts of one subject each."""
    draw, subjects = random.Random(key), [text.split() for text in SUBJECTS.values()]
    return [
        (f"{key}{i}", f"{shift}", " ".join(draw.choices(subjects[(i + shift) % len(subjects)], k=24)))
        for i in range(n)
    ]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of a folder whose ids were guessed."""
    folder = tmp_path_factory.mktemp("model")
    write_files(folder / "in", {"day1.csv": texts(20), "other.csv": texts(40, "y", 1)})
    options = {"text": "text", "stop_words": "none", "max_df": 1.0, "execution": SYNCHRONOUS}
    sj.fit(folder / "in", folder / "m", 3, **options)
    return folder


def updated(folder: Path, *options: str) -> dict[str, Any]:
    line = ("update", folder / "m", folder / "in", "--scheduler", "synchronous", "--json", *options)
    found: dict[str, Any] = json.loads(called(*line).out)
    return found


def test_an_unchanged_source_changes_nothing(model: Path) -> None:
    write_files(model / "in", {"day1.csv": texts(20), "other.csv": texts(40, "y", 1)})
    updated(model)
    write_files(
        model / "in", {"day1.csv": texts(20), "day2.csv": texts(20, "x", 2), "other.csv": texts(40, "y", 1)}
    )
    found = updated(model)
    assert (found["changed"], found["files_added"], found["documents_changed"]) == (True, 1, 20)
    assert not any(updated(model)["changed"] for _ in range(2))
    assert {row["note"] for row in rows_of(open_corpus(model / "m.corpus"))} == {1, 2}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("note,text\n0,{}\n1,{}\n", "new.csv: there is no column 'id'"),
        ("id,note,text\nq,0,{}\nq,1,{}\n", "new.csv, line 3: its document id is that of an earlier document"),
        ("id,note,text\nq,0,{}\n,1,{}\n", "new.csv, line 3: id is empty"),
    ],
)
def test_guessed_ids_are_certain_once_a_corpus_has_them(model: Path, text: str, said: str) -> None:
    write_files(model / "in", {"day1.csv": texts(20), "other.csv": texts(40, "y", 1)})
    updated(model)
    before = read_manifest(model / "m.corpus").totals
    (model / "in" / "new.csv").write_text(text.format(*(each for _, _, each in texts(2, shift=2))))
    line = ("update", model / "m", model / "in", "--scheduler", "synchronous", "--quiet")
    refused(called(*line), 2, said, "--on-bad-record quarantine")
    assert read_manifest(model / "m.corpus").totals == before
    assert called(*line, "--on-bad-record", "quarantine").code == 0
    found = open_corpus(model / "m.corpus")
    assert found.n_documents == before.documents + ("q" in text)
    assert said.split(": ")[1] in str(pq.read_table(model / "m.corpus" / "quarantine.parquet")["reason"])


def test_a_source_without_files(tmp_path: Path) -> None:
    growing = Growing(tmp_path).made({})
    other = write_files(tmp_path / "other", {"a.csv": rows("x", "other")})
    growing.grow(other)
    (other / "a.csv").unlink()
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"there are no files at .*empty"):
        growing.grow(tmp_path / "empty", vanished="remove")
    assert growing.grow(other, vanished="remove").n_documents == 7
    (growing.source / "base.csv").unlink()
    (growing.source / "README.md").write_text("about\n")
    with pytest.raises(InputError, match="vanished='remove'"):
        growing.grow()
    with pytest.raises(InputError, match="no document would be left; remove the corpus instead"):
        growing.grow(vanished="remove")
    (growing.source / "README.md").unlink()
    growing.source.rmdir()
    # A disk may be missing.
    with pytest.raises(InputError, match="no such file or directory"):
        growing.grow(vanished="remove")
    assert open_corpus(growing.place).n_documents == 7


def test_objects_that_are_listed_and_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    growing = Growing(tmp_path).made({})
    root = "memory://answers-404"
    for name in BASE:
        fsspec.filesystem("memory").pipe(f"{root}/{name}", (growing.source / name).read_bytes())
    growing.grow(root)

    def not_found(*_: Any, **__: Any) -> Any:
        raise FileNotFoundError("404")

    for read in ("_open", "cat_file"):
        monkeypatch.setattr(MemoryFileSystem, read, not_found)
    with pytest.raises(InputError, match=r"base\.csv: it is listed, but not found when it is opened"):
        growing.grow(root, vanished="remove")
