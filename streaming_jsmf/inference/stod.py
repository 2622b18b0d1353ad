"""STOD: topics and their Dirichlet prior from moments in a basis, for one K and alpha0. No pass over the data.

Wang, Liu, Song, Han (ECML-PKDD 2014), Eqs. 4 to 6 and 16, restricted to the span of the basis Q of the scan.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from streaming_jsmf.config import StodSettings
from streaming_jsmf.inference.correlations import dirichlet_prior
from streaming_jsmf.inference.stod_recovery import Components, Recovered, decompose, recover
from streaming_jsmf.linalg.panels import panels, ratio
from streaming_jsmf.linalg.tensor import BasisMoments
from streaming_jsmf.linalg.typing import Floats

#: Eigenvalues of M2 below this fraction of the largest are noise, which whitening would amplify.
EIGENVALUE_FLOOR = 1e-6


def unpacked(packed: Floats, width: int) -> Floats:
    """The full m x m x m tensor of a packed one."""
    full = np.empty((width, width, width))
    first = 0
    for a in range(width):
        rows, columns = np.triu_indices(width - a)
        part = np.empty((width - a, width - a))
        part[rows, columns] = part[columns, rows] = packed[first : first + rows.size]
        first += rows.size
        full[a, a:, a:] = full[a:, a, a:] = full[a:, a:, a] = part
    return full


def in_basis(tensor: Floats, basis: Floats) -> Floats:
    """T(W, W, W), k x k x k, of a symmetric m x m x m tensor; ``basis`` is W, m x k."""
    m, k = basis.shape
    # Transform the last mode and rotate the modes, three times.
    for _ in range(3):
        tensor = np.moveaxis((tensor.reshape(-1, m) @ basis).reshape(*tensor.shape[:2], k), 2, 0)
    return symmetrised(tensor)


def symmetrised(tensor: Floats) -> Floats:
    """Mean over the six permutations of the modes."""
    orders = [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
    total = np.zeros_like(tensor)
    for order in orders:
        total += tensor.transpose(order)
    return total / len(orders)


def vector_product(matrix: Floats, vector: Floats) -> Floats:
    """M (x) v summed over its three positions: M_ij v_k + M_ik v_j + M_jk v_i, for a symmetric M."""
    outer = matrix[:, :, None] * vector
    return np.asarray(outer + outer.transpose(0, 2, 1) + outer.transpose(2, 0, 1))


def cube(vector: Floats) -> Floats:
    """v (x) v (x) v."""
    return np.asarray(vector[:, None, None] * vector[:, None] * vector)


@dataclass(frozen=True)
class CoreMoments:
    """The moments with all words in the basis, independent of alpha0 and K: Q'M1, Q'E2 Q and E3(Q, Q, Q), symmetric."""

    mean: Floats
    pairs: Floats
    third: Floats


def core_moments(moments: BasisMoments) -> CoreMoments:
    """Project the moments onto the basis Q (N x m)."""
    basis = moments.basis
    pairs = basis.T @ moments.pair_projection
    third = unpacked(moments.third, basis.shape[1])
    return CoreMoments(basis.T @ moments.word_mean, (pairs + pairs.T) / 2, third)


@dataclass(frozen=True)
class Whitening:
    """Leading eigenpairs of M2 in the basis.

    ``values`` (k,) are the largest algebraic eigenvalues above the floor, descending, where k may be less than K;
    ``vectors`` are (m, k); ``rest`` are the other eigenvalues, descending.
    """

    values: Floats
    vectors: Floats
    rest: Floats

    @cached_property
    def matrix(self) -> Floats:
        """W in the basis, m x k, with W'M2 W = I."""
        return np.asarray(self.vectors / np.sqrt(self.values))

    @property
    def gaps(self) -> Floats:
        """(k,), ratio of each eigenvalue to the next; infinite if the next is not positive."""
        following = np.concatenate([self.values, self.rest, [0.0]])[1 : self.values.size + 1]
        return ratio(self.values, following, np.inf)


def second_moment(core: CoreMoments, alpha0: float) -> Floats:
    """M2 in the basis (Eq. 4), m x m."""
    return (alpha0 + 1) * core.pairs - alpha0 * np.outer(core.mean, core.mean)


