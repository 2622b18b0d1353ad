"""Polish against the dense oracle, and what must hold for any corpus."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.inference.cvb0 import LANE
from streaming_jsmf.inference.polish import (
    DRAWN_DOCUMENTS,
    FULL_STEPS,
    HELD_OUT_DRAW,
    LAST_WORD_PRIOR,
    MOST_BLOCKS,
    ROUNDS,
    SAMPLE_DRAW,
    SAMPLES,
    STEPS,
    WORD_PRIOR,
    Step,
    StepSums,
    blocks,
    document_draws,
    document_keys,
    first_topics,
    in_sample,
    log_lengths,
    longest_document,
    next_topics,
    over_relaxed,
    plan_steps,
    sampled_range,
    step_sums,
)
from tests.reference_polish import cvb0, dirichlet_moments, gibbs, mixed, splitmix64

Floats = NDArray[np.float64]

N_WORDS, N_TOPICS = 40, 5
PRIOR = np.array([0.05, 0.3, 1.0, 0.1, 0.02])

#: float32 shares, float64 sums.
CLOSE = {"rtol": 2e-5, "atol": 1e-5}


@pytest.fixture(scope="module")
def topics() -> Floats:
    drawn: Floats = np.random.default_rng(1).dirichlet(np.full(N_WORDS, 0.2), N_TOPICS).T
    return drawn


@pytest.fixture(scope="module")
def counts(topics: Floats) -> csr_array[Any]:
    return simulated(topics, PRIOR, n_documents=1_000, length=12)


def simulated(topics: Floats, prior: Floats, n_documents: int, length: int, seed: int = 2) -> csr_array[Any]:
    random = np.random.default_rng(seed)
    shares = random.dirichlet(prior, n_documents)
    return csr_array(random.multinomial(length, shares @ topics.T).astype(np.int32))


def assert_same(found: StepSums, expected: StepSums) -> None:
    for name, values in vars(expected).items():
        np.testing.assert_array_equal(getattr(found, name), values, err_msg=name)


def assert_close(found: StepSums, expected: StepSums) -> None:
    for name, values in vars(expected).items():
        np.testing.assert_allclose(getattr(found, name), values, **CLOSE, err_msg=name)


@pytest.mark.parametrize("rounds", [2, 5])
@pytest.mark.parametrize("n_topics", [1, 3, LANE, LANE + 1])
@pytest.mark.parametrize("scale", [1, 0.3])
def test_a_step_is_that_of_the_oracle(n_topics: int, rounds: int, scale: float) -> None:
    random = np.random.default_rng(n_topics)
    topics = random.dirichlet(np.full(N_WORDS, 0.3), n_topics).T
    topics[3] = 0
    prior = random.gamma(1.0, 0.3, n_topics) + 0.01
    dense = random.poisson(0.4, (30, N_WORDS)) * scale
    dense[7] = 0
    expected = cvb0(dense, topics, prior, rounds)
    found = step_sums(csr_array(dense), topics, prior, rounds=rounds, with_pairs=True)
    np.testing.assert_allclose(found.tokens, expected.tokens, **CLOSE)
    assert found.log_likelihood == pytest.approx(expected.log_likelihood, rel=1e-5)
    assert found.n_tokens == pytest.approx(dense.sum())
    assert found.n_documents == np.count_nonzero(dense.sum(axis=1))
    moments = [dirichlet_moments(weights) for weights in expected.weights[dense.sum(axis=1) > 0]]
    np.testing.assert_allclose(found.shares, sum(mean for mean, _ in moments), **CLOSE)
    np.testing.assert_allclose(found.pairs, sum(pairs for _, pairs in moments), **CLOSE)


def keys_of(n_documents: int) -> NDArray[np.uint64]:
    return document_keys(np.random.default_rng(5).random(n_documents), 3)


@pytest.mark.parametrize("rounds", [2, 5])
@pytest.mark.parametrize("n_topics", [1, 3, LANE, 3 * LANE + 1])
@pytest.mark.parametrize("scale", [1, 0.3])
def test_a_step_that_draws_topics_is_that_of_the_oracle(n_topics: int, rounds: int, scale: float) -> None:
    random = np.random.default_rng(n_topics)
    topics = random.dirichlet(np.full(N_WORDS, 0.3), n_topics).T
    topics[3] = 0
    prior = random.gamma(1.0, 0.3, n_topics) + 0.01
    dense = random.poisson(0.4, (30, N_WORDS)) * scale
    dense[7] = 0
    keys = keys_of(30)
    expected = gibbs(dense, topics, prior, rounds, keys.tolist(), LANE)
    found = step_sums(csr_array(dense), topics, prior, rounds=rounds, keys=keys)
    np.testing.assert_allclose(found.tokens, expected.tokens, **CLOSE)
    assert found.log_likelihood == pytest.approx(expected.log_likelihood, rel=1e-5)


def test_random_numbers_are_those_of_splitmix64() -> None:
    """The first three for the state 1234567, as published with the generator."""
    numbers = splitmix64(1234567)
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [next(numbers) for _ in expected] == expected
    assert mixed(0) == 0


def test_drawn_topics_depend_on_the_document_and_the_step_alone(
    topics: Floats, counts: csr_array[Any]
) -> None:
    keys = keys_of(counts.shape[0])
    whole = step_sums(counts, topics, PRIOR, keys=keys)
    for threads in (1, 2, 20):
        assert_same(step_sums(counts, topics, PRIOR, keys=keys, threads=threads), whole)
    order = np.random.default_rng(3).permutation(counts.shape[0])
    parts = (step_sums(counts[part], topics, PRIOR, keys=keys[part]) for part in np.split(order, [70]))
    assert_close(sum(parts, start=next(parts)), whole)
    other = step_sums(counts, topics, PRIOR, keys=keys + np.uint64(1))
    assert np.abs(other.tokens - whole.tokens).sum() > 0.01 * whole.tokens.sum()


def test_topics_are_drawn_in_proportion_to_their_weights() -> None:
    """Two words: the other word's topic decides, and it is drawn from its own weights."""
    topics = np.array([[0.2, 0.6, 0.0], [0.5, 0.1, 1.0], [0.3, 0.3, 0.0]])
    prior, n_documents = np.array([0.5, 0.3, 0.2]), 40_000
    counts = csr_array(np.tile([1, 1, 0], (n_documents, 1)))
    found = step_sums(counts, topics, prior, rounds=2, keys=keys_of(n_documents)).tokens / n_documents
    # Of each word (row), the chance of each topic in the first round, and the shares given that of the other.
    first = topics[:2] * prior / (topics[:2] @ prior)[:, None]
    given = topics[:2, None] * (prior + np.eye(3))
    given /= given.sum(axis=2, keepdims=True)
    np.testing.assert_allclose(found[0], first[1] @ given[0], atol=0.005)
    np.testing.assert_allclose(found[1], first[0] @ given[1], atol=0.005)


