"""Scans on a real cluster: over TCP, with processes that are killed, and machines that are not what they should be."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import cloudpickle
import dask
import numpy as np
import pytest
from dask.callbacks import Callback
from distributed import Client, LocalCluster
from distributed.protocol import serialize

from streaming_jsmf import Execution, ScanSettings, open_corpus, scan
from streaming_jsmf.jobs.order import FAN_IN
from streaming_jsmf.moments.store import read_store
from tests.corpora import planted, write_corpus
from tests.dask_processes import (
    Cluster,
    Machine,
    dask_cluster,
    with_another_version,
    without_the_package,
)
from tests.outcomes import Outcome
from tests.processes import PATIENCE, Process, command, ended, finished, started, wait_until

pytestmark = pytest.mark.cluster

#: Wide factors and many partitions, so that a scan takes seconds and can be hit in the middle.
SETTINGS = ("--max-topics", "20", "--partition-nonzeros", "1500")
PARTITIONS = 25


def said_last(outcome: Outcome) -> str:
    """The one line a command ended with; whatever else was said is progress."""
    said = outcome.err.splitlines()
    assert "Traceback" not in outcome.err, outcome.err
    assert not [line for line in said if re.search(r"distributed|asyncio|Warning", line[:60])], outcome.err
    assert [line for line in said if line.startswith("error:")] == said[-1:], outcome.err
    return said[-1]


def running(line: list[str]) -> AbstractContextManager[Process]:
    return started(line, stderr=subprocess.PIPE)


def end_of(process: Process) -> Outcome:
    """Wait for a command; one that hangs fails."""
    _, error = process.communicate(timeout=PATIENCE)
    return Outcome(process.returncode, "", error)


def scan_on(address: str, corpus: Path, store: Path) -> list[str]:
    return command("scan", corpus, store, *SETTINGS, "--scheduler", address)


def committed(store: Path) -> int:
    """Partitions and folds of the first scan that have a record."""
    return len(list((store / "records").glob("range-*/zarr.json")))


def in_the_middle(store: Path) -> None:
    """Wait for some work to be committed, with most of it to come."""
    wait_until(lambda: committed(store) >= 6, "the first commits")
    assert committed(store) < PARTITIONS, "too late to be in the middle"


def digests(store: Path) -> dict[str, str]:
    found = read_store(store)
    assert not found.missing_stages
    return found.digests()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    counts = planted(1200, 500, 10, length=40, seed=11).counts
    return write_corpus(tmp_path_factory.mktemp("cluster") / "corpus", counts, row_group_rows=40)


@pytest.fixture(scope="module")
def undisturbed(corpus: Path) -> dict[str, str]:
    """Digests of a scan on one thread of one process."""
    store = corpus.parent / "undisturbed"
    scan(corpus, store, ScanSettings(max_topics=20, partition_nonzeros=1500), Execution("synchronous"))
    assert len(read_store(store).manifest.partitions) >= PARTITIONS
    return digests(store)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two workers with their nannies, as they start by default."""
    with dask_cluster(tmp_path_factory.mktemp("dask"), nanny=True) as started:
        yield started


# -- the same results ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_scan_over_tcp_gives_the_same_bits(
    corpus: Path, undisturbed: dict[str, str], cluster: Cluster, tmp_path: Path
) -> None:
    finished(scan_on(cluster.address, corpus, tmp_path / "m"))
    assert digests(tmp_path / "m") == undisturbed


def shards(corpus: Path) -> dict[str, str]:
    return {shard.name: shard.sha256 for shard in open_corpus(corpus).shards}


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["ingest", "simulate"])
def test_corpora_made_over_tcp_are_the_same_bytes(verb: str, cluster: Cluster, tmp_path: Path) -> None:
    texts = tmp_path / "texts.jsonl"
    texts.write_text("".join(f'{{"text": "word{i % 9} word{i % 7} word{i % 5} tree"}}\n' for i in range(200)))
    options = {
        "ingest": ("ingest", texts, "{}", "--preset", "papers", "--min-tokens", "0", "--tokens-per-shard", "100"),
        "simulate": ("simulate", "{}", "--documents", "300", "--vocabulary-size", "50", "--topics", "3",
                     "--documents-per-shard", "100"),
    }[verb]  # fmt: skip
    made = {}
    for scheduler in ("synchronous", cluster.address):
        target = tmp_path / re.sub(r"\W", "", scheduler)
        line = command(*(target if option == "{}" else option for option in options))
        finished([*line, "--scheduler", scheduler])
        made[scheduler] = shards(target)
    assert len(made["synchronous"]) > 1
    assert made[cluster.address] == made["synchronous"]


