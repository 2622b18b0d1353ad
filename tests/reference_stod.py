"""The oracle of the tensor engine: moments of LDA by counting, and TOD on explicit tensors, independent of the package.

Algorithm and equation numbers are those of Wang, Liu, Song and Han (ECML-PKDD 2014), with the corrections listed in
docs/math.md. Rows of H are documents.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests import reference

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Moments:
    """first (N), second (N x N), third (N x N x N): probabilities of one, two and three words of a document."""

    first: Floats
    second: Floats
    third: Floats


@dataclass(frozen=True)
class Components:
    """eigenvalues (K): lambda* of the tensor, in order of decreasing topic shares; word_topic (N x K); alpha (K)."""

    eigenvalues: Floats
    word_topic: Floats
    alpha: Floats


def tensor_weights(H: NDArray[np.int64], scheme: str) -> Floats:
    """One weight per document; 0 below three tokens."""
    lengths = H.sum(axis=1)
    return np.where(lengths < 3, 0.0, reference.document_weights(lengths, scheme))


def counted_moments(H: NDArray[np.int64], weights: Floats) -> Moments:
    """Eqs. 7 and 8 by definition: fractions of ordered pairs and triples of distinct positions in a document."""
    N = H.shape[1]
    first, second, third = np.zeros(N), np.zeros((N, N)), np.zeros((N, N, N))
    for counts, weight in zip(H, weights, strict=True):
        if weight == 0.0:
            continue
        tokens = np.repeat(np.arange(N), counts)
        for order, total in ((1, first), (2, second), (3, third)):
            places = list(itertools.permutations(range(len(tokens)), order))
            for chosen in places:
                total[tuple(tokens[list(chosen)])] += weight / len(places)
    total_weight = weights.sum()
    return Moments(first / total_weight, second / total_weight, third / total_weight)


def dense_moments(H: NDArray[np.int64], weights: Floats) -> Moments:
    """Corrected Eqs. 7 and 8: divided by the sum of weights, with all three permutations; equals `counted_moments`."""
    kept = weights > 0
    c, w = H[kept].astype(float), weights[kept]
    n = c.sum(axis=1)
    pairs, triples = w / (n * (n - 1)), w / (n * (n - 1) * (n - 2))
    second = c.T @ (c * pairs[:, None]) - np.diag(pairs @ c)
    # Corrections for triples in which a word occurs twice (c_x c_y) or three times (c_x).
    twice, thrice = c.T @ (c * triples[:, None]), triples @ c
    third = ((c * triples[:, None])[:, :, None] * c[:, None, :]).reshape(len(c), -1).T @ c
    third = third.reshape((H.shape[1],) * 3)
    for x in range(H.shape[1]):
        third[x, x, :] -= twice[x]
        third[x, :, x] -= twice[x]
        third[:, x, x] -= twice[x]
        third[x, x, x] += 2 * thrice[x]
    return Moments(w / n @ c / w.sum(), second / w.sum(), third / w.sum())


def population_moments(word_topic: Floats, alpha: Floats) -> Moments:
    """Eqs. 1 and 2: the population moments of topics and a Dirichlet prior."""
    a0 = alpha.sum()
    K = len(alpha)
    pairs = np.outer(alpha, alpha) + np.diag(alpha)
    triples = np.zeros((K, K, K))
    for i, j, k in itertools.product(range(K), repeat=3):
        triples[i, j, k] = alpha[i] * (alpha[j] + (i == j)) * (alpha[k] + (i == k) + (j == k))
    phi = word_topic
    return Moments(
        phi @ alpha / a0,
        phi @ pairs @ phi.T / (a0 * (a0 + 1)),
        np.einsum("ijk,xi,yj,zk->xyz", triples, phi, phi, phi) / (a0 * (a0 + 1) * (a0 + 2)),
    )


def second_moment(moments: Moments, a0: float) -> Floats:
    return (a0 + 1) * moments.second - a0 * np.outer(moments.first, moments.first)


def third_moment(moments: Moments, a0: float) -> Floats:
    """M3 of Eq. 6; U1, U2 and U3 have the mean in each of the three positions."""
    E1, E2, E3 = moments.first, moments.second, moments.third
    U = np.einsum("ij,k->ijk", E2, E1) + np.einsum("ik,j->ijk", E2, E1) + np.einsum("jk,i->ijk", E2, E1)
    cube = np.einsum("i,j,k->ijk", E1, E1, E1)
    return (a0 + 1) * (a0 + 2) / 2 * E3 - a0 * (a0 + 1) / 2 * U + a0**2 * cube


def power_method(T: Floats, restarts: int, iterations: int, seed: int) -> tuple[Floats, Floats]:
    """Lines 1.6 to 1.16, one vector at a time; the best restart is iterated until convergence."""
    T = T.copy()
    rng = np.random.default_rng(seed)
    eigenvalues, vectors = [], []
    for _ in range(len(T)):
        best, best_vector = -np.inf, np.zeros(len(T))
        for _ in range(restarts):
            v = rng.standard_normal(len(T))
            v /= np.linalg.norm(v)
            for _ in range(iterations):
                v = np.einsum("ijk,j,k->i", T, v, v)
                v /= np.linalg.norm(v)
            value = np.einsum("ijk,i,j,k->", T, v, v, v)
            if value > best:
                best, best_vector = value, v
        for _ in range(5000):
            v = np.einsum("ijk,j,k->i", T, best_vector, best_vector)
            v /= np.linalg.norm(v)
            step, best_vector = np.linalg.norm(v - best_vector), v
            if step < 1e-13:
                break
        best = np.einsum("ijk,i,j,k->", T, best_vector, best_vector, best_vector)
        T -= best * np.einsum("i,j,k->ijk", best_vector, best_vector, best_vector)
        eigenvalues.append(best)
        vectors.append(best_vector)
    return np.array(eigenvalues), np.array(vectors).T


def tod(
    moments: Moments, K: int, a0: float, *, restarts: int = 30, iterations: int = 30, seed: int = 0
) -> Components:
    """Algorithm 1: whitening of M2, the tensor M3(W, W, W) from the explicit M3, its components, the topics."""
    pairs = reference.truncated_eig(second_moment(moments, a0), K)
    W = pairs.vectors / np.sqrt(pairs.values)
    T = np.einsum("xyz,xi,yj,zk->ijk", third_moment(moments, a0), W, W, W, optimize=True)
    eigenvalues, vectors = power_method(T, restarts, iterations, seed)
    word_topic = (pairs.vectors * np.sqrt(pairs.values)) @ (vectors * eigenvalues)
    order = np.argsort(eigenvalues, kind="stable")
    alpha = a0 / eigenvalues[order] ** 2
    return Components(eigenvalues[order], word_topic[:, order], alpha)


def less_noise(word_topic: Floats, word_mean: Floats) -> Floats:
    """Subtract the multiple of each column's noise that minimizes Stein's error estimate; clip at 0."""
    scale, noise = np.sqrt(word_mean), np.zeros(word_topic.shape[1])
    for topic, column in enumerate(word_topic.T):
        below = column < 0
        noise[topic] = np.sqrt(np.mean((column[below] / scale[below]) ** 2)) if below.any() else 0.0
    best = (np.inf, 0.0)
    for multiple in np.arange(31) * 0.1:
        error = 0.0
        for (w, topic), value in np.ndenumerate(word_topic):
            if noise[topic] > 0:
                z = value / (noise[topic] * scale[w])
                error += word_mean[w] * (1 + multiple**2 if z > multiple else z**2 - 1)
        best = min(best, (error, multiple))
    return np.maximum(word_topic - best[1] * scale[:, None] * noise, 0.0)


def mixed(word_topic: Floats, words: Floats, weights: Floats, steps: int) -> tuple[Floats, Floats]:
    """Topics and weights whose mixture is ``words``: p(t | w) by Bayes' rule, word by word.

    Words without topics are ignored in all steps but the last, in which p(t | w) = p(t) for them.
    """
    topics = word_topic / word_topic.sum(axis=0)
    joint = np.zeros_like(topics)
    for step in range(steps + 1):
        for w, row in enumerate(topics):
            share = row * weights
            if share.sum() > 0:
                joint[w] = words[w] * share / share.sum()
            else:
                joint[w] = words[w] * weights if step == steps else 0.0
        weights = joint.sum(axis=0) / joint.sum()
    return joint / joint.sum(axis=0), weights
