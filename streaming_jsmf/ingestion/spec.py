"""Data set specs in TOML. Nothing in a spec is executed."""

from __future__ import annotations

import tomllib
from itertools import product
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import Field, PositiveInt, ValidationError

from streaming_jsmf.config import ReaderName, TokenOptions, check_options, curation_values
from streaming_jsmf.corpus.format import missing_source
from streaming_jsmf.corpus.manifest import Json
from streaming_jsmf.corpus.shards import TOKENS_PER_SHARD
from streaming_jsmf.display import location
from streaming_jsmf.errors import InputError, first_line, options_named
from streaming_jsmf.ingestion.fetch import RemoteFile, file_inside
from streaming_jsmf.ingestion.readers.base import limits
from streaming_jsmf.ingestion.readers.registry import PATH_OPTIONS
from streaming_jsmf.ingestion.tokens.stop_words import NONE, is_path
from streaming_jsmf.ingestion.tokens.tokenizer import BUILT_IN
from streaming_jsmf.storage.paths import AnyPath, normalise
from streaming_jsmf.storage.regular import require_regular
from streaming_jsmf.validation import RelativeName, Sha256, Strict, explain, stays_inside


class FileEntry(Strict):
    """[source.files]: optional URL and hash of a file."""

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
    reader: ReaderName
    source: SourceTable
    read: dict[str, Any] = Field(default_factory=dict)
    curation: dict[str, Any] = Field(default_factory=dict)
    output: OutputTable = OutputTable()

    @property
    def remote_files(self) -> list[RemoteFile]:
        return [RemoteFile(name, entry.url, entry.sha256) for name, entry in self.source.files.items()]

    def check(self) -> None:
        """Raise ``InputError`` for an option that is unknown or not allowed, and for what only a user may name."""
        for key in (*PATH_OPTIONS, "path"):
            value = self.read.get(key)
            if value is not None and not stays_inside(str(value)):
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
        named = [str(self.read[key]) for key in PATH_OPTIONS if key in self.read]
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


def read_spec(path: AnyPath) -> bytes:
    """Read the file of a spec; ``InputError`` if it cannot be read."""
    where = Path(normalise(path))
    try:
        return require_regular(where).read_bytes()
    except FileNotFoundError as error:
        raise missing_source(str(where)) from error
    except OSError as error:
        raise InputError(f"cannot read the spec {where} ({type(error).__name__}); check the path") from error


def load_spec(path: AnyPath) -> CorpusSpec:
    """Read and check a spec; the path of a stop word list is relative to it.

    Raises ``InputError`` if the spec is invalid; the message names the key and the allowed values.
    """
    where = Path(normalise(path))
    try:
        raw = tomllib.loads(read_spec(path).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"the spec {where} is not valid TOML: {first_line(error)}") from error
    try:
        spec = CorpusSpec.model_validate(raw)
    except ValidationError as error:
        raise InputError(f"the spec {where}: {explain(error, CorpusSpec)}") from error
    try:
        spec.check()
        stop_words = spec.curation.get("stop_words")
        if stop_words is None or not is_path(stop_words):
            return spec
        found = file_inside(where.parent, stop_words, limits.LARGEST_NAMES)
    except InputError as error:
        raise InputError(f"the spec {where}: {error}") from error
    return spec.model_copy(update={"curation": {**spec.curation, "stop_words": str(found)}})
