"""The third moment as a stage: what STOD needs besides the basis, in one more pass, for any K and alpha0."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.corpus.units import Partition
from streaming_jsmf.errors import Option
from streaming_jsmf.jobs.checkpoints import PartialResult
from streaming_jsmf.linalg.tensor import (
    FEWEST_TOKENS,
    BasisMoments,
    TensorSums,
    basis_moments,
    tensor_sums,
)
from streaming_jsmf.moments.partition import iter_shares
from streaming_jsmf.moments.records import Records
from streaming_jsmf.moments.stages.base import BasisReduction, Scan, Stage
from streaming_jsmf.storage.arrays import Variable

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


class ThirdMomentStage(Stage):
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

    def scans(self, store: Records) -> Sequence[Scan]:
        """One scan; the keys of its parts include the digest of the basis."""
        digest = store.array_digest("basis").sha256
        return ((ThirdMomentReduction.of(store), store.order_with(digest)),)

    def final(self, store: Records, folded: Iterator[PartialResult]) -> PartialResult:
        """The moments in the basis, from the sums over all partitions.

        All zero, with a warning, if no document is long enough; LR-JSMF does not need them.
        """
        (total,) = folded
        values: dict[str, Any] = {**total.arrays, **total.scalars}
        sums = TensorSums(**values)
        if sums.total_weight > 0:
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


def adding_command(store: Records) -> str:
    """The command that adds the third moment to a store with its settings."""
    usual, settings = ScanSettings().fields(), {**store.settings.fields(), "third_moment": True}
    given = [Option(name)(value) for name, value in settings.items() if value != usual[name]]
    paths = map(shlex.quote, (store.manifest.corpus.path, str(store.path)))
    return " ".join(["streaming-jsmf scan", *paths, *(one.on_command_line for one in given)])
