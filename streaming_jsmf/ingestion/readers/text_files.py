"""Texts and mail as files: a folder, or a zip or tar archive, with one document or several messages per file.

A folder is listed once: units name their files.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import PurePosixPath
from typing import IO, Any, ClassVar

from streaming_jsmf.config import ReaderName
from streaming_jsmf.errors import InputError, first_line, option, pass_on_machine
from streaming_jsmf.ingestion.formats.lines import Gathered, Parsed, gathered
from streaming_jsmf.ingestion.formats.mail import messages, read_message
from streaming_jsmf.ingestion.sources.adapter import TextReader
from streaming_jsmf.ingestion.sources.listing import find_files, with_members
from streaming_jsmf.ingestion.sources.protocol import (
    BadRecords,
    BadValue,
    Records,
    Unit,
    UnreadableError,
    group_units,
    limits,
)
from streaming_jsmf.ingestion.sources.streams import (
    describe,
    is_archive,
    is_hidden,
    is_tar,
    open_raw,
    open_stream,
    size_of,
)
from streaming_jsmf.ingestion.sources.values import decode, encoding_hint, is_binary, marked_encoding
from streaming_jsmf.linalg.panels import panels
from streaming_jsmf.storage.kinds import SOURCE, unsuitable
from streaming_jsmf.storage.objects import SOURCE_THREADS, in_threads
from streaming_jsmf.storage.paths import exists, is_url

UNIT_FILES = 2000  # of a folder per task
_SMALL = 1 << 20

#: A document: its id, which is its path within the source, and its bytes or why they cannot be read.
File = tuple[str, bytes | str]


class TextFilesSource(TextReader):
    """Reader "text-files". Ids are paths within the source; ``label`` is the name of a file's folder.

    Hidden files are skipped. ``root`` is a folder, ``.tar`` (with any compression), ``.tgz`` or ``.zip``, local or a
    URL. Files may be compressed.
    """

    reader: ClassVar[ReaderName] = "text-files"

    def units(self) -> Sequence[Unit]:
        """Return units of 2,000 files, or a tar archive as one. Raises InputError if no file matches."""
        if is_archive(self.root) and not exists(self.root):
            raise unsuitable(self.root, SOURCE, "")
        if is_tar(self.root):
            return [Unit(self.root)]
        files = self.listed()
        if not files:
            raise InputError(
                f"no file at {self.root} matches {self.options.members!r}; give another glob with "
                f"{option.members('GLOB')}"
            )
        units = self._grouped([path for path, _ in files])
        return [replace(unit, files=_packed(files[unit.start : unit.stop])) for unit in units]

    def _grouped(self, paths: Sequence[str]) -> list[Unit]:
        return group_units(self.root, [1] * len(paths), UNIT_FILES)

    def place(self, unit: Unit, row: int) -> str:
        return f"{self.root}, file {row + 1}" if is_tar(self.root) else _unpacked(unit)[row][0]

    @property
    def id_column(self) -> str:
        return "file"

    def records(self, unit: Unit, bad: BadRecords) -> Iterator[Records]:
        return gathered(unit, self._parsed(unit), bad, Gathered())

    def documents(self, name: str, stream: IO[bytes]) -> Iterator[File]:
        """Yield the documents of a file."""
        yield name, bounded(stream.read(limits.LARGEST_FILE + 1))

    def text(self, name: str, data: bytes) -> tuple[str, dict[str, Any]]:
        """Return the text and the metadata of a document. Raises BadValue."""
        if is_binary(data):
            what = "unpack it" if is_archive(name) else "export PDF, Word and similar files as text"
            raise BadValue(f"it is not plain text; {what}")
        encoding = marked_encoding(data) or self.options.encoding
        return decode(data, encoding, "file", encoding_hint), {}

    def _parsed(self, unit: Unit) -> Iterator[tuple[Parsed, bytes | None]]:
        pattern, name = re.compile(self.options.name_pattern or ""), ""
        for name, data in files_in_tar(self.root, self._split) if is_tar(self.root) else self._plain(unit):
            if isinstance(data, str):
                yield BadValue(f"{name}: {data}"), None
                continue
            try:
                text, metadata = self.text(name, data)
            except BadValue as error:
                yield BadValue(f"{name}: {error}"), data
                continue
            found = pattern.search(name)
            named = found.groupdict() if found else dict.fromkeys(pattern.groupindex)
            label = PurePosixPath(name).parent.name
            yield {"text": text, "file": name, "label": label, **named, **metadata}, data
        if not name:
            raise UnreadableError(f"no file in it matches {self.options.members!r}")

    def _split(self, name: str, stream: IO[bytes]) -> Iterable[File]:
        return self.documents(name, stream) if fnmatch(name, self.options.members) else ()

    def listed(self) -> list[tuple[str, str]]:
        """Return path and name of each file of a folder or a zip archive."""
        if is_archive(self.root):
            inside = with_members([self.root])
            found = {path: path.partition("::")[0].removeprefix("zip://") for path in inside}
        else:
            found = find_files(self.root)
        return [(path, name) for path, name in found.items() if fnmatch(name, self.options.members)]

    def _plain(self, unit: Unit) -> Iterator[File]:
        files = _unpacked(unit)
        for some in panels(len(files), SOURCE_THREADS):
            paths = [path for path, _ in files[some]]
            # Side by side, because an object store takes as long to answer as many small files take to read.
            held = (
                in_threads(self._small, paths, SOURCE_THREADS) if is_url(self.root) else [None] * len(paths)
            )
            for (path, name), data in zip(files[some], held, strict=True):
                try:
                    with self._opened(path) if data is None else io.BytesIO(data) as stream:
                        yield from self.documents(name, stream)
                except UnreadableError as error:
                    yield name, str(error)

    def _opened(self, path: str) -> AbstractContextManager[IO[bytes]]:
        return open_raw(path) if is_archive(path) and path != self.root else open_stream(path)

    def _small(self, path: str) -> bytes | None:
        """Return the contents of a file; None if it is large or cannot be read."""
        with suppress(UnreadableError), self._opened(path) as stream:
            data = stream.read(_SMALL + 1)
            return data if len(data) <= _SMALL else None
        return None


def _packed(files: Sequence[tuple[str, str]]) -> bytes:
    """Paths and names of the files of a unit; both are alike, so that this takes a tenth of their bytes."""
    return zlib.compress(json.dumps(files).encode())


def _unpacked(unit: Unit) -> list[tuple[str, str]]:
    return [(path, name) for path, name in json.loads(zlib.decompress(unit.files))]


def files_in_tar(path: str, split: Callable[[str, IO[bytes]], Iterable[File]]) -> Iterator[File]:
    """Yield what ``split`` returns for name and stream of each regular file of a tar archive, one after the other.

    Raises UnreadableError if the archive ends early.
    """
    # Decompressed by suffix, or else by tarfile, which inspects the content.
    with open_stream(path) as stream:
        try:
            with tarfile.open(fileobj=stream, mode="r|*", tarinfo=_CheckedTarInfo) as tar:
                for entry in tar:
                    # Without ./, and with bytes that are not UTF-8 escaped.
                    raw = entry.name.removeprefix("./").encode("utf-8", "surrogateescape")
                    name = raw.decode("utf-8", "backslashreplace")
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


class _CheckedTarInfo(tarfile.TarInfo):
    """Tar headers with a required end mark and limited size; tarfile takes a damaged header for the end."""

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
        # Types with long names and further headers in their content, which tarfile reads whole.
        if entry.type in b"xgXLK" and entry.size > limits.LARGEST_TAR_HEADER:
            raise tarfile.ReadError(f"a header of {entry.size} bytes")
        return entry


def bounded(data: bytes) -> bytes | str:
    """Return the bytes of a document, or why they are too many."""
    too_large = f"larger than {limits.LARGEST_FILE >> 20} MB, too large for a document"
    return too_large if len(data) > limits.LARGEST_FILE else data


class MailSource(TextFilesSource):
    """Reader "mail". Files and ids are those of "text-files"; the second message of the mbox file a is "a:2"."""

    reader = "mail"

    def _grouped(self, paths: Sequence[str]) -> list[Unit]:
        """Return units of 2,000 files or, in a local folder, about 64 MB."""
        if is_archive(self.root) or is_url(self.root):
            return super()._grouped(paths)
        sizes = [max(size_of(path), limits.UNIT_BYTES // UNIT_FILES) for path in paths]
        return group_units(self.root, sizes, limits.UNIT_BYTES)

    def place(self, unit: Unit, row: int) -> str:
        return f"{unit.path}, message {unit.start + row + 1}"

    def documents(self, name: str, stream: IO[bytes]) -> Iterator[File]:
        for number, message in enumerate(messages(stream), 1):
            yield name if number == 1 else f"{name}:{number}", bounded(message)

    def text(self, name: str, data: bytes) -> tuple[str, dict[str, Any]]:  # noqa: ARG002
        if is_binary(data):
            raise BadValue("it is not mail")
        try:
            return read_message(data, self.options.encoding)
        except Exception as error:  # the package email may raise anything
            pass_on_machine(error)
            raise BadValue(f"its header or structure is damaged ({first_line(error)})") from error
