"""Trial read of an HDF5 file in its own process, as a script that does not import this package.

With a damaged byte in a heap of strings, HDF5 can loop within one call, ignoring signals, or allocate gigabytes. This
script reads all heap data with limits on memory and CPU time (not wall time: a slow disk is not damage).
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: CPU seconds; a million names take one or two.
SECONDS = 5
BYTES_A_SECOND = 10_000_000
#: Bytes in addition to the size of the file.
MEMORY = 512 << 20
#: Exit code if the file needs more memory.
TOO_LARGE = 3

_ROWS = 100_000


def _limit(size: int) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime) + SECONDS + size // BYTES_A_SECOND
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    pages = Path("/proc/self/statm")
    if pages.exists():
        held = int(pages.read_text().split()[0]) * resource.getpagesize()
        allowed = resource.getrlimit(resource.RLIMIT_AS)[0]
        room = held + MEMORY + size
        if allowed == resource.RLIM_INFINITY or room < allowed:
            resource.setrlimit(resource.RLIMIT_AS, (room, room))


@contextmanager
def _room() -> Iterator[None]:
    """Exit on memory errors and ignore all others, which the real read reports."""
    try:
        yield
    except MemoryError:
        sys.exit(TOO_LARGE)
    except Exception as error:
        if "allocat" in str(error):
            sys.exit(TOO_LARGE)


def _read(node: Any, depth: int = 3) -> None:
    """Read the attributes of a node and its children, and the strings."""
    dict(node.attrs)
    if hasattr(node, "keys"):
        for child in node.values() if depth else ():
            _read(child, depth - 1)
    elif node.dtype.kind == "O" and node.ndim == 1:
        for start in range(0, node.shape[0], _ROWS):
            node[start : start + _ROWS]


def main() -> None:
    """Read the matrix and ``obs`` columns of the request on standard input."""
    import h5py

    asked = json.load(sys.stdin)
    _limit(os.stat(asked["path"]).st_size)  # noqa: PTH116
    with _room(), h5py.File(asked["path"], "r") as file:
        names = [asked["matrix"], *(f"obs/{column}" for column in asked["columns"])]
        for table in ("obs", "var"):
            with _room():
                _read(file[table], depth=0)
                names.append(f"{table}/{file[table].attrs['_index']}")
        for name in names:
            with _room():
                _read(file[name])


if __name__ == "__main__":
    main()
