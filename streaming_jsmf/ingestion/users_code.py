"""Functions of users, named MODULE:FUNCTION: tokenizers and readers. Names from stores and specs are not loaded."""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from streaming_jsmf.config.reading import is_local, local_function
from streaming_jsmf.errors import InputError, first_line, option, pass_on_machine


def users_function(name: str, what: str, built_in: str = "") -> Callable[..., Any]:
    """Import a function, or find one that ``config.reading.name_of`` has named.

    Raises ``InputError``, which says ``what`` it is for, and what is ``built_in``, if that is not possible.
    """
    if is_local(name):
        return local_function(name, f"{option.scheduler('threads')}")
    module, _, attribute = name.partition(":")
    if not (module and attribute):
        raise InputError(f"{what} is {name!r}; give {built_in}a function of your own as MODULE:FUNCTION")
    try:
        found = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # a user's module may raise anything
        pass_on_machine(error)
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise InputError(f"cannot import {what} {name!r} ({reason}); check the name") from error
    if not callable(found):
        raise InputError(f"{what} {name!r} is not callable; name a function")
    return found


def code_of(name: str) -> str | None:
    """Return the sha256 of the file of an imported function; None for one without a file.

    Raises ``InputError`` if the file has changed since this process imported it.
    """
    imported, module = _imported_code(name), name.partition(":")[0]
    if imported is not None and imported != _sha256_of_module(module):
        path = sys.modules[module].__file__
        raise InputError(f"{path} has changed since it was imported; start a new Python process")
    return imported


@cache
def _imported_code(name: str) -> str | None:
    if is_local(name):
        return None
    importlib.import_module(module := name.partition(":")[0])
    return _sha256_of_module(module)


def _sha256_of_module(name: str) -> str | None:
    path = getattr(sys.modules.get(name), "__file__", None)
    try:
        return None if path is None else hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return None
