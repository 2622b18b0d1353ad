"""Data set specs in TOML. Nothing in a spec is executed."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from itertools import product
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, ValidationError

from streaming_jsmf.config import Curation, ReaderName
from streaming_jsmf.corpus.format import missing_source
from streaming_jsmf.corpus.manifest import Json
from streaming_jsmf.corpus.shards import TOKENS_PER_SHARD
from streaming_jsmf.display import location
from streaming_jsmf.errors import InputError, first_line
from streaming_jsmf.ingestion.fetch import RemoteFile, file_inside
from streaming_jsmf.ingestion.readers import limits
from streaming_jsmf.ingestion.readers.registry import PATH_OPTIONS, check_options, default_curation
from streaming_jsmf.ingestion.tokens.stop_words import with_paths
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


class CurationTable(Strict):
    """[curation]: fields of ``Curation``; ``stop_words`` may name a file in the directory of the spec."""

    stop_words: str | None = None
    numbers: Literal["keep", "drop"] = Curation.numbers
    min_word_length: PositiveInt = 1
    min_document_frequency: Annotated[float, Field(gt=0)] = 1
    max_document_frequency: Annotated[float, Field(gt=0)] | None = Curation.max_document_frequency
    vocabulary_size: PositiveInt | None = Curation.vocabulary_size
    duplicates: Literal["keep", "drop"] = Curation.duplicates
    min_distinct_words: NonNegativeInt = Curation.min_distinct_words
    min_tokens: NonNegativeInt = Curation.min_tokens


class OutputTable(Strict):
    """[output]: file sizes of the corpus."""

    tokens_per_shard: PositiveInt = TOKENS_PER_SHARD


class CorpusSpec(Strict):
    """A complete spec. ``note`` describes changes to the data, for the attribution.

    ``read`` contains the options of the reader, and ``path``, which names one file of the source or of its zip archive.
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]
    title: str
    note: str = ""
    reader: ReaderName
    source: SourceTable
    read: dict[str, Any] = Field(default_factory=dict)
    curation: CurationTable = CurationTable()
    output: OutputTable = OutputTable()

    @property
    def remote_files(self) -> list[RemoteFile]:
        return [RemoteFile(name, entry.url, entry.sha256) for name, entry in self.source.files.items()]

    @property
    def path(self) -> str | None:
        """File to read; None for all."""
        value = self.read.get("path")
        return None if value is None else str(value)

    @property
    def options(self) -> Strict:
        given = {key: value for key, value in self.read.items() if key != "path"}
        return check_options(self.reader, given, f"[read] of the spec {self.name}")

    def check_word_lists(self, directory: Path) -> None:
        """Check the files that options name next to those of the source: see ``file_inside``."""
        folders = {PurePosixPath(name).parent for name in self.source.files}
        named = [str(self.read[key]) for key in PATH_OPTIONS if key in self.read]
        for folder, name in product(folders, named):
            file_inside(directory, str(folder / name), limits.LARGEST_NAMES)

    def curation_with(self, changes: Mapping[str, Any]) -> Curation:
        """Return the curation of the spec, updated with those of ``changes`` that are not None."""
        values = dict(self.curation)
        # Stop words default to those of the papers, not to those for texts.
        values["stop_words"] = values["stop_words"] or default_curation(self.reader, "papers").stop_words
        return Curation(**{**values, **{key: value for key, value in changes.items() if value is not None}})

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
    for key in (*PATH_OPTIONS, "path"):
        value = spec.read.get(key)
        if value is not None and not stays_inside(str(value)):
            raise InputError(
                f"the spec {where}: read.{key}: {value!r} leaves the source; give a relative name"
            )
    _ = spec.options
    spec.curation_with({})
    choice = spec.curation.stop_words
    if choice is None:
        return spec
    try:
        found = with_paths(choice, lambda path: str(file_inside(where.parent, path, limits.LARGEST_NAMES)))
    except InputError as error:
        raise InputError(f"the spec {where}: curation.stop_words: {error}") from error
    curation = spec.curation.model_copy(update={"stop_words": found})
    return spec.model_copy(update={"curation": curation})
