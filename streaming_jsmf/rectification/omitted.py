"""What a rectification leaves negative: estimated from a few rows, since all of them would be N x N."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.linalg.panels import panels

#: Rows drawn; where no more are left than that, all are taken and the answer is exact.
SAMPLED_ROWS = 256

#: Rows multiplied at once.
BLOCK_ROWS = 32


@dataclass(frozen=True)
class OmittedMass:
    """Sum of max(-(Y Y')_ij, 0) over the pairs of words that were not checked, and its standard error.

    The entries of C sum to 1, so it is a share of all co-occurrence.
    """

    value: float
    standard_error: float


def omitted_mass(rectified: NDArray[np.float64], checked_words: int, seed: int = 0) -> OmittedMass:
    """Negative mass of Y Y' outside of the rows and columns that ENN corrects (LR-JSMF, Algorithm 3).

    Rows are drawn with replacement, with probabilities in proportion to their norms, and each is divided by its own:
    an unbiased estimate of the sum in O(N K) for each row. The draws depend on ``seed`` alone.

    Parameters
    ----------
    rectified
        Y, (N, K).
    checked_words
        |I|: the rows of largest norm, which are left out here. 0: none.
    seed
        Of the draws.

    Examples
    --------
    Two words of one document each, of which the model says that they avoid each other:

    >>> omitted_mass(np.array([[1.0], [-0.5]]), 0)
    OmittedMass(value=1.0, standard_error=0.0)
    """
    norms = np.sqrt(np.einsum("ij,ij->i", rectified, rectified))
    # Ties go to the lowest id, as in ENN.
    rest = np.sort(np.argsort(-norms, kind="stable")[checked_words:])
    rows = rectified[rest]
    total = float(norms[rest].sum())
    if total == 0.0:
        return OmittedMass(0.0, 0.0)
    if rest.size <= SAMPLED_ROWS:
        return OmittedMass(float(_negative_sums(rows, np.arange(rest.size)).sum()), 0.0)
    shares = norms[rest] / total
    generator = np.random.Generator(np.random.Philox(key=np.array([seed, rest.size], dtype=np.uint64)))
    drawn = np.searchsorted(np.cumsum(shares), generator.random(SAMPLED_ROWS)).clip(max=rest.size - 1)
    scaled = _negative_sums(rows, drawn) / shares[drawn]
    return OmittedMass(float(scaled.mean()), float(scaled.std(ddof=1) / np.sqrt(SAMPLED_ROWS)))


def _negative_sums(rows: NDArray[np.float64], chosen: NDArray[np.int64]) -> NDArray[np.float64]:
    """Sum of what is negative in each chosen row of Y Y', with its sign turned."""
    sums = np.empty(chosen.size)
    for part in panels(chosen.size, BLOCK_ROWS):
        product = rows[chosen[part]] @ rows.T
        sums[part] = -np.minimum(product, 0.0, out=product).sum(axis=1)
    return sums
