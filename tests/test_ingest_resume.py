"""A killed ingest is resumed by the same command only, with the same source and settings, and gives the same bytes."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dask
import distributed  # noqa: F401  (its settings exist once it is imported)
import pyarrow as pa
import pytest

from streaming_jsmf.cli.main import run
from streaming_jsmf.config import IngestRequest
from streaming_jsmf.errors import InputError, SettingsMismatchError, StoreError
from streaming_jsmf.ingestion.ingest import ingest
from streaming_jsmf.jobs.events import (
    Event,
    Listener,
    PartitionCommitted,
    StageFinished,
    StageStarted,
    silent,
)
from streaming_jsmf.jobs.execution import Execution
from tests.corpora import file_bytes
from tests.damage import SOME, Damage, truncated
from tests.processes import ended, finished, killed

N_FILES = 12

#: The command line with a group of units for each file, because several groups would otherwise need 16 MB of text. Its
#: threads stop when as many tasks of a step are committed as HOLD says, so kills do not depend on the load.
MAIN = """
import os, threading
from streaming_jsmf.__main__ import main
from streaming_jsmf.ingestion import job
from streaming_jsmf.jobs.checkpoints import Checkpoints

step, tasks = os.environ.get("HOLD", "none 0").split()
commit = Checkpoints.commit_part

def commit_and_hold(records, *arguments):
    commit(records, *arguments)
    if records.stage == step and len(records.committed().parts) >= int(tasks):
        threading.Event().wait()

Checkpoints.commit_part = commit_and_hold
job.GROUP_BYTES = (1, 1)
main()
"""

#: A slow custom tokenizer, so that a command can be killed without HOLD.
SLOWLY = """
import os, time
def split(text):
    time.sleep(float(os.environ.get("SECONDS_OF_A_TEXT", 0)))
    return text.split()
"""


def write_source(folder: Path, n_files: int = N_FILES) -> Path:
    """Files of texts with ids; some words are in short documents alone, so that shards are written again."""
    folder.mkdir()
    rng = random.Random(2)
    words = [f"{stem}{i}" for i in range(30) for stem in ("word", "слово", "शब्द")]
    for number in range(n_files):
        lines = []
        for i in range(25):
            text = " ".join(rng.choices(words, k=12)) if i else f"alone{number}"
            lines.append(json.dumps({"id": f"{number}-{i}", "text": text}))
        (folder / f"{number:02d}.jsonl").write_text("\n".join(lines))
    return folder


def committed(partial: Path, step: str) -> set[int]:
    return {int(path.parent.name[-5:]) for path in partial.glob(f"records/{step}-part-*/zarr.json")}


def same_files(a: Path, b: Path) -> None:
    """The same names and bytes, manifest included."""
    assert file_bytes(a) == file_bytes(b)


# -- killed processes -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where commands start: a source, a tokenizer, and the corpus of an undisturbed run."""
    path = tmp_path_factory.mktemp("killed")
    write_source(path / "in")
    (path / "slowly.py").write_text(SLOWLY)
    with pytest.MonkeyPatch.context() as patch:
        in_this_process(patch, path)
        assert run(command(path / "undisturbed", "--scheduler", "synchronous")[3:]) == 0
    return path


