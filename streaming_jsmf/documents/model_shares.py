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
from streaming_jsmf.documents.shares import DAMAGED, SharesFile
from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.linalg.panels import panels
from streaming_jsmf.linalg.typing import Floats
from streaming_jsmf.storage.paths import AnyPath, local_path, normalize
from streaming_jsmf.topics.edits import NAMED, EditedTopics, shown_topics
from streaming_jsmf.topics.parameters import NEEDED, OPTIONAL, TopicParameters
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
        file = open_shares(local_path(normalize(shares, "a file of topic shares"), "a file of topic shares"))
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
        """Yield counts, shares and metadata ``columns`` of the documents of each row group of the corpus of the shares.

        Counts are documents x N over the words of the model. One pass over both. Raises ``InputError`` for another
        corpus, ``StoreError`` if shares or corpus are damaged.
        """
        opened, about = self.require_corpus(corpus), self.file.about
        ids, units = self.topics.ids_of_corpus(opened), list_units(opened)
        read = self.file.tables(list(dict.fromkeys([*columns, *about.columns])))
        tables = _in_sizes(read, [unit.rows for unit in units], self.file.path)
        for table, unit in zip(tables, units, strict=True):
            counts = over_vocabulary(read_block(unit, opened.n_words), ids, len(self.topics.words))
            yield counts, about.dense(table), table

    def require_corpus(self, corpus: AnyPath | Corpus) -> Corpus:
        """Open the corpus of the shares; raise ``InputError`` if they are of another one."""
        opened = open_corpus(corpus)
        if opened.fingerprint != self.file.about.corpus:
            raise InputError(
                f"{self.file.path}: these are not shares of the corpus {opened.root}; give the corpus that transform "
                "read, or run transform with this one"
            )
        return opened


def token_probabilities(
    counts: csr_array[Any], theta: Floats, word_topic: Floats
) -> Iterator[tuple[slice, NDArray[np.intp], Floats]]:
    """Yield slices of the nonzeros, their documents, and p(w | theta); theta is M x K and word_topic N x K."""
    rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    for part in panels(rows.size, NONZEROS):
        yield part, rows[part], np.einsum("nk,nk->n", theta[rows[part]], word_topic[counts.indices[part]])


def _in_sizes(tables: Iterator[Any], sizes: Sequence[int], path: Path) -> Iterator[Any]:
    """Yield the rows of tables in tables of these sizes; raise ``StoreError`` if there are fewer rows."""
    held = next(tables, None)
    for size in sizes:
        while held is not None and held.num_rows < size and (more := next(tables, None)) is not None:
            held = pa.concat_tables([held, more])
        if held is None or held.num_rows < size:
            raise StoreError(f"{path} has fewer documents than its corpus; {DAMAGED}")
        yield held.slice(0, size)
        held = held.slice(size)
