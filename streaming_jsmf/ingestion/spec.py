"""Data set specs in TOML, and their files: existing ones are verified, missing ones downloaded.

Nothing in a spec is executed.
"""

from __future__ import annotations

import hashlib
import os
import tomllib
import uuid
from collections.abc import Mapping
from itertools import product
from pathlib import Path, PurePosixPath
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field, PositiveInt, ValidationError

from streaming_jsmf.config import BUILT_IN, SpecReader, TokenOptions, check_options, curation_values
from streaming_jsmf.config.readers import IN_SPECS
from streaming_jsmf.corpus.manifest import Json
from streaming_jsmf.corpus.shards import TOKENS_PER_SHARD
from streaming_jsmf.display import location
from streaming_jsmf.errors import InputError, first_line, option, options_named
from streaming_jsmf.ingestion.sources.protocol import PATH_OPTIONS, limits
from streaming_jsmf.ingestion.tokens.stop_words import NONE, with_paths
from streaming_jsmf.jobs.events import progress_bar
from streaming_jsmf.storage.kinds import unsuitable
from streaming_jsmf.storage.local import require_regular
from streaming_jsmf.storage.paths import AnyPath, inside, normalize, sha256_of
from streaming_jsmf.validation import RelativeName, Sha256, Strict, explain, stays_inside

TIMEOUT = 30  # seconds without data
_CHUNK = 1 << 20  # bytes
_SHOWN = 12  # hex digits of a hash in a message
_LISTED = 4  # file names in a message


class FileEntry(Strict):
    """[source.files]: URL (http or https; None if the file is placed by hand) and hash of a file, if known."""

    url: str | None = None
    sha256: Sha256 | None = None


class SourceTable(Strict):
    """[source]: provenance and licence of the files; ``files`` by relative name."""

    url: str
    doi: str | None = None
    licence: str
    attribution: str
    files: Annotated[dict[RelativeName, FileEntry], Field(min_length=1)]


class OutputTable(Strict):
    """[output]: file sizes of the corpus."""

    tokens_per_shard: PositiveInt = TOKENS_PER_SHARD


