"""Boilerplate of texts (encoded files, mail headers, quotes and signatures, HTML tags, URLs, addresses), and passages.

Most texts have no boilerplate, so ``signs`` finds those that may have any.
"""

from __future__ import annotations

import html
import re
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_jsmf.corpus.hashes import string_buffers
from streaming_jsmf.ingestion.tokens import signs
from streaming_jsmf.linalg.compiled import compiled

#: A quoted line of mail. With the author's initials, "JD> so", it counts in mail only.
_QUOTED = r"^[ \t]*[|:]?>.*$"
_QUOTED_IN_MAIL = r"^[ \t]*[A-Za-z]{0,3}[|:]?>.*$"
#: Attribution of a quote, which follows: "On Monday John Doe wrote:", "In article <1993@x.org> John Doe writes:".
_SAID = (
    r"\b(?:(?:wrote|writes|said|says|escribió|a écrit|ha scritto)[ \t\xa0]*|schrieb\b[^:]{0,100}):[ \t\r]*$"
)
_ATTRIBUTION = rf"^(?:.{{0,200}}{_SAID}|In article <.*$)"
_ATTRIBUTED = rf"{_ATTRIBUTION}(?=\s*{_QUOTED_IN_MAIL})|^In article <[^>\s][^>\s@]*@[^>\s]+>.*$"
_SIGNATURE_LINE = r"^--[ \t]*$"
#: The start of an old mail below a reply without ``>``: a header as Outlook writes it, in several languages.
_SENDER = r"^\*?(?:From|Von|De|Da)[ \t\xa0]?:"
_OLD_HEADER = (
    rf"(?:[ \t]*[-_]{{5,}}+.{{0,100}}\s{{1,9}})?{_SENDER}.*\n"
    r"(?:\*?(?:Sent|Date|To|Gesendet|Datum|An|Envoyé|À|Enviado(?: el)?|Fecha|Para|Inviato|Data|A|C[Cc])"
    r"[ \t\xa0]?:.*\n(?:[ \t].*\n)*){1,5}\*?(?:Subject|Betreff|Objet|Asunto|Oggetto)[ \t\xa0]?:"
)
#: Its attribution with a time and an address, such as "On Mon, Jan 3, 2020 at 10:15 AM Ann <a@x.org> wrote:".
_DATED = (
    r"(?:On|Am|Le|El|Il) (?=[^\n@]*(?:\n[^\n@]*)?@).{0,100}?[0-9][:.h][0-9]{2}\b.{0,150}(?:\n.{0,100})?"
    rf"{_SAID}(?!\s*{_QUOTED_IN_MAIL})"
)
_FORWARDED = (
    r"(?i)\A(?:subject:)?[ \t]*(?:fwd?|wg|tr|rv)[ \t]*:"
    r"|^[ \t]*-{5}.*(?:forwarded|weitergeleitet|transféré|reenviado)"
)
#: A header starts the text; mbox files put a line "From NAME DATE" before it.
_HEADER_LINE = r"[A-Za-z][A-Za-z0-9._-]*:(?:[ \t].*)?"
_LOOKS_LIKE_MAIL = rf"(?m)\A(?:From .*\n)?{_HEADER_LINE}$|{_QUOTED}|{_SENDER}|{_SAID}|^In article <"

_QUOTE, _QUOTE_IN_MAIL, _ATTRIBUTED_QUOTE, _SIGNATURE, _OLD_MAIL, _FORWARD = (
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        _QUOTED,
        _QUOTED_IN_MAIL,
        _ATTRIBUTED,
        _SIGNATURE_LINE,
        f"\\n(?:{_OLD_HEADER}|{_DATED})",
        _FORWARDED,
    )
)
#: A text with fewer quoted lines and no other sign of mail is no mail.
_FEWEST_QUOTES = 2
_SIGNATURE_LINES, _SIGNATURE_CHARACTERS = 15, 1000
_FIELD = re.compile(r"([A-Za-z][A-Za-z0-9._-]*):[ \t]*(.*)")
_MAIL_FIELDS = frozenset(
    "cc date from message-id newsgroups organization path received reply-to subject to".split()  # noqa: SIM905
)
#: Header fields that are kept.
_KEPT_FIELDS = frozenset(("subject", "keywords", "summary"))

