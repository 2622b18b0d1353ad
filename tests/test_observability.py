"""What a long job tells while it runs, on a terminal, in lines and in JSON; and what a store tells afterwards."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import pty
import re
import signal
import struct
import sys
import termios
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from streaming_jsmf.cli.log_json import JsonLog
from streaming_jsmf.cli.main import run
from streaming_jsmf.cli.progress import Lines, Meter
from streaming_jsmf.config import IngestRequest, fingerprint
from streaming_jsmf.errors import InputError, LogError, StoreError
from streaming_jsmf.ingestion.ingest import ingest
from streaming_jsmf.jobs.events import (
    Cost,
    Event,
    Iteration,
    PartitionCommitted,
    StageFinished,
    StageStarted,
    combine,
    silent,
)
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.jobs.performance import reported
from streaming_jsmf.jobs.run import watched
from streaming_jsmf.storage.provenance import package_versions
from tests.corpora import planted, write_corpus
from tests.outcomes import Command
from tests.processes import PATIENCE, command, finished, killed, started, wait_for
from tests.stores import digests

SETTINGS = ("--max-topics", "5", "--partition-nonzeros", "1500")
MIB = 2**20


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    counts = planted(300, 60, 5, length=40, seed=3).counts
    return write_corpus(tmp_path_factory.mktemp("watched") / "corpus", counts, row_group_rows=20)


def parsed(text: str) -> list[dict[str, Any]]:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


def of_kind(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["event"] == kind]


class FakeClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


# --- the arithmetic


def test_parts_of_an_earlier_run_are_done_but_took_no_time() -> None:
    clock = FakeClock()
    meter = Meter(clock)
    meter.see(StageStarted("range", [900, 10, 20, 30], frozenset({0}), part="partition"))
    assert (meter.done, meter.total, meter.rate, meter.eta_seconds) == (1, 4, None, None)
    clock.now += 5
    meter.see(PartitionCommitted("range", 2, 20, Cost(1.0, 300)))
    assert (meter.done, meter.done_size, meter.total_size) == (2, 920, 960)
    assert (meter.rate, meter.eta_seconds) == (4.0, 10.0)
    meter.see(PartitionCommitted("range", 1, 10, Cost(1.0, 200)))
    assert meter.peak_memory == 300, "the largest so far"
    meter.see(StageStarted("projection", [7], frozenset()))
    assert (meter.done, meter.peak_memory, meter.rate) == (0, None, None)


def test_a_stage_without_sizes_has_no_rate() -> None:
    clock = FakeClock()
    meter = Meter(clock)
    meter.see(StageStarted("read", [0, 0], frozenset(), "bytes"))
    clock.now += 1
    meter.see(PartitionCommitted("read", 0, 0))
    assert (meter.done, meter.rate, meter.eta_seconds) == (1, None, None)


def test_iterations_are_timed_from_the_end_of_the_first() -> None:
    clock = FakeClock()
    meter = Meter(clock)
    clock.now += 1000
    for number in (1, 2, 3):
        meter.see(Iteration("rectification", number, 11, {"change": 0.5}))
        clock.now += 2
    assert (meter.done, meter.total, meter.rate) == (3, 11, pytest.approx(2 / 6))
    meter.see(Iteration("rectification", 1, 11, {"change": 0.5}))
    assert (meter.done, meter.rate) == (1, None), "the next model begins anew"


def test_a_line_for_each_commit() -> None:
    clock, told = FakeClock(), Told()
    logger = logging.getLogger("streaming_jsmf.progress")
    logger.addHandler(told)
    logger.setLevel(logging.INFO)
    try:
        lines = Lines(clock)
        lines(StageStarted("read", [6_000_000, 2_000_000, 4_000_000], frozenset({1}), "bytes"))
        clock.now += 3
        lines(PartitionCommitted("read", 0, 6_000_000, Cost(2.5, 512 * MIB)))
        lines(StageStarted("range", [10], frozenset(), part="partition"))
        lines(PartitionCommitted("range", 0, 10))
    finally:
        logger.removeHandler(told)
        logger.setLevel(logging.NOTSET)
    assert told.lines == [
        "read: part 0 committed (2 of 3, 2.00M bytes/s, 00:02 left, peak 512.00 MiB)",
        "range: partition 0 committed (1 of 1)",
    ]


class Told(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


# --- listeners that fail


class Failing:
    def __init__(self, error: Exception) -> None:
        self.error = error
        self.heard: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.heard.append(event)
        if isinstance(event, PartitionCommitted):
            raise self.error


@dataclass
class Parts:
    """A job whose parts are done when the test says so."""

    done: set[int]

    def started(self, done: frozenset[int]) -> StageStarted:
        return StageStarted("range", [1, 1], done)

    def committed(self) -> frozenset[int]:
        return frozenset(self.done)

    def cost(self, index: int) -> Cost:
        return Cost(0.5, index)

    def graph(self, done: frozenset[int], at_once: int) -> None:
        """Nothing is lacking."""


def test_all_listeners_are_told_before_one_of_them_fails() -> None:
    first, second = Failing(InputError("first")), Failing(InputError("second"))
    with pytest.raises(InputError, match="first"):
        combine(first, second, silent)(PartitionCommitted("range", 0, 1))
    assert len(second.heard) == 1


def test_a_listener_that_fails_ends_the_stage_after_its_work() -> None:
    done: set[int] = set()
    listener = Failing(InputError("no room"))

    parts = Parts(done)

    def work() -> None:
        with watched(parts, parts.started(frozenset()), listener):
            done.add(0)
            while len(listener.heard) < 2:
                time.sleep(0.01)
            done.add(1)

    with pytest.raises(InputError, match="no room"):
        work()
    assert done == {0, 1}, "the work went on"
    told = [event for event in listener.heard if isinstance(event, PartitionCommitted)]
    assert [(event.index, event.cost) for event in told] == [(0, Cost(0.5, 0)), (1, Cost(0.5, 1))]


def test_the_work_s_own_error_goes_before_that_of_a_listener() -> None:
    done: set[int] = set()
    listener = Failing(InputError("no room"))

    def work() -> None:
        done.add(0)
        while len(listener.heard) < 2:
            time.sleep(0.01)
        raise StoreError("damaged")

    parts = Parts(done)
    with pytest.raises(StoreError, match="damaged"), watched(parts, parts.started(frozenset()), listener):
        work()


# --- the log in JSON


@pytest.mark.parametrize(
    "scheduler",
    ["threads", *(pytest.param(name, marks=pytest.mark.slow) for name in ("processes", "cluster"))],
)
def test_the_log_of_a_scan(scheduler: str, corpus: Path, tmp_path: Path) -> None:
    log, store = tmp_path / "log.jsonl", tmp_path / "m"
    options = ("--scheduler", scheduler, "--workers", "2", "--log-json", log)
    before = datetime.now(UTC)
    said = finished(command("scan", corpus, store, *SETTINGS, *options))
    after = datetime.now(UTC)
    assert "range: partition 0 committed" in said, "people are told as well"
    first, *events, last = parsed(log.read_text(encoding="utf-8"))
    assert (first["event"], first["command"]) == ("command_started", "scan")
    assert first["versions"] == package_versions()
    assert first["settings"].items() >= {"scheduler": scheduler, "max_topics": 5, "seed": 0}.items()
    assert (last["event"], last["outcome"]) == ("command_finished", "done")
    times = [datetime.fromisoformat(event["time"]) for event in (first, *events, last)]
    assert times == sorted(times)
    assert times[0].utcoffset() is not None
    assert before <= times[0] < times[-1] <= after
    # Its own clock begins before the first line is written, and ends before the last one is.
    assert (times[-2] - times[1]).total_seconds() - 0.01 < last["seconds"] < (after - before).total_seconds()
    require_whole_stages(events, store)


def require_whole_stages(events: list[dict[str, Any]], store: Path) -> None:
    """Each stage is told of from its start to its end, with the figures of the store's own records."""
    for stage in ("range", "projection"):
        told = [event for event in events if event["stage"] == stage]
        start, *committed, end = told
        history = json.loads((store / "records" / stage / "zarr.json").read_text())["attributes"]["history"]
        assert (start["event"], end["event"]) == ("stage_started", "stage_finished")
        assert start["size"] == sum(note["nonzeros"] for note in history)
        assert [event["done"] for event in committed] == list(range(1, len(history) + 1))
        assert {event["total"] for event in told} == {len(history)}
        assert {event["unit"] for event in told} == {"nonzeros"}
        for event in committed:
            note = history[event["index"]]
            assert event["size"] == note["nonzeros"]
            assert (event["seconds"], event["peak_memory"]) == (note["seconds"], note["peak_memory"])
            assert event["rate"] > 0
            assert event["eta_seconds"] >= 0
        assert committed[-1]["eta_seconds"] == 0
        assert end["peak_memory"] == max(event["peak_memory"] for event in committed) > 10 * MIB


