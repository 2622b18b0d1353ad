"""Peak and available memory of a process."""

from __future__ import annotations

import resource
import sys

import pyarrow as pa

#: Memory of the interpreter, libraries and compiled kernels of a process, without data.
PROCESS_BYTES = 330 * 2**20


def peak_memory() -> int:
    """Return the peak resident memory of this process so far, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux reports KiB, macOS bytes.
    return int(peak if sys.platform == "darwin" else peak * 1024)


def machine_memory() -> int | None:
    """Return the memory available to this process (machine or container) in bytes; None if unknown."""
    from distributed.system import MEMORY_LIMIT

    return None if MEMORY_LIMIT is None else int(MEMORY_LIMIT)


def release_unused_memory() -> None:
    """Return unused memory of Arrow's pool to the system; the pool grows slightly with each partition read."""
    pa.default_memory_pool().release_unused()