def test_a_long_document_counts_as_a_shorter_one(topics: Floats, counts: csr_array[Any]) -> None:
    dense = counts.toarray().astype(float)
    dense[3] *= 50
    found = step_sums(csr_array(dense), topics, PRIOR, longest=25.0)
    expected = np.zeros_like(topics)
    for row in dense:
        scale = min(1.0, 25 / max(row.sum(), 1.0))
        expected += scale * cvb0(row[None], topics, PRIOR, ROUNDS).tokens
    np.testing.assert_allclose(found.tokens, expected, **CLOSE)
    # What it tells of itself stays.
    assert found.n_tokens == pytest.approx(dense.sum())
    assert found.log_likelihood == step_sums(csr_array(dense), topics, PRIOR).log_likelihood


def test_the_longest_document_is_ten_times_the_typical_one() -> None:
    parts = csr_array([[10, 0], [0, 0]]), csr_array([[500, 500], [5, 5]])
    sums = [log_lengths(part) for part in parts]
    found = longest_document(sum(log for log, _ in sums), sum(number for _, number in sums))
    assert found == pytest.approx(10 * (10 * 1000 * 10) ** (1 / 3))
    assert longest_document(0.0, 0) == math.inf


def test_threads_change_no_bit(topics: Floats, counts: csr_array[Any]) -> None:
    """Nor do arrays that cannot be written, such as Arrow's."""
    assert len(blocks(counts.indptr, N_WORDS)) > 2
    counts, topics = counts.copy(), topics.copy()
    for values in (counts.indptr, counts.indices, counts.data, topics):
        values.flags.writeable = False
    one, *others = (step_sums(counts, topics, PRIOR, with_pairs=True, threads=n) for n in (1, 2, 3, 20))
    for other in others:
        assert_same(other, one)


def test_parts_add_up_to_the_whole_in_any_order(topics: Floats, counts: csr_array[Any]) -> None:
    whole = step_sums(counts, topics, PRIOR, with_pairs=True)
    order = np.random.default_rng(3).permutation(counts.shape[0])
    for rows in (np.arange(counts.shape[0]), order):
        parts = (step_sums(counts[part], topics, PRIOR, with_pairs=True) for part in np.split(rows, [70]))
        assert_close(sum(parts, start=next(parts)), whole)


@pytest.mark.parametrize("n_documents", [0, 3])
def test_documents_without_words_add_nothing(topics: Floats, n_documents: int) -> None:
    found = step_sums(csr_array((n_documents, N_WORDS), dtype=np.int32), topics, PRIOR, with_pairs=True)
    assert found.n_documents == found.n_tokens == found.log_likelihood == 0
    assert not found.tokens.any()
    assert not found.pairs.any()


def test_topics_are_distributions_without_holes(topics: Floats, counts: csr_array[Any]) -> None:
    tokens = step_sums(counts, topics, PRIOR).tokens
    for last, prior in ((False, WORD_PRIOR), (True, LAST_WORD_PRIOR)):
        following = next_topics(tokens, last=last)
        np.testing.assert_allclose(following, (tokens + prior) / (tokens + prior).sum(axis=0))
        np.testing.assert_allclose(following.sum(axis=0), 1)
        assert (following > 0).all()


