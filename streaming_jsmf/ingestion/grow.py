"""Make a corpus follow its source: read new and changed files, and remove the documents of those that vanished.

Shards without removed documents stay as they are. The other documents of changed shards, and the added ones, go to new
shards. The corpus is replaced in one step, so an interrupted run changes nothing.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_jsmf.config import IngestRequest, Vanished
from streaming_jsmf.corpus.footer import open_parquet
from streaming_jsmf.corpus.format import DOCUMENTS, Corpus, Shard, open_corpus, read_manifest
from streaming_jsmf.corpus.manifest import PHRASES, Dropped, Json, Manifest, ShardEntry, as_number
from streaming_jsmf.corpus.records import OWN_COLUMNS, Documents, Place, checked_bags
from streaming_jsmf.corpus.shards import ShardLimits, ShardWriter
from streaming_jsmf.corpus.vocabulary import WordCounts
from streaming_jsmf.corpus.write import Origin, finish_directory
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.fingerprint import fingerprint
from streaming_jsmf.ingestion.files import FILES_NAME, NUMBERED, SCHEMA, Grown, SourceFiles
from streaming_jsmf.ingestion.in_memory import located
from streaming_jsmf.ingestion.ingest import run_ingest
from streaming_jsmf.ingestion.job import Ingest
from streaming_jsmf.ingestion.plan import plan_ingest
from streaming_jsmf.ingestion.tokens.stop_words import LANGUAGES, NONE
from streaming_jsmf.ingestion.tokens.tokenizer import BUILT_IN
from streaming_jsmf.jobs.events import Listener
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.linalg.csr import count_columns
from streaming_jsmf.storage.lock import recover, sole_writer
from streaming_jsmf.storage.replace import new_directory, put_in_place, remove_store
from streaming_jsmf.storage.tables import read_table, write_table

#: Share of the documents above which vanished files are refused unless their removal is asked for.
MOST_VANISHED = 0.5

#: Settings of a grown corpus: the corpus that these changes are counted from, and the changes.
SINCE = "grown_since"
CHANGES = (
    "files_added", "files_changed", "files_removed", "documents_added", "documents_changed", "documents_removed",
    "tokens_added", "tokens_unknown", "new_tokens",
)  # fmt: skip
NEW_WORDS = "new_words"

_READ = ("documents_read", "nonzeros_read", "tokens_read", "duplicate_documents")
_RULES = ("numbers", "min_word_length", "min_document_frequency", "max_document_frequency")
_DOCUMENTS = ("duplicates", "min_distinct_words", "min_tokens")


@dataclass(frozen=True)
class _Known:
    """A corpus before it grows, and the ``files`` that it was made of."""

    corpus: Corpus
    manifest: Manifest
    files: Any

    @classmethod
    def at(cls, place: Path) -> _Known:
        corpus, path = open_corpus(place), place / FILES_NAME
        if not path.exists():
            raise InputError(
                f"{place}: does not record the files that it was made of, so it cannot grow; make it again with fit"
            )
        return cls(corpus, read_manifest(place), read_table(path))

    def with_files(self, files: Any) -> _Known:
        """The same corpus with files that were moved; written at once, lest they are taken for new ones later."""
        path = Path(self.corpus.root) / FILES_NAME
        beside = path.with_name(f".{FILES_NAME}.{uuid.uuid4().hex}")
        write_table(beside, files)
        beside.replace(path)
        return replace(self, files=files)

    @property
    def grown(self) -> Grown:
        numbered = (self.files.schema.metadata or {}).get(NUMBERED) == b"True"
        return Grown(int(self.manifest.settings["documents_read"] or 0), numbered)


def grow_corpus(
    source: Any,
    place: Path,
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
    corpus was read. The settings of its manifest count the changes since the corpus with the fingerprint ``since``
    (``CHANGES``).

    Raises ``InputError`` if the corpus does not record its files, more than half of its documents would vanish (without
    ``vanished``), none would be left, or as ``ingest``.
    """
    recover(place)
    known = _Known.at(place)
    with located(source) as location:
        request = _as_before(reading or IngestRequest(), known, location.path)
        added = place.with_name(f"{place.name}.added")
        planned, origin = plan_ingest(
            location, added, request, choose=lambda files: files.changed_since(files.followed(known.files))
        )
        assert planned.files is not None
        files = planned.files.followed(known.files)
        new = planned.files.changed_since(files)
        gone = planned.files.vanished_since(files) if vanished != "keep" else frozenset[str]()
        if files != known.files:
            known = known.with_files(files)
        if not (new or gone):
            return known.corpus
        _require_most_left(known, gone, vanished)
        batch = _ingested(planned, origin, known, execution, listener) if planned.units else None
        with sole_writer(place):
            made = _Growing(known, planned.files, new, gone, batch).written(place, since)
        if batch is not None:
            remove_store(added, ignore_errors=True)
    return made


