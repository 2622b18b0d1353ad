"""Delimited text, by one rule: a quote opens a field at its start only, is doubled inside, and ends it.

What follows the closing quote is a delimiter or the end of the record; all else is refused, not guessed.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from streaming_jsmf.errors import first_line
from streaming_jsmf.ingestion.readers import limits
from streaming_jsmf.ingestion.readers.records import BadValue, decode, marked
from streaming_jsmf.ingestion.readers.streams import open_stream

QUOTE = '"'


@contextmanager
def open_text(path: str, encoding: str, errors: str = "surrogateescape") -> Iterator[io.TextIOWrapper]:
    """A stream of the characters of a file, line ends as they are.

    A byte order mark tells the encoding; of a list of encodings (with commas) it is the first that the whole file is
    in, for which the file is read once more, or else the last. ``errors``: what becomes of bytes that are none.

    Raises
    ------
    UnreadableError
        As ``open_stream``.
    """
    codec = _codec_of(path, encoding)
    with open_stream(path) as stream:
        text = io.TextIOWrapper(stream, encoding=codec, errors=errors, newline="")
        try:
            yield text
        finally:
            text.detach()


def _codec_of(path: str, encoding: str) -> str:
    with open_stream(path) as stream:
        told = marked(stream.read(4))
    *tried, last = encoding.split(",")
    return told or next((codec for codec in tried if _is_in(path, codec)), last)


def _is_in(path: str, codec: str) -> bool:
    decoder = codecs.getincrementaldecoder(codec)()
    with open_stream(path) as stream:
        try:
            while data := stream.read(1 << 20):
                decoder.decode(data)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
    return True


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
