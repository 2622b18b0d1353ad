"""Which reader a source is for, by names and columns. Only what is plain is guessed; the rest is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from streaming_jsmf.corpus.manifest import MANIFEST_NAME
from streaming_jsmf.errors import InputError
from streaming_jsmf.sources.delimited import split
from streaming_jsmf.sources.listing import list_files
from streaming_jsmf.sources.parquet import is_parquet
from streaming_jsmf.sources.records import BadValue, listed
from streaming_jsmf.sources.registry import ReaderName
from streaming_jsmf.sources.streams import UnreadableError, bare_suffix, open_parquet_source, open_stream
from streaming_jsmf.sources.text.folder import is_archive
from streaming_jsmf.sources.text.reader import CSV_SUFFIXES, JSON_SUFFIXES
from streaming_jsmf.storage.paths import AnyPath, exists, is_file, join, normalise

_BY_SUFFIX: dict[str, ReaderName] = {".npz": "npz", ".mtx": "matrix-market", ".h5ad": "h5ad"}
_ASK = "say which reader with --reader"


def guess_reader(location: AnyPath) -> ReaderName:
    """The reader for a source.

    Raises
    ------
    InputError
        If there is nothing, or it could be several things.
    """
    root = normalise(location)
    if is_archive(root):
        return "text-files"
    if exists(root) and not is_file(root) and exists(join(root, MANIFEST_NAME)):
        return "bag-of-words-parquet"
    files = [path for path in list_files(root) if not _name(path).startswith("vocab")]
    if any(_name(path).startswith("docword") for path in files):
        return "docword"
    suffixes = {bare_suffix(path) for path in files}
    if len(suffixes) != 1:
        found = ", ".join(sorted(suffixes)) or "no files but a word list"
        raise InputError(f"{root} holds {found}; {_ASK}, or name the files")
    suffix = suffixes.pop()
    if suffix in _BY_SUFFIX:
        return _BY_SUFFIX[suffix]
    if suffix in JSON_SUFFIXES:
        return "text"
    if is_parquet(files[0]):
        return _by_columns(files[0], _parquet_columns(files))
    if suffix in CSV_SUFFIXES:
        return _by_columns(files[0], dict.fromkeys(_csv_header(files[0], CSV_SUFFIXES[suffix])))
    raise InputError(f"{files[0]} could be texts, baskets or a table; {_ASK}")


def _by_columns(path: str, columns: dict[str, Any]) -> ReaderName:
    names = set(columns)
    if {"ids", "counts"} <= names:
        return "bag-of-words-parquet"
    if "text" in names:
        return "text"
    if {"user", "item", "rating"} <= names:
        return "ratings"
    if {"document", "word"} <= names:
        return "triples"
    if columns.get("items") is not None and _is_list(columns["items"]):
        return "baskets"
    raise InputError(
        f"{path} has the columns {listed(columns)}; {_ASK} and which columns with --read, "
        "such as --reader text --read text=body"
    )


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _parquet_columns(files: Sequence[str]) -> dict[str, Any]:
    """Of the first file that can be read."""
    reason = ""
    for path in files:
        try:
            with open_parquet_source(path) as file:
                return {field.name: field.type for field in file.schema_arrow}
        except UnreadableError as error:
            reason = reason or f"{path}: {error}"
    raise InputError(reason)


def _csv_header(path: str, delimiter: str) -> list[str]:
    try:
        with open_stream(path) as stream:
            line = stream.readline(1 << 20)
        if not line.strip():
            raise UnreadableError(f"the file is empty; give one with a header, or {_ASK}")
        names = split(line.decode("utf-8-sig", "replace").strip().encode(), delimiter)
    except UnreadableError as error:
        raise InputError(f"{path}: {error}") from error
    except BadValue as error:
        raise InputError(f"{path}, line 1: {error}; mend the header, or {_ASK}") from error
    return [name.strip() for name in names]


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1].lower()
