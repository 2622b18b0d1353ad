"""What is in a store: damage to its records and arrays, what is left over, and how it was made.

``moments.run`` recomputes what is damaged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any

from streaming_jsmf.errors import StoreError
from streaming_jsmf.jobs.checkpoints import PACKED, PARTIALS, RECORDS, Checkpoints, Committed, Kind
from streaming_jsmf.jobs.events import Cost
from streaming_jsmf.jobs.order import FoldOrder
from streaming_jsmf.moments.manifest import WORD_IDS
from streaming_jsmf.moments.store import WORDS, Moments
from streaming_jsmf.storage.arrays import read_attributes
from streaming_jsmf.storage.lock import is_left
from streaming_jsmf.storage.paths import ROOT, StorePath, child_names, remove_single, remove_trees


def require_intact(store: Moments) -> None:
    """Read all committed results of a store. Raises ``StoreError`` if one is damaged; the message says what to do."""
    for error in damage(store):
        raise error


def damage(store: Moments) -> Iterator[StoreError]:
    """Yield the errors of all damaged results: final arrays, and the folds and parts that a complete store keeps."""
    yield from damage_of_groups(store).values()
    yield from damage_of_outcome(store, WORDS)
    yield from damage_of_word_ids(store).values()
    for stage in store.stages:
        yield from damage_of_outcome(store, stage.name)
    for checkpoints, order in _kept_scans(store) if store.is_complete() else ():
        yield from damage_of_scan(checkpoints, order, finished=True).values()


def damage_of_outcome(store: Moments, stage: str) -> Iterator[StoreError]:
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
        yield StoreError(f"{store.path}/{RECORDS}/{WORDS} is missing; {store.hint}")


def damage_of_word_ids(store: Moments) -> Mapping[int, StoreError]:
    """Damage to the word ids of each corpus, by corpus index."""
    return _errors({n: partial(store.word_ids, entry) for n, entry in enumerate(store.manifest.corpora)})


def damage_of_groups(store: Moments) -> Mapping[StorePath, StoreError]:
    """Damage to the Zarr metadata of the group directories, which other Zarr readers need."""
    places = (store.path / PARTIALS, store.path / RECORDS)
    return _errors({place: partial(read_attributes, place, hint=store.hint) for place in places})


def _errors(reads: Mapping[Any, Callable[[], object]]) -> dict[Any, StoreError]:
    """The errors of those functions that raise one."""
    found = {}
    for key, read in reads.items():
        try:
            read()
        except StoreError as error:
            found[key] = error
    return found


def damage_of_scan(
    checkpoints: Checkpoints, order: FoldOrder, *, finished: bool
) -> dict[tuple[Kind, str], StoreError]:
    """Damage to parts and folds of a scan, by kind and key. Reads the arrays of those that are needed, one at a time.

    ``finished``: whether the stage is complete, so that the last fold and all kept parts must exist. Otherwise only
    folds and parts that are not folded are needed.
    """
    keys, (parts, folds) = order.keys, checkpoints.committed()
    damaged = _damaged(checkpoints, "fold", folds)
    if finished and order.total not in folds:
        damaged["fold", order.total] = _missing(checkpoints, "the last fold")
    intact = {key for key in folds if ("fold", key) not in damaged}
    folded = {keys[number] for number in order.covered(intact)}
    kept = folded if checkpoints.keep and finished else set()
    # Only the record remains of parts that are folded and not kept, and of parts of an earlier state.
    needed = set(keys) - folded | kept
    damaged |= _damaged(checkpoints, "part", parts & needed)
    damaged |= _damaged(checkpoints, "part", parts - needed, arrays=False)
    for key in sorted(kept - parts):
        damaged["part", key] = _missing(checkpoints, f"the kept part {key}")
    return damaged


def _damaged(
    checkpoints: Checkpoints, kind: Kind, keys: frozenset[str], *, arrays: bool = True
) -> dict[tuple[Kind, str], StoreError]:
    errors = _errors(
        {(kind, key): partial(checkpoints.verify, kind, key, arrays=arrays) for key in sorted(keys)}
    )
    # A worker of an earlier run may still be folding; a result that it has just removed is not damaged.
    committed = checkpoints.committed() if errors else Committed()
    still = committed.parts if kind == "part" else committed.folds
    return {found: error for found, error in errors.items() if found[1] in still}


def _missing(checkpoints: Checkpoints, what: str) -> StoreError:
    return StoreError(f"{checkpoints.store}: the record of {what} is missing; {checkpoints.hint}")


def _kept_scans(store: Moments) -> Iterator[tuple[Checkpoints, FoldOrder]]:
    """The scans whose last folds, and parts if they are kept, are in a complete store."""
    for stage in store.stages:
        for _, order in stage.scans(store) if stage.keeps_fold(store.settings) else ():
            yield store.checkpoints(stage.name), order


def leftovers(store: Moments) -> list[StorePath]:
    """Paths in a complete store that are not part of it: partial results and results of earlier states.

    The parts of scan 1 and the last folds are kept; see ``Stage``. Lists three directories.
    """
    kept, attempts = dict[str, str](), child_names(store.path / PARTIALS)
    for checkpoints, order in _kept_scans(store):
        kept |= checkpoints.kept(order.total, order.keys, attempts)
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


def remove_leftovers(store: Moments) -> None:
    """Remove the ``leftovers``. This is the last step of every change; a run after a kill repeats it."""
    found = leftovers(store)
    for group, file in ((RECORDS, ROOT), (PARTIALS, PACKED)):
        remove_single(file, *(path for path in found if path.parent.name == group))
    remove_trees(*(path for path in found if path.parent == store.path))


def is_cleared(store: Moments) -> bool:
    """Whether a store is complete, without leftovers, and not locked by a running or killed process."""
    try:
        return store.is_complete() and not (is_left(store.path) or leftovers(store))
    except StoreError:
        return False


def provenance(store: Moments) -> dict[str, Any]:
    """Times, package versions and cost of a store, complete or not; unknown entries are omitted.

    ``started`` and ``finished`` (complete stores only) are UTC times and may span several runs. ``task_seconds``
    is summed over workers. ``peak_memory`` is the largest of any worker, in bytes. ``versions`` lists the package
    versions of all runs. Reads only small records. Raises ``StoreError`` if a record is damaged.
    """
    records = [record for name in store.record_names if (record := store.outcome(name))]
    notes = [note for record in records for note in record["history"]]
    for stage in store.missing_stages:
        checkpoints = store.checkpoints(stage)
        committed = checkpoints.committed().parts
        notes += checkpoints.history(sorted(committed), committed)
    costs = [cost for cost in map(Cost.from_fields, notes) if cost is not None]
    found: dict[str, Any] = {}
    if records:
        made = [record["made"] for record in records]
        found["started"] = made[0]["committed"]
        if not store.missing_stages:
            found["finished"] = made[-1]["committed"]
        found["versions"] = _versions([entry["versions"] for entry in made])
    if costs:
        found["task_seconds"] = round(sum(cost.seconds for cost in costs), 3)
        found["peak_memory"] = max(cost.peak_memory for cost in costs)
    return found


def _versions(seen: list[dict[str, str]]) -> dict[str, str]:
    packages = dict.fromkeys(package for versions in seen for package in versions)
    return {
        package: ", ".join(dict.fromkeys(versions[package] for versions in seen if package in versions))
        for package in packages
    }
