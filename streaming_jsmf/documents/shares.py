"""Topic shares of documents: what ``transform`` writes and ``queries`` reads.

Tables have the documents in the order of the corpus with ``document_id``, the metadata columns, and

- ``topic_shares: list<float32>``, all K of them; or
- ``topics: list<int32>`` and ``topic_shares``, the n largest shares in descending order, if only these were kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.inference.document_topics import ShareMethod

KIND, FORMAT_VERSION = "streaming_jsmf.shares", 1

DOCUMENT_ID, SHARES, TOPICS = "document_id", "topic_shares", "topics"

#: Target size of a row group in numbers, and its maximum number of rows.
ROW_GROUP_SHARES, ROW_GROUP_ROWS = 2**20, 2**16

DAMAGED = "it is truncated or damaged: run transform again"


@dataclass(frozen=True)
class Totals:
    """Counts over documents.

    Attributes
    ----------
    documents
        M.
    tokens, unknown_tokens
        Number of tokens, and of those whose words are not in the model.
    without_known_words
        Documents without words of the model; their shares are the mean of the prior.
    unconverged
        Documents that reached the maximum number of steps.
    """

    documents: int = 0
    tokens: float = 0.0
    unknown_tokens: float = 0.0
    without_known_words: int = 0
    unconverged: int = 0

    def __add__(self, other: Totals) -> Totals:
        return Totals(**{name: value + getattr(other, name) for name, value in asdict(self).items()})


@dataclass(frozen=True)
class About:
    """Metadata of topic shares.

    Attributes
    ----------
    model
        ``TopicParameters.topics_fingerprint``.
    corpus, request
        Fingerprints of the corpus, and of everything that determines the shares.
    n_topics
        K.
    top
        How many shares of a document were kept; None: all.
    method
        ``map`` or ``cvb0``.
    totals
        None in a part of a directory.
    """

    model: str
    corpus: str
    request: str
    n_topics: int
    top: int | None
    method: ShareMethod
    totals: Totals | None = None

    def fields(self) -> dict[str, Any]:
        """JSON values."""
        return {"kind": KIND, "format_version": FORMAT_VERSION, **asdict(self)}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any], path: Path) -> About:
        """The inverse of ``fields``.

        Raises ``InputError`` if the fields at ``path`` are of something else, or of a later release; ``StoreError`` if
        a field is missing.
        """
        if fields.get("kind") != KIND:
            raise not_shares(path)
        if fields.get("format_version") != FORMAT_VERSION:
            raise InputError(
                f"{path}: format version {fields.get('format_version')} is unknown; this release reads "
                f"{FORMAT_VERSION}"
            )
        try:
            known = {name: fields[name] for name in cls.__dataclass_fields__}
            totals = known.pop("totals")
            return cls(**known, totals=None if totals is None else Totals(**totals))
        except (KeyError, TypeError) as error:
            raise StoreError(f"{path}: its metadata lack {error}; {DAMAGED}") from error

    @property
    def width(self) -> int:
        """Number of shares of a document that are kept."""
        return self.n_topics if self.top is None else self.top

    @property
    def row_group_rows(self) -> int:
        """Number of documents of a full row group."""
        return min(ROW_GROUP_ROWS, max(1, ROW_GROUP_SHARES // self.width))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that ``dense`` needs."""
        return (SHARES,) if self.top is None else (TOPICS, SHARES)

    def dense(self, table: Any) -> NDArray[np.float64]:
        """The shares of a table, documents x K; shares that were not kept are 0.

        Raises ``StoreError`` if a document has another number of them, or an unknown topic.
        """
        values = self.matrix(table, SHARES).astype(np.float64)
        if self.top is None:
            return values
        topics = self.matrix(table, TOPICS)
        if topics.size and not (topics.min() >= 0 and topics.max() < self.n_topics):
            raise StoreError(f"column {TOPICS} has topics outside 0..{self.n_topics - 1}; {DAMAGED}")
        shares = np.zeros((len(values), self.n_topics))
        np.put_along_axis(shares, topics.astype(np.int64), values, axis=1)
        return shares

    def matrix(self, table: Any, name: str) -> NDArray[Any]:
        """A column of lists as documents x ``width``."""
        lists = table.column(name).combine_chunks()
        values = np.asarray(lists.flatten())
        if values.size != len(lists) * self.width:
            raise StoreError(f"column {name} has {values.size} numbers for {len(lists)} documents; {DAMAGED}")
        return values.reshape(len(lists), self.width)


def not_shares(path: Path) -> InputError:
    """The error for a path that has no topic shares."""
    return InputError(f"{path}: these are not topic shares; give a path that transform wrote")


@dataclass(frozen=True)
class SharesFile(ABC):
    """Opened topic shares, of which only a piece is in memory at a time.

    Attributes
    ----------
    path, about
        The file or directory, and its metadata.
    columns
        ``document_id`` and the metadata columns.
    """

    path: Path
    about: About
    columns: tuple[str, ...]

    def __fspath__(self) -> str:
        """The path, so that opened shares are accepted instead of it."""
        return str(self.path)

    @abstractmethod
    def tables(self, columns: Sequence[str]) -> Iterator[Any]:
        """Yield Arrow tables of some columns in the order of the documents. One pass.

        Raises ``StoreError`` if a file is missing or damaged.
        """


def to_lists(values: NDArray[Any]) -> Any:
    """The rows of a matrix as an Arrow array of lists."""
    rows, width = values.shape
    return pa.ListArray.from_arrays(
        pa.array(np.arange(rows + 1, dtype=np.int32) * width), pa.array(values.ravel())
    )
