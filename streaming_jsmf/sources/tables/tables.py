"""Named columns streamed out of Parquet and delimited text files, each row with its place."""

from __future__ import annotations

import csv
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from fsspec.compression import compr
from numpy.typing import NDArray
from pydantic import field_validator, model_validator

from streaming_jsmf.errors import InputError, first_line
from streaming_jsmf.sources.base import BATCH_BYTES, BadRecords, Unit
from streaming_jsmf.sources.files import (
    STREAM_ERRORS,
    UnreadableError,
    bare_suffix,
    codec_of,
    open_parquet_source,
)
from streaming_jsmf.sources.text.parquet import (
    is_text,
    parquet_first_row,
    parquet_place,
    parquet_units,
)
from streaming_jsmf.storage.paths import file_size, open_file
from streaming_jsmf.validation import Strict

BATCH_ROWS = 1 << 18  # of a Parquet file that are held at once
_LONGEST_LINE = 16 << 20
_PARQUET_SUFFIXES = (".parquet", ".pq", ".parq")
_SEPARATOR = b"\x1f"  # stands in for a delimiter of several bytes; Arrow takes one byte only
_ARCHIVE_ERRORS = (*STREAM_ERRORS, zipfile.BadZipFile)


class Delimited(Strict):
    """How delimited files are laid out. One record a line: fields cannot hold line ends.

    Attributes
    ----------
    delimiter
        Between fields; one or more characters, ``\\t`` for a tab.
    header
        Whether the first line names the columns.
    columns
        The names in order, for files without a header.
    quote
        Character around fields that hold delimiters; "" for none. Not used with a delimiter of several characters.
    """

    delimiter: str = ","
    header: bool = True
    columns: tuple[str, ...] = ()
    quote: str = '"'

    @field_validator("delimiter")
    @classmethod
    def _usable_delimiter(cls, value: str) -> str:
        value = value.replace("\\t", "\t")
        if not value or "\n" in value or "\r" in value:
            raise ValueError("a delimiter is one or more characters without line ends")
        return value

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.header == bool(self.columns):
            raise ValueError(
                "columns names the fields of files without a header; give it with header = false"
            )
        if len(self.quote.encode()) > 1 or self.quote in ("\n", "\r") or self.quote == self.delimiter:
            raise ValueError("quote is one ASCII character other than the delimiter, or empty")
        return self

    @property
    def quotes(self) -> str:
        """The quote in use."""
        return self.quote if len(self.delimiter.encode()) == 1 else ""


@dataclass(frozen=True, eq=False)
class TableBatch:
    """n rows of a table.

    Attributes
    ----------
    columns
        Arrow arrays of n by name: strings (or a dictionary of them) out of text, any type out of Parquet.
    rows
        (n,) int64; number of each row within the unit, from 0.
    record
        Gives what row i (0..n-1) held, as bytes.
    """

    columns: Mapping[str, Any]
    rows: NDArray[np.int64]
    record: Callable[[int], bytes]


def is_parquet(path: str) -> bool:
    """Whether the name is that of a Parquet file."""
    return bare_suffix(path) in _PARQUET_SUFFIXES


def table_units(files: Sequence[str]) -> list[Unit]:
    """Runs of row groups of Parquet files, other files whole; those that cannot be opened too (reading tells why).

    Raises
    ------
    InputError
        If there are no files.
    """
    if not files:
        raise InputError("there are no files to read; name at least one")
    return [unit for path in files for unit in (parquet_units(path) if is_parquet(path) else [_whole(path)])]


def table_place(unit: Unit, row: int, layout: Delimited) -> str:
    """File and line (from 1, header counted), or file, row group and row, of a row of a unit."""
    line = f"{unit.path}, line {row + 1 + layout.header}"
    return parquet_place(unit, row) if is_parquet(unit.path) else line


def table_first_row(unit: Unit) -> int:
    """Rows of the file before the unit."""
    return parquet_first_row(unit) if is_parquet(unit.path) else 0


def read_table(unit: Unit, names: Sequence[str], layout: Delimited, bad: BadRecords) -> Iterator[TableBatch]:
    """Stream the named columns of a unit, in one pass and bounded memory.

    Empty lines of a text are passed over. Lines that are not UTF-8 or have a wrong number of fields are refused
    one by one; a file that cannot be read to its end is refused as a whole, after the rows before the damage.

    Raises
    ------
    InputError
        Under "fail" for the first thing refused.
    """
    try:
        yield from (
            _read_parquet(unit, names) if is_parquet(unit.path) else _read_text(unit, names, layout, bad)
        )
    except UnreadableError as error:
        bad.refuse(None, str(error))


