"""What may happen to a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

Damage = Callable[[Path], None]


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def flipped(path: Path) -> None:
    """One bit of it is another."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


#: Kinds that a chunk can show; one without a byte is a truncated one.
SOME = (truncated, flipped, Path.unlink)
ALL = (truncated, emptied, flipped, Path.unlink)
