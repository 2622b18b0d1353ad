"""Documents that repeat an id or the whole contents of another, found across all pieces in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.ingestion.pieces import KEY

#: Keys held at once.
BUCKET_KEYS = 1_000_000


@dataclass(frozen=True, eq=False)
class Repeats:
    """The documents that repeat another, by piece: ordinals, units and rows, in order of ordinals."""

    ordinals: Mapping[int, NDArray[np.int64]]
    units: Mapping[int, NDArray[np.int64]]
    rows: Mapping[int, NDArray[np.int64]]

    def of(self, piece: int) -> NDArray[np.int64]:
        """Ordinals in a piece."""
        return self.ordinals.get(piece, np.zeros(0, np.int64))

    @property
    def total(self) -> int:
        """Over all pieces."""
        return sum(len(ordinals) for ordinals in self.ordinals.values())


def find_repeats(files: Mapping[int, Path], without: Repeats | None = None) -> Repeats:
    """All documents but the first, by ``order``, of each group of equal keys.

    One pass over the keys, which are sorted by their hash in every file, one range of hashes at a time.

    Parameters
    ----------
    files
        File of keys by piece; missing ones are passed over.
    without
        Documents that do not count.
    """
    present = {piece: path for piece, path in files.items() if path.exists()}
    total = sum(path.stat().st_size for path in present.values()) // KEY.itemsize
    found: dict[int, list[NDArray[Any]]] = {}
    for bucket in _buckets(present, max(1, -(-total // BUCKET_KEYS))):
        for piece, repeated in _repeats_in(bucket, without):
            found.setdefault(piece, []).append(repeated)
    ordinals, units, rows = {}, {}, {}
    for piece, parts in sorted(found.items()):
        joined = np.concatenate(parts)
        joined = joined[np.argsort(joined["ordinal"])]
        ordinals[piece], rows[piece] = joined["ordinal"].copy(), joined["row"].copy()
        units[piece] = joined["unit"].copy()
    return Repeats(ordinals, units, rows)


def _buckets(files: Mapping[int, Path], count: int) -> Iterator[dict[int, NDArray[Any]]]:
    """The keys whose first 64 bits lie in each of ``count`` equal ranges; read, as maps would fill the memory."""
    edges = np.array([(i << 64) // count for i in range(1, count)], np.uint64)
    cuts = {piece: _cuts(path, edges) for piece, path in files.items()}
    for i in range(count):
        yield {
            piece: np.fromfile(
                path, KEY, count=cuts[piece][i + 1] - cuts[piece][i], offset=cuts[piece][i] * KEY.itemsize
            )
            for piece, path in files.items()
        }


def _cuts(path: Path, edges: NDArray[np.uint64]) -> list[int]:
    if not len(edges):
        return [0, path.stat().st_size // KEY.itemsize]
    keys = np.memmap(path, KEY, mode="r")
    return [0, *np.searchsorted(keys["high"], edges).tolist(), len(keys)]


def _repeats_in(
    bucket: Mapping[int, NDArray[Any]], without: Repeats | None
) -> Iterator[tuple[int, NDArray[Any]]]:
    parts = [
        array if without is None else array[~np.isin(array["ordinal"], without.of(piece))]
        for piece, array in bucket.items()
    ]
    pieces = np.repeat(list(bucket), [len(part) for part in parts])
    keys = np.concatenate([*parts, np.empty(0, KEY)])
    # Equal order (no ids, or one id twice): the earlier piece, then the earlier document.
    order = np.lexsort((keys["ordinal"], pieces, keys["order"], keys["low"], keys["high"]))
    keys, pieces = keys[order], pieces[order]
    same = (keys["high"][1:] == keys["high"][:-1]) & (keys["low"][1:] == keys["low"][:-1])
    repeated = np.concatenate([[False], same]) if len(keys) else np.zeros(0, bool)
    for piece in np.unique(pieces[repeated]).tolist():
        yield piece, keys[repeated & (pieces == piece)]


def piece_files(stems: Sequence[Path], kind: str) -> dict[int, Path]:
    """Files of keys of a kind ("contents" or "identities") by piece."""
    return {piece: stem.with_suffix(f".{kind}") for piece, stem in enumerate(stems)}
