"""Directions of a third pass: the parts of the leading eigenvectors that are orthogonal to the basis. No scan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.jobs.checkpoints import PartialResult
from streaming_jsmf.linalg.eigen import GUARD_VECTORS, block_width
from streaming_jsmf.linalg.panels import each
from streaming_jsmf.linalg.sampled import SampleParts, outside_directions, outside_share
from streaming_jsmf.moments.stages.base import Scan, Stage, Variable
from streaming_jsmf.timing import span

if TYPE_CHECKING:
    from streaming_jsmf.moments.reader import Moments

#: A third pass is made if a larger share of the eigenvectors is outside the basis.
LARGEST_OUTSIDE = 1e-5


class DirectionsStage(Stage):
    """Directions W outside the basis, of a sampled store; none if C Q shows that the basis suffices.

    They are kept, like the basis, when documents are added.
    """

    name = "directions"
    variables: ClassVar = {
        "directions": Variable(
            ("word", "direction"), "parts of the eigenvectors outside the basis, orthonormal", "W"
        ),
    }
    inputs = ("basis",)
    reads_corpora = False
    of_base = True

    def wanted(self, settings: ScanSettings) -> bool:
        """True with a sample and C Q."""
        return settings.range_finder == "sample" and settings.scans > 1

    def scans(self, store: Moments) -> tuple[Scan, ...]:
        del store
        return ()

    def final(self, store: Moments, folded: Iterator[PartialResult]) -> PartialResult:
        """W (N x r, r <= K + 10) if it is needed, and ``outside``, the share that decides it."""
        del folded
        diagonal, basis, product = each(store.read, ("diagonal", "basis", "projection"))
        count = store.settings.max_topics + GUARD_VECTORS
        with span("basis"):
            outside = outside_share(diagonal, basis, product, count)
            if outside <= LARGEST_OUTSIDE:
                return PartialResult({}, {"outside": outside, "directions": 0})
            fitted = SampleParts.of(store.sample()).fitted
            directions = outside_directions(fitted, diagonal, basis, product, count)
        return PartialResult(
            {"directions": directions}, {"outside": outside, "directions": directions.shape[1]}
        )

    def final_memory(self, n_words: int, settings: ScanSettings) -> int:
        """See ``eigenpairs_memory``."""
        return eigenpairs_memory(n_words, settings, settings.basis_width)


def eigenpairs_memory(n_words: int, settings: ScanSettings, width: int) -> int:
    """Peak bytes of the eigenpairs with ``width`` columns Q.

    Q and C Q in float64 and float32, and two blocks with their factors and products.
    """
    block = block_width(settings.max_topics + GUARD_VECTORS)
    return n_words * (24 * min(width, n_words) + 40 * min(block, n_words))
