"""The adapter from records to documents: text, id, metadata, excerpts, passages, tokens and bad records."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_jsmf.config import EXCERPT
from streaming_jsmf.corpus.footer import is_list, is_string
from streaming_jsmf.corpus.metadata import free_name
from streaming_jsmf.ingestion.sources.doubts import doubts
from streaming_jsmf.ingestion.sources.matrices import BAGS, bags_of, list_faults
from streaming_jsmf.ingestion.sources.protocol import (
    BadRecords,
    Batch,
    Format,
    Reader,
    Records,
    Source,
    Unit,
    UnreadableError,
)
from streaming_jsmf.ingestion.sources.values import (
    as_characters,
    as_json,
    encoding_hint,
    holds_strings,
    invalid_rows,
    is_text,
    mended,
    require_columns,
    storable,
    without_surrogates,
)
from streaming_jsmf.ingestion.tokens.split import count_codes
from streaming_jsmf.ingestion.tokens.stop_words import ENGLISH, languages_of
from streaming_jsmf.linalg.panels import each
from streaming_jsmf.validation import is_utf8

_LARGEST_ID = 2**63 - 1


class RecordFiles(Reader):
    """Base of readers of files, each of which has a format."""

    @abstractmethod
    def format(self, path: str) -> Format:
        """Return the format of a file. Raises UnreadableError if it is unknown."""

    def format_of(self, unit: Unit) -> Format:
        """Return the format of a unit."""
        return self.format(unit.path)

    def parts(self, path: str) -> Sequence[Unit]:
        return self.format(path).units(path, self.options)

    def beginning(self, unit: Unit) -> Unit:
        return self.format_of(unit).beginning(unit)

    def place(self, unit: Unit, row: int) -> str:
        return self.format_of(unit).place(unit, row)

    def first_row(self, unit: Unit) -> int:
        return self.format_of(unit).first_row(unit)

    @property
    def required(self) -> Sequence[str]:
        """The columns that each file must have."""
        return ()

    @property
    def wanted(self) -> Collection[str] | None:
        """The columns that are read; None for all."""
        return None

    def of_path(self, path: str) -> Mapping[str, str | None]:  # noqa: ARG002
        """Return values of columns that the path of a file gives."""
        return {}

    def records(self, unit: Unit, bad: BadRecords) -> Iterator[Records]:
        """As of ``TextReader``."""
        form, added, required = self.format_of(unit), self.of_path(unit.path), self.required
        for records in form.records(unit, self.options, bad, self.wanted):
            if not records.columns.keys() >= {*required}:
                require_columns(required, form.names(unit.path, self.options))
            n = len(records.rows)
            more = {name: pa.array([value] * n, pa.string()) for name, value in added.items()}
            yield replace(records, columns={**more, **records.columns})


class RecordReader(Source):
    """Base of the readers of records. All columns but the contents and the id become metadata, if options say so."""

    @property
    @abstractmethod
    def contents(self) -> tuple[str, ...]:
        """The columns that hold the words."""

    def usable(self, records: Records, faults: Mapping[int, str], bad: BadRecords) -> Records:
        """Return the records without ``faults``, by index, whose id can be used; the others go to ``bad``."""
        if self.id_column is not None and self.id_was_named:
            faults = {**id_faults(self.id_column, records.columns[self.id_column]), **faults}
        faults = {**headers_again(records.columns), **faults}
        if not faults:
            return records
        original = original_of(records)
        if records.original is not None:
            texts = {i: original(i).decode("utf-8", "surrogateescape") for i in faults}
            faults = {i: f"{why}{encoding_hint() * (not is_utf8(texts[i]))}" for i, why in faults.items()}
        good = bad.refuse_rows(records.rows, faults, original)
        of_good = {name: each.filter(pa.array(good)) for name, each in records.columns.items()}
        return Records(records.rows[good], of_good)

    def metadata(self, columns: Mapping[str, Any]) -> tuple[Any, dict[str, Any], dict[str, str]]:
        """Return the ids, the metadata that a corpus can hold, and what was changed to that end."""
        asked = getattr(self.options, "metadata", "all")
        kept: dict[str, Any] = {}
        notes: dict[str, str] = {}
        for given, values in columns.items():
            if given in self.contents or not (given == self.id_column or asked == "all" or given in asked):
                continue
            name = as_characters(given.encode("utf-8", "surrogatepass"))
            stored, note = storable(name, values)
            if name != given:
                note = f"{name}: its name had characters that are not UTF-8"
            if note:
                notes[name] = note
            if stored is not None:
                kept.setdefault(name, stored)
        if self.id_column is None:
            return None, kept, notes
        ids = kept.pop(self.id_column, None)
        if ids is None or pa.types.is_null(ids.type):
            ids = pa.nulls(len(next(iter(columns.values()))), pa.string())
        elif self.id_was_named:
            ids = ids.cast(pa.int64() if pa.types.is_integer(ids.type) else pa.string())
        return ids, kept, notes

    def bags(self, records: Records, bad: BadRecords) -> Batch:
        """Return the documents of records that are bags of words (``matrices.BAGS``)."""
        good = self.usable(records, list_faults(records), bad)
        bags, kept = bags_of(good, bad)
        ids, metadata, notes = self.metadata({n: v for n, v in good.columns.items() if n not in BAGS})
        batch = Batch(bags, ids, metadata, rows=good.rows, notes=notes).take(kept)
        return replace(batch, bags=batch.bags.narrow())


class TextReader(RecordReader):
    """Base of the readers of texts: a subclass yields records, and says which columns hold the text and the id."""

    stop_words = ENGLISH

    @property
    def contents(self) -> tuple[str, ...]:
        """The columns of the text, which are joined by line ends."""
        return ("text",)

    @abstractmethod
    def records(self, unit: Unit, bad: BadRecords) -> Iterator[Records]:
        """Yield the records of a unit, at most about ``BATCH_BYTES`` at a time; bad ones go to ``bad``.

        Raises UnreadableError for a fault of the whole file, such as a missing column of the text.
        """

    def read(self, unit: Unit, bad: BadRecords) -> Iterator[Batch]:
        # Bad records are found in the order of the file, and the tokens of several batches at the same time.
        documents = (self._documents(records, bad) for records in self.records(unit, bad))
        with bad.unreadable_file():
            yield from numbered(each(lambda make: make(), documents), bad)

    def _documents(self, records: Records, bad: BadRecords) -> Callable[[], Batch]:
        """Return the function that makes a batch of the records that can be used; the others go to ``bad``."""
        kinds = [values.type for name, values in records.columns.items() if name in BAGS]
        if self.contents == BAGS[:1] and len(kinds) == len(BAGS) and all(map(is_list, kinds)):
            batch = self.bags(records, bad)
            return lambda: batch
        return partial(self._batch, *self._good(records, bad))

    def texts(self, unit: Unit, bad: BadRecords) -> Iterator[Any]:
        """Yield the texts alone, as Arrow arrays without nulls."""
        with bad.unreadable_file():
            for records in self.records(unit, bad):
                columns = self._good(records, bad)[0].columns
                yield joined([columns[name] for name in self.contents])

    def _good(self, records: Records, bad: BadRecords) -> tuple[Records, dict[str, str]]:
        """Return the records whose text and id can be used, and what was repaired; the others go to ``bad``."""
        columns = {name: records.columns[name] for name in self.contents}
        require_texts(columns)
        notes: dict[str, str] = {}
        faults: dict[int, str] = {}
        for name, values in columns.items():
            if invalid := invalid_rows(values):
                columns[name] = mended(values, without_surrogates)
                wrong = invalid_rows(columns[name])
                faults |= dict.fromkeys(wrong, f"{name} holds a byte that is not UTF-8")
                if len(wrong) < len(invalid):
                    notes[name] = f"{name}: lone surrogates are replaced by U+FFFD"
        records = replace(records, columns={**records.columns, **columns})
        return self.usable(records, faults, bad), notes

    def _batch(self, records: Records, repaired: Mapping[str, str]) -> Batch:
        columns, rows = records.columns, records.rows
        texts = joined([columns[name] for name in self.contents])
        tokens = self.tokenizer(texts)
        ids, metadata, notes = self.metadata(columns)
        if tokens.texts is not None:
            rows, index = rows[tokens.texts], pa.array(tokens.texts)
            if (name := self.id_column) is not None:
                metadata[name] = ids
                ids = passage_ids(ids.take(index), tokens.texts)
            metadata = {name: values.take(index) for name, values in metadata.items()}
        if tokens.excerpts is not None:
            given = metadata.get(EXCERPT, pa.nulls(len(rows), pa.string()))
            # A column of the source with this name stays.
            metadata[EXCERPT] = pc.coalesce(given, tokens.excerpts) if holds_strings(given.type) else given
        bags = count_codes(tokens)
        if getattr(self.options, "language_column", False):
            metadata[free_name("language", metadata)] = languages_of(bags)
        notes = {**repaired, **notes, **doubts(texts)}
        return Batch(
            bags,
            ids,
            metadata,
            rows=rows,
            notes=notes,
            boilerplate=tokens.boilerplate,
            forms=tokens.forms,
        )


def original_of(records: Records) -> Callable[[int], bytes]:
    """Return the function from the index of a record to its bytes, for the quarantine."""
    return records.original or partial(as_json, pa.record_batch(dict(records.columns)))


def numbered(batches: Iterable[Batch], bad: BadRecords) -> Iterator[Batch]:
    """Add the numbers of the records to the batches of a unit; bad ones are in ``bad`` before their batch is."""
    n_good = n_bad = 0
    for batch in batches:
        rows, of_documents = np.unique(batch.rows, return_inverse=True)
        refused = [each.row for each in bad.records[n_bad:] if each.row is not None]
        before = n_bad + np.searchsorted(refused, rows)
        yield replace(batch, numbers=(n_good + np.arange(len(rows)) + before)[of_documents])
        n_good, n_bad = n_good + len(rows), int(np.append(n_bad, before)[-1])


def passage_ids(documents: Any, index: NDArray[np.int64]) -> Any:
    """Return ids ID/1, ID/2, ... of passages: ``documents`` has the ids of their documents, ``index`` is sorted."""
    numbers = np.arange(len(index)) - np.searchsorted(index, index) + 1
    parts = [documents.cast(pa.string()), pa.array(numbers).cast(pa.string())]
    return pc.binary_join_element_wise(*parts, "/")


def require_texts(columns: Mapping[str, Any]) -> None:
    """Raise UnreadableError if columns of the text hold neither strings nor lists of tokens."""
    for name, values in columns.items():
        kind = values.type
        tokens = is_list(kind) and (holds_strings(kind.value_type) or pa.types.is_null(kind.value_type))
        if not (is_text(kind) or pa.types.is_null(kind) or tokens):
            raise UnreadableError(f"column {name!r} is {kind}; it must hold strings or lists of tokens")
        if tokens and len(columns) > 1:
            raise UnreadableError(
                f"column {name!r} holds lists of tokens; it must be the only column of the text"
            )


def joined(columns: Sequence[Any]) -> Any:
    """Return texts without nulls: missing ones are documents without words, which the curation drops and counts."""
    if is_list(columns[0].type):
        return columns[0].cast(pa.list_(pa.string()))
    texts = [each.cast(pa.string()) for each in columns]
    if len(texts) == 1:
        return pc.fill_null(texts[0], "")
    # Arrow leaves out rows in which all values are null.
    present = [pc.is_valid(each) for each in texts]
    none = pc.invert(functools.reduce(pc.or_, present))
    return pc.binary_join_element_wise(pc.if_else(none, "", texts[0]), *texts[1:], "\n", null_handling="skip")


def headers_again(columns: Mapping[str, Any]) -> dict[int, str]:
    """Return the records that hold the names of all columns, if there are several."""
    again = np.array(len(columns) > 1)
    for name, values in columns.items():
        if not (again.any() and is_string(values.type)):
            return {}
        # Files that were joined may keep their byte order marks.
        again = again & np.asarray(pc.is_in(values, pa.array([name, f"\ufeff{name}"], values.type)))
    return dict.fromkeys(
        np.flatnonzero(again).tolist(), "it is the header again, as in files that were joined"
    )


def id_faults(name: str, ids: Any) -> dict[int, str]:
    """Return why ids cannot be used. Raises UnreadableError if they are neither strings nor integers."""
    if not (pa.types.is_integer(kind := ids.type) or is_text(kind) or pa.types.is_null(kind)):
        raise UnreadableError(f"column {name!r} is {kind}; document ids are strings or integers")
    faults = dict.fromkeys(np.flatnonzero(np.asarray(ids.is_null())).tolist(), f"{name} is null")
    if is_text(kind):
        empty = np.asarray(pc.equal(pc.binary_length(ids), 0).fill_null(False))
        faults |= dict.fromkeys(np.flatnonzero(empty).tolist(), f"{name} is empty")
        faults |= dict.fromkeys(invalid_rows(ids), f"{name} holds a byte or an escape that is not UTF-8")
    if pa.types.is_uint64(kind):
        large = np.flatnonzero(np.asarray(ids.fill_null(0)) > _LARGEST_ID)
        reason = f"{name} is above {_LARGEST_ID}, the largest integer of an id; write ids as strings"
        faults |= dict.fromkeys(large.tolist(), reason)
    return faults
