"""Anchors of drawn documents: the default finds topics about as well as the planted anchors do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from streaming_jsmf import InferSettings, ScanSettings, infer
from streaming_jsmf.cli.main import run
from streaming_jsmf.evaluation.matching import match_topics
from streaming_jsmf.simulation import simulate_lda
from streaming_jsmf.simulation.truth import read_truth
from streaming_jsmf.topics.infer import fit_moments
from tests import reference
from tests.corpora import planted, write_corpus
from tests.stores import scanned

WORDS, TOPICS = 300, 6


def errors(folder: Path, n_documents: int, seed: int) -> dict[str, float]:
    """Errors of topics with anchors of three kinds; narrow topics have few words each, many nearly anchors."""
    options = {"beta": 0.03, "mean_length": 60, "separable": True}
    corpus = simulate_lda(
        folder / f"{n_documents}-{seed}",
        n_documents=n_documents,
        n_words=WORDS,
        n_topics=TOPICS,
        seed=seed,
        **options,
    )
    truth = read_truth(corpus.root)
    assert truth.anchors is not None
    words = corpus.vocabulary().words
    moments = scanned(Path(corpus.root), folder / f"m-{n_documents}-{seed}", ScanSettings(max_topics=TOPICS))
    kinds = {
        "planted": InferSettings(TOPICS, anchor_words=[words[word] for word in truth.anchors]),
        "default": InferSettings(TOPICS),
        "papers": InferSettings(TOPICS, anchor_min_df=0, anchor_shrinkage=0, anchor_row_sum=0),
    }
    return {
        name: match_topics(fit_moments(moments, settings).arrays["word_topic"], truth.word_topic).mean_l1
        for name, settings in kinds.items()
    }


def test_the_default_is_near_the_planted_anchors_and_improves_with_the_documents(tmp_path: Path) -> None:
    few, many = ([errors(tmp_path, m, seed) for seed in range(2)] for m in (1_500, 12_000))
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
    moments = scanned(corpus, tmp_path / "m", ScanSettings(max_topics=4))
    each: list[dict[str, float]] = [{}, {"anchor_min_df": 0}, {"anchor_min_df": 0, "anchor_shrinkage": 0}]
    for number, options in enumerate(each):
        settings = InferSettings(4, **options)
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
