"""What a job tells: events, logs, displays and times."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_jsmf.cli.log_json import JsonLog
from streaming_jsmf.cli.main import OneLine
from streaming_jsmf.config import IngestRequest
from streaming_jsmf.display import location, printable
from streaming_jsmf.errors import InputError, LogError, StoreError
from streaming_jsmf.fingerprint import fingerprint
from streaming_jsmf.ingestion.ingest import ingest
from streaming_jsmf.jobs.checkpoints import Record
from streaming_jsmf.jobs.cluster import reported
from streaming_jsmf.jobs.events import (
    LINE_EVERY,
    Cost,
    Event,
    Iteration,
    Lines,
    Meter,
    PartitionCommitted,
    StageFinished,
    StageStarted,
    combine,
    silent,
)
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.jobs.run import map_job, run_job
from streaming_jsmf.jobs.workspace import Workspace
from streaming_jsmf.storage.results import package_versions
from tests.corpora import file_bytes, planted, write_corpus, write_texts
from tests.outcomes import Command, invoked, refused
from tests.processes import PATIENCE, command, ended, finished, held, killed, started, wait_for
from tests.stores import digests

SETTINGS = ("--max-topics", "5", "--partition-nonzeros", "1500")
ALONE = ("--scheduler", "synchronous")
MIB = 2**20


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    counts = planted(300, 60, 5, length=40, seed=3).counts
    return write_corpus(tmp_path_factory.mktemp("watched") / "corpus", counts, row_group_rows=20)


SCHEMA = jsonschema.Draft202012Validator(
    json.loads((Path(__file__).parents[1] / "docs/schemas/log.schema.json").read_text(encoding="utf-8"))
)


def parsed(text: str) -> list[dict[str, Any]]:
    """The lines of a log, which have the fields of its schema."""
    lines = [json.loads(line, parse_constant=pytest.fail) for line in text.splitlines()]
    for line in lines:
        SCHEMA.validate(line)
    return lines


def of_kind(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["event"] == kind]


class FakeClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


# --- the arithmetic


def test_parts_of_an_earlier_run_count_as_done_but_not_for_the_rate(clock: FakeClock) -> None:
    meter = Meter(clock)
    meter.see(StageStarted("sums", [900, 10, 20, 30], frozenset({0}), part="partition"))
    assert (meter.done, meter.total, meter.rate, meter.eta_seconds) == (1, 4, None, None)
    clock.now += 5
    meter.see(PartitionCommitted("sums", 2, 20, Cost(1.0, 300)))
    assert (meter.done, meter.done_size, meter.total_size) == (2, 920, 960)
    assert (meter.rate, meter.eta_seconds) == (4.0, 10.0)
    meter.see(PartitionCommitted("sums", 1, 10, Cost(1.0, 200)))
    assert meter.peak_memory == 300, "the largest so far"
    meter.see(StageStarted("read", [0, 0], frozenset(), "bytes"))
    assert (meter.done, meter.peak_memory, meter.rate) == (0, None, None)
    clock.now += 1
    meter.see(PartitionCommitted("read", 0, 0))
    assert (meter.done, meter.rate, meter.eta_seconds) == (1, None, None), "no rate without sizes"


def test_iterations_are_timed_from_the_end_of_the_first(clock: FakeClock) -> None:
    meter = Meter(clock)
    clock.now += 1000
    for number in (1, 2, 3):
        meter.see(Iteration("rectification", number, 11, {"change": 0.5}))
        clock.now += 2
    assert (meter.done, meter.total, meter.rate) == (3, 11, pytest.approx(2 / 6))
    meter.see(Iteration("rectification", 1, 11, {"change": 0.5}))
    assert (meter.done, meter.rate) == (1, None), "the next model begins anew"


def test_a_line_for_each_commit(clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    lines, plain = Lines(clock, verbose=True), Lines(clock)
    with caplog.at_level(logging.INFO, "streaming_jsmf.progress"):
        lines(StageStarted("read", [6_000_000, 2_000_000, 4_000_000], frozenset({1}), "bytes"))
        clock.now += 3
        lines(PartitionCommitted("read", 0, 6_000_000, Cost(2.5, 512 * MIB)))
        lines(StageStarted("sums", [10], frozenset(), part="partition"))
        lines(PartitionCommitted("sums", 0, 10))
        plain(StageStarted("read", [6_000_000, 2_000_000, 4_000_000], frozenset({1}), "bytes"))
        clock.now += 3
        plain(PartitionCommitted("read", 0, 6_000_000, Cost(2.5, 512 * MIB)))
        plain(PartitionCommitted("read", 2, 4_000_000))
        plain(StageFinished("read", 5.0))
        plain(Iteration("step-2", LINE_EVERY, 100, {"change": 0.5}))
    assert caplog.messages == [
        "read: part 0 committed (2 of 3, 2.00M bytes/s, 00:02 left, peak 512.00 MiB)",
        "sums: partition 0 committed (1 of 1)",
        "reading the source: 2 of 3 parts, 00:02 left",
        "reading the source: finished in 5.0 s",
        "improving topics 2: step 25 of at most 100",
    ]


# --- listeners that fail


class Failing:
    """A listener that records events and fails at a commit."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.heard: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.heard.append(event)
        if isinstance(event, PartitionCommitted):
            raise self.error


