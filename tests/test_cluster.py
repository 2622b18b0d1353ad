"""Scans on a real cluster: over TCP and TLS, with killed processes and misconfigured machines."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import dask
import numpy as np
import psutil
import pytest
from dask.utils import key_split
from distributed import Client, LocalCluster
from distributed.protocol import serialize
from sklearn.base import clone
from threadpoolctl import threadpool_info

import streaming_jsmf as sj
from streaming_jsmf import Execution, ScanSettings, open_corpus, scan
from streaming_jsmf.corpus.footer import RowGroup, Shard
from streaming_jsmf.jobs.order import FAN_IN
from streaming_jsmf.jobs.run import commit_part
from streaming_jsmf.moments.store import read_store
from tests.corpora import planted, write_corpus
from tests.dask_processes import (
    Cluster,
    Machine,
    dask_cluster,
    dask_worker,
    with_another_version,
    without_the_package,
)
from tests.outcomes import Outcome, called
from tests.processes import PATIENCE, Process, command, ended, finished, started, wait_until
from tests.verbs import lines, texts

pytestmark = pytest.mark.cluster

#: Wide factors and many partitions, so that a scan takes seconds and can be hit in the middle.
SETTINGS = ("--max-topics", "20", "--partition-nonzeros", "1500")
PARTITIONS = 66


def error_of(outcome: Outcome) -> str:
    """Return the one error line, which is the last after the progress."""
    said = outcome.err.splitlines()
    assert "Traceback" not in outcome.err, outcome.err
    assert not [line for line in said if re.search(r"distributed|asyncio|Warning", line[:60])], outcome.err
    assert [line for line in said if line.startswith("error:")] == said[-1:], outcome.err
    return said[-1]


def scan_on(address: str, corpus: Path, store: Path) -> list[str]:
    return command("scan", corpus, store, *SETTINGS, "--scheduler", address)


def committed(store: Path) -> int:
    """Partitions and folds of the first scan that have a record."""
    return len(list((store / "records").glob("sums-*/zarr.json")))


@contextmanager
def scanning(address: str, corpus: Path, store: Path) -> Iterator[tuple[Process, Callable[[], Outcome]]]:
    """Start a scan, and yield in its middle; the second value waits for its end."""
    with started(scan_on(address, corpus, store), stderr=subprocess.PIPE) as process:

        def end() -> Outcome:
            _, error = process.communicate(timeout=PATIENCE)
            return Outcome(process.returncode, "", error)

        wait_until(lambda: committed(store) >= 6, "the first commits")
        assert committed(store) < PARTITIONS, "too late to be in the middle"
        yield process, end


def digests(store: Path) -> dict[str, str]:
    found = read_store(store)
    assert not found.missing_stages
    return found.digests()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    counts = planted(3200, 500, 10, length=40, seed=11).counts
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
@pytest.mark.parametrize("verb", ["ingest", "simulate"])
def test_corpora_made_over_tcp_are_the_same_bytes(verb: str, cluster: Cluster, tmp_path: Path) -> None:
    texts = tmp_path / "texts.jsonl"
    texts.write_text("".join(f'{{"text": "word{i % 9} word{i % 7} word{i % 5} tree"}}\n' for i in range(200)))
    source, options = {
        "ingest": ((texts,), "--preset papers --min-tokens 0 --tokens-per-shard 100"),
        "simulate": ((), "--documents 300 --vocabulary-size 50 --topics 3 --documents-per-shard 100"),
    }[verb]
    made = []
    for scheduler in ("synchronous", cluster.address):
        target = tmp_path / str(len(made))
        finished(command(verb, *source, target, *options.split(), "--scheduler", scheduler))
        made.append({shard.name: shard.sha256 for shard in open_corpus(target).shards})
    assert len(made[0]) > 1
    assert made[0] == made[1]


def test_as_many_tasks_are_made_ready_as_the_cluster_has_threads() -> None:
    local = {"processes": False, "protocol": "tcp", "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(n_workers=2, threads_per_worker=1, **local) as cluster:
        address = cluster.scheduler_address
        with Client(address, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=PATIENCE)
        cases = ((address, None, 2), (address, 1, 2), (address, 7, 7), ("threads", 3, 3))
        for scheduler, workers, expected in cases:
            with Execution(scheduler, workers).executor() as executor:
                assert executor.tasks_at_once == expected


# -- the cluster is lost, or a part of it -----------------------------------------------------------------------------


def stop_for_a_while(worker: Process) -> None:
    worker.send_signal(signal.SIGSTOP)
    time.sleep(3)
    worker.send_signal(signal.SIGCONT)


@pytest.mark.slow
@pytest.mark.parametrize("strike", [Process.kill, stop_for_a_while])
def test_a_worker_that_is_killed_or_stops_for_a_while_changes_no_bit(
    strike: Callable[[Process], None], corpus: Path, undisturbed: dict[str, str], tmp_path: Path
) -> None:
    store = tmp_path / "m"
    with dask_cluster(tmp_path / "dask") as cluster, scanning(cluster.address, corpus, store) as (_, end):
        strike(cluster.workers[0])
        done = end()
    assert done.code == 0, done.err
    assert digests(store) == undisturbed


def require_resumable(done: Outcome, corpus: Path, store: Path, undisturbed: dict[str, str]) -> None:
    """A scan succeeded, or ended with one error line; the same command on threads completes its store."""
    assert done.code in (0, 3), done.err
    assert "Traceback" not in done.err
    assert done.err.count("error: ") == bool(done.code)
    finished(command("scan", corpus, store, *SETTINGS))
    assert digests(store) == undisturbed


@pytest.mark.slow
def test_a_killed_process_of_a_pool(corpus: Path, undisturbed: dict[str, str], tmp_path: Path) -> None:
    store = tmp_path / "m"
    with scanning("processes", corpus, store) as (process, end):
        children = psutil.Process(process.pid).children(recursive=True)
        next(child for child in children if "spawn_main" in " ".join(child.cmdline())).kill()
        done = end()
    require_resumable(done, corpus, store, undisturbed)


#: A task of another user that takes a share of the memory of a worker for a while.
GREEDY = """
import sys
from distributed import Client, wait

