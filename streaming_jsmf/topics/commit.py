"""A model put in place under its lock, and known again by the same command after a kill."""

from __future__ import annotations

import logging

from streaming_jsmf.storage.lock import announce_commit, is_left, work_place
from streaming_jsmf.storage.paths import StorePath, is_free, node_exists
from streaming_jsmf.storage.replace import remove_store
from streaming_jsmf.topics.store import Model, read_model, require_free_path, write_model

logger = logging.getLogger(__name__)


def require_free_model(target: StorePath, overwrite: bool) -> None:
    """Refuse a path that is taken, before any work; not if a killed run may have put the model there.

    Raises
    ------
    InputError
        As ``require_free_path``.
    """
    if not is_left(target):
        require_free_path(target, overwrite)


def is_done(target: StorePath, committed: str, fingerprint: str, *, overwrite: bool) -> bool:
    """Whether the model with this fingerprint is at ``target``, sound, and is not to be made again.

    Reads the model, and compares it with its digests.

    Parameters
    ----------
    committed
        What ``sole_writer`` tells who now holds the lock: what a killed run was about to put in place.
    overwrite
        Whether a model is to be replaced, unless the killed run has done that.

    Raises
    ------
    InputError
        If anything else is there and not to be replaced.
    StoreError
        If it is damaged. It is not made again unasked: names of topics and counts lie below it.
    """
    if is_free(target):
        return False
    if (overwrite and committed != fingerprint) or not has_fingerprint(target, fingerprint):
        require_free_path(target, overwrite)
        return False
    read_model(target, hint="make the model again with --overwrite")
    logger.info("%s: complete, made by an earlier run with the same settings, and sound", target)
    return True


def has_fingerprint(target: StorePath, fingerprint: str) -> bool:
    """Whether the model with this fingerprint is at ``target``."""
    return node_exists(target) and read_model(target, ()).provenance["fingerprint"] == fingerprint


def commit_model(target: StorePath, model: Model, *, overwrite: bool, work: bool = False) -> None:
    """Put a model in place; ``work`` says whether there is work at its ``work_place``, which is removed then.

    The caller holds the lock of ``target``.
    """
    announce_commit(target, str(model.provenance["fingerprint"]), work=work)
    write_model(target, model, overwrite=overwrite)
    if work:
        remove_store(work_place(target), ignore_errors=True)
