"""Functions as settings: each has a name, which other processes import."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from streaming_jsmf.errors import InputError

#: Functions of this process that cannot be imported, by the name that they were given.
_LOCAL: dict[str, Callable[..., Any]] = {}


def name_of(given: Any) -> Any:
    """Return the name of a function, MODULE:FUNCTION; other values than functions are returned unchanged.

    One that cannot be imported (lambdas, functions of notebooks, methods of objects) gets a name in this process only.
    """
    if not callable(given):
        return given
    module = getattr(given, "__module__", None) or type(given).__module__
    name = f"{module}:{getattr(given, '__qualname__', type(given).__qualname__)}"
    found: Any = sys.modules.get(module) if module != "__main__" else None
    for part in name.partition(":")[2].split("."):
        found = getattr(found, part, None)
    if found is not given:
        known = (known for known, function in _LOCAL.items() if function == given)
        name = next(known, f"{name}#{len(_LOCAL) + 1}")
        _LOCAL[name] = given
    return name


def is_local(name: str) -> bool:
    """Return whether ``name_of`` has given this name to a function that cannot be imported."""
    return "#" in name


def local_function(name: str, advice: str) -> Callable[..., Any]:
    """Return the function to which ``name_of`` has given this name; ``InputError`` in another process."""
    if name not in _LOCAL:
        raise InputError(
            f"other processes cannot import {name!r}; write the function into a module, or use {advice}"
        )
    return _LOCAL[name]
