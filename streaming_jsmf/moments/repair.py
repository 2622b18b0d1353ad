"""Mend a store: what is damaged is taken back, and made again from what is sound, or from the corpus if it must be."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from itertools import compress

import numpy as np

from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.errors import StoreError
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution, Executor
from streaming_jsmf.jobs.fold import FoldJob
from streaming_jsmf.jobs.ledger import Ledger, fold_keys
from streaming_jsmf.jobs.lock import sole_writer
from streaming_jsmf.jobs.records import forget_record
from streaming_jsmf.moments.checks import (
    LedgerDamage,
    damage_of_columns,
    damage_of_groups,
    damage_of_ledger,
    damage_of_outcome,
    damage_of_words,
)
from streaming_jsmf.moments.columns import read_columns, write_columns
from streaming_jsmf.moments.cooccurrence import panel_keys, row_panels
from streaming_jsmf.moments.finish import finish_stage, normalised, partitions_of, projection_keys
from streaming_jsmf.moments.manifest import load_partitions
from streaming_jsmf.moments.parts import partition_parts
from streaming_jsmf.moments.scan import require_scan_memory
from streaming_jsmf.moments.stages import RangeStage
from streaming_jsmf.moments.store import MomentsStore, read_store, words_digest
from streaming_jsmf.storage.paths import StorePath, write_json

logger = logging.getLogger(__name__)


def repair_store(
    path: StorePath, execution: Execution | None = None, listener: Listener = silent
) -> MomentsStore:
    """Read all that a store has committed, make again what is damaged, and finish the store. The bits are the same.

    A final array comes from the merged factor, the merged factor from the parts if they are kept, and all else
    from the corpora: then scan 1 reads what was not kept, and scan 2 all. The log says which.

    Raises
    ------
    InputError
        If there is no store, or a corpus that has to be read is not where it was.
    StoreError
        If the root, or a factor that came from another store in a merge, is damaged: nothing makes them again.
        Nothing is taken back then.
    """
    execution = execution or Execution()
    with sole_writer(path):
        store = read_store(path)
        require_scan_memory(store.manifest, path, execution)
        _mend_groups(store)
        _mend_words(store)
        with execution.executor(listener) as executor:
            load = partitions_of(store)
            for stage in store.stages:
                _TAKE_BACK[stage](store)
                finish_stage(store, stage, executor, load)
            _mend_kept_parts(store, executor)
    return store


def _mend_groups(store: MomentsStore) -> None:
    for place, error in damage_of_groups(store).items():
        _tell(error, "is written again")
        place.mkdir(exist_ok=True)
        write_json(place / "zarr.json", {"zarr_format": 3, "node_type": "group", "attributes": {}})


def _mend_words(store: MomentsStore) -> None:
    """The words are those of the corpora, and the places of a corpus's words are known from both."""
    error = damage_of_words(store)
    if error is not None:
        _tell(error, "the words are read from the corpora")
        words = _words_of_corpora(store)
        store.commit_stage("words", {"word": np.array(words, dtype=object)}, {})
    for number, error in damage_of_columns(store).items():
        _tell(error, "the words of the corpus are looked up again")
        places = {str(word): i for i, word in enumerate(store.read("word"))}
        own = open_corpus(store.manifest["corpora"][number]["path"]).vocabulary().words
        write_columns(store.path, [np.array([places.get(word, -1) for word in own], np.int64)])
        read_columns(store, store.manifest["corpora"][number])


def _words_of_corpora(store: MomentsStore) -> list[str]:
    words = [""] * store.n_words
    for entry in store.manifest["corpora"]:
        own, columns = open_corpus(entry["path"]).vocabulary().words, read_columns(store, entry)
        places = range(len(own)) if columns is None else columns.tolist()
        if len(places) == len(own) <= store.n_words:
            for place, word in zip(places, own, strict=True):
                words[place] = word
    if words_digest(words) != store.manifest["vocabulary"]:
        raise StoreError(
            f"{store.path}/word: the corpora have other words now; put them back as they were and repair again"
        )
    return words


