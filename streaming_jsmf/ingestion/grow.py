"""Make a corpus follow its source: read new and changed files, and remove the documents of those that vanished.

Shards without removed documents stay as they are. The other documents of changed shards, and the added ones, go to new
shards. The corpus is replaced in one step, so an interrupted run changes nothing.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from streaming_jsmf.config import IngestRequest, Vanished
from streaming_jsmf.corpus.footer import Shard, open_parquet
from streaming_jsmf.corpus.format import DOCUMENTS, QUARANTINE_NAME, Corpus, open_corpus, read_manifest
from streaming_jsmf.corpus.manifest import PHRASES, Dropped, Json, Manifest, ShardEntry, as_number
from streaming_jsmf.corpus.records import OWN_COLUMNS, Documents, Place, checked_bags
from streaming_jsmf.corpus.shards import ShardLimits, ShardWriter
from streaming_jsmf.corpus.vocabulary import WordCounts
from streaming_jsmf.corpus.write import Origin, finish_directory
from streaming_jsmf.display import location as located_at
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.fingerprint import fingerprint
from streaming_jsmf.ingestion.files import (
    FILES_NAME,
    SCHEMA,
    UNSETTLED,
    Followed,
    Grown,
    SourceFiles,
    one_row_each,
    ranks,
)
from streaming_jsmf.ingestion.in_memory import located
from streaming_jsmf.ingestion.ingest import run_ingest
from streaming_jsmf.ingestion.job import Ingest
from streaming_jsmf.ingestion.losses import DUPLICATE, REASONS, STEPS, NothingLeftError, warn_of_losses
from streaming_jsmf.ingestion.plan import plan_ingest
from streaming_jsmf.ingestion.readers.listing import NoFilesError
from streaming_jsmf.ingestion.repeats import ENTRIES_NAME, ENTRY, add_ids, packed, read_entries, settled
from streaming_jsmf.ingestion.shards import as_known
from streaming_jsmf.ingestion.tokens.stop_words import LANGUAGES, NONE
from streaming_jsmf.ingestion.tokens.tokenizer import BUILT_IN
from streaming_jsmf.ingestion.words import NEW_TOKENS, NEW_WORDS
from streaming_jsmf.jobs.events import Listener
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.linalg.csr import count_columns
from streaming_jsmf.storage.lock import recover, sole_writer, work_place
from streaming_jsmf.storage.paths import StorePath, exists, make_directory, normalize, store_path
from streaming_jsmf.storage.replace import (
    file_written,
    put_files,
    remove_store,
    store_written,
    temporary_folder,
)
from streaming_jsmf.storage.tables import read_table, write_table

logger = logging.getLogger(__name__)

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

#: Why documents leave a corpus, by the number of their step; 0 if their file has changed or vanished.
_LOST = {
    0: ("removed", "removed with their files"),
    **{step: (STEPS[step], why) for step, why in REASONS.items()},
}


@dataclass
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
        return cls(corpus, read_manifest(str(place)), one_row_each(read_table(path)))

    @property
    def grown(self) -> Grown:
        return Grown.of(self.files, int(self.manifest.settings["documents_read"] or 0))

    @cached_property
    def entries(self) -> NDArray[Any]:
        """An ``ENTRY`` for each document that was read; in corpora of earlier versions, for each that was kept."""
        place = store_path(self.corpus.root, "a corpus")
        if exists(place / ENTRIES_NAME):
            return read_entries(place / ENTRIES_NAME)
        entries = np.zeros(self.corpus.n_documents, ENTRY)
        runs = read_table(place / FILES_NAME)
        numbers = pc.index_in(runs["path"], value_set=self.files["path"].combine_chunks())
        entries["file"] = np.repeat(np.asarray(numbers), np.asarray(runs["documents"]))
        entries["place"] = np.arange(len(entries))
        if not self.grown.numbered:
            add_ids(entries, self._ids(), passages="read_split" in self.manifest.settings)
        return entries

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

    def _ids(self) -> Any:
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

    It has the documents that one ingest of the present files would have. Reads the new and changed files of the source,
    those whose documents come back because others are gone, and the hashes of all ids and documents. Files of other
    sources, and data in memory that were added before, stay. ``reading`` overrides how the corpus was read. The
    settings of the corpus count the changes (``CHANGES``) since the one with the fingerprint ``since``.

    Memory: 100 bytes for each document that was ever read and whose file is there.

    Raises ``InputError`` if the corpus does not record its files, more than half of its documents would vanish (without
    ``vanished``), none would be left, or as ``ingest``.
    """
    recover(place)
    known, added, again = _Known.at(place), place.with_name(f"{place.name}.added"), frozenset[str]()
    with located(source, added if execution.elsewhere else None, numbered=known.grown.numbered) as location:
        request = _as_before(reading or IngestRequest(), known, location.path)
        while True:
            files, plan = SourceFiles(located_at(normalize(location.path)), {}), None
            try:
                plan = plan_ingest(location, added, request, choose=partial(_to_read, known, again))
                files = plan[0].files or files
            except NoFilesError:
                if not files.followed(known.files).vanished.any():
                    raise
            followed = files.followed(known.files)
            _note_moved(place, known, followed)
            gone = followed.vanished & (vanished != "keep")
            _require_few_gone(known, gone, vanished)
            wanted = followed.held & (np.asarray(known.files["wanted"]) > 0)
            unsettled = UNSETTLED in known.files.schema.metadata or wanted.any()
            if not (gone.any() or followed.changed.any() or followed.new or again or unsettled):
                _remove(added)
                return known.corpus
            batch = _Batch.of_nothing(files, known)
            if plan is not None and plan[0].units:
                batch = _read(*plan, batch, known, execution, listener)
            change = _Growing(known, files, followed, gone, again, batch)
            # Documents that lost to others which are gone.
            more = {
                *change.files.filter(pa.array(change.wanted > 0))["path"].to_pylist()
            } & files.states.keys()
            if not more:
                break
            again |= more
    with sole_writer(place):
        made = change.written(place, since)
    _remove(added)
    return made