#: Files in uuencode: at least two full lines of 45 bytes each, with the line "begin" and a shorter last line.
_UUENCODED = (
    r"(?m)(?:^begin [0-7]{3,4} .*\n)?(?:^M[ -`]{60}.?[ \t\r]*\n){2,}"
    r"(?:^[!-L][ -`]{4,61}[ \t\r]*$)?(?:\s+(?:`\s*)?^end[ \t\r]*$)?"
)
#: Files in base64, data URIs and keys: no word has 60 such characters with both cases and digits.
_BASE64_CHARACTERS = "[A-Za-z0-9+/]"
_BASE64 = (
    rf"(?<!{_BASE64_CHARACTERS})(?=[A-Za-z+/]*[0-9])(?=[a-z0-9+/]*[A-Z])(?=[A-Z0-9+/]*[a-z]){_BASE64_CHARACTERS}{{60,}}"
    rf"(?:={{1,2}}|\s+{_BASE64_CHARACTERS}{{1,75}}={{1,2}})?"
)
_LOOKS_ENCODED = rf"(?m)^M[ -`]{{60}}.?[ \t\r]*$|{_BASE64_CHARACTERS}{{60}}"
_ENCODED = re.compile(f"{_UUENCODED}|{_BASE64}")

#: Tags of HTML by name. A tag has attributes NAME=VALUE, or attributes that need no value, and nothing else.
_NAMES = (
    "a|abbr|acronym|address|applet|area|article|aside|audio|b|base|basefont|bdi|bdo|big|blink|blockquote|body|br|button|"
    "canvas|caption|center|cite|code|col|colgroup|data|datalist|dd|del|details|dfn|dialog|dir|div|dl|dt|em|embed|"
    "fieldset|figcaption|figure|font|footer|form|frame|frameset|h[1-6]|head|header|hgroup|hr|html|i|iframe|img|input|"
    "ins|kbd|label|legend|li|link|main|map|mark|marquee|menu|meta|meter|nav|nobr|noframes|noscript|object|ol|optgroup|"
    "option|output|p|param|picture|pre|progress|q|rp|rt|ruby|s|samp|script|section|select|slot|small|source|span|strike|"
    "strong|style|sub|summary|sup|svg|table|tbody|td|template|textarea|tfoot|th|thead|time|title|tr|track|tt|u|ul|var|"
    "video|wbr|xmp"
)
_ATTRIBUTE = r"""[A-Za-z_:@][\w:.@-]*\s*=\s*(?:"[^"<]*"|'[^'<]*'|[^\s"'<>]+)"""
_ALONE = (
    "async|autofocus|autoplay|checked|compact|controls|defer|disabled|hidden|loop|multiple|muted|noshade|nowrap|"
    "readonly|required|selected"
)
_TAGS = (
    r"(?i)<!doctype\b[^<>]*>|<\?xml\b[^<>]*\?>"
    rf"|<(?:/\s*)?(?:{_NAMES})(?:\s+(?:{_ATTRIBUTE}|{_ALONE}))*\s*/?>"
)
#: Scripts, styles and comments, which go with all that they hold.
_BLOCKS = r"(?is)<(?:script|style)\b[^>]*>.*?</(?:script|style)>|<!--.*?-->"
_LONG, _MANY = 1 << 13, 200  # bytes of a text, and starts of blocks
_BLOCK = re.compile(r"<(?:(script|style)(?![A-Za-z0-9_])|!--)", re.IGNORECASE)
_REST_OF_SCRIPT = re.compile(r"(?is)[^>]*>.*?</(?:script|style)>")
_REST_OF_COMMENT = re.compile(r"(?s).*?-->")
#: Tags of other names: a start tag that is closed in the same text, and end tags.
_OTHER_TAGS = re.compile(rf"<([A-Za-z][\w:.-]*)((?:\s+{_ATTRIBUTE})*)\s*(/?)>|</([A-Za-z][\w:.-]*)\s*>")
_LOOKS_CLOSED = "<(?:/[A-Za-z]|[^<]*/>)"
_ESCAPED_TAG = "&lt;/[A-Za-z]"
_ENTITY = r"&(?:[A-Za-z]{2,8}|#[0-9]{2,5}|#x[0-9A-Fa-f]{2,4});"
#: Line ends, characters and bytes of UTF-8 as programs write them. Before a small letter, \\n may be of LaTeX.
_ESCAPED = r"\\[nrt](?:[^a-z]|$)|\\u[0-9a-fA-F]{4}|\\x[0-9a-f]{2}"
_ESCAPES = re.compile(r"\\([nrt])|((?:\\u[0-9a-fA-F]{4})+)|((?:\\x[0-9a-f]{2})+)")
_ADDRESSES = r"(?:https?|ftp)://[^\s<>\"]+|\bwww\.[^\s<>\"]+|[\w.+-]+@[\w-]+(?:\.[\w-]+)*"

