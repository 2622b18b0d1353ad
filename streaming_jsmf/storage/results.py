"""Whether the result at a path is the one that a command asks for: one answer for reuse, resume and replacement.

A result stores its *request*: the settings, and the identity of everything that was read. The same request on an
intact result has nothing to do; on a damaged one it makes the result again; another request is refused, unless the
user asks for the result to be replaced. A result also stores when and with which packages it was made.
"""

from __future__ import annotations

import hashlib
import logging
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, auto
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from streaming_jsmf.display import location
from streaming_jsmf.errors import InputError, SettingsMismatchError, StoreError, finding, option
from streaming_jsmf.fingerprint import differences, fingerprint
from streaming_jsmf.storage.arrays import read_attributes
from streaming_jsmf.storage.lock import is_left, sole_writer, work_place
from streaming_jsmf.storage.paths import (
    StorePath,
    file_size,
    is_free,
    is_url,
    node_exists,
    read_bytes,
    sha256_of,
    state_of,
    write_bytes,
)
from streaming_jsmf.storage.replace import remove_store, require_replaceable

logger = logging.getLogger(__name__)

#: Packages whose versions may affect the bits of results.
PACKAGES = ("streaming-jsmf", "numpy", "scipy", "numba", "dask", "zarr", "pyarrow")

#: Files of up to this many bytes in total are identified by their contents, larger ones by their state.
HASHED_BYTES = 64 << 20

#: Attribute of unfinished work: fingerprint of the request of the result that it is for.
RESULT = "result"

#: Key of a request for files whose identity is unknown, so that they have to be read again.
UNIDENTIFIED = "unidentified"


class Found(Enum):
    """What is at the path of a result."""

    NOTHING = auto()
    MADE = auto()  # the result asked for, intact
    UNFINISHED = auto()  # the result asked for, incomplete or damaged, or its input cannot be identified
    OTHER = auto()  # the result of another request, which may be replaced


@dataclass(frozen=True)
class Wanted:
    """The result that a command asks for.

    Attributes
    ----------
    target : Path or URL of the result.
    request : JSON values that identify the request.
    stored : Returns the request of the result at ``target``. Raises ``InputError`` if something else is there, and
        ``StoreError`` if its metadata are damaged.
    is_intact : Returns whether that result is complete. Raises ``StoreError`` if it is damaged.
    overwrite : Whether the result of another request may be replaced.
    advice : What to do if it may not; by default to give another path or to overwrite it.
    """

    target: StorePath
    request: Mapping[str, Any]
    stored: Callable[[], Mapping[str, Any]]
    is_intact: Callable[[], bool]
    overwrite: bool = False
    advice: str = ""

    def find(self) -> Found:
        """Compare what is at the target with the request, and verify it if it is the result asked for.

        Raises ``SettingsMismatchError``, which names the differences, if the result of another request may not be
        replaced; ``InputError`` if something else is there, or the target is the working directory; ``StoreError`` if
        its metadata are damaged, so that the request is unknown, and it may not be replaced.
        """
        return self._compared()[0]

    def _compared(self) -> tuple[Found, str]:
        """What is found, and why it is made again if that is not on request."""
        if is_free(self.target):
            return Found.NOTHING, ""
        try:
            stored = self.stored()
        except StoreError as error:
            if not self.overwrite:
                advice = f"restore it, or {option.overwrite(True)} to make it again"
                raise StoreError(f"{finding(error)}; {advice}") from error
            require_replaceable(self.target)
            return Found.OTHER, finding(error)
        found, asked = fingerprint(stored), fingerprint(self.request)
        if found == asked:
            return self._verified()
        if not self.overwrite:
            advice = f"give another path, or {option.overwrite(True)} to replace it"
            if not stored:
                raise SettingsMismatchError(
                    f"{self.target}: exists already, and how it was made is not stored, as by earlier releases and "
                    f"other programs; use it as it is, {advice}"
                )
            raise SettingsMismatchError(
                f"{self.target}: exists already, and was made of other input or with other settings "
                f"({differences(stored, self.request)}; fingerprint stored {found[:12]}, asked {asked[:12]}); "
                f"{self.advice or advice}"
            )
        require_replaceable(self.target)
        return Found.OTHER, ""

    def _verified(self) -> tuple[Found, str]:
        if unknown := self.request.get(UNIDENTIFIED):
            return Found.UNFINISHED, f"whether {', '.join(unknown)} has changed is unknown"
        try:
            return (Found.MADE if self.is_intact() else Found.UNFINISHED), ""
        except (StoreError, InputError) as error:
            require_replaceable(self.target)
            return Found.UNFINISHED, finding(error)

    def is_made(self) -> bool:
        """Whether there is nothing to do. What a killed run has left after its commit is then removed."""
        if self.find() is not Found.MADE:
            return False
        logger.info("%s: complete and intact, made by an earlier run of the same request", self.target)
        self._clear()
        return True

    @contextmanager
    def writing(self) -> Iterator[Found]:
        """Yield what is at the target, and hold its lock during the block unless there is nothing to do.

        Raises ``InputError`` if another process is writing it, and as ``find``.
        """
        if self.is_made():
            yield Found.MADE
            return
        with sole_writer(self.target):
            # Another process may have made it meanwhile.
            found, why = self._compared()
            if why:
                logger.warning("%s; %s is made again", why, self.target)
            yield found
        if found is Found.MADE:  # by another process, or by completing a replacement that was interrupted
            self._clear()

    def _clear(self) -> None:
        """Remove what a killed run of the same request has left after its commit, if the medium can be written."""
        work = work_place(self.target)
        with suppress(InputError, StoreError, OSError):
            finished = node_exists(work) and read_attributes(work).get(RESULT) == fingerprint(self.request)
            if finished or is_left(self.target):
                with sole_writer(self.target):
                    if finished:
                        remove_store(work)


