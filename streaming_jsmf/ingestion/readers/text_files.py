"""Texts as files: a folder, or a tar or zip archive, with one document per file."""

from __future__ import annotations

import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa

from streaming_jsmf.config import TextFilesOptions
from streaming_jsmf.corpus.format import missing_source
from streaming_jsmf.errors import InputError, first_line, option
from streaming_jsmf.ingestion.readers.base import (
    BadRecords,
    BadValue,
    Batch,
    DamagedError,
    Source,
    Unit,
    UnreadableError,
    limits,
)
from streaming_jsmf.ingestion.readers.files import (
    describe,
    find_files,
    is_archive,
    is_hidden,
    open_raw,
    open_stream,
)
from streaming_jsmf.ingestion.readers.text_records import (
    Record,
    TextColumns,
    bag_records,
)
from streaming_jsmf.ingestion.readers.values import decode_file, is_binary
from streaming_jsmf.ingestion.tokens.stop_words import ENGLISH
from streaming_jsmf.storage.paths import exists

#: Files of a folder per task.
UNIT_FILES = 2000

#: Errors of a single zip member; others can still be read. RuntimeError: a password is needed.
_MEMBER_ERRORS = (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, NotImplementedError, RuntimeError)


#: A document: its path within the source, and its bytes or why they cannot be read.
_File = tuple[str, bytes | str]


class TextFilesSource(Source):
    """Reader "text-files". Ids are paths within the source; ``label`` is the name of a file's folder.

    Hidden files are skipped. ``root`` is a folder, ``.tar`` (with any compression), ``.tgz`` or ``.zip``, local or a
    URL.
    """

    reader = "text-files"
    options_type = TextFilesOptions
    stop_words = ENGLISH

    def units(self) -> Sequence[Unit]:
        """Split a folder into units of 2,000 files; an archive is one unit. Raises InputError if no file matches."""
        if is_archive(self.root):
            if not exists(self.root):
                raise missing_source(self.root)
            return [Unit(self.root)]
        count = len(self._files())
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
        return self._files()[unit.start + row][0]

    def read(self, unit: Unit, bad: BadRecords) -> Iterator[Batch]:
        groups = list(re.compile(self.options.name_pattern or "").groupindex)
        metadata = dict.fromkeys(["label", *groups], pa.string())
        columns = TextColumns("text", "name", pa.string(), metadata)
        return bag_records(self._records(unit, groups, bad), columns, self.tokenizer, bad)

    def _records(self, unit: Unit, groups: Sequence[str], bad: BadRecords) -> Iterator[Record]:
        row = -1
        files = _archived(self.root, self._takes) if is_archive(self.root) else self._plain(unit)
        try:
            for name, data in files:
                if not self._takes(name):
                    continue
                row += 1
                try:
                    text = self._text(name, data)
                except BadValue as error:
                    bad.refuse(row, f"{name}: {error}", data if isinstance(data, bytes) else None)
                    continue
                label = PurePosixPath(name).parent.name
                found = re.search(self.options.name_pattern or "", name)
                named = {group: found[group] if found else None for group in groups}
                yield row, text, name, {"label": label, **named}
        except UnreadableError as error:
            bad.refuse(row + 1, str(error))
            return
        if row < 0:
            bad.refuse(None, f"no file in it matches {self.options.members!r}")

    def _text(self, name: str, data: bytes | str) -> str:
        if isinstance(data, str):
            raise BadValue(data)
        if is_binary(data):
            what = "unpack it" if is_archive(name) else "export PDF, Word and similar files as text"
            raise BadValue(f"it is not plain text; {what}")
        return decode_file(data, self.options.encoding)

    def _files(self) -> list[tuple[str, str]]:
        """Return path and name of each file of a folder."""
        return [(path, name) for path, name in find_files(self.root).items() if self._takes(name)]

    def _takes(self, name: str) -> bool:
        return fnmatch(name, self.options.members)

    def _plain(self, unit: Unit) -> Iterator[_File]:
        for path, name in self._files()[unit.start : unit.stop]:
            try:
                with open_raw(path) as stream:
                    data = stream.read(limits.LARGEST_FILE + 1)
            except UnreadableError as error:
                yield name, str(error)
            else:
                yield name, _bounded(data)


def names_in_archive(path: str) -> list[str]:
    """Return the names of the files in an archive, up to the place where it is damaged; reads a tar archive whole."""
    names = []
    with suppress(UnreadableError):
        for name, _ in _archived(path, lambda _: False):
            names.append(name)
    return names


def _archived(path: str, takes: Callable[[str], bool]) -> Iterator[_File]:
    """Yield the regular files of an archive in order, one in memory at a time; DamagedError if it ends early.

    Only the files whose names it ``takes`` are read; the others are empty.
    """
    if path.lower().endswith(".zip"):
        with open_raw(path) as stream, zipfile.ZipFile(stream) as archive:
            for member in archive.infolist():
                name = _printable(member.filename)
                if not (member.is_dir() or is_hidden(name)):
                    yield name, _zipped(archive, member) if takes(name) else b""
        return
    # Decompressed by suffix, or else by tarfile, which inspects the content.
    with open_stream(path) as stream:
        try:
            with tarfile.open(fileobj=stream, mode="r|*", tarinfo=_CheckedTarInfo) as tar:
                for entry in tar:
                    name = _printable(entry.name)
                    if entry.isfile() and not is_hidden(name):
                        opened: Any = tar.extractfile(entry)
                        yield name, _bounded(opened.read(limits.LARGEST_FILE + 1)) if takes(name) else b""
                # Only padding may follow the end mark; other data means that damage created a false mark. Reading to
                # the end also verifies the checksum of the compression.
                padding: Any = tar.fileobj
                while rest := padding.read(1 << 20):
                    if rest.strip(b"\0"):
                        raise DamagedError("it continues after its end-of-archive marker")
        except tarfile.TarError as error:
            raise DamagedError(describe(error)) from error


def _zipped(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes | str:
    try:
        with archive.open(member) as content:
            return _bounded(content.read(limits.LARGEST_FILE + 1))
    except _MEMBER_ERRORS as error:
        return f"it cannot be unpacked ({first_line(error)})"


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


def _bounded(data: bytes) -> bytes | str:
    too_large = f"larger than {limits.LARGEST_FILE >> 20} MB, too large for a document"
    return too_large if len(data) > limits.LARGEST_FILE else data
