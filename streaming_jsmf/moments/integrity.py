"""Finds damage to the committed records and arrays of a store; ``moments.run`` recomputes what is damaged."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial

from streaming_jsmf.errors import StoreError
from streaming_jsmf.jobs.checkpoints import PARTIALS, RECORDS, Checkpoints, Kind
from streaming_jsmf.moments.store import WORDS, Scan, Store, repair_hint
from streaming_jsmf.storage.arrays import read_attributes
from streaming_jsmf.storage.paths import StorePath


def require_intact(store: Store) -> None:
    """Read all committed results of a store. Raises ``StoreError`` if one is damaged; the message says what to do."""
    for error in damage(store):
        raise error


def damage(store: Store) -> Iterator[StoreError]:
    """Yield the errors of all damaged results: final arrays, and the folds and parts that a complete store keeps."""
    yield from damage_of_groups(store).values()
    yield from damage_of_outcome(store, WORDS)
    yield from damage_of_word_ids(store).values()
    for stage in store.stages:
        yield from damage_of_outcome(store, stage.name)
    for stage in store.stages if store.is_complete() else ():
        for scan in stage.scans(store) if stage.keeps_fold(store.settings) else ():
            yield from damage_of_scan(store.checkpoints(stage.name), scan, finished=True).values()


def damage_of_outcome(store: Store, stage: str) -> Iterator[StoreError]:
    """Yield the first error of a finished stage or the vocabulary, if any. Reads its arrays as ``store`` does.

    A missing stage is not damaged, but a missing vocabulary is.
    """
    try:
        record = store.outcome(stage)
        for name in record["arrays"] if record else ():
            store.read(name)
    except StoreError as error:
        yield error
        return
    if record is None and stage == WORDS:
        yield StoreError(f"{store.path}/{RECORDS}/{WORDS} is missing; {repair_hint(store.path)}")


def damage_of_word_ids(store: Store) -> Mapping[int, StoreError]:
    """Damage to the word ids of each corpus, by corpus index."""
    errors = {
        number: _error_of(partial(store.word_ids, entry))
        for number, entry in enumerate(store.manifest.corpora)
    }
    return {number: error for number, error in errors.items() if error is not None}


def damage_of_groups(store: Store) -> Mapping[StorePath, StoreError]:
    """Damage to the Zarr metadata of the group directories, which other Zarr readers need."""
    hint, places = repair_hint(store.path), (store.path / PARTIALS, store.path / RECORDS)
    errors = {place: _error_of(partial(read_attributes, place, hint=hint)) for place in places}
    return {place: error for place, error in errors.items() if error is not None}


def damage_of_scan(
    checkpoints: Checkpoints, scan: Scan, *, finished: bool
) -> dict[tuple[Kind, str], StoreError]:
    """Damage to parts and folds of a scan, by kind and key. Reads the arrays of those that are needed, one at a time.

    ``finished``: whether the stage is complete, so that the last fold and all kept parts must exist. Otherwise only
    folds and parts that are not folded are needed.
    """
    keys, folds, parts = scan.keys, checkpoints.folds(), checkpoints.parts()
    damaged = _damaged(checkpoints, "fold", folds)
    if finished and scan.order.total not in folds:
        damaged["fold", scan.order.total] = _missing(checkpoints.store, "the last fold")
    folded = {keys[number] for number in scan.order.covered(intact(folds, "fold", damaged))}
    kept = folded if checkpoints.keep and finished else set()
    # Only the record remains of parts that are folded and not kept, and of parts of an earlier state.
    needed = set(keys) - folded | kept
    damaged |= _damaged(checkpoints, "part", parts & needed)
    damaged |= _damaged(checkpoints, "part", parts - needed, arrays=False)
    for key in sorted(kept - parts):
        damaged["part", key] = _missing(checkpoints.store, f"the kept part {key}")
    return damaged


def intact(keys: frozenset[str], kind: Kind, damaged: Collection[tuple[Kind, str]]) -> set[str]:
    """The keys of parts or folds without those that are damaged."""
    return {key for key in keys if (kind, key) not in damaged}


def _damaged(
    checkpoints: Checkpoints, kind: Kind, keys: frozenset[str], *, arrays: bool = True
) -> dict[tuple[Kind, str], StoreError]:
    found = {key: checkpoints.damage(kind, key, arrays=arrays) for key in sorted(keys)}
    # A worker of an earlier run may still be folding; a result that it has just removed is not damaged.
    still = checkpoints.parts() if kind == "part" else checkpoints.folds()
    return {(kind, key): error for key, error in found.items() if error is not None and key in still}


def _missing(store: StorePath, what: str) -> StoreError:
    return StoreError(f"{store}: the record of {what} is missing; {repair_hint(store)}")


def _error_of(read: Callable[[], object]) -> StoreError | None:
    try:
        read()
    except StoreError as error:
        return error
    return None
