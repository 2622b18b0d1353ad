"""Make a corpus follow its source: read new and changed files, and remove the documents of those that vanished.

Shards without removed documents stay as they are. The other documents of changed shards, and the added ones, go to new
shards. The corpus is replaced in one step, so an interrupted run changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_jsmf.config import IngestRequest, Vanished
from streaming_jsmf.corpus.footer import Shard, open_parquet
from streaming_jsmf.corpus.format import DOCUMENTS, Corpus, open_corpus, read_manifest
from streaming_jsmf.corpus.manifest import PHRASES, Dropped, Json, Manifest, ShardEntry, as_number
from streaming_jsmf.corpus.records import OWN_COLUMNS, Documents, Place, checked_bags
from streaming_jsmf.corpus.shards import ShardLimits, ShardWriter
from streaming_jsmf.corpus.vocabulary import WordCounts
from streaming_jsmf.corpus.write import Origin, finish_directory
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.fingerprint import fingerprint
from streaming_jsmf.ingestion.files import FILES_NAME, Grown, of_paths
from streaming_jsmf.ingestion.in_memory import located
from streaming_jsmf.ingestion.ingest import run_ingest
from streaming_jsmf.ingestion.job import Ingest
from streaming_jsmf.ingestion.losses import NothingLeftError, warn_of_losses
from streaming_jsmf.ingestion.plan import plan_ingest
from streaming_jsmf.ingestion.tokens.stop_words import LANGUAGES, NONE
from streaming_jsmf.ingestion.tokens.tokenizer import BUILT_IN
from streaming_jsmf.ingestion.words import NEW_TOKENS, NEW_WORDS
from streaming_jsmf.jobs.events import Listener
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.linalg.csr import count_columns
from streaming_jsmf.storage.lock import recover, sole_writer, work_place
from streaming_jsmf.storage.paths import StorePath, exists, make_directory
from streaming_jsmf.storage.replace import (
    file_written,
    put_files,
    remove_store,
    store_written,
    temporary_folder,
)
from streaming_jsmf.storage.tables import read_table, write_table

#: Share of the documents above which vanished files are refused unless their removal is asked for.
MOST_VANISHED = 0.5

#: Settings of a grown corpus: fingerprint of the corpus that these changes are counted from, and the changes.
SINCE = "grown_since"
CHANGES = (
    *(f"{what}_{how}" for what in ("files", "documents") for how in ("added", "changed", "removed")),
    "tokens_added",
    NEW_TOKENS,
)

_READ = ("documents_read", "nonzeros_read", "tokens_read", "duplicate_documents")
_RULES = ("numbers", "min_word_length", "min_document_frequency", "max_document_frequency")
_DOCUMENTS = ("duplicates", "min_distinct_words", "min_tokens")

#: A corpus does not store the words that it left out, by which repeated texts are found.
_OF_A_BATCH = "documents with the words of another that was added with them"


@dataclass(frozen=True)
class _Known:
    """A corpus, its manifest, and the ``files`` that it was made of."""

    corpus: Corpus
    manifest: Manifest
    files: Any

    @classmethod
    def at(cls, place: StorePath) -> _Known:
        corpus, path = open_corpus(str(place)), place / FILES_NAME
        if not exists(path):
            raise InputError(
                f"{place}: does not record the files that it was made of, so it cannot grow; make it again with fit"
            )
        return cls(corpus, read_manifest(str(place)), read_table(path))

    @property
    def grown(self) -> Grown:
        return Grown.of(self.files, int(self.manifest.settings["documents_read"] or 0))

    def documents(self, shard: Shard) -> Iterator[Documents]:
        """Yield the documents of a shard, one row group at a time."""
        path = self.corpus.shard_path(shard)
        with open_parquet(path, sha256=shard.sha256) as file:
            for number in range(file.num_row_groups):
                table = file.read_row_group(number, use_threads=False)
                columns = {name: table.column(name).combine_chunks() for name in table.column_names}
                place = Place(path, number)
                bags = checked_bags(columns["ids"], columns["counts"], self.corpus.n_words, place)
                rest = {name: values for name, values in columns.items() if name not in OWN_COLUMNS}
                yield Documents(*bags, columns["document_id"], rest)

    def ids(self) -> Any:
        chunks = []
        for shard in self.corpus.shards:
            path = self.corpus.shard_path(shard)
            with open_parquet(path) as file:
                chunks += file.read(["document_id"], use_threads=False).column(0).chunks
        return pa.chunked_array(chunks)


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

    Reads the new and changed files of the source, and one pass over the ids of the corpus. Documents replace those of
    the same id. Files of other sources, and data in memory that were added before, stay. ``reading`` overrides how the
    corpus was read. Its settings count the changes (``CHANGES``) since the corpus with the fingerprint ``since``.

    Raises ``InputError`` if the corpus does not record its files, more than half of its documents would vanish (without
    ``vanished``), none would be left, or as ``ingest``.
    """
    recover(place)
    known, added = _Known.at(place), place.with_name(f"{place.name}.added")
    with located(source, added if execution.elsewhere else None, numbered=known.grown.numbered) as location:
        request = _as_before(reading or IngestRequest(), known, location.path)
        planned, origin = plan_ingest(
            location, added, request, choose=lambda files: files.changed_since(files.followed(known.files))
        )
        assert planned.files is not None
        files = planned.files.followed(known.files)
        if files != known.files:
            # Written at once: a file that is moved first and changed later would be taken for a new one.
            with file_written(place / FILES_NAME, overwrite=True) as beside:
                write_table(beside, files)
            known = replace(known, files=files)
        new = planned.files.changed_since(files)
        gone = planned.files.vanished_since(files) if vanished != "keep" else frozenset[str]()
        if not (new or gone):
            _remove(added)
            return known.corpus
        lost = pc.sum(of_paths(files, gone).column("documents")).as_py() or 0
        if vanished is None and lost > MOST_VANISHED * known.corpus.n_documents:
            raise InputError(
                f"the source lacks {len(gone):,} files with {lost:,} of the {known.corpus.n_documents:,} documents; to "
                f"remove them, give {option.vanished('remove')}"
            )
        change = _Growing(known, new, gone, None, planned.files.table((), numbered=True, kinds={}))
        if planned.units:
            try:
                batch = _ingested(planned, origin, known, execution, listener)
                found = batch.manifest
                change = _Growing(known, new, gone, batch, batch.files, found.dropped, found.settings)
            except NothingLeftError as empty:
                change = replace(change, dropped=empty.dropped, read=empty.settings)
                warn_of_losses(empty.dropped, 0, empty.settings.get("tokens_read"))
    with sole_writer(place):
        made = change.written(place, since)
    _remove(added)
    return made


