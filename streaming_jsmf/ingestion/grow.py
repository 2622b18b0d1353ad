"""Make a corpus follow its source: read new and changed files, and remove the documents of those that vanished.

Shards without removed documents stay as they are. The other documents of changed shards, and the added ones, go to new
shards. The corpus is replaced in one step, so an interrupted run changes nothing.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming_jsmf.config import BUILT_IN, IngestRequest, Vanished
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.corpus.manifest import PHRASES
from streaming_jsmf.display import location as located_at
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.ingestion.in_memory import located
from streaming_jsmf.ingestion.job import Ingest
from streaming_jsmf.ingestion.plan import plan_ingest
from streaming_jsmf.ingestion.revision import Known, Revision
from streaming_jsmf.ingestion.source_files import (
    FILES_NAME,
    GUESSED_ID,
    KINDS,
    Followed,
    SourceFiles,
    ranks,
)
from streaming_jsmf.ingestion.sources.listing import NoFilesError, find_files
from streaming_jsmf.ingestion.steps import Made, ingest_disk, run_steps
from streaming_jsmf.ingestion.tokens.stop_words import LANGUAGES, NONE
from streaming_jsmf.ingestion.word_choice import FREQUENT_WORDS
from streaming_jsmf.jobs.events import Listener
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.storage.heads import planning
from streaming_jsmf.storage.local import require_disk
from streaming_jsmf.storage.lock import recover, sole_writer, work_place
from streaming_jsmf.storage.paths import StorePath, is_url, normalize, state_of
from streaming_jsmf.storage.replace import file_written, remove_store
from streaming_jsmf.storage.tables import write_table

#: Share of the documents above which vanished files are refused unless their removal is asked for.
MOST_VANISHED = 0.5

_RULES = ("numbers", "min_word_length", "min_document_frequency", "max_document_frequency")
_DOCUMENTS = ("duplicates", "min_distinct_words", "min_tokens")


def grow_corpus(
    source: Any,
    place: StorePath,
    reading: IngestRequest | None,
    execution: Execution,
    listener: Listener,
    *,
    vanished: Vanished | None = None,
    since: str = "",
) -> Corpus:
    """Make the corpus at ``place`` follow its source, with the words that it has; return it.

    It has the documents that one ingest of the present files would have. Reads the new and changed files of the source,
    those whose documents come back because others are gone, and the hashes of all ids and documents. Files of other
    sources, and data in memory that were added before, stay. ``reading`` overrides how the corpus was read. The
    settings of the corpus count the changes (``CHANGES``) since the one with the fingerprint ``since``.

    Memory: 100 bytes for each document that was ever read and whose file is there.

    Raises ``InputError`` if the corpus does not record its files, more than half of its documents would vanish (without
    ``vanished``), none would be left, or as ``ingest``.
    """
    recover(place)
    known, added, again = Known.at(place), place.with_name(f"{place.name}.added"), frozenset[str]()
    near = added if execution.elsewhere else None
    with located(source, near, numbered=known.numbered) as location, ExitStack() as lock:
        request = _as_before(reading or IngestRequest(), known, location.path)
        if vanished is None and reading in (None, IngestRequest()) and _is_followed(known, location.path):
            return known.corpus
        while True:
            files, plan = SourceFiles(located_at(normalize(location.path)), {}), None
            try:
                plan = plan_ingest(location, added, request, choose=partial(_to_read, known, again))
                files = plan[0].files
            except NoFilesError:
                if not files.followed(known.files).vanished.any():
                    raise
            followed = files.followed(known.files)
            gone = followed.vanished & (vanished != "keep")
            _require_few_gone(known, gone, vanished)
            changes = gone | followed.changed | (followed.held & (np.asarray(known.files["wanted"]) > 0))
            units = () if plan is None else plan[0].units
            shard_bytes = sum(shard.bytes for shard in known.corpus.shards) * bool(changes.any())
            # Of files that were swapped, others may replace documents.
            swapped = np.argsort(ranks(followed.table)) != np.argsort(ranks(known.files))
            if not (changes.any() or followed.new or again or swapped.any()):
                _note_moved(place, known, followed)
                remove_store(work_place(added), ignore_errors=True)
                return known.corpus
            known.files = followed.table
            require_disk(place, ingest_disk(units) + shard_bytes, "the update")
            if not again:
                lock.enter_context(sole_writer(place))
            read = _read(plan[0], known, execution, listener) if plan is not None and units else None
            change = Revision(known, files, followed, gone, again, read)
            # Documents that lost to others which are gone.
            more = {
                *change.files.filter(pa.array(change.wanted > 0))["path"].to_pylist()
            } & files.states.keys()
            if not more:
                corpus = change.written(place, since)
                remove_store(work_place(added), ignore_errors=True)
                return corpus
            again |= more


@planning()
def _is_followed(known: Known, source: str) -> bool:
    """Whether a source behind a URL has the files of the corpus as they were; none of them is opened."""
    if not is_url(source):
        return False
    try:
        states = {located_at(path): json.dumps(state_of(path)) for path in find_files(source)}
    except NoFilesError:
        return False
    rows = [row for row in known.files.to_pylist() if row["source"] == located_at(normalize(source))]
    recorded = {row["path"]: row["state"] for row in rows}
    return recorded == states and "null" not in states.values() and not any(row["wanted"] for row in rows)


def _to_read(known: Known, again: frozenset[str], files: SourceFiles) -> frozenset[str]:
    return files.followed(known.files).new | again


def _note_moved(place: StorePath, known: Known, followed: Followed) -> None:
    """Record where the files are now: one that is moved first and changed later would be taken for a new one."""
    if followed.table != known.files:
        with file_written(place / FILES_NAME, overwrite=True) as beside:
            write_table(beside, followed.table)


def _require_few_gone(known: Known, gone: NDArray[np.bool_], vanished: Vanished | None) -> None:
    lost, documents = int(np.asarray(known.files["documents"])[gone].sum()), known.corpus.n_documents
    if vanished is None and lost > MOST_VANISHED * documents:
        raise InputError(
            f"the source lacks {gone.sum():,} files with {lost:,} of the {documents:,} documents; to "
            f"remove them, give {option.vanished('remove')}"
        )


def _as_before(request: IngestRequest, known: Known, source: str) -> IngestRequest:
    """Read as the corpus was read, unless the request says otherwise; over the words of the corpus."""
    settings, made, root = known.manifest.settings, known.manifest.request, known.corpus.root
    read: dict[str, Any] = {key[5:]: value for key, value in settings.items() if key.startswith("read_")}
    # The column of the ids is certain once a corpus has them.
    guessed = known.files.schema.metadata[GUESSED_ID].decode()
    ids = {"id": guessed} if guessed else {}
    if PHRASES in settings:
        read[PHRASES] = tuple(str(settings[PHRASES]).split("\n"))
    read |= {**ids, **request.options}
    if read.get("function") and "function" not in request.options:
        raise InputError(
            f"{root}: its source was read by {read['function']!r}; name it with {option.reader('MODULE:FUNCTION')}"
        )
    if read.get("tokenizer", BUILT_IN[0]) not in BUILT_IN and "tokenizer" not in request.options:
        named = option.tokenizer("NAME")
        raise InputError(f"{root}: its words were made by {read['tokenizer']!r}; name it with {named}")
    stop_words = str(settings.get("stop_words") or NONE).split(",")
    if read.get("stemmer") is not None and {"file", "words"} & {*stop_words}:
        raise InputError(f"{root}: its words were stemmed except for a list, which is not stored; fit again")
    rules = {key: settings[key] for key in _DOCUMENTS if settings.get(key) is not None}
    is_spec = source.lower().endswith(".toml")
    quarantined = "quarantine" in (request.on_bad_record, made.get("on_bad_record"))
    return replace(
        request,
        reader=None if is_spec else request.reader or settings["reader"],  # type: ignore[arg-type]
        options=ids if is_spec else read,
        curation={**rules, "stop_words": ",".join(each for each in stop_words if each in LANGUAGES) or NONE},
        vocabulary=root,
        tokens_per_shard=made.get("tokens_per_shard"),
        on_bad_record="quarantine" if quarantined else "fail",
    )


def _read(planned: Ingest, known: Known, execution: Execution, listener: Listener) -> Made:
    """Read the files that were chosen; documents that other files or texts replace stay until all are compared."""
    settings, before = known.manifest.settings, int(known.manifest.settings["documents_read"] or 0)
    rules: dict[str, Any] = {key: settings[key] for key in _RULES if key in settings}
    arguments = {**planned.folder.arguments, "documents_before": before}
    folder = replace(planned.folder, arguments=arguments, result="")
    kinds = {**planned.known_kinds, **json.loads(known.files.schema.metadata[KINDS])}
    curation = replace(planned.curation, **rules)
    ids = "" if known.numbered else str(known.corpus.schema().field("document_id").type)
    frequent = str(settings.get(FREQUENT_WORDS) or "")
    planned = replace(
        planned,
        curation=curation,
        folder=folder,
        documents_before=before,
        known_kinds=kinds,
        ids=ids,
        left_out=frequent.split("\n") if frequent else (),
    )
    folder.start(replace=True)
    made = run_steps(planned, execution.reporting_on("ingest"), listener)
    if made.pieces and (not made.ingest.ids) != known.numbered:
        wrong = "ids, and others are numbered" if known.numbered else "no ids, and others have some"
        raise InputError(f"added documents have {wrong}; use {option.id} as for fit, or fit again")
    made.report()
    return made
