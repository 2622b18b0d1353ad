"""Run a method in its own process and measure it."""

from __future__ import annotations

import multiprocessing
import os
import resource
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import fmean

import numpy as np
import psutil
from scipy import sparse
from threadpoolctl import threadpool_limits

from benchmarks.peers.methods import METHODS, Arrays
from pipelines.common.bags import write_corpus

#: Seconds between two samples of memory.
INTERVAL = 0.1


class FitError(Exception):
    """A method ended without a result because of its time limit or an error, which it has printed."""


@dataclass(frozen=True)
class Run:
    """Arrays of a method, its wall and CPU seconds, and peak memory in bytes including child processes.

    ``load`` is the mean load of the machine during the run, as the number of running or waiting processes.
    """

    arrays: Arrays
    wall_seconds: float
    cpu_seconds: float
    peak_bytes: int
    load: float


def fit_apart(name: str, corpus: Path, n_topics: int, seed: int, longest: float) -> Run:
    """Fit a method to a corpus in a fresh process with one thread.

    A fit of few documents loads imports and compiled code first, unmeasured; reading is measured. Raises FitError after
    ``longest`` seconds or if the process ends without a result.
    """
    here, there = multiprocessing.get_context("spawn").Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(
        target=_fit, args=(there, name, corpus, n_topics, seed)
    )
    process.start()
    there.close()
    peak, loads, ends = 0, [os.getloadavg()[0]], time.monotonic() + longest
    while not here.poll(INTERVAL) and process.is_alive() and time.monotonic() < ends:
        peak = max(peak, _memory(process.pid))
        loads.append(os.getloadavg()[0])
    late = time.monotonic() >= ends and not here.poll()
    try:
        if late:
            process.kill()
        arrays, wall, cpu = here.recv()
    except EOFError:
        process.join()
        why = f"more than {longest:.0f} s" if late else f"ended with {process.exitcode}"
        raise FitError(f"{name}: {why}") from None
    process.join()
    return Run(arrays, wall, cpu, peak, fmean(loads))


def _memory(pid: int | None) -> int:
    total = 0
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        for each in (process, *process.children(recursive=True)):
            with suppress(psutil.Error):
                total += each.memory_info().rss
    return total


def _fit(pipe: Connection, name: str, corpus: Path, n_topics: int, seed: int) -> None:
    fit = METHODS[name].fit
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_corpus(root / "few", _few_documents())
        (root / "warm").mkdir()
        fit(root / "few", 3, seed, root / "warm")
        (root / "work").mkdir()
        with threadpool_limits(1):  # of the libraries that are loaded by now
            wall, cpu = time.perf_counter(), _cpu_seconds()
            arrays = fit(corpus, n_topics, seed, root / "work")
            pipe.send((arrays, time.perf_counter() - wall, _cpu_seconds() - cpu))
    pipe.close()
    os._exit(0)  # do not wait for remaining Dask or gensim threads


def _few_documents() -> sparse.csr_array:
    rng = np.random.default_rng(0)
    return sparse.csr_array(rng.poisson(0.5, (300, 60)).astype(np.int32))


def _cpu_seconds() -> float:
    """CPU seconds of this process and its finished children."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)
