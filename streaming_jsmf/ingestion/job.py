"""The state that the steps and tasks of an ingest share. Its directory, ``<target>.partial``, has this layout::

zarr.json                   the arguments
records/STEP-part-00000/    task 0 of a step is done
source.words                the vocabulary of the source, if it is fixed
scattered/00000.arrow       rows of a unit of a shuffled source, by bucket
neighbors/00000/           counts of words and neighboring pairs of a group
read/00000/0000.*           bags, word counts and keys of piece 0 of group 0
spread_words/00000/         word counts of some pieces, by range; spread_identities/ and spread_contents/ have keys
words/00000/                total counts of the words of a range
identities/00000/           repeated ids of a range; contents/ has repeated documents
left_out_identities/00000/  documents of some of these ranges, by piece; left_out_contents/ has repeated documents
write.words                 the chosen words
write/00000/                shards of piece 0
rewrite.words, rewrite/     the same, without the words that no kept document has
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pyarrow as pa

from streaming_jsmf.config import Curation, OnBadRecord
from streaming_jsmf.corpus.shards import TOKENS_PER_SHARD
from streaming_jsmf.ingestion.source_files import NO_FILES, SourceFiles
from streaming_jsmf.ingestion.sources.protocol import Unit, grouped
from streaming_jsmf.jobs.checkpoints import Record
from streaming_jsmf.jobs.execution import Executor
from streaming_jsmf.jobs.run import map_job, run_job
from streaming_jsmf.jobs.workspace import Workspace
from streaming_jsmf.storage.paths import StorePath
from streaming_jsmf.storage.tables import read_table

WORDS = "source.words"

#: Minimum and maximum bytes that one task reads, and the approximate number of tasks between these bounds.
GROUP_BYTES = (16 << 20, 128 << 20)
GROUPS = 64


@dataclass(frozen=True)
class Group:
    """Consecutive units of the source that one task reads; ``first`` is the number of the first unit."""

    index: int
    first: int
    # Logs of Dask's workers show arguments, and URLs may contain passwords.
    units: tuple[Unit, ...] = field(repr=False)

    @property
    def size(self) -> int:
        """Size in bytes."""
        return sum(unit.size for unit in self.units)

    @property
    def directory(self) -> str:
        """The directory of what the first pass writes."""
        return f"read/{self.index:05d}"

    def numbered(self) -> Iterator[tuple[int, Unit]]:
        """Yield the units with their numbers."""
        return enumerate(self.units, self.first)


@dataclass(frozen=True)
class Piece:
    """Documents of a group that become shards together; ``number`` counts within the group and ``index`` over all.

    ``first_rows`` has, for each unit of the group, the number of its first record in the source.
    """

    index: int
    group: Group
    number: int
    first_rows: tuple[int, ...]
    documents: int
    nonzeros: int
    tokens: float
    words: int

    @property
    def size(self) -> int:
        """Size in nonzeros."""
        return self.nonzeros

    def file(self, kind: str) -> str:
        """The file of its bags, words, forms, contents or identities, relative to the working directory."""
        return f"{self.group.directory}/{self.number:04d}.{kind}"


def group_units(units: Sequence[Unit]) -> list[Group]:
    """Group consecutive small units, so that many small files do not become as many tasks and shards."""
    least, most = GROUP_BYTES
    target = min(max(sum(unit.size for unit in units) // GROUPS, least), most)
    runs = enumerate(grouped([unit.size for unit in units], target))
    return [Group(i, start, tuple(units[start:stop])) for i, (start, stop, _) in runs]


class Column(NamedTuple):
    """A column of metadata: its names in the source and in the corpus, and the kind of its values (see ``columns``)."""

    source: str
    name: str
    kind: str


@dataclass(frozen=True)
class Ingest:
    """Settings and working directory of one ingest, passed to all steps, and to tasks without units and words.

    Attributes
    ----------
    source : Source of units and documents (``sources.protocol.Source`` or ``readers.triples.TriplesSource``).
    tokens_per_shard : A shard ends with the document that reaches this number of tokens.
    on_bad_record : "fail" stops at the first bad record, "quarantine" writes bad records to ``quarantine.parquet``.
    vocabulary : Exactly the words to keep, in this order; None lets the curation choose.
    units : All units of the source.
    words : The vocabulary of the source, None if it is not fixed; ``has_words`` tells tasks whether it is.
    buckets : Number of buckets of a shuffled source, else 0.
    known_kinds : Kinds (see ``columns``) of the metadata columns of the corpus of the vocabulary, "" for strings.
    max_dropped : Share of the documents that may be lost.
    ids : Type of the ids, int64 or string, that of a corpus which grows, or known after the first pass; "" numbers the
        documents.
    files : The files of the source.
    recorded : Whether files and documents that were read are recorded with the corpus, so that it can grow.
    documents_before : Number of documents that the corpus which grows has read; None for a new corpus.
    left_out : Words that the corpus which grows lacks because they were in too many documents.
    columns : Metadata columns of the corpus, known after the first pass.
    repeats : Steps that list documents to leave out.
    threads : Number of threads of a task.
    """

    source: Any
    curation: Curation
    folder: Workspace
    tokens_per_shard: float = TOKENS_PER_SHARD
    on_bad_record: OnBadRecord = "fail"
    vocabulary: tuple[str, ...] | None = None
    units: Sequence[Unit] = field(default=(), repr=False)
    words: Sequence[str] | None = field(default=None, repr=False)
    has_words: bool = False
    buckets: int = 0
    known_kinds: Mapping[str, str] = field(default_factory=dict)
    max_dropped: float = 0.5
    ids: str = ""
    columns: tuple[Column, ...] = ()
    files: SourceFiles = field(default=NO_FILES, repr=False)
    recorded: bool = False
    documents_before: int | None = None
    left_out: Sequence[str] = ()
    repeats: tuple[str, ...] = ()
    threads: int = 1

    @property
    def guessed_id(self) -> str | None:
        """The column that holds the ids if it was only guessed."""
        return None if self.source.id_was_named else self.source.id_column

    @property
    def grows(self) -> bool:
        """Whether the documents are added to a corpus."""
        return self.documents_before is not None

    @property
    def root(self) -> StorePath:
        """The working directory."""
        return self.folder.root

    @property
    def keeps_any_document(self) -> bool:
        """Whether documents are kept even if all of them lack the words given, as for ``transform``."""
        return self.vocabulary is not None and not self.curation.min_distinct_words + self.curation.min_tokens

    @property
    def context(self) -> Ingest:
        """What is sent to tasks."""
        return replace(self, units=(), words=None, vocabulary=None, files=NO_FILES, left_out=())

    def vocabulary_of_source(self) -> Any:
        """The words of a source with a fixed vocabulary, an Arrow array; none of another one."""
        if not self.has_words:
            return pa.array([], pa.string())
        return read_table(self.root / WORDS).column("word").combine_chunks()

    def run(
        self,
        executor: Executor,
        step: str,
        task: Callable[[Ingest, Any], Record],
        items: Sequence[Any],
        unit: str = "bytes",
    ) -> list[Record]:
        """Run the tasks of a step that are not committed or are damaged, one for each item; return all records.

        Items are groups, or pieces and numbers of ranges with the step.
        """
        context = replace(self.context, threads=executor.threads_for(max(1, len(items))))
        sizes = [getattr(item[-1] if isinstance(item, tuple) else item, "size", 1) for item in items]
        job = map_job(task, context, sizes, self.folder.checkpoints(step), unit, items=items)
        run_job(job, executor)
        return job.records()
