"""TOD, the tensor decomposition to which the STOD paper compares STOD: its Algorithm 1 as described in section 5.1.

The second moment is whitened with all words, and no tensor is formed: each power iteration reads all documents. Here
the documents are in memory, and one pass serves all restarts of a topic, which favours TOD compared with the paper.
Equations are those of Wang, Liu, Song, Han (ECML-PKDD 2014) with the corrections listed in docs/math.md.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, eigsh

from streaming_jsmf import StodSettings
from streaming_jsmf.inference.stod import Whitening, core_moments, whitened_tensor
from streaming_jsmf.inference.stod_recovery import Components, Recovered, decompose, recover
from streaming_jsmf.linalg.tensor import (
    FEWEST_TOKENS,
    basis_moments,
    tensor_sums,
    tensor_weights,
)

Floats = NDArray[np.float64]

#: The best restart is iterated until it moves less than this; maximum number of steps.
TOLERANCE, MOST_STEPS = 1e-8, 500


class DocumentMoments:
    """Products with M2 and M3 of ``counts`` (documents x words, CSR); each is one pass over the documents.

    ``alpha0`` is the sum of the prior; ``weights`` as ``ScanSettings.document_weights``.
    """

    def __init__(self, counts: sparse.csr_array, alpha0: float, weights: str = "capped") -> None:
        lengths = np.asarray(counts.sum(axis=1), dtype=np.float64)
        counted = tensor_weights(lengths, weights)  # type: ignore[arg-type]
        n, w = np.maximum(lengths, FEWEST_TOKENS), counted / counted.sum()
        shares = sparse.diags_array(1.0 / np.maximum(lengths, 1.0)) @ counts.astype(np.float64)
        self.documents, self.weights = (shares.tocsr(), lengths), weights
        self.alpha0, self._x, self._n = alpha0, self.documents[0], n[:, None]
        pair = w * n / (n - 1)
        triple = pair * n / (n - 2)
        self._pair, self._triple = pair[:, None], triple[:, None]
        self.word_mean: Floats = self._x.T @ w
        #: Corrections for tokens that are used twice or three times in a document.
        self._twice = (self._x.T @ (pair / n))[:, None]
        self._thrice = (self._x.T @ (2 * triple / n**2))[:, None]
        self.word_probability: Floats = np.asarray(counts.sum(axis=0) / counts.sum(), dtype=np.float64)

    def pairs(self, directions: Floats) -> Floats:
        """E2 d for each column d (Eq. 7)."""
        found: Floats = self._x.T @ (self._pair * (self._x @ directions)) - self._twice * directions
        return found

    def second(self, directions: Floats) -> Floats:
        """M2 d for each column d (Eq. 4)."""
        a0, mean = self.alpha0, self.word_mean
        return (a0 + 1) * self.pairs(directions) - a0 * np.outer(mean, mean @ directions)

    def third(self, directions: Floats) -> Floats:
        """M3(I, d, d) for each column d (Eqs. 6 and 8)."""
        x, d, n, a0 = self._x, directions, self._n, self.alpha0
        p = x @ d
        triples = x.T @ (self._triple * (p * p - (x @ (d * d)) / n))
        triples -= 2 * d * (x.T @ (self._triple * p / n)) - self._thrice * d * d
        two = x.T @ (self._pair * p) - self._twice * d
        one, m = self.word_mean[:, None], self.word_mean @ d
        third = (a0 + 1) * (a0 + 2) / 2 * triples + a0**2 * m * m * one
        third -= a0 * (a0 + 1) / 2 * (2 * m * two + np.einsum("ij,ij->j", d, two) * one)
        return np.asarray(third)

    def whiten(self, n_topics: int) -> tuple[Floats, Floats]:
        """The algebraically largest eigenpairs of M2 in descending order (converged Lanczos)."""
        n = len(self.word_mean)
        operator = LinearOperator(
            (n, n), matvec=lambda v: self.second(v.reshape(-1, 1))[:, 0], dtype=np.float64
        )
        values, vectors = eigsh(operator, n_topics, which="LA", v0=np.sqrt(self.word_mean))
        kept = values[::-1] > 0
        return values[::-1][kept], vectors[:, ::-1][:, kept]


@dataclass(frozen=True)
class TodTopics:
    """Topics of TOD from the last step of STOD, and the components of M3(W, W, W).

    ``spectral`` and ``power`` are CPU seconds of whitening and power iterations; ``passes`` is the number of
    iterations.
    """

    recovered: Recovered
    components: Components
    spectral: float
    power: float
    passes: int


def tod(moments: DocumentMoments, settings: StodSettings, *, by_passes: bool = True) -> TodTopics:
    """Algorithm 1.

    With ``by_passes=False`` the small tensor is formed once, with STOD's sums in TOD's whitening. Its components are
    the same; ``power`` and ``passes`` are then not meaningful.
    """
    started = time.process_time()
    values, vectors = moments.whiten(settings.n_topics)
    whitened = time.process_time()
    if by_passes:
        components, passes = power_iterations(moments, vectors / np.sqrt(values), settings)
    else:
        tensor = _tensor(moments, Whitening(values, np.eye(len(values)), np.empty(0)), vectors)
        options = {"restarts": settings.restarts, "iterations": settings.iterations, "seed": settings.seed}
        components, passes = decompose(tensor, **options), 0
    done = time.process_time()
    mean, shares = moments.word_mean, moments.word_probability
    recovered = recover(vectors * np.sqrt(values), components, mean, shares, settings.threshold)
    return TodTopics(recovered, components, whitened - started, done - whitened, passes)


def power_iterations(
    moments: DocumentMoments, whitening: Floats, settings: StodSettings
) -> tuple[Components, int]:
    """Lines 1.6 to 1.16 with T(I, v, v) = W' M3(I, W v, W v) minus the components found so far; number of passes."""
    random = np.random.Generator(np.random.Philox(key=settings.seed))
    k, passes = whitening.shape[1], 0
    values, found, largest = np.zeros(k), np.zeros((k, k)), 0.0

    def step(v: Floats) -> Floats:
        nonlocal passes
        passes += 1
        return whitening.T @ moments.third(whitening @ v) - found @ (values[:, None] * (found.T @ v) ** 2)

    for t in range(k):
        v = _unit(random.standard_normal((settings.restarts, k)).T)
        for _ in range(settings.iterations):
            v = _unit(step(v))
        best = v[:, [int(np.einsum("ir,ir->r", step(v), v).argmax())]]
        for _ in range(MOST_STEPS):
            following = _unit(step(best))
            moved, best = float(np.linalg.norm(following - best)), following
            if moved < TOLERANCE:
                break
        values[t], found[:, t] = (step(best).T @ best).item(), best[:, 0]
        largest = max(largest, moved)
    return Components(values, found, largest), passes


def seconds_a_pass(moments: DocumentMoments, whitening: Floats, restarts: int, repeats: int = 3) -> float:
    """CPU seconds of one power iteration of all restarts, minimum of ``repeats``."""
    v = _unit(np.random.default_rng(0).standard_normal((whitening.shape[1], restarts)))
    found = []
    for _ in range(repeats):
        started = time.process_time()
        whitening.T @ moments.third(whitening @ v)
        found.append(time.process_time() - started)
    return min(found)


def _tensor(moments: DocumentMoments, whitening: Whitening, vectors: Floats) -> Floats:
    """M3(W, W, W) explicitly, from one pass."""
    sums = tensor_sums([moments.documents], vectors, moments.weights)
    core = core_moments(basis_moments(sums, vectors, np.float64))
    return whitened_tensor(core, whitening, moments.alpha0)


def _unit(columns: Floats) -> Floats:
    lengths = np.linalg.norm(columns, axis=0)
    return np.asarray(columns / np.where(lengths > 0, lengths, 1.0))
