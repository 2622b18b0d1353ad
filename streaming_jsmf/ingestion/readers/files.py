"""Find the files of a source, open them, local or remote, decompressed by suffix, and split them into units."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from streaming_jsmf.corpus.format import PARQUET_SUFFIXES, missing_source
from streaming_jsmf.errors import InputError, StreamingJSMFError, first_line, pass_on_machine
from streaming_jsmf.ingestion.readers import limits
from streaming_jsmf.ingestion.readers.base import BadRecords, DamagedError, Reader, Unit, UnreadableError
from streaming_jsmf.ingestion.readers.values import as_json
from streaming_jsmf.storage.paths import (
    AnyPath,
    file_size,
    file_system,
    is_chain,
    is_file,
    is_url,
    join,
    normalise,
    open_file,
)

_WILDCARDS = "*?["

T = TypeVar("T")
PARQUET_PATTERNS = tuple(f"*{suffix}" for suffix in PARQUET_SUFFIXES)
_MOST_ROWS = 100_000


def list_files(source: AnyPath) -> tuple[str, ...]:
    """Return the sorted paths of the files of a source; see ``find_files``."""
    return tuple(find_files(source))


def find_files(source: AnyPath) -> dict[str, str]:
    """Return the names of the files of a source, relative to it and with slashes, by path or URL in sorted order.

    A source is a file, a directory (read recursively) or a glob; local or a URL.

    Hidden files (``is_hidden``) below the source are skipped. Raises InputError if no file is found.
    """
    root = normalise(source)
    try:
        fs, inner = file_system(root)
        if fs.isfile(inner):
            return {root: inner.rsplit("/", 1)[-1]}
        # A directory name may contain a glob character.
        is_glob = any(character in inner for character in _WILDCARDS) and not fs.isdir(inner)
        found = fs.glob(inner) if is_glob else fs.find(inner)
        paths = sorted(str(path) for path in found if not (is_glob and fs.isdir(path)))
    except InputError:
        raise
    except Exception as error:  # the package behind the scheme may raise anything
        pass_on_machine(error)
        raise InputError(f"cannot open {root}: {first_line(error)}; check the path") from error
    base = inner
    if is_glob:
        base = inner[: min(inner.index(c) for c in _WILDCARDS if c in inner)].rpartition("/")[0]
    names = {path: path.removeprefix(base).lstrip("/") for path in paths}
    kept = {_address(fs, root, inner, path): name for path, name in names.items() if not is_hidden(name)}
    if not kept:
        if not fs.exists(inner):
            raise missing_source(root)
        raise InputError(f"there are no files at {root}; check the path")
    return kept


def is_hidden(name: str) -> bool:
    """Return whether a part of a relative path starts with ``.`` or ``_``, as marker files of other tools do."""
    return any(part[:1] in (".", "_") for part in name.split("/") if part)


def is_archive(path: str) -> bool:
    name = path.lower()
    return name.endswith((".zip", ".tgz", ".tar")) or ".tar." in name.rsplit("/", 1)[-1]


def names_in_zip(path: str) -> list[str]:
    """Return the names in a zip archive that are not hidden; none if it is no zip archive or cannot be read."""
    if path.lower().endswith(".zip"):
        with suppress(UnreadableError), open_raw(path) as stream, zipfile.ZipFile(stream) as archive:
            return [name for name in archive.namelist() if not is_hidden(name)]
    return []


def _address(fs: Any, root: str, base: str, name: str) -> str:
    """Return the path or URL of a file found at ``root``, which its file system calls ``base``."""
    if not is_url(root):
        return name
    link, chained, rest = root.partition("::")
    if chained and "://" in link:
        # In a chain such as zip://*.csv::a.zip, the file system knows only its own link.
        return f"{link.partition('://')[0]}://{name}::{rest}"
    # Keep the start of the URL if possible: some file systems drop the host and the user.
    head = root.removesuffix(base)
    return f"{head}{name}" if root.endswith(base) and base else str(fs.unstrip_protocol(name))


def find_beside(path: str, names: Sequence[str]) -> str | None:
    """Return the first existing file: ``names`` are absolute, URLs, or relative to ``path`` or its archive's root."""
    link, *archive = path.split("::") if is_chain(path) else [path]
    folder = link.rpartition("/")[0]
    for name in names:
        if is_url(name) or Path(name).expanduser().is_absolute():
            found = [normalise(name)]
        elif archive:
            root = link.partition("://")[0] + ":/"
            found = ["::".join([f"{place}/{name}", *archive]) for place in (folder, root)]
        else:
            found = [join(folder, name)]
        for candidate in found:
            if is_file(candidate):
                return candidate
    return None


