"""Readers and formats: units that can be read independently, batches of bags, and the location of bad records."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from bisect import insort
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_jsmf.config import OnBadRecord, ReaderName
from streaming_jsmf.corpus.bags import Bags, Documents
from streaming_jsmf.corpus.footer import is_string
from streaming_jsmf.corpus.manifest import Json
from streaming_jsmf.display import location
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.ingestion.tokens.stop_words import NONE
from streaming_jsmf.storage.heads import HEAD, progress
from streaming_jsmf.storage.objects import of_each_file

if TYPE_CHECKING:  # numba takes .3 s to import
    from streaming_jsmf.ingestion.tokens.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

#: Options that name a file; they are not part of the settings of a corpus.
PATH_OPTIONS = ("word_list", "names")


@dataclass
class Limits:
    """Limits on how much of a source is held in memory, read per unit, or accepted; bytes unless stated otherwise."""

    #: Of text held at once: enough for Arrow and numba to be fast, but small compared with the vocabulary.
    BATCH_BYTES: int = 8 << 20
    #: Rows (document, word, count) held at once.
    BATCH_VALUES: int = 1_000_000
    #: Per task of a file that can be split.
    UNIT_BYTES: int = 64 << 20
    #: Of a line or a record. The longest books are below 10 MB; longer lines lack line ends.
    LONGEST_LINE: int = 64 << 20
    #: Of a file that is one document, a tar header (tarfile reads it whole, and real ones take a few KB), and a file of
    #: names, which is read whole.
    LARGEST_FILE: int = 256 << 20
    LARGEST_TAR_HEADER: int = 1 << 20
    LARGEST_NAMES: int = 64 << 20
    #: Columns of metadata that the first records of a source lack. Values as names would need one for each record.
    LATE_COLUMNS: int = 200
    #: Empty documents in a file of counts, so that a wrong digit in its header does not create billions. The largest
    #: known file has 6.8 million; the largest UCI data set has 8.2 million documents.
    EMPTY_DOCUMENTS: int = 10_000_000


#: Looked up at use, so that tests can change them in one place.
limits = Limits()


class UnreadableError(Exception):
    """Raised if a file cannot be read, or ends early; the message is the reason, without the path.

    ``line`` and ``record`` are the number of the line at which it ends, if known, and what was read of the line.
    """

    def __init__(self, reason: str, line: int | None = None, record: bytes | None = None) -> None:
        super().__init__(reason)
        self.line = line
        self.record = record


class BadValue(Exception):
    """Raised if a record cannot be used; the message is the reason."""


@dataclass(frozen=True)
class Unit:
    """Part of a source that one task reads; depends only on the files, not on the number of workers.

    ``start`` and ``stop`` are a range of row groups, bytes or rows, depending on the reader; 0 and 0 for a whole file.
    ``size`` is approximate bytes, for progress. ``notes`` say what was found out about the file, for the log, and
    ``layout`` how its records are written. ``first`` is the number of its first line or message in the file, if known.
    ``files`` names the files of a unit of several, packed because tasks are sent with their units.
    """

    path: str
    start: int = 0
    stop: int = 0
    size: int = 0
    notes: tuple[str, ...] = ()
    layout: Any = None
    first: int = 0
    files: bytes = field(default=b"", repr=False)


def grouped(weights: Sequence[int], target: int) -> Iterator[tuple[int, int, int]]:
    """Yield start, stop and weight of runs of items that reach a weight; the last one may not."""
    start = weight = 0
    for i, of_item in enumerate(weights):
        weight += of_item
        if weight >= target or i == len(weights) - 1:
            yield start, i + 1, weight
            start, weight = i + 1, 0


def group_units(path: str, weights: Sequence[int], target: int) -> list[Unit]:
    """Group consecutive row groups until their weights, in bytes, reach ``target``."""
    return [Unit(path, *run) for run in grouped(weights, target)] or [Unit(path)]


@dataclass(frozen=True, eq=False)
class Records:
    """m records as a format reads them from a file.

    Attributes
    ----------
    rows : (m,) int64, ascending; the row or line of each record within its unit, from 0, for ``Format.place``.
    columns : Arrow arrays of length m by name, of any type; null where a record has no value. Columns and types may
        differ between batches and files.
    original : Returns the bytes of record i as they are in the file, for the quarantine; None writes it as JSON.
    """

    rows: NDArray[Any]
    columns: Mapping[str, Any]
    original: Callable[[int], bytes] | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Batch(Documents):
    """m documents as read from a source; without ``bags.words``, their ids are those of the source's vocabulary.

    A column that is only guessed to hold ids (see ``Reader.id_was_named``) may have any type, and nulls. Columns of
    metadata and their types may differ between batches: a type is chosen at the end, when all values are known.

    Attributes
    ----------
    rows : (m,) int64; the row or line of each record within its unit, from 0, for messages.
    numbers : (m,) int64; the number of each record within its unit, from 0, counting bad records: added over the units,
        it is the id of a document without one, and passages of a document share it. None if it is the same as ``rows``.
    notes : By metadata column, what was repaired or left out.
    boilerplate : Number of documents from which boilerplate was removed, and of the tokens removed.
    forms : See ``TokenLists``.
    """

    rows: NDArray[Any]
    numbers: NDArray[Any] | None = None
    notes: Mapping[str, str] = field(default_factory=dict)
    boilerplate: tuple[int, int] = (0, 0)
    forms: Any = None

    def _with(self, bags: Bags, rows: Any) -> Self:
        numbers = None if self.numbers is None else self.numbers[rows]
        return replace(super()._with(bags, rows), rows=self.rows[rows], numbers=numbers)

    @property
    def n_records(self) -> int:
        """Number of records, of which documents may be passages."""
        return self.n_documents if self.numbers is None else len(np.unique(self.numbers))

    @cached_property
    def id_faults(self) -> Counter[str]:
        """Number of documents without a usable id, by reason; none if the column of the ids was named."""
        ids = self.document_id
        if ids is None:
            return Counter(missing=self.n_documents)
        faults = Counter[str](missing=ids.null_count)
        if is_string(ids.type):
            faults["missing"] += pc.equal(pc.binary_length(ids), 0).true_count
        elif pa.types.is_uint64(ids.type):
            large = pc.greater(ids, pa.scalar(2**63 - 1, pa.uint64()))
            faults["above 2^63 - 1"] = large.true_count
        elif not pa.types.is_integer(ids.type):
            faults["neither texts nor whole numbers"] = len(ids) - ids.null_count
        return +faults


@dataclass(frozen=True)
class BadRecord:
    """A record that was left out: location, reason and bytes (None if they could not be read)."""

    path: str
    row: int | None
    reason: str
    record: bytes | None


class BadRecords:
    """Policy for the bad records of a unit: "fail" raises at the first one, "quarantine" collects them.

    ``place`` describes the location of a row, such as "FILE, row group 2, row 7 from 0"; it is called only on failure.
    """

    def __init__(self, policy: OnBadRecord, unit: Unit, place: Callable[[Unit, int], str]) -> None:
        self.policy = policy
        self.records: list[BadRecord] = []
        self._unit = unit
        self._place = place

    def refuse(self, row: int | None, reason: str, record: bytes | str | None = None) -> None:
        """Register a bad record (``row`` within the unit, or None for the whole file); InputError under "fail"."""
        if self.policy == "fail":
            where = self._unit.path if row is None else self._place(self._unit, row)
            what = "file" if row is None else "record"
            message = f"{where}: {reason}; correct the {what} or use {option.on_bad_record('quarantine')}"
            # A name in an archive may contain line ends.
            raise InputError(message.translate({10: "\\n", 13: "\\r"}))
        data = record.encode("utf-8", "surrogateescape") if isinstance(record, str) else record
        # In order of rows, because a reader checks a batch after its format has read it; last, a fault of the file.
        found = BadRecord(self._unit.path, row, reason, data)
        insort(self.records, found, key=lambda bad: float("inf") if bad.row is None else bad.row)

    def refuse_rows(
        self, rows: NDArray[Any], faults: Mapping[int, str], original: Callable[[int], bytes | None]
    ) -> NDArray[np.bool_]:
        """Register what is wrong with some of m ``rows``, by index; return which rows can be used (m,)."""
        kept = np.ones(len(rows), bool)
        for i in sorted(faults):
            self.refuse(int(rows[i]), faults[i], original(i))
            kept[i] = False
        return kept

    @contextmanager
    def unreadable_file(self) -> Iterator[None]:
        """Register an UnreadableError from the block as a fault of the whole file, or of where it ends."""
        try:
            yield
        except UnreadableError as error:
            self.refuse(error.line, str(error), error.record)


def distinct_names(names: Sequence[str]) -> list[str]:
    """Return the names of columns; those that occur before get a number, such as ``name (2)``."""
    numbers, found = dict.fromkeys(names, 1), dict[str, None]()
    for name in names:
        free = name
        while free in found or (free != name and free in numbers):
            numbers[name] += 1
            free = f"{name} ({numbers[name]})"
        found[free] = None
    return list(found)


class Format(Protocol):
    """A file format of records. It knows nothing of texts, ids and metadata, except names such as ``content.body``.

    ``counted`` is what messages count in a file, and ``in_bytes`` tells whether its units are ranges of bytes.
    """

    counted: ClassVar[str] = "row"
    in_bytes: ClassVar[bool] = False

    def names(self, path: str, options: Any) -> list[str]:
        """Return the names of the columns of a file. Raises UnreadableError."""
        ...

    def units(self, path: str, options: Any) -> list[Unit]:
        """Return the units of a file. Raises UnreadableError."""
        ...

    def records(
        self, unit: Unit, options: Any, bad: BadRecords, wanted: Collection[str] | None = None
    ) -> Iterator[Records]:
        """Yield the records of a unit, at most about ``BATCH_BYTES`` at a time; bad ones go to ``bad``.

        All records of a batch have the same columns: the ``wanted`` ones that the file has, or all. Raises
        UnreadableError for a fault of the whole file.
        """
        ...

    def beginning(self, unit: Unit) -> Unit:
        """Return a unit whose records, if it has any, are in the head of the file, or the unit itself."""
        stop = unit.start + HEAD // 2  # the last record may end beyond it
        return replace(unit, stop=min(unit.stop or stop, stop)) if self.in_bytes else unit

    def place(self, unit: Unit, row: int) -> str:
        """Return the location of a record of a unit, for messages."""
        return f"{unit.path}, {self.counted} {self.first_row(unit) + row + 1}"

    def first_row(self, unit: Unit) -> int:
        """Return the row or line of the unit's first record in its file, from 0. May read the file; for messages."""
        return unit.start


