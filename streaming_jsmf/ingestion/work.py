"""Shared state of the steps and tasks of an ingest. Its directory, ``<target>.partial``, has this layout::

zarr.json                   the arguments
records/STEP-part-00000/    task 0 of a step is done
units.json, groups.json     units of the source, and the groups of units that one task reads
pieces.json                 the pieces of all groups
scattered/00000.arrow       rows of a unit of a shuffled source, by bucket
neighbours/00000/           counts of words and neighbouring pairs of a group
read/00000/0000.*           bags, word counts and keys of piece 0 of group 0
first_rows.npy              row number, in the whole source, of the first record of each unit
vocabulary.arrow or .npy    the chosen words, or new word ids indexed by old ones
repeats/00000.npz           documents of piece 0 that repeat another
write/00000/                shards of piece 0
renumber.npy, renumber/     new ids, and shards without unused words
work/                       shards that tasks are writing
corpus/                     the corpus before it is renamed to the target
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from streaming_jsmf.config import Curation, OnBadRecord
from streaming_jsmf.corpus.shards import TOKENS_PER_SHARD
from streaming_jsmf.display import location
from streaming_jsmf.errors import StoreError, pass_on_machine
from streaming_jsmf.ingestion.readers.base import Unit
from streaming_jsmf.jobs.checkpoints import Record
from streaming_jsmf.jobs.execution import Executor
from streaming_jsmf.jobs.run import map_job, run_job
from streaming_jsmf.jobs.workspace import Workspace
from streaming_jsmf.storage.paths import write_json

#: Minimum and maximum bytes that one task reads, and the approximate number of tasks between these bounds.
GROUP_BYTES = (16 << 20, 128 << 20)
GROUPS = 64


@dataclass(frozen=True)
class Group:
    """Consecutive units ``start`` to ``stop - 1`` that one task reads; ``size`` in bytes."""

    start: int
    stop: int
    size: int


@dataclass(frozen=True)
class Piece:
    """Documents of a group that become shards together; ``number`` counts within the group."""

    group: int
    number: int
    documents: int
    nonzeros: int


def group_units(units: Sequence[Unit]) -> list[Group]:
    """Group consecutive small units, so that many small files do not become as many tasks and shards."""
    least, most = GROUP_BYTES
    target = min(max(sum(unit.size for unit in units) // GROUPS, least), most)
    groups, start, size = [], 0, 0
    for i, unit in enumerate(units):
        size += unit.size
        if size >= target or i == len(units) - 1:
            groups.append(Group(start, i + 1, size))
            start, size = i + 1, 0
    return groups


@dataclass(frozen=True)
class IngestFolder(Workspace):
    """The working directory of an ingest.

    ``opened_as`` has the URLs with credentials by the names that replace them in stored lists of units (``of_units``).
    """

    root: Path
    what: str = "ingest"
    opened_as: Mapping[str, str] = field(default_factory=dict)

    def of_units(self, units: Sequence[Unit]) -> IngestFolder:
        """Return a folder that stores unit URLs with credentials as their ``location`` and a number."""
        urls = dict.fromkeys(unit.path for unit in units if location(unit.path) != unit.path)
        return replace(
            self, opened_as={f"{location(url)} ({number})": url for number, url in enumerate(urls)}
        )

    def piece(self, piece: Piece) -> Path:
        """File name stem of a piece."""
        return self.root / "read" / f"{piece.group:05d}" / f"{piece.number:04d}"

    def save(self, name: str, items: Sequence[Unit | Group | Piece]) -> None:
        """Save units (without credentials in URLs), groups or pieces for the tasks."""
        stored = {url: name for name, url in self.opened_as.items()}
        listed = [
            replace(item, path=stored.get(item.path, item.path)) if isinstance(item, Unit) else item
            for item in items
        ]
        write_json(self.root / f"{name}.json", [asdict(item) for item in listed])

    def _saved(self, name: str) -> Any:
        path = self.root / f"{name}.json"
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            pass_on_machine(error)
            raise StoreError(f"{path} is missing or damaged; {self.hint}") from error

    def units(self, group: int) -> dict[int, Unit]:
        chosen, units = Group(**self._saved("groups")[group]), self._saved("units")
        return {number: self._unit(units[number]) for number in range(chosen.start, chosen.stop)}

    def unit(self, name: str, index: int) -> Unit:
        return self._unit(self._saved(name)[index])

    def _unit(self, fields: Mapping[str, Any]) -> Unit:
        unit = Unit(**fields)
        return replace(unit, path=self.opened_as.get(unit.path, unit.path))

    def saved_piece(self, index: int) -> Piece:
        return Piece(**self._saved("pieces")[index])


@dataclass(frozen=True)
class Ingest:
    """Settings and working directory of one ingest, passed to all steps and (without the vocabulary) to tasks.

    Attributes
    ----------
    source
        Source of units and documents (``readers.base.Source`` or ``readers.triples.TriplesSource``).
    tokens_per_shard
        A shard ends with the document that reaches this number of tokens.
    on_bad_record
        "fail" stops at the first bad record, "quarantine" writes bad records to ``quarantine.parquet``.
    vocabulary
        Exactly the words to keep, in this order; None lets the curation choose.
    n_words
        N of a source with a fixed vocabulary, else None.
    buckets
        Number of buckets of a shuffled source, else 0.
    known_kinds
        Kinds (``readers.values.KINDS``) of the metadata columns of the corpus of the vocabulary, "" for strings.
    kinds
        Kinds that metadata columns of strings get in the shards, known after the first pass.
    """

    source: Any
    curation: Curation
    folder: IngestFolder
    tokens_per_shard: float = TOKENS_PER_SHARD
    on_bad_record: OnBadRecord = "fail"
    vocabulary: tuple[str, ...] | None = None
    n_words: int | None = None
    buckets: int = 0
    known_kinds: Mapping[str, str] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)

    @property
    def rereads(self) -> bool:
        """Whether documents are read again from the source instead of from copies of their bags."""
        return bool(self.source.rereads)

    def run(
        self,
        executor: Executor,
        step: str,
        task: Callable[[Ingest, int], Record],
        sizes: Sequence[int],
        unit: str = "bytes",
    ) -> list[Record]:
        """Run the tasks of a step that are not committed or are damaged; return all records in order."""
        context = replace(self, vocabulary=None)
        job = map_job(task, context, sizes, self.folder.checkpoints(step), unit)
        run_job(job, executor)
        return job.records()
