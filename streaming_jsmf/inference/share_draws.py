"""Draws of the topic shares of documents from Dirichlet distributions, with random numbers that depend on the document.

The approximate posterior of the shares of a document by CVB0 is a Dirichlet distribution with the parameters n_k +
alpha_k: its expected tokens of each topic and the prior. Gamma variables are drawn by the method of Marsaglia and Tsang
(2000), with the logarithm of a power for shapes below 1. The random numbers of a draw are a function of the seed, the
number of the document and that of the draw.
"""

from __future__ import annotations

import math

import numpy as np

from streaming_jsmf.inference.draws import INCREMENT, mixed
from streaming_jsmf.linalg.compiled import compiled
from streaming_jsmf.linalg.typing import Floats

_internal = compiled(nogil=True, internal=True)
_SHIFT, _UNIT = np.uint64(11), 2.0**-53


@_internal
def _uniform(state: np.uint64) -> float:
    """The random number of a state of the generator, in (0, 1)."""
    return (np.float64(np.int64(mixed(state) >> _SHIFT)) + 0.5) * _UNIT


@_internal
def _log_gamma_draw(shape: float, state: np.uint64) -> tuple[float, np.uint64]:
    """The logarithm of a gamma variable, and the next state."""
    power, boosted = 0.0, shape
    if shape < 1.0:
        state += INCREMENT
        power, boosted = math.log(_uniform(state)) / shape, shape + 1.0
    base = boosted - 1.0 / 3.0
    scale = 1.0 / math.sqrt(9.0 * base)
    while True:
        state += INCREMENT
        radius = math.sqrt(-2.0 * math.log(_uniform(state)))
        state += INCREMENT
        normal = radius * math.cos(2.0 * math.pi * _uniform(state))
        cube = 1.0 + scale * normal
        state += INCREMENT
        if cube > 0.0:
            log_cube = 3.0 * math.log(cube)
            if math.log(_uniform(state)) < 0.5 * normal * normal + base * (1.0 - cube**3 + log_cube):
                return math.log(base) + log_cube + power, state


@compiled(nogil=True)
def draw_shares(
    parameters: Floats, seed: np.uint64, first: np.uint64, draw: np.uint64, shares: Floats
) -> None:
    """Set ``shares`` (M, K) to a draw from Dirichlet distributions with ``parameters`` (M, K), 0 for absent topics.

    ``first`` is the number of the first document; documents do not depend on each other.
    """
    for row in range(len(parameters)):
        state = mixed(mixed(mixed(seed + INCREMENT) + first + np.uint64(row)) + draw * INCREMENT)
        largest = -np.inf
        for k in range(parameters.shape[1]):
            shares[row, k] = -np.inf
            if parameters[row, k] > 0.0:
                shares[row, k], state = _log_gamma_draw(parameters[row, k], state)
            largest = max(largest, shares[row, k])
        total = 0.0
        for k in range(parameters.shape[1]):
            shares[row, k] = math.exp(shares[row, k] - largest)
            total += shares[row, k]
        for k in range(parameters.shape[1]):
            shares[row, k] /= total
