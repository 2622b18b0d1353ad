"""Find the files of a source, local or remote, and of its zip archives, what they hold, and their first records."""

from __future__ import annotations

import codecs
import fnmatch
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa
from fsspec.utils import glob_translate

from streaming_jsmf.config import Delimited, check_options, declared
from streaming_jsmf.corpus.format import PARQUET_SUFFIXES
from streaming_jsmf.errors import InputError, StoreError, option, pass_on_machine
from streaming_jsmf.ingestion.readers.base import BadRecords, Format, Unit, UnreadableError
from streaming_jsmf.ingestion.readers.csv_layout import CSV_SUFFIXES, is_table, skipping
from streaming_jsmf.ingestion.readers.csv_scan import whole_lines
from streaming_jsmf.ingestion.readers.files import (
    bare_name,
    bare_suffix,
    file_name,
    is_archive,
    is_hidden,
    names_in_zip,
    of_first_readable,
    open_stream,
)
from streaming_jsmf.ingestion.readers.json_records import JSON, RECORD_SEPARATOR, first_objects
from streaming_jsmf.ingestion.readers.tables import ARROW, DELIMITED, PARQUET, SPREADSHEET
from streaming_jsmf.ingestion.readers.values import from_python, is_binary, listed
from streaming_jsmf.storage.heads import found_once
from streaming_jsmf.storage.kinds import SOURCE, unsuitable
from streaming_jsmf.storage.local import require_regular
from streaming_jsmf.storage.objects import files_below, is_absence, keep_status, reason_of, status_of
from streaming_jsmf.storage.paths import AnyPath, file_system, is_chain, is_file, is_url, join, normalize

logger = logging.getLogger(__name__)

_SAMPLE_RECORDS = 100  # of the first file
_SEPARATORS = "\t;,|"  # of the items of a basket, other than white space

#: Formats of files of records by suffix; files with other suffixes are recognized by their contents.
FORMATS: dict[str, Format] = {
    **dict.fromkeys(PARQUET_SUFFIXES, PARQUET),
    **dict.fromkeys((".arrow", ".feather"), ARROW),
    **dict.fromkeys((".jsonl", ".ndjson", ".json", ".json-seq", ".geojson", ".geojsonl", ".geojsons"), JSON),
    **dict.fromkeys(CSV_SUFFIXES, DELIMITED),
    **dict.fromkeys((".xlsx", ".xlsm", ".xlsb", ".xls", ".ods"), SPREADSHEET),
}
_BY_CONTENTS: dict[str, Format] = {"parquet": PARQUET, "json": JSON, "delimited": DELIMITED}

#: What files of other names must hold to be read if a folder has no file whose name suits the reader.
_CONTENTS = {"text": (*_BY_CONTENTS,), "lines": ("lines", "text")}

SAMPLE = 1 << 16  # bytes that show what a file holds
_SAMPLE_LINES = 20

#: The start of an array of objects, also in JavaScript, and of a dict of Python, for which the reader has the reason.
_ARRAY = re.compile(rb"\s*(?:[\w.$][\w.$ ]*[=(]\s*)?\[\s*\{|\s*\{'\w+': ")
_MBOX = re.compile(rb"From (?=\S.*[0-9]:[0-9]{2}).*\n[!-9;-~]+:")
#: The start of each of several texts in a file, as of WikiExtractor, TREC and Reuters.
_MARKED = re.compile(rb"(?im)^<(?:doc|reuters)\b[^>]*>")
_HEADER = re.compile(rb"(?:[!-9;-~]+:|[ \t]).*")
_MAIL_FIELDS = re.compile(
    rb"(?im)^(?:from|to|date|subject|message-id|received|return-path|newsgroups|mime-version):"
)
#: The start of a line of a log or chat, such as 2020-01-31 or [1/31/20, 10:15.
_TIME = re.compile(rb"[\[(<]?[0-9]{1,4}[-/.:][0-9]{1,2}[-/.:][0-9]{1,4}")

_WILDCARDS = "*?["

#: How the names of files begin that describe a data set, and their suffixes.
_ABOUT = ("readme", "license", "licence", "citation")
_ABOUT_NAMES = ("dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json", "cache-*.arrow")
_ABOUT_SUFFIXES = ("", ".txt", ".md", ".rst", ".html", ".pdf", ".cff", ".bib")


class NoFilesError(InputError):
    """Raised if a place can be listed, and has no file that is read."""


def ask() -> str:
    return f"say which reader with {option.reader('NAME')}"


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


def is_parquet(path: str) -> bool:
    return format_of(path) is PARQUET


def format_of(path: str) -> Format | None:
    """Return the format of a file of records, by its suffix or else by its contents; None for other files."""
    return FORMATS.get(bare_suffix(path)) or _BY_CONTENTS.get(contents_of(path))


@found_once
def contents_of(path: str) -> str:
    """Return what the start of a file shows, see ``contents``; "" if it cannot be read."""
    try:
        with open_stream(path) as stream:
            return contents(stream.read(SAMPLE))
    except (UnreadableError, FileNotFoundError):
        return ""


