"""Source -> corpus: read once, choose, write once. Same source and settings give the same bytes on any scheduler."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from streaming_jsmf.corpus.format import DOCUMENTS, QUARANTINE_NAME, Corpus, open_corpus
from streaming_jsmf.corpus.manifest import PHRASES, Dropped, Json, ShardEntry, as_number
from streaming_jsmf.corpus.shards import ShardLimits
from streaming_jsmf.corpus.write import Origin, WordTotals, finish_directory, free_target, in_documents
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.choose import (
    Repeats,
    choose_words,
    find_repeated_documents,
    settled_curation,
    word_counts,
)
from streaming_jsmf.ingestion.phrases import with_found_phrases
from streaming_jsmf.ingestion.plan import (
    Ingest,
    IngestFolder,
    IngestSettings,
    Piece,
    arguments_of,
    curation_fields,
    safe_names,
)
from streaming_jsmf.ingestion.read import QUARANTINE_SCHEMA, read_source
from streaming_jsmf.ingestion.readers import limits
from streaming_jsmf.ingestion.readers.base import Source, Unit
from streaming_jsmf.ingestion.readers.triples import TableSource
from streaming_jsmf.ingestion.write import STEPS, renumber_shards, sum_counts, write_shards
from streaming_jsmf.jobs.checkpoints import Record
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.jobs.memory import PROCESS_BYTES
from streaming_jsmf.storage.paths import AnyPath


def ingest_source(
    source: Source | TableSource,
    target: AnyPath,
    settings: IngestSettings | None = None,
    *,
    origin: Origin | None = None,
    execution: Execution | None = None,
    overwrite: bool = False,
    listener: Listener = silent,
) -> Corpus:
    """Write the corpus of a source at ``target`` (local; new unless ``overwrite``), or finish an interrupted ingest.

    Only one of the same arguments is finished.

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
    path = free_target(target, overwrite=overwrite, resumed=True)
    ShardLimits(settings.tokens_per_shard)
    execution = execution or Execution()
    execution.require_memory(ingest_memory(execution), "the ingest", "lower --workers")
    units = source.units()
    arguments = arguments_of(source, units, settings)
    folder = replace(IngestFolder.beside(path), arguments=arguments, opened_as=safe_names(units))
    with folder.acquire(replace=overwrite) as commit:
        if commit is not None:
            with execution.executor(listener, on_bad_input=folder.remove) as executor:
                ingest = Ingest(source, settings, folder, executor, commit)
                _ingest(ingest, path, units, origin or Origin())
        return open_corpus(path)


def ingest_memory(execution: Execution) -> int:
    """Bytes that an ingest of text needs, about: a few hundred MB for what is imported, and for each worker the
    batch in all its forms and the words and keys of a piece. Items and words of a list are held besides, in the parent
    (100 bytes each)."""
    processes = execution.concurrency + 1 if execution.scheduler in ("processes", "cluster") else 1
    return processes * PROCESS_BYTES + execution.concurrency * _FORMS_OF_A_BATCH * limits.BATCH_BYTES


_FORMS_OF_A_BATCH = 20


def _ingest(ingest: Ingest, target: Path, units: Sequence[Unit], origin: Origin) -> None:
    """All steps, up to the corpus at ``target``."""
    words = ingest.source.vocabulary
    if ingest.settings.phrases is not None:
        ingest = with_found_phrases(ingest, units)
    read = read_source(ingest, units, None if words is None else len(words))
    pieces = _pieces(read)
    if not pieces:
        raise InputError(f"{target} would be an empty corpus: there is no good document in the source")
    ingest.folder.save_list("pieces", pieces)
    curation = settled_curation(ingest.settings, word_counts(ingest, pieces, words))
    vocabulary = ingest.settings.vocabulary
    selection = choose_words(ingest, pieces, words, curation)
    _, copies = find_repeated_documents(ingest, pieces, words)
    written = write_shards(ingest, pieces, len(selection.table.ids), knows_words=words is not None)
    totals = sum_counts(ingest.folder, len(pieces), len(selection.table.ids))
    chosen, used = selection.table.words, totals.document_frequency > 0
    shards, directory = written, ingest.folder.written
    unused = int((~used).sum()) if vocabulary is None else 0
    if unused and used.any():
        shards, directory = renumber_shards(ingest, pieces, used), ingest.folder.renumbered
        chosen, totals = chosen.filter(pa.array(used)), totals.take(used)
    dropped = (*selection.dropped, *_left_out(ingest.settings, read, written, unused))
    if not used.any():
        raise InputError(_nothing_left(target, dropped))
    made = {
        **(origin.settings or {}),
        **curation_fields(curation, vocabulary),
        **_phrases_of(ingest.source),
        **_seen(read, copies),
    }
    gathered = _gathered(ingest.folder, directory, shards)
    _write_quarantine(ingest.folder)
    counts = WordTotals(chosen.to_pylist(), totals.document_frequency, totals.term_count)
    about = Origin(dropped, origin.attribution, origin.source, made)
    corpus = ingest.folder.corpus
    finish_directory(corpus, target, gathered, counts, about)
    ingest.commit(corpus, {corpus / shard.name: shard.sha256 for shard in gathered})


