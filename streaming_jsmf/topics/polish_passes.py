"""The job of polish: topics improved by deterministic steps of CVB0 over the documents (``inference.polish``).

It has three parts, which run in a work store beside the result:

1. ``draw``: one pass over all documents copies two small random sets of them, the held-out documents, which no step
   sees, and a sample;
2. ``sampled``: the first steps, on the sample, in the memory of one task;
3. ``step-1``, ``step-2``, ...: the last steps, each a pass over all documents but the held-out ones.

If the corpus is no larger than a sample, all steps run on the sample. Each part is committed, a killed job resumes at
the first part that is not, and the bits do not depend on the scheduler.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from streaming_jsmf.config import PolishSettings, ScanSettings
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.corpus.parts import distinct, fold_partitions
from streaming_jsmf.corpus.units import Partition, list_units, plan_partitions
from streaming_jsmf.inference import polish as polish_step
from streaming_jsmf.inference.perplexity import Completer
from streaming_jsmf.inference.polish import Step, first_topics, next_topics, plan_steps
from streaming_jsmf.jobs.checkpoints import PartialResult, key_of
from streaming_jsmf.jobs.events import Iteration, Listener, silent
from streaming_jsmf.jobs.execution import Execution, Executor
from streaming_jsmf.jobs.memory import PROCESS_BYTES
from streaming_jsmf.jobs.order import FoldOrder
from streaming_jsmf.jobs.run import Job, run_job, run_steps
from streaming_jsmf.jobs.tasks import Part
from streaming_jsmf.jobs.workspace import Workspace
from streaming_jsmf.storage.paths import StorePath
from streaming_jsmf.topics.parameters import BYTES_PER_NONZERO_READ, Floats, TopicParameters
from streaming_jsmf.topics.polish_steps import (
    Committed,
    Counts,
    DrawReduction,
    Inputs,
    SampledReduction,
    StepReduction,
    block_of,
    longest_of,
)

#: Increased when the same request gives other bits.
ALGORITHM_VERSION = 3

#: Bytes of a nonzero of the sample: a word id and a count.
BYTES_PER_SAMPLED = 8

#: Largest share of the documents that is held out.
MOST_HELD_OUT = 0.02

#: N x K float64 arrays that a worker holds: topics in both precisions, and sums of blocks, partition and fold.
TALL_ARRAYS = 6


@dataclass(frozen=True)
class PolishRequest:
    """Which topics are polished on which corpus, and how."""

    topics: TopicParameters
    corpus: Corpus
    settings: PolishSettings
    partition_nonzeros: int | None = None

    @property
    def budget(self) -> int:
        """Nonzeros of a partition, as in a scan."""
        scan = ScanSettings(partition_nonzeros=self.partition_nonzeros)
        return scan.partition_budget(self.corpus.nonzeros, self.corpus.n_words)

    @property
    def steps(self) -> tuple[Step, ...]:
        """Each step with the share of the documents that it sees."""
        return plan_steps(self.corpus.nonzeros, self.settings.steps, self.settings.rounds)

    @property
    def sampled_steps(self) -> tuple[Step, ...]:
        """The steps on the sample: all, if the corpus is no larger."""
        whole = self.corpus.nonzeros <= polish_step.SAMPLE_NONZEROS
        return tuple(step for step in self.steps if whole or step.share < 1)

    @property
    def held_out(self) -> float:
        """Probability of a document to be held out."""
        return min(self.settings.held_out / max(self.corpus.n_documents, 1), MOST_HELD_OUT)

    @property
    def arguments(self) -> dict[str, Any]:
        """Everything that determines the result, as JSON values."""
        return {
            "algorithm": ALGORITHM_VERSION,
            "topics": self.topics.fingerprint,
            "corpus": self.corpus.fingerprint,
            "partition_budget": self.budget,
            "steps": [asdict(step) for step in self.steps],
            "held_out": self.held_out,
            "seed": self.settings.seed,
        }

    def memory(self, partitions: Sequence[Partition], workers: int) -> int:
        """Projected peak memory in bytes: topics and sums of each worker, a row group, and the sample."""
        row_group = max(unit.nonzeros for partition in partitions for unit in partition.units)
        each = TALL_ARRAYS * 8 * self.topics.word_topic.size + row_group * BYTES_PER_NONZERO_READ
        sample = 2 * BYTES_PER_SAMPLED * min(polish_step.SAMPLE_NONZEROS, self.corpus.nonzeros)
        return PROCESS_BYTES + each * min(workers, len(partitions)) + sample


def polish_topics(
    request: PolishRequest,
    work: StorePath,
    execution: Execution | None = None,
    listener: Listener = silent,
) -> PartialResult:
    """Polish topics on the documents of a corpus, or resume an interrupted run in the store ``work``.

    Passes over the data: one, and one more for each full step. The same request gives the same bits on every scheduler.
    The caller removes ``work`` when the result is written.

    Raises ``InputError`` if the corpus has none of the model's words or a bad record, in which case ``work`` is
    removed, or memory is too small; ``StoreError`` if a shard or ``work`` is damaged.

    Returns
    -------
    PartialResult
        ``word_topic`` (N x K, columns sum to 1); ``shares`` (K,) and ``pairs`` (K x K), the sums of topic shares and of
        their products over the ``n_documents`` documents of the last step; ``log_likelihood`` of a token at each step;
        ``watched``, the number of steps and the held-out perplexity after the sampled steps and after each full step.
    """
    partitions = plan_partitions(list_units(request.corpus), request.budget)
    ids = request.topics.ids_of_corpus(request.corpus)
    store = Workspace(work, "polish", request.arguments)
    store.require_same()

    def memory(workers: int) -> int:
        return request.memory(partitions, workers)

    with store.executor(memory, execution, listener) as executor:
        digests = store.start({"ids": ids, "prior": request.topics.prior})
        n_words, seed = len(request.topics.words), request.settings.seed
        inputs = Inputs(store.root, digests, store.hint, n_words, request.held_out, seed)
        return _Run(request, store, partitions, executor, inputs).result()


@dataclass(frozen=True)
class _Run:
    """One run of the job, on a scheduler."""

    request: PolishRequest
    store: Workspace
    partitions: tuple[Partition, ...]
    executor: Executor
    inputs: Inputs

    def result(self) -> PartialResult:
        sampled, given = self.request.sampled_steps, self.request.topics
        drawn = self._draw(sampled[0].share if sampled else 0.0)
        documents = drawn.read()
        held_out, longest = block_of(documents, "held_out", self.inputs.n_words), longest_of(documents)
        state = self.store.checkpoints("topics")
        # All sampled steps are one move, each full step is one.
        full = self.request.steps[len(sampled) :]
        moves = [sampled] * bool(sampled) + [(step,) for step in full]

        def move(number: int, key: str, before: PartialResult) -> PartialResult:
            steps, committed = moves[number], Committed(state, key)
            last = number + 1 == len(moves)
            if steps is sampled:
                found = self._sampled(drawn, committed, steps, last)
            else:
                number = before.arrays["log_likelihood"].size + 1
                found = self._full(number, committed, steps[0], longest, last)
            return self._watched(before, found, held_out)

        # The start is not evaluated: it may have been fitted to the held-out documents.
        start = first_topics(given.word_topic, given.term_count / given.term_count.sum())
        begin = PartialResult({"word_topic": start, "log_likelihood": np.zeros(0)})
        return run_steps(state, begin, len(moves), move)

    def _draw(self, share: float) -> Committed:
        reduction = DrawReduction(self.inputs, share)
        keys, checkpoints = self._keys(reduction.name), self.store.checkpoints(reduction.name)
        fold_partitions(checkpoints, reduction, keys, self.partitions, self.store.request, self.executor)
        return Committed(checkpoints, FoldOrder(tuple(keys), self.store.request).total)

    def _sampled(
        self, drawn: Committed, state: Committed, steps: tuple[Step, ...], last: bool
    ) -> PartialResult:
        reduction = SampledReduction(self.inputs, drawn, state, self.executor.tasks_at_once, last)
        nonzeros = sum(round(step.share * self.request.corpus.nonzeros) for step in steps)
        part = Part(key_of(reduction.name, state.fold), nonzeros, steps)
        checkpoints = self.store.checkpoints(reduction.name)
        order = FoldOrder((part.key,), self.store.request)
        job = Job(checkpoints, reduction, (part,), order, part="sample")
        run_job(job, self.executor)
        return job.result()

    def _full(self, number: int, state: Committed, step: Step, longest: float, last: bool) -> PartialResult:
        threads = max(1, self.executor.tasks_at_once // len(self.partitions))
        reduction = StepReduction(self.inputs, f"step-{number}", state, step, longest, last, threads)
        checkpoints, keys = self.store.checkpoints(reduction.name), self._keys(state.fold)
        sums = fold_partitions(
            checkpoints, reduction, keys, self.partitions, self.store.request, self.executor
        )
        log_likelihood = sums.scalars["log_likelihood"] / max(sums.scalars["n_tokens"], 1.0)
        arrays = {
            "word_topic": next_topics(sums.arrays["tokens"], last=last),
            "shares": sums.arrays["shares"],
            "pairs": sums.arrays["pairs"],
            "log_likelihood": np.array([log_likelihood]),
        }
        checkpoints.clear()
        return PartialResult(arrays, {"n_documents": sums.scalars["n_documents"]})

    def _watched(self, before: PartialResult, found: PartialResult, held_out: Counts) -> PartialResult:
        """The result of a move with the history of all moves; reports its steps."""
        history = np.concatenate([before.arrays["log_likelihood"], found.arrays["log_likelihood"]])
        for number in range(before.arrays["log_likelihood"].size, history.size):
            measures = {"log_likelihood": float(history[number])}
            self.executor.listener(Iteration("polish", number + 1, len(self.request.steps), measures))
        row = np.array([[history.size, *self._perplexity(found.arrays["word_topic"], held_out)]])
        seen = before.arrays.get("watched")
        watched = row if seen is None else np.concatenate([seen, row])
        return PartialResult({**found.arrays, "log_likelihood": history, "watched": watched}, found.scalars)

    def _perplexity(self, word_topic: Floats, held_out: Counts) -> tuple[float, ...]:
        """Perplexity of the held-out documents, by the model and by word frequencies, and their number.

        Empty without held-out tokens, or if counts are fractions, which cannot be split into halves.
        """
        if not held_out.nnz or not np.array_equal(np.rint(held_out.data), held_out.data):
            return ()
        given = self.request.topics
        done = Completer.of(word_topic, given.prior, given.term_count).complete(held_out, method="cvb0")
        return (done.perplexity, done.unigram_perplexity, done.documents) if done.tokens else ()

    def _keys(self, salt: str) -> list[str]:
        contents = distinct([partition.content for partition in self.partitions])
        return [key_of(content, salt) for content in contents]
