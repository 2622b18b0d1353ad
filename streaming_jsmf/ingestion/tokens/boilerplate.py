"""Boilerplate of texts: encoded files, mail headers, quotes and signatures, HTML tags, URLs and addresses.

Most texts have none, so Arrow searches for each kind first.
"""

from __future__ import annotations

import html
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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


def without_boilerplate(texts: Any) -> Any:
    """Remove the boilerplate of mail and web pages from an Arrow array of strings without nulls.

    This removes files in uuencode or base64; a leading mail header except its subject, keywords and summary; lines
    quoted with ``>`` (also those of Markdown) and their attribution lines; a signature of up to fifteen lines after a
    line of two dashes; HTML tags, scripts and comments; URLs and mail addresses. HTML entities become characters.
    """
    texts = _where(texts, _LOOKS_ENCODED, lambda text: _ENCODED.sub(" ", text))
    texts = _where(texts, _LOOKS_LIKE_MAIL, _body)
    if _has(texts, "<"):
        texts = pc.replace_substring_regex(texts, _TAGS, " ")
    if _has(texts, "&"):
        texts = _where(texts, _ENTITY, html.unescape)
    if _has(texts, "@") or _has(texts, "://") or _has(texts, "www."):
        texts = pc.replace_substring_regex(texts, _ADDRESSES, " ")
    return texts


def _has(texts: Any, part: str) -> bool:
    return bool(pc.any(pc.match_substring(texts, part)).as_py())


def _where(texts: Any, pattern: str, change: Any) -> Any:
    """Apply ``change`` to the texts that match the pattern."""
    found = np.flatnonzero(np.asarray(pc.match_substring_regex(texts, pattern)))
    if not len(found):
        return texts
    changed = texts.to_pylist()
    for row in found.tolist():
        changed[row] = change(changed[row])
    return pa.array(changed, texts.type)


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
