"""Describe a corpus, moments store, model or topic shares: whether it is complete, and how it was made."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.corpus.format import is_corpus, verify_corpus
from streaming_jsmf.display import location
from streaming_jsmf.documents.share_files import is_shares, open_shares
from streaming_jsmf.documents.shares import SharesFile
from streaming_jsmf.jobs.workspace import Workspace
from streaming_jsmf.moments.manifest import KIND as MOMENTS_KIND
from streaming_jsmf.storage.arrays import read_attributes
from streaming_jsmf.storage.kinds import CORPUS, MODEL, MOMENTS, SHARES, unsuitable
from streaming_jsmf.storage.lock import left_behind
from streaming_jsmf.storage.paths import StorePath, child_names, node_exists, store_path
from streaming_jsmf.topics.edits import read_edits
from streaming_jsmf.topics.store import KIND as MODEL_KIND
from streaming_jsmf.topics.store import migrate_model, model_names, read_model

#: Corpora and shares do not need numba, which moments and counts of words import in .3 s.
if TYPE_CHECKING:
    from streaming_jsmf.moments.store import Moments

#: What ``describe`` takes.
_STORES = f"{CORPUS}, {MOMENTS}, {MODEL} or {SHARES}"

#: Number of words to name among those that a sample hardly saw.
SHOWN_WORDS = 10


def describe(path: str | Path | StorePath, *, verify: bool = False) -> dict[str, Any]:
    """Describe the store at ``path``, a local path or URL, as JSON values; ``complete`` says whether it is usable.

    Committed arrays are verified against their digests; for a corpus the footers are read, and with ``verify`` all
    files are hashed. Nothing is written. ``unfinished`` lists work that the same command continues. ``leftovers``
    lists locks and temporary files, which belong to a running process or are removed by the next command that writes
    here. Raises ``InputError`` if there is no store; ``StoreError``, naming the array, chunk or shard, if a complete
    store is damaged.
    """
    place = store_path(path)
    if isinstance(place, Path) and not place.exists() and left_behind(place):
        described: dict[str, Any] = {"kind": "nothing yet", "complete": False}
    else:
        # ``path`` as given, because ``place`` omits the login of a URL.
        described = _describe(place, str(path), verify)
    # After the checks, because for a foreign directory it would list every file.
    found = left_behind(place)
    unfinished = [each for each in found if each.suffix == ".partial" and each.is_dir()]
    leftovers = [*described.pop("leftovers", ()), *(each for each in found if each not in unfinished)]
    paths_by_state = {"unfinished": unfinished, "leftovers": leftovers}
    return {**described, **{name: list(map(str, paths)) for name, paths in paths_by_state.items() if paths}}


def migrate(path: str | Path | StorePath) -> None:
    """Rewrite a moments store or a model of an earlier format in the present one, or do nothing.

    Makes no pass over the corpus; the documents that a store holds are written again. Raises ``InputError`` if neither
    is at ``path``, or nothing of it serves; the message says what to compute again and what is kept.
    """
    place = store_path(path)
    if node_exists(place):
        kind = read_attributes(place).get("kind")
        if kind == MODEL_KIND:
            return migrate_model(place)
        if kind == MOMENTS_KIND:
            from streaming_jsmf.moments.migrate import migrate as migrate_moments

            return migrate_moments(place)
    raise unsuitable(place, f"{MOMENTS} or {MODEL}")


def _describe(place: StorePath, path: str, verify: bool) -> dict[str, Any]:
    if (folder := Workspace(place, "ingest")).exists():
        return {"kind": folder.kind, "complete": False, "steps_done": folder.steps_done}
    if is_shares(place):
        return _describe_shares(open_shares(place), verify)
    if not node_exists(place):
        children = [place / name for name in model_names(place)]
        # choose-k, or a fit of several K, may have been stopped before its first model was complete.
        names = child_names(place) if isinstance(place, Path) else ()
        if children or any(
            re.fullmatch(r"k=\d+\.partial|\.k=.*|moments|\.moments\..*", name) for name in names
        ):
            return {
                "kind": "models",
                "complete": bool(children),
                "models": [
                    {"path": location(child), **_describe(child, str(child), verify)} for child in children
                ],
            }
        if not is_corpus(path, _STORES):
            raise unsuitable(path, _STORES)
        return _describe_corpus(str(path), verify)
    kind = read_attributes(place).get("kind")
    if kind == MODEL_KIND:
        return _describe_model(place)
    if kind == MOMENTS_KIND:
        from streaming_jsmf.moments.store import read_store

        return _describe_moments(read_store(place))
    raise unsuitable(place, _STORES)


def _describe_shares(shares: SharesFile, verify: bool) -> dict[str, Any]:
    about = shares.about
    for _ in shares.tables([*shares.columns, *about.columns]) if verify else ():
        pass
    return {
        "kind": "shares",
        "complete": True,
        "documents": about.all_totals.documents,
        "without_known_words": about.all_totals.without_known_words,
        "unconverged": about.all_totals.unconverged,
        "shares_of_each": about.width,
        "columns": list(shares.columns),
    }


def _describe_corpus(path: str, verify: bool) -> dict[str, Any]:
    corpus = open_corpus(path)
    if verify:
        verify_corpus(corpus)
    return {
        "kind": "corpus",
        "complete": True,
        "documents": corpus.n_documents,
        "words": corpus.n_words,
        "nonzeros": corpus.nonzeros,
        "shards": len(corpus.shards),
        "fingerprint": corpus.fingerprint,
    }


def _describe_moments(store: Moments) -> dict[str, Any]:
    from streaming_jsmf.moments.integrity import leftovers, provenance, require_intact
    from streaming_jsmf.moments.records import SUMS

    require_intact(store)
    missing = store.missing_stages
    partitions = len(store.manifest.partitions)
    described = {
        "kind": "moments",
        "complete": not missing,
        "missing": list(missing),
        "partitions": partitions,
        "words": store.n_words,
        "corpus": {
            "path": store.manifest.corpus.path,
            "fingerprint": store.manifest.corpus.fingerprint,
            "shards": len(store.manifest.corpus.shards),
        },
        **_sample_of(store),
        "settings": store.manifest.settings,
        "settings_fingerprint": store.manifest.settings_fingerprint,
        "digests": store.digests(third_moment=True),
        "provenance": provenance(store),
    }
    if not missing:
        described["leftovers"] = leftovers(store)
    for stage in missing:
        parts, folds = store.checkpoints(stage).committed()
        held = store.manifest.order.covered(folds) if stage == SUMS else ()
        described[f"{stage}_partitions_done"] = max(len(parts), len(held))
    return described


def _sample_of(store: Moments) -> dict[str, Any]:
    from streaming_jsmf.moments.records import SUMS
    from streaming_jsmf.moments.stages.eigenpairs import hardly_seen

    if store.missing_stages or not store.settings.has_projection:
        return {}
    words, few = store.read("word"), hardly_seen(store)
    return {
        "sample": {
            "share_of_documents": store.manifest.sample_share,
            "documents": int(store.scalars(SUMS)["n_held"]),
            **store.scalars_of("eigenvectors"),
            "words": [str(word) for word in words[few[:SHOWN_WORDS]]],
        }
    }


def _describe_model(path: StorePath) -> dict[str, Any]:
    from streaming_jsmf.evaluation.counts import read_counts, stored_corpora

    model = read_model(path)
    edits = read_edits(path, model)
    counted = stored_corpora(path)
    for corpus in counted:
        # Reading compares the counts with their digests.
        read_counts(path, model, str(corpus["fingerprint"]))
    return {
        "kind": "model",
        "complete": True,
        "engine": model.engine,
        "topics": int(model.arrays["topic_probability"].size),
        "words": int(model.arrays["word"].size),
        "settings": dict(model.settings),
        "metrics": dict(model.metrics),
        "counted_corpora": counted,
        "topic_edits": edits.fields(),
        "provenance": dict(model.provenance),
    }
