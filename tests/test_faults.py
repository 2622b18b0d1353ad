"""Scans hit by a fault at a random moment.

The same command then gives the arrays of an undisturbed scan.
"""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pytest

from streaming_jsmf.cli.main import run
from tests.corpora import planted, write_corpus
from tests.outcomes import Outcome, invoked, printed
from tests.processes import PATIENCE, Process, command, ended, started, wait_for, wait_until

SETTINGS = ("--max-topics", "20", "--partition-nonzeros", "1500", "--keep-partitions")
PARTITIONS = 20

SEED = 20260

#: Bytes that a file may have once the disk is full: less than a factor.
FULL_DISK = 8192

#: Memory that a worker of a cluster may use, and how much of it another user's task takes there for a while: more than
#: the share at which a worker pauses, or at which it is killed.
WORKER_MEMORY, PAUSED, KILLED = "700MiB", 0.87, 1.2

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

ENVIRONMENT = {
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "10s",
    "DASK_DISTRIBUTED__ADMIN__LOW_LEVEL_LOG_LENGTH": "0",
}


@dataclass(frozen=True)
class Scan:
    """A running scan: its process, its store, and random numbers."""

    process: Process
    store: Path
    rng: np.random.Generator
    scheduler: Process | None
    greedy: Process | None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)

    def worker(self) -> psutil.Process:
        """One of the worker processes, which are the ones spawned with work to do."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        workers = [child for child in children if "spawn_main" in " ".join(child.cmdline())]
        return workers[self.rng.integers(len(workers))]

    def damage(self, files: list[Path]) -> None:
        file = files[self.rng.integers(len(files))]
        # Not all of it: a chunk that is missing and one that is cut are different damage.
        file.write_bytes(file.read_bytes()[: int(file.stat().st_size * self.rng.uniform(0, 0.9))])


def kill_a_worker(scan: Scan) -> None:
    scan.worker().kill()


def stop_a_worker_for_a_while(scan: Scan) -> None:
    worker = scan.worker()
    worker.suspend()
    time.sleep(3)
    worker.resume()


def fill_the_disk(scan: Scan) -> None:
    resource.prlimit(scan.process.pid, resource.RLIMIT_FSIZE, (FULL_DISK, FULL_DISK))


def truncate_a_chunk(scan: Scan) -> None:
    scan.kill()
    scan.damage(sorted(path for path in scan.store.rglob("c/**/*") if path.is_file()))


def truncate_a_record(scan: Scan) -> None:
    scan.kill()
    scan.damage(sorted(scan.store.glob("records/*/zarr.json")))


def kill_the_scheduler(scan: Scan) -> None:
    assert scan.scheduler is not None
    scan.scheduler.kill()


def exceed_the_memory_of_a_worker(scan: Scan) -> None:
    assert scan.greedy is not None
    share = scan.rng.choice([PAUSED, KILLED])
    # What is killed is tried again and again: six seconds are enough to know.
    said, _ = scan.greedy.communicate(f"{share} {PATIENCE if share == PAUSED else 6}\n", timeout=2 * PATIENCE)
    assert said.split()[-1] == ("finished" if share == PAUSED else "killed"), said


@dataclass(frozen=True)
class Fault:
    """A fault, the scheduler of the scan, and after how many records it happens."""

    strike: Callable[[Scan], None]
    scheduler: str
    records: int
    seed: int

    def __str__(self) -> str:
        return f"{self.strike.__name__}-{self.scheduler}-{self.records}"


KINDS: tuple[tuple[Callable[[Scan], None], tuple[str, ...]], ...] = (
    (Scan.kill, ("threads", "processes", "cluster")),
    (truncate_a_chunk, ("threads", "processes")),
    (fill_the_disk, ("threads",)),
    (truncate_a_record, ("threads", "processes")),
    (kill_a_worker, ("cluster", "processes")),
    (stop_a_worker_for_a_while, ("cluster",)),
    (kill_the_scheduler, ("tcp",)),
    (exceed_the_memory_of_a_worker, ("tcp",)),
)


def draw(number: int) -> Fault:
    rng = np.random.default_rng((SEED, number))
    strike, schedulers = KINDS[number % len(KINDS)]
    # The first scan keeps a record of each part and one of the merged factor; the second adds as many.
    return Fault(strike, str(rng.choice(schedulers)), int(rng.integers(2, 2 * PARTITIONS - 4)), number)


DRAWN = [draw(number) for number in range(20)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    counts = planted(700, 800, 10, length=60, seed=7).counts
    return write_corpus(tmp_path_factory.mktemp("faults") / "corpus", counts, row_group_rows=30)


@pytest.fixture(scope="module")
def undisturbed(corpus: Path) -> Path:
    path = corpus.parent / "undisturbed"
    assert run(["scan", str(corpus), str(path), *SETTINGS]) == 0
    manifest = json.loads((path / "zarr.json").read_text(encoding="utf-8"))["attributes"]["manifest"]
    assert len(manifest["partitions"]) >= PARTITIONS
    return path


@contextmanager
def logged(line: list[str], log: Path, pipe: int = subprocess.DEVNULL) -> Iterator[Process]:
    """A process whose standard error is kept."""
    with log.open("wb") as out, started(line, stdin=pipe, stdout=pipe, stderr=out, **ENVIRONMENT) as process:
        yield process


@contextmanager
def scheduler_and_workers(folder: Path) -> Iterator[tuple[str, Process]]:
    file, dask = folder / "scheduler.json", [sys.executable, "-m", "dask"]
    own = ["--scheduler-file", str(file), "--host", "127.0.0.1"]
    with logged(
        [*dask, "scheduler", *own, "--port", "0", "--no-dashboard"], folder / "scheduler.log"
    ) as scheduler:
        wait_until(lambda: file.exists() and bool(file.read_text()), "no scheduler came up")
        workers = [*dask, "worker", *own, "--nworkers", "2", "--nthreads", "1", "--no-dashboard"]
        workers += ["--memory-limit", WORKER_MEMORY]
        with logged(workers, folder / "workers.log"):
            yield str(json.loads(file.read_text())["address"]), scheduler


def scan_command(corpus: Path, store: Path, scheduler: str) -> list[str]:
    return command("scan", corpus, store, *SETTINGS, "--scheduler", scheduler, "--workers", "2")


def strike(fault: Fault, corpus: Path, store: Path) -> None:
    """Run a scan, apply the fault, and require an end: success, one error line, or a kill."""
    with ExitStack() as stack:
        address, cluster, greedy = fault.scheduler, None, None
        if fault.scheduler == "tcp":
            address, cluster = stack.enter_context(scheduler_and_workers(store.parent))
        if fault.strike is exceed_the_memory_of_a_worker:
            script = [sys.executable, "-c", GREEDY, address]
            greedy = stack.enter_context(logged(script, store.parent / "greedy.log", subprocess.PIPE))
        log = store.parent / "scan.log"
        process = stack.enter_context(logged(scan_command(corpus, store, address), log))
        scan = Scan(process, store, np.random.default_rng((SEED, fault.seed)), cluster, greedy)
        wait_for(process, lambda: len(list(store.glob("records/*/zarr.json"))) >= fault.records)
        fault.strike(scan)
        code = process.wait(PATIENCE)
        said = log.read_text(encoding="utf-8")
    assert "Traceback" not in said
    assert code in (0, 2, 3, -signal.SIGKILL), said
    if code in (2, 3):
        assert said.splitlines()[-1].startswith("error: "), said
        assert sum(line.startswith("error: ") for line in said.splitlines()) == 1


def finish(corpus: Path, store: Path) -> Outcome:
    done = ended(scan_command(corpus, store, "threads"), **ENVIRONMENT)
    assert "Traceback" not in done.err
    return done


@pytest.mark.slow
@pytest.mark.parametrize("fault", DRAWN, ids=str)
def test_a_scan_survives(fault: Fault, corpus: Path, undisturbed: Path, tmp_path: Path) -> None:
    store = tmp_path / "moments"
    strike(fault, corpus, store)
    done = finish(corpus, store)
    assert done.code == 0, done.err
    if invoked("info", store, "--json").code == 3:
        # A kept part that was folded already: the next scan of the complete store reads it.
        assert fault.strike in (truncate_a_chunk, truncate_a_record)
        done = finish(corpus, store)
        assert done.code == 0, done.err
    found, expected = (json.loads(printed("info", path, "--json")) for path in (store, undisturbed))
    assert found["digests"] == expected["digests"]
    assert [path.name for path in tmp_path.iterdir() if "moments" in path.name] == ["moments"]


def test_every_fault_is_drawn_at_least_twice() -> None:
    for kind, _ in KINDS:
        assert sum(fault.strike is kind for fault in DRAWN) >= 2
