"""A running Dask scheduler: its connection, its workers, its loss in one line, and its performance report."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from streaming_jsmf.display import logging_only
from streaming_jsmf.errors import InputError, StoreError, option, pass_on_machine
from streaming_jsmf.storage.paths import exists

#: Connection timeout in seconds; Dask's configuration can lower it.
CONNECT_SECONDS = 10.0

#: Timeout in seconds for the first worker, unless Dask's configuration sets one.
WORKERS_SECONDS = 60.0
WORKERS_KEY = "distributed.scheduler.no-workers-timeout"

#: Credentials of the clusters and clients that were given as schedulers, by address, which alone has none.
_credentials: dict[str, Any] = {}

#: URL schemes of scheduler addresses supported by distributed.
ADDRESS_SCHEMES = ("tcp", "tls", "ucx", "ws", "wss")

#: Single-machine schedulers, which do not record task timings.
LOCAL_SCHEDULERS = ("threads", "processes", "synchronous")

PACKAGE = "streaming_jsmf"

logger = logging.getLogger(__name__)

_INSTALL = "install it with pip install 'dask[diagnostics]'"

RESUME = "run the same command again to go on from what is committed"

#: Why processes end as they start.
NOT_STARTED = (
    "the worker processes ended as they started, for the reason that they wrote above; each imports the main module of "
    'the program, whose calls belong below if __name__ == "__main__":'
)


def address_of(scheduler: Any) -> Any:
    """Return the address of a cluster or client of Dask, whose credentials are kept for it; anything else unchanged."""
    address = getattr(scheduler, "scheduler_address", None)
    address = address or getattr(getattr(scheduler, "scheduler", None), "address", None)
    if address:
        _credentials[address] = getattr(scheduler, "security", None)
    return address or scheduler


def require_usable(scheduler: Any) -> None:
    """Raise ``InputError`` for a cluster or client of Dask that would never answer."""
    what = "client" if hasattr(scheduler, "scheduler_info") and hasattr(scheduler, "submit") else "cluster"
    if getattr(scheduler, "asynchronous", None) is True:
        raise InputError(
            f"this {what} is asynchronous; make it without asynchronous=True, or make this call in another thread "
            "(asyncio.to_thread)"
        )
    status = getattr(scheduler, "status", None)
    if getattr(status, "name", status) in ("closing", "closed", "failed"):
        raise InputError(f"this {what} is closed; make a new one")


def require_main() -> None:
    """Raise ``InputError`` if the main module, which worker processes import first, is not a file."""
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None) if getattr(main, "__spec__", None) is None else None
    # As multiprocessing, which does not import programs in an archive.
    if file is not None and Path(file).stem != "__main__" and not exists(file):
        raise InputError(
            f"worker processes import the main module of the program, and {file} is not a file; save the program as a "
            f"file, or use {option.scheduler('threads')}"
        )


def is_address(text: str) -> bool:
    """Whether ``text`` is scheme://host:port; a distributed client of anything else would be left half initialized."""
    try:
        parts = urlsplit(text)
        standard = parts.scheme in ADDRESS_SCHEMES and bool(parts.hostname) and parts.port is not None
        return standard or text in _credentials
    except ValueError:
        return False


@contextmanager
def running_scheduler(address: str) -> Iterator[Any]:
    """Yield a client of the scheduler at ``address``.

    Certificates for ``tls://`` are those of a cluster or client that was given, or come from Dask's configuration.

    On entry raises ``InputError`` if the scheduler does not answer, no worker starts in time, or a process of the
    cluster lacks this package or has another version. Later errors as ``losses_in_one_line``.
    """
    client = _connect(address)
    # A lost scheduler is raised as an error of one line; the client would log a traceback, too.
    with losses_in_one_line(address), logging_only(logging.CRITICAL, "distributed.client"), client:
        _require_worker(client, address)
        _require_package(client)
        yield client


@contextmanager
def losses_in_one_line(cluster: str) -> Iterator[None]:
    """Convert the errors of distributed for a lost cluster to a one-line ``StoreError``.

    They occur if the scheduler is lost, a task repeatedly kills its workers, or no worker starts or is left in time.
    """
    from distributed.comm import CommClosedError
    from distributed.scheduler import KilledWorker, NoValidWorkerError, NoWorkerError

    try:
        yield
    except KilledWorker as error:
        # The original message has three sentences and Dask keys.
        raise StoreError(
            f"{error.allowed_failures + 1} workers of {cluster} died at the same task, the last at "
            f"{error.last_worker.address}; give each worker more memory, or raise "
            f"distributed.scheduler.allowed-failures if machines are taken away, and {RESUME}"
        ) from error
    except (NoValidWorkerError, NoWorkerError) as error:
        raise StoreError(
            f"{cluster} had no worker for longer than its {WORKERS_KEY}; start workers and {RESUME}"
        ) from error
    except RuntimeError as error:
        if "failed to start" not in str(error):
            raise
        raise StoreError(NOT_STARTED) from error
    except (CancelledError, CommClosedError) as error:
        raise StoreError(f"the Dask scheduler at {cluster} was lost; {RESUME}, there or elsewhere") from error


def warn_of_active_client() -> None:
    """Warn once that the active client of Dask, if there is one, is not used."""
    from distributed import Client

    with suppress(ValueError):  # no client is active
        _warn_of_client_at(address_of(Client.current()))


