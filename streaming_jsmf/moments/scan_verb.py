"""The ``scan`` function: creates, finishes, changes or repairs a moments store."""

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
    """Changes to a store: removals and additions in one step, then the merges in order, then the third moment.

    Attributes
    ----------
    remove
        Paths of corpora, names or hashes of shards.
    add
        Paths or URLs of corpora with the same words.
    merge
        Paths of moments stores.
    third_moment
        With another change: add the third moment of the resulting store, if it has none.
    rebase
        Recompute the basis of a store with a sample from all its documents.
    """

    remove: Sequence[str] = ()
    add: Sequence[str] = ()
    merge: Sequence[str] = ()
    third_moment: bool = False
    rebase: bool = False

    @property
    def any(self) -> bool:
        """Whether there is something to change besides the third moment."""
        return bool(self.remove or self.add or self.merge or self.rebase)

    def steps(self, corpus: str) -> tuple[Step, ...]:
        """The steps of these changes, in order; each is applied atomically."""
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

    ``mark`` identifies the step in the manifest, so that a repeated request finds it; ``other`` is the store to
    merge.
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
    """Scan a corpus into the store ``moments``, or finish an interrupted scan or change. Both are paths or URLs.

    Makes ``settings.scans`` passes over the data, or none if the store is complete. A store scanned for more topics
    than requested is used as it is. With ``changes`` an existing store keeps its own settings, and ``corpus`` must be
    one of its corpora or one to be removed. With ``repair`` damaged results are recomputed first. ``corpus`` may be
    an open corpus. The fields of ``ScanSettings`` and ``Execution`` are also keyword arguments.

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
    """The requested changes and settings; settings are None for an existing store that keeps its own."""
    if changes.any and settings is None and {*fields_given(ScanSettings, options)} == {"third_moment"}:
        # Treat the option as a change, not as a setting that must equal the store's.
        changes = replace(changes, third_moment=bool(options.pop("third_moment")))
    if settings is not None or fields_given(ScanSettings, options):
        return changes, settings_of("settings", ScanSettings, settings, options)
    if (changes.any or repair) and node_exists(store):
        return changes, None
    return changes, ScanSettings(third_moment=changes.third_moment)


def _place(corpus: str | Path | Corpus) -> str:
    return corpus_root(corpus)


def _opened(corpus: str | Path | Corpus) -> Corpus:
    return corpus if isinstance(corpus, Corpus) else open_corpus(corpus)


def _steps_begun(store: StorePath, steps: Sequence[Step]) -> int:
    """Number of steps of an interrupted request that the manifest contains, or 0 to start again.

    The mark of the last step stays in the manifest. If the store is complete and cleared, the same steps are a new
    request.
    """
    if not steps or not node_exists(store):
        return 0
    found = read_store(store)
    begun = next((i + 1 for i, step in enumerate(steps) if step.mark == found.manifest.change), 0)
    return begun if begun < len(steps) or not found.is_cleared() else 0


def _serving(path: StorePath, wanted: ScanSettings | None) -> ScanSettings | None:
    """The settings of the store at ``path`` if they differ only by a larger ``max_topics``, else ``wanted``."""
    if wanted is None or not node_exists(path):
        return wanted
    stored = replace(read_store(path).settings, third_moment=wanted.third_moment)
    # Values chosen for the first corpus stay, even if the store has changed since.
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
    """Refuse to change a store with other settings or corpora, for example after a mistyped path."""
    found = read_store(store)
    # The third moment does not have to match: it is added on request, and never removed.
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
