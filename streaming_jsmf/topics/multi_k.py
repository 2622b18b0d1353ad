"""Models of several numbers of topics: where they lie, which are there already, and all of them from one store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from streaming_jsmf.config import InferSettings, StodSettings
from streaming_jsmf.errors import InputError
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.moments.reader import Moments, open_moments
from streaming_jsmf.moments.select import select_partitions
from streaming_jsmf.storage.lock import recover
from streaming_jsmf.storage.paths import StorePath, node_exists, store_path
from streaming_jsmf.topics.commit import is_done, require_free_model
from streaming_jsmf.topics.infer import infer, model_fingerprint
from streaming_jsmf.topics.store import AnyModel, model_names, model_path

#: What ``choose_k`` found out about models, in their directory.
COMPARISON = "choose-k.json"


def targets_of(model: StorePath, topics: Sequence[int], overwrite: bool) -> dict[int, StorePath]:
    """Where the model of each K goes: ``model`` itself, or of several K ``model/k=5``, ``model/k=10``, ...

    Raises
    ------
    InputError
        If ``topics`` is empty, or nothing can be written there: before the work, since it cannot end well. Of several
        K models may be there from an earlier run; whether they are those wanted ``commit_model.is_done`` tells.
    """
    if not topics:
        raise InputError("topics is empty; give at least one number")
    targets = {k: model if len(topics) == 1 else model / f"k={k}" for k in topics}
    if len(targets) > 1 and node_exists(model):
        raise InputError(f"{model}: is a store itself; several models need a directory of their own")
    for path in targets.values():
        require_free_model(path, overwrite or len(targets) > 1)
    return targets


def models_at(path: AnyModel) -> tuple[StorePath, ...]:
    """The model at ``path``, or those that ``fit`` or ``infer`` made there of several K, by K.

    Where nothing is the path itself comes back, whose reader says so.
    """
    place = model_path(path)
    below = () if node_exists(place) else tuple(place / name for name in model_names(place))
    return below or (place,)


def infer_each(
    moments: str | Path | StorePath | Moments,
    model: str | Path | StorePath,
    topics: Sequence[int],
    settings: InferSettings | StodSettings,
    *,
    partitions: str | None = None,
    threads: int | None = None,
    overwrite: bool = False,
    listener: Listener = silent,
) -> tuple[StorePath, ...]:
    """Fit a model for each number of topics from one moments store, and return where they are. No pass over the corpus.

    One K writes ``model`` itself, several write ``model/k=5``, ``model/k=10``, ...; of these an interrupted run is
    finished by the same call. The other arguments, and errors, are those of ``infer``.
    """
    targets = targets_of(store_path(model, "a model"), topics, overwrite)
    opened = moments if isinstance(moments, Moments) else open_moments(store_path(moments, "a moments store"))
    if partitions is not None:
        opened = select_partitions(opened, partitions)
    for k, path in targets.items():
        wanted = replace(settings, n_topics=k)
        if len(topics) > 1 and is_done(path, "", model_fingerprint(opened, wanted), overwrite=overwrite):
            recover(path)
            continue
        infer(opened, path, wanted, threads=threads, overwrite=overwrite, listener=listener)
    return tuple(targets.values())