def test_all_listeners_are_called_before_the_first_error_is_raised() -> None:
    first, second = Failing(InputError("first")), Failing(InputError("second"))
    with pytest.raises(InputError, match="first"):
        combine(first, second, silent)(PartitionCommitted("sums", 0, 1))
    assert len(second.heard) == 1


def note_number(fail: int | None, number: int) -> Record:
    if number == fail:
        raise StoreError("damaged")
    return {}


@pytest.mark.parametrize("fail", [None, 1], ids=["work is done", "work fails"])
def test_a_listener_that_fails_ends_the_stage_after_its_work(fail: int | None, tmp_path: Path) -> None:
    work, listener = Workspace(tmp_path / "w", "test"), Failing(InputError("no room"))
    work.start()
    job = map_job(note_number, fail, [1, 2], work.checkpoints("read"))
    # The error of the work goes before that of a listener.
    with (
        Execution("synchronous").executor(listener) as executor,
        pytest.raises((InputError, StoreError), match="no room" if fail is None else "damaged"),
    ):
        run_job(job, executor)
    told = {event.index: event.size for event in listener.heard if isinstance(event, PartitionCommitted)}
    assert told.items() <= {0: 1, 1: 2}.items()
    assert len(told) == 2 if fail is None else 1 not in told


# --- the log in JSON


@pytest.mark.parametrize(
    "scheduler",
    ["threads", *(pytest.param(name, marks=pytest.mark.slow) for name in ("processes", "cluster"))],
)
def test_the_log_of_a_scan(scheduler: str, corpus: Path, tmp_path: Path) -> None:
    log, store = tmp_path / "log.jsonl", tmp_path / "m"
    options = ("--scheduler", scheduler, "--workers", "2", "--log-json", log)
    before = datetime.now(UTC)
    if scheduler == "threads":
        said = invoked("scan", corpus, store, *SETTINGS, *options).err
    else:
        said = finished(command("scan", corpus, store, *SETTINGS, *options))
    after = datetime.now(UTC)
    assert "summarizing the documents: 1 of" in said, "people are told as well"
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
    """Each stage is logged from its start to its end, with the figures of the store's own records."""
    for stage in ("sums", "projection"):
        told = [event for event in events if event.get("stage") == stage]
        start, *committed, end = told
        notes = history(store, stage)
        assert (start["event"], end["event"]) == ("stage_started", "stage_finished")
        assert start["size"] == sum(note["nonzeros"] for note in notes)
        assert [event["done"] for event in committed] == list(range(1, len(notes) + 1))
        assert {event["total"] for event in told} == {len(notes)}
        assert {event["unit"] for event in told} == {"nonzeros"}
        for event in committed:
            note = notes[event["index"]]
            assert event["size"] == note["nonzeros"]
            assert (event["seconds"], event["peak_memory"]) == (note["seconds"], note["peak_memory"])
            assert event["rate"] > 0
            assert event["eta_seconds"] >= 0
        assert committed[-1]["eta_seconds"] == 0
        assert end["peak_memory"] == max(event["peak_memory"] for event in committed) > 10 * MIB


