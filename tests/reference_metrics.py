"""The oracle of the metrics: definitions on dense N x N arrays, slow and independent of the package."""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def topic_given_word(B: Floats, prior: Floats) -> Floats:
    """Bayes' rule word by word; words without topics have rows of zeros."""
    shares = np.zeros_like(B)
    for i, row in enumerate(B):
        mass = sum(b * p for b, p in zip(row, prior, strict=True))
        if mass > 0:
            shares[i] = [b * p / mass for b, p in zip(row, prior, strict=True)]
    return shares


def normalized_rows(C: Floats, u: Floats) -> Floats:
    """C-bar: rows of C divided by u; rows with u = 0 are 0."""
    return np.array([row / total if total > 0 else 0 * row for row, total in zip(C, u, strict=True)])


def recovery(C: Floats, u: Floats, shares: Floats, anchors: Integers) -> float:
    """Mean over words with u > 0 of ||C-bar_i - shares_i C-bar_S||_2."""
    Cbar = normalized_rows(C, u)
    errors = [np.linalg.norm(Cbar[i] - shares[i] @ Cbar[anchors]) for i in range(len(C)) if u[i] > 0]
    return float(np.mean(errors))


def relative_recovery(C: Floats, u: Floats, shares: Floats, anchors: Integers) -> float:
    return recovery(C, u, shares, anchors) / float(np.linalg.norm(normalized_rows(C, u)))


def approximation(C: Floats, B: Floats, A: Floats) -> float:
    return float(np.linalg.norm(C - B @ A @ B.T))


def relative_approximation(C: Floats, B: Floats, A: Floats) -> float:
    return approximation(C, B, A) / float(np.linalg.norm(C))


def dominancy(A: Floats) -> float:
    return float(np.mean([A[k, k] / A[k].sum() if A[k].sum() > 0 else 0.0 for k in range(len(A))]))


def relative_dominancy(A: Floats) -> float:
    return sum(A[k, k] for k in range(len(A))) / len(A) / math.sqrt(sum(a * a for a in A.ravel()))


def specificity(B: Floats, p: Floats) -> float:
    """Mean KL divergence over words with p > 0, both sides normalized; a topic without such words counts 0."""
    there = p > 0
    divergences = []
    for k in range(B.shape[1]):
        b, q = B[there, k], p[there] / p[there].sum()
        if b.sum() == 0:
            divergences.append(0.0)
            continue
        b = b / b.sum()
        divergences.append(sum(x * math.log(x / y) for x, y in zip(b, q, strict=True) if x > 0))
    return float(np.mean(divergences))


def dissimilarity(top_words: Integers, count: int = 20) -> float:
    sets = [set(words[:count].tolist()) for words in top_words]
    own = [len(s - set().union(*(sets[:k] + sets[k + 1 :]))) for k, s in enumerate(sets)]
    return float(np.mean(own))


def frex(B: Floats, weight: float = 0.7) -> Floats:
    """FREX of each word in each topic: ranks are counted word by word, ties by halves."""

    def share(values: Floats, word: int) -> float:
        below, equal = np.sum(values < values[word]), np.sum(values == values[word])
        return float(below + (equal + 1) / 2) / len(values)

    totals = [sum(row) for row in B]
    scores = np.zeros(B.shape)
    for k in range(B.shape[1]):
        exclusive = np.array([B[i, k] / totals[i] if totals[i] > 0 else 0.0 for i in range(len(B))])
        for i in range(len(B)):
            scores[i, k] = 1 / (weight / share(exclusive, i) + (1 - weight) / share(B[:, k], i))
    return scores


def exclusivity(B: Floats, top_words: Integers) -> list[float]:
    """Sum of FREX over the top words of each topic."""
    scores = frex(B)
    return [sum(scores[i, k] for i in words) for k, words in enumerate(top_words)]


def document_frequency(H: Floats, *words: int) -> int:
    """Number of documents (rows of H) that contain all the words."""
    return sum(all(h[word] > 0 for word in words) for h in H)


