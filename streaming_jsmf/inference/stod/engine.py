"""STOD: from moments in a basis to topics and their Dirichlet prior, for one K and alpha0. No data."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from streaming_jsmf.config import StodSettings
from streaming_jsmf.inference.prior import HIGHEST_SUM, LOWEST_SUM, dirichlet_prior
from streaming_jsmf.inference.stod.power import Components, decompose, refine
from streaming_jsmf.inference.stod.recovery import Recovered, recover, shares_of
from streaming_jsmf.inference.stod.whitening import (
    CoreMoments,
    Whitening,
    core_moments,
    ritz_residuals,
    whiten,
    whitened_product,
    whitened_tensor,
)
from streaming_jsmf.linalg.document_tensor import BasisMoments

#: alpha0 is looked for to this factor; with so many restarts and such vectors, of which the shares are right to 1e-8.
#: The topics come from all restarts.
ALPHA0_TOLERANCE = 1e-3
SEARCH_RESTARTS, SEARCH_POLISH = 10, 1e-4

#: How far the search goes at once, in the logarithm, until it has alpha0 between two points.
ALPHA0_STEP = math.log(4.0)

#: Most evaluations of the search.
MOST_EVALUATIONS = 30

OnStep = Callable[[int, float, float], None]

#: Sweeps of the refinement.
REFINE_SWEEPS = 200


class NoTopicsError(ValueError):
    """The moments hold no topic at all; the message says why."""


@dataclass(frozen=True)
class TensorTopics:
    """What STOD finds.

    Attributes
    ----------
    recovered
        The topics, by falling probability; their number is K or less.
    alpha0
        Sum of the prior that was used.
    whitening, residuals
        Eigenpairs of M2, and how far the basis is from holding each, relative to its eigenvalue.
    components
        Of the whitened tensor, all of them.
    """

    recovered: Recovered
    alpha0: float
    whitening: Whitening
    residuals: NDArray[np.float64]
    components: Components

    @property
    def alpha(self) -> NDArray[np.float64]:
        """(k,) the prior: the topics' probabilities times alpha0."""
        return dirichlet_prior(self.recovered.probability, self.alpha0)


def tensor_topics(
    moments: BasisMoments,
    basis: NDArray[np.float64],
    word_probability: NDArray[np.float64],
    settings: StodSettings,
    alpha0: float,
) -> TensorTopics:
    """Whiten, decompose, recover (Algorithm 2 after its scans).

    Parameters
    ----------
    moments
        In the basis.
    basis
        Q, N x m, m at least K.
    word_probability
        (N,) share of each word in the tokens of the corpus.
    settings
        Their ``alpha0`` plays no part here.
    alpha0
        Sum of the prior.

    Raises
    ------
    NoTopicsError
        If M2 has no eigenvalue above the floor, or no component is a topic.
    """
    core = core_moments(moments, basis)
    whitening = whiten(core, alpha0, settings.n_topics)
    if not whitening.values.size:
        raise NoTopicsError(f"the second moment has no positive eigenvalue at alpha0 = {alpha0:g}")
    components = _components(core, whitening, alpha0, settings)
    product = whitened_product(moments, core, whitening, alpha0)
    residuals = ritz_residuals(product, basis, whitening)
    recovered = recover(product, components, moments.word_mean, word_probability, settings.threshold)
    if not recovered.eigenvalues.size:
        raise NoTopicsError(f"no component is a topic at alpha0 = {alpha0:g}")
    return TensorTopics(recovered, alpha0, whitening, residuals, components)


def _components(core: CoreMoments, whitening: Whitening, alpha0: float, settings: StodSettings) -> Components:
    tensor = whitened_tensor(core, whitening, alpha0)
    found = decompose(tensor, restarts=settings.restarts, iterations=settings.iterations, seed=settings.seed)
    return refine(tensor, found, REFINE_SWEEPS) if settings.refine == "als" else found


def find_alpha0(core: CoreMoments, settings: StodSettings, on_step: OnStep | None = None) -> float:
    """The alpha0 at which the shares of all components sum to 1; the sum falls as alpha0 grows.

    Exact where K is the number of topics that the corpus was made of, and wrong elsewhere: components of noise enter
    the sum, which sends alpha0 far too high. Its logarithm is bracketed outwards from 1 and then found by Brent's
    method: far from the right one components do not settle, and their sum says nothing. ``LOWEST_SUM`` or
    ``HIGHEST_SUM`` where it lies beyond them.

    Parameters
    ----------
    on_step
        Called after each step of the search, with its number, alpha0, and the sum of the shares.
    """

    @cache
    def excess(logarithm: float) -> float:
        total = _share_sum(core, math.exp(logarithm), settings)
        if on_step is not None:
            on_step(excess.cache_info().misses, math.exp(logarithm), total)
        return total - 1.0

    up = excess(0.0) > 0
    end = math.log(HIGHEST_SUM if up else LOWEST_SUM)
    near = far = 0.0
    while (excess(far) > 0) == up:
        if far == end:
            return HIGHEST_SUM if up else LOWEST_SUM
        near, far = far, min(far + ALPHA0_STEP, end) if up else max(far - ALPHA0_STEP, end)
    found: float = brentq(
        excess, near, far, xtol=math.log1p(ALPHA0_TOLERANCE), maxiter=MOST_EVALUATIONS, disp=False
    )
    return math.exp(found)


def _share_sum(core: CoreMoments, alpha0: float, settings: StodSettings) -> float:
    whitening = whiten(core, alpha0, settings.n_topics)
    found = decompose(
        whitened_tensor(core, whitening, alpha0),
        restarts=min(settings.restarts, SEARCH_RESTARTS),
        iterations=settings.iterations,
        seed=settings.seed,
        tolerance=SEARCH_POLISH,
    )
    return float(shares_of(found.values).sum())