def test_losses_are_an_event_of_the_log(tmp_path: Path) -> None:
    lines = [*(f"apple pear plum {n % 7} fig" for n in range(40)), "apple pear plum 3 fig", "  ", "?!"]
    source, log = tmp_path / "texts.txt", tmp_path / "log.jsonl"
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    given = ("--reader", "lines", "--min-df", 1, "--max-df", "100%", "--log-json", log, "--quiet")
    for _ in range(2):  # made, and found
        assert invoked("ingest", source, tmp_path / "c", *given).code == 0
        [event] = of_kind(parsed(log.read_text(encoding="utf-8")), "losses")
        log.unlink()
        assert event["schema"] == 1
        lost = {each["step"]: each["documents"] for each in event["lost"]}
        assert lost["duplicates"] > 30
        assert event["read"]["documents"] == event["kept"]["documents"] + sum(lost.values())
        assert event["kept"]["tokens"] > 0


@pytest.mark.slow
def test_a_killed_job_leaves_whole_lines_and_the_next_run_appends(corpus: Path, tmp_path: Path) -> None:
    log, store = tmp_path / "log.jsonl", tmp_path / "m"
    arguments = ("scan", corpus, store, *SETTINGS, *ALONE, "--log-json", log)
    records = store / "records"
    with killed(held(2, *arguments), lambda: len(list(records.glob("sums-part-*/zarr.json"))) >= 2):
        pass
    kept = len(list(records.glob("sums-part-*/zarr.json")))
    assert made(store).keys() == {"started", "versions", "task_seconds", "peak_memory"}
    text = log.read_text(encoding="utf-8")
    assert text.endswith("\n")
    assert [event["event"] for event in parsed(text)][:2] == ["command_started", "stage_started"]
    # As a crash of the machine leaves it.
    log.write_text(text + '{"time": "20', encoding="utf-8")
    assert invoked(*arguments).code == 0
    added = log.read_text(encoding="utf-8").removeprefix(text + '{"time": "20\n')
    first, *events = parsed(added)
    [message] = [e["text"] for e in of_kind(events, "message") if "were finished" in e["text"]]
    start = of_kind(events, "stage_started")[0]
    assert (first["event"], events[-1]["event"]) == ("command_started", "command_finished")
    assert f"{kept} of {start['total']} partitions" in message
    assert start["done"] == kept
    committed = [event for event in of_kind(events, "committed") if event["stage"] == "sums"]
    assert [event["done"] for event in committed] == list(range(kept + 1, start["total"] + 1))
    assert invoked("scan", corpus, tmp_path / "undisturbed", *SETTINGS, *ALONE).code == 0
    assert digests(store) == digests(tmp_path / "undisturbed")


def test_standard_error_has_json_alone(corpus: Path, tmp_path: Path) -> None:
    options = ("--topics", "3", "--no-polish", *SETTINGS[2:], *ALONE, "--log-json", "-")
    done = invoked("fit", corpus, tmp_path / "model", *options)
    assert done.code == 0, done.err
    events = parsed(done.err)
    assert events[0]["command"] == "fit"
    stage = {"stage_started", "committed", "stage_finished", "iteration"}
    assert {event["event"] for event in events} == {"command_started", *stage, "command_finished"}
    steps = of_kind(events, "iteration")
    assert [step["done"] for step in steps] == list(range(1, len(steps) + 1))
    assert steps[0]["total"] == 150
    assert all(step["measures"]["change"] > 0 for step in steps)