def check_columns(names: Sequence[str], found: Sequence[str]) -> None:
    """Check that each name is there once.

    Raises
    ------
    UnreadableError
        Otherwise; says what is there.
    """
    for name in names:
        if name not in found:
            raise UnreadableError(f"there is no column {name!r}; it has {', '.join(found)[:300]}")
        if list(found).count(name) > 1:
            raise UnreadableError(f"there is more than one column {name!r}; rename one")


@contextmanager
def open_text(path: str) -> Iterator[IO[bytes]]:
    """A binary stream, unpacked by the name of the file, which in an archive is that of the member.

    Raises
    ------
    UnreadableError
        For a file that is missing, cut or damaged, also when that shows only while the caller reads.
    """
    codec = codec_of(path)
    try:
        with open_file(path) as raw:
            if codec is None:
                yield raw  # type: ignore[misc]
            else:
                with compr[codec](raw, mode="rb") as stream:
                    yield stream
    except FileNotFoundError as error:
        raise UnreadableError("there is no such file; check the path") from error
    except EOFError as error:
        raise UnreadableError("it ends early; fetch the file again") from error
    except _ARCHIVE_ERRORS as error:
        raise UnreadableError(
            f"it ends early or is damaged ({first_line(error)}); fetch the file again"
        ) from error


def split_line(line: bytes, layout: Delimited, encoding: str = "utf-8") -> list[str]:
    """The fields of a line.

    Raises
    ------
    ValueError
        If it cannot be split; the text is the reason.
    """
    try:
        text = line.decode(encoding)
    except UnicodeDecodeError as error:
        raise ValueError(f"bytes that are not {encoding.upper()}") from error
    if not layout.quotes:
        return text.split(layout.delimiter)
    try:
        # With its line end, which shows in the last field if a quote is open.
        fields = next(csv.reader([text + "\n"], delimiter=layout.delimiter, quotechar=layout.quotes))
    except csv.Error as error:
        raise ValueError(f"the line cannot be split into fields ({first_line(error)})") from error
    if fields[-1].endswith("\n"):
        raise ValueError("a quote is opened and not closed on its line")
    return fields


def _whole(path: str) -> Unit:
    try:
        return Unit(path, size=file_size(path))
    except _ARCHIVE_ERRORS:
        return Unit(path)


def _read_parquet(unit: Unit, names: Sequence[str]) -> Iterator[TableBatch]:
    row = 0
    with open_parquet_source(unit.path) as footer, open_file(unit.path) as stream:
        check_columns(names, footer.schema_arrow.names)
        # Strings stay the codes that most writers store; it saves half of the time.
        file = pq.ParquetFile(stream, metadata=footer.metadata, read_dictionary=list(names))
        groups = list(range(unit.start, unit.stop or file.metadata.num_row_groups))
        for batch in file.iter_batches(BATCH_ROWS, row_groups=groups, columns=list(names), use_threads=False):
            columns = {name: batch.column(name) for name in names}
            yield TableBatch(columns, np.arange(row, row + batch.num_rows), partial(_as_json, columns))
            row += batch.num_rows


def _as_json(columns: Mapping[str, Any], row: int) -> bytes:
    """A row of a table as JSON; bytes that are not UTF-8 stay as they are."""

    def value(array: Any) -> Any:
        array = array.slice(row, 1)
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if is_text(array.type):
            raw = plain_text(array)[0].as_py()
            return None if raw is None else raw.decode("utf-8", "surrogateescape")
        return array[0].as_py()

    record = {name: value(array) for name, array in columns.items()}
    return json.dumps(record, ensure_ascii=False, default=str).encode("utf-8", "surrogateescape")


def plain_text(values: Any) -> Any:
    """A text array as bytes, not yet known to be UTF-8."""
    text = values.cast(pa.string()) if pa.types.is_string_view(values.type) else values
    return text.cast(pa.large_binary())


@dataclass(frozen=True)
class _Shape:
    """All columns of a text in order, those wanted, and the layout."""

    found: tuple[str, ...]
    wanted: tuple[str, ...]
    layout: Delimited


