"""Find the files of a source, local or remote, and of its zip archives."""

from __future__ import annotations

import fnmatch
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from fsspec.utils import glob_translate

from streaming_jsmf.errors import InputError, StoreError, option, pass_on_machine
from streaming_jsmf.ingestion.sources.streams import (
    bare_name,
    bare_suffix,
    file_name,
    is_archive,
    is_hidden,
    names_in_zip,
)
from streaming_jsmf.ingestion.sources.values import listed
from streaming_jsmf.storage.heads import found_once
from streaming_jsmf.storage.kinds import SOURCE, unsuitable
from streaming_jsmf.storage.local import require_regular
from streaming_jsmf.storage.objects import (
    files_below,
    is_absence,
    keep_status,
    of_each_file,
    reason_of,
    status_of,
)
from streaming_jsmf.storage.paths import AnyPath, file_system, is_chain, is_file, is_url, join, normalize

logger = logging.getLogger(__name__)

_WILDCARDS = "*?["

#: How the names of files begin that describe a data set, and their suffixes.
_ABOUT = ("readme", "license", "licence", "citation")

_ABOUT_NAMES = ("dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json", "cache-*.arrow")

_ABOUT_SUFFIXES = ("", ".txt", ".md", ".rst", ".html", ".pdf", ".cff", ".bib")

#: A file of an export of Slack: the messages of a day, in the folder of a channel.
_OF_CHANNEL = re.compile(r"(?:^|[/=])([^/=]+)/[0-9]{4}-[0-9]{2}-[0-9]{2}[.]json$")
#: What Hive and Spark write for a missing value.
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


class NoFilesError(InputError):
    """Raised if a place can be listed, and has no file that is read."""


def list_files(source: AnyPath) -> tuple[str, ...]:
    """Return the sorted paths of the files of a source, and of those in its zip archives; see ``find_files``.

    An export of Slack has folders of messages; the files beside them are left out.
    """
    found = with_members(find_files(source))
    beside = _beside_messages(found)
    return tuple(path for path in found if path not in beside)


def _beside_messages(paths: Sequence[str]) -> set[str]:
    """Return the files of an export of Slack that have no messages: those beside users.json and channels.json."""
    folders = [path.replace(file_name(path).name, "", 1) for path in paths]
    pairs = {*zip(folders, (file_name(path).name for path in paths), strict=True)}
    roots = {folder for folder in folders if {(folder, "users.json"), (folder, "channels.json")} <= pairs}
    beside = {path for path, folder in zip(paths, folders, strict=True) if folder in roots}
    return beside if len(beside) < len(paths) else set()


def with_members(paths: Iterable[str]) -> tuple[str, ...]:
    """Return paths of files, with the files in each zip archive in its place (see ``in_zip``).

    An archive without files, or one that cannot be read, stays as it is; reading it reports the reason. Raises
    InputError if an archive has an archive, or two files of one name.
    """
    paths = [*paths]
    archives = [path for path in paths if path.lower().endswith(".zip") and not is_chain(path)]
    members = dict(zip(archives, of_each_file(_members_of, archives), strict=True))
    return tuple(part for path in paths for part in members.get(path) or [path])


@found_once
def _members_of(path: str) -> list[str]:
    names = sorted(names_in_zip(path))
    for name, following in zip_longest(names, names[1:]):
        if name == following:
            raise InputError(f"{path} has two files {name!r}; unpack it and rename one of them")
        if is_archive(name):
            raise InputError(f"{path} has the archive {name!r}; archives in archives are not read: unpack it")
    return [in_zip(name, path) for name in names]


def inside(root: str, name: str) -> str:
    """Return the path of a file of a folder or a zip archive."""
    return in_zip(name, root) if root.lower().endswith(".zip") else join(root, name)


def in_zip(name: str, archive: str) -> str:
    """Return the path of a file in a zip archive. Raises InputError if a path cannot name it."""
    if "::" in name or ("::" in archive and not is_url(archive)):
        raise InputError(
            f"{archive}: its file {name!r} cannot be read, because the path has ::; move the archive or unpack it"
        )
    return f"zip://{name}::{archive}"


@found_once
def find_files(source: AnyPath) -> dict[str, str]:
    """Return the names of the files of a source, relative to it and with slashes, by path or URL in sorted order.

    A source is a file, a directory (read recursively) or a glob; local or a URL.

    Hidden files (see ``is_hidden``) below the source are skipped. Raises InputError if no file is found.
    """
    root = normalize(source)
    fs, inner = file_system(root)
    kind, base, paths = _listed(fs, inner, root)
    if is_url(root):
        for path, status in paths.items():
            keep_status(root if kind == "file" else _address(fs, root, inner, path), status)
    if kind == "file":
        return {root: inner.rsplit("/", 1)[-1]}
    names = {path: path.removeprefix(base).lstrip("/") for path in paths}
    kept = {_address(fs, root, inner, path): name for path, name in names.items() if not is_hidden(name)}
    if not kept:
        # No file of a folder matches a pattern, or there is no folder.
        is_there = kind is not None or (base != inner and _found_at(fs, base.rstrip("/"))[0] is not None)
        if not is_there:
            raise unsuitable(root, SOURCE, "")
        raise NoFilesError(f"there are no files at {root}; check the path")
    if not is_url(root):
        for path in (path for path in kept if require_regular(Path(path)).is_dir()):
            raise InputError(f"{path} links to a folder, which is not followed; read it by its own name")
    return kept


