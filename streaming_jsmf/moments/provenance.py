"""Provenance of a moments store: times, package versions and cost. None of it enters a digest or fingerprint."""

from __future__ import annotations

from typing import Any

from streaming_jsmf.jobs.events import Cost
from streaming_jsmf.moments.store import MomentsStore


def describe_making(store: MomentsStore) -> dict[str, Any]:
    """Summarise the records of a store, complete or not, as JSON values; unknown entries are omitted.

    ``started`` and ``finished`` (complete stores only) are UTC times and may span several runs. ``task_seconds`` is
    summed over workers. ``peak_memory`` is the largest of any worker, in bytes. ``versions`` lists the package
    versions of all runs. Reads only small records. Raises ``StoreError`` if a record is damaged.
    """
    records = [record for name in store.record_names if (record := store.outcome(name))]
    notes = [note for record in records for note in record.get("history", ())]
    for stage in store.missing_stages:
        checkpoints = store.checkpoints(stage)
        notes += checkpoints.history(sorted(checkpoints.parts()))
    costs = [cost for cost in map(Cost.from_fields, notes) if cost is not None]
    made = [record["made"] for record in records if "made" in record]
    found: dict[str, Any] = {}
    if len(made) == len(records):
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
