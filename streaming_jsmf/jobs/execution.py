"""Which scheduler runs the tasks. It changes the time, never a bit."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures import Executor as Pool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import resource_tracker
from typing import Any
from urllib.parse import urlsplit

import dask
from dask.delayed import Delayed
from dask.utils import format_bytes

from streaming_jsmf.config import ExecutionOptions
from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.jobs.cluster import losses_in_one_line, running_scheduler, worker_threads
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.memory import PROCESS_BYTES
from streaming_jsmf.jobs.performance import LOCAL_SCHEDULERS, reported, require_report
from streaming_jsmf.process_limits import shortage

#: Of addresses that distributed understands.
ADDRESS_SCHEMES = ("tcp", "tls", "ucx", "ws", "wss")


@dataclass(frozen=True)
class Executor:
    """A scheduler at work: it runs what is given to it until the block that it lives for ends.

    Attributes
    ----------
    arguments
        Of ``dask.compute``.
    tasks_at_once
        How many it runs at a time.
    listener
        Told how the work goes on.
    """

    arguments: Mapping[str, Any]
    tasks_at_once: int
    listener: Listener = silent

    @property
    def threads_here(self) -> int:
        """Threads for what is done between two jobs, in this process: no more than this machine has cores for."""
        return min(self.tasks_at_once, os.cpu_count() or 1)

    def compute(self, tasks: Delayed) -> None:
        """Run tasks. Their order is the graph's own: fusing a chain would hide parts from other workers."""
        dask.compute(tasks, optimize_graph=False, **self.arguments)


