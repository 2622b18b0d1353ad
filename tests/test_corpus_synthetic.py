"""Simulated corpora: same bytes however they are made, batches that stand alone, counts that follow the truth."""

from __future__ import annotations

import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.corpus.format import read_manifest, verify_corpus
from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.ingestion.simulation import documents as drawing
from streaming_jsmf.ingestion.simulation import read_truth, simulate_lda, simulate_truth
from streaming_jsmf.ingestion.simulation import simulate as simulating
from streaming_jsmf.ingestion.simulation.law import ANCHOR_PROBABILITY, Law, make_law
from streaming_jsmf.jobs.events import PartitionCommitted, StageFinished, StageStarted
from streaming_jsmf.jobs.execution import Execution
from tests.corpora import iter_documents

SIZES = {"n_words": 300, "n_topics": 4, "seed": 7}
ALONE = Execution("synchronous")


def law_of(*, mean_length=100, alpha=None, beta=None, separable=False, zipf=None, **sizes) -> Law:
    return make_law(
        sizes["n_words"], sizes["n_topics"], mean_length, alpha, beta, separable, zipf, sizes["seed"]
    )


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def dense(corpus):
    blocks = list(iter_documents(corpus))
    table = np.zeros((corpus.n_documents, corpus.n_words))
    first = 0
    for block in blocks:
        table[first + block.rows, block.ids] = block.counts
        first += block.n_documents
    return table


def test_same_arguments_same_documents_in_any_shards(tmp_path, monkeypatch):
    monkeypatch.setattr(drawing, "BATCH_TOKENS", 10_000)  # 100 documents

    def made(name, **changes):
        return simulate_lda(tmp_path / name, **{"n_documents": 500, **SIZES, **changes})

    whole = made("whole")
    assert [shard.rows for shard in whole.shards] == [500]
    for each, rows in ((200, [200, 200, 100]), (150, [150, 150, 150, 50]), (70, [70] * 7 + [10])):
        cut = made(f"by{each}", documents_per_shard=each)
        assert [shard.rows for shard in cut.shards] == rows
        assert [shard.name[-10:] for shard in cut.shards] == [f"{i:02d}.parquet" for i in range(len(rows))]
        assert np.array_equal(dense(cut), dense(whole))
    assert made("again", documents_per_shard=70).fingerprint == cut.fingerprint
    other = made("other", seed=8)
    assert not np.array_equal(dense(other), dense(whole))
    assert whole.vocabulary().words[:2] == ("w000", "w001")
    assert read_manifest(tmp_path / "whole").settings["seed"] == 7


@pytest.mark.slow
def test_same_bytes_on_every_scheduler(tmp_path):
    executions = {
        "synchronous": ALONE,
        "one": Execution("threads", 1),
        "three": Execution("threads", 3),
        "processes": Execution("processes", 2),
    }
    # Many topics make small batches, here of 2000 documents: a worker process would not see a patched size.
    sizes = {"n_words": 600, "n_topics": 500, "mean_length": 10, "alpha": 0.2, "seed": 7}
    for name, execution in executions.items():
        events = []
        simulate_lda(
            tmp_path / name,
            n_documents=5_000,
            documents_per_shard=2_000,
            execution=execution,
            listener=events.append,
            separable=True,
            **sizes,
        )
        assert events[0] == StageStarted("simulate", [2_000, 2_000, 1_000], frozenset(), "documents")
        assert isinstance(events[-1], StageFinished)
        committed = [event for event in events if isinstance(event, PartitionCommitted)]
        assert sorted(event.index for event in committed) == [0, 1, 2]
    expected = files(tmp_path / "synchronous")
    assert len([name for name in expected if name.startswith("documents/")]) == 3
    assert any(name.startswith("truth.zarr/anchors") for name in expected)
    for name in executions:
        assert files(tmp_path / name) == expected, name
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(executions)


