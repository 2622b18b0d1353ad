"""What each worker of a running scheduler must have: checked before anything is written, and when a worker joins."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import threadpoolctl
from distributed.diagnostics.plugin import SchedulerPlugin, WorkerPlugin

from streaming_jsmf.display import location
from streaming_jsmf.errors import InputError, StreamingJSMFError, finding, option
from streaming_jsmf.storage.objects import asked
from streaming_jsmf.storage.paths import StorePath, is_url, open_file, remove_file, try_writing, write_bytes
from streaming_jsmf.storage.results import package_versions

logger = logging.getLogger(__name__)

#: Packages whose versions affect the bits of a task's result.
DECISIVE_PACKAGES = ("numpy", "scipy", "numba", "pyarrow")


def processor_features() -> str:
    """Return what decides how NumPy and BLAS round: the kernels of BLAS, and the SIMD features that NumPy uses."""
    # Both packages may have a BLAS library of their own, which is found once it is loaded.
    import_module("scipy.linalg")
    kernels = {
        library.get("architecture") or library["internal_api"]
        for library in threadpoolctl.threadpool_info()
        if library["user_api"] == "blas"
    }
    features: Any = np.show_config(mode="dicts")
    return " ".join([*sorted(kernels), *features.get("SIMD Extensions", {}).get("found", [])])


@dataclass(frozen=True)
class Conditions:
    """What a worker must see and compute with, as in the process of the command; sent to the workers.

    ``token`` is a file next to the target, ``sources`` are files that tasks read. ``versions`` and ``processor`` are
    empty if they may differ. ``overruled_by`` is the option for that, in the words of the command.
    """

    token: StorePath
    sources: tuple[str, ...]
    versions: Mapping[str, str]
    processor: str
    overruled_by: str

    @classmethod
    def here(cls, token: StorePath, sources: Sequence[str], *, allow_mixed: bool) -> Conditions:
        versions = {} if allow_mixed else {name: package_versions()[name] for name in DECISIVE_PACKAGES}
        processor = "" if allow_mixed else processor_features()
        return cls(token, tuple(sources), versions, processor, str(option.allow_mixed(True)))

    def refusal(self) -> str:
        """Return why this process cannot run tasks and what to do, to follow its name; an empty text if it can."""
        there = package_versions()
        for name, here in self.versions.items():
            if there[name] != here:
                return (
                    f"has {name} {there[name]}, and here it is {here}; install the same version everywhere, because "
                    f"other versions give other bits, or {self.overruled_by}"
                )
        if self.processor and (found := processor_features()) != self.processor:
            return (
                f"computes with {found}, and here it is {self.processor}; use one type of processor, because others "
                f"give other bits, or {self.overruled_by}"
            )
        unreadable = ((self.token, self.token.parent), *((path, path) for path in self.sources))
        failures = (_unreadable(path, place) for path, place in unreadable)
        return next(filter(None, failures), "") or _unwritable(_token(self.token.with_suffix("")))


def _token(stem: StorePath) -> StorePath:
    """A name by which the next writer of a local target recognizes a leftover of a killed process."""
    return stem.with_name(f"{stem.name}.{uuid.uuid4().hex}")


def _unreadable(path: str | StorePath, place: str | StorePath) -> str:
    """Why the file at ``path``, in or at ``place``, cannot be read by this process."""
    try:
        if is_url(path):
            asked("info", path)
        else:
            with open_file(path) as stream:
                stream.read(1)
    except FileNotFoundError:
        return (
            f"does not see {location(place)} as it is here; give a place that every worker reaches: a disk mounted at "
            "the same path, or a URL"
        )
    except (OSError, StreamingJSMFError) as error:
        return _refused("read", place, error)
    return ""


def _unwritable(path: StorePath) -> str:
    """Why this process cannot write the file at ``path``, which is removed again."""
    try:
        try_writing(path)
    except (OSError, StreamingJSMFError) as error:
        return _refused("write to", path.parent, error)
    return ""


def _refused(what: str, place: str | StorePath, error: Exception) -> str:
    reason = (
        finding(error)
        if isinstance(error, StreamingJSMFError)
        else str(getattr(error, "strerror", 0) or error)
    )
    return (
        f"cannot {what} {location(place)} ({location(reason)}); give every worker the packages, credentials and "
        "permissions that this command has"
    )


class _Admission(WorkerPlugin):  # type: ignore[misc]
    """Closes a worker that joins while a job runs and does not meet its conditions."""

    def __init__(self, name: str, conditions: Conditions) -> None:
        self.name, self._conditions = name, conditions

    def setup(self, worker: Any) -> None:
        if reason := self._conditions.refusal():
            logger.error("this worker, %s, %s", worker.address, reason)
            # Before its first task. Waiting here would block its nanny.
            worker.loop.add_callback(worker.close, reason="refused")


class _EndOfAdmission(SchedulerPlugin):  # type: ignore[misc]
    """Withdraws the conditions of a job once its client is gone, even if it was killed."""

    def __init__(self, client: str, name: str) -> None:
        self._client, self.name = client, name

    def remove_client(self, scheduler: Any, client: str) -> None:
        if client == self._client:
            scheduler.loop.add_callback(scheduler.unregister_worker_plugin, None, name=self.name)
            scheduler.loop.add_callback(scheduler.unregister_scheduler_plugin, name=self.name)


@contextmanager
def admitted(client: Any, target: StorePath, sources: Sequence[str], *, allow_mixed: bool) -> Iterator[None]:
    """Check all workers of ``client``, and those that join during the block, which are closed if they are refused.

    Raises ``InputError``, which names the worker, the difference and what to do.
    """
    token = _token(target.with_name(f".{target.name}"))
    write_bytes(token, b"every worker must see this file\n")
    try:
        conditions = Conditions.here(token, sources, allow_mixed=allow_mixed)
        for worker, reason in client.run(conditions.refusal, on_error="return").items():
            if isinstance(reason, str):
                if reason:
                    raise InputError(f"the worker at {worker} {reason}")
            elif not isinstance(reason, OSError):  # a worker that has exited meanwhile gives no answer
                raise reason
        name = f"streaming-jsmf-{client.id}"
        client.register_plugin(_EndOfAdmission(client.id, name))
        client.register_plugin(_Admission(name, conditions))
        yield
    finally:
        remove_file(token)