@dataclass(frozen=True)
class Reader(ABC):
    """Reader with its files and options. Picklable; a unit always gives the same batches.

    Attributes
    ----------
    root : Path or URL of the source.
    files : Paths or URLs of its files.
    options : Options of its type in ``config.READER_OPTIONS``.
    tokenizer : Tokenizer of readers of texts.
    reader : Name in specs and on the command line.
    patterns : Globs of the files it reads in a directory, without the suffixes of compression; empty if it takes the
        directory itself.
    stop_words : Default list of stop words; none unless its words are English.
    refuses_documents : Whether a bad record is a whole document, which is counted, rather than a part of one.
    """

    root: str
    files: tuple[str, ...]
    options: Any
    tokenizer: Tokenizer

    reader: ClassVar[ReaderName]
    patterns: ClassVar[tuple[str, ...]] = ()
    stop_words: ClassVar[str] = NONE
    refuses_documents: ClassVar[bool] = True

    @classmethod
    def open(cls, root: str, files: tuple[str, ...], options: Any, tokenizer: Tokenizer) -> Self:
        """Open a reader. Raises InputError if there is nothing to read."""
        return cls(root, files, options, tokenizer)

    @property
    def phrases(self) -> float | None:
        """Minimum NPMI of neighboring words to be joined (``ingestion.word_choice``); None disables the search."""
        found = getattr(self.options, "phrases", None)
        return found if isinstance(found, float) else None

    @property
    def id_column(self) -> str | None:
        """The column of the ids; None if the documents have no such column."""
        return None

    @property
    def id_was_named(self) -> bool:
        """Whether the user named the column of the ids, or each document has one; otherwise it is a guess."""
        return True

    @property
    def vocabulary(self) -> Sequence[str] | None:
        """The words if the source defines them; None if they are collected while reading."""
        return None

    def settings(self) -> dict[str, Json]:
        """Return the reader, its options and the fingerprint of its corpus for the manifest, without paths."""
        settings: dict[str, Json] = {"reader": self.reader}
        for key, value in self.options.fields().items():
            # A list of phrases is stored with the phrases found.
            listed_phrases = key == "phrases" and self.phrases is None
            if key not in (*PATH_OPTIONS, "member") and value not in (None, ()) and not listed_phrases:
                settings[f"read_{key}"] = ",".join(value) if isinstance(value, tuple) else value
        return settings

    def units(self) -> Sequence[Unit]:
        """Return all units in corpus order. Raises InputError if there is nothing to read."""
        if not self.files:
            raise InputError("there are no files to read; give at least one")
        units = [unit for parts in of_each_file(self._parts, self.files, progress()) for unit in parts]
        first = {note: unit.path for unit in reversed(units) for note in unit.notes}
        for note, path in reversed(first.items()):
            logger.warning("%s: %s", location(path), note)
        return units

    def _parts(self, path: str) -> Sequence[Unit]:
        try:
            return self.parts(path)
        except UnreadableError:
            return [Unit(path)]  # reading reports the reason

    def parts(self, path: str) -> Sequence[Unit]:
        """Return the units of a file. Raises UnreadableError."""
        return [Unit(path)]

    def beginning(self, unit: Unit) -> Unit:
        """Return a part of a unit with some of its texts, as of ``Format``."""
        return unit

    def n_buckets(self) -> int:
        """Return the number of buckets that gather the documents; 0 if each unit has whole documents."""
        return 0

    @abstractmethod
    def place(self, unit: Unit, row: int) -> str:
        """Return the location of a record of a unit, for messages."""

    def first_row(self, unit: Unit) -> int:
        """Return the number of the unit's first record in its file, from 0. May read the file; for messages only."""
        return unit.start


class Source(Reader):
    """Reader whose units contain whole documents."""

    @abstractmethod
    def read(self, unit: Unit, bad: BadRecords) -> Iterator[Batch]:
        """Stream the documents of a unit in one pass and bounded memory; bad records go to ``bad``.

        Raises InputError if the source cannot be read at all, and under "fail" for the first bad record.
        """
