"""The plan of an ingest: what was asked for, how the source is cut, and the directory that the steps share."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.config import Curation, OnBadRecord
from streaming_jsmf.corpus.manifest import Json
from streaming_jsmf.corpus.shards import TOKENS_PER_SHARD
from streaming_jsmf.display import location
from streaming_jsmf.errors import InputError, StoreError, pass_on_machine
from streaming_jsmf.ingestion.readers.base import Unit
from streaming_jsmf.ingestion.readers.files import list_files
from streaming_jsmf.ingestion.tokens.stop_words import is_path, load_stop_words
from streaming_jsmf.jobs.checkpoints import Record
from streaming_jsmf.jobs.execution import Executor
from streaming_jsmf.jobs.run import map_job, run_job
from streaming_jsmf.jobs.workspace import Commit, Workspace
from streaming_jsmf.storage.paths import file_size, is_url, write_json

#: Bytes of the units that one task reads, and about how many tasks there are between these bounds.
GROUP_BYTES = (16 << 20, 128 << 20)
GROUPS = 64


@dataclass(frozen=True)
class IngestSettings:
    """How a source becomes a corpus.

    Attributes
    ----------
    curation
        What to keep.
    tokens_per_shard
        A shard ends with the document that brings it to this many tokens.
    on_bad_record
        "fail" ends with the first bad record, "quarantine" keeps them aside in ``quarantine.parquet``.
    ngrams
        Whether the source's words may be runs of words.
    phrases
        Least NPMI of neighbouring words that become one word (``ingestion.phrases``); None: none are looked for.
    vocabulary
        Exactly the words to keep, in this order; None: those that the curation chooses.
    """

    curation: Curation = field(default_factory=Curation)
    tokens_per_shard: float = TOKENS_PER_SHARD
    on_bad_record: OnBadRecord = "fail"
    ngrams: bool = False
    phrases: float | None = None
    vocabulary: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Group:
    """Consecutive units that one task reads: ``start`` to ``stop - 1``; ``size`` in bytes."""

    start: int
    stop: int
    size: int


@dataclass(frozen=True)
class Piece:
    """Documents of a group that become shards together: ``number`` counts within the group."""

    group: int
    number: int
    documents: int
    nonzeros: int


def group_units(units: Sequence[Unit]) -> list[Group]:
    """Put small units together, in order, so that a thousand small files are not a thousand tasks and shards."""
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
    """Names of what lies in the directory of an ingest; travels with the tasks.

    Attributes
    ----------
    opened_as
        The URLs of files that have secrets, by what the lists of units have in their place (see ``safe_names``).
    """

    root: Path
    what: str = "ingest"
    opened_as: Mapping[str, str] = field(default_factory=dict)

    @property
    def scattered(self) -> Path:
        """Shuffled sources: rows by bucket, a file for each unit."""
        return self.root / "scattered"

    @property
    def read(self) -> Path:
        """Bags and counts of the groups of units."""
        return self.root / "read"

    @property
    def neighbours(self) -> Path:
        """Counts of words and of pairs of neighbours, by group of units."""
        return self.root / "neighbours"

    @property
    def written(self) -> Path:
        """Shards of the pieces."""
        return self.root / "written"

    @property
    def renumbered(self) -> Path:
        """Shards written again without words that turned out to be unused."""
        return self.root / "renumbered"

    @property
    def vocabulary(self) -> Path:
        """Chosen words (Arrow), or new ids by old (NumPy)."""
        return self.root / "vocabulary"

    @property
    def first_rows(self) -> Path:
        """Number, in the whole source, of the first record of each unit (NumPy)."""
        return self.root / "first_rows.npy"

    @property
    def new_ids(self) -> Path:
        """Ids without gaps by chosen word, where some turned out to be unused (NumPy)."""
        return self.root / "renumber.npy"

    @property
    def corpus(self) -> Path:
        """The corpus as it will be renamed onto the target."""
        return self.root / "corpus"

    def piece(self, group: int, number: int) -> Path:
        """Stem of the files of a piece."""
        return self.read / f"{group:05d}" / f"{number:04d}"

    def save_list(self, name: str, items: Sequence[Any]) -> None:
        """Save groups or pieces for the tasks to look up."""
        write_json(self.root / f"{name}.json", [asdict(item) for item in items])

    def save_units(self, name: str, units: Sequence[Unit]) -> None:
        """Save units, without the secrets of their URLs."""
        kept = {url: safe for safe, url in self.opened_as.items()}
        self.save_list(name, [replace(unit, path=kept.get(unit.path, unit.path)) for unit in units])

    def _unit(self, fields: Mapping[str, Any]) -> Unit:
        unit = Unit(**fields)
        return replace(unit, path=self.opened_as.get(unit.path, unit.path))

    def _list(self, name: str) -> Any:
        path = self.root / f"{name}.json"
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            pass_on_machine(error)
            raise StoreError(f"{path} is missing or damaged; {self.hint}") from error

    def load_unit(self, name: str, index: int) -> Unit:
        """Unit ``index`` of the list ``name``."""
        return self._unit(self._list(name)[index])

    def load_units(self, group: int) -> dict[int, Unit]:
        """The units of a group, by number."""
        held = Group(**self._list("groups")[group])
        units = self._list("units")
        return {number: self._unit(units[number]) for number in range(held.start, held.stop)}

    def load_piece(self, index: int) -> Piece:
        """Piece ``index`` of all."""
        return Piece(**self._list("pieces")[index])

    def save_repeats(self, index: int, ordinals: Mapping[str, Any]) -> None:
        """Save which documents of a piece are left out, by step."""
        directory = self.root / "repeats"
        directory.mkdir(exist_ok=True)
        np.savez(directory / f"{index:05d}.npz", **ordinals)

    def load_repeats(self, index: int) -> dict[str, NDArray[np.int64]]:
        """What ``save_repeats`` saved; nothing for most pieces."""
        path = self.root / "repeats" / f"{index:05d}.npz"
        if not path.exists():
            return {}
        with np.load(path) as saved:
            return dict(saved.items())


@dataclass(frozen=True)
class Ingest:
    """One ingest at work: what its steps share in the process that gives out the tasks.

    ``commit`` puts the corpus in its place (``Workspace.acquire``).
    """

    source: Any
    settings: IngestSettings
    folder: IngestFolder
    executor: Executor
    commit: Commit

    def run(
        self,
        step: str,
        task: Callable[[Any, int], Record],
        context: Any,
        sizes: Sequence[int],
        unit: str = "bytes",
    ) -> list[Record]:
        """Do what is not committed of a step, or is damaged; all its records in order."""
        job = map_job(task, context, sizes, self.folder.checkpoints(step), unit)
        run_job(job, self.executor)
        return job.records()


def safe_names(units: Sequence[Unit]) -> dict[str, str]:
    """The URLs with secrets by a name for each that has none: its ``location``, numbered where two have the same."""
    urls = dict.fromkeys(unit.path for unit in units if location(unit.path) != unit.path)
    return {f"{location(url)} ({number})": url for number, url in enumerate(urls)}


def arguments_of(source: Any, units: Sequence[Unit], settings: IngestSettings) -> dict[str, Any]:
    """What decides the bytes of the corpus, to tell whether an unfinished ingest is of the same."""
    files = sorted({unit.path for unit in units})
    words = source.vocabulary
    return {
        "source": hashlib.sha256(repr(source).encode()).hexdigest(),
        "units": hashlib.sha256(json.dumps([asdict(unit) for unit in units]).encode()).hexdigest(),
        "files": hashlib.sha256(json.dumps([_state(path) for path in files]).encode()).hexdigest(),
        "words": None if words is None else _digest(words),
        "curation": curation_fields(settings.curation, settings.vocabulary),
        "tokens_per_shard": settings.tokens_per_shard,
        "on_bad_record": settings.on_bad_record,
    }


def _state(path: str) -> list[Any]:
    """Enough to notice that a file, or one in a directory, was changed since."""
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{path!a}: the name of the file is not UTF-8; rename it") from error
    if not is_url(path) and Path(path).is_dir():
        return [_state(name) for name in list_files(path)]
    if not is_url(path) and Path(path).exists():
        found = Path(path).stat()
        return [path, found.st_size, found.st_mtime_ns]
    try:
        return [path, file_size(path)]
    except (OSError, TypeError):
        return [path]


def curation_fields(curation: Curation, vocabulary: Sequence[str] | None) -> dict[str, Json]:
    """What was asked for, without paths: the stop words, and a vocabulary that was given, by hash."""
    fields = {
        # Not told where it is the papers' way, as in corpora made before there was another.
        **{key: value for key, value in asdict(curation).items() if (key, value) != ("numbers", "keep")},
        "stop_words": "file" if is_path(curation.stop_words) else curation.stop_words,
        "stop_words_sha256": _digest(sorted(load_stop_words(curation.stop_words))),
    }
    return fields if vocabulary is None else {**fields, "vocabulary_sha256": _digest(vocabulary)}


def _digest(words: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(words).encode()).hexdigest()
