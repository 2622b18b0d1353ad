"""The files of a data set brought into a directory: those that are there are verified, the others downloaded.

pooch does the download: into a temporary file beside, compared with its hash, renamed when it is whole. What is said
here are the things that it does not know: what is there already, stored bytes as they are, and errors on one line.
"""

from __future__ import annotations

import ftplib
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests

from streaming_jsmf.errors import InputError, first_line
from streaming_jsmf.storage.paths import file_inside, sha256_of

TIMEOUT = 30  # seconds without a byte from the server, as pooch has it for http; ftp has none of itself
_CHUNK = 1 << 20  # bytes
_SHOWN = 12  # hex digits of a hash in a message
_LISTED = 4  # file names in a message

#: What a download raises; OSError holds the errors of requests, ValueError pooch's own.
_FAILURES = (OSError, ValueError, EOFError, ftplib.Error)


@dataclass(frozen=True)
class RemoteFile:
    """A file of a data set.

    Attributes
    ----------
    name
        Posix name relative to the data set's directory.
    url
        http, https or ftp; None when the file is placed by hand.
    sha256
        64 small hex digits; None when no hash is known.
    """

    name: str
    url: str | None = None
    sha256: str | None = None


def fetch_files(files: Sequence[RemoteFile], directory: Path, *, page: str, progress: bool) -> dict[str, str]:
    """Verify the files that are in a directory and download those that are not.

    Files that are there are never changed. One pass over each of them to hash it, and over each
    download. Memory: a few MB.

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
        If a file leads out of the directory (``storage.paths.file_inside``), has another hash than the known one, is
        missing without a URL, or cannot be downloaded or written.
        No file is left under the name of a download that failed.
    """
    directory = Path(directory).absolute()
    paths = {file.name: file_inside(directory, file.name) for file in files}
    present = [file for file in files if paths[file.name].exists()]
    found = {file.name: _verify(file, paths[file.name], page) for file in present}
    missing = [file for file in files if file.name not in found]
    _require_urls(missing, directory, page)
    for file in missing:
        found[file.name] = _download(file, paths[file.name], page, progress)
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
    downloader = _downloader(url, progress)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot make {path.parent} ({_system_reason(error)}); choose another directory"
        ) from error
    import pooch  # not above: it asks for the notebook's progress bars, and notebooks without them are warned

    try:
        with _quiet(pooch.get_logger()):
            pooch.retrieve(
                url, known_hash=file.sha256, fname=path.name, path=path.parent, downloader=downloader
            )
    except _FAILURES as error:
        raise InputError(
            f"cannot fetch {file.name} ({_reason(error, _host(url))}); download {url} (or find it at {page}) and "
            f"place it at {path}, then run the same command again, or correct the URL or the hash in the spec"
        ) from error
    return file.sha256 or sha256_of(str(path))


def _downloader(url: str, progress: bool) -> Callable[..., Any]:
    import pooch

    scheme = url.partition("://")[0].lower()
    if scheme in ("http", "https"):
        # The bytes as they are stored: hashes are of those, and the bar knows their number.
        headers, hooks = {"Accept-Encoding": "identity"}, {"response": _keep_stored_bytes}
        return _anew(
            pooch.HTTPDownloader(progressbar=progress, chunk_size=_CHUNK, headers=headers, hooks=hooks)
        )
    if scheme == "ftp":
        return _anew(pooch.FTPDownloader(progressbar=progress, chunk_size=_CHUNK, timeout=TIMEOUT))
    # Not file: a spec is somebody else's, and must not have files of this machine put into a corpus.
    raise InputError(
        f"cannot fetch {url}: only http, https and ftp are known; a file of your own goes into the directory of the "
        "data set's files (--files)"
    )


def _anew(download: Callable[..., Any]) -> Callable[..., None]:
    """A downloader that makes the file anew: pooch's own can be read by its owner only, and keeps that."""

    def to_new_file(url: str, output_file: str, caller: Any) -> None:
        Path(output_file).unlink()
        try:
            download(url, output_file, caller)
        except requests.HTTPError as error:
            if error.response is not None:
                error.response.close()  # pooch leaves the connection open
            raise

    return to_new_file


def _keep_stored_bytes(response: Any, *_: Any, **__: Any) -> None:
    """Some servers announce a stored .gz file as an encoding of its content; it must not be unpacked on the way."""
    if urlsplit(response.url).path.endswith(".gz"):
        response.raw.headers.pop("content-encoding", None)


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
        return f"{host} does not answer within {TIMEOUT} s"
    if isinstance(error, requests.ConnectionError):
        return f"no connection to {host}, or it broke off: {type(error).__name__}"
    if isinstance(error, OSError):
        return _system_reason(error)
    return first_line(error)


def _system_reason(error: OSError) -> str:
    return error.strerror or first_line(error)
