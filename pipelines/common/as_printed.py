"""STOD and TOD as printed: Algorithms 1 and 2 without noise removal, mixing, or convergence checks.

Wang, Liu, Song, Han (ECML-PKDD 2014). Every document has weight 1 / D (Eq. 7, with its missing division); the power
method makes 30 restarts of 30 iterations; line 1.13 is read as in the proof of Theorem 1, phi = lambda* (W')^+ v*.
STOD decomposes E2 restricted to its own K eigenvectors, without the wider basis of `scan`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, eigsh

from pipelines.common.tod import DocumentMoments
from streaming_jsmf.inference.stod import core_moments, whiten, whitened_tensor
from streaming_jsmf.inference.stod_recovery import best_multiple, noise_of
from streaming_jsmf.linalg.tensor import basis_moments, tensor_sums

Floats = NDArray[np.float64]

#: N = n of the paper, section 6, and those that it says suffice in most cases.
RESTARTS, FEWER_RESTARTS = 30, 10


@dataclass(frozen=True)
class Printed:
    """``phi`` (N x k), neither non-negative nor scaled to sum to 1, and CPU seconds by part.

    ``spectral``: the basis; ``tensor``: the tensor in that basis; ``power``: the power method and the topics.
    """

    phi: Floats
    spectral: float
    tensor: float
    power: float

    @property
    def seconds(self) -> float:
        return self.spectral + self.tensor + self.power


def stod_as_printed(moments: DocumentMoments, n_topics: int, seed: int, restarts: int = RESTARTS) -> Printed:
    """Algorithm 2 with ``restarts`` restarts and iterations; ``moments`` have uniform weights."""
    started = time.process_time()
    n = len(moments.word_mean)
    product = LinearOperator((n, n), matvec=lambda v: moments.pairs(v.reshape(-1, 1))[:, 0], dtype=np.float64)
    _, basis = eigsh(product, n_topics, which="LA", v0=np.sqrt(moments.word_mean))
    return _of_basis(moments, basis, n_topics, seed, started, restarts)


def tod_as_printed(moments: DocumentMoments, n_topics: int, seed: int) -> Printed:
    """Algorithm 1 with its tensor formed at once, which gives the topics of its passes."""
    started = time.process_time()
    _, basis = moments.whiten(n_topics)
    return _of_basis(moments, basis, n_topics, seed, started)


def cut(phi: Floats) -> Floats:
    """phi with negative entries set to 0, columns scaled to sum to 1."""
    positive = np.maximum(phi, 0.0)
    return np.asarray(positive / np.maximum(positive.sum(axis=0), 1e-300))


def less_noise(phi: Floats, word_mean: Floats) -> Floats:
    """phi with the noise of `infer` subtracted, negative entries set to 0, columns scaled to sum to 1."""
    deviation, noise = np.sqrt(np.maximum(word_mean, 0.0)), noise_of(phi, word_mean)
    return cut(phi - best_multiple(phi, deviation, noise) * deviation[:, None] * noise)


def power_method(tensor: Floats, seed: int, restarts: int = RESTARTS) -> tuple[Floats, Floats]:
    """Lines 1.6 to 1.16: lambda* (k,) and v* (k x k) of each component, deflated one after the other."""
    random = np.random.default_rng(seed)
    k, rest = len(tensor), tensor.copy()
    values, vectors = np.zeros(k), np.zeros((k, k))
    for t in range(k):
        v = _unit(random.standard_normal((restarts, k)))
        for _ in range(restarts):
            v = _unit(_applied(rest, v))
        strengths = np.einsum("ri,ri->r", _applied(rest, v), v)
        best = int(strengths.argmax())
        values[t], vectors[:, t] = strengths[best], v[best]
        rest -= values[t] * np.einsum("i,j,l->ijl", v[best], v[best], v[best])
    return values, vectors


def _of_basis(
    moments: DocumentMoments,
    basis: Floats,
    n_topics: int,
    seed: int,
    started: float,
    restarts: int = RESTARTS,
) -> Printed:
    """Lines 2.3 to 2.8 in an orthonormal basis (N x k)."""
    based = time.process_time()
    sums = tensor_sums([moments.documents], basis, moments.weights)
    core = core_moments(basis_moments(sums, basis, np.float64))
    whitening = whiten(core, moments.alpha0, n_topics)
    tensor = whitened_tensor(core, whitening, moments.alpha0)
    formed = time.process_time()
    values, vectors = power_method(tensor, seed, restarts)
    phi = basis @ (whitening.vectors * np.sqrt(whitening.values)) @ (vectors * values)
    return Printed(phi, based - started, formed - based, time.process_time() - formed)


def _applied(tensor: Floats, rows: Floats) -> Floats:
    """T(I, v, v) for each row v."""
    k = len(tensor)
    first = (rows @ tensor.reshape(k, k * k)).reshape(len(rows), k, k)
    return np.asarray(np.einsum("rij,ri->rj", first, rows))


def _unit(rows: Floats) -> Floats:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0, lengths, 1.0))
