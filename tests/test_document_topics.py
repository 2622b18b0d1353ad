"""Topic shares of documents: the maximum of their posterior, whatever stands beside a document."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.inference import map_shares
from streaming_jsmf.inference.document_topics import BLOCK_DOCUMENTS, DocumentTopics, document_topics
from tests.reference_transform import best_shares, log_posterior, shares_by_rounds, shares_by_steps

Floats = NDArray[np.float64]


class Case:
    """Documents of some topics, one of no words, one of a word that no topic has, and fractions of words."""

    def __init__(self, seed: int, n_words: int = 30, n_topics: int = 5, n_documents: int = 12) -> None:
        random = np.random.default_rng(seed)
        self.word_topic = random.dirichlet(np.full(n_words, 0.3), size=n_topics).T
        self.word_topic[3] = 0
        self.prior = random.uniform(0.05, 1.5, n_topics)
        self.counts = random.poisson(random.lognormal(-1, 1.5, (n_documents, n_words))).astype(float)
        self.counts[0] = 0
        self.counts[1] = 0
        self.counts[1, 3] = 7
        self.counts[2] *= 0.37

    def found(self, counts: Floats | None = None, **options: Any) -> DocumentTopics:
        return document_topics(
            csr_array(self.counts if counts is None else counts), self.word_topic, self.prior, **options
        )

    def most_probable(self, **options: Any) -> DocumentTopics:
        return self.found(method="map", **options)

    def best(self) -> Floats:
        return np.array([best_shares(row, self.word_topic, self.prior) for row in self.counts])

    def likelihoods(self, shares: Floats) -> Floats:
        pairs = zip(shares, self.counts, strict=True)
        return np.array([log_posterior(row, counts, self.word_topic, self.prior) for row, counts in pairs])


class Alike:
    """Long documents of topics that are alike in pairs, which expectation-maximisation tells apart very slowly."""

    def __init__(self, n_documents: int, n_words: int = 500, n_topics: int = 10, length: int = 5000) -> None:
        random = np.random.default_rng(7)
        base, other = random.dirichlet(np.ones(n_words), size=(2, n_topics // 2))
        self.word_topic = np.concatenate([base, 0.9 * base + 0.1 * other]).T
        self.prior = np.full(n_topics, 0.1)
        shares = random.dirichlet(self.prior, size=n_documents)
        self.counts = np.array([random.multinomial(length, self.word_topic @ row) for row in shares])


cases = st.integers(0, 2**16).map(Case)
METHODS = pytest.mark.parametrize("method", ["map", "cvb0"])


@given(cases, st.sampled_from([0.3, 1e-3, 1e-6]))
@settings(max_examples=12)
def test_the_maximum_is_no_farther_than_the_bound_and_the_bound_no_larger_than_asked(
    case: Case, tolerance: float
) -> None:
    found = case.most_probable(tolerance=tolerance)
    distance = abs(found.shares - case.best()).sum(axis=1)
    assert (found.remaining <= tolerance).all()
    assert (distance <= found.remaining + 1e-6).all()
    assert found.unconverged == 0


@given(cases)
@settings(max_examples=12)
def test_the_bound_holds_wherever_the_steps_are_cut(case: Case) -> None:
    best = case.best()
    for steps in (0, 1, 2, 3, 4):
        found = case.most_probable(max_iterations=steps)
        assert (found.iterations <= steps).all()
        assert (abs(found.shares - best).sum(axis=1) <= found.remaining + 1e-6).all()


def test_similar_topics_are_distinguished() -> None:
    case = Alike(12)
    found = document_topics(csr_array(case.counts), case.word_topic, case.prior, method="map")
    assert found.unconverged == 0
    by_steps = [shares_by_steps(row, case.word_topic, case.prior, 200) for row in case.counts]
    best = np.array([best_shares(row, case.word_topic, case.prior) for row in case.counts])
    assert abs(found.shares - best).sum(axis=1).max() < 1e-3
    assert abs(by_steps - best).sum(axis=1).mean() > 0.05


@pytest.mark.parametrize("prior", [1e-6, 1e-3, 10.0])
def test_flat_and_sharp_priors_are_served(prior: float) -> None:
    case = Case(6)
    case.prior = np.full(5, prior)
    found = case.most_probable()
    assert found.unconverged == 0
    best = [best_shares(row, case.word_topic, case.prior) for row in case.counts]
    assert abs(found.shares - best).sum(axis=1).max() < 1e-3


def test_first_steps_are_those_of_the_oracle() -> None:
    case = Case(3)
    for row in case.counts[2:5]:
        words = np.flatnonzero(row)
        known = words[case.word_topic[words].sum(axis=1) > 0]
        size = -(-len(words) // map_shares.WORD_STEP) * map_shares.WORD_STEP
        rows, counts = np.zeros((8, size)), np.zeros(size)
        rows[:5, : len(known)], counts[: len(known)] = case.word_topic[known].T, row[known]
        rows[:, len(known) :] = 1
        shares = np.zeros(8)
        shares[:5] = case.prior / case.prior.sum()
        words_work = np.zeros((map_shares.WORD_WORK, size))
        map_shares.newton_solve(
            rows, counts, case.prior, counts.sum() + case.prior.sum(), shares, words_work,
            np.zeros((map_shares.TOPIC_WORK, 8)), 3, 3, 1e-9, 0.0,
        )  # fmt: skip
        np.testing.assert_allclose(
            shares[:5], shares_by_steps(row, case.word_topic, case.prior, 3), rtol=1e-12
        )


@given(cases)
def test_the_posterior_never_falls(case: Case) -> None:
    before = np.full(len(case.counts), -np.inf)
    for steps in range(9):
        now = case.likelihoods(case.most_probable(tolerance=1e-12, max_iterations=steps).shares)
        # The first steps are taken in single precision.
        assert (now >= before - 1e-5 * abs(now)).all()
        before = now


@METHODS
@given(case=cases)
def test_rows_are_shares_and_empty_documents_get_the_prior(case: Case, method: str) -> None:
    found = case.found(method=method)
    assert found.shares.min() > 0
    np.testing.assert_allclose(found.shares.sum(axis=1), 1, rtol=1e-14)
    np.testing.assert_allclose(found.shares[:2], np.tile(case.prior / case.prior.sum(), (2, 1)), rtol=1e-6)
    assert found.remaining[:2].max() < 1e-4


@METHODS
@given(case=cases, seed=st.integers(0, 2**16))
def test_a_document_depends_on_its_own_words_alone(case: Case, seed: int, method: str) -> None:
    whole = case.found(method=method).shares
    order = np.random.default_rng(seed).permutation(len(case.counts))
    np.testing.assert_array_equal(case.found(case.counts[order], method=method).shares, whole[order])
    twice = case.found(np.repeat(case.counts, 2, axis=0), method=method).shares
    np.testing.assert_array_equal(twice, np.repeat(whole, 2, axis=0))
    np.testing.assert_array_equal(case.found(case.counts[4:5], method=method).shares, whole[4:5])


@METHODS
def test_threads_and_blocks_change_no_bit(method: str) -> None:
    case = Case(1, n_documents=3 * BLOCK_DOCUMENTS + 5)
    one, three = case.found(threads=1, method=method), case.found(threads=3, method=method)
    np.testing.assert_array_equal(three.shares, one.shares)
    np.testing.assert_array_equal(three.remaining, one.remaining)
    assert case.found(case.counts[:0], method=method).shares.shape == (0, 5)
    last = case.found(case.counts[-5:], method=method).shares
    np.testing.assert_array_equal(one.shares[-5:], last)


@given(cases)
def test_cvb0_is_that_of_the_oracle(case: Case) -> None:
    for rounds in (1, 2, 6):
        found = case.found(method="cvb0", tolerance=1e-30, max_iterations=rounds)
        expected = [shares_by_rounds(row, case.word_topic, case.prior, rounds) for row in case.counts]
        np.testing.assert_allclose(found.shares, expected, atol=3e-6)
        assert (found.iterations == rounds).sum() >= 8


@given(cases)
@settings(max_examples=10)
def test_cvb0_converges(case: Case) -> None:
    found = case.found(method="cvb0", max_iterations=1000)
    expected = [shares_by_rounds(row, case.word_topic, case.prior, 500) for row in case.counts]
    assert found.unconverged == 0
    assert (found.remaining <= 1e-3).all()
    assert abs(found.shares - expected).sum(axis=1).max() < 0.1
    assert case.found(method="cvb0", max_iterations=2).unconverged >= 5


def test_cvb0_predicts_short_documents_better_than_the_mode() -> None:
    random = np.random.default_rng(1)
    word_topic, prior = random.dirichlet(np.full(400, 0.1), size=8).T, np.full(8, 0.1)
    truth = random.dirichlet(prior, size=1500)
    counts = csr_array(np.array([random.multinomial(10, word_topic @ shares) for shares in truth]))
    divergences = {}
    for method in ("map", "cvb0"):
        shares = document_topics(counts, word_topic, prior, method=method).shares
        true, ours = truth @ word_topic.T, shares @ word_topic.T
        divergences[method] = (true * np.log(true / ours)).sum(axis=1).mean()
    assert divergences["cvb0"] < 0.97 * divergences["map"]


@METHODS
def test_negligible_probabilities_change_nothing(method: str) -> None:
    case = Case(2)
    with_traces = case.word_topic + 1e-300
    with_traces[3] = 0
    ours, theirs = (
        document_topics(csr_array(case.counts), B, case.prior, method=method).shares
        for B in (with_traces, case.word_topic)
    )
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_documents_whose_steps_run_out_are_counted() -> None:
    case = Case(2)
    loose, tight, cut = (
        case.most_probable(tolerance=1e-1),
        case.most_probable(tolerance=1e-8),
        case.most_probable(max_iterations=2),
    )
    assert loose.iterations.sum() < tight.iterations.sum()
    assert loose.unconverged == tight.unconverged == 0
    assert cut.iterations.max() == 2
    assert cut.unconverged == (cut.remaining > 1e-3).sum() >= 8


def test_kinds_of_counts_give_the_same_bits() -> None:
    case = Case(3)
    whole = np.floor(case.counts)
    expected = case.found(whole).shares
    for kind in (np.int32, np.int64, np.float32):
        block = csr_array(whole.astype(kind))
        for array in (block.data, block.indices, block.indptr):
            array.setflags(write=False)
        np.testing.assert_array_equal(document_topics(block, case.word_topic, case.prior).shares, expected)


def test_the_error_falls_with_the_length_of_documents() -> None:
    random = np.random.default_rng(0)
    word_topic, prior = random.dirichlet(np.full(400, 0.1), size=8).T, np.full(8, 0.2)
    errors = []
    for length in (0, 10, 40, 160, 640, 2560):
        truth = random.dirichlet(prior, size=300)
        counts = np.array([random.multinomial(length, word_topic @ shares) for shares in truth])
        found = document_topics(csr_array(counts), word_topic, prior).shares
        errors.append(abs(found - truth).sum(axis=1).mean())
    assert all(later < 0.7 * before for before, later in pairwise(errors)), errors
    assert errors[-1] < 0.04


@pytest.mark.parametrize(
    ("words", "prior", "options", "said"),
    [
        (29, [0.1] * 5, {}, "29"),
        (30, [0.1] * 4, {}, "4"),
        (30, [0.1, 0.1, 0.1, 0.1, 0.0], {}, "prior must be positive"),
        (30, [0.1, 0.1, 0.1, 0.1, np.nan], {}, "prior must be positive"),
        (30, [0.1] * 5, {"method": "gibbs"}, "'gibbs'; it can be map or cvb0"),
        (30, [0.1] * 5, {"max_iterations": 0}, "max_iterations must be at least 1"),
        *((30, [0.1] * 5, {"tolerance": t}, "tolerance must be positive") for t in (0.0, -1.0, np.nan)),
    ],
)
def test_invalid_arguments_are_refused(
    words: int, prior: list[float], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        document_topics(csr_array(np.ones((2, words))), Case(0).word_topic, np.array(prior), **options)
