"""Topic shares of documents beside the topics of the model that they were computed with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming_jsmf.corpus.format import Corpus, open_corpus
from streaming_jsmf.corpus.units import list_units, read_block
from streaming_jsmf.corpus.vocabulary import over_vocabulary
from streaming_jsmf.documents.share_files import open_shares
from streaming_jsmf.documents.shares import (
    DAMAGED,
    DOCUMENT_ID,
    SHARES,
    About,
    SharesFile,
    in_sizes,
    to_lists,
)
from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.ingestion.sources.values import from_python
from streaming_jsmf.linalg.panels import panels
from streaming_jsmf.linalg.typing import Floats
from streaming_jsmf.storage.paths import AnyPath, StorePath, store_path
from streaming_jsmf.topics.edits import NAMED, EditedTopics, shown_topics
from streaming_jsmf.topics.parameters import NEEDED, OPTIONAL, TopicParameters, ids_of_corpus
from streaming_jsmf.topics.store import AnyModel, Model, model_path

if TYPE_CHECKING:
    import pandas as pd
    from scipy.sparse import csr_array

#: Topic shares: what ``transform`` wrote, or the table that ``TopicModel.transform`` returns.
AnyShares: TypeAlias = "str | Path | SharesFile | pd.DataFrame"

#: Attribute of a table of shares with its ``topics_mark``.
OF_TOPICS = "streaming_jsmf_topics"
#: Nonzeros whose probabilities are computed together.
NONZEROS = 100_000


@dataclass(frozen=True)
class ModelShares:
    """The shares of the stored topics (``file``), parameters of these topics, and the topics that the model shows."""

    file: SharesFile
    topics: TopicParameters
    shown: EditedTopics

    @classmethod
    def open(cls, model: AnyModel | Model, shares: AnyShares) -> ModelShares:
        """Open shares; raise ``InputError`` if they are of another model, or not topic shares."""
        given: Any = shares
        file = None if is_table(given) else open_shares(shares_place(given))
        shown = shown_topics(model, NEEDED, (*OPTIONAL, *NAMED))
        topics = TopicParameters.of(shown.stored)
        file = file or _of_table(given, shown, topics.topics_fingerprint)
        if file.about.model != topics.topics_fingerprint:
            name = "this model" if isinstance(model, Model) else str(model_path(model))
            raise InputError(
                f"{shares}: these are shares of another model than {name}; give its shares, or run transform"
            )
        return cls(file, topics, shown)

    def only(self, topic: int) -> ModelShares:
        """The same shares with this topic as the only one shown; ``InputError`` if they have no such topic."""
        if topic in self.shown.edits.hidden and not self.file.about.corpus:
            raise InputError(
                f"topic {topic} is hidden, and the table lacks it; unhide it and call transform again"
            )
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
        ids, units = ids_of_corpus(opened, self.topics.words), list_units(opened)
        read = self.file.tables(list(dict.fromkeys([*columns, *about.columns])))
        tables = in_sizes(read, [unit.rows for unit in units])
        for unit in units:
            table = next(tables, None)
            if table is None or table.num_rows < unit.rows:
                raise StoreError(f"{self.file.path} has fewer documents than its corpus; {DAMAGED}")
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


def shares_place(shares: Any) -> StorePath:
    return shares.path if isinstance(shares, SharesFile) else store_path(shares, "a file of topic shares")


def is_table(given: Any) -> bool:
    """Whether this is a table of pandas with a column of shares for each topic number."""
    columns = getattr(given, "columns", ())
    return (
        hasattr(given, "to_numpy")
        and len(columns) > 0
        and all(isinstance(name, Integral) for name in columns)
        and all(getattr(kind, "kind", "") == "f" for kind in given.dtypes)
    )


def topics_mark(model: str, shown: EditedTopics) -> str:
    """What identifies the topics of a table: the fingerprint of the stored ones, and how they are merged."""
    return f"{model} {shown.groups}"


def _of_table(table: pd.DataFrame, shown: EditedTopics, model: str) -> SharesFile:
    """The shares in a table by the stored topics: those of a merged topic are in its first one."""
    numbers, ids = [int(name) for name in table.columns], from_python([*table.index])
    if numbers != [*shown.numbers]:
        raise InputError(
            f"the table has shares of topics {_listed(numbers)}, and the model shows {_listed(shown.numbers)}; call "
            "transform of this model again"
        )
    if table.attrs.get(OF_TOPICS, mark := topics_mark(model, shown)) != mark:
        raise InputError(
            "the table is of another model, or its topics were merged otherwise; call transform of this model again"
        )
    theta = np.zeros((len(table), shown.edits.n_topics))
    theta[:, numbers] = table.to_numpy(np.float64)
    rows = pa.table({DOCUMENT_ID: ids, SHARES: to_lists(theta)})
    about = About(model, corpus="", request="", n_topics=theta.shape[1], top=None)
    return SharesFile(
        Path("the table"), about, (DOCUMENT_ID,), lambda columns: iter([rows.select(list(columns))])
    )


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:9])) + ", ..." * (len(numbers) > 9)


def token_probabilities(
    counts: csr_array[Any], theta: Floats, word_topic: Floats
) -> Iterator[tuple[slice, NDArray[np.intp], Floats]]:
    """Yield slices of the nonzeros, their documents, and p(w | theta); theta is M x K and word_topic N x K."""
    rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    for part in panels(rows.size, NONZEROS):
        yield part, rows[part], np.einsum("nk,nk->n", theta[rows[part]], word_topic[counts.indices[part]])
