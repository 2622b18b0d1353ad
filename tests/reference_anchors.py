"""The oracle of anchors: shrunken rows, given and tandem anchors, SoftClique, refined correlations.

Slow and independent of the package, like ``tests.reference``.
"""

from __future__ import annotations

import itertools

import numpy as np

from tests import reference
from tests.reference import Floats, Mask, Topics


def shrunken(rows: Floats, d: Floats, document_frequency: Floats, shrinkage: float) -> Floats:
    """Shrink rows toward their d-weighted mean (over positive d) by the factor df / (df + shrinkage)."""
    mass = np.maximum(d, 0.0)
    center = sum(m * row for m, row in zip(mass, rows, strict=True)) / mass.sum()
    return np.array(
        [
            center + df / (df + shrinkage) * (x - center)
            for x, df in zip(rows, document_frequency, strict=True)
        ]
    )


def tandem_topics(C: Floats, groups: list[list[int]]) -> Topics:
    """Algorithm 1 with a pseudoword per topic as its anchor, which is counted wherever a word of the group is.

    The rows and co-occurrences of a pseudoword are the sums of those of its words.
    """
    joined = np.array([np.isin(np.arange(len(C)), group).astype(float) for group in groups])
    d = C.sum(axis=1)
    rows = reference.row_normalized(C, d)
    new_mass = joined @ d
    shares = reference.simplex_least_squares(rows, joined @ C / new_mass[:, None])
    B = reference.bayes(shares, d)
    new_share = new_mass / (shares.T @ d)
    A = np.maximum(joined @ C @ joined.T, 0.0) / np.outer(new_share, new_share)
    return Topics(np.array([group[0] for group in groups]), B, shares, A)


def topics_of_anchors(rows: Floats, d: Floats, C: Floats, S: list[int]) -> Topics:
    """Steps 3 to 6 of Algorithm 1 for given anchors."""
    shares = np.zeros((len(rows), len(S)))
    shares[d > 0] = reference.simplex_least_squares(rows[d > 0], rows[S])
    B = reference.bayes(shares, d)
    diagonal = np.diag(B[S])
    A = np.maximum(C[np.ix_(S, S)], 0.0) / np.outer(diagonal, diagonal)
    return Topics(np.array(S), B, shares, A)


def shrunken_law(Y: Floats, K: int, allowed: Mask, document_frequency: Floats, shrinkage: float) -> Topics:
    """Algorithm 5 with anchors selected from shrunken rows."""
    C = Y @ Y.T
    d = C.sum(axis=1)
    rows = reference.row_normalized(C, d)
    S = reference.pivots(shrunken(rows, d, document_frequency, shrinkage), K, allowed & (d > 0))
    return topics_of_anchors(rows, d, C, list(S))


def clique_weight(C: Floats, clique: tuple[int, ...]) -> float:
    return float(sum(C[i, j] for i, j in itertools.combinations(clique, 2)))


def lightest_clique(C: Floats, K: int, allowed: Mask) -> float:
    """Minimum weight of all cliques of K allowed words, by enumeration."""
    words = np.flatnonzero(allowed)
    return min(clique_weight(C, clique) for clique in itertools.combinations(words, K))


def best_exchange(C: Floats, clique: tuple[int, ...], allowed: Mask) -> float:
    """Minimum weight after exchanging one word of the clique."""
    outside = [word for word in np.flatnonzero(allowed) if word not in clique]
    return min(
        clique_weight(C, (*(word for word in clique if word != leaving), entering))
        for leaving in clique
        for entering in outside
    )


def refined_correlations(B: Floats, C: Floats) -> Floats:
    """Non-negative A of sum 1 with B A B' nearest to C: a simplex problem with the K^2 vertices b_i b_j'."""
    vertices = np.array([np.outer(first, second).ravel() for first in B.T for second in B.T])
    return reference.simplex_row(C.ravel(), vertices).reshape(B.shape[1], B.shape[1])