def test_as_many_tasks_are_made_ready_as_the_cluster_has_threads() -> None:
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address="127.0.0.1:0"
    ) as cluster:
        with Client(cluster.scheduler_address, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=PATIENCE)
        for workers, expected in ((None, 2), (1, 2), (7, 7)):
            execution = Execution(cluster.scheduler_address, workers)
            with execution.executor() as executor:
                assert executor.tasks_at_once == expected
    local = Execution("threads", 3)
    with local.executor() as executor:
        assert executor.tasks_at_once == 3


# -- the cluster is lost, or a part of it -----------------------------------------------------------------------------


def test_a_worker_that_is_killed_costs_no_bit(
    corpus: Path, undisturbed: dict[str, str], tmp_path: Path
) -> None:
    store = tmp_path / "m"
    with (
        dask_cluster(tmp_path / "dask") as cluster,
        running(scan_on(cluster.address, corpus, store)) as process,
    ):
        in_the_middle(store)
        cluster.workers[0].kill()
        done = end_of(process)
    assert done.code == 0, done.err
    assert digests(store) == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_lost_scheduler_ends_the_command_and_another_one_finishes_the_store(
    how: signal.Signals, corpus: Path, undisturbed: dict[str, str], cluster: Cluster, tmp_path: Path
) -> None:
    store = tmp_path / "m"
    with (
        dask_cluster(tmp_path / "dask") as lost,
        running(scan_on(lost.address, corpus, store)) as process,
    ):
        in_the_middle(store)
        lost.scheduler.send_signal(how)
        done = end_of(process)
        assert (done.code, f"scheduler at {lost.address} was lost; run the same" in said_last(done)) == (
            3,
            True,
        )
        # They end by themselves: nothing is left behind that writes into the store.
        for worker in lost.workers:
            worker.wait(timeout=PATIENCE)
    before = committed(store)
    assert before > 0
    assert "were committed by an earlier run" in finished(scan_on(cluster.address, corpus, store))
    assert digests(store) == undisturbed


@pytest.mark.slow
def test_a_command_that_is_killed_is_finished_on_the_same_cluster(
    corpus: Path, undisturbed: dict[str, str], cluster: Cluster, tmp_path: Path
) -> None:
    line = scan_on(cluster.address, corpus, tmp_path / "m")
    with running(line) as first:
        in_the_middle(tmp_path / "m")
        first.kill()
        first.wait()
    assert "were committed by an earlier run" in finished(line)
    assert digests(tmp_path / "m") == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("NO_WORKERS_TIMEOUT", "1s", "had no worker for longer than"),
        ("ALLOWED_FAILURES", "0", "1 workers of tcp://"),
    ],
)
def test_a_cluster_that_gives_up_ends_the_command(
    key: str, value: str, said: str, corpus: Path, undisturbed: dict[str, str], tmp_path: Path
) -> None:
    store = tmp_path / "m"
    machine = Machine((), {f"DASK_DISTRIBUTED__SCHEDULER__{key}": value})
    with (
        dask_cluster(tmp_path / "dask", workers=1, scheduler_machine=machine) as cluster,
        running(scan_on(cluster.address, corpus, store)) as process,
    ):
        in_the_middle(store)
        cluster.workers[0].kill()
        done = end_of(process)
    assert (done.code, said in said_last(done)) == (3, True), done.err
    finished(command("scan", corpus, store, *SETTINGS))
    assert digests(store) == undisturbed


# -- a cluster that cannot do the work ------------------------------------------------------------------------------


def refused(corpus: Path, store: Path, address: str, **environment: str) -> str:
    """The one line of a scan that must not begin."""
    done = ended(scan_on(address, corpus, store), **environment)
    assert done.code == 2, done.err
    assert not store.exists()
    return said_last(done)


@pytest.mark.slow
def test_a_scheduler_without_workers_is_not_waited_for_for_ever(corpus: Path, tmp_path: Path) -> None:
    with dask_cluster(tmp_path / "dask", workers=0) as cluster:
        line = refused(
            corpus, tmp_path / "m", cluster.address, DASK_DISTRIBUTED__SCHEDULER__NO_WORKERS_TIMEOUT="500 ms"
        )
    assert f"{cluster.address} has no workers after 500" in line


