"""What the tasks of polish compute: the draw of documents, the sampled steps, and one full step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.corpus.csr import read_block
from streaming_jsmf.corpus.units import Partition
from streaming_jsmf.inference.polish import (
    Step,
    StepSums,
    drawn_documents,
    log_lengths,
    longest_document,
    next_topics,
    step_sums,
)
from streaming_jsmf.jobs.checkpoints import Checkpoints, PartialResult, add_scalars, added
from streaming_jsmf.storage.arrays import ArrayDigest, read_array
from streaming_jsmf.storage.paths import StorePath
from streaming_jsmf.topics.parameters import over_model_words

Counts = csr_array[Any]

#: Numbers of the draws, which are numbered like steps: held-out documents, and the sample of the first step.
HELD_OUT_DRAW, SAMPLE_DRAW = -1, 0


@dataclass(frozen=True)
class Inputs:
    """What all tasks read: counts over the words of the model, and arrays in the work store.

    Attributes
    ----------
    store, digests, hint
        The work store, digests of its arrays, and the end of a message about damage.
    n_words
        N of the model.
    held_out, seed
        How held-out documents are drawn.
    """

    store: StorePath
    digests: dict[str, ArrayDigest]
    hint: str
    n_words: int
    held_out: float
    seed: int

    def read(self, name: str) -> NDArray[Any]:
        """An array of the work store."""
        return read_array(self.store, name, self.digests[name], hint=self.hint)

    def blocks(self, partition: Partition) -> Iterator[tuple[str, Counts, NDArray[np.bool_]]]:
        """Content hash, counts (documents x N) and which documents are held out, of each row group."""
        ids = self.read("ids")
        for unit in partition.units:
            block = over_model_words(read_block(unit, ids.size), ids, self.n_words)
            held_out = drawn_documents(unit.content, block.shape[0], HELD_OUT_DRAW, self.held_out, self.seed)
            yield unit.content, block, held_out


@dataclass(frozen=True)
class Committed:
    """A committed result that tasks read."""

    checkpoints: Checkpoints
    fold: str

    def read(self) -> PartialResult:
        """The result; ``StoreError`` if it is damaged."""
        return self.checkpoints.read_fold(self.fold)


@dataclass(frozen=True)
class DrawReduction:
    """Held-out and sampled documents in the order of the corpus, and the sums of ``log_lengths`` over all documents."""

    inputs: Inputs
    share: float
    name: str = "draw"

    def compute(self, partition: Partition) -> PartialResult:
        """One pass over the partition, with one row group in memory at a time."""
        drawn = None
        for content, block, held in self.inputs.blocks(partition):
            sample = drawn_documents(content, block.shape[0], SAMPLE_DRAW, self.share, self.inputs.seed)
            arrays: dict[str, NDArray[Any]] = {}
            for name, rows in (("held_out", held), ("sample", sample & ~held)):
                chosen = block[np.flatnonzero(rows)]
                arrays[f"{name}_lengths"] = np.diff(chosen.indptr).astype(np.int64)
                arrays[f"{name}_words"] = chosen.indices.astype(np.int32)
                arrays[f"{name}_counts"] = chosen.data.astype(np.float32)
            log_length, n_documents = log_lengths(block)
            scalars = {"log_length": log_length, "n_documents": n_documents}
            drawn = self.fold(drawn, PartialResult(arrays, scalars))
        assert drawn is not None, "a partition has units"
        return drawn

    def fold(self, folded: PartialResult | None, partial: PartialResult) -> PartialResult:
        """Concatenate the arrays and add the scalars."""
        if folded is None:
            return partial
        return PartialResult(
            {name: np.concatenate([folded.arrays[name], new]) for name, new in partial.arrays.items()},
            add_scalars(folded, partial),
        )


def longest_of(drawn: PartialResult) -> float:
    """Number of tokens of a document that count in a step."""
    return longest_document(drawn.scalars["log_length"], int(drawn.scalars["n_documents"]))


def block_of(drawn: PartialResult, name: str, n_words: int) -> Counts:
    """The documents of a set as counts, documents x N."""
    lengths = drawn.arrays[f"{name}_lengths"]
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    parts = (drawn.arrays[f"{name}_counts"], drawn.arrays[f"{name}_words"], indptr)
    return csr_array(parts, shape=(lengths.size, n_words))


@dataclass(frozen=True)
class SampledReduction:
    """All steps on the sample, as one part; ``last`` if no full steps follow."""

    inputs: Inputs
    drawn: Committed
    state: Committed
    threads: int
    last: bool
    name: str = "sampled"

    def compute(self, steps: Sequence[Step]) -> PartialResult:
        """No pass over the corpus: reads the sample."""
        topics, prior = self.state.read().arrays["word_topic"], self.inputs.read("prior")
        drawn = self.drawn.read()
        sample, longest = block_of(drawn, "sample", self.inputs.n_words), longest_of(drawn)
        log_likelihood = []
        for number, step in enumerate(steps, start=1):
            last = self.last and number == len(steps)
            sums = step_sums(
                sample,
                topics,
                prior,
                rounds=step.rounds,
                longest=longest,
                with_pairs=last,
                threads=self.threads,
            )
            topics = next_topics(sums.tokens, last=last)
            log_likelihood.append(sums.log_likelihood / max(sums.n_tokens, 1.0))
        arrays = {
            "word_topic": topics,
            "shares": sums.shares,
            "pairs": sums.pairs,
            "log_likelihood": np.array(log_likelihood),
        }
        return PartialResult(arrays, {"n_documents": sums.n_documents})

    def fold(self, folded: PartialResult | None, partial: PartialResult) -> PartialResult:
        """There is one part."""
        del folded
        return partial


@dataclass(frozen=True)
class StepReduction:
    """One full step: the ``StepSums`` of all documents that are not held out."""

    inputs: Inputs
    name: str
    state: Committed
    step: Step
    longest: float
    with_pairs: bool
    threads: int

    def compute(self, partition: Partition) -> PartialResult:
        """One pass over the partition, with one row group in memory at a time."""
        topics, prior = self.state.read().arrays["word_topic"], self.inputs.read("prior")
        total: StepSums | None = None
        for _, block, held in self.inputs.blocks(partition):
            sums = step_sums(
                block[np.flatnonzero(~held)] if held.any() else block,
                topics,
                prior,
                rounds=self.step.rounds,
                longest=self.longest,
                with_pairs=self.with_pairs,
                threads=self.threads,
            )
            total = sums if total is None else total + sums
        assert total is not None, "a partition has units"
        scalars = ("log_likelihood", "n_tokens", "n_documents")
        return PartialResult(
            {"tokens": total.tokens, "shares": total.shares, "pairs": total.pairs},
            {name: getattr(total, name) for name in scalars},
        )

    def fold(self, folded: PartialResult | None, partial: PartialResult) -> PartialResult:
        """Add in float64."""
        return added(folded, partial)
