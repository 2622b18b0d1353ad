"""The steps of an ingest: find phrases, read, choose words, write, and commit."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.corpus.manifest import PHRASES, CorpusTotals, Dropped, ShardEntry, as_number
from streaming_jsmf.corpus.metadata import OWN_COLUMNS, free_name
from streaming_jsmf.corpus.ranges import RANGE_BYTES
from streaming_jsmf.corpus.shards import link_shards, task_directory, task_shards, total_counts
from streaming_jsmf.corpus.vocabulary import WordCounts
from streaming_jsmf.corpus.write import Origin, finish_directory, wanted_corpus
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.ingestion.columns import choose_types
from streaming_jsmf.ingestion.first_pass import Contents, read_source
from streaming_jsmf.ingestion.job import Column, Ingest, Piece
from streaming_jsmf.ingestion.losses import (
    REPEATED,
    bad_records,
    first_bad_record,
    losses_of_reading,
    losses_of_writing,
    nothing_left,
    report_losses,
    reported,
    require_few_losses,
    write_quarantine,
)
from streaming_jsmf.ingestion.plan import curation_fields
from streaming_jsmf.ingestion.repeats import (
    ENTRIES_NAME,
    find_repeated_ids,
    find_repeats,
    packed,
    read_entries,
)
from streaming_jsmf.ingestion.second_pass import REWRITE, WRITE, write_shards
from streaming_jsmf.ingestion.source_files import FILES_NAME
from streaming_jsmf.ingestion.sources.protocol import Unit, limits
from streaming_jsmf.ingestion.sources.values import require_few
from streaming_jsmf.ingestion.word_choice import (
    FREQUENT_WORDS,
    choose_words,
    counts_of,
    full_forms,
    new_words,
    with_found_phrases,
    with_language,
)
from streaming_jsmf.jobs.checkpoints import Record
from streaming_jsmf.jobs.events import Listener
from streaming_jsmf.jobs.execution import Execution, Executor
from streaming_jsmf.process_limits import PROCESS_BYTES
from streaming_jsmf.storage.local import bytes_in, require_disk
from streaming_jsmf.storage.paths import StorePath
from streaming_jsmf.storage.replace import file_written
from streaming_jsmf.storage.tables import write_pieces, write_table

logger = logging.getLogger(__name__)

#: Memory of a task that reads, in batches of text: copies of the batch, and the words and keys of a piece.
_COPIES_OF_A_BATCH = 20

#: Names of files whose texts are compressed, and how much larger texts usually are.
PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip", ".parquet", ".feather", ".arrow", ".xlsx", ".ods")
UNPACKED = 3

#: Texts are refused if there are fewer, and they have more words on average.
FEW_DOCUMENTS, LONG_DOCUMENT = 50, 2000


def run_ingest(
    planned: Ingest,
    origin: Origin,
    execution: Execution,
    listener: Listener,
    *,
    overwrite: bool = False,
    resumable: bool = True,
) -> Corpus:
    """Run a planned ingest, or verify the corpus that it has made; see ``ingest``."""
    target = planned.folder.target
    wanted = wanted_corpus(target, origin.request, overwrite=overwrite)
    origin = replace(origin, settings={**(origin.settings or {}), **execution.noted})
    with planned.folder.acquire(wanted, resumable=resumable) as publish:
        if publish is not None:
            require_disk(target, ingest_disk(planned.units) - bytes_in(planned.root), "the ingest")
            made = run_steps(planned, execution, listener)
            with publish() as place:
                made.write(place, origin)
        return reported(target)


def run_steps(planned: Ingest, execution: Execution, listener: Listener) -> Made:
    """Read, choose words and write shards in the workspace of an ingest, which an ``InputError`` removes."""
    several = execution.scheduler in ("processes", "cluster")
    memory = partial(ingest_memory, several=several)
    sources = [unit.path for unit in planned.units[:1]]
    with planned.folder.executor(memory, execution, listener, sources) as executor:
        return _run(planned, executor)


def ingest_memory(n: int, *, several: bool = False) -> int:
    """Projected peak memory of so many tasks, in ``several`` processes or one."""
    # A list of items or words needs 100 bytes more per entry.
    of_task = max(_COPIES_OF_A_BATCH * limits.BATCH_BYTES, RANGE_BYTES)
    return (n * several + 1) * PROCESS_BYTES + n * of_task


def ingest_disk(units: Sequence[Unit]) -> int:
    """Projected bytes on disk, besides the source, of an ingest of these units: its pieces, and the corpus."""
    return sum(unit.size * (UNPACKED if _is_packed(unit.path) else 1) for unit in units)


def _is_packed(path: str) -> bool:
    return path.lower().endswith(PACKED)


@dataclass(frozen=True)
class Made:
    """What an ingest has made in its workspace.

    Attributes
    ----------
    ingest : The ingest, with all that was found out.
    pieces : The documents that were read.
    step, shards : The step that wrote the shards, and its records; no piece may have any if the corpus grows.
    totals : The words of the corpus and their counts.
    dropped : What each step dropped.
    read : Sizes of what was read, for the settings of the corpus.
    forms : Tables of the forms of stems.
    """

    ingest: Ingest
    pieces: Sequence[Piece]
    step: str
    shards: Sequence[Record]
    totals: WordCounts
    dropped: Sequence[Dropped]
    read: Mapping[str, Any]
    forms: Sequence[StorePath] = ()

    def write(self, place: StorePath, origin: Origin) -> None:
        """Write the corpus into an empty directory."""
        ingest, phrases = self.ingest, self.ingest.source.tokenizer.phrases  # found or given
        settings = {
            **(origin.settings or {}),
            **curation_fields(ingest),
            **({PHRASES: "\n".join(phrases)} if phrases else {}),
            **self.read,
        }
        entries = link_shards(self.parts(), place)
        write_quarantine(place, bad_records(ingest))
        if ingest.recorded:
            documents = np.zeros(len(ingest.files.states), np.int64)

            def counted() -> Iterator[tuple[Any, NDArray[np.int64]]]:
                for entries in self.entries():
                    documents[:] += np.bincount(
                        entries["file"][entries["step"] == 0], minlength=len(documents)
                    )
                    yield packed(entries), np.zeros(len(entries), np.int64)

            with file_written(place / ENTRIES_NAME) as beside:
                write_pieces(beside, counted(), 1)
            write_table(place / FILES_NAME, self.files(documents))
        described = replace(origin, dropped=self.dropped, settings=settings)
        finish_directory(place, entries, self.totals, described, full_forms(self.forms, self.totals.words))

    def parts(self) -> list[tuple[StorePath, ShardEntry]]:
        """The shards with their paths."""
        return task_shards(self.ingest.root, self.step, self.shards)

    def report(self) -> None:
        """Log what was lost."""
        shards = [entry for _, entry in self.parts()]
        documents, nonzeros, tokens = (
            sum(getattr(entry, name) for entry in shards) for name in ("rows", "nonzeros", "tokens")
        )
        kept = CorpusTotals.model_construct(
            documents=documents, words=len(self.totals.words), nonzeros=nonzeros, tokens=as_number(tokens)
        )
        report_losses(self.read, self.dropped, kept)

    def files(self, documents: NDArray[np.int64]) -> Any:
        """The table of the files, with so many documents of each, which ``update`` compares with the source."""
        ingest, kinds = self.ingest, {column.name: column.kind for column in self.ingest.columns}
        guessed = ingest.guessed_id if ingest.ids else None
        return ingest.files.table(documents, numbered=not ingest.ids, kinds=kinds, guessed_id=guessed)

    def entries(self) -> Iterator[NDArray[Any]]:
        """Yield the entries of the documents of each piece, but for those that repeat an id within their file."""
        files, before = self.ingest.files, 0
        numbers = {path: number for number, path in enumerate(files.states)}
        of_units = np.array([numbers[files.path(unit.path)] for unit in self.ingest.units])
        for piece in self.pieces:
            directory = task_directory(WRITE, piece.index)
            entries = read_entries(self.ingest.root / directory / ENTRIES_NAME).copy()
            # The units of a shuffled source are buckets.
            entries["file"] = 0 if files.whole else of_units[entries["file"]]
            entries["place"] += before
            before += len(entries)
            yield entries[entries["step"] != REPEATED]


def _run(ingest: Ingest, executor: Executor) -> Made:
    """Run the steps: phrases, read, choose, write."""
    target = ingest.folder.target
    if ingest.source.phrases is not None:
        ingest = with_found_phrases(ingest, executor)
    pieces, contents = read_source(ingest, executor)
    reading = losses_of_reading(ingest, contents.bad, contents.boilerplate)
    if not pieces and not ingest.grows:
        first = first_bad_record(ingest)
        raise InputError(f"{target} would be an empty corpus: the source has no valid document{first}")
    if not pieces:
        return Made(ingest, (), WRITE, (), WordCounts.of_tables([]), reading, _totals_read((), reading))
    _require_many_or_short(ingest, pieces)
    ingest = find_repeated_ids(ingest, executor, pieces, contents.id_types, contents.id_faults)
    n_documents = sum(piece.documents for piece in pieces)
    ingest = _with_columns(ingest, contents, n_documents)
    counted, forms = (counts_of(ingest, executor, pieces, kind) for kind in ("words", "forms"))
    ingest = with_language(ingest, contents.languages)
    selection = choose_words(ingest, n_documents, counted)
    ingest, n_duplicates = find_repeats(ingest, executor)
    step, words = WRITE, selection.counts.words
    shards = write_shards(ingest, executor, pieces, words)
    totals = total_counts(ingest.root, WRITE, len(pieces), words)
    used = totals.document_frequency > 0
    n_unused = int((~used).sum()) if ingest.vocabulary is None else 0
    dropped = (*reading, *selection.dropped, *losses_of_writing(ingest, shards, n_unused))
    read = {**_totals_read(pieces, reading), "duplicate_documents": n_duplicates}
    if selection.frequent:
        read[FREQUENT_WORDS] = "\n".join(selection.frequent)
    if ingest.grows:
        read |= new_words(ingest, n_documents, counted)
    elif not used.any() and not ingest.keeps_any_document:
        raise InputError(nothing_left(ingest, dropped))
    require_few_losses(ingest, dropped, read["documents_read"])
    if n_unused:
        step, totals = REWRITE, totals.take(used)
        shards = write_shards(ingest, executor, pieces, totals.words, REWRITE)
    return Made(ingest, pieces, step, shards, totals, dropped, read, forms)


def _require_many_or_short(ingest: Ingest, pieces: Sequence[Piece]) -> None:
    """Refuse a few long texts, which have no topics: each word is in most of them, and the curation drops it."""
    options = ingest.source.options
    if ingest.vocabulary is not None or getattr(options, "split", 0) is not None:
        return
    number, tokens = sum(piece.documents for piece in pieces), sum(piece.tokens for piece in pieces)
    if number < FEW_DOCUMENTS and tokens > LONG_DOCUMENT * number:
        length = f"{tokens / number:,.0f} words" + " on average" * (number > 1)
        each = f"{number} document{'s' * (number > 1)} of {length}"
        raise InputError(
            f"the source has {each}: too few for topics; split them into passages with {option.split(200)}, or give "
            "more words than the longest has to keep them whole"
        )


def _with_columns(ingest: Ingest, contents: Contents, n_documents: int) -> Ingest:
    """Return the ingest with the columns of metadata; those that some batches lack are last."""
    found, guessed, options = dict(contents.columns), ingest.guessed_id, ingest.source.options
    if guessed in found:
        summary, kept = found.pop(guessed), getattr(options, "metadata", "all")
        if not ingest.ids and (kept == "all" or guessed in kept):
            found = {guessed: summary, **found}
    partial = [name for name, summary in found.items() if summary.documents < n_documents]
    require_few(partial)
    taken = {*OWN_COLUMNS, *found}
    names = {name: free_name(name, taken) if name in OWN_COLUMNS else name for name in found}
    for name, new in names.items():
        if name != new:
            logger.warning(
                "%s: the column is stored as %s, because results have a column of its name", name, new
            )
    summaries = {names[name]: summary for name, summary in found.items()}
    kinds, read, doubts = choose_types(summaries, ingest.known_kinds, getattr(options, "date_format", None))
    if read:
        logger.info("%s", read)
    for line in (*contents.notes.values(), *doubts):
        logger.warning("%s", line)
    order = sorted(found, key=lambda name: name in partial)
    return replace(ingest, columns=tuple(Column(name, names[name], kinds[names[name]]) for name in order))


def _totals_read(pieces: Sequence[Piece], reading: Sequence[Dropped]) -> dict[str, Any]:
    """Sizes of the source; the words of bad records are unknown."""
    return {
        "documents_read": sum(piece.documents for piece in pieces) + sum(step.documents for step in reading),
        "nonzeros_read": sum(piece.nonzeros for piece in pieces),
        "tokens_read": as_number(
            sum(piece.tokens for piece in pieces) + sum(step.tokens for step in reading)
        ),
    }