class CorpusSpec(Strict):
    """A complete spec. ``note`` describes changes to the data, for the attribution.

    ``read`` contains options of the reader, and ``curation`` fields of ``Curation``, whose ``stop_words`` may name a
    file in the directory of the spec.
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]
    title: str
    note: str = ""
    reader: SpecReader
    source: SourceTable
    read: dict[str, Any] = Field(default_factory=dict)
    curation: dict[str, Any] = Field(default_factory=dict)
    output: OutputTable = OutputTable()

    def check(self) -> None:
        """Raise ``InputError`` for an option that is unknown or not allowed, and for what only a user may name."""
        for key, value in self.read.items():
            named = IN_SPECS.get(key, key) in (*PATH_OPTIONS, "member")
            if named and value is not None and not stays_inside(str(value)):
                raise InputError(f"read.{key}: {value!r} leaves the source; give a relative name")
        with options_named(False):
            options = check_options(self.reader, self.read)
            curation_values(self.curation)
        if isinstance(options, TokenOptions):
            if options.tokenizer not in BUILT_IN:
                raise InputError(f"tokenizer is {options.tokenizer!r}; give one of {', '.join(BUILT_IN)}")
            if isinstance(options.phrases, str) and options.phrases != NONE:
                raise InputError(f"phrases is {options.phrases!r}; give an NPMI or a list of phrases")

    def check_word_lists(self, directory: Path) -> None:
        """Check the files that options name next to those of the source: see ``file_inside``."""
        folders = {PurePosixPath(name).parent for name in self.source.files}
        named = [str(value) for key, value in self.read.items() if IN_SPECS.get(key, key) in PATH_OPTIONS]
        for folder, name in product(folders, named):
            file_inside(directory, str(folder / name), limits.LARGEST_NAMES)

    def origin(self, found: dict[str, str]) -> dict[str, Json]:
        """Return the origin of the corpus for its manifest; ``found`` has the hashes of the files."""
        return {
            "name": self.name,
            "title": self.title,
            "url": location(self.source.url),
            "doi": self.source.doi,
            "licence": self.source.licence,
            "note": self.note,
            **{f"sha256 {name}": digest for name, digest in found.items()},
        }


def load_spec(path: AnyPath) -> CorpusSpec:
    """Read and check a spec; the path of a stop word list is relative to it.

    Raises ``InputError`` if the spec is invalid; the message names the key and the allowed values.
    """
    where = Path(normalize(path))
    try:
        raw = tomllib.loads(require_regular(where).read_bytes().decode("utf-8"))
    except FileNotFoundError as error:
        raise unsuitable(where, "a spec", "") from error
    except OSError as error:
        raise InputError(f"cannot read the spec {where} ({type(error).__name__}); check the path") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"the spec {where} is not valid TOML: {first_line(error)}") from error
    try:
        spec = CorpusSpec.model_validate(raw)
    except ValidationError as error:
        raise InputError(f"the spec {where}: {explain(error, CorpusSpec)}") from error
    try:
        spec.check()
        stop_words = spec.curation.get("stop_words")
        if stop_words is None:
            return spec
        found = with_paths(
            stop_words, lambda path: str(file_inside(where.parent, path, limits.LARGEST_NAMES))
        )
    except InputError as error:
        raise InputError(f"the spec {where}: {error}") from error
    return spec.model_copy(update={"curation": {**spec.curation, "stop_words": found}})


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


def fetch_files(
    files: Mapping[str, FileEntry], directory: Path, *, page: str, progress: bool
) -> dict[str, str]:
    """Verify the files of a data set that exist in a directory, and download the others; return their SHA-256 by name.

    Existing files are never changed. One pass over each file, to hash it. Memory: a few MB. ``page`` is where a user
    finds the files, for messages. Raises ``InputError`` if a path leaves the directory (``file_inside``), a hash
    differs, a file without a URL is missing, or a file cannot be downloaded or written. A failed download leaves no
    file under its name.
    """
    directory = Path(directory).absolute()
    paths = {name: file_inside(directory, name) for name in files}
    found = {name: _verify(files[name], path, page) for name, path in paths.items() if path.exists()}
    by_hand = [str(path) for name, path in paths.items() if name not in found and files[name].url is None]
    if by_hand:
        more = f" and {len(by_hand) - _LISTED} more" if len(by_hand) > _LISTED else ""
        raise InputError(
            f"missing, and the spec gives no URL: {', '.join(by_hand[:_LISTED])}{more}; download what is missing from "
            f"{page}, put it there, and run the same command again"
        )
    return {
        name: found.get(name) or _download(name, file, paths[name], page, progress)
        for name, file in files.items()
    }


def _verify(file: FileEntry, path: Path, page: str) -> str:
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


def _download(name: str, file: FileEntry, path: Path, page: str, progress: bool) -> str:
    """Download one file to ``path``, which does not exist; return its SHA-256."""
    url = str(file.url)
    # Refuse file URLs: a downloaded spec must not put local files into a corpus.
    if url.partition("://")[0].lower() not in ("http", "https"):
        raise InputError(
            f"cannot fetch {url}: only http and https URLs are supported; put local files into the directory of the "
            f"files of the spec ({option.files})"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot make {path.parent} ({_system_reason(error)}); choose another directory"
        ) from error
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        found = _transfer(url, beside, progress)
        if file.sha256 not in (None, found):
            raise ValueError(f"it has sha256 {found}, expected {file.sha256}")
        beside.replace(path)
    except (OSError, ValueError) as error:  # OSError includes those of requests
        raise InputError(
            f"cannot fetch {name} ({_reason(error)}); download {url} (or find it at {page}) and "
            f"place it at {path}, then run the same command again, or correct the URL or the hash in the spec"
        ) from error
    finally:
        beside.unlink(missing_ok=True)
    return found


def _transfer(url: str, target: Path, progress: bool) -> str:
    """Write the bytes that a server stores to a file; return their SHA-256."""
    import requests  # takes as long to import as Arrow, and most sources are local

    digest = hashlib.sha256()
    stored = {"Accept-Encoding": "identity"}  # the hash and the progress bar refer to the stored bytes
    with requests.get(url, stream=True, timeout=TIMEOUT, headers=stored) as response:
        response.raise_for_status()
        if urlsplit(response.url).path.endswith(".gz"):  # some servers call a stored .gz an encoding
            response.raw.headers.pop("content-encoding", None)
        size = int(response.headers.get("content-length", 0))
        with (
            target.open("wb") as file,
            progress_bar(total=size, unit="B", unit_scale=True, disable=not progress) as bar,
        ):
            for piece in response.iter_content(_CHUNK):
                digest.update(piece)
                bar.update(file.write(piece))
    return digest.hexdigest()


def _reason(error: BaseException) -> str:
    """Summarize an error in a few words; messages of requests have hundreds of characters."""
    import requests

    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"the server answers {error.response.status_code} {error.response.reason}"
    if isinstance(
        error, requests.ConnectionError | requests.Timeout | requests.exceptions.ChunkedEncodingError
    ):
        return f"no connection, or it ended early: {type(error).__name__}"
    return _system_reason(error) if isinstance(error, OSError) else first_line(error)


def _system_reason(error: OSError) -> str:
    return error.strerror or first_line(error)
