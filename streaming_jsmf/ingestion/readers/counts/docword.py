"""Bag-of-words files of the UCI repository: three lines of sizes, then a line for each (document, word, count)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar

from streaming_jsmf.ingestion.readers.counts.number_lines import Layout, NumberFiles, parse_size, shown
from streaming_jsmf.ingestion.readers.counts.word_lists import word_list
from streaming_jsmf.ingestion.readers.lines import LineReader
from streaming_jsmf.ingestion.readers.streams import UnreadableError
from streaming_jsmf.validation import Strict

_NAME = re.compile(r"docword\.(.+?)\.txt(\.[a-z0-9]+)?")


class DocwordOptions(Strict):
    """Keys of the reader.

    Attributes
    ----------
    vocabulary
        Path or URL of the word list, relative to the file; by default ``vocab.X.txt`` beside ``docword.X.txt``.
    """

    vocabulary: str | None = None


@dataclass(frozen=True)
class DocwordSource(NumberFiles):
    """Files ``docword.X.txt``, packed or not: D, W, NNZ, then lines "documentID wordID count", from 1.

    Lines are grouped by document and documents rise. A document without lines is an empty bag; ``document_id``
    is the number of the document, and ``rows`` the line it starts at (from 0). Under "quarantine" a bad line is
    put aside and the rest of its document kept.

    Attributes
    ----------
    files
        Absolute local paths or URLs; all with the same words.
    options
        The keys.
    """

    reader: ClassVar[str] = "docword"
    options: DocwordOptions = field(default_factory=DocwordOptions)

    def word_list(self, path: str) -> str:
        """As the option says, or beside the file under the name that goes with its own."""
        named = _NAME.fullmatch(path.rsplit("/", 1)[-1])
        return word_list(path, self.options.vocabulary, [f"vocab.{named[1]}.txt" if named else "vocab.txt"])

    def header(self, lines: LineReader) -> Layout | None:
        """The sizes in the first three lines."""
        sizes: list[int] = []
        for name in ("documents D", "words W", "counts NNZ"):
            line = lines.next_line()
            if line is None and lines.damage:
                return None
            if line is None:
                what = "it ends in its header" if sizes else "it is empty"
                raise UnreadableError(f"{what}; its first lines must be D, W and NNZ")
            size = parse_size(line)
            if size is None:
                raise UnreadableError(f"line {lines.line} is {shown(line)}, not the number of {name}")
            sizes.append(size)
        return Layout(
            document=0,
            word=1,
            count="whole",
            n_documents=sizes[0],
            n_words=sizes[1],
            n_entries=sizes[2],
            size_line=lines.line - 1,
            order="lines must be grouped by document, with rising numbers: sort them",
            words_said=f"line 2 says W = {sizes[1]}",
            numbered=True,
        )
