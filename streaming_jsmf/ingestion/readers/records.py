"""The adapter from records to documents: text, id, metadata, excerpts, passages, tokens and bad records."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

from streaming_jsmf.ingestion.readers.base import BadRecords, Batch, Records, Source, Unit
from streaming_jsmf.ingestion.tokens.stop_words import ENGLISH

#: Names of columns of ids, the likeliest first.
ID_NAMES = ("document_id", "doc_id", "id")


class TextReader(Source):
    """Base of the readers of texts: a subclass yields records, and says which columns hold the text and the id.

    All other columns become metadata, if the options keep them.
    """

    stop_words = ENGLISH

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The columns of the text, which are joined by line ends."""
        return ("text",)

    @abstractmethod
    def records(self, unit: Unit, bad: BadRecords) -> Iterator[Records]:
        """Yield the records of a unit, at most about ``BATCH_BYTES`` at a time; bad ones go to ``bad``.

        A column that is missing is null. Raises UnreadableError for a fault of the whole file.
        """

    def read(self, unit: Unit, bad: BadRecords) -> Iterator[Batch]:
        raise NotImplementedError
