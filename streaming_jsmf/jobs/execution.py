"""Schedulers that run the tasks. The choice of scheduler affects the run time, never the results."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures import Executor as Pool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Any, TypeAlias

from streaming_jsmf.config import ExecutionOptions
from streaming_jsmf.errors import InputError, StoreError, option
from streaming_jsmf.jobs.cluster import (
    LOCAL_SCHEDULERS,
    NOT_STARTED,
    RESUME,
    address_of,
    is_address,
    listening,
    losses_in_one_line,
    reported,
    require_main,
    require_report,
    require_usable,
    running_scheduler,
    tell_dashboard,
    warn_of_active_client,
)
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.process_limits import PROCESS_BYTES, WORKER, require_no_import, shortage
from streaming_jsmf.storage.paths import StorePath

if TYPE_CHECKING:
    from dask.delayed import Delayed

#: Peak bytes of a stage by the number of tasks at the same time, and whether so many of a stage fit.
Memory: TypeAlias = Callable[[int], int]
Fits: TypeAlias = Callable[[Memory, int], bool]


#: Workers of a local cluster end with the command. Their results are small, so one that pauses or spills would free
#: nothing: near its limit it would wait forever.
_LOCAL_WORKERS = {
    "distributed.worker.daemon": True,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.target": False,
}


@dataclass(frozen=True)
class Executor:
    """A running scheduler, valid until the block that created it ends; ``arguments`` are those of ``dask.compute``.

    ``mixed`` is whether its workers may differ in versions and processors (``Execution.mixed``), ``sends`` whether
    tasks run in other processes, and ``worker_threads`` the number of threads of each worker of a cluster; None: the
    workers run on this machine with the caller.
    """

    arguments: Mapping[str, Any]
    tasks_at_once: int
    listener: Listener = silent
    mixed: bool = False
    worker_threads: int | None = None
    sends: bool = True

    def threads_for(self, tasks: int) -> int:
        """Number of threads of each of ``tasks`` tasks, at most those of its worker."""
        return max(1, min(self.tasks_at_once // tasks, self.worker_threads or self.tasks_at_once))

    @property
    def threads_here(self) -> int:
        """Number of threads for work in this process between jobs, at most the number of cores."""
        return _at_most_cores(self.tasks_at_once)

    def compute(self, tasks: Delayed, topic: str = "", told: Callable[..., None] | None = None) -> None:
        """Run tasks without graph optimization, because fusing a chain would hide parts from other workers.

        ``told`` is called in this process with each tuple that a task returns, or ``tell``s about the ``topic`` of a
        cluster.
        """
        import dask

        options = {**self.arguments, "optimize_graph": False}
        if told is None:
            dask.compute(tasks, **options)
        elif self.worker_threads is None:

            def ended(_key: Any, value: Any, *_: Any) -> None:
                if isinstance(value, tuple):
                    told(*value)

            dask.compute(tasks, callbacks=[(None, None, None, ended, None)], **options)
        else:
            with listening(options["scheduler"], topic, told):
                dask.compute(tasks, **options)


@dataclass(frozen=True)
class Execution(ExecutionOptions):
    """Settings of a job's execution; see ``ExecutionOptions``."""

    def __post_init__(self) -> None:
        require_usable(self.scheduler)
        object.__setattr__(self, "scheduler", address_of(self.scheduler))
        super().__post_init__()
        known = (*LOCAL_SCHEDULERS, "cluster")
        if self.scheduler not in known and not is_address(self.scheduler):
            raise InputError(
                f"{option.scheduler} is {self.scheduler!r}; give one of {', '.join(known)}, or an address such as "
                "tcp://HOST:8786"
            )
        if self.performance_report is not None:
            require_report(self.performance_report, self.scheduler)

    def reporting_on(self, step: str) -> Execution:
        """Return a copy with a separate performance report: ``report-STEP.html`` for ``report.html``."""
        report = self.performance_report
        if report is None:
            return self
        return replace(self, performance_report=report.with_name(f"{report.stem}-{step}{report.suffix}"))

    @property
    def concurrency(self) -> int:
        """Number of concurrent tasks, as far as it is known before connecting to a cluster."""
        if self.scheduler == "synchronous":
            return 1
        return self.workers or os.cpu_count() or 1

    @property
    def elsewhere(self) -> bool:
        """Whether tasks run on a running scheduler, whose machines may not see temporary files of this one."""
        return is_address(self.scheduler)

    @property
    def mixed(self) -> bool:
        """Whether tasks may run on machines with other versions of packages or other processors than this one."""
        return self.allow_mixed and self.elsewhere

    @property
    def noted(self) -> dict[str, str]:
        """What the settings of a corpus say of ``mixed`` workers, as ``package_versions`` does."""
        return {"workers": "mixed"} if self.mixed else {}

    @property
    def threads_here(self) -> int:
        """Number of threads for work in this process outside jobs, such as inference, at most the number of cores."""
        return _at_most_cores(self.concurrency)

    def require_memory(
        self, memory: Memory, what: str, others: Callable[[Fits], list[str]] | None = None
    ) -> None:
        """Raise ``InputError`` if a stage, ``what``, needs more memory than the budget or the limits of the process.

        The message has both numbers and what would fit: fewer workers, more memory, or the settings that ``others``
        finds. Nothing is changed to fit, because the result depends on the settings and not on the memory.
        """
        lack = self._lack(memory, self.concurrency)
        if lack is None:
            return

        def fits(memory: Memory, workers: int) -> bool:
            return self._lack(memory, workers) is None

        most = bisect_left(range(1, self.concurrency), True, key=lambda n: not fits(memory, n))
        advice = [str(option.workers(most))] if most else []
        advice += [] if others is None else others(fits)
        within = self.memory is None or memory(self.concurrency) <= self.memory
        mib = -(-memory(self.concurrency) // 2**20)
        advice.append("a larger limit" if within else str(option.memory(f"{mib}MiB")))
        raise InputError(
            f"{what} needs {lack}; use {', '.join(advice[:-1])}{' or ' * (len(advice) > 1)}{advice[-1]}"
        )

    def _lack(self, memory: Memory, workers: int) -> str | None:
        """The memory of so many tasks at the same time and what there is, if that is less; otherwise None."""
        needed = memory(workers)
        if self.memory is not None and needed > self.memory:
            from dask.utils import format_bytes

            return f"about {format_bytes(needed)} and {option.memory} allows {format_bytes(self.memory)}"
        if is_address(self.scheduler):
            return None  # the limits of its workers are unknown here
        # Limits apply to each process.
        processes = 1 if self.scheduler in ("threads", "synchronous") else workers
        return shortage(max(0, needed // processes - PROCESS_BYTES), workers // processes)

    @contextmanager
    def executor(
        self,
        listener: Listener = silent,
        *,
        target: StorePath | None = None,
        sources: Sequence[str] = (),
        on_bad_input: Callable[[], None] | None = None,
    ) -> Iterator[Executor]:
        """Yield an executor; its pools and clusters are shut down when the block ends.

        The workers of a running scheduler must see the directory of ``target`` and the files ``sources``.
        ``on_bad_input`` is called after an ``InputError`` in the block, once no task is running: corrected input is
        different input, so partial results are useless and are removed. Raises ``InputError`` if a running scheduler
        cannot be used (see ``running_scheduler`` and ``preflight.admitted``) or cannot write a performance report, and
        ``StoreError`` if worker processes or the cluster are lost; committed parts are kept.
        """
        require_no_import()
        ready = False
        try:
            with self._arguments(target, sources) as arguments:
                ready = True
                yield self._executor(arguments, listener)
        except InputError:
            if ready and on_bad_input is not None:
                on_bad_input()
            raise

    def _executor(self, arguments: Mapping[str, Any], listener: Listener) -> Executor:
        if self.scheduler in LOCAL_SCHEDULERS:
            return Executor(arguments, self.concurrency, listener, sends=self.scheduler == "processes")
        threads = arguments["scheduler"].nthreads().values()
        # A growing cluster has few threads at first.
        at_once = max(self.workers or 1, sum(threads))
        return Executor(arguments, at_once, listener, self.mixed, min(threads, default=1))

    @contextmanager
    def _arguments(self, target: StorePath | None, sources: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield the keyword arguments of ``dask.compute``; for the name of a scheduler, Dask imports distributed."""
        import dask.local
        import dask.multiprocessing
        import dask.threaded

        if self.scheduler == "synchronous":
            yield {"scheduler": dask.local.get_sync}
        elif self.scheduler == "threads":
            with _ended(ThreadPoolExecutor(self.concurrency, thread_name_prefix="scan")) as pool:
                yield {"scheduler": dask.threaded.get, "pool": pool}
        elif self.scheduler == "processes":
            require_main()
            processes = _Processes()
            workers = ProcessPoolExecutor(self.concurrency, processes, _follow_the_parent)
            with _lost_processes_in_one_line(processes), _ended(workers) as pool:
                # A task is a whole partition, so larger batches would leave other processes idle.
                yield {"scheduler": dask.multiprocessing.get, "pool": pool, "chunksize": 1}
        else:
            with self._client(target, sources) as client, reported(client, self.performance_report):
                tell_dashboard(client.dashboard_link)
                yield {"scheduler": client}

    @contextmanager
    def _client(self, target: StorePath | None, sources: Sequence[str]) -> Iterator[Any]:
        import dask
        from distributed import Client, LocalCluster

        from streaming_jsmf.jobs.preflight import admitted

        if self.scheduler == "cluster":
            require_main()
            warn_of_active_client()
            # The dashboard uses any free port, to avoid conflicts, and only the local interface; Dask's default is all
            # interfaces.
            with (
                losses_in_one_line("the local cluster"),
                dask.config.set(_LOCAL_WORKERS),
                _event_loop() as loop,
                LocalCluster(
                    loop=loop,
                    n_workers=self.concurrency,
                    threads_per_worker=1,
                    dashboard_address="127.0.0.1:0",
                    silence_logs=logging.CRITICAL,
                    memory_limit=PROCESS_BYTES + self.memory // self.concurrency if self.memory else "auto",
                ) as cluster,
                Client(cluster, set_as_default=False) as client,
            ):
                yield client
            return
        with running_scheduler(self.scheduler) as client, ExitStack() as stack:
            if target is not None:
                stack.enter_context(admitted(client, target, sources, allow_mixed=self.allow_mixed))
            yield client


def _at_most_cores(count: int) -> int:
    return min(count, os.cpu_count() or 1)


@contextmanager
def _lost_processes_in_one_line(processes: _Processes) -> Iterator[None]:
    """Convert the loss of worker processes to a one-line ``StoreError``."""
    try:
        yield
    except BrokenExecutor as error:
        for process in processes.started:
            process.join()
        # The pool terminates the others.
        codes = {process.exitcode or 0 for process in processes.started} - {0, -signal.SIGTERM}
        if max(codes, default=0) > 0:
            raise StoreError(NOT_STARTED) from error
        short = "; SIGKILL is also sent by a system that is short of memory" * (-9 in codes)
        raise StoreError(f"worker processes were killed{short}; {RESUME}") from error


@contextmanager
def _ended(pool: Pool) -> Iterator[Pool]:
    """Shut the pool down after the block, waiting for its tasks.

    Dask raises the error of one task while others still run; those could commit into a store that is being closed.
    """
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block SIGINT in threads and processes started inside the block.

    Ctrl-C reaches the whole process group, and each worker that handled it would print a traceback.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # multiprocessing unblocks SIGINT after starting its resource tracker with the first process.
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
    def __init__(self) -> None:
        super().__init__()
        self.started: list[_Process] = []

    def Process(self, *arguments: Any, **options: Any) -> _Process:  # type: ignore[override]
        self.started.append(_Process(*arguments, **{**options, "name": WORKER}))
        return self.started[-1]


@contextmanager
def _event_loop() -> Iterator[Any]:
    """Run an event loop in a thread; a local cluster starts its worker processes from it."""
    from distributed.utils import LoopRunner

    runner = LoopRunner()
    with _interrupts_blocked():
        runner.start()
    try:
        yield runner.loop
    finally:
        runner.stop()


def _follow_the_parent() -> None:
    """Terminate this worker when its parent ends, since nobody would use its results."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        # join() waits on a pipe that closes whenever the parent ends, even if it was killed.
        threading.Thread(target=_end_with, args=(parent,), name="parent", daemon=True).start()


def _end_with(parent: Any) -> None:
    parent.join()
    # sys.exit would wait for a task in compiled code.
    os._exit(1)
