"""Mail: the messages of a file, an mbox or a single one, and the text and fields of a message.

The text is the subject and the plain text, or else the HTML without tags; attachments are counted, but not read.
"""

from __future__ import annotations

import email
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC
from email.errors import MessageError
from email.header import decode_header, make_header
from email.message import Message
from email.utils import parsedate_to_datetime
from typing import IO, Any

import pyarrow as pa

from streaming_jsmf.ingestion.sources.protocol import limits
from streaming_jsmf.ingestion.tokens.boilerplate import characters, without_tags

#: The line before each message of an mbox file, as in "From ann@example.org Thu Jan  1 00:00:00 1970".
_FROM_LINE = re.compile(rb"From (?=.*\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun|(?:19|20)\d\d)\b).*\d:\d\d")
#: The line before a message of Apple Mail, with its size.
_EMLX = re.compile(rb"([0-9]{1,9})[ \t]*\r?\n(?=[!-9;-~]+:)")
_ESCAPED = re.compile(rb"(?m)^>(?=>*From )")

#: Header fields that become columns; also the date and the number of attachments.
_FIELDS = ("from", "to", "subject", "message-id")
_TEXTS = ("text/plain", "text/html")
_MOST_PARAMETERS, _LONGEST_FIELD, _MOST_UNENDED = 1000, 100_000, 100  # of header fields


def messages(stream: IO[bytes]) -> Iterator[bytes]:
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


class _Message(Message):
    """A message whose header fields of very many parameters have none: reading them takes quadratic time."""

    def get_param(
        self, param: str, failobj: Any = None, header: str = "content-type", unquote: bool = True
    ) -> Any:
        few = str(self.get(header, "")).count(";") <= _MOST_PARAMETERS
        return super().get_param(param, failobj, header, unquote) if few else failobj


def read_message(data: bytes, encoding: str) -> tuple[str, dict[str, Any]]:
    """Return the text and the fields of a message: from, to, subject, message_id, date (UTC), attachments.

    May raise anything for a message that is damaged, as the package email does.
    """
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
