"""Convert a source to a corpus: plan, read, choose words, write. The bytes do not depend on the scheduler."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.config import INGEST_SETTINGS, IngestRequest, request_of, settings_of, takes
from streaming_jsmf.corpus.format import Corpus, open_corpus, read_manifest
from streaming_jsmf.corpus.manifest import PHRASES, Dropped, as_number, losses_table
from streaming_jsmf.corpus.metadata import OWN_COLUMNS, free_name
from streaming_jsmf.corpus.shards import link_shards, task_directory, total_counts
from streaming_jsmf.corpus.write import ASKED, Origin, corpus_target, finish_directory, wanted_corpus
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.ingestion.columns import choose_types
from streaming_jsmf.ingestion.first_pass import Contents, read_source
from streaming_jsmf.ingestion.in_memory import located
from streaming_jsmf.ingestion.job import Column, Ingest, Piece
from streaming_jsmf.ingestion.losses import (
    REPEATED,
    NothingLeftError,
    first_bad_record,
    losses_of_reading,
    losses_of_writing,
    nothing_left,
    require_few_losses,
    saved,
    warn_of_losses,
    write_quarantine,
)
from streaming_jsmf.ingestion.plan import curation_fields, plan_ingest
from streaming_jsmf.ingestion.repeats import (
    ENTRIES_NAME,
    find_repeated_ids,
    find_repeats,
    packed,
    read_entries,
)
from streaming_jsmf.ingestion.reuse import is_made, needs_no_other_file, what_is_asked
from streaming_jsmf.ingestion.second_pass import REWRITE, WRITE, write_shards
from streaming_jsmf.ingestion.source_files import FILES_NAME, SourceFiles
from streaming_jsmf.ingestion.sources.protocol import limits
from streaming_jsmf.ingestion.sources.values import require_few
from streaming_jsmf.ingestion.word_choice import (
    choose_words,
    counts_of,
    full_forms,
    new_words,
    with_found_phrases,
    with_language,
    word_counts,
)
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution, Executor
from streaming_jsmf.jobs.workspace import Publish
from streaming_jsmf.process_limits import PROCESS_BYTES
from streaming_jsmf.storage.heads import planning
from streaming_jsmf.storage.paths import AnyPath, StorePath, is_url, normalize
from streaming_jsmf.storage.replace import file_written
from streaming_jsmf.storage.tables import read_table, write_pieces, write_table

logger = logging.getLogger(__name__)

#: Memory of a task, in batches of text: copies of the batch, and the words and keys of a piece.
_COPIES_OF_A_BATCH = 20

#: Texts are refused if there are fewer, and they have more words on average.
FEW_DOCUMENTS, LONG_DOCUMENT = 50, 2000


@takes(*INGEST_SETTINGS, Execution)
def ingest(
    source: Any,
    corpus: AnyPath | StorePath,
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
    one pass over the source and one over its bags of words. A search for phrases takes one more pass over the source,
    and one more over the bags writes the shards again if some words occur in no kept document. A table of what was
    dropped is logged. Work is done in ``<corpus>.partial``, which is removed on bad input and kept on interruption.

    Documents keep the order of the source. Words keep the order of a source with a fixed vocabulary, and are sorted
    otherwise. Words are chosen by their counts over all good documents; the vocabulary has the counts over the kept
    documents. In the table and the manifest, read = kept + dropped in each step, in documents and in tokens.

    Memory: for each worker, one batch and the words and keys of a piece (``tokens_per_shard`` tokens), or of a range of
    all words and keys; in the parent, the kept words, ``MERGE_ROWS`` other ones, and arrays of length N if the source
    has a fixed vocabulary. Repeated ids and documents are found and left out by the workers.

    Parameters
    ----------
    source
        A path, URL or spec (``.toml``), as for ``streaming-jsmf ingest``; a table with a text column (pandas, polars or
        Dask ``DataFrame``, Arrow table, or any object that exports Arrow streams); texts (list, generator, series); or
        rows as mappings (list, generator, Hugging Face data set). Data in memory are first written to a temporary file,
        one batch at a time, next to the corpus for a running scheduler; other columns are kept as metadata.
    corpus
        Path or URL of the corpus. One made with other settings or of other files is only replaced with ``overwrite``.
    request
        Settings, such as ``IngestRequest(options={"text": "body"})``. Its fields, those of its ``curation`` and of
        ``Execution`` are also keyword arguments, such as ``min_df=5``.
    progress
        Whether to show a progress bar while the files of a spec are downloaded.

    Raises
    ------
    InputError
        If the source, spec or target cannot be used, a record is bad (with "fail"), too many documents would be lost
        (``max_dropped``), or texts are few and long.
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
    with located(source, target if execution.elsewhere else None) as location:
        _require_outside(target, location.path if request.files is None else request.files)
        with planning():
            asked = what_is_asked(location, request)
            if is_made(target, asked):
                return _reported(target)
            planned, origin = plan_ingest(location, target, request, progress=progress)
        if asked and needs_no_other_file(planned.source.reader):
            origin = replace(origin, request={**origin.request, ASKED: asked})
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
    origin = replace(origin, settings={**(origin.settings or {}), **execution.noted})
    with planned.folder.acquire(wanted, resumable=resumable) as publish:
        if publish is not None:
            several = execution.scheduler in ("processes", "cluster")
            # A list of items or words needs 100 bytes more per entry.
            execution.require_memory(
                lambda n: (n * several + 1) * PROCESS_BYTES + n * _COPIES_OF_A_BATCH * limits.BATCH_BYTES,
                "the ingest",
            )
            with execution.executor(
                listener,
                target=planned.root,
                sources=[unit.path for unit in planned.units[:1]],
                on_bad_input=planned.folder.remove,
            ) as executor:
                _ingest(planned, executor, origin, publish)
        return _reported(target)


def _reported(target: StorePath) -> Corpus:
    """Open a corpus, and log what was lost when it was made, one message per line."""
    built = open_corpus(str(target))
    manifest = read_manifest(str(target))
    for line in losses_table(manifest).splitlines():
        logger.info("%s", line)
    warn_of_losses(manifest.dropped, built.n_documents, manifest.settings.get("tokens_read"))
    return built


def _require_outside(target: StorePath, source: str | Path) -> None:
    """Refuse a target inside the source, which would make the corpus part of its own source."""
    root = normalize(source)
    if not isinstance(target, Path):
        inside = str(target).startswith(f"{root}/")
    else:
        inside = not is_url(root) and Path(root).is_dir()
        inside = inside and target.resolve().is_relative_to(Path(root).resolve())
    if inside:
        raise InputError(f"{target} lies inside the source {root}; choose another place for the corpus")


def _ingest(ingest: Ingest, executor: Executor, origin: Origin, publish: Publish) -> None:
    """Run the steps: phrases, read, choose, write, commit."""
    root, target = ingest.root, ingest.folder.target
    if ingest.source.phrases is not None:
        ingest = with_found_phrases(ingest, executor)
    pieces, contents = read_source(ingest, executor)
    if not pieces:
        first = first_bad_record(ingest)
        message = f"{target} would be an empty corpus: the source has no valid document{first}"
        if first and ingest.grows is None:
            raise InputError(message)
        reading = losses_of_reading(ingest, contents.bad, contents.boilerplate)
        raise NothingLeftError(message, reading, _totals_read((), reading), (), _bad_records(ingest))
    _require_many_or_short(ingest, pieces)
    ingest = find_repeated_ids(ingest, executor, pieces, contents.id_types, contents.id_faults)
    n_documents = sum(piece.documents for piece in pieces)
    ingest = _with_columns(ingest, contents, n_documents)
    counted, forms = (counts_of(ingest, executor, pieces, kind) for kind in ("words", "forms"))
    ingest = with_language(
        ingest, contents.languages, () if ingest.words is None else word_counts(ingest, counted)
    )
    selection = choose_words(ingest, n_documents, counted)
    ingest, n_duplicates = find_repeats(ingest, executor)
    step, words = WRITE, selection.counts.words
    shards = write_shards(ingest, executor, pieces, words)
    totals = total_counts(ingest.folder, executor, WRITE, len(pieces), words, ingest.ranges)
    used = totals.document_frequency > 0
    n_unused = int((~used).sum()) if ingest.vocabulary is None else 0
    reading = losses_of_reading(ingest, contents.bad, contents.boilerplate)
    dropped = (*reading, *selection.dropped, *losses_of_writing(ingest, shards, n_unused))
    read = _totals_read(pieces, reading)
    read |= {} if ingest.grows is None else new_words(ingest, n_documents, counted)
    if not used.any() and not ingest.keeps_any_document:
        what_was_read = [*_entries(ingest, pieces)] if ingest.recorded else []
        message = nothing_left(ingest, dropped)
        raise NothingLeftError(message, dropped, read, what_was_read, _bad_records(ingest))
    require_few_losses(ingest, dropped, read["documents_read"])
    if n_unused:
        step, totals = REWRITE, totals.take(used)
        shards = write_shards(ingest, executor, pieces, totals.words, REWRITE)
    phrases = ingest.source.tokenizer.phrases  # found or given
    settings = {
        **(origin.settings or {}),
        **curation_fields(ingest),
        **({PHRASES: "\n".join(phrases)} if phrases else {}),
        **read,
        "duplicate_documents": n_duplicates,
    }
    with publish() as made:
        entries = link_shards(root, step, shards, made)
        write_quarantine(ingest, made)
        if ingest.files is not None and ingest.recorded:
            _write_files(ingest, ingest.files, pieces, made)
        described = replace(origin, dropped=dropped, settings=settings)
        finish_directory(made, entries, totals, described, full_forms(forms, totals.words))


def _write_files(ingest: Ingest, files: SourceFiles, pieces: Sequence[Piece], made: StorePath) -> None:
    """Write the tables of the files and of all documents that were read, which ``update`` compares with the source."""
    documents = np.zeros(len(files.states), np.int64)
    with file_written(made / ENTRIES_NAME) as place:
        write_pieces(place, _counted(_entries(ingest, pieces), documents), 1)
    kinds = {column.name: column.kind for column in ingest.columns}
    guessed = ingest.guessed_id if ingest.ids else None
    table = files.table(documents, numbered=not ingest.ids, kinds=kinds, guessed_id=guessed)
    write_table(made / FILES_NAME, table)


def _bad_records(ingest: Ingest) -> list[Any]:
    return [read_table(path) for path in saved(ingest)] if ingest.recorded else []


def _entries(ingest: Ingest, pieces: Sequence[Piece]) -> Iterator[NDArray[Any]]:
    """Yield the entries of the documents of each piece, but for those that repeat an id within their file."""
    assert ingest.files is not None
    numbers = {path: number for number, path in enumerate(ingest.files.states)}
    of_units = np.array([numbers[ingest.files.path(unit.path)] for unit in ingest.units])
    before = 0
    for piece in pieces:
        entries = read_entries(ingest.root / task_directory(WRITE, piece.index) / ENTRIES_NAME).copy()
        # The units of a shuffled source are buckets.
        entries["file"] = 0 if ingest.files.whole else of_units[entries["file"]]
        entries["place"] += before
        before += len(entries)
        yield entries[entries["step"] != REPEATED]


def _counted(
    pieces: Iterable[NDArray[Any]], documents: NDArray[np.int64]
) -> Iterator[tuple[Any, NDArray[np.int64]]]:
    """Yield entries for ``write_pieces``, and add the documents that each file contributes to ``documents``."""
    for entries in pieces:
        documents += np.bincount(entries["file"][entries["step"] == 0], minlength=len(documents))
        yield packed(entries), np.zeros(len(entries), np.int64)


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
