"""The scan that counts a model's words: exact, additive, the same bits everywhere, resumed, kept with the model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from numpy.typing import NDArray

from streaming_jsmf.cli.main import run
from streaming_jsmf.config import InferSettings, ScanSettings
from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.evaluation.counts import (
    StoredCounts,
    counts_of,
    counts_path,
    read_counts,
    read_training_counts,
    stored_corpora,
)
from streaming_jsmf.evaluation.inputs import sketch_probes
from streaming_jsmf.jobs.events import Event, StageStarted
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.storage.paths import store_path
from streaming_jsmf.topics.infer import infer
from streaming_jsmf.topics.store import Model, open_model, read_model, write_model
from tests import reference
from tests.corpora import Planted, words, write_corpus, write_lists
from tests.outcomes import described, printed
from tests.stores import SYNCHRONOUS, rename_words, scanned

#: A few steps will do: what is counted does not hang on how good the topics are.
QUICK = InferSettings(5, max_iterations=3)


@pytest.fixture(scope="module")
def fitted(corpus_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("counts")
    settings = ScanSettings(max_topics=5, partition_nonzeros=5000)
    infer(scanned(corpus_path, root / "moments", settings), root / "model", QUICK)
    return root / "model"


@pytest.fixture
def model_path(fitted: Path, tmp_path: Path) -> Path:
    """A copy to store counts with."""
    return Path(shutil.copytree(fitted, tmp_path / "model"))


def counted(model_path: Path, corpus: Path, execution: Execution = SYNCHRONOUS) -> StoredCounts:
    return counts_of(model_path, read_model(model_path), open_corpus(corpus), execution)


def dense_pairs(counts: NDArray[np.int64], chosen: NDArray[np.int64]) -> NDArray[np.int64]:
    """Documents of two tokens or more with both words."""
    present = counts[counts.sum(axis=1) >= 2][:, chosen] > 0
    return present.T.astype(np.int64) @ present


def dense_rows(counts: NDArray[np.int64], chosen: NDArray[np.int64]) -> NDArray[np.float64]:
    weights = reference.document_weights(counts.sum(axis=1), "capped")
    return reference.cooccurrence(counts, weights)[chosen]


def require_exact(found: StoredCounts, model: Model, counts: NDArray[np.int64]) -> None:
    """Pairs, rows of anchors and sketch are those of these counts, by the model's words."""
    np.testing.assert_array_equal(found.pairs, dense_pairs(counts, found.words))
    assert found.n_documents == (counts.sum(axis=1) >= 2).sum()
    assert found.anchor_rows is not None
    exact = dense_rows(counts, model.arrays["anchors"])
    np.testing.assert_allclose(found.anchor_rows, exact, rtol=1e-12, atol=1e-15)
    whole = dense_rows(counts, np.arange(120))
    np.testing.assert_allclose(found.sketch.row_sum, whole.sum(axis=1), rtol=1e-12)
    products = whole @ sketch_probes(120)
    np.testing.assert_allclose(found.sketch.products, products, atol=2e-6 * np.abs(products).max())


def test_training_counts_are_exact(model_path: Path, corpus_path: Path, documents: Planted) -> None:
    found, model = counted(model_path, corpus_path), read_model(model_path)
    arrays = model.arrays
    assert {*arrays["prominent_words"].ravel(), *arrays["anchors"]} <= {*found.words.tolist()}
    require_exact(found, model, documents.counts)
    np.testing.assert_array_equal(np.diag(found.pairs), arrays["document_frequency"][found.words])
    assert found.n_documents == model.metrics["n_documents"]
    assert found.anchor_rows is not None
    assert found.characteristic_words is not None
    order = np.argsort(-found.anchor_rows, axis=1, kind="stable")[:, :20]
    np.testing.assert_array_equal(found.characteristic_words, order)
    assert (found.corpus["words_found"], found.corpus["n_documents"]) == (120, 600)
    # Of these documents and this model only.
    fingerprint = open_corpus(corpus_path).fingerprint
    backwards = {**arrays, "prominent_words": arrays["prominent_words"][:, ::-1]}
    fewer = replace(model, metrics={**model.metrics, "n_documents": 599})
    assert read_counts(model_path, model, fingerprint) is not None
    assert read_counts(model_path, replace(model, arrays=backwards), fingerprint) is None
    assert read_training_counts(model_path, model) is not None
    assert read_training_counts(model_path, fewer) is None


