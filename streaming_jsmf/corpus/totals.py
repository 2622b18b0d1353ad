"""Sums of the counts of words over the files of many tasks: by ranges of the hashes of words, one task a range."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_jsmf.corpus.hashes import hash_values
from streaming_jsmf.corpus.ranges import files_of, list_files, number_of_ranges, ranges_of_hashes, spread
from streaming_jsmf.corpus.vocabulary import COUNTS, WordCounts
from streaming_jsmf.jobs.checkpoints import Record
from streaming_jsmf.jobs.execution import Executor
from streaming_jsmf.jobs.run import map_job, run_job
from streaming_jsmf.jobs.workspace import TaskFiles, Workspace
from streaming_jsmf.linalg.panels import panels
from streaming_jsmf.storage.objects import FILE_THREADS, in_threads
from streaming_jsmf.storage.paths import StorePath
from streaming_jsmf.storage.tables import (
    read_range,
    read_table,
    table_batches,
    write_table,
)

#: Memory of a word in a range, in bytes, and the largest number of ranges, all of which ``merged`` reads at once. There
#: are ever fewer new words in further documents.
WORD_BYTES, MOST_RANGES = 200, 256

#: Rows of all tables in memory during a merge.
MERGE_ROWS = 1_000_000

#: What is summed by each key: the columns of the key, in the order of the sums, and those of the counts.
_COLUMNS = {"word": (("word",), COUNTS), "form": (("word", "form"), ("count",))}
_SUMS = "counts.arrow"


def summed(counts: Any, key: str) -> Any:
    """Sum a table of counts by ``key``, "word" or "form", and sort it."""
    by, counted = _COLUMNS[key]
    grouped = counts.group_by([*by], use_threads=False).aggregate([(name, "sum") for name in counted])
    renamed = grouped.rename_columns({f"{name}_sum": name for name in counted})
    return renamed.sort_by([(name, "ascending") for name in by])


def summed_range(root: StorePath, step: str, key: str, number: int) -> Any:
    """Return the sums of one range over all files of a step, added in their order.

    Memory: the distinct words of the range, and ``MERGE_ROWS`` rows or as many again.
    """
    files, (by, counted) = [root / name for name in files_of(root, f"spread_{step}")], _COLUMNS[key]
    held: list[Any] = []
    rows = distinct = 0
    for some in panels(len(files), FILE_THREADS):
        for table in in_threads(partial(read_range, number=number), files[some]):
            held.append(table.select([*by, *counted]))
            rows += table.num_rows
        if rows > max(MERGE_ROWS, 2 * distinct):
            held = [summed(pa.concat_tables(held), key)]
            rows = distinct = held[0].num_rows
    return summed(pa.concat_tables(held), key)


@dataclass(frozen=True)
class Sums:
    """Arguments of the tasks of ``sum_files``."""

    root: StorePath
    step: str
    key: str
    n_ranges: int
    least: int = 0


def sum_files(
    work: Workspace,
    executor: Executor,
    step: str,
    files: Sequence[str],
    rows: Sequence[int],
    key: str,
    least: int = 0,
) -> list[StorePath]:
    """Sum the counts in files of the workspace by ``key``, as ``summed``; return a sorted table per range.

    The files have so many ``rows``. The few files of a single range are returned as they are, sorted, too; ``merged``
    sums them. Words in fewer than ``least`` documents may be left out.
    """
    number = min(number_of_ranges(sum(rows), WORD_BYTES), MOST_RANGES)
    if number == 1:
        return [work.root / name for name in files]
    list_files(work.root, step, files)
    read = partial(_words_by_range, work.root, step)
    spread(work, executor, f"spread_{step}", rows, WORD_BYTES, number, read)
    sums = Sums(work.root, step, key, number, least)
    run_job(map_job(sum_range, sums, [1] * number, work.checkpoints(step), "ranges"), executor)
    return [work.root / _directory(step, i) / _SUMS for i in range(number)]


def _words_by_range(root: StorePath, step: str, some: slice, number: int) -> tuple[Any, NDArray[np.int64]]:
    table = pa.concat_tables(in_threads(read_table, [root / name for name in files_of(root, step)[some]]))
    hashes = hash_values(table.column("word").combine_chunks())
    return table, ranges_of_hashes(hashes[:, 0], number)


def sum_range(sums: Sums, number: int) -> Record:
    """Task: sum one range."""
    files = TaskFiles(sums.root, _directory(sums.step, number))
    with files.written(_SUMS) as made:
        table = summed_range(sums.root, sums.step, sums.key, number)
        table = table.filter(pc.field("document_frequency") >= sums.least) if sums.least else table
        # ``merged`` has a batch of each range in memory.
        write_table(made, table, max(1, MERGE_ROWS // sums.n_ranges))
    return files.record()


def _directory(step: str, number: int) -> str:
    return f"{step}/{number:05d}"


def merged(tables: Sequence[StorePath]) -> Iterator[WordCounts]:
    """Yield sums of the counts of words in sorted tables, in their order and about ``MERGE_ROWS`` at a time.

    Each result is complete up to the smallest last word of the batches in memory.
    """
    streams = [table_batches(path) for path in tables]
    held: list[Any] = [next(stream, None) for stream in streams]
    while True:
        for i, stream in enumerate(streams):
            while held[i] is not None and not held[i].num_rows:
                held[i] = next(stream, None)
        present = [i for i, table in enumerate(held) if table is not None]
        if not present:
            return
        last = min(held[i].column("word")[-1].as_py() for i in present)
        taken = []
        for i in present:
            taken.append(held[i].select(["word", *COUNTS]).filter(pc.field("word") <= last))
            held[i] = held[i].slice(taken[-1].num_rows)
        table = summed(pa.concat_tables(taken), "word")
        counts = (np.asarray(table.column(name)) for name in COUNTS)
        yield WordCounts(table.column("word").combine_chunks(), *counts)
