"""Peak memory, time and disk space of a large simulation, in its own process.

    python -m benchmarks.simulate_memory [--documents 10000000] [--words 100000] [--topics 50] [--zipf 1.0]

Simulates a Zipf corpus with the command line and prints the largest sum of resident memory over its processes
(sampled), the largest process (exact), wall and CPU seconds, and bytes on disk. Memory may grow with vocabulary, topics
and workers, but not with the number of documents.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import click
from dask.utils import format_bytes

from streaming_jsmf.config import SimulationSettings
from streaming_jsmf.corpus.format import read_manifest
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.simulation.simulate import simulation_memory

SAMPLE_SECONDS = 0.1


@dataclass(frozen=True)
class Usage:
    """Peak bytes of all processes together and of the largest process; wall and CPU seconds."""

    sampled: int
    largest: int
    wall: float
    cpu: float


@click.command(help=__doc__)
@click.option("--documents", default=10_000_000, show_default=True)
@click.option("--words", default=100_000, show_default=True)
@click.option("--topics", default=50, show_default=True)
@click.option("--zipf", default=1.0, show_default=True)
@click.option("--scheduler", default="threads", show_default=True)
@click.option("--workers", default=2, show_default=True)
@click.option(
    "--folder", default=None, type=click.Path(), help="Directory for the corpus, which is removed afterwards."
)
def main(
    documents: int, words: int, topics: int, zipf: float, scheduler: str, workers: int, folder: str | None
) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as parent:
        target = Path(parent) / "corpus"
        sizes = ["--documents", documents, "--vocabulary-size", words, "--topics", topics, "--zipf", zipf]
        how = ["--scheduler", scheduler, "--workers", workers]
        command = [sys.executable, "-m", "streaming_jsmf", "simulate", str(target), *map(str, sizes + how)]
        usage = measure(command)
        totals = read_manifest(target).totals
        disk = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    settings = SimulationSettings(documents, words, topics, zipf=zipf)
    projected = simulation_memory(settings, Execution(scheduler, workers))
    click.echo("| documents | tokens | nonzeros | all processes | largest | projected | wall | CPU | disk |")
    click.echo("|---|---|---|---|---|---|---|---|---|")
    click.echo(
        f"| {totals.documents:,} | {totals.tokens:,} | {totals.nonzeros:,} | {format_bytes(usage.sampled)} "
        f"| {format_bytes(usage.largest)} | {format_bytes(projected)} | {usage.wall:.1f} s "
        f"| {usage.cpu:.1f} s | {format_bytes(disk)} |"
    )


def measure(command: list[str]) -> Usage:
    """Run a command and return its resource usage; Linux only."""
    started, sampled = time.perf_counter(), 0
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    while True:
        found, status, usage = os.wait4(process.pid, os.WNOHANG)
        if found:
            break
        sampled = max(sampled, resident(process.pid))
        time.sleep(SAMPLE_SECONDS)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise click.ClickException(f"the command ended with code {process.returncode}")
    # For a process and its children the system reports the memory of the largest one, but the seconds of all.
    wall = time.perf_counter() - started
    return Usage(sampled, usage.ru_maxrss * 1024, wall, usage.ru_utime + usage.ru_stime)


def resident(group: int) -> int:
    """Current resident bytes of all processes of a group; shared pages count for each."""
    pages = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # The name in the second field may contain spaces; it ends at the last parenthesis.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # the process has ended
        if int(fields[2]) == group:
            pages += int(fields[21])
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
