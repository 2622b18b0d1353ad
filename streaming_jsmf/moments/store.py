"""The moments store: a Zarr group with a manifest, final arrays and the records that commit them.

Layout::

    MOMENTS/            attributes: kind, manifest
      word              vocabulary
      row_sum ... factor, basis, basis_eigenvalues, projection     final arrays, each named by a record
      records/          one attributes-only group for each commit
      partials/         partition results that are not folded yet; removed when a stage is complete
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from streaming_jsmf.config import ScanSettings, differences, fingerprint
from streaming_jsmf.errors import InputError, SettingsMismatchError, StoreError
from streaming_jsmf.jobs.checkpoints import (
    PARTIALS,
    RECORDS,
    Checkpoints,
    forget_record,
    key_of,
    read_record,
    write_record,
)
from streaming_jsmf.moments.manifest import FORMAT_VERSION, Manifest
from streaming_jsmf.moments.stages.base import Stage, Variable, repair_hint
from streaming_jsmf.moments.stages.registry import stage_named, stages_of
from streaming_jsmf.storage.arrays import (
    ArrayDigest,
    create_group,
    digest,
    read_array,
    read_attributes,
    write_array,
)
from streaming_jsmf.storage.lock import is_left
from streaming_jsmf.storage.paths import (
    StorePath,
    child_names,
    is_free,
    node_exists,
    remove_trees,
    write_json,
)
from streaming_jsmf.storage.provenance import package_versions, utc_now
from streaming_jsmf.storage.replace import store_written
from streaming_jsmf.validation import explain

KIND = "streaming_jsmf.moments"

#: Name of the vocabulary's record; the vocabulary is written when the store is created.
WORDS = "words"
#: Name prefix of the arrays that map the words of a corpus to ids in the store (``moments.word_ids``).
WORD_IDS = "columns-"

VOCABULARY = {"word": Variable(("word",), "vocabulary")}


@dataclass(frozen=True)
class MomentsStore:
    """A moments store, complete or not. Use ``open_moments`` to read a complete one."""

    path: StorePath
    manifest: Manifest

    @cached_property
    def settings(self) -> ScanSettings:
        return self.manifest.scan_settings

    @property
    def n_words(self) -> int:
        """Number of words, N."""
        return self.manifest.n_words

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """The stages of a complete store, in order."""
        return stages_of(self.settings)

    @property
    def reads_twice(self) -> bool:
        """Whether any stage after scan 1 reads the corpora."""
        return sum(stage.reads_corpora for stage in self.stages) > 1

    @cached_property
    def total(self) -> str:
        """Key of the last fold of scan 1, which covers all parts of the store."""
        return self.manifest.order.total

    @property
    def base(self) -> str:
        """Key of the fold of scan 1 that the basis is computed from."""
        return self.manifest.base or self.total

    @property
    def missing_stages(self) -> tuple[str, ...]:
        """Names of the stages that are not committed yet."""
        return tuple(stage.name for stage in self.stages if self.outcome(stage.name) is None)

    def checkpoints(self, stage: str) -> Checkpoints:
        made = stage_named(stage)
        keep = self.manifest.keep_partitions and made.keeps_parts
        return Checkpoints(self.path, stage, repair_hint(self.path), keep, made.part_axes)

    def leftovers(self) -> list[StorePath]:
        """Paths in a complete store that are not part of it: partial results and results of earlier states.

        The last fold of scan 1 is kept, and so are the parts in the manifest if the store keeps its partitions. A
        store with a sample also keeps the last fold of each sum. Lists three directories.
        """
        kept: dict[str, str] = {}
        for stage in self.stages:
            for scan in stage.scans(self) if stage.keeps_fold(self.settings) else ():
                kept |= self.checkpoints(stage.name).kept(scan.order.total, scan.keys)
        ids = {entry.word_ids.name for entry in self.manifest.corpora if entry.word_ids is not None}
        made = tuple(f"{stage.name}-{kind}-" for stage in self.stages for kind in ("part", "fold"))
        staying: tuple[tuple[StorePath, tuple[str, ...], Collection[str]], ...] = (
            (self.path / RECORDS, made, kept.keys()),
            (self.path / PARTIALS, made, kept.values()),
            (self.path, (WORD_IDS,), ids),
        )
        return [
            group / name
            for group, prefixes, names in staying
            for name in child_names(group)
            if name.startswith(prefixes) and name not in names
        ]

    def is_cleared(self) -> bool:
        """Whether the store is complete, without leftovers, and not locked by a running or killed process."""
        try:
            return self.is_complete() and not (is_left(self.path) or self.leftovers())
        except StoreError:
            return False

    def clear(self) -> None:
        """Remove the ``leftovers``. This is the last step of every change; a run after a kill repeats it."""
        remove_trees(self.leftovers())

    def outcome(self, stage: str) -> dict[str, Any] | None:
        """The committed record of a stage (digests, scalars, history), or None.

        A record that covers other partitions or words than the manifest belongs to an earlier state and is ignored.
        """
        record = read_record(self.path, stage, repair_hint(self.path))
        return record if record is not None and record.get("covers") == self._covers(stage) else None

    def has_outcome(self, stage: str) -> bool:
        """Whether a stage is committed and its record intact."""
        try:
            return self.outcome(stage) is not None
        except StoreError:
            return False

    def is_complete(self) -> bool:
        """Whether all stages are committed and their records intact."""
        return all(self.has_outcome(stage.name) for stage in self.stages)

    def scalars(self, stage: str) -> Mapping[str, float]:
        """Scalars of a finished stage."""
        record = self.outcome(stage)
        assert record is not None, "stages run in order"
        scalars: Mapping[str, float] = record["scalars"]
        return scalars

    def _covers(self, stage: str) -> str:
        """Key of everything that the outcome of a stage is computed from."""
        if stage == WORDS:
            return self.manifest.vocabulary
        made = stage_named(stage)
        if not made.inputs:
            return self.base if made.of_base else self.total
        # A different basis, for example one recomputed on another processor during a repair, makes old results stale.
        found = (self._fields_of(name) for name in made.inputs)
        return key_of(self.total, *("" if fields is None else fields["sha256"] for fields in found))

    @property
    def covered_fold(self) -> str | None:
        """Key of the fold that the committed outcome of scan 1 covers, in this manifest or an earlier one."""
        record = read_record(self.path, "range", repair_hint(self.path))
        return None if record is None else str(record.get("covers"))

    def commit_stage(
        self,
        stage: str,
        arrays: Mapping[str, NDArray[Any]],
        scalars: Mapping[str, float],
        history: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Write the final arrays of a stage, then the record that commits them.

        The record of an earlier state is deleted first, since its arrays are overwritten. The record of the current
        state, whose arrays are damaged, stays until it is replaced. Its history is kept if it is longer: the records
        of the parts may be gone.
        """
        if self.has_outcome(stage):
            known = self.outcome(stage)
            assert known is not None
            history = max(history, known["history"], key=len)
        else:
            forget_record(self.path, stage)
        variables = _variables_of(stage)
        digests = {name: self._write(name, variables[name], a).fields() for name, a in arrays.items()}
        record = {
            "covers": self._covers(stage),
            "arrays": digests,
            "scalars": dict(scalars),
            "history": list(history),
            # Differs between runs, so it must not enter any digest or fingerprint.
            "made": {"committed": utc_now(), "versions": package_versions()},
        }
        write_record(self.path, stage, record)

    def _write(self, name: str, variable: Variable, values: NDArray[Any]) -> ArrayDigest:
        symbol = {"symbol": variable.symbol} if variable.symbol else {}
        attributes = {"long_name": variable.meaning, **symbol}
        return write_array(self.path, name, values, variable.dimensions, attributes)

    @property
    def record_names(self) -> tuple[str, ...]:
        return (WORDS, *(stage.name for stage in self.stages))

    def _fields_of(self, name: str) -> dict[str, Any] | None:
        """The committed digest of a final array as stored in its record, or None."""
        maker = next((stage for stage in self.record_names if name in _variables_of(stage)), None)
        record = None if maker is None else self.outcome(maker)
        fields: dict[str, Any] | None = None if record is None else record["arrays"].get(name)
        return fields

    def array_digest(self, name: str) -> ArrayDigest:
        """The committed digest of a final array. Raises ``StoreError`` if its stage is not complete."""
        fields = self._fields_of(name)
        if fields is None:
            raise StoreError(f"{self.path}: {name} is not committed; run the same scan again to finish it")
        return ArrayDigest.from_fields(fields)

    def read(self, name: str) -> NDArray[Any]:
        """Read a final array and verify its digest. Raises ``StoreError`` if it is damaged."""
        return read_array(self.path, name, self.array_digest(name), hint=repair_hint(self.path))

    def digests(self, *, without: Sequence[str] = ()) -> dict[str, str]:
        """sha256 of every committed array by name, except those of the stages in ``without``."""
        records = [self.outcome(stage) for stage in self.record_names if stage not in without]
        return {
            name: str(fields["sha256"])
            for record in records
            if record
            for name, fields in record["arrays"].items()
        }


