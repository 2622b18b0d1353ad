"""The moments store: a Zarr group that says what it was made of, and trusts only its records.

Layout::

    MOMENTS/            attributes: kind, manifest
      word              vocabulary
      row_sum ... factor, basis, basis_eigenvalues, projection     final arrays, each named by a record
      records/          one attributes-only group for each commit
      partials/         results of partitions on their way into a fold; gone when a stage is complete
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.config import ScanSettings, differences, fingerprint
from streaming_jsmf.errors import InputError, SettingsMismatchError, StoreError
from streaming_jsmf.jobs.ledger import Ledger, key_of
from streaming_jsmf.jobs.records import PARTIALS, RECORDS, forget_record, read_record, write_record
from streaming_jsmf.moments.manifest import (
    FORMAT_VERSION,
    MANIFEST_KEYS,
    part_keys,
    range_fingerprint,
    range_folds,
)
from streaming_jsmf.moments.remedy import repair_remedy
from streaming_jsmf.storage.arrays import (
    ArrayDigest,
    create_group,
    digest,
    read_array,
    read_attributes,
    write_array,
)
from streaming_jsmf.storage.paths import (
    StorePath,
    is_free,
    node_exists,
    remove_store,
    store_written,
    write_json,
)
from streaming_jsmf.storage.provenance import package_versions, utc_now

KIND = "streaming_jsmf.moments"

#: Stages whose results are sums over all partitions, given the basis.
GIVEN_THE_BASIS = ("projection", "third_moment")

#: Axes of partial results without a row for each word.
PARTIAL_AXES = {"third": ("triple",)}

#: Final arrays: dimensions, symbol of the papers, meaning.
VARIABLES: dict[str, tuple[tuple[str, ...], str, str]] = {
    "word": (("word",), "", "vocabulary"),
    "row_sum": (("word",), "u", "row sums of C, exact; mean of h / n over weighted documents"),
    "diagonal": (("word",), "D", "diagonal correction of Eq. 1, exact"),
    "term_count": (("word",), "", "tokens of the word in the documents kept"),
    "document_frequency": (("word",), "", "documents kept that hold the word"),
    "factor": (("word", "rank"), "F", "F F' ~ C + diag(D)"),
    "sketch": (("word", "probe"), "Y", "(C + diag(D)) Omega"),
    "basis": (("word", "component"), "Q", "leading algebraic eigenvectors after scan 1"),
    "basis_eigenvalues": (("component",), "", "their eigenvalues"),
    "projection": (("word", "component"), "C Q", "C times the basis, from scan 2"),
    "cooccurrence": (("word", "word_"), "C", "the whole matrix of Eq. 1, counted by scan 2 with --exact"),
    "word_mean": (("word",), "M1", "mean of h / n over documents of three tokens or more"),
    "pair_projection": (("word", "component"), "E2 Q", "as C Q, over documents of three tokens or more"),
    "third_moment": (("triple",), "E3(Q, Q, Q)", "of the symmetric tensor the entries i <= j <= k in order"),
}


@dataclass(frozen=True)
class MomentsStore:
    """A moments store on its way to completion, or complete. Use ``open_moments`` to read a finished one.

    Parameters
    ----------
    path
        Directory of the store, or its place behind a URL.
    manifest
        What it was made of: settings, corpus, partitions and their fingerprints.
    """

    path: StorePath
    manifest: Mapping[str, Any]

    @cached_property
    def settings(self) -> ScanSettings:
        """Settings of the scan."""
        return ScanSettings(**self.manifest["settings"])

    @property
    def n_words(self) -> int:
        """N."""
        return int(self.manifest["n_words"])

    @property
    def stages(self) -> tuple[str, ...]:
        """Stages that make the store complete, in order."""
        third_moment = ("third_moment",) if self.settings.third_moment else ()
        if self.settings.exact:
            return ("range", "cooccurrence", "basis", *third_moment)
        projection = ("projection",) if self.settings.scans == 2 else ()
        return ("range", "basis", *projection, *third_moment)

    @property
    def keeps_partitions(self) -> bool:
        """Whether the results of partitions stay, so that some can be taken out or selected."""
        return bool(self.manifest["keep_partitions"])

    @cached_property
    def folds(self) -> tuple[str, ...]:
        """Keys of the folds of the range stage; the last one stands for all that the store is made of."""
        return range_folds(self.manifest)

    @property
    def part_keys(self) -> tuple[str, ...]:
        """Keys of the parts of the range stage, in order."""
        return part_keys(self.manifest)

    @property
    def missing_stages(self) -> tuple[str, ...]:
        """Stages that are not committed yet."""
        return tuple(stage for stage in self.stages if self.outcome(stage) is None)

    def ledger(self, stage: str) -> Ledger:
        """The ledger of a stage that runs over partitions."""
        keep = self.keeps_partitions and stage == "range"
        return Ledger(self.path, stage, repair_remedy(self.path), keep, PARTIAL_AXES)

    def outcome(self, stage: str) -> dict[str, Any] | None:
        """The committed record of a finished stage: digests, scalars, history; None before.

        A record of other partitions or words than those of the manifest is that of an earlier state of the store.
        """
        record = read_record(self.path, stage, repair_remedy(self.path))
        return record if record is not None and record.get("covers") == self._covers(stage) else None

    def _covers(self, stage: str) -> str:
        """What the outcome of a stage is made of, as a key."""
        if stage == "words":
            return str(self.manifest["vocabulary"])
        if stage not in GIVEN_THE_BASIS:
            return self.folds[-1]
        # Another basis, such as one that another processor computed in a repair, needs results of its own.
        basis = self.outcome("basis")
        return key_of(self.folds[-1], "" if basis is None else basis["arrays"]["basis"]["sha256"])

    @property
    def covered_fold(self) -> str | None:
        """The fold that the committed outcome of the range stage was made of, of this manifest or an earlier one."""
        record = read_record(self.path, "range", repair_remedy(self.path))
        return None if record is None else str(record.get("covers"))

    def commit_stage(
        self,
        stage: str,
        arrays: Mapping[str, NDArray[Any]],
        scalars: Mapping[str, float],
        history: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Write the final arrays of a stage, then the record that makes them count.

        Arrays of an earlier state are written over, so its record goes first.
        """
        forget_record(self.path, stage)
        digests = {name: self._write(name, values).fields() for name, values in arrays.items()}
        record = {
            "covers": self._covers(stage),
            "arrays": digests,
            "scalars": dict(scalars),
            "history": list(history),
            # What tells two runs apart stays outside of digests and fingerprints.
            "made": {"committed": utc_now(), "versions": package_versions()},
        }
        write_record(self.path, stage, record)

    def _write(self, name: str, values: NDArray[Any]) -> ArrayDigest:
        dimensions, symbol, meaning = VARIABLES[name]
        attributes = {"long_name": meaning, **({"symbol": symbol} if symbol else {})}
        return write_array(self.path, name, values, dimensions, attributes)

    def array_digest(self, name: str) -> ArrayDigest:
        """Digest of a final array, as committed; ``StoreError`` if its stage is not complete."""
        for stage in ("words", *self.stages):
            record = self.outcome(stage)
            if record and name in record["arrays"]:
                return ArrayDigest.from_fields(record["arrays"][name])
        raise StoreError(f"{self.path}: {name} is not committed; run the same scan again to finish it")

    def read(self, name: str) -> NDArray[Any]:
        """Read a final array, verified against its digest; ``StoreError`` names what is damaged."""
        return read_array(self.path, name, self.array_digest(name), remedy=repair_remedy(self.path))

    def digests(self, *, without: Sequence[str] = ()) -> dict[str, str]:
        """sha256 of every committed array, by name, but for the arrays of some stages."""
        records = [self.outcome(stage) for stage in ("words", *self.stages) if stage not in without]
        return {
            name: str(fields["sha256"])
            for record in records
            if record
            for name, fields in record["arrays"].items()
        }

    def discard(self) -> None:
        """Delete the store."""
        remove_store(self.path)


