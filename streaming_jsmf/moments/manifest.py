"""The manifest of a moments store: its corpora and its partitions in folding order.

Functions map one manifest to the next and have no side effects. Together with the settings, a manifest determines
every bit of a store: part keys hash the partition contents, and the key of the last fold hashes all part keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.corpus.manifest import Json
from streaming_jsmf.corpus.units import Partition, distinct, list_units, plan_partitions, shard_name
from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.fingerprint import fingerprint
from streaming_jsmf.jobs.checkpoints import PARTIALS, RECORDS, key_of
from streaming_jsmf.jobs.order import FAN_IN, FoldOrder
from streaming_jsmf.storage.arrays import digest, read_attributes, verified, write_array
from streaming_jsmf.storage.kinds import MOMENTS, unsuitable
from streaming_jsmf.storage.paths import StorePath, exists, node_exists
from streaming_jsmf.validation import Strict, explain

KIND = "streaming_jsmf.moments"

FORMAT_VERSION = 3
#: Increase when the same settings give different bits; part of the settings' fingerprint.
ALGORITHM_VERSION = 7
#: Name prefix of the arrays that ``WordIds`` describes.
WORD_IDS = "columns-"


class WordIds(Strict):
    """Describes an array with the id in the store of each word of a corpus; its name is derived from its values."""

    name: str
    sha256: str
    n_words: int

    @classmethod
    def of(cls, ids: NDArray[np.int64]) -> WordIds:
        sha256 = digest(ids).sha256
        return cls(name=f"{WORD_IDS}{sha256[:16]}", sha256=sha256, n_words=len(ids))


def write_word_ids(path: StorePath, arrays: Sequence[NDArray[np.int64] | None]) -> None:
    """Write arrays for ``Moments.word_ids`` into the store at ``path``; None entries are skipped."""
    for ids in arrays:
        if ids is not None:
            # Corpora have different numbers of words, and xarray requires one length per dimension name.
            name = WordIds.of(ids).name
            write_array(path, name, ids, [f"{name}-word"])


class CorpusEntry(Strict):
    """A corpus in the store, or a section of one that has grown.

    ``path`` is its ``Corpus.location``; ``shards`` maps the names of non-empty shards to their sha256; ``word_ids``
    maps its words to ids in the store (None: the same ids); ``tokens`` describes the tokenization of its texts, if
    known.
    """

    path: str
    fingerprint: str
    shards: dict[str, str]
    word_ids: WordIds | None = Field(alias="columns")
    tokens: dict[str, Json] | None = None


class PartitionEntry(Strict):
    """A partition: sha256 of its content, index of its corpus, and its units as (shard, row group)."""

    content: str
    corpus: int
    label: str | int | None
    rows: int
    nonzeros: int
    units: tuple[tuple[str, int], ...]


class StoreManifest(Strict):
    """What a moments store was made from.

    ``vocabulary`` is the digest of the words, ``range_key`` that of all settings except ``third_moment``, on
    which scan 1 and the basis depend. ``fan_in`` is that of the ``FoldOrder``. ``sample_share`` is the share of the
    documents that the store holds, fixed when it is created (None: halko). ``base`` is the fold of scan 1 that the
    basis is computed from if the basis is kept while documents are added (None: the last fold). ``change`` identifies
    the last requested change.
    """

    format_version: int
    settings: dict[str, Any]
    settings_fingerprint: str
    range_key: str
    partition_budget: int
    corpora: tuple[CorpusEntry, ...]
    n_words: int
    vocabulary: str
    probes: dict[str, Any]
    partitions: tuple[PartitionEntry, ...]
    fan_in: int
    change: str | None = None
    sample_share: float | None = None
    base: str | None = None

    @property
    def scan_settings(self) -> ScanSettings:
        return ScanSettings(**self.settings)

    @property
    def whole_corpora(self) -> tuple[CorpusEntry, ...]:
        """The corpora, each once with all its shards; a corpus that has grown is several of ``corpora``."""
        whole: dict[str, CorpusEntry] = {}
        for entry in self.corpora:
            same = whole.get(entry.fingerprint, entry)
            whole[entry.fingerprint] = same.model_copy(update={"shards": {**same.shards, **entry.shards}})
        return tuple(whole.values())

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(entry.path for entry in self.whole_corpora)

    @property
    def tokens(self) -> dict[str, Json] | None:
        """Tokenization of the corpora, or None if it is unknown or differs between them."""
        first = self.corpora[0].tokens if self.corpora else None
        return first if all(entry.tokens == first for entry in self.corpora) else None

    @property
    def contents(self) -> tuple[str, ...]:
        """Content keys of the partitions, made unique."""
        return distinct([partition.content for partition in self.partitions])

    @property
    def part_keys(self) -> tuple[str, ...]:
        """Keys of the parts of scan 1, in order."""
        return tuple(map(key_of, self.contents))

    @property
    def order(self) -> FoldOrder:
        """Folding order of scan 1. Other words, settings or part order give other fold keys."""
        sampled = "" if self.sample_share is None else f"\nsample {self.sample_share}"
        salt = f"{self.range_key}\n{self.vocabulary}{sampled}"
        return self.order_of(self.part_keys, salt)

    def order_of(self, keys: Sequence[str], salt: str) -> FoldOrder:
        """Folding order of the partitions: within each corpus first, then across corpora."""
        corpora = groupby(partition.corpus for partition in self.partitions)
        return FoldOrder(tuple(keys), salt, tuple(len(list(same)) for _, same in corpora), self.fan_in)

    def on_basis_of(self, before: StoreManifest) -> StoreManifest:
        """The manifest with the basis of ``before``, whose partitions are a prefix of its own.

        All other results are then sums that can be extended. The basis is new if the documents that it was computed
        from have less than half of the nonzeros, since few documents have few eigenvectors; and with a sketch or the
        whole C, which determine it.
        """
        base = before.base or before.order.total
        covered = sum(self.partitions[number].nonzeros for number in self.order.covered([base]))
        kept = 2 * covered >= sum(partition.nonzeros for partition in self.partitions)
        return self.changed(base=base if kept and self.scan_settings.has_projection else None)

    def with_new_basis(self) -> StoreManifest:
        """The manifest with a basis computed from all its documents, as in a single scan."""
        return self.changed(base=None)

    def changed(self, **fields: Any) -> StoreManifest:
        """The manifest with other values of some fields; those that stay the same are not set."""
        return self.model_copy(update={name: v for name, v in fields.items() if v != getattr(self, name)})

    def as_json(self) -> dict[str, Any]:
        """The manifest as JSON values, with only the keys that were set."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