@pytest.mark.slow
@pytest.mark.parametrize("who", ["worker", pytest.param("scheduler", marks=pytest.mark.slow)])
def test_a_machine_without_the_package_is_told(who: str, corpus: Path, tmp_path: Path) -> None:
    bare = without_the_package(tmp_path)
    with dask_cluster(tmp_path / "dask", workers=1, **{f"{who}_machine": bare}) as cluster:
        line = refused(corpus, tmp_path / "m", cluster.address)
    assert f"the {who}" in line
    assert "has streaming_jsmf nowhere, and here it is" in line


@pytest.mark.slow
@pytest.mark.parametrize("package", ["streaming_jsmf", "scipy"])
def test_a_worker_with_another_version_is_told(package: str, corpus: Path, tmp_path: Path) -> None:
    other = with_another_version(tmp_path / "other", package, "0.0.1")
    with dask_cluster(tmp_path / "dask", workers=1, worker_machine=other) as cluster:
        line = refused(corpus, tmp_path / "m", cluster.address)
    assert f"has {package} 0.0.1, and here it is " in line


# -- TLS ------------------------------------------------------------------------------------------------------------


def certificate(folder: Path) -> dict[str, str]:
    """A new certificate, signed by itself, as Dask's configuration in the environment."""
    folder.mkdir()
    key, signed = folder / "key.pem", folder / "certificate.pem"
    line = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=cluster"]
    finished([*line, "-keyout", str(key), "-out", str(signed)])
    prefix = "DASK_DISTRIBUTED__COMM__TLS__"
    roles = {
        f"{prefix}{role}__{what}": str(file)
        for role in ("SCHEDULER", "WORKER", "CLIENT")
        for what, file in (("KEY", key), ("CERT", signed))
    }
    return {**roles, f"{prefix}CA_FILE": str(signed), "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "true"}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes certificates with openssl")
def test_a_scan_over_tls(corpus: Path, undisturbed: dict[str, str], tmp_path: Path) -> None:
    ours, foreign = certificate(tmp_path / "ours"), certificate(tmp_path / "foreign")
    machine = Machine((), ours)
    with dask_cluster(
        tmp_path / "dask", scheduler_machine=machine, worker_machine=machine, protocol="tls"
    ) as cluster:
        assert cluster.address.startswith("tls://")
        assert "needs certificates" in refused(corpus, tmp_path / "m", cluster.address)
        line = refused(corpus, tmp_path / "m", cluster.address, **foreign)
        assert f"no Dask scheduler answers at {cluster.address}" in line
        finished(scan_on(cluster.address, corpus, tmp_path / "m"), **ours)
    assert digests(tmp_path / "m") == undisturbed


# -- what travels -----------------------------------------------------------------------------------------------------


class Captured(Exception):
    """Carries a graph out of the scan that would have computed it."""


@pytest.fixture(scope="module")
def thousands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of 5,000 row groups, each of them a partition when partitions are small."""
    folder = tmp_path_factory.mktemp("graph")
    counts = np.ones((5000, 4), dtype=np.int64)
    return write_corpus(folder / "corpus", counts, shards=5, row_group_rows=1)


def test_thousands_of_partitions_make_a_small_graph(
    thousands: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def capture(*collections: Any, **_: Any) -> None:
        raise Captured(collections)

    monkeypatch.setattr(dask, "compute", capture)
    settings = ScanSettings(max_topics=2, partition_nonzeros=4)
    with pytest.raises(Captured) as caught:
        scan(thousands, tmp_path / "m", settings, Execution("synchronous"))
    (last,) = caught.value.args[0]
    tasks = dict(last.__dask_graph__())
    assert len(tasks) == 2 * 5000 + 5000 // FAN_IN - 1, "a partition and a fold each, and the groups of eight"
    assert len(cloudpickle.dumps(last)) / len(tasks) < 400, "all of it, as the client sends it"
    for task in (max(tasks.values(), key=lambda task: len(cloudpickle.dumps(task))), tasks[last.key]):
        _, frames = serialize(task)
        assert sum(len(frame) for frame in frames) < 2000, "one of them, as a worker gets it"


def test_results_of_tasks_are_tokens(corpus_path: Path, tmp_path: Path) -> None:
    results: list[Any] = []

    def note(*seen: Any) -> None:
        results.append(seen[1])

    with Callback(posttask=note):
        settings = ScanSettings(max_topics=5, partition_nonzeros=4000)
        scan(corpus_path, tmp_path / "m", settings, Execution("synchronous"))
    assert len(results) > 8
    assert all(isinstance(result, str) and len(result) < 100 for result in results)
