"""A trial read of an HDF5 file, in a process of its own that may be ended: a script, which imports nothing of ours.

Texts of any length lie in heaps that point to each other. With a byte wrong the HDF5 library can follow them for ever,
within one call, deaf to signals, or make room for a text of gigabytes. So what lies in heaps is first read here, with
limits on memory and on the time of the processor (not by the clock: a slow disk is no damage). All other faults show to
who reads the file.
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

#: Seconds of the processor: a million names take one or two.
SECONDS = 5
BYTES_A_SECOND = 10_000_000
#: Bytes beside those of the file itself.
MEMORY = 512 << 20
#: Exit code of a file that says it holds more than that.
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
    """Pass over whatever is wrong, but that there is no room; who reads the file will be told in better words."""
    try:
        yield
    except MemoryError:
        sys.exit(TOO_LARGE)
    except Exception as error:
        if "allocat" in str(error):
            sys.exit(TOO_LARGE)


def _read(node: Any, depth: int = 3) -> None:
    """Attributes of a node and of those below it, and texts."""
    dict(node.attrs)
    if hasattr(node, "keys"):
        for child in node.values() if depth else ():
            _read(child, depth - 1)
    elif node.dtype.kind == "O" and node.ndim == 1:
        for start in range(0, node.shape[0], _ROWS):
            node[start : start + _ROWS]


def main() -> None:
    """Read what the request on standard input names: a path, a matrix, and columns of ``obs``."""
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