_IN_WORD = np.array([i > 127 or chr(i).isalnum() for i in range(256)])


def without_boilerplate(texts: Any, is_mail: bool = False) -> tuple[Any, tuple[int, int]]:
    """Remove the boilerplate of mail and web pages, and escapes, from an Arrow array of strings without nulls.

    This removes files in uuencode or base64; a leading mail header except its subject, keywords and summary; HTML tags,
    scripts and comments; URLs and mail addresses. HTML entities and escapes, such as ``\\n`` and ``\\u00e9``, become
    characters. In mail, which ``is_mail`` or a header, an attribution of a quote, or several quoted lines tell, it
    removes lines quoted with ``>``, their attributions, and a signature of up to fifteen lines after a line of two
    dashes. It removes an old mail that follows a reply, which Outlook's header or an attribution with a time and an
    address starts. A text of which nothing would be left, or that forwards mail, stays.

    Returns the texts, and the number of texts that lost words and of the words that they lost (runs of letters and
    digits).
    """
    always = signs.MAIL if is_mail else 0
    found, lost = signs.signs_of(texts) | always, list[NDArray[np.int64]]()
    signed = found & signs.ANY > 0

    def cleaned(held: Any, left: NDArray[np.int64], rules: Any) -> Any:
        before = _n_words(held)
        for sign, pattern, change in rules:
            marked = left & sign > 0
            if pattern and marked.any():
                marked[marked] = pc.match_substring_regex(held.filter(pa.array(marked)), pattern)
            if marked.any():
                held = changed(held, pa.array(marked), change)
                left[marked] = always | signs.signs_of(
                    held if marked.all() else held.filter(pa.array(marked))
                )
        lost.append(before - _n_words(held))
        return held

    of_all = _RULES_OF_MAIL if is_mail else _RULES
    for marked, rules in ((signed, of_all), (~signed & (found & signs.TAG > 0), _OF_TAGS)):
        # One copy of all texts, not one for each rule.
        texts = changed(texts, pa.array(marked), partial(cleaned, left=found[marked], rules=rules))
    return texts, (sum(int(np.count_nonzero(n > 0)) for n in lost), sum(int(n.clip(0).sum()) for n in lost))


def changed(texts: Any, mask: Any, change: Callable[[Any], Any]) -> Any:
    """Apply ``change`` to the Arrow array of the masked texts; copies no others if all or none are."""
    if mask.true_count in (0, len(texts)):
        return change(texts) if mask.true_count else texts
    return pc.replace_with_mask(texts, mask, change(texts.filter(mask)))


def _n_words(texts: Any) -> NDArray[np.int64]:
    """Number of words of each text: runs of letters, digits and bytes of other characters."""
    found = np.zeros(len(texts), np.int64)
    _count_words(*string_buffers(texts), found)
    return found


@compiled(nogil=True)
def _count_words(offsets: Any, data: Any, found: Any) -> None:
    for m in range(len(found)):
        inside, n_words = False, 0
        for i in range(np.uint64(offsets[m]), np.uint64(offsets[m + 1])):
            is_letter = _IN_WORD[data[i]]
            n_words += is_letter & ~inside
            inside = is_letter
        found[m] = n_words


def _each(change: Callable[[str], str]) -> Callable[[Any], Any]:
    """Return a function that applies ``change`` to each text of an Arrow array."""
    return lambda texts: pa.array(map(change, texts.to_pylist()), texts.type)


def _unescaped(text: str) -> str:
    """Replace escapes by what they stand for; \\n before a small letter only in a text that has no line ends."""
    one_line = "\n" not in text.strip()

    def replaced(escape: re.Match[str]) -> str:
        if escape[1]:
            follows = text[escape.end() : escape.end() + 1]
            return "\n" if one_line or not "a" <= follows <= "z" else escape[0]
        codec = "utf-16-be" if escape[2] else "utf-8"
        return bytes.fromhex(re.sub(r"\\[ux]", "", escape[0])).decode(codec, "replace")

    return _ESCAPES.sub(replaced, text)


