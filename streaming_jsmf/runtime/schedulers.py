"""Which scheduler runs the tasks. It changes the time, never a bit."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import dask
from dask.utils import parse_timedelta

from streaming_jsmf.errors import InputError, StoreError

LOCAL_SCHEDULERS = ("threads", "processes", "synchronous")

#: Of addresses that distributed understands.
ADDRESS_SCHEMES = ("tcp", "tls", "ucx", "ws", "wss")

#: Seconds to wait for a running scheduler; Dask's configuration can lower it.
CONNECT_SECONDS = 10.0


@dataclass(frozen=True)
class Execution:
    """How a job runs.

    Parameters
    ----------
    scheduler
        ``threads``, ``processes``, ``synchronous``, ``cluster`` (a LocalCluster of worker processes that ends
        with the job) or the address of a running Dask scheduler, such as ``tcp://host:8786``.
    workers
        Threads or processes; None: one for each core. A running scheduler has its own.
    memory
        Bytes that all workers together may use; None: not checked.

    Raises
    ------
    InputError
        If the scheduler is unknown or ``workers`` is below 1.
    """

    scheduler: str = "threads"
    workers: int | None = None
    memory: int | None = None

    def __post_init__(self) -> None:
        known = (*LOCAL_SCHEDULERS, "cluster")
        if self.scheduler not in known and not _is_address(self.scheduler):
            raise InputError(
                f"scheduler is {self.scheduler!r}; give one of {', '.join(known)}, or an address such as "
                "tcp://HOST:8786"
            )
        if self.workers is not None and self.workers < 1:
            raise InputError(f"workers is {self.workers}; give a whole number of at least 1")

    @property
    def concurrency(self) -> int:
        """Tasks that run at once, as far as is known before a cluster answers."""
        if self.scheduler == "synchronous":
            return 1
        return self.workers or os.cpu_count() or 1

    @contextmanager
    def runner(self) -> Iterator[dict[str, Any]]:
        """Yield the keyword arguments for ``dask.compute``; pools and clusters live for the block.

        Raises
        ------
        InputError
            If a running scheduler does not answer.
        StoreError
            If worker processes or the scheduler end before the block does.
        """
        if self.scheduler == "synchronous":
            yield {"scheduler": "synchronous"}
        elif self.scheduler == "threads":
            with _thread_pool(self.concurrency) as pool:
                yield {"scheduler": "threads", "pool": pool}
        elif self.scheduler == "processes":
            # One task at a time for each process: a task is a whole partition, batches would starve the others.
            arguments = {
                "scheduler": "processes",
                "num_workers": self.concurrency,
                "chunksize": 1,
                "initializer": _leave_interrupts_to_the_parent,
            }
            with _losses_in_one_line(self.scheduler):
                yield arguments
        else:
            with _losses_in_one_line(self.scheduler), self._client() as client:
                yield {"scheduler": client}

    @contextmanager
    def _client(self) -> Iterator[Any]:
        from distributed import Client, LocalCluster

        if self.scheduler == "cluster":
            # One thread for each worker process; a dashboard on any free port, so that none can be in the way.
            with (
                dask.config.set({"distributed.worker.daemon": True}),
                LocalCluster(
                    n_workers=self.concurrency,
                    threads_per_worker=1,
                    dashboard_address=":0",
                    silence_logs=logging.CRITICAL,
                    memory_limit=self.memory // self.concurrency if self.memory else "auto",
                ) as cluster,
                Client(cluster, set_as_default=False) as client,
            ):
                yield client
            return
        configured = parse_timedelta(dask.config.get("distributed.comm.timeouts.connect"))
        try:
            # Not the default of the process: a client that fails to connect would stay it.
            client = Client(self.scheduler, timeout=min(configured, CONNECT_SECONDS), set_as_default=False)
        except (OSError, ValueError) as error:
            raise InputError(f"no Dask scheduler answers at {self.scheduler}: {error}") from error
        with client:
            yield client


@contextmanager
def _losses_in_one_line(scheduler: str) -> Iterator[None]:
    """Workers or a scheduler that are killed leave a store that is incomplete and can be finished.

    Raises
    ------
    StoreError
        That says so.
    """
    lost: tuple[type[BaseException], ...] = (BrokenExecutor,)
    if scheduler not in LOCAL_SCHEDULERS:
        from distributed import KilledWorker
        from distributed.comm import CommClosedError

        lost = (CancelledError, CommClosedError, KilledWorker)
    client = logging.getLogger("distributed.client")
    level = client.level
    # What it would log of a lost scheduler, tracebacks and all, is raised as one line.
    client.setLevel(logging.CRITICAL)
    try:
        yield
    except lost as error:
        raise StoreError(
            f"workers or scheduler of {scheduler!r} were lost; run the same command again to go on from what is "
            "committed, here or elsewhere"
        ) from error
    finally:
        client.setLevel(level)


def _is_address(text: str) -> bool:
    """Whether ``text`` is scheme://host:port; a client of anything else would linger half made."""
    try:
        parts = urlsplit(text)
        return parts.scheme in ADDRESS_SCHEMES and bool(parts.hostname) and parts.port is not None
    except ValueError:
        return False


@contextmanager
def _thread_pool(workers: int) -> Iterator[ThreadPoolExecutor]:
    """A pool whose tasks have all ended when the block has.

    Dask raises the error of one task while others still run in its own pool; they would go on committing into a
    store that is being closed.
    """
    pool = ThreadPoolExecutor(workers, thread_name_prefix="scan")
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _leave_interrupts_to_the_parent() -> None:
    """Ctrl-C reaches the whole process group; one process answers it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
