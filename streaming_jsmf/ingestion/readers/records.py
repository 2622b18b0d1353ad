"""The adapter from records to documents: text, id, metadata, excerpts, passages, tokens and bad records."""

from __future__ import annotations

import functools
import logging
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any, Self
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_jsmf.config import EXCERPT, TextOptions, TokenOptions
from streaming_jsmf.corpus.footer import is_list
from streaming_jsmf.corpus.records import free_name
from streaming_jsmf.errors import option
from streaming_jsmf.ingestion.readers.base import (
    BadRecords,
    Batch,
    Format,
    Reader,
    Records,
    Source,
    Unit,
    UnreadableError,
)
from streaming_jsmf.ingestion.readers.delimited import DELIMITED
from streaming_jsmf.ingestion.readers.files import bare_suffix, compressed, of_first_readable, size_of
from streaming_jsmf.ingestion.readers.formats import LINES, PARQUET
from streaming_jsmf.ingestion.readers.json_records import JSON
from streaming_jsmf.ingestion.readers.listing import FORMATS, format_of, is_parquet
from streaming_jsmf.ingestion.readers.spreadsheets import SPREADSHEET
from streaming_jsmf.ingestion.readers.values import (
    as_json,
    encoding_hint,
    holds_strings,
    invalid_rows,
    is_text,
    require_columns,
    storable,
)
from streaming_jsmf.ingestion.tokens.split import TokenLists, count_codes
from streaming_jsmf.ingestion.tokens.stop_words import ENGLISH, NONE, languages_of
from streaming_jsmf.ingestion.tokens.tokenizer import Tokenizer
from streaming_jsmf.storage.paths import is_chain
from streaming_jsmf.validation import is_utf8

logger = logging.getLogger(__name__)

_FORMATS: dict[str, Format] = {
    "parquet": PARQUET,
    "json": JSON,
    "delimited": DELIMITED,
    "spreadsheet": SPREADSHEET,
}

#: Names of columns of ids, the likeliest first.
ID_NAMES = ("document_id", "doc_id", "id")
#: Metadata column of a passage with its document, if documents have no ids.
DOCUMENT = "document"

_LARGEST_ID = 2**63 - 1
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