def test_a_killed_job_leaves_whole_lines_and_the_next_run_adds_to_them(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, store = tmp_path / "log.jsonl", tmp_path / "m"
    arguments = [
        *("scan", str(corpus), str(store), *SETTINGS),
        *("--scheduler", "synchronous", "--log-json", str(log)),
    ]
    records = store / "records"
    with killed(command(*arguments), lambda: len(list(records.glob("range-part-*/zarr.json"))) >= 2):
        pass
    kept = len(list(records.glob("range-part-*/zarr.json")))
    assert made(store, capsys).keys() == {"started", "versions", "task_seconds", "peak_memory"}
    text = log.read_text(encoding="utf-8")
    assert text.endswith("\n")
    assert [event["event"] for event in parsed(text)][:2] == ["command_started", "stage_started"]
    # As a crash of the machine leaves it.
    log.write_text(text + '{"time": "20', encoding="utf-8")
    assert run(arguments) == 0
    added = log.read_text(encoding="utf-8").removeprefix(text + '{"time": "20\n')
    first, *events = parsed(added)
    # One message tells that the lock of the killed job is broken, another what is kept of it.
    message = next(e for e in events if e["event"] == "message" and "were committed" in e["text"])
    start = next(e for e in events if e["event"] == "stage_started")
    assert (first["event"], events[-1]["event"]) == ("command_started", "command_finished")
    assert f"{kept} of {start['total']} partitions were committed by an earlier run" in message["text"]
    assert (start["event"], start["done"]) == ("stage_started", kept)
    committed = [event for event in of_kind(events, "committed") if event["stage"] == "range"]
    assert [event["done"] for event in committed] == list(range(kept + 1, start["total"] + 1))


def test_standard_error_has_json_alone(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--topics", "3", "--no-polish", *SETTINGS[2:], "--scheduler", "synchronous", "--log-json", "-")
    assert run(["fit", str(corpus), str(tmp_path / "model"), *options]) == 0
    events = parsed(capsys.readouterr().err)
    assert events[0]["command"] == "fit"
    assert {event["event"] for event in events} == {
        "command_started",
        "stage_started",
        "committed",
        "stage_finished",
        "iteration",
        "command_finished",
    }
    steps = of_kind(events, "iteration")
    assert [step["done"] for step in steps] == list(range(1, len(steps) + 1))
    assert steps[0]["total"] == 150
    assert all(step["measures"]["change"] > 0 for step in steps)


def test_the_log_of_an_ingest_and_of_a_simulation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = tmp_path / "in.jsonl"
    rows = (
        {"text": f"river stone garden window summer winter {'word' * (i % 3 + 1)} forest"} for i in range(40)
    )
    texts.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    log = tmp_path / "log.jsonl"
    ingest = [
        "ingest",
        str(texts),
        str(tmp_path / "c"),
        "--preset",
        "papers",
        "--scheduler",
        "threads",
        "--workers",
        "1",
    ]
    assert run([*ingest, "--log-json", str(log)]) == 0
    said = capsys.readouterr().err
    assert re.search(r"^read: part 0 committed \(1 of 1, \S+ bytes/s, 00:00 left, peak .*\)$", said, re.M)
    assert "partition" not in said
    events = parsed(log.read_text(encoding="utf-8"))
    assert [event["unit"] for event in of_kind(events, "committed")] == ["bytes", "nonzeros"]
    assert all(event["peak_memory"] > 10 * MIB for event in of_kind(events, "committed"))
    sizes = ("--documents", "50", "--vocabulary-size", "60", "--topics", "3", "--scheduler", "synchronous")
    assert run(["simulate", str(tmp_path / "s"), *sizes, "--log-json", str(log)]) == 0
    events = parsed(log.read_text(encoding="utf-8"))[len(events) :]
    (part,) = of_kind(events, "committed")
    assert (part["stage"], part["size"], part["unit"]) == ("simulate", 50, "documents")


def test_an_error_and_an_interrupt_end_the_log(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.jsonl"
    assert run(["scan", str(corpus), str(tmp_path / "m"), "--max-topics", "0", "--log-json", str(log)]) == 2
    last = parsed(log.read_text(encoding="utf-8"))[-1]
    assert last["outcome"] == "error"
    assert capsys.readouterr().err == f"error: {last['message']}\n"
    arguments = command(
        "scan", corpus, tmp_path / "m", *SETTINGS, "--scheduler", "threads", "--log-json", log
    )
    with started(arguments) as process:
        wait_for(process, lambda: b'"stage_started"' in log.read_bytes())
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
    last = parsed(log.read_text(encoding="utf-8"))[-1]
    assert last["outcome"] == "interrupted"
    assert "run the same command again" in last["message"]
    assert last["seconds"] > 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_one_line_before_any_work(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["scan", str(corpus), str(tmp_path / "m"), "--log-json", "/dev/full"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: --log-json /dev/full: No space left on device; "), error
    assert error.count("\n") == 1
    assert not (tmp_path / "m").exists()


def test_a_log_that_cannot_be_opened(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for target in (tmp_path / "missing" / "log", tmp_path):
        assert run(["scan", str(corpus), str(tmp_path / "m"), "--log-json", str(target)]) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"error: --log-json {target}: "), error
        assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_log_that_breaks_on_the_way(corpus: Path, tmp_path: Path, invoke: Command) -> None:
    """The reader of a pipe goes away after the first commit: exit 2, one error, and the work is kept."""
    pipe, store = tmp_path / "pipe", tmp_path / "m"
    os.mkfifo(pipe)
    read: list[bytes] = []

    def read_three() -> None:
        with pipe.open("rb", buffering=0) as file:
            while sum(part.count(b"\n") for part in read) < 3:
                read.append(file.read(4096))

    reader = threading.Thread(target=read_three)
    reader.start()
    arguments = ["scan", str(corpus), str(store), *SETTINGS, "--scheduler", "synchronous"]
    done = invoke(*arguments, "--log-json", pipe)
    reader.join(timeout=PATIENCE)
    assert done.code == 2, done.err
    assert b'"committed"' in b"".join(read)
    *progress, last = done.err.splitlines()
    assert last.startswith(f"error: --log-json {pipe}: Broken pipe; ")
    # How far the scan came before it noticed depends on when the reader got its turn.
    committed = {line.split(" committed ")[0] for line in progress if " committed " in line}
    assert committed, done.err
    completed = invoke(*arguments)
    assert completed.code == 0, completed.err
    again = completed.err
    assert "range: 5 of 5 partitions were committed by an earlier run" in again
    assert not {line for line in again.splitlines() if line.split(" committed ")[0] in committed}, (
        "done twice"
    )


def test_a_log_that_breaks_in_an_ingest_costs_no_work(tmp_path: Path) -> None:
    """The first step is done when the second has nobody left to tell."""
    texts, log, request = tmp_path / "in.jsonl", _BreaksAfter("read"), IngestRequest(preset="papers")
    texts.write_text('{"text": "river stone garden window summer winter forest"}\n' * 9, encoding="utf-8")
    with pytest.raises(LogError):
        ingest(texts, tmp_path / "c", request, execution=Execution("synchronous"), listener=log)
    assert (tmp_path / "c.partial" / "records" / "read-part-00000" / "zarr.json").exists()
    heard: list[Event] = []
    ingest(texts, tmp_path / "c", request, execution=Execution("synchronous"), listener=heard.append)
    assert [event.done for event in heard if isinstance(event, StageStarted)] == [frozenset({0}), frozenset()]


class _BreaksAfter:
    """A log whose disk is full once a stage has finished."""

    def __init__(self, stage: str) -> None:
        self.stage = stage

    def __call__(self, event: Event) -> None:
        if isinstance(event, StageFinished) and event.stage == self.stage:
            raise LogError("--log-json x: No space left on device; give another file")


def test_values_that_json_has_no_words_for(tmp_path: Path) -> None:
    log = JsonLog(str(tmp_path / "log"))
    log.write("x", value=float("nan"), deep={"a": [float("inf"), 1.5]}, path="\udcff", word="né")
    log(StageStarted("empty", [], frozenset()))
    log(StageFinished("empty", 0.0))
    log.close()
    first, *_ = parsed((tmp_path / "log").read_text(encoding="utf-8"))
    assert (first["value"], first["deep"]) == (None, {"a": [None, 1.5]})
    assert (first["path"], first["word"]) == ("\udcff", "né")


# --- on a terminal


@pytest.mark.slow
def test_the_bar_on_a_terminal(corpus: Path, tmp_path: Path) -> None:
    arguments = ("fit", corpus, tmp_path / "model", "--topics", "3", *SETTINGS[2:])
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
    seen = bytearray()
    with started(command(*arguments), stderr=theirs) as process:
        os.close(theirs)
        # Reading from a terminal that nobody writes to any more is an error on Linux.
        with suppress(OSError):
            while part := os.read(ours, 4096):
                seen += part
    os.close(ours)
    text = seen.decode()
    assert process.returncode == 0, text
    total = json.loads((tmp_path / "model.moments" / "zarr.json").read_text())["attributes"]["manifest"]
    n = len(total["partitions"])
    whole = rf"range: 100%.*\[\d\d:\d\d<00:00, \S+ nonzeros/s, {n}/{n} partitions, peak \S+ [MG]iB\]"
    assert re.search(whole, text), text
    assert re.search(r"rectification: +\d+%.*steps/s, change \S+e\S+\]", text), text
    assert "committed" not in text


# --- Dask's own report


@pytest.mark.parametrize("scheduler", ["threads", "processes", "synchronous"])
def test_local_schedulers_have_no_report(
    scheduler: str, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "r.html"
    options = ["--scheduler", scheduler, "--performance-report", str(report)]
    assert run(["scan", str(corpus), str(tmp_path / "m"), *options]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "use --scheduler cluster" in error
    assert list(tmp_path.iterdir()) == []


def test_a_report_needs_bokeh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "bokeh", None)
    with pytest.raises(InputError, match=r"needs bokeh; install it with pip install 'dask\[diagnostics\]'"):
        Execution("cluster", performance_report=tmp_path / "r.html")


def test_a_report_needs_a_place(tmp_path: Path) -> None:
    pytest.importorskip("bokeh")
    for path in (tmp_path / "missing" / "r.html", tmp_path / "r.txt"):
        with pytest.raises(InputError, match="cannot be written"):
            Execution("cluster", performance_report=path)


def test_a_running_scheduler_without_bokeh_is_told_before_the_work(tmp_path: Path) -> None:
    class Scheduler:
        def run_on_scheduler(self, function: Any, name: str) -> Any:
            return function(f"no-{name}-there")

    with pytest.raises(InputError, match="the scheduler lacks bokeh"), reported(Scheduler(), tmp_path / "r"):
        pytest.fail("the job must not begin")


@pytest.mark.slow
def test_the_report_of_a_cluster(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is written; and the cluster of a scan is as quiet as the other schedulers, with the same bits."""
    pytest.importorskip("bokeh")
    report, scan = tmp_path / "r.html", ["scan", str(corpus), str(tmp_path / "m"), *SETTINGS]
    options = ["--scheduler", "cluster", "--workers", "1", "--performance-report", str(report)]
    said = finished(command(*scan, *options))
    assert all(line.startswith(("range: ", "projection: ")) for line in said.splitlines()), said
    text = report.read_text(encoding="utf-8")
    assert "Dask Performance Report" in text
    partitions = said.count(" committed ") // 2
    tasks = re.search(r"number of tasks: (\d+)", text)
    assert tasks is not None
    assert int(tasks[1]) == 4 * partitions, "a partition and a fold, in both scans"
    assert run(["scan", str(corpus), str(tmp_path / "here"), *SETTINGS, "--scheduler", "synchronous"]) == 0
    assert digests(tmp_path / "m") == digests(tmp_path / "here")
    report.unlink()
    capsys.readouterr()
    assert run([*scan, *options]) == 0
    again = capsys.readouterr().err
    assert again.startswith(f"{report}: not written")
    assert again.count("\n") == 1


def test_a_step_of_its_own_has_a_report_of_its_own(tmp_path: Path) -> None:
    pytest.importorskip("bokeh")
    asked = Execution("cluster", 2, performance_report=tmp_path / "r.html")
    assert asked.reporting_on("ingest") == Execution(
        "cluster", 2, performance_report=tmp_path / "r-ingest.html"
    )
    assert Execution().reporting_on("ingest") == Execution()


# --- what made a store


def made(store: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    assert run(["info", str(store), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)["provenance"]
    return found


def test_info_says_what_made_a_store(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, before = tmp_path / "m", datetime.now(UTC)
    assert run(["scan", str(corpus), str(store), *SETTINGS, "--scheduler", "synchronous"]) == 0
    found = made(store, capsys)
    notes = [
        note
        for stage in ("range", "projection")
        for note in json.loads((store / "records" / stage / "zarr.json").read_text())["attributes"]["history"]
    ]
    assert found["task_seconds"] == pytest.approx(sum(note["seconds"] for note in notes), abs=1e-3)
    assert found["peak_memory"] == max(note["peak_memory"] for note in notes)
    assert found["versions"] == package_versions()
    started, finished = (datetime.fromisoformat(found[key]) for key in ("started", "finished"))
    # To the millisecond, rounded down.
    assert before.timestamp() - 0.001 <= started.timestamp() <= finished.timestamp()
    assert finished <= datetime.now(UTC)


def test_info_of_a_store_with_two_versions_names_both(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "m"
    assert run(["scan", str(corpus), str(store), *SETTINGS, "--scheduler", "synchronous"]) == 0
    change(store, "range", lambda record: record["made"]["versions"].update(zarr="0.1"))
    assert made(store, capsys)["versions"]["zarr"] == f"{package_versions()['zarr']}, 0.1"
    # A store of a release that did not keep it, and one that is not finished.
    change(store, "words", lambda record: record.pop("made"))
    assert made(store, capsys).keys() == {"task_seconds", "peak_memory"}


def change(store: Path, stage: str, how: Any) -> None:
    path = store / "records" / stage / "zarr.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    attributes = record["attributes"]
    how(attributes)
    del attributes["sha256"]
    attributes["sha256"] = fingerprint(attributes)
    path.write_text(json.dumps(record), encoding="utf-8")
