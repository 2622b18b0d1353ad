"""Topic shares of documents: those of the oracle, whatever stands beside a document."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.inference.cvb0 import BLOCK_DOCUMENTS, DocumentTopics, document_topics
from tests.reference_transform import shares_by_rounds

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


cases = st.integers(0, 2**16).map(Case)


@given(cases)
def test_rows_are_shares_and_empty_documents_get_the_prior(case: Case) -> None:
    found = case.found()
    assert found.shares.min() > 0
    np.testing.assert_allclose(found.shares.sum(axis=1), 1, rtol=1e-14)
    np.testing.assert_allclose(found.shares[:2], np.tile(case.prior / case.prior.sum(), (2, 1)), rtol=1e-6)
    assert found.remaining[:2].max() < 1e-4


@given(case=cases, seed=st.integers(0, 2**16))
def test_a_document_depends_on_its_own_words_alone(case: Case, seed: int) -> None:
    whole = case.found().shares
    order = np.random.default_rng(seed).permutation(len(case.counts))
    np.testing.assert_array_equal(case.found(case.counts[order]).shares, whole[order])
    twice = case.found(np.repeat(case.counts, 2, axis=0)).shares
    np.testing.assert_array_equal(twice, np.repeat(whole, 2, axis=0))
    np.testing.assert_array_equal(case.found(case.counts[4:5]).shares, whole[4:5])


def test_threads_and_blocks_change_no_bit() -> None:
    case = Case(1, n_documents=3 * BLOCK_DOCUMENTS + 5)
    one, three = case.found(threads=1), case.found(threads=3)
    np.testing.assert_array_equal(three.shares, one.shares)
    np.testing.assert_array_equal(three.remaining, one.remaining)
    assert case.found(case.counts[:0]).shares.shape == (0, 5)
    last = case.found(case.counts[-5:]).shares
    np.testing.assert_array_equal(one.shares[-5:], last)


@given(cases)
def test_shares_are_those_of_the_oracle(case: Case) -> None:
    for rounds in (1, 2, 6):
        found = case.found(tolerance=1e-30, max_iterations=rounds)
        expected = [shares_by_rounds(row, case.word_topic, case.prior, rounds) for row in case.counts]
        np.testing.assert_allclose(found.shares, expected, atol=3e-6)
        assert (found.iterations == rounds).sum() >= 8


@given(cases)
@settings(max_examples=10)
def test_shares_converge(case: Case) -> None:
    found = case.found(max_iterations=1000)
    expected = [shares_by_rounds(row, case.word_topic, case.prior, 500) for row in case.counts]
    assert found.unconverged == 0
    assert (found.remaining <= 1e-3).all()
    assert abs(found.shares - expected).sum(axis=1).max() < 0.1
    assert case.found(max_iterations=2).unconverged >= 5


def test_negligible_probabilities_change_nothing() -> None:
    case = Case(2)
    with_traces = case.word_topic + 1e-300
    with_traces[3] = 0
    ours, theirs = (
        document_topics(csr_array(case.counts), B, case.prior).shares for B in (with_traces, case.word_topic)
    )
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


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
        (30, [0.1] * 5, {"max_iterations": 0}, "max_iterations must be at least 1"),
        *((30, [0.1] * 5, {"tolerance": t}, "tolerance must be positive") for t in (0.0, -1.0, np.nan)),
    ],
)
def test_invalid_arguments_are_refused(
    words: int, prior: list[float], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        document_topics(csr_array(np.ones((2, words))), Case(0).word_topic, np.array(prior), **options)