def _listed(fs: Any, inner: str, root: str) -> tuple[str | None, str, dict[str, Mapping[str, Any]]]:
    """As ``_found_at``. Raises InputError if the place cannot be listed."""
    try:
        if not is_url(root):
            require_regular(Path(inner))
        return _found_at(fs, inner, root if is_url(root) else None)
    except (InputError, StoreError):
        raise
    except Exception as error:  # the package behind the scheme may raise anything
        pass_on_machine(error)
        if isinstance(error, OSError) and not is_url(root):
            raise  # it names the folder
        raise InputError(f"cannot open {root}: {reason_of(error)}; check the path") from error


def _found_at(
    fs: Any, name: str, url: str | None = None
) -> tuple[str | None, str, dict[str, Mapping[str, Any]]]:
    """The fsspec type of what has a name, None if nothing has, the folder, and the files in it, sorted by path.

    For a glob, those of the files that match; for a file, itself.
    """
    wild = [name.index(character) for character in _WILDCARDS if character in name]
    kind, status = None, dict[str, Any]()
    try:
        status = dict(fs.info(name) if url is None else status_of(url))
        kind = str(status["type"])
    except Exception as error:
        # Servers may refuse such a name.
        if not (wild or is_absence(error) or isinstance(error, NotADirectoryError)):
            raise
    if kind or not wild:  # the name of a folder may contain these characters
        found = {name: status} if kind == "file" else files_below(fs, name)
        return kind, name, dict(sorted(found.items()))
    base = name[: name.rfind("/", 0, min(wild)) + 1]
    found = files_below(fs, base, None if "**" in name else name[len(base) :].count("/") + 1)
    matches = re.compile(glob_translate(name)).match
    return kind, base, {path: found[path] for path in sorted(filter(matches, found))}


def is_about(path: str) -> bool:
    """Return whether a file describes a data set, such as README.md, or is a cache of Hugging Face beside it."""
    name = file_name(path).name
    is_named = any(fnmatch.fnmatch(name, pattern) for pattern in _ABOUT_NAMES)
    return is_named or (name.startswith(_ABOUT) and bare_suffix(path) in _ABOUT_SUFFIXES)


def is_word_list(path: str) -> bool:
    return file_name(path).name.startswith("vocab") or file_name(path).name.endswith(".vocab.txt")


def _address(fs: Any, root: str, base: str, name: str) -> str:
    """Return the path or URL of a file found at ``root``, which its file system calls ``base``."""
    if not is_url(root):
        return name
    link, chained, rest = root.partition("::")
    if chained and "://" in link:
        # In a chain such as zip://*.csv::a.zip, the file system knows only its own link.
        return f"{link.partition('://')[0]}://{name}::{rest}"
    # Keep the start of the URL if possible: some file systems drop the host and the user.
    head = root.removesuffix(base)
    return f"{head}{name}" if root.endswith(base) and base else str(fs.unstrip_protocol(name))


def files_for(
    reader: str, patterns: Sequence[str], root: str, path: str | None, names: Sequence[str] | None,
    beside: Sequence[str], suited: Callable[[str, Sequence[str]], Sequence[str]],
) -> tuple[str, tuple[str, ...]]:  # fmt: skip
    """Return the root and the files that a reader reads there, except those in ``beside``, such as word lists.

    ``path`` and ``names`` choose among the files; of files whose names do not match the ``patterns``, those are
    taken whose contents are ``suited``. Raises InputError if no file is left.
    """
    if path is not None:
        root = inside(root, path)
    if not patterns:
        # The files of a spec may be a single archive.
        archives = [name for name in names or () if is_archive(name)]
        only_archive = len(archives) == 1 and not is_archive(root)
        return join(root, archives[0]) if only_archive else root, tuple(join(root, n) for n in names or ())
    if path is not None:
        return root, (root,)
    if names is not None:
        found = with_members(join(root, name) for name in sorted(names))
    else:
        found = list_files(root)
        if about := {*with_members(find_files(root))} - {*found}:
            logger.warning(
                "not read, because they are no messages: %s",
                listed(file_name(path).name for path in sorted(about)),
            )
        if not is_chain(root) and is_file(root) and len(found) == 1:
            return root, found  # of any name, as the user named it
    excluded = tuple(f"/{name}" for name in beside)
    found = tuple(
        path for path in found if not (is_word_list(path) or is_about(path) or path.endswith(excluded))
    )
    taken = tuple(
        path for path in found if any(fnmatch.fnmatch(bare_name(path), pattern) for pattern in patterns)
    )
    if not taken:
        taken = tuple(suited(reader, found))
    if not taken:
        raise NoFilesError(
            f"none of the {len(found)} files at {root} is {' or '.join(patterns)}; "
            f"name the files or choose another reader with {option.reader('NAME')}"
        )
    if others := sorted({*found} - {*taken}):
        shown = listed(file_name(path).name for path in others)
        logger.warning("not read, because the reader %s takes other files: %s", reader, shown)
    return root, taken


def names_in_folders(root: str, path: str) -> dict[str, str | None]:
    """Return names and values of folders below the source, such as year=1999 as Hive and Spark write them."""
    below = _below(root, path)
    pairs = (folder.partition("=") for folder in below.split("/")[:-1])
    values = {name: unquote(value) for name, equals, value in pairs if name and equals}
    if channel := _OF_CHANNEL.search(below):
        values["channel"] = channel[1]
    return {name: None if value == _NO_VALUE else value for name, value in values.items()}


def _below(root: str, path: str) -> str:
    """The path of a file below its source."""
    source = re.sub(r"/[^/]*[*?[].*", "", root)
    if is_chain(path) and not is_chain(root):
        member, _, archive = path.partition("::")
        return f"{archive.removeprefix(source)}/{member.partition('://')[2]}"
    return path.removeprefix(source) if path.startswith(source) else ""
