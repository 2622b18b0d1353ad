"""Directions of a third pass: the parts of the leading eigenvectors that are orthogonal to the basis. No scan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.jobs.checkpoints import PartialResult
from streaming_jsmf.linalg.eigen import GUARD_VECTORS, block_width
from streaming_jsmf.linalg.panels import each
from streaming_jsmf.linalg.sampled import (
    OUTSIDE_STEPS,
    CorrectedPairs,
    SampleCertificate,
    SampleParts,
    certify,
    corrected_eigenpairs,
    outside_directions,
)
from streaming_jsmf.moments.stages.base import SampledStage
from streaming_jsmf.moments.stages.sample import read_sample, share_of
from streaming_jsmf.moments.store import Store
from streaming_jsmf.storage.arrays import Variable
from streaming_jsmf.timing import span

#: A third pass is made if not all documents are fitted and the estimated error of the eigenpairs after two is larger.
SMALL_ERROR = 0.001


class DirectionsStage(SampledStage):
    """Directions W of a store, none if the eigenpairs are accurate without them, or W cannot make them so.

    They are kept, like the basis, when documents are added.
    """

    name = "directions"
    variables: ClassVar = {
        "directions": Variable(
            ("word", "direction"), "parts of the eigenvectors outside the basis, orthonormal", "W"
        ),
    }
    inputs = ("basis",)
    of_base = True

    def reads_corpora(self, store: Store) -> bool:
        """False: it has no scan."""
        del store
        return False

    def final(self, store: Store, folded: Iterator[PartialResult]) -> PartialResult:
        """W (N x r, r <= ``block_width(K + 10)``) if needed, and the estimated error that decides it."""
        del folded
        corrected, certificate = corrected_in(store, ("basis",), ("projection",))
        error, vectors = certificate.estimated_error, corrected.pairs.vectors
        with span("basis"):
            # Without a third pass W has no columns. It is of no use where the eigenpairs come from all documents.
            fitted = SampleParts.of(read_sample(store), share_of(store)).drawn
            wanted = error > SMALL_ERROR and fitted < 1
            directions = outside_directions(store.read("basis"), vectors if wanted else vectors[:, :0])
        return PartialResult({"directions": directions}, {"estimated_error": error})

    def final_memory(self, n_words: int, settings: ScanSettings) -> int:
        return eigenpairs_memory(n_words, settings, settings.basis_width)


def corrected_in(
    store: Store, bases: Sequence[str], products: Sequence[str]
) -> tuple[CorrectedPairs, SampleCertificate]:
    """Eigenpairs from the fitted documents and C times the named bases, and their error estimate.

    Before there are directions, all documents are fitted if the store holds all of the corpus. Stages that ask for the
    same bases, without a scan in between, share one computation.
    """
    share, most = share_of(store), store.settings.max_topics

    def compute() -> tuple[CorrectedPairs, SampleCertificate]:
        documents, diagonal = read_sample(store), store.read("diagonal")
        exact = share == 1 and len(bases) == 1
        parts = SampleParts.whole(documents) if exact else SampleParts.of(documents, share)
        basis, product = (_joined([*each(store.read, names)]) for names in (bases, products))
        with span("basis"):
            # Products with a full block cost no more than those with K + 10 columns.
            count = block_width(most + GUARD_VECTORS)
            corrected = corrected_eigenpairs(parts.fitted, diagonal, basis, product, count)
            width, checked = store.array_digest("basis").shape[1], corrected.leading(most + GUARD_VECTORS)
            return corrected, certify(parts, share, basis, checked, most, width)

    return store.once(f"eigenpairs in {bases}", compute)


def _joined(arrays: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    return arrays[0] if len(arrays) == 1 else np.hstack(arrays)


def eigenpairs_memory(n_words: int, settings: ScanSettings, width: int) -> int:
    """Peak bytes of the eigenpairs with ``width`` columns Q.

    Q and C Q in float64 and float32, and the blocks outside Q with their products.
    """
    block = block_width(settings.max_topics + GUARD_VECTORS)
    return n_words * (24 * min(width, n_words) + 8 * (OUTSIDE_STEPS + 3) * min(block, n_words))