def _pieces(read: Sequence[Record]) -> list[Piece]:
    return [
        Piece(group, number, piece["documents"], piece["nonzeros"])
        for group, record in enumerate(read)
        for number, piece in enumerate(record["pieces"])
    ]


def _left_out(
    settings: IngestSettings, read: Sequence[Record], written: Sequence[Record], unused: int
) -> list[Dropped]:
    """What was left out document by document, and the words that no document kept has, for the manifest."""
    documents = {step: sum(record["documents"][step] for record in written) for step in STEPS}
    tokens = {step: sum(record["tokens"][step] for record in written) for step in STEPS}
    curation = settings.curation

    def dropped(step: str, reason: str) -> Dropped:
        return Dropped(step=step, reason=reason, documents=documents[step], tokens=as_number(tokens[step]))

    steps = []
    bad = sum(record["bad"] for record in read)
    if settings.on_bad_record == "quarantine":
        steps.append(Dropped(step="bad_records", reason="in quarantine.parquet", documents=bad))
        steps.append(dropped("repeated_id", "in quarantine.parquet: the id of an earlier document"))
    if curation.duplicates == "drop":
        steps.append(dropped("duplicates", "documents with the words of another"))
    if curation.min_distinct_words:
        least = curation.min_distinct_words
        steps.append(dropped("min_distinct_words", f"documents with fewer than {least} distinct kept words"))
    if curation.min_tokens:
        least = curation.min_tokens
        steps.append(dropped("min_tokens", f"documents with fewer than {least} tokens of kept words"))
    return [*steps, Dropped(step="unused_words", reason="in none of the documents kept", words=unused)]


def _nothing_left(target: Path, dropped: Sequence[Dropped]) -> str:
    took = ", ".join(f"{step.documents} {step.reason}" for step in dropped if step.documents)
    return (
        f"{target} would be an empty corpus: no document is left after the curation ({took or 'they have no words'}); "
        "give more documents, or loosen its settings, such as --max-df 100% and --min-tokens 1"
    )


def _seen(read: Sequence[Record], contents: Repeats) -> dict[str, Json]:
    """Sizes of the source, before anything was left out but bad records."""
    pieces = [piece for record in read for piece in record["pieces"]]
    return {
        "documents_read": sum(piece["documents"] for piece in pieces),
        "nonzeros_read": sum(piece["nonzeros"] for piece in pieces),
        "tokens_read": as_number(sum(piece["tokens"] for piece in pieces)),
        "duplicate_documents": contents.total,
    }


def _phrases_of(source: Source) -> dict[str, Json]:
    """The phrases that words of texts were joined to, found or given, as the manifest keeps them: one a line."""
    phrases = source.tokenizer.phrases if hasattr(source, "tokenizer") else ()
    return {PHRASES: "\n".join(phrases)} if phrases else {}


def _gathered(folder: IngestFolder, directory: Path, records: Sequence[Record]) -> list[ShardEntry]:
    """The shards of all pieces, numbered through, in the directory that becomes the corpus."""
    shutil.rmtree(folder.corpus, ignore_errors=True)
    documents = folder.corpus / DOCUMENTS
    documents.mkdir(parents=True)
    entries: list[ShardEntry] = []
    for piece, record in enumerate(records):
        for shard in map(ShardEntry.model_validate, record["shards"]):
            name = f"part-{len(entries):05d}.parquet"
            _link(directory / f"{piece:05d}" / shard.name, documents / name)
            entries.append(in_documents(shard, name))
    return entries


def _write_quarantine(folder: IngestFolder) -> None:
    """All bad records in the order of units, if there are any; one file of them in memory at a time."""
    paths = [
        *sorted(folder.scattered.glob("*.bad")),
        *sorted(folder.read.glob("*/*.bad")),
        *sorted(folder.root.glob("repeated-*.bad")),
    ]
    if not paths:
        return
    with pq.ParquetWriter(folder.corpus / QUARANTINE_NAME, QUARANTINE_SCHEMA, compression="zstd") as writer:
        for path in paths:
            with pq.ParquetFile(path) as file:
                writer.write_table(file.read(use_threads=False))


def _link(source: Path, target: Path) -> None:
    """The same file under another name, so that an interruption loses nothing; a copy where there are no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