def in_this_process(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Do in this process what ``MAIN`` does in a new one, started in the folder."""
    patch.setattr("streaming_jsmf.ingestion.job.GROUP_BYTES", (1, 1))
    patch.chdir(folder)
    patch.syspath_prepend(folder)


def command(target: Path, *options: str) -> list[str]:
    rules = ["--verbose", "--preset", "papers", "--stop-words", "none", "--min-distinct-words", "3"]
    rules += ["--tokenizer", "slowly:split"]
    return [sys.executable, "-c", MAIN, "ingest", "in", str(target), *rules, "--workers", "2", *options]


#: Makes each text slow enough to kill the command in the middle.
SLOW = {"SECONDS_OF_A_TEXT": "0.005"}


@dataclass(frozen=True)
class Moment:
    """When so many tasks of a step are committed."""

    step: str
    tasks: int

    def reached(self, partial: Path) -> bool:
        return len(committed(partial, self.step)) >= self.tasks


EARLY, LATE, WRITE, REWRITE = Moment("read", 1), Moment("read", 8), Moment("write", 2), Moment("rewrite", 2)


def committed_by_log(log: str) -> dict[str, list[int]]:
    """The tasks that a command says it committed, by step."""
    found = re.findall(r"^(\w+): part (\d+) committed", log, re.M)
    return {step: sorted(int(n) for s, n in found if s == step) for step in ("read", "write", "rewrite")}


@pytest.fixture
def finish(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[list[str]], dict[str, list[int]]]:
    """Run a command to its end in this process, which saves the start of one; returns what it committed."""
    in_this_process(monkeypatch, folder)

    def call(arguments: list[str]) -> dict[str, list[int]]:
        capsys.readouterr()
        code = run(arguments[3:])
        log = capsys.readouterr().err
        assert code == 0, log
        return committed_by_log(log)

    return call


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheduler", "moment"),
    [("threads", LATE), ("threads", WRITE), ("threads", REWRITE), ("processes", LATE)],
    ids=["read", "write", "rewrite", "processes"],
)
def test_a_killed_ingest_is_finished_by_the_same_command(
    scheduler: str,
    moment: Moment,
    folder: Path,
    finish: Callable[[list[str]], dict[str, list[int]]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    target, partial = tmp_path / "out", tmp_path / "out.partial"
    arguments = command(target, "--scheduler", scheduler)
    environment = {"HOLD": f"{moment.step} {moment.tasks}"}
    if scheduler == "processes":
        arguments += ["--workers", "1"]  # each takes its time to start, for every step
        environment = SLOW
    with killed(arguments, lambda: moment.reached(partial), folder=folder, **environment):
        assert not target.exists()
        assert run(["info", str(partial), "--json"]) == 0
        shown = json.loads(capsys.readouterr().out)
        kept = {step: committed(partial, step) for step in ("read", "write", "rewrite")}
        again = finish(arguments)
    assert (shown["kind"], shown["complete"]) == ("unfinished ingest", False)
    assert shown["steps_done"][moment.step] >= moment.tasks
    assert 0 < len(kept[moment.step]) < N_FILES, "killed in the middle"
    missing = {step: sorted(set(range(N_FILES)) - done) for step, done in kept.items()}
    # A worker process outlives its parent by the task it is at, and may commit it.
    orphaned = sum(len(missing[step]) - len(again[step]) for step in missing)
    assert all(set(again[step]) <= set(missing[step]) for step in missing)
    assert 0 <= orphaned <= (scheduler == "processes")
    same_files(folder / "undisturbed", target)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.slow
def test_a_killed_ingest_is_not_resumed_with_another_tokenizer(folder: Path, tmp_path: Path) -> None:
    here, target, partial = tmp_path / "here", tmp_path / "out", tmp_path / "out.partial"
    shutil.copytree(folder, here)
    with killed(command(target), lambda: EARLY.reached(partial), folder=here, **SLOW):
        assert partial.is_dir()
    (here / "slowly.py").write_text(SLOWLY.replace("text.split()", "text.upper().split()"))
    outcome = ended(command(target), folder=here)
    assert outcome.code == 2
    assert "the code of the tokenizer has changed; finish it" in outcome.err.splitlines()[-1]
    assert committed(partial, "read")
    finished(command(target, "--overwrite"), folder=here)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here", "out"]


# -- interrupted in this process, then resumed ------------------------------------------------------------------------


def interrupt_at(step: str) -> Listener:
    def listener(event: Event) -> None:
        if isinstance(event, StageStarted) and event.stage == step:
            raise KeyboardInterrupt

    return listener


#: One document a file can be short of words: shards are written again.
REQUEST = IngestRequest(preset="papers", curation={"stop_words": "none", "min_distinct_words": 3})


@dataclass(frozen=True)
class Job:
    """An ingest in this process, in one thread."""

    source: Path
    target: Path
    request: IngestRequest = REQUEST

    def __call__(self, listener: Listener = silent, execution: Execution | None = None) -> Any:
        return ingest(self.source, self.target, self.request, execution or Execution("synchronous"), listener)

    @property
    def partial(self) -> Path:
        return self.target.with_name(f"{self.target.name}.partial")


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setattr("streaming_jsmf.ingestion.job.GROUP_BYTES", (1, 1))
    return Job(write_source(tmp_path / "in", 3), tmp_path / "out")


@pytest.fixture
def interrupted(job: Job) -> Job:
    """Read, but not yet written."""
    with pytest.raises(KeyboardInterrupt):
        job(interrupt_at("write"))
    assert committed(job.partial, "read") == {0, 1, 2}
    return job


def files_in(path: Path) -> dict[str, int]:
    return {str(p.relative_to(path)): p.stat().st_mtime_ns for p in path.rglob("*") if p.is_file()}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (
            {"curation": {}, "tokens_per_shard": 99},
            "; the stop words are others; tokens_per_shard: stored 20000000, asked 99",
        ),
        ({"curation": {"stop_words": "none", "min_tokens": 6}}, "min_tokens: stored 5, asked 6"),
        ({"on_bad_record": "quarantine"}, "on_bad_record: stored 'fail', asked 'quarantine'"),
        ({"options": {"ngrams": 2}}, ": read_ngrams: stored 1, asked 2"),
    ],
)
def test_other_settings_are_refused(changes: dict[str, Any], named: str, interrupted: Job) -> None:
    before = files_in(interrupted.partial)
    other = replace(interrupted, request=replace(REQUEST, **changes))
    with pytest.raises(SettingsMismatchError) as caught:
        other()
    assert str(caught.value).startswith(f"{interrupted.partial} ")
    assert f"{named}; finish it" in str(caught.value)
    assert files_in(interrupted.partial).keys() == before.keys()
    # The unfinished work can still be completed.
    interrupted()
    assert not interrupted.partial.exists()


def test_a_changed_source_is_refused(interrupted: Job) -> None:
    changed = interrupted.source / "01.jsonl"
    kept = changed.stat()
    text = changed.read_text()
    changed.write_text(text.replace("word1", "word2"))
    with pytest.raises(
        SettingsMismatchError, match=": other files were read, or their contents have changed; finish it"
    ):
        interrupted()
    changed.write_text(text)
    os.utime(changed, ns=(kept.st_atime_ns, kept.st_mtime_ns))
    (interrupted.source / "99.jsonl").write_text(text)
    with pytest.raises(
        SettingsMismatchError, match=": other files were read, or their contents have changed; finish it"
    ):
        interrupted()
    (interrupted.source / "99.jsonl").unlink()
    interrupted()


def test_another_list_of_words_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "docword.x.txt").write_text("2\n2\n3\n1 1 2\n1 2 1\n2 2 5\n")
    (tmp_path / "in" / "vocab.x.txt").write_text("ant\nbee\n")
    request = IngestRequest(preset="papers", curation={"min_distinct_words": 1, "min_tokens": 0})
    job = Job(tmp_path / "in", tmp_path / "out", request)
    with pytest.raises(KeyboardInterrupt):
        job(interrupt_at("write"))
    (tmp_path / "in" / "vocab.x.txt").write_text("ant\ncat\n")
    with pytest.raises(SettingsMismatchError, match=": the words are others;"):
        job()


@pytest.mark.parametrize("begun", [False, True])
def test_a_scheduler_that_does_not_answer_costs_nothing(begun: bool, job: Job) -> None:
    if begun:
        with pytest.raises(KeyboardInterrupt):
            job(interrupt_at("write"))
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "200ms"}),
        pytest.raises(InputError, match="no Dask scheduler answers"),
    ):
        job(execution=Execution("tcp://127.0.0.1:9"))
    assert job.partial.exists() == begun
    assert committed(job.partial, "read") == ({0, 1, 2} if begun else set())


def test_an_error_in_the_input_removes_what_was_done(interrupted: Job) -> None:
    assert interrupted.partial.is_dir()
    other = Job(
        interrupted.source,
        interrupted.target.with_name("other"),
        IngestRequest(curation={"min_tokens": 1000}),
    )
    with pytest.raises(InputError, match="empty corpus"):
        other()
    assert not other.partial.exists()
    # The work of the interrupted run is still there.
    assert committed(interrupted.partial, "read") == {0, 1, 2}
    # Repeated ids are found only after the whole source has been read.
    last = interrupted.source / "02.jsonl"
    last.write_text(2 * f"{last.read_text()}\n")
    shutil.rmtree(interrupted.partial)
    named = replace(interrupted, request=replace(REQUEST, options={"id": "id"}))
    with pytest.raises(InputError, match=r"02\.jsonl, line \d+: its document id"):
        named()
    assert not interrupted.partial.exists()


def test_a_file_of_the_user_is_left_alone(job: Job) -> None:
    job.partial.write_text("mine")
    with pytest.raises(InputError, match=r"out\.partial"):
        job()
    assert job.partial.read_text() == "mine"


def cut_between_batches(path: Path) -> None:
    """Cut a stream after its schema, where it looks complete."""
    with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as stream:
        empty = pa.BufferOutputStream()
        pa.ipc.new_stream(empty, stream.schema).close()
    path.write_bytes(empty.getvalue().to_pybytes())


@pytest.mark.parametrize(
    ("step", "spoil"),
    [
        ("read", cut_between_batches),
        *zip(("read", "write", "rewrite"), SOME, strict=True),
        *(
            pytest.param(step, spoil, marks=pytest.mark.slow)
            for number, step in enumerate(("read", "write", "rewrite"))
            for spoil in (SOME[number - 1], SOME[number - 2])
        ),
    ],
)
def test_damaged_parts_of_an_interrupted_ingest_are_recomputed(
    step: str, spoil: Damage, job: Job, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    undisturbed = replace(job, target=tmp_path / "undisturbed")
    undisturbed()

    def at_the_end(event: Event) -> None:
        if isinstance(event, StageFinished) and event.stage == "rewrite":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        job(at_the_end)
    places = [
        *(job.partial / step / "00001").iterdir(),
        job.partial / "records" / f"{step}-part-00001" / "zarr.json",
    ]
    whole = tmp_path / "whole"
    shutil.copytree(job.partial, whole)
    for place in places:
        if spoil is cut_between_batches and place.suffix != ".bags":
            continue
        spoil(place)
        done: list[Event] = []
        job(done.append)
        again = [(event.stage, event.index) for event in done if isinstance(event, PartitionCommitted)]
        assert again == [(step, 1)], place
        assert f"{job.partial}: damaged or incomplete parts of {step}" in caplog.text
        same_files(undisturbed.target, job.target)
        shutil.rmtree(job.target)
        shutil.copytree(whole, job.partial)


@pytest.mark.parametrize("spoil", [truncated, lambda path: path.write_text("[]")], ids=["cut", "another"])
def test_damaged_arguments_are_named_in_one_line(spoil: Callable[[Path], Any], interrupted: Job) -> None:
    spoil(interrupted.partial / "zarr.json")
    with pytest.raises(StoreError) as caught:
        interrupted()
    message = str(caught.value)
    assert "zarr.json" in message
    assert "\n" not in message
    assert str(interrupted.partial) in message.split("; remove ")[1]
    # The advice helps.
    shutil.rmtree(message.split("; remove ")[1].removesuffix(" and run the same command again"))
    interrupted()
    assert not interrupted.partial.exists()