def hold(share):
    import time
    import psutil
    from distributed import get_worker
    limit = get_worker().memory_manager.memory_limit
    held = b"1" * max(0, int(share * limit) - psutil.Process().memory_info().rss)
    time.sleep(3)
    return len(held)

with Client(sys.argv[1]) as client:
    share, patience = map(float, input().split())
    future = client.submit(hold, share, workers=[min(client.scheduler_info()["workers"])], priority=100)
    try:
        wait(future, timeout=patience)
        print(future.status)
    except TimeoutError:
        print("killed")
"""


# What is killed is tried again and again: six seconds are enough to know.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("share", "patience", "end_of_task"), [(0.87, PATIENCE, "finished"), (1.2, 6, "killed")]
)
def test_a_worker_that_pauses_or_is_killed_for_its_memory(
    share: float,
    patience: int,
    end_of_task: str,
    corpus: Path,
    undisturbed: dict[str, str],
    tmp_path: Path,
) -> None:
    store, pipe = tmp_path / "m", subprocess.PIPE
    with (
        dask_cluster(tmp_path / "dask", nanny=True) as cluster,
        started([sys.executable, "-c", GREEDY, cluster.address], stdin=pipe, stdout=pipe) as greedy,
        scanning(cluster.address, corpus, store) as (_, end),
    ):
        said, _ = greedy.communicate(f"{share} {patience}\n", timeout=2 * PATIENCE)
        assert said.split()[-1] == end_of_task
        done = end()
    require_resumable(done, corpus, store, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_lost_scheduler_ends_the_command_and_another_one_finishes_the_store(
    how: signal.Signals, corpus: Path, undisturbed: dict[str, str], cluster: Cluster, tmp_path: Path
) -> None:
    store = tmp_path / "m"
    with dask_cluster(tmp_path / "dask") as lost, scanning(lost.address, corpus, store) as (_, end):
        lost.scheduler.send_signal(how)
        done = end()
        assert done.code == 3, done.err
        assert f"scheduler at {lost.address} was lost; run the same" in error_of(done)
        # The workers end by themselves, so that nothing goes on writing into the store.
        for worker in lost.workers:
            worker.wait(timeout=PATIENCE)
    assert committed(store) > 0
    assert "were finished by an earlier run" in finished(scan_on(cluster.address, corpus, store))
    assert digests(store) == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["tcp", "processes"])
def test_a_killed_command_is_finished_by_itself(
    scheduler: str, corpus: Path, undisturbed: dict[str, str], cluster: Cluster, tmp_path: Path
) -> None:
    address, store = cluster.address if scheduler == "tcp" else scheduler, tmp_path / "m"
    with scanning(address, corpus, store) as (first, _):
        first.kill()
        first.wait()
        # Worker processes may still be at their last task.
        assert "were finished by an earlier run" in finished(scan_on(address, corpus, store))
    assert digests(store) == undisturbed
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


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
        scanning(cluster.address, corpus, store) as (_, end),
    ):
        cluster.workers[0].kill()
        done = end()
    assert (done.code, said in error_of(done)) == (3, True), done.err
    finished(command("scan", corpus, store, *SETTINGS))
    assert digests(store) == undisturbed


# -- a cluster that cannot do the work ------------------------------------------------------------------------------


def refused(corpus: Path, store: Path, address: str, **environment: str) -> str:
    """Return the error of a scan that must not begin."""
    done = ended(scan_on(address, corpus, store), **environment)
    assert done.code == 2, done.err
    assert not store.exists()
    return error_of(done)


@pytest.mark.slow
def test_a_scheduler_without_workers_is_not_waited_for_for_ever(corpus: Path, tmp_path: Path) -> None:
    with dask_cluster(tmp_path / "dask", workers=0) as cluster:
        line = refused(
            corpus, tmp_path / "m", cluster.address, DASK_DISTRIBUTED__SCHEDULER__NO_WORKERS_TIMEOUT="500 ms"
        )
    assert f"{cluster.address} has no workers after 500" in line


@pytest.mark.slow
@pytest.mark.parametrize(
    ("who", "package"),
    [("worker", None), ("scheduler", None), ("worker", "streaming_jsmf"), ("worker", "numba")],
)
def test_a_machine_without_the_package_or_with_another_version_is_named(
    who: str, package: str | None, corpus: Path, tmp_path: Path
) -> None:
    if package is None:
        machine, said = without_the_package(tmp_path), "has streaming_jsmf nowhere, and here it is"
    else:
        machine = with_another_version(tmp_path / "other", package, "0.0.1")
        said = f"has {package} 0.0.1, and here it is "
    with dask_cluster(tmp_path / "dask", workers=1, **{f"{who}_machine": machine}) as cluster:
        line = refused(corpus, tmp_path / "m", cluster.address)
    assert said in line
    assert f"the {who}" in line


CORETYPE = "OPENBLAS_CORETYPE"


@pytest.mark.slow
def test_another_kernel_of_blas_is_refused_unless_it_is_allowed_and_recorded(
    corpus: Path, tmp_path: Path
) -> None:
    kernels = {library.get("architecture") for library in threadpool_info()}
    machine = Machine((), {CORETYPE: "Nehalem" if "Haswell" in kernels else "Haswell"})
    store = tmp_path / "m"
    with dask_cluster(tmp_path / "dask", workers=1, worker_machine=machine) as cluster:
        line = refused(corpus, store, cluster.address)
        assert f" computes with {machine.environment[CORETYPE]}" in line
        assert line.endswith("or --allow-mixed")
        finished([*scan_on(cluster.address, corpus, store), "--allow-mixed"])
        mixed = ("--scheduler", cluster.address, "--allow-mixed")
        model, simulated, shares = tmp_path / "f", tmp_path / "simulated", tmp_path / "shares"
        finished(command("infer", store, model, "--topics", "5"))
        finished(command("transform", model, corpus, shares, *mixed))
        few = ["--documents", "100", "--vocabulary-size", "30", "--topics", "2"]
        finished(command("simulate", simulated, *few, *mixed))
    assert json.loads((simulated / "manifest.json").read_text())["settings"]["workers"] == "mixed"
    assert json.loads((shares / "_shares.json").read_text())["workers"] == "mixed"
    for stage in ("sums", "projection"):
        outcome = read_store(store).outcome(stage)
        assert outcome is not None
        assert outcome["made"]["versions"]["workers"] == "mixed"


needs_mounts = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or shutil.which("unshare") is None,
    reason="hides directories from a worker in a mount namespace",
)


@pytest.mark.slow
@needs_mounts
@pytest.mark.parametrize("hidden", ["target", "corpus"])
def test_a_worker_that_does_not_see_the_target_or_the_corpus_is_named(
    hidden: str, corpus: Path, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    target.mkdir()
    machine = Machine(hidden={"target": target, "corpus": corpus}[hidden])
    with dask_cluster(tmp_path / "dask", workers=1, worker_machine=machine) as cluster:
        line = refused(corpus, target / "m", cluster.address)
    assert "the worker at tcp://" in line
    assert f" does not see {machine.hidden}" in line
    assert not list(target.iterdir())


@pytest.mark.slow
@needs_mounts
def test_a_worker_that_cannot_write_the_target_is_named(corpus: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    with dask_cluster(tmp_path / "dask", workers=1, worker_machine=Machine(read_only=target)) as cluster:
        line = refused(corpus, target / "m", cluster.address)
    assert f" cannot write to {target}" in line
    assert not list(target.iterdir())


@pytest.mark.slow
@needs_mounts
def test_a_late_worker_is_closed_if_it_does_not_see_the_corpus(
    corpus: Path, undisturbed: dict[str, str], tmp_path: Path
) -> None:
    store, folder = tmp_path / "m", tmp_path / "dask"
    with (
        dask_cluster(folder, workers=1) as cluster,
        started([sys.executable, "-c", ADMITTED, cluster.address, str(store), str(corpus)], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE) as job,
    ):  # fmt: skip
        assert job.stdout is not None
        assert job.stdout.readline() == "ready\n"
        with dask_worker(cluster.address, folder, "late.log", Machine(hidden=corpus)) as late:
            late.wait(timeout=PATIENCE)
        (said,) = [line for line in (folder / "late.log").read_text().splitlines() if "does not see" in line]
        assert str(corpus) in said
        job.kill()
        job.wait()
        # The conditions of a job end with it, even if it was killed, and the leftover is recognized.
        finished(scan_on(cluster.address, corpus, store))
    assert digests(store) == undisturbed
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dask", "m"]


#: A job that waits.
ADMITTED = """
import sys
from pathlib import Path
from streaming_jsmf import Execution, open_corpus
address, target, corpus = sys.argv[1:]
with Execution(address).executor(target=Path(target), sources=open_corpus(corpus).first_files):
    print("ready", flush=True)
    input()
