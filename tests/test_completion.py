"""Topic shares of documents, and their perplexity: the oracle's numbers, in whatever order."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf import infer
from streaming_jsmf.config import InferSettings, ScanSettings, StodSettings
from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.corpus.hashes import hash_values
from streaming_jsmf.corpus.units import Partition
from streaming_jsmf.evaluation.counts import counts_of
from streaming_jsmf.evaluation.evaluate import EvaluationRequest, evaluate
from streaming_jsmf.evaluation.word_counts import CountReduction
from streaming_jsmf.inference.cvb0 import BLOCK_DOCUMENTS, SMOOTHING, DocumentTopics, document_topics
from streaming_jsmf.inference.perplexity import Completer, Completion, observed_half
from streaming_jsmf.jobs.checkpoints import PartialResult
from streaming_jsmf.jobs.events import Event, StageStarted
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.moments.scan import scan
from streaming_jsmf.topics.parameters import TopicParameters
from streaming_jsmf.topics.store import read_model, write_model
from tests.corpora import planted, words, write_corpus
from tests.damage import rewritten
from tests.reference_transform import shares_by_rounds

Floats = NDArray[np.float64]
SYNCHRONOUS = Execution("synchronous")


@pytest.fixture(scope="module")
def held_out() -> NDArray[np.int64]:
    """Documents that no model has seen, of the same topics; one is empty and one a single token."""
    counts = planted(700, 120, 5, seed=1).counts[600:].copy()
    counts[:2] = 0
    counts[1, 7] = 1
    return counts


@pytest.fixture(scope="module")
def models(corpus_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of each engine, of the same scan."""
    root = tmp_path_factory.mktemp("completion")
    settings = ScanSettings(max_topics=5, partition_nonzeros=5000, third_moment=True)
    moments = scan(corpus_path, root / "moments", settings, SYNCHRONOUS)
    infer(moments, root / "lr-jsmf", InferSettings(5))
    infer(moments, root / "stod", StodSettings(5))
    return root


def topics_of(model: Path) -> TopicParameters:
    return TopicParameters.of(read_model(model))


def expected_sums(
    topics: TopicParameters, counts: NDArray[Any], halves: Floats
) -> tuple[float, float, float]:
    """Scored tokens, and the log-likelihoods of the topics and of the words' frequencies, token by token."""
    unigram = topics.term_count / topics.term_count.sum()
    smoothed = (1 - SMOOTHING) * topics.word_topic + SMOOTHING * unigram[:, None]
    tokens = ours = alone = 0.0
    for document, half in zip(counts, halves, strict=True):
        shares = shares_by_rounds(half, smoothed, topics.prior, 300)
        for word, number in enumerate(document - half):
            if number and unigram[word] > 0:
                tokens += number
                ours += number * math.log(smoothed[word] @ shares)
                alone += number * math.log(unigram[word])
    return tokens, ours, alone


@pytest.mark.parametrize("engine", ["lr-jsmf", "stod"])
def test_evaluate_gives_the_oracles_perplexity(
    engine: str, models: Path, held_out: NDArray[np.int64], tmp_path: Path
) -> None:
    corpus = write_corpus(tmp_path / "held-out", held_out, shards=2)
    found = evaluate(models / engine, EvaluationRequest(corpus=str(corpus)), SYNCHRONOUS)
    metric, topics = found["metrics"]["perplexity"], topics_of(models / engine)
    known = held_out * (held_out.sum(axis=1) >= 2)[:, None]
    halves = observed_half(csr_array(known), _keys(topics), 0).toarray()
    tokens, ours, alone = expected_sums(topics, known, halves)
    assert metric["tokens"] == tokens
    assert metric["documents"] == np.count_nonzero(known.sum(axis=1))
    # The rounds stop when they change little.
    assert metric["model"] == pytest.approx(math.exp(-ours / tokens), rel=2e-3)
    assert metric["unigram"] == pytest.approx(math.exp(-alone / tokens), rel=1e-9)
    assert metric["model"] < 0.8 * metric["unigram"]
    assert (metric["unseen_tokens"], metric["unconverged"]) == (0, 0)
    assert not any("perplexity" in sentence for sentence in found["warnings"])


