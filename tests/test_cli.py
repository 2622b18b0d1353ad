"""The command line as a user meets it: what it prints, its exit codes, and what it leaves on the disk."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from streaming_jsmf.cli.main import run
from streaming_jsmf.corpus.units import Partition
from streaming_jsmf.errors import InputError
from streaming_jsmf.jobs import run as jobs_run
from streaming_jsmf.jobs import tasks
from streaming_jsmf.jobs.checkpoints import Checkpoints, PartialResult
from streaming_jsmf.moments.stages.range import RangeReduction
from streaming_jsmf.moments.store import read_store
from streaming_jsmf.topics.store import read_model
from tests import outcomes
from tests.cases import each_once
from tests.corpora import as_lists, planted, words, write_corpus, write_lists
from tests.damage import SOME, Damage
from tests.outcomes import Command, Outcome
from tests.processes import PATIENCE, ended, started, wait_for
from tests.processes import command as process

#: A scan of several partitions in one thread of this process.
SCAN = ("--partition-nonzeros", "1200", "--scheduler", "synchronous")
SMALL_SCAN = ("--max-topics", "5", *SCAN)

N_WORDS = 40


@pytest.fixture
def command(invoke: Command) -> Command:
    """Run the command line in this process, without a word on how far it is."""
    return lambda *arguments: invoke(*arguments).without_progress()


def external(*arguments: object) -> Outcome:
    """Run the command line as a process of its own."""
    return ended(process(*arguments))


def listing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@dataclass(frozen=True)
class Refusals:
    """Runs a command that must fail, and compares the folder it works in before and after."""

    command: Command
    folder: Path

    def __call__(self, arguments: Sequence[object], *named: str, code: int = 2) -> None:
        before = listing(self.folder)
        outcomes.refused(self.command(*arguments), code, *named)
        assert listing(self.folder) == before


@pytest.fixture
def refused(command: Command, tmp_path: Path) -> Refusals:
    return Refusals(command, tmp_path)


@pytest.fixture(scope="module")
def counts() -> NDArray[np.int64]:
    """150 documents of 5 separable topics over 40 words."""
    return planted(150, N_WORDS, 5, length=40, seed=3).counts


@pytest.fixture(scope="module")
def corpus(counts: NDArray[np.int64], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("cli") / "corpus", counts, row_group_rows=25)


@pytest.fixture(scope="module")
def many_documents(counts: NDArray[np.int64], corpus: Path) -> Path:
    """1,200 documents in 120 row groups, to be interrupted in."""
    return write_corpus(corpus.parent / "many", np.vstack([counts] * 8), shards=4, row_group_rows=10)


@pytest.fixture(scope="module")
def made_moments(corpus: Path) -> Path:
    path = corpus.parent / "moments"
    assert run(["scan", str(corpus), str(path), *SMALL_SCAN]) == 0
    return path


@pytest.fixture(scope="module")
def made_model(made_moments: Path) -> Path:
    path = made_moments.parent / "model"
    assert run(["infer", str(made_moments), str(path), "--topics", "5"]) == 0
    return path


@pytest.fixture
def moments(made_moments: Path, tmp_path: Path) -> Path:
    """A complete moments store to spoil."""
    return shutil.copytree(made_moments, tmp_path / "moments")


@pytest.fixture
def unfinished(moments: Path) -> Path:
    """The same without its last stage."""
    shutil.rmtree(moments / "records" / "projection")
    return moments


@pytest.fixture
def model(made_model: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made_model, tmp_path / "model")


# --- what is asked for is done


def test_scan_infer_topics(corpus: Path, command: Command, tmp_path: Path) -> None:
    scanned = command("scan", corpus, tmp_path / "m", *SMALL_SCAN)
    assert (scanned.code, scanned.out, scanned.err) == (0, f"moments: {tmp_path / 'm'}\n", "")
    inferred = command("infer", tmp_path / "m", tmp_path / "model", "--topics", "5")
    assert (inferred.code, inferred.err) == (0, "")
    assert inferred.out.startswith(f"model: {tmp_path / 'model'}\n")
    assert command("topics", tmp_path / "model").out == inferred.out
    assert sorted(listing(tmp_path))[0] == "m", "nothing hidden is left"


def test_topics_as_a_table_as_csv_and_as_json(made_model: Path, command: Command) -> None:
    model = read_model(made_model)
    rows = json.loads(command("topics", made_model, "--json", "--words", "4").out)
    assert [row["topic"] for row in rows] == list(range(5))
    assert sum(row["probability"] for row in rows) == pytest.approx(1)
    table = command("topics", made_model, "--words", "4", "--characteristic").out
    for row in rows:
        assert len(row["prominent"]) == len(row["characteristic"]) == 4
        assert f"{row['topic']:>5} {row['probability']:>6.1%}  {', '.join(row['label'])}" in table
        assert f"{' ' * 14}{', '.join(row['prominent'])}\n" in table
        assert f"with {row['anchor']}: {', '.join(row['characteristic'])}" in table
        ids = model.arrays["prominent_words"][row["topic"], :4]
        assert row["probabilities"] == model.arrays["word_topic"][ids, row["topic"]].tolist()
    lines = list(
        csv.DictReader(
            command("topics", made_model, "--csv", "--words", "4", "--sort", "topic").out.splitlines()
        )
    )
    for line, row in zip(lines, rows, strict=True):
        assert (int(line["topic"]), float(line["share"])) == (row["topic"], row["probability"])
        assert (line["anchor"], line["words"]) == (row["anchor"], ", ".join(row["prominent"]))
        assert line["characteristic"].startswith(", ".join(row["characteristic"]))
        assert line["label"] == ", ".join(row["label"])
    outcomes.refused(command("topics", made_model, "--csv", "--json"), 2, "--csv and --json")
    outcomes.refused(command("topics", made_model, "--words", "0"), 2, "--words is 0")


def test_topics_are_sorted_by_share_unless_json_or_told_otherwise(made_model: Path, command: Command) -> None:
    shares = read_model(made_model).arrays["topic_probability"]
    by_share = np.argsort(-shares, kind="stable").tolist()
    assert by_share != list(range(5))
    table = re.findall(r"^ +(\d+) +[\d.]+%", command("topics", made_model).out, re.MULTILINE)
    lines = csv.DictReader(command("topics", made_model, "--csv").out.splitlines())
    rows = json.loads(command("topics", made_model, "--json", "--sort", "share").out)
    assert [int(number) for number in table] == [int(line["topic"]) for line in lines] == by_share
    assert [row["topic"] for row in rows] == by_share


def test_the_table_of_topics_fits_80_columns_and_keeps_words_apart(command: Command, tmp_path: Path) -> None:
    spelled = [f"two words {number:02d}" for number in range(N_WORDS)]
    path = write_corpus(tmp_path / "c", planted(150, N_WORDS, 3, length=40, seed=3).counts, names=spelled)
    shown = command("fit", path, tmp_path / "m", "--topics", "3", *SCAN).out
    assert max(len(line) for line in shown.splitlines() if not line.startswith("model: ")) <= 80
    listed = json.loads(command("topics", tmp_path / "m", "--json").out)[0]["prominent"]
    assert ", ".join(listed) in " ".join(shown.split())


def test_more_words_than_the_model_lists(made_model: Path, command: Command) -> None:
    rows = json.loads(command("topics", made_model, "--json", "--words", "30").out)
    model = read_model(made_model)
    order = np.argsort(-model.arrays["word_topic"], axis=0, kind="stable")[:30].T
    expected = [[str(model.arrays["word"][word]) for word in topic] for topic in order]
    assert [row["prominent"] for row in rows] == expected
    assert (
        len(json.loads(command("topics", made_model, "--json", "--words", "99").out)[0]["prominent"])
        == N_WORDS
    )


def test_infer_takes_several_topic_numbers(made_moments: Path, command: Command, tmp_path: Path) -> None:
    arguments = ("infer", made_moments, tmp_path / "models", "--topics", "5,3")
    made = command(*arguments)
    assert (made.code, made.err) == (0, "")
    assert sorted(path.name for path in (tmp_path / "models").iterdir()) == ["k=3", "k=5"]
    shutil.rmtree(tmp_path / "models" / "k=5")
    again = command(*arguments)
    assert (again.code, again.out) == (0, made.out)
    assert "k=3: complete, made by an earlier run" in again.err
    assert command("infer", made_moments, tmp_path / "one", "--topics", "3").code == 0
    assert np.array_equal(
        read_model(tmp_path / "one").arrays["word_topic"],
        read_model(tmp_path / "models" / "k=3").arrays["word_topic"],
    )
    paths = [str(tmp_path / "models" / name) for name in ("k=3", "k=5")]
    shown = command("topics", tmp_path / "models").out
    assert shown == "".join(command("topics", path).out for path in paths)
    several = json.loads(command("topics", tmp_path / "models", "--json").out)
    assert several == [
        {"model": path, "topics": json.loads(command("topics", path, "--json").out)} for path in paths
    ]
    lines = list(csv.DictReader(command("topics", tmp_path / "models", "--csv").out.splitlines()))
    assert [line["model"] for line in lines] == [paths[0]] * 3 + [paths[1]] * 5


def test_fit_is_a_scan_and_an_inference(
    corpus: Path, command: Command, made_model: Path, tmp_path: Path
) -> None:
    fitted = command("fit", corpus, tmp_path / "model", "--topics", "5", "--no-polish", *SCAN)
    assert (fitted.code, fitted.err) == (0, "")
    expected = json.loads(command("topics", made_model, "--json").out)
    assert json.loads(command("topics", tmp_path / "model", "--json").out) == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "model.moments"]


def test_fit_of_several_topic_numbers_scans_once_and_goes_on(
    corpus: Path, command: Command, tmp_path: Path
) -> None:
    models = tmp_path / "models"
    arguments = ("fit", corpus, models, "--topics", "3,5", *SCAN)
    fitted = command(*arguments)
    assert (fitted.code, fitted.err) == (0, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["models", "models.moments"]
    for k in (3, 5):
        assert len(json.loads(command("topics", models / f"k={k}", "--json").out)) == k
    sources = {model["provenance"]["moments"] for model in _info(command, models)["models"]}
    assert sources == {str(tmp_path / "models.moments")}
    kept = (models / "k=3" / "zarr.json").stat().st_mtime_ns
    shutil.rmtree(models / "k=5")
    assert command(*arguments).code == 0
    assert sorted(path.name for path in models.iterdir()) == ["k=3", "k=5"]
    assert (models / "k=3" / "zarr.json").stat().st_mtime_ns == kept
    fewer = command(
        "fit", corpus, tmp_path / "one", "--topics", "2", "--moments", tmp_path / "models.moments", *SCAN
    )
    assert fewer.code == 0, fewer.err


def test_a_scan_for_more_topics_serves_fewer(corpus: Path, moments: Path, command: Command) -> None:
    before = (moments / "zarr.json").read_bytes()
    again = command("scan", corpus, moments, "--max-topics", "3", *SCAN)
    assert (again.code, again.out) == (0, f"moments: {moments}\n")
    assert "carries up to 5 topics and is used as it is" in again.err
    assert (moments / "zarr.json").read_bytes() == before
    outcomes.refused(
        command("scan", corpus, moments, "--max-topics", "6", *SCAN), 2, "max_topics: stored 5, asked 6"
    )


def test_a_vocabulary_shorter_than_the_printed_lists(command: Command, tmp_path: Path) -> None:
    path = write_corpus(tmp_path / "c", np.full((30, 1), 5))
    fitted = command("fit", path, tmp_path / "model", "--topics", "1", *SCAN)
    assert (fitted.code, fitted.err) == (0, "")
    assert "100.0%  word0000" in fitted.out
    assert command("topics", tmp_path / "model").out == fitted.out


def test_paths_are_taken_as_they_are(
    corpus: Path, made_moments: Path, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a dir é%20☃"
    shutil.copytree(corpus, folder / "c")
    monkeypatch.chdir(folder)
    assert command("scan", "c", "deep/er/m 1", *SMALL_SCAN).code == 0
    assert command("scan", (folder / "c").as_uri(), "m 2", *SMALL_SCAN).code == 0
    digests = _info(command, made_moments)["digests"]
    assert _info(command, folder / "deep" / "er" / "m 1")["digests"] == digests
    assert _info(command, folder / "m 2")["digests"] == digests
    assert command("infer", "m 2", "model ü", "--topics", "3").out.startswith("model: model ü\n")


def test_a_store_at_the_url_of_a_file_is_on_the_disk(corpus: Path, command: Command, tmp_path: Path) -> None:
    assert command("scan", corpus, (tmp_path / "m").as_uri(), *SMALL_SCAN).code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_overwrite_replaces_a_model(made_moments: Path, model: Path, command: Command) -> None:
    replaced = command("infer", made_moments, model, "--topics", "3", "--overwrite")
    assert (replaced.code, replaced.err) == (0, "")
    assert len(json.loads(command("topics", model, "--json").out)) == 3
    assert [path.name for path in model.parent.iterdir()] == ["model"]


def test_scan_of_a_complete_store_computes_and_changes_nothing(
    corpus: Path, moments: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def times() -> dict[str, int]:
        return {name: (moments / name).stat().st_mtime_ns for name in listing(moments)}

    before = times()
    monkeypatch.setattr(RangeReduction, "compute", lambda *_: pytest.fail("a partition was computed"))
    again = command("scan", corpus, moments, *SMALL_SCAN)
    assert (again.code, again.out) == (0, f"moments: {moments}\n")
    assert times() == before


def _info(command: Command, path: Path) -> dict[str, Any]:
    outcome = command("info", path, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    described: dict[str, Any] = json.loads(outcome.out)
    return described


def test_info_is_a_page_for_people(
    corpus: Path, made_moments: Path, made_model: Path, unfinished: Path, command: Command, tmp_path: Path
) -> None:
    shutil.copytree(made_model, tmp_path / "models" / "k=5")
    said = {
        corpus: ("corpus: ", "documents         150"),
        made_moments: ("moments: ", "max_topics 5"),
        unfinished: ("incomplete", "missing           projection"),
        made_model: ("model: ", "topics            5", str(made_moments), "rectification "),
        tmp_path / "models": ("models: ", "k=5 (complete and intact)"),
    }
    for path, parts in said.items():
        shown = command("info", path)
        assert (shown.code, shown.err) == (0, "")
        for part in parts:
            assert part in shown.out
        free = [
            line
            for line in shown.out.splitlines()
            if str(path) not in line and str(corpus.parent) not in line
        ]
        assert max(map(len, free)) <= 80


def test_info_as_json(
    corpus: Path,
    counts: NDArray[np.int64],
    made_moments: Path,
    unfinished: Path,
    made_model: Path,
    command: Command,
    tmp_path: Path,
) -> None:
    of_corpus = _info(command, corpus)
    assert (of_corpus["kind"], of_corpus["documents"], of_corpus["words"]) == ("corpus", 150, N_WORDS)
    assert (of_corpus["shards"], of_corpus["nonzeros"]) == (3, np.count_nonzero(counts))
    whole = _info(command, made_moments)
    assert (whole["kind"], whole["complete"], whole["missing"]) == ("moments", True, [])
    assert whole["partitions"] > 1
    assert [(entry["path"], entry["fingerprint"]) for entry in whole["corpora"]] == [
        (str(corpus), of_corpus["fingerprint"])
    ]
    assert {"word", "row_sum", "factor", "basis", "projection"} <= set(whole["digests"])
    part = _info(command, unfinished)
    assert (part["complete"], part["missing"], part["projection_partitions_done"]) == (
        False,
        ["projection"],
        0,
    )
    assert {"basis", "projection"} & set(part["digests"]) == {"basis"}
    single = _info(command, made_model)
    assert (single["kind"], single["complete"], single["topics"]) == ("model", True, 5)
    assert single["words"] == N_WORDS
    for k in (10, 5):
        shutil.copytree(made_model, tmp_path / "models" / f"k={k}")
    several = _info(command, tmp_path / "models")
    assert several["kind"] == "models"
    paths = [str(tmp_path / "models" / name) for name in ("k=5", "k=10")]
    assert several["models"] == [{"path": path, **single} for path in paths]


def test_help_and_version(command: Command) -> None:
    shown = command()
    assert (shown.code, shown.err) == (0, "")
    assert shown.out == command("--help").out
    assert "Usage:" in shown.out
    assert command("--version").out.split()[-2] == "version"


# --- wrong input: exit code 2, one line, nothing left behind


def _write_shard(path: Path, ids: list[Any], counts: list[Any], *, statistics: bool = True) -> None:
    table = pa.table(
        {"ids": pa.array(ids, pa.list_(pa.int32())), "counts": pa.array(counts, pa.list_(pa.int32()))}
    )
    pq.write_table(table, path, row_group_size=25, write_statistics=statistics)


def _spoil(kind: str, ids: list[Any], counts: list[Any]) -> str:
    """Spoil document 30 (row group 1, row 5) and return what the message has to say."""
    row = 30
    if kind == "id too large":
        ids[row][-1] = N_WORDS
        return f"word id {N_WORDS} is outside 0..{N_WORDS - 1}"
    if kind == "negative id":
        ids[row][0] = -1
        return f"word id -1 is outside 0..{N_WORDS - 1}"
    if kind == "negative count":
        counts[row][2] = -4
        return "-4"
    if kind == "zero count":
        counts[row][2] = 0
        return "count"
    if kind == "null list":
        ids[row] = None
        return "ids is null"
    if kind == "null element":
        ids[row][1] = None
        return "ids holds a null"
    ids[row] = ids[row][:-1]
    return "ids but"


BAD_RECORDS = (
    "id too large",
    "negative id",
    "negative count",
    "zero count",
    "null list",
    "null element",
    "uneven lists",
)


def _bad_corpus(folder: Path, counts: NDArray[np.int64], kind: str, *, statistics: bool) -> tuple[Path, str]:
    path = write_corpus(folder / "bad", counts, shards=3, row_group_rows=25)
    ids, numbers = as_lists(counts[50:100])
    reason = _spoil(kind, ids, numbers)
    _write_shard(path / "part-00001.parquet", ids, numbers, statistics=statistics)
    return path, reason


@pytest.mark.parametrize("statistics", [True, False], ids=["footer", "no statistics"])
@pytest.mark.parametrize("kind", BAD_RECORDS)
def test_a_bad_record_is_named_and_leaves_no_store(
    kind: str, statistics: bool, counts: NDArray[np.int64], refused: Refusals
) -> None:
    path, reason = _bad_corpus(refused.folder, counts, kind, statistics=statistics)
    named = [str(path / "part-00001.parquet"), "row group 1", reason]
    if not statistics:
        named.append("row 5")
    refused(("scan", path, refused.folder / "m", *SMALL_SCAN), *named)


def test_a_bad_record_in_a_fit_leaves_neither_moments_nor_model(
    counts: NDArray[np.int64], refused: Refusals
) -> None:
    path, reason = _bad_corpus(refused.folder, counts, "id too large", statistics=False)
    refused(("fit", path, refused.folder / "model", "--topics", "3", *SCAN), reason)


def test_a_bad_record_while_other_threads_still_commit(
    counts: NDArray[np.int64], refused: Refusals, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, reason = _bad_corpus(refused.folder, counts, "null list", statistics=False)
    failed, ended = threading.Event(), threading.Event()
    commit, compute = tasks.commit_part, RangeReduction.compute

    def slow_if_good(stage: RangeReduction, partition: Partition) -> PartialResult:
        try:
            partial = compute(stage, partition)
        except InputError:
            failed.set()
            raise
        if partition.index == 0:
            # Still at work when the bad partition fails, it commits after the error is on its way.
            assert failed.wait(timeout=PATIENCE)
            time.sleep(0.3)
        return partial

    def told(
        checkpoints: Checkpoints, stage: tasks.Reduction, part: tasks.Part, step: Any, *after: str
    ) -> str:
        try:
            return commit(checkpoints, stage, part, step, *after)
        finally:
            if part.source is not None and part.source.index == 0:
                ended.set()

    monkeypatch.setattr(RangeReduction, "compute", slow_if_good)
    monkeypatch.setattr(jobs_run, "commit_part", told)
    before = listing(refused.folder)
    arguments = ("--max-topics", "5", "--partition-nonzeros", "1000", "--workers", "2")
    outcome = refused.command("scan", path, refused.folder / "m", *arguments)
    assert ended.wait(timeout=PATIENCE)
    outcomes.refused(outcome, 2, reason)
    assert listing(refused.folder) == before


EMPTY: dict[str, tuple[list[list[int]] | None, str]] = {
    "no files": (None, "no *.parquet files"),
    "no rows": ([], "empty corpus"),
    "no words": ([[0] * 6] * 4, "empty corpus"),
    "one token": (np.eye(6, dtype=int).tolist(), "two tokens"),
}


@pytest.mark.parametrize("verb", ["scan", "fit"])
@pytest.mark.parametrize("kind", EMPTY)
def test_an_empty_corpus(kind: str, verb: str, refused: Refusals) -> None:
    documents, reason = EMPTY[kind]
    if (kind, verb) == ("no files", "fit"):
        reason = "holds no files but a word list"  # fit takes any source
    path = refused.folder / "corpus"
    path.mkdir()
    (path / "vocab.txt").write_text("\n".join(words(6)) + "\n", encoding="utf-8")
    if documents is not None:
        write_lists(path / "part-0.parquet", *as_lists(np.array(documents, dtype=np.int64).reshape(-1, 6)))
    settings = SMALL_SCAN if verb == "scan" else ("--topics", "2", *SCAN)
    refused((verb, path, refused.folder / "out", *settings), str(path), reason)


#: A command and what its message names; paths in braces are made by ``test_wrong_input_is_one_line``.
REFUSED: list[tuple[str, ...]] = [
    ("scan {headless} {new} SMALL", "{headless}/part-00002.parquet", "'counts'", "number"),
    ("infer {moments} {new} --topics 6", "{moments}", "up to 5 topics", "--max-topics 6"),
    ("infer {rank2} {new} --topics 3", "2 positive eigenvalues", "--topics 2"),
    ("fit {corpus} {model} --topics 3,5 SCAN", "{model}", "directory of their own"),
    ("scan {new} {other} SMALL", "no corpus at {new}"),
    ("fit {new} {other} --topics 3 SCAN", "no corpus at {new}"),
    ("info {new}", "no corpus at {new}"),
    ("topics {empty}", "{empty}"),
    ("info {empty}", "{empty}"),
    ("scan {corpus} {file}/m SMALL", "{file}"),
    ("infer {moments} {file}/model --topics 3", "{file}"),
    ("scan {corpus} {new} SMALL --memory 100MiB", "MiB and --memory allows 100.00 MiB"),
    ("scan {corpus} {new} SMALL --scheduler tcp://127.0.0.1:1", "at tcp://127.0.0.1:1"),
    ("scan {corpus} {unfinished} SMALL --scheduler tcp://127.0.0.1:1", "at tcp://127.0.0.1:1"),
    *(
        (f"{verb} {{{taken}}} --topics 3", f"{{{taken}}}", "exists already")
        for verb in ("fit {corpus}", "infer {corpus}")
        for taken in ("file", "directory", "model")
    ),
    *(
        (f"fit {{corpus}} {{{taken}}} --topics 3 --overwrite SCAN", f"{{{taken}}}: no model is here")
        for taken in ("file", "directory")
    ),
    *(
        (command, f"{{{kind}}}", "moments store")
        for kind in ("file", "directory", "empty", "model", "corpus")
        for command in (f"scan {{corpus}} {{{kind}}} SMALL", f"infer {{{kind}}} {{new}} --topics 3")
    ),
    *(
        (f"fit {{corpus}} {{new}} --topics={topics} SCAN", f"--topics is {topics!r}", "5,10,20")
        for topics in ("abc", "", "0", "-3", "3,3", "3,", "3;5", "2.5", "3,0")
    ),
    *(
        (f"scan {{corpus}} {{new}} SMALL --{name.replace('_', '-')}={value}", f"{name} is {shown}")
        for name, value, shown in (
            ("memory", "1e400GB", "'1e400GB'"),
            ("scheduler", "thraeds", "'thraeds'"),
            ("scheduler", "tcp://", "'tcp://'"),
            ("workers", "0", "0"),
            ("partition_nonzeros", "-5", "-5"),
        )
    ),
    *(
        (f"infer {{moments}} {{new}} --topics 3 {option}", *named)
        for option, *named in (
            ("--topics=0", "--topics is '0'"),
            ("--tolerance=nan", "tolerance is nan"),
            ("--anchor-min-df=1e9", "0 words may be anchors"),
            ("--workers=-2", "workers is -2"),
            ("--topics=x", "--topics", "see --help"),
            ("--no-such-option", "--no-such-option", "see --help"),
            ("--rectify=pca", "--rectify", "see --help"),
        )
    ),
    ("infer {moments} {moments} --topics 3,5", "{moments}", "directory of their own"),
    ("info {later}", "{later}", "format version 99", "reads 2"),
    ("scan {corpus} {later} SMALL", "{later}", "format version 99", "reads 2"),
    ("infer {later} {new} --topics 3", "{later}", "format version 99", "reads 2"),
    ("topics {later_model}", "{later_model}", "format version 99"),
    ("info {later_model}", "{later_model}", "format version 99"),
]


@pytest.fixture(scope="module")
def places(
    corpus: Path,
    made_moments: Path,
    made_model: Path,
    counts: NDArray[np.int64],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Path]:
    """What a path may be by mistake."""
    folder = tmp_path_factory.mktemp("places")
    found = {name: folder / name for name in ("new", "other", "file", "directory", "empty")}
    found["file"].write_text("mine")
    for name in ("directory", "empty"):
        found[name].mkdir()
    (found["directory"] / "mine.txt").write_text("mine")
    found["headless"] = write_corpus(folder / "headless", counts)
    shard = found["headless"] / "part-00002.parquet"
    pq.write_table(pq.read_table(shard).rename_columns(["ids", "number"]), shard)
    two = write_corpus(folder / "two", np.array([[1, 1, 0, 0], [0, 0, 1, 1]] * 10))
    found["rank2"] = folder / "rank2"
    assert run(["scan", str(two), str(found["rank2"]), *SMALL_SCAN]) == 0
    for name, source in (
        ("moments", made_moments), ("model", made_model), ("corpus", corpus), ("later", made_moments),
        ("later_model", made_model), ("unfinished", made_moments),
    ):  # fmt: skip
        found[name] = shutil.copytree(source, folder / name)
    shutil.rmtree(found["unfinished"] / "records" / "projection")
    found["corpus"] = corpus
    _edit_json(
        found["later"] / "zarr.json", lambda value: value["attributes"]["manifest"].update(format_version=99)
    )
    _edit_json(
        found["later_model"] / "zarr.json", lambda value: value["attributes"].update(format_version=99)
    )
    return found


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case[0])
def test_wrong_input_is_one_line(case: tuple[str, ...], places: dict[str, Path], command: Command) -> None:
    line, *named = (text.format(**places) for text in case)
    arguments = line.replace(" SMALL", f" {' '.join(SMALL_SCAN)}").replace(" SCAN", f" {' '.join(SCAN)}")
    with dask.config.set({"distributed.comm.timeouts.connect": "300ms"}):
        Refusals(command, places["new"].parent)(arguments.split(" "), *named)


def test_other_settings_name_the_field_and_both_fingerprints(
    corpus: Path, moments: Path, refused: Refusals, command: Command
) -> None:
    assert command("scan", corpus, refused.folder / "other", *SMALL_SCAN, "--seed", "4").code == 0
    fingerprints = [
        _info(command, path)["settings_fingerprint"][:12] for path in (moments, refused.folder / "other")
    ]
    refused(
        ("scan", corpus, moments, *SMALL_SCAN, "--seed", "4"),
        str(moments),
        "seed: stored 0, asked 4",
        *fingerprints,
    )


def test_another_corpus_is_refused_with_both_fingerprints(
    counts: NDArray[np.int64], moments: Path, refused: Refusals, command: Command
) -> None:
    other = write_corpus(refused.folder / "corpus", counts[1:])
    fingerprints = (
        _info(command, moments)["corpora"][0]["fingerprint"][:12],
        _info(command, other)["fingerprint"][:12],
    )
    refused(("scan", other, moments, *SMALL_SCAN), str(moments), "another corpus", *fingerprints)


def _arguments(
    verb: str, corpus: Path, moments: Path, folder: Path, *, new: bool = False
) -> tuple[object, ...]:
    """A verb that reads these moments; ``new``: a scan into another store."""
    verbs: dict[str, tuple[object, ...]] = {
        "scan": ("scan", corpus, folder / "new" if new else moments, *SMALL_SCAN),
        "infer": ("infer", moments, folder / "new-model", "--topics", "3"),
        "info": ("info", moments),
    }
    return verbs[verb]


def _edit_json(path: Path, change: Callable[[Any], object]) -> None:
    value = json.loads(path.read_text(encoding="utf-8"))
    change(value)
    path.write_text(json.dumps(value), encoding="utf-8")


def test_a_full_disk_is_one_line_and_the_scan_goes_on_later(
    counts: NDArray[np.int64], tmp_path: Path
) -> None:
    wide = np.zeros((len(counts), 400), dtype=np.int64)
    wide[:, :N_WORDS] = counts
    path = write_corpus(tmp_path / "c", wide, row_group_rows=25)
    arguments = ("scan", path, tmp_path / "m", *SMALL_SCAN)
    line = process(*arguments)
    # No file may be larger than 24 KiB; a factor is.
    limited = "import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (24576, 24576)); "
    limited += "os.execv(sys.argv[1], sys.argv[1:])"
    done = ended([sys.executable, "-c", limited, *line], PYTHONDONTWRITEBYTECODE="1")
    assert done.code == 2, done.err
    assert "Traceback" not in done.err
    assert done.err.splitlines()[-1].startswith("error: ")
    assert "File too large" in done.err
    assert require_unfinished(tmp_path / "m") == "range"
    assert run([str(argument) for argument in arguments]) == 0


# --- damage: exit code 3, the part named


@pytest.mark.parametrize(
    ("array", "fault", "verb"),
    each_once(
        ["word", "row_sum", "diagonal", "document_frequency", "term_count", "factor"],
        SOME,
        ["infer", "info"],
    ),
)
def test_a_damaged_chunk_of_moments(
    verb: str, array: str, fault: Damage, corpus: Path, moments: Path, refused: Refusals
) -> None:
    chunk = next(path for path in (moments / array / "c").rglob("*") if path.is_file())
    fault(chunk)
    refused(_arguments(verb, corpus, moments, refused.folder), str(moments / array), code=3)


@pytest.mark.parametrize(("fault", "array"), each_once(SOME, ["basis", "projection"]))
def test_a_damaged_chunk_of_what_eigenpairs_are_made_of(
    array: str, fault: Damage, corpus: Path, moments: Path, refused: Refusals
) -> None:
    fault(moments / array / "c" / "0" / "0")
    refused(_arguments("infer", corpus, moments, refused.folder), str(moments / array), code=3)


@pytest.mark.parametrize("fault", SOME)
def test_damage_met_by_a_scan_that_goes_on(
    fault: Damage, corpus: Path, unfinished: Path, refused: Refusals
) -> None:
    fault(unfinished / "basis" / "c" / "0" / "0")
    arguments = _arguments("scan", corpus, unfinished, refused.folder)
    refused(arguments, str(unfinished / "basis"), code=3)


@pytest.mark.parametrize(("fault", "verb"), each_once(SOME, ["topics", "info"]))
def test_a_damaged_chunk_of_a_model(verb: str, fault: Damage, model: Path, refused: Refusals) -> None:
    fault(model / "prominent_words" / "c" / "0" / "0")
    refused((verb, model), str(model / "prominent_words"), code=3)


RECORDS = {
    "truncated": lambda text: text[: len(text) // 2],
    "empty": lambda _: "",
    "not a group": lambda _: "[1, 2]",
    "without attributes": lambda _: "{}",
    "without arrays": lambda _: '{"attributes": {}}',
    "not text": lambda _: "\udcff\udcfe",
}


@pytest.mark.parametrize(("fault", "verb"), each_once(list(RECORDS), ["scan", "infer", "info"]))
def test_a_damaged_record(verb: str, fault: str, corpus: Path, moments: Path, refused: Refusals) -> None:
    record = moments / "records" / "range" / "zarr.json"
    text = RECORDS[fault](record.read_text(encoding="utf-8"))
    record.write_text(text, encoding="utf-8", errors="surrogateescape")
    refused(_arguments(verb, corpus, moments, refused.folder), str(moments), "range", code=3)


ROOTS = {
    "truncated": lambda text: text[: len(text) // 2],
    "empty": lambda _: "",
    "without manifest": lambda _: _group({"kind": "streaming_jsmf.moments"}),
    "without version": lambda _: _group({"kind": "streaming_jsmf.moments", "manifest": {}}),
}


def _group(attributes: dict[str, Any]) -> str:
    return json.dumps({"zarr_format": 3, "node_type": "group", "attributes": attributes})


@pytest.mark.parametrize(("fault", "verb"), each_once(list(ROOTS), ["scan", "infer", "info"]))
def test_damaged_metadata_of_moments(
    verb: str, fault: str, corpus: Path, moments: Path, refused: Refusals
) -> None:
    root = moments / "zarr.json"
    root.write_text(ROOTS[fault](root.read_text(encoding="utf-8")), encoding="utf-8")
    refused(_arguments(verb, corpus, moments, refused.folder), str(moments), code=3)


@pytest.mark.parametrize(
    "attributes",
    [{"kind": "streaming_jsmf.model"}, {"kind": "streaming_jsmf.model", "format_version": 1}],
)
@pytest.mark.parametrize("verb", ["topics", "info"])
def test_damaged_metadata_of_a_model(
    verb: str, attributes: dict[str, Any], model: Path, refused: Refusals
) -> None:
    (model / "zarr.json").write_text(_group(attributes), encoding="utf-8")
    refused((verb, model), str(model), code=3)


@pytest.mark.parametrize("verb", ["scan", "info"])
def test_a_truncated_parquet_file(verb: str, counts: NDArray[np.int64], refused: Refusals) -> None:
    path = write_corpus(refused.folder / "c", counts)
    shard = path / "part-00001.parquet"
    shard.write_bytes(shard.read_bytes()[: shard.stat().st_size // 2])
    rest = (refused.folder / "m", *SMALL_SCAN) if verb == "scan" else ()
    refused((verb, path, *rest), str(shard), "truncated", code=3)


def test_a_parquet_file_truncated_after_the_store_was_begun(
    counts: NDArray[np.int64], unfinished: Path, refused: Refusals
) -> None:
    path = write_corpus(refused.folder / "c", counts, row_group_rows=25)
    shard = path / "part-00001.parquet"
    whole = shard.read_bytes()
    shard.write_bytes(whole[: len(whole) // 2])
    refused(("scan", path, unfinished, *SMALL_SCAN), str(shard), "truncated", code=3)
    shard.write_bytes(whole)
    assert refused.command("scan", path, unfinished, *SMALL_SCAN).code == 0, "mended, the scan goes on"


def test_a_parquet_file_truncated_while_it_is_scanned(
    counts: NDArray[np.int64], refused: Refusals, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_corpus(refused.folder / "c", counts, row_group_rows=25)
    shard, compute = path / "part-00002.parquet", RangeReduction.compute
    whole = shard.read_bytes()

    def compute_then_truncate(stage: RangeReduction, partition: Any) -> Any:
        partial = compute(stage, partition)
        shard.write_bytes(whole[: len(whole) // 2])
        return partial

    monkeypatch.setattr(RangeReduction, "compute", compute_then_truncate)
    outcome = refused.command("scan", path, refused.folder / "m", *SMALL_SCAN)
    outcomes.refused(outcome, 3, str(shard), "row group 0", "truncated")
    assert _info(refused.command, refused.folder / "m")["range_partitions_done"] > 0, "what is done is kept"
    monkeypatch.undo()
    shard.write_bytes(whole)
    assert refused.command("scan", path, refused.folder / "m", *SMALL_SCAN).code == 0


def test_inference_from_unfinished_moments(unfinished: Path, corpus: Path, refused: Refusals) -> None:
    arguments = _arguments("infer", corpus, unfinished, refused.folder)
    refused(arguments, str(unfinished), "missing projection", "run the same scan command again", code=3)


# --- as processes


def test_a_process_ends_with_the_code_and_one_line(corpus: Path, tmp_path: Path) -> None:
    done = external("scan", corpus, tmp_path / "m", *SMALL_SCAN)
    assert (done.code, done.out) == (0, f"moments: {tmp_path / 'm'}\n")
    assert "projection: finished in" in done.err
    chunk = tmp_path / "m" / "diagonal" / "c" / "0"
    chunk.unlink()
    outcomes.refused(external("infer", tmp_path / "m", tmp_path / "model", "--topics", "5"), 3, "diagonal")
    assert not (tmp_path / "model").exists()


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["processes", "synchronous", "threads", "cluster"])
def test_a_bad_record_in_a_process(scheduler: str, counts: NDArray[np.int64], tmp_path: Path) -> None:
    path, reason = _bad_corpus(tmp_path, counts, "null list", statistics=False)
    before = listing(tmp_path)
    # One partition: nothing else can be committed and told before the bad record is met.
    arguments = ("--max-topics", "5", "--scheduler", scheduler, "--workers", "2")
    outcomes.refused(external("scan", path, tmp_path / "m", *arguments), 2, reason, "row group 1", "row 5")
    assert listing(tmp_path) == before


INTERRUPTS = [
    ("synchronous", signal.SIGINT, False),
    ("synchronous", signal.SIGINT, True),
    ("threads", signal.SIGINT, True),
    ("processes", signal.SIGINT, False),
    ("processes", signal.SIGINT, True),
    ("threads", signal.SIGTERM, False),
    ("processes", signal.SIGTERM, True),
]


@pytest.mark.parametrize(
    ("scheduler", "number", "group"),
    [
        ("threads", signal.SIGINT, False),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in INTERRUPTS),
    ],
)
def test_an_interrupt_in_the_middle_of_a_scan(
    scheduler: str, number: signal.Signals, group: bool, many_documents: Path, tmp_path: Path
) -> None:
    target = tmp_path / "m"
    settings = (
        "--max-topics",
        "5",
        "--partition-nonzeros",
        "150",
        "--scheduler",
        scheduler,
        "--workers",
        "2",
    )
    line, pipe = process("scan", many_documents, target, *settings), subprocess.PIPE
    with started(line, stdout=pipe, stderr=pipe) as scan:
        wait_for(scan, lambda: bool(list(target.glob("records/range-fold-*"))))
        if group:
            # Ctrl-C on a terminal reaches the workers too: they share the process group.
            os.killpg(scan.pid, number)
        else:
            scan.send_signal(number)
        out, err = scan.communicate(timeout=PATIENCE)
    assert scan.returncode == 128 + number, err
    assert out == ""
    # click ends the line on which a terminal shows ^C.
    *progress, last = [line for line in err.splitlines() if line]
    word = "interrupted" if number == signal.SIGINT else "terminated"
    assert last == f"{word}; run the same command again to go on from what is committed"
    assert all(line.startswith("range: partition ") for line in progress), err
    assert require_unfinished(target) == "range"


def require_unfinished(store: Path) -> str:
    """Return the first stage that is missing."""
    return read_store(store).missing_stages[0]