"""


@pytest.mark.slow
def test_relative_paths_and_an_adaptive_cluster_that_starts_with_no_worker(
    corpus: Path, undisturbed: dict[str, str], tmp_path: Path
) -> None:
    with LocalCluster(n_workers=0, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster:
        cluster.adapt(minimum=0, maximum=2, interval="100 ms")
        home = tmp_path / "home"
        home.mkdir()
        line = scan_on(cluster.scheduler_address, Path("corpus"), Path("home", "m"))
        (tmp_path / "corpus").symlink_to(corpus)
        finished(line, folder=tmp_path)
    assert digests(home / "m") == undisturbed


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


@pytest.mark.parametrize("given", ["cluster", "client"])
def test_a_cluster_or_client_brings_its_certificates(given: str) -> None:
    pytest.importorskip("cryptography")
    local = {"processes": False, "protocol": "tls", "security": True, "dashboard_address": "127.0.0.1:0"}
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, **local) as cluster,
        Client(cluster, set_as_default=False) as client,
        Execution({"cluster": cluster, "client": client}[given]).executor() as executor,
    ):
        assert executor.arguments["scheduler"].submit(int).result(timeout=PATIENCE) == 0


def test_an_estimator_takes_a_client_and_is_cloned_and_pickled_with_it() -> None:
    counts = planted(200, 40, 3, length=30, seed=1).counts
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0"
        ) as local,
        Client(local, set_as_default=False) as client,
    ):
        found = clone(sj.LRJSMF(3, scheduler=client).fit(counts)).fit(counts)
        assert pickle.loads(pickle.dumps(found)).score(counts) == found.score(counts)
    assert np.array_equal(found.components_, sj.LRJSMF(3).fit(counts).components_)


def test_an_asynchronous_or_closed_cluster_or_client_is_refused_at_once() -> None:
    local = {"n_workers": 0, "processes": False, "dashboard_address": None}
    with LocalCluster(**local) as closed, Client(closed, set_as_default=False) as closed_client:
        pass

    async def refuse() -> None:
        async with (
            LocalCluster(asynchronous=True, **local) as cluster,
            Client(cluster, asynchronous=True, set_as_default=False) as client,
        ):
            for given, what in ((cluster, "cluster"), (client, "client")):
                with pytest.raises(sj.InputError, match=f"this {what} is asynchronous; .*asyncio.to_thread"):
                    sj.fit(["a text"], scheduler=given)

    asyncio.run(refuse())
    for given, what in ((closed, "cluster"), (closed_client, "client")):
        with pytest.raises(sj.InputError, match=f"this {what} is closed; make a new one"):
            Execution(given)


def test_an_asynchronous_cluster_is_taken_in_another_thread() -> None:
    def answer(cluster: Any) -> Any:
        with Execution(cluster).executor() as executor:
            return executor.arguments["scheduler"].submit(len, "abc").result(timeout=PATIENCE)

    async def answered() -> Any:
        local = {"n_workers": 1, "processes": False, "dashboard_address": None}
        async with LocalCluster(asynchronous=True, **local) as cluster:
            return await asyncio.to_thread(answer, cluster)

    assert asyncio.run(answered()) == 3


#: A program whose calls are not below ``if __name__ == "__main__":``.
UNGUARDED = """
import sys
import streaming_jsmf as sj
try:
    sj.scan(sys.argv[1], sys.argv[2], scheduler=sys.argv[3], workers=1)