def _keys(topics: TopicParameters) -> NDArray[np.uint64]:
    """As a pass knows words; which number a word has is its own affair."""
    return hash_values(pa.array(topics.words))[:, 0].copy()


@pytest.fixture
def model(models: Path, tmp_path: Path) -> Path:
    """A copy to store completions with, whose corpora have small partitions."""
    path = Path(shutil.copytree(models / "lr-jsmf", tmp_path / "model"))
    rewritten(path, lambda about: about["provenance"]["scan_settings"].update(partition_nonzeros=200))
    return path


def completed(model: Path, corpus: Path, execution: Execution = SYNCHRONOUS) -> Completion:
    found = counts_of(model, read_model(model), open_corpus(corpus), execution).completion
    shutil.rmtree(model / "evaluation")
    assert found is not None
    return found


def test_neither_shards_nor_workers_nor_numbers_of_words_change_the_sums(
    model: Path, held_out: NDArray[np.int64], tmp_path: Path
) -> None:
    one = completed(model, write_corpus(tmp_path / "corpus", held_out, shards=1, row_group_rows=200))
    order = np.random.default_rng(0).permutation(120)
    moved = np.ascontiguousarray(held_out[::-1, order])
    other = write_corpus(tmp_path / "many", moved, shards=3, row_group_rows=9)
    (other / "vocab.txt").write_text("\n".join(np.array(words(120))[order]) + "\n", encoding="utf-8")
    many = completed(model, other)
    for name, value in vars(one).items():
        assert vars(many)[name] == pytest.approx(value, rel=1e-7), name  # shares in float32
    assert completed(model, other, Execution("threads", 3)) == many, "to the last bit on any scheduler"
    assert one.documents > 80