def _as_before(request: IngestRequest, known: _Known, source: str) -> IngestRequest:
    """Read as the corpus was read, unless the request says otherwise; over the words of the corpus."""
    settings, made = known.manifest.settings, known.manifest.request
    read: dict[str, Any] = {key[5:]: value for key, value in settings.items() if key.startswith("read_")}
    if PHRASES in settings:
        read[PHRASES] = tuple(str(settings[PHRASES]).split("\n"))
    read |= request.read
    if read.get("tokenizer", BUILT_IN[0]) not in BUILT_IN and "tokenizer" not in request.read:
        raise InputError(
            f"{known.corpus.root}: its words were made by {read['tokenizer']!r}; name it with "
            f"{option.tokenizer('NAME')}"
        )
    stop_words = str(settings.get("stop_words") or NONE).split(",")
    if read.get("stemmer") is not None and {"file", "words"} & {*stop_words}:
        raise InputError(
            f"{known.corpus.root}: its words were stemmed except for a list of stop words, which is not "
            "stored; fit again"
        )
    rules = {key: settings[key] for key in _DOCUMENTS if settings.get(key) is not None}
    is_spec = source.lower().endswith(".toml")
    return IngestRequest(
        reader=None if is_spec else request.reader or settings["reader"],  # type: ignore[arg-type]
        read={} if is_spec else read,
        curation={**rules, "stop_words": ",".join(each for each in stop_words if each in LANGUAGES) or NONE},
        vocabulary=known.corpus.root,
        tokens_per_shard=made.get("tokens_per_shard"),
        on_bad_record=made.get("on_bad_record", request.on_bad_record),
        max_dropped=request.max_dropped,
        files=request.files,
    )


def _require_most_left(known: _Known, gone: Collection[str], vanished: Vanished | None) -> None:
    documents = pc.sum(_of(known.files, gone).column("documents")).as_py() or 0
    if vanished is None and documents > MOST_VANISHED * known.corpus.n_documents:
        raise InputError(
            f"the source lacks {len(gone):,} files with {documents:,} of the {known.corpus.n_documents:,} documents; "
            f"to remove them, give {option.vanished('remove')}"
        )


def _of(files: Any, paths: Collection[str]) -> Any:
    return files.filter(pc.is_in(files.column("path"), value_set=pa.array(sorted(paths), pa.string())))


def _ingested(
    planned: Ingest, origin: Origin, known: _Known, execution: Execution, listener: Listener
) -> Corpus:
    """The corpus of the new and changed files."""
    settings, grown = known.manifest.settings, known.grown
    rules = {key: settings[key] for key in _RULES if key in settings}
    request = {**origin.request, "documents_before": grown.documents_read}
    curation = replace(planned.curation, **rules)  # type: ignore[arg-type]
    folder = replace(planned.folder, arguments=request)
    planned = replace(planned, curation=curation, folder=folder, grows=grown)
    origin, execution = replace(origin, request=request), execution.reporting_on("ingest")
    return run_ingest(planned, origin, execution, listener, overwrite=True)