def test_a_held_out_corpus_is_matched_by_its_words(
    model_path: Path, documents: Planted, tmp_path: Path
) -> None:
    # Half of the words under other ids, some unknown ones between them; some documents become too short.
    rng = np.random.default_rng(5)
    counts = np.hstack([documents.counts[:200, ::-2], rng.integers(0, 3, size=(200, 7))])
    counts[:20, :60] = 0
    counts[10:20, 3] = 1
    names = [*words(120)[::-2], *(f"new{i}" for i in range(7))]
    other = rename_words(write_corpus(tmp_path / "other", counts, shards=2), names)
    known = np.zeros((200, 120), dtype=np.int64)
    known[:, ::-2] = counts[:, :60]
    assert (known.sum(axis=1) < 2).sum() >= 20
    found, model = counted(model_path, other), read_model(model_path)
    require_exact(found, model, known)
    assert (found.corpus["words_found"], found.corpus["n_documents"]) == (60, 200)
    # The word lists of the model are about its own documents.
    assert read_training_counts(model_path, model) is None


def array_digests(model_path: Path) -> list[Any]:
    [group] = [path.parent for path in (model_path / "evaluation").glob("*/zarr.json")]
    attributes = json.loads((group / "zarr.json").read_text())["attributes"]
    return [attributes[name] for name in ("digests", "n_documents", "completion")]


@pytest.mark.parametrize(
    "execution",
    [Execution("threads", 3), pytest.param(Execution("processes", 2), marks=pytest.mark.slow)],
    ids=lambda e: e.scheduler,
)
def test_the_scheduler_changes_no_bit(
    execution: Execution, model_path: Path, corpus_path: Path, fitted: Path, tmp_path: Path
) -> None:
    counted(model_path, corpus_path, execution)
    shutil.copytree(fitted, tmp_path / "one")
    counted(tmp_path / "one", corpus_path)
    assert array_digests(model_path) == array_digests(tmp_path / "one")


def test_stored_counts_need_no_scan_and_no_corpus(
    model_path: Path, tmp_path: Path, corpus_path: Path
) -> None:
    corpus = shutil.copytree(corpus_path, tmp_path / "corpus")
    opened, model = open_corpus(corpus), read_model(model_path)
    events: list[Event] = []
    first = counts_of(model_path, model, opened, SYNCHRONOUS, events.append)
    started = [event for event in events if isinstance(event, StageStarted)]
    assert [event.stage for event in started] == ["counts"]
    assert min(len(event.sizes) for event in started) > 3
    shutil.rmtree(corpus)
    events.clear()
    second = counts_of(model_path, model, opened, SYNCHRONOUS, events.append)
    assert events == []
    trained = read_training_counts(model_path, model)
    assert trained is not None
    for found in (second, trained):
        np.testing.assert_array_equal(found.pairs, first.pairs)