def test_an_error_and_an_interrupt_end_the_log(corpus: Path, tmp_path: Path) -> None:
    log, scan = tmp_path / "log.jsonl", ("scan", corpus, tmp_path / "m")
    failed = invoked(*scan, "--max-topics", "0", "--log-json", log)
    last = parsed(log.read_text(encoding="utf-8"))[-1]
    assert (failed.code, last["outcome"], f"error: {last['message']}\n") == (2, "error", failed.err)
    line = held(1, *scan, *SETTINGS, *ALONE, "--log-json", log)
    with started(line, stderr=subprocess.PIPE) as process:
        wait_for(process, lambda: b'"stage_started"' in log.read_bytes())
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=PATIENCE)[1].split("\n")
        assert process.returncode == 130
    advice = "run the same command again to go on from what is committed"
    assert [line for line in said if line][-1] == f"interrupted; {advice}"
    last = parsed(log.read_text(encoding="utf-8"))[-1]
    assert last["outcome"] == "interrupted"
    assert advice in last["message"]
    assert last["seconds"] > 0


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("missing/log", "No such file"),
        pytest.param(
            "/dev/full",
            "No space left on device",
            marks=pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device is always full"),
        ),
    ],
)
def test_a_log_that_cannot_be_written_is_one_line_before_any_work(
    target: str, reason: str, corpus: Path, tmp_path: Path
) -> None:
    log = tmp_path / target
    refused(invoked("scan", corpus, tmp_path / "m", "--log-json", log), 2, f"--log-json {log}: ", reason)
    assert list(tmp_path.iterdir()) == []


def test_a_log_replaces_and_joins_nothing(corpus: Path, tmp_path: Path) -> None:
    docs, store = tmp_path / "docs", tmp_path / "m"
    docs.mkdir()
    (docs / "a.txt").write_text("river stone garden")
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "other.jsonl").write_text('{"time": 3, "text": "a record"}\n')
    (tmp_path / "empty.txt").touch()
    assert invoked("scan", corpus, store, *SETTINGS, *ALONE).code == 0
    before = file_bytes(tmp_path)
    for target in {*before, "docs/new.log"}:
        log = tmp_path / target
        line = ("ingest", docs, tmp_path / "new", "--stop-words", tmp_path / "empty.txt", "--log-json", log)
        refused(invoked(*line), 2, f"--log-json {log}: ", "; give another file")
    assert file_bytes(tmp_path) == before


def test_a_log_is_no_source_that_a_pattern_names(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "river stone garden"}')
    pattern, log = tmp_path / "*.jsonl", tmp_path / "log.jsonl"
    refused(
        invoked("ingest", pattern, tmp_path / "c", "--log-json", log), 2, f"--log-json {log}: is {pattern}"
    )
    assert not log.exists()


def test_a_log_that_breaks_in_an_ingest_costs_no_work(tmp_path: Path) -> None:
    """The first step is done when the log fails before the second."""
    texts = write_texts(
        tmp_path / "in.jsonl", dict.fromkeys(range(9), "river stone garden window summer winter")
    )

    def breaks_after_the_read(event: Event) -> None:
        if isinstance(event, StageFinished) and event.stage == "read":
            raise LogError("--log-json x: No space left on device; give another file")

    def ingested(listener: Callable[[Event], Any]) -> None:
        request = IngestRequest(preset="papers")
        ingest(texts, tmp_path / "c", request, execution=Execution("synchronous"), listener=listener)

    with pytest.raises(LogError):
        ingested(breaks_after_the_read)
    assert (tmp_path / "c.partial" / "records" / "read-part-00000" / "zarr.json").exists()
    heard: list[Event] = []
    ingested(heard.append)
    assert [event.done for event in heard if isinstance(event, StageStarted)] == [frozenset({0}), frozenset()]


def test_values_that_json_cannot_express(tmp_path: Path) -> None:
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
    whole = rf"summarizing the documents: 100%.*\[\d\d:\d\d<00:00, \S+ nonzeros/s, {n}/{n} parts\]"
    assert re.search(whole, text), text
    assert re.search(r"finding topics: +\d+%.*steps/s\]", text), text
    assert "committed" not in text


# --- Dask's own report


def test_a_report_needs_a_cluster_and_bokeh_here_and_on_the_scheduler(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"scheduler.*cluster"):
        Execution("threads", performance_report=tmp_path / "r.html")

    class Scheduler:
        def run_on_scheduler(self, function: Any, name: str) -> Any:
            return function(f"no-{name}-there")

    with pytest.raises(InputError, match="scheduler lacks bokeh"), reported(Scheduler(), tmp_path / "r"):
        pytest.fail("the job must not begin")
    monkeypatch.setitem(sys.modules, "bokeh", None)
    with pytest.raises(InputError, match=r"bokeh; .* 'dask\[diagnostics\]'"):
        Execution("cluster", performance_report=tmp_path / "r.html")