def _body(text: str, known: bool = False) -> str:
    """Remove what mail has before, between and after the lines of its author."""
    body = _reply(_without_header(text))
    if not known and body is text and ">" not in text:
        return text
    is_mail = known or body is not text or _ATTRIBUTED_QUOTE.search(body) is not None
    if not is_mail and len(_QUOTE.findall(body)) < _FEWEST_QUOTES:
        return text
    left = (_QUOTE_IN_MAIL if is_mail else _QUOTE).sub("", _ATTRIBUTED_QUOTE.sub("", body))
    if last := deque(_SIGNATURE.finditer(left), 1):
        start, stop = last[0].span()
        signed = left[stop:].rstrip()
        if signed.count("\n") <= _SIGNATURE_LINES and len(signed) <= _SIGNATURE_CHARACTERS:
            left = left[:start]
    return left if any(map(str.isalnum, left)) else body


def _reply(text: str) -> str:
    """Remove old mail below a reply; a text that forwards it, or has nothing else, stays."""
    old = _OLD_MAIL.search(text)
    is_reply = old and not _FORWARD.search(text) and any(map(str.isalnum, text[: old.start()]))
    return text[: old.start()] if old and is_reply else text


def characters(text: str) -> str:
    """Decode the character references of HTML. Longer numbers than Python parses are not references."""
    return html.unescape(re.sub(r"&#[0-9]{4000,};?", "\ufffd", text))


def _of_escaped_html(text: str) -> str:
    """Unescape HTML that is escaped as a whole, as in feeds; escaped tags in HTML are what it shows."""
    return text if "<" in text else characters(text)


def without_tags(texts: Any, tags: str = _TAGS) -> Any:
    """Replace scripts, styles, comments, and the tags that a pattern (RE2) finds between them, by spaces.

    ``tags`` matches nothing that has a second ``<``.
    """
    # One pattern for all looks for an end from each start: in a long text of many, one scan finds them first.
    many = pc.greater(pc.binary_length(texts), _LONG)
    if many.true_count:
        starts = pc.count_substring_regex(texts, "(?i)<(?:script|style|!--)")
        many = pc.and_(many, pc.greater(starts, _MANY))
    clean = partial(pc.replace_substring_regex, pattern=f"{_BLOCKS}|{tags}", replacement=" ")
    if not many.true_count:
        return clean(texts)
    parts = pa.array([*map(_between_blocks, texts.filter(many).to_pylist())], pa.list_(texts.type))
    left = pc.replace_substring_regex(parts.flatten(), tags, " ")
    joined = pc.binary_join(pa.ListArray.from_arrays(parts.offsets, left), pa.scalar(" ", texts.type))
    few = pc.invert(many)
    return pc.replace_with_mask(pc.replace_with_mask(texts, many, joined), few, clean(texts.filter(few)))


def _between_blocks(text: str) -> list[str]:
    """Return what is before, between and after scripts, styles and comments that have an end."""
    parts, start, at = [], 0, 0
    endless: set[Any] = set()
    while opening := _BLOCK.search(text, at):
        at, rest = opening.end(), _REST_OF_SCRIPT if opening[1] else _REST_OF_COMMENT
        end = None if rest in endless else rest.match(text, at)
        if end:
            parts.append(text[start : opening.start()])
            start = at = end.end()
        else:  # nor has any later one
            endless.add(rest)
    return [*parts, text[start:]]


def _without_other_tags(text: str) -> str:
    """Remove end tags, and start tags that end tags or attributes show to be tags."""
    tags = list(_OTHER_TAGS.finditer(text))
    closed = {tag[4].lower() for tag in tags if tag[4]}

    def replaced(tag: re.Match[str]) -> str:
        if tag[4]:
            return " "
        return " " if tag[1].lower() in closed or (tag[2] and tag[3]) else tag[0]

    return _OTHER_TAGS.sub(replaced, text)


def _without_header(text: str) -> str:
    head, blank, body = re.sub(r"\AFrom .*\n", "", text.replace("\r\n", "\n")).partition("\n\n")
    if not blank:
        return text
    # A field continues in lines that start with white space.
    lines = re.sub(r"\n[ \t]+", " ", head).split("\n")
    fields = [_FIELD.fullmatch(line) for line in lines]
    if not all(fields) or len(_MAIL_FIELDS & {field[1].lower() for field in fields if field}) < 2:
        return text
    kept = [field[2] for field in fields if field and field[1].lower() in _KEPT_FIELDS]
    return "\n".join([*kept, "", body])


