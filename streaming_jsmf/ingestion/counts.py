"""Word counts of all pieces put together, in memory that does not grow with the number of distinct words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_jsmf.corpus.curation import WordTable
from streaming_jsmf.ingestion.pieces import read_table, write_table

#: Rows of all tables held at once while they are merged.
MERGE_ROWS = 1_000_000
#: Tables open at once.
MERGE_TABLES = 256


def known_word_counts(tables: Sequence[Path], words: Sequence[str]) -> WordTable:
    """Counts of the words of a source that knows them, in order of their ids."""
    document_frequency = np.zeros(len(words), np.int64)
    term_count = np.zeros(len(words), np.float64)
    for path in tables:
        table = read_table(path)
        codes = np.asarray(table.column("code"))
        document_frequency[codes] += np.asarray(table.column("document_frequency"))
        term_count[codes] += np.asarray(table.column("term_count"))
    return WordTable(pa.array(words, pa.string()), np.arange(len(words)), document_frequency, term_count)


def found_word_counts(tables: Sequence[Path], scratch: Path) -> Iterator[WordTable]:
    """Counts of the words found, in sorted order of the words, in tables of up to about ``MERGE_ROWS``.

    One pass over the tables of the pieces, which are sorted; more than ``MERGE_TABLES`` are first merged in groups
    to files under ``scratch``. Counts are added in the order of the pieces.
    """
    level = 0
    while len(tables) > MERGE_TABLES:
        scratch.mkdir(parents=True, exist_ok=True)
        groups = [tables[i : i + MERGE_TABLES] for i in range(0, len(tables), MERGE_TABLES)]
        tables = [
            _merge_to_file(group, scratch / f"{level}-{number:05d}.words")
            for number, group in enumerate(groups)
        ]
        level += 1
    first = 0
    for merged in _merge(tables):
        count = merged.num_rows
        yield WordTable(
            merged.column("word").combine_chunks(),
            np.arange(first, first + count),
            np.asarray(merged.column("document_frequency")),
            np.asarray(merged.column("term_count")),
        )
        first += count


class _Run:
    """One sorted table, read from the front."""

    def __init__(self, path: Path, rows: int) -> None:
        self._table = read_table(path).select(["word", "document_frequency", "term_count"])
        self._rows = rows
        self._start = 0

    @property
    def empty(self) -> bool:
        return bool(self._start >= self._table.num_rows)

    @property
    def last_held(self) -> str:
        """The last word of the rows that may be held."""
        place = min(self._start + self._rows, self._table.num_rows) - 1
        return str(self._table.column("word")[place].as_py())

    def take_through(self, word: str) -> Any:
        """The held rows up to ``word``, which are then behind us."""
        held = self._table.slice(self._start, self._rows)
        count = int(pc.sum(pc.less_equal(held.column("word"), word)).as_py() or 0)
        self._start += count
        return held.slice(0, count)


def _merge(tables: Sequence[Path]) -> Iterator[Any]:
    """Merged tables, each complete for the words in it: up to the first word at which some table's held rows end."""
    rows = max(1, MERGE_ROWS // max(len(tables), 1))
    runs = [run for run in (_Run(path, rows) for path in tables) if not run.empty]
    while runs:
        limit = min(run.last_held for run in runs)
        parts = pa.concat_tables([run.take_through(limit) for run in runs])
        grouped = parts.group_by("word", use_threads=False).aggregate(
            [("document_frequency", "sum"), ("term_count", "sum")]
        )
        named = grouped.rename_columns(
            {"document_frequency_sum": "document_frequency", "term_count_sum": "term_count"}
        )
        yield named.sort_by("word")
        runs = [run for run in runs if not run.empty]


def _merge_to_file(tables: Sequence[Path], path: Path) -> Path:
    merged = _merge(tables)
    first = next(merged, None)
    if first is None:
        write_table(path, read_table(tables[0]).select(["word", "document_frequency", "term_count"]))
        return path
    with pa.ipc.new_file(str(path), first.schema) as file:
        file.write_table(first)
        for table in merged:
            file.write_table(table)
    return path
