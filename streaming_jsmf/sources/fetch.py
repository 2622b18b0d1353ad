"""The files of a data set brought into a directory: those that are there are verified, the others downloaded.

The download is done by pooch, into a temporary file that gets its name only when it is whole and has the right hash.
"""

from __future__ import annotations

import ftplib
import hashlib
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedWriter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pooch
import requests

from streaming_jsmf.errors import InputError, first_line
from streaming_jsmf.storage.paths import normalise, sha256_of

TIMEOUT = 30.0  # seconds without a byte from the server
_CHUNK = 1 << 20  # bytes
_SHOWN = 12  # hex digits of a hash in a message
_LISTED = 4  # file names in a message

_FAILURES = (
    OSError,
    ValueError,
    EOFError,
    ftplib.Error,
)  # what a download raises; OSError holds those of requests


@dataclass(frozen=True)
class RemoteFile:
    """A file of a data set.

    Attributes
    ----------
    name
        Posix name relative to the data set's directory; the caller has checked that it stays inside.
    url
        http, https, ftp or file; None when the file is placed by hand.
    sha256
        64 small hex digits; None when no hash is known.
    """

    name: str
    url: str | None = None
    sha256: str | None = None


def fetch_files(files: Sequence[RemoteFile], directory: Path, *, page: str, progress: bool) -> dict[str, str]:
    """Verify the files that are in a directory and download those that are not.

    Files that are there are never changed. One pass over each of them to hash it; a download is hashed while it is
    written and read once more by pooch. Memory: a few MB.

    Parameters
    ----------
    files
        The files of one data set.
    directory
        Local; made if missing.
    page
        Where a person finds the files; for messages.
    progress
        Show a bar on stderr for each download.

    Returns
    -------
    dict
        SHA-256 found by name, in the order of ``files``, also where none was known before.

    Raises
    ------
    InputError
        If a file has another hash than the known one, is missing without a URL, or cannot be downloaded or written.
        No file is left under the name of a download that failed.
    """
    directory = Path(directory).absolute()
    present = [file for file in files if (directory / file.name).exists()]
    found = {file.name: _verify(file, directory / file.name, page) for file in present}
    missing = [file for file in files if file.name not in found]
    _require_urls(missing, directory, page)
    for file in missing:
        found[file.name] = _download(file, directory / file.name, page, progress)
    return {file.name: found[file.name] for file in files}


def _verify(file: RemoteFile, path: Path, page: str) -> str:
    try:
        found = sha256_of(str(path))
    except OSError as error:
        raise InputError(
            f"cannot read {path} ({_system_reason(error)}); make it readable or remove it"
        ) from error
    if file.sha256 is not None and found != file.sha256:
        raise InputError(
            f"{path} has sha256 {found[:_SHOWN]}..., expected is {file.sha256[:_SHOWN]}...; move it away and run the "
            f"same command again (the file is found at {file.url or page}), or correct the hash in the spec"
        )
    return found


def _require_urls(missing: Sequence[RemoteFile], directory: Path, page: str) -> None:
    """Name all files to place by hand at once, before anything is downloaded."""
    names = [file.name for file in missing if file.url is None]
    if not names:
        return
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    listed = ", ".join(str(directory / name) for name in names[:_LISTED])
    raise InputError(
        f"missing, and without a URL to fetch from: {listed}{more}; find what is missing at {page} and place it "
        "there, then run the same command again"
    )


def _download(file: RemoteFile, path: Path, page: str, progress: bool) -> str:
    """Fetch one file to ``path``, which does not exist; return its SHA-256."""
    url = str(file.url)
    download = _Download(_downloader(url, progress))
    _make_writable(path.parent)
    try:
        with _quiet(pooch.get_logger()):
            pooch.retrieve(
                url, known_hash=file.sha256, fname=path.name, path=path.parent, downloader=download
            )
    except _FAILURES as error:
        if download.sha256 is not None and file.sha256 not in (None, download.sha256):
            reason = f"sha256 is {download.sha256[:_SHOWN]}..., expected is {str(file.sha256)[:_SHOWN]}..."
            remedy = ", or correct the hash in the spec if the file has a new version"
        else:
            reason, remedy = _reason(error, _host(url)), ""
        raise InputError(
            f"cannot fetch {file.name} ({reason}); download {url} (or find it at {page}) and place it at {path}, "
            f"then run the same command again{remedy}"
        ) from error
    return str(download.sha256)


