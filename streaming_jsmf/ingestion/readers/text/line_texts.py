"""Texts a line each, in files of lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from streaming_jsmf.ingestion.readers.base import BadRecords, SourceBatch, Unit
from streaming_jsmf.ingestion.readers.lines import read_lines
from streaming_jsmf.ingestion.readers.record_files import RecordFiles
from streaming_jsmf.ingestion.readers.text.batches import RecordBuffer, TextColumns
from streaming_jsmf.ingestion.readers.text.json_texts import text_in
from streaming_jsmf.ingestion.readers.text.options import LineOptions
from streaming_jsmf.ingestion.readers.text.reader import words_of
from streaming_jsmf.ingestion.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class LineSource(RecordFiles):
    """Reader "lines": each line of a file is a document; empty ones are passed over. Documents have no ids.

    Attributes
    ----------
    files
        Local paths or URLs.
    options
        See ``LineOptions``.
    tokenizer
        Texts to words.
    """

    files: tuple[str, ...]
    options: LineOptions
    tokenizer: Tokenizer

    reader: ClassVar[str] = "lines"
    vocabulary: ClassVar[None] = None

    def splittable(self, path: str) -> bool:  # noqa: ARG002
        """A document ends with its line."""
        return True

    def read(self, unit: Unit, bad: BadRecords) -> Iterator[SourceBatch]:
        """One pass over the unit, in batches of about 8 MB of text."""
        buffer = RecordBuffer(_COLUMNS)
        for row, text in read_lines(unit, self._text, bad):
            buffer.add(row, text, None, ())
            if buffer.full:
                yield from (words_of(batch, self.tokenizer) for batch in buffer.flush())
        yield from (words_of(batch, self.tokenizer) for batch in buffer.flush())

    def _text(self, line: bytes) -> str | None:
        return text_in(line, self.options.encoding).strip() or None


_COLUMNS = TextColumns("text", None, None, {})