def contents(head: bytes) -> str:
    """Return what the first bytes of a file show; "" for none.

    That is parquet, json (an array of objects, or one object per line), mbox, marked (several texts with tags), mail,
    delimited (surely a table with a header), lines (of a log, a chat or another table), binary or text.
    """
    head = head.removeprefix(codecs.BOM_UTF8)
    is_cut = len(head) > SAMPLE - 4
    lines = head.splitlines()[: _SAMPLE_LINES + 1]
    lines = [line for line in lines[: -1 if is_cut and len(lines) > 1 else None] if line.strip()]
    if not lines or head.startswith(b"PAR1") or is_binary(head):
        return "parquet" if head.startswith(b"PAR1") else "binary" if lines else ""
    if _ARRAY.match(head) or _most(_is_object, lines):
        return "json"
    if _MBOX.match(head):
        return "mbox"
    if len(_MARKED.findall(head[: head.rfind(b">") + 1])) > 1:
        return "marked"
    header = re.split(rb"\r?\n\r?\n", head, maxsplit=1)[0].splitlines()
    if all(map(_HEADER.match, header)) and len({*_MAIL_FIELDS.findall(b"\n".join(header))}) > 1:
        return "mail"
    if is_table(head[: whole_lines(head)] if is_cut else head):
        return "delimited"
    tabs = lines[0].count(b"\t")
    if len(lines) > 4 and _most(lambda line: _TIME.match(line) or line.count(b"\t") == tabs > 0, lines):
        return "lines"
    return "text"


def _most(test: Callable[[bytes], object], lines: Sequence[bytes]) -> bool:
    return 2 * sum(bool(test(line)) for line in lines) > len(lines)


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line.decode("utf-8", "replace").lstrip(RECORD_SEPARATOR)), dict)
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
        holding = _CONTENTS.get(reader, ())
        taken = tuple(path for path in found if holding and contents_of(path) in holding)
    if not taken:
        raise NoFilesError(
            f"none of the {len(found)} files at {root} is {' or '.join(patterns)}; "
            f"name the files or choose another reader with {option.reader('NAME')}"
        )
    if others := sorted({*found} - {*taken}):
        shown = listed(file_name(path).name for path in others)
        logger.warning("not read, because the reader %s takes other files: %s", reader, shown)
    return root, taken


class Table:
    """The files of a source of records, and what the first one that can be read holds."""

    def __init__(self, files: Sequence[str], given: Mapping[str, Any]) -> None:
        self.files = files
        self.form = format_of(files[0]) or DELIMITED if files else None
        keys = {"sheet", *declared(Delimited)} - {"member"}
        self._options: Any = check_options("text", {key: given[key] for key in keys & given.keys()})

    @cached_property
    def columns(self) -> dict[str, Any]:
        """Arrow arrays of the first records by column. Raises InputError if no file can be read."""
        return of_first_readable(self.files, self._first_records, f"give a file with a header, or {ask()}")

    def listed(self) -> str:
        """Return the columns, and what to do if they are wrong."""
        ways_out = [f"{option.sheet('NAME')} names another sheet"] * (self.form is SPREADSHEET)
        if self.form in (DELIMITED, SPREADSHEET):
            ways_out.append(f"{skipping('N')} skips lines above the header")
        if len(self.files) > 1:
            ways_out.append(f"{option.member('FILE')} reads one of the {len(self.files)} files alone")
        return listed(self.columns) + f" ({', and '.join(ways_out)})" * bool(ways_out)

    def separator(self) -> str | None:
        """Return the first separator that at least half of the first lines have, or None for white space."""
        with suppress(UnreadableError), open_stream(self.files[0]) as stream:
            text = stream.read(SAMPLE).decode("utf-8", "replace")
            lines = [line for line in text.splitlines() if line.strip()][:_SAMPLE_RECORDS]
            for separator in _SEPARATORS:
                if 2 * sum(separator in line for line in lines) >= max(len(lines), 1):
                    return separator
        return None

    def _first_records(self, path: str) -> dict[str, Any]:
        form, options = format_of(path) or DELIMITED, self._options
        if form is JSON:
            return _of_objects(path, options.encoding)
        whole = Unit(path) if form is DELIMITED else form.units(path, options)[0]
        for part in (form.beginning(whole), whole):
            first = next(form.records(part, options, BadRecords("quarantine", part, form.place)), None)
            if first is not None:
                break
        else:
            return dict.fromkeys(form.names(path, options), pa.array([], pa.string()))
        return {name: values[:_SAMPLE_RECORDS] for name, values in first.columns.items()}


def _of_objects(path: str, encoding: str) -> dict[str, Any]:
    """Return the first values of JSON by name, also those within objects; others than texts and tokens are null."""
    columns: dict[str, list[Any]] = {}
    try:
        for record in islice(first_objects(path, encoding), _SAMPLE_RECORDS):
            for name, value in record.items() if isinstance(record, dict) else ():
                inner = value.items() if isinstance(value, dict) else ()
                for key, each in ((name, value), *((f"{name}.{key}", each) for key, each in inner)):
                    columns.setdefault(key, []).append(each)
    except UnreadableError:
        if not columns:
            raise
    return {name: _of_texts(values) for name, values in columns.items()}


def _of_texts(values: Sequence[Any]) -> Any:
    given = [value for value in values if value is not None]
    lists = bool(given) and all(isinstance(value, list) for value in given)
    if all(isinstance(item, str) for value in given for item in (value if lists else [value])):
        return from_python(values)
    return pa.nulls(len(values), pa.list_(pa.null()) if lists else None)