@contextmanager
def read_as(what: str) -> Iterator[None]:
    """Convert any error of a library, also while the caller reads, into an UnreadableError.

    A damaged file can raise any type of error. Errors of this package and of the machine pass through.
    """
    try:
        yield
    except (UnreadableError, StreamingJSMFError, FileNotFoundError):
        raise
    except Exception as error:
        pass_on_machine(error)
        plain = isinstance(error, (OSError, pa.ArrowException))
        reason = first_line(error) if plain else f"{type(error).__name__}: {first_line(error)}"
        raise UnreadableError(
            f"it cannot be read as {what} ({reason}); it is truncated, damaged or in another format: fetch it again"
        ) from error


class _ArrowStream(io.RawIOBase):
    """Decompress with Arrow in small pieces; if the stream breaks off, only the last piece is lost."""

    _PIECE = 1 << 14  # bytes

    def __init__(self, raw: Any, codec: str) -> None:
        self._stream = pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), codec)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(min(len(buffer), self._PIECE))
        buffer[: len(data)] = data
        return len(data)


def _arrow(codec: str) -> Callable[[Any], io.BufferedReader]:
    return lambda raw: io.BufferedReader(_ArrowStream(raw, codec), _ArrowStream._PIECE)


def _first_member(raw: Any) -> IO[bytes]:
    archive = zipfile.ZipFile(raw)
    first = next((member for member in archive.infolist() if not member.is_dir()), None)
    if first is None:
        raise zipfile.BadZipFile("the archive holds no file")
    try:
        return archive.open(first)
    except (RuntimeError, NotImplementedError) as error:  # a password; another method
        raise zipfile.BadZipFile(first_line(error)) from error


#: Decompressors by suffix; all read ahead by a bounded amount.
_CODECS: dict[str, Callable[[Any], Any]] = {
    ".gz": gzip.open,
    ".tgz": gzip.open,
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
    ".lzma": lzma.LZMAFile,
    ".zst": _arrow("zstd"),
    ".lz4": _arrow("lz4"),
    ".zip": _first_member,
}
#: Errors that a damaged or truncated stream raises with any codec; Arrow's errors are OSErrors.
STREAM_ERRORS = (EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)


def bare_suffix(path: str) -> str:
    """Return the lower-case suffix without a compression suffix: ``.csv`` of ``x.csv.gz``."""
    name = file_name(path)
    return Path(name.stem).suffix if name.suffix in _CODECS else name.suffix


def is_compressed(path: str) -> bool:
    return file_name(path).suffix in _CODECS


def file_name(path: str) -> Path:
    """Return the lower-case file name; in a chained URL (``zip://a.csv::/b.zip``), of the first link with a path."""
    links = path.lower().split("::") if is_chain(path) else [path.lower()]
    return Path(next((link for link in links if "://" in link), links[0]))


def size_of(path: str) -> int:
    """Return the stored size of a file in bytes. Raises DamagedError if the file or its size is unavailable."""
    try:
        return file_size(path)
    except (*STREAM_ERRORS, TypeError) as error:
        pass_on_machine(error)
        raise DamagedError(describe(error)) from error


@contextmanager
def open_stream(path: str) -> Iterator[IO[bytes]]:
    """Open a binary stream on a file or URL, decompressed by suffix.

    Raises DamagedError if it cannot be opened or, while the caller reads, ends early or is damaged. ``read1`` returns
    all data before the damage; ``read`` may not.
    """
    with open_raw(path) as raw:
        decompress = _CODECS.get(file_name(path).suffix)
        if decompress is None:
            yield raw
        else:
            with decompress(raw) as stream:
                yield stream


@contextmanager
def open_raw(path: str) -> Iterator[IO[bytes]]:
    """Open a binary stream on a file or URL as stored. Raises as ``open_stream``."""
    with read_as("what its name says"):
        try:
            with open_file(path) as raw:
                yield raw  # type: ignore[misc]
        except STREAM_ERRORS as error:
            pass_on_machine(error)
            raise DamagedError(describe(error)) from error


