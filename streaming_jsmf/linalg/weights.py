"""Document weights: how much say a document has in every sum (C, u, D alike)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.config import CAPPED_LENGTH, DocumentWeights

#: A document of fewer tokens has no pair of words; Eq. 1 divides by n (n - 1).
SHORTEST_DOCUMENT = 2


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
