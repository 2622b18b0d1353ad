"""The basis Q: leading eigenvectors of C, computed from scan 1 or the whole C. No scan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.jobs.checkpoints import PartialResult
from streaming_jsmf.linalg.eigen import (
    GUARD_VECTORS,
    Eigenpairs,
    block_width,
    single_view_eigenpairs,
    symmetric_eigenpairs,
)
from streaming_jsmf.linalg.probes import gaussian_probes
from streaming_jsmf.linalg.sampled import SampleParts, sample_eigenpairs
from streaming_jsmf.moments.stages.range import SHARED_PROBES
from streaming_jsmf.moments.stages.sample import SAMPLE, read_sample, sample_probes, share_of
from streaming_jsmf.moments.store import Stage, Store
from streaming_jsmf.storage.arrays import Variable
from streaming_jsmf.timing import span

#: Eigenvalues of C below this share of the first are rounding errors, since documents are scaled in float32.
EXACT_FLOOR = 1e-7


class BasisStage(Stage):
    """Eigenpairs of the documents that the store holds, of the sketch, or of C itself."""

    name = "basis"
    variables: ClassVar = {
        "basis": Variable(("word", "component"), "leading algebraic eigenvectors after scan 1", "Q"),
        "basis_eigenvalues": Variable(("component",), "their eigenvalues"),
    }
    reads: ClassVar = (SAMPLE,)
    of_base = True

    def reads_corpora(self, store: Store) -> bool:
        """False: it has no scan."""
        del store
        return False

    def final(self, store: Store, folded: Iterator[PartialResult]) -> PartialResult:
        del folded
        with span("basis"):
            pairs = _first_eigenpairs(store)
        return PartialResult({"basis": pairs.vectors, "basis_eigenvalues": pairs.values})

    def final_memory(self, n_words: int, settings: ScanSettings) -> int:
        """Two blocks, and while they are multiplied, probes, two copies and two products; or the sketch and its SVD."""
        if settings.range_finder == "halko":
            return 8 * n_words * 6 * min(settings.sketch_width, n_words)
        return 4 * n_words * 9 * min(block_width(settings.basis_width + GUARD_VECTORS), n_words)


def _first_eigenpairs(store: Store) -> Eigenpairs:
    settings, width = store.settings, min(store.settings.basis_width, store.n_words)
    if settings.exact:
        pairs = symmetric_eigenpairs(store.read("cooccurrence"), width)
        # The sign of eigenvalues at rounding level is random.
        noise = np.abs(pairs.values) < EXACT_FLOOR * pairs.values[0]
        return Eigenpairs(np.where(noise, 0.0, pairs.values), pairs.vectors)
    diagonal = store.read("diagonal")
    if settings.range_finder == "halko":
        sketch = store.read("sketch")
        shared = gaussian_probes(store.n_words, sketch.shape[1], settings.seed, SHARED_PROBES)
        return single_view_eigenpairs(
            sketch - diagonal[:, None] * shared, shared, min(width, sketch.shape[1])
        )
    fitted = SampleParts.of(read_sample(store), share_of(store)).fitted
    return sample_eigenpairs(fitted, diagonal, sample_probes(store.n_words, settings), width)
