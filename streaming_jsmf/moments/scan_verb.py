"""Corpus -> moments store, and stores that grow and shrink."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from streaming_jsmf.config import ScanSettings, fields_given, settings_of, takes
from streaming_jsmf.corpus import Corpus, open_corpus
from streaming_jsmf.corpus.format import corpus_root
from streaming_jsmf.errors import InputError, SettingsMismatchError
from streaming_jsmf.jobs.checkpoints import key_of
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.moments.changes import add_third_moment, change_store, is_part
from streaming_jsmf.moments.integrity import repair_store
from streaming_jsmf.moments.merge import merge_stores
from streaming_jsmf.moments.reader import Moments, open_moments
from streaming_jsmf.moments.scan import finish_store, scan_corpus
from streaming_jsmf.moments.store import read_store
from streaming_jsmf.storage.lock import recover
from streaming_jsmf.storage.paths import StorePath, node_exists, normalise, store_path

logger = logging.getLogger(__name__)

StepKind = Literal["corpora", "merge", "third moment"]


@dataclass(frozen=True)
class Changes:
    """What becomes of a store besides its first corpus: removals and additions at once, then the merges in order.

    Attributes
    ----------
    remove
        Paths of corpora, names or hashes of shards.
    add
        Paths or URLs of corpora with the same words.
    merge
        Paths of moments stores.
    third_moment
        With one of these: then the third moment, of all that the store is made of, if it has none.
    rebase
        Make the basis of a store with a sample of all that it is then made of.
    """

    remove: Sequence[str] = ()
    add: Sequence[str] = ()
    merge: Sequence[str] = ()
    third_moment: bool = False
    rebase: bool = False

    @property
    def any(self) -> bool:
        """Whether there is something to change."""
        return bool(self.remove or self.add or self.merge or self.rebase)

    def steps(self, corpus: str) -> tuple[Step, ...]:
        """What is done to the store one after the other; each step is there wholly or not at all."""
        of_corpora = self.remove or self.add or self.rebase
        kinds: list[tuple[StepKind, str]] = [("corpora", "")] if of_corpora else []
        kinds += [("merge", other) for other in self.merge]
        asked = [corpus, *self.remove, "+", *self.add, "+", *self.merge]
        if self.rebase:
            asked.append("+ rebase")
        if self.third_moment:
            kinds.append(("third moment", ""))
            asked.append("+ third moment")
        return tuple(
            Step(key_of(*map(str, asked), str(i)), kind, other) for i, (kind, other) in enumerate(kinds)
        )


@dataclass(frozen=True)
class Step:
    """A change of the manifest.

    Attributes
    ----------
    mark
        What the manifest calls it, so that the same request knows it again.
    kind
        Corpora and shards are removed and added, a store is merged, or the third moment comes to the store.
    other
        Path of the store that is merged.
    """

    mark: str
    kind: StepKind
    other: str


@takes(ScanSettings, Execution)
def scan(
    corpus: str | Path | Corpus,
    moments: str | StorePath,
    settings: ScanSettings | None = None,
    execution: Execution | None = None,
    listener: Listener = silent,
    *,
    keep_partitions: bool = False,
    changes: Changes | None = None,
    repair: bool = False,
    **options: Any,
) -> Moments:
    """Scan a corpus into the moments store at ``moments``, or finish an interrupted scan. Both are paths or URLs.

    ``settings.scans`` passes over the data; none if the store is complete. One that carries more topics than are asked
    for serves, with its own width. A store that is there is changed as it stands: of the settings its own hold, and
    ``corpus`` must be one of its corpora or one to be removed. With ``repair`` what is damaged is made again first. A
    corpus that is open already can be given as it is. The fields of ``ScanSettings`` and ``Execution`` are also keyword
    arguments.

    An interrupted change is finished by the same call.

    Raises
    ------
    InputError, StoreError
        See ``open_corpus``, ``scan_corpus``, ``repair_store``, ``change_store`` and ``merge_stores``.
    """
    store, changes = store_path(moments, "a moments store"), changes or Changes()
    changes, settings = _wanted(store, changes, settings, options, repair)
    execution = settings_of("execution", Execution, execution, options)
    if settings is not None and settings.third_moment:
        changes = replace(changes, third_moment=changes.any)
    if not node_exists(store):
        recover(store)
    settings = _serving(store, settings)
    steps = changes.steps(_place(corpus))
    if repair:
        asks = settings is not None and settings.third_moment
        if changes.any or (asks and not read_store(store).settings.third_moment):
            raise InputError(
                "--repair is done alone; give --remove, --add, --merge, --rebase or --third-moment in a command of "
                "their own"
            )
        _require_same(store, corpus, settings, changes, keep_partitions)
        repair_store(store, execution, listener)
        return open_moments(store)
    first = _steps_begun(store, steps)
    if first:
        finish_store(store, execution, listener)
    elif changes.any and node_exists(store):
        _require_same(store, corpus, settings, changes, keep_partitions)
    else:
        wanted = settings or ScanSettings()
        scan_corpus(_opened(corpus), store, wanted, execution, listener, keep_partitions=keep_partitions)
    for step in steps[first:]:
        if step.kind == "corpora":
            added = [open_corpus(path) for path in changes.add]
            change_store(
                store, changes.remove, added, execution, listener, mark=step.mark, rebase=changes.rebase
            )
        elif step.kind == "merge":
            other = store_path(step.other, "a moments store")
            merge_stores(store, other, execution, listener, mark=step.mark)
        else:
            add_third_moment(store, execution, listener, mark=step.mark)
    return open_moments(store)


def _wanted(
    store: StorePath, changes: Changes, settings: ScanSettings | None, options: dict[str, Any], repair: bool
) -> tuple[Changes, ScanSettings | None]:
    """The changes and the settings that are asked for; None: those of an existing store that is changed."""
    if changes.any and settings is None and {*fields_given(ScanSettings, options)} == {"third_moment"}:
        # Not a setting that must equal the store's, but a change of its own.
        changes = replace(changes, third_moment=bool(options.pop("third_moment")))
    settings = settings_of("settings", ScanSettings, settings, options)
    if settings is None and not ((changes.any or repair) and node_exists(store)):
        settings = ScanSettings(third_moment=changes.third_moment)
    return changes, settings


def _place(corpus: str | Path | Corpus) -> str:
    return corpus_root(corpus)


def _opened(corpus: str | Path | Corpus) -> Corpus:
    return corpus if isinstance(corpus, Corpus) else open_corpus(corpus)


def _steps_begun(store: StorePath, steps: Sequence[Step]) -> int:
    """How many steps of these changes the store has in its manifest, if the call is to go on with them.

    The mark of the last one outlives it. But where all is done and cleared, nothing was interrupted, and doing the same
    again is a new wish.
    """
    if not steps or not node_exists(store):
        return 0
    found = read_store(store)
    begun = next((i + 1 for i, step in enumerate(steps) if step.mark == found.manifest.change), 0)
    return begun if begun < len(steps) or not found.is_cleared() else 0


def _serving(path: StorePath, wanted: ScanSettings | None) -> ScanSettings | None:
    """The settings of the store at ``path`` if they differ by a larger ``max_topics`` only, else those wanted.

    A third moment is added where it is wanted, and harms nobody where it is there.
    """
    if wanted is None or not node_exists(path):
        return wanted
    stored = replace(read_store(path).settings, third_moment=wanted.third_moment)
    # What was chosen for its first corpus stays, however the store has changed since.
    wanted = wanted.as_chosen_in(stored)
    if stored.max_topics <= wanted.max_topics or replace(stored, max_topics=wanted.max_topics) != wanted:
        return wanted
    logger.info("%s: this scan carries up to %d topics and is used as it is", path, stored.max_topics)
    return stored


def _require_same(
    store: StorePath,
    corpus: str | Path | Corpus,
    settings: ScanSettings | None,
    changes: Changes,
    keep_partitions: bool,
) -> None:
    """A slip of the path must not change another store."""
    found = read_store(store)
    # The third moment is no setting of before: it is added where it is asked for, and stays where it is.
    ours = replace(found.settings, third_moment=False)
    if settings is not None and ours != replace(settings, third_moment=False):
        raise SettingsMismatchError(
            f"{store}: has settings of its own, which cannot change; leave the options of the scan out, or scan into "
            "another path"
        )
    if keep_partitions and not found.manifest.keep_partitions:
        raise SettingsMismatchError(
            f"{store}: was begun without --keep-partitions; scan into another path to have them kept"
        )
    removed = {normalise(name) for name in changes.remove}
    place = _place(corpus)
    if place not in removed and not is_part(found, _opened(corpus)):
        listed = ", ".join(found.manifest.paths)
        raise SettingsMismatchError(f"{store}: was not made of {place} but of {listed}; give one of these")
