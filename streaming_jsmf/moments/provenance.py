"""What made a moments store: when, with which versions, and at what cost. No digest or fingerprint holds any of it."""

from __future__ import annotations

from typing import Any

from streaming_jsmf.jobs.events import Cost
from streaming_jsmf.moments.store import MomentsStore


def describe_making(store: MomentsStore) -> dict[str, Any]:
    """Summarise the records of a store, complete or not, as JSON values; leave out what they do not tell.

    ``started`` and ``finished`` (of a complete store) are times in UTC and may span several runs. ``task_seconds``
    add up over the workers. ``peak_memory`` is the largest of any worker, in bytes. ``versions`` are those of the
    processes that ran the scan; of a package that changed between two runs all of them. Reads small records only.

    Raises
    ------
    StoreError
        If a record is damaged.
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
    """Each package's version; several, in order of use, if a scan was finished with another than it began with."""
    packages = dict.fromkeys(package for versions in seen for package in versions)
    return {
        package: ", ".join(dict.fromkeys(versions[package] for versions in seen if package in versions))
        for package in packages
    }
