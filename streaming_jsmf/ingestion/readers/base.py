"""Reader interface: units that can be read independently, batches of bags, and the location of bad records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from numpy.typing import NDArray

from streaming_jsmf.config import OnBadRecord, ReaderName, ReadOptions
from streaming_jsmf.corpus.records import Counts
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.ingestion.tokens.stop_words import NONE
from streaming_jsmf.ingestion.tokens.tokenizer import Tokenizer


class UnreadableError(Exception):
    """Raised if a source file cannot be read; the message is the reason, without the path."""


class DamagedError(UnreadableError):
    """Raised if a file cannot be opened or ends early; what was read before is valid.

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
    ``size`` is approximate bytes, for progress.
    """

    path: str
    start: int = 0
    stop: int = 0
    size: int = 0


@dataclass(frozen=True, eq=False)
class Records:
    """m records as read from a file: position of each in its unit, (m,) int64, and Arrow arrays of length m by column.

    A column may be missing, or have another type, in another batch. Values that a record lacks are null.
    """

    rows: NDArray[Any]
    columns: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Batch:
    """m documents as read from a source.

    Attributes
    ----------
    indptr : (m + 1,) int64, starts at 0.
    codes : (nonzeros,) int32 indices into ``dictionary``, or into the source's vocabulary if that is None. Distinct
        within a document, in any order.
    counts : (nonzeros,) int32 or float32; positive and finite.
    rows : (m,) int64; with ids, the row or line of each record within its unit, from 0, for messages. Without ids, the
        number of the record within its unit, from 0, counting bad records: added over the units, it becomes the id.
    document_id : Arrow array of m int64 or strings without nulls; None if the source has no ids.
    metadata : Arrow arrays of length m by column name; types, and names of other columns than strings, are the same in
        all batches of a source. Columns of strings get their type at the end, when all values are known; they are null
        where a batch lacks them.
    dictionary : Arrow array of distinct strings, or None.
    kinds : The kinds (``values.KINDS``) of metadata columns of strings, where they are not those of the strings.
    """

    indptr: NDArray[Any]
    codes: NDArray[Any]
    counts: Counts
    rows: NDArray[Any]
    document_id: Any = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    dictionary: Any = None
    kinds: Mapping[str, Sequence[str]] = field(default_factory=dict)
    numbers: NDArray[Any] | None = None
    notes: Mapping[str, str] = field(default_factory=dict)
    boilerplate: tuple[int, int] = (0, 0)

    @property
    def n_documents(self) -> int:
        return len(self.rows)


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
        self.records.append(BadRecord(self._unit.path, row, reason, data))

    @contextmanager
    def unreadable_file(self) -> Iterator[None]:
        """Register an UnreadableError from the block as a fault of the whole file."""
        try:
            yield
        except UnreadableError as error:
            self.refuse(None, str(error))


@dataclass(frozen=True)
class Reader(ABC):
    """Reader with its files and options. Picklable; a unit always gives the same batches.

    Attributes
    ----------
    root : Path or URL of the source.
    files : Paths or URLs of its files.
    options : Options of the type ``options_type``.
    tokenizer : Tokenizer of readers of texts.
    reader : Name in specs and on the command line.
    patterns : Globs of the files it reads in a directory; empty if it takes the directory itself.
    stop_words : Default list of stop words; none unless its words are English.
    rereads : Whether reading again is as cheap as reading a copy.
    refuses_documents : Whether a bad record is a whole document, which is counted, rather than a part of one.
    """

    root: str
    files: tuple[str, ...]
    options: Any
    tokenizer: Tokenizer

    reader: ClassVar[ReaderName]
    options_type: ClassVar[type[ReadOptions]]
    patterns: ClassVar[tuple[str, ...]] = ()
    stop_words: ClassVar[str] = NONE
    rereads: ClassVar[bool] = False
    refuses_documents: ClassVar[bool] = True

    @classmethod
    def open(cls, root: str, files: tuple[str, ...], options: Any, tokenizer: Tokenizer) -> Self:
        """Open a reader. Raises InputError if there is nothing to read."""
        return cls(root, files, options, tokenizer)

    @property
    def phrases(self) -> float | None:
        """Minimum NPMI of neighbouring words to be joined (``ingestion.phrases``); None disables the search."""
        found = getattr(self.options, "phrases", None)
        return found if isinstance(found, float) else None

    @property
    def vocabulary(self) -> Sequence[str] | None:
        """The words if the source defines them; None if they are collected while reading."""
        return None

    def units(self) -> Sequence[Unit]:
        """Return all units in corpus order. Raises InputError if there is nothing to read."""
        if not self.files:
            raise InputError("there are no files to read; give at least one")
        units: list[Unit] = []
        for path in self.files:
            try:
                units += self.parts(path)
            except UnreadableError:
                units.append(Unit(path))  # reading reports the reason
        return units

    def parts(self, path: str) -> Sequence[Unit]:
        """Return the units of a file. Raises UnreadableError."""
        return [Unit(path)]

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