class FileContents:
    """States and hashes of files, each of which is found once."""

    def __init__(self) -> None:
        self.state, self._sha256 = cache(state_of), cache(sha256_of)

    def hashes(self, paths: Iterable[str]) -> dict[str, str]:
        """SHA-256 of the local files; of none if they have more than ``HASHED_BYTES`` together."""
        local = [path for path in paths if not is_url(path)]
        small = sum(map(file_size, local)) <= HASHED_BYTES
        return {path: self._sha256(path) for path in local} if small else {}


def identity_of_files(paths: Iterable[str], contents: FileContents | None = None) -> dict[str, Any]:
    """Return JSON values that identify files by path and contents, or by path, size and time if they are large.

    Files behind URLs are identified by what their server states (``state_of``); those about which it states nothing
    are listed under ``UNIDENTIFIED``.
    """
    contents = contents or FileContents()
    states = {path: contents.state(path) for path in sorted({*paths})}
    unknown = [location(path) for path, state in states.items() if state is None]
    states |= {path: (sha256,) for path, sha256 in contents.hashes(states).items()}
    files = fingerprint({path: state and [*state] for path, state in states.items()})
    return {"files": files, **({UNIDENTIFIED: unknown} if unknown else {})}


def same_contents(
    target: StorePath, sha256: str, require_own: Callable[[], object], *, overwrite: bool
) -> Wanted:
    """Return a file that is the one asked for if it has this sha256, because it stores no request.

    ``require_own`` raises ``InputError`` if another file at the target may not be replaced, even with ``overwrite``.
    """

    def stored() -> dict[str, str]:
        try:
            found = hashlib.sha256(read_bytes(target)).hexdigest()
        except OSError:  # such as of a directory
            found = ""
        if found != sha256:
            require_own()
        return {"contents": found}

    return Wanted(target, {"contents": sha256}, stored, lambda: True, overwrite)


def write_alone(
    target: StorePath, data: bytes, require_own: Callable[[], object], *, overwrite: bool = False
) -> None:
    """Write a small file atomically under its lock, unless it has these contents; see ``same_contents``."""
    known = hashlib.sha256(data).hexdigest()
    with same_contents(target, known, require_own, overwrite=overwrite).writing() as found:
        if found is not Found.MADE:
            write_bytes(target, data)


def package_versions(*, mixed: bool = False) -> dict[str, str]:
    """Return the versions of Python and of the packages that affect numerical results.

    ``mixed`` adds that workers with others were allowed (``allow_mixed``).
    """
    versions = {"python": platform.python_version(), **{package: _version(package) for package in PACKAGES}}
    return {**versions, "workers": "mixed"} if mixed else versions


# Searching the metadata of all installed packages takes as long as committing a small store.
@cache
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def utc_now() -> str:
    """Return the current UTC time in ISO 8601 format with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