def new_manifest(corpus: Corpus, settings: ScanSettings) -> StoreManifest:
    """Describe a scan before it starts. Reads the words, and the metadata column if partitions are made by one."""
    fields = settings.fields()
    empty = StoreManifest(
        format_version=FORMAT_VERSION,
        settings=fields,
        settings_fingerprint=_settings_fingerprint(fields),
        range_key=_settings_fingerprint(replace(settings, third_moment=False).fields()),
        partition_budget=settings.partition_budget(corpus.nonzeros, corpus.n_words),
        corpora=(),
        n_words=corpus.n_words,
        vocabulary=words_digest(corpus.vocabulary().words),
        probes={"generator": "philox", "seed": settings.seed, "numpy": np.__version__},
        partitions=(),
        fan_in=FAN_IN,
    )
    if settings.range_finder == "sample":
        share = settings.held_share(corpus.n_documents, corpus.n_words, corpus.nonzeros)
        empty = empty.changed(sample_share=share)
    return with_corpus(empty, corpus)


def _entry(corpus: Corpus, shards: dict[str, str]) -> CorpusEntry:
    tokens: dict[str, Any] = {} if corpus.tokens is None else {"tokens": dict(corpus.tokens)}
    return CorpusEntry(
        path=corpus.location, fingerprint=corpus.fingerprint, shards=shards, columns=None, **tokens
    )


def _settings_fingerprint(fields: Mapping[str, Any]) -> str:
    return fingerprint({**fields, "algorithm": ALGORITHM_VERSION})


def with_third_moment(manifest: StoreManifest) -> StoreManifest:
    fields = replace(manifest.scan_settings, third_moment=True).fields()
    return manifest.changed(settings=fields, settings_fingerprint=_settings_fingerprint(fields))


def with_corpus(manifest: StoreManifest, corpus: Corpus) -> StoreManifest:
    """The manifest with ``corpus`` appended. Raises ``InputError`` if a shard is already in the store."""
    # All empty shards have the same hash, and cannot count documents twice.
    entry = _entry(corpus, {shard.name: shard.sha256 for shard in corpus.shards if shard.rows})
    refuse_known_shards(manifest, entry)
    by = manifest.settings.get("partition_by")
    planned = plan_partitions(list_units(corpus), manifest.partition_budget, by)
    number = len(manifest.corpora)
    return manifest.changed(
        corpora=(*manifest.corpora, entry),
        partitions=(*manifest.partitions, *(_describe(p, corpus, number) for p in planned)),
    )


def following(manifest: StoreManifest, corpus: Corpus) -> StoreManifest:
    """The manifest with exactly the documents of ``corpus``, which has the words of the store.

    Partitions without changed shards stay. The other documents are planned as a section at the end, as if they were a
    corpus that is added: both are entries of the one corpus. The basis is kept if nothing is removed.
    """
    hashes, by = {shard.name: shard.sha256 for shard in corpus.shards}, manifest.settings.get("partition_by")
    staying = [
        partition
        for partition in manifest.partitions
        if not by
        and all(
            manifest.corpora[partition.corpus].shards[name] == hashes.get(name) for name, _ in partition.units
        )
    ]
    covered = {unit for partition in staying for unit in partition.units}
    rest = [
        unit for unit in list_units(corpus) if (shard_name(unit, corpus.root), unit.row_group) not in covered
    ]
    planned = plan_partitions(rest, manifest.partition_budget, by) if rest else ()
    added = (_describe(partition, corpus, len(manifest.corpora)) for partition in planned)
    sections = (_entry(corpus, hashes),) * (len(manifest.corpora) + 1)
    after = with_partitions(manifest.changed(corpora=sections), (*staying, *added))
    if after.contents == manifest.contents:
        return after
    return after.with_new_basis() if len(staying) < len(manifest.partitions) else after.on_basis_of(manifest)


