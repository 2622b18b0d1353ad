"""Factors of H'H: the scan result of a partition, and merging of two factors.

A factor F (N x L) of a partition satisfies F F' ~ H'H for its weighted, scaled rows H. Unlike linear sketches, factors
can be improved by power steps while the partition is in memory, and truncated after merging.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from streaming_jsmf.linalg.csr import add_transposed, multiply_rows
from streaming_jsmf.linalg.gram import gram, inverse_square_root, orthonormalise, rotate, single_gram
from streaming_jsmf.linalg.panels import panels
from streaming_jsmf.linalg.typing import FloatArray, Floats, Single
from streaming_jsmf.timing import span

#: Size in bytes of the temporary H X of a row block, so that it stays in the cache between its two uses.
ROW_BLOCK_BYTES = 8 * 2**20


def apply_gram(block: csr_array[Any], vectors: FloatArray, core: Floats | None = None) -> Single:
    """H'(H X), words x columns, for H documents x words (CSR, float32) and X words x columns (float32).

    If ``core`` is given, (H X)'(H X), columns x columns, is added to it.
    """
    n_documents, n_words = block.shape
    x = np.ascontiguousarray(vectors, dtype=np.float32)
    product = np.zeros((n_words, x.shape[1]), dtype=np.float32)
    step = max(1, ROW_BLOCK_BYTES // (4 * max(1, x.shape[1])))
    inner = np.empty((min(step, n_documents), x.shape[1]), dtype=np.float32)
    for start in range(0, n_documents, step):
        indptr = block.indptr[start : start + step + 1]
        rows = inner[: indptr.size - 1]
        with span("products"):
            multiply_rows(indptr, block.indices, block.data, x, rows)
            add_transposed(indptr, block.indices, block.data, rows, product)
        if core is not None:
            core += gram(rows)
    return product


def partition_factor(block: csr_array[Any], probes: Single, power_steps: int) -> Single:
    """Randomized factor of H'H with power steps within the partition (Halko et al. 2011, sec. 4.5 and 5.5).

    X <- orth(H'(H X)) ``power_steps - 1`` times, then the Nystrom form F = (H'H X) (X' H'H X)^(-1/2). Without
    orthonormalisation, directions below 3e-4 of the strongest would be lost, because they are squared twice.

    H is documents x words (CSR, float32), rows scaled by sqrt(w / (n (n - 1))); X starts as ``probes``, words x L.
    Returns (words, r) float32, r <= L, without directions below 1e-7 of the strongest; exact if H has rank at most L.
    """
    x: Single = probes
    del probes  # saves an N x L array during the later steps
    for _ in range(power_steps - 1):
        x = orthonormalise(apply_gram(block, x))
        if x.shape[1] == 0:
            return x
    core = np.zeros((x.shape[1], x.shape[1]))
    if block.shape[0] <= block.shape[1]:
        # X' H'H X = (H X)'(H X) is cheap where there are fewer documents than words.
        product = apply_gram(block, x, core)
    else:
        product = apply_gram(block, x)
        core = gram(x, product)
    return rotate(product, inverse_square_root(core))


def merge_factors(folded: Single, partition: Single, width: int) -> Single:
    """Best factor of at most ``width`` columns of F F' + F_b F_b', from factors of p and q columns (float32).

    Returns (words, min(width, p + q)), columns orthogonal, strongest first, from [F, F_b]'[F, F_b] = V S V', F <- [F,
    F_b] V_L. Exact if the ranks add up to at most ``width``; otherwise the weakest directions are dropped, which
    slightly lowers every eigenvalue. The result depends on the order of merging.
    """
    p = folded.shape[1]
    small = np.empty((p + partition.shape[1],) * 2)
    small[:p, :p] = single_gram(folded)
    small[:p, p:] = single_gram(folded, partition)
    small[p:, :p] = small[:p, p:].T
    small[p:, p:] = single_gram(partition)
    values, vectors = np.linalg.eigh(small)
    keep = np.arange(values.size)[::-1][:width]
    # Eigenvalues at or below rounding level do not represent directions of the data.
    keep = keep[values[keep] > 1e-12 * max(values[-1], 0.0)] if values.size else keep
    rotation = vectors[:, keep].astype(np.float32)
    merged = np.empty((folded.shape[0], keep.size), dtype=np.float32)
    for rows in panels(folded.shape[0]):
        np.matmul(folded[rows], rotation[:p], out=merged[rows])
        merged[rows] += partition[rows] @ rotation[p:]
    return merged