@dataclass(frozen=True)
class _Growing:
    """The change of a corpus: files that are ``new`` or changed and read as ``batch``, and ``gone`` ones."""

    known: _Known
    source: SourceFiles
    new: frozenset[str]
    gone: frozenset[str]
    batch: Corpus | None

    def written(self, place: Path, since: str) -> Corpus:
        """Write the corpus that replaces the one at ``place``."""
        corpus, made = self.known.corpus, new_directory(place)
        removed, replaced = self._removed()
        try:
            (made / DOCUMENTS).mkdir()
            kept, files, counts = self._written_shards(made, removed)
            if not kept:
                raise InputError(f"{place}: no document would be left; remove the corpus instead")
            n_added = 0 if self.batch is None else self.batch.n_documents
            changes = self._changes(int(removed.sum()), replaced, n_added)
            finish_directory(made, kept, counts, self._origin(changes, since, files))
            write_table(made / FILES_NAME, files)
            put_in_place(made, place)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise
        return open_corpus(corpus.root)

    def _removed(self) -> tuple[NDArray[np.bool_], int]:
        """Mask of the removed documents of the corpus, and the number of those that others of the same id replace."""
        paths, sizes = (self.known.files.column(name) for name in ("path", "documents"))
        leaving = pc.is_in(paths, value_set=pa.array(sorted(self.new | self.gone), pa.string()))
        removed = np.repeat(np.asarray(leaving), np.asarray(sizes))
        if self.batch is None or self.known.grown.numbered:
            return removed, 0
        ids = pa.chunked_array(list(_ids(self.batch)))
        before = pa.chunked_array(list(_ids(self.known.corpus)))
        replaced = np.asarray(pc.is_in(before, value_set=_as_type(ids, before.type, "ids").combine_chunks()))
        return removed | replaced, int(replaced.sum())

    def _written_shards(
        self, made: Path, removed: NDArray[np.bool_]
    ) -> tuple[list[ShardEntry], Any, WordCounts]:
        """Link the shards that stay and write the others; return them, their files, and the counts of the words."""
        corpus, words = self.known.corpus, self.known.corpus.vocabulary()
        entries = {entry.name: entry for entry in self.known.manifest.shards}
        starts = np.cumsum([0, *(shard.rows for shard in corpus.shards)])
        stays = [
            ~removed[start : start + shard.rows] for start, shard in zip(starts, corpus.shards, strict=False)
        ]
        per_shard = float(self.known.manifest.request.get("tokens_per_shard") or ShardLimits.tokens_per_shard)
        writer = ShardWriter(made, corpus.n_words, ShardLimits(per_shard))
        counts = words.document_frequency.copy(), words.term_count.copy()
        before = np.zeros_like(counts[0]), np.zeros_like(counts[1])
        linked: list[ShardEntry] = []
        try:
            for shard, kept in zip(corpus.shards, stays, strict=True):
                if kept.all():
                    _link(corpus.shard_path(shard), made / shard.name)
                    linked.append(entries[shard.name].model_copy(update={"name": Path(shard.name).name}))
                    continue
                for documents in _documents(corpus, shard):
                    count_columns(documents.ids, documents.counts, *before)
                    rows, kept = kept[: documents.n_documents], kept[documents.n_documents :]
                    if rows.any():
                        writer.write(_chosen(documents, rows))
            if self.batch is not None:
                schema = _schema(corpus)
                for shard in self.batch.shards:
                    for documents in _documents(self.batch, shard):
                        writer.write(_conformed(documents, schema))
            written = writer.close()
        finally:
            writer.abort()
        first = 1 + max((int(Path(name).stem.rpartition("-")[2]) for name in entries), default=-1)
        for number, entry in enumerate(written, first):
            name = f"part-{number:05d}.parquet"
            (made / entry.name).rename(made / DOCUMENTS / name)
            linked.append(entry.model_copy(update={"name": name}))
        frequency, tokens = (
            total - old + new
            for total, old, new in zip(
                counts, before, (writer.document_frequency, writer.term_count), strict=True
            )
        )
        files = self._files(stays)
        return linked, files, WordCounts(pa.array(words.words, pa.string()), frequency, tokens)

    def _files(self, stays: Sequence[NDArray[np.bool_]]) -> Any:
        """The files of the corpus: those of shards that stay, of rewritten ones, and of the added documents."""
        table = self.known.files
        owner = np.repeat(np.arange(table.num_rows), np.asarray(table.column("documents")))
        parts = np.split(owner, np.cumsum([len(each) for each in stays])[:-1])
        order = [part for part, kept in zip(parts, stays, strict=True) if kept.all()]
        order += [part[kept] for part, kept in zip(parts, stays, strict=True) if not kept.all()]
        rows = np.concatenate(order)
        starts = np.flatnonzero(np.diff(rows, prepend=-1))
        runs = table.take(pa.array(rows[starts]))
        sizes = pa.array(np.diff(np.append(starts, rows.size)), pa.int64())
        runs = runs.set_column(runs.schema.get_field_index("documents"), SCHEMA.field("documents"), sizes)
        empty = table.filter(pc.equal(table.column("documents"), 0))
        empty = empty.filter(
            pc.invert(
                pc.is_in(empty.column("path"), value_set=pa.array(sorted(self.new | self.gone), pa.string()))
            )
        )
        own = None if self.batch is None else read_table(Path(self.batch.root) / FILES_NAME)
        mine = [] if own is None else [_of(own, self.new)]
        return pa.concat_tables([runs, empty, *mine]).replace_schema_metadata(table.schema.metadata)

    def _changes(self, removed: int, replaced: int, added: int) -> dict[str, float]:
        """The ``CHANGES`` of this run; a document of a changed file counts as changed if its id is the same."""
        known = frozenset(self.known.files.column("path").to_pylist())
        batch = None if self.batch is None else read_manifest(self.batch.root)
        unknown = (
            [] if batch is None else [step.tokens for step in batch.dropped if step.step == "vocabulary"]
        )
        kept = 0 if batch is None else batch.totals.tokens
        tokens = 0.0 if batch is None else float(batch.settings["new_tokens"] or 0)
        values = (
            len(self.new - known), len(self.new & known), len(self.gone), added - replaced, replaced,
            removed - replaced, kept, sum(unknown), tokens,
        )  # fmt: skip
        return dict(zip(CHANGES, values, strict=True))

    def _origin(self, changes: Mapping[str, float], since: str, files: Any) -> Origin:
        """The origin of the grown corpus: read = kept + dropped still holds."""
        manifest = self.known.manifest
        batch = None if self.batch is None else read_manifest(self.batch.root)
        settings: dict[str, Json] = dict(manifest.settings)
        for key in _READ if batch else ():
            settings[key] = as_number(float(settings.get(key) or 0) + float(batch.settings.get(key) or 0))
        if settings.get(SINCE) != since or since == self.known.corpus.fingerprint:
            settings |= {**dict.fromkeys(CHANGES, 0), SINCE: since, NEW_WORDS: ""}
        settings |= {key: as_number(float(settings[key] or 0) + value) for key, value in changes.items()}
        if batch:
            settings[NEW_WORDS] = batch.settings[NEW_WORDS]
        gone = manifest.totals.documents + (batch.totals.documents if batch else 0)
        return Origin(
            _added_up([*manifest.dropped, *(batch.dropped if batch else ())], changes),
            manifest.attribution,
            manifest.source,
            settings,
            {**manifest.request, "grown": fingerprint({"files": files.to_pydict(), "of": gone})},
        )


