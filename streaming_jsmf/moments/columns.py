"""Where the words of a corpus are among those of a store that other words were merged into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.moments.remedy import repair_remedy
from streaming_jsmf.moments.store import MomentsStore
from streaming_jsmf.storage.arrays import ArrayDigest, digest, read_array, write_array
from streaming_jsmf.storage.paths import StorePath


def read_columns(store: MomentsStore, entry: Mapping[str, Any]) -> NDArray[np.int64] | None:
    """Where the words of a corpus (an entry of the manifest) are among those of the store; None: at the same place.

    Raises
    ------
    StoreError
        If the array is damaged.
    """
    described = entry["columns"]
    if described is None:
        return None
    digest_ = ArrayDigest(described["sha256"], (described["n_words"],), "int64")
    remedy = repair_remedy(store.path)
    values: NDArray[np.int64] = read_array(store.path, described["name"], digest_, remedy=remedy)
    return values


def column_name(found: ArrayDigest) -> str:
    """Name of the array with this digest."""
    return f"columns-{found.sha256[:16]}"


def write_columns(path: StorePath, columns: Sequence[NDArray[np.int64] | None]) -> None:
    """Write arrays for ``read_columns`` into the store at ``path``, each under the name that its values give it."""
    for array in columns:
        if array is not None:
            # Corpora have different numbers of words; xarray wants one length for each dimension.
            name = column_name(digest(array))
            write_array(path, name, array, [f"{name}-word"])
