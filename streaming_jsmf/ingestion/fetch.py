"""Files of a data set in a directory: existing files are verified, missing files downloaded with pooch."""

from __future__ import annotations

import ftplib
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from streaming_jsmf.errors import InputError, first_line, option
from streaming_jsmf.storage.paths import inside, sha256_of
from streaming_jsmf.storage.regular import require_regular

TIMEOUT = 30  # seconds without data; pooch's default for http, missing for ftp
_CHUNK = 1 << 20  # bytes
_SHOWN = 12  # hex digits of a hash in a message
_LISTED = 4  # file names in a message

#: Errors of a download; OSError includes those of requests, and pooch raises ValueError.
_FAILURES = (OSError, ValueError, EOFError, ftplib.Error)


@dataclass(frozen=True)
class RemoteFile:
    """A file of a data set: posix name relative to its directory, URL and SHA-256.

    ``url`` is http, https or ftp, or None if the file is placed by hand; ``sha256`` is None if unknown.
    """

    name: str
    url: str | None = None
    sha256: str | None = None


def file_inside(directory: Path, name: str, most: int | None = None) -> Path:
    """Return the path of a local file that a spec names below ``directory``; the file may be missing.

    Raises ``InputError`` if the name or a link points outside the directory, or the file is not regular or has more
    than ``most`` bytes.
    """
    path = inside(directory, name)
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(directory)):
        raise InputError(
            f"{path} is a link to a file outside {directory}; replace it with a copy of the file"
        )
    if require_regular(path).is_dir():
        raise InputError(f"{path} is a directory, not a regular file; replace it with one")
    if most is not None and path.exists() and (size := path.stat().st_size) > most:
        raise InputError(f"{path} has {size} bytes, and {most} are allowed; shorten the file")
    return path


def fetch_files(files: Sequence[RemoteFile], directory: Path, *, page: str, progress: bool) -> dict[str, str]:
    """Verify the files of a data set that exist in a directory, and download the others; return their SHA-256 by name.

    Existing files are never changed. One pass over each file, to hash it. Memory: a few MB. ``page`` is where a user
    finds the files, for messages. Raises ``InputError`` if a path leaves the directory (``file_inside``), a hash
    differs, a file without a URL is missing, or a file cannot be downloaded or written. A failed download leaves no
    file under its name.
    """
    directory = Path(directory).absolute()
    paths = {file.name: file_inside(directory, file.name) for file in files}
    found = {file.name: _verify(file, path, page) for file in files if (path := paths[file.name]).exists()}
    missing = [file for file in files if file.name not in found]
    by_hand = [str(directory / file.name) for file in missing if file.url is None]
    if by_hand:
        more = f" and {len(by_hand) - _LISTED} more" if len(by_hand) > _LISTED else ""
        raise InputError(
            f"missing, and the spec gives no URL: {', '.join(by_hand[:_LISTED])}{more}; download what is missing from "
            f"{page}, put it there, and run the same command again"
        )
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
            f"{path} has sha256 {found[:_SHOWN]}..., expected {file.sha256[:_SHOWN]}...; move it away and run the "
            f"same command again (the file is found at {file.url or page}), or correct the hash in the spec"
        )
    return found


def _download(file: RemoteFile, path: Path, page: str, progress: bool) -> str:
    """Download one file to ``path``, which does not exist; return its SHA-256."""
    url = str(file.url)
    downloader = _downloader(url, progress)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot make {path.parent} ({_system_reason(error)}); choose another directory"
        ) from error
    import pooch  # not at the top: it imports notebook progress bars, which warn if they are not installed

    try:
        with _quiet(pooch.get_logger()):
            pooch.retrieve(
                url, known_hash=file.sha256, fname=path.name, path=path.parent, downloader=downloader
            )
    except _FAILURES as error:
        # Not with urlsplit, which may reject the URL that failed.
        host = url.partition("://")[2].partition("/")[0]
        raise InputError(
            f"cannot fetch {file.name} ({_reason(error, host)}); download {url} (or find it at {page}) and "
            f"place it at {path}, then run the same command again, or correct the URL or the hash in the spec"
        ) from error
    return file.sha256 or sha256_of(str(path))


def _downloader(url: str, progress: bool) -> Callable[..., None]:
    # Together these take as long to import as Arrow, and most sources are local.
    import pooch
    import requests

    scheme = url.partition("://")[0].lower()
    download: Any
    if scheme in ("http", "https"):
        # Request the stored bytes, to which the hash and the progress bar refer.
        headers, hooks = {"Accept-Encoding": "identity"}, {"response": _keep_stored_bytes}
        download = pooch.HTTPDownloader(progressbar=progress, chunk_size=_CHUNK, headers=headers, hooks=hooks)
    elif scheme == "ftp":
        download = pooch.FTPDownloader(progressbar=progress, chunk_size=_CHUNK, timeout=TIMEOUT)
    else:
        # Refuse file URLs: a downloaded spec must not put local files into a corpus.
        raise InputError(
            f"cannot fetch {url}: only http, https and ftp URLs are supported; put local files into the directory "
            f"of the files of the spec ({option.files})"
        )

    def to_new_file(url: str, output_file: str, caller: Any) -> None:
        Path(output_file).unlink()  # pooch creates it readable by its owner only
        try:
            download(url, output_file, caller)
        except requests.HTTPError as error:
            if error.response is not None:
                error.response.close()  # pooch leaves the connection open
            raise

    return to_new_file


def _keep_stored_bytes(response: Any, *_: Any, **__: Any) -> None:
    """Disable decompression, because some servers declare a stored .gz file as a content encoding."""
    if urlsplit(response.url).path.endswith(".gz"):
        response.raw.headers.pop("content-encoding", None)


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Suppress pooch's log line for each file."""
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def _reason(error: BaseException, host: str) -> str:
    """Summarise an error in a few words; messages of requests have hundreds of characters."""
    import requests

    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"{host} answers {error.response.status_code} {error.response.reason}"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return f"{host} ended the transfer early"
    if isinstance(error, requests.Timeout):
        return f"{host} does not answer within {TIMEOUT} s"
    if isinstance(error, requests.ConnectionError):
        return f"no connection to {host}, or it broke off: {type(error).__name__}"
    return _system_reason(error) if isinstance(error, OSError) else first_line(error)


def _system_reason(error: OSError) -> str:
    return error.strerror or first_line(error)
