"""Texts as files: a folder, or a tar or zip archive, with one document per file."""

from __future__ import annotations

import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import PurePosixPath
from typing import IO, Any, ClassVar

import numpy as np

from streaming_jsmf.config import ReaderName, TextFilesOptions
from streaming_jsmf.corpus.format import missing_source
from streaming_jsmf.errors import InputError, first_line, option
from streaming_jsmf.ingestion.readers.base import (
    BadRecords,
    BadValue,
    Records,
    Unit,
    UnreadableError,
    limits,
)
from streaming_jsmf.ingestion.readers.files import describe, is_archive, open_raw, open_stream
from streaming_jsmf.ingestion.readers.listing import find_files, is_hidden
from streaming_jsmf.ingestion.readers.records import TextReader
from streaming_jsmf.ingestion.readers.values import decode_file, from_python, is_binary
from streaming_jsmf.storage.paths import exists

#: Files of a folder per task.
UNIT_FILES = 2000

#: Errors of a single zip member; others can still be read. RuntimeError: a password is needed.
_MEMBER_ERRORS = (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, NotImplementedError, RuntimeError)


#: A document: its id, which is its path within the source, and its bytes or why they cannot be read.
File = tuple[str, bytes | str]
#: A document: its row, its bytes, and its values by column.
_Record = tuple[int, bytes, dict[str, Any]]
#: Yields the documents of a file, given its path within the source and a stream.
Split = Callable[[str, IO[bytes]], Iterable[File]]


class TextFilesSource(TextReader):
    """Reader "text-files". Ids are paths within the source; ``label`` is the name of a file's folder.

    Hidden files are skipped. ``root`` is a folder, ``.tar`` (with any compression), ``.tgz`` or ``.zip``, local or a
    URL. Files may be compressed.
    """

    reader: ClassVar[ReaderName] = "text-files"
    options_type = TextFilesOptions

    def units(self) -> Sequence[Unit]:
        """Split a folder into units of 2,000 files; an archive is one unit. Raises InputError if no file matches."""
        if is_archive(self.root):
            if not exists(self.root):
                raise missing_source(self.root)
            return [Unit(self.root)]
        count = len(self.listed())
        if not count:
            raise InputError(
                f"no file at {self.root} matches {self.options.members!r}; give another glob with "
                f"{option.read({'members': 'GLOB'})}"
            )
        return [
            Unit(self.root, start, min(start + UNIT_FILES, count), min(UNIT_FILES, count - start))
            for start in range(0, count, UNIT_FILES)
        ]

    def place(self, unit: Unit, row: int) -> str:
        if is_archive(self.root):
            return f"{self.root}, file {row + 1}"
        return self.listed()[unit.start + row][0]

    @property
    def id_column(self) -> str:
        return "file"

    def records(self, unit: Unit, bad: BadRecords) -> Iterator[Records]:
        held: list[_Record] = []
        size = 0
        for record in self._records(unit, bad):
            held.append(record)
            size += len(record[1])
            if size >= limits.BATCH_BYTES:
                yield _joined(held)
                held, size = [], 0
        if held:
            yield _joined(held)

    def documents(self, name: str, stream: IO[bytes]) -> Iterator[File]:
        """Yield the documents of a file."""
        yield name, bounded(stream.read(limits.LARGEST_FILE + 1))

    def text(self, name: str, data: bytes) -> tuple[str, dict[str, Any]]:
        """Return the text and the metadata of a document. Raises BadValue."""
        if is_binary(data):
            what = "unpack it" if is_archive(name) else "export PDF, Word and similar files as text"
            raise BadValue(f"it is not plain text; {what}")
        return decode_file(data, self.options.encoding), {}

    def _records(self, unit: Unit, bad: BadRecords) -> Iterator[_Record]:
        pattern = re.compile(self.options.name_pattern or "")
        files = files_in_archive(self.root, self._split) if is_archive(self.root) else self._plain(unit)
        row = -1
        try:
            for row, (name, data) in enumerate(files):
                try:
                    if isinstance(data, str):
                        raise BadValue(data)
                    text, metadata = self.text(name, data)
                except BadValue as error:
                    bad.refuse(row, f"{name}: {error}", data if isinstance(data, bytes) else None)
                    continue
                found = pattern.search(name)
                named = found.groupdict() if found else dict.fromkeys(pattern.groupindex)
                label = PurePosixPath(name).parent.name
                yield row, data, {"text": text, "file": name, "label": label, **named, **metadata}
        except UnreadableError as error:
            bad.refuse(row + 1, str(error))
            return
        if row < 0:
            bad.refuse(None, f"no file in it matches {self.options.members!r}")

    def _split(self, name: str, stream: IO[bytes]) -> Iterable[File]:
        return self.documents(name, stream) if fnmatch(name, self.options.members) else ()

    def listed(self) -> list[tuple[str, str]]:
        """Return path and name of each file of a folder."""
        found = find_files(self.root).items()
        return [(path, name) for path, name in found if fnmatch(name, self.options.members)]

    def _plain(self, unit: Unit) -> Iterator[File]:
        for path, name in self.listed()[unit.start : unit.stop]:
            try:
                with open_raw(path) if is_archive(path) else open_stream(path) as stream:
                    yield from self.documents(name, stream)
            except UnreadableError as error:
                yield name, str(error)


