"""Delimited text, by one rule: a quote opens a field at its start only, is doubled inside, and ends it.

What follows the closing quote is a delimiter or the end of the record; all else is refused, not guessed.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from typing import Any

from streaming_jsmf.errors import first_line
from streaming_jsmf.sources import limits
from streaming_jsmf.sources.records import BadValue, decode

QUOTE = '"'


def records_of(lines: Iterable[str], delimiter: str, quote: str = QUOTE) -> Any:
    """The records of lines with their ends, as an iterator of lists of fields; a quoted field may hold line ends.

    It is a ``csv.reader``: its ``line_num`` counts lines, and ``csv.Error`` tells of a record that is no good, after
    which the next can be read.
    """
    csv.field_size_limit(limits.LONGEST_LINE)
    return csv.reader(lines, delimiter=delimiter, quotechar=quote, strict=True)


def split(line: bytes, delimiter: str, quote: str = QUOTE, encoding: str = "utf-8") -> list[str]:
    """The fields of one line, which is a whole record. With no quote a delimiter may have several characters.

    Raises
    ------
    BadValue
        If it cannot be split.
    """
    text = decode(line, encoding)
    if not quote:
        return text.split(delimiter)
    try:
        return list(next(records_of([text], delimiter, quote), [""]))
    except csv.Error as error:
        if "unexpected end" in str(error):
            raise BadValue("a quote is opened and not closed on its line") from error
        raise BadValue(f"the line cannot be split into fields ({first_line(error)})") from error
