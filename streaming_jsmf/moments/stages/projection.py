"""Scan 2: C Q for the basis Q of the store; and C W for the directions W that a sampled store adds to Q."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.corpus.units import Partition
from streaming_jsmf.jobs.checkpoints import PartialResult, added_in_place
from streaming_jsmf.linalg.csr import apply_gram
from streaming_jsmf.linalg.eigen import GUARD_VECTORS
from streaming_jsmf.linalg.panels import on_each, panels
from streaming_jsmf.moments.partition import load_block
from streaming_jsmf.moments.stages.base import BasisReduction, SampledStage, SumStage
from streaming_jsmf.moments.stages.sample import HeldPart
from streaming_jsmf.moments.store import Scan, Store
from streaming_jsmf.storage.arrays import Variable
from streaming_jsmf.timing import span


@dataclass(frozen=True)
class ProductReduction(BasisReduction):
    """H'(H Q) of each partition, additive for a given Q: the basis, or the directions W."""

    def compute(self, source: Partition | HeldPart) -> PartialResult:
        basis = self.read_basis()
        with span("read"):
            if isinstance(source, HeldPart):
                block = source.read(self.n_words)
            else:
                block = load_block(source, self.n_words, self.settings.document_weights)
        return PartialResult({"projection": apply_gram(block, basis)})

    def fold(self, folded: PartialResult | None, partial: PartialResult) -> PartialResult:
        return added_in_place(folded, partial)


class ProjectionStage(SampledStage, SumStage):
    """Scan 2 of a store without the whole C."""

    name = "projection"
    variables: ClassVar = {
        "projection": Variable(("word", "component"), "C times the basis, from scan 2", "C Q"),
    }
    inputs = ("basis",)

    def reduction(self, store: Store) -> ProductReduction:
        return ProductReduction.of(store)

    def final(self, store: Store, folded: Iterator[PartialResult]) -> PartialResult:
        """C Q: the sum divided by the total weight, minus the diagonal."""
        (total,) = folded
        return PartialResult({"projection": product_with_basis(store, total, store.read("basis"))})

    def task_memory(self, n_words: int, settings: ScanSettings) -> int:
        """When folding: two sums, and a product in float32."""
        return 20 * n_words * min(settings.basis_width, n_words)


class RefinementStage(SampledStage, SumStage):
    """Scan 3 of a sampled store that has directions."""

    name = "refinement"
    variables: ClassVar = {
        "refinement": Variable(("word", "direction"), "C times the directions, from scan 3", "C W"),
    }
    inputs = ("directions",)

    def reduction(self, store: Store) -> ProductReduction:
        return ProductReduction.of(store, "directions")

    def scans(self, store: Store) -> tuple[Scan, ...]:
        """One scan, or none if there are no directions."""
        return super().scans(store) if store.array_digest("directions").shape[1] else ()

    def final(self, store: Store, folded: Iterator[PartialResult]) -> PartialResult:
        """C W, without columns if W has none."""
        total, directions = next(folded, None), store.read("directions")
        product = directions if total is None else product_with_basis(store, total, directions)
        return PartialResult({"refinement": product})

    def task_memory(self, n_words: int, settings: ScanSettings) -> int:
        """As for ``ProjectionStage``, with fewer columns."""
        return 20 * n_words * min(settings.max_topics + GUARD_VECTORS, n_words)


def product_with_basis(store: Store, total: PartialResult, basis: NDArray[np.float64]) -> NDArray[np.float64]:
    """C Q of Eq. 1 from the sums of ``ProductReduction`` over all partitions, in their memory."""
    product: NDArray[np.float64] = total.arrays["projection"]
    weight, diagonal = store.scalars("range")["total_weight"], store.read("diagonal")[:, None]

    def finish(rows: slice) -> None:
        product[rows] /= weight
        product[rows] -= diagonal[rows] * basis[rows]

    on_each(finish, panels(len(product)))
    return product
