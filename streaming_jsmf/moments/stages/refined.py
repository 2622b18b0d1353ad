"""Scan 3 of a sampled store: a better basis from C Q, and C times that.

The basis of a sample points where the sample does. C Q over all documents is one power step away from it, and the
eigenvectors that it gives are a basis of the whole corpus; a second product with C makes their eigenpairs as exact as
those of merged factors of all documents, at a third of the multiplications.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.jobs.ledger import Partial
from streaming_jsmf.linalg.eigen import NYSTROM_FLOOR, SAMPLE_FLOOR, nystrom_eigenpairs
from streaming_jsmf.moments.stages.base import Scan, Stage, Store, SumStage, Variable
from streaming_jsmf.moments.stages.projection import ProjectionReduction, product_with_basis
from streaming_jsmf.timing import span


def core_floor(settings: ScanSettings) -> float:
    """The floor of ``nystrom_eigenpairs`` for a store: the core of a sample's basis has more noise."""
    return SAMPLE_FLOOR if settings.range_finder == "sample" else NYSTROM_FLOOR


def _wanted(settings: ScanSettings) -> bool:
    return settings.scans == 3


class RefinedBasisStage(Stage):
    """Eigenvectors of the Nystrom form of C Q. No scan of its own."""

    name = "refined_basis"
    variables: ClassVar = {
        "refined_basis": Variable(
            ("word", "refined_component"), "leading algebraic eigenvectors after scan 2 of a sampled store"
        ),
    }
    remedy = "is computed again from the basis and scan 2"
    inputs = ("projection",)
    reads_corpora = False

    def wanted(self, settings: ScanSettings) -> bool:
        """With three scans."""
        return _wanted(settings)

    def scans(self, store: Store) -> tuple[Scan, ...]:
        """None."""
        del store
        return ()

    def final(self, store: Store, folded: Iterator[Partial]) -> Partial:
        """At most as many vectors as the basis has; fewer where C has fewer positive eigenvalues."""
        del folded
        with span("basis"):
            pairs = nystrom_eigenpairs(
                store.read("basis"), store.read("projection"), core_floor(store.settings)
            )
        return Partial({"refined_basis": pairs.vectors})

    def final_memory(self, n_words: int, settings: ScanSettings) -> int:
        """Basis, product and the eigenvectors twice."""
        return 32 * n_words * min(settings.basis_width, n_words)


class RefinedProjectionStage(SumStage):
    """Scan 3."""

    name = "refined_projection"
    variables: ClassVar = {
        "refined_projection": Variable(
            ("word", "refined_component"), "C times the refined basis, from scan 3"
        ),
    }
    remedy = "scan 3 is repeated"
    inputs = ("refined_basis",)

    def wanted(self, settings: ScanSettings) -> bool:
        """With three scans."""
        return _wanted(settings)

    def reduction(self, store: Store) -> ProjectionReduction:
        """Given the refined basis of the store."""
        return ProjectionReduction.of(store, "refined_basis", name=self.name)

    def final(self, store: Store, folded: Iterator[Partial]) -> Partial:
        """The sum divided by the total weight, and the diagonal taken off."""
        (total,) = folded
        return Partial({"refined_projection": product_with_basis(store, total, store.read("refined_basis"))})

    def task_memory(self, n_words: int, settings: ScanSettings) -> int:
        """As of scan 2."""
        return 20 * n_words * min(settings.basis_width, n_words)