class TextReader(Source):
    """Base of the readers of texts: a subclass yields records, and says which columns hold the text and the id.

    All other columns become metadata, if the options keep them.
    """

    stop_words = ENGLISH

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The columns of the text, which are joined by line ends."""
        return ("text",)

    @abstractmethod
    def records(self, unit: Unit, bad: BadRecords) -> Iterator[Records]:
        """Yield the records of a unit, at most about ``BATCH_BYTES`` at a time; bad ones go to ``bad``.

        Raises UnreadableError for a fault of the whole file, such as a missing column of the text.
        """

    def read(self, unit: Unit, bad: BadRecords) -> Iterator[Batch]:
        with bad.unreadable_file():
            good = (self._good(records, bad) for records in self.records(unit, bad))
            yield from numbered((self._batch(unit, records) for records in good), bad)

    def texts(self, unit: Unit, bad: BadRecords) -> Iterator[Any]:
        """Yield the texts alone, as Arrow arrays without nulls."""
        with bad.unreadable_file():
            for records in self.records(unit, bad):
                columns = self._good(records, bad).columns
                yield joined([columns[name] for name in self.text_columns])

    def _good(self, records: Records, bad: BadRecords) -> Records:
        """Return the records whose text and id can be used; the others go to ``bad``."""
        columns = {name: records.columns[name] for name in self.text_columns}
        require_texts(columns)
        faults: dict[int, str] = {}
        if self.id_column is not None and self.id_was_named:
            faults |= id_faults(self.id_column, records.columns[self.id_column])
        for name, values in columns.items():
            reason = f"{name} holds a byte or an escape that is not a character"
            faults |= dict.fromkeys(invalid_rows(values), reason)
        if not faults:
            return records
        for i in sorted(faults):
            batch = pa.record_batch(dict(records.columns))
            original = as_json(batch, i) if records.original is None else records.original(i)
            given = "" if records.original is None else original.decode("utf-8", "surrogateescape")
            hint = "" if is_utf8(given) else encoding_hint()
            bad.refuse(int(records.rows[i]), f"{faults[i]}{hint}", original)
        good = np.ones(len(records.rows), bool)
        good[list(faults)] = False
        kept = pa.array(good)
        return Records(
            records.rows[good], {name: each.filter(kept) for name, each in records.columns.items()}
        )

    def _batch(self, unit: Unit, records: Records) -> Batch:
        columns, id_column = records.columns, self.id_column
        tokens = self.tokenizer(joined([columns[name] for name in self.text_columns]))
        ids, metadata, notes = self._metadata(columns)
        rows = records.rows
        if tokens.texts is not None:
            ids, metadata = _of_passages(ids, metadata, id_column, tokens.texts, self._location(unit, rows))
            rows = rows[tokens.texts]
        if tokens.excerpts is not None:
            given = metadata.get(EXCERPT, pa.nulls(len(rows), pa.string()))
            # A column of the source with this name stays.
            metadata[EXCERPT] = pc.coalesce(given, tokens.excerpts) if holds_strings(given.type) else given
        batch = bags_of(tokens, rows)
        if getattr(self.options, "language_column", False):
            metadata[free_name("language", metadata)] = languages_of(batch)
        return replace(batch, document_id=ids, metadata=metadata, notes=notes, boilerplate=tokens.boilerplate)

    def _metadata(self, columns: Mapping[str, Any]) -> tuple[Any, dict[str, Any], dict[str, str]]:
        """Return the ids, the metadata that a corpus can hold, and what was changed to that end."""
        asked = getattr(self.options, "metadata", "all")
        kept: dict[str, Any] = {}
        notes: dict[str, str] = {}
        for given, values in columns.items():
            if given in self.text_columns or not (
                given == self.id_column or asked == "all" or given in asked
            ):
                continue
            name = given if is_utf8(given) else given.encode("utf-8", "replace").decode()
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

    def _location(self, unit: Unit, rows: NDArray[np.int64]) -> Any:
        """Names of documents without ids: file and row, which is counted from the start of a unit."""
        file = _below(self.root, unit.path).lstrip("/") or unit.path.rpartition("/")[2]
        start = f"{file}:{unit.start}+" if unit.start else f"{file}:"
        return pa.array([f"{start}{row + 1}" for row in rows.tolist()], pa.string())


def bags_of(tokens: TokenLists, rows: NDArray[np.int64]) -> Batch:
    """Return the bags of words of m documents; ``rows`` (m,)."""
    indptr, codes, counts = count_codes(tokens)
    return Batch(indptr, codes, counts, rows, dictionary=tokens.dictionary)


def numbered(batches: Iterable[Batch], bad: BadRecords) -> Iterator[Batch]:
    """Add the numbers of the records to the batches of a unit; bad ones are in ``bad`` before their batch is."""
    n_before = 0
    for batch in batches:
        refused = np.array([each.row for each in bad.records if each.row is not None], np.int64)
        numbers = n_before + np.arange(batch.n_documents) + np.searchsorted(refused, batch.rows)
        n_before += batch.n_documents
        yield replace(batch, numbers=numbers)


def _of_passages(
    ids: Any, metadata: Mapping[str, Any], id_column: str | None, texts: NDArray[np.int64], location: Any
) -> tuple[Any, dict[str, Any]]:
    """Return ids ID/1, ID/2, ... of passages, and their metadata with the id of the document; ``texts`` is sorted."""
    documents = location if ids is None else ids
    index = pa.array(texts)
    # The number of a passage within its document, from 1.
    numbers = np.arange(len(texts)) - np.searchsorted(texts, texts) + 1
    parts = [documents.take(index).cast(pa.string()), pa.array(numbers).cast(pa.string())]
    of_documents = {**metadata, id_column or DOCUMENT: documents}
    return (
        pc.binary_join_element_wise(*parts, "/"),
        {name: values.take(index) for name, values in of_documents.items()},
    )


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


def id_faults(name: str, ids: Any) -> dict[int, str]:
    """Return why ids cannot be used. Raises UnreadableError if they are neither strings nor integers."""
    kind = ids.type
    if not (pa.types.is_integer(kind) or is_text(kind) or pa.types.is_null(kind)):
        raise UnreadableError(f"column {name!r} is {kind}; document ids are strings or integers")
    faults = dict.fromkeys(np.flatnonzero(np.asarray(ids.is_null())).tolist(), f"{name} is null")
    if is_text(kind):
        empty = np.asarray(pc.equal(pc.binary_length(ids), 0).fill_null(False))
        faults |= dict.fromkeys(np.flatnonzero(empty).tolist(), f"{name} is empty")
        faults |= dict.fromkeys(
            invalid_rows(ids), f"{name} holds a byte or an escape that is not a character"
        )
    if pa.types.is_uint64(kind):
        large = np.flatnonzero(np.asarray(ids.fill_null(0)) > _LARGEST_ID)
        reason = f"{name} is above {_LARGEST_ID}, the largest integer of an id; write ids as strings"
        faults |= dict.fromkeys(large.tolist(), reason)
    return faults


class RecordFiles(Reader):
    """Base of readers of files, each of which has a format."""

    def format(self, path: str) -> Format:
        """Return the format of a file: Parquet by suffix, else lines. Raises UnreadableError if it is unknown."""
        return PARQUET if is_parquet(path) else LINES

    def parts(self, path: str) -> Sequence[Unit]:
        return self.format(path).units(path, self.options)

    def place(self, unit: Unit, row: int) -> str:
        return self.format(unit.path).place(unit, row)

    def first_row(self, unit: Unit) -> int:
        return self.format(unit.path).first_row(unit)


class LineSource(RecordFiles, TextReader):
    """Reader "lines": each line of a file that is not blank is a document without an id."""

    reader = "lines"
    options_type = TokenOptions
    patterns = compressed("*.txt", "*.text")

    def records(self, unit: Unit, bad: BadRecords) -> Iterator[Records]:
        return LINES.records(unit, self.options, bad)


class TextSource(RecordFiles, TextReader):
    """Reader "text": each record of a Parquet, JSON or delimited file is a document.

    The first file that can be read names the columns of the text and the id, which all files must have. Names of
    folders such as year=1999 are metadata, too.
    """

    reader = "text"
    options_type = TextOptions
    patterns = compressed(*(f"*{suffix}" for suffix in FORMATS))

    @classmethod
    def open(cls, root: str, files: tuple[str, ...], options: TextOptions, tokenizer: Tokenizer) -> Self:
        """Find the columns. Raises InputError if no file has them, with the reason for the first file."""
        opened = cls(root, files, options, tokenizer)
        _ = opened._names
        return opened

    def format(self, path: str) -> Format:
        found = format_of(path) or ("delimited" if self.options.delimiter is not None else "")
        if not found:
            raise UnreadableError(
                f"its suffix is {bare_suffix(path)!r}, and it holds neither JSON nor Parquet; delimited files "
                f"of any name are read with {option.read({'delimiter': 'CHARACTER'})}"
            )
        return _FORMATS[found]

    @property
    def text_columns(self) -> tuple[str, ...]:
        found: tuple[str, ...] = self.options.text
        return found

    @property
    def id_was_named(self) -> bool:
        return self.options.id not in (None, NONE)

    @property
    def id_column(self) -> str | None:
        if self.options.id == NONE:
            return None
        return self.options.id or next((name for name in ID_NAMES if name in self._names), None)

    @cached_property
    def _names(self) -> list[str]:
        """The columns of the first file that has those that are asked for."""
        asked = () if self.options.metadata == "all" else self.options.metadata
        if asked:
            of_folders = {name for path in self.files for name in self._folders(path)}
            asked = [name for name in asked if name not in of_folders]

        def names_of(path: str) -> list[str]:
            names = self.format(path).names(path, self.options)
            require_columns([*self._required(), *asked], names)
            return names

        hint = f"give a file of texts, and name the column with {option.text('NAME')}"
        return of_first_readable(self.files, names_of, hint)

    def units(self) -> Sequence[Unit]:
        """As of ``Reader``, without empty files of lines beside others, such as parts that Spark writes."""
        with suppress(UnreadableError):
            filled = tuple(path for path in self.files if size_of(path) or is_parquet(path))
            if 0 < len(filled) < len(self.files):
                logger.info("%d of %d files are empty", len(self.files) - len(filled), len(self.files))
                return replace(self, files=filled).units()
        return super().units()

    def _required(self) -> list[str]:
        return [*self.text_columns, *([self.options.id] if self.id_was_named else [])]

    def records(self, unit: Unit, bad: BadRecords) -> Iterator[Records]:
        options, folders, wanted = self.options, self._folders(unit.path), None
        form = self.format(unit.path)
        if options.metadata != "all":
            wanted = {*self._required(), *filter(None, [self.id_column]), *options.metadata}
        for records in form.records(unit, options, bad, wanted):
            if not records.columns.keys() >= {*self._required()}:
                require_columns(self._required(), form.names(unit.path, options))
            n = len(records.rows)
            added = {name: pa.array([value] * n, pa.string()) for name, value in folders.items()}
            yield replace(records, columns={**added, **records.columns})

    def _folders(self, path: str) -> dict[str, str | None]:
        """Names and values of folders below the source, such as year=1999 as Hive and Spark write them."""
        pairs = (folder.partition("=") for folder in _below(self.root, path).split("/")[:-1])
        values = {name: unquote(value) for name, equals, value in pairs if name and equals}
        return {name: None if value == _NO_VALUE else value for name, value in values.items()}


def _below(root: str, path: str) -> str:
    """The path of a file below its source."""
    source = re.sub(r"/[^/]*[*?[].*", "", root)
    if is_chain(path) and not is_chain(root):
        member, _, archive = path.partition("::")
        return f"{archive.removeprefix(source)}/{member.partition('://')[2]}"
    return path.removeprefix(source) if path.startswith(source) else ""
