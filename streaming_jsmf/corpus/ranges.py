"""Rows of the files of many tasks by range of a hash, so that one task reads all rows of a range and no others.

The first tasks write rows as they come. Once their number is known, so is that of the ranges, and a step spreads the
rows: each task writes the rows of consecutive files into one file, which has a batch for each range.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.corpus.units import partition_units
from streaming_jsmf.fingerprint import sealed, unsealed
from streaming_jsmf.jobs.checkpoints import Record
from streaming_jsmf.jobs.execution import Executor
from streaming_jsmf.jobs.run import map_job, run_job
from streaming_jsmf.jobs.workspace import TaskFiles, Workspace
from streaming_jsmf.storage.paths import StorePath, read_bytes, write_json
from streaming_jsmf.storage.tables import damaged, own_file, write_merged

#: Bytes of memory of a task for the rows of a range, or for those that it spreads at once.
RANGE_BYTES = 200_000_000

#: A range reads every file of a step, so there are fewer files than ranges if that leaves so many tasks.
_RUNS_PER_FILE, _FEWEST_TASKS = 16, 64

_SPREAD = "spread.arrow"

#: Returns the rows of a slice of what is spread, as a table, and the range of each row among so many.
ReadRows: TypeAlias = Callable[[slice, int], tuple[Any, NDArray[np.int64]]]


def number_of_ranges(rows: int, row_bytes: int) -> int:
    """Return the number of ranges so that each takes ``RANGE_BYTES`` of memory."""
    return max(1, -(-rows * row_bytes // RANGE_BYTES))


def ranges_of_hashes(hashes: NDArray[np.uint64], number: int) -> NDArray[np.int64]:
    """Return the range of each 64-bit hash."""
    return ((hashes >> np.uint64(32)) * np.uint64(number) >> np.uint64(32)).astype(np.int64)


def list_files(root: StorePath, step: str, files: Sequence[Any]) -> None:
    """Save the files that all tasks of a step read, which would be too much for their arguments."""
    write_json(root / f"{step}.json", sealed({"files": [*files]}))


def files_of(root: StorePath, step: str) -> list[Any]:
    """Return what ``list_files`` has saved; ``StoreError`` if it is missing or damaged."""
    path = root / f"{step}.json"
    try:
        with own_file(path):
            return list(unsealed(json.loads(read_bytes(path)))["files"])
    except (ValueError, LookupError, AttributeError) as error:
        raise damaged(path) from error


@dataclass(frozen=True)
class _Spread:
    """Arguments of the tasks of ``spread``."""

    root: StorePath
    step: str
    number: int
    read: ReadRows


def spread(
    work: Workspace, executor: Executor, step: str, rows: Sequence[int], row_bytes: int, number: int, read: ReadRows
) -> None:  # fmt: skip
    """Step: write what ``read`` returns for the items with so many ``rows`` by range, to ``files_of`` the step.

    The rows of a range keep the order of the items over the batches of all files. Memory of a task: ``RANGE_BYTES``;
    it writes its rows twice, first to the local disk.
    """
    runs = partition_units(rows, max(1, RANGE_BYTES // row_bytes))
    per_file = max(1, min(_RUNS_PER_FILE, len(runs) // _FEWEST_TASKS))
    items = [
        (i, [(run.start, run.stop) for run in runs[start : start + per_file]])
        for i, start in enumerate(range(0, len(runs), per_file))
    ]
    sizes = [sum(sum(rows[start:stop]) for start, stop in each) for _, each in items]
    arguments = _Spread(work.root, step, number, read)
    list_files(work.root, step, [f"{_directory(step, i)}/{_SPREAD}" for i, _ in items])
    if len(items) == 1:  # a job would take longer
        spread_rows(arguments, items[0])
    else:
        run_job(map_job(spread_rows, arguments, sizes, work.checkpoints(step), "rows", items), executor)


def spread_rows(arguments: _Spread, item: tuple[int, Sequence[tuple[int, int]]]) -> Record:
    """Task: write the rows of some runs of items by range."""
    number, runs = item
    files = TaskFiles(arguments.root, _directory(arguments.step, number))
    with files.written(_SPREAD) as made:
        read = (arguments.read(slice(start, stop), arguments.number) for start, stop in runs)
        write_merged(made, read, arguments.number)
    return files.record()


def _directory(step: str, number: int) -> str:
    return f"{step}/{number:05d}"