def coherence(H: Floats, top_words: Integers, epsilon: float) -> list[float]:
    """Coherence of Mimno et al. 2011, directly from the documents."""
    return [
        sum(
            math.log(
                (document_frequency(H, int(words[m]), int(words[j])) + epsilon)
                / max(document_frequency(H, int(words[j])), 1)
            )
            for m in range(1, len(words))
            for j in range(m)
        )
        for words in top_words
    ]


def u_mass(H: Floats, top_words: Integers, smoothing: float) -> list[float]:
    means = []
    for words in top_words:
        terms = []
        for m in range(1, len(words)):
            for j in range(m):
                given = document_frequency(H, int(words[j])) / len(H)
                both = document_frequency(H, int(words[m]), int(words[j])) / len(H)
                terms.append(math.log((both + smoothing) / given) if given > 0 else 0.0)
        means.append(float(np.mean(terms)))
    return means


def npmi_pair(both: float, one: float, other: float, smoothing: float = 0.0) -> float:
    if both >= 1:
        return 1.0
    if both + smoothing <= 0 or one * other <= 0:
        return -1.0
    value = math.log((both + smoothing) / (one * other)) / -math.log(both + smoothing)
    return min(max(value, -1.0), 1.0)


def npmi(H: Floats, top_words: Integers, smoothing: float = 0.0) -> list[float]:
    """Mean NPMI over unordered pairs of top words, directly from the documents."""
    return [
        float(
            np.mean(
                [
                    npmi_pair(
                        document_frequency(H, int(i), int(j)) / len(H),
                        document_frequency(H, int(i)) / len(H),
                        document_frequency(H, int(j)) / len(H),
                        smoothing,
                    )
                    for i, j in itertools.combinations(words, 2)
                ]
            )
        )
        for words in top_words
    ]


def spanning_tree(weights: Floats) -> float:
    """Weight of the minimum spanning tree, by Kruskal's algorithm."""
    part = list(range(len(weights)))
    edges = sorted((weights[i, j], i, j) for i, j in itertools.combinations(range(len(weights)), 2))
    total = 0.0
    for weight, i, j in edges:
        if part[i] != part[j]:
            total += weight
            part = [part[i] if p == part[j] else p for p in part]
    return total


def mst_incoherence(
    top_words: Integers, rows: Floats, joint: Floats, alone: Floats, allowed: Integers | None = None
) -> list[float]:
    """Per topic: 7 prominent words and the 7 largest positive entries of its row, edges (1 - NPMI) / 2.

    joint (N, N): p(i, j); alone (N,): p(i); allowed: candidates for characteristic words (None: all).
    """
    allowed = np.arange(rows.shape[1]) if allowed is None else allowed
    costs = []
    for words, row in zip(top_words, rows, strict=True):
        characteristic = sorted(allowed.tolist(), key=lambda i: (-row[i], i))[:7]
        nodes = sorted({*words[:7].tolist(), *(i for i in characteristic if row[i] > 0)})
        weights = np.array(
            [[(1 - npmi_pair(joint[i, j], alone[i], alone[j])) / 2 for j in nodes] for i in nodes]
        )
        costs.append(spanning_tree(weights))
    return costs


def log_volume(points: Floats) -> float:
    """Log volume by the Cayley-Menger determinant."""
    K = len(points)
    bordered = np.ones((K + 1, K + 1))
    bordered[0, 0] = 0.0
    for i in range(K):
        for j in range(K):
            bordered[i + 1, j + 1] = ((points[i] - points[j]) ** 2).sum()
    squared = abs(np.linalg.det(bordered)) / (2 ** (K - 1) * math.factorial(K - 1) ** 2)
    return 0.5 * math.log(squared)


