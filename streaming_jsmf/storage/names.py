"""Names of local files that users give: what they stand for, and why none can have such a name."""

from __future__ import annotations

import errno
import os
import sys
from itertools import dropwhile
from pathlib import Path
from urllib.parse import unquote

from streaming_jsmf.errors import InputError

#: Advice where a text may have been given instead of a path.
CHECK_OR_LIST = "check the path, or give texts as a list or in a file"

LOCAL_SCHEMES = ("file", "local")


def local_name(text: str) -> str:
    """Strip a local scheme and expand ``~``; raise ``InputError`` for names that are not UTF-8."""
    try:
        os.fsencode(text).decode()
        text.encode()
    except UnicodeError as error:
        raise _not_encodable(text) from error
    scheme, _, rest = text.partition("://")
    # Unlike ``Path.expanduser``, this leaves names such as ~draft.csv as they are.
    return os.path.expanduser(unquote(rest) if scheme in LOCAL_SCHEMES else text)  # noqa: PTH111


def _not_encodable(text: str) -> InputError:
    encoding = sys.getfilesystemencoding()
    if encoding == "utf-8":
        shown = text.encode(errors="backslashreplace").decode()
        return InputError(f"{shown}: the name is not UTF-8; rename it")
    return InputError(
        f"{text}: this locale encodes the names of files in {encoding.upper()}; set LC_ALL=C.UTF-8"
    )


def possible(path: Path, given: str) -> Path:
    """Return ``path`` so that it has a name of its own, except for the root directory.

    Raises ``InputError`` if no file can have this name: it is too long, contains NUL or follows a loop of links.
    """
    try:
        path.stat()
    except UnicodeEncodeError as error:
        raise _not_encodable(given) from error
    except (OSError, ValueError) as error:
        if isinstance(error, ValueError) or error.errno == errno.ENAMETOOLONG:
            shown = repr(given) if len(given) <= 60 else f"{given[:60]!r}... ({len(given):,} characters)"
            raise InputError(f"no file or directory can be named {shown}; {CHECK_OR_LIST}") from error
        if error.errno == errno.ELOOP:
            raise InputError(
                f"{given}: a symbolic link in this path leads back to itself; correct it"
            ) from error
    if path.name in ("", ".."):
        return Path(os.path.realpath(path))
    # A store is replaced by renaming it, and a path through it would lead nowhere in the meantime.
    through = ".." in dropwhile(lambda part: part == "..", path.parts)
    return Path(os.path.realpath(path.parent), path.name) if through else path
