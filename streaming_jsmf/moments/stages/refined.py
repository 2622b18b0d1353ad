"""Scan 3 of a sampled store: a better basis from C Q, and C times that.

The basis of a sample points where the sample does. With C Q over all documents it is moved towards the eigenvectors of
the whole corpus, and a second product with C makes their eigenpairs as exact as those of factors of all documents.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.jobs.ledger import Partial
from streaming_jsmf.linalg.eigen import refined_basis
from streaming_jsmf.moments.stages.base import Scan, Stage, Store, SumStage, Variable
from streaming_jsmf.moments.stages.projection import ProjectionReduction, product_with_basis
from streaming_jsmf.timing import span


def _wanted(settings: ScanSettings) -> bool:
    return settings.scans == 3


class RefinedBasisStage(Stage):
    """One step from the basis, by C Q. No scan of its own."""

    name = "refined_basis"
    variables: ClassVar = {
        "refined_basis": Variable(
            ("word", "refined_component"), "orthonormal, near the leading algebraic eigenvectors after scan 2"
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
        """As many vectors as the basis has."""
        del folded
        with span("basis"):
            refined = refined_basis(store.read("basis"), store.read("projection"), store.read("diagonal"))
        return Partial({"refined_basis": refined})

    def final_memory(self, n_words: int, settings: ScanSettings) -> int:
        """Basis, product, the step, and its orthonormal columns twice."""
        return 40 * n_words * min(settings.basis_width, n_words)


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
