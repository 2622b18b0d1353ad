"""Polish as people use it: from a model and a corpus to a model, whatever runs it and however often it is killed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array

from streaming_jsmf.cli.main import cli
from streaming_jsmf.config import InferSettings, PolishSettings, ScanSettings, StodSettings
from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.corpus.csr import read_block
from streaming_jsmf.corpus.units import list_units
from streaming_jsmf.errors import InputError, SettingsMismatchError
from streaming_jsmf.inference import polish as polish_step
from streaming_jsmf.inference.perplexity import Completer
from streaming_jsmf.inference.polish import (
    HELD_OUT_DRAW,
    document_draws,
    first_topics,
    next_topics,
    over_relaxed,
    step_sums,
)
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.moments.scan import scan
from streaming_jsmf.topics.infer import infer
from streaming_jsmf.topics.parameters import TopicParameters
from streaming_jsmf.topics.polish import polish, polished_fingerprint
from streaming_jsmf.topics.store import Model, read_model
from tests.corpora import Planted, write_corpus

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


def by_hand(start: Path, corpus: Path, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Full steps over all documents in memory: topics, and the correlations at the last step."""
    given, opened = TopicParameters.of(read_model(start)), open_corpus(corpus)
    blocks = [read_block(unit, opened.n_words) for unit in list_units(opened)]
    topics = first_topics(given.word_topic, given.term_count / given.term_count.sum())
    for number in range(steps):
        parts = [step_sums(block, topics, given.prior, with_pairs=True, threads=1) for block in blocks]
        total = sum(parts[1:], start=parts[0])
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
@pytest.mark.parametrize("scheduler", ["threads", pytest.param("processes", marks=pytest.mark.slow)])
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
    with pytest.raises(SettingsMismatchError, match="unfinished polish that differs in"):
        polish(starts["lr-jsmf"], corpus, tmp_path / "out", ALL, execution=SYNCHRONOUS)
    done = len(calls)
    again = polish(starts["lr-jsmf"], corpus, tmp_path / "out", settings, execution=SYNCHRONOUS)
    units = len(list_units(open_corpus(corpus)))
    # A draw and two full steps, of which what was committed is not read again.
    assert len(calls) - done <= 3 * units - (fails_at - 1) * 2 + units
    for name, values in whole.arrays.items():
        np.testing.assert_array_equal(values, again.arrays[name], err_msg=name)
    assert whole.metrics["polish"]["perplexity"] == again.metrics["polish"]["perplexity"]


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
    """``fit`` is scan, infer and polish; without polish it is what ``infer`` makes."""
    run = CliRunner()
    options = ["--steps", "4", "--held-out", "20", "--scheduler", "synchronous"]
    for arguments in (
        ["fit", str(corpus), str(tmp_path / "fitted"), "--topics", str(TOPICS), *options],
        ["fit", str(corpus), str(tmp_path / "plain"), "--topics", str(TOPICS), "--no-polish"],
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
