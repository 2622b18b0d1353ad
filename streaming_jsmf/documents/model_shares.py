"""Topic shares of documents beside the topics of the model that they were computed with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.corpus.csr import read_block
from streaming_jsmf.corpus.format import Corpus, open_corpus
from streaming_jsmf.corpus.units import list_units
from streaming_jsmf.corpus.vocabulary import over_vocabulary
from streaming_jsmf.documents.share_files import open_shares
from streaming_jsmf.documents.shares import DOCUMENT_ID, SharesFile, document_table
from streaming_jsmf.errors import InputError
from streaming_jsmf.linalg.panels import panels
from streaming_jsmf.storage.paths import AnyPath, local_path, normalise
from streaming_jsmf.topics.edits import NAMED, EditedTopics, shown_topics
from streaming_jsmf.topics.parameters import NEEDED, OPTIONAL, Floats, TopicParameters
from streaming_jsmf.topics.store import AnyModel, Model, model_path

#: Nonzeros whose probabilities are computed together.
NONZEROS = 100_000


@dataclass(frozen=True)
class ModelShares:
    """The shares of the stored topics (``file``), parameters of these topics, and the topics that the model shows."""

    file: SharesFile
    topics: TopicParameters
    shown: EditedTopics

    @classmethod
    def open(cls, model: AnyModel | Model, shares: str | Path) -> ModelShares:
        """Open shares; raise ``InputError`` if they are of another model, or not topic shares."""
        file = open_shares(local_path(normalise(shares, "a file of topic shares"), "a file of topic shares"))
        shown = shown_topics(model, NEEDED, (*OPTIONAL, *NAMED))
        topics = TopicParameters.of(shown.stored)
        if file.about.model != topics.topics_fingerprint:
            name = "this model" if isinstance(model, Model) else str(model_path(model))
            raise InputError(
                f"{shares}: these are shares of another model than {name}; give its shares, or run transform"
            )
        return cls(file, topics, shown)

    def only(self, topic: int) -> ModelShares:
        """The same shares with this topic as the only one shown; ``InputError`` if there is no such topic."""
        return replace(self, shown=replace(self.shown, edits=self.shown.edits.only(topic)))

    @cached_property
    def of_shown(self) -> SharesFile:
        """The shares of the shown topics: those of merged topics are added, and hidden ones are left out."""
        return self.file.merged(self.shown.groups)

    def documents(
        self, corpus: AnyPath | Corpus, columns: Sequence[str]
    ) -> Iterator[tuple[csr_array[Any], Floats, Any]]:
        """Yield counts, shares and metadata ``columns`` of the documents of each row group of a corpus.

        Counts are documents x N over the words of the model. Documents are matched by id; the shares may be of more
        documents, in the same order. One pass over both. Raises ``InputError`` if a document has no shares.
        """
        opened = open_corpus(corpus)
        ids, first = self.topics.ids_of_corpus(opened), 0
        rows = _Rows(self.file, opened.root, columns)
        for unit in list_units(opened):
            counts = over_vocabulary(read_block(unit, opened.n_words), ids, len(self.topics.words))
            table = rows.take(document_table(unit, first, ()).column(DOCUMENT_ID).to_pylist())
            yield counts, self.file.about.dense(table), table
            first += unit.rows


def token_probabilities(
    counts: csr_array[Any], theta: Floats, word_topic: Floats
) -> Iterator[tuple[slice, NDArray[np.intp], Floats]]:
    """Yield slices of the nonzeros, their documents, and p(w | theta); theta is M x K and word_topic N x K."""
    rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    for part in panels(rows.size, NONZEROS):
        yield part, rows[part], np.einsum("nk,nk->n", theta[rows[part]], word_topic[counts.indices[part]])


class _Rows:
    """The rows of shares in order; those before the last one taken are forgotten."""

    def __init__(self, shares: SharesFile, corpus: str, columns: Sequence[str]) -> None:
        self._path, self._corpus = shares.path, corpus
        self._tables = shares.tables(list(dict.fromkeys([DOCUMENT_ID, *columns, *shares.about.columns])))
        self._held: Any = None
        self._names: list[Any] = []

    def take(self, ids: Sequence[Any]) -> Any:
        rows, place = [], 0
        for name in ids:
            while place == len(self._names) or self._names[place] != name:
                if place < len(self._names):
                    place += 1
                else:
                    self._read(name)
            rows.append(place)
            place += 1
        found = self._held.take(pa.array(rows, pa.int64()))
        self._held, self._names = self._held.slice(place), self._names[place:]
        return found

    def _read(self, name: Any) -> None:
        more = next(self._tables, None)
        if more is None:
            raise InputError(
                f"{self._corpus}: document {name!r} has no shares in {self._path}; give the corpus of these shares"
            )
        self._held = more if self._held is None else pa.concat_tables([self._held, more])
        self._names += more.column(DOCUMENT_ID).to_pylist()
