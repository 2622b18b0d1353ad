"""Which files a source is made of, and streams on them."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.compression import compr
from fsspec.utils import infer_compression

from streaming_jsmf.corpus.storage import AnyPath, first_line, is_url, normalise, open_file
from streaming_jsmf.errors import InputError

#: What a damaged or cut compressed stream raises, whatever the codec.
STREAM_ERRORS = (EOFError, OSError, zlib.error)


class UnreadableError(Exception):
    """A source file that cannot be read as what it should be; the text is the reason, without the path."""


def list_files(source: AnyPath) -> tuple[str, ...]:
    """Sorted paths of the files of a source: a file, a directory with all below it, or a glob; local or a URL.

    Files and folders whose names start with ``.`` or ``_`` are markers of other tools and passed over.

    Raises
    ------
    InputError
        If there are none.
    """
    root = normalise(source)
    try:
        fs, inner = fsspec.core.url_to_fs(root)
        has_pattern = any(character in inner for character in "*?[")
        if fs.isfile(inner):
            return (root,)
        found = fs.glob(inner) if has_pattern else fs.find(inner)
        files = [name for name in found if not (has_pattern and fs.isdir(name))]
    except (ValueError, ImportError, OSError) as error:
        raise InputError(f"cannot open {root}: {first_line(error)}; check the path") from error
    base = "" if has_pattern else inner
    kept = sorted(name for name in files if not _is_marker(name.removeprefix(base)))
    if not kept:
        raise InputError(f"there are no files at {root}; check the path")
    return tuple(fs.unstrip_protocol(name) if is_url(root) else str(name) for name in kept)


def bare_suffix(path: str) -> str:
    """Suffix in lower case without that of a compression: ``.csv`` of ``x.csv.gz``."""
    name = Path(path.lower())
    return Path(name.stem).suffix if infer_compression(str(name)) else name.suffix


def is_compressed(path: str) -> bool:
    """Whether the name says that the file is compressed."""
    return infer_compression(path.lower()) is not None


@contextmanager
def open_stream(path: str) -> Iterator[IO[bytes]]:
    """A binary stream on a file or URL, decompressed if its name says so."""
    codec = infer_compression(path.lower())
    with open_file(path) as raw:
        if codec is None:
            yield raw  # type: ignore[misc]
        else:
            with compr[codec](raw, mode="rb") as stream:
                yield stream


@contextmanager
def open_parquet_source(path: str) -> Iterator[Any]:
    """A ``pyarrow.parquet.ParquetFile`` of a user's own.

    Raises
    ------
    UnreadableError
        For a file that is no Parquet, cut or damaged, also when that shows only while the caller reads.
    """
    try:
        with open_file(path) as stream:
            yield pq.ParquetFile(stream)
    except (OSError, pa.ArrowException) as error:
        if isinstance(error, FileNotFoundError):
            raise UnreadableError("there is no such file") from error
        raise UnreadableError(
            f"it cannot be read as Parquet ({first_line(error)}); it is cut or damaged: fetch it again"
        ) from error


def _is_marker(name: str) -> bool:
    return any(part[:1] in (".", "_") for part in name.split("/") if part)