def _variables_of(stage: str) -> Mapping[str, Variable]:
    return VOCABULARY if stage == WORDS else stage_named(stage).variables


def create_store(path: StorePath, manifest: Manifest, words: Sequence[str]) -> MomentsStore:
    """Create a store with its manifest and vocabulary, atomically."""
    with store_written(path) as beside:
        write_empty_store(beside, manifest, words)
    return MomentsStore(path, manifest)


def write_empty_store(path: StorePath, manifest: Manifest, words: Sequence[str]) -> MomentsStore:
    """Write vocabulary and manifest into an empty directory. The root group is written last and completes the store."""
    for part in (PARTIALS, RECORDS):
        create_group(path / part, {})
    made = MomentsStore(path, manifest)
    made.commit_stage(WORDS, {"word": np.array(words, dtype=object)}, {})
    create_group(path, _attributes(manifest))
    return made


def replace_manifest(store: MomentsStore, manifest: Manifest) -> MomentsStore:
    """Replace the manifest of a store atomically. Stages that cover another state become missing."""
    root = {"zarr_format": 3, "node_type": "group", "attributes": _attributes(manifest)}
    write_json(store.path / "zarr.json", root)
    return MomentsStore(store.path, manifest)


def _attributes(manifest: Manifest) -> dict[str, Any]:
    plain = manifest.as_json()
    return {"kind": KIND, "manifest": plain, "manifest_sha256": fingerprint(plain)}