def _remove(added: StorePath) -> None:
    """Remove the corpus of the added documents, and what an interrupted run has left of it."""
    for path in (added, work_place(added)):
        remove_store(path, ignore_errors=True)


def _as_before(request: IngestRequest, known: _Known, source: str) -> IngestRequest:
    """Read as the corpus was read, unless the request says otherwise; over the words of the corpus."""
    settings, made, root = known.manifest.settings, known.manifest.request, known.corpus.root
    read: dict[str, Any] = {key[5:]: value for key, value in settings.items() if key.startswith("read_")}
    if PHRASES in settings:
        read[PHRASES] = tuple(str(settings[PHRASES]).split("\n"))
    read |= request.read
    if read.get("tokenizer", BUILT_IN[0]) not in BUILT_IN and "tokenizer" not in request.read:
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
        read={} if is_spec else read,
        curation={**rules, "stop_words": ",".join(each for each in stop_words if each in LANGUAGES) or NONE},
        vocabulary=root,
        tokens_per_shard=made.get("tokens_per_shard"),
        on_bad_record="quarantine" if quarantined else "fail",
    )


def _ingested(
    planned: Ingest, origin: Origin, known: _Known, execution: Execution, listener: Listener
) -> _Known:
    """The corpus of the new and changed files."""
    grown = known.grown
    settings = known.manifest.settings
    rules: dict[str, Any] = {key: settings[key] for key in _RULES if key in settings}
    before = {"documents_before": grown.documents_read}
    request, arguments = {**origin.request, **before}, {**planned.folder.arguments, **before}
    folder = replace(planned.folder, arguments=arguments, result=fingerprint(request))
    kinds = {**planned.known_kinds, **grown.kinds}
    curation = replace(planned.curation, **rules)
    planned = replace(planned, curation=curation, folder=folder, grows=grown, known_kinds=kinds)
    origin, execution = replace(origin, request=request), execution.reporting_on("ingest")
    run_ingest(planned, origin, execution, listener, overwrite=True)
    return _Known.at(planned.folder.target)