def test_a_report_needs_a_place_and_each_step_has_its_own(tmp_path: Path) -> None:
    pytest.importorskip("bokeh")
    for path in (tmp_path / "missing" / "r.html", tmp_path / "r.txt"):
        with pytest.raises(InputError, match=f"{path}.* cannot be written"):
            Execution("cluster", performance_report=path)
    asked = Execution("cluster", 2, performance_report=tmp_path / "r.html")
    own = Execution("cluster", 2, performance_report=tmp_path / "r-ingest.html")
    assert asked.reporting_on("ingest") == own
    assert Execution().reporting_on("ingest") == Execution()


@pytest.mark.slow
def test_the_report_of_a_cluster(corpus: Path, tmp_path: Path) -> None:
    """The report is written, and a scan on a cluster prints what other schedulers print and gives the same bits."""
    pytest.importorskip("bokeh")
    report, scan = tmp_path / "r.html", ("scan", corpus, tmp_path / "m", *SETTINGS)
    options = ("--scheduler", "cluster", "--workers", "1", "--verbose", "--performance-report", report)
    said = finished(command(*scan, *options))
    first, *others = said.splitlines()
    assert first.startswith("dashboard of the cluster: http")
    assert all(line.startswith(("sums: ", "projection: ")) for line in others), said
    text = report.read_text(encoding="utf-8")
    assert "Dask Performance Report" in text
    partitions = said.count(" committed ") // 2
    tasks = re.search(r"number of tasks: (\d+)", text)
    assert tasks is not None
    assert 2 * partitions < int(tasks[1]) <= 4 * partitions, "a partition, and folds of groups, in both scans"
    assert invoked("scan", corpus, tmp_path / "here", *SETTINGS, *ALONE).code == 0
    assert digests(tmp_path / "m") == digests(tmp_path / "here")
    report.unlink()
    again = invoked(*scan, *options)
    assert again.code == 0
    assert again.err.startswith(f"{report}: not written")
    assert again.err.count("\n") == 1


# --- the provenance of a store


def made(store: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(invoked("info", store, "--json").out)["provenance"]
    return found


def history(store: Path, stage: str) -> list[dict[str, Any]]:
    """The notes of the partitions of a stage."""
    record = json.loads((store / "records" / stage / "zarr.json").read_text(encoding="utf-8"))
    notes: list[dict[str, Any]] = record["attributes"]["history"]
    return notes


def test_info_says_what_made_a_store(corpus: Path, tmp_path: Path) -> None:
    store, before = tmp_path / "m", datetime.now(UTC)
    assert invoked("scan", corpus, store, *SETTINGS, *ALONE).code == 0
    found, notes = made(store), history(store, "sums") + history(store, "projection")
    assert found["task_seconds"] == pytest.approx(sum(note["seconds"] for note in notes), abs=1e-3)
    assert found["peak_memory"] == max(note["peak_memory"] for note in notes)
    assert found["versions"] == package_versions()
    started, finished = (datetime.fromisoformat(found[key]) for key in ("started", "finished"))
    # To the millisecond, rounded down.
    assert before.timestamp() - 0.001 <= started.timestamp() <= finished.timestamp()
    assert finished <= datetime.now(UTC)
    change(store, "sums", lambda record: record["made"]["versions"].update(zarr="0.1"))
    assert made(store)["versions"]["zarr"] == f"{package_versions()['zarr']}, 0.1", "both are named"


def change(store: Path, stage: str, how: Any) -> None:
    path = store / "records" / stage / "zarr.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    attributes = record["attributes"]
    how(attributes)
    del attributes["sha256"]
    attributes["sha256"] = fingerprint(attributes)
    path.write_text(json.dumps(record), encoding="utf-8")


# -- What is said and kept: no secret of a URL, and nothing that a terminal would obey --


#: Colour, title of the window, a C1 control sequence, text from right to left, a new line, a tag, half a pair.
ORDERS = ("\x1b[31mred", "\x1b]0;t\x07", "\x9b2J", "\u202eabc", "two\nlines", "\U000e0041x", "caf\u00e9")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("ftp://user:S3CRET@host/corpus", "ftp://host/corpus"),
        ("ftp://user:S3@CRET@host:21/c", "ftp://host:21/c"),
        ("sftp://user:my S3'CRET@host/c", "sftp://host/c"),
        ("https://S3CRET@host/a.csv", "https://host/a.csv"),
        ("https://host/a.csv?sig=S3CRET&b=c#S3CRET", "https://host/a.csv"),
        ("s3://bucket/a?X-Amz-Signature=S3CRET", "s3://bucket/a"),
        ("simplecache::ftp://u:S3CRET@host/a", "simplecache::ftp://host/a"),
        ("zip://a@b.csv::https://u:S3CRET@host/b.zip?k=S3CRET", "zip://a@b.csv::https://host/b.zip"),
        ("abfs://u:S3CRET@account.net/a", "abfs://account.net/a"),
        ("cannot open ftp://u:S3CRET@host/x: reason; twice FTP://u:S3CRET@host, so.",
         "cannot open ftp://host/x: reason; twice FTP://host, so."),
    ],
)  # fmt: skip
def test_a_location_has_no_secrets(given: str, said: str) -> None:
    assert location(given) == said
    assert location(said) == said
    assert str(InputError(given)) == said


