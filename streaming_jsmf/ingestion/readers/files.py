"""Find the files of a source, open them, local or remote, decompressed by suffix, and split them into units."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from streaming_jsmf.corpus.format import PARQUET_SUFFIXES, missing_source
from streaming_jsmf.errors import InputError, StreamingJSMFError, first_line, pass_on_machine
from streaming_jsmf.ingestion.readers.base import DamagedError, UnreadableError
from streaming_jsmf.ingestion.readers.values import marked_encoding
from streaming_jsmf.storage.paths import (
    AnyPath,
    file_size,
    file_system,
    is_chain,
    is_file,
    is_url,
    join,
    normalise,
    open_file,
)
from streaming_jsmf.storage.regular import require_regular

_WILDCARDS = "*?["

#: How the names of files begin that describe a data set, and their suffixes.
_ABOUT = ("readme", "license", "licence", "citation")
_ABOUT_SUFFIXES = ("", ".txt", ".md", ".rst", ".html", ".pdf", ".cff", ".bib")

T = TypeVar("T")
PARQUET_PATTERNS = tuple(f"*{suffix}" for suffix in PARQUET_SUFFIXES)


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

    Hidden files (``is_hidden``) below the source are skipped. Raises InputError if no file is found.
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
            require_regular(Path(path))
    return kept


def is_hidden(name: str) -> bool:
    """Return whether a part of a relative path starts with ``.`` or ``_``, as marker files of other tools do."""
    return any(part[:1] in (".", "_") for part in name.split("/") if part)


def is_archive(path: str) -> bool:
    return file_name(path).suffix in (".zip", ".tgz") or bare_suffix(path) == ".tar"


def is_about(path: str) -> bool:
    """Return whether a file describes a data set, such as the README.md of the Hugging Face Hub."""
    return file_name(path).name.startswith(_ABOUT) and bare_suffix(path) in _ABOUT_SUFFIXES


def is_word_list(path: str) -> bool:
    return file_name(path).name.startswith("vocab") or file_name(path).name.endswith(".vocab.txt")


def names_in_zip(path: str) -> list[str]:
    """Return the names of the files in a zip archive that are not hidden; none if it cannot be read."""
    with suppress(UnreadableError), open_raw(path) as stream, zipfile.ZipFile(stream) as archive:
        return [
            member.filename
            for member in archive.infolist()
            if not (member.is_dir() or is_hidden(member.filename))
        ]
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


def find_beside(path: str, names: Sequence[str]) -> str | None:
    """Return the first existing file: ``names`` are absolute, URLs, or relative to ``path`` or its archive's root."""
    link, *archive = path.split("::") if is_chain(path) else [path]
    folder = link.rpartition("/")[0]
    for name in names:
        if is_url(name) or Path(name).expanduser().is_absolute():
            found = [normalise(name)]
        elif archive:
            root = link.partition("://")[0] + ":/"
            found = ["::".join([f"{place}/{name}", *archive]) for place in (folder, root)]
        else:
            found = [join(folder, name)]
        for candidate in found:
            if is_file(candidate):
                return candidate
    return None


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


class _ArrowStream(io.RawIOBase):
    """Decompress with Arrow in small pieces; if the stream breaks off, only the last piece is lost."""

    _PIECE = 1 << 14  # bytes

    def __init__(self, raw: Any, codec: str) -> None:
        self._stream = pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), codec)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(min(len(buffer), self._PIECE))
        buffer[: len(data)] = data
        return len(data)


class Recoded(io.RawIOBase):
    """UTF-8, with a byte order mark, of a stream in another encoding; ``errors`` is that of ``open``."""

    def __init__(self, raw: Any, codec: str, errors: str = "strict") -> None:
        self._raw, self._codec, self._ended = raw, codec, False
        self._decoder = codecs.getincrementaldecoder(codec)(errors)
        self._held = codecs.BOM_UTF8

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not (self._held or self._ended):
            data = self._raw.read(_ArrowStream._PIECE)
            self._ended = not data
            try:
                self._held = self._decoder.decode(data, self._ended).encode("utf-8", "surrogateescape")
            except UnicodeDecodeError as error:
                raise EOFError(f"it is not {self._codec.upper()}") from error
        data, self._held = self._held[: len(buffer)], self._held[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)


def _arrow(codec: str) -> Callable[[Any], io.BufferedReader]:
    return lambda raw: io.BufferedReader(_ArrowStream(raw, codec), _ArrowStream._PIECE)


