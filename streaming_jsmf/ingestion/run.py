"""Source -> corpus: read once, choose, write once. Same source and settings give the same bytes on any scheduler."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_jsmf.corpus.curation import Curation, Selection, select_words
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.corpus.manifest import Dropped, Json, as_number
from streaming_jsmf.corpus.shards import TOKENS_PER_SHARD, ShardLimits
from streaming_jsmf.corpus.stop_words import ENGLISH, NONE, load_stop_words
from streaming_jsmf.corpus.write import Origin, WordTotals, free_target
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.counts import found_word_counts, known_word_counts
from streaming_jsmf.ingestion.finish import RenumberJob, commit, renumber_piece, sum_counts
from streaming_jsmf.ingestion.pieces import write_table
from streaming_jsmf.ingestion.read import ReadJob, is_shuffled, read_group, scatter_unit
from streaming_jsmf.ingestion.repeats import Repeats, find_repeats, piece_files
from streaming_jsmf.ingestion.work import Group, Piece, Work, group_units
from streaming_jsmf.ingestion.write import REPEATED_ID, STEPS, WriteJob, save_repeated, write_piece
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.jobs.memory import require_memory
from streaming_jsmf.jobs.steps import Record, Step, run_step
from streaming_jsmf.sources.base import OnBadRecord, Source, Unit
from streaming_jsmf.sources.limits import BATCH_BYTES
from streaming_jsmf.sources.listing import list_files
from streaming_jsmf.sources.tables.shuffle import ShuffledSource, n_buckets_for
from streaming_jsmf.storage.files import AnyPath, file_size, is_url
from streaming_jsmf.storage.paths import sole_user


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
    """

    curation: Curation = field(default_factory=Curation)
    tokens_per_shard: float = TOKENS_PER_SHARD
    on_bad_record: OnBadRecord = "fail"
    ngrams: bool = False


def ingest_source(
    source: Source | ShuffledSource,
    target: AnyPath,
    settings: IngestSettings | None = None,
    *,
    origin: Origin | None = None,
    execution: Execution | None = None,
    listener: Listener = silent,
) -> Corpus:
    """Write the corpus of a source at ``target`` (local, new), or finish an interrupted ingest of the same arguments.

    One pass over the source (a second where that is as cheap as reading a copy of its bags), one over the bags; if
    words turn out to be in no document kept, the shards are copied without them. Works in ``<target>.partial``, which
    an error in the input removes again and an interruption leaves, to be taken up by the same call.

    The order of documents is that of the source. Words that a source knows keep their order, words found are sorted.
    Counts that choose the words are over all good documents of the source; those of the vocabulary written are over
    the documents kept. The manifest's ``dropped`` adds up: tokens read = tokens kept + tokens dropped, step by step.

    Memory: for each worker a batch and the words and keys of a piece (``tokens_per_shard`` tokens); in the parent
    the words kept, and arrays of N where the source knows its words.

    Raises
    ------
    InputError
        For a bad record (under "fail"), a source or target that cannot be used, or nothing left.
    SettingsMismatchError
        If ``target`` has an unfinished ingest of other arguments.
    StoreError
        If an unfinished ingest is damaged.
    """
    settings = settings or IngestSettings()
    path = free_target(target)
    ShardLimits(settings.tokens_per_shard)
    execution = execution or Execution()
    require_memory(
        ingest_memory(execution), execution.memory, "the ingest", "lower --workers or raise --memory"
    )
    units = source.units()
    begun = _arguments(source, units, settings)
    work = Work.beside(path)
    work.make()
    with sole_user(work.lock), ExitStack() as after:
        work.start(begun)
        after.callback(work.remove_unused)
        with execution.runner() as arguments:
            run = _Run(source, settings, work, arguments, listener)
            try:
                return run.to(path, units, origin or Origin())
            except InputError:
                # Mending the input makes it another source: what was done is of no use any more. Not here, where
                # other tasks may still be writing.
                after.pop_all()
                after.callback(work.remove)
                raise


def ingest_memory(execution: Execution) -> int:
    """Bytes that an ingest of text needs, about: a few hundred MB for what is imported, and for each worker the
    batch in all its forms and the words and keys of a piece. Items and words of a list are held besides, in the parent
    (100 bytes each)."""
    processes = execution.concurrency + 1 if execution.scheduler in ("processes", "cluster") else 1
    return processes * _IMPORTED_BYTES + execution.concurrency * _FORMS_OF_A_BATCH * BATCH_BYTES


_IMPORTED_BYTES = 330 << 20
_FORMS_OF_A_BATCH = 20