def _joined(held: Sequence[_Record]) -> Records:
    rows, originals, values = zip(*held, strict=True)
    columns = {name: from_python([each[name] for each in values]) for name in values[0]}
    return Records(np.array(rows, np.int64), columns, originals)


def files_in_archive(path: str, split: Split) -> Iterator[File]:
    """Yield the documents of the regular files of an archive in order, one in memory at a time.

    Raises UnreadableError if the archive ends early.
    """
    if path.lower().endswith(".zip"):
        with open_raw(path) as stream, zipfile.ZipFile(stream) as archive:
            for member in archive.infolist():
                name = _printable(member.filename)
                if not (member.is_dir() or is_hidden(name)):
                    yield from _zipped(archive, member, name, split)
        return
    # Decompressed by suffix, or else by tarfile, which inspects the content.
    with open_stream(path) as stream:
        try:
            with tarfile.open(fileobj=stream, mode="r|*", tarinfo=_CheckedTarInfo) as tar:
                for entry in tar:
                    name = _printable(entry.name)
                    if entry.isfile() and not is_hidden(name):
                        opened: Any = tar.extractfile(entry)
                        yield from split(name, opened)
                # Only padding may follow the end mark; other data means that damage created a false mark. Reading to
                # the end also verifies the checksum of the compression.
                padding: Any = tar.fileobj
                while rest := padding.read(1 << 20):
                    if rest.strip(b"\0"):
                        raise UnreadableError("it continues after its end-of-archive marker")
        except tarfile.TarError as error:
            raise UnreadableError(describe(error)) from error


def _zipped(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str, split: Split) -> Iterator[File]:
    try:
        with archive.open(member) as content:
            yield from split(name, content)
    except _MEMBER_ERRORS as error:
        yield name, f"it cannot be unpacked ({first_line(error)})"


class _CheckedTarInfo(tarfile.TarInfo):
    """Tar headers with a required end mark and limited size; tarfile takes a damaged header for the end."""

    _WITH_CONTENT = (
        tarfile.XHDTYPE,
        tarfile.XGLTYPE,
        tarfile.SOLARIS_XHDTYPE,
        tarfile.GNUTYPE_LONGNAME,
        tarfile.GNUTYPE_LONGLINK,
    )

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> _CheckedTarInfo:
        try:
            return super().fromtarfile(archive)
        except tarfile.HeaderError as error:
            if isinstance(error, tarfile.EOFHeaderError):  # type: ignore[attr-defined]
                raise
            raise tarfile.ReadError(first_line(error)) from error

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _CheckedTarInfo:
        entry = super().frombuf(buf, encoding, errors)
        if entry.type in cls._WITH_CONTENT and entry.size > limits.LARGEST_TAR_HEADER:
            raise tarfile.ReadError(f"a header of {entry.size} bytes")
        return entry


def _printable(name: str) -> str:
    """Return a member's name without ``./``, with bytes that are not UTF-8 escaped."""
    return name.removeprefix("./").encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def bounded(data: bytes) -> bytes | str:
    """Return the bytes of a document, or why they are too many."""
    too_large = f"larger than {limits.LARGEST_FILE >> 20} MB, too large for a document"
    return too_large if len(data) > limits.LARGEST_FILE else data