def test_over_relaxation_doubles_the_change_of_the_logarithm(topics: Floats, counts: csr_array[Any]) -> None:
    """At most by a factor of e^2 each, and also from probabilities of 0."""
    before, after = topics.copy(), next_topics(step_sums(counts, topics, PRIOR).tokens)
    before[0] = 0
    with np.errstate(divide="ignore"):
        changes = np.clip(np.log(after) - np.log(before), -2, 2)
    assert changes.max() == 2 > -2 == changes.min()
    expected = after * np.exp(2 * changes)
    np.testing.assert_allclose(over_relaxed(after, before), expected / expected.sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(over_relaxed(after, after), after, rtol=1e-12)


def test_the_start_has_every_word() -> None:
    frequencies = np.array([0.5, 0.25, 0.25])
    start = first_topics(np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]), frequencies)
    np.testing.assert_allclose(start.sum(axis=0), 1)
    assert (start[2] > 0).all()
    assert start[0, 0] > start[1, 1] > 0.9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prior": np.zeros(N_TOPICS)}, "prior must be positive"),
        ({"prior": np.ones(N_TOPICS + 1)}, "do not match"),
        ({"rounds": 1}, "rounds is 1; give 2 or more"),
        ({"keys": keys_of(1_000), "with_pairs": True}, "omit keys or with_pairs"),
    ],
)
def test_wrong_input_is_refused(
    topics: Floats, counts: csr_array[Any], change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        step_sums(counts, **{"word_topic": topics, "prior": PRIOR, **change})


@pytest.mark.parametrize("lengths", [[5] * 640, [0, 4000, 0, 1, 1, 1], [3], [0, 0], []])
def test_blocks_hold_each_document_once(lengths: list[int]) -> None:
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    found = blocks(indptr, n_words=10)
    assert len(found) <= MOST_BLOCKS
    starts = [int(bounds[0]) for bounds in found]
    assert starts == sorted(starts)
    assert sum(bounds.size - 1 for bounds in found) == len(lengths)
    for left, right in pairwise(found):
        assert left[-1] == right[0]
    if lengths == [5] * 640:
        assert len({bounds[-1] - bounds[0] for bounds in found}) == 1, "even"


def test_small_corpora_are_seen_whole_and_large_ones_sampled_first() -> None:
    every_other = (Step(1.0, ROUNDS, relaxed=True), Step(1.0, ROUNDS, relaxed=False))
    few, many = DRAWN_DOCUMENTS - 1, DRAWN_DOCUMENTS
    assert plan_steps(300_000, few) == every_other * (STEPS // 2)
    full = (Step(1.0, 10, relaxed=True), Step(1.0, 10, relaxed=False))
    sampled = (Step(0.05, 10, relaxed=False), Step(0.05, 10, relaxed=True))
    assert plan_steps(40_000_000, few, steps=7, rounds=10) == (*sampled * 2, sampled[0], *full)
    drawn = Step(0.05, 10, relaxed=False, drawn=True)
    assert plan_steps(40_000_000, many, steps=7, rounds=10) == (*[drawn] * 5, *full)
    assert plan_steps(300_000, many, steps=3) == (Step(1.0, ROUNDS, relaxed=False, drawn=True), *every_other)
    assert FULL_STEPS == 2
    assert plan_steps(40_000_000, many, steps=2) == every_other
    assert plan_steps(100, few, steps=1) == every_other[1:]
    with pytest.raises(ValueError, match="steps is 0; give 1 or more"):
        plan_steps(100, few, steps=0)


def test_documents_are_drawn_by_their_unit_alone() -> None:
    draws = document_draws("shard:3", 10_000, SAMPLE_DRAW, seed=1)
    np.testing.assert_array_equal(draws, document_draws("shard:3", 10_000, SAMPLE_DRAW, seed=1))
    assert (draws < 0.3).mean() == pytest.approx(0.3, abs=0.02)
    for other in (
        document_draws("shard:4", 10_000, SAMPLE_DRAW, seed=1),
        document_draws("shard:3", 10_000, HELD_OUT_DRAW, seed=1),
        document_draws("shard:3", 10_000, SAMPLE_DRAW, seed=2),
    ):
        assert ((draws < 0.3) & (other < 0.3)).mean() == pytest.approx(0.09, abs=0.015)


@pytest.mark.parametrize("share", [0.01, 0.3, 0.7, 1.0])
def test_each_sampled_step_uses_other_documents(share: float) -> None:
    """Until all are used, or as many as are in memory; then the first ones come again, all equally often."""
    draws = document_draws("shard:3", 10_000, SAMPLE_DRAW, seed=1)
    draws = draws[draws < sampled_range(share)]
    used = np.array([in_sample(draws, step, share) for step in range(4 * SAMPLES)])
    np.testing.assert_allclose(used.mean(axis=1), share / sampled_range(share), atol=0.07)
    distinct = min(int(1 / share), SAMPLES)
    assert used[:distinct].sum(axis=0).max() == 1
    times = used.sum(axis=0)
    assert times.min() >= times.max() - 1 > 0
