"""The tasks of polish: the draw of documents, and one full step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.config import PolishSettings, ScanSettings
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.corpus.units import Partition
from streaming_jsmf.inference import polish as polish_step
from streaming_jsmf.inference.polish import (
    HELD_OUT_DRAW,
    SAMPLE_DRAW,
    Step,
    StepSums,
    blocks,
    document_draws,
    document_keys,
    log_lengths,
    longest_document,
    next_topics,
    over_relaxed,
    plan_steps,
    sampled_range,
    step_sums,
)
from streaming_jsmf.jobs.checkpoints import Checkpoints, PartialResult, SumReduction
from streaming_jsmf.linalg.csr import row_arrays, rows_of
from streaming_jsmf.linalg.typing import Floats
from streaming_jsmf.storage.paths import StorePath
from streaming_jsmf.topics.document_job import DocumentJob, Read, TaskInputs
from streaming_jsmf.topics.parameters import TopicParameters, ids_of_corpus

Counts = csr_array[Any]

#: Increase when the same request gives other bits.
ALGORITHM_VERSION = 4

#: Bytes per nonzero of the sample: a word id and a count.
BYTES_PER_SAMPLED = 8

#: Maximum share of the documents that is held out.
MOST_HELD_OUT = 0.02

#: Names of the sampled documents and their draws, and of the topics of a step that a cluster takes on them.
SAMPLE, DRAWS, TOPICS = "sample", "sample_draws", "word_topic"

#: N x K float64 arrays per worker: topics in both precisions, and sums of blocks, partition and fold.
TALL_ARRAYS = 6

#: The same in the command's own process: the two of the start, and the topics before and after a step.
OWN_ARRAYS = 4


@dataclass(frozen=True)
class PolishPlan:
    """The steps over a corpus, and the documents that they use."""

    corpus: Corpus
    settings: PolishSettings

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """Each step with its share of the documents."""
        settings = self.settings
        return plan_steps(self.corpus.nonzeros, self.corpus.n_documents, settings.steps, settings.rounds)

    @property
    def sampled_steps(self) -> tuple[Step, ...]:
        """The steps on the sample: all steps if the corpus is no larger."""
        whole = self.corpus.nonzeros <= polish_step.SAMPLE_NONZEROS
        return tuple(step for step in self.steps if whole or step.share < 1)

    @property
    def held_out(self) -> float:
        """Probability that a document is held out."""
        return min(self.settings.held_out / max(self.corpus.n_documents, 1), MOST_HELD_OUT)


def polish_job(
    plan: PolishPlan, topics: TopicParameters, partition_nonzeros: int | None, root: StorePath, result: str
) -> DocumentJob:
    """The job that takes the planned steps; ``result`` is the fingerprint of the request of the polished model."""
    corpus, n_topics = plan.corpus, topics.prior.size
    scan = ScanSettings(max_topics=n_topics, partition_nonzeros=partition_nonzeros)
    sampled = min(polish_step.SAMPLES * polish_step.SAMPLE_NONZEROS, corpus.nonzeros)
    # There are no more blocks of float32 sums than the nonzeros of a step allow.
    block_sums = 4 * n_topics * (polish_step.SAMPLE_NONZEROS // polish_step.NONZEROS_PER_WORD)
    return DocumentJob(
        "polish",
        root,
        corpus,
        budget=scan.partition_budget(corpus.nonzeros, corpus.n_words),
        n_words=len(topics.words),
        arrays={"ids": ids_of_corpus(corpus, topics.words)},
        fields={
            "algorithm": ALGORITHM_VERSION,
            "topics": topics.fingerprint,
            "steps": [asdict(step) for step in plan.steps],
            "held_out": plan.held_out,
            "seed": plan.settings.seed,
        },
        task_bytes=TALL_ARRAYS * topics.word_topic.nbytes,
        shared_bytes=2 * BYTES_PER_SAMPLED * sampled + OWN_ARRAYS * topics.word_topic.nbytes + block_sums,
        result=result,
    )


@dataclass(frozen=True)
class SplitDocuments:
    """Inputs of the tasks, and the share of the documents that is held out by draws with ``seed``."""

    inputs: TaskInputs
    held_out: float
    seed: int

    def blocks(self, partition: Partition) -> Iterator[tuple[str, Counts, NDArray[np.bool_]]]:
        """Yield content hash, counts (documents x N) and the mask of held-out documents of each row group."""
        for unit, block, _ in self.inputs.blocks(partition):
            draws = document_draws(unit.content, block.shape[0], HELD_OUT_DRAW, self.seed)
            yield unit.content, block, draws < self.held_out


@dataclass(frozen=True)
class DrawReduction:
    """Held-out and sampled documents in corpus order, and the sums of ``log_lengths`` over all documents.

    ``share`` is that of one sampled step; ``DRAWS`` tell which steps use a document (``in_sample``).
    """

    documents: SplitDocuments
    share: float

    def compute(self, partition: Partition) -> PartialResult:
        """One pass over the partition, with one row group in memory at a time."""
        drawn = []
        for content, block, held in self.documents.blocks(partition):
            draws = document_draws(content, block.shape[0], SAMPLE_DRAW, self.documents.seed)
            sample = (draws < sampled_range(self.share)) & ~held
            arrays: dict[str, NDArray[Any]] = {DRAWS: draws[sample]}
            for name, rows in (("held_out", held), (SAMPLE, sample)):
                chosen = block[np.flatnonzero(rows)]
                arrays |= row_arrays(name, chosen.indptr, chosen.indices, chosen.data)
            log_length, n_documents = log_lengths(block)
            scalars = {"log_length": log_length, "n_documents": n_documents}
            drawn.append(PartialResult(arrays, scalars))
        return _joined(drawn)

    def fold(self, folded: PartialResult | None, partial: PartialResult) -> PartialResult:
        """Concatenate the arrays and add the scalars."""
        return partial if folded is None else _joined([folded, partial])


def sample_blocks(sample: Counts, draws: Floats) -> dict[str, PartialResult]:
    """The documents of a step with their ``draws`` in the blocks in which ``step_sums`` adds them, by key."""
    found, start = {}, 0
    for number, indptr in enumerate(blocks(sample.indptr, sample.shape[1])):
        rows = slice(start, start := start + indptr.size - 1)
        arrays = row_arrays(SAMPLE, indptr, sample.indices, sample.data)
        found[f"{number:02d}"] = PartialResult({**arrays, DRAWS: draws[rows]})
    return found


def _joined(parts: Sequence[PartialResult]) -> PartialResult:
    arrays = {name: np.concatenate([part.arrays[name] for part in parts]) for name in parts[0].arrays}
    return PartialResult(
        arrays, {name: sum(part.scalars[name] for part in parts) for name in parts[0].scalars}
    )


def longest_of(drawn: PartialResult) -> float:
    """Maximum number of tokens of a document that count in a step."""
    return longest_document(drawn.scalars["log_length"], int(drawn.scalars["n_documents"]))


def topics_after(sums: StepSums, before: NDArray[np.float64], step: Step, *, last: bool) -> PartialResult:
    """The topics after a step from those ``before`` (N, K), and what the step found of the documents."""
    topics = next_topics(sums.tokens, last=last)
    arrays = {
        "word_topic": over_relaxed(topics, before) if step.relaxed else topics,
        "shares": sums.shares,
        "pairs": sums.pairs,
        "log_likelihood": np.array([sums.log_likelihood / max(sums.n_tokens, 1.0)]),
    }
    return PartialResult(arrays, {"n_documents": sums.n_documents})


def result_of(sums: StepSums) -> PartialResult:
    fields = vars(sums)
    arrays = {name: fields[name] for name in ("tokens", "shares", "pairs")}
    return PartialResult(arrays, {name: value for name, value in fields.items() if name not in arrays})


def sums_of(result: PartialResult) -> StepSums:
    return StepSums(**result.arrays, **result.scalars)  # type: ignore[arg-type]


@dataclass(frozen=True)
class TakenStep:
    """One step; its ``number``, from 0, determines the draws of topics. ``longest`` is that of ``step_sums``."""

    step: Step
    number: int
    prior: Floats
    longest: float
    with_pairs: bool

    def sums(self, counts: Counts, topics: Floats, draws: Floats | None = None, **options: Any) -> StepSums:
        """The sums over documents, with their ``draws`` if they are sampled; ``options`` are those of ``step_sums``."""
        return step_sums(
            counts,
            topics,
            self.prior,
            rounds=self.step.rounds,
            longest=self.longest,
            with_pairs=self.with_pairs,
            keys=document_keys(draws, self.number) if draws is not None and self.step.drawn else None,
            **options,
        )


@dataclass(frozen=True)
class SampledBlock(SumReduction):
    """A sampled step on a cluster: each task takes a block of the documents; their sums are added in order."""

    taken: TakenStep
    checkpoints: Checkpoints

    def compute(self, key: str) -> PartialResult:
        """The sums of the block that is committed under this key."""
        block, topics = self.checkpoints.read_fold(key), self.checkpoints.read_fold(TOPICS).arrays[TOPICS]
        counts = rows_of(SAMPLE, block.arrays, len(topics))
        sums = result_of(self.taken.sums(counts, topics, block.arrays[DRAWS], whole=True, threads=1))
        # The sums of one block are computed in this precision.
        return replace(sums, arrays={**sums.arrays, "tokens": sums.arrays["tokens"].astype(np.float32)})


@dataclass(frozen=True)
class StepReduction(SumReduction):
    """One full step: the ``StepSums`` of all documents that are not held out."""

    documents: SplitDocuments
    state: Read
    taken: TakenStep

    def compute(self, partition: Partition) -> PartialResult:
        """One pass over the partition, with one row group in memory at a time."""
        topics, threads = self.state().arrays["word_topic"], self.documents.inputs.threads
        total: PartialResult | None = None
        for _, block, held in self.documents.blocks(partition):
            rows = block[np.flatnonzero(~held)] if held.any() else block
            total = self.fold(total, result_of(self.taken.sums(rows, topics, threads=threads)))
        assert total is not None, "a partition has units"
        return total
