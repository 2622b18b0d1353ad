"""Dask's performance report of a job on a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from streaming_jsmf.errors import InputError

#: Single-machine schedulers, which do not record task timings.
LOCAL_SCHEDULERS = ("threads", "processes", "synchronous")

_INSTALL = "install it with pip install 'dask[diagnostics]'"


def require_report(path: Path, scheduler: str) -> None:
    """Check that a performance report can be written.

    Raises ``InputError`` for a local scheduler, an unwritable path, or if bokeh is missing.
    """
    if scheduler in LOCAL_SCHEDULERS:
        raise InputError(
            f"--performance-report {path}: --scheduler {scheduler} has none; use --scheduler cluster or an address"
        )
    if find_spec("bokeh") is None:
        raise InputError(f"--performance-report {path} needs bokeh; {_INSTALL}")
    if path.suffix != ".html" or path.is_dir() or not path.parent.is_dir():
        raise InputError(
            f"--performance-report {path}: cannot be written; give FILE.html in a directory that exists"
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
            f"--performance-report {path}: the scheduler lacks bokeh; there, {_INSTALL}"
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
