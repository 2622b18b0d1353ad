"""Writes a moments store: its manifest, the records that commit final arrays, and the removal of leftovers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.errors import InputError, SettingsMismatchError, StoreError
from streaming_jsmf.fingerprint import differences
from streaming_jsmf.jobs.checkpoints import PARTIALS, RECORDS, forget_record, write_record
from streaming_jsmf.moments.manifest import Manifest, WordIds, refuse_lost_root, root_attributes
from streaming_jsmf.moments.reader import WORDS, Moments, read_store, variables_of
from streaming_jsmf.moments.stages.base import Variable
from streaming_jsmf.storage.arrays import ArrayDigest, create_group, digest, replace_attributes, write_array
from streaming_jsmf.storage.lock import is_left
from streaming_jsmf.storage.paths import (
    StorePath,
    child_names,
    is_free,
    node_exists,
    remove_trees,
)
from streaming_jsmf.storage.provenance import package_versions, utc_now
from streaming_jsmf.storage.replace import store_written

#: Name prefix of the arrays that map the words of a corpus to ids in the store.
WORD_IDS = "columns-"


def create_store(path: StorePath, manifest: Manifest, words: Sequence[str]) -> Moments:
    """Create a store with its manifest and vocabulary, atomically."""
    with store_written(path) as beside:
        write_empty_store(beside, manifest, words)
    return Moments(path, manifest)


def write_empty_store(path: StorePath, manifest: Manifest, words: Sequence[str]) -> Moments:
    """Write vocabulary and manifest into an empty directory. The root group is written last and completes the store."""
    for part in (PARTIALS, RECORDS):
        create_group(path / part, {})
    made = Moments(path, manifest)
    commit_stage(made, WORDS, {"word": np.array(words, dtype=object)}, {})
    create_group(path, root_attributes(manifest))
    return made


def replace_manifest(store: Moments, manifest: Manifest) -> Moments:
    """Replace the manifest of a store atomically. Stages that cover another state become missing."""
    replace_attributes(store.path, root_attributes(manifest))
    return Moments(store.path, manifest)


def words_digest(words: Sequence[str]) -> str:
    """sha256 of a vocabulary, equal to the digest of its array in a store."""
    return digest(np.array(words, dtype=object)).sha256


def resume_store(path: StorePath, manifest: Manifest) -> Moments | None:
    """Return the store at ``path``, complete or not, or None if the path is free.

    Raises ``SettingsMismatchError`` if the store has other settings or another corpus, ``InputError`` if something
    else exists at ``path``, and ``StoreError`` if the store is damaged.
    """
    if is_free(path):
        return None
    if not node_exists(path):
        refuse_lost_root(path)
        raise InputError(f"{path}: exists and is not a moments store; give a path that is free")
    store = read_store(path)
    _require_same(store, manifest)
    return store


def _require_same(store: Moments, wanted: Manifest) -> None:
    stored = store.manifest
    # The third moment does not count as a difference: it can be added later.
    if stored.range_key != wanted.range_key:
        ours, asked_for = ({**m.settings, "third_moment": None} for m in (stored, wanted))
        detail = differences(ours, asked_for) or "algorithm version"
        raise SettingsMismatchError(
            f"{store.path}: made with other settings ({detail}; fingerprint stored {stored.range_key[:12]}, "
            f"asked {wanted.range_key[:12]}); give another path, or --overwrite to replace the store"
        )
    asked = wanted.corpora[0]
    if all(entry.fingerprint != asked.fingerprint for entry in stored.corpora):
        raise SettingsMismatchError(
            f"{store.path}: made with another corpus ({', '.join(stored.paths)}; "
            f"fingerprint stored {stored.corpora[0].fingerprint[:12]}, asked {asked.fingerprint[:12]}); "
            "give another path, --overwrite to replace the store, or --add to add the corpus to it"
        )
    if wanted.keep_partitions and not stored.keep_partitions:
        raise SettingsMismatchError(
            f"{store.path}: was begun without --keep-partitions; scan into another path to have them kept, or "
            "--overwrite to replace the store"
        )


def commit_stage(
    store: Moments,
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
    if store.has_outcome(stage):
        known = store.outcome(stage)
        assert known is not None
        history = max(history, known["history"], key=len)
    else:
        forget_record(store.path, stage)
    variables = variables_of(stage)
    digests = {name: _write(store, name, variables[name], a).fields() for name, a in arrays.items()}
    record = {
        "covers": store.covers(stage),
        "arrays": digests,
        "scalars": dict(scalars),
        "history": list(history),
        # Differs between runs, so it must not enter any digest or fingerprint.
        "made": {"committed": utc_now(), "versions": package_versions()},
    }
    write_record(store.path, stage, record)


def _write(store: Moments, name: str, variable: Variable, values: NDArray[Any]) -> ArrayDigest:
    symbol = {"symbol": variable.symbol} if variable.symbol else {}
    attributes = {"long_name": variable.meaning, **symbol}
    return write_array(store.path, name, values, variable.dimensions, attributes)


def leftovers(store: Moments) -> list[StorePath]:
    """Paths in a complete store that are not part of it: partial results and results of earlier states.

    The last fold of scan 1 is kept, and so are the parts in the manifest if the store keeps its partitions. A
    store with a sample also keeps the last fold of each sum. Lists three directories.
    """
    kept: dict[str, str] = {}
    for stage in store.stages:
        for scan in stage.scans(store) if stage.keeps_fold(store.settings) else ():
            kept |= store.checkpoints(stage.name).kept(scan.order.total, scan.keys)
    ids = {entry.word_ids.name for entry in store.manifest.corpora if entry.word_ids is not None}
    made = tuple(f"{stage.name}-{kind}-" for stage in store.stages for kind in ("part", "fold"))
    staying: tuple[tuple[StorePath, tuple[str, ...], Collection[str]], ...] = (
        (store.path / RECORDS, made, kept.keys()),
        (store.path / PARTIALS, made, kept.values()),
        (store.path, (WORD_IDS,), ids),
    )
    return [
        group / name
        for group, prefixes, names in staying
        for name in child_names(group)
        if name.startswith(prefixes) and name not in names
    ]


def is_cleared(store: Moments) -> bool:
    """Whether the store is complete, without leftovers, and not locked by a running or killed process."""
    try:
        return store.is_complete() and not (is_left(store.path) or leftovers(store))
    except StoreError:
        return False


def remove_leftovers(store: Moments) -> None:
    """Remove the ``leftovers``. This is the last step of every change; a run after a kill repeats it."""
    remove_trees(*leftovers(store))


def describe_word_ids(ids: NDArray[np.int64]) -> WordIds:
    """The manifest entry of an array of ids; its name is derived from its values."""
    sha256 = digest(ids).sha256
    return WordIds(name=f"{WORD_IDS}{sha256[:16]}", sha256=sha256, n_words=len(ids))


def write_word_ids(path: StorePath, arrays: Sequence[NDArray[np.int64] | None]) -> None:
    """Write arrays for ``Moments.word_ids`` into the store at ``path``; None entries are skipped."""
    for ids in arrays:
        if ids is not None:
            # Corpora have different numbers of words, and xarray requires one length per dimension name.
            name = describe_word_ids(ids).name
            write_array(path, name, ids, [f"{name}-word"])
