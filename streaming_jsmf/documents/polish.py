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
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.blocks.parts import distinct, fold_partitions
from streaming_jsmf.blocks.units import Partition, list_units, plan_partitions
from streaming_jsmf.config import PolishSettings, ScanSettings
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.documents.polish_steps import (
    Drawn,
    DrawReduction,
    ModelCounts,
    SampledReduction,
    StepReduction,
    block_of,
)
from streaming_jsmf.documents.topics import GivenTopics, require_known_words
from streaming_jsmf.inference.polish.schedule import SAMPLE_NONZEROS, Step, plan_steps
from streaming_jsmf.inference.polish.step import first_topics, next_topics
from streaming_jsmf.jobs.events import Iteration, Listener, silent
from streaming_jsmf.jobs.execution import Execution, Executor
from streaming_jsmf.jobs.fold import FoldJob, Part
from streaming_jsmf.jobs.folder import WorkStore
from streaming_jsmf.jobs.ledger import Partial, fold_keys, key_of
from streaming_jsmf.jobs.memory import PROCESS_BYTES, require_memory
from streaming_jsmf.jobs.run import run_job
from streaming_jsmf.storage.arrays import ArrayDigest
from streaming_jsmf.storage.paths import StorePath

Floats = NDArray[np.float64]

KIND = "streaming_jsmf.polish.unfinished"

#: Changes when the same request would give other bits.
ALGORITHM_VERSION = 1

#: Bytes that a nonzero takes while its row group is read and matched to the model's words.
BYTES_PER_NONZERO_READ = 48

#: Bytes of a nonzero of the sample: a word id and a count.
BYTES_PER_SAMPLED = 8

#: Largest share of the documents that is held out.
MOST_HELD_OUT = 0.05

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
class Progress:
    """Topics (N x K) after ``steps`` steps, and the log-likelihood of a token at each of them so far (natural)."""

    steps: int
    word_topic: Floats
    log_likelihood: tuple[float, ...]


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
    """

    word_topic: Floats
    topic_topic: Floats
    topic_probability: Floats
    n_documents: int
    log_likelihood: tuple[float, ...]


#: Called with the topics as they get on, and the documents held out (m x N).
Watch = Callable[[Progress, csr_array[Any]], None]


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
        Called at the start, after the sampled steps, and after each full one.

    Raises
    ------
    InputError
        If the corpus has none of the model's words or holds a bad record, in which case ``work`` is removed, or the
        memory budget is too small.
    StoreError
        If a shard or ``work`` is damaged.
    """
    execution = execution or Execution()
    partitions = plan_partitions(list_units(request.corpus), request.budget)
    require_memory(
        polish_memory(request, partitions, execution.concurrency),
        execution.memory,
        "polish",
        "lower --workers, or raise --memory",
    )
    places = require_known_words(request.topics, request.corpus)
    store = WorkStore(work, KIND, "polish", request.arguments)
    # The scheduler comes first: if it does not answer, nothing is made.
    with execution.executor(listener, on_bad_input=store.remove) as executor:
        digests = store.start({"places": places, "prior": request.topics.prior})
        counts = ModelCounts(
            store.path,
            digests["places"],
            len(request.topics.words),
            request.held_out,
            request.settings.seed,
            store.remedy,
        )
        run = _Run(request, store, partitions, executor, counts, digests["prior"], watch or _unwatched)
        return run.polished()


def polish_memory(request: PolishRequest, partitions: Sequence[Partition], workers: int) -> int:
    """Projected peak memory in bytes: topics and their sums for each worker, a row group, and the sample."""
    n_words, n_topics = request.topics.word_topic.shape
    row_group = max(unit.nonzeros for partition in partitions for unit in partition.units)
    each = TALL_ARRAYS * 8 * n_words * n_topics + row_group * BYTES_PER_NONZERO_READ
    sample = 2 * BYTES_PER_SAMPLED * min(SAMPLE_NONZEROS, request.corpus.nonzeros)
    return PROCESS_BYTES + each * min(workers, len(partitions)) + sample


