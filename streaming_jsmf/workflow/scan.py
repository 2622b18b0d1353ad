"""Corpus -> moments store, and stores that grow and shrink."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.errors import SettingsMismatchError
from streaming_jsmf.moments.grow import add_corpora, is_part, remove_from
from streaming_jsmf.moments.merge import merge_stores
from streaming_jsmf.moments.reader import Moments, open_moments
from streaming_jsmf.moments.repair import repair_store
from streaming_jsmf.moments.scan import scan_corpus
from streaming_jsmf.moments.store import read_store
from streaming_jsmf.runtime.events import Listener, silent
from streaming_jsmf.runtime.files import StorePath, exists, store_path
from streaming_jsmf.runtime.schedulers import Execution


@dataclass(frozen=True)
class Changes:
    """What becomes of a store besides its first corpus, done in this order.

    Attributes
    ----------
    remove
        Paths of corpora, names or hashes of shards.
    add
        Paths or URLs of corpora with the same words.
    merge
        Paths of moments stores.
    """

    remove: Sequence[str] = ()
    add: Sequence[str] = ()
    merge: Sequence[str] = ()

    @property
    def any(self) -> bool:
        """Whether there is something to change."""
        return bool(self.remove or self.add or self.merge)


def scan(
    corpus: str | Path,
    moments: str | Path | StorePath,
    settings: ScanSettings | None = None,
    execution: Execution | None = None,
    listener: Listener = silent,
    *,
    keep_partitions: bool = False,
    changes: Changes | None = None,
    repair: bool = False,
) -> Moments:
    """Scan a corpus into the moments store at ``moments``, or finish an interrupted scan. Both are paths or URLs.

    ``settings.scans`` passes over the data; none if the store is complete. A store that is there is changed as it
    stands: of the settings its own hold, and ``corpus`` must be one of its corpora or one to be removed. With
    ``repair`` what is damaged is made again first.

    Raises
    ------
    InputError, StoreError
        See ``open_corpus``, ``scan_corpus``, ``repair_store``, ``add_corpora``, ``remove_from`` and ``merge_stores``.
    """
    store, changes = store_path(moments, "a moments store"), changes or Changes()
    if repair:
        _require_same(store, corpus, settings, changes)
        repair_store(store, execution, listener)
    elif not (changes.any and exists(store / "zarr.json")):
        scan_corpus(
            open_corpus(corpus),
            store,
            settings or ScanSettings(),
            execution,
            listener,
            keep_partitions=keep_partitions,
        )
    else:
        _require_same(store, corpus, settings, changes)
    if changes.remove:
        remove_from(store, changes.remove, execution, listener)
    if changes.add:
        add_corpora(store, [open_corpus(path) for path in changes.add], execution, listener)
    for other in changes.merge:
        merge_stores(store, store_path(other, "a moments store"), execution, listener)
    return open_moments(store)


def _require_same(
    store: StorePath, corpus: str | Path, settings: ScanSettings | None, changes: Changes
) -> None:
    """A slip of the path must not change another store."""
    found = read_store(store)
    if settings is not None and settings != found.settings:
        raise SettingsMismatchError(
            f"{store}: has settings of its own, which cannot change; leave the options of the scan out, or scan into "
            "another path"
        )
    if str(corpus) not in changes.remove and not is_part(found, open_corpus(corpus)):
        listed = ", ".join(entry["path"] for entry in found.manifest["corpora"])
        raise SettingsMismatchError(f"{store}: was not made of {corpus} but of {listed}; give one of these")
