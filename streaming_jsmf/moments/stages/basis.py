"""The basis Q: leading eigenvectors of C, computed from scan 1 or the whole C. No scan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.jobs.checkpoints import PartialResult
from streaming_jsmf.linalg.dense import symmetric_eigenpairs
from streaming_jsmf.linalg.eigen import (
    GUARD_VECTORS,
    Eigenpairs,
    block_width,
    factor_eigenpairs,
    single_view_eigenpairs,
)
from streaming_jsmf.linalg.probes import gaussian_probes
from streaming_jsmf.linalg.sampled import SampleParts, sample_eigenpairs
from streaming_jsmf.moments.stages.range import SHARED_PROBES
from streaming_jsmf.moments.stages.sample import probes, read_sample
from streaming_jsmf.moments.store import Stage, Store
from streaming_jsmf.storage.arrays import Variable
from streaming_jsmf.timing import span

#: Eigenvalues of C below this share of the first are rounding errors, since documents are scaled in float32.
EXACT_FLOOR = 1e-7


class BasisStage(Stage):
    """Eigenpairs of the factor, of the sample, of the sketch, or of C itself."""

    name = "basis"
    variables: ClassVar = {
        "basis": Variable(("word", "component"), "leading algebraic eigenvectors after scan 1", "Q"),
        "basis_eigenvalues": Variable(("component",), "their eigenvalues"),
    }
    reads_corpora = False
    of_base = True

    def final(self, store: Store, folded: Iterator[PartialResult]) -> PartialResult:
        del folded
        with span("basis"):
            pairs = _first_eigenpairs(store)
        return PartialResult({"basis": pairs.vectors, "basis_eigenvalues": pairs.values})

    def final_memory(self, n_words: int, settings: ScanSettings) -> int:
        """The factor, two float32 Davidson blocks, and three float64 copies of the eigenvectors while they are sorted.

        With a sample: two blocks, and during their multiplication probes, two copies and two products.
        """
        factor, basis = (min(width, n_words) for width in (settings.factor_width, settings.basis_width))
        if settings.range_finder == "sample":
            return 4 * n_words * 9 * min(block_width(basis + GUARD_VECTORS), n_words)
        block = max(factor, 2 * (basis + GUARD_VECTORS))
        return 4 * n_words * (factor + 2 * block) + 24 * n_words * basis


def _first_eigenpairs(store: Store) -> Eigenpairs:
    diagonal, settings = store.read("diagonal"), store.settings
    width = min(settings.basis_width, store.n_words)
    if settings.exact:
        pairs = symmetric_eigenpairs(store.read("cooccurrence"), width)
        # The sign of eigenvalues at rounding level is random.
        noise = np.abs(pairs.values) < EXACT_FLOOR * pairs.values[0]
        return Eigenpairs(np.where(noise, 0.0, pairs.values), pairs.vectors)
    if settings.range_finder == "sample":
        # Exclude the documents that are held out to check the eigenpairs.
        fitted = SampleParts.of(read_sample(store)).fitted
        block = min(block_width(width + GUARD_VECTORS), store.n_words)
        start = probes(store.n_words, block, settings.seed, "sample")
        return sample_eigenpairs(fitted, diagonal, start, width, settings.power_steps)
    if settings.has_factor:
        return factor_eigenpairs(store.read("factor"), diagonal, width)
    sketch = store.read("sketch")
    shared = gaussian_probes(store.n_words, sketch.shape[1], settings.seed, SHARED_PROBES)
    return single_view_eigenpairs(sketch - diagonal[:, None] * shared, shared, min(width, sketch.shape[1]))
