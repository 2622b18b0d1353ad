"""A trial read of an HDF5 file, in a process of its own that may be ended: a script, which imports nothing of ours.

Texts of any length lie in heaps that point to each other. With a byte wrong the HDF5 library can follow them for ever,
within one call, deaf to signals. So what lies in heaps is first read here, with a limit on the time of the processor
(not by the clock: a slow disk is no damage). All other faults show in time to who reads the file.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from contextlib import suppress
from typing import Any

#: Seconds of the processor: a million names take one or two.
SECONDS = 5
BYTES_A_SECOND = 10_000_000

_ROWS = 100_000


def _limit_time(size: int) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime) + SECONDS + size // BYTES_A_SECOND
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


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
    _limit_time(os.stat(asked["path"]).st_size)  # noqa: PTH116
    with suppress(Exception), h5py.File(asked["path"], "r") as file:
        names = [asked["matrix"]]
        for table in ("obs", "var"):
            with suppress(Exception):
                names += [table, f"{table}/{file[table].attrs['_index']}"]
        for name in [*names, *(f"obs/{column}" for column in asked["columns"])]:
            with suppress(Exception):
                _read(file[name], depth=0 if name in ("obs", "var") else 3)


if __name__ == "__main__":
    main()
