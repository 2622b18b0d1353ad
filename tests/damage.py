"""Kinds of damage to a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streaming_jsmf.fingerprint import fingerprint

Damage = Callable[[Path], None]


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


#: Kinds of damage for chunks; an empty chunk is a case of a truncated one.
SOME = (truncated, flipped, Path.unlink)
ALL = (truncated, emptied, flipped, Path.unlink)


def rewritten(model: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the metadata of a model and update their digest: valid, but different contents."""
    root = model / "zarr.json"
    data = json.loads(root.read_text(encoding="utf-8"))
    attributes = data["attributes"]
    change(attributes)
    attributes["sha256"] = fingerprint(
        {name: value for name, value in attributes.items() if name != "sha256"}
    )
    root.write_text(json.dumps(data), encoding="utf-8")
