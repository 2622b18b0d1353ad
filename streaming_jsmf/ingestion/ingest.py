"""Convert a source to a corpus: plan, read, choose words, write. The bytes do not depend on the scheduler."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from streaming_jsmf.config import Curation, IngestRequest, TextReading, request_of, settings_of, takes
from streaming_jsmf.corpus.assemble import CORPUS, clear_attempts, link_shards, total_counts
from streaming_jsmf.corpus.format import QUARANTINE_NAME, Corpus, open_corpus, read_manifest
from streaming_jsmf.corpus.manifest import PHRASES, Dropped, Json, Manifest, as_number, losses_table
from streaming_jsmf.corpus.write import Origin, corpus_target, finish_directory, wanted_corpus
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.ingestion.choose import choose_words, find_repeated_documents, with_language, word_counts
from streaming_jsmf.ingestion.phrases import with_found_phrases
from streaming_jsmf.ingestion.plan import curation_fields, plan_ingest
from streaming_jsmf.ingestion.read import QUARANTINE_SCHEMA, read_source, with_columns
from streaming_jsmf.ingestion.readers import limits
from streaming_jsmf.ingestion.spool import spool_input
from streaming_jsmf.ingestion.work import Ingest, IngestFolder, Piece
from streaming_jsmf.ingestion.write import RENUMBER, STEPS, WRITE, renumber_shards, write_shards
from streaming_jsmf.jobs.checkpoints import Record
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution, Executor
from streaming_jsmf.jobs.memory import PROCESS_BYTES
from streaming_jsmf.jobs.workspace import Commit
from streaming_jsmf.storage.paths import is_url, normalise

logger = logging.getLogger(__name__)

#: Memory of a task, in batches of text: copies of the batch, and the words and keys of a piece.
_COPIES_OF_A_BATCH = 20

#: Share of dropped documents above which a warning is logged.
LARGEST_LOSS = 0.1


@takes(IngestRequest, Curation, TextReading, Execution)
def ingest(
    source: Any,
    corpus: str | Path,
    request: IngestRequest | None = None,
    execution: Execution | None = None,
    listener: Listener = silent,
    *,
    overwrite: bool = False,
    progress: bool = False,
    **options: Any,
) -> Corpus:
    """Convert a source to a corpus, or resume an interrupted ingest with the same arguments.

    A corpus that the same call has made is verified and returned; the settings and the files must be the same. Makes
    one pass over the source and one over its bags of words; the second pass reads the source again if that costs
    the same. Searching for phrases takes one more pass over the source, and the shards are copied if some words occur
    in no kept document. A table of what was dropped is logged. Work is done in ``<corpus>.partial``, which is removed
    on bad input and kept on interruption.

    Documents keep the order of the source. Words keep the order of a source with a fixed vocabulary, and are sorted
    otherwise. Words are chosen by their counts over all good documents; the vocabulary has the counts over the kept
    documents. In the manifest, tokens read = tokens kept + tokens dropped in each step.

    Memory: for each worker, one batch and the words and keys of a piece (``tokens_per_shard`` tokens); in the parent,
    the kept words, and arrays of length N if the source has a fixed vocabulary.

    Parameters
    ----------
    source
        A path, URL or spec (``.toml``), as for ``streaming-jsmf ingest``; a table with a text column (pandas, polars or
        Dask ``DataFrame``, Arrow table, or any object that exports Arrow streams); texts (list, generator, series); or
        rows as mappings (list, generator, Hugging Face data set). Data in memory are first written to a temporary file,
        one batch at a time; other columns are kept as metadata.
    corpus
        Local path of the corpus. One made with other settings or of other files is only replaced with ``overwrite``.
    request
        Settings, such as ``IngestRequest(read={"text": "body"})``. Its fields, those of its ``curation`` and of
        ``Execution`` are also keyword arguments, such as ``min_df=5``.
    progress
        Whether to show a progress bar while the files of a spec are downloaded.

    Raises
    ------
    InputError
        If the source, spec or target cannot be used, a record is bad (with "fail"), or nothing is left.
    SettingsMismatchError
        If there is an unfinished ingest with other arguments.
    StoreError
        If an unfinished ingest is damaged.

    Warns
    -----
    UserWarning
        If every text is the path of an existing file.

    Examples
    --------
    >>> ingest(["the cat sat", "the dog ran"], "corpus")  # doctest: +SKIP
    """
    request = request_of(request, options) or IngestRequest()
    execution = settings_of("execution", Execution, execution, options)
    target = corpus_target(corpus)
    with spool_input(source) as location:
        _require_outside(target, location.path if request.files is None else request.files)
        planned, origin = plan_ingest(location, target, request, progress=progress)
        resumable = location.sha256 is None
        return run_ingest(planned, origin, execution, listener, overwrite=overwrite, resumable=resumable)


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
    with planned.folder.acquire(wanted, resumable=resumable) as commit:
        if commit is not None:
            execution.require_memory(ingest_memory(execution), "the ingest", f"lower {option.workers}")
            with execution.executor(listener, on_bad_input=planned.folder.remove) as executor:
                _ingest(planned, executor, origin, commit)
        built = open_corpus(target)
    # One log message per line.
    manifest = read_manifest(target)
    for line in losses_table(manifest).splitlines():
        logger.info("%s", line)
    _warn_of_losses(manifest)
    return built


def _warn_of_losses(manifest: Manifest) -> None:
    """Warn if more than a tenth of the documents is dropped."""
    total = sum(step.documents for step in manifest.dropped)
    reasons = ", ".join(f"{step.documents:,} {step.reason}" for step in manifest.dropped if step.documents)
    if total > LARGEST_LOSS * (total + manifest.totals.documents):
        logger.warning(
            f"%.0f %% of the documents are dropped (%s); {option.min_df}, {option.max_df}, {option.duplicates}, "
            f"{option.min_distinct_words} and {option.min_tokens} change that",
            100 * total / (total + manifest.totals.documents),
            reasons.replace("documents ", ""),
        )


def _require_outside(target: Path, source: str | Path) -> None:
    """Refuse a target inside the source, which would make the corpus part of its own source."""
    root = normalise(source)
    if not is_url(root) and Path(root).is_dir() and target.resolve().is_relative_to(Path(root).resolve()):
        raise InputError(f"{target} lies inside the source {root}; choose another place for the corpus")


def ingest_memory(execution: Execution) -> int:
    """Estimate the memory in bytes over all processes; a list of items or words needs 100 bytes more per entry."""
    processes = execution.concurrency + 1 if execution.scheduler in ("processes", "cluster") else 1
    return processes * PROCESS_BYTES + execution.concurrency * _COPIES_OF_A_BATCH * limits.BATCH_BYTES


def _ingest(ingest: Ingest, executor: Executor, origin: Origin, commit: Commit) -> None:
    """Run the steps: phrases, read, choose, write, commit."""
    folder, target = ingest.folder, ingest.folder.target
    clear_attempts(folder.root)
    if ingest.source.phrases is not None:
        ingest = with_found_phrases(ingest, executor)
    pieces, bad, languages = read_source(ingest, executor)
    ingest = with_columns(ingest, pieces)
    if not pieces:
        raise InputError(f"{target} would be an empty corpus: the source has no valid document")
    ingest = with_language(ingest, languages, () if ingest.words is None else word_counts(ingest, pieces))
    selection = choose_words(ingest, pieces)
    n_duplicates = find_repeated_documents(ingest, pieces)
    step, shards = WRITE, write_shards(ingest, executor, pieces)
    totals = total_counts(folder.root, WRITE, len(pieces), selection.counts.words)
    used = totals.document_frequency > 0
    n_unused = int((~used).sum()) if ingest.vocabulary is None else 0
    dropped = (*selection.dropped, *_dropped_documents(ingest, bad, shards, n_unused))
    if not used.any() and not ingest.keeps_any_document:
        raise InputError(_nothing_left(target, dropped))
    if n_unused:
        step, shards = RENUMBER, renumber_shards(ingest, executor, pieces, used)
        totals = totals.take(used)
    phrases = ingest.source.tokenizer.phrases  # found or given
    settings = {
        **(origin.settings or {}),
        **curation_fields(ingest),
        **({PHRASES: "\n".join(phrases)} if phrases else {}),
        **_totals_read(pieces),
        "duplicate_documents": n_duplicates,
    }
    entries = link_shards(folder.root, step, shards)
    _write_quarantine(folder)
    origin = replace(origin, dropped=dropped, settings=settings)
    made = folder.root / CORPUS
    finish_directory(made, entries, totals, origin)
    commit(made)


def _dropped_documents(ingest: Ingest, bad: int, written: Sequence[Record], n_unused: int) -> list[Dropped]:
    """Manifest entries for the steps that drop documents, and for words in no kept document."""
    documents = {step: sum(record["documents"][step] for record in written) for step in STEPS}
    tokens = {step: sum(record["tokens"][step] for record in written) for step in STEPS}
    curation, quarantine = ingest.curation, ingest.on_bad_record == "quarantine"
    distinct, least = curation.min_distinct_words, curation.min_tokens
    reasons = [
        (quarantine, "repeated_id", "in quarantine.parquet: the id of an earlier document"),
        (curation.duplicates == "drop", "duplicates", "documents with the words of another"),
        (
            distinct > 0,
            "min_distinct_words",
            f"documents with fewer than {distinct} distinct kept words"
            if distinct > 1
            else "documents without kept words",
        ),
        (least > 0, "min_tokens", f"documents with fewer than {least} tokens of kept words"),
    ]
    return [
        *([Dropped(step="bad_records", reason="in quarantine.parquet", documents=bad)] * quarantine),
        *(
            Dropped(step=step, reason=reason, documents=documents[step], tokens=as_number(tokens[step]))
            for applies, step, reason in reasons
            if applies
        ),
        Dropped(step="unused_words", reason="in none of the documents kept", words=n_unused),
    ]


def _nothing_left(target: Path, dropped: Sequence[Dropped]) -> str:
    reasons = ", ".join(f"{step.documents} {step.reason}" for step in dropped if step.documents)
    return (
        f"{target} would be an empty corpus: no document is left after the curation "
        f"({reasons or 'they have no words'}); give more documents, or loosen its settings, such as "
        f"{option.max_df('100%')} and {option.min_tokens(1)}"
    )


def _totals_read(pieces: Sequence[Piece]) -> dict[str, Json]:
    """Sizes of the source, without bad records."""
    return {
        "documents_read": sum(piece.documents for piece in pieces),
        "nonzeros_read": sum(piece.nonzeros for piece in pieces),
        "tokens_read": as_number(sum(piece.tokens for piece in pieces)),
    }


def _write_quarantine(folder: IngestFolder) -> None:
    """Write all bad records, if any, in the order of units, with one file of them in memory at a time."""
    patterns = ("scattered/*.bad", "read/*/*.bad", "repeated-*.bad")
    paths = [path for pattern in patterns for path in sorted(folder.root.glob(pattern))]
    if not paths:
        return
    target = folder.root / CORPUS / QUARANTINE_NAME
    with pq.ParquetWriter(target, QUARANTINE_SCHEMA, compression="zstd") as writer:
        for path in paths:
            with pq.ParquetFile(path) as file:
                writer.write_table(file.read(use_threads=False))
