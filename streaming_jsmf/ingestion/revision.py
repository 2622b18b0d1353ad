"""The next state of a corpus: its documents, without those that go, and those that were read now."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_jsmf.corpus.bags import Documents, Place, checked_bags
from streaming_jsmf.corpus.footer import open_parquet
from streaming_jsmf.corpus.format import DOCUMENTS, QUARANTINE_NAME, Corpus, open_corpus, read_manifest
from streaming_jsmf.corpus.manifest import Dropped, Json, Manifest, ShardEntry, as_number
from streaming_jsmf.corpus.metadata import OWN_COLUMNS
from streaming_jsmf.corpus.shards import ShardLimits, ShardWriter, link_shards
from streaming_jsmf.corpus.vocabulary import WordCounts
from streaming_jsmf.corpus.write import Origin, finish_directory, without_asked
from streaming_jsmf.errors import InputError
from streaming_jsmf.fingerprint import fingerprint
from streaming_jsmf.ingestion.losses import DUPLICATE, REASONS, STEPS, bad_records, write_quarantine
from streaming_jsmf.ingestion.repeats import ENTRIES_NAME, packed, read_entries, settled
from streaming_jsmf.ingestion.second_pass import as_known
from streaming_jsmf.ingestion.source_files import (
    FILES_NAME,
    NUMBERED,
    SCHEMA,
    Followed,
    SourceFiles,
    ranks,
)
from streaming_jsmf.ingestion.steps import Made
from streaming_jsmf.ingestion.word_choice import NEW_TOKENS, NEW_WORDS
from streaming_jsmf.storage.paths import StorePath, exists, join, store_path
from streaming_jsmf.storage.replace import (
    store_written,
    temporary_folder,
)
from streaming_jsmf.storage.tables import read_table, write_table

logger = logging.getLogger(__name__)

#: Settings of a grown corpus: fingerprint of the corpus that these changes are counted from, and the changes.
SINCE = "grown_since"
CHANGES = (
    *(f"{what}_{how}" for what in ("files", "documents") for how in ("added", "changed", "removed")),
    "tokens_added",
    NEW_TOKENS,
)

_READ = ("documents_read", "nonzeros_read", "tokens_read", "duplicate_documents")

#: Why documents leave a corpus, by the number of their step; 0 if their file has changed or vanished.
_LOST = {
    0: ("removed", "removed with their files"),
    **{step: (STEPS[step], why) for step, why in REASONS.items()},
}


@dataclass
class Known:
    """A corpus that can grow: its manifest, and the ``files`` that it was made of."""

    corpus: Corpus
    manifest: Manifest
    files: Any

    @classmethod
    def at(cls, place: StorePath) -> Known:
        corpus = open_corpus(str(place))
        if not all(exists(place / name) for name in (FILES_NAME, ENTRIES_NAME)):
            raise InputError(
                f"{place}: does not record the files that it was made of, so it cannot grow; make it again with fit"
            )
        return cls(corpus, read_manifest(str(place)), read_table(place / FILES_NAME))

    @property
    def numbered(self) -> bool:
        """Whether documents are numbered, because they have no ids."""
        return bool(self.files.schema.metadata[NUMBERED] == b"True")

    @cached_property
    def entries(self) -> NDArray[Any]:
        """An ``ENTRY`` for each document that was read."""
        return read_entries(store_path(self.corpus.root, "a corpus") / ENTRIES_NAME)


class _Held(NamedTuple):
    """A shard, and the numbers of the entries of its documents."""

    path: str
    entry: ShardEntry
    rows: NDArray[np.int64]
    is_known: bool

    def documents(self, n_words: int) -> Iterator[Documents]:
        """Yield its documents, one row group at a time."""
        with open_parquet(self.path, sha256=self.entry.sha256) as file:
            for number in range(file.num_row_groups):
                table = file.read_row_group(number, use_threads=False)
                columns = {name: table.column(name).combine_chunks() for name in table.column_names}
                bags = checked_bags(columns["ids"], columns["counts"], n_words, Place(self.path, number))
                rest = {name: values for name, values in columns.items() if name not in OWN_COLUMNS}
                yield Documents(bags, columns["document_id"], rest)


class Revision:
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
        known: Known,
        source: SourceFiles,
        followed: Followed,
        gone: NDArray[np.bool_],
        again: frozenset[str],
        added: Made | None,
    ) -> None:
        self.known, self.followed, self.gone, self.again, self.added = known, followed, gone, again, added
        leaving = gone | followed.changed | (followed.held & _has(known.files, again))
        numbers = np.where(leaving, -1, np.cumsum(~leaving) - 1)
        rows, entries = [known.files.filter(pa.array(~leaving))], [known.entries.copy()]
        entries[0]["file"] = numbers[known.entries["file"]]
        is_again = [_has(known.files, again)[known.entries["file"]]]
        if added is not None:
            theirs = added.files(np.zeros(len(source.states), np.int64))
            is_read = _has(theirs, followed.new | again)
            arrival = pa.array(np.full(theirs.num_rows, source.arrival(known.files)))
            theirs = theirs.set_column(SCHEMA.get_field_index("arrival"), "arrival", arrival)
            rows.append(theirs.filter(pa.array(is_read)))
            later = np.where(is_read, np.cumsum(is_read) - 1 + (~leaving).sum(), -1)
            for read in added.entries():
                is_again.append(_has(theirs, again)[read["file"]])
                read["file"] = later[read["file"]]
                entries.append(read)
        self.files = pa.concat_tables([table.replace_schema_metadata(None) for table in rows])
        self.entries, self._is_again = np.concatenate(entries), np.concatenate(is_again)
        settings, self.before = known.manifest.settings, self.entries["step"].copy()
        drop = settings.get("duplicates") == "drop"
        here = self.entries["file"] >= 0
        lost = np.zeros(len(self.entries), np.int64)
        lost[here] = settled(
            self.entries[here], ranks(self.files), by_id=not known.numbered, drop_duplicates=drop
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
        every = self._shards()
        staying = [held for held in every if held.is_known and kept[held.rows].all()]
        others = [held for held in every if not (held.is_known and kept[held.rows].all())]
        names = [Path(held.path).name for held in staying]
        with (
            store_written(place, overwrite=True, keep=[f"{DOCUMENTS}/{name}" for name in names]) as made,
            temporary_folder(made if isinstance(made, Path) else None, ".shards-") as folder,
        ):
            shards, counts, dropped = self._written_shards(folder, made, staying, others)
            order = np.concatenate([held.rows for held in (*staying, *others)])
            rest = np.flatnonzero((self.entries["file"] >= 0) & ~kept)
            entries = self.entries[np.concatenate([order[kept[order]], rest])]
            write_table(made / ENTRIES_NAME, packed(entries))
            files = self._files()
            write_table(made / FILES_NAME, files)
            write_quarantine(made, self._quarantined(place))
            forms = corpus.vocabulary().forms
            origin = self._origin(dropped, since, files)
            finish_directory(made, shards, counts, origin, None if forms is None else pa.array(forms))
        return open_corpus(str(place))

    def _shards(self) -> list[_Held]:
        """The shards of the corpus, and those that were added."""
        corpus, added = self.known.corpus, self.added
        shards = sorted(self.known.manifest.shards, key=lambda entry: entry.name)
        found = [(join(corpus.root, entry.name), entry, True) for entry in shards]
        if added is not None:
            found += [(str(path), entry, False) for path, entry in added.parts()]
        ends = np.cumsum([entry.rows for _, entry, _ in found])
        rows = np.split(np.flatnonzero(self.before == 0), ends[:-1])
        return [
            _Held(path, entry, held, known) for (path, entry, known), held in zip(found, rows, strict=True)
        ]

    def _quarantined(self, place: StorePath) -> Iterator[Any]:
        """Yield the bad records of the corpus and of what was added."""
        if exists(place / QUARANTINE_NAME):
            with open_parquet(str(place / QUARANTINE_NAME)) as file:
                yield file.read(use_threads=False)
        if self.added is not None:
            yield from bad_records(self.added.ingest)

    def _files(self) -> Any:
        numbers = np.bincount(self.entries["file"][self.kept], minlength=self.files.num_rows)
        files = self.files.drop_columns(["documents", "wanted"])
        for name, column in (("documents", numbers), ("wanted", self.wanted)):
            files = files.append_column(name, pa.array(column, pa.int64()))
        return files.replace_schema_metadata(self.known.files.schema.metadata)

    def _written_shards(
        self, folder: Path, made: StorePath, staying: Sequence[_Held], others: Sequence[_Held]
    ) -> tuple[list[ShardEntry], WordCounts, list[Dropped]]:
        """Write the shards that do not stay, in a local folder first; return all, the counts, and what was lost."""
        words, n_words = self.known.corpus.vocabulary(), self.known.corpus.n_words
        per_shard = self.known.manifest.request.get("tokens_per_shard") or ShardLimits.tokens_per_shard
        writer = ShardWriter(folder, n_words, ShardLimits(per_shard))
        frequency, tokens = words.document_frequency.copy(), words.term_count.copy()
        lost = np.zeros_like(frequency), np.zeros_like(tokens)
        lost_documents, lost_tokens = np.zeros(len(STEPS), np.int64), np.zeros(len(STEPS))
        schema, left_out = self.known.corpus.schema(), set[str]()
        try:
            for held in others:
                rows = held.rows
                for documents in held.documents(n_words):
                    mine, rows = rows[: documents.n_documents], rows[documents.n_documents :]
                    stay, leaves = self.kept[mine], mine[~self.kept[mine]]
                    gone = documents.take(~stay)
                    gone.bags.count_words(*lost)
                    steps = np.where(self.entries["file"][leaves] < 0, 0, self.entries["step"][leaves])
                    lost_documents += np.bincount(steps, minlength=len(STEPS))
                    lost_tokens += np.bincount(steps, gone.bags.tokens(), minlength=len(STEPS))
                    left_out |= documents.metadata.keys() - {*schema.names}
                    if stay.any():
                        writer.write(_conformed(documents.take(stay), schema))
            written = writer.close()
        finally:
            writer.abort()
        if left_out:
            logger.warning(
                "left out of the added documents, because the corpus has no such columns: %s; fit again to keep them",
                ", ".join(sorted(left_out)),
            )
        found = [held.entry.model_copy(update={"name": Path(held.path).name}) for held in staying]
        last = max(int(Path(entry.name).stem.rpartition("-")[2]) for entry in self.known.manifest.shards)
        found += link_shards([(folder / entry.name, entry) for entry in written], made, last + 1)
        if self.added is not None and self.added.shards:
            new = self.added.totals
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
        read = dict[str, Json]({} if self.added is None else self.added.read)
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
        changes["tokens_added"] += sum(int(held.entry.tokens) for held in self._shards() if not held.is_known)
        settings |= {key: as_number(_number(settings, key) + changes[key]) for key in CHANGES}
        request = {**without_asked(manifest.request), "grown": fingerprint({"files": files.to_pydict()})}
        dropped = _added_up([*manifest.dropped, *(self.added.dropped if self.added else ()), *lost])
        return Origin(dropped, manifest.attribution, manifest.source, settings, request)

    def _changes(self) -> Counter[str]:
        """Numbers of files and documents that were added, changed and removed."""
        new, by_id = self.followed.new, not self.known.numbered
        changed = frozenset(self.known.files.filter(pa.array(self.followed.changed))["path"].to_pylist())
        # Which document is which: the order of ids is nearly that of their hashes.
        names = self.entries["order"] if by_id else self.entries["words"][:, 0]
        here = np.arange(len(names)) < len(self.known.entries)
        out, into = (self.before == 0) & ~self.kept & here, self.kept & ~here
        same = int(np.isin(names[out & self._is_again], names[into & self._is_again]).sum())
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
    bags = replace(documents.bags, counts=documents.bags.counts.astype(kind))
    return Documents(bags, ids, columns)
