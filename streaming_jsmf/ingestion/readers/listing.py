"""Find the files of a source, local or remote, and of its zip archives, and recognize what they hold."""

from __future__ import annotations

import codecs
import fnmatch
import json
import logging
import re
import zipfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any

from streaming_jsmf.corpus.format import PARQUET_SUFFIXES, missing_source
from streaming_jsmf.errors import InputError, first_line, option, pass_on_machine
from streaming_jsmf.ingestion.readers.base import UnreadableError
from streaming_jsmf.ingestion.readers.files import bare_suffix, file_name, is_archive, open_raw, open_stream
from streaming_jsmf.ingestion.readers.values import is_binary, listed
from streaming_jsmf.storage.paths import (
    AnyPath,
    file_system,
    is_chain,
    is_file,
    is_url,
    join,
    normalise,
)
from streaming_jsmf.storage.regular import require_regular

logger = logging.getLogger(__name__)

#: What files of other names must hold to be read if a folder has no file whose name suits the reader.
_CONTENTS = {"text": ("parquet", "json"), "lines": ("lines", "text")}

#: Formats of files of records by suffix; files with other suffixes are recognized by their contents.
FORMATS = {
    **dict.fromkeys(PARQUET_SUFFIXES, "parquet"),
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), "json"),
    **dict.fromkeys((".csv", ".tsv", ".tab", ".psv"), "delimited"),
    **dict.fromkeys((".xlsx", ".xlsm", ".xlsb", ".xls", ".ods"), "spreadsheet"),
}

SAMPLE = 1 << 16  # bytes that show what a file holds
_SAMPLE_LINES = 20

_MBOX = re.compile(rb"From \S.*[0-9]:[0-9]{2}.*\r?\n[!-9;-~]+:")
#: The start of each of several texts in a file, as of WikiExtractor, TREC and Reuters.
_MARKED = re.compile(rb"(?im)^<(?:doc|reuters)\b[^>]*>")
_HEADER = re.compile(rb"(?:[!-9;-~]+:|[ \t]).*")
_MAIL_FIELDS = re.compile(
    rb"(?im)^(?:from|to|date|subject|message-id|received|return-path|newsgroups|mime-version):"
)
#: The start of a line of a log or chat, such as 2020-01-31 or [1/31/20, 10:15.
_TIME = re.compile(rb"[\[(<]?[0-9]{1,4}[-/.:][0-9]{1,2}[-/.:][0-9]{1,4}")

_WILDCARDS = "*?["

#: Names of hidden files, of markers and logs of Spark, and of files of Excel, Windows and macOS.
_HIDDEN = re.compile(
    r"[.].*|~[$].*|Thumbs[.]db|desktop[.]ini|__(?:MACOSX|pycache__)|"
    r"_(?:SUCCESS|metadata|common_metadata|temporary|spark_metadata|(?:committed|started|delta)_.*)"
)
#: How the names of files begin that describe a data set, and their suffixes.
_ABOUT = ("readme", "license", "licence", "citation")
_ABOUT_JSON = ("dataset_info.json", "dataset_infos.json", "dataset_dict.json")
_ABOUT_SUFFIXES = ("", ".txt", ".md", ".rst", ".html", ".pdf", ".cff", ".bib")


def list_files(source: AnyPath) -> tuple[str, ...]:
    """Return the sorted paths of the files of a source, and of those in its zip archives; see ``find_files``."""
    return with_members(find_files(source))


def with_members(paths: Iterable[str]) -> tuple[str, ...]:
    """Return paths of files, with the files in each zip archive in its place (see ``in_zip``).

    An archive without files, or one that cannot be read, stays as it is; reading it reports the reason. Raises
    InputError if an archive has an archive, or two files of one name.
    """
    return tuple(part for path in paths for part in _members_of(path) or [path])


def _members_of(path: str) -> list[str]:
    if is_chain(path) or not path.lower().endswith(".zip"):
        return []
    names = sorted(names_in_zip(path))
    for name, following in zip_longest(names, names[1:]):
        if name == following:
            raise InputError(f"{path} has two files {name!r}; unpack it and rename one of them")
        if is_archive(name):
            raise InputError(f"{path} has the archive {name!r}; archives in archives are not read: unpack it")
    return [in_zip(name, path) for name in names]


def in_zip(name: str, archive: str) -> str:
    """Return the path of a file in a zip archive. Raises InputError if a path cannot name it."""
    if "::" in name or ("::" in archive and not is_url(archive)):
        raise InputError(
            f"{archive}: its file {name!r} cannot be read, because the path has ::; move the archive or unpack it"
        )
    return f"zip://{name}::{archive}"


def find_files(source: AnyPath) -> dict[str, str]:
    """Return the names of the files of a source, relative to it and with slashes, by path or URL in sorted order.

    A source is a file, a directory (read recursively) or a glob; local or a URL.

    Hidden files (see ``is_hidden``) below the source are skipped. Raises InputError if no file is found.
    """
    root = normalise(source)
    try:
        fs, inner = file_system(root)
        if not is_url(root):
            require_regular(Path(inner))
        if fs.isfile(inner):
            return {root: inner.rsplit("/", 1)[-1]}
        # A directory name may contain a glob character.
        is_glob = any(character in inner for character in _WILDCARDS) and not fs.isdir(inner)
        found = fs.glob(inner) if is_glob else fs.find(inner)
        paths = sorted(str(path) for path in found if not (is_glob and fs.isdir(path)))
    except InputError:
        raise
    except Exception as error:  # the package behind the scheme may raise anything
        pass_on_machine(error)
        raise InputError(f"cannot open {root}: {first_line(error)}; check the path") from error
    base = inner
    if is_glob:
        base = inner[: min(inner.index(c) for c in _WILDCARDS if c in inner)].rpartition("/")[0]
    names = {path: path.removeprefix(base).lstrip("/") for path in paths}
    kept = {_address(fs, root, inner, path): name for path, name in names.items() if not is_hidden(name)}
    if not kept:
        if not fs.exists(inner):
            raise missing_source(root)
        raise InputError(f"there are no files at {root}; check the path")
    if not is_url(root):
        for path in kept:
            _require_file(Path(path))
    return kept