def with_partitions(manifest: StoreManifest, partitions: Sequence[PartitionEntry]) -> StoreManifest:
    """The manifest with these partitions of its corpora, without other shards and without corpora that have none."""
    shards: dict[int, set[str]] = {}
    for partition in partitions:
        shards.setdefault(partition.corpus, set()).update(shard for shard, _ in partition.units)
    used, corpora = sorted(shards), []
    for number in used:
        entry = manifest.corpora[number]
        held = {name: digest for name, digest in entry.shards.items() if name in shards[number]}
        corpora.append(entry.model_copy(update={"shards": held}))
    numbered = (p.model_copy(update={"corpus": used.index(p.corpus)}) for p in partitions)
    return manifest.changed(corpora=tuple(corpora), partitions=tuple(numbered))


def joined(
    first: StoreManifest,
    second: StoreManifest,
    words: Sequence[str],
    word_ids: Sequence[NDArray[np.int64] | None],
) -> StoreManifest:
    """The manifest of the first store with corpora and partitions of the second appended."""
    shift = len(first.corpora)
    theirs = (
        entry.model_copy(update={"word_ids": None if ids is None else WordIds.of(ids)})
        for entry, ids in zip(second.corpora, word_ids, strict=True)
    )
    moved = (p.model_copy(update={"corpus": p.corpus + shift}) for p in second.partitions)
    return first.with_new_basis().changed(
        vocabulary=words_digest(words),
        n_words=len(words),
        corpora=(*first.corpora, *theirs),
        partitions=(*first.partitions, *moved),
    )


def relocate(manifest: StoreManifest, corpus: Corpus) -> StoreManifest:
    """The manifest with the current location of ``corpus``, if its shards have kept their names."""
    shards = {(shard.name, shard.sha256) for shard in corpus.shards}

    def now(entry: CorpusEntry) -> CorpusEntry:
        same = entry.fingerprint == corpus.fingerprint and entry.shards.items() <= shards
        return entry.model_copy(update={"path": corpus.location}) if same else entry

    return manifest.changed(corpora=tuple(map(now, manifest.corpora)))


def _describe(partition: Partition, corpus: Corpus, number: int) -> PartitionEntry:
    return PartitionEntry(
        content=partition.content,
        corpus=number,
        label=partition.label,
        rows=partition.rows,
        nonzeros=partition.nonzeros,
        units=tuple((shard_name(unit, corpus.root), unit.row_group) for unit in partition.units),
    )


def refuse_known_shards(manifest: StoreManifest, added: CorpusEntry, of: str = "") -> None:
    """Raise ``InputError`` if a shard of a corpus, ``of`` another store, is already in this store."""
    known = {
        content: f"{entry.path}/{name}"
        for entry in manifest.corpora
        for name, content in entry.shards.items()
    }
    for name, content in added.shards.items():
        if content in known:
            raise InputError(
                f"{of}{added.path}/{name} is in the store already, as {known[content]}; leave it out, because each "
                "document is counted once"
            )


def read_manifest(path: StorePath) -> StoreManifest:
    """Read the manifest of the store at ``path``.

    Raises ``InputError`` if there is no store or its format version is unknown, and ``StoreError`` if its metadata is
    damaged.
    """
    if not node_exists(path):
        refuse_lost_root(path)
        raise unsuitable(path, MOMENTS)
    attributes, hint = read_attributes(path), "delete the store and scan again"
    if attributes.get("kind") != KIND:
        raise unsuitable(path, MOMENTS)
    fields = attributes.get("manifest")
    if not isinstance(fields, dict):
        raise StoreError(f"{path}/zarr.json: the manifest is missing; {hint}")
    fields = {**fields, "sha256": attributes.get("manifest_sha256")}
    try:
        return StoreManifest.model_validate(
            verified(path, fields, FORMAT_VERSION, what="the fields of the manifest", hint=hint)
        )
    except ValidationError as error:
        raise StoreError(
            f"{path}/zarr.json: the manifest is damaged ({explain(error, StoreManifest)}); {hint}"
        ) from error


def words_digest(words: Sequence[str]) -> str:
    """sha256 of a vocabulary, equal to the digest of its array in a store."""
    return digest(np.array(words, dtype=object)).sha256


def refuse_lost_root(path: StorePath) -> None:
    """Raise ``StoreError`` if ``path`` is a store without its root metadata, the only copy of the manifest."""
    if isinstance(path, Path) and exists(path / RECORDS) and exists(path / PARTIALS):
        raise StoreError(
            f"{path}/zarr.json is missing, and with it the description of the store; restore it from a copy, or delete "
            "the store and scan again"
        )


def root_attributes(manifest: StoreManifest) -> dict[str, Any]:
    """The attributes of the root of a store, which are its only copy of the manifest."""
    plain = manifest.as_json()
    return {"kind": KIND, "manifest": plain, "manifest_sha256": fingerprint(plain)}
