"""Which scheduler runs the tasks. It changes the time, never a bit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import dask

from streaming_jsmf.errors import InputError

LOCAL_SCHEDULERS = ("threads", "processes", "synchronous")


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
        if self.scheduler not in known and "://" not in self.scheduler:
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
        """Yield the keyword arguments for ``dask.compute``; clusters live for the block."""
        if self.scheduler in LOCAL_SCHEDULERS:
            yield {"scheduler": self.scheduler, **self._local_arguments()}
            return
        with self._client() as client:
            yield {"scheduler": client}

    def _local_arguments(self) -> dict[str, Any]:
        if self.scheduler == "synchronous":
            return {}
        # One task at a time for each process: a task is a whole partition, batches would starve the others.
        batch = {"chunksize": 1} if self.scheduler == "processes" else {}
        return {"num_workers": self.concurrency, **batch}

    @contextmanager
    def _client(self) -> Iterator[Any]:
        from distributed import Client, LocalCluster

        if self.scheduler == "cluster":
            # One thread for each worker process; no dashboard, so that no port can be in the way.
            with (
                dask.config.set({"distributed.worker.daemon": True}),
                LocalCluster(
                    n_workers=self.concurrency,
                    threads_per_worker=1,
                    dashboard_address=None,
                    memory_limit=self.memory // self.concurrency if self.memory else "auto",
                ) as cluster,
                Client(cluster) as client,
            ):
                yield client
            return
        try:
            client = Client(self.scheduler)
        except (OSError, ValueError) as error:
            raise InputError(f"no Dask scheduler answers at {self.scheduler}: {error}") from error
        with client:
            yield client
