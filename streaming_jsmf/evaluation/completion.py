"""Document completion: how well topics predict the documents of a corpus, in one pass.

Documents are independent, and the observed half is drawn from the document's contents, so sums over partitions are
additive, committed and resumed as in a scan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array

from streaming_jsmf.corpus.csr import iter_blocks
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.corpus.units import Partition, distinct, fold_partitions, list_units, plan_partitions
from streaming_jsmf.corpus.vocabulary import over_vocabulary
from streaming_jsmf.inference.perplexity import Completer, Completion
from streaming_jsmf.ingestion.repeats import hash_values
from streaming_jsmf.jobs.checkpoints import PartialResult, added, key_of
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.jobs.memory import PROCESS_BYTES
from streaming_jsmf.jobs.workspace import Workspace
from streaming_jsmf.storage.arrays import ArrayDigest, read_arrays
from streaming_jsmf.storage.paths import StorePath
from streaming_jsmf.topics.parameters import (
    BYTES_PER_NONZERO_READ,
    TopicParameters,
)

#: Increase when the same request gives other bits.
ALGORITHM_VERSION = 2

#: Seed of the observed halves, fixed so that models are compared on the same halves.
SEED = 0

#: N x K float64 arrays per worker: topics as given, smoothed, and in the kernel's layout.
TALL_ARRAYS = 3

#: Bytes per topic share during the completion of a row group.
BYTES_PER_SHARE = 24


@dataclass(frozen=True)
class CompletionRequest:
    """Topics, the corpus whose documents they complete, and the nonzeros per partition."""

    topics: TopicParameters
    corpus: Corpus
    budget: int

    @property
    def arguments(self) -> dict[str, Any]:
        """JSON values that identify the result."""
        return {
            "algorithm": ALGORITHM_VERSION,
            "topics": self.topics.fingerprint,
            "corpus": self.corpus.fingerprint,
            "partition_budget": self.budget,
            "seed": SEED,
        }


def complete_documents(
    request: CompletionRequest,
    work: StorePath,
    execution: Execution | None = None,
    listener: Listener = silent,
) -> Completion:
    """Predict half of the tokens of each document from the other half, in one pass; resumes from ``work``.

    Results are bit-identical for all schedulers and numbers of workers. The caller removes ``work`` after storing the
    sums. Words that the model lacks are ignored. Raises ``InputError`` if the memory budget is too small, or if the
    corpus has none of the model's words or a bad record, in which case ``work`` is removed; ``StoreError`` if a shard
    or ``work`` is damaged.
    """
    topics, ids = request.topics, request.topics.ids_of_corpus(request.corpus)
    partitions = plan_partitions(list_units(request.corpus), request.budget)
    keys = [key_of(name) for name in distinct([partition.content for partition in partitions])]
    store = Workspace(work, "completion of documents", request.arguments)
    with store.executor(partial(completion_memory, request, partitions), execution, listener) as executor:
        arrays = {
            "places": ids,
            "word_topic": topics.word_topic,
            "prior": topics.prior,
            "term_count": topics.term_count,
            # Hash the words so that the halves do not depend on word ids.
            "keys": hash_values(pa.array(topics.words))[:, 0].copy(),
        }
        digests = store.start(arrays, replace=True)
        threads = max(1, executor.tasks_at_once // len(partitions))
        reduction = CompletionReduction(work, digests, store.hint, threads)
        checkpoints = store.checkpoints("completion")
        sums = fold_partitions(checkpoints, reduction, keys, partitions, store.request, executor)
        return Completion(**sums.scalars)  # type: ignore[arg-type]


def completion_memory(request: CompletionRequest, partitions: Sequence[Partition], workers: int) -> int:
    """Projected peak memory in bytes: topics, a row group and its documents' shares for each worker."""
    units = [unit for partition in partitions for unit in partition.units]
    each = (
        TALL_ARRAYS * request.topics.word_topic.nbytes
        + max(unit.nonzeros for unit in units) * BYTES_PER_NONZERO_READ
        + max(unit.rows for unit in units) * request.topics.prior.size * BYTES_PER_SHARE
    )
    return PROCESS_BYTES + each * min(workers, len(partitions))


@dataclass(frozen=True)
class CompletionReduction:
    """``Completion`` of each partition, added in manifest order; workers read the arrays of the work store."""

    store: StorePath
    digests: Mapping[str, ArrayDigest]
    hint: str
    threads: int

    def compute(self, partition: Partition) -> PartialResult:
        """One pass over the partition, with one row group in memory at a time."""
        arrays = read_arrays(self.store, self.digests, hint=self.hint)
        completer = Completer.of(arrays["word_topic"], arrays["prior"], arrays["term_count"], arrays["keys"])
        ids, total = arrays["places"], Completion()
        for block in iter_blocks(partition.units, ids.size):
            counts = over_vocabulary(block, ids, len(completer.topics))
            total = total.merge(complete_whole(completer, counts, self.threads))
        return PartialResult({}, asdict(total))

    def fold(self, folded: PartialResult | None, partial: PartialResult) -> PartialResult:
        """Add integers exactly, and other numbers in float64."""
        return added(folded, partial)


def complete_whole(completer: Completer, block: csr_array[Any], threads: int | None = None) -> Completion:
    """Complete the documents with integer counts in a block (documents x N), and count the others."""
    before = np.concatenate([[0], np.cumsum(block.data != np.rint(block.data))])
    fractional = before[block.indptr[1:]] > before[block.indptr[:-1]]
    whole = block[np.flatnonzero(~fractional)] if fractional.any() else block
    sums = completer.complete(whole, seed=SEED, threads=threads)
    return replace(sums, fractional=int(np.count_nonzero(fractional)))
