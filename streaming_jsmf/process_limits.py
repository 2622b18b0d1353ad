"""Memory of the process: its limits (``ulimit -v`` and ``ulimit -d``), its peak, and what the machine has.

Limits are checked before work starts: native libraries abort the process when an allocation fails. This module imports
nothing heavy, because ``reserve_less`` must run before NumPy and Arrow are loaded.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

_MIB = 2**20

#: Memory of the interpreter, libraries and compiled kernels of a process, without data.
PROCESS_BYTES = 330 * _MIB

#: Each limit, its field in ``/proc/self/statm``, and the share of the interpreter and libraries. Up to 810 and 390 MiB
#: were measured during compilation with the settings of ``reserve_less``.
_LIMITS = (
    ("ulimit -v", resource.RLIMIT_AS, 0, 1024 * _MIB),
    ("ulimit -d", resource.RLIMIT_DATA, 5, 512 * _MIB),
)

#: Memory of a worker without data: two threads with stacks of 8 MiB, and an OpenBLAS buffer of 32 MiB.
_WORKER_BYTES = 48 * _MIB

_M_ARENA_MAX = -8

#: Name of the processes of the scheduler "processes".
WORKER = "streaming_jsmf worker"


def is_limited() -> bool:
    """Whether any of the limits is set."""
    return any(resource.getrlimit(kind)[0] != resource.RLIM_INFINITY for _, kind, _, _ in _LIMITS)


def reserve_less() -> None:
    """Keep libraries from reserving threads and address space that they do not use; results do not change.

    Numba has no threads here, and cannot do without compilation: its settings of both would only be in the way.

    By default OpenBLAS starts a thread and reserves 40 MiB per core, which no command uses. Under a limit, the 1 GiB of
    Arrow and the 64 MiB per thread of glibc matter as well.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for name in ("NUMBA_NUM_THREADS", "NUMBA_DISABLE_JIT"):
        os.environ.pop(name, None)
    if not is_limited():
        return
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    os.environ.setdefault("MALLOC_ARENA_MAX", "1")
    # glibc reads the variable at process start, so it only affects workers. Other C libraries have no arenas.
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def shortage(data: int = 0, workers: int = 0, mapped: int = 0) -> str | None:
    """Describe the memory needed for ``data`` bytes and the limit that it exceeds; None if the limits suffice.

    ``mapped`` are bytes of files that are mapped into memory, which only one of the limits counts.
    """
    pages = Path("/proc/self/statm")
    held = pages.read_text(encoding="ascii").split() if pages.exists() else []
    for name, kind, field, libraries in _LIMITS:
        allowed = resource.getrlimit(kind)[0]
        used = int(held[field]) * resource.getpagesize() if held else 0
        needed = max(libraries, used) + data + workers * _WORKER_BYTES
        needed += mapped * (kind == resource.RLIMIT_AS)
        if allowed != resource.RLIM_INFINITY and needed > allowed:
            return f"about {needed / _MIB:,.0f} MiB with its libraries, and {name} allows {allowed / _MIB:,.0f} MiB"
    return None


def peak_memory() -> int:
    """Return the peak resident memory of this process so far, in bytes."""
    # The peak that Linux reports to getrusage includes that of the program whose place this one took (execve).
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM:")).split()[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux reports KiB, macOS bytes.
    return int(peak if sys.platform == "darwin" else peak * 1024)


def machine_memory() -> int:
    """Return the memory of the machine, or of the container in which this process runs, in bytes."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for name in ("memory.max", "memory.high", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # there is no such limit, or it is "max"
            found.append(int(Path("/sys/fs/cgroup", name).read_text(encoding="ascii")))
    return min(found)


def require_no_import() -> None:
    """End a worker process that works because it imports the main module of the program, before it is ready.

    The calls of that module would be made again by every worker.
    """
    processes = sys.modules.get("multiprocessing")
    this: Any = processes and processes.current_process()
    if getattr(this, "_inheriting", False) and this.name.startswith((WORKER, "Dask Worker")):
        sys.exit(
            "a worker process imports the main module of the program, which calls streaming_jsmf again; put its calls "
            'below if __name__ == "__main__":'
        )
