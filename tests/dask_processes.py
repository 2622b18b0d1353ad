"""A Dask cluster of ``dask scheduler`` and ``dask worker`` processes, as an administrator starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.processes import SOURCE, Process, started, wait_until


@dataclass(frozen=True)
class Machine:
    """Interpreter options and environment of a cluster process, and a directory that it does not see or cannot write.

    The directory needs root.
    """

    options: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    hidden: Path | None = None
    read_only: Path | None = None

    @property
    def launcher(self) -> list[str]:
        """A mount namespace of its own, in which the hidden directory is empty."""
        read_only = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0"'
        for place, mount in ((self.hidden, 'mount -t tmpfs none "$0"'), (self.read_only, read_only)):
            if place is not None:
                return ["unshare", "-m", "sh", "-c", f'{mount} && exec "$@"', str(place)]
        return []


@dataclass(frozen=True)
class Cluster:
    """Running processes, each in its own session, so that one can be killed without the others."""

    address: str
    scheduler: Process
    workers: list[Process]


@contextmanager
def process(module: str, *arguments: str, machine: Machine, folder: Path, log: str) -> Iterator[Process]:
    """Run ``python -m module`` in ``folder`` with its output in ``folder / log``; killed with all its children."""
    line = [*machine.launcher, sys.executable, *machine.options, "-m", module, *arguments]
    with (
        (folder / log).open("w", encoding="utf-8") as output,
        started(
            line, folder=folder, stdout=output, stderr=subprocess.STDOUT, **machine.environment
        ) as running,
    ):
        yield running


@contextmanager
def dask_worker(
    address: str, folder: Path, log: str, machine: Machine | None = None, *, nanny: bool = False
) -> Iterator[Process]:
    """Start a single-thread worker of a scheduler."""
    joining = ["--nthreads", "1", "--memory-limit", "1GiB", "--no-dashboard", "--local-directory"]
    arguments = ["worker", address, *joining, str(folder), "--nanny" if nanny else "--no-nanny"]
    with process("dask", *arguments, machine=machine or Machine(), folder=folder, log=log) as running:
        yield running


@contextmanager
def dask_cluster(
    folder: Path,
    *,
    workers: int = 2,
    nanny: bool = False,
    scheduler_machine: Machine | None = None,
    worker_machine: Machine | None = None,
    protocol: str = "tcp",
) -> Iterator[Cluster]:
    """Start a scheduler on a free port, and single-thread workers."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "scheduler.json"
    listening = f"--host 127.0.0.1 --port 0 --dashboard-address 127.0.0.1:0 --protocol {protocol}".split()
    with ExitStack() as stack:
        scheduler = stack.enter_context(
            process(
                "dask", "scheduler", *listening, "--scheduler-file", str(file),
                machine=scheduler_machine or Machine(), folder=folder, log="scheduler.log",
            )
        )  # fmt: skip
        wait_until(lambda: _is_written(file), "the scheduler")
        address = json.loads(file.read_text(encoding="utf-8"))["address"]
        members = [
            stack.enter_context(
                dask_worker(address, folder, f"worker-{number}.log", worker_machine, nanny=nanny)
            )
            for number in range(workers)
        ]
        yield Cluster(address, scheduler, members)


def _is_written(file: Path) -> bool:
    try:
        return bool(json.loads(file.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError):
        return False


def without_the_package(folder: Path) -> Machine:
    """A machine without this package: all other installed packages are linked."""
    site = folder / "site"
    site.mkdir(parents=True)
    for place in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for installed in Path(place).iterdir():
            if "streaming_jsmf" not in installed.name and installed.suffix != ".pth":
                (site / installed.name).symlink_to(installed)
    return Machine(("-S",), {"PYTHONPATH": str(site)})


def with_another_version(folder: Path, name: str, version: str) -> Machine:
    """A machine on which the metadata of an installed package have another version."""
    metadata = folder / f"{name}-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    return Machine((), {"PYTHONPATH": os.pathsep.join((str(folder), SOURCE))})
