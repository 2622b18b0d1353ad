"""Text to show and store: locations without secrets, no characters that control a terminal, tables and CSV.

URLs may contain a password (``ftp://user:password@host``) or a key (``https://host/file?sig=...``). They are opened
unchanged; messages, stores and reports contain ``location`` instead.
"""

from __future__ import annotations

import json
import logging
import math
import re
import shutil
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from types import SimpleNamespace
from typing import Any

#: Most columns of wrapped texts.
WIDTH = 80

#: Longest cell of a table that holds any text.
MOST_CHARACTERS = 48

#: Longer lists of numbers are shown by their last value.
LONGEST_LIST = 8

#: Schemes without a host, where an ``@`` belongs to a name, such as a container, unless a : precedes it.
_NAMES = frozenset(
    ("abfs", "abfss", "adl", "az", "wasb", "wasbs", "file", "local", "memory", "zip", "tar", "libarchive")
)
_WEB = frozenset(("http", "https"))

# A password may contain blanks and quotes; elsewhere they end a URL within a text. The links of a chain are URLs.
_URL = re.compile(
    r"\b([a-z][a-z0-9+.-]{0,40})://((?:[^/\s@:]*:[^/@\n]*@)?[^\s'\"<>`:]*(?::(?!:)[^\s'\"<>`:]*)*)",
    re.IGNORECASE,
)
_USER = re.compile(r"[^/?#]*@")
# A ? is a wildcard, except on the web or before a key and its value.
_QUERY = re.compile(r"\?[^/?#=:]+=.*")
_WEB_QUERY = re.compile(r"[?#].*")
_STOPS = ".,;:)]"

# Controls (C0 and C1), line separators, bidirectional marks and overrides, invisible tags, and lone surrogates, which
# represent bytes that are not UTF-8.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f]"
)


@contextmanager
def logging_only(level: int, name: str = "streaming_jsmf") -> Iterator[None]:
    """Let the loggers below ``name`` log only messages of this level and above in the block."""
    changed = logging.getLogger(name)
    before = changed.level
    changed.setLevel(level)
    try:
        yield
    finally:
        changed.setLevel(before)


def location(path: Any) -> str:
    """Return a path or URL, or a text with URLs, without user, password and query.

    >>> location("ftp://user:secret@host/corpus")
    'ftp://host/corpus'
    >>> location("zip://a.csv::https://host/b.zip?sig=secret")
    'zip://a.csv::https://host/b.zip'
    """
    return _URL.sub(_without_secrets, str(path))


def _without_secrets(match: re.Match[str]) -> str:
    scheme, whole = match[1].lower(), match[2]
    link = whole.rstrip(_STOPS)
    stops = whole[len(link) :]
    if (user := _USER.match(link)) and not _is_name(scheme, user.group()):
        link = link[user.end() :]
    link = (_WEB_QUERY if scheme in _WEB else _QUERY).sub("", link)
    return f"{match[1]}://{link}{stops}"


def _is_name(scheme: str, user: str) -> bool:
    return scheme == "github" or (scheme in _NAMES and ":" not in user)


def printable(text: str, keep: str = "") -> str:
    """Escape control and bidirectional characters as in JSON, except those in ``keep``, such as line ends.

    >>> printable("red\\x1b[31m")
    'red\\\\u001b[31m'
    """
    return _UNSAFE.sub(lambda found: found[0] if found[0] in keep else spelled(found[0]), text)


def spelled(text: str) -> str:
    r"""Return each UTF-16 code unit as ``\uXXXX``."""
    units = text.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def terminal_width() -> int:
    """Columns of the terminal, or of the variable COLUMNS; 0 without a terminal."""
    return shutil.get_terminal_size((0, 0)).columns


def table(rows: Sequence[Sequence[object]], align: str, width: int | None = None) -> str:
    """Return rows as text with aligned columns; ``align`` has ``<`` (left) or ``>`` (right) for each column.

    Texts in columns on the left are wrapped between words to fit ``width``: by default that of the terminal, 0 for any.

    >>> print(table([("word", "count"), ("apple", 3)], "<>"))
    word   count
    apple      3
    >>> print(table([("a long text", 1), ("b", 2)], "<>", width=9))
    a long  1
    text
    b       2
    """
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    least = [
        max(len(word) for cell in column for word in cell.split() or [""])
        for column in zip(*cells, strict=True)
    ]
    limit = terminal_width() if width is None else width
    excess = sum(widths) + 2 * (len(widths) - 1) - limit if limit else 0
    wrapped_columns = [i for i, side in enumerate(align) if side == "<"]
    for i in sorted(wrapped_columns, key=lambda i: least[i] - widths[i]):
        if excess > 0:
            before, widths[i] = widths[i], max(least[i], widths[i] - excess)
            excess -= before - widths[i]
    if excess > 0 and align[1:].endswith("<"):  # the last column below the others
        parts = table([row[:-1] for row in rows], align[:-1], 0).splitlines()
        below = ("\n".join(wrapped(row[-1], "    ", limit)) for row in cells)
        return "\n".join(f"{part}\n{text}".rstrip() for part, text in zip(parts, below, strict=True))
    lines = (
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(part, align, widths, strict=True))
        for row in cells
        for part in zip_longest(*map(_wrapped_cell, row, widths), fillvalue="")
    )
    return "\n".join(line.rstrip() for line in lines)