@pytest.mark.parametrize(
    "name",
    [
        "/local/a@b?c=d::e",
        "s3://bucket/part-?.parquet",
        "s3://arn:aws:s3:eu:12:accesspoint/x/key@2",
        "abfs://container@account.dfs.core.windows.net/a",
        "github://org:repo@branch/a.csv",
        "https://host/a@b.csv",
        "memory://a@b/c",
    ],
)
def test_texts_without_secrets_are_unchanged(name: str) -> None:
    assert location(name) == name


def test_printable_json_stands_for_the_same_values() -> None:
    text = json.dumps([*ORDERS, "\ud800"], ensure_ascii=False)
    shown = printable(text)
    assert json.loads(shown) == [*ORDERS, "\ud800"]
    assert "caf\u00e9" in shown
    assert all(character.isprintable() for character in shown)


def test_log_lines_are_one_line_without_secrets() -> None:
    record = logging.LogRecord("x", logging.INFO, "", 0, "a\x1b[0m\nftp://u:S3CRET@h/c", None, None)
    assert OneLine().format(record) == "a\\u001b[0m\\u000aftp://h/c"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus whose words give orders to terminals."""
    folder = write_corpus(tmp_path_factory.mktemp("hostile") / "c", planted(300, 40, 3, seed=1).counts)
    spoilt = [f"{ORDERS[i % len(ORDERS)]}{i}" for i in range(40)]
    (folder / "vocab.txt").unlink()
    pq.write_table(pa.table({"word": spoilt}), folder / "vocabulary.parquet")
    return folder


def _obeyed(text: str) -> list[str]:
    """Characters that a terminal obeys, but the ends of lines."""
    return [character for character in text if printable(character, keep="\n\t\r") != character]


@pytest.mark.slow
def test_words_of_a_corpus_give_no_orders(hostile: Path, tmp_path: Path, invoke: Command) -> None:
    model = tmp_path / "model"
    fitted = invoke("fit", hostile, model, "--topics", "3", "--no-polish", "--scheduler", "synchronous")
    assert fitted.code == 0, fitted.err
    table = invoke("topics", model)
    assert "\\u001b[31mred" in table.out
    assert "two\\u000alines" in table.out or "two lines" in table.out
    listed = invoke("topics", model, "--json")
    assert "\x1b[31mred0" in {word for row in json.loads(listed.out) for word in row["prominent"]}
    scores = invoke("evaluate", model, "--words", "5")
    wrong = invoke("topics", tmp_path / "none\x1b[31m\nerror: two")
    assert wrong.code == 2
    assert wrong.err.count("\n") == 1
    for said in (fitted, table, listed, scores, wrong, invoke("info", model)):
        assert not _obeyed(said.out + said.err)
    # A terminal that lacks the letters of the words.
    for arguments in (("topics", model), ("topics", model, "--json")):
        said = ended(command(*arguments), PYTHONIOENCODING="ascii")
        assert said.code == 0, said.err
    assert said.out != listed.out
    assert json.loads(said.out) == json.loads(listed.out)
