"""The tensor engine on moments in memory: exact ones give the topics back, counted ones those of TOD."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from streaming_jsmf.config import StodSettings
from streaming_jsmf.inference.stod import (
    NoTopicsError,
    TensorTopics,
    core_moments,
    second_moment,
    tensor_topics,
    whiten,
    whitened_product,
    whitened_tensor,
)
from streaming_jsmf.inference.stod_recovery import (
    MIXING_STEPS,
    Components,
    Recovered,
    best_multiple,
    decompose,
    listing_scores,
    mix,
    noise_of,
    recover,
)
from streaming_jsmf.inference.words import prominent_words
from streaming_jsmf.linalg.tensor import BasisMoments
from tests import reference_stod
from tests.cases import first_cases
from tests.corpora import planted
from tests.exact_tensors import ALPHA, in_basis, law, tensor_of

Floats = NDArray[np.float64]

PLAIN = StodSettings(n_topics=4)


def topics_at(moments: BasisMoments, alpha0: float, settings: StodSettings = PLAIN) -> TensorTopics:
    """Topics of a corpus whose words have the shares that the moments say."""
    return tensor_topics(moments, moments.word_mean, settings, alpha0)


@pytest.fixture(scope="module")
def population() -> reference_stod.Moments:
    return reference_stod.population_moments(law(), ALPHA)


@pytest.fixture(scope="module")
def counted() -> reference_stod.Moments:
    counts = planted(250, 24, 4, length=14, seed=3).counts
    return reference_stod.counted_moments(counts, reference_stod.tensor_weights(counts, "capped"))


@pytest.mark.parametrize("width", [4, 9, 40])
def test_exact_moments_give_the_topics_and_the_prior_back(
    population: reference_stod.Moments, width: int
) -> None:
    # The span of the topics, as an eigenvector of C has it, and directions at right angles to it.
    basis = np.linalg.qr(np.hstack([law(), np.random.default_rng(0).standard_normal((40, 36))])).Q[:, :width]
    found = topics_at(in_basis(population, basis), ALPHA.sum())
    np.testing.assert_allclose(found.recovered.word_topic, law(), atol=1e-10)
    np.testing.assert_allclose(found.alpha, ALPHA, atol=1e-10)
    assert found.recovered.discarded == 0
    assert found.residuals.max() < 1e-10
    assert list(found.recovered.duplicate_of) == [-1] * 4


@pytest.mark.parametrize("alpha0", first_cases([10.0, 0.1, 1.5]))
def test_in_a_full_basis_stod_is_tod(counted: reference_stod.Moments, alpha0: float) -> None:
    turned = np.linalg.qr(np.random.default_rng(0).standard_normal((24, 24))).Q
    exact = reference_stod.tod(counted, 4, alpha0)
    shares = exact.alpha / exact.alpha.sum()
    topics, weights = reference_stod.mixed(
        reference_stod.less_noise(exact.word_topic, counted.first), counted.first, shares, MIXING_STEPS
    )
    order = np.argsort(-weights, kind="stable")
    assert (exact.word_topic < 0).any()
    for basis in (np.eye(24), turned):
        found = topics_at(in_basis(counted, basis), alpha0)
        np.testing.assert_allclose(found.recovered.eigenvalues, exact.eigenvalues[order], rtol=1e-6)
        np.testing.assert_allclose(found.recovered.probability, weights[order], atol=1e-6)
        np.testing.assert_allclose(found.recovered.word_topic, topics[:, order], atol=1e-6)
        np.testing.assert_allclose(found.alpha, alpha0 * weights[order], rtol=1e-4)


def test_whitening_whitens_and_takes_the_largest_algebraic(counted: reference_stod.Moments) -> None:
    basis = np.eye(24)
    moments = in_basis(counted, basis)
    core = core_moments(moments)
    exact = reference_stod.second_moment(counted, 1.5)
    np.testing.assert_allclose(second_moment(core, 1.5), exact, atol=1e-15)
    found = whiten(core, 1.5, 4)
    np.testing.assert_allclose(found.matrix.T @ exact @ found.matrix, np.eye(4), atol=1e-12)
    values = np.linalg.eigvalsh(exact)[::-1]
    assert values[-1] < 0, "there is a negative eigenvalue to be led astray by"
    np.testing.assert_allclose(found.values, values[:4], rtol=1e-10)
    np.testing.assert_allclose(found.gaps, values[:4] / values[1:5], rtol=1e-8)
    product = whitened_product(moments, core, found, 1.5)
    np.testing.assert_allclose(product, exact @ found.matrix, atol=1e-14)
    tensor = np.einsum("xyz,xi,yj,zk->ijk", reference_stod.third_moment(counted, 1.5), *[found.matrix] * 3)
    np.testing.assert_allclose(whitened_tensor(core, found, 1.5), tensor, atol=1e-10)
    assert np.isinf(whiten(core, 1.5, 24).gaps[-1]), "where the next eigenvalue is not positive"


@pytest.mark.parametrize("seed", range(3))
def test_the_restarts_find_all_components_whatever_the_seed(seed: int) -> None:
    vectors, values = (
        np.linalg.qr(np.random.default_rng(3).standard_normal((12, 12))).Q,
        np.linspace(2, 8, 12),
    )
    found = decompose(tensor_of(values, vectors), restarts=30, iterations=30, seed=seed)
    order = np.argsort(found.values)
    np.testing.assert_allclose(found.values[order], values, atol=1e-10)
    np.testing.assert_allclose(found.vectors[:, order], vectors, atol=1e-10)
    assert found.largest_step < 1e-12


def test_a_zero_tensor_has_zero_components() -> None:
    found = decompose(np.zeros((3, 3, 3)), restarts=2, iterations=2, seed=0)
    assert list(found.values) == [0, 0, 0]
    assert np.isfinite(found.vectors).all()


def test_the_moments_limit_the_number_of_topics(population: reference_stod.Moments) -> None:
    basis = np.eye(40)
    found = topics_at(in_basis(population, basis), ALPHA.sum(), replace(PLAIN, n_topics=7))
    assert found.whitening.values.size == 4
    np.testing.assert_allclose(found.recovered.word_topic, law(), atol=1e-9)
    nothing = in_basis(replace(population, second=-population.second), basis)
    with pytest.raises(NoTopicsError, match="no positive eigenvalue at alpha0 = 2"):
        topics_at(nothing, 2.0)


def components(*values: float) -> Components:
    return Components(np.array(values), np.eye(len(values)), 0.0)


def test_components_that_are_not_topics_are_discarded() -> None:
    product, even = np.random.default_rng(5).uniform(0.1, 1, size=(8, 3)), np.full(8, 1 / 8)
    found = recover(product, components(3.0, 0.9, 1.5), even, even, 2.0)
    assert found.discarded == 1
    assert sorted(found.eigenvalues) == [1.5, 3.0]
    assert found.probability[0] > found.probability[1], "larger topics first"
    product[:, 0] *= -1
    assert sorted(recover(product, components(3.0, 2.9, 1.5), even, even, 2.0).eigenvalues) == [1.5, 2.9]
    # The only topic there is has a share of one, up to noise, and is the corpus.
    only = recover(product[:, 1:2], components(0.98), even, even, 2.0)
    assert list(only.eigenvalues) == [0.98]
    np.testing.assert_allclose(only.word_topic[:, 0], even)


def test_topics_mix_to_the_corpus_and_leave_no_word_out() -> None:
    random = np.random.default_rng(7)
    topics = random.dirichlet(np.full(40, 0.2), size=3).T
    topics[[3, 8]] = 0.0
    topics[5, 1:] = 0.0
    topics /= topics.sum(axis=0)
    words, start = random.dirichlet(np.ones(40)), np.array([0.7, 0.2, 0.1])
    words[8] = 0.0
    words /= words.sum()
    expected, weights = reference_stod.mixed(topics, words, start, MIXING_STEPS)
    found = topics.copy()
    probability = mix(found, words, start)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-15)
    np.testing.assert_allclose(probability, weights, rtol=1e-10)
    np.testing.assert_allclose(found.sum(axis=0), 1.0)
    np.testing.assert_allclose(found @ probability, words, atol=1e-15)
    assert (found[5, 1:] == 0).all(), "of the words that a topic lacks it gets none that another has"
    assert (found[3] > 0).all(), "a word that no topic has is in all of them"
    assert (found[8] == 0).all()
    # Topics that mix to the corpus already are left as they are.
    again = found.copy()
    np.testing.assert_allclose(mix(again, words, probability), probability, atol=1e-14)
    np.testing.assert_allclose(again, found, atol=1e-14)


def test_words_without_a_component_are_counted() -> None:
    product = np.array([[0.5, 0.2, -0.001, 0.0], [0.1, 0.4, -0.002, 0.0]]).T
    mean, tokens = np.array([0.6, 0.3, 0.1, 0.0]), np.array([0.5, 0.3, 0.1, 0.1])
    found = recover(product, components(1.2, 1.3), mean, tokens, 2.0)
    assert found.mass_without_topic == pytest.approx(0.2)
    assert (found.word_topic > 0).all()
    # The last word is in no document that the moments count, and has its share of the tokens.
    np.testing.assert_allclose(found.word_topic @ found.probability, np.array([0.6, 0.3, 0.1, 0.1]) / 1.1)


def test_duplicate_topics_are_found() -> None:
    topics = np.random.default_rng(6).dirichlet(np.full(30, 0.2), size=4).T
    topics[:, 2] = 0.99 * topics[:, 0] + 0.01 * topics[:, 1]
    topics[:, 3] = topics[:, 0]
    found = Recovered(
        topics, np.full(4, 0.25), np.ones(4), np.ones(4), topics.astype(np.float32), 0.0, 0.0, 0
    )
    assert list(found.duplicate_of) == [-1, -1, 0, 0]


def test_words_are_listed_by_their_part_above_the_noise() -> None:
    mean = np.array([0.25, 0.25, 0.04, 0.0, 0.46])
    topics = np.array([[0.5, -0.1, -0.04, 0.0, 0.3], [0.1, 0.5, 0.04, 0.0, 0.3]]).T
    deviation, noise = np.sqrt(mean), noise_of(topics, mean)
    np.testing.assert_allclose(noise, [0.2, 0.0], err_msg="the second topic has no negative entry")
    for times, first, second in (
        (0.0, [0.5, -1, -1, -1, 0.3], [0.1, 0.5, 0.04, -1, 0.3]),
        (1.0, [0.4, -1, -1, -1, 0.3 - 0.2 * np.sqrt(0.46)], [0.1, 0.5, 0.04, -1, 0.3]),
        # Nothing is above but the first word; the last follows by its probability.
        (4.0, [0.1, -1, -1, -1, 0.3 / 0.8 - 1], [0.1, 0.5, 0.04, -1, 0.3]),
    ):
        scores = listing_scores(topics, deviation, times * noise)
        np.testing.assert_allclose(scores, np.array([first, second]).T, rtol=1e-6)
    ranked = prominent_words(listing_scores(topics, deviation, noise), 5)
    assert ranked.tolist() == [[0, 4, 1, 2, 3], [1, 4, 0, 2, 3]]


@pytest.mark.parametrize(("sparsity", "least", "most"), [(0.02, 0.3, 2.0), (5.0, 0.0, 0.2)])
def test_the_noise_subtracted_minimises_the_error(sparsity: float, least: float, most: float) -> None:
    random = np.random.default_rng(8)
    truth = random.dirichlet(np.full(400, sparsity), size=4).T
    mean = truth.mean(axis=1) + 1e-6
    deviation = np.sqrt(mean)
    raw = truth + 0.02 * deviation[:, None] * random.standard_normal(truth.shape)
    noise = np.full(4, 0.02)
    multiple = best_multiple(raw, deviation, noise)
    assert least <= multiple <= most

    def distance(times: float) -> float:
        return float(np.sum((np.maximum(raw - times * deviation[:, None] * noise, 0.0) - truth) ** 2))

    assert distance(multiple) < 1.02 * min(distance(0.1 * step) for step in range(31))