def test_the_manifest_and_the_vocabulary_count_what_is_there(tmp_path, monkeypatch):
    monkeypatch.setattr(drawing, "BATCH_TOKENS", 10_000)
    corpus = simulate_lda(tmp_path / "a", n_documents=450, documents_per_shard=200, zipf=1.0, **SIZES)
    verify_corpus(corpus)
    table = dense(corpus)
    vocabulary = corpus.vocabulary()
    assert np.array_equal(vocabulary.document_frequency, (table > 0).sum(axis=0))
    assert np.array_equal(vocabulary.term_count, table.sum(axis=0))
    totals = read_manifest(tmp_path / "a").totals
    assert (totals.documents, totals.tokens) == (450, table.sum())


def test_batches_stand_alone_and_a_shorter_corpus_is_a_prefix(tmp_path, monkeypatch):
    monkeypatch.setattr(drawing, "BATCH_TOKENS", 10_000)
    corpus = simulate_lda(tmp_path / "a", n_documents=350, **SIZES)
    law = law_of(**SIZES)
    assert drawing.n_batches(law, 350) == 4
    batch = drawing.simulate_batch(drawing.make_sampler(law), 350, 3)
    assert batch.document_id.to_pylist() == list(range(300, 350))
    alone = np.zeros((50, 300))
    alone[batch.rows, batch.ids] = batch.counts
    table = dense(corpus)
    assert np.array_equal(alone, table[300:])
    assert not np.array_equal(table[0:50], table[100:150])
    shorter = simulate_lda(tmp_path / "b", n_documents=330, **SIZES)
    assert np.array_equal(dense(shorter), table[:330])


@pytest.mark.parametrize(
    "change",
    [{}, {"zipf": 1.0}, {"separable": True}, {"beta": 5.0}, {"beta": 1e-6}, {"n_words": 5, "n_topics": 1}],
)
def test_the_guide_gives_what_a_search_gives(change):
    sizes = {**SIZES, "n_words": 5000, **change}
    sampler = drawing.make_sampler(law_of(**sizes))
    truth = simulate_truth(**sizes)
    cells = sampler.guide.shape[1] - 1
    edges = np.arange(cells) / cells
    uniforms = np.concatenate(
        [edges, np.nextafter(edges[1:], 0), [np.nextafter(1, 0)], np.random.default_rng(0).random(50_000)]
    )
    for k in range(len(truth.alpha)):
        words = sampler.words(k, uniforms)
        assert words.dtype == np.int32
        assert np.array_equal(words, np.searchsorted(sampler.cumulative[k], uniforms, side="right"))
        assert (truth.word_topic[words, k] > 0).all()
    assert (sampler.cumulative[:, -1] == 1).all()


def test_wide_and_narrow_keys_count_the_same():
    keys = np.array([5, 1, 5, 9, 1, 5], np.uint64)
    identity = drawing.pa.array(range(3))
    for kind in (np.uint64, np.uint32):
        bags = drawing._bags(keys.astype(kind), 2, 3, identity)
        assert bags.indptr.tolist() == [0, 1, 2, 3]
        assert bags.ids.tolist() == [1, 1, 1]
        assert bags.counts.tolist() == [2, 3, 1]


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
    assert np.array_equal(rows, np.diag([ANCHOR_PROBABILITY] * 4))
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
    monkeypatch.setattr(drawing, "BATCH_TOKENS", 20_000)

    def peak(n_documents: int) -> int:
        tracemalloc.start()
        try:
            path = tmp_path / str(n_documents)
            simulate_lda(path, n_documents=n_documents, documents_per_shard=500, execution=ALONE, **SIZES)
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
        ({"beta": float("nan")}, "beta is nan"),
        ({"zipf": -1.0}, "zipf is -1"),
        ({"zipf": float("inf")}, "zipf is inf"),
        ({"seed": -1}, "seed is -1"),
        ({"mean_length": 0}, "mean_length is 0"),
    ],
)
def test_arguments_are_checked(tmp_path, change, message):
    with pytest.raises(InputError, match=message):
        simulate_lda(tmp_path / "a", **{"n_documents": 10, **SIZES, **change})
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("truth")
    for name in ("plain", "separable"):
        simulate_lda(
            root / name, n_documents=20, separable=name == "separable", alpha=[0.1, 0.2, 0.3, 0.4], **SIZES
        )
    return root