except sj.StreamingJSMFError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["processes", "cluster"])
def test_a_program_that_workers_cannot_import_is_the_reason(
    scheduler: str, corpus_path: Path, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(UNGUARDED)
    arguments = (str(corpus_path), str(tmp_path / "m"), scheduler)
    done = ended([sys.executable, str(tmp_path / "program.py"), *arguments])
    assert done.out.startswith("StoreError the worker processes ended as they started"), done
    assert done.out.endswith('calls belong below if __name__ == "__main__":\n'), done
    assert "Traceback" not in done.err
    with (tmp_path / "program.py").open() as program:
        done = ended([sys.executable, "-", *arguments], stdin=program)
    assert done.out.startswith("InputError worker processes import the main module"), done
    assert "<stdin> is not a file; save the program as a file" in done.out
    assert done.err == ""


@pytest.mark.slow
def test_a_cluster_of_its_own_beside_an_active_client_is_announced(caplog: pytest.LogCaptureFixture) -> None:
    with (
        LocalCluster(n_workers=0, processes=False, dashboard_address=None) as cluster,
        Client(cluster),
        Execution("cluster", workers=1).executor(),
    ):
        assert cluster.scheduler_address in caplog.text
    caplog.clear()
    with Execution("cluster", workers=1).executor():
        assert "active" not in caplog.text


# -- what travels -----------------------------------------------------------------------------------------------------


class Captured(Exception):
    """Carries a graph out of the scan that would have computed it."""


@pytest.mark.slow
def test_thousands_of_partitions_make_a_small_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def capture(*collections: Any, **_: Any) -> None:
        raise Captured(collections)

    monkeypatch.setattr(dask, "compute", capture)
    corpus = write_corpus(tmp_path / "c", np.ones((5000, 4), dtype=np.int64), shards=5, row_group_rows=1)
    settings = ScanSettings(max_topics=2, partition_nonzeros=4)
    with pytest.raises(Captured) as caught:
        scan(corpus, tmp_path / "m", settings, Execution("synchronous"))
    (last,) = caught.value.args[0]
    tasks = dict(last.__dask_graph__())
    assert 5000 < len(tasks) < 5000 + 2 * 5000 // (FAN_IN - 1), (
        "a partition each, and a fold and a wait for eight"
    )
    assert len(cloudpickle.dumps(last)) / 5000 < 600, "all of it, as the client sends it"
    for task in (max(tasks.values(), key=lambda task: len(cloudpickle.dumps(task))), tasks[last.key]):
        _, frames = serialize(task)
        # Paths of temporary directories, which have any length, are in it.
        assert sum(len(frame) for frame in frames) < 2500, "one of them, as a worker gets it"


