"""What all settings share: their fingerprint, the checks of their fields, and how two of them differ."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields
from numbers import Integral, Real
from typing import Any

from streaming_jsmf.errors import InputError

#: Characters of a value that a message about settings still shows; a digest has more.
LONGEST_VALUE = 60


def fingerprint(values: Mapping[str, Any]) -> str:
    """Return the sha256 (hex) of the canonical JSON of ``values``."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def require(condition: bool, setting: str, value: object, wanted: str) -> None:
    """Refuse a field with ``InputError`` unless ``condition`` holds; ``wanted`` is what to give."""
    if not condition:
        raise InputError(f"{setting} is {value!r}; give {wanted}")


def require_numbers(settings: Any) -> None:
    """Refuse what is no number in a field of numbers; whole numbers of NumPy become Python's, which a store keeps."""
    for field in fields(settings):
        value, kind = getattr(settings, field.name), str(field.type).removesuffix(" | None")
        if kind not in ("int", "float") or (value is None and "None" in str(field.type)):
            continue
        whole = isinstance(value, Integral) and not isinstance(value, bool)
        if kind == "int":
            require(whole, field.name, value, "a whole number")
            object.__setattr__(settings, field.name, int(value))
        else:
            require(whole or isinstance(value, Real), field.name, value, "a number")


def require_kind(name: str, value: object, *kinds: type, advice: str = "") -> None:
    """Refuse an argument that is none of these settings, such as a number or a dictionary; None is a default."""
    if value is not None and not isinstance(value, kinds):
        wanted = advice or " or ".join(f"{kind.__name__}(...)" for kind in kinds)
        raise InputError(f"{name} is {str(value)[:LONGEST_VALUE]!r} ({type(value).__name__}); give {wanted}")


def require_choice(setting: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuse a field that is none of ``choices``."""
    require(value in choices, setting, value, "one of " + ", ".join(choices))


def differences(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Name the fields that differ, with both values where these are short; empty when none does."""
    missing = object()
    differing = (
        key for key in sorted({*stored, *wanted}) if stored.get(key, missing) != wanted.get(key, missing)
    )
    return "; ".join(_difference(key, stored.get(key), wanted.get(key)) for key in differing)


def _difference(key: str, stored: Any, wanted: Any) -> str:
    short = max(len(repr(stored)), len(repr(wanted))) <= LONGEST_VALUE
    return f"{key}: stored {stored!r}, asked {wanted!r}" if short else key
