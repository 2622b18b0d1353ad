"""Jobs over the documents of a corpus with a given model: what polish, counts and ``transform`` have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.corpus.partition_jobs import run_on_partitions
from streaming_jsmf.corpus.units import (
    Partition,
    WorkUnit,
    distinct,
    list_units,
    partition_part,
    plan_partitions,
    read_block,
)
from streaming_jsmf.corpus.vocabulary import over_vocabulary
from streaming_jsmf.jobs.checkpoints import Checkpoints, PartialResult, joined_arrays, key_of
from streaming_jsmf.jobs.events import Listener
from streaming_jsmf.jobs.execution import Execution, Executor
from streaming_jsmf.jobs.order import FoldOrder
from streaming_jsmf.jobs.run import Job, PartStage, Reduction
from streaming_jsmf.jobs.workspace import Workspace
from streaming_jsmf.process_limits import PROCESS_BYTES
from streaming_jsmf.storage.arrays import ArrayDigest, read_array
from streaming_jsmf.storage.objects import in_threads
from streaming_jsmf.storage.paths import StorePath

if TYPE_CHECKING:
    from scipy.sparse import csr_array

#: Function that reads a committed result.
Read: TypeAlias = Callable[[], PartialResult]

#: Bytes per nonzero while a row group is read and matched to the words of the model.
BYTES_PER_MATCHED_NONZERO = 48

#: Bytes per topic share of a document while the shares of a row group are computed.
BYTES_PER_SHARE = 24


@dataclass(frozen=True)
class TaskInputs:
    """What the tasks of a job read: its arrays, and documents over the N words of the model.

    ``threads`` documents may be processed concurrently in a task, which affects no bit. ``hint`` ends messages about
    damage.
    """

    store: StorePath
    digests: Mapping[str, ArrayDigest]
    hint: str
    n_words: int
    threads: int

    def read(self, name: str) -> NDArray[Any]:
        """Read and verify an array of the job."""
        return read_array(self.store, name, self.digests[name], hint=self.hint)

    def blocks(self, partition: Partition) -> Iterator[tuple[WorkUnit, csr_array[Any], float]]:
        """Yield each row group with its counts (documents x N), and the tokens of all words, also of unknown ones."""
        ids = self.read("ids")
        for unit in partition.units:
            counts = read_block(unit, ids.size)
            yield (
                unit,
                over_vocabulary(counts, ids, self.n_words),
                float(counts.data.sum(dtype=np.float64)),
            )


def documents_peak(row_group: int, needs: tuple[int, int], tasks: int) -> int:
    """Projected peak memory of so many tasks at a time; ``needs`` are the bytes of a task and of all together."""
    each, shared = needs
    return PROCESS_BYTES + (row_group * BYTES_PER_MATCHED_NONZERO + each) * tasks + shared


@dataclass(frozen=True)
class DocumentJob:
    """A job over the documents of a corpus with a given model, whose unfinished work is kept at ``root``.

    Attributes
    ----------
    what : Name of the job in messages.
    budget : Nonzeros of a partition.
    n_words : Number of words of the model, N.
    arrays : Arrays that tasks read. ``ids`` (words of the corpus,) are the ids of its words in the model, or -1.
    fields : JSON values that determine the results, together with the corpus and the budget.
    task_bytes : Memory of a task besides that of a row group; ``shared_bytes`` is needed only once.
    result : Fingerprint of the request of the final result, if it is not that of the work.
    """

    what: str
    root: StorePath
    corpus: Corpus
    budget: int
    n_words: int
    arrays: Mapping[str, NDArray[Any]]
    fields: Mapping[str, Any]
    task_bytes: int
    shared_bytes: int = 0
    result: str = ""

    @cached_property
    def work(self) -> Workspace:
        """The workspace, which identifies the job by the values that determine its results."""
        made_of = {"corpus": self.corpus.fingerprint, "partition_budget": self.budget}
        return Workspace(self.root, self.what, {**self.fields, **made_of}, self.result)

    @cached_property
    def partitions(self) -> tuple[Partition, ...]:
        return plan_partitions(list_units(self.corpus), self.budget)

    def memory(self, workers: int) -> int:
        """Projected peak memory in bytes."""
        row_group = max(unit.nonzeros for partition in self.partitions for unit in partition.units)
        return documents_peak(
            row_group, (self.task_bytes, self.shared_bytes), min(workers, len(self.partitions))
        )

    @contextmanager
    def running(
        self, execution: Execution | None, listener: Listener, *, replace: bool = False
    ) -> Iterator[tuple[Executor, TaskInputs]]:
        """Start the job or continue an interrupted run; an ``InputError`` inside the block removes the work.

        ``replace`` removes the work of another request. Raises ``InputError`` if memory is too small, and as
        ``Workspace.require_same`` without ``replace``.
        """
        if not replace:
            self.work.require_same()
        with self.work.executor(self.memory, execution, listener, self.corpus.first_files) as executor:
            digests = self.work.start(self.arrays, replace=replace)
            threads = executor.threads_for(len(self.partitions))
            yield executor, TaskInputs(self.root, digests, self.work.hint, self.n_words, threads)

    def fold(self, executor: Executor, reduction: Reduction, name: str, *salt: str) -> Read:
        """Reduce all partitions in order, in one pass over those that are not committed; return how to read the result.

        ``salt`` are texts that determine it besides the contents of the partitions and the request.
        """
        order = FoldOrder(self._keys(*salt), self.work.request)
        return partial(self._run(executor, reduction, name, order).read_fold, order.total)

    def joined(self, executor: Executor, stage: PartStage, name: str) -> PartialResult:
        """As ``fold``, but concatenate the arrays, which no fold needs to copy, and add the scalars in its order."""
        # Under these keys, unfinished work of earlier builds has no parts, which it removed once they were folded.
        order = FoldOrder(self._keys("joined"), self.work.request)
        read = self._run(executor, stage, name, order, fold=False).read_part
        # Locally, other threads would not save time, nor use the free memory of this one.
        local = isinstance(self.root, Path)
        parts = [*map(read, order.keys)] if local else in_threads(read, order.keys)
        added = {each: order.folded([part.scalars[each] for part in parts], add) for each in parts[0].scalars}
        return PartialResult(joined_arrays(parts), added)

    def _keys(self, *salt: str) -> tuple[str, ...]:
        contents = distinct([partition.content for partition in self.partitions])
        return tuple(key_of(content, *salt) for content in contents)

    def _run(
        self, executor: Executor, stage: PartStage, name: str, order: FoldOrder, *, fold: bool = True
    ) -> Checkpoints:
        checkpoints = self.work.checkpoints(name)
        parts = tuple(map(partition_part, order.keys, self.partitions))
        run_on_partitions(Job(checkpoints, stage, parts, order if fold else None), executor)
        return checkpoints