def whiten(core: CoreMoments, alpha0: float, n_topics: int) -> Whitening:
    """The ``n_topics`` largest algebraic eigenpairs of M2, or as many as exceed the floor (E2 is indefinite)."""
    values, vectors = np.linalg.eigh(second_moment(core, alpha0))
    values, vectors = values[::-1], vectors[:, ::-1]
    floor = EIGENVALUE_FLOOR * np.abs(values).max(initial=0.0)
    kept = min(n_topics, int(np.count_nonzero(values > floor)))
    return Whitening(values[:kept], vectors[:, :kept], values[kept:])


def whitened_tensor(core: CoreMoments, whitening: Whitening, alpha0: float) -> Floats:
    """M3(W, W, W) of Eqs. 6 and 16, k x k x k, symmetric."""
    w = whitening.matrix
    mean, pairs = w.T @ core.mean, w.T @ core.pairs @ w
    tensor = (alpha0 + 1) * (alpha0 + 2) / 2 * in_basis(core.third, w)
    tensor -= alpha0 * (alpha0 + 1) / 2 * vector_product(pairs, mean)
    tensor += alpha0**2 * cube(mean)
    return symmetrised(tensor)


def whitened_product(moments: BasisMoments, core: CoreMoments, whitening: Whitening, alpha0: float) -> Floats:
    """M2 W, N x k. Includes one more multiplication by E2 than Q W."""
    w = whitening.matrix
    product: Floats = (alpha0 + 1) * (moments.pair_projection @ w)
    product -= alpha0 * np.outer(moments.word_mean, core.mean @ w)
    return product


def ritz_residuals(product: Floats, basis: Floats, whitening: Whitening) -> Floats:
    """||M2 v - sigma v|| / sigma of each eigenpair, (k,), from M2 W: the error due to the basis."""
    roots = np.sqrt(whitening.values)
    squares = np.zeros(roots.size)
    for rows in panels(basis.shape[0]):
        # M2 v = sqrt(sigma) M2 W and v = Q u, both divided by sigma.
        residual = product[rows] / roots - basis[rows] @ whitening.vectors
        squares += np.einsum("ij,ij->j", residual, residual)
    return np.asarray(np.sqrt(squares))


class NoTopicsError(ValueError):
    """The moments contain no topic; the message has the reason."""


@dataclass(frozen=True)
class TensorTopics:
    """Result of STOD.

    ``recovered`` has at most K topics, by descending probability; ``alpha0`` is the sum of the prior. ``whitening`` has
    the eigenpairs of M2, ``residuals`` the relative error of each due to the basis. ``components`` are those of the
    whitened tensor.
    """

    recovered: Recovered
    alpha0: float
    whitening: Whitening
    residuals: Floats
    components: Components

    @property
    def alpha(self) -> Floats:
        """(k,), the prior: topic probabilities times alpha0."""
        return dirichlet_prior(self.recovered.probability, self.alpha0)


def tensor_topics(
    moments: BasisMoments, word_probability: Floats, settings: StodSettings, alpha0: float
) -> TensorTopics:
    """Whiten, decompose and recover (Algorithm 2 after its scans).

    The basis has at least K columns; ``word_probability`` (N,) are the word frequencies of the corpus;
    ``settings.alpha0`` is ignored. Raises ``NoTopicsError`` if M2 has no eigenvalue above the floor, or no component is
    a topic.
    """
    core = core_moments(moments)
    whitening = whiten(core, alpha0, settings.n_topics)
    if not whitening.values.size:
        raise NoTopicsError(f"the second moment has no positive eigenvalue at alpha0 = {alpha0:g}")
    tensor = whitened_tensor(core, whitening, alpha0)
    components = decompose(
        tensor, restarts=settings.restarts, iterations=settings.iterations, seed=settings.seed
    )
    product = whitened_product(moments, core, whitening, alpha0)
    residuals = ritz_residuals(product, moments.basis, whitening)
    recovered = recover(product, components, moments.word_mean, word_probability, settings.threshold)
    if not recovered.eigenvalues.size:
        raise NoTopicsError(f"no component is a topic at alpha0 = {alpha0:g}")
    return TensorTopics(recovered, alpha0, whitening, residuals, components)
