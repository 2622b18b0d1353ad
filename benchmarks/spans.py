"""CPU seconds of the parts of a scan, counted in place of functions of the package while a stopwatch runs."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import Any
from unittest.mock import patch

#: By part of a scan, the functions that it consists of, as their callers find them.
PARTS = {
    "read": (
        "corpus.units:_block",
        "moments.partition:pair_scales",
        "moments.partition:scale_rows",
        "moments.partition:PartitionSums.append",
        "moments.stages.eigenpairs:HeldPart.read",
    ),
    "products": (
        "linalg.csr:multiply_rows",
        "linalg.csr:add_transposed",
        "linalg.tensor:_rows",
        "linalg.tensor:multiply_rows",
        "linalg.tensor:_add_products",
        "moments.stages.cooccurrence:gram_rows",
    ),
    "cubes": ("linalg.tensor:CubeSum.add_cubes",),
    "commit": (
        "jobs.checkpoints:Checkpoints.commit_part",
        "jobs.checkpoints:Checkpoints.commit_fold",
        "jobs.checkpoints:Checkpoints.read_part",
        "jobs.checkpoints:Checkpoints.read_fold",
    ),
    "basis": (
        "moments.stages.sums:_first_eigenpairs",
        "moments.stages.cooccurrence:_counted_eigenpairs",
        "moments.stages.eigenpairs:corrected_eigenpairs",
        "moments.stages.eigenpairs:certify",
        "moments.stages.eigenpairs:outside_directions",
    ),
    "third moment": ("moments.stages.third_moment:basis_moments",),
    "finish": ("moments.run:_computed",),
}


@dataclass
class Stopwatch:
    """Processor seconds by part, of all threads of this process.

    A part inside another one counts for itself alone. Thread time excludes other programs and waiting for the disk.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _open: threading.local = field(default_factory=threading.local, repr=False)

    def counted(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function with its time counted for a part."""

        @functools.wraps(function)
        def run(*arguments: Any, **options: Any) -> Any:
            inner: list[float] = self._open.__dict__.setdefault("inner", [])
            inner.append(0.0)
            started = time.thread_time()
            try:
                return function(*arguments, **options)
            finally:
                whole = time.thread_time() - started
                own = whole - inner.pop()
                if inner:
                    inner[-1] += whole
                with self._lock:
                    self.seconds[part] = self.seconds.get(part, 0.0) + own

        return run


@contextmanager
def stopwatch() -> Iterator[Stopwatch]:
    """Count the ``PARTS`` of scans in threads of this process during the block."""
    watch = Stopwatch()
    with ExitStack() as stack:
        for part, names in PARTS.items():
            for name in names:
                found = resolve_name(f"streaming_jsmf.{name}")
                stack.enter_context(
                    patch(f"streaming_jsmf.{name.replace(':', '.')}", watch.counted(part, found))
                )
        yield watch
