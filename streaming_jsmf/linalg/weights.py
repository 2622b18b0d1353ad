"""Document weights: how much say a document has in every sum (C, u, D alike)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.config import CAPPED_LENGTH, DocumentWeights

#: A document of fewer tokens has no pair of words; Eq. 1 divides by n (n - 1).
SHORTEST_DOCUMENT = 2


def pair_scales(
    lengths: NDArray[np.float64], pairs: NDArray[np.float64], weights: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What a document's counts are multiplied by in u, and its pairs of tokens in C: w / n and w / (n (n - 1)).

    Where counts are below 1 the pairs are more than n (n - 1), and the first is w (n - 1) over them; the words' parts
    of ``bags.given_back`` are then added to u with the second.

    Parameters
    ----------
    lengths, pairs, weights
        (documents,) n, ``bags.pair_totals``, w. Documents of weight 0 have no say whatever they hold.
    """
    n = np.maximum(lengths, 2.0)
    whole = n * (n - 1)
    s = np.where(lengths < SHORTEST_DOCUMENT, whole, pairs)
    return np.where(s == whole, weights / n, weights * (n - 1) / s), weights / s


def document_weights(lengths: NDArray[np.float64], scheme: DocumentWeights) -> NDArray[np.float64]:
    """Return the weight of each document of the given lengths (tokens); 0 below two tokens.

    ``uniform`` is the papers' choice (LR-JSMF Eq. 1): each document one say, and short ones bring their
    noise in full. ``capped`` = min(length, 200) repairs that and stays safe with one huge document, which
    ``length`` does not.
    """
    if scheme == "uniform":
        weights = np.ones_like(lengths)
    elif scheme == "capped":
        weights = np.minimum(lengths, float(CAPPED_LENGTH))
    else:
        weights = lengths.copy()
    weights[lengths < SHORTEST_DOCUMENT] = 0.0
    return weights
