"""Separated hosts on one machine: each has its own network, and nothing of a disk that another host can read.

A host is a network and a mount namespace (Linux, root). It can read the disk of this machine, as it was when the host
started, but what it writes only itself can read: /tmp, /dev/shm and a working directory are its own, and the rest is
read-only. The hosts are connected by a bridge in a namespace of its own, so nothing else is reachable. One of them runs
an S3 server behind a proxy that injects faults.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from tests.outcomes import Outcome
from tests.processes import Process, command, ended, started

Start: TypeAlias = Callable[..., list[str]]

KEYS = {"AWS_ACCESS_KEY_ID": "lab", "AWS_SECRET_ACCESS_KEY": "laboratory"}
PROXY_PORT, SERVER_PORT, SCHEDULER_PORT = 8000, 9000, 8786
BUCKET = "s3://lab"

#: The namespaces live as long as this process, which ends with its standard input.
HOLDER = """
work=$1 kernels=$2
mount --make-rprivate /
mount -t tmpfs none /mnt
mkdir /mnt/own
cp -r "$kernels" /mnt/own/kernels
for place in /tmp /dev/shm; do
    mkdir -p /mnt/upper$place /mnt/index$place
    mount -t overlay none -o "lowerdir=$place,upperdir=/mnt/upper$place,workdir=/mnt/index$place" $place
done
mkdir -p "$work"
mount --bind /mnt/own "$work"
cut -d " " -f 2 /proc/mounts | while read place; do
    case $place in
        "$work" | /tmp | /dev/shm | /proc* | /sys*) ;;
        *) mount -o remount,bind,ro "$place" 2>&- || true ;;
    esac
done
ip link set lo up
echo ready
exec cat
"""


@dataclass(frozen=True)
class Host:
    """The namespaces of the process ``holder``; ``port`` is the host's end at the bridge, ``None`` for the bridge."""

    name: str
    address: str
    holder: Process
    work: Path
    bridge: Host | None = None

    def inside(self, *line: object) -> list[str]:
        """The command line that runs ``line`` on this host."""
        entered = ["nsenter", "-t", str(self.holder.pid), "-m", "-n", "sh", "-c", 'cd "$0" && exec "$@"']
        return [*entered, str(self.work), *map(str, line)]

    def run(self, *line: object) -> str:
        return subprocess.run(self.inside(*line), check=True, capture_output=True, text=True).stdout

    def link(self, state: str) -> None:
        """Take the link ``down`` or ``up``."""
        assert self.bridge is not None
        self.bridge.run("ip", "link", "set", self.name, state)


