"""What is in a store: damage to its records and arrays, what is left over, and how it was made.

``discard_damage`` removes what is damaged, so that ``run_stages`` computes it again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from streaming_jsmf.errors import StoreError, finding
from streaming_jsmf.jobs.checkpoints import (
    PACKED,
    PARTIALS,
    RECORDS,
    Checkpoints,
    Committed,
    Kind,
    forget_record,
    read_record,
)
from streaming_jsmf.jobs.events import Cost
from streaming_jsmf.jobs.order import FoldOrder
from streaming_jsmf.moments.records import STAGES, SUMS, WORDS, Records
from streaming_jsmf.storage.arrays import ArrayDigest, read_array, read_attributes, replace_attributes
from streaming_jsmf.storage.lock import is_left
from streaming_jsmf.storage.paths import ROOT, StorePath, child_names, remove_single

logger = logging.getLogger(__name__)

#: Stages of earlier formats that ``migrate`` has joined with others.
RETIRED = ("range", "basis", "directions", "eigenpairs")


def require_intact(store: Records) -> None:
    """Read all committed results of a store. Raises ``StoreError`` if one is damaged; the message says what to do."""
    for error in damage(store):
        raise error


def damage(store: Records) -> Iterator[StoreError]:
    """Yield the errors of all damaged results: groups, final arrays, and the parts that a store keeps."""
    for place in _groups(store):
        yield from _errors([partial(read_attributes, place, hint=store.hint)])
    for name in store.record_names:
        yield from damage_of_record(store, name)
    yield from damage_of_kept_parts(store)


def _groups(store: Records) -> tuple[StorePath, ...]:
    return store.path / PARTIALS, store.path / RECORDS


def damage_of_record(store: Records, name: str) -> Iterator[StoreError]:
    """Yield the first error of the record of a stage or of the vocabulary, and of its arrays, if any.

    A missing stage is not damaged, but a missing vocabulary is.
    """

    def read() -> None:
        record = _committed(store, name)
        if record is None and name == WORDS:
            raise StoreError(f"{store.path}/{RECORDS}/{WORDS} is missing; {store.hint}")
        for array, fields in record["arrays"].items() if record else ():
            digest = ArrayDigest.from_fields(fields)
            store.once(array, partial(read_array, store.path, array, digest, hint=store.hint))

    yield from _errors([read])


def damage_of_kept_parts(store: Records) -> Iterator[StoreError]:
    """Yield the errors of the parts of pass 1 that a store with its sums keeps, one part in memory at a time."""
    checkpoints, found = store.checkpoints(SUMS), None
    with suppress(StoreError):  # of the record itself
        found = _committed(store, SUMS)
    if checkpoints.keep and found is not None:
        yield from _errors(partial(checkpoints.verify, "part", key) for key in store.manifest.part_keys)


def _committed(store: Records, name: str) -> dict[str, Any] | None:
    """The record of this name, or None if it is missing or that of an earlier state."""
    record = read_record(store.path, name, store.hint)
    return record if record is not None and record.get("covers") == store.covers(name) else None


def _errors(reads: Iterable[Callable[[], object]]) -> Iterator[StoreError]:
    """The errors of those functions that raise one."""
    for read in reads:
        try:
            read()
        except StoreError as error:
            yield error


def discard_damage(store: Records) -> None:
    """Remove the records of stages whose arrays or kept parts are damaged. Reads everything that is committed once."""
    for place in _groups(store):
        for error in _errors([partial(read_attributes, place, hint=store.hint)]):
            _warn(error, "is written again")
            place.mkdir(exist_ok=True)
            replace_attributes(place, {})
    for name in store.record_names:
        found = damage_of_record(store, name)
        for error in [*found, *(damage_of_kept_parts(store) if name == SUMS else ())]:
            _warn(error, "is computed again")
            forget_record(store.path, name)


def discard_damaged_partials(checkpoints: Checkpoints, order: FoldOrder) -> Committed:
    """Remove the partial results of an unfinished stage if one is damaged; of kept parts, only the damaged ones.

    Returns what is committed then.
    """
    parts, folds = listed = checkpoints.committed()
    known = [key for key in folds if order.covered([key])]
    folded = {order.keys[number] for number in order.covered(known)}
    damaged = list[tuple[Kind, str]]()
    made = [key for key in order.keys if key in parts]
    checked: list[tuple[Kind, str]] = [*(("fold", key) for key in known), *(("part", key) for key in made)]
    for kind, key in checked:
        # Of parts that are folded and not kept, only the record remains.
        arrays = checkpoints.keep or kind == "fold" or key not in folded
        for error in _errors([partial(checkpoints.verify, kind, key, arrays=arrays)]):
            _warn(error, "is computed again")
            damaged.append((kind, key))
    if damaged and not checkpoints.keep:
        checkpoints.clear()
    elif checkpoints.keep and (damaged or not folded <= parts):
        for key in known:
            checkpoints.drop("fold", key)
        for kind, key in damaged:
            checkpoints.drop(kind, key)
    else:
        return listed
    return checkpoints.committed()


def _warn(error: StoreError, what: str) -> None:
    logger.warning("repair: %s; %s", finding(error), what)


def leftovers(store: Records) -> list[StorePath]:
    """Paths in a complete store that are not part of it: partial results and results of earlier states.

    The parts of pass 1 are kept if they hold documents. Lists two directories.
    """
    checkpoints = store.checkpoints(SUMS)
    kept = checkpoints.attempts(store.manifest.part_keys) if checkpoints.keep else {}
    made = tuple(f"{stage}-{kind}-" for stage in (*STAGES, *RETIRED) for kind in ("part", "fold", "inputs"))
    return [
        store.path / group / name
        for group, staying in ((RECORDS, kept.keys()), (PARTIALS, kept.values()))
        for name in child_names(store.path / group)
        if (name.startswith(made) or name in RETIRED) and name not in staying
    ]


def remove_leftovers(store: Records) -> None:
    """Remove the ``leftovers``. This is the last step of every scan; a run after a kill repeats it."""
    found = leftovers(store)
    for group, file in ((RECORDS, ROOT), (PARTIALS, PACKED)):
        remove_single(file, *(path for path in found if path.parent.name == group))


def is_cleared(store: Records) -> bool:
    """Whether a store is complete, without leftovers, and not locked by a running or killed process."""
    try:
        return not (store.missing_stages or is_left(store.path) or leftovers(store))
    except StoreError:
        return False


def provenance(store: Records) -> dict[str, Any]:
    """Times, package versions and cost of a store, complete or not; unknown entries are omitted.

    ``started`` and ``finished`` (complete stores only) are UTC times and may span several runs. ``task_seconds``
    is summed over workers. ``peak_memory`` is the largest of any worker, in bytes. ``versions`` lists the package
    versions of all runs. Reads only small records. Raises ``StoreError`` if a record is damaged.
    """
    records = [*store.outcomes.values()]
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
