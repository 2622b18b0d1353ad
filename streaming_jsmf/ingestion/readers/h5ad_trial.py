"""A trial read of an HDF5 file in a process of its own, a script that imports nothing of this package.

Strings of any length are stored in heaps that refer to each other. With a wrong byte the HDF5 library can follow them
forever within one call, ignoring signals, or allocate gigabytes. So what is stored in heaps is read here first, with
limits on memory and processor time (not wall time: a slow disk is no damage).
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

#: Seconds of the processor; a million names take one or two.
SECONDS = 5
BYTES_A_SECOND = 10_000_000
#: Bytes beyond those of the file itself.
MEMORY = 512 << 20
#: Exit code for a file that needs more memory.
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
    """Ignore errors other than of memory; reading the file reports them."""
    try:
        yield
    except MemoryError:
        sys.exit(TOO_LARGE)
    except Exception as error:
        if "allocat" in str(error):
            sys.exit(TOO_LARGE)


def _read(node: Any, depth: int = 3) -> None:
    """Read the attributes of a node and of those below it, and strings."""
    dict(node.attrs)
    if hasattr(node, "keys"):
        for child in node.values() if depth else ():
            _read(child, depth - 1)
    elif node.dtype.kind == "O" and node.ndim == 1:
        for start in range(0, node.shape[0], _ROWS):
            node[start : start + _ROWS]


def main() -> None:
    """Read the matrix and columns of ``obs`` of the request on standard input."""
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
