"""Rewrites a moments store of an earlier format in the present one, without a pass over the documents.

Format 4 differs in the documents that a store holds, which were not compressed. Format 3 had eight stages, of which
some are one now, and could hold several corpora. In both, arrays and documents are those of a scan of today, to the
bit.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.errors import InputError, StoreError, finding
from streaming_jsmf.fingerprint import fingerprint, unsealed
from streaming_jsmf.jobs.checkpoints import key_of, read_record, write_record
from streaming_jsmf.jobs.events import what
from streaming_jsmf.moments.integrity import remove_leftovers
from streaming_jsmf.moments.manifest import (
    AGAIN,
    ALGORITHM_VERSION,
    FORMAT_VERSION,
    MIGRATED,
    StoreManifest,
    read_manifest,
    root_attributes,
    sealed_manifest,
)
from streaming_jsmf.moments.records import SUMS, Records
from streaming_jsmf.moments.stages import STAGES
from streaming_jsmf.storage.arrays import replace_attributes
from streaming_jsmf.storage.lock import sole_writer
from streaming_jsmf.storage.paths import StorePath

logger = logging.getLogger(__name__)

#: Stages of format 3 and the arrays of others that they were computed from.
_INPUTS: dict[str, tuple[str, ...]] = {
    "range": (),
    "cooccurrence": (),
    "basis": (),
    "projection": ("basis",),
    "directions": ("basis",),
    "refinement": ("directions",),
    "eigenpairs": ("basis", "projection", "directions", "refinement"),
    "third_moment": ("basis",),
}


def migrate(path: StorePath) -> None:
    """Rewrite the store at ``path`` in the present format, or do nothing if it has it.

    The documents that it holds are read and written again. If it is interrupted, the same call completes it. All stages
    are kept; of a store that has grown only the results of partitions, from which the next scan computes the others.

    Raises ``InputError`` if the format is unknown, or the store holds several corpora; ``StoreError`` if it is damaged.
    """
    fields = sealed_manifest(path)
    version = fields.get("format_version")
    if version not in MIGRATED:
        read_manifest(path)  # of the present format, or an error that says what to do
        return
    with sole_writer(path):
        store = Records(path, _manifest(path, fields))
        records = dict(_records(store)) if version == 3 else {}
        _rewrite_documents(store, "range" if version == 3 else SUMS)
        for name, record in records.items():
            write_record(path, name, record)
        replace_attributes(path, root_attributes(store.manifest))
        missing = store.missing_stages
        if not missing:
            remove_leftovers(store)
    rest = f"; the next scan of its corpus completes it: {', '.join(map(what, missing))}" if missing else ""
    logger.info("%s: rewritten from format %s to %d%s", path, version, FORMAT_VERSION, rest)


def _manifest(path: StorePath, sealed: Mapping[str, Any]) -> StoreManifest:
    """The manifest in the present format."""
    try:
        fields = unsealed(sealed)
    except ValueError as error:
        raise StoreError(f"{path}/zarr.json: the manifest is damaged ({error}); {AGAIN}") from error
    if fields["format_version"] == 4:
        return StoreManifest.model_validate({**fields, "format_version": FORMAT_VERSION})
    entries = fields["corpora"]
    if len({entry["fingerprint"] for entry in entries}) != 1 or any(entry["columns"] for entry in entries):
        raise InputError(
            f"{path}: holds {len(entries)} corpora, and a store holds one; ingest their documents into one corpus and "
            "scan it into another path (this store is kept, and the release that made it reads it)"
        )
    shards = {name: sha256 for entry in entries for name, sha256 in entry["shards"].items()}
    corpus = {name: value for name, value in entries[-1].items() if name != "columns"}
    partitions = [{k: value for k, value in each.items() if k != "corpus"} for each in fields["partitions"]]
    same = ("settings", "partition_budget", "n_words", "vocabulary")
    return StoreManifest.model_validate(
        {
            **{name: fields[name] for name in same},
            "format_version": FORMAT_VERSION,
            "algorithm": _algorithm(path, fields),
            "sample_share": fields.get("sample_share"),
            "corpus": {**corpus, "shards": shards},
            "numpy": fields["probes"]["numpy"],
            "partitions": partitions,
        }
    )


def _algorithm(path: StorePath, fields: Mapping[str, Any]) -> int:
    """The version of the algorithm, of which format 3 had only the fingerprint together with the settings."""
    settings = {**fields["settings"], "third_moment": False}
    for version in range(ALGORITHM_VERSION, 0, -1):
        if fingerprint({**settings, "algorithm": version}) == fields["range_key"]:
            return version
    raise StoreError(f"{path}/zarr.json: the settings differ from their fingerprint; {AGAIN}")


def _records(store: Records) -> Iterator[tuple[str, dict[str, Any]]]:
    """The records of format 3 as those of today, up to the first stage that is missing or of an earlier state."""
    total = store.order.total
    read = {name: read_record(store.path, name, AGAIN) for name in (SUMS, *_INPUTS)}
    there = {name: record for name, record in read.items() if record is not None}
    digests = {array: each["sha256"] for record in there.values() for array, each in record["arrays"].items()}

    def is_valid(name: str) -> bool:
        inputs = [digests.get(array, "") for array in _INPUTS[name]]
        return name in there and there[name]["covers"] == (key_of(total, *inputs) if inputs else total)

    for name in store.stage_names:
        record = there.get(name, {})
        if "inputs" not in record:  # otherwise an interrupted migration has written it
            parts = _parts_of(name, store.settings, there)
            if not all(map(is_valid, parts)):
                return
            record = _joined([there[part] for part in parts])
            record["covers"] = total
            record["inputs"] = {array: digests[array] for array in STAGES[name].inputs}
        yield name, record


def _parts_of(stage: str, settings: ScanSettings, there: Mapping[str, Any]) -> list[str]:
    """The stages of format 3 that are a stage now. The eigenpairs belong to the last pass over the documents."""
    arrays = there.get("directions", {}).get("arrays", {})
    is_refined = "directions" in arrays and arrays["directions"]["shape"][1] > 0
    return {
        SUMS: ["range", *([] if settings.exact else ["basis"])],
        "cooccurrence": ["cooccurrence", "basis"],
        "projection": ["projection", "directions", *([] if is_refined else ["eigenpairs"])],
        "refinement": ["refinement", *(["eigenpairs"] if is_refined else [])],
    }.get(stage, [stage])


def _joined(records: list[dict[str, Any]]) -> dict[str, Any]:
    """One record of the arrays and scalars of several."""
    arrays, scalars = (
        {k: v for each in records for k, v in each[of].items()} for of in ("arrays", "scalars")
    )
    history = [note for each in records for note in each["history"]]
    return {"arrays": arrays, "scalars": scalars, "history": history, "made": records[-1]["made"]}


def _rewrite_documents(store: Records, stage: str) -> None:
    """Write the parts of pass 1, which an earlier format kept for ``stage``, with compressed documents."""
    written = store.checkpoints(SUMS)
    if not written.keep:
        return
    read = replace(written, stage=stage, hint=AGAIN)
    for key in store.manifest.part_keys:
        if read.has("part", key):
            try:
                part, metadata = read.read_part(key), read.read_metadata(key)
            except StoreError as error:
                logger.warning("%s; the next scan of its corpus computes it", finding(error))
            else:
                written.commit_part(key, part, metadata)
