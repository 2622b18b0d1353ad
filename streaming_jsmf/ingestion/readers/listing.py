"""Which files a source is made of: a file, a directory or a glob; local or behind a URL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streaming_jsmf.errors import InputError, first_line, pass_on_machine
from streaming_jsmf.storage.paths import AnyPath, file_system, is_url, normalise

_WILDCARDS = "*?["


@dataclass(frozen=True)
class SourceFile:
    """A file of a source: its path or URL, and its name (posix) below the directory that the source names."""

    path: str
    name: str


def list_files(source: AnyPath) -> tuple[str, ...]:
    """Sorted paths of the files of a source; see ``find_files``.

    Raises
    ------
    InputError
        If there are none.
    """
    return tuple(file.path for file in find_files(source))


def find_files(source: AnyPath) -> tuple[SourceFile, ...]:
    """The files of a source in order: a file, a directory with all below it, or a glob; local or a URL.

    Files and folders whose names start with ``.`` or ``_`` are markers of other tools and passed over; where the
    source itself is does not matter.

    Raises
    ------
    InputError
        If there are none.
    """
    root = normalise(source)
    try:
        fs, inner = file_system(root)
        if fs.isfile(inner):
            return (SourceFile(root, inner.rsplit("/", 1)[-1]),)
        # A directory may have such a character in its name.
        has_pattern = any(character in inner for character in _WILDCARDS) and not fs.isdir(inner)
        found = fs.glob(inner) if has_pattern else fs.find(inner)
        files = sorted(str(name) for name in found if not (has_pattern and fs.isdir(name)))
    except InputError:
        raise
    except Exception as error:  # of the package behind the scheme
        pass_on_machine(error)
        raise InputError(f"cannot open {root}: {first_line(error)}; check the path") from error
    base = _fixed_part(inner) if has_pattern else inner
    below = {name: name.removeprefix(base).lstrip("/") for name in files}
    kept = [
        SourceFile(_address(fs, root, inner, name), below[name])
        for name in files
        if not is_marker(below[name])
    ]
    if not kept:
        raise InputError(f"there are no files at {root}; check the path")
    return tuple(kept)


def is_marker(name: str) -> bool:
    """Whether a file or a folder above it has the name of a marker; ``name`` is relative."""
    return any(part[:1] in (".", "_") for part in name.split("/") if part)


def _fixed_part(pattern: str) -> str:
    """The directory of a glob that has no wildcard."""
    first = min(pattern.index(character) for character in _WILDCARDS if character in pattern)
    return pattern[:first].rpartition("/")[0]


def _address(fs: Any, root: str, base: str, name: str) -> str:
    """Path or URL of a file that was found at ``root``, whose file system calls it ``base``."""
    if not is_url(root):
        return name
    link, chained, rest = root.partition("::")
    if chained and "://" in link:
        # Of a chain, such as zip://*.csv::a.zip, the file system knows only its own link.
        return f"{link.partition('://')[0]}://{name}::{rest}"
    # By the URL itself where that is possible: of a host and a user some file systems know nothing any more.
    head = root.removesuffix(base)
    return f"{head}{name}" if root.endswith(base) and base else str(fs.unstrip_protocol(name))
