"""The shares of a model as the model shows them: merged topics added, hidden ones left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from streaming_jsmf.documents.share_files import open_shares
from streaming_jsmf.documents.shares import SHARES, SharesFile, to_lists
from streaming_jsmf.errors import InputError
from streaming_jsmf.storage.paths import local_path, normalise
from streaming_jsmf.topics.edits import shown_topics
from streaming_jsmf.topics.parameters import NEEDED, OPTIONAL, TopicParameters
from streaming_jsmf.topics.store import AnyModel, Model, model_path, read_model


def open_shares_of(model: AnyModel | Model, shares: str | Path) -> SharesFile:
    """Open the topic shares of a model; raise ``InputError`` if they are of another model, or not topic shares."""
    found = open_shares(local_path(normalise(shares, "a file of topic shares"), "a file of topic shares"))
    read = model if isinstance(model, Model) else read_model(model_path(model), NEEDED, OPTIONAL)
    if found.about.model != TopicParameters.of(read).topics_fingerprint:
        name = "this model" if isinstance(model, Model) else str(model_path(model))
        raise InputError(
            f"{shares}: these are shares of another model than {name}; give its shares, or run transform"
        )
    return found


def shown_shares_of(model: AnyModel, shares: str | Path) -> SharesFile:
    """Open the shares of the topics that the model shows."""
    return MergedShares.of(open_shares_of(model, shares), shown_topics(model).groups)


@dataclass(frozen=True)
class MergedShares(SharesFile):
    """Shares of groups of topics of another file; topics in no group are omitted."""

    file: SharesFile
    groups: Sequence[Sequence[int]]

    @classmethod
    def of(cls, file: SharesFile, groups: Sequence[Sequence[int]]) -> MergedShares:
        about = replace(file.about, n_topics=len(groups), top=None)
        return cls(file.path, about, file.columns, file, groups)

    def tables(self, columns: Sequence[str]) -> Iterator[Any]:
        """Yield the tables of the other file, with shares summed over each group."""
        stored = self.file.about.columns
        metadata = [name for name in columns if name not in stored]
        if SHARES not in columns:
            yield from self.file.tables(metadata)
            return
        for table in self.file.tables([*metadata, *stored]):
            values = self.file.about.dense(table)
            sums = np.stack([values[:, list(group)].sum(axis=1) for group in self.groups], axis=1)
            yield table.select(metadata).append_column(SHARES, to_lists(sums))
