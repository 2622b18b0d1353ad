"""Alternating projections and Dykstra's variant against the dense oracle; the three projections by themselves."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from streaming_jsmf.evaluation.matching import yy_error
from streaming_jsmf.rectification import alternating
from streaming_jsmf.rectification.alternating import (
    alternating_projection,
    dykstra_projection,
)
from tests import reference
from tests.spectra import SPECTRA, K, pairs_of

Floats = NDArray[np.float64]


@pytest.fixture(scope="module", params=SPECTRA)
def cooccurrence(request: pytest.FixtureRequest) -> Floats:
    return SPECTRA[request.param]()


@pytest.fixture(autouse=True)
def _several_panels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alternating, "PANEL_ROWS", 13)


def test_the_result_is_that_of_the_oracle(cooccurrence: Floats) -> None:
    before = cooccurrence.copy()
    expected = reference.alternating_projection(cooccurrence, K, 40)
    changes: list[float] = []
    result = alternating_projection(
        cooccurrence,
        pairs_of(cooccurrence),
        K,
        max_iterations=40,
        tolerance=0,
        on_iteration=lambda _, change: changes.append(change),
    )
    assert result.matrix is not None
    np.testing.assert_array_equal(cooccurrence, before)
    scale = expected.matrix.max()
    np.testing.assert_allclose(result.matrix, expected.matrix, atol=1e-6 * scale)
    assert yy_error(result.rectified, expected.factor) < 1e-6
    assert result.matrix.min() >= 0
    # The oracle's lengths are absolute.
    expected_change = expected.distances[0] / np.linalg.norm(before)
    np.testing.assert_allclose(changes[0], expected_change, rtol=1e-6, atol=1e-14)


def test_steps_shrink(cooccurrence: Floats) -> None:
    changes: list[float] = []
    alternating_projection(
        cooccurrence,
        pairs_of(cooccurrence),
        K,
        max_iterations=30,
        tolerance=0,
        on_iteration=lambda _, change: changes.append(change),
    )
    tail = np.array(changes[1:])
    # What is exact already moves by rounding alone.
    assert np.all(np.diff(tail) <= np.maximum(0.02 * tail[:-1], 1e-9))
    assert tail[-1] <= max(0.2 * tail[0], 1e-9)


def test_it_stops_at_the_tolerance_and_says_so() -> None:
    c = SPECTRA["clean topics"]()
    result = alternating_projection(c, pairs_of(c), K, tolerance=1e-3)
    assert result.converged
    assert result.change < 1e-3
    assert result.iterations < 150
    assert not alternating_projection(c, pairs_of(c), K, tolerance=0, max_iterations=2).converged


@pytest.mark.parametrize("project", [alternating_projection, dykstra_projection])
def test_the_bits_do_not_depend_on_threads(project: type) -> None:
    c = SPECTRA["no gap"]()
    one, three = (project(c, pairs_of(c), K, max_iterations=4, threads=t) for t in (1, 3))
    np.testing.assert_array_equal(one.matrix, three.matrix)
    np.testing.assert_array_equal(one.rectified, three.rectified)
    assert one.change == three.change


def test_dykstra_is_that_of_the_oracle(cooccurrence: Floats) -> None:
    expected = reference.dykstra(cooccurrence, K, 15)
    result = dykstra_projection(cooccurrence, pairs_of(cooccurrence), K, max_iterations=15, tolerance=0)
    assert result.matrix is not None
    assert result.matrix.min() >= 0
    np.testing.assert_allclose(result.matrix, expected, atol=1e-7 * expected.max())
    assert yy_error(result.rectified, reference.positive_factor(expected, K)) < 1e-6


def test_words_that_never_occur_stay_finite() -> None:
    c = SPECTRA["clean topics"]().copy()
    c[5] = c[:, 5] = 0.0
    for project in (alternating_projection, dykstra_projection):
        result = project(c, pairs_of(c), K, max_iterations=10)
        assert np.isfinite(result.matrix).all()
        assert np.isfinite(result.rectified).all()


def test_too_few_eigenpairs_are_refused() -> None:
    c = SPECTRA["clean topics"]()
    with pytest.raises(ValueError, match="3 eigenpairs cannot start alternating projections for 4"):
        alternating_projection(c, pairs_of(c, 3), K)
    with pytest.raises(ValueError, match="Dykstra"):
        dykstra_projection(c, pairs_of(c, 3), K)