@dataclass(frozen=True)
class Execution(ExecutionOptions):
    """How a job runs; see ``ExecutionOptions``."""

    def __post_init__(self) -> None:
        super().__post_init__()
        known = (*LOCAL_SCHEDULERS, "cluster")
        if self.scheduler not in known and not _is_address(self.scheduler):
            raise InputError(
                f"scheduler is {self.scheduler!r}; give one of {', '.join(known)}, or an address such as "
                "tcp://HOST:8786"
            )
        if self.performance_report is not None:
            require_report(self.performance_report, self.scheduler)

    def reporting_on(self, step: str) -> Execution:
        """The same, with the performance report in a file of its own: ``report-STEP.html`` for ``report.html``."""
        report = self.performance_report
        if report is None:
            return self
        return replace(self, performance_report=report.with_name(f"{report.stem}-{step}{report.suffix}"))

    @property
    def concurrency(self) -> int:
        """Tasks that run at once, as far as is known before a cluster answers."""
        if self.scheduler == "synchronous":
            return 1
        return self.workers or os.cpu_count() or 1

    def require_memory(self, needed: int, what: str, hint: str) -> None:
        """Refuse a stage before it starts if its projected memory exceeds the budget, or a limit of the process.

        Parameters
        ----------
        needed
            Peak bytes of all workers together.
        what, hint
            What the stage is, and how it needs less.

        Raises
        ------
        InputError
            With both numbers and what to change.
        """
        if self.memory is not None and needed > self.memory:
            raise InputError(
                f"{what} needs about {format_bytes(needed)} and --memory allows {format_bytes(self.memory)}; {hint}, "
                "or raise --memory"
            )
        # A limit holds for each process. What the workers of a running scheduler are allowed is not known here.
        processes = 1 if self.scheduler in ("threads", "synchronous") else self.concurrency
        short = shortage(max(0, needed // processes - PROCESS_BYTES), self.concurrency // processes)
        if short is not None and not _is_address(self.scheduler):
            raise InputError(f"{what} needs {short}; {hint}, or raise the limit")

    @contextmanager
    def executor(
        self, listener: Listener = silent, *, on_bad_input: Callable[[], None] | None = None
    ) -> Iterator[Executor]:
        """Yield what runs jobs for the block; its pools and clusters end with it.

        Parameters
        ----------
        listener
            Told how the jobs go on.
        on_bad_input
            Called after an ``InputError`` of the block, when no task runs any more: mending the input makes it another
            one, so what was done of this one is of no use, and is removed here.

        Raises
        ------
        InputError
            If a running scheduler does not answer, has no workers, or they have other versions (see
            ``running_scheduler``), or a performance report cannot be had of it; without ``on_bad_input``.
        StoreError
            If worker processes or the cluster are lost; what is committed stays.
        """
        ready = False
        try:
            with self._arguments() as arguments:
                ready = True
                yield Executor(arguments, self._tasks_at_once(arguments), listener)
        except InputError:
            if ready and on_bad_input is not None:
                on_bad_input()
            raise

    def _tasks_at_once(self, arguments: Mapping[str, Any]) -> int:
        """On a cluster the threads of its workers, or ``workers`` if more: one that is to grow has few at first."""
        if isinstance(arguments["scheduler"], str):
            return self.concurrency
        return max(self.workers or 1, worker_threads(arguments["scheduler"]))

    @contextmanager
    def _arguments(self) -> Iterator[dict[str, Any]]:
        """Those of ``dask.compute``."""
        if self.scheduler == "synchronous":
            yield {"scheduler": "synchronous"}
        elif self.scheduler == "threads":
            with _ended(ThreadPoolExecutor(self.concurrency, thread_name_prefix="scan")) as pool:
                yield {"scheduler": "threads", "pool": pool}
        elif self.scheduler == "processes":
            workers = ProcessPoolExecutor(self.concurrency, _Processes(), _follow_the_parent)
            with _lost_processes_in_one_line(), _ended(workers) as pool:
                # One task at a time for each process: a task is a whole partition, batches would starve the others.
                yield {"scheduler": "processes", "pool": pool, "chunksize": 1}
        else:
            with self._client() as client, reported(client, self.performance_report):
                yield {"scheduler": client}

    @contextmanager
    def _client(self) -> Iterator[Any]:
        from distributed import Client, LocalCluster

        if self.scheduler == "cluster":
            # One thread for each worker process; a dashboard on any free port, so that none can be in the way, and
            # for this machine alone: Dask's default is all interfaces.
            with (
                losses_in_one_line("the local cluster"),
                dask.config.set({"distributed.worker.daemon": True}),
                _event_loop() as loop,
                LocalCluster(
                    loop=loop,
                    n_workers=self.concurrency,
                    threads_per_worker=1,
                    dashboard_address="127.0.0.1:0",
                    silence_logs=logging.CRITICAL,
                    memory_limit=self.memory // self.concurrency if self.memory else "auto",
                ) as cluster,
                Client(cluster, set_as_default=False) as client,
            ):
                yield client
            return
        with running_scheduler(self.scheduler) as client:
            yield client


@contextmanager
def _lost_processes_in_one_line() -> Iterator[None]:
    """Worker processes that are killed leave a store that is incomplete and can be finished.

    Raises
    ------
    StoreError
        That says so.
    """
    try:
        yield
    except BrokenExecutor as error:
        raise StoreError(
            "worker processes were killed; run the same command again to go on from what is committed"
        ) from error


def _is_address(text: str) -> bool:
    """Whether ``text`` is scheme://host:port; a client of anything else would linger half made."""
    try:
        parts = urlsplit(text)
        return parts.scheme in ADDRESS_SCHEMES and bool(parts.hostname) and parts.port is not None
    except ValueError:
        return False


@contextmanager
def _ended(pool: Pool) -> Iterator[Pool]:
    """A pool whose tasks have all ended when the block has.

    Dask raises the error of one task while others still run; they would go on committing into a store that is being
    closed.
    """
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Let threads and processes that this thread starts inside the block leave Ctrl-C to the main thread.

    Ctrl-C reaches the whole process group, and a worker that handles it prints a traceback.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # multiprocessing starts its resource tracker with the first process and then unblocks SIGINT.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Process(multiprocessing.context.SpawnProcess):
    def start(self) -> None:
        with _interrupts_blocked():
            super().start()


class _Processes(multiprocessing.context.SpawnContext):
    Process = _Process


@contextmanager
def _event_loop() -> Iterator[Any]:
    """An event loop in a thread; the worker processes of a cluster are started from there."""
    from distributed.utils import LoopRunner

    runner = LoopRunner()
    with _interrupts_blocked():
        runner.start()
    try:
        yield runner.loop
    finally:
        runner.stop()


def _follow_the_parent() -> None:
    """End this worker when its parent does: when that was killed nobody waits for what is done here."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        # The pipe on which the worker was given its work: it closes with the parent, however that ends.
        threading.Thread(target=_end_with, args=(parent,), name="parent", daemon=True).start()


def _end_with(parent: Any) -> None:
    parent.join()
    # Not sys.exit, which a task in compiled code would hold up.
    os._exit(1)
