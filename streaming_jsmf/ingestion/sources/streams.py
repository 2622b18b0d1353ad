"""Open files, local or remote, decompressed by suffix or by content, and recognize what they hold."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import threading
import weakref
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.spec import AbstractBufferedFile

from streaming_jsmf.corpus.format import PARQUET_SUFFIXES
from streaming_jsmf.corpus.metadata import registers_pandas
from streaming_jsmf.errors import InputError, StreamingJSMFError, first_line, pass_on_machine
from streaming_jsmf.ingestion.sources.compression import CODECS, MAGIC, PIECE, STREAM_ERRORS, recoded
from streaming_jsmf.ingestion.sources.protocol import UnreadableError, limits
from streaming_jsmf.ingestion.sources.values import START, marked_encoding
from streaming_jsmf.storage.local import local_name, require_regular
from streaming_jsmf.storage.objects import Reached
from streaming_jsmf.storage.paths import (
    file_size,
    is_chain,
    is_file,
    is_url,
    join,
    normalize,
    open_file,
    state_of,
)

T = TypeVar("T")
TABLE_PATTERNS = (*(f"*{suffix}" for suffix in PARQUET_SUFFIXES), "*.csv", "*.tsv", "*.dat", "*.txt")

_WHOLE = threading.Lock()

#: Limits the memory, in bytes, that the rest of a process may take.
_LIMITED = """
import json, os, resource, sys
os.environ["OPENBLAS_NUM_THREADS"] = "1"
memory, *given = json.loads(sys.argv[1])
for kind, most in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CORE, 0)):
    if not 0 <= resource.getrlimit(kind)[0] < most:
        resource.setrlimit(kind, (most, most + 1))
"""


def trial(code: str, given: Sequence[Any], memory: int, data: bytes) -> int:
    """Run code on the list ``given`` and the input ``data`` in a process of its own; return as it exits."""
    command = [sys.executable, "-P", "-c", _LIMITED + code, json.dumps([memory, *given])]
    return subprocess.run(command, input=data, capture_output=True, check=False).returncode


@contextmanager
def read_as(what: str) -> Iterator[None]:
    """Convert any error of a library, also while the caller reads, into an UnreadableError.

    A damaged file can raise any type of error. Errors of this package and of the machine pass through.
    """
    try:
        yield
    except (UnreadableError, StreamingJSMFError, FileNotFoundError):
        raise
    except Exception as error:
        pass_on_machine(error)
        plain = isinstance(error, (OSError, pa.ArrowException))
        reason = first_line(error) if plain else f"{type(error).__name__}: {first_line(error)}"
        raise UnreadableError(
            f"it cannot be read as {what} ({reason}); it is truncated, damaged or in another format: fetch it again"
        ) from error


def bare_name(path: str) -> str:
    """Return the lower-case file name without a compression suffix: ``x.csv`` of ``x.csv.gz``."""
    name = file_name(path)
    return name.stem if name.suffix in CODECS else name.name


def bare_suffix(path: str) -> str:
    return Path(bare_name(path)).suffix


def is_compressed(path: str) -> bool:
    """Return whether a file is in an archive or has the suffix of a compression."""
    return is_chain(path) or file_name(path).suffix in CODECS


def _codec(path: str, stream: Any) -> str:
    """Return the suffix of a file's compression, by its name or else by its start; "" without compression."""
    if (suffix := file_name(path).suffix) in CODECS:
        return suffix
    start = start_of(stream)
    return next((codec for magic, codec in MAGIC.items() if start.startswith(magic)), "")


@lru_cache(1 << 12)
def file_name(path: str) -> Path:
    """Return the lower-case file name; in a chained URL, of ``first_link``."""
    return Path(first_link(path).lower())


def is_archive(path: str) -> bool:
    return file_name(path).suffix in (".zip", ".tgz") or bare_suffix(path) == ".tar"


def is_tar(path: str) -> bool:
    return is_archive(path) and file_name(path).suffix != ".zip"


#: Names of hidden files, of markers and logs of Spark, and of files of Excel, Windows and macOS.
_HIDDEN = re.compile(
    r"[.].*|~[$].*|Thumbs[.]db|desktop[.]ini|__(?:MACOSX|pycache__)|"
    r"_(?:SUCCESS|metadata|common_metadata|temporary|spark_metadata|(?:committed|started|delta)_.*)"
)


def first_link(path: str) -> str:
    """Return the path of a file, within the archive if it is in one: the first link with a path of a chained URL."""
    links = path.split("::") if is_chain(path) else [path]
    return next((link for link in links if "://" in link), links[0])


def is_hidden(name: str) -> bool:
    """Return whether a part of a relative path is a name that tools give to files beside data, or starts with ``.``."""
    return any(map(_HIDDEN.fullmatch, name.split("/")))


def names_in_zip(path: str) -> list[str]:
    """Return the names of the files in a zip archive that are not hidden; none if it cannot be read."""
    with suppress(UnreadableError), open_raw(path) as stream, zipfile.ZipFile(stream) as archive:
        names = [member.filename for member in archive.infolist() if not member.is_dir()]
        return [name for name in names if not is_hidden(name)]
    return []


def size_of(path: str) -> int:
    """Return the stored size of a file in bytes. Raises UnreadableError if the file or its size is unavailable."""
    try:
        member = _member(path)
        return file_size(path) if member is None else member[1].file_size
    except (*STREAM_ERRORS, TypeError) as error:
        pass_on_machine(error)
        raise UnreadableError(describe(error)) from error


