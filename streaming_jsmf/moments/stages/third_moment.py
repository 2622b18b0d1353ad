"""The third moment as a stage: what STOD needs besides the basis, in one more pass, for any K and alpha0."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.corpus.units import Partition
from streaming_jsmf.errors import Option
from streaming_jsmf.jobs.checkpoints import PartialResult
from streaming_jsmf.linalg.tensor import (
    DOCUMENT_BLOCK,
    FEWEST_TOKENS,
    BasisMoments,
    TensorSums,
    basis_moments,
    tensor_sums,
)
from streaming_jsmf.moments.partition import iter_shares
from streaming_jsmf.moments.stages.base import BasisReduction, SumStage
from streaming_jsmf.storage.arrays import Variable
from streaming_jsmf.timing import span

if TYPE_CHECKING:
    from streaming_jsmf.moments.store import Moments

logger = logging.getLogger(__name__)

#: Arrays of a result, as in ``TensorSums``. The (word, component) arrays are stored in float32 until they are folded,
#: which is the precision of the products that they sum.
ARRAYS = ("third", "triples", "pairs", "triple_counts", "pair_counts", "shares")
WIDE_ARRAYS = ("triples", "pairs")
SCALARS = ("n_documents", "total_weight")


@dataclass(frozen=True)
class ThirdMomentReduction(BasisReduction):
    """The sums of ``TensorSums`` in the basis of the store, additive for a given basis."""

    def compute(self, partition: Partition) -> PartialResult:
        """One pass over the partition's data, with one row group in memory at a time."""
        documents = iter_shares(partition, self.n_words)
        sums = tensor_sums(documents, self.read_basis(), self.settings.document_weights)
        arrays: dict[str, NDArray[Any]] = {name: getattr(sums, name) for name in ARRAYS}
        arrays |= {name: arrays[name].astype(np.float32) for name in WIDE_ARRAYS}
        return PartialResult(arrays, {name: getattr(sums, name) for name in SCALARS})


class ThirdMomentStage(SumStage):
    """One scan for a given basis. It can be added to a complete store without changing other results."""

    name = "third_moment"
    variables: ClassVar = {
        "word_mean": Variable(("word",), "mean of h / n over documents of three tokens or more", "M1"),
        "pair_projection": Variable(
            ("word", "component"), "as C Q, over documents of three tokens or more", "E2 Q"
        ),
        "third_moment": Variable(
            ("triple",), "of the symmetric tensor the entries i <= j <= k in order", "E3(Q, Q, Q)"
        ),
    }
    inputs = ("basis",)
    needs = "third_moment"

    def reduction(self, store: Moments) -> ThirdMomentReduction:
        return ThirdMomentReduction.of(store)

    def final(self, store: Moments, folded: Iterator[PartialResult]) -> PartialResult:
        """The moments in the basis, from the sums over all partitions.

        All zero, with a warning, if no document is long enough; LR-JSMF does not need them.
        """
        (total,) = folded
        values: dict[str, Any] = {**total.arrays, **total.scalars}
        sums = TensorSums(**values)
        if sums.total_weight > 0:
            with span("third moment"):
                # This overwrites the sums.
                found = basis_moments(sums, store.read("basis"), np.float32)
        else:
            logger.warning(
                "%s: no document has %d tokens or more, so there is no third moment to infer topics from",
                store.path,
                FEWEST_TOKENS,
            )
            found = BasisMoments(store.read("basis"), sums.shares, sums.pairs, sums.third)
        names = ("word_mean", "pair_projection", "third_moment")
        arrays = dict(zip(names, (found.word_mean, found.pair_projection, found.third), strict=True))
        return PartialResult(arrays, total.scalars)

    def task_memory(self, n_words: int, settings: ScanSettings) -> int:
        return tensor_memory(n_words, min(settings.basis_width, n_words))


def tensor_memory(n_words: int, width: int) -> int:
    """Peak bytes of the stage besides a row group: its sums, the basis, and the products of a block of documents.

    Excludes nonzeros sorted by word: 8 bytes for each of ``linalg.tensor.NONZERO_BLOCK``.
    """
    # Folding groups holds two float64 copies of both wide sums; the tensor is held in slabs and packed.
    return 32 * n_words * width + 4 * width**3 + 16 * DOCUMENT_BLOCK * width


def adding_command(store: Moments) -> str:
    """The command that adds the third moment to a store with its settings."""
    usual, settings = ScanSettings().fields(), {**store.settings.fields(), "third_moment": True}
    given = [Option(name)(value) for name, value in settings.items() if value != usual[name]]
    paths = map(shlex.quote, (store.manifest.paths[0], str(store.path)))
    return " ".join(["streaming-jsmf scan", *paths, *(one.on_command_line for one in given)])
