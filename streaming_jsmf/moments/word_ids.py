"""Ids of the words of a corpus in a store whose vocabulary was extended by a merge."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.moments.manifest import CorpusEntry, WordIds
from streaming_jsmf.moments.stages.base import repair_hint
from streaming_jsmf.moments.store import WORD_IDS, MomentsStore
from streaming_jsmf.storage.arrays import ArrayDigest, digest, read_array, write_array
from streaming_jsmf.storage.paths import StorePath


def read_word_ids(store: MomentsStore, entry: CorpusEntry) -> NDArray[np.int64] | None:
    """The id in the store of each word of a corpus, or None if unchanged. Raises ``StoreError`` if damaged."""
    described = entry.word_ids
    if described is None:
        return None
    expected = ArrayDigest(described.sha256, (described.n_words,), "int64")
    ids: NDArray[np.int64] = read_array(store.path, described.name, expected, hint=repair_hint(store.path))
    return ids


def describe_word_ids(ids: NDArray[np.int64]) -> WordIds:
    """The manifest entry of an array of ids; its name is derived from its values."""
    sha256 = digest(ids).sha256
    return WordIds(name=f"{WORD_IDS}{sha256[:16]}", sha256=sha256, n_words=len(ids))


def write_word_ids(path: StorePath, arrays: Sequence[NDArray[np.int64] | None]) -> None:
    """Write arrays for ``read_word_ids`` into the store at ``path``; None entries are skipped."""
    for ids in arrays:
        if ids is not None:
            # Corpora have different numbers of words, and xarray requires one length per dimension name.
            name = describe_word_ids(ids).name
            write_array(path, name, ids, [f"{name}-word"])
