"""Simulated corpora: documents follow the truth, and the bytes depend only on the arguments, also after a kill."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from streaming_jsmf.config import SimulationSettings
from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.corpus.format import read_manifest, verify_corpus
from streaming_jsmf.errors import InputError, SettingsMismatchError, StoreError
from streaming_jsmf.jobs.checkpoints import Record
from streaming_jsmf.jobs.events import Event, PartitionCommitted, StageFinished, StageStarted
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.simulation import Truth, read_truth, simulate_lda
from streaming_jsmf.simulation import simulate as simulating
from streaming_jsmf.simulation.truth import ANCHOR_PROBABILITY, truth_of
from tests.corpora import dense, dense_rows, file_bytes
from tests.damage import SOME
from tests.outcomes import Command, refused

SIZES: dict[str, Any] = {"n_words": 300, "n_topics": 4, "seed": 7}
ALONE = Execution("synchronous")


def settings_of(**sizes) -> SimulationSettings:
    return SimulationSettings(**{"n_documents": 1, **sizes})


def simulate_truth(**sizes) -> Truth:
    """The topics of a corpus that is simulated with these arguments."""
    return truth_of(settings_of(**sizes))


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 documents of 100 tokens."""
    monkeypatch.setattr(simulating, "BATCH_TOKENS", 10_000)


# -- documents --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_batches")
def test_shards_do_not_change_the_documents(tmp_path):
    whole = simulate_lda(tmp_path / "whole", n_documents=500, **SIZES)
    assert [shard.rows for shard in whole.shards] == [500]
    for each, rows in ((200, [200, 200, 100]), (150, [150, 150, 150, 50]), (70, [70] * 7 + [10])):
        cut = simulate_lda(tmp_path / f"by{each}", n_documents=500, documents_per_shard=each, **SIZES)
        assert [shard.rows for shard in cut.shards] == rows
        assert [shard.name[-10:] for shard in cut.shards] == [f"{i:02d}.parquet" for i in range(len(rows))]
        assert np.array_equal(dense(cut), dense(whole))
    again = simulate_lda(tmp_path / "again", n_documents=500, documents_per_shard=70, **SIZES)
    assert again.fingerprint == cut.fingerprint
    other = simulate_lda(tmp_path / "other", n_documents=500, **{**SIZES, "seed": 8})
    assert not np.array_equal(dense(other), dense(whole))
    assert whole.vocabulary().words[:2] == ("w000", "w001")


@pytest.mark.slow
def test_same_bytes_on_every_scheduler(tmp_path):
    executions = {"synchronous": ALONE, "one": Execution("threads", 1), "three": Execution("threads", 3)}
    executions["processes"] = Execution("processes", 2)
    # Many topics make small batches, here of 2000 documents: a worker process does not see a patched size.
    sizes = {"n_words": 600, "n_topics": 500, "mean_length": 10, "alpha": 0.2, "seed": 7, "separable": True}
    sizes |= {"n_documents": 5_000, "documents_per_shard": 2_000}
    for name, execution in executions.items():
        events: list[Event] = []
        simulate_lda(tmp_path / name, execution=execution, listener=events.append, **sizes)
        assert events[0] == StageStarted("simulate", [2_000, 2_000, 1_000], frozenset(), "documents")
        assert isinstance(events[-1], StageFinished)
        assert sorted(e.index for e in events if isinstance(e, PartitionCommitted)) == [0, 1, 2]
        assert file_bytes(tmp_path / name) == file_bytes(tmp_path / "synchronous"), name
    assert len([name for name in file_bytes(tmp_path / "one") if name.startswith("documents/")]) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(executions)


