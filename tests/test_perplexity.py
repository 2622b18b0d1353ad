"""Perplexity of completed documents: the oracle's figure, whatever the order of documents, blocks and words."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.inference.perplexity import SMOOTHING, Completer, Completion, observed_half
from tests.reference_transform import shares_by_rounds

Floats = NDArray[np.float64]


class Case:
    """Documents of some topics, of every length from 0 on; word 3 is in no topic, word 4 not in the training corpus."""

    def __init__(self, seed: int, n_words: int = 30, n_topics: int = 4, n_documents: int = 12) -> None:
        random = np.random.default_rng(seed)
        self.word_topic = random.dirichlet(np.full(n_words, 0.3), size=n_topics).T
        self.word_topic[3] = 0
        self.prior = random.uniform(0.05, 1.5, n_topics)
        self.probability = random.uniform(1, 9, n_words)
        self.probability[4] = 0
        self.word_topic[4] = 0
        rate = random.lognormal(-1, 1.5, (n_documents, n_words))
        self.counts = random.poisson(rate)
        self.counts[:2] = 0
        self.counts[1, 5] = 1

    @property
    def completer(self) -> Completer:
        return Completer.of(self.word_topic, self.prior, self.probability)

    def completed(self, counts: NDArray[np.int64] | None = None, seed: int = 0) -> Completion:
        return self.completer.complete(csr_array(self.counts if counts is None else counts), seed=seed)


cases = st.integers(0, 2**16).map(Case)


def complete(case: Case, observed: Floats) -> dict[str, float]:
    """The sums, word by word, from the halves that were drawn."""
    unigram = case.probability / case.probability.sum()
    topics = (1 - SMOOTHING) * case.word_topic + SMOOTHING * unigram[:, None]
    sums = dict.fromkeys(("tokens", "unseen", "without_mass", "ours", "alone"), 0.0)
    for counts, half in zip(case.counts, observed, strict=True):
        if counts.sum() < 2:
            continue
        shares = shares_by_rounds(half, topics, case.prior, 500)
        for word, number in enumerate(counts - half):
            if unigram[word] == 0:
                sums["unseen"] += number
                continue
            sums["tokens"] += number
            sums["without_mass"] += number * (case.word_topic[word].sum() == 0)
            sums["ours"] += number * math.log(topics[word] @ shares)
            sums["alone"] += number * math.log(unigram[word])
    return sums


@given(cases)
@settings(max_examples=15)
def test_the_sums_are_those_of_the_oracle(case: Case) -> None:
    found = case.completed()
    observed = observed_half(csr_array(case.counts), case.completer.keys, 0).toarray()
    expected = complete(case, observed)
    for name in ("tokens", "unseen", "without_mass"):
        assert getattr(found, name) == expected[name]
    # A document stops when a round moves its shares by at most 1e-3.
    assert found.log_likelihood == pytest.approx(expected["ours"], rel=2e-3)
    assert found.unigram_log_likelihood == pytest.approx(expected["alone"], rel=1e-12)
    assert found.perplexity == pytest.approx(math.exp(-expected["ours"] / expected["tokens"]), rel=1e-2)
    assert found.tokens_without_mass == expected["without_mass"] / expected["tokens"]
    assert found.unconverged == 0
    assert found.too_short >= 2


@given(cases, st.integers(0, 2**16))
def test_half_of_each_document_is_observed(case: Case, seed: int) -> None:
    observed = observed_half(csr_array(case.counts), case.completer.keys, seed).toarray()
    assert (observed >= 0).all()
    assert (observed <= case.counts).all()
    np.testing.assert_array_equal(observed.sum(axis=1), case.counts.sum(axis=1) // 2)


def test_observed_counts_are_hypergeometric() -> None:
    counts = np.array([[1, 2, 7, 10]])
    keys = np.arange(4, dtype=np.uint64)
    drawn = np.array([observed_half(csr_array(counts), keys, seed).toarray()[0] for seed in range(4000)])
    n, share = 20, counts[0] / 20
    variance = (n / 2) * share * (1 - share) * (n / 2) / (n - 1)
    assert (abs(drawn.mean(axis=0) - counts[0] / 2) < 4 * np.sqrt(variance / len(drawn))).all()
    np.testing.assert_allclose(drawn.var(axis=0), variance, rtol=0.15)


@given(cases, st.integers(0, 2**16))
def test_order_of_documents_and_words_plays_no_part(case: Case, seed: int) -> None:
    random = np.random.default_rng(seed)
    rows, words = random.permutation(len(case.counts)), random.permutation(case.counts.shape[1])
    keys = random.integers(0, 2**63, size=len(words)).astype(np.uint64)
    observed = observed_half(csr_array(case.counts), keys, 5).toarray()
    moved = observed_half(csr_array(case.counts[rows][:, words]), keys[words], 5).toarray()
    np.testing.assert_array_equal(moved, observed[rows][:, words])


@given(cases, st.integers(0, 12))
def test_blocks_add_up(case: Case, cut: int) -> None:
    whole = case.completed()
    parts = case.completed(case.counts[:cut]).merge(case.completed(case.counts[cut:]))
    for name in ("documents", "too_short", "tokens", "unseen", "without_mass", "unconverged"):
        assert getattr(parts, name) == getattr(whole, name)
    assert parts.log_likelihood == pytest.approx(whole.log_likelihood, rel=1e-13)
    assert parts.unigram_log_likelihood == pytest.approx(whole.unigram_log_likelihood, rel=1e-13)


def test_the_seed_draws_other_halves_and_the_same_seed_the_same() -> None:
    case = Case(3)
    assert case.completed(seed=1) == case.completed(seed=1)
    assert case.completed(seed=1) != case.completed(seed=2)


def test_one_topic_that_is_the_unigram_distribution_has_its_perplexity() -> None:
    case = Case(4)
    case.word_topic = (case.probability / case.probability.sum())[:, None]
    case.prior = np.ones(1)
    found = case.completed()
    assert found.perplexity == pytest.approx(found.unigram_perplexity, rel=1e-12)
    assert found.without_mass == 0


def test_true_topics_are_better_than_others_and_these_than_none() -> None:
    random = np.random.default_rng(0)
    topics = random.dirichlet(np.full(200, 0.1), size=(2, 5)).transpose(0, 2, 1)
    prior = np.full(5, 0.2)
    shares = random.dirichlet(prior, size=200)
    counts = csr_array(np.array([random.multinomial(80, topics[0] @ row) for row in shares]))
    probability = counts.sum(axis=0) + 0.5
    true, half, wrong = (
        Completer.of(B, prior, probability).complete(counts)
        for B in (topics[0], (topics[0] + probability[:, None] / probability.sum()) / 2, topics[1])
    )
    assert true.perplexity < half.perplexity < half.unigram_perplexity < wrong.perplexity


def test_nothing_to_score_has_no_perplexity() -> None:
    for counts in (np.zeros((0, 30), int), np.zeros((2, 30), int)):
        found = Case(0).completed(counts)
        assert (found.tokens, found.documents, found.too_short) == (0, 0, len(counts))
        assert np.isnan([found.perplexity, found.unigram_perplexity, found.tokens_without_mass]).all()


def test_what_cannot_be_completed_is_refused() -> None:
    case = Case(0)
    for counts, said in (
        (case.counts * 0.1, "whole numbers"),
        (-case.counts, "whole numbers"),
        (case.counts[:, :29], r"\b29 words, .* 30\b"),
    ):
        with pytest.raises(ValueError, match=said):
            case.completer.complete(csr_array(counts))
    for prior, probability, options, said in (
        (case.prior[:2], case.probability, {}, "do not fit together"),
        (case.prior, case.probability, {"smoothing": 0}, "smoothing"),
        (case.prior, np.zeros(30), {}, "word_probability"),
    ):
        with pytest.raises(ValueError, match=said):
            Completer.of(case.word_topic, prior, probability, **options)
