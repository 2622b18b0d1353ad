"""STOD with alpha0 from the shares of its components, and with components that need not be orthogonal."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from streaming_jsmf.config import StodSettings
from streaming_jsmf.inference.correlations import HIGHEST_SUM, LOWEST_SUM
from streaming_jsmf.inference.stod import CoreMoments, core_moments, whiten, whitened_product, whitened_tensor
from streaming_jsmf.inference.stod_recovery import (
    POLISH_TOLERANCE,
    Components,
    Recovered,
    decompose,
    recover,
    shares_of,
)
from streaming_jsmf.moments.store import Moments

Floats = NDArray[np.float64]

#: Relative accuracy, restarts and vector tolerance of the search for alpha0; shares are then accurate to 1e-8.
ALPHA0_TOLERANCE = 1e-3
SEARCH_RESTARTS, SEARCH_POLISH = 10, 1e-4
#: Step in log(alpha0) while the search brackets the solution.
ALPHA0_STEP = math.log(4.0)
#: Maximum number of evaluations of the search.
MAX_EVALUATIONS = 30

OnStep = Callable[[int, float, float], None]

#: Maximum number of sweeps of the refinement.
REFINE_SWEEPS = 200


def share_alpha0(core: CoreMoments, settings: StodSettings, on_step: OnStep | None = None) -> float:
    """Find the alpha0 at which the shares of all components sum to 1; the sum decreases as alpha0 grows.

    The result is reliable only if K is the number of topics of the corpus; otherwise noise components enter the sum and
    alpha0 is far too high. log(alpha0) is bracketed from 0 outwards (far from the solution components do not converge),
    then found by Brent's method, within ``LOWEST_SUM`` and ``HIGHEST_SUM``. ``on_step`` receives the step number,
    alpha0 and the sum of the shares.
    """

    @cache
    def excess(logarithm: float) -> float:
        alpha0 = math.exp(logarithm)
        total = _share_sum(core, alpha0, settings)
        if on_step is not None:
            on_step(excess.cache_info().misses, alpha0, total)
        return total - 1.0

    up = excess(0.0) > 0
    end = math.log(HIGHEST_SUM if up else LOWEST_SUM)
    near = far = 0.0
    while (excess(far) > 0) == up:
        if far == end:
            return HIGHEST_SUM if up else LOWEST_SUM
        near, far = far, min(far + ALPHA0_STEP, end) if up else max(far - ALPHA0_STEP, end)
    found: float = brentq(
        excess, near, far, xtol=math.log1p(ALPHA0_TOLERANCE), maxiter=MAX_EVALUATIONS, disp=False
    )
    return math.exp(found)


def _share_sum(core: CoreMoments, alpha0: float, settings: StodSettings) -> float:
    tensor = whitened_tensor(core, whiten(core, alpha0, settings.n_topics), alpha0)
    components = decompose(
        tensor,
        restarts=min(settings.restarts, SEARCH_RESTARTS),
        iterations=settings.iterations,
        seed=settings.seed,
        tolerance=SEARCH_POLISH,
    )
    return float(shares_of(components.values).sum())


def refine(tensor: Floats, components: Components, sweeps: int) -> Components:
    """Fit T by components that need not be orthogonal: alternating least squares from those of ``decompose``.

    Each sweep solves for one factor with the other two fixed and uses it for all three, until the vectors converge or
    ``sweeps`` is reached. This improves the fit of the tensor, but not necessarily the topics.
    """
    k = tensor.shape[0]
    flat = tensor.reshape(k, k * k)
    values, vectors = components.values.copy(), components.vectors.copy()
    moved = 0.0
    for _ in range(sweeps):
        products = (vectors[:, None, :] * vectors[None, :, :]).reshape(k * k, -1)
        gram = (vectors.T @ vectors) ** 2
        # A repeated component makes this singular.
        solved = flat @ products @ np.linalg.pinv(gram, hermitian=True)
        values = np.linalg.norm(solved, axis=0)
        following = solved / np.where(values > 0, values, 1.0)
        moved = float(np.linalg.norm(following - vectors, axis=0).max(initial=0.0))
        vectors = following
        if moved < POLISH_TOLERANCE:
            break
    return Components(values, vectors, moved)


def refined_topics(moments: Moments, settings: StodSettings, alpha0: float) -> Recovered:
    """The topics of the tensor engine from the components of ``refine``."""
    tensor = moments.tensor_moments()
    core = core_moments(tensor)
    whitening = whiten(core, alpha0, settings.n_topics)
    whitened = whitened_tensor(core, whitening, alpha0)
    rough = decompose(
        whitened, restarts=settings.restarts, iterations=settings.iterations, seed=settings.seed
    )
    components = refine(whitened, rough, REFINE_SWEEPS)
    product = whitened_product(tensor, core, whitening, alpha0)
    word_probability = np.asarray(moments.term_count / moments.term_count.sum(), dtype=np.float64)
    return recover(product, components, tensor.word_mean, word_probability, settings.threshold)