@cache
def missing() -> str:
    """Return why this machine cannot have a lab, or an empty text."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "namespaces need Linux and root"
    for program in ("ip", "unshare", "nsenter"):
        if shutil.which(program) is None:
            return f"needs {program}"
    trial = (
        "ip link add lab type bridge && mount -t tmpfs none /mnt && mkdir /mnt/upper /mnt/index && "
        "mount -t overlay none -o lowerdir=/tmp,upperdir=/mnt/upper,workdir=/mnt/index /tmp"
    )
    tried = subprocess.run(
        ["unshare", "-m", "-n", "sh", "-c", trial], capture_output=True, text=True, check=False
    )
    return tried.stderr.strip()


def weed() -> str | None:
    """The program of SeaweedFS, in the environment of Python or on the path."""
    return shutil.which("weed", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])))


class Lab:
    """Hosts ``bucket``, ``scheduler``, ``worker-0`` to ``worker-2`` and ``client``; processes start on request."""

    def __init__(self, stack: ExitStack, logs: Path, kernels: Path) -> None:
        self._stack, self.logs, self._kernels = stack, logs, kernels
        self.work = Path("/tmp/streaming-jsmf-lab")
        self.bridge = self._hold("bridge", "")
        self.bridge.run("ip", "link", "add", "lab", "type", "bridge")
        self.bridge.run("ip", "link", "set", "lab", "up")
        names = ("bucket", "scheduler", "client", "worker-0", "worker-1", "worker-2", "late")
        self.hosts = {name: self._join(name, f"10.77.0.{i + 1}") for i, name in enumerate(names)}
        self.scheduler_address = f"tcp://{self.hosts['scheduler'].address}:{SCHEDULER_PORT}"
        self._proxy: Process | None = None
        self._cluster, self._running = stack.enter_context(ExitStack()), list[Process]()
        self._kind: tuple[Any, ...] = ()

    def _hold(self, name: str, address: str, bridge: Host | None = None) -> Host:
        line = ["unshare", "-m", "-n", "sh", "-euc", HOLDER, "sh", str(self.work), str(self._kernels)]
        holder = self._stack.enter_context(started(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        return Host(name, address, holder, self.work, bridge)

    def _join(self, name: str, address: str) -> Host:
        host = self._hold(name, address, self.bridge)
        peer = ["type", "veth", "peer", "name", "eth0", "netns", str(host.holder.pid)]
        # The bridge's own view of processes is that of this machine, so the number of the holder is valid there.
        self.bridge.run("ip", "link", "add", name, *peer)
        self.bridge.run("ip", "link", "set", name, "master", "lab", "up")
        host.run("ip", "address", "add", f"{address}/24", "dev", "eth0")
        host.run("ip", "link", "set", "eth0", "up")
        return host

    @property
    def environment(self) -> dict[str, str]:
        """Environment of all programs on the hosts."""
        return {
            **KEYS,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://{self.hosts['bucket'].address}:{PROXY_PORT}",
            "HOME": str(self.work),
            "TMPDIR": str(self.work),
            "NUMBA_CACHE_DIR": str(self.work / "kernels"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    @contextmanager
    def program(self, host: str, *line: object, log: str, **changes: str) -> Iterator[Process]:
        """Run a program on a host until the block ends; its output goes to a file of the test."""
        with (
            (self.logs / log).open("a", encoding="utf-8") as output,
            started(
                self.hosts[host].inside(*line),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                **{**self.environment, **changes},
            ) as process,
        ):
            yield process

    def keep(self, host: str, *line: object, log: str) -> Process:
        """Run a program on a host until the lab ends."""
        return self._stack.enter_context(self.program(host, *line, log=log))

    @contextmanager
    def worker(
        self, host: str, *, nanny: bool = False, limit: str = "1GiB", **changes: str
    ) -> Iterator[Process]:
        """Run a worker of one thread on a host; ``changes`` are of the environment."""
        options = f"--nthreads 1 --no-dashboard --memory-limit {limit} --local-directory {self.work}".split()
        options.append("--nanny" if nanny else "--no-nanny")
        line = [sys.executable, "-m", "dask", "worker", self.scheduler_address, *options]
        with self.program(host, *line, log=f"{host}.log", **changes) as process:
            yield process

    @contextmanager
    def cluster(self, workers: int = 3, **options: Any) -> Iterator[list[Process]]:
        """Run a scheduler and workers; yields them, the scheduler first.

        Those without options go on running, for the next block that asks for the same, while none of them has ended.
        """
        kind = (workers, *options.items())
        if kind != self._kind or any(process.poll() is not None for process in self._running):
            self._cluster.close()
            listening = [
                "--host",
                self.hosts["scheduler"].address,
                "--port",
                SCHEDULER_PORT,
                "--no-dashboard",
            ]
            line = [sys.executable, "-m", "dask", "scheduler", *listening]
            start = self._cluster.enter_context
            self._running = [start(self.program("scheduler", *line, log="scheduler.log"))]
            self._running += [start(self.worker(f"worker-{i}", **options)) for i in range(workers)]
        self._kind = kind
        try:
            yield self._running
        finally:
            if options:
                self._cluster.close()
                self._kind = ()

    def verb(self, *arguments: object, start: Start = command) -> Outcome:
        """Run a verb on the client to its end; ``start`` makes its command line."""
        return ended(self.hosts["client"].inside(*start(*arguments)), **self.environment)

    @contextmanager
    def running(self, *arguments: object, start: Start = command) -> Iterator[Process]:
        """Run a verb on the client; its standard error is a pipe."""
        line = self.hosts["client"].inside(*start(*arguments))
        with started(line, stderr=subprocess.PIPE, **self.environment) as process:
            yield process

    def python(self, *arguments: object) -> str:
        """Run Python on the client, and return what it prints."""
        line = self.hosts["client"].inside(sys.executable, *arguments)
        done = ended(line, **self.environment)
        assert done.code == 0, done.err
        return done.out

    def store(self, server: str) -> None:
        """Start an S3 server, ``moto`` or ``seaweedfs``, behind the proxy, with an empty bucket."""
        if server == "moto":
            line: list[object] = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", SERVER_PORT]
        else:
            keys = {"accessKey": KEYS["AWS_ACCESS_KEY_ID"], "secretKey": KEYS["AWS_SECRET_ACCESS_KEY"]}
            allowed = ["Admin", "Read", "Write", "List", "Tagging"]
            text = json.dumps({"identities": [{"name": "lab", "credentials": [keys], "actions": allowed}]})
            self.hosts["bucket"].run("sh", "-c", 'mkdir data; echo "$1" > s3.json', "sh", text)
            options = "-master.telemetry=false -ip=127.0.0.1 -ip.bind=127.0.0.1 -dir=data -volume.max=50"
            s3 = f"-master.volumeSizeLimitMB=64 -filer -s3 -s3.port={SERVER_PORT} -s3.config=s3.json"
            line = [weed(), "server", *options.split(), *s3.split()]
        self.keep("bucket", *line, log=f"{server}.log")
        proxy = [
            sys.executable,
            "-m",
            "tests.lab_proxy",
            self.hosts["bucket"].address,
            PROXY_PORT,
            SERVER_PORT,
        ]
        inside = self.hosts["bucket"].inside(*proxy)
        self._proxy = self._stack.enter_context(
            started(inside, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **self.environment)
        )
        self.faults()
        self.python("-c", MAKE_BUCKET, BUCKET)

    def faults(self, **how: Any) -> Mapping[str, int]:
        """Inject faults from now on (``lab_proxy.Faults``), and return what was counted before."""
        return self._ordered(how)

    def struck(self) -> int:
        """The number of faults so far."""
        return self._ordered(None).get("faults", 0)

    def _ordered(self, how: Mapping[str, Any] | None) -> Mapping[str, int]:
        assert self._proxy is not None
        assert self._proxy.stdin is not None
        assert self._proxy.stdout is not None
        self._proxy.stdin.write(json.dumps(how) + "\n")
        self._proxy.stdin.flush()
        counted: dict[str, int] = json.loads(self._proxy.stdout.readline())
        return counted


MAKE_BUCKET = """
import sys, time, fsspec
files = fsspec.filesystem("s3")
for _ in range(100):
    try:
        files.mkdir(sys.argv[1])
        break
    except Exception:
        time.sleep(.2)
print(files.ls(sys.argv[1]))
"""


@contextmanager
def lab(logs: Path, kernels: Path) -> Iterator[Lab]:
    """Build the hosts; ``kernels`` is a cache of compiled functions that each host gets a copy of, as of an image."""
    with ExitStack() as stack:
        yield Lab(stack, logs, kernels)