def _unwatched(progress: Progress, held_out: csr_array[Any]) -> None:
    """Nobody looks."""


@dataclass(frozen=True)
class _Run:
    """One run of the job, at work."""

    request: PolishRequest
    store: WorkStore
    partitions: tuple[Partition, ...]
    executor: Executor
    counts: ModelCounts
    prior: ArrayDigest
    watch: Watch

    def polished(self) -> PolishedTopics:
        """All parts in their order."""
        steps = self.request.steps
        in_memory = (
            steps
            if steps[-1].share * self.request.corpus.nonzeros <= SAMPLE_NONZEROS
            else tuple(step for step in steps if step.share < 1)
        )
        draw = self._draw(in_memory[0].share if in_memory else 0.0)
        held_out = block_of(draw.read_fold(), "held_out", self.counts.n_words)
        given = self.request.topics
        topics, told = first_topics(given.word_topic, given.term_count / given.term_count.sum()), []
        self.watch(Progress(0, topics, ()), held_out)
        last = Partial({})
        if in_memory:
            last = self._sampled(draw, topics, in_memory, last=len(in_memory) == len(steps))
            topics, told = last.arrays["word_topic"], last.arrays["log_likelihood"].tolist()
            self._tell(told)
            self.watch(Progress(len(told), topics, tuple(told)), held_out)
        for number in range(len(in_memory), len(steps)):
            last = self._full(number, topics)
            topics = next_topics(last.arrays["tokens"])
            told.append(last.scalars["log_likelihood"] / max(last.scalars["n_tokens"], 1.0))
            self._tell(told[-1:], number)
            self.watch(Progress(len(told), topics, tuple(told)), held_out)
        n_documents = max(int(last.scalars["n_documents"]), 1)
        return PolishedTopics(
            topics,
            last.arrays["pairs"] / n_documents,
            last.arrays["shares"] / n_documents,
            n_documents,
            tuple(told),
        )

    def _draw(self, share: float) -> Drawn:
        reduction = DrawReduction(self.counts, share)
        keys, salt = self._keys(reduction.name), self.store.request
        fold_partitions(
            self.store.ledger(reduction.name), reduction, keys, self.partitions, salt, self.executor
        )
        return Drawn(self.store.ledger(reduction.name), fold_keys(keys, salt)[-1])

    def _sampled(self, draw: Drawn, topics: Floats, steps: tuple[Step, ...], *, last: bool) -> Partial:
        start = self.store.write("start", topics, ("word", "topic"))
        threads = self.executor.tasks_at_once
        reduction = SampledReduction(draw, start, self.prior, self.counts, threads, last)
        nonzeros = sum(round(step.share * self.request.corpus.nonzeros) for step in steps)
        part = Part(key_of(reduction.name, start.sha256), nonzeros, steps)
        folds = fold_keys([part.key], self.store.request)
        job = FoldJob(self.store.ledger(reduction.name), reduction, (part,), folds, part="sample")
        run_job(job, self.executor)
        return job.result()

    def _full(self, number: int, topics: Floats) -> Partial:
        name, steps = f"step-{number + 1}", self.request.steps
        given = self.store.write(name, topics, ("word", "topic"))
        threads = max(1, self.executor.tasks_at_once // len(self.partitions))
        with_pairs = number + 1 == len(steps)
        reduction = StepReduction(name, given, self.prior, self.counts, steps[number], with_pairs, threads)
        salt = f"{self.store.request} {given.sha256}"
        return fold_partitions(
            self.store.ledger(name), reduction, self._keys(salt), self.partitions, salt, self.executor
        )

    def _keys(self, salt: str) -> list[str]:
        contents = distinct([partition.content for partition in self.partitions])
        return [key_of(content, salt) for content in contents]

    def _tell(self, log_likelihood: Sequence[float], first: int = 0) -> None:
        for number, value in enumerate(log_likelihood, start=first + 1):
            measures = {"log_likelihood": value}
            self.executor.listener(Iteration("polish", number, len(self.request.steps), measures))
