"""Hashes of shards, taken once by each process and compared with what is known of them when they are first read."""

from __future__ import annotations

import threading
from collections import defaultdict
from pathlib import Path

from streaming_jsmf.errors import StoreError
from streaming_jsmf.storage.paths import is_url, sha256_of

#: Size and time of the last change; None for what is behind a URL, whose hash is taken once.
State = tuple[int, int] | None

_found: dict[str, tuple[State, str]] = {}
_locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


def hash_of_shard(path: str) -> str:
    """Hex SHA-256 of a file: one pass over it, unless this process has taken it and the file has not changed since."""
    with _locks[path]:
        state = _state(path)
        if path not in _found or _found[path][0] != state:
            _found[path] = (state, sha256_of(path))
        return _found[path][1]


def require_hash(path: str, expected: str) -> None:
    """Check that a shard holds what its manifest says, or what it held when its corpus was opened.

    Checksums of pages tell of damage, but not of a shard that another program wrote.

    Raises
    ------
    StoreError
        If it does not.
    """
    require_same_hash(path, hash_of_shard(path), expected)


def require_same_hash(path: str, found: str, expected: str) -> None:
    """Raise StoreError if the hash found of a shard is not the one expected."""
    if found != expected:
        raise StoreError(
            f"{path} has sha256 {found[:12]}..., expected {expected[:12]}...; restore it or build the corpus again"
        )


def _state(path: str) -> State:
    if is_url(path):
        return None
    found = Path(path).stat()
    return found.st_size, found.st_mtime_ns
