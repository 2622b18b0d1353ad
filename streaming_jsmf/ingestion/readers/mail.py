"""Mail: messages in files of their own (.eml, maildir) and in mbox files."""

from __future__ import annotations

import email
import html
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC
from email.errors import MessageError
from email.header import decode_header, make_header
from email.message import Message
from email.utils import parsedate_to_datetime
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc

from streaming_jsmf.errors import first_line, pass_on_machine
from streaming_jsmf.ingestion.readers.base import BadValue, Unit, limits
from streaming_jsmf.ingestion.readers.files import is_archive, size_of
from streaming_jsmf.ingestion.readers.parquet_records import group_units
from streaming_jsmf.ingestion.readers.text_files import UNIT_FILES, File, TextFilesSource, bounded
from streaming_jsmf.ingestion.readers.values import is_binary
from streaming_jsmf.storage.paths import is_url

#: The line before each message of an mbox file, as in "From ann@example.org Thu Jan  1 00:00:00 1970".
_FROM_LINE = re.compile(rb"From .*[0-9]:[0-9]{2}")
_ESCAPED = re.compile(rb"(?m)^>(?=>*From )")

#: Header fields that become columns; also the date and the number of attachments.
_FIELDS = ("from", "to", "subject", "message-id")
_TEXTS = ("text/plain", "text/html")
_TAGS = r"(?is)<(?:script|style)\b[^>]*>.*?</(?:script|style)>|<!--.*?-->|<[^<>]*>"


class MailSource(TextFilesSource):
    """Reader "mail". The text of a message is its subject and its plain text, or else its HTML without tags.

    Files and ids are those of "text-files"; the second message of the mbox file a is "a:2". Columns are the sender,
    recipients, subject, id and time (in UTC) of a message, and the number of its attachments, which are not read.
    """

    reader = "mail"

    def units(self) -> Sequence[Unit]:
        """Split a folder into units of at most 2,000 files and about 64 MB; an archive is one unit."""
        units = super().units()
        if is_archive(self.root) or is_url(self.root):
            return units
        sizes = [max(size_of(path), limits.UNIT_BYTES // UNIT_FILES) for path, _ in self.listed()]
        return group_units(self.root, sizes, limits.UNIT_BYTES)

    def place(self, unit: Unit, row: int) -> str:  # noqa: ARG002
        return f"{self.root}, message {row + 1}"

    def documents(self, name: str, stream: IO[bytes]) -> Iterator[File]:
        for number, message in enumerate(_messages(stream), 1):
            yield name if number == 1 else f"{name}:{number}", bounded(message)

    def text(self, name: str, data: bytes) -> tuple[str, dict[str, Any]]:  # noqa: ARG002
        if is_binary(data):
            raise BadValue("it is not mail")
        try:
            return _read(data, self.options.encoding)
        except Exception as error:  # the package email may raise anything
            pass_on_machine(error)
            raise BadValue(f"its header or structure is damaged ({first_line(error)})") from error


def _messages(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the messages of an mbox file, of which too large ones are cut, or the only one of another file."""
    lines: list[bytes] = []
    size, is_mbox, after_blank = 0, None, True
    while line := stream.readline(1 << 20):
        starts = is_mbox is not False and after_blank and _FROM_LINE.match(line)
        if is_mbox is None:
            is_mbox = bool(starts)
        if starts:
            if lines:
                yield _ESCAPED.sub(b"", b"".join(lines))
            lines, size = [], 0
        elif size <= limits.LARGEST_FILE:
            lines.append(line)
            size += len(line)
        after_blank = not line.strip()
    if lines:
        yield _ESCAPED.sub(b"", b"".join(lines)) if is_mbox else b"".join(lines)


def _read(data: bytes, encoding: str) -> tuple[str, dict[str, Any]]:
    # The default policy, which parses each address, takes ten times as long.
    message = email.message_from_bytes(data)
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
    if "=?" in value:
        with suppress(LookupError, ValueError, MessageError):
            value = str(make_header(decode_header(value)))
    return " ".join(value.split())


def _time(date: str) -> str | None:
    try:
        when = parsedate_to_datetime(date)
        return when.replace(tzinfo=when.tzinfo or UTC).astimezone(UTC).strftime("%04Y-%m-%dT%H:%M:%SZ")
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _is_text(part: Message) -> bool:
    return part.get_content_type() in _TEXTS and part.get_content_disposition() != "attachment"


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
        text = html.unescape(
            pc.replace_substring_regex(pa.scalar(text), pattern=_TAGS, replacement=" ").as_py()
        )
    return text


def _decoded(data: bytes, charset: str | None, encoding: str) -> str:
    """Decode text as it says, as the user says, or byte by byte, because mail often names the wrong encoding."""
    for codec in (charset, *encoding.split(",")):
        try:
            return data.decode(codec or "ascii")
        except (LookupError, ValueError):
            continue
    return data.decode("latin-1")