def create_store(path: StorePath, manifest: Mapping[str, Any], words: Sequence[str]) -> MomentsStore:
    """Make a new store; it appears with its manifest and vocabulary at once."""
    with store_written(path) as beside:
        write_empty_store(beside, manifest, words)
    return MomentsStore(path, manifest)


def write_empty_store(path: StorePath, manifest: Mapping[str, Any], words: Sequence[str]) -> MomentsStore:
    """Write vocabulary and manifest into an empty directory; the root comes last, since it makes this a store."""
    for part in (PARTIALS, RECORDS):
        create_group(path / part, {})
    made = MomentsStore(path, manifest)
    made.commit_stage("words", {"word": np.array(words, dtype=object)}, {})
    create_group(path, _attributes(manifest))
    return made


def replace_manifest(store: MomentsStore, manifest: Mapping[str, Any]) -> MomentsStore:
    """Give a store another manifest, in one step; stages that cover another state become missing."""
    root = {"zarr_format": 3, "node_type": "group", "attributes": _attributes(manifest)}
    write_json(store.path / "zarr.json", root)
    return MomentsStore(store.path, manifest)


def _attributes(manifest: Mapping[str, Any]) -> dict[str, Any]:
    return {"kind": KIND, "manifest": dict(manifest), "manifest_sha256": fingerprint(manifest)}


