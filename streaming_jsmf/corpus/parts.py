"""Partitions as the parts of a job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from streaming_jsmf.corpus.units import Partition
from streaming_jsmf.jobs.checkpoints import Checkpoints, PartialResult
from streaming_jsmf.jobs.execution import Executor
from streaming_jsmf.jobs.order import FoldOrder
from streaming_jsmf.jobs.run import Job, run_job
from streaming_jsmf.jobs.tasks import Part, Reduction


def distinct(contents: Sequence[str]) -> tuple[str, ...]:
    """The same names with the repeats numbered: a corpus may hold a shard twice, and both count."""
    seen: Counter[str] = Counter()
    names = []
    for content in contents:
        seen[content] += 1
        names.append(content if seen[content] == 1 else f"{content} repeat {seen[content]}")
    return tuple(names)


def partition_part(key: str, partition: Partition) -> Part:
    """The part of a partition; what it held is kept in the history of the store."""
    metadata = {"nonzeros": partition.nonzeros, "rows": partition.rows, "content": partition.content}
    return Part(key, partition.nonzeros, partition, metadata)


def partition_parts(keys: Iterable[str], partitions: Iterable[Partition]) -> tuple[Part, ...]:
    """The parts of partitions under their keys."""
    return tuple(partition_part(key, partition) for key, partition in zip(keys, partitions, strict=True))


def fold_partitions(
    checkpoints: Checkpoints,
    reduction: Reduction,
    keys: Sequence[str],
    partitions: Sequence[Partition],
    salt: str,
    executor: Executor,
) -> PartialResult:
    """What a reduction makes of all partitions, folded in their order. One pass over those that are not committed.

    Parameters
    ----------
    keys
        Of the partitions in ``checkpoints``, all different: they change with whatever changes a partition's result.
    salt
        Changes with whatever else changes a fold, see ``FoldOrder``.

    Raises
    ------
    InputError, StoreError
        What a task met in the corpus or the store.
    """
    parts = partition_parts(keys, partitions)
    job = Job(checkpoints, reduction, parts, FoldOrder(tuple(keys), salt))
    run_job(job, executor)
    return job.result()
