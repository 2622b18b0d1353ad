"""Least squares of several responses on the same columns, from sums over rows: coefficients and robust covariances.

For rows x_m (p) and responses y_m (K), a first pass over the rows adds X'X and X'Y, and a second one, which knows the
coefficients, the squares of the scores x_m e_mk (or of their sums by cluster), which the covariances need:

    b_k = (X'X)^-1 X'y_k,    V_k = c (X'X)^-1 (sum_m e_mk^2 x_m x_m') (X'X)^-1,    e_mk = y_mk - x_m'b_k

c is M / (M - p) for single rows (HC1; MacKinnon and White 1985), and G / (G - 1) (M - 1) / (M - p) for G clusters
(Liang and Zeger 1986; the factor is that of Stata and statsmodels). Columns are first made nearly orthogonal by
``orthogonalizing``, so that sums of squares keep the digits of such columns as years and their squares.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.linalg.typing import Floats, Integers

#: A column whose part that is orthogonal to the columns before it is shorter than this part of it depends on them.
DEPENDENT = 1e-7


def orthogonalizing(rows: Floats) -> Floats:
    """T (p, p), upper triangular with unit diagonal, that makes columns of ``rows @ T`` orthogonal.

    By Gram and Schmidt, twice. Columns that depend on earlier ones become nearly zero.
    """
    p = rows.shape[1]
    change, kept = np.eye(p), np.empty((p, 0))
    for j in range(p):
        column = rows[:, j].copy()
        for _ in range(2):
            basis = rows @ kept
            shares = basis.T @ column / np.einsum("mi,mi->i", basis, basis)
            column -= basis @ shares
            change[:, j] -= kept @ shares
        if np.linalg.norm(column) > DEPENDENT * np.linalg.norm(rows[:, j]):
            kept = np.column_stack([kept, change[:, j]])
    return change


@dataclass
class NormalEquations:
    """Sums over rows: X'X, the squares of the columns as they were before they were made orthogonal, X'Y (p, K), M."""

    gram: Floats
    squares: Floats
    cross: Floats
    n_rows: int = 0

    @classmethod
    def zeros(cls, columns: int, responses: int) -> NormalEquations:
        return cls(np.zeros((columns, columns)), np.zeros(columns), np.zeros((columns, responses)))

    def add(self, rows: Floats, change: Floats, responses: Floats) -> None:
        """Add rows (M, p), which ``change`` (p, p) makes orthogonal, and their responses (M, K)."""
        columns = rows @ change
        self.gram += columns.T @ columns
        self.squares += np.square(rows).sum(axis=0)
        self.cross += columns.T @ responses
        self.n_rows += len(rows)

    def solved(self) -> Solution:
        """The coefficients; columns that depend on those before them are left out."""
        kept = _independent(self.gram, self.squares)
        inverse = np.zeros_like(self.gram)
        inverse[np.ix_(kept, kept)] = np.linalg.inv(self.gram[np.ix_(kept, kept)])
        return Solution(kept, inverse, inverse @ self.cross, self.n_rows)


@dataclass(frozen=True)
class Solution:
    """Which columns are used (p,), the inverse of X'X (p, p) and coefficients (p, K); zeros for the other columns."""

    kept: NDArray[np.bool_]
    inverse: Floats
    coefficients: Floats
    n_rows: int

    @property
    def freedom(self) -> int:
        """Degrees of freedom of the residuals, M - p."""
        return self.n_rows - int(self.kept.sum())


def _independent(gram: Floats, squares: Floats) -> NDArray[np.bool_]:
    """Which columns do not depend on those before them, as R decides it for ``lm``."""
    left, kept = gram.copy(), np.zeros(len(gram), bool)
    for j in range(len(gram)):
        if left[j, j] > DEPENDENT**2 * squares[j] and squares[j] > 0:
            kept[j] = True
            left -= np.outer(left[:, j], left[j]) / left[j, j]
    return kept


@dataclass
class Scores:
    """Sums of squared scores of K responses, (K, p, p); with clusters, first the sums of the scores by cluster."""

    solution: Solution
    squares: Floats
    of_clusters: Floats
    present: NDArray[np.bool_]

    @classmethod
    def zeros(cls, solution: Solution, clusters: int = 0) -> Scores:
        p, k = solution.coefficients.shape
        return cls(solution, np.zeros((k, p, p)), np.zeros((clusters, p, k)), np.zeros(clusters, bool))

    def add(self, columns: Floats, responses: Floats, cluster: Integers | None = None) -> None:
        """Add orthogonalized columns (M, p), their responses (M, K), and the cluster of each row (M,), if any."""
        errors = responses - columns @ self.solution.coefficients
        if cluster is None:
            weights = np.square(errors).T
            for j in range(columns.shape[1]):
                self.squares[:, j] += weights @ (columns * columns[:, j : j + 1])
            return
        self.present[cluster] = True
        order = np.argsort(cluster, kind="stable")
        starts = np.flatnonzero(np.diff(cluster[order], prepend=-1))
        for j in range(columns.shape[1]):
            sums = np.add.reduceat((columns[:, j : j + 1] * errors)[order], starts, axis=0)
            self.of_clusters[cluster[order][starts], j] += sums

    @property
    def n_clusters(self) -> int:
        """The number of clusters with rows; 0 without clusters."""
        return int(self.present.sum())

    def covariances(self) -> Floats:
        """Covariances of the coefficients of each response, (K, p, p), with the factor for small samples."""
        rows, free = self.solution.n_rows, self.solution.freedom
        if clusters := self.n_clusters:
            squares = np.einsum("gik,gjk->kij", self.of_clusters, self.of_clusters)
            factor = clusters / (clusters - 1) * (rows - 1) / free
        else:
            squares, factor = self.squares, rows / free
        inverse = self.solution.inverse
        return np.asarray(factor * (inverse @ squares @ inverse))


def pooled(estimates: Floats, covariances: Floats) -> tuple[Floats, Floats]:
    """Mean of the estimates (D, p, K) of D draws, and their covariances (K, p, p): within plus between draws.

    ``covariances`` (K, p, p) are means over the draws; those between draws are multiplied by 1 + 1 / D (Rubin 1987).
    """
    draws, mean = len(estimates), estimates.mean(axis=0)
    if draws == 1:
        return mean, covariances
    apart = estimates - mean
    between = np.einsum("dik,djk->kij", apart, apart) / (draws - 1)
    return mean, covariances + (1 + 1 / draws) * between
