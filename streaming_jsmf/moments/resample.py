"""Partitions of a store drawn with replacement: what else the same source might have given. No scan."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.errors import InputError
from streaming_jsmf.jobs.ledger import Partial
from streaming_jsmf.moments.reader import Moments
from streaming_jsmf.moments.select import SelectedMoments, fold_parts

#: With fewer parts two draws are too often the same.
FEWEST_PARTS = 4


def drawn_parts(n_parts: int, seed: int, replica: int) -> NDArray[np.int64]:
    """How often each part is drawn in a bootstrap sample of all, (n_parts,); a function of its arguments alone."""
    key = np.array([seed, replica], dtype=np.uint64)
    draws = np.random.Generator(np.random.Philox(key=key)).integers(n_parts, size=n_parts)
    return np.bincount(draws, minlength=n_parts)


def require_parts(moments: Moments) -> None:
    """Refuse moments whose parts cannot be drawn again.

    Raises
    ------
    InputError
        If they were not kept, are too few, or are linear sketches; the message is a reason for people.
    """
    store = moments.store
    if not store.keeps_partitions:
        raise InputError(f"{store.path} keeps no partitions; scan with --keep-partitions")
    if store.settings.range_finder != "factors":
        raise InputError(f"{store.path} holds sketches; scan with --range factors")
    if len(store.part_keys) < FEWEST_PARTS:
        raise InputError(
            f"{store.path} has {len(store.part_keys)} partitions, {FEWEST_PARTS} are needed; "
            "scan with a smaller --partition-nonzeros"
        )


def resampled(moments: Moments, seed: int, replica: int) -> SelectedMoments:
    """The moments of a bootstrap sample of the kept parts. No pass over the corpus; memory: two factors.

    A part drawn twice counts as two of the same documents would.

    Raises
    ------
    InputError
        See ``require_parts``.
    StoreError
        If a part is damaged.
    """
    require_parts(moments)
    store = moments.store
    times = drawn_parts(len(store.part_keys), seed, replica)
    ledger = store.ledger("range")
    drawn = (
        _repeated(ledger.read_part(key), int(n)) for key, n in zip(store.part_keys, times, strict=True) if n
    )
    folded = fold_parts(store, drawn)
    assert folded is not None, "as many draws as parts"
    return SelectedMoments(store, f"bootstrap {seed} {replica}", folded)


def _repeated(part: Partial, times: int) -> Partial:
    """What ``times`` copies of the documents of a part would leave: sums as often, and F F' as much."""
    arrays: dict[str, NDArray[Any]] = {
        name: values * np.float32(np.sqrt(times)) if name == "factor" else values * times
        for name, values in part.arrays.items()
    }
    return Partial(arrays, {name: value * times for name, value in part.scalars.items()})