@pytest.mark.usefixtures("small_batches")
def test_the_manifest_and_the_vocabulary_count_the_documents(tmp_path):
    corpus = simulate_lda(tmp_path / "a", n_documents=450, documents_per_shard=200, zipf=1.0, **SIZES)
    verify_corpus(corpus)
    table, vocabulary = dense(corpus), corpus.vocabulary()
    assert np.array_equal(vocabulary.document_frequency, (table > 0).sum(axis=0))
    assert np.array_equal(vocabulary.term_count, table.sum(axis=0))
    totals = read_manifest(tmp_path / "a").totals
    assert (totals.documents, totals.tokens) == (450, table.sum())


@pytest.mark.usefixtures("small_batches")
def test_batches_are_independent_and_a_shorter_corpus_is_a_prefix(tmp_path):
    table = dense(simulate_lda(tmp_path / "a", n_documents=350, **SIZES))
    batch = simulating.simulate_batch(simulating.make_sampler(settings_of(**SIZES)), 350, 3)
    assert batch.document_id.to_pylist() == list(range(300, 350))
    assert np.array_equal(dense_rows(batch, 300), table[300:])
    assert not np.array_equal(table[0:50], table[100:150])
    assert np.array_equal(dense(simulate_lda(tmp_path / "b", n_documents=330, **SIZES)), table[:330])


@pytest.mark.parametrize(
    "change",
    [{"zipf": 1.0}, {"separable": True}, {"beta": 1e-6}, {"n_words": 5, "n_topics": 1}],
)
def test_the_guide_agrees_with_a_search(change):
    sizes = {**SIZES, "n_words": 5000, **change}
    sampler = simulating.make_sampler(settings_of(**sizes))
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


def test_moments_follow_the_truth(tmp_path):
    sizes = {**SIZES, "n_words": 30, "beta": 0.3, "alpha": [0.5, 1.0, 0.25, 0.25], "mean_length": 40}
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


def test_a_small_budget_is_refused_before_anything_is_written(tmp_path):
    sizes = {**SIZES, "n_words": 100_000, "n_topics": 50}
    with pytest.raises(InputError, match=r"about \d\d\d.\d+ MiB .* 95.37 MiB"):
        simulate_lda(tmp_path / "a", n_documents=10, execution=Execution("threads", 2, 100_000_000), **sizes)
    assert list(tmp_path.iterdir()) == []
    executions = (ALONE, Execution("threads", 1), Execution("threads", 2), Execution("processes", 2))
    needed = [simulating.simulation_memory(settings_of(**sizes), execution) for execution in executions]
    assert needed[0] == needed[1] < needed[2] < needed[3]
    assert needed[2] < 1_500_000_000


# -- the truth --------------------------------------------------------------------------------------------------------


def test_truth_is_a_distribution_and_sparse_by_default():
    truth = simulate_truth(n_words=5000, n_topics=10, seed=1)
    assert truth.word_topic.shape == (5000, 10)
    np.testing.assert_allclose(truth.word_topic.sum(axis=0), 1, rtol=1e-12)
    assert (truth.word_topic >= 0).all()
    assert truth.anchors is None
    assert truth.alpha.tolist() == [0.1] * 10
    # A topic of Dirichlet(200/N) has a few hundred of the 5000 words.
    assert np.sort(truth.word_topic[:, 0])[-1000:].sum() > 0.95


def test_tiny_parameters_still_give_distributions(tmp_path):
    sizes = {"n_words": 10, "n_topics": 3, "beta": 1e-9, "seed": 1}
    np.testing.assert_allclose(simulate_truth(**sizes).word_topic.sum(axis=0), 1, rtol=1e-12)
    corpus = simulate_lda(tmp_path / "a", n_documents=50, alpha=1e-4, mean_length=0.1, **sizes)
    assert dense(corpus).sum(axis=1).min() == 1


def test_separable_anchors_belong_to_one_topic():
    truth = simulate_truth(separable=True, **SIZES)
    assert np.array_equal(truth.word_topic[truth.anchors], np.diag([ANCHOR_PROBABILITY] * 4))
    np.testing.assert_allclose(truth.word_topic.sum(axis=0), 1, rtol=1e-12)
    others = np.setdiff1d(np.arange(300), truth.anchors)
    ratio = truth.word_topic[others] / simulate_truth(**SIZES).word_topic[others]
    np.testing.assert_allclose(ratio, np.broadcast_to(ratio[:1], ratio.shape), rtol=1e-9)