def random_hull_volumes(N: int, K: int, hulls: int, rng: np.random.Generator) -> Floats:
    """Volumes (hulls,) of the paper's random hulls: N uniform rows on the simplex, K of them by greedy pivoting."""
    volumes = []
    for _ in range(hulls):
        rows = rng.dirichlet(np.ones(N), size=N)
        residual, chosen = rows.copy(), []
        for _ in range(K):
            lengths = (residual**2).sum(axis=1)
            lengths[chosen] = -1.0
            best = int(np.argmax(lengths))
            direction = residual[best] / np.linalg.norm(residual[best])
            residual = residual - np.outer(residual @ direction, direction)
            chosen.append(best)
        volumes.append(math.exp(log_volume(rows[chosen])))
    return np.array(volumes)


def mean_squared_volume(N: int, K: int) -> float:
    """Expected squared volume of K independent uniform rows on the simplex with N corners, without selection.

    The scatter of K independent vectors with covariance s (I - e e'/N), s = 1 / (N (N + 1)), has the mean determinant
    K (K - 1)! binom(N - 1, K - 1) s^(K - 1); the volume has a factor 1 / (K - 1)!.
    """
    s = 1.0 / (N * (N + 1))
    return K * math.comb(N - 1, K - 1) * s ** (K - 1) / math.factorial(K - 1)


def best_matching(first: Floats, second: Floats) -> list[float]:
    """L1 distances of the best one-to-one matching, by enumeration."""
    if first.shape[1] > second.shape[1]:
        first, second = second, first
    distance = [[float(np.abs(a - b).sum()) for b in second.T] for a in first.T]
    choices = itertools.permutations(range(second.shape[1]), first.shape[1])
    return min(([distance[k][place] for k, place in enumerate(choice)] for choice in choices), key=sum)


def recovery_error(first: Floats, second: Floats) -> float:
    return float(np.mean(best_matching(first, second)))


def stability(B: Floats, replicas: list[Floats]) -> float:
    return float(np.mean([1 - recovery_error(B, replica) / 2 for replica in replicas]))


def distinct_share(top_words: Integers, count: int = 10) -> float:
    words = [int(word) for row in top_words for word in row[:count]]
    return len(set(words)) / len(words)


def effective_topics(p: Floats) -> float:
    return math.exp(-sum(x * math.log(x) for x in p if x > 0))


def hoyer_sparsity(B: Floats) -> float:
    N = len(B)
    values = []
    for b in B.T:
        norm = math.sqrt(sum(x * x for x in b))
        values.append((math.sqrt(N) - sum(abs(b)) / norm) / (math.sqrt(N) - 1) if norm > 0 else 0.0)
    return float(np.mean(values))


def divergence_in_bits(p: Floats, q: Floats) -> float:
    """D(p || q) in bits; zeros of q are raised to machine epsilon and q is normalized, p is not."""
    lifted = [max(value, float(np.finfo(float).eps)) for value in q]
    return sum(a * math.log2(a / (b / sum(lifted))) for a, b in zip(p, lifted, strict=True) if a > 0)


def validity(A: Floats, topic_probability: Floats) -> float:
    sums = A.sum(axis=1)
    return (divergence_in_bits(sums, topic_probability) + divergence_in_bits(topic_probability, sums)) / 2


def word_entropy(shares: Floats) -> float:
    known = [row for row in shares if row.sum() > 0]
    entropies = [-sum(p * math.log(p) for p in row if p > 0) for row in known]
    return float(np.mean(entropies)) / math.log(shares.shape[1]) if shares.shape[1] > 1 else 0.0


def ranks(B: Floats, words: Integers) -> Floats:
    """Rank of each word in each topic, from 1; ties are resolved by word id."""
    found = np.zeros((len(words), B.shape[1]))
    for k, word in enumerate(words):
        for topic in range(B.shape[1]):
            before = [
                B[i, topic] > B[word, topic] or (B[i, topic] == B[word, topic] and i < word)
                for i in range(len(B))
            ]
            found[k, topic] = 1 + sum(before)
    return found
