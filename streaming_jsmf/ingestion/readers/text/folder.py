"""Texts as files: a folder, or a tar or zip archive, with one document in each file."""

from __future__ import annotations

import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import PurePosixPath
from typing import Annotated, Any

import pyarrow as pa
from pydantic import AfterValidator

from streaming_jsmf.errors import InputError, first_line
from streaming_jsmf.ingestion.readers import limits
from streaming_jsmf.ingestion.readers.base import BadRecords, SourceBatch, Unit
from streaming_jsmf.ingestion.readers.listing import SourceFile, find_files, is_marker
from streaming_jsmf.ingestion.readers.records import NAME_ENCODING, BadValue, decode_file, is_binary
from streaming_jsmf.ingestion.readers.streams import DamagedError, open_raw, open_stream, why
from streaming_jsmf.ingestion.readers.text.batches import RESERVED_NAMES, RecordBuffer, TextColumns
from streaming_jsmf.ingestion.readers.text.options import Encoding, TokenOptions
from streaming_jsmf.ingestion.readers.text.reader import words_of
from streaming_jsmf.ingestion.tokens.tokenizer import Tokenizer

#: Files of a folder for one task.
UNIT_FILES = 2000

#: What a member of a zip archive raises; the others can be read all the same. RuntimeError: it needs a password.
_MEMBER_ERRORS = (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, NotImplementedError, RuntimeError)


def _compiles(pattern: str) -> str:
    try:
        groups = re.compile(pattern).groupindex
    except re.error as error:
        raise ValueError(f"no regular expression ({error})") from error
    taken = {"label", *RESERVED_NAMES} & set(groups)
    if taken:
        raise ValueError(f"a group is named {min(taken)!r}, which is taken; give it another name")
    return pattern


class TextFilesOptions(TokenOptions):
    """Which files, how their bytes are read, and what their names tell.

    ``members`` is a glob on the path within the folder or archive; ``name_pattern`` a regular expression looked for in
    it, whose named groups become metadata columns.
    """

    encoding: Encoding = "utf-8"
    members: str = "*"
    name_pattern: Annotated[str, AfterValidator(_compiles)] | None = None


@dataclass(frozen=True)
class _File:
    """One document: its path within the source, and its bytes; None where they cannot be had."""

    name: str
    data: bytes | None
    reason: str = ""


@dataclass(frozen=True)
class TextFilesSource:
    """Documents that are files. Ids are paths within the source; ``label`` is the name of the folder a file is in.

    Files and folders whose names start with ``.`` or ``_`` are passed over, in archives too.

    Attributes
    ----------
    root
        Folder, or archive: ``.tar`` (with any compression), ``.tgz`` or ``.zip``; local or a URL.
    options
        See ``TextFilesOptions``.
    tokenizer
        Texts to words.
    """

    root: str
    options: TextFilesOptions
    tokenizer: Tokenizer
    reader: str = "text-files"
    vocabulary: None = None

    def units(self) -> Sequence[Unit]:
        """Two thousand files of a folder; an archive as a whole.

        Raises
        ------
        InputError
            If no file of the folder is among ``members``.
        """
        if is_archive(self.root):
            return [Unit(self.root)]
        count = len(self._files())
        if not count:
            raise InputError(
                f"no file at {self.root} matches {self.options.members!r}; give another glob with --read members=GLOB"
            )
        return [
            Unit(self.root, start, min(start + UNIT_FILES, count), min(UNIT_FILES, count - start))
            for start in range(0, count, UNIT_FILES)
        ]

    def first_row(self, unit: Unit) -> int:
        """Files before the unit."""
        return unit.start

    def place(self, unit: Unit, row: int) -> str:
        """Path of the file."""
        if is_archive(self.root):
            return f"{self.root}, file {row + 1}"
        return self._files()[unit.start + row].path

    def read(self, unit: Unit, bad: BadRecords) -> Iterator[SourceBatch]:
        """One pass over the unit in batches of about 8 MB of text."""
        groups = list(re.compile(self.options.name_pattern or "").groupindex)
        metadata = dict.fromkeys(["label", *groups], pa.string())
        buffer = RecordBuffer(TextColumns("text", "name", pa.string(), metadata))
        row, broken = -1, False
        files = _archived(self.root) if is_archive(self.root) else self._plain(unit)
        try:
            for file in files:
                if not fnmatch(file.name, self.options.members):
                    continue
                row += 1
                text = self._text(file, row, bad)
                if text is not None:
                    buffer.add(row, text, file.name, self._metadata(file.name, groups))
                if buffer.full:
                    yield from (words_of(batch, self.tokenizer) for batch in buffer.flush())
        except DamagedError as error:
            broken = True
            bad.refuse(row + 1, str(error))
        if row < 0 and not broken:
            bad.refuse(None, f"no file in it matches {self.options.members!r}")
        yield from (words_of(batch, self.tokenizer) for batch in buffer.flush())

    def _text(self, file: _File, row: int, bad: BadRecords) -> str | None:
        if file.data is None:
            bad.refuse(row, f"{file.name}: {file.reason}")
            return None
        if is_binary(file.data):
            bad.refuse(
                row, f"{file.name}: it is no plain text; export the text of PDF, Word and the like", file.data
            )
            return None
        try:
            return decode_file(file.data, self.options.encoding)
        except BadValue as error:
            bad.refuse(row, f"{file.name}: {error} ({NAME_ENCODING})", file.data)
            return None

    def _metadata(self, name: str, groups: Sequence[str]) -> list[str | None]:
        label = PurePosixPath(name).parent.name
        found = re.search(self.options.name_pattern, name) if self.options.name_pattern else None
        return [label, *(found[group] if found else None for group in groups)]

    def _files(self) -> tuple[SourceFile, ...]:
        found = find_files(self.root)
        return tuple(file for file in found if fnmatch(file.name, self.options.members))

    def _plain(self, unit: Unit) -> Iterator[_File]:
        for file in self._files()[unit.start : unit.stop]:
            try:
                with open_raw(file.path) as stream:
                    data = stream.read(limits.LARGEST_FILE + 1)
            except DamagedError as error:
                yield _File(file.name, None, str(error))
            else:
                yield _whole(file.name, data)