def test_zipf_makes_frequencies_fall():
    sizes = {"n_words": 20_000, "n_topics": 50, "seed": 3}
    frequency = simulate_truth(zipf=1.0, **sizes).word_topic.mean(axis=1)
    blocks = [frequency[2**i : 2 ** (i + 1)].sum() for i in range(1, 13)]
    # 1 / rank puts the same mass in every octave of ranks.
    assert max(blocks) < 2 * min(blocks)
    flat = simulate_truth(**sizes).word_topic.mean(axis=1)
    assert flat[:2000].sum() < 0.15 < 0.6 < frequency[:2000].sum()


ALPHA = [0.1, 0.2, 0.3, 0.4]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("truth")
    for name in ("plain", "separable"):
        simulate_lda(root / name, n_documents=20, separable=name == "separable", alpha=ALPHA, **SIZES)
    return root


@pytest.fixture
def copy(made, tmp_path):
    return Path(shutil.copytree(made / "separable", tmp_path / "copy"))


@pytest.mark.parametrize("separable", [False, True])
def test_the_truth_is_stored(made, separable):
    stored = read_truth(made / ("separable" if separable else "plain"))
    truth = simulate_truth(separable=separable, alpha=ALPHA, **SIZES)
    assert (stored.seed, stored.mean_length) == (7, 100.0)
    for name in ("word_topic", "alpha", "anchors"):
        assert np.array_equal(getattr(stored, name), getattr(truth, name))
    assert (stored.anchors is None) == (not separable)


@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
def test_the_truth_opens_with_labels(made):
    truth = simulate_truth(separable=True, alpha=ALPHA, **SIZES)
    with xr.open_zarr(made / "separable" / "truth.zarr", consolidated=False) as data:
        assert set(data.data_vars) == {"word_topic", "alpha", "topic_topic", "anchors"}
        assert data.word_topic.dims == ("word", "topic")
        assert data.topic_topic.dims == ("topic", "topic_")
        assert np.array_equal(data.word_topic.sel(word="w042").values, truth.word_topic[42])
        assert np.array_equal(data.topic_topic.values, truth.topic_topic)
        assert data.word.values.tolist() == list(open_corpus(made / "separable").vocabulary().words)


@pytest.mark.parametrize("array", ["word_topic", "alpha", "anchors"])
@pytest.mark.parametrize("damage", SOME)
def test_a_damaged_truth_is_named(copy, array, damage):
    damage(next(path for path in (copy / "truth.zarr" / array / "c").rglob("*") if path.is_file()))
    with pytest.raises(StoreError, match=f"truth.zarr/{array}"):
        read_truth(copy)


def test_missing_and_unknown_metadata_of_the_truth(copy):
    metadata = copy / "truth.zarr" / "zarr.json"
    whole = metadata.read_text()
    metadata.write_text(whole.replace('"mean_length"', '"length"'))
    with pytest.raises(StoreError, match="mean_length"):
        read_truth(copy)
    metadata.write_text(whole.replace('"format_version": 1', '"format_version": 2'))
    with pytest.raises(InputError, match=r"format version 2; .* 1"):
        read_truth(copy)
    shutil.rmtree(copy / "truth.zarr")
    with pytest.raises(InputError, match="is a corpus, not a simulated corpus; give"):
        read_truth(copy)


# -- the verb ---------------------------------------------------------------------------------------------------------

SMALL = ("--vocabulary-size", 300, "--topics", 4)


