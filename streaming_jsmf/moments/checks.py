"""Is what a store has committed still there and as it was written? Every record and array is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from streaming_jsmf.errors import StoreError
from streaming_jsmf.jobs.ledger import Ledger
from streaming_jsmf.jobs.records import PARTIALS, RECORDS
from streaming_jsmf.moments.columns import read_columns
from streaming_jsmf.moments.remedy import repair_remedy
from streaming_jsmf.moments.store import MomentsStore
from streaming_jsmf.storage.arrays import ArrayDigest, read_array, read_attributes
from streaming_jsmf.storage.paths import StorePath


@dataclass(frozen=True)
class OutcomeDamage:
    """What is wrong with a finished stage; ``in_record`` if its digests and scalars are lost too."""

    error: StoreError
    in_record: bool


@dataclass(frozen=True)
class LedgerDamage:
    """What is wrong with the results on their way into a stage's final arrays.

    Attributes
    ----------
    folds, parts
        Errors by key.
    folded
        How many leading parts the longest sound fold holds.
    """

    folds: Mapping[str, StoreError]
    parts: Mapping[str, StoreError]
    folded: int


def damage_of_outcome(store: MomentsStore, stage: str) -> OutcomeDamage | None:
    """What is wrong with a finished stage, if anything. Reads its arrays, one at a time."""
    try:
        record = store.outcome(stage)
    except StoreError as error:
        return OutcomeDamage(error, in_record=True)
    remedy = repair_remedy(store.path)
    for name, fields in record["arrays"].items() if record else ():
        read = partial(read_array, store.path, name, ArrayDigest.from_fields(fields), remedy=remedy)
        damage = _raised(read)
        if damage is not None:
            return OutcomeDamage(damage, in_record=False)
    return None


def damage_of_words(store: MomentsStore) -> StoreError | None:
    """What is wrong with the vocabulary, if anything; a store is made with it, so it may not be missing."""
    found = damage_of_outcome(store, "words")
    if found is not None:
        return found.error
    if store.outcome("words") is None:
        return StoreError(f"{store.path}/{RECORDS}/words is missing; {repair_remedy(store.path)}")
    return None


def damage_of_columns(store: MomentsStore) -> Mapping[int, StoreError]:
    """What is wrong with the places of the words of each corpus, by its number."""
    errors = {
        number: _raised(partial(read_columns, store, entry))
        for number, entry in enumerate(store.manifest["corpora"])
    }
    return {number: error for number, error in errors.items() if error is not None}


def damage_of_groups(store: MomentsStore) -> Mapping[StorePath, StoreError]:
    """Directories whose own Zarr metadata are damaged: they say that these are groups, for other readers of Zarr."""
    errors = {
        place: _raised(partial(read_attributes, place))
        for place in (store.path / PARTIALS, store.path / RECORDS)
    }
    remedy = repair_remedy(store.path)
    return {
        place: StoreError(f"{place}/zarr.json: metadata are damaged; {remedy}")
        for place, error in errors.items()
        if error is not None
    }


def damage_of_ledger(
    ledger: Ledger, keys: Sequence[str], folds: Sequence[str], *, finished: bool
) -> LedgerDamage:
    """What is wrong with parts and folds of a stage. Reads all their arrays, one result at a time.

    Parameters
    ----------
    keys, folds
        Of all parts, in order.
    finished
        Whether the stage is committed, so that the last fold must be there.
    """
    there = ledger.folds()
    bad_folds = _damages(ledger, "fold", there)
    if finished and folds[-1] not in there:
        bad_folds[folds[-1]] = _missing(ledger, "the last fold")
    sound = there - bad_folds.keys()
    folded = max((i + 1 for i, key in enumerate(folds) if key in sound), default=0)
    parts, done = ledger.parts(), set() if ledger.keep else set(keys[:folded])
    # Of a part that is folded and not kept the record alone is left; so it is with parts of an earlier state.
    bad_parts = _damages(ledger, "part", parts & (set(keys) - done))
    bad_parts |= _damages(ledger, "part", parts - (set(keys) - done), arrays=False)
    if ledger.keep:
        for key in keys[:folded]:
            if key not in parts:
                bad_parts[key] = _missing(ledger, f"the kept part {key}")
    return LedgerDamage(bad_folds, bad_parts, folded)


def require_sound(store: MomentsStore) -> None:
    """Read all that is committed for good: of a complete store everything, of one on its way the finished stages.

    Raises
    ------
    StoreError
        If something is damaged: names it, and says how to mend it.
    """
    for error in _errors(store):
        if error is not None:
            raise error


def _errors(store: MomentsStore) -> Iterator[StoreError | None]:
    yield from damage_of_groups(store).values()
    yield damage_of_words(store)
    yield from damage_of_columns(store).values()
    for stage in store.stages:
        found = damage_of_outcome(store, stage)
        yield None if found is None else found.error
    if not store.missing_stages:
        ledger = damage_of_ledger(store.ledger("range"), store.part_keys, store.folds, finished=True)
        yield from (*ledger.folds.values(), *ledger.parts.values())


def _damages(
    ledger: Ledger, kind: str, keys: frozenset[str] | set[str], *, arrays: bool = True
) -> dict[str, StoreError]:
    found = {key: ledger.damage(kind, key, arrays=arrays) for key in sorted(keys)}
    # A worker of an earlier run may still fold: what it takes away is not damaged.
    still = ledger.parts() if kind == "part" else ledger.folds()
    return {key: error for key, error in found.items() if error is not None and key in still}


def _missing(ledger: Ledger, what: str) -> StoreError:
    return StoreError(f"{ledger.store}: the record of {what} is missing; {repair_remedy(ledger.store)}")


def _raised(read: Callable[[], object]) -> StoreError | None:
    try:
        read()
    except StoreError as error:
        return error
    return None
