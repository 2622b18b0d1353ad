"""The oracle: LR-JSMF and its dense predecessor on dense float64 arrays, slow and independent of the package.

Algorithm and equation numbers are those of Lee, Cho, Dong, Mimno and Bindel (ICML 2021). Rows of H are documents.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.optimize
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Topics:
    """anchors (K,) word ids; word_topic B (N x K); topic_given_word (N x K); topic_topic A (K x K)."""

    anchors: NDArray[np.int64]
    word_topic: Floats
    topic_given_word: Floats
    topic_topic: Floats


@dataclass(frozen=True)
class Eigenpairs:
    """values (K,) in descending order; vectors (N x K) with orthonormal columns."""

    values: Floats
    vectors: Floats


@dataclass(frozen=True)
class Projection:
    """Result of alternating projections.

    matrix (N x N): the last C_t, non-negative. factor (N x K): Y with Y Y' its rank-K positive part. distances:
    Frobenius norm of each step C_t -> C_{t+1}.
    """

    matrix: Floats
    factor: Floats
    distances: list[float]


@dataclass(frozen=True)
class LowRankResult:
    """rectified (N x K): Y of ENN; topics: those that LAW finds from it."""

    rectified: Floats
    topics: Topics


def document_weights(lengths: NDArray[np.integer] | Floats, scheme: str) -> Floats:
    """Document weights from lengths in tokens: capped = min(n, 200), uniform = 1, length = n."""
    n = np.asarray(lengths, dtype=float)
    if scheme == "capped":
        return np.minimum(n, 200.0)
    if scheme == "uniform":
        return np.ones(len(n))
    if scheme == "length":
        return n
    raise ValueError(f"unknown weights {scheme!r}")


def cooccurrence(H: Floats, weights: Floats | None = None) -> Floats:
    """Eq. 1 with document weights: sum_m w_m (h h' - diag h) / (n (n - 1)) / sum_m w_m, over documents with n >= 2."""
    H = np.asarray(H, dtype=float)
    weights = np.ones(len(H)) if weights is None else weights
    C = np.zeros((H.shape[1], H.shape[1]))
    total = 0.0
    for h, w in zip(H, weights, strict=True):
        n = h.sum()
        if n < 2:
            continue
        C += w * (np.outer(h, h) - np.diag(h)) / (n * (n - 1))
        total += w
    return C / total


def mean_of_shares(H: Floats, weights: Floats | None = None) -> Floats:
    """u: weighted mean of h_m / n_m over documents with at least two tokens; equals C e."""
    weights = np.ones(len(H)) if weights is None else weights
    kept = [(h / h.sum(), w) for h, w in zip(np.asarray(H, float), weights, strict=True) if h.sum() >= 2]
    return sum(w * share for share, w in kept) / sum(w for _, w in kept)


def truncated_eig(C: Floats, K: int) -> Eigenpairs:
    """The K largest *algebraic* eigenpairs of a symmetric matrix."""
    values, vectors = np.linalg.eigh(C)
    return Eigenpairs(values[::-1][:K], vectors[:, ::-1][:, :K])


def positive_factor(C: Floats, K: int) -> Floats:
    """Y = U max(Lambda_K, 0)^(1/2), so that Y Y' is the PSD_K projection of C."""
    pairs = truncated_eig(C, K)
    return pairs.vectors * np.sqrt(np.maximum(pairs.values, 0.0))


def alternating_projection(C: Floats, K: int, iterations: int, tolerance: float = 0.0) -> Projection:
    """Algorithm 2: PSD_K, NOR, NN in turn; stops when a step is at most tolerance * ||C_t||_F."""
    N = len(C)
    distances: list[float] = []
    for _ in range(iterations):
        Y = positive_factor(C, K)
        psd = Y @ Y.T
        normalized = psd + (1.0 - psd.sum()) / N**2
        following = np.maximum(normalized, 0.0)
        distances.append(float(np.linalg.norm(following - C)))
        small = distances[-1] <= tolerance * np.linalg.norm(C)
        C = following
        if small:
            break
    return Projection(C, positive_factor(C, K), distances)


def largest_rows(Y: Floats, count: int) -> NDArray[np.int64]:
    """Ids of the ``count`` rows of largest norm; ties are resolved by id."""
    return np.argsort(-np.linalg.norm(Y, axis=1), kind="stable")[:count]


def non_negative_correction(Y: Floats, I_size: int) -> Floats:
    """E of Algorithm 3, dense: max(-y_i'y_j, 0) if i or j is among the I_size rows of largest norm."""
    chosen = np.zeros(len(Y), dtype=bool)
    chosen[largest_rows(Y, I_size)] = True
    E = np.maximum(-(Y @ Y.T), 0.0)
    E[~np.logical_or.outer(chosen, chosen)] = 0.0
    return E


def enn_step(Y: Floats, K: int, I_size: int) -> Floats:
    """One step of Algorithm 3: the next Y from the truncated eigenpairs of Y Y' + E + r e e'."""
    N = len(Y)
    E = non_negative_correction(Y, I_size)
    r = (1.0 - (Y @ Y.T).sum() - E.sum()) / N**2
    return positive_factor(Y @ Y.T + E + r, K)


def enn(C: Floats, K: int, I_size: int, iterations: int, tolerance: float = 0.0) -> Floats:
    """Algorithm 3 from the eigenpairs of C; stops at ||Y1 Y1' - Y0 Y0'||_F <= tolerance ||Y0 Y0'||_F."""
    Y = positive_factor(C, K)
    for _ in range(iterations):
        following = enn_step(Y, K, I_size)
        change = np.linalg.norm(following @ following.T - Y @ Y.T) / np.linalg.norm(Y @ Y.T)
        Y = following
        if change <= tolerance:
            break
    return Y


def pivots(rows: Floats, K: int, allowed: Mask | None = None) -> NDArray[np.int64]:
    """Column-pivoted QR of rows': K times, choose the row of largest residual and project it out."""
    residual = np.array(rows, dtype=float)
    allowed = np.ones(len(rows), dtype=bool) if allowed is None else allowed
    chosen: list[int] = []
    for _ in range(K):
        squares = np.where(allowed, (residual**2).sum(axis=1), -1.0)
        squares[chosen] = -1.0
        best = int(np.argmax(squares))  # argmax returns the lowest id in case of ties
        if squares[best] <= 0.0:
            raise ValueError(f"only {len(chosen)} independent rows are allowed, {K} were asked for")
        direction = residual[best] / np.sqrt(squares[best])
        # Project out twice; once loses orthogonality when residuals are small.
        for _ in range(2):
            residual = residual - np.outer(residual @ direction, direction)
        chosen.append(best)
    return np.array(chosen)


def row_normalized(C: Floats, d: Floats) -> Floats:
    """Rows of C divided by d; rows with d <= 0 are 0."""
    return np.where(d[:, None] > 0, C / np.where(d > 0, d, 1.0)[:, None], 0.0)


def anchor_words(C: Floats, K: int, allowed: Mask | None = None) -> NDArray[np.int64]:
    """Anchors of Algorithm 1: pivots of the row-normalized C; words with row sum <= 0 are never anchors."""
    d = C.sum(axis=1)
    usable = d > 0 if allowed is None else (d > 0) & allowed
    return pivots(row_normalized(C, d), K, usable)


def anchor_guard(
    d: Floats, u: Floats, document_frequency: NDArray[np.integer] | None = None, minimum: float = 0.0
) -> Mask:
    """Words that may be anchors: d > 0.1 u, in at least ``minimum`` documents."""
    mask = d > 0.1 * u
    return mask if document_frequency is None else mask & (document_frequency >= minimum)


def default_anchor_min_df(n_documents: int) -> float:
    """Minimum document frequency: 1 % of the documents, at least min(20, M / 50)."""
    return max(0.01 * n_documents, min(20.0, n_documents / 50.0))


def simplex_gap(x: Floats, S: Floats, b: Floats) -> float:
    """2 (b'g - min g) with g = S (S'b - x), an upper bound of ||x - S'b||^2 minus its minimum."""
    g = S @ (b @ S - x)
    return float(2.0 * (b @ g - g.min()))


def simplex_row_by_supports(x: Floats, S: Floats) -> Floats:
    """Minimize ||x - S'b||^2 over the simplex by trying every support; for K up to about 6."""
    best, best_value = np.zeros(len(S)), np.inf
    for size in range(1, len(S) + 1):
        for support in itertools.combinations(range(len(S)), size):
            rows = S[list(support)]
            # Affine hull of the support: the first vertex plus combinations of edges from it.
            edges = (rows[1:] - rows[0]).T
            rest = np.linalg.lstsq(edges, x - rows[0], rcond=None)[0] if size > 1 else np.zeros(0)
            weights = np.concatenate([[1.0 - rest.sum()], rest])
            if weights.min() < 0.0:
                continue
            value = float(((x - weights @ rows) ** 2).sum())
            if value < best_value:
                best, best_value = np.zeros(len(S)), value
                best[list(support)] = weights
    return best


def simplex_row(x: Floats, S: Floats) -> Floats:
    """Minimize ||x - S'b||^2 over the simplex, exactly, as one non-negative least squares problem.

    With P = S - x, this finds the point nearest to 0 in the convex hull of the rows of P. If t >= 0 minimizes
    ||P't||^2 + s^2 (e't - 1)^2, then t / e't are its weights (compare the KKT conditions). Raises ArithmeticError if
    `simplex_gap` of the result is too large.
    """
    P = S - x
    scale = np.linalg.norm(P, axis=1).max() or 1.0
    system = np.vstack([P.T / scale, np.ones(len(S))])
    target = np.zeros(len(system))
    target[-1] = 1.0
    t, _ = scipy.optimize.nnls(system, target, maxiter=100 * len(S))
    b = t / t.sum()
    if simplex_gap(x, S, b) > 1e-10 * scale**2:
        raise ArithmeticError("the oracle's simplex solution fails its certificate")
    return b


def simplex_least_squares(X: Floats, S: Floats) -> Floats:
    return np.array([simplex_row(x, S) for x in X])


def bayes(topic_given_word: Floats, d: Floats) -> Floats:
    """B = p(word | topic) from p(topic | word) and word masses d; columns sum to one."""
    joint = topic_given_word * np.maximum(d, 0.0)[:, None]
    return joint / joint.sum(axis=0)


def topics_from_rows(X: Floats, d: Floats, C: Floats, K: int, allowed: Mask | None) -> Topics:
    """Common steps of Algorithms 1 and 5: pivots of X, convex weights, Bayes, A by the diagonal.

    X (N x any): rows of the normalized co-occurrence in any orthonormal coordinates. C (N x N) is used for C_SS.
    """
    usable = d > 0 if allowed is None else (d > 0) & allowed
    S = pivots(X, K, usable)
    shares = np.zeros((len(X), K))
    shares[d > 0] = simplex_least_squares(X[d > 0], X[S])
    B = bayes(shares, d)
    # Rows of anchors are exact unit vectors, so B_S is diagonal and its inverse is a division.
    diagonal = np.diag(B[S])
    A = np.maximum(C[np.ix_(S, S)], 0.0) / np.outer(diagonal, diagonal)
    return Topics(S, B, shares, A)


def anchor_word_algorithm(C: Floats, K: int, allowed: Mask | None = None) -> Topics:
    d = C.sum(axis=1)
    return topics_from_rows(row_normalized(C, d), d, C, K, allowed)


def low_rank_anchor_word_algorithm(Y: Floats, K: int, allowed: Mask | None = None) -> Topics:
    """Algorithm 5 on Y (N x K), C = Y Y'; equals Algorithm 1 on Y Y' if that is non-negative."""
    d = Y @ Y.sum(axis=0)
    _, R = np.linalg.qr(Y)
    X = row_normalized(Y, d) @ R.T
    return topics_from_rows(X, d, Y @ Y.T, K, allowed)


def lr_jsmf(
    H: Floats,
    K: int,
    *,
    weights: str = "capped",
    I_size: int | None = None,
    iterations: int = 150,
    tolerance: float = 1e-5,
    anchor_min_df: float | None = None,
) -> LowRankResult:
    """Algorithm 6 with exact eigenpairs instead of randomized ones, ENN, LAW and the anchor guards.

    I_size defaults to 10 K + 1000 as in the paper, anchor_min_df to `default_anchor_min_df` (0 disables it).
    """
    H = np.asarray(H, dtype=float)
    H = H[H.sum(axis=1) >= 2]
    w = document_weights(H.sum(axis=1), weights)
    Y = enn(cooccurrence(H, w), K, 10 * K + 1000 if I_size is None else I_size, iterations, tolerance)
    minimum = default_anchor_min_df(len(H)) if anchor_min_df is None else anchor_min_df
    allowed = anchor_guard(Y @ Y.sum(axis=0), mean_of_shares(H, w), (H > 0).sum(axis=0), minimum)
    return LowRankResult(Y, low_rank_anchor_word_algorithm(Y, K, allowed))


def dykstra(C: Floats, K: int, iterations: int) -> Floats:
    """Algorithm 2 with Dykstra's corrections: each projection first adds back its previous correction."""
    N = len(C)

    def semidefinite(X: Floats) -> Floats:
        Y = positive_factor(X, K)
        return Y @ Y.T

    projections = [semidefinite, lambda X: X + (1.0 - X.sum()) / N**2, lambda X: np.maximum(X, 0.0)]
    taken = [np.zeros_like(C) for _ in projections]
    for _ in range(iterations):
        for i, project in enumerate(projections):
            projected = project(C + taken[i])
            taken[i] = C + taken[i] - projected
            C = projected
    return C


def enn_by_words(C: Floats, K: int, I_size: int, shares: Floats, iterations: int) -> Floats:
    """Algorithm 3 with the missing mass distributed as shares shares' instead of uniformly."""
    Y = positive_factor(C, K)
    for _ in range(iterations):
        E = non_negative_correction(Y, I_size)
        missing = 1.0 - (Y @ Y.T).sum() - E.sum()
        Y = positive_factor(Y @ Y.T + E + missing * np.outer(shares, shares), K)
    return Y


def completed_half(C: Floats, A: NDArray[np.int64], B: NDArray[np.int64], K: int) -> Floats:
    """Diagonal of C_AA from its off-diagonal entries and the column space of C_AB, by one linear system."""
    U = np.linalg.svd(C[np.ix_(A, B)])[0][:, :K]
    P = U @ U.T
    off = C[np.ix_(A, A)] - np.diag(np.diag(C)[A])
    # The diagonal d equals the diagonal of P (off + diag d) P.
    return np.linalg.solve(np.eye(len(A)) - P**2, np.diag(P @ off @ P))


@dataclass(frozen=True)
class PALMStep:
    """X, Y (N x K) and the objective J after a step."""

    X: Floats
    Y: Floats
    objective: float


def palm_objective(C: Floats, X: Floats, Y: Floats, s: float) -> float:
    return float(0.5 * np.linalg.norm(C - X @ Y.T) ** 2 + 0.5 * s * np.linalg.norm(X - Y) ** 2)


def palm(C: Floats, K: int, iterations: int, s: float = 1e-4, gamma: float = 1.005) -> list[PALMStep]:
    """Algorithm 4: a proximal gradient step on X, then on Y, each of length 1 / (gamma L).

    Signs of eigenvectors are arbitrary; those with the larger positive part are chosen.
    """
    X = positive_factor(C, K)
    for k in range(K):
        if np.linalg.norm(np.maximum(-X[:, k], 0)) > np.linalg.norm(np.maximum(X[:, k], 0)):
            X[:, k] = -X[:, k]
    Y = X
    steps = []
    for _ in range(iterations):
        L = np.linalg.norm(Y.T @ Y + s * np.eye(K), 2)
        X = np.maximum(X - ((X @ Y.T - C) @ Y + s * (X - Y)) / (gamma * L), 0.0)
        L = np.linalg.norm(X.T @ X + s * np.eye(K), 2)
        Y = np.maximum(Y - ((Y @ X.T - C) @ X + s * (Y - X)) / (gamma * L), 0.0)
        steps.append(PALMStep(X, Y, palm_objective(C, X, Y, s)))
    return steps


def enn_momentum(
    C: Floats, K: int, I_size: int, iterations: int, block_steps: int, friction: float
) -> Floats:
    """ENN with momentum: Algorithm 3 first, then Y <- A Z (Z'A Z)^(-1/2) at Z = Y + beta (Y - Y_before)."""
    Y = positive_factor(C, K)
    before, age = None, 0
    for step in range(1, iterations + 1):
        if step <= block_steps:
            Y = enn_step(Y, K, I_size)
            continue
        age = 1 if before is None else age + 1
        beta = (age - 1) / (age + friction - 1)
        Z = Y if before is None else Y + beta * (Y - before)
        E = non_negative_correction(Z, I_size)
        A = Z @ Z.T + E + (1.0 - (Z @ Z.T).sum() - E.sum()) / len(Z) ** 2
        root = scipy.linalg.sqrtm(Z.T @ A @ Z).real
        following = A @ Z @ np.linalg.inv(root)
        # Restart the momentum if the step opposes it.
        if ((Z - following) * (following - Y)).sum() > 0:
            age = 0
        before, Y = Y, following
    return Y
