"""Topic shares with some topics as one: the shares of a document add up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.documents.shares import SHARES, About, SharesFile, dense, lists_of, share_columns


@dataclass(frozen=True)
class GroupedShares:
    """A ``SharesFile`` of K' topics, each a group of those of another file; what is in no group is left out.

    Attributes
    ----------
    file
        The other one.
    groups
        Its topics, by group.
    """

    file: SharesFile
    groups: Sequence[Sequence[int]]

    @property
    def path(self) -> Path:
        """Where the other file is."""
        return self.file.path

    @property
    def about(self) -> About:
        """What is known of the other file, with all shares of the groups."""
        return replace(self.file.about, n_topics=len(self.groups), top=None)

    @property
    def columns(self) -> tuple[str, ...]:
        """``document_id`` and the metadata columns."""
        return self.file.columns

    def tables(self, columns: Sequence[str]) -> Iterator[Any]:
        """As the other file gives them, the shares summed over each group."""
        stored, wanted = share_columns(self.file.about), SHARES in columns
        others = [name for name in columns if name not in stored]
        for table in self.file.tables([*others, *(stored if wanted else ())]):
            told = table.select(others)
            yield told.append_column(SHARES, lists_of(self._summed(table))) if wanted else told

    def _summed(self, table: Any) -> NDArray[np.float64]:
        values = dense(self.file.about, table)
        sums = [values[:, list(group)].sum(axis=1) for group in self.groups]
        return np.stack(sums, axis=1)