def _read_text(unit: Unit, names: Sequence[str], layout: Delimited, bad: BadRecords) -> Iterator[TableBatch]:
    shape: _Shape | None = None
    first = 0
    with open_text(unit.path) as stream:
        for block in _blocks(stream):
            if shape is None:
                shape, block = _start(block.removeprefix(b"\xef\xbb\xbf"), names, layout)
            n_lines = block.count(b"\n") + (not block.endswith(b"\n") and bool(block))
            columns = _parse(block, n_lines, shape) if n_lines else None
            if columns is not None:
                rows = np.arange(first, first + n_lines)
                yield TableBatch(columns, rows, _Lines(block, rows - first))
            elif n_lines:
                yield _parse_by_line(block, first, shape, bad)
            first += n_lines
    if shape is None:
        raise UnreadableError("it is empty")


def _blocks(stream: IO[bytes]) -> Iterator[bytes]:
    """About BATCH_BYTES at a time, cut at line ends."""
    rest = b""
    while data := stream.read(BATCH_BYTES):
        cut = data.rfind(b"\n") + 1
        if cut:
            yield rest + data[:cut]
        rest = data[cut:] if cut else rest + data
        if len(rest) > _LONGEST_LINE:
            raise UnreadableError(
                f"a line is longer than {_LONGEST_LINE >> 20} MB; it is not a table of lines"
            )
    if rest:
        yield rest


def _start(block: bytes, names: Sequence[str], layout: Delimited) -> tuple[_Shape, bytes]:
    """The shape of a text and its first block without the header."""
    found: Sequence[str] = layout.columns
    if layout.header:
        line, _, block = block.partition(b"\n")
        try:
            found = split_line(line.removesuffix(b"\r"), layout)
        except ValueError as error:
            raise UnreadableError(f"line 1: {error}") from error
    check_columns(names, found)
    return _Shape(tuple(found), tuple(names), layout), block


def _parse(block: bytes, n_lines: int, shape: _Shape) -> dict[str, Any] | None:
    """The wanted columns of a block as dictionary arrays; None if a line of it needs a look of its own."""
    if b"\r" in block and block.count(b"\r") != block.count(b"\r\n"):
        return None
    delimiter = shape.layout.delimiter.encode()
    if len(delimiter) > 1:
        if _SEPARATOR in block:
            return None
        block, delimiter = block.replace(delimiter, _SEPARATOR), _SEPARATOR
    places = {name: str(shape.found.index(name)) for name in shape.wanted}
    try:
        table = pa_csv.read_csv(
            pa.BufferReader(block),
            pa_csv.ReadOptions(
                use_threads=False,
                block_size=len(block) + 1,
                column_names=[str(i) for i in range(len(shape.found))],
            ),
            pa_csv.ParseOptions(delimiter=delimiter.decode(), quote_char=shape.layout.quotes or False),
            pa_csv.ConvertOptions(
                column_types={place: pa.dictionary(pa.int32(), pa.string()) for place in places.values()},
                include_columns=list(dict.fromkeys(places.values())),
                strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid:
        return None
    # Arrow passes over empty lines; quotes that are open at a line end join lines.
    if table.num_rows != n_lines:
        return None
    return {name: table.column(place).combine_chunks() for name, place in places.items()}


def _parse_by_line(block: bytes, first: int, shape: _Shape, bad: BadRecords) -> TableBatch:
    """The good lines of a block; the others go to ``bad``."""
    places = [shape.found.index(name) for name in shape.wanted]
    kept, values = [], []
    for row, line in enumerate(block.split(b"\n")):
        line = line.removesuffix(b"\r")
        if not line:
            continue
        try:
            fields = split_line(line, shape.layout)
            if len(fields) != len(shape.found):
                raise ValueError(f"{len(fields)} fields, not {len(shape.found)}")
        except ValueError as error:
            bad.refuse(first + row, str(error), line)
            continue
        kept.append(row)
        values.append([fields[place] for place in places])
    columns = {name: pa.array([v[i] for v in values], pa.string()) for i, name in enumerate(shape.wanted)}
    within = np.array(kept, np.int64)
    return TableBatch(columns, within + first, _Lines(block, within))


class _Lines:
    """The lines of a block, split when the first is asked for; ``within`` are the numbers of those kept."""

    def __init__(self, block: bytes, within: NDArray[np.int64]) -> None:
        self._block = block
        self._within = within
        self._lines: list[bytes] | None = None

    def __call__(self, i: int) -> bytes:
        if self._lines is None:
            self._lines = self._block.split(b"\n")
        return self._lines[int(self._within[i])].removesuffix(b"\r")
