"""What a reader provides: units that can be read independently, batches of bags, and the location of bad records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from numpy.typing import NDArray

from streaming_jsmf.config import OnBadRecord, ReaderName
from streaming_jsmf.corpus.records import Counts
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.tokens.stop_words import NONE
from streaming_jsmf.ingestion.tokens.tokenizer import Tokenizer
from streaming_jsmf.validation import Strict


class UnreadableError(Exception):
    """A source file that cannot be read; the text is the reason, without the path."""


class DamagedError(UnreadableError):
    """A file that cannot be opened or ends early; what was read before is valid."""


class BadValue(Exception):
    """A record that cannot be used; the text is the reason."""


@dataclass(frozen=True)
class Unit:
    """What one task reads. It depends on the files alone, not on the number of workers.

    Attributes
    ----------
    path
        Local path or URL of the file.
    start, stop
        Range of row groups, bytes or rows, depending on the reader; 0 and 0 for a whole file.
    size
        Approximate bytes, for progress.
    """

    path: str
    start: int = 0
    stop: int = 0
    size: int = 0


@dataclass(frozen=True, eq=False)
class SourceBatch:
    """m documents as they come from a source.

    Attributes
    ----------
    indptr
        (m + 1,) int64, starts at 0.
    codes
        (nonzeros,) int32; indices into ``dictionary``, or word ids of the source's vocabulary where that is None.
        Each at most once in a document, in any order.
    counts
        (nonzeros,) int32 or float32; positive and finite.
    rows
        (m,) int64; the record's number within its unit, from 0, bad records included.
    document_id
        Arrow array of m int64 or strings without nulls; None where the source has no ids.
    metadata
        Further Arrow arrays of length m, by column name; the same names and types in all batches of a source.
    dictionary
        Arrow array of distinct strings, or None.
    """

    indptr: NDArray[Any]
    codes: NDArray[Any]
    counts: Counts
    rows: NDArray[Any]
    document_id: Any = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    dictionary: Any = None

    @property
    def n_documents(self) -> int:
        """m."""
        return len(self.rows)


@dataclass(frozen=True)
class BadRecord:
    """A record that was left out: its location, the reason and its bytes (None where they could not be read)."""

    path: str
    row: int | None
    reason: str
    record: bytes | None


class BadRecords:
    """The policy for bad records of a unit: "fail" raises at the first one, "quarantine" collects them.

    ``place`` describes the location of a row, such as "FILE, row group 2, row 7 from 0"; called on failure only.
    """

    def __init__(self, policy: OnBadRecord, unit: Unit, place: Callable[[Unit, int], str]) -> None:
        self.policy = policy
        self.records: list[BadRecord] = []
        self._unit = unit
        self._place = place

    def refuse(self, row: int | None, reason: str, record: bytes | str | None = None) -> None:
        """Register a bad record: ``row`` within the unit from 0, or None for the file as a whole.

        Raises
        ------
        InputError
            Under the policy "fail".
        """
        if self.policy == "fail":
            where = self._unit.path if row is None else self._place(self._unit, row)
            what = "file" if row is None else "record"
            raise InputError(f"{where}: {reason}; correct the {what} or use --on-bad-record quarantine")
        data = record.encode("utf-8", "surrogateescape") if isinstance(record, str) else record
        self.records.append(BadRecord(self._unit.path, row, reason, data))

    @contextmanager
    def unreadable_file(self) -> Iterator[None]:
        """Register an UnreadableError of the block as a fault of the file as a whole."""
        try:
            yield
        except UnreadableError as error:
            self.refuse(None, str(error))


class Reader(ABC):
    """A reader with its files and options: picklable, and the same batches from a unit every time it is read.

    Attributes
    ----------
    reader
        Its name in specs and on the command line.
    options_type
        Its options.
    patterns
        Globs of the files it reads in a directory; empty where it takes the directory itself.
    stop_words
        Its default list: items and genes are not English.
    rereads
        Whether reading again is as cheap as reading a copy.
    """

    reader: ClassVar[ReaderName]
    options_type: ClassVar[type[Strict]]
    patterns: ClassVar[tuple[str, ...]] = ()
    stop_words: ClassVar[str] = NONE
    rereads: ClassVar[bool] = False

    @classmethod
    def open(cls, root: str, files: tuple[str, ...], options: Any, tokenizer: Tokenizer) -> Any:
        """A reader of ``files`` at ``root``. Raises InputError if there is nothing to read."""
        given = {"root": root, "files": files, "options": options, "tokenizer": tokenizer}
        make: Any = cls
        return make(**{item.name: given[item.name] for item in fields(make)})

    @property
    def vocabulary(self) -> Sequence[str] | None:
        """The words, where the source defines them; None where they are found while reading."""
        return None

    @abstractmethod
    def units(self) -> Sequence[Unit]:
        """All units, in the order of the corpus. Raises InputError if there is nothing to read."""

    @abstractmethod
    def place(self, unit: Unit, row: int) -> str:
        """The location of a record of a unit, for messages."""

    def first_row(self, unit: Unit) -> int:
        """Number, within its file and from 0, of the unit's first record. May read; called for messages only."""
        return unit.start


class Source(Reader):
    """A reader whose documents are whole in a unit."""

    @abstractmethod
    def read(self, unit: Unit, bad: BadRecords) -> Iterator[SourceBatch]:
        """Stream the documents of a unit in one pass and bounded memory; bad records go to ``bad``.

        Raises
        ------
        InputError
            For what cannot be read at all, and under "fail" for the first bad record.
        """
