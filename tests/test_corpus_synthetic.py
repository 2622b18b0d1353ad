"""Simulated corpora: same bytes, batches that stand alone, and counts that follow the truth."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from streaming_jsmf.corpus import simulate_lda, simulate_truth, synthetic
from streaming_jsmf.corpus.documents import iter_documents
from streaming_jsmf.corpus.format import read_manifest
from streaming_jsmf.errors import InputError

SIZES = {"n_words": 300, "n_topics": 4, "seed": 7}


def dense(corpus):
    blocks = list(iter_documents(corpus))
    table = np.zeros((corpus.n_documents, corpus.n_words))
    first = 0
    for block in blocks:
        table[first + block.rows, block.ids] = block.counts
        first += block.n_documents
    return table


def test_same_arguments_same_bytes_and_shards_do_not_matter(tmp_path):
    one = simulate_lda(tmp_path / "a", n_documents=500, documents_per_shard=200, **SIZES)
    two = simulate_lda(tmp_path / "b", n_documents=500, documents_per_shard=200, **SIZES)
    assert one.fingerprint == two.fingerprint
    assert [shard.rows for shard in one.shards] == [200, 200, 100]
    whole = simulate_lda(tmp_path / "c", n_documents=500, **SIZES)
    assert len(whole.shards) == 1
    assert np.array_equal(dense(one), dense(whole))
    other = simulate_lda(tmp_path / "d", n_documents=500, **{**SIZES, "seed": 8})
    assert not np.array_equal(dense(other), dense(one))
    assert one.n_words == 300
    assert one.vocabulary().words[:2] == ("w000", "w001")
    assert read_manifest(tmp_path / "a").settings["seed"] == 7


def test_batches_stand_alone_and_a_shorter_corpus_is_a_prefix(tmp_path, monkeypatch):
    monkeypatch.setattr(synthetic, "BATCH_TOKENS", 10_000)
    corpus = simulate_lda(tmp_path / "a", n_documents=350, **SIZES)
    truth = simulate_truth(**SIZES)
    assert synthetic.n_batches(truth, 350) == 4
    batch = synthetic.simulate_batch(truth, synthetic.cumulative_words(truth), 350, 3)
    assert batch.document_id.to_pylist() == list(range(300, 350))
    alone = np.zeros((50, 300))
    alone[batch.rows, batch.ids] = batch.counts
    table = dense(corpus)
    assert np.array_equal(alone, table[300:])
    assert not np.array_equal(table[0:50], table[100:150])
    shorter = simulate_lda(tmp_path / "b", n_documents=330, **SIZES)
    assert np.array_equal(dense(shorter), table[:330])


def test_moments_follow_the_truth(tmp_path):
    alpha = [0.5, 1.0, 0.25, 0.25]
    sizes = {**SIZES, "n_words": 30, "beta": 0.3, "alpha": alpha, "mean_length": 40}
    table = dense(simulate_lda(tmp_path / "a", n_documents=20_000, **sizes))
    truth = simulate_truth(**sizes)
    lengths = table.sum(axis=1)
    assert abs(lengths.mean() - 40) < 5 * np.sqrt(40 / 20_000)
    assert 38 < lengths.var() < 42
    shares = truth.alpha / truth.alpha.sum()
    assert np.abs(table.sum(axis=0) / table.sum() - truth.word_topic @ shares).max() < 0.006
    # Pairs of distinct tokens of a document: E[h h' - diag(h)] / (n (n - 1)) = B A B'.
    weight = 1 / np.sqrt(lengths * (lengths - 1))
    scaled = table * weight[:, None]
    pairs = (scaled.T @ scaled - np.diag((table * weight[:, None] ** 2).sum(axis=0))) / len(table)
    expected = truth.word_topic @ truth.topic_topic @ truth.word_topic.T
    assert np.isclose(truth.topic_topic.sum(), 1, rtol=1e-12)
    assert np.abs(pairs - expected).max() < 0.03 * expected.max()
    uncorrelated = np.outer(expected.sum(axis=0), expected.sum(axis=0))
    assert np.abs(uncorrelated - expected).max() > 0.15 * expected.max()


def test_truth_is_a_distribution_and_sparse_by_default():
    truth = simulate_truth(n_words=5000, n_topics=10, seed=1)
    assert truth.word_topic.shape == (5000, 10)
    np.testing.assert_allclose(truth.word_topic.sum(axis=0), 1, rtol=1e-12)
    assert (truth.word_topic >= 0).all()
    assert truth.anchors is None
    assert truth.alpha.tolist() == [0.1] * 10
    # A topic of Dirichlet(200/N) lives on a few hundred of the 5000 words.
    assert np.sort(truth.word_topic[:, 0])[-1000:].sum() > 0.95


def test_tiny_parameters_still_give_distributions(tmp_path):
    truth = simulate_truth(n_words=10, n_topics=3, beta=1e-9, seed=1)
    np.testing.assert_allclose(truth.word_topic.sum(axis=0), 1, rtol=1e-12)
    corpus = simulate_lda(
        tmp_path / "a", n_documents=50, n_words=10, n_topics=3, alpha=1e-4, beta=1e-9, mean_length=0.1, seed=1
    )
    assert dense(corpus).sum(axis=1).min() == 1


def test_separable_anchors_belong_to_one_topic():
    truth = simulate_truth(separable=True, **SIZES)
    rows = truth.word_topic[truth.anchors]
    assert np.array_equal(rows, np.diag([synthetic.ANCHOR_PROBABILITY] * 4))
    np.testing.assert_allclose(truth.word_topic.sum(axis=0), 1, rtol=1e-12)
    plain = simulate_truth(**SIZES).word_topic
    others = np.setdiff1d(np.arange(300), truth.anchors)
    ratio = truth.word_topic[others] / plain[others]
    np.testing.assert_allclose(ratio, np.broadcast_to(ratio[:1], ratio.shape), rtol=1e-9)


def test_zipf_makes_frequencies_fall():
    truth = simulate_truth(n_words=20_000, n_topics=50, zipf=1.0, seed=3)
    frequency = truth.word_topic.mean(axis=1)
    blocks = [frequency[2**i : 2 ** (i + 1)].sum() for i in range(1, 13)]
    # 1 / rank puts the same mass in every octave of ranks.
    assert max(blocks) < 2 * min(blocks)
    flat = simulate_truth(n_words=20_000, n_topics=50, seed=3).word_topic.mean(axis=1)
    assert flat[:2000].sum() < 0.15 < 0.6 < frequency[:2000].sum()


def test_memory_does_not_grow_with_the_documents(tmp_path, monkeypatch):
    monkeypatch.setattr(synthetic, "BATCH_TOKENS", 20_000)

    def peak(n_documents: int) -> int:
        tracemalloc.start()
        try:
            simulate_lda(
                tmp_path / str(n_documents), n_documents=n_documents, documents_per_shard=500, **SIZES
            )
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(500)
    assert peak(8000) < 1.3 * peak(2000)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_documents": 0}, "n_documents"),
        ({"documents_per_shard": 0}, "documents_per_shard"),
        ({"n_words": 0}, "n_words is 0"),
        ({"n_words": 4, "separable": True}, "above n_topics when separable"),
        ({"n_topics": 0}, "n_topics is 0"),
        ({"alpha": [1.0, 2.0]}, "alpha has 2 values"),
        ({"alpha": -1.0}, "alpha must be positive"),
        ({"beta": 0.0}, "beta is 0"),
        ({"zipf": -1.0}, "zipf is -1"),
        ({"seed": -1}, "seed is -1"),
        ({"mean_length": 0}, "mean_length is 0"),
    ],
)
def test_arguments_are_checked(tmp_path, change, message):
    with pytest.raises(InputError, match=message):
        simulate_lda(tmp_path / "a", **{"n_documents": 10, **SIZES, **change})
    assert list(tmp_path.iterdir()) == []