def is_archive(path: str) -> bool:
    """Whether the name is that of a tar or zip archive."""
    name = path.lower()
    return name.endswith((".zip", ".tgz", ".tar")) or ".tar." in name.rsplit("/", 1)[-1]


def _archived(path: str) -> Iterator[_File]:
    """The regular files of an archive in its order, one in memory at a time. Nothing is unpacked to disk.

    Raises
    ------
    DamagedError
        Where the archive breaks off, or goes on after its end mark.
    """
    if path.lower().endswith(".zip"):
        with open_raw(path) as stream, zipfile.ZipFile(stream) as archive:
            for member in archive.infolist():
                if not (member.is_dir() or is_marker(_tidy(member.filename))):
                    yield _zipped(archive, member)
        return
    # Packed by its name, or else (as tarfile sees) in spite of it.
    with open_stream(path) as stream:
        try:
            with tarfile.open(fileobj=stream, mode="r|*", tarinfo=_CheckedTarInfo) as tar:
                for entry in tar:
                    if entry.isfile() and not is_marker(_tidy(entry.name)):
                        opened: Any = tar.extractfile(entry)
                        yield _whole(_tidy(entry.name), opened.read(limits.LARGEST_FILE + 1))
                _require_nothing_more(tar.fileobj)
        except tarfile.TarError as error:
            raise DamagedError(why(error)) from error


def _require_nothing_more(stream: Any) -> None:
    """Behind the end mark is padding. A damaged archive has a mark too early; at the end a checksum is compared."""
    while rest := stream.read(1 << 20):
        if rest.strip(b"\0"):
            raise DamagedError("it goes on after its end mark")


def _zipped(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> _File:
    name = _tidy(member.filename)
    try:
        with archive.open(member) as content:
            return _whole(name, content.read(limits.LARGEST_FILE + 1))
    except _MEMBER_ERRORS as error:
        return _File(name, None, f"it cannot be unpacked ({first_line(error)})")


_HEADER_TYPES = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


class _CheckedTarInfo(tarfile.TarInfo):
    """Headers of an archive that must end with its end mark: tarfile takes a cut or damaged header for the end.

    Headers that go on in blocks of their own, which tarfile reads whole, must not be as long as they say.
    """

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
        if entry.type in _HEADER_TYPES and entry.size > limits.LARGEST_TAR_HEADER:
            raise tarfile.ReadError(f"a header of {entry.size} bytes")
        return entry


def _tidy(name: str) -> str:
    """A member's name without ``./``; bytes that are not UTF-8 are spelled out."""
    return name.removeprefix("./").encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _whole(name: str, data: bytes) -> _File:
    if len(data) > limits.LARGEST_FILE:
        return _File(name, None, f"larger than {limits.LARGEST_FILE >> 20} MB, no document")
    return _File(name, data)
