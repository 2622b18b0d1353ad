"""LogRelativeVolume: volumes against Cayley and Menger, random hulls against the paper's, errors against repetition."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_jsmf.evaluation import volume
from streaming_jsmf.evaluation.inputs import Estimate
from streaming_jsmf.evaluation.volume import anchor_points, log_relative_volume, log_volume
from tests import reference_metrics
from tests.metric_models import make_case


@given(st.integers(0, 10**6), st.integers(2, 6))
def test_volumes_equal_cayley_menger(seed, K):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(K, 8))
    found = log_volume(points)
    assert found == pytest.approx(reference_metrics.log_volume(points), abs=1e-6)
    assert log_volume(points[rng.permutation(K)]) == pytest.approx(found, abs=1e-9)
    rotation = np.linalg.qr(rng.normal(size=(8, 8)))[0]
    assert log_volume(points @ rotation + 3.0) == pytest.approx(found, abs=1e-9)


def test_flat_hulls_have_no_volume():
    assert log_volume(np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]])) is None
    assert log_volume(np.ones((2, 3))) is None
    assert log_volume(np.arange(4.0)[:, None]) is None
    assert log_volume(np.ones((1, 3))) == 0.0
    assert log_relative_volume(np.vstack([np.eye(3), np.eye(3)[:1]]), 3) is None
    assert log_relative_volume(np.eye(4), 3) is None, "more topics than words"
    assert log_relative_volume(np.array([[0.2, 0.8]]), 2) == Estimate(0.0, 0.0), "one topic is a point"
    # Long and short edges, but at right angles.
    assert log_volume(np.array([[0.0, 0.0], [1e-9, 0.0], [0.0, 1.0]])) == pytest.approx(np.log(0.5e-9))


def test_the_standard_error_is_that_of_a_hundred_repetitions():
    points = np.eye(5, 30) + 0.1
    found = [log_relative_volume(points, 30, seed=seed) for seed in range(100)]
    spread = np.std([estimate.value for estimate in found], ddof=1)
    stated = np.sqrt(np.mean([estimate.standard_error**2 for estimate in found]))
    assert spread > 0
    # Both are known to about 7 %.
    assert 0.75 < stated / spread < 1.33
    exact = log_volume(points) - np.log(
        reference_metrics.random_hull_volumes(30, 5, 2000, np.random.default_rng(1)).mean()
    )
    assert np.mean([estimate.value for estimate in found]) == pytest.approx(exact, abs=0.05)


def test_rows_without_a_choice_have_the_squared_volume_of_theory(monkeypatch):
    """As many rows as vertices: the mean of the squared volume has a closed form."""
    monkeypatch.setattr(volume, "_pivots", lambda _, count: np.arange(count))
    logs = np.array([volume._random_log_volume(40, 4, 0, hull) for hull in range(3000)])
    ratio = np.exp(2 * logs) / reference_metrics.mean_squared_volume(40, 4)
    assert abs(ratio.mean() - 1) < 4 * ratio.std() / np.sqrt(len(ratio))


def test_random_rows_sum_to_one_in_blocks_of_any_width(monkeypatch):
    for columns in (volume.COLUMNS, 3):
        monkeypatch.setattr(volume, "COLUMNS", columns)
        inner = volume._random_gram(10, 6, 0, 0)
        assert (np.linalg.eigvalsh(inner) > -1e-9).all()
        assert (np.diag(inner) >= 1 / 10 - 1e-6).all()
        assert (np.diag(inner) <= 1).all()


def test_seeds_and_hulls():
    points = np.eye(3, 12)
    first = log_relative_volume(points, 12, seed=1)
    assert first == log_relative_volume(points, 12, seed=1)
    assert first != log_relative_volume(points, 12, seed=2)
    with pytest.raises(ValueError, match="at least 2"):
        log_relative_volume(points, 12, hulls=1)


def test_points_keep_the_distances_of_normalised_rows():
    case = make_case(3)
    topics, C = case.topics, case.topics.rectified @ case.topics.rectified.T
    rows = (C / C.sum(axis=1, keepdims=True))[topics.anchors]
    assert log_volume(anchor_points(topics)) == pytest.approx(log_volume(rows), abs=1e-6)
    raw = replace(topics, rectified=None)
    exact = case.counts.anchor_rows
    np.testing.assert_allclose(anchor_points(raw, exact), exact / exact.sum(axis=1, keepdims=True))
    assert anchor_points(raw) is None
    assert anchor_points(raw, np.zeros((4, 30))) is None
    assert anchor_points(replace(topics, rectified=np.zeros((30, 4)))) is None