def _added_up(dropped: Sequence[Dropped], changes: Mapping[str, float]) -> tuple[Dropped, ...]:
    """What each step dropped in all runs, and the documents removed since."""
    gone = int(changes["documents_removed"] + changes["documents_changed"])
    removed = Dropped(step="removed", reason="removed with their files, or replaced", documents=gone)
    found: dict[str, Dropped] = {}
    for step in [*dropped, *([removed] if gone else [])]:
        before = found.get(step.step)
        found[step.step] = (
            step
            if before is None
            else before.model_copy(
                update={
                    name: getattr(before, name) + getattr(step, name)
                    for name in ("words", "documents", "tokens")
                }
            )
        )
    return tuple(found.values())


def _link(path: str, place: Path) -> None:
    try:
        os.link(path, place)
    except OSError:
        shutil.copyfile(path, place)


def _schema(corpus: Corpus) -> Any:
    path = corpus.shard_path(corpus.shards[0])
    with open_parquet(path, path) as file:
        return file.schema_arrow


def _ids(corpus: Corpus) -> Iterator[Any]:
    for shard in corpus.shards:
        path = corpus.shard_path(shard)
        with open_parquet(path, path) as file:
            yield from file.read(["document_id"], use_threads=False).column(0).chunks


def _documents(corpus: Corpus, shard: Shard) -> Iterator[Documents]:
    """Yield the documents of a shard, one row group at a time."""
    path = corpus.shard_path(shard)
    with open_parquet(path, path, sha256=shard.sha256) as file:
        for number in range(file.num_row_groups):
            table = file.read_row_group(number, use_threads=False).combine_chunks()
            columns = {name: table.column(name).combine_chunks() for name in table.column_names}
            bags = checked_bags(columns["ids"], columns["counts"], corpus.n_words, Place(path, number))
            rest = {name: values for name, values in columns.items() if name not in OWN_COLUMNS}
            yield Documents(*bags, columns["document_id"], rest)


def _chosen(documents: Documents, rows: NDArray[np.bool_]) -> Documents:
    lengths, mask = np.diff(documents.indptr), pa.array(rows)
    held = np.repeat(rows, lengths)
    indptr = np.concatenate([[0], np.cumsum(lengths[rows])])
    rest = {name: values.filter(mask) for name, values in documents.metadata.items()}
    ids = documents.document_id.filter(mask)
    return Documents(indptr, documents.ids[held], documents.counts[held], ids, rest)


def _conformed(documents: Documents, schema: Any) -> Documents:
    """The documents with the columns and types of a corpus; those that they lack are null, others are left out."""
    given, n_documents = documents.metadata, documents.n_documents
    columns = {
        field.name: _as_type(given.get(field.name, pa.nulls(n_documents)), field.type, field.name)
        for field in schema
        if field.name not in OWN_COLUMNS
    }
    ids = _as_type(documents.document_id, schema.field("document_id").type, "ids")
    counts = documents.counts.astype(
        schema.field("counts").type.value_type.to_pandas_dtype(), casting="same_kind"
    )
    return replace(documents, document_id=ids, metadata=columns, counts=counts)


def _as_type(values: Any, kind: Any, name: str) -> Any:
    try:
        return values.cast(kind)
    except pa.ArrowInvalid as error:
        raise InputError(
            f"{name} of the added documents are {values.type}, those of the corpus {kind}; correct them, or fit again"
        ) from error
