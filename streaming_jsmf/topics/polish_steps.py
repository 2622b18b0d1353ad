"""What the tasks of a polish compute: the draw of documents, the sampled steps, and one full step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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

#: Draws are numbered like steps: the documents held out are drawn before all, the sample with the first step.
HELD_OUT_DRAW, SAMPLE_DRAW = -1, 0


@dataclass(frozen=True)
class ModelCounts:
    """Row groups of a corpus over the model's words. Travels to the workers; arrays are read there.

    Attributes
    ----------
    store
        The work store.
    places
        Digest of the array ``places``, see ``GivenTopics.places``.
    n_words
        N of the model.
    held_out, seed
        How documents are drawn that no step sees.
    """

    store: StorePath
    places: ArrayDigest
    n_words: int
    held_out: float
    seed: int
    hint: str

    def blocks(self, partition: Partition) -> Iterator[tuple[str, csr_array[Any], NDArray[np.bool_]]]:
        """Content, counts (documents x N) and which documents are held out, of each row group."""
        places = read_array(self.store, "places", self.places, hint=self.hint)
        for unit in partition.units:
            block = over_model_words(read_block(unit, places.size), places, self.n_words)
            yield unit.content, block, self.drawn(unit.content, block.shape[0], HELD_OUT_DRAW, self.held_out)

    def drawn(self, content: str, n_documents: int, step: int, share: float) -> NDArray[np.bool_]:
        """The documents of a row group that a draw takes."""
        return drawn_documents(content, n_documents, step, share, self.seed)


@dataclass(frozen=True)
class DrawReduction:
    """Copies of the documents held out and of the sample, one after the other in the order of the corpus.

    Scalars are those of ``log_lengths``, over all documents.
    """

    counts: ModelCounts
    share: float
    name: str = "draw"

    def compute(self, partition: Partition) -> PartialResult:
        """One pass over the partition's data, a row group in memory at a time."""
        drawn = None
        for content, block, held in self.counts.blocks(partition):
            sample = self.counts.drawn(content, block.shape[0], SAMPLE_DRAW, self.share) & ~held
            sets = {"held_out": block[np.flatnonzero(held)], "sample": block[np.flatnonzero(sample)]}
            log_length, n_documents = log_lengths(block)
            scalars = {"log_length": log_length, "n_documents": n_documents}
            drawn = self.fold(drawn, PartialResult(_arrays_of(sets), scalars))
        assert drawn is not None, "a partition has units"
        return drawn

    def fold(self, folded: PartialResult | None, partial: PartialResult) -> PartialResult:
        """One behind the other."""
        if folded is None:
            return partial
        return PartialResult(
            {name: np.concatenate([folded.arrays[name], new]) for name, new in partial.arrays.items()},
            add_scalars(folded, partial),
        )


def _arrays_of(sets: Mapping[str, csr_array[Any]]) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    for name, block in sets.items():
        arrays[f"{name}_lengths"] = np.diff(block.indptr).astype(np.int64)
        arrays[f"{name}_words"] = block.indices.astype(np.int32)
        arrays[f"{name}_counts"] = block.data.astype(np.float32)
    return arrays


def longest_of(drawn: PartialResult) -> float:
    """Tokens of a document that count in a step, by the lengths that the draw met."""
    return longest_document(drawn.scalars["log_length"], int(drawn.scalars["n_documents"]))


def block_of(drawn: PartialResult, name: str, n_words: int) -> csr_array[Any]:
    """The documents of a set as counts, documents x N."""
    lengths = drawn.arrays[f"{name}_lengths"]
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    parts = (drawn.arrays[f"{name}_counts"], drawn.arrays[f"{name}_words"], indptr)
    return csr_array(parts, shape=(lengths.size, n_words))


@dataclass(frozen=True)
class Committed:
    """Where a result is that tasks read."""

    checkpoints: Checkpoints
    fold: str

    def read(self) -> PartialResult:
        """The result; ``StoreError`` if it is damaged."""
        return self.checkpoints.read_fold(self.fold)


@dataclass(frozen=True)
class SampledReduction:
    """All steps on the sample, in memory; its only part is their plan. ``last`` says that no full ones follow."""

    drawn: Committed
    state: Committed
    prior: ArrayDigest
    counts: ModelCounts
    threads: int
    last: bool
    name: str = "sampled"

    def compute(self, steps: Sequence[Step]) -> PartialResult:
        """No pass over the corpus: the sample is read."""
        topics = self.state.read().arrays["word_topic"]
        prior = read_array(self.counts.store, "prior", self.prior, hint=self.counts.hint)
        drawn = self.drawn.read()
        sample, longest = block_of(drawn, "sample", self.counts.n_words), longest_of(drawn)
        told = []
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
            told.append(sums.log_likelihood / max(sums.n_tokens, 1.0))
        arrays = {
            "word_topic": topics,
            "shares": sums.shares,
            "pairs": sums.pairs,
            "log_likelihood": np.array(told),
        }
        return PartialResult(arrays, {"n_documents": sums.n_documents})

    def fold(self, folded: PartialResult | None, partial: PartialResult) -> PartialResult:
        """There is one part."""
        del folded
        return partial


@dataclass(frozen=True)
class StepReduction:
    """One full step: ``StepSums`` of all documents but those held out, given topics; additive."""

    name: str
    state: Committed
    prior: ArrayDigest
    counts: ModelCounts
    step: Step
    longest: float
    with_pairs: bool
    threads: int

    def compute(self, partition: Partition) -> PartialResult:
        """One pass over the partition's data, a row group in memory at a time."""
        topics = self.state.read().arrays["word_topic"]
        prior = read_array(self.counts.store, "prior", self.prior, hint=self.counts.hint)
        total: StepSums | None = None
        for _, block, held in self.counts.blocks(partition):
            seen = block[np.flatnonzero(~held)] if held.any() else block
            sums = step_sums(
                seen,
                topics,
                prior,
                rounds=self.step.rounds,
                longest=self.longest,
                with_pairs=self.with_pairs,
                threads=self.threads,
            )
            total = sums if total is None else total + sums
        assert total is not None, "a partition has units"
        return PartialResult(
            {"tokens": total.tokens, "shares": total.shares, "pairs": total.pairs},
            {
                "log_likelihood": total.log_likelihood,
                "n_tokens": total.n_tokens,
                "n_documents": total.n_documents,
            },
        )

    def fold(self, folded: PartialResult | None, partial: PartialResult) -> PartialResult:
        """Add in float64."""
        return added(folded, partial)
