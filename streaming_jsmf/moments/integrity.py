"""Verifies every committed record and array of a store, and repairs damage so that the result has the same bits.

A repair discards damaged results stage by stage and recomputes them from intact results, or from the corpora.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import compress

import numpy as np

from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.corpus.units import partition_part
from streaming_jsmf.errors import StoreError, finding
from streaming_jsmf.jobs.checkpoints import PARTIALS, RECORDS, Checkpoints, forget_record
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution, Executor
from streaming_jsmf.jobs.run import Job
from streaming_jsmf.moments.memory import require_scan_memory
from streaming_jsmf.moments.partition import load_partitions, partitions_of
from streaming_jsmf.moments.run import run_stage_of
from streaming_jsmf.moments.stages.base import Scan, Stage, repair_hint
from streaming_jsmf.moments.store import WORDS, MomentsStore, read_store, words_digest
from streaming_jsmf.moments.word_ids import read_word_ids, write_word_ids
from streaming_jsmf.storage.arrays import ArrayDigest, read_array, read_attributes
from streaming_jsmf.storage.lock import sole_writer
from streaming_jsmf.storage.paths import StorePath, write_json

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class OutcomeDamage:
    """Damage to a finished stage; ``in_record`` if its digests and scalars are lost too."""

    error: StoreError
    in_record: bool


@dataclass(frozen=True)
class DamagedResults:
    """Damage to the parts and folds of a stage: errors by key, and the keys of intact folds."""

    folds: Mapping[str, StoreError]
    parts: Mapping[str, StoreError]
    intact: frozenset[str]


def damage_of_outcome(store: MomentsStore, stage: str) -> OutcomeDamage | None:
    """Return the damage to a finished stage, or None. Reads its arrays one at a time."""
    try:
        record = store.outcome(stage)
    except StoreError as error:
        return OutcomeDamage(error, in_record=True)
    hint = repair_hint(store.path)
    for name, fields in record["arrays"].items() if record else ():
        read = partial(read_array, store.path, name, ArrayDigest.from_fields(fields), hint=hint)
        damage = _error_of(read)
        if damage is not None:
            return OutcomeDamage(damage, in_record=False)
    return None


def damage_of_words(store: MomentsStore) -> StoreError | None:
    """Return the damage to the vocabulary, or None. A missing vocabulary counts as damage."""
    found = damage_of_outcome(store, WORDS)
    if found is not None:
        return found.error
    if store.outcome(WORDS) is None:
        return StoreError(f"{store.path}/{RECORDS}/words is missing; {repair_hint(store.path)}")
    return None


def damage_of_word_ids(store: MomentsStore) -> Mapping[int, StoreError]:
    """Damage to the word ids of each corpus, by corpus index."""
    errors = {
        number: _error_of(partial(read_word_ids, store, entry))
        for number, entry in enumerate(store.manifest.corpora)
    }
    return {number: error for number, error in errors.items() if error is not None}


def damage_of_groups(store: MomentsStore) -> Mapping[StorePath, StoreError]:
    """Damage to the Zarr metadata of the group directories, which other Zarr readers need."""
    errors = {
        place: _error_of(partial(read_attributes, place))
        for place in (store.path / PARTIALS, store.path / RECORDS)
    }
    hint = repair_hint(store.path)
    return {
        place: StoreError(f"{place}/zarr.json: metadata are damaged; {hint}")
        for place, error in errors.items()
        if error is not None
    }


def damage_of_scan(checkpoints: Checkpoints, scan: Scan, *, finished: bool) -> DamagedResults:
    """Damage to parts and folds of a scan. Reads all their arrays, one result at a time.

    ``finished``: whether the stage is committed, so that the last fold must exist.
    """
    keys, there = scan.keys, checkpoints.folds()
    bad_folds = _damages(checkpoints, "fold", there)
    if finished and scan.order.total not in there:
        bad_folds[scan.order.total] = _missing(checkpoints, "the last fold")
    intact = there - bad_folds.keys()
    folded = {keys[number] for number in scan.order.covered(intact)}
    parts, done = checkpoints.parts(), set() if checkpoints.keep else folded
    # Only the record remains of parts that are folded and not kept, and of parts of an earlier state.
    bad_parts = _damages(checkpoints, "part", parts & (set(keys) - done))
    bad_parts |= _damages(checkpoints, "part", parts - (set(keys) - done), arrays=False)
    if checkpoints.keep:
        for key in sorted(folded - parts):
            bad_parts[key] = _missing(checkpoints, f"the kept part {key}")
    return DamagedResults(bad_folds, bad_parts, intact)


def require_intact(store: MomentsStore, *, folded: bool = True) -> None:
    """Read all committed results of a complete store, or the finished stages of an incomplete one.

    ``folded``: whether last folds and kept parts are read too. Raises ``StoreError`` if something is damaged; the
    message says how to repair it.
    """
    for error in _errors(store, folded):
        if error is not None:
            raise error


def _errors(store: MomentsStore, folded: bool) -> Iterator[StoreError | None]:
    yield from damage_of_groups(store).values()
    yield damage_of_words(store)
    yield from damage_of_word_ids(store).values()
    for stage in store.stages:
        found = damage_of_outcome(store, stage.name)
        yield None if found is None else found.error
    if folded and not store.missing_stages:
        for stage in (stage for stage in store.stages if stage.keeps_fold(store.settings)):
            for scan in stage.scans(store):
                kept = damage_of_scan(store.checkpoints(stage.name), scan, finished=True)
                yield from (*kept.folds.values(), *kept.parts.values())


def _damages(
    checkpoints: Checkpoints, kind: str, keys: frozenset[str] | set[str], *, arrays: bool = True
) -> dict[str, StoreError]:
    found = {key: checkpoints.damage(kind, key, arrays=arrays) for key in sorted(keys)}
    # A worker of an earlier run may still be folding; a result that it has just removed is not damaged.
    still = checkpoints.parts() if kind == "part" else checkpoints.folds()
    return {key: error for key, error in found.items() if error is not None and key in still}


def _missing(checkpoints: Checkpoints, what: str) -> StoreError:
    return StoreError(
        f"{checkpoints.store}: the record of {what} is missing; {repair_hint(checkpoints.store)}"
    )


def _error_of(read: Callable[[], object]) -> StoreError | None:
    try:
        read()
    except StoreError as error:
        return error
    return None


def repair_store(
    path: StorePath, execution: Execution | None = None, listener: Listener = silent
) -> MomentsStore:
    """Verify all committed results of a store, recompute the damaged ones, and finish the store. The bits are the same.

    A final array is recomputed from the last fold, the last fold from the parts if they are kept, and everything else
    from the corpora: scan 1 then reads the partitions that were not kept, and scan 2 reads all.

    Raises ``InputError`` if there is no store or a corpus that must be read has moved, and ``StoreError``, before
    anything is discarded, if the root or a factor merged from another store is damaged: they cannot be recomputed.
    """
    execution = execution or Execution()
    with sole_writer(path):
        store = read_store(path)
        require_scan_memory(store.manifest, path, execution)
        _repair_groups(store)
        _repair_words(store)
        with execution.executor(listener) as executor:
            load = partitions_of(store.manifest, store.path)
            for stage in store.stages:
                _discard_damage(store, stage)
                run_stage_of(store, stage, executor, load)
            for stage in store.stages:
                if stage.keeps_parts and store.manifest.keep_partitions:
                    _repair_kept_parts(store, stage, executor)
        store.clear()
    return store


def _repair_groups(store: MomentsStore) -> None:
    for place, error in damage_of_groups(store).items():
        _warn(error, "is written again")
        place.mkdir(exist_ok=True)
        write_json(place / "zarr.json", {"zarr_format": 3, "node_type": "group", "attributes": {}})


def _repair_words(store: MomentsStore) -> None:
    """Recover the words from the corpora, and the word ids of each corpus from both."""
    error = damage_of_words(store)
    if error is not None:
        _warn(error, "the words are read from the corpora")
        words = _words_of_corpora(store)
        store.commit_stage(WORDS, {"word": np.array(words, dtype=object)}, {})
    for number, error in damage_of_word_ids(store).items():
        _warn(error, "the words of the corpus are looked up again")
        ids_of_words = {str(word): i for i, word in enumerate(store.read("word"))}
        entry = store.manifest.corpora[number]
        own = open_corpus(entry.path).vocabulary().words
        write_word_ids(store.path, [np.array([ids_of_words.get(word, -1) for word in own], np.int64)])
        read_word_ids(store, entry)


def _words_of_corpora(store: MomentsStore) -> list[str]:
    words = [""] * store.n_words
    for entry in store.manifest.corpora:
        own, ids = open_corpus(entry.path).vocabulary().words, read_word_ids(store, entry)
        ids_of_words = range(len(own)) if ids is None else ids.tolist()
        if len(ids_of_words) == len(own) <= store.n_words:
            for place, word in zip(ids_of_words, own, strict=True):
                words[place] = word
    if words_digest(words) != store.manifest.vocabulary:
        raise StoreError(
            f"{store.path}/word: the corpora have other words now; put them back as they were and repair again"
        )
    return words


def _discard_damage(store: MomentsStore, stage: Stage) -> None:
    """Discard the damaged results of a stage, so that running it recomputes them."""
    if stage.keeps_fold(store.settings):
        _discard_damaged_fold(store, stage)
        return
    found = damage_of_outcome(store, stage.name)
    if found is not None:
        _warn(found.error, stage.hint)
        forget_record(store.path, stage.name)
    if store.outcome(stage.name) is None:
        for scan in stage.scans(store):
            checkpoints = store.checkpoints(stage.name)
            _drop(checkpoints, damage_of_scan(checkpoints, scan, finished=False))


def _discard_damaged_fold(store: MomentsStore, stage: Stage) -> None:
    checkpoints, final, (scan,) = (
        store.checkpoints(stage.name),
        damage_of_outcome(store, stage.name),
        stage.scans(store),
    )
    record = None if final is not None and final.in_record else store.outcome(stage.name)
    found = damage_of_scan(checkpoints, scan, finished=record is not None)
    _refuse_lost_merges(store, scan, checkpoints.parts() - found.parts.keys(), found.intact)
    _drop(checkpoints, found)
    folded = scan.order.total in found.intact
    if record is not None and not folded:
        parts = "scan 1 is repeated for all partitions" if stage.keeps_parts else stage.hint
        if checkpoints.keep:
            parts = "the kept parts are folded again"
        logger.warning("repair: %s: the last fold of %s is lost; %s", store.path, stage.name, parts)
    elif final is not None:
        _warn(final.error, stage.hint)
    else:
        return
    if record is not None and folded:
        # Running the stage would lose the history, since the records of its parts are gone.
        made = stage.final(store, iter([checkpoints.read_fold(scan.order.total)]))
        store.commit_stage(stage.name, made.arrays, made.scalars, record["history"])
    else:
        forget_record(store.path, stage.name)


def _refuse_lost_merges(
    store: MomentsStore, scan: Scan, parts: frozenset[str], folds: frozenset[str]
) -> None:
    """Raise ``StoreError`` if a merged part is lost, which is in no corpus. Called before anything is discarded."""
    held = scan.order.covered(folds)
    for number, (key, count) in enumerate(zip(scan.keys, scan.counts, strict=True)):
        if count > 1 and number not in held and key not in parts:
            raise StoreError(
                f"{store.path}: the merged factor is damaged, and {count} partitions of it came from another store as "
                "one; delete the store and merge its sources again"
            )


def _drop(checkpoints: Checkpoints, found: DamagedResults) -> None:
    for key, error in found.folds.items():
        _warn(error, "the fold is taken back")
        checkpoints.drop("fold", key)
    for key, error in found.parts.items():
        _warn(error, "the part is taken back")
        checkpoints.drop("part", key)


def _repair_kept_parts(store: MomentsStore, stage: Stage, executor: Executor) -> None:
    """Recompute missing kept parts, which no stage needs since they are folded. One pass over their partitions."""
    checkpoints, (scan,) = store.checkpoints(stage.name), stage.scans(store)
    known = checkpoints.parts()
    missing = [key not in known for key in scan.keys]
    if not any(missing):
        return
    logger.info(
        "repair: partitions computed again: %s", ", ".join(str(i) for i, lacks in enumerate(missing) if lacks)
    )
    partitions = compress(load_partitions(store.manifest, str(store.path)), missing)
    parts = tuple(map(partition_part, compress(scan.keys, missing), partitions))
    missing_parts = Job(checkpoints, scan.reduction, parts).graph(frozenset(), executor.tasks_at_once)
    if missing_parts is not None:
        executor.compute(missing_parts)


def _warn(error: StoreError, what: str) -> None:
    logger.warning("repair: %s; %s", finding(error), what)