@cache
def _warn_of_client_at(address: str) -> None:
    logger.warning(
        "the active Dask client at %s is not used: %s starts a cluster of its own; give %s the client to use it",
        address,
        option.scheduler("cluster"),
        option.scheduler,
    )


def tell(topic: str, *news: Any) -> None:
    """Tell those who are ``listening``, if this is a task of a cluster."""
    if "distributed" in sys.modules:
        from distributed import get_worker

        with suppress(ValueError):  # another task
            get_worker().log_event(topic, news)


@contextmanager
def listening(client: Any, topic: str, heard: Callable[..., None]) -> Iterator[None]:
    """Call ``heard`` in a thread of the client with what tasks ``tell`` during the block, if it arrives in time."""
    client.subscribe_topic(topic, lambda event: heard(*event[1]))
    try:
        yield
    finally:
        with suppress(Exception):  # the scheduler may be lost
            client.unsubscribe_topic(topic)


@cache
def tell_dashboard(link: str | None) -> None:
    """Log the address of the dashboard of a cluster, once in this process; None if it has none."""
    if link is not None:
        logger.info("dashboard of the cluster: %s", link)


def _connect(address: str) -> Any:
    import dask
    from dask.utils import parse_timedelta
    from distributed import Client
    from distributed.security import Security

    security = _credentials.get(address) or Security()
    # A client without certificates would be left half initialized.
    if urlsplit(address).scheme == "tls" and security.get_connection_args("client")["ssl_context"] is None:
        raise InputError(
            f"{address} needs certificates; name them in Dask's configuration under distributed.comm.tls "
            "(ca-file, client.cert, client.key)"
        )
    configured = parse_timedelta(dask.config.get("distributed.comm.timeouts.connect"))
    try:
        # Never make it the process-wide default: it would remain so even after a failed connection.
        seconds = min(configured, CONNECT_SECONDS)
        return Client(address, timeout=seconds, set_as_default=False, security=security)
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        pass_on_machine(error)
        reason = " ".join(str(error).split())
        raise InputError(
            f"no Dask scheduler answers at {address} ({reason}); check the address, and that a scheduler runs there"
        ) from error


def _require_worker(client: Any, address: str) -> None:
    """Wait for the first worker, with a task, because an adaptive cluster starts workers only for tasks."""
    import dask
    from dask.utils import format_time, parse_timedelta

    configured = dask.config.get(WORKERS_KEY)
    seconds = WORKERS_SECONDS if configured is None else parse_timedelta(configured)
    try:
        client.submit(int, pure=False).result(timeout=seconds)
    except TimeoutError as error:
        raise InputError(
            f"the Dask scheduler at {address} has no workers after {format_time(seconds)}; start dask worker "
            f"{address}, or set {WORKERS_KEY} in Dask's configuration to wait longer"
        ) from error


def _require_package(client: Any) -> None:
    """Require the version of this package in all processes of the cluster, because they load its objects."""
    found = client.get_versions(packages=[PACKAGE])
    here = found["client"]["packages"][PACKAGE]
    names = {f"the worker at {worker}": there for worker, there in found["workers"].items()}
    for who, there in {"the scheduler": found["scheduler"], **names}.items():
        # A worker that exits during the query gives no answer; ignore it.
        packages = there.get("packages") if isinstance(there, Mapping) else None
        if packages and packages.get(PACKAGE) != here:
            raise InputError(
                f"{who} has {PACKAGE} {packages.get(PACKAGE) or 'nowhere'}, and here it is {here or 'nowhere'}; "
                "install the same version everywhere, because other versions give other bits"
            )


def require_report(path: Path, scheduler: str) -> None:
    """Check that a performance report can be written.

    Raises ``InputError`` for a local scheduler, an unwritable path, or if bokeh is missing.
    """
    if scheduler in LOCAL_SCHEDULERS:
        raise InputError(
            f"{option.performance_report(str(path))}: {option.scheduler(scheduler)} has none; use "
            f"{option.scheduler('cluster')} or an address"
        )
    if find_spec("bokeh") is None:
        raise InputError(f"{option.performance_report(str(path))} needs bokeh; {_INSTALL}")
    if path.suffix != ".html" or path.is_dir() or not path.parent.is_dir():
        raise InputError(
            f"{option.performance_report(str(path))}: cannot be written; give FILE.html in a directory that exists"
        )


@contextmanager
def reported(client: Any, path: Path | None) -> Iterator[None]:
    """Write the performance report of the tasks that ``client`` runs inside the block to ``path``; None: no report.

    An interrupted block writes no report, because that would wait for the workers. Raises ``InputError`` before the
    block if the scheduler lacks bokeh.
    """
    if path is None:
        yield
        return
    from distributed import performance_report

    try:
        # The scheduler renders the report, possibly in another environment.
        client.run_on_scheduler(version, "bokeh")
    except PackageNotFoundError as error:
        raise InputError(
            f"{option.performance_report(str(path))}: the scheduler lacks bokeh; there, {_INSTALL}"
        ) from error
    with client.as_current():
        report = performance_report(filename=str(path))
        report.__enter__()
        try:
            yield
        except Exception:
            with suppress(Exception):
                report.__exit__(None, None, None)
            raise
        report.__exit__(None, None, None)