@dataclass(frozen=True)
class _Growing:
    """Files that are new, with the documents of ``batch``, or ``gone``; ``read`` counts what was read of ``files``."""

    known: _Known
    new: frozenset[str]
    gone: frozenset[str]
    batch: _Known | None
    files: Any
    dropped: Sequence[Dropped] = ()
    read: Mapping[str, Json] = field(default_factory=dict)

    def written(self, place: StorePath, since: str) -> Corpus:
        """Write the corpus that replaces the one at ``place``."""
        removed, replaced = self._removed()
        corpus = self.known.corpus
        starts = np.cumsum([0, *(shard.rows for shard in corpus.shards)])
        kept = np.split(~removed, starts[1:-1])
        staying = [shard.name for shard, rows in zip(corpus.shards, kept, strict=True) if rows.all()]
        with (
            store_written(place, overwrite=True, keep=staying) as made,
            temporary_folder(made if isinstance(made, Path) else None, ".shards-") as folder,
        ):
            shards, counts = self._written_shards(folder, made, kept)
            if not shards:
                raise InputError(f"{place}: no document would be left; remove the corpus instead")
            files = self._files(kept)
            write_table(made / FILES_NAME, files)
            origin = self._origin(int(removed.sum()), replaced, since, files)
            forms = corpus.vocabulary().forms
            finish_directory(made, shards, counts, origin, None if forms is None else pa.array(forms))
        return open_corpus(str(place))

    def _removed(self) -> tuple[NDArray[np.bool_], int]:
        """Mask of the removed documents of the corpus, and the number of those that others of the same id replace."""
        files = self.known.files
        leaving = pc.is_in(files["path"], value_set=pa.array(sorted(self.new | self.gone), pa.string()))
        removed = np.repeat(np.asarray(leaving), np.asarray(files["documents"]))
        numbered = self.batch is None or self.batch.grown.numbered
        if self.batch is None or (self.known.grown.numbered and numbered):
            return removed, 0
        before = self.known.ids()
        ids = _as_type(self.batch.ids(), before.type, "ids")
        replaced = np.asarray(pc.is_in(before, value_set=ids.combine_chunks()))
        if self.known.grown.numbered or (numbered and replaced.any()):
            wrong = "no ids, and others have their numbers" if numbered else "ids, and others are numbered"
            raise InputError(f"added documents have {wrong}; use {option.id} as for fit, or fit again")
        return removed | replaced, int(replaced.sum())

    def _written_shards(
        self, folder: Path, made: StorePath, kept: Sequence[NDArray[np.bool_]]
    ) -> tuple[list[ShardEntry], WordCounts]:
        """Write the shards that do not stay, in a local folder first; return all, and the counts of the words."""
        corpus, words = self.known.corpus, self.known.corpus.vocabulary()
        entries = {entry.name: entry for entry in self.known.manifest.shards}
        per_shard = self.known.manifest.request.get("tokens_per_shard") or ShardLimits.tokens_per_shard
        writer = ShardWriter(folder, corpus.n_words, ShardLimits(per_shard))
        frequency, tokens = words.document_frequency.copy(), words.term_count.copy()
        lost = np.zeros_like(frequency), np.zeros_like(tokens)
        staying = [shard for shard, rows in zip(corpus.shards, kept, strict=True) if rows.all()]
        make_directory(made / DOCUMENTS)
        try:
            for shard, rows in zip(corpus.shards, kept, strict=True):
                for documents in () if rows.all() else self.known.documents(shard):
                    mine, rows = rows[: documents.n_documents], rows[documents.n_documents :]
                    gone = _chosen(documents, ~mine)
                    count_columns(gone.ids, gone.counts, *lost)
                    if mine.any():
                        writer.write(_chosen(documents, mine))
            schema = self.known.corpus.schema()
            for shard in self.batch.corpus.shards if self.batch else ():
                for documents in self.batch.documents(shard):  # type: ignore[union-attr]
                    writer.write(_conformed(documents, schema))
            written = writer.close()
        finally:
            writer.abort()
        found = [entries[shard.name].model_copy(update={"name": Path(shard.name).name}) for shard in staying]
        first = 1 + max(int(Path(name).stem.rpartition("-")[2]) for name in entries)
        for number, entry in enumerate(written, first):
            name = f"part-{number:05d}.parquet"
            put_files([(folder / entry.name, made / DOCUMENTS / name)])
            found.append(entry.model_copy(update={"name": name}))
        if self.batch:
            new = self.batch.corpus.vocabulary()
            frequency, tokens = frequency + new.document_frequency, tokens + new.term_count
        return found, WordCounts(pa.array(words.words, pa.string()), frequency - lost[0], tokens - lost[1])

    def _files(self, kept: Sequence[NDArray[np.bool_]]) -> Any:
        """The files of the corpus: those of shards that stay, of rewritten ones, and of the added documents."""
        table = self.known.files
        owners = np.repeat(np.arange(table.num_rows), np.asarray(table.column("documents")))
        parts = np.split(owners, np.cumsum([len(rows) for rows in kept])[:-1])
        pairs = [*zip(parts, kept, strict=True)]
        order = sorted(range(len(pairs)), key=lambda number: not pairs[number][1].all())
        rows = np.concatenate([pairs[number][0][pairs[number][1]] for number in order])
        starts = np.flatnonzero(np.diff(rows, prepend=-1))
        runs = table.take(pa.array(rows[starts])).drop_columns("documents")
        runs = runs.append_column("documents", pa.array(np.diff(np.append(starts, rows.size)), pa.int64()))
        without = table.filter(pc.equal(table.column("documents"), 0))
        empty = of_paths(without, self.new | self.gone, without=True)
        added = of_paths(self.files, self.new)
        return pa.concat_tables([runs, empty, added]).replace_schema_metadata(table.schema.metadata)

    def _origin(self, removed: int, replaced: int, since: str, files: Any) -> Origin:
        """The origin of the grown corpus: read = kept + dropped still holds."""
        manifest, settings = self.known.manifest, dict[str, Json](self.known.manifest.settings)
        before = {*self.known.files.column("path").to_pylist()}
        changes = Counter[str](
            files_added=len(self.new - before),
            files_changed=len(self.new & before),
            files_removed=len(self.gone),
            documents_added=-replaced,
            documents_changed=replaced,
            documents_removed=removed - replaced,
        )
        if settings.get(SINCE) != since or since == self.known.corpus.fingerprint:
            settings |= {**dict.fromkeys(CHANGES, 0), SINCE: since, NEW_WORDS: ""}
        settings |= {key: as_number(_number(self.read, key) + _number(settings, key)) for key in _READ}
        settings[NEW_WORDS] = self.read.get(NEW_WORDS, settings.get(NEW_WORDS))
        changes[NEW_TOKENS] += int(_number(self.read, NEW_TOKENS))
        if self.batch:
            changes["documents_added"] += self.batch.manifest.totals.documents
            changes["tokens_added"] += int(self.batch.manifest.totals.tokens)
        dropped = [*manifest.dropped, *self.dropped]
        if removed:
            reason = "removed with their files, or replaced"
            dropped.append(Dropped(step="removed", reason=reason, documents=removed))
        settings |= {key: as_number(_number(settings, key) + changes[key]) for key in CHANGES}
        request = {**manifest.request, "grown": fingerprint({"files": files.to_pydict()})}
        return Origin(_added_up(dropped), manifest.attribution, manifest.source, settings, request)