def test_a_pass_resumes_from_committed_parts(
    model: Path, held_out: NDArray[np.int64], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = write_corpus(tmp_path / "corpus", held_out, shards=1, row_group_rows=9)
    expected = completed(model, corpus)
    compute, read = CountReduction.compute, []

    def breaking(self: CountReduction, partition: Partition) -> PartialResult:
        if len(read) == 4:
            raise RuntimeError("cut off")
        read.append(partition.index)
        return compute(self, partition)

    monkeypatch.setattr(CountReduction, "compute", breaking)
    with pytest.raises(RuntimeError, match="cut off"):
        completed(model, corpus)
    first = read.copy()
    read.clear()
    monkeypatch.setattr(
        CountReduction, "compute", lambda self, part: (read.append(part.index), compute(self, part))[1]
    )
    assert completed(model, corpus) == expected
    assert len(first) == 4
    assert read
    assert not {*first} & {*read}


def test_fractions_have_no_tokens_to_predict(
    model: Path, held_out: NDArray[np.int64], tmp_path: Path
) -> None:
    mixed = held_out.astype(np.float32)
    mixed[5:8] *= 0.25
    corpus = write_corpus(tmp_path / "mixed", held_out, shards=1)
    ids = [np.flatnonzero(row) for row in mixed]
    counts = pa.array([row[chosen] for row, chosen in zip(mixed, ids, strict=True)], pa.list_(pa.float32()))
    table = pa.table({"ids": pa.array(ids, pa.list_(pa.int32())), "counts": counts})
    pq.write_table(table, corpus / "part-00000.parquet")
    shown = evaluate(model, EvaluationRequest(corpus=str(corpus)), SYNCHRONOUS)
    assert shown["metrics"]["perplexity"] is None
    broken = np.count_nonzero((mixed != np.rint(mixed)).any(axis=1))
    assert shown["missing"]["perplexity"].startswith(f"{broken} documents have fractional counts")
    assert shown["metrics"]["npmi"] is not None


@pytest.mark.slow
def test_stored_perplexity_of_another_model_is_computed_again(model: Path, corpus_path: Path) -> None:
    wanted = EvaluationRequest(corpus=str(corpus_path))
    first = evaluate(model, wanted, SYNCHRONOUS)["metrics"]["perplexity"]
    rewritten(model, lambda about: about["provenance"].update(fingerprint="of another"))
    assert "give corpus=CORPUS again" in evaluate(model)["missing"]["perplexity"]
    assert evaluate(model, wanted, SYNCHRONOUS)["metrics"]["perplexity"] == first


def test_topics_of_nothing_are_warned_of(models: Path, corpus_path: Path, tmp_path: Path) -> None:
    found = read_model(models / "lr-jsmf")
    upside_down = found.arrays["word_topic"][::-1].copy()
    write_model(tmp_path / "bad", replace(found, arrays={**found.arrays, "word_topic": upside_down}))
    shown = evaluate(tmp_path / "bad", EvaluationRequest(corpus=str(corpus_path)), SYNCHRONOUS)
    metric = shown["metrics"]["perplexity"]
    assert metric["model"] > metric["unigram"]
    assert any("the topics do not predict these documents" in sentence for sentence in shown["warnings"])


def test_a_model_without_a_prior_is_reported(models: Path, corpus_path: Path, tmp_path: Path) -> None:
    found = read_model(models / "stod")
    arrays = {name: values for name, values in found.arrays.items() if name != "alpha"}
    write_model(tmp_path / "model", replace(found, arrays=arrays))
    events: list[Event] = []
    for _ in range(2):
        wanted = EvaluationRequest(corpus=str(corpus_path))
        shown = evaluate(tmp_path / "model", wanted, SYNCHRONOUS, events.append)
        assert shown["missing"]["perplexity"] == "the model has no alpha"
    # What cannot be told is not asked of the corpus again and again.
    assert [event.stage for event in events if isinstance(event, StageStarted)] == ["counts"]


# -- Perplexity of completed documents: the oracle's figure, whatever the order of documents, blocks and words --


class CompletionCase:
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


completion_cases = st.integers(0, 2**16).map(CompletionCase)


def complete(case: CompletionCase, observed: Floats) -> dict[str, float]:
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


@given(completion_cases)
@settings(max_examples=15)
def test_the_sums_are_those_of_the_oracle(case: CompletionCase) -> None:
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


@given(completion_cases, st.integers(0, 2**16))
def test_half_of_each_document_is_observed(case: CompletionCase, seed: int) -> None:
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


@given(completion_cases, st.integers(0, 2**16))
def test_order_of_documents_and_words_plays_no_part(case: CompletionCase, seed: int) -> None:
    random = np.random.default_rng(seed)
    rows, words = random.permutation(len(case.counts)), random.permutation(case.counts.shape[1])
    keys = random.integers(0, 2**63, size=len(words)).astype(np.uint64)
    observed = observed_half(csr_array(case.counts), keys, 5).toarray()
    moved = observed_half(csr_array(case.counts[rows][:, words]), keys[words], 5).toarray()
    np.testing.assert_array_equal(moved, observed[rows][:, words])


def test_documents_of_the_same_words_and_other_counts_are_split_otherwise() -> None:
    counts = np.ones((50, 400), np.int64)
    counts[np.arange(50), np.arange(50)] = np.arange(2, 52)
    observed = observed_half(csr_array(counts), np.arange(400, dtype=np.uint64), 0).toarray()[:, 50:]
    alike = (observed[1:] == observed[:-1]).mean(axis=1)
    assert alike.max() < 0.65, "350 words that are once in each document"


@given(completion_cases, st.integers(0, 12))
def test_blocks_add_up(case: CompletionCase, cut: int) -> None:
    whole = case.completed()
    parts = case.completed(case.counts[:cut]).merge(case.completed(case.counts[cut:]))
    for name in ("documents", "too_short", "tokens", "unseen", "without_mass", "unconverged"):
        assert getattr(parts, name) == getattr(whole, name)
    assert parts.log_likelihood == pytest.approx(whole.log_likelihood, rel=1e-13)
    assert parts.unigram_log_likelihood == pytest.approx(whole.unigram_log_likelihood, rel=1e-13)


def test_the_seed_draws_other_halves_and_the_same_seed_the_same() -> None:
    case = CompletionCase(3)
    assert case.completed(seed=1) == case.completed(seed=1)
    assert case.completed(seed=1) != case.completed(seed=2)


def test_nothing_to_score_has_no_perplexity() -> None:
    for counts in (np.zeros((0, 30), int), np.zeros((2, 30), int)):
        found = CompletionCase(0).completed(counts)
        assert (found.tokens, found.documents, found.too_short) == (0, 0, len(counts))
        assert np.isnan([found.perplexity, found.unigram_perplexity, found.tokens_without_mass]).all()


# -- Topic shares of documents: those of the oracle, whatever stands beside a document --


class SharesCase:
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


shares_cases = st.integers(0, 2**16).map(SharesCase)


@given(case=shares_cases, seed=st.integers(0, 2**16))
def test_a_document_depends_on_its_own_words_alone(case: SharesCase, seed: int) -> None:
    whole = case.found().shares
    order = np.random.default_rng(seed).permutation(len(case.counts))
    np.testing.assert_array_equal(case.found(case.counts[order]).shares, whole[order])
    twice = case.found(np.repeat(case.counts, 2, axis=0)).shares
    np.testing.assert_array_equal(twice, np.repeat(whole, 2, axis=0))
    np.testing.assert_array_equal(case.found(case.counts[4:5]).shares, whole[4:5])


def test_threads_and_blocks_change_no_bit() -> None:
    case = SharesCase(1, n_documents=3 * BLOCK_DOCUMENTS + 5)
    one, three = case.found(threads=1), case.found(threads=3)
    np.testing.assert_array_equal(three.shares, one.shares)
    np.testing.assert_array_equal(three.remaining, one.remaining)
    assert case.found(case.counts[:0]).shares.shape == (0, 5)
    last = case.found(case.counts[-5:]).shares
    np.testing.assert_array_equal(one.shares[-5:], last)


@given(shares_cases)
def test_shares_are_those_of_the_oracle(case: SharesCase) -> None:
    for rounds in (1, 2, 6):
        found = case.found(tolerance=1e-30, max_iterations=rounds)
        expected = [shares_by_rounds(row, case.word_topic, case.prior, rounds) for row in case.counts]
        np.testing.assert_allclose(found.shares, expected, atol=3e-6)
        assert (found.iterations == rounds).sum() >= 8


@given(shares_cases)
@settings(max_examples=10)
def test_shares_converge(case: SharesCase) -> None:
    found = case.found(max_iterations=1000)
    expected = [shares_by_rounds(row, case.word_topic, case.prior, 500) for row in case.counts]
    assert found.unconverged == 0
    assert (found.remaining <= 1e-3).all()
    assert abs(found.shares - expected).sum(axis=1).max() < 0.1
    assert case.found(max_iterations=2).unconverged >= 5


def test_negligible_probabilities_change_nothing() -> None:
    case = SharesCase(2)
    with_traces = case.word_topic + 1e-300
    with_traces[3] = 0
    ours, theirs = (
        document_topics(csr_array(case.counts), B, case.prior).shares for B in (with_traces, case.word_topic)
    )
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_kinds_of_counts_give_the_same_bits() -> None:
    case = SharesCase(3)
    whole = np.floor(case.counts)
    expected = case.found(whole).shares
    for kind in (np.int32, np.int64, np.float32):
        block = csr_array(whole.astype(kind))
        for array in (block.data, block.indices, block.indptr):
            array.setflags(write=False)
        np.testing.assert_array_equal(document_topics(block, case.word_topic, case.prior).shares, expected)
