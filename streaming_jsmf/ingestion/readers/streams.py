"""Where this room opens files: local or behind a URL, unpacked by their names, as bytes or as Parquet.

A reader gets bytes. That they were packed, or are cut or damaged, shows as one exception with a reason for the user.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from streaming_jsmf.errors import StreamingJSMFError, first_line, pass_on_machine
from streaming_jsmf.storage.paths import file_size, is_chain, open_file


class UnreadableError(Exception):
    """A source file that cannot be read as what it should be; the text is the reason, without the path."""


class DamagedError(UnreadableError):
    """A file that cannot be opened, or ends before its time; what came before was good."""


@contextmanager
def read_as(what: str) -> Iterator[None]:
    """Whatever a library raises of a damaged file, also while the caller reads, becomes one reason for the user.

    Libraries promise no errors: what they trip over depends on which byte is wrong. Ours pass, and those of the
    machine, which say nothing of the file.

    Raises
    ------
    UnreadableError
        Says that the file cannot be read as ``what``.
    MachineError
        If there is no more memory, or no thread.
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
            f"it cannot be read as {what} ({reason}); it is cut or damaged, or something else: fetch it again"
        ) from error


class _ArrowStream(io.RawIOBase):
    """Unpacks with Arrow, which brings the codecs that Python's library lacks, in small pieces: the one in which a
    stream breaks off is lost."""

    _PIECE = 1 << 14  # bytes

    def __init__(self, raw: Any, codec: str) -> None:
        self._stream = pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), codec)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(min(len(buffer), self._PIECE))
        buffer[: len(data)] = data
        return len(data)


def _arrow(codec: str) -> Callable[[Any], io.BufferedReader]:
    return lambda raw: io.BufferedReader(_ArrowStream(raw, codec), _ArrowStream._PIECE)


def _first_member(raw: Any) -> IO[bytes]:
    archive = zipfile.ZipFile(raw)
    try:
        return archive.open(archive.namelist()[0])
    except (IndexError, RuntimeError, NotImplementedError) as error:  # empty; a password; another method
        raise zipfile.BadZipFile(first_line(error)) from error


#: What unpacks a file, by the end of its name. None reads ahead without bounds, however much a stream unpacks to.
_CODECS: dict[str, Callable[[Any], Any]] = {
    ".gz": gzip.open,
    ".tgz": gzip.open,
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
    ".lzma": lzma.LZMAFile,
    ".zst": _arrow("zstd"),
    ".lz4": _arrow("lz4"),
    ".zip": _first_member,
}
#: What a damaged or cut stream raises, whatever the codec; Arrow's errors are among the OSErrors.
STREAM_ERRORS = (EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)


def bare_suffix(path: str) -> str:
    """Suffix in lower case without that of a compression: ``.csv`` of ``x.csv.gz``."""
    name = Path(_member(path))
    return Path(name.stem).suffix if name.suffix in _CODECS else name.suffix


def is_compressed(path: str) -> bool:
    """Whether the name says that the file is compressed."""
    return Path(_member(path)).suffix in _CODECS


def _member(path: str) -> str:
    """Lower-case name of the file itself: of a chained URL (``zip://a.csv::/b.zip``) the first link with a path."""
    links = path.lower().split("::") if is_chain(path) else [path.lower()]
    return next((link for link in links if "://" in link), links[0])


def size_of(path: str) -> int:
    """Bytes of a file as it is stored.

    Raises
    ------
    DamagedError
        If it is missing or cannot be reached, or its size is not known.
    """
    try:
        return file_size(path)
    except (*STREAM_ERRORS, TypeError) as error:
        pass_on_machine(error)
        raise DamagedError(why(error)) from error


@contextmanager
def open_stream(path: str) -> Iterator[IO[bytes]]:
    """A binary stream on a file or URL, unpacked if its name says so.

    Of a damaged stream ``read1`` gives all that comes before the damage, ``read`` may not.

    Raises
    ------
    DamagedError
        If it cannot be opened, and while the caller reads, if it ends early or is damaged.
    """
    with open_raw(path) as raw:
        unpack = _CODECS.get(Path(_member(path)).suffix)
        if unpack is None:
            yield raw
        else:
            with unpack(raw) as stream:
                yield stream


@contextmanager
def open_raw(path: str) -> Iterator[IO[bytes]]:
    """A binary stream on a file or URL as it is stored; errors as ``open_stream``."""
    with read_as("what its name says"):
        try:
            with open_file(path) as raw:
                yield raw  # type: ignore[misc]
        except STREAM_ERRORS as error:
            pass_on_machine(error)
            raise DamagedError(why(error)) from error


def why(error: BaseException) -> str:
    """What to say of one of ``STREAM_ERRORS``."""
    if isinstance(error, OSError) and error.errno is not None:
        return (
            f"it cannot be opened ({error.strerror or first_line(error)}); check the path and its permissions"
        )
    return f"the file ends early or is damaged here ({first_line(error)}); fetch it again"


@contextmanager
def open_parquet_source(path: str) -> Iterator[Any]:
    """A ``pyarrow.parquet.ParquetFile`` of a user's own.

    Raises
    ------
    UnreadableError
        For a file that is no Parquet, cut or damaged, also when that shows only while the caller reads.
    """
    with open_raw(path) as stream, read_as("Parquet"):
        try:
            yield pq.ParquetFile(stream, page_checksum_verification=True)
        except OSError as error:
            if error.errno is None:  # Arrow's own
                raise
            pass_on_machine(error)
            raise DamagedError(why(error)) from error
