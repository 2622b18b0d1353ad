"""Topic shares of documents: the maximum of their posterior, whatever stands beside a document."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.inference.document_topics import BLOCK_DOCUMENTS, DocumentTopics, document_topics
from tests.reference_transform import best_shares, log_posterior, shares_by_steps

Floats = NDArray[np.float64]


class Case:
    """Documents of some topics, one of no words, one of a word that no topic has, and fractions of words."""

    def __init__(self, seed: int, n_words: int = 30, n_topics: int = 4, n_documents: int = 12) -> None:
        random = np.random.default_rng(seed)
        self.word_topic = random.dirichlet(np.full(n_words, 0.3), size=n_topics).T
        self.word_topic[3] = 0
        self.prior = random.uniform(0.05, 1.5, n_topics)
        self.counts = random.poisson(random.lognormal(-1, 1.5, (n_documents, n_words))).astype(float)
        self.counts[0] = 0
        self.counts[1] = 0
        self.counts[1, 3] = 7
        self.counts[2] *= 0.37

    def found(self, counts: Floats | None = None, **options: float) -> DocumentTopics:
        return document_topics(
            csr_array(self.counts if counts is None else counts), self.word_topic, self.prior, **options
        )


cases = st.integers(0, 2**16).map(Case)


@given(cases)
def test_shares_are_those_of_the_oracle_step_by_step(case: Case) -> None:
    for steps in (1, 7):
        found = case.found(tolerance=0, max_iterations=steps)
        expected = [shares_by_steps(row, case.word_topic, case.prior, steps) for row in case.counts]
        np.testing.assert_allclose(found.shares, expected, rtol=1e-12)


@given(cases)
def test_the_posterior_never_falls(case: Case) -> None:
    before = np.full(len(case.counts), -np.inf)
    for steps in range(1, 12):
        shares = case.found(tolerance=0, max_iterations=steps).shares
        pairs = zip(shares, case.counts, strict=True)
        now = np.array([log_posterior(row, counts, case.word_topic, case.prior) for row, counts in pairs])
        assert (now >= before - 1e-9 * abs(now)).all()
        before = now


def test_the_maximum_is_that_of_a_general_optimiser() -> None:
    case = Case(5)
    shares = case.found(tolerance=1e-12, max_iterations=100_000).shares
    for row, counts in zip(shares, case.counts, strict=True):
        np.testing.assert_allclose(row, best_shares(counts, case.word_topic, case.prior), atol=1e-6)


@given(cases)
def test_rows_are_shares_and_nothing_said_is_the_prior(case: Case) -> None:
    found = case.found()
    assert found.shares.min() > 0
    np.testing.assert_allclose(found.shares.sum(axis=1), 1, rtol=1e-14)
    np.testing.assert_allclose(found.shares[:2], np.tile(case.prior / case.prior.sum(), (2, 1)), rtol=1e-14)


@given(cases, st.integers(0, 2**16))
def test_a_document_hangs_on_its_own_words_alone(case: Case, seed: int) -> None:
    whole = case.found().shares
    order = np.random.default_rng(seed).permutation(len(case.counts))
    np.testing.assert_array_equal(case.found(case.counts[order]).shares, whole[order])
    np.testing.assert_array_equal(
        case.found(np.repeat(case.counts, 2, axis=0)).shares, np.repeat(whole, 2, axis=0)
    )
    np.testing.assert_array_equal(case.found(case.counts[4:5]).shares, whole[4:5])


def test_threads_and_blocks_change_no_bit() -> None:
    case = Case(1, n_documents=3 * BLOCK_DOCUMENTS + 5)
    one, three = case.found(threads=1), case.found(threads=3)
    np.testing.assert_array_equal(three.shares, one.shares)
    last = case.found(case.counts[-5:]).shares
    np.testing.assert_array_equal(one.shares[-5:], last)


def test_steps_end_when_the_shares_stand_still() -> None:
    case = Case(2)
    loose, tight, cut = (
        case.found(tolerance=1e-2), case.found(tolerance=1e-8, max_iterations=10_000), case.found(max_iterations=2)
    )  # fmt: skip
    assert (loose.iterations <= tight.iterations).all()
    assert loose.iterations.sum() < tight.iterations.sum()
    assert (loose.last_change <= 1e-2).all()
    assert (tight.last_change <= 1e-8).all()
    assert cut.iterations.max() == 2
    assert cut.last_change.max() > 1e-4
    assert abs(loose.shares - tight.shares).sum(axis=1).max() < 0.2


def test_kinds_of_counts_give_the_same_bits() -> None:
    case = Case(3)
    whole = np.floor(case.counts)
    expected = case.found(whole).shares
    for kind in (np.int32, np.int64, np.float32):
        block = csr_array(whole.astype(kind))
        for array in (block.data, block.indices, block.indptr):
            array.setflags(write=False)
        np.testing.assert_array_equal(document_topics(block, case.word_topic, case.prior).shares, expected)


def test_no_documents() -> None:
    case = Case(4)
    assert case.found(np.zeros((0, 30))).shares.shape == (0, 4)


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
    ("words", "prior", "said"),
    [
        (29, [0.1] * 4, "do not fit together"),
        (30, [0.1] * 3, "do not fit together"),
        (30, [0.1, 0.1, 0.1, 0.0], "prior must be positive"),
        (30, [0.1, 0.1, 0.1, np.nan], "prior must be positive"),
    ],
)
def test_what_cannot_be_is_refused(words: int, prior: list[float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        document_topics(csr_array(np.ones((2, words))), Case(0).word_topic, np.array(prior))
