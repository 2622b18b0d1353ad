"""Perplexity in ``evaluate``: the oracle's sums, whatever the partitions, shards and words; of both engines."""

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
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.config import InferSettings, ScanSettings, StodSettings
from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.corpus.units import Partition
from streaming_jsmf.evaluation.counts import counts_of
from streaming_jsmf.evaluation.evaluate import EvaluationRequest, evaluate
from streaming_jsmf.evaluation.word_counts import CountReduction
from streaming_jsmf.inference.perplexity import SMOOTHING, Completion, observed_half
from streaming_jsmf.ingestion.repeats import hash_values
from streaming_jsmf.jobs.checkpoints import PartialResult
from streaming_jsmf.jobs.events import Event, StageStarted
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.moments.scan import scan
from streaming_jsmf.reporting.report import report
from streaming_jsmf.topics.infer import infer
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


def test_a_report_and_a_second_evaluation_show_what_is_stored(
    models: Path, corpus_path: Path, tmp_path: Path
) -> None:
    model = Path(shutil.copytree(models / "stod", tmp_path / "model"))
    first = evaluate(model, EvaluationRequest(corpus=str(corpus_path)), SYNCHRONOUS)
    assert evaluate(model)["metrics"]["perplexity"] == first["metrics"]["perplexity"]
    page = report(model, tmp_path / "page.html")
    assert isinstance(page, Path)
    assert f"{first['metrics']['perplexity']['model']:.4g}" in page.read_text(encoding="utf-8")


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