@dataclass(frozen=True)
class _Run:
    """The steps of one ingest, in order."""

    source: Any
    settings: IngestSettings
    work: Work
    arguments: Mapping[str, Any]
    listener: Listener

    def to(self, target: Path, units: Sequence[Unit], origin: Origin) -> Corpus:
        """All steps, up to the corpus at ``target``."""
        words = self.source.vocabulary
        read = self._read(units, None if words is None else len(words))
        pieces = _pieces(read)
        if not pieces:
            raise InputError(f"{target} would be an empty corpus: there is no good document in the source")
        self.work.save_list("pieces", pieces)
        selection = self._select(pieces, words)
        if not len(selection.table.ids):
            raise InputError("no word of the source is left after the curation; loosen its settings")
        job = WriteJob(
            self.source,
            self.work,
            self.settings.curation,
            ShardLimits(self.settings.tokens_per_shard),
            len(selection.table.ids),
            words is not None,
        )
        repeats = self._repeats(job, pieces)
        written = self._step("write", write_piece, job, [piece.nonzeros for piece in pieces], "nonzeros")
        return self._finish(target, pieces, selection, read, written, repeats, origin)

    def _step(
        self, name: str, task: Any, job: Any, sizes: Sequence[int], unit: str = "bytes"
    ) -> list[Record]:
        step = Step(name, task, job, sizes, self.work.records(name), unit)
        return run_step(step, self.arguments, self.listener)

    def _read(self, units: Sequence[Unit], n_words: int | None) -> list[Record]:
        settings = self.settings
        tokens = max(TOKENS_PER_SHARD, settings.tokens_per_shard)
        job = ReadJob(self.source, self.work, n_words, tokens, settings.on_bad_record)
        if not is_shuffled(self.source):
            return self._read_groups(job, units, group_units(units))
        buckets = n_buckets_for(self.source)
        job = replace(job, buckets=buckets)
        self.work.scattered.mkdir(exist_ok=True)
        self.work.save_list("sources", units)
        scattered = self._step("scatter", scatter_unit, job, [unit.size for unit in units])
        size = sum(unit.size for unit in units) // buckets
        gathered = [Unit(units[0].path, b, b + 1, size) for b in range(buckets)]
        groups = [Group(b, b + 1, size) for b in range(buckets)]
        read = self._read_groups(job, gathered, groups)
        return [*read, *({"pieces": [], "rows": [], "bad": record["bad"]} for record in scattered)]

    def _read_groups(self, job: ReadJob, units: Sequence[Unit], groups: Sequence[Group]) -> list[Record]:
        self.work.save_list("units", units)
        self.work.save_list("groups", groups)
        read = self._step("read", read_group, job, [group.size for group in groups])
        rows = [count for record in read for count in record["rows"]]
        np.save(self.work.root / "first_rows.npy", np.concatenate([[0], np.cumsum(rows)]).astype(np.int64))
        return read

    def _select(self, pieces: Sequence[Piece], words: Sequence[str] | None) -> Selection:
        """Choose the words, and leave them where the tasks find them."""
        tables = [self.work.piece(piece.group, piece.number).with_suffix(".words") for piece in pieces]
        n_documents = sum(piece.documents for piece in pieces)
        curation, ngrams = self.settings.curation, self.settings.ngrams
        if words is None:
            counts = found_word_counts(tables, self.work.root / "merged")
            selection = select_words(counts, n_documents, curation, ngrams=ngrams)
            write_table(self.work.vocabulary.with_suffix(".arrow"), pa.table({"word": selection.table.words}))
            return selection
        selection = select_words([known_word_counts(tables, words)], n_documents, curation, ngrams=ngrams)
        new_ids = np.full(len(words), -1, np.int32)
        new_ids[selection.table.ids] = np.arange(len(selection.table.ids))
        np.save(self.work.vocabulary.with_suffix(".npy"), new_ids)
        return selection

    def _repeats(self, job: WriteJob, pieces: Sequence[Piece]) -> tuple[Repeats, Repeats]:
        """Documents that repeat an id, and of the others those that repeat contents; saved for the tasks."""
        stems = [self.work.piece(piece.group, piece.number) for piece in pieces]
        identities = find_repeats(piece_files(stems, "identities"))
        if identities.total:
            self._refuse_repeated(job, pieces, identities)
        contents = find_repeats(piece_files(stems, "contents"), without=identities)
        dropped = contents.ordinals if self.settings.curation.duplicates == "drop" else {}
        for piece in {*identities.ordinals, *dropped}:
            left_out = {"repeated_id": identities.of(piece)}
            if piece in dropped:
                left_out["duplicates"] = dropped[piece]
            self.work.save_repeats(piece, left_out)
        return identities, contents

    def _refuse_repeated(self, job: WriteJob, pieces: Sequence[Piece], repeats: Repeats) -> None:
        for index, ordinals in repeats.ordinals.items():
            if self.settings.on_bad_record == "fail":
                unit = self.work.load_units(pieces[index].group)[int(repeats.units[index][0])]
                where = self.source.place(unit, int(repeats.rows[index][0]))
                raise InputError(f"{where}: {REPEATED_ID}; mend the record or use --on-bad-record quarantine")
            save_repeated(job, index, ordinals)

    def _finish(
        self,
        target: Path,
        pieces: Sequence[Piece],
        selection: Selection,
        read: Sequence[Record],
        written: list[Record],
        repeats: tuple[Repeats, Repeats],
        origin: Origin,
    ) -> Corpus:
        words = selection.table.words
        totals = sum_counts(self.work, len(pieces), len(words))
        used, directory, unused = totals.document_frequency > 0, self.work.written, 0
        if used.any() and not used.all():
            unused = int((~used).sum())
            np.save(self.work.root / "renumber.npy", (np.cumsum(used) - 1).astype(np.int32))
            sizes = [piece.nonzeros for piece in pieces]
            written = self._step("renumber", renumber_piece, RenumberJob(self.work), sizes, "nonzeros")
            directory = self.work.renumbered
            words = words.filter(pa.array(used))
            totals = totals.take(used)
        steps = self._document_steps(read, len(pieces), unused)
        return commit(
            self.work,
            directory,
            written,
            WordTotals(words.to_pylist(), totals.document_frequency, totals.term_count),
            Origin(
                (*selection.dropped, *steps),
                origin.attribution,
                origin.source,
                {**(origin.settings or {}), **_settings(self.settings.curation), **_seen(read, repeats[1])},
            ),
            target,
        )

    def _document_steps(self, read: Sequence[Record], n_pieces: int, unused: int) -> list[Dropped]:
        """What was left out document by document, from the records of the second pass."""
        records = [self.work.load_record("write", index) for index in range(n_pieces)]
        documents = {step: sum(record["documents"][step] for record in records) for step in STEPS}
        tokens = {step: sum(record["tokens"][step] for record in records) for step in STEPS}
        curation = self.settings.curation

        def dropped(step: str, reason: str) -> Dropped:
            return Dropped(
                step=step, reason=reason, documents=documents[step], tokens=as_number(tokens[step])
            )

        steps = []
        bad = sum(record["bad"] for record in read)
        if self.settings.on_bad_record == "quarantine":
            steps.append(Dropped(step="bad_records", reason="in quarantine.parquet", documents=bad))
            steps.append(dropped("repeated_id", "in quarantine.parquet: the id of an earlier document"))
        if curation.duplicates == "drop":
            steps.append(dropped("duplicates", "documents with the words of another"))
        if curation.min_distinct_words:
            least = curation.min_distinct_words
            steps.append(
                dropped("min_distinct_words", f"documents with fewer than {least} distinct kept words")
            )
        if curation.min_tokens:
            least = curation.min_tokens
            steps.append(dropped("min_tokens", f"documents with fewer than {least} tokens of kept words"))
        return [*steps, Dropped(step="unused_words", reason="in none of the documents kept", words=unused)]