def _no_members(raw: Any) -> IO[bytes]:
    """Raise the reason why ``with_members`` finds no files in an archive."""
    with zipfile.ZipFile(raw):
        raise zipfile.BadZipFile("the archive holds no file")


#: Decompressors by suffix; all read ahead by a bounded amount.
_CODECS: dict[str, Callable[[Any], Any]] = {
    ".gz": gzip.open,
    ".tgz": gzip.open,
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
    ".lzma": lzma.LZMAFile,
    ".zst": _arrow("zstd"),
    ".lz4": _arrow("lz4"),
    ".zip": _no_members,
}
#: Errors that a damaged or truncated stream raises with any codec; Arrow's errors are OSErrors.
STREAM_ERRORS = (EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)


def bare_suffix(path: str) -> str:
    """Return the lower-case suffix without a compression suffix: ``.csv`` of ``x.csv.gz``."""
    name = file_name(path)
    return Path(name.stem).suffix if name.suffix in _CODECS else name.suffix


def is_compressed(path: str) -> bool:
    return is_chain(path) or file_name(path).suffix in _CODECS


def file_name(path: str) -> Path:
    """Return the lower-case file name; in a chained URL, of ``first_link``."""
    return Path(first_link(path).lower())


def first_link(path: str) -> str:
    """Return the path of a file, within the archive if it is in one: the first link with a path of a chained URL."""
    links = path.split("::") if is_chain(path) else [path]
    return next((link for link in links if "://" in link), links[0])


def size_of(path: str) -> int:
    """Return the stored size of a file in bytes. Raises DamagedError if the file or its size is unavailable."""
    try:
        return file_size(path)
    except (*STREAM_ERRORS, TypeError) as error:
        pass_on_machine(error)
        raise DamagedError(describe(error)) from error


@contextmanager
def open_stream(path: str) -> Iterator[IO[bytes]]:
    """Open a binary stream on a file or URL, decompressed by suffix.

    A file with a byte order mark of UTF-16 or UTF-32 is read as UTF-8. Raises DamagedError if it cannot be opened or,
    while the caller reads, ends early or is damaged. ``read1`` returns all data before the damage; ``read`` may not.
    """
    with open_raw(path) as raw:
        decompress = _CODECS.get(file_name(path).suffix, nullcontext)
        with decompress(raw) as stream:
            codec = _wide_encoding(stream)
            yield io.BufferedReader(Recoded(stream, codec)) if codec else stream


def is_wide(path: str) -> bool:
    """Return whether a file has a byte order mark of UTF-16 or UTF-32, so that its lines are not those of its bytes."""
    with open_raw(path) as stream:
        return _wide_encoding(stream) is not None


def _wide_encoding(stream: Any) -> str | None:
    """Return the encoding that the mark of UTF-16 or UTF-32 at the start of a stream gives; the stream stays there."""
    if hasattr(stream, "peek"):
        start = stream.peek(4)[:4]
    else:
        start = stream.read(4)
        stream.seek(0)
    codec = marked_encoding(start)
    return None if codec == "utf-8-sig" else codec


@contextmanager
def open_raw(path: str) -> Iterator[IO[bytes]]:
    """Open a binary stream on a file or URL as stored. Raises as ``open_stream``."""
    with read_as("what its name says"):
        try:
            with open_file(path) as raw:
                yield raw  # type: ignore[misc]
        except STREAM_ERRORS as error:
            pass_on_machine(error)
            raise DamagedError(describe(error)) from error


def describe(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        return (
            f"it cannot be opened ({error.strerror or first_line(error)}); check the path and its permissions"
        )
    return f"the file ends early or is damaged here ({first_line(error)}); fetch it again"


@contextmanager
def open_parquet_source(path: str) -> Iterator[Any]:
    """Open a user's file as a ``pyarrow.parquet.ParquetFile``. Raises UnreadableError, also while the caller reads."""
    with open_raw(path) as stream, read_as("Parquet"):
        try:
            yield pq.ParquetFile(stream, page_checksum_verification=True)
        except OSError as error:
            if error.errno is None:  # Arrow's own
                raise
            pass_on_machine(error)
            raise DamagedError(describe(error)) from error


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


def compressed(*patterns: str) -> tuple[str, ...]:
    """Return the globs with and without each compression suffix."""
    return tuple(
        f"{pattern}{suffix}" for pattern in patterns for suffix in ("", *_CODECS) if suffix != ".tgz"
    )


TABLE_PATTERNS = (*PARQUET_PATTERNS, *compressed("*.csv", "*.tsv", "*.dat", "*.txt"))


def is_parquet(path: str) -> bool:
    return bare_suffix(path) in PARQUET_SUFFIXES