@contextmanager
def open_stream(path: str) -> Iterator[IO[bytes]]:
    """Open a binary stream on a file or URL, decompressed by its suffix or its first bytes.

    UTF-16 and UTF-32, with a byte order mark or some ASCII at the start, are read as UTF-8. Raises UnreadableError if
    the file cannot be opened or, while the caller reads, is cut or damaged; only ``read1`` gives all data before.
    """
    with open_raw(path) as raw:
        decompress = CODECS.get(_codec(path, raw), nullcontext)
        with decompress(raw) as stream:
            codec = _wide_encoding(stream)
            yield recoded(stream, codec) if codec else stream


def is_divisible(path: str) -> bool:
    """Return whether the lines of a file are those of its bytes: neither compressed nor in UTF-16 or UTF-32."""
    if is_compressed(path):
        return False
    with open_raw(path) as stream:
        return not (_codec(path, stream) or _wide_encoding(stream))


def _wide_encoding(stream: Any) -> str | None:
    codec = marked_encoding(start_of(stream))
    return None if codec == "utf-8-sig" else codec


def start_of(stream: Any) -> bytes:
    """Return the first bytes of a stream that stands at its start, and stays there."""
    if hasattr(stream, "peek"):
        return bytes(stream.peek(START)[:START])
    start: bytes = stream.read(START)
    stream.seek(0)
    return start


@contextmanager
def open_raw(path: str) -> Iterator[IO[bytes]]:
    """Open a binary stream on a file or URL as stored. Raises as ``open_stream``."""
    with read_as("what its name says"):
        try:
            member = _member(path)
            with open_file(path) if member is None else member[0].open(member[1]) as raw:
                # Files of object stores have no limit on the length of a line.
                file, remote = cast("Any", raw), isinstance(raw, Reached | AbstractBufferedFile)
                yield io.BufferedReader(file, PIECE) if remote else file
        except STREAM_ERRORS as error:
            pass_on_machine(error)
            raise UnreadableError(describe(error)) from error


def _member(path: str) -> tuple[zipfile.ZipFile, zipfile.ZipInfo] | None:
    """Return a local zip archive and its file that a path of ``in_zip`` names; None for other paths."""
    link, _, place = path.partition("::")
    if not link.startswith("zip://") or is_url(place) or not is_chain(path):
        return None
    archive = require_regular(Path(local_name(place)))
    opened = _opened_zip(archive, state_of(archive), os.getpid())
    try:
        return opened, opened.getinfo(link.removeprefix("zip://"))
    except KeyError:
        raise FileNotFoundError(path) from None


@lru_cache(4)
def _opened_zip(archive: Path, *_: Any) -> zipfile.ZipFile:
    """Open a zip archive and keep it open, because opening reads the names of all its files."""
    opened = zipfile.ZipFile(archive)
    # In a cycle of references, such as a traceback, Python may finalize the file first, with a ResourceWarning.
    weakref.finalize(opened, cast("Any", opened.fp).close)
    return opened


def describe(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        why = error.strerror or first_line(error)
        return f"it cannot be opened ({why}); check the path and its permissions"
    if isinstance(error, FileNotFoundError):
        return f"it is listed, but not found when it is opened ({first_line(error)}); check its permissions"
    return f"the file ends early or is damaged here ({first_line(error)}); fetch it again"


def find_beside(path: str, names: Sequence[str]) -> str | None:
    """Return the first existing file: ``names`` are absolute, URLs, or relative to ``path`` or its archive's root."""
    link, *archive = path.split("::") if is_chain(path) else [path]
    folder = link.rpartition("/")[0]
    for name in names:
        if is_url(name) or Path(name).expanduser().is_absolute():
            found = [normalize(name)]
        elif archive:
            root = link.partition("://")[0] + ":/"
            found = ["::".join([f"{place}/{name}", *archive]) for place in (folder, root)]
        else:
            found = [join(folder, name)]
        if existing := next(filter(is_file, found), None):
            return existing
    return None


@contextmanager
def open_parquet_source(path: str) -> Iterator[Any]:
    """Open a user's file as a ``pyarrow.parquet.ParquetFile``. Raises UnreadableError, also while the caller reads."""
    with open_raw(path) as stream, read_as("Parquet"):
        try:
            file = pq.ParquetFile(stream, page_checksum_verification=True)
            yield pq.ParquetFile(stream, page_checksum_verification=True) if registers_pandas(file) else file
        except OSError as error:
            if error.errno is None:  # Arrow's own
                raise
            pass_on_machine(error)
            raise UnreadableError(describe(error)) from error


@contextmanager
def alone_if_large(path: str) -> Iterator[None]:
    """Let one thread at a time read a large file whole, which takes several times its size."""
    with _WHOLE if size_of(path) > limits.BATCH_BYTES else nullcontext():
        yield


def read_pieces(stream: Any, size: int, before: bytes = b"") -> tuple[bytes, str]:
    """Return ``size`` bytes, or less at the end, after ``before``, and the damage ("" for none) that follows them."""
    # A decompressor returns the data before the damage only if it is read piece by piece.
    read, pieces, damage = getattr(stream, "read1", stream.read), [before] * bool(before), ""
    try:
        while size and (piece := read(size)):
            pieces.append(piece)
            size -= len(piece)
    except STREAM_ERRORS as error:
        pass_on_machine(error)
        damage = describe(error)
    return b"".join(pieces), damage


def of_first_readable(files: Sequence[str], read: Callable[[str], T], hint: str) -> T:
    """Return what ``read`` returns for the first file that it can read; reading reports errors of the others.

    Raises InputError if no file is readable, with the reason for the first file and the hint.
    """
    reasons = []
    for path in files:
        try:
            return read(path)
        except UnreadableError as error:
            reasons.append(f"{path}: {error}")
    raise InputError(f"{reasons[0] if reasons else 'there are no files in the source'}; {hint}")
