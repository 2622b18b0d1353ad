"""Polishing: its steps against the oracle, and polished models."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array

from streaming_jsmf import fit, infer
from streaming_jsmf.cli.main import cli
from streaming_jsmf.config import InferSettings, PolishSettings, ScanSettings, StodSettings
from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.corpus.units import list_units, read_block
from streaming_jsmf.errors import InputError, SettingsMismatchError
from streaming_jsmf.inference import polish as polish_step
from streaming_jsmf.inference.cvb0 import LANE, smoothed
from streaming_jsmf.inference.perplexity import Completer
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
    in_sample,
    log_lengths,
    longest_document,
    next_topics,
    over_relaxed,
    plan_steps,
    sampled_range,
    step_sums,
)
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.moments.scan import scan
from streaming_jsmf.topics.parameters import TopicParameters
from streaming_jsmf.topics.polish import polish, polished_fingerprint
from streaming_jsmf.topics.store import Model, read_model
from tests.corpora import Planted, write_corpus
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


def added(parts: Iterable[StepSums]) -> StepSums:
    return StepSums(*map(sum, zip(*(vars(part).values() for part in parts), strict=True)))


def assert_close(found: StepSums, expected: StepSums) -> None:
    for name, values in vars(expected).items():
        np.testing.assert_allclose(getattr(found, name), values, **CLOSE, err_msg=name)


def step_case(n_topics: int, scale: float) -> tuple[Floats, Floats, Floats]:
    """Topics, one word of which is in none, the prior, and documents, one of which is empty."""
    random = np.random.default_rng(n_topics)
    topics = random.dirichlet(np.full(N_WORDS, 0.3), n_topics).T
    topics[3] = 0
    prior = random.gamma(1.0, 0.3, n_topics) + 0.01
    dense = random.poisson(0.4, (30, N_WORDS)) * scale
    dense[7] = 0
    return topics, prior, dense


@pytest.mark.parametrize("rounds", [2, 5])
@pytest.mark.parametrize("n_topics", [1, 3, LANE, LANE + 1])
@pytest.mark.parametrize("scale", [1, 0.3])
def test_a_step_is_that_of_the_oracle(n_topics: int, rounds: int, scale: float) -> None:
    topics, prior, dense = step_case(n_topics, scale)
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
    topics, prior, dense = step_case(n_topics, scale)
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
    assert_close(added(parts), whole)
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


@pytest.mark.parametrize(("n_topics", "typical"), [(1, 30.0), (2, 15.0), (3, 10.0), (50, 10.0)])
def test_a_document_counts_for_ten_typical_ones_or_a_tenth_of_a_topic(n_topics: int, typical: float) -> None:
    parts = [csr_array([[0, 0], [500, 500], [5, 5], [1, 9]])] * 100
    sums = [log_lengths(part) for part in parts]
    lengths = sum(log for log, _ in sums), sum(number for _, number in sums)
    assert lengths[1] == 300, "documents without words do not count"
    geometric_mean = (1000 * 10 * 10) ** (1 / 3)
    assert longest_document(*lengths, n_topics) == pytest.approx(typical * geometric_mean)
    assert longest_document(0.0, 0, n_topics) == math.inf


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
        assert_close(added(parts), whole)


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
    start = smoothed(np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]), np.array([4.0, 2.0, 2.0]))
    np.testing.assert_allclose(start.sum(axis=0), 1)
    assert (start[2] > 0).all()
    assert start[0, 0] > start[1, 1] > 0.9


@pytest.mark.parametrize("lengths", [[5] * 640, [0, 4000, 0, 1, 1, 1], [3], [0, 0], []])
def test_blocks_hold_each_document_once(lengths: list[int]) -> None:
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    found = blocks(indptr, n_words=10)
    assert len(found) <= MOST_BLOCKS
    assert [number for rows in found for number in range(rows.start, rows.stop)] == [*range(len(lengths))]
    assert all(rows.start < rows.stop for rows in found)
    if lengths == [5] * 640:
        assert len({indptr[rows.stop] - indptr[rows.start] for rows in found}) == 1, "even"


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


# -- Polish as people use it: from a model and a corpus to a model, whatever runs it and however often it is killed --


SYNCHRONOUS = Execution("synchronous")
WORDS, TOPICS = 60, 4
#: Two full steps, of which the first is over-relaxed.
ALL = PolishSettings(steps=2, held_out=0)


@pytest.fixture(scope="module")
def truth() -> Planted:
    """Topics without anchor words, where what is found without the documents is not the best."""
    random = np.random.default_rng(3)
    word_topic = random.dirichlet(np.full(WORDS, 0.3), TOPICS).T
    shares = random.dirichlet(np.full(TOPICS, 0.3), 800)
    return Planted(random.multinomial(40, shares @ word_topic.T), word_topic)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, truth) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpora") / "plain", truth.counts, row_group_rows=100)


@pytest.fixture(scope="module")
def starts(tmp_path_factory, corpus) -> dict[str, Path]:
    """A model of each engine, from one store in several partitions."""
    root = tmp_path_factory.mktemp("starts")
    settings = ScanSettings(max_topics=TOPICS, third_moment=True, partition_nonzeros=3000)
    moments = scan(corpus, root / "moments", settings, SYNCHRONOUS)
    for wanted in (InferSettings(TOPICS), StodSettings(TOPICS)):
        infer(moments, root / wanted.engine, wanted, workers=1)
    return {engine: root / engine for engine in ("lr-jsmf", "stod")}


@pytest.fixture
def small_sample(monkeypatch):
    """A sample of a fifth or so, and few documents for draws, so that the corpus is a large one."""
    monkeypatch.setattr(polish_step, "SAMPLE_NONZEROS", 4000)
    monkeypatch.setattr(polish_step, "DRAWN_DOCUMENTS", 100)


def by_hand(
    start: Path, corpus: Path, steps: int, longest: float = math.inf
) -> tuple[np.ndarray, np.ndarray]:
    """Full steps over all documents in memory: topics, and the correlations at the last step."""
    given, opened = TopicParameters.of(read_model(start)), open_corpus(corpus)
    blocks = [read_block(unit, opened.n_words) for unit in list_units(opened)]
    topics = smoothed(given.word_topic, given.term_count)
    for number in range(steps):
        parts = [
            step_sums(block, topics, given.prior, longest=longest, with_pairs=True, threads=1)
            for block in blocks
        ]
        total = added(parts)
        before, topics = topics, next_topics(total.tokens, last=number == steps - 1)
        topics = over_relaxed(topics, before) if number < steps - 1 else topics
    return topics, total.pairs / total.n_documents


@pytest.mark.parametrize("engine", ["lr-jsmf", "stod"])
@pytest.mark.parametrize("sample", [4000, pytest.param(10**9, marks=pytest.mark.slow)])
def test_all_documents_in_every_step(tmp_path, monkeypatch, starts, corpus, engine, sample):
    monkeypatch.setattr(polish_step, "SAMPLE_NONZEROS", sample)
    found = polish(starts[engine], corpus, tmp_path / "out", ALL, execution=SYNCHRONOUS)
    topics, correlations = by_hand(starts[engine], corpus, ALL.steps)
    np.testing.assert_allclose(found.arrays["word_topic"], topics, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(found.arrays["topic_topic_of_documents"], correlations, rtol=1e-4)
    assert found.metrics["polish"]["perplexity"] == []
    assert np.all(np.diff(found.metrics["polish"]["log_likelihood"]) > 0)
    stored = read_model(tmp_path / "out")
    assert stored.engine == engine
    np.testing.assert_array_equal(stored.arrays["word_topic"], found.arrays["word_topic"])
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_document_counts_for_at_most_a_tenth_of_a_topic(tmp_path, starts, truth):
    counts = truth.counts.copy()
    counts[0] *= 60
    corpus = write_corpus(tmp_path / "corpus", counts, row_group_rows=100)
    found = polish(starts["lr-jsmf"], corpus, tmp_path / "out", ALL, execution=SYNCHRONOUS)
    longest = 0.1 * 800 * 40 * 60 ** (1 / 800) / TOPICS  # twenty typical ones
    topics, _ = by_hand(starts["lr-jsmf"], corpus, ALL.steps, longest)
    np.testing.assert_allclose(found.arrays["word_topic"], topics, rtol=1e-4, atol=1e-7)
    uncut, _ = by_hand(starts["lr-jsmf"], corpus, ALL.steps)
    assert np.abs(uncut - topics).sum() > 0.01


def test_topics_get_nearer_the_truth(tmp_path):
    """Of topics without anchor words: by the sum of absolute differences, and by documents nobody has seen."""
    random = np.random.default_rng(3)
    truth, n_topics = random.dirichlet(np.full(300, 0.1), 8).T, 8
    counts = random.multinomial(40, random.dirichlet(np.full(n_topics, 0.1), 900) @ truth.T)
    corpus, unseen = write_corpus(tmp_path / "corpus", counts[:600]), csr_array(counts[600:].astype(float))
    moments = scan(corpus, tmp_path / "moments", ScanSettings(max_topics=n_topics), SYNCHRONOUS)
    start = infer(moments, tmp_path / "start", InferSettings(n_topics), workers=1)
    found = polish(tmp_path / "start", corpus, tmp_path / "out")

    def error(model: Model) -> float:
        distances = np.abs(model.arrays["word_topic"][:, :, None] - truth[:, None]).sum(axis=0)
        return float(distances[linear_sum_assignment(distances)].mean())

    def perplexity(model: Model) -> float:
        given = TopicParameters.of(model)
        return Completer.of(given.word_topic, given.prior, given.term_count).complete(unseen).perplexity

    assert error(found) < 0.9 * error(start)
    assert perplexity(found) < perplexity(start)


@pytest.mark.usefixtures("small_sample")
def test_documents_held_out_play_no_part(tmp_path, starts, corpus):
    """Steps see the others alone, and their perplexity is below that of the unigram distribution."""
    settings = PolishSettings(steps=6, held_out=16, seed=5)
    found = polish(starts["lr-jsmf"], corpus, tmp_path / "out", settings, execution=SYNCHRONOUS)
    opened = open_corpus(corpus)
    drawn = sum(
        int((document_draws(unit.content, unit.rows, HELD_OUT_DRAW, 5) < 16 / opened.n_documents).sum())
        for unit in list_units(opened)
    )
    told = found.metrics["polish"]
    assert drawn > 5
    assert told["n_documents"] == opened.n_documents - drawn
    assert [look["step"] for look in told["perplexity"]] == [4, 5, 6]
    for look in told["perplexity"]:
        assert look["perplexity"] < 0.9 * look["unigram_perplexity"]
        assert look["documents"] == drawn


@pytest.mark.usefixtures("small_sample")
@pytest.mark.parametrize(
    "scheduler",
    ["threads", *(pytest.param(name, marks=pytest.mark.slow) for name in ("processes", "cluster"))],
)
def test_who_runs_it_changes_no_bit(tmp_path, starts, corpus, scheduler):
    settings = PolishSettings(steps=6)
    alone = polish(starts["lr-jsmf"], corpus, tmp_path / "a", settings, execution=SYNCHRONOUS)
    other = polish(starts["lr-jsmf"], corpus, tmp_path / "b", settings, execution=Execution(scheduler, 3))
    for name, values in alone.arrays.items():
        np.testing.assert_array_equal(values, other.arrays[name], err_msg=name)


@pytest.mark.usefixtures("small_sample")
@pytest.mark.parametrize(
    "fails_at", [9, *(pytest.param(number, marks=pytest.mark.slow) for number in (1, 6))]
)
def test_an_interrupted_run_resumes(tmp_path, monkeypatch, starts, corpus, fails_at):
    settings = PolishSettings(steps=6, held_out=40)
    whole = polish(starts["lr-jsmf"], corpus, tmp_path / "whole", settings, execution=SYNCHRONOUS)
    read, calls = read_block, []

    def failing(unit, n_words):
        calls.append(unit)
        if len(calls) == fails_at * 2:
            raise KeyboardInterrupt
        return read(unit, n_words)

    monkeypatch.setattr("streaming_jsmf.topics.document_job.read_block", failing)
    with pytest.raises(KeyboardInterrupt):
        polish(starts["lr-jsmf"], corpus, tmp_path / "out", settings, execution=SYNCHRONOUS)
    with pytest.raises(SettingsMismatchError, match="unfinished polish of another request: "):
        polish(starts["lr-jsmf"], corpus, tmp_path / "out", ALL, execution=SYNCHRONOUS)
    done = len(calls)
    again = polish(starts["lr-jsmf"], corpus, tmp_path / "out", settings, execution=SYNCHRONOUS)
    units = len(list_units(open_corpus(corpus)))
    # A draw and two full steps, of which what was committed is not read again.
    assert len(calls) - done <= 3 * units - (fails_at - 1) * 2
    for name, values in whole.arrays.items():
        np.testing.assert_array_equal(values, again.arrays[name], err_msg=name)
    assert whole.metrics["polish"]["perplexity"] == again.metrics["polish"]["perplexity"]


@pytest.mark.usefixtures("small_sample")
def test_a_run_killed_while_it_clears_a_step_resumes(tmp_path, monkeypatch, starts, corpus):
    settings = PolishSettings(steps=6)
    whole = polish(starts["lr-jsmf"], corpus, tmp_path / "whole", settings, execution=SYNCHRONOUS)
    remove = shutil.rmtree

    def killed(path, **options):
        remove(path, **options)
        if path.name.startswith("step-5-part") and path.parent.name == "records":
            raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        polish(starts["lr-jsmf"], corpus, tmp_path / "out", settings, execution=SYNCHRONOUS)
    monkeypatch.setattr(shutil, "rmtree", remove)
    again = polish(starts["lr-jsmf"], corpus, tmp_path / "out", settings, execution=SYNCHRONOUS)
    np.testing.assert_array_equal(whole.arrays["word_topic"], again.arrays["word_topic"])


def test_words_are_matched_by_name(tmp_path, starts, corpus, truth):
    """Another order of words and words that the model lacks change nothing but digits."""
    order = np.random.default_rng(0).permutation(WORDS)
    more = np.column_stack([truth.counts[:, order], np.ones(len(truth.counts), np.int64)])
    other = write_corpus(tmp_path / "other", more)
    names = (corpus / "vocab.txt").read_text().split()
    (other / "vocab.txt").write_text("\n".join([*(names[i] for i in order), "unknown"]) + "\n")
    plain = polish(starts["lr-jsmf"], corpus, tmp_path / "a", ALL)
    found = polish(starts["lr-jsmf"], other, tmp_path / "b", ALL)
    np.testing.assert_allclose(found.arrays["word_topic"], plain.arrays["word_topic"], rtol=1e-3, atol=1e-6)


def test_what_cannot_be_polished(tmp_path, starts, corpus):
    nothing = write_corpus(tmp_path / "nothing", np.ones((20, 3), np.int64))
    (nothing / "vocab.txt").write_text("x\ny\nz\n")
    with pytest.raises(InputError, match="none of the 60 words of the model"):
        polish(starts["lr-jsmf"], nothing, tmp_path / "out")
    with pytest.raises(InputError, match="exists already"):
        polish(starts["lr-jsmf"], corpus, starts["stod"])
    with pytest.raises(InputError, match="memory"):
        polish(starts["lr-jsmf"], corpus, tmp_path / "out", execution=Execution("synchronous", memory=2**20))
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith(".")) == ["nothing"]
    with pytest.raises(InputError, match="steps is 0; give a whole number of at least 1"):
        PolishSettings(steps=0)
    with pytest.raises(InputError, match="rounds is 1; give a whole number of at least 2"):
        PolishSettings(rounds=1)


def test_a_model_of_another_algorithm_is_another_model(monkeypatch, corpus):
    request = ("start", open_corpus(corpus), ALL)
    now = polished_fingerprint(*request)
    assert now == polished_fingerprint(*request)
    monkeypatch.setattr("streaming_jsmf.topics.polish.ALGORITHM_VERSION", 3)
    assert now != polished_fingerprint(*request)


def test_the_verb_and_fit_agree(tmp_path, corpus):
    """``fit`` is scan, infer and polish, with the tolerance that its model records."""
    run = CliRunner()
    options = ["--steps", "4", "--held-out", "20", "--scheduler", "synchronous"]
    fitting = ["--topics", str(TOPICS), "--scheduler", "synchronous"]
    for arguments in (
        ["fit", str(corpus), str(tmp_path / "fitted"), "--topics", str(TOPICS), *options],
        ["fit", str(corpus), str(tmp_path / "plain"), *fitting, "--no-polish", "--tolerance", "1e-4"],
        ["fit", str(corpus), str(tmp_path / "end"), *fitting, "--no-polish"],
        ["polish", str(tmp_path / "plain"), str(corpus), str(tmp_path / "polished"), *options],
    ):
        outcome = run.invoke(cli, arguments)
        assert outcome.exit_code == 0, outcome.output
    fitted, polished = read_model(tmp_path / "fitted"), read_model(tmp_path / "polished")
    for name, values in fitted.arrays.items():
        np.testing.assert_array_equal(values, polished.arrays[name], err_msg=name)
    assert fitted.provenance["fingerprint"] == polished.provenance["fingerprint"]
    assert "polish" not in read_model(tmp_path / "plain").metrics
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".partial")]
    alone = read_model(tmp_path / "end")
    assert (fitted.settings["tolerance"], alone.settings["tolerance"]) == (1e-4, 1e-5)
    steps = [model.metrics["rectification"] for model in (fitted, alone)]
    assert steps[0]["iterations"] < steps[1]["iterations"]
    assert 1e-5 < steps[0]["change"] < 1e-4


@pytest.mark.parametrize(
    ("options", "used"),
    [({}, 1e-4), ({"tolerance": 1e-3}, 1e-3), ({"rectify": "palm"}, 1e-5), ({"acceleration": "none"}, 1e-5)],
)
def test_only_the_default_rectification_stops_early_before_polish(options, used, tmp_path, corpus):
    for polished, tolerance in ((True, used), (False, options.get("tolerance", 1e-5))):
        path = tmp_path / f"{polished}"
        fit(corpus, path, TOPICS, moments=tmp_path / "moments", polish=polished, steps=1, **options)
        assert read_model(path, ()).settings["tolerance"] == tolerance
