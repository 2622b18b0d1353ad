"""Fingerprints of settings, and how two sets of settings differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Longest value that a message about settings shows; digests are longer.
LONGEST_VALUE = 60


def fingerprint(values: Mapping[str, Any]) -> str:
    """Return the sha256 (hex) of the canonical JSON of ``values``, in which 2 and 2.0 are the same number."""
    import hashlib  # the command line shows its help without them
    import json

    text = json.dumps(_plain(values), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    """JSON values with whole floats as integers and tuples as lists, as one setting may be given in several ways."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def sealed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``values`` with their fingerprint as ``sha256``, which detects changed and damaged metadata."""
    return {**values, "sha256": fingerprint(values)}


def unsealed(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Inverse of ``sealed``; raise ``ValueError`` if the values differ from their fingerprint."""
    values = {key: value for key, value in stored.items() if key != "sha256"}
    if stored.get("sha256") != fingerprint(values):
        raise ValueError("its contents differ from its sha256")
    return values


def differences(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Name the fields that differ, with both values where these are short; empty if none does."""
    missing = object()
    return "; ".join(
        _difference(key, stored.get(key), wanted.get(key))
        for key in sorted({*stored, *wanted})
        if _plain(stored.get(key, missing)) != _plain(wanted.get(key, missing))
    )


def _difference(key: str, stored: Any, wanted: Any) -> str:
    if isinstance(stored, Mapping) and isinstance(wanted, Mapping):
        inner = ({f"{key}.{name}": value for name, value in of.items()} for of in (stored, wanted))
        return differences(*inner)
    short = max(len(repr(stored)), len(repr(wanted))) <= LONGEST_VALUE
    return f"{key}: stored {stored!r}, asked {wanted!r}" if short else key