class TestTruthStore:
    @pytest.fixture
    def damaged(self, made, tmp_path):
        return Path(shutil.copytree(made / "separable", tmp_path / "copy"))

    @pytest.mark.parametrize("separable", [False, True])
    def test_gives_the_truth_back(self, made, separable):
        stored = read_truth(made / ("separable" if separable else "plain"))
        truth = simulate_truth(separable=separable, alpha=[0.1, 0.2, 0.3, 0.4], **SIZES)
        assert np.array_equal(stored.word_topic, truth.word_topic)
        assert np.array_equal(stored.alpha, truth.alpha)
        assert (stored.seed, stored.mean_length) == (7, 100.0)
        assert (stored.anchors is None) == (not separable)
        if separable:
            assert np.array_equal(stored.anchors, truth.anchors)

    @pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
    def test_opens_with_labels(self, made):
        truth = simulate_truth(separable=True, alpha=[0.1, 0.2, 0.3, 0.4], **SIZES)
        with xr.open_zarr(made / "separable" / "truth.zarr", consolidated=False) as data:
            assert set(data.data_vars) == {"word_topic", "alpha", "topic_topic", "anchors"}
            assert data.word_topic.dims == ("word", "topic")
            assert data.topic_topic.dims == ("topic", "topic_")
            column = data.word_topic.sel(word="w042").values
            assert np.array_equal(column, truth.word_topic[42])
            assert np.array_equal(data.topic_topic.values, truth.topic_topic)
            assert data.word.values.tolist() == list(open_corpus(made / "separable").vocabulary().words)

    @pytest.mark.parametrize("array", ["word_topic", "alpha", "anchors"])
    def test_damage_is_named(self, damaged, array):
        chunk = next(path for path in (damaged / "truth.zarr" / array / "c").rglob("*") if path.is_file())
        chunk.write_bytes(chunk.read_bytes()[:-4])
        with pytest.raises(StoreError, match=f"truth.zarr/{array}"):
            read_truth(damaged)
        chunk.unlink()
        with pytest.raises(StoreError, match=f"truth.zarr/{array}: values differ"):
            read_truth(damaged)

    def test_missing_and_unknown_metadata(self, damaged):
        metadata = damaged / "truth.zarr" / "zarr.json"
        whole = metadata.read_text()
        metadata.write_text(whole.replace('"mean_length"', '"length"'))
        with pytest.raises(StoreError, match="metadata lack mean_length"):
            read_truth(damaged)
        metadata.write_text(whole.replace('"format_version": 1', '"format_version": 2'))
        with pytest.raises(InputError, match="format version 2; this release reads"):
            read_truth(damaged)
        shutil.rmtree(damaged / "truth.zarr")
        with pytest.raises(InputError, match="no truth is here"):
            read_truth(damaged)


def test_a_small_budget_is_refused_before_anything_is_written(tmp_path):
    sizes = {**SIZES, "n_words": 100_000, "n_topics": 50, "n_documents": 10}
    with pytest.raises(
        InputError, match=r"the simulation needs about \d\d\d.\d+ MiB and --memory allows 95.37 MiB"
    ):
        simulate_lda(tmp_path / "a", execution=Execution("threads", 2, 100_000_000), **sizes)
    assert list(tmp_path.iterdir()) == []
    law = law_of(**sizes)
    needed = [
        simulating.simulation_memory(law, Execution(scheduler, workers))
        for scheduler, workers in (("synchronous", None), ("threads", 2), ("processes", 2))
    ]
    assert needed == sorted(needed)
    assert needed[1] < 1_500_000_000
    needed_by_one = simulating.simulation_memory(law, Execution("threads", 1))
    assert needed[0] == needed_by_one
