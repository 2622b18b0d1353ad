"""Signs that texts were damaged before they came here, in a sample: nothing is repaired, and one line says so."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streaming_jsmf.corpus.footer import is_string
from streaming_jsmf.ingestion.tokens import signs

#: Texts of a batch that are looked at; at least so many, and one in so many of those beyond ASCII, have a sign.
_SAMPLED, _FEWEST, _SHARE = 1000, 3, 10
#: Characters of cp1252 for the bytes 128 to 159; those that it lacks stay controls, as in Latin-1.
_OF_CP1252 = {ord(bytes([byte]).decode("cp1252", "ignore") or chr(byte)): byte for byte in range(128, 160)}
_MARKS = "".join(map(chr, {*range(0x80, 0xC0), *_OF_CP1252}))
_MISREAD = f"[\u00c2-\u00f4][{re.escape(_MARKS)}]"
_WIDE, _RUN = re.compile(r"\S*[^\x00-\x7f]\S*"), re.compile(r"[^\x00-\x7f]+")


def _repaired(text: str) -> str | None:
    """Return a text of which UTF-8 was read as Latin-1 or cp1252; None if it is no such text as a whole."""
    try:
        return text.translate(_OF_CP1252).encode("latin-1").decode("utf-8")
    except UnicodeError:
        return None


def _misread(text: str) -> str | None:
    # Most texts are none, and nearly all of their characters are ASCII.
    if _repaired(" ".join(_RUN.findall(text))) is None or (right := _repaired(text)) is None:
        return None
    word = _WIDE.search(text)
    return f"{word[0][:40]!r} for {_repaired(word[0]) or right!r}"[:120] if word else None


#: By kind: the sign and the pattern of texts that may have it, an example in a text or None, and what is said.
_DOUBTS: dict[str, tuple[int, str, Callable[[str], str | None], str]] = {
    "misread": (
        signs.MISREAD,
        _MISREAD,
        _misread,
        "are UTF-8 that was read as Latin-1 ({}), as in exports of Facebook and Instagram, and their words are cut; "
        "repair them first, such as with ftfy.fix_encoding",
    ),
    "lost": (
        signs.LOST,
        "\ufffd",
        lambda text: repr(text[max(0, text.index("\ufffd") - 10) :][:20]),
        "have U+FFFD for characters that were lost when they were decoded ({}); export them again in UTF-8",
    ),
    "escaped": (
        signs.REFERENCE,
        "&amp;(?:amp|lt|gt|quot|apos|nbsp|#[0-9]{1,7});",
        lambda text: repr(text[text.index("&amp;") :][:12]),
        "have character references that were escaped twice ({}); unescape them once first",
    ),
}


def doubts(texts: Any) -> dict[str, str]:
    """Return a line for each sign that many of the first texts of a batch have, by a name that no column has."""
    if not is_string(texts.type):
        return {}
    texts = texts[:_SAMPLED]
    seen, found = signs.signs_of(texts), {}
    for kind, (sign, pattern, example_of, said) in _DOUBTS.items():
        signed = texts.filter(pa.array(seen & sign > 0))
        likely = signed.filter(pc.match_substring_regex(signed, pattern)).to_pylist()
        examples = [example for text in likely if (example := example_of(text))]
        if len(examples) < _FEWEST:
            continue
        of_all = len(texts)
        if kind == "misread":
            of_all = pc.not_equal(pc.binary_length(texts), pc.utf8_length(texts)).true_count
        if len(examples) >= of_all / _SHARE:
            number = f"{len(examples):,} of {len(texts):,} texts that were looked at"
            found[f"{kind}\0"] = f"{number} {said.format(examples[0])}"
    return found