def _to_read(known: _Known, again: frozenset[str], files: SourceFiles) -> frozenset[str]:
    return files.followed(known.files).new | again


def _note_moved(place: StorePath, known: _Known, followed: Followed) -> None:
    """Record where the files are now: one that is moved first and changed later would be taken for a new one."""
    if followed.table == known.files:
        return
    if not exists(place / ENTRIES_NAME):  # of an earlier version, whose table of files has what is needed
        write_table(place / ENTRIES_NAME, packed(known.entries))
    noted = known.files.schema.metadata
    if (np.argsort(ranks(followed.table)) != np.argsort(ranks(known.files))).any():
        noted = {**noted, UNSETTLED: "True"}
    files = followed.table.replace_schema_metadata(noted)
    with file_written(place / FILES_NAME, overwrite=True) as beside:
        write_table(beside, files)
    known.files = files


def _require_few_gone(known: _Known, gone: NDArray[np.bool_], vanished: Vanished | None) -> None:
    lost, documents = int(np.asarray(known.files["documents"])[gone].sum()), known.corpus.n_documents
    if vanished is None and lost > MOST_VANISHED * documents:
        raise InputError(
            f"the source lacks {gone.sum():,} files with {lost:,} of the {documents:,} documents; to "
            f"remove them, give {option.vanished('remove')}"
        )


def _remove(added: StorePath) -> None:
    """Remove the corpus of the added documents, and what an interrupted run has left of it."""
    for path in (added, work_place(added)):
        remove_store(path, ignore_errors=True)


def _as_before(request: IngestRequest, known: _Known, source: str) -> IngestRequest:
    """Read as the corpus was read, unless the request says otherwise; over the words of the corpus."""
    settings, made, root = known.manifest.settings, known.manifest.request, known.corpus.root
    read: dict[str, Any] = {key[5:]: value for key, value in settings.items() if key.startswith("read_")}
    # The column of the ids is certain once a corpus has them.
    ids = {} if known.grown.guessed_id is None else {"id": known.grown.guessed_id}
    if PHRASES in settings:
        read[PHRASES] = tuple(str(settings[PHRASES]).split("\n"))
    read |= {**ids, **request.read}
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
        read=ids if is_spec else read,
        curation={**rules, "stop_words": ",".join(each for each in stop_words if each in LANGUAGES) or NONE},
        vocabulary=root,
        tokens_per_shard=made.get("tokens_per_shard"),
        on_bad_record="quarantine" if quarantined else "fail",
    )


@dataclass(frozen=True)
class _Batch:
    """What was read: ``entries``, by the number of the file in ``files``, and the corpus, unless nothing was kept."""

    files: Any
    entries: NDArray[Any]
    made: _Known | None = None
    dropped: Sequence[Dropped] = ()
    read: Mapping[str, Json] = field(default_factory=dict)
    quarantine: Sequence[Any] = ()

    @classmethod
    def of_nothing(cls, files: SourceFiles, known: _Known) -> _Batch:
        none = np.zeros(len(files.states), np.int64)
        table = files.table(none, numbered=known.grown.numbered, kinds={})
        return cls(table, np.empty(0, ENTRY))


