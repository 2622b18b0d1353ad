"""Rows as CSV and as aligned text."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from streaming_jsmf.errors import InputError

#: Longest cell of a table on a terminal.
MOST_CHARACTERS = 48

RAW_HELP = "With --csv: no apostrophe before texts that a spreadsheet would evaluate, such as =2+3."

_STARTS_FORMULA = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def require_csv(as_csv: bool, raw: bool) -> None:
    """Refuse ``--raw`` without ``--csv``."""
    if raw and not as_csv:
        raise InputError("--raw is for --csv; give both or neither")


def csv_text(rows: Iterable[Iterable[object]], *, raw: bool) -> str:
    """Rows as CSV. A spreadsheet evaluates a text such as ``=2+3``: unless ``raw``, it gets a leading apostrophe.

    So does every text with one of the first characters that OWASP lists under "CSV Injection", and their full-width
    forms. Numbers stay as they are, also as text. No other character is changed.
    """
    lines: list[str] = []
    # The writer quotes only line ends that are its own, and a bare \r would begin a row with the rest of its cell.
    sink = SimpleNamespace(write=lambda line: lines.append(line.removesuffix("\r\n") + "\n"))
    csv.writer(sink, lineterminator="\r\n").writerows(row if raw else map(_escaped, row) for row in rows)
    return "".join(lines)


def _escaped(cell: object) -> object:
    is_formula = isinstance(cell, str) and cell.startswith(_STARTS_FORMULA) and not _NUMBER.fullmatch(cell)
    return f"'{cell}" if is_formula else cell


def column_text(table: Mapping[str, Sequence[Any]]) -> str:
    """Columns by name as aligned text; numbers are aligned to the right."""
    columns = []
    for name, values in table.items():
        cells = [name, *map(_cell, values)]
        width = max(map(len, cells))
        right = all(value is None or isinstance(value, (int, float)) for value in values)
        columns.append([cell.rjust(width) if right else cell.ljust(width) for cell in cells])
    return "\n".join("  ".join(row).rstrip() for row in zip(*columns, strict=True))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    text = f"{value:.4f}" if isinstance(value, float) else " ".join(str(value).split())
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 3]}..."
