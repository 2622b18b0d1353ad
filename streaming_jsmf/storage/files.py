"""Files of a corpus, on the local disk or behind any fsspec URL.

Local paths go straight to the operating system (Arrow reads them without Python in between); URLs go through
fsspec. Nothing here knows what the files mean.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

from streaming_jsmf.errors import InputError, StoreError

AnyPath = str | os.PathLike[str]

_LOCAL_SCHEMES = ("file://", "local://")


def is_url(path: str) -> bool:
    """Whether a (normalised) path is read through fsspec rather than from the local disk."""
    return "://" in path


def normalise(path: AnyPath) -> str:
    """An absolute local path, or the URL without its last slash.

    Absolute, so that a task on another process or with another working directory opens the same file.
    """
    text = os.fspath(path)
    for scheme in _LOCAL_SCHEMES:
        if text.startswith(scheme):
            text = unquote(text.removeprefix(scheme))
    if is_url(text):
        return text.rstrip("/")
    return str(Path(text).expanduser().absolute())


def join(root: str, name: str) -> str:
    """Path of ``name`` (posix, relative) under ``root``, a path made by ``normalise``."""
    return f"{root}/{name}" if is_url(root) else str(Path(root) / name)


def exists(path: str) -> bool:
    """Whether there is a file or a directory at ``path``."""
    if not is_url(path):
        return Path(path).exists()
    fs, inner = _filesystem(path)
    return bool(fs.exists(inner))


def is_file(path: str) -> bool:
    """Whether ``path`` is a file."""
    if not is_url(path):
        return Path(path).is_file()
    fs, inner = _filesystem(path)
    return bool(fs.isfile(inner))


def file_size(path: str) -> int:
    """Bytes of the file.

    Raises
    ------
    FileNotFoundError
        If there is none.
    """
    if not is_url(path):
        return Path(path).stat().st_size
    fs, inner = _filesystem(path)
    return int(fs.info(inner)["size"])


def file_names(directory: str) -> list[str]:
    """Sorted names of the files right in a directory; empty when there is no such directory."""
    if not is_url(directory):
        folder = Path(directory)
        return sorted(p.name for p in folder.iterdir() if p.is_file()) if folder.is_dir() else []
    fs, inner = _filesystem(directory)
    if not fs.isdir(inner):
        return []
    fs.invalidate_cache(inner)  # a cached listing would hide shards written since
    entries = fs.ls(inner, detail=True)
    return sorted(e["name"].rstrip("/").rsplit("/", 1)[-1] for e in entries if e["type"] == "file")


def read_bytes(path: str) -> bytes:
    """The whole file.

    Raises
    ------
    FileNotFoundError
        If there is none.
    """
    with open_file(path) as stream:
        return stream.read()


def sha256_of(path: str) -> str:
    """Hex SHA-256 of a file; reads it once, in pieces."""
    with open_file(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def open_file(path: str) -> Iterator[BufferedIOBase]:
    """A binary stream on a local file or URL."""
    if is_url(path):
        fs, inner = _filesystem(path)
        with fs.open(inner, "rb") as stream:
            yield stream
    else:
        with Path(path).open("rb") as stream:
            yield stream


@contextmanager
def open_parquet(path: str, name: str) -> Iterator[Any]:
    """A ``pyarrow.parquet.ParquetFile``, page checksums verified; ``name`` is what messages call the file.

    Raises
    ------
    StoreError
        For a file that is missing, truncated, damaged or no Parquet, also when the damage shows only while
        the caller reads.
    """
    try:
        if is_url(path):
            with open_file(path) as stream:
                yield pq.ParquetFile(stream, page_checksum_verification=True)
        else:
            with pq.ParquetFile(path, page_checksum_verification=True) as file:
                yield file
    except FileNotFoundError as error:
        raise StoreError(f"{name} is missing; restore it or build the corpus again ({path})") from error
    except (OSError, pa.ArrowException) as error:
        raise StoreError(
            f"{name} cannot be read as Parquet ({first_line(error)}); it is truncated or damaged: "
            "restore it or build the corpus again"
        ) from error


def first_line(error: BaseException) -> str:
    """First line of an error's text, so that our messages stay on one line."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def _filesystem(url: str) -> tuple[Any, str]:
    """fsspec's file system for a URL and the path inside it."""
    try:
        fs, inner = fsspec.core.url_to_fs(url)
    except (ValueError, ImportError) as error:
        raise InputError(f"cannot open {url}: {first_line(error)}") from error
    return fs, str(inner)