def _read(
    planned: Ingest, origin: Origin, nothing: _Batch, known: _Known, execution: Execution, listener: Listener
) -> _Batch:
    """Read the files that were chosen; documents that other files or texts replace stay until all are compared."""
    grown, settings = known.grown, known.manifest.settings
    rules: dict[str, Any] = {key: settings[key] for key in _RULES if key in settings}
    before = {"documents_before": grown.documents_read}
    request, arguments = {**origin.request, **before}, {**planned.folder.arguments, **before}
    folder = replace(planned.folder, arguments=arguments, result=fingerprint(request))
    kinds = {**planned.known_kinds, **grown.kinds}
    curation = replace(planned.curation, **rules)
    ids = "" if grown.numbered else str(known.corpus.schema().field("document_id").type)
    planned = replace(planned, curation=curation, folder=folder, grows=grown, known_kinds=kinds, ids=ids)
    origin, execution = replace(origin, request=request), execution.reporting_on("ingest")
    try:
        run_ingest(planned, origin, execution, listener, overwrite=True)
    except NothingLeftError as empty:
        warn_of_losses(empty.dropped, 0, empty.settings.get("tokens_read"))
        entries = np.concatenate([nothing.entries, *empty.entries])
        return _Batch(nothing.files, entries, None, empty.dropped, empty.settings, empty.quarantine)
    made = _Known.at(folder.target)
    if made.grown.numbered != grown.numbered:
        wrong = "ids, and others are numbered" if grown.numbered else "no ids, and others have some"
        raise InputError(f"added documents have {wrong}; use {option.id} as for fit, or fit again")
    bad = _quarantine(folder.target)
    return _Batch(made.files, made.entries, made, made.manifest.dropped, made.manifest.settings, bad)


def _quarantine(corpus: StorePath) -> list[Any]:
    """The bad records of a corpus, as tables."""
    if not exists(corpus / QUARANTINE_NAME):
        return []
    with open_parquet(str(corpus / QUARANTINE_NAME)) as file:
        return [file.read(use_threads=False)]


