"""``manifest.json``: what a corpus directory holds, and what was left out on the way.

Every key is fixed by the format version: a reader refuses keys and versions it does not know, since a key it
passed over could change what the numbers mean.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, ValidationError

from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.validation import RelativeName, Sha256, Strict, explain, is_unsafe

MANIFEST_NAME = "manifest.json"
FORMAT_VERSION: Literal[1] = 1
KNOWN_VERSIONS = (1,)

Number = int | float
Json = str | bool | int | float | None


class ShardEntry(Strict):
    """One Parquet file; ``name`` is a posix path under the corpus, ``tokens`` the sum of its counts."""

    name: RelativeName
    rows: PositiveInt
    nonzeros: NonNegativeInt
    tokens: Number
    bytes: PositiveInt
    sha256: Sha256


class VocabularyEntry(Strict):
    """``vocabulary.parquet``: number of words and hash of the file."""

    words: PositiveInt
    sha256: Sha256


class Totals(Strict):
    """Sums over the shards."""

    documents: PositiveInt
    words: PositiveInt
    nonzeros: PositiveInt
    tokens: Number


class Dropped(Strict):
    """What one step of the curation took away, and why."""

    step: str
    reason: str
    words: NonNegativeInt = 0
    documents: NonNegativeInt = 0
    tokens: Number = 0


class Manifest(Strict):
    """The whole file. ``source`` and ``settings`` are flat tables: where the data are from, how it was made."""

    format_version: Literal[1] = FORMAT_VERSION
    kind: Literal["corpus"] = "corpus"
    shards: tuple[ShardEntry, ...]
    vocabulary: VocabularyEntry
    totals: Totals
    dropped: tuple[Dropped, ...] = ()
    attribution: str | None = None
    source: dict[str, Json] = Field(default_factory=dict)
    settings: dict[str, Json] = Field(default_factory=dict)


#: What decides the words of a text, as an ingest of texts writes it into the settings, and as it is told.
PHRASES = "phrases"
_TOKEN_KEYS = ("tokenizer", "ngrams", "stemmer", "boilerplate")


def token_settings(settings: Mapping[str, Json]) -> dict[str, Json] | None:
    """How texts became words, of the settings of a corpus: tokenizer, n-grams, stemmer, boilerplate and the like.

    Stop words go out after the texts became words, so that they are told where a stemmer spares them only. Phrases,
    where there are any, are a text with one a line. None for a corpus of anything else.
    """
    if "read_tokenizer" not in settings:
        return None
    found = {key: settings.get(f"read_{key}") for key in _TOKEN_KEYS}
    found["boilerplate"] = found["boilerplate"] or "keep"
    phrases = {"phrases": settings[PHRASES]} if PHRASES in settings else {}
    spared = None if found["stemmer"] is None else settings.get("stop_words")
    return {**found, "stop_words": spared, **phrases}


def as_number(value: float) -> Number:
    """Sums of counts are kept in floats; a whole one is written as an integer."""
    return int(value) if float(value).is_integer() else float(value)


def dump_manifest(manifest: Manifest) -> bytes:
    """The bytes of ``manifest.json``: the same for the same manifest (no clock, no host, no versions)."""
    return (json.dumps(manifest.model_dump(mode="json"), indent=1, ensure_ascii=False) + "\n").encode()


def parse_manifest(data: bytes, where: str) -> Manifest:
    """Read and check the bytes of a manifest; ``where`` is its path for messages.

    Raises
    ------
    InputError
        For an unknown format version, another kind of store, or a name that leaves the directory.
    StoreError
        For anything else that is not a whole manifest.
    """
    raw = _json_table(data, where)
    if raw.get("kind") != "corpus":
        raise InputError(f"{where} is of kind {raw.get('kind')!r}, not 'corpus'; give the path of a corpus")
    version = raw.get("format_version")
    if isinstance(version, bool) or version not in KNOWN_VERSIONS:
        known = ", ".join(str(v) for v in KNOWN_VERSIONS)
        raise InputError(
            f"{where} has format version {version!r}; this package knows {known}: "
            "install a newer streaming-jsmf or build the corpus again"
        )
    try:
        manifest = Manifest.model_validate_json(data)
    except ValidationError as error:
        kind = InputError if is_unsafe(error) else StoreError
        raise kind(f"{where}: {explain(error, Manifest)}") from error
    _check_sums(manifest, where)
    return manifest


def _json_table(data: bytes, where: str) -> dict[str, Any]:
    try:
        raw = json.loads(data)
    except ValueError as error:
        raise StoreError(f"{where} is no JSON ({error}); restore it or build the corpus again") from error
    if not isinstance(raw, dict):
        raise StoreError(f"{where} holds no JSON object; restore it or build the corpus again")
    return raw


def _check_sums(manifest: Manifest, where: str) -> None:
    """A manifest that contradicts itself was edited or cut: none of its numbers can be trusted."""
    names = [shard.name for shard in manifest.shards]
    if len(set(names)) < len(names):
        raise StoreError(f"{where} names a shard twice; build the corpus again")
    sums = {
        "documents": sum(shard.rows for shard in manifest.shards),
        "nonzeros": sum(shard.nonzeros for shard in manifest.shards),
        "words": manifest.vocabulary.words,
    }
    for key, value in sums.items():
        if getattr(manifest.totals, key) != value:
            raise StoreError(
                f"{where}: totals.{key} is {getattr(manifest.totals, key)} but its parts give {value}; "
                "build the corpus again"
            )