def words_digest(words: Sequence[str]) -> str:
    """sha256 of a vocabulary, as its array in a store has it."""
    return digest(np.array(words, dtype=object)).sha256


def resume_store(path: StorePath, manifest: Mapping[str, Any]) -> MomentsStore | None:
    """Return the store at ``path``, complete or not; None if nothing is there.

    Raises
    ------
    SettingsMismatchError
        If it was made with other settings or from another corpus: with both fingerprints and what differs.
    InputError
        If something else lies at ``path``.
    StoreError
        If the store is damaged.
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

    Raises
    ------
    InputError
        If there is none, or one of an unknown format version.
    StoreError
        If its metadata are damaged.
    """
    if not node_exists(path):
        _refuse_lost_root(path)
        raise InputError(f"{path}: no moments store is here; make one with streaming-jsmf scan CORPUS {path}")
    attributes = read_attributes(path)
    if attributes.get("kind") != KIND:
        raise InputError(f"{path}: this is not a moments store; give another path")
    manifest = attributes.get("manifest")
    if not isinstance(manifest, dict) or "format_version" not in manifest:
        raise StoreError(
            f"{path}/zarr.json: the manifest is missing or damaged; delete the store and scan again"
        )
    if manifest["format_version"] != FORMAT_VERSION:
        raise InputError(
            f"{path}: format version {manifest['format_version']} is unknown; this release reads {FORMAT_VERSION}"
        )
    missing = MANIFEST_KEYS - manifest.keys()
    if missing:
        raise StoreError(
            f"{path}/zarr.json: the manifest lacks {', '.join(sorted(missing))}; delete the store and scan again"
        )
    if attributes.get("manifest_sha256") != fingerprint(manifest):
        raise StoreError(
            f"{path}/zarr.json: the manifest differs from its sha256; delete the store and scan again"
        )
    return MomentsStore(path, manifest)


def _refuse_lost_root(path: StorePath) -> None:
    """A store without its root is not free for another; and what it was made of stood there alone."""
    if isinstance(path, Path) and (path / RECORDS).exists() and (path / PARTIALS).exists():
        raise StoreError(
            f"{path}/zarr.json is missing, and with it what the store was made of; put it back from a copy, or delete "
            "the store and scan again"
        )


def _require_same(store: MomentsStore, wanted: Mapping[str, Any]) -> None:
    stored = store.manifest
    # A third moment more or less makes no other store: it is added, or there.
    if range_fingerprint(stored) != range_fingerprint(wanted):
        ours, asked_for = ({**m["settings"], "third_moment": None} for m in (stored, wanted))
        detail = differences(ours, asked_for) or "algorithm version"
        raise SettingsMismatchError(
            f"{store.path}: made with another settings ({detail}; fingerprint stored "
            f"{range_fingerprint(stored)[:12]}, asked {range_fingerprint(wanted)[:12]}); give another "
            "path or delete it"
        )
    asked = wanted["corpora"][0]
    if all(entry["fingerprint"] != asked["fingerprint"] for entry in stored["corpora"]):
        raise SettingsMismatchError(
            f"{store.path}: made with another corpus ({', '.join(e['path'] for e in stored['corpora'])}; "
            f"fingerprint stored {stored['corpora'][0]['fingerprint'][:12]}, asked {asked['fingerprint'][:12]}); "
            "give another path or delete it, or add the corpus with --add"
        )
    if wanted["keep_partitions"] and not stored["keep_partitions"]:
        raise SettingsMismatchError(
            f"{store.path}: was begun without --keep-partitions; scan into another path to have them kept"
        )
