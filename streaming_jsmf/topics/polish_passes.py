"""Polish: topics finished by a few deterministic passes of CVB0 over the documents (``inference.polish``).

A job in three parts, in a work store beside its result:

1. *draw*: one pass over all documents that copies two small sets of them, drawn by a counter from the seed and the
   contents of their row group: those held out, which take no part in anything that follows, and a sample;
2. *sampled*: the first steps, all on the sample, in the memory of one task;
3. *full-0*, *full-1*, ...: the last steps. Each is a pass over all documents but those held out; what the partitions
   give is added in their order.

Of a corpus no larger than a sample the sample is all of it, and the second part is the last. Every part is committed,
a killed job goes on with the first that is not, and the bits do not depend on who runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.config import PolishSettings, ScanSettings
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.corpus.parts import distinct, fold_partitions
from streaming_jsmf.corpus.units import Partition, list_units, plan_partitions
from streaming_jsmf.inference.polish import schedule
from streaming_jsmf.inference.polish.schedule import Step, plan_steps
from streaming_jsmf.inference.polish.step import first_topics, next_topics
from streaming_jsmf.jobs.checkpoints import PartialResult, key_of
from streaming_jsmf.jobs.events import Iteration, Listener, silent
from streaming_jsmf.jobs.execution import Execution, Executor
from streaming_jsmf.jobs.memory import PROCESS_BYTES
from streaming_jsmf.jobs.order import FoldOrder
from streaming_jsmf.jobs.run import Job, run_job, run_steps
from streaming_jsmf.jobs.tasks import Part
from streaming_jsmf.jobs.workspace import Workspace
from streaming_jsmf.storage.arrays import ArrayDigest
from streaming_jsmf.storage.paths import StorePath
from streaming_jsmf.topics.parameters import BYTES_PER_NONZERO_READ, GivenTopics, require_known_words
from streaming_jsmf.topics.polish_steps import (
    Committed,
    DrawReduction,
    ModelCounts,
    SampledReduction,
    StepReduction,
    block_of,
    longest_of,
)

Floats = NDArray[np.float64]

#: Changes when the same request would give other bits.
ALGORITHM_VERSION = 3

#: Bytes of a nonzero of the sample: a word id and a count.
BYTES_PER_SAMPLED = 8

#: Largest share of the documents that is held out.
MOST_HELD_OUT = 0.02

#: Arrays of N x K float64 that a worker holds at once: topics in both precisions, sums of blocks, of the partition
#: and of the fold.
TALL_ARRAYS = 6


@dataclass(frozen=True)
class PolishRequest:
    """Which topics are finished on which corpus, and how."""

    topics: GivenTopics
    corpus: Corpus
    settings: PolishSettings
    partition_nonzeros: int | None = None

    @property
    def budget(self) -> int:
        """Nonzeros of a partition: as in a scan."""
        scan = ScanSettings(partition_nonzeros=self.partition_nonzeros)
        return scan.partition_budget(self.corpus.nonzeros, self.corpus.n_words)

    @property
    def steps(self) -> tuple[Step, ...]:
        """Each step with the share of the documents that it sees."""
        return plan_steps(self.corpus.nonzeros, self.settings.steps, self.settings.rounds)

    @property
    def held_out(self) -> float:
        """Probability of a document to be held out."""
        return min(self.settings.held_out / max(self.corpus.n_documents, 1), MOST_HELD_OUT)

    @property
    def arguments(self) -> dict[str, Any]:
        """What tells it from any request with another result: JSON values."""
        return {
            "algorithm": ALGORITHM_VERSION,
            "topics": self.topics.fingerprint,
            "corpus": self.corpus.fingerprint,
            "partition_budget": self.budget,
            "steps": [asdict(step) for step in self.steps],
            "held_out": self.held_out,
            "seed": self.settings.seed,
        }


@dataclass(frozen=True)
class PolishedTopics:
    """Finished topics.

    Attributes
    ----------
    word_topic
        B, N x K, columns sum to 1.
    topic_topic
        A, K x K, sums to 1: mean over the documents of the products of two topic shares, at the last step.
    topic_probability
        (K,) mean topic shares of the documents, sums to 1.
    n_documents
        Seen by the last step.
    log_likelihood
        Of a token, at each step (natural logarithm).
    watched
        (looks, 1 + values) steps taken, and what the watch said, at each look.
    """

    word_topic: Floats
    topic_topic: Floats
    topic_probability: Floats
    n_documents: int
    log_likelihood: tuple[float, ...]
    watched: Floats


#: Called with the topics as they get on (N x K) and the documents held out (m x N); gives numbers to be kept.
Watch = Callable[[Floats, csr_array[Any]], Sequence[float]]


def polish_topics(
    request: PolishRequest,
    work: StorePath,
    execution: Execution | None = None,
    listener: Listener = silent,
    watch: Watch | None = None,
) -> PolishedTopics:
    """Finish topics by steps over the documents of a corpus, or go on with what an interrupted run left in ``work``.

    Passes over the data: one, and one more for each full step. The same request gives the same bits on every scheduler
    and number of workers. ``work`` stays; it is the caller's to remove once the result is kept elsewhere.

    Parameters
    ----------
    watch
        Asked after the sampled steps and after each full one.

    Raises
    ------
    InputError
        If the corpus has none of the model's words or holds a bad record, in which case ``work`` is removed, or the
        memory budget is too small.
    StoreError
        If a shard or ``work`` is damaged.
    """
    partitions = plan_partitions(list_units(request.corpus), request.budget)
    places = require_known_words(request.topics, request.corpus)
    store = Workspace(work, "polish", request.arguments)
    store.require_same()
    with store.executor(partial(polish_memory, request, partitions), execution, listener) as executor:
        digests = store.start({"places": places, "prior": request.topics.prior})
        counts = ModelCounts(
            store.root,
            digests["places"],
            len(request.topics.words),
            request.held_out,
            request.settings.seed,
            store.hint,
        )
        run = _Run(request, store, partitions, executor, counts, digests["prior"], watch or _unwatched)
        return run.polished()


def polish_memory(request: PolishRequest, partitions: Sequence[Partition], workers: int) -> int:
    """Projected peak memory in bytes: topics and their sums for each worker, a row group, and the sample."""
    n_words, n_topics = (int(n) for n in request.topics.word_topic.shape)
    row_group = max(unit.nonzeros for partition in partitions for unit in partition.units)
    each = TALL_ARRAYS * 8 * n_words * n_topics + row_group * BYTES_PER_NONZERO_READ
    sample = 2 * BYTES_PER_SAMPLED * min(schedule.SAMPLE_NONZEROS, request.corpus.nonzeros)
    return PROCESS_BYTES + each * min(workers, len(partitions)) + sample


def _unwatched(word_topic: Floats, held_out: csr_array[Any]) -> Sequence[float]:
    """Nothing is kept."""
    del word_topic, held_out
    return ()


@dataclass(frozen=True)
class _Run:
    """One run of the job, at work."""

    request: PolishRequest
    store: Workspace
    partitions: tuple[Partition, ...]
    executor: Executor
    counts: ModelCounts
    prior: ArrayDigest
    watch: Watch

    def polished(self) -> PolishedTopics:
        """All parts in their order."""
        steps, in_memory = self.request.steps, self._in_memory()
        drawn = self._draw(in_memory[0].share if in_memory else 0.0)
        met = drawn.read()
        held_out, longest = block_of(met, "held_out", self.counts.n_words), longest_of(met)
        given = self.request.topics
        start = first_topics(given.word_topic, given.term_count / given.term_count.sum())
        state = self.store.checkpoints("topics")
        # The sampled steps, if there are any, are one move; then each full step is one.
        moves = [in_memory] * bool(in_memory) + [(step,) for step in steps[len(in_memory) :]]

        def move(number: int, key: str, before: PartialResult) -> PartialResult:
            taken, before_it = moves[number], Committed(state, key)
            last = number + 1 == len(moves)
            if taken is in_memory:
                found = self._sampled(drawn, before_it, taken, last=last)
            else:
                number = before.arrays["log_likelihood"].size + 1
                found = self._full(number, before_it, taken[0], longest, last=last)
            return self._after(before, found, held_out)

        # The start is not looked at: it may have been made of the documents held out.
        end = run_steps(
            state, PartialResult({"word_topic": start, "log_likelihood": np.zeros(0)}), len(moves), move
        )
        n_documents = max(int(end.scalars["n_documents"]), 1)
        return PolishedTopics(
            end.arrays["word_topic"],
            end.arrays["pairs"] / n_documents,
            end.arrays["shares"] / n_documents,
            n_documents,
            tuple(end.arrays["log_likelihood"].tolist()),
            end.arrays["watched"],
        )

    def _in_memory(self) -> tuple[Step, ...]:
        """The steps on the sample: all, where the corpus is no larger."""
        steps, nonzeros = self.request.steps, self.request.corpus.nonzeros
        return (
            steps if nonzeros <= schedule.SAMPLE_NONZEROS else tuple(step for step in steps if step.share < 1)
        )

    def _after(self, before: PartialResult, found: PartialResult, held_out: csr_array[Any]) -> PartialResult:
        """The topics after a move, with what was told on the way."""
        told = np.concatenate([before.arrays["log_likelihood"], found.arrays["log_likelihood"]])
        for number in range(before.arrays["log_likelihood"].size, told.size):
            measures = {"log_likelihood": float(told[number])}
            self.executor.listener(Iteration("polish", number + 1, len(self.request.steps), measures))
        row = np.array([[told.size, *self.watch(found.arrays["word_topic"], held_out)]])
        seen = before.arrays.get("watched")
        watched = row if seen is None else np.concatenate([seen, row])
        return PartialResult({**found.arrays, "log_likelihood": told, "watched": watched}, found.scalars)

    def _draw(self, share: float) -> Committed:
        reduction = DrawReduction(self.counts, share)
        keys, checkpoints = self._keys(reduction.name), self.store.checkpoints(reduction.name)
        fold_partitions(checkpoints, reduction, keys, self.partitions, self.store.request, self.executor)
        return Committed(checkpoints, FoldOrder(tuple(keys), self.store.request).total)

    def _sampled(
        self, drawn: Committed, state: Committed, steps: tuple[Step, ...], *, last: bool
    ) -> PartialResult:
        threads = self.executor.tasks_at_once
        reduction = SampledReduction(drawn, state, self.prior, self.counts, threads, last)
        nonzeros = sum(round(step.share * self.request.corpus.nonzeros) for step in steps)
        part = Part(key_of(reduction.name, state.fold), nonzeros, steps)
        checkpoints, order = (
            self.store.checkpoints(reduction.name),
            FoldOrder((part.key,), self.store.request),
        )
        job = Job(checkpoints, reduction, (part,), order, part="sample")
        run_job(job, self.executor)
        return job.result()

    def _full(
        self, number: int, state: Committed, step: Step, longest: float, *, last: bool
    ) -> PartialResult:
        threads = max(1, self.executor.tasks_at_once // len(self.partitions))
        reduction = StepReduction(
            f"step-{number}", state, self.prior, self.counts, step, longest, last, threads
        )
        checkpoints, keys = self.store.checkpoints(reduction.name), self._keys(state.fold)
        sums = fold_partitions(
            checkpoints, reduction, keys, self.partitions, self.store.request, self.executor
        )
        told = sums.scalars["log_likelihood"] / max(sums.scalars["n_tokens"], 1.0)
        arrays = {
            "word_topic": next_topics(sums.arrays["tokens"], last=last),
            "shares": sums.arrays["shares"],
            "pairs": sums.arrays["pairs"],
            "log_likelihood": np.array([told]),
        }
        checkpoints.clear()
        return PartialResult(arrays, {"n_documents": sums.scalars["n_documents"]})

    def _keys(self, salt: str) -> list[str]:
        contents = distinct([partition.content for partition in self.partitions])
        return [key_of(content, salt) for content in contents]