def test_the_verb_passes_every_option(tmp_path: Path, invoke: Command) -> None:
    options = ["--alpha", 0.5, "--beta", 0.1, "--mean-length", 20, "--seed", 9, "--separable"]
    options += ["--zipf", 1.1, "--documents-per-shard", 30, "--workers", 1, "--memory", "4GB"]
    done = invoke("simulate", tmp_path / "a", "--documents", 70, *SMALL, *options)
    corpus = open_corpus(tmp_path / "a")
    assert done.out.splitlines() == [
        f"corpus: {tmp_path / 'a'} (70 documents, {corpus.nonzeros} nonzeros)",
        f"truth: {tmp_path / 'a' / 'truth.zarr'}",
    ]
    assert ([shard.rows for shard in corpus.shards], corpus.n_words) == ([30, 30, 10], 300)
    said = {"simulated": "lda", "n_topics": 4, "mean_length": 20.0, "alpha": "0.5 0.5 0.5 0.5"}
    said |= {"beta": 0.1, "separable": True, "zipf": 1.1, "seed": 9}
    assert read_manifest(tmp_path / "a").settings == said
    truth = read_truth(tmp_path / "a")
    assert truth.anchors is not None
    assert (truth.seed, truth.mean_length, truth.alpha.tolist()) == (9, 20.0, [0.5] * 4)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--documents", 5, "--topics", 2], "--vocabulary-size"),
        (["--documents", 5, *SMALL, "--zipf", "much"], "--zipf"),
        (["--documents", 5, *SMALL, "--alpha", "-1"], "--alpha must be positive"),
        (["--documents", 5, *SMALL, "--alpha", "1,2"], "--alpha has 2 values; "),
    ],
)
def test_the_verb_refuses_in_one_line(
    tmp_path: Path, invoke: Command, arguments: list[Any], named: str
) -> None:
    refused(invoke("simulate", tmp_path / "a", *arguments), 2, named)
    assert list(tmp_path.iterdir()) == []


FIVE_PARTS: dict[str, Any] = {**SIZES, "n_documents": 450, "documents_per_shard": 100, "execution": ALONE}


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_an_interrupted_simulation_is_finished_by_the_same_call(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, target, partial = simulating.write_part, tmp_path / "a", tmp_path / "a.partial"

    def interrupted(job: simulating.Simulation, part: int) -> Record:
        if len(job.folder.checkpoints("simulate").committed().parts) == 2:
            raise error
        return write(job, part)

    with monkeypatch.context() as patch:
        patch.setattr(simulating, "write_part", interrupted)
        with pytest.raises(type(error)):
            simulate_lda(target, **FIVE_PARTS)
    assert not target.exists()
    kept, before = {int(path.name) for path in (partial / "simulate").iterdir()}, file_bytes(partial)
    assert len(kept) == 2
    for change, named in (
        ({"seed": 8}, "seed: stored 7, asked 8"),
        ({"alpha": [1, 2, 3, 4]}, r"alpha: stored 0.25, asked \[1.0, 2.0, 3.0, 4.0\]"),
    ):
        with pytest.raises(SettingsMismatchError, match=named):
            simulate_lda(target, **{**FIVE_PARTS, **change})
    assert file_bytes(partial) == before
    (partial / ".task-half").mkdir()
    events: list[Event] = []
    simulate_lda(target, listener=events.append, **FIVE_PARTS)
    made = {e.index for e in events if isinstance(e, PartitionCommitted) and e.stage == "simulate"}
    assert made == {0, 1, 2, 3, 4} - kept
    simulate_lda(tmp_path / "undisturbed", **FIVE_PARTS)
    assert file_bytes(target) == file_bytes(tmp_path / "undisturbed")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "undisturbed"]


@pytest.mark.usefixtures("small_batches")
def test_a_late_worker_does_not_create_the_directory_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[simulating.Simulation] = []
    write = simulating.write_part
    monkeypatch.setattr(simulating, "write_part", lambda job, part: made.append(job) or write(job, part))
    simulate_lda(tmp_path / "a", **FIVE_PARTS)
    with pytest.raises(StoreError, match=r"a\.partial was removed"):
        write(made[0], 0)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
