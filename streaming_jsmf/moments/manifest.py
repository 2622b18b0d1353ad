"""The manifest of a moments store: its corpus and its partitions in folding order.

Functions map one manifest to the next and have no side effects. Together with the settings, a manifest determines
every bit of a store: part keys hash the partition contents, and the key of the last fold hashes all part keys.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.corpus.manifest import Json
from streaming_jsmf.corpus.units import Partition, distinct, list_units, plan_partitions, shard_name
from streaming_jsmf.display import location
from streaming_jsmf.errors import StoreError, option
from streaming_jsmf.fingerprint import fingerprint
from streaming_jsmf.jobs.checkpoints import PARTIALS, RECORDS, key_of
from streaming_jsmf.jobs.order import FoldOrder
from streaming_jsmf.storage.arrays import digest, read_attributes
from streaming_jsmf.storage.kinds import MOMENTS, unsuitable
from streaming_jsmf.storage.paths import StorePath, exists, node_exists
from streaming_jsmf.storage.sealed import verified
from streaming_jsmf.validation import Strict, explain

KIND = "streaming_jsmf.moments"
#: Advice about damage to metadata.
AGAIN = "delete the store and scan again"

FORMAT_VERSION = 5
#: Formats that ``migrate`` rewrites; those before them held factors in place of documents.
MIGRATED = (3, 4)
#: Increase when the same settings give different bits; part of the settings' fingerprint.
ALGORITHM_VERSION = 7
#: A corpus whose partitions or sample would now differ by more than this factor is scanned anew.
OUTGROWN = 2


class CorpusEntry(Strict):
    """The corpus of a store.

    ``path`` is its ``Corpus.location``; ``shards`` maps the names of non-empty shards to their sha256; ``tokens``
    describes the tokenization of its texts, if known.
    """

    path: str
    fingerprint: str
    shards: dict[str, str]
    tokens: dict[str, Json] | None = None


class PartitionEntry(Strict):
    """A partition: sha256 of its content, its label, and its units as (shard, row group)."""

    content: str
    label: str | int | None
    rows: int
    nonzeros: int
    units: tuple[tuple[str, int], ...]


class StoreManifest(Strict):
    """What a moments store is made from.

    ``vocabulary`` is the digest of the words. ``sample_share`` is the share of the documents that the store holds
    (None: halko).
    """

    format_version: int
    algorithm: int
    settings: dict[str, Any]
    partition_budget: int
    sample_share: float | None
    corpus: CorpusEntry
    n_words: int
    vocabulary: str
    numpy: str
    partitions: tuple[PartitionEntry, ...]

    @property
    def scan_settings(self) -> ScanSettings:
        return ScanSettings(**self.settings)

    @property
    def settings_fingerprint(self) -> str:
        return fingerprint({**self.settings, "algorithm": self.algorithm})

    @property
    def range_key(self) -> str:
        """Digest of all settings but ``third_moment``, which changes no other result."""
        return fingerprint({**self.settings, "third_moment": False, "algorithm": self.algorithm})

    @property
    def contents(self) -> tuple[str, ...]:
        """Content keys of the partitions, made unique."""
        return distinct([partition.content for partition in self.partitions])

    @property
    def part_keys(self) -> tuple[str, ...]:
        """Keys of the parts of pass 1, in order."""
        return tuple(map(key_of, self.contents))

    @property
    def order(self) -> FoldOrder:
        """Folding order of pass 1. Other words, settings or part order give other fold keys."""
        sampled = "" if self.sample_share is None else f"\nsample {self.sample_share}"
        return FoldOrder(self.part_keys, f"{self.range_key}\n{self.vocabulary}{sampled}")

    def changed(self, **fields: Any) -> StoreManifest:
        """The manifest with other values of some fields."""
        return self.model_copy(update=fields)


def new_manifest(corpus: Corpus, settings: ScanSettings) -> StoreManifest:
    """Describe a scan before it starts. Reads the words, and the metadata column if partitions are made by one."""
    budget, share = settings.partition_budget(corpus.nonzeros, corpus.n_words), None
    if settings.range_finder == "sample":
        share = settings.held_share(corpus.n_documents, corpus.n_words, corpus.nonzeros)
    planned = plan_partitions(list_units(corpus), budget, settings.partition_by)
    return StoreManifest(
        format_version=FORMAT_VERSION,
        algorithm=ALGORITHM_VERSION,
        settings=settings.fields(),
        partition_budget=budget,
        sample_share=share,
        corpus=_entry(corpus),
        n_words=corpus.n_words,
        vocabulary=words_digest(corpus.vocabulary().words),
        # The probes are random numbers of its Philox generator.
        numpy=np.__version__,
        partitions=tuple(_describe(partition, corpus) for partition in planned),
    )


def _entry(corpus: Corpus) -> CorpusEntry:
    return CorpusEntry(
        path=corpus.location,
        fingerprint=corpus.fingerprint,
        shards={shard.name: shard.sha256 for shard in corpus.shards if shard.rows},
        tokens=None if corpus.tokens is None else dict(corpus.tokens),
    )


def _describe(partition: Partition, corpus: Corpus) -> PartitionEntry:
    return PartitionEntry(
        content=partition.content,
        label=partition.label,
        rows=partition.rows,
        nonzeros=partition.nonzeros,
        units=tuple((shard_name(unit, corpus.root), unit.row_group) for unit in partition.units),
    )


def with_third_moment(manifest: StoreManifest) -> StoreManifest:
    return manifest.changed(settings=replace(manifest.scan_settings, third_moment=True).fields())


def moved(manifest: StoreManifest, entry: CorpusEntry) -> StoreManifest:
    """The manifest of the same documents, whose corpus is elsewhere, or whose shards have other names in this order."""
    names = dict(zip(sorted(manifest.corpus.shards), sorted(entry.shards), strict=True))
    partitions = tuple(
        each.model_copy(update={"units": tuple((names[shard], group) for shard, group in each.units)})
        for each in manifest.partitions
    )
    return manifest.changed(corpus=entry, partitions=partitions)


def following(manifest: StoreManifest, corpus: Corpus, fresh: StoreManifest) -> StoreManifest:
    """The manifest with exactly the documents of ``corpus``, whose new scan is described by ``fresh``.

    Partitions without changed shards stay, so that they are not read again, unless they are small; the other documents
    are planned as a scan of them alone would. A corpus that has outgrown its partitions or its sample is planned anew.
    """
    chosen = [(each.partition_budget, each.sample_share or 1.0) for each in (manifest, fresh)]
    if any(not 1 / OUTGROWN <= now / before <= OUTGROWN for before, now in zip(*chosen, strict=True)):
        return fresh
    before, now = manifest.corpus.shards, fresh.corpus.shards
    by, budget = fresh.scan_settings.partition_by, manifest.partition_budget
    staying = [
        partition
        for partition in manifest.partitions
        if by is None
        and partition.nonzeros * OUTGROWN >= budget
        and all(before[name] == now.get(name) for name, _ in partition.units)
    ]
    known = {unit for partition in staying for unit in partition.units}
    rest = [
        unit for unit in list_units(corpus) if (shard_name(unit, corpus.root), unit.row_group) not in known
    ]
    planned = plan_partitions(rest, budget, by) if rest else ()
    partitions = (*staying, *(_describe(partition, corpus) for partition in planned))
    return fresh.changed(partition_budget=budget, sample_share=manifest.sample_share, partitions=partitions)


def read_manifest(path: StorePath) -> StoreManifest:
    """Read the manifest of the store at ``path``.

    Raises ``InputError`` if there is no store or its format version is unknown, and ``StoreError`` if its metadata is
    damaged.
    """
    if not node_exists(path):
        refuse_lost_root(path)
        raise unsuitable(path, MOMENTS)
    fields = sealed_manifest(path)
    try:
        return StoreManifest.model_validate(
            verified(
                path,
                fields,
                FORMAT_VERSION,
                what="the fields of the manifest",
                hint=_again(path, fields),
                migrated=MIGRATED,
            )
        )
    except ValidationError as error:
        raise StoreError(
            f"{path}/zarr.json: the manifest is damaged ({explain(error, StoreManifest)}); {AGAIN}"
        ) from error


def sealed_manifest(path: StorePath) -> dict[str, Any]:
    """The fields of the manifest of any format, and their ``sha256``. Raises as ``read_manifest``."""
    attributes = read_attributes(path)
    if attributes.get("kind") != KIND:
        raise unsuitable(path, MOMENTS)
    fields = attributes.get("manifest")
    if not isinstance(fields, dict):
        raise StoreError(f"{path}/zarr.json: the manifest is missing; {AGAIN}")
    return {**fields, "sha256": attributes.get("manifest_sha256")}


def _again(path: StorePath, fields: Mapping[str, Any]) -> str:
    """What to do about a damaged store, or one of a format that is not migrated."""
    version = fields.get("format_version")
    if not isinstance(version, int) or version >= min(MIGRATED):
        return AGAIN
    corpora = [entry["path"] for entry in fields.get("corpora", ()) if isinstance(entry, dict)]
    places = (corpora[0] if len(corpora) == 1 else "CORPUS", path)
    most = fields.get("settings", {}).get("max_topics")
    given = [option.overwrite(True), *([option.max_topics(most)] if most else [])]
    scan = ["streaming-jsmf scan", *(shlex.quote(location(place)) for place in places)]
    return (
        f"nothing in it serves, because stores of that format hold no documents; "
        f"{' '.join([*scan, *(each.on_command_line for each in given)])} makes it again (corpora and models are kept)"
    )


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


def root_attributes(manifest: StoreManifest) -> Mapping[str, Any]:
    """The attributes of the root of a store, which are its only copy of the manifest."""
    plain = manifest.model_dump(mode="json")
    return {"kind": KIND, "manifest": plain, "manifest_sha256": fingerprint(plain)}