class _Growing:
    """A corpus with the documents of files that were read, and without those of others.

    Attributes
    ----------
    gone : (files of the corpus,) Whether the file has vanished, and its documents go.
    again : Paths of files that are read again, because other documents lost to theirs, or theirs to others.
    files : The files, of which those that were read come last.
    entries, before, kept : What was and is read of all files, with the steps that leave out documents now; those steps
        before; and whether a document is in the corpus that is written.
    wanted : (files,) Number of documents of each file that lost to others, which are gone, and were not read again.
    """

    def __init__(
        self,
        known: _Known,
        source: SourceFiles,
        followed: Followed,
        gone: NDArray[np.bool_],
        again: frozenset[str],
        batch: _Batch,
    ) -> None:
        self.known, self.followed, self.gone, self.again, self.batch = known, followed, gone, again, batch
        leaving = gone | followed.changed | (followed.held & _has(known.files, again))
        is_read = _has(batch.files, followed.new | again)
        arrival = pa.array(np.full(batch.files.num_rows, source.arrival(known.files)))
        theirs = batch.files.set_column(SCHEMA.get_field_index("arrival"), "arrival", arrival)
        rows = [known.files.filter(pa.array(~leaving)), theirs.filter(pa.array(is_read))]
        self.files = pa.concat_tables([table.replace_schema_metadata(None) for table in rows])
        self.entries = np.concatenate([known.entries, batch.entries])
        numbers = np.where(leaving, -1, np.cumsum(~leaving) - 1)
        added = np.where(is_read, np.cumsum(is_read) - 1 + (~leaving).sum(), -1)
        self.entries["file"] = np.append(numbers[known.entries["file"]], added[batch.entries["file"]])
        settings, self.before = known.manifest.settings, self.entries["step"].copy()
        drop = settings.get("duplicates") == "drop"
        here = self.entries["file"] >= 0
        lost = np.zeros(len(self.entries), np.int64)
        lost[here] = settled(
            self.entries[here], ranks(self.files), by_id=not known.grown.numbered, drop_duplicates=drop
        )
        has_lost, could_stay = np.isin(self.before, [*REASONS]), np.isin(self.before, (0, *REASONS))
        self.entries["step"] = np.where(could_stay & (lost > 0), lost, self.before)
        self.kept = here & (self.before == 0) & (lost == 0)
        wanted = here & has_lost & (lost == 0)
        self.wanted = np.bincount(self.entries["file"][wanted], minlength=self.files.num_rows)

    def written(self, place: StorePath, since: str) -> Corpus:
        """Write the corpus that replaces the one at ``place``."""
        corpus, kept = self.known.corpus, self.kept
        if not kept.any():
            raise InputError(f"{place}: no document would be left; remove the corpus instead")
        if number := int(self.wanted.sum()):
            logger.warning(
                "%d documents that others had replaced cannot be read again, because they are from data in memory or "
                "another source; give these again",
                number,
            )
        every = [
            (made, shard) for made in (self.known, self.batch.made) if made for shard in made.corpus.shards
        ]
        ends = np.cumsum([shard.rows for _, shard in every])
        held = np.split(np.flatnonzero(self.before == 0), ends[:-1])
        parts = [(*each, rows) for each, rows in zip(every, held, strict=True)]
        staying = [part for part in parts if part[0] is self.known and kept[part[2]].all()]
        others = [part for part in parts if not (part[0] is self.known and kept[part[2]].all())]
        with (
            store_written(place, overwrite=True, keep=[shard.name for _, shard, _ in staying]) as made,
            temporary_folder(made if isinstance(made, Path) else None, ".shards-") as folder,
        ):
            names = [Path(shard.name).name for _, shard, _ in staying]
            shards, counts, dropped = self._written_shards(folder, made, names, others)
            order = np.concatenate([rows for *_, rows in (*staying, *others)])
            rest = np.flatnonzero((self.entries["file"] >= 0) & ~kept)
            entries = self.entries[np.concatenate([order[kept[order]], rest])]
            write_table(made / ENTRIES_NAME, packed(entries))
            files = self._files()
            write_table(made / FILES_NAME, files)
            if bad := [*_quarantine(place), *self.batch.quarantine]:
                with file_written(made / QUARANTINE_NAME) as beside:
                    pq.write_table(pa.concat_tables(bad), beside, compression="zstd")
            forms = corpus.vocabulary().forms
            origin = self._origin(dropped, since, files)
            finish_directory(made, shards, counts, origin, None if forms is None else pa.array(forms))
        return open_corpus(str(place))

    def _files(self) -> Any:
        numbers = np.bincount(self.entries["file"][self.kept], minlength=self.files.num_rows)
        files = self.files.drop_columns(["documents", "wanted"])
        for name, column in (("documents", numbers), ("wanted", self.wanted)):
            files = files.append_column(name, pa.array(column, pa.int64()))
        noted = {key: value for key, value in self.known.files.schema.metadata.items() if key != UNSETTLED}
        return files.replace_schema_metadata(noted)

    def _written_shards(
        self,
        folder: Path,
        made: StorePath,
        staying: Sequence[str],
        others: Sequence[tuple[_Known, Shard, Any]],
    ) -> tuple[list[ShardEntry], WordCounts, list[Dropped]]:
        """Write the shards that do not stay, in a local folder first; return all, the counts, and what was lost.

        ``others`` are the shards of both corpora whose documents are written, with the numbers of their entries.
        """
        words = self.known.corpus.vocabulary()
        entries = {Path(entry.name).name: entry for entry in self.known.manifest.shards}
        per_shard = self.known.manifest.request.get("tokens_per_shard") or ShardLimits.tokens_per_shard
        writer = ShardWriter(folder, self.known.corpus.n_words, ShardLimits(per_shard))
        frequency, tokens = words.document_frequency.copy(), words.term_count.copy()
        lost = np.zeros_like(frequency), np.zeros_like(tokens)
        lost_documents, lost_tokens = np.zeros(len(STEPS), np.int64), np.zeros(len(STEPS))
        make_directory(made / DOCUMENTS)
        schema = self.known.corpus.schema()
        try:
            for corpus, shard, rows in others:
                for documents in corpus.documents(shard):
                    mine, rows = rows[: documents.n_documents], rows[documents.n_documents :]
                    stay, leaves = self.kept[mine], mine[~self.kept[mine]]
                    gone = _chosen(documents, ~stay)
                    count_columns(gone.ids, gone.counts, *lost)
                    steps = np.where(self.entries["file"][leaves] < 0, 0, self.entries["step"][leaves])
                    lost_documents += np.bincount(steps, minlength=len(STEPS))
                    lost_tokens += np.bincount(steps, gone.tokens(), minlength=len(STEPS))
                    if stay.any():
                        writer.write(_conformed(_chosen(documents, stay), schema))
            written = writer.close()
        finally:
            writer.abort()
        found = [entries[name].model_copy(update={"name": name}) for name in staying]
        first = 1 + max(int(Path(name).stem.rpartition("-")[2]) for name in entries)
        for number, entry in enumerate(written, first):
            name = f"part-{number:05d}.parquet"
            put_files([(folder / entry.name, made / DOCUMENTS / name)])
            found.append(entry.model_copy(update={"name": name}))
        if self.batch.made:
            new = self.batch.made.corpus.vocabulary()
            frequency, tokens = frequency + new.document_frequency, tokens + new.term_count
        dropped = [
            Dropped(step=step, reason=why, documents=int(lost_documents[i]), tokens=as_number(lost_tokens[i]))
            for i, (step, why) in _LOST.items()
            if lost_documents[i]
        ]
        counts = WordCounts(pa.array(words.words, pa.string()), frequency - lost[0], tokens - lost[1])
        return found, counts, dropped

    def _origin(self, lost: Sequence[Dropped], since: str, files: Any) -> Origin:
        """The origin of the grown corpus: read = kept + dropped still holds."""
        manifest, settings = self.known.manifest, dict[str, Json](self.known.manifest.settings)
        read = dict(self.batch.read)
        if settings.get("duplicates") == "drop":
            read["duplicate_documents"] = int(
                np.sum((self.entries["step"] == DUPLICATE) & (self.before != DUPLICATE))
            )
        changes = self._changes()
        if settings.get(SINCE) != since or since == self.known.corpus.fingerprint:
            settings |= {**dict.fromkeys(CHANGES, 0), SINCE: since, NEW_WORDS: ""}
        settings |= {key: as_number(_number(read, key) + _number(settings, key)) for key in _READ}
        settings[NEW_WORDS] = read.get(NEW_WORDS, settings.get(NEW_WORDS))
        changes[NEW_TOKENS] += int(_number(read, NEW_TOKENS))
        if self.batch.made:
            changes["tokens_added"] += int(self.batch.made.manifest.totals.tokens)
        settings |= {key: as_number(_number(settings, key) + changes[key]) for key in CHANGES}
        request = {**manifest.request, "grown": fingerprint({"files": files.to_pydict()})}
        dropped = _added_up([*manifest.dropped, *self.batch.dropped, *lost])
        return Origin(dropped, manifest.attribution, manifest.source, settings, request)

    def _changes(self) -> Counter[str]:
        """Numbers of files and documents that were added, changed and removed."""
        new, by_id = self.followed.new, not self.known.grown.numbered
        changed = frozenset(self.known.files.filter(pa.array(self.followed.changed))["path"].to_pylist())
        # Which document is which: the order of ids is nearly that of their hashes.
        names = self.entries["order"] if by_id else self.entries["words"][:, 0]
        here = np.arange(len(names)) < len(self.known.entries)
        out, into = (self.before == 0) & ~self.kept & here, self.kept & ~here
        read_again = np.append(
            _has(self.known.files, self.again)[self.known.entries["file"]],
            _has(self.batch.files, self.again)[self.batch.entries["file"]],
        )
        same = int(np.isin(names[out & read_again], names[into & read_again]).sum())
        both = int(np.isin(names[out], names[into]).sum()) if by_id else same
        return Counter(
            files_added=len(new - changed),
            files_changed=len(new & changed),
            files_removed=int(self.gone.sum()) + len(changed - new),
            documents_added=int(into.sum()) - both,
            documents_changed=both - same,
            documents_removed=int(out.sum()) - both,
        )


def _has(files: Any, paths: Collection[str]) -> NDArray[np.bool_]:
    """Mask of the files with these paths."""
    return np.asarray(pc.is_in(files["path"], value_set=pa.array(sorted(paths), pa.string())))


def _number(settings: Mapping[str, Json], key: str) -> float:
    return float(settings.get(key) or 0)


def _added_up(dropped: Sequence[Dropped]) -> tuple[Dropped, ...]:
    """What each step dropped in all runs."""
    found: dict[str, Dropped] = {}
    for step in dropped:
        before = found.get(step.step, Dropped(step=step.step, reason=step.reason))
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
        field.name: as_known(documents.metadata.get(field.name, absent), field.type, field.name)
        for field in schema
        if field.name not in OWN_COLUMNS
    }
    ids = as_known(documents.document_id, schema.field("document_id").type, "ids")
    kind = schema.field("counts").type.value_type.to_pandas_dtype()
    return replace(documents, document_id=ids, metadata=columns, counts=documents.counts.astype(kind))
