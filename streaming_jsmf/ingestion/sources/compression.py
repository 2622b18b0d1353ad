"""Streams of bytes: decompressed, from an iterator, and of text in UTF-8 from other encodings."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any

import pyarrow as pa

from streaming_jsmf.errors import first_line
from streaming_jsmf.ingestion.sources.protocol import UnreadableError

#: Bytes that are decompressed at once.
PIECE = 1 << 14


class _Pieces(io.RawIOBase):
    """A stream of the bytes that an iterator yields; if that breaks off, only the last piece is lost."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._held = pieces, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._held:
            if (piece := next(self._pieces, None)) is None:
                return 0
            self._held = memoryview(piece)
        size = min(len(buffer), len(self._held))
        buffer[:size], self._held = self._held[:size], self._held[size:]
        return size


def stream_of(pieces: Iterator[bytes]) -> io.BufferedReader:
    return io.BufferedReader(_Pieces(pieces), PIECE)


def recoded(raw: Any, codec: str, errors: str = "strict") -> io.BufferedReader:
    """Return a stream of UTF-8, with a byte order mark, of one in another encoding; ``errors`` is that of ``open``."""

    def pieces() -> Iterator[bytes]:
        decoder, data = codecs.getincrementaldecoder(codec)(errors), b"\0"
        yield codecs.BOM_UTF8
        try:
            while data:
                data = raw.read(PIECE)
                yield decoder.decode(data, not data).encode("utf-8", "surrogateescape")
        except UnicodeDecodeError as error:
            raise EOFError(f"it is not {codec.upper()}") from error

    return stream_of(pieces())


def _by_arrow(raw: Any, codec: str) -> Iterator[bytes]:
    stream = pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), codec)
    try:
        while data := stream.read(PIECE):
            yield data
    except OSError as error:
        if "too much memory" not in str(error):
            raise
        raise UnreadableError(
            "it is compressed with zstd --long=31 or similar; pip install zstandard, or run zstd -d --long=31"
        ) from error


def _zstd(raw: Any) -> io.BufferedReader:
    """Decompress zstd; only the package zstandard allows windows of more than 128 MB."""
    try:
        import zstandard
    except ImportError:
        return stream_of(_by_arrow(raw, "zstd"))
    return stream_of(_by_zstandard(raw, zstandard))


def _by_zstandard(raw: Any, zstandard: Any) -> Iterator[bytes]:
    decompressor, frame = zstandard.ZstdDecompressor(max_window_size=1 << 31), None
    try:
        while data := raw.read(PIECE):
            while data:
                frame = frame or decompressor.decompressobj()
                yield frame.decompress(data)
                data = frame.unused_data
                frame = None if frame.eof else frame
    except zstandard.ZstdError as error:
        raise EOFError(first_line(error)) from error
    if frame is not None:
        raise EOFError("the compressed stream is cut short")


def _no_members(raw: Any) -> IO[bytes]:
    """Raise the reason why ``with_members`` finds no files in an archive."""
    with zipfile.ZipFile(raw):
        raise zipfile.BadZipFile("the archive holds no file")


#: Decompressors by suffix; all read ahead by a bounded amount.
CODECS: dict[str, Callable[[Any], Any]] = {
    ".gz": gzip.open,
    ".tgz": gzip.open,
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
    ".lzma": lzma.LZMAFile,
    ".zst": _zstd,
    ".lz4": lambda raw: stream_of(_by_arrow(raw, "lz4")),
    ".zip": _no_members,
}
#: How compressed files start, for those whose names do not say so.
MAGIC = {
    b"\x1f\x8b\x08": ".gz",
    b"BZh": ".bz2",
    b"\xfd7zXZ\0": ".xz",
    b"\x28\xb5\x2f\xfd": ".zst",
    b"\x04\x22\x4d\x18": ".lz4",
}
#: Errors that a damaged or truncated stream raises with any codec; Arrow's errors are OSErrors.
STREAM_ERRORS = (EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)
