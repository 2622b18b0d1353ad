"""UCI bags of words: D, W and NNZ, then lines "documentID wordID count" from 1, in ascending order of documents."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from streaming_jsmf.ingestion.formats.number_lines import Header, documents, header_line, shown
from streaming_jsmf.ingestion.sources.matrices import words_beside
from streaming_jsmf.ingestion.sources.protocol import UnreadableError
from streaming_jsmf.ingestion.sources.streams import first_link, open_stream

SIZE = re.compile(r"[0-9]{1,18}")
_NAME = re.compile(r"docword\.(.+?)\.txt(\.[a-z0-9]+)?")


def words(path: str, options: Any) -> Sequence[str]:
    """Return the words of a file. Raises InputError if its word list is missing."""
    named = _NAME.fullmatch(first_link(path).rsplit("/", 1)[-1])
    return words_beside(path, options, [f"vocab.{named[1]}.txt"] if named else [])


def read(path: str, options: Any) -> Iterator[pa.RecordBatch]:
    """Yield the documents of a file. Memory: a block of lines, one document and the words."""
    with open_stream(path) as stream:
        sizes: list[int] = []
        for number, name in enumerate(("documents D", "words W", "counts NNZ"), 1):
            line = (
                header_line(stream, number, "its first lines must be D, W and NNZ").decode("latin-1").strip()
            )
            if not SIZE.fullmatch(line):
                raise UnreadableError(f"line {number} is {shown(line)}, not the number of {name}")
            sizes.append(int(line))
        yield from documents(
            path, stream, Header(sizes[0], sizes[1], sizes[2], n_lines=3), words(path, options)
        )