def _take_back_range(store: MomentsStore) -> None:
    ledger, final = store.ledger("range"), damage_of_outcome(store, "range")
    record = None if final is not None and final.in_record else store.outcome("range")
    found = damage_of_ledger(ledger, store.part_keys, store.folds, finished=record is not None)
    _refuse_lost_merges(store, found)
    _drop(ledger, found)
    folded = found.folded == len(store.part_keys)
    if record is not None and not folded:
        parts = "the kept parts are folded again" if ledger.keep else "scan 1 is repeated for all partitions"
        logger.warning("repair: %s: the merged factor is lost; %s", store.path, parts)
    elif final is not None:
        _tell(final.error, "is made again from the merged factor")
    else:
        return
    if record is not None and folded:
        # The record would come again without the history of its parts, which are gone.
        fold = ledger.read_fold(store.folds[-1])
        store.commit_stage("range", normalised(fold), fold.scalars, record["history"])
    else:
        forget_record(store.path, "range")


def _refuse_lost_merges(store: MomentsStore, found: LedgerDamage) -> None:
    """A part that was another store's factor is in no corpus. Nothing has been taken back yet."""
    sound = store.ledger("range").parts() - found.parts.keys()
    for key, (_, count) in list(zip(store.part_keys, store.manifest["parts"], strict=True))[found.folded :]:
        if count > 1 and key not in sound:
            raise StoreError(
                f"{store.path}: the merged factor is damaged, and {count} partitions of it came from another store as "
                "one; delete the store and merge its sources again"
            )


def _take_back_basis(store: MomentsStore) -> None:
    _take_back_outcome(store, "basis", "is computed again from the final arrays of scan 1")


def _take_back_summed(store: MomentsStore, stage: str, remedy: str) -> None:
    _take_back_outcome(store, stage, remedy)
    if store.outcome(stage) is None:
        ledger, keys = store.ledger(stage), projection_keys(store)
        _drop(ledger, damage_of_ledger(ledger, keys, fold_keys(keys, store.folds[-1]), finished=False))


def _take_back_cooccurrence(store: MomentsStore) -> None:
    _take_back_outcome(store, "cooccurrence", "scan 2 is repeated")
    if store.outcome("cooccurrence") is None:
        ledger = store.ledger("cooccurrence")
        for rows in row_panels(store.n_words):
            keys = panel_keys(store, rows)
            _drop(ledger, damage_of_ledger(ledger, keys, fold_keys(keys, store.folds[-1]), finished=False))


_TAKE_BACK: Mapping[str, Callable[[MomentsStore], None]] = {
    "range": _take_back_range,
    "cooccurrence": _take_back_cooccurrence,
    "basis": _take_back_basis,
    "projection": partial(_take_back_summed, stage="projection", remedy="scan 2 is repeated"),
    "third_moment": partial(
        _take_back_summed, stage="third_moment", remedy="the pass for the third moment is repeated"
    ),
}


def _take_back_outcome(store: MomentsStore, stage: str, remedy: str) -> None:
    found = damage_of_outcome(store, stage)
    if found is not None:
        _tell(found.error, remedy)
        forget_record(store.path, stage)


def _drop(ledger: Ledger, found: LedgerDamage) -> None:
    for key, error in found.folds.items():
        _tell(error, "the fold is taken back")
        ledger.drop("fold", key)
    for key, error in found.parts.items():
        _tell(error, "the part is taken back")
        ledger.drop("part", key)


def _mend_kept_parts(store: MomentsStore, executor: Executor) -> None:
    """Parts that are folded, and so missed by no stage, but were to be kept. One pass over these partitions."""
    ledger = store.ledger("range")
    known = ledger.parts()
    missing = [ledger.keep and key not in known for key in store.part_keys]
    if not any(missing):
        return
    partitions = compress(load_partitions(store.manifest, str(store.path)), missing)
    parts = partition_parts(compress(store.part_keys, missing), partitions)
    logger.info(
        "repair: partitions computed again: %s", ", ".join(str(i) for i, lacks in enumerate(missing) if lacks)
    )
    job = FoldJob(ledger, RangeStage(store.n_words, store.settings), parts, store.folds)
    executor.compute(job.unfolded())


def _tell(error: StoreError, what: str) -> None:
    place, _, _ = str(error).rpartition("; ")
    logger.warning("repair: %s; %s", place or error, what)