_OF_TAGS = ((signs.TAG, "", without_tags), (signs.TAG, _LOOKS_CLOSED, _each(_without_other_tags)))
#: The sign of texts that may have a kind of boilerplate, a pattern if the sign is not enough, and what removes it, in
#: this order. Removing a file may leave the start of a quoted line, and character references stand for any character.
_RULES: tuple[tuple[int, str, Callable[[Any], Any]], ...] = (
    (signs.ESCAPE, _ESCAPED, _each(_unescaped)),
    (signs.ENCODED, _LOOKS_ENCODED, _each(partial(_ENCODED.sub, " "))),
    (signs.MAIL | signs.LIKE_MAIL, _LOOKS_LIKE_MAIL, _each(_body)),
    (signs.REFERENCE, _ESCAPED_TAG, _each(_of_escaped_html)),
    *_OF_TAGS,
    (signs.REFERENCE, _ENTITY, _each(characters)),
    (signs.ADDRESS, "", partial(pc.replace_substring_regex, pattern=_ADDRESSES, replacement=" ")),
)
#: The same where the reader knows that all texts are mail, whose headers it has taken.
_RULES_OF_MAIL = tuple(
    (signs.MAIL, "", _each(partial(_body, known=True))) if rule[0] & signs.MAIL else rule for rule in _RULES
)


@compiled(nogil=True, internal=True)
def _weight(data: Any, i: int) -> int:
    """Quarters of a word that a character stands for where it does not continue one; 0 for the rest of its bytes.

    -1 for white space, -2 for the punctuation that separates Chinese and Japanese phrases.
    """
    lead = data[i]
    if lead < 0xE0:
        return -1 if lead == 32 or 9 <= lead <= 13 else 0 if 0x80 <= lead < 0xC0 else 4
    second, third = data[i + 1], data[i + 2]
    if lead == 0xE3 and second == 0x80 and third <= 0x82:
        return -1 if third == 0x80 else -2
    if lead == 0xEF and second == 0xBC and (third in (0x81, 0x8C, 0x9B, 0x9F)):
        return -2
    # Han and Kana, then Thai and Lao, Burmese, Khmer.
    if 0xE3 <= lead <= 0xE9 or (lead == 0xE2 and second >= 0xBA) or (lead == 0xF0 and second >= 0xA0):
        return 2
    spaceless = second in (0x80, 0x81, 0x82, 0x9E, 0x9F) if lead == 0xE1 else lead == 0xE0 and second >= 0xB8
    return 1 if spaceless and (lead == 0xE1 or second <= 0xBB) else 4


@compiled(nogil=True)
def _cuts(offsets: Any, data: Any, words: int) -> Any:
    """Offsets of the passages of all texts, and numbers of their texts."""
    starts = np.empty((offsets[-1] - offsets[0]) // words + 2 * len(offsets), np.int64)
    index, n = np.empty(len(starts), np.int64), 0
    for m in range(len(offsets) - 1):
        starts[n], index[n], first, used, apart, ended = offsets[m], m, n, 0, True, False
        n += 1
        for i in range(offsets[m], offsets[m + 1]):
            weight = _weight(data, i)
            if weight > 0 and (apart or ended) and used >= 4 * words:
                starts[n], index[n], used = i, m, 0
                n += 1
            if weight != 0:
                used += weight if 0 < weight < 4 or (weight == 4 and apart) else 0
                apart, ended = weight == -1, weight < 0
        if used < 2 * words and n - first > 1:
            n -= 1
    starts[n] = offsets[-1]
    return starts[: n + 1].copy(), index[:n].copy()


def split_passages(texts: Any, words: int) -> tuple[Any, NDArray[np.int64]]:
    """Cut texts (an Arrow array of strings without nulls) into passages of about ``words`` words, at white space.

    Returns the passages, which share the bytes of the texts, and (passages,) the number of the text of each. The last
    passage of a text has half to one and a half times as many words. A character of Han or Kana counts as half a word,
    one of Thai, Lao, Khmer or Burmese as a quarter; Chinese and Japanese are also cut after punctuation.
    """
    if not len(texts):
        return texts, np.zeros(0, np.int64)
    starts, index = _cuts(*string_buffers(texts), words)
    starts = starts.astype(np.int64 if pa.types.is_large_string(texts.type) else np.int32)
    buffers = [None, pa.py_buffer(starts), texts.buffers()[2]]
    return pa.Array.from_buffers(texts.type, len(index), buffers), index