def _number(settings: Mapping[str, Json], key: str) -> float:
    return float(settings.get(key) or 0)


def _added_up(dropped: Sequence[Dropped]) -> tuple[Dropped, ...]:
    """What each step dropped in all runs."""
    found: dict[str, Dropped] = {}
    for step in dropped:
        reason = _OF_A_BATCH if step.step == "duplicates" else step.reason
        before = found.get(step.step, Dropped(step=step.step, reason=reason))
        sums = {
            name: getattr(before, name) + getattr(step, name) for name in ("words", "documents", "tokens")
        }
        found[step.step] = before.model_copy(update=sums)
    return tuple(found.values())


def _chosen(documents: Documents, rows: NDArray[np.bool_]) -> Documents:
    lengths, mask = np.diff(documents.indptr), pa.array(rows)
    held, indptr = np.repeat(rows, lengths), np.concatenate([[0], np.cumsum(lengths[rows])])
    rest = {name: values.filter(mask) for name, values in documents.metadata.items()}
    ids = documents.document_id.filter(mask)
    return Documents(indptr, documents.ids[held], documents.counts[held], ids, rest)


def _conformed(documents: Documents, schema: Any) -> Documents:
    """The documents with the columns and types of a corpus; those that they lack are null, others are left out."""
    absent = pa.nulls(documents.n_documents)
    columns = {
        field.name: _as_type(documents.metadata.get(field.name, absent), field.type, field.name)
        for field in schema
        if field.name not in OWN_COLUMNS
    }
    ids = _as_type(documents.document_id, schema.field("document_id").type, "ids")
    kind = schema.field("counts").type.value_type.to_pandas_dtype()
    return replace(documents, document_id=ids, metadata=columns, counts=documents.counts.astype(kind))


def _as_type(values: Any, kind: Any, name: str) -> Any:
    try:
        return values.cast(kind)
    except pa.ArrowInvalid as error:
        raise InputError(
            f"{name} of the added documents are {values.type}, those of the corpus {kind}; correct them, or fit again"
        ) from error
