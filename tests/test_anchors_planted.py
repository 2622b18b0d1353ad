"""Anchors of drawn documents: the default finds topics about as well as the planted anchors do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from streaming_jsmf import InferSettings, ScanSettings, infer, scan
from streaming_jsmf.cli.main import run
from streaming_jsmf.config import SimulationSettings
from streaming_jsmf.evaluation.matching import match_topics
from streaming_jsmf.inference.law import AnchorRules, low_rank_anchor_words
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.linalg.eigen import with_fixed_signs
from streaming_jsmf.rectification.enn import epsilon_nonnegative
from streaming_jsmf.simulation.simulate import batch_documents, make_sampler, simulate_batch
from streaming_jsmf.simulation.truth import truth_of
from tests import reference
from tests.corpora import planted, write_corpus

Floats = NDArray[np.float64]
WORDS, TOPICS = 300, 6


def drawn_counts(n_documents: int, seed: int) -> tuple[NDArray[np.int64], Floats, NDArray[np.int64]]:
    """Documents, word_topic and anchors of narrow separable topics: few words each, many nearly anchors."""
    settings = SimulationSettings(n_documents, WORDS, TOPICS, seed, beta=0.03, mean_length=60, separable=True)
    truth, sampler = truth_of(settings), make_sampler(settings)
    counts = np.zeros((n_documents, WORDS), dtype=np.int64)
    start = 0
    for number in range(-(-n_documents // batch_documents(settings))):
        batch = simulate_batch(sampler, n_documents, number)
        size = len(batch.indptr) - 1
        row = np.repeat(np.arange(start, start + size), np.diff(batch.indptr))
        counts[row, batch.ids] = batch.counts
        start += size
    assert truth.anchors is not None
    return counts, truth.word_topic, truth.anchors


def errors(n_documents: int, seed: int) -> dict[str, float]:
    counts, word_topic, anchors = drawn_counts(n_documents, seed)
    counts = counts[counts.sum(axis=1) >= 2]
    lengths = counts.sum(axis=1, keepdims=True).astype(float)
    scaled = counts / np.sqrt(lengths * (lengths - 1))
    c = (scaled.T @ scaled - np.diag((counts / (lengths * (lengths - 1))).sum(axis=0))) / len(counts)
    values, vectors = np.linalg.eigh(c)
    y = epsilon_nonnegative(with_fixed_signs(values[-20:], vectors[:, -20:]), TOPICS).rectified
    frequency, settings, m = (counts > 0).sum(axis=0), InferSettings(TOPICS), len(counts)
    rules = {
        "planted": AnchorRules(given=[[int(word)] for word in anchors]),
        "default": AnchorRules("pivoted-qr", settings.anchor_floor(m), settings.shrinkage(m)),
        "papers": AnchorRules(),
    }
    u = (counts / lengths).mean(axis=0)
    return {
        name: match_topics(low_rank_anchor_words(y, u, frequency, rule).word_topic, word_topic).mean_l1
        for name, rule in rules.items()
    }


def test_the_default_is_near_the_planted_anchors_and_improves_with_the_documents() -> None:
    few, many = ([errors(m, seed) for seed in range(2)] for m in (1_500, 12_000))
    for found in (*few, *many):
        assert found["default"] <= 1.5 * found["planted"]
    means = [np.mean([found["default"] for found in group]) for group in (few, many)]
    assert means[1] < 0.6 * means[0]
    assert np.mean([found["papers"] for found in many]) > 2 * means[1], "the case must bite"


def test_words_of_one_document_are_not_anchors_and_do_no_harm(tmp_path: Path) -> None:
    counts = planted(600, 60, 4).counts
    rare = np.zeros((600, 40), dtype=np.int64)
    rare[np.arange(40) * 7, np.arange(40)] = np.arange(1, 41)
    corpus = write_corpus(tmp_path / "corpus", np.hstack([rare, counts]))
    moments = scan(corpus, tmp_path / "m", ScanSettings(max_topics=4), Execution("synchronous"))
    for number, settings in enumerate(
        (
            InferSettings(4),
            InferSettings(4, anchor_min_df=0),
            InferSettings(4, anchor_min_df=0, anchor_shrinkage=0),
        )
    ):
        arrays = infer(moments, tmp_path / f"model{number}", settings).arrays
        for name in ("word_topic", "topic_given_word", "topic_topic", "topic_probability"):
            assert np.isfinite(arrays[name]).all(), name
        if number < 2:
            # The shrinkage alone keeps them from being anchors.
            assert (arrays["anchors"] >= 40).all()


def test_more_topics_than_the_corpus_carries_end_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Three kinds of documents, over and over: C has no more than three positive eigenvalues.
    kinds = np.random.default_rng(0).integers(1, 9, (3, 30)) * (np.arange(30) % 3 == np.arange(3)[:, None])
    corpus = write_corpus(tmp_path / "corpus", np.tile(kinds, (100, 1)))
    assert (np.linalg.eigvalsh(reference.cooccurrence(np.tile(kinds, (100, 1)))) > 1e-9).sum() == 3
    assert run(["fit", str(corpus), str(tmp_path / "model"), "--topics", "5"]) == 2
    error = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]
    assert len(error) == 1
    assert "3" in error[0]
    assert "--topics" in error[0]
