"""Which files a source is made of, and streams on them."""

from __future__ import annotations

import importlib
import lzma
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.compression import compr
from fsspec.utils import infer_compression

from streaming_jsmf.errors import InputError, first_line
from streaming_jsmf.storage.paths import AnyPath, is_url, normalise, open_file

_WILDCARDS = "*?["
_MOST_NAMES = 20


def _zstd_error() -> type[Exception]:
    """Of the package that reads zstd here, in the order in which fsspec looks; it is no dependency of ours."""
    for module in ("compression.zstd", "backports.zstd", "zstandard"):
        with suppress(ImportError):
            error: type[Exception] = importlib.import_module(module).ZstdError
            return error
    return EOFError


#: What a damaged or cut compressed stream raises, whatever the codec.
STREAM_ERRORS = (EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, _zstd_error())


class UnreadableError(Exception):
    """A source file that cannot be read as what it should be; the text is the reason, without the path."""


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
        fs, inner = fsspec.core.url_to_fs(root)
        if fs.isfile(inner):
            return (SourceFile(root, inner.rsplit("/", 1)[-1]),)
        # A directory may have such a character in its name.
        has_pattern = any(character in inner for character in _WILDCARDS) and not fs.isdir(inner)
        found = fs.glob(inner) if has_pattern else fs.find(inner)
        files = sorted(str(name) for name in found if not (has_pattern and fs.isdir(name)))
    except (ValueError, ImportError, OSError) as error:
        raise InputError(f"cannot open {root}: {first_line(error)}; check the path") from error
    base = _fixed_part(inner) if has_pattern else inner
    below = {name: name.removeprefix(base).lstrip("/") for name in files}
    kept = [SourceFile(_address(fs, root, name), below[name]) for name in files if not is_marker(below[name])]
    if not kept:
        raise InputError(f"there are no files at {root}; check the path")
    return tuple(kept)


def is_marker(name: str) -> bool:
    """Whether a file or a folder above it has the name of a marker; ``name`` is relative."""
    return any(part[:1] in (".", "_") for part in name.split("/") if part)


def listed(names: Iterable[str]) -> str:
    """Names for a message, on one line: the first twenty, with what cannot be printed spelled out."""
    names = list(names)
    shown = [name if name.isprintable() else repr(name) for name in names[:_MOST_NAMES]]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _fixed_part(pattern: str) -> str:
    """The directory of a glob that has no wildcard."""
    first = min(pattern.index(character) for character in _WILDCARDS if character in pattern)
    return pattern[:first].rpartition("/")[0]


def _address(fs: Any, root: str, name: str) -> str:
    """Path or URL of a file that was found at ``root``."""
    if not is_url(root):
        return name
    link, chained, rest = root.partition("::")
    if chained and "://" in link:
        # Of a chain, such as zip://*.csv::a.zip, the file system knows only its own link.
        return f"{link.partition('://')[0]}://{name}::{rest}"
    return str(fs.unstrip_protocol(name))


def bare_suffix(path: str) -> str:
    """Suffix in lower case without that of a compression: ``.csv`` of ``x.csv.gz``."""
    name = Path(_member(path))
    return Path(name.stem).suffix if infer_compression(str(name)) else name.suffix


def is_compressed(path: str) -> bool:
    """Whether the name says that the file is compressed."""
    return codec_of(path) is not None


def codec_of(path: str) -> str | None:
    """What the name says the file is compressed with, as ``fsspec.compression.compr`` calls it; None for nothing."""
    codec: str | None = infer_compression(_member(path))
    return codec


def _member(path: str) -> str:
    """Lower-case name of the file itself: of a chained URL (``zip://a.csv::/b.zip``) the first link with a path."""
    links = path.lower().split("::")
    return next((link for link in links if "://" in link), links[0])


@contextmanager
def open_stream(path: str) -> Iterator[IO[bytes]]:
    """A binary stream on a file or URL, decompressed if its name says so.

    Raises
    ------
    InputError
        If no package for its compression is installed.
    """
    codec = codec_of(path)
    if codec is None and _member(path).endswith(".zst"):
        raise InputError(f"{path} needs a package for zstd; pip install zstandard, or decompress it")
    with open_file(path) as raw:
        if codec is None:
            yield raw  # type: ignore[misc]
        else:
            with compr[codec](raw, mode="rb") as stream:
                yield stream


def cannot_open(error: OSError) -> str:
    """What to say of a file that the operating system does not give."""
    return f"it cannot be opened ({error.strerror or first_line(error)}); check the path and its permissions"


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
            yield pq.ParquetFile(stream, page_checksum_verification=True)
    except (OSError, pa.ArrowException) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise UnreadableError(cannot_open(error)) from error
        raise UnreadableError(
            f"it cannot be read as Parquet ({first_line(error)}); it is cut or damaged: fetch it again"
        ) from error