@pytest.mark.parametrize(
    "documents",
    [10**8, pytest.param(10**9, marks=pytest.mark.slow), pytest.param(10**10, marks=pytest.mark.campaign)],
)
def test_a_task_of_a_billion_documents_is_small(
    documents: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The graph of the first pass over shards of 15 row groups of a million nonzeros, with the usual partitions."""

    def capture(*collections: Any, **_: Any) -> None:
        raise Captured(collections)

    groups = (RowGroup(13_334, 1_000_000),) * 15
    shards = tuple(
        Shard(f"documents/part-{n:05d}.parquet", 200_010, 15_000_000, 1, f"{n:064x}", groups, (1, 2**60 + n))
        for n in range(documents // 200_000)
    )
    corpus = replace(open_corpus(write_corpus(tmp_path / "c", np.ones((50, 4), np.int64))), shards=shards)
    assert corpus.n_documents >= documents
    monkeypatch.setattr(dask, "compute", capture)
    with pytest.raises(Captured) as caught:
        scan(corpus, tmp_path / "m", ScanSettings(max_topics=2), Execution("processes", 2))
    (last,) = caught.value.args[0]
    tasks = dict(last.__dask_graph__())
    parts = [task for task in tasks.values() if task.args[1] is commit_part]
    assert len(parts) == len(read_store(tmp_path / "m").manifest.partitions) >= 64
    assert len(cloudpickle.dumps(last)) / len(tasks) < 400, "all of it, as the client sends it"
    sizes = [sum(map(len, serialize(task)[1])) for task in (*parts[:3], *parts[-3:])]
    assert max(sizes) < 2000, "one of them, as a worker gets it"
    (first, *_) = parts
    sent = pickle.loads(pickle.dumps(first.args[4].source))
    assert [*sent.units] == [*first.args[4].source.units]
    assert sum(unit.nonzeros for unit in sent.units) == sent.nonzeros
    known = read_store(tmp_path / "m").manifest.partitions[0]
    assert (sent.content, sent.rows, sent.nonzeros) == (known.content, known.rows, known.nonzeros)


def test_dashboards_show_verb_stage_and_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask shows the keys of tasks, and groups them by the words with which they begin."""
    keys, compute = list[str](), dask.compute

    def noting(*tasks: Any, **options: Any) -> Any:
        keys.extend(dict(tasks[0].__dask_graph__()))
        return compute(*tasks, **options)

    monkeypatch.setattr(dask, "compute", noting)
    place, one = tmp_path / "p", ("--scheduler", "synchronous")
    place.mkdir()
    texts(place / "texts")
    for line in lines(place, *one)[:6]:
        assert called(*line).code == 0
    simulated = f"simulate {place}/s --documents 20 --vocabulary-size 9 --topics 2"
    assert called(*simulated.split(), *one).code == 0
    shown = {re.sub("-[0-9a-f]{16}$", "", key) for key in keys}
    for name in (
        *(
            "ingest-read-0000",
            "ingest-write-0000",
            "scan-sums-0002",
            "scan-sums-fold-0000-0004",
            "transform-0000",
        ),
        *("scan-projection-0000", "polish-draw-0001", "evaluate-counts-fold-0000-0004", "simulate-0000"),
    ):
        assert name in shown, " ".join(sorted(shown))
    assert {"scan-sums", "scan-sums-fold", "polish-draw", "evaluate-counts", "transform"} <= set(
        map(key_split, keys)
    )
    assert not [
        key for key in shown if "commit" in key or not re.fullmatch("[a-z]+(-[a-z]+)*(-[0-9]+)*", key)
    ]


def test_results_of_tasks_are_tokens(
    corpus_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, compute = [], dask.compute

    def watched(*tasks: Any, callbacks: Any, **options: Any) -> Any:
        seen = (None, None, None, lambda _key, result, *_: results.append(result), None)
        return compute(*tasks, callbacks=[*callbacks, seen], **options)

    monkeypatch.setattr(dask, "compute", watched)
    settings = ScanSettings(max_topics=5, partition_nonzeros=4000)
    scan(corpus_path, tmp_path / "m", settings, Execution("synchronous"))
    assert len(results) > 8
    assert all(len(cloudpickle.dumps(result)) < 500 for result in results)


@pytest.mark.slow
@needs_mounts
def test_shares_of_given_texts_need_no_shared_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker sees no temporary file of the client, and a model behind a URL but not a local one."""
    pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    from benchmarks.s3_requests import counting_server

    (own := tmp_path / "own").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(own))
    texts = [f"{a} {b} {a} sea" for a in ("apple", "pear", "plum") for b in ("tree", "boat", "wind", "rain")]
    model = sj.fit(texts, own / "m", 2, min_df=1, max_df="100%", stop_words=None, polish=False)
    expected = model.transform(texts)
    with (
        counting_server() as counts,
        dask_cluster(tmp_path / "dask", workers=1, worker_machine=Machine(hidden=own)) as cluster,
    ):
        for each in (model, model.save("s3://bucket/m")):
            counts.clear()
            on_workers = each.transform(texts, scheduler=cluster.address)
            assert np.array_equal(on_workers.to_numpy(), expected.to_numpy())
            assert each.documents(texts, topic=0, number=2, scheduler=cluster.address).shape[0] == 2
            assert bool(counts["PUT"]) is (each is not model)