def _make_writable(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot make {directory} ({_system_reason(error)}); choose another directory"
        ) from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise InputError(f"{directory} cannot be written to; choose another directory or change its rights")


class _Download:
    """A downloader for pooch that takes the hash of what it writes; ``sha256`` is None until all is written."""

    def __init__(self, download: Callable[..., Any]) -> None:
        self._download = download
        self.sha256: str | None = None

    def __call__(self, url: str, output_file: str, pooch: Any) -> None:
        # The temporary file can be read by its owner only, and keeps that when it is renamed. A new one has the
        # usual rights.
        Path(output_file).unlink()
        with Path(output_file).open("xb") as stream:
            hashing = _HashingWriter(stream)
            try:
                self._download(url, hashing, pooch)
            except requests.HTTPError as error:
                if error.response is not None:
                    error.response.close()  # pooch leaves the connection open
                raise
        self.sha256 = hashing.sha256.hexdigest()


class _HashingWriter:
    """The part of a binary file that downloaders use; the bytes are hashed on their way."""

    def __init__(self, stream: BufferedWriter) -> None:
        self._stream = stream
        self.sha256 = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.sha256.update(data)
        return self._stream.write(data)

    def flush(self) -> None:
        self._stream.flush()


def _downloader(url: str, progress: bool) -> Callable[..., Any]:
    scheme = url.partition("://")[0].lower()
    if scheme in ("http", "https"):
        # The bytes as they are stored: hashes are of those, and the bar knows their number.
        headers = {"Accept-Encoding": "identity"}
        hooks = {"response": _keep_stored_bytes}
        http: Callable[..., Any] = pooch.HTTPDownloader(
            progressbar=progress, chunk_size=_CHUNK, timeout=TIMEOUT, headers=headers, hooks=hooks
        )
        return http
    if scheme == "ftp":
        ftp: Callable[..., Any] = pooch.FTPDownloader(
            progressbar=progress, chunk_size=_CHUNK, timeout=TIMEOUT
        )
        return ftp
    if scheme == "file":
        return _copy
    raise InputError(
        f"cannot fetch {url}: only http, https, ftp and file URLs are known; correct it in the spec"
    )


def _keep_stored_bytes(response: Any, *_: Any, **__: Any) -> None:
    """Some servers announce a stored .gz file as an encoding of its content; it must not be unpacked on the way."""
    if urlsplit(response.url).path.endswith(".gz"):
        response.raw.headers.pop("content-encoding", None)


def _copy(url: str, output_file: _HashingWriter, _: Any) -> None:
    with Path(normalise(url)).open("rb") as stream:
        shutil.copyfileobj(stream, output_file, _CHUNK)


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Without the lines that pooch writes for each file; the caller reports."""
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def _host(url: str) -> str:
    """Host and port; not by ``urlsplit``, which may refuse the URL whose failure is reported."""
    return url.partition("://")[2].partition("/")[0]


def _reason(error: BaseException, host: str) -> str:
    """A few words; those of requests go over hundreds of characters."""
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"{host} answers {error.response.status_code} {error.response.reason}"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return f"{host} ended the transfer early"
    if isinstance(error, requests.Timeout):
        return f"{host} does not answer within {TIMEOUT:.0f} s"
    if isinstance(error, requests.ConnectionError):
        return f"no connection to {host}, or it broke off: {type(error).__name__}"
    if isinstance(error, OSError):
        return _system_reason(error)
    return first_line(error)


def _system_reason(error: OSError) -> str:
    return error.strerror or first_line(error)
