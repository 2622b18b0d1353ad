"""Texts and mail as files: a folder, or a zip or tar archive, with one document or several messages per file."""

from __future__ import annotations

import email
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC
from email.errors import MessageError
from email.header import decode_header, make_header
from email.message import Message
from email.utils import parsedate_to_datetime
from fnmatch import fnmatch
from pathlib import PurePosixPath
from typing import IO, Any, ClassVar

import pyarrow as pa

from streaming_jsmf.config import ReaderName
from streaming_jsmf.errors import InputError, first_line, option, pass_on_machine
from streaming_jsmf.ingestion.readers.base import (
    BadRecords,
    BadValue,
    Records,
    Unit,
    UnreadableError,
    group_units,
    limits,
)
from streaming_jsmf.ingestion.readers.files import (
    describe,
    is_archive,
    is_divisible,
    is_hidden,
    is_tar,
    open_raw,
    open_stream,
    size_of,
)
from streaming_jsmf.ingestion.readers.formats import Gathered, Parsed, gathered
from streaming_jsmf.ingestion.readers.listing import find_files, with_members
from streaming_jsmf.ingestion.readers.records import TextReader
from streaming_jsmf.ingestion.readers.values import decode, encoding_hint, is_binary, marked_encoding
from streaming_jsmf.ingestion.tokens.boilerplate import characters, without_tags
from streaming_jsmf.storage.kinds import SOURCE, unsuitable
from streaming_jsmf.storage.paths import exists, is_url

UNIT_FILES = 2000  # of a folder per task

#: The line before each message of an mbox file, as in "From ann@example.org Thu Jan  1 00:00:00 1970".
_FROM_LINE = re.compile(rb"From (?=.*\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun|(?:19|20)\d\d)\b).*\d:\d\d")
#: The line before a message of Apple Mail, with its size.
_EMLX = re.compile(rb"([0-9]{1,9})[ \t]*\r?\n(?=[!-9;-~]+:)")
_ESCAPED = re.compile(rb"(?m)^>(?=>*From )")

#: Header fields that become columns; also the date and the number of attachments.
_FIELDS = ("from", "to", "subject", "message-id")
_TEXTS = ("text/plain", "text/html")
_MOST_PARAMETERS, _LONGEST_FIELD, _MOST_UNENDED = 1000, 100_000, 100  # of header fields

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
        count = len(self.listed())
        if not count:
            raise InputError(
                f"no file at {self.root} matches {self.options.members!r}; give another glob with "
                f"{option.read({'members': 'GLOB'})}"
            )
        return group_units(self.root, [1] * count, UNIT_FILES)

    def place(self, unit: Unit, row: int) -> str:
        if is_tar(self.root):
            return f"{self.root}, file {row + 1}"
        return self.listed()[unit.start + row][0]

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
        for path, name in self.listed()[unit.start : unit.stop]:
            try:
                is_inner = is_archive(path) and path != self.root
                with open_raw(path) if is_inner else open_stream(path) as stream:
                    yield from self.documents(name, stream)
            except UnreadableError as error:
                yield name, str(error)


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


# Mail


