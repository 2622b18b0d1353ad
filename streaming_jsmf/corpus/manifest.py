"""``manifest.json``: the contents of a corpus directory and what curation dropped.

Unknown keys and versions are refused, because ignoring a key could change the meaning of the numbers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, ValidationError

from streaming_jsmf.display import table
from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.fingerprint import sealed, unsealed
from streaming_jsmf.validation import RelativeName, Sha256, Strict, explain, is_unsafe

MANIFEST_NAME = "manifest.json"
FORMAT_VERSION: Literal[1] = 1

#: Columns of the table of losses.
LOSSES = ("documents", "words", "tokens")

Number = int | float
Json = str | bool | int | float | None


class ShardEntry(Strict):
    """One Parquet file; ``name`` is a POSIX path relative to the corpus, ``tokens`` the sum of its counts.

    ``row_groups`` has the numbers of each ``footer.RowGroup``; without them, as in earlier corpora, they are in its
    footer.
    """

    name: RelativeName
    rows: PositiveInt
    nonzeros: NonNegativeInt
    tokens: Number
    bytes: PositiveInt
    sha256: Sha256
    row_groups: tuple[tuple[PositiveInt, PositiveInt], ...] | None = None


class VocabularyEntry(Strict):
    """Number of words and file hash of ``vocabulary.parquet``."""

    words: PositiveInt
    sha256: Sha256


class CorpusTotals(Strict):
    """Sums over the shards."""

    documents: PositiveInt
    words: PositiveInt
    nonzeros: NonNegativeInt
    tokens: Number


class Dropped(Strict):
    """What one curation step dropped, and why."""

    step: str
    reason: str
    words: NonNegativeInt = 0
    documents: NonNegativeInt = 0
    tokens: Number = 0


class Manifest(Strict):
    """The whole file. ``source`` and ``settings`` are flat tables: the provenance of the data, and how it was made.

    ``request`` identifies the command that made the corpus and the files that it read (``storage.results``); only this
    field depends on where the source was.
    """

    format_version: Literal[1] = FORMAT_VERSION
    kind: Literal["corpus"] = "corpus"
    shards: tuple[ShardEntry, ...]
    vocabulary: VocabularyEntry
    totals: CorpusTotals
    dropped: tuple[Dropped, ...] = ()
    attribution: str | None = None
    source: dict[str, Json] = Field(default_factory=dict)
    settings: dict[str, Json] = Field(default_factory=dict)
    request: dict[str, Any] = Field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """Hex SHA-256 of the hashes of the vocabulary and the shards, sorted by name; independent of the path."""
        return fingerprint_of(self.vocabulary.sha256, self.shards)


def fingerprint_of(vocabulary_sha256: str, shards: Iterable[Any]) -> str:
    """Return the hex SHA-256 of the hashes of the vocabulary and the shards, sorted by name."""
    hashes = [vocabulary_sha256, *(shard.sha256 for shard in sorted(shards, key=lambda shard: shard.name))]
    return hashlib.sha256("\n".join(hashes).encode()).hexdigest()


#: Key of the phrases in the settings, one per line.
PHRASES = "phrases"


def token_settings(settings: Mapping[str, Json]) -> dict[str, Json] | None:
    """Return the settings that turned texts into words, or None if the source was not text.

    Stop words are included only with a stemmer, because it does not stem them.
    """
    if "read_tokenizer" not in settings:
        return None
    found = {key: settings.get(f"read_{key}") for key in ("tokenizer", "ngrams", "stemmer", "boilerplate")}
    found["boilerplate"] = found["boilerplate"] or "keep"
    if "read_normalization" in settings:
        found["normalization"] = settings["read_normalization"]
    phrases = {PHRASES: settings[PHRASES]} if PHRASES in settings else {}
    unstemmed = None if found["stemmer"] is None else settings.get("stop_words")
    return {**found, "stop_words": unstemmed, **phrases}


def as_number(value: float) -> Number:
    """Convert a sum of counts to an integer if it is whole."""
    return int(value) if float(value).is_integer() else float(value)


def dump_manifest(manifest: Manifest) -> bytes:
    """Serialize a manifest with its fingerprint; the bytes are deterministic (no time, host or versions)."""
    return (
        json.dumps(sealed(manifest.model_dump(mode="json")), indent=1, ensure_ascii=False) + "\n"
    ).encode()


def parse_manifest(data: bytes, where: str) -> Manifest:
    """Parse and check a manifest; ``where`` is its path, for messages.

    Raises ``StoreError`` if the manifest is damaged or inconsistent, and ``InputError`` if its format version is
    unknown, it is not of a corpus, or a name leaves the directory.
    """
    try:
        raw = json.loads(data)
        if isinstance(raw, dict) and "sha256" in raw:  # not in manifests of earlier builds
            raw = unsealed(raw)
    except ValueError as error:
        raise StoreError(f"{where} is damaged ({error}); restore it or build the corpus again") from error
    if not isinstance(raw, dict):
        raise StoreError(f"{where} does not hold a JSON object; restore it or build the corpus again")
    if raw.get("kind") != "corpus":
        raise InputError(f"{where} is of kind {raw.get('kind')!r}, not 'corpus'; give the path of a corpus")
    version = raw.get("format_version")
    if isinstance(version, bool) or version != FORMAT_VERSION:
        raise InputError(
            f"{where} has format version {version!r}; this package knows {FORMAT_VERSION}: "
            "install a newer streaming-jsmf or build the corpus again"
        )
    try:
        manifest = Manifest.model_validate(raw)
    except ValidationError as error:
        kind = InputError if is_unsafe(error) else StoreError
        raise kind(f"{where}: {explain(error, Manifest)}") from error
    _require_consistent(manifest, where)
    return manifest


def _require_consistent(manifest: Manifest, where: str) -> None:
    if len({shard.name for shard in manifest.shards}) < len(manifest.shards):
        raise StoreError(f"{where} names a shard twice; build the corpus again")
    for shard in manifest.shards:
        groups = shard.row_groups
        if groups is not None and sum(rows for rows, _ in groups) != shard.rows:
            raise StoreError(
                f"{where}: the row groups of {shard.name} do not have its {shard.rows} rows; build the corpus again"
            )
    sums = {
        "documents": sum(shard.rows for shard in manifest.shards),
        "nonzeros": sum(shard.nonzeros for shard in manifest.shards),
        "words": manifest.vocabulary.words,
    }
    for key, value in sums.items():
        if (total := getattr(manifest.totals, key)) != value:
            raise StoreError(
                f"{where}: totals.{key} is {total} but the sum of its parts is {value}; build the corpus again"
            )


def losses(
    read: Mapping[str, Json], dropped: Sequence[Dropped], kept: CorpusTotals
) -> list[tuple[Json, ...]]:
    """What was read, dropped by each step, and kept: documents, words, tokens; ``read`` are the settings of a manifest.

    Steps that dropped nothing are omitted. The tokens of a step count only what the steps before it kept.
    """
    words = kept.words + sum(step.words for step in dropped)
    return [
        ("read", read.get("documents_read"), words, read.get("tokens_read")),
        *(
            (f"- {step.reason}", step.documents, step.words, step.tokens)
            for step in dropped
            if step.documents or step.words or step.tokens or step.step == "bad_records"
        ),
        ("kept", kept.documents, kept.words, kept.tokens),
    ]


def losses_table(rows: Sequence[tuple[Json, ...]]) -> str:
    """Format ``losses`` as a table."""
    shown = [
        (label, *(f"{number:,.0f}" if isinstance(number, int | float) and number else "" for number in row))
        for label, *row in rows
    ]
    return table([("", *LOSSES), *shown], "<>>>")