def _pieces(read: Sequence[Record]) -> list[Piece]:
    return [
        Piece(group, number, piece["documents"], piece["nonzeros"])
        for group, record in enumerate(read)
        for number, piece in enumerate(record["pieces"])
    ]


def _settings(curation: Curation) -> dict[str, Json]:
    """What was asked for, without paths: the stop words by hash."""
    listed = "\n".join(sorted(load_stop_words(curation.stop_words)))
    known = curation.stop_words if curation.stop_words in (ENGLISH, NONE) else "file"
    return {
        **asdict(curation),
        "stop_words": known,
        "stop_words_sha256": hashlib.sha256(listed.encode()).hexdigest(),
    }


def _seen(read: Sequence[Record], contents: Repeats) -> dict[str, Json]:
    """Sizes of the source, before anything was left out but bad records."""
    pieces = [piece for record in read for piece in record["pieces"]]
    return {
        "documents_read": sum(piece["documents"] for piece in pieces),
        "nonzeros_read": sum(piece["nonzeros"] for piece in pieces),
        "tokens_read": as_number(sum(piece["tokens"] for piece in pieces)),
        "duplicate_documents": contents.total,
    }


def _arguments(source: Any, units: Sequence[Unit], settings: IngestSettings) -> dict[str, Any]:
    """What decides the bytes of the corpus, to tell whether an unfinished ingest is of the same."""
    files = sorted({unit.path for unit in units})
    words = source.vocabulary
    return {
        "source": hashlib.sha256(repr(source).encode()).hexdigest(),
        "units": hashlib.sha256(json.dumps([asdict(unit) for unit in units]).encode()).hexdigest(),
        "files": hashlib.sha256(json.dumps([_state(path) for path in files]).encode()).hexdigest(),
        "words": None if words is None else hashlib.sha256("\n".join(words).encode()).hexdigest(),
        "curation": _settings(settings.curation),
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