class MailSource(TextFilesSource):
    """Reader "mail". The text of a message is its subject and its plain text, or else its HTML without tags.

    Files and ids are those of "text-files"; the second message of the mbox file a is "a:2". Columns are the sender,
    recipients, subject, id and time (in UTC) of a message, and the number of its attachments, which are not read.
    """

    reader = "mail"

    def units(self) -> Sequence[Unit]:
        """Return units of 2,000 files or, in a local folder, about 64 MB, for which large mbox files are read once."""
        units = super().units()
        if is_archive(self.root) or is_url(self.root):
            return units
        files = self.listed()
        sizes = [max(size_of(path), limits.UNIT_BYTES // UNIT_FILES) for path, _ in files]
        units = []
        for unit in group_units(self.root, sizes, limits.UNIT_BYTES):
            path, size = files[unit.stop - 1][0], sizes[unit.stop - 1]  # a large file is the last of its unit
            if size <= limits.UNIT_BYTES or not is_divisible(path):
                units.append(unit)
                continue
            if unit.stop - unit.start > 1:
                units.append(replace(unit, stop=unit.stop - 1, size=unit.size - size))
            units += _parts_of(path, size)
        return units

    def place(self, unit: Unit, row: int) -> str:
        return f"{unit.path}, message {self.first_row(unit) + row + 1}"

    def first_row(self, unit: Unit) -> int:
        return unit.first if unit.layout else unit.start

    def _plain(self, unit: Unit) -> Iterator[File]:
        if not unit.layout:
            yield from super()._plain(unit)
            return
        with open_stream(unit.path) as stream:
            stream.seek(unit.start)
            yield from self.documents(dict(self.listed())[unit.path], stream, unit)

    def documents(self, name: str, stream: IO[bytes], part: Unit | None = None) -> Iterator[File]:
        for number, (start, message) in enumerate(_messages(stream), part.first + 1 if part else 1):
            if part and part.start + start >= part.stop:
                return
            yield name if number == 1 else f"{name}:{number}", bounded(message)

    def text(self, name: str, data: bytes) -> tuple[str, dict[str, Any]]:  # noqa: ARG002
        if is_binary(data):
            raise BadValue("it is not mail")
        try:
            return _read(data, self.options.encoding)
        except Exception as error:  # the package email may raise anything
            pass_on_machine(error)
            raise BadValue(f"its header or structure is damaged ({first_line(error)})") from error


def _parts_of(path: str, size: int) -> list[Unit]:
    """Return parts of about ``UNIT_BYTES`` of an mbox file."""
    cuts = [(0, 0)]
    with open_stream(path) as stream:
        for number, (start, _) in enumerate(_messages(stream)):
            if start >= cuts[-1][0] + limits.UNIT_BYTES:
                cuts.append((start, number))
    stops = [*(start for start, _ in cuts[1:]), size]
    return [
        Unit(path, at, stop, stop - at, layout="mbox", first=number)
        for (at, number), stop in zip(cuts, stops, strict=True)
    ]


def _messages(stream: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield place and bytes of the messages of an mbox file, of which too large ones are cut, or of another file."""
    lines: list[bytes] = []
    at, start, size, is_mbox, after_blank = 0, 0, 0, None, True
    while line := stream.readline(1 << 20):
        starts = is_mbox is not False and after_blank and _FROM_LINE.match(line)
        if is_mbox is None:
            is_mbox = bool(starts)
        if starts:
            if lines:
                yield start, _ESCAPED.sub(b"", b"".join(lines))
            lines, size, start = [], 0, at
        elif size <= limits.LARGEST_FILE:
            lines.append(line)
            size += len(line)
        at += len(line)
        after_blank = not line.strip()
    if lines:
        yield start, _ESCAPED.sub(b"", b"".join(lines)) if is_mbox else b"".join(lines)


class _Message(Message):
    """A message whose header fields of very many parameters have none: reading them takes quadratic time."""

    def get_param(
        self, param: str, failobj: Any = None, header: str = "content-type", unquote: bool = True
    ) -> Any:
        few = str(self.get(header, "")).count(";") <= _MOST_PARAMETERS
        return super().get_param(param, failobj, header, unquote) if few else failobj


def _read(data: bytes, encoding: str) -> tuple[str, dict[str, Any]]:
    if found := _EMLX.match(data):
        data = data[found.end() : found.end() + int(found[1])]
    # The default policy, which parses each address, takes ten times as long.
    message = email.message_from_bytes(data, _Message)
    header: dict[str, str] = {}
    for name, value in message.raw_items():
        if name.lower() in (*_FIELDS, "date"):
            header.setdefault(name.lower(), _unfolded(str(value), encoding))
    texts = [_text_of(part, encoding) for part in _parts(message)]
    leaves = [part for part in message.walk() if not part.is_multipart()]
    metadata = {
        **{name.replace("-", "_"): header.get(name) for name in _FIELDS},
        "date": _time(header.get("date", "")),
        "attachments": len(leaves) - sum(map(_is_text, leaves)),
    }
    return "\n".join([header.get("subject", ""), *texts]).strip(), metadata


def _unfolded(value: str, encoding: str) -> str:
    """Return the value of a header field on one line, with encoded words such as =?utf-8?q?caf=C3=A9?= decoded."""
    value = _decoded(value.encode("utf-8", "surrogateescape"), None, encoding)
    if "=?" in value and _is_soon_decoded(value):
        with suppress(LookupError, ValueError, MessageError):
            value = str(make_header(decode_header(value)))
    return " ".join(value.split())


def _is_soon_decoded(value: str) -> bool:
    """Return whether the package email decodes a field in linear time: it is short, and its encoded words have ends."""
    unended = (line.count("=?", line.rfind("?=") + 1) for line in value.splitlines())
    return len(value) <= _LONGEST_FIELD and max(unended) <= _MOST_UNENDED


def _time(date: str) -> str | None:
    try:
        when = parsedate_to_datetime(date)
        return when.replace(tzinfo=when.tzinfo or UTC).astimezone(UTC).strftime("%04Y-%m-%dT%H:%M:%SZ")
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _is_text(part: Message) -> bool:
    """Return whether a part that has no parts is text, as is one that lacks the boundary of its parts."""
    is_text = part.get_content_type() in _TEXTS or part.get_content_maintype() == "multipart"
    return is_text and part.get_content_disposition() != "attachment"


def _parts(part: Any) -> list[Any]:
    """Return the parts that are read: of alternatives the one with plain text, or else the first."""
    if not part.is_multipart():
        return [part] if _is_text(part) else []
    found = [parts for each in part.get_payload() if (parts := _parts(each))]
    if part.get_content_type() == "multipart/alternative":
        plain = [parts for parts in found if any(each.get_content_type() == _TEXTS[0] for each in parts)]
        found = (plain or found)[:1]
    return [each for parts in found for each in parts]


def _text_of(part: Message, encoding: str) -> str:
    data: Any = part.get_payload(decode=True) or b""
    text = _decoded(data, part.get_content_charset(), encoding).replace("\r\n", "\n")
    if part.get_content_type() == "text/html":
        text = characters(without_tags(pa.array([text]), "<[^<>]*>")[0].as_py())
    return text


def _decoded(data: bytes, charset: str | None, encoding: str) -> str:
    """Decode text as it says, as the user says, or byte by byte, because mail often names the wrong encoding."""
    for codec in (charset, *encoding.split(",")):
        try:
            return data.decode(codec or "ascii")
        except (LookupError, ValueError):
            continue
    return data.decode("latin-1")
