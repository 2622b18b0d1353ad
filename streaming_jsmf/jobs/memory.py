"""Memory: how much a process has used at most, and sizes as people write them."""

from __future__ import annotations

import resource
import sys

import pyarrow as pa

#: Interpreter, libraries and compiled kernels of a process, before it holds any data.
PROCESS_BYTES = 330 * 2**20


def peak_memory() -> int:
    """Peak resident memory of this process so far, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts in KiB, macOS in bytes.
    return int(peak if sys.platform == "darwin" else peak * 1024)


def machine_memory() -> int | None:
    """Memory that this process may use, in bytes: of the machine, or of its container. None if that is not known."""
    from distributed.system import MEMORY_LIMIT

    return None if MEMORY_LIMIT is None else int(MEMORY_LIMIT)


def release_unused_memory() -> None:
    """Give back what Arrow has freed but kept: it keeps a little more with each partition that is read."""
    pa.default_memory_pool().release_unused()