def describe(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        return (
            f"it cannot be opened ({error.strerror or first_line(error)}); check the path and its permissions"
        )
    return f"the file ends early or is damaged here ({first_line(error)}); fetch it again"


@contextmanager
def open_parquet_source(path: str) -> Iterator[Any]:
    """Open a user's file as a ``pyarrow.parquet.ParquetFile``. Raises UnreadableError, also while the caller reads."""
    with open_raw(path) as stream, read_as("Parquet"):
        try:
            yield pq.ParquetFile(stream, page_checksum_verification=True)
        except OSError as error:
            if error.errno is None:  # Arrow's own
                raise
            pass_on_machine(error)
            raise DamagedError(describe(error)) from error


def of_first_readable(files: Sequence[str], read: Callable[[str], T], hint: str) -> T:
    """Return what ``read`` returns for the first file that it can read; reading reports errors of the others.

    Raises InputError if no file is readable, with the reason for the first file and the hint.
    """
    reasons = []
    for path in files:
        try:
            return read(path)
        except UnreadableError as error:
            reasons.append(f"{path}: {error}")
    raise InputError(f"{reasons[0] if reasons else 'there are no files in the source'}; {hint}")


def compressed(*patterns: str) -> tuple[str, ...]:
    """Return the globs with and without each compression suffix."""
    return tuple(
        f"{pattern}{suffix}" for pattern in patterns for suffix in ("", ".gz", ".bz2", ".xz", ".zst")
    )


TABLE_PATTERNS = (*PARQUET_PATTERNS, *compressed("*.csv", "*.tsv", "*.dat", "*.txt"))


class RecordFiles(Reader):
    """Base of readers whose files are Parquet (by suffix) or lines."""

    def splittable(self, path: str) -> bool:  # noqa: ARG002
        """Return whether each line of the file is a record, so that it can be split at any line."""
        return True

    def parts(self, path: str) -> Sequence[Unit]:
        """Return runs of row groups, byte ranges of lines, or a file as a whole that cannot be split."""
        if is_parquet(path):
            with open_parquet_source(path) as file:
                groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
                return group_units(path, [group.total_byte_size for group in groups], limits.UNIT_BYTES)
        size, step = size_of(path), limits.UNIT_BYTES
        if not self.splittable(path) or is_compressed(path) or size <= step:
            return [Unit(path, size=size)]
        return [
            Unit(path, start, min(start + step, size), min(step, size - start))
            for start in range(0, size, step)
        ]

    def first_row(self, unit: Unit) -> int:
        """Return the row (Parquet) or line at which the unit starts; reads the lines before it."""
        if is_parquet(unit.path):
            with open_parquet_source(unit.path) as file:
                return sum(file.metadata.row_group(g).num_rows for g in range(unit.start))
        if not unit.start:
            return 0
        lines, left = 1, unit.start - 1
        with open_stream(unit.path) as stream:
            while left and (block := stream.read(min(left, 1 << 20))):
                lines += block.count(b"\n")
                left -= len(block)
        return lines

    def place(self, unit: Unit, row: int) -> str:
        if not is_parquet(unit.path):
            return f"{unit.path}, line {self.first_row(unit) + row + 1}"
        with open_parquet_source(unit.path) as file:
            for g in range(unit.start, unit.stop):
                rows = file.metadata.row_group(g).num_rows
                if row < rows:
                    return f"{unit.path}, row group {g}, row {row} from 0"
                row -= rows
        return unit.path


def is_parquet(path: str) -> bool:
    return bare_suffix(path) in PARQUET_SUFFIXES


def group_units(path: str, weights: Sequence[int], target: int, size: int | None = None) -> list[Unit]:
    """Group consecutive row groups until their weights reach ``target``; weights are bytes, or shares of ``size``."""
    units, start, weight = [], 0, 0
    for g, of_group in enumerate(weights):
        weight += of_group
        if weight >= target or g == len(weights) - 1:
            held = weight if size is None else int(size * weight / max(sum(weights), 1))
            units.append(Unit(path, start, g + 1, held))
            start, weight = g + 1, 0
    return units or [Unit(path)]


def drop_bad_rows(
    batch: Any,
    reasons: Mapping[int, str],
    first: int,
    bad: BadRecords,
    as_record: Callable[[Any, int], bytes | None] = as_json,
) -> tuple[Any, NDArray[np.int64]]:
    """Return the good rows of a batch and their numbers from ``first``; the others go to ``bad`` in order."""
    rows = np.arange(first, first + batch.num_rows)
    if not reasons:
        return batch, rows
    for row in sorted(reasons):
        bad.refuse(first + row, reasons[row], as_record(batch, row))
    keep = np.ones(batch.num_rows, bool)
    keep[list(reasons)] = False
    return batch.filter(pa.array(keep)), rows[keep]


def parquet_batches(file: Any, unit: Unit, columns: Sequence[str]) -> Iterator[tuple[int, Any]]:
    """Yield non-empty record batches of about ``BATCH_BYTES`` of a unit, with the number of their first row."""
    row = 0
    for g in range(unit.start, unit.stop):
        group = file.metadata.row_group(g)
        # The footer counts encoded bytes, in which repeated values are stored once; hence the upper bound on rows.
        share = limits.BATCH_BYTES * group.num_rows / max(group.total_byte_size, 1)
        size = max(1, min(_MOST_ROWS, int(share)))
        for batch in file.iter_batches(size, row_groups=[g], columns=list(columns), use_threads=False):
            if batch.num_rows:
                yield row, batch
                row += batch.num_rows
