"""Boilerplate of texts: encoded files, mail headers, quotes and signatures, HTML tags, URLs and addresses.

Most texts have none, so one pass over the bytes finds which kinds a text may have.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_jsmf.ingestion.tokens.split import string_buffers
from streaming_jsmf.linalg.compiled import compiled

#: A quoted line of mail, with or without the author's initials: "> so", "JD> so", "|> so", ":> so".
_QUOTED = r"^[ \t]*[A-Za-z]{0,3}[|:]?>.*$"
#: Attribution of a quote: "On Monday John Doe wrote:", "In article <1993@x.org> John Doe writes:".
_SAID = "wrote|writes|said|says|schrieb|escribió|écrit|ha scritto"
_ATTRIBUTION = rf"^.{{0,200}}\b(?:{_SAID})[ \t]*:[ \t]*$|^In article <.*$"
_SIGNATURE_LINE = r"^--[ \t]*$"
#: A header starts the text; mbox files put a line "From NAME DATE" before it.
_HEADER_LINE = r"[A-Za-z][A-Za-z0-9._-]*:(?:[ \t].*)?"
_LOOKS_LIKE_MAIL = rf"(?m)\A(?:From .*\n)?{_HEADER_LINE}$|{_QUOTED}|{_SIGNATURE_LINE}|{_ATTRIBUTION}"

_QUOTES = re.compile(f"{_QUOTED}|{_ATTRIBUTION}", re.MULTILINE)
_SIGNATURE = re.compile(_SIGNATURE_LINE, re.MULTILINE)
_SIGNATURE_LINES = 15
_FIELD = re.compile(r"([A-Za-z][A-Za-z0-9._-]*):[ \t]*(.*)")
_MAIL_FIELDS = frozenset(
    [
        "cc",
        "date",
        "from",
        "message-id",
        "newsgroups",
        "organization",
        "path",
        "received",
        "reply-to",
        "subject",
        "to",
    ]
)
#: Header fields that are kept.
_KEPT_FIELDS = frozenset(("subject", "keywords", "summary"))

#: Files in uuencode: at least two full lines of 45 bytes each, with the line "begin" and a shorter last line.
_UUENCODED = (
    r"(?m)(?:^begin [0-7]{3,4} .*\n)?(?:^M[ -`]{60}.?[ \t\r]*\n){2,}"
    r"(?:^[!-L][ -`]{4,61}[ \t\r]*$)?(?:\s+`?\s*^end[ \t\r]*$)?"
)
#: Files in base64, data URIs and keys: no word has 60 such characters with both cases and digits.
_BASE64_CHARACTERS = "[A-Za-z0-9+/]"
_BASE64 = (
    rf"(?<!{_BASE64_CHARACTERS})(?=[A-Za-z+/]*[0-9])(?=[a-z0-9+/]*[A-Z])(?=[A-Z0-9+/]*[a-z]){_BASE64_CHARACTERS}{{60,}}"
    rf"(?:={{1,2}}|\s+{_BASE64_CHARACTERS}{{1,75}}={{1,2}})?"
)
_LOOKS_ENCODED = rf"(?m)^M[ -`]{{60}}.?[ \t\r]*$|{_BASE64_CHARACTERS}{{60}}"
_ENCODED = re.compile(f"{_UUENCODED}|{_BASE64}")

_TAGS = r"(?is)<(?:script|style)\b[^>]*>.*?</(?:script|style)>|<!--.*?-->|</?[a-z][^<>]*>"
_ENTITY = r"&(?:[A-Za-z]{2,8}|#[0-9]{2,5}|#x[0-9A-Fa-f]{2,4});"
_ADDRESSES = r"(?:https?|ftp)://[^\s<>\"]+|\bwww\.[^\s<>\"]+|[\w.+-]+@[\w-]+(?:\.[\w-]+)*"


#: Kinds of boilerplate. ``_MARKERS`` has the kinds that a byte is enough for; with _CLOSER, its neighbours decide.
_FILE, _MAIL, _TAG, _CHARACTER, _ADDRESS, _CLOSER = (1 << i for i in range(6))
_MARKERS = np.zeros(256, np.uint8)
_MARKERS[list(b"<&@\n>:.")] = [_TAG | _CLOSER, _CHARACTER, _ADDRESS, *4 * [_CLOSER]]
_LINE_END, _DASH, _COLON, _SLASH, _DOT, _LESS, _F, _M, _W, _SPACE, _TAB, _BACKTICK = b"\n-:/.<FMw \t`"
_IN_BASE64, _IN_QUOTE = (
    np.array([chr(i).isascii() and (chr(i).isalpha() or chr(i) in others) for i in range(256)])
    for others in ("0123456789+/", "|: \t")
)


@compiled(nogil=True)
def _marks(offsets: Any, data: Any) -> Any:
    """Return the kinds of boilerplate that each text may have before any is removed: all that it has, perhaps more."""
    marks = np.zeros(len(offsets) - 1, np.uint8)
    for m in range(len(marks)):
        start, stop = offsets[m], offsets[m + 1]
        found = (
            _starts_header(data, start, stop)
            | _marks_of_line(data, start, stop)
            | _long_run(data, start, stop)
        )
        for i in range(start, stop):
            kinds = _MARKERS[data[i]]
            if kinds:
                found |= kinds
                if kinds & _CLOSER:
                    found |= _marks_at(data, start, i, stop)
        marks[m] = found
    return marks


@compiled(nogil=True)
def _starts_header(data: Any, start: int, stop: int) -> Any:
    """Mark a text whose first word has a colon, or is like "From"."""
    i = start
    while i < stop and data[i] > _SPACE and data[i] != _COLON:
        i += 1
    return _MAIL if i < stop and (data[i] == _COLON or (data[start] == _F and i - start == 4)) else 0


@compiled(nogil=True)
def _long_run(data: Any, start: int, stop: int) -> Any:
    """Mark 60 characters of base64 in a row."""
    i = start + 59
    while i < stop:
        j = i
        while j > i - 60 and _IN_BASE64[data[j]]:
            j -= 1
        if j == i - 60:
            return _FILE
        i = j + 60
    return 0


@compiled(nogil=True)
def _marks_of_line(data: Any, i: int, stop: int) -> Any:
    """Mark a line of a signature or of uuencode that starts at i."""
    if i + 1 < stop and data[i] == data[i + 1] == _DASH:
        return _MAIL
    if i + 60 >= stop or data[i] != _M:
        return 0
    for j in range(i + 1, i + 61):
        if data[j] < _SPACE or data[j] > _BACKTICK:
            return 0
    return _FILE


@compiled(nogil=True)
def _marks_at(data: Any, start: int, i: int, stop: int) -> Any:
    """Mark what the byte i and its neighbours may belong to."""
    if data[i] == _LINE_END:
        return _marks_of_line(data, i + 1, stop)
    if data[i] == _DOT:
        return _ADDRESS if i - start > 2 and data[i - 1] == data[i - 2] == data[i - 3] == _W else 0
    if data[i] == _COLON:
        return _marks_of_colon(data, i, stop)
    # A quote of a line ">", or "In article <".
    j = i - 1
    if data[i] == _LESS:
        j -= 11
    else:
        while j >= start and _IN_QUOTE[data[j]]:
            j -= 1
    return _MAIL if j == start - 1 or (j >= start and data[j] == _LINE_END) else 0


@compiled(nogil=True)
def _marks_of_colon(data: Any, i: int, stop: int) -> Any:
    """Mark a colon of "://", and one at the end of a line, as of "wrote:"."""
    if i + 2 < stop and data[i + 1] == data[i + 2] == _SLASH:
        return _ADDRESS
    i += 1
    while i < stop and (data[i] == _SPACE or data[i] == _TAB):
        i += 1
    return _MAIL if i == stop or data[i] == _LINE_END else 0


def without_boilerplate(texts: Any) -> Any:
    """Remove the boilerplate of mail and web pages from an Arrow array of strings without nulls.

    This removes files in uuencode or base64; a leading mail header except its subject, keywords and summary; lines
    quoted with ``>`` (also those of Markdown) and their attribution lines; a signature of up to fifteen lines after a
    line of two dashes; HTML tags, scripts and comments; URLs and mail addresses. HTML entities become characters.
    """
    marks = _marks(*string_buffers(texts))
    # One copy of all texts, not one for each rule.
    marked = marks & ~np.uint8(_CLOSER) > 0

    def cleaned(held: Any) -> Any:
        for kinds, change in _RULES:
            held = _replaced(held, marks[marked] & kinds > 0, change)
        return held

    return _replaced(texts, marked, cleaned)


def _replaced(texts: Any, mask: NDArray[np.bool_], change: Callable[[Any], Any]) -> Any:
    """Apply ``change`` to the Arrow array of the masked texts."""
    if not mask.any():
        return texts
    return pc.replace_with_mask(texts, pa.array(mask), change(texts.filter(pa.array(mask))))


def _where(pattern: str, change: Callable[[str], str]) -> Callable[[Any], Any]:
    """Return a function that applies ``change`` to the texts of an Arrow array that match the pattern."""

    def changed(texts: Any) -> Any:
        found = np.asarray(pc.match_substring_regex(texts, pattern))
        return _replaced(texts, found, lambda held: pa.array(map(change, held.to_pylist()), held.type))

    return changed


def _body(text: str) -> str:
    text = _QUOTES.sub("", _without_header(text))
    signatures = list(_SIGNATURE.finditer(text))
    if signatures:
        start, stop = signatures[-1].span()
        if text.count("\n", stop, len(text.rstrip())) <= _SIGNATURE_LINES:
            return text[:start]
    return text


def _without_header(text: str) -> str:
    head, blank, body = re.sub(r"\AFrom .*\n", "", text.replace("\r\n", "\n")).partition("\n\n")
    # A field continues in lines that start with white space.
    lines = re.sub(r"\n[ \t]+", " ", head).split("\n")
    fields = [_FIELD.fullmatch(line) for line in lines]
    if (
        not blank
        or not all(fields)
        or len(_MAIL_FIELDS & {field[1].lower() for field in fields if field}) < 2
    ):
        return text
    kept = [field[2] for field in fields if field and field[1].lower() in _KEPT_FIELDS]
    return "\n".join([*kept, "", body])


#: Kinds of boilerplate and what removes them, in this order. Removing a file may leave the start of a quoted line, and
#: character references stand for any character.
_RULES: tuple[tuple[int, Callable[[Any], Any]], ...] = (
    (_FILE, _where(_LOOKS_ENCODED, partial(_ENCODED.sub, " "))),
    (_FILE | _MAIL, _where(_LOOKS_LIKE_MAIL, _body)),
    (_TAG, partial(pc.replace_substring_regex, pattern=_TAGS, replacement=" ")),
    (_CHARACTER, _where(_ENTITY, html.unescape)),
    (_CHARACTER | _ADDRESS, partial(pc.replace_substring_regex, pattern=_ADDRESSES, replacement=" ")),
)