def test_info_lists_counted_corpora(
    model_path: Path, corpus_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(open_model(model_path).variables)
    counted(model_path, corpus_path)
    assert sorted(open_model(model_path).variables) == before
    [corpus] = described(model_path, capsys)["counted_corpora"]
    assert corpus["path"] == str(corpus_path)
    kept = {path.name for path in (model_path / "evaluation").iterdir()}
    assert kept == {"zarr.json", counts_path(model_path, corpus["fingerprint"]).name}


def test_topics_show_exact_characteristic_words_once_counted(
    model_path: Path, corpus_path: Path, documents: Planted
) -> None:
    # A model whose own list is wrong, so that the exact one is told from it.
    model = read_model(model_path)
    arrays = {**model.arrays, "characteristic_words": np.tile(np.arange(20), (5, 1))}
    write_model(model_path, replace(model, arrays=arrays))

    def shown() -> list[set[str]]:
        rows = json.loads(printed("topics", model_path, "--json"))
        return [set(row["characteristic"]) for row in rows]

    assert shown() == [set(words(10))] * 5
    counted(model_path, corpus_path)
    rows = dense_rows(documents.counts, arrays["anchors"])
    names = np.array(words(120))
    assert shown() == [set(names[np.argsort(-row.round(15), kind="stable")[:10]]) for row in rows]


def test_damaged_counts_are_named(model_path: Path, corpus_path: Path) -> None:
    counted(model_path, corpus_path)
    group = counts_path(model_path, open_corpus(corpus_path).fingerprint)
    chunk, root = group / "document_pairs" / "c" / "0" / "0", group / "zarr.json"
    model, whole = read_model(model_path), root.read_text()
    damages: list[Callable[[], object]] = [
        lambda: chunk.write_bytes(chunk.read_bytes()[:-4]),
        lambda: chunk.unlink(),
        lambda: root.write_text(whole.replace('"n_documents": 600', '"n_documents": 500')),
        lambda: root.write_text("{"),
        lambda: root.unlink(),
    ]
    for damage in damages:
        data = chunk.read_bytes()
        damage()
        with pytest.raises(StoreError, match="evaluate with corpus") as caught:
            read_training_counts(model_path, model)
        assert str(group) in str(caught.value)
        assert "\n" not in str(caught.value)
        assert run(["info", str(model_path), "--json"]) == 3
        chunk.write_bytes(data)
        root.write_text(whole)


def test_a_corpus_that_cannot_be_counted_is_refused_and_leaves_nothing(
    model_path: Path, corpus_path: Path, tmp_path: Path
) -> None:
    ones = np.ones((40, 120), dtype=np.int64)
    single = np.eye(1, 120, 4, dtype=np.int64).repeat(6, axis=0)
    strange = rename_words(write_corpus(tmp_path / "strange", ones[:5, :3], shards=1), ["x", "y", "z"])
    with pytest.raises(InputError, match="120 words"):
        counted(model_path, strange)
    assert not (model_path / "evaluation").exists()
    broken = write_corpus(tmp_path / "broken", ones, shards=1)
    write_lists(broken / "part-00001.parquet", [[3, 2]], [[1, 1]])
    with pytest.raises(InputError, match=r"part-00001.parquet, row group 0, row 0"):
        counted(model_path, broken)
    assert [path.name for path in (model_path / "evaluation").iterdir()] == ["zarr.json"]
    with pytest.raises(InputError, match="two tokens"):
        counted(model_path, write_corpus(tmp_path / "single", single, shards=1))
    with pytest.raises(InputError, match="needs about"):
        counted(model_path, corpus_path, Execution("threads", 2, memory=10**6))
    assert stored_corpora(model_path) == []


@pytest.mark.slow
def test_counts_lie_behind_a_url_as_well(fitted: Path, corpus_path: Path, tmp_path: Path) -> None:
    url = f"memory://{tmp_path.name}"
    file_system = fsspec.filesystem("memory")
    file_system.put(str(fitted), f"/{tmp_path.name}/model", recursive=True)
    try:
        place = store_path(f"{url}/model")
        model: Model = read_model(place)
        opened = open_corpus(corpus_path)
        found = counts_of(place, model, opened, SYNCHRONOUS)
        again = read_training_counts(place, model)
        assert again is not None
        np.testing.assert_array_equal(found.pairs, again.pairs)
        left = file_system.find(f"/{tmp_path.name}/model/evaluation")
        assert not any("partial" in name or "unfinished" in name for name in left)
        assert sorted(open_model(place).variables) == sorted(open_model(fitted).variables)
    finally:
        file_system.rm(f"/{tmp_path.name}", recursive=True)