def _require_file(path: Path) -> None:
    if require_regular(path).is_dir():
        raise InputError(f"{path} links to a folder, which is not followed; read it by its own name")


def is_hidden(name: str) -> bool:
    """Return whether a part of a relative path is a name that tools give to files beside data, or starts with ``.``."""
    return any(map(_HIDDEN.fullmatch, name.split("/")))


def is_about(path: str) -> bool:
    """Return whether a file describes a data set, such as the README.md of the Hugging Face Hub."""
    name = file_name(path).name
    return name in _ABOUT_JSON or (name.startswith(_ABOUT) and bare_suffix(path) in _ABOUT_SUFFIXES)


def is_word_list(path: str) -> bool:
    return file_name(path).name.startswith("vocab") or file_name(path).name.endswith(".vocab.txt")


def names_in_zip(path: str) -> list[str]:
    """Return the names of the files in a zip archive that are not hidden; none if it cannot be read."""
    with suppress(UnreadableError), open_raw(path) as stream, zipfile.ZipFile(stream) as archive:
        names = [member.filename for member in archive.infolist() if not member.is_dir()]
        return [name for name in names if not is_hidden(name)]
    return []


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


def is_parquet(path: str) -> bool:
    return format_of(path) == "parquet"


def format_of(path: str) -> str:
    """Return the format of a file of records: parquet, json, delimited, spreadsheet, or "" for others.

    Files whose suffix is not one of ``FORMATS`` are recognized by their contents, but not those with delimiters.
    """
    known = FORMATS.get(bare_suffix(path))
    if known is None:
        known = found if (found := contents_of(path)) in FORMATS.values() else ""
    return known


def contents_of(path: str) -> str:
    """Return what the start of a file shows, see ``contents``; "" if it cannot be read."""
    try:
        with open_stream(path) as stream:
            return contents(stream.read(SAMPLE))
    except (UnreadableError, FileNotFoundError):
        return ""


def contents(head: bytes) -> str:
    """Return what the first bytes of a file show: parquet, json, mbox, marked, mail, binary, lines, text or "".

    json means an array of objects, or one object per line; marked are several texts with tags; lines are of a log, a
    chat or a table.
    """
    head = head.removeprefix(codecs.BOM_UTF8)
    lines = head.splitlines()[: _SAMPLE_LINES + 1]
    lines = [
        line for line in (lines[:-1] if len(lines) > 1 and len(head) > SAMPLE - 4 else lines) if line.strip()
    ]
    if not lines or head.startswith(b"PAR1") or is_binary(head):
        return "parquet" if head.startswith(b"PAR1") else "binary" if lines else ""
    if re.match(rb"\s*\[\s*\{", head) or _most(_is_object, lines):
        return "json"
    if _MBOX.match(head):
        return "mbox"
    if len(_MARKED.findall(head)) > 1:
        return "marked"
    header = re.split(rb"\r?\n\r?\n", head, maxsplit=1)[0].splitlines()
    if all(map(_HEADER.match, header)) and len({*_MAIL_FIELDS.findall(b"\n".join(header))}) > 1:
        return "mail"
    tabs = lines[0].count(b"\t")
    if len(lines) > 4 and _most(lambda line: _TIME.match(line) or line.count(b"\t") == tabs > 0, lines):
        return "lines"
    return "text"


def _most(test: Callable[[bytes], object], lines: Sequence[bytes]) -> bool:
    return 2 * sum(bool(test(line)) for line in lines) > len(lines)


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line.decode("utf-8", "replace")), dict)
    except (ValueError, RecursionError):
        return len(line) >= SAMPLE and re.match(rb'\s*\{\s*"', line) is not None


def files_for(
    reader: str, patterns: Sequence[str], root: str, path: str | None, names: Sequence[str] | None,
    beside: Sequence[str],
) -> tuple[str, tuple[str, ...]]:  # fmt: skip
    """Return the root and the files that a reader reads there, except those in ``beside``, such as word lists.

    ``path`` and ``names`` choose among the files. Raises InputError if no file is left.
    """
    if path is not None:
        root = in_zip(path, root) if root.lower().endswith(".zip") else join(root, path)
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
        if not is_chain(root) and is_file(root) and len(found) == 1:
            return root, found  # of any name, as the user named it
    excluded = tuple(f"/{name}" for name in beside)
    found = tuple(
        path for path in found if not (is_word_list(path) or is_about(path) or path.endswith(excluded))
    )
    taken = tuple(
        path for path in found if any(fnmatch.fnmatch(file_name(path).name, pattern) for pattern in patterns)
    )
    if not taken:
        holding = _CONTENTS.get(reader, ())
        taken = tuple(path for path in found if holding and contents_of(path) in holding)
    if not taken:
        raise InputError(
            f"none of the {len(found)} files at {root} is {' or '.join(patterns[:4])}; "
            f"name the files or choose another reader with {option.reader('NAME')}"
        )
    if others := sorted({*found} - {*taken}):
        shown = listed(file_name(path).name for path in others)
        logger.info("not read, because the reader %s takes other files: %s", reader, shown)
    return root, taken