def words_digest(words: Sequence[str]) -> str:
    """sha256 of a vocabulary, equal to the digest of its array in a store."""
    return digest(np.array(words, dtype=object)).sha256


def resume_store(path: StorePath, manifest: Manifest) -> MomentsStore | None:
    """Return the store at ``path``, complete or not, or None if the path is free.

    Raises ``SettingsMismatchError`` if the store has other settings or another corpus, ``InputError`` if something
    else exists at ``path``, and ``StoreError`` if the store is damaged.
    """
    if is_free(path):
        return None
    if not node_exists(path):
        _refuse_lost_root(path)
        raise InputError(f"{path}: exists and is not a moments store; give a path that is free")
    store = read_store(path)
    _require_same(store, manifest)
    return store


def read_store(path: StorePath) -> MomentsStore:
    """Return the store at ``path``, complete or not.

    Raises ``InputError`` if there is no store or its format version is unknown, and ``StoreError`` if its metadata is
    damaged.
    """
    if not node_exists(path):
        _refuse_lost_root(path)
        if isinstance(path, Path) and (path / "manifest.json").exists():
            raise InputError(
                f"{path}: is a corpus, not a moments store; scan makes one of it, or fit does all at once"
            )
        raise InputError(f"{path}: no moments store is here; make one with streaming-jsmf scan CORPUS {path}")
    attributes = read_attributes(path)
    if attributes.get("kind") != KIND:
        raise InputError(f"{path}: this is not a moments store; give the path that scan or fit wrote")
    manifest = attributes.get("manifest")
    if not isinstance(manifest, dict) or "format_version" not in manifest:
        raise StoreError(
            f"{path}/zarr.json: the manifest is missing or damaged; delete the store and scan again"
        )
    if manifest["format_version"] != FORMAT_VERSION:
        raise InputError(
            f"{path}: format version {manifest['format_version']} is unknown; this release reads {FORMAT_VERSION}"
        )
    return MomentsStore(path, _parsed(manifest, path, str(attributes.get("manifest_sha256"))))


def _parsed(fields: dict[str, Any], path: StorePath, sha256: str) -> Manifest:
    needed = {name for name, field in Manifest.model_fields.items() if field.is_required()}
    if missing := needed - fields.keys():
        raise StoreError(
            f"{path}/zarr.json: the manifest lacks {', '.join(sorted(missing))}; delete the store and scan again"
        )
    if sha256 != fingerprint(fields):
        raise StoreError(
            f"{path}/zarr.json: the manifest differs from its sha256; delete the store and scan again"
        )
    try:
        manifest = Manifest.model_validate(fields)
    except ValidationError as error:
        raise StoreError(
            f"{path}/zarr.json: the manifest is damaged ({explain(error, Manifest)}); delete the store and scan again"
        ) from error
    if manifest.is_of_older_sample:
        raise InputError(f"{path}: has a sample of an earlier release; delete the store and scan again")
    return manifest


def _refuse_lost_root(path: StorePath) -> None:
    """Raise ``StoreError`` if ``path`` is a store without its root metadata, the only copy of the manifest."""
    if isinstance(path, Path) and (path / RECORDS).exists() and (path / PARTIALS).exists():
        raise StoreError(
            f"{path}/zarr.json is missing, and with it what the store was made of; put it back from a copy, or delete "
            "the store and scan again"
        )


def _require_same(store: MomentsStore, wanted: Manifest) -> None:
    stored = store.manifest
    # The third moment does not count as a difference: it can be added later.
    if stored.range_key != wanted.range_key:
        ours, asked_for = ({**m.settings, "third_moment": None} for m in (stored, wanted))
        detail = differences(ours, asked_for) or "algorithm version"
        raise SettingsMismatchError(
            f"{store.path}: made with another settings ({detail}; fingerprint stored {stored.range_key[:12]}, "
            f"asked {wanted.range_key[:12]}); give another path or delete it"
        )
    asked = wanted.corpora[0]
    if all(entry.fingerprint != asked.fingerprint for entry in stored.corpora):
        raise SettingsMismatchError(
            f"{store.path}: made with another corpus ({', '.join(stored.paths)}; "
            f"fingerprint stored {stored.corpora[0].fingerprint[:12]}, asked {asked.fingerprint[:12]}); "
            "give another path or delete it, or add the corpus with --add"
        )
    if wanted.keep_partitions and not stored.keep_partitions:
        raise SettingsMismatchError(
            f"{store.path}: was begun without --keep-partitions; scan into another path to have them kept"
        )