def _wrapped_cell(cell: str, width: int) -> list[str]:
    whole = len(cell) <= width
    return [cell] if whole else textwrap.wrap(cell, width, break_on_hyphens=False, break_long_words=False)


def cell_text(value: Any) -> str:
    """Return a value on one line of limited length; None is a dash.

    >>> cell_text("two\\nlines"), cell_text(0.5), cell_text(None)
    ('two lines', '0.5000', '-')
    """
    if value is None:
        return "-"
    text = f"{value:.4f}" if isinstance(value, float) else " ".join(str(value).split())
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 3]}..."


def percent(share: float) -> str:
    """Return a share as a percentage with two significant digits.

    >>> percent(0.1234), percent(0.01234), percent(0.00001234), percent(1.0), percent(0.0)
    ('12%', '1.2%', '0.0012%', '100%', '0%')
    >>> percent(0.0099999), percent(0.004), percent(-0.05)
    ('1.0%', '0.40%', '-5.0%')
    >>> percent(0.0009)
    '0.090%'
    """
    for least, digits in ((0.0995, 0), (0.00995, 1), (0.000995, 2), (0.0000995, 3)):
        if abs(share) >= least:
            return f"{share:.{digits}%}"
    return f"{100 * share:.2g}%"


def memory_text(size: int) -> str:
    """Return bytes as mebibytes.

    >>> memory_text(1_500_000_000)
    '1,431 MiB'
    """
    return f"{size / 2**20:,.0f} MiB"


def value_text(value: Any) -> str:
    """Return a JSON value in one line: a hyphen for None and empty lists, the last value for long lists.

    >>> value_text(0.000012345), value_text(True), value_text(None), value_text([["a", "b"]])
    ('1.234e-05', 'yes', '-', '[["a", "b"]]')
    >>> value_text([0.5] * 19 + [0.25]), value_text([{"step": 1}, {"step": 2}])
    ('20 values, the last 0.25', '2 values, the last {"step": 2}')
    """
    match value:
        case None | [] | ():
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.4g}"
        case [_, *_, Mapping() as last]:
            return f"{len(value)} values, the last {value_text(last)}"
        case [*_, int() | float() as last] if len(value) > LONGEST_LIST:
            return f"{len(value)} values, the last {value_text(last)}"
        case str():
            return value
    return json.dumps(value, ensure_ascii=False)


def flattened(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return the texts of nested JSON fields by name; names of nested fields follow that of their parent and a dot.

    >>> flattened({"seed": 3, "polish": {"steps": 6}})
    {'seed': '3', 'polish.steps': '6'}
    """
    found: dict[str, str] = {}
    for name, value in fields.items():
        inner = flattened(value) if isinstance(value, Mapping) else None
        found |= (
            {name: value_text(value)}
            if inner is None
            else {f"{name}.{key}": text for key, text in inner.items()}
        )
    return found


def wrapped(text: str, head: str, width: int | None = None) -> list[str]:
    """Return ``text`` after ``head`` in lines of ``width``: by default that of the terminal, at most 80.

    Further lines are indented by the width of ``head``.
    """
    return textwrap.wrap(
        text,
        width or min(terminal_width() or WIDTH, WIDTH),
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_on_hyphens=False,
        break_long_words=False,
    ) or [head.rstrip()]


# The characters that OWASP lists under "CSV Injection", and their full-width forms.
_STARTS_FORMULA = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def for_json(value: Any, text: Callable[[str], str] = str) -> Any:
    """The value with null for numbers that JSON does not have, and each ``text`` in it changed."""
    match value:
        case str():
            return text(value)
        case float() if not math.isfinite(value):
            return None
        case Mapping():
            return {str(key): for_json(item, text) for key, item in value.items()}
        case list() | tuple():
            return [for_json(item, text) for item in value]
    return value


def csv_text(rows: Iterable[Iterable[object]], *, raw: bool) -> str:
    """Return rows as CSV.

    A spreadsheet evaluates a text such as ``=2+3``: unless ``raw``, it gets a leading apostrophe. Numbers stay as they
    are, also as text. No other character is changed.
    """
    import csv

    lines: list[str] = []
    # The writer quotes only line ends that are its own, and a bare \r would begin a row with the rest of its cell.
    sink = SimpleNamespace(write=lambda line: lines.append(line.removesuffix("\r\n") + "\n"))
    csv.writer(sink, lineterminator="\r\n").writerows(row if raw else map(escaped_cell, row) for row in rows)
    return "".join(lines)


def escaped_cell(cell: object) -> object:
    """Return a cell with an apostrophe before a text that a spreadsheet would evaluate."""
    is_formula = isinstance(cell, str) and cell.startswith(_STARTS_FORMULA) and not _NUMBER.fullmatch(cell)
    return f"'{cell}" if is_formula else cell
