"""The first pass: read groups of units into pieces, and summarize what the choice of ids, words and types needs.

A piece is a file of bags over its own words, the counts of these words, and the keys of its documents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_jsmf.config import AUTO, EXCERPT
from streaming_jsmf.corpus.bags import Bags
from streaming_jsmf.corpus.hashes import hash_values
from streaming_jsmf.corpus.shards import TOKENS_PER_SHARD
from streaming_jsmf.corpus.totals import summed
from streaming_jsmf.corpus.vocabulary import used_counts
from streaming_jsmf.ingestion.columns import ColumnSummary, summarize
from streaming_jsmf.ingestion.job import WORDS, Group, Ingest, Piece, group_units
from streaming_jsmf.ingestion.losses import save_bad
from streaming_jsmf.ingestion.repeats import (
    KEY,
    contents_keys,
    identity_keys,
    packed,
)
from streaming_jsmf.ingestion.sources.protocol import BadRecords, Batch, Unit
from streaming_jsmf.ingestion.tokens.stop_words import count_languages, parts_of, sampled
from streaming_jsmf.ingestion.word_choice import FORMS
from streaming_jsmf.jobs.checkpoints import Record
from streaming_jsmf.jobs.execution import Executor
from streaming_jsmf.jobs.workspace import TaskFiles
from streaming_jsmf.linalg.panels import panel_threads
from streaming_jsmf.storage.paths import child_names
from streaming_jsmf.storage.tables import checked, opened, own_file, write_checked, write_table

_SAMPLE = 1000  # documents whose languages are counted together
_SCATTERED = "scattered"
_LISTS = "codes", "counts"
_METADATA = "metadata "  # prefix that separates user columns from our own


@dataclass
class Contents:
    """What was read from a group of units, or from all of them.

    Attributes
    ----------
    rows : Number of records of each unit, good and bad.
    bad : Number of bad records.
    boilerplate : Number of documents from which boilerplate was removed, and of the tokens removed.
    columns : Summary of each column of metadata, and of the column that was guessed to hold the ids.
    notes : By column, a line on what was repaired or left out.
    id_types : Types of the ids.
    id_faults : Number of values of the guessed column that cannot be ids, by reason.
    languages : Numbers of a sample of documents by language (``stop_words.count_languages``).
    """

    rows: list[int] = field(default_factory=list)
    bad: int = 0
    boilerplate: tuple[int, int] = (0, 0)
    columns: dict[str, ColumnSummary] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    id_types: list[str] = field(default_factory=list)
    id_faults: Counter[str] = field(default_factory=Counter)
    languages: Counter[str] = field(default_factory=Counter)

    def add(self, batch: Batch, guessed_id: str | None, date_format: str | None) -> None:
        """Add what a batch has."""
        held, ids = dict(batch.metadata), batch.document_id
        self.id_faults += batch.id_faults
        if ids is not None:
            self.id_types = sorted({*self.id_types, str(ids.type)})
            if guessed_id is not None:
                held[guessed_id] = ids
        for name, values in held.items():
            values = pa.nulls(len(values)) if name == EXCERPT else values
            self.columns[name] = summarize(values, date_format, self.columns.get(name))
        self._note(batch)

    def join(self, other: Contents) -> None:
        """Add what the next group has."""
        self.rows += other.rows
        self.bad += other.bad
        self.id_types = sorted({*self.id_types, *other.id_types})
        self.id_faults += other.id_faults
        self.languages += other.languages
        for name, summary in other.columns.items():
            self.columns[name] = summary.joined(self.columns.get(name))
        self._note(other)

    def _note(self, other: Batch | Contents) -> None:
        self.notes = {**other.notes, **self.notes}
        changed, removed = other.boilerplate
        self.boilerplate = self.boilerplate[0] + changed, self.boilerplate[1] + removed

    def to_record(self) -> dict[str, Any]:
        """Return JSON values; see ``from_record``."""
        # Not a dictionary, because records are sorted by key.
        return {**vars(self), "columns": [*self.columns.items()]}

    @classmethod
    def from_record(cls, fields: Mapping[str, Any]) -> Contents:
        columns = {name: ColumnSummary(*each) for name, each in fields["columns"]}
        counted = {name: Counter(fields[name]) for name in ("id_faults", "languages")}
        return cls(**{**fields, **counted, "columns": columns})


def read_source(ingest: Ingest, executor: Executor) -> tuple[list[Piece], Contents]:
    """Step: read all documents of the source into pieces.

    Makes one pass over the source, or two over the rows of a shuffled source, whose documents are gathered from all
    units by bucket.
    """
    units, contents = ingest.units, Contents()
    if ingest.words is not None:
        write_table(ingest.root / WORDS, pa.table({"word": pa.array(ingest.words, pa.string())}))
    groups = group_units(units)
    if n_buckets := ingest.buckets:
        scattered = [Group(i, i, (unit,)) for i, unit in enumerate(units)]
        contents.bad = sum(
            record["bad"] for record in ingest.run(executor, "scatter", scatter_unit, scattered)
        )
        size = sum(unit.size for unit in units) // n_buckets
        groups = [Group(b, b, (Unit(units[0].path, b, b + 1, size),)) for b in range(n_buckets)]
    records = ingest.run(executor, "read", read_group, groups)
    for record in records:
        contents.join(Contents.from_record(record["contents"]))
    first_rows = [0, *accumulate(contents.rows)]
    pieces: list[Piece] = []
    for group, record in zip(groups, records, strict=True):
        of_group = tuple(first_rows[group.first : group.first + len(group.units)])
        for number, piece in enumerate(record["pieces"]):
            pieces.append(Piece(len(pieces), group, number, of_group, **piece))
    return pieces, contents


def scatter_unit(ingest: Ingest, group: Group) -> Record:
    """Task: distribute the rows of the unit of a shuffled source to buckets."""
    [unit] = group.units
    bad = BadRecords(ingest.on_bad_record, unit, ingest.source.place)
    files, name = TaskFiles(ingest.root, _SCATTERED), f"{group.index:05d}"
    with files.local() as directory:
        ingest.source.scatter(unit, bad, directory / f"{name}.arrow", ingest.buckets)
        n_bad = save_bad(directory / f"{name}.bad", ingest, [(unit, record) for record in bad.records])
    return {"bad": n_bad, **files.record()}


def read_group(ingest: Ingest, group: Group) -> Record:
    """Task: read the units of a group into pieces, in one pass."""
    files = TaskFiles(ingest.root, group.directory)
    contents, pieces = Contents(), list[Mapping[str, float]]()
    with files.local() as directory, panel_threads(ingest.threads):
        batches = _batches(ingest, group, contents, directory)
        for first in batches:
            with closing(PieceWriter(ingest, directory / f"{len(pieces):04d}")) as writer:
                for unit, batch in chain([first], batches):
                    writer.add(unit, batch)
                    if writer.tokens >= max(TOKENS_PER_SHARD, ingest.tokens_per_shard):
                        break
                writer.finish()
            pieces.append(writer.sizes)
            contents.languages += writer.languages
    return {"pieces": pieces, "contents": contents.to_record(), **files.record()}


def _batches(
    ingest: Ingest, group: Group, contents: Contents, directory: Path
) -> Iterator[tuple[int, Batch]]:
    """Yield all batches of a group by unit; adds what they have to ``contents``, and saves bad records."""
    date_format = getattr(ingest.source.options, "date_format", None)
    for number, unit in group.numbered():
        bad, n_records = BadRecords(ingest.on_bad_record, unit, ingest.source.place), 0
        for batch in _documents(ingest, number, unit, bad):
            n_records += batch.n_records
            contents.add(batch, ingest.guessed_id, date_format)
            yield number, batch
        if ingest.source.refuses_documents:
            n_records += sum(record.row is not None for record in bad.records)
        contents.rows.append(n_records)
        place = directory / f"{number:06d}.bad"
        contents.bad += save_bad(place, ingest, [(unit, record) for record in bad.records])


def _documents(ingest: Ingest, number: int, unit: Unit, bad: BadRecords) -> Iterator[Batch]:
    """Yield the documents of a unit, or of the bucket with this number."""
    if ingest.buckets:
        folder = ingest.root / _SCATTERED
        names = sorted(name for name in child_names(folder) if name.endswith(".arrow"))
        batches = ingest.source.gather([folder / name for name in names], number, ingest.buckets, bad)
    else:
        batches = ingest.source.read(unit, bad)
    return (batch for batch in batches if batch.n_documents)


class PieceWriter:
    """Write batches of a source as files with the path prefix ``stem``: bags, word counts, keys.

    Words are numbered as in the vocabulary of the source, or else in order of appearance.
    """

    def __init__(self, ingest: Ingest, stem: Path) -> None:
        self._stem = stem
        self._passages = ingest.source.tokenizer.options.split is not None
        self._file: Any = None
        self._stream: Any = None
        self._schema: Any = None
        self._words = ingest.vocabulary_of_source()
        self._hashes = hash_values(self._words)
        self._n_words = 0  # that occur
        self._document_frequency = np.zeros(len(self._words), np.int64)
        self._term_count = np.zeros(len(self._words), np.float64)
        self._keys: dict[str, list[NDArray[Any]]] = {"contents": [], "identities": []}
        self._sample: list[Bags] = []
        # A table of the forms of words that are stemmed.
        self._forms = None if ingest.source.tokenizer.options.stemmer is None else FORMS.empty_table()
        self._detects = AUTO in parts_of(ingest.curation.stop_words)
        self.languages = Counter[str]()
        self.documents = self.nonzeros = 0
        self.tokens = 0.0

    def add(self, unit: int, batch: Batch) -> None:
        """Add a batch of the unit with number ``unit``."""
        if batch.bags.words is not None:
            batch = replace(batch, bags=batch.bags.mapped(self._numbers(batch.bags.words)))
        bags = batch.bags
        bags.count_words(self._document_frequency, self._term_count)
        self._add_keys(unit, batch)
        if self._forms is not None and batch.forms is not None:
            self._forms = summed(pa.concat_tables([self._forms, batch.forms]), "form")
        if self._detects:
            # Fewer of later batches suffice; small ones are read whole.
            large = self.documents and batch.n_documents > _SAMPLE
            self._sample.append(sampled(bags, 0.25 if large else 1))
            if sum(len(sample.indptr) for sample in self._sample) >= _SAMPLE:
                self._count_languages()
        self._write(unit, batch)
        self.documents += batch.n_documents
        self.nonzeros += len(bags.ids)
        self.tokens += float(bags.counts.sum(dtype=np.float64))

    @property
    def sizes(self) -> dict[str, float]:
        """Fields of ``Piece``."""
        sizes = {"documents": self.documents, "nonzeros": self.nonzeros, "tokens": self.tokens}
        return {**sizes, "words": self._n_words}

    def finish(self) -> None:
        """Write what all batches together have."""
        self._count_languages()
        counts = used_counts(self._document_frequency, self._term_count)
        words = self._words.take(counts.column("id").combine_chunks())
        counts = counts.append_column("word", words).sort_by("word")
        write_table(self._stem.with_suffix(".words"), counts)
        if self._forms is not None:
            write_table(self._stem.with_suffix(".forms"), self._forms)
        for kind, parts in self._keys.items():
            keys = np.concatenate([np.empty(0, KEY), *parts])
            write_table(self._stem.with_suffix(f".{kind}"), packed(keys))
        self._n_words = counts.num_rows

    def close(self) -> None:
        for sink in (self._stream, self._file):
            if sink is not None:
                sink.close()

    def _count_languages(self) -> None:
        if self._sample:
            self.languages += count_languages(Bags.concatenated(self._sample, self._words))
            self._sample.clear()

    def _numbers(self, words: Any) -> NDArray[np.int32]:
        """Return the numbers of words in the piece, to which new ones are added."""
        words = words.cast(pa.string())
        known = pc.index_in(words, value_set=self._words)
        new = np.asarray(known.is_null())
        numbers: NDArray[np.int32] = np.asarray(known.fill_null(0)).astype(np.int32)
        numbers[new] = len(self._words) + np.arange(new.sum())
        if new.any():
            added = words.filter(pa.array(new))
            self._words = pa.concat_arrays([self._words, added])
            self._hashes = np.concatenate([self._hashes, hash_values(added)])
            self._document_frequency = np.append(self._document_frequency, np.zeros(len(added), np.int64))
            self._term_count = np.append(self._term_count, np.zeros(len(added)))
        return numbers

    def _add_keys(self, unit: int, batch: Batch) -> None:
        keys = np.zeros(batch.n_documents, KEY)
        keys["ordinal"] = self.documents + np.arange(batch.n_documents)
        keys["unit"], keys["row"] = unit, batch.rows
        if batch.document_id is not None and not batch.id_faults:
            ids = batch.document_id
            keys = identity_keys(keys, ids, passages=self._passages)
            self._keys["identities"].append(keys)
        self._keys["contents"].append(contents_keys(keys, batch.bags, self._hashes))

    def _write(self, unit: int, batch: Batch) -> None:
        numbers = batch.rows if batch.numbers is None else batch.numbers
        columns = {
            **dict(zip(_LISTS, batch.bags.lists(), strict=True)),
            "unit": pa.array(np.full(batch.n_documents, unit, np.int64)),
            "row": pa.array(np.asarray(batch.rows, np.int64)),
            "number": pa.array(np.asarray(numbers, np.int64)),
        }
        if batch.document_id is not None:
            columns["document_id"] = batch.document_id
        columns.update({f"{_METADATA}{name}": array for name, array in batch.metadata.items()})
        record = pa.record_batch(columns)
        if self._file is None:
            self._file = pa.OSFile(str(self._stem.with_suffix(".bags")), "wb")
        if record.schema != self._schema:
            # The file has a stream for each run of batches with the same columns.
            if self._stream is not None:
                self._stream.close()
            self._schema = record.schema
            # Compression would cost more than writing and reading the file.
            self._stream = pa.ipc.new_stream(self._file, record.schema)
        write_checked(self._stream, record)


def piece_batches(ingest: Ingest, piece: Piece) -> Iterator[tuple[int, Batch]]:
    """Yield unit number and good documents of a piece, with codes over its words; ``StoreError`` if damaged."""
    path = ingest.root / piece.file("bags")
    with own_file(path), opened(path) as file:
        for record in _records(file):
            names = record.schema.names
            batch = Batch(
                Bags.of_lists(*(record.column(name) for name in _LISTS)),
                record.column("document_id") if "document_id" in names else None,
                {name[len(_METADATA) :]: record.column(name) for name in names if name.startswith(_METADATA)},
                rows=np.asarray(record.column("row")),
                numbers=np.asarray(record.column("number")),
            )
            yield record.column("unit")[0].as_py(), batch


def _records(file: Any) -> Iterator[Any]:
    """Yield the record batches of all streams of a file."""
    while file.tell() < file.size():
        with pa.ipc.open_stream(file) as stream, suppress(StopIteration):
            while True:
                yield checked(stream.read_next_batch_with_custom_metadata())
