"""Estimators that grow batch by batch have the bits of a store that follows, and an error leaves them unchanged."""

from __future__ import annotations

import gc
import pickle
import shutil
from pathlib import Path
from typing import Any

import dask.array as da
import fsspec
import numpy as np
import pytest
from scipy.sparse import csr_array

from streaming_jsmf import LRJSMF, STOD, InferSettings, InputError, ScanSettings, StodSettings, infer, scan
from streaming_jsmf.corpus.write import matrix_blocks, write_corpus
from tests.cases import first_cases
from tests.corpora import planted, words

K, N = 3, 60
COUNTS = planted(360, N, K, length=60, seed=5).counts
BATCHES = (COUNTS[:150], COUNTS[150:151], COUNTS[151:])
ONE: dict[str, Any] = {"scheduler": "synchronous", "workers": 1, "feature_names": words(N)}


@pytest.mark.parametrize("engine", first_cases([LRJSMF, STOD]))
def test_batches_have_the_bits_of_a_corpus_that_is_followed(engine: type, tmp_path: Path) -> None:
    found = engine(K, **ONE)
    for batch in BATCHES:
        assert found.partial_fit(csr_array(batch)) is found
    is_stod, corpus = engine is STOD, tmp_path / "corpus"
    settings, done = ScanSettings(max_topics=K, third_moment=is_stod), 0
    for number, batch in enumerate(BATCHES):
        one = write_corpus(matrix_blocks(csr_array(batch)), words(N), tmp_path / f"{number}", done)
        done += len(batch)
        corpus.mkdir(exist_ok=True)
        shutil.copy(one.vocabulary_path, corpus)
        for shard in one.shards:
            shutil.copy(one.shard_path(shard), corpus / f"{number}-{Path(shard.name).name}")
        moments = scan(corpus, tmp_path / "m", settings, follow=True)
    expected = infer(moments, tmp_path / "z", StodSettings(K) if is_stod else InferSettings(K))
    np.testing.assert_array_equal(found.components_, expected.arrays["word_topic"].T)
    assert found.transform(COUNTS[:7]).shape == (7, K)


@pytest.mark.parametrize("exact", [False, True])
def test_batches_are_the_concatenation_up_to_rounding(exact: bool) -> None:
    """Every way to give documents: a matrix, a Dask array."""
    whole = LRJSMF(K, exact=exact, polish_steps=0, **ONE).fit(COUNTS)
    grown = LRJSMF(K, exact=exact, **ONE).partial_fit(BATCHES[0])
    grown.partial_fit(da.from_array(BATCHES[1])).partial_fit(da.from_array(BATCHES[2], chunks=(100, N)))
    # The rectification works in single precision and stops at a change of 1e-5.
    np.testing.assert_allclose(grown.components_, whole.components_, atol=1e-4)
    assert grown.score(da.from_array(COUNTS, chunks=(100, N))) == pytest.approx(
        grown.score(COUNTS), rel=1e-12
    )
    assert grown.metrics_["n_documents"] == whole.metrics_["n_documents"] == len(COUNTS)


def test_the_rows_go_with_the_estimator_unless_they_are_to_stay(tmp_path: Path) -> None:
    for store, left in ((None, []), (tmp_path / "m", ["m", "m.rows"])):
        found = LRJSMF(K, scratch=tmp_path, store=store, **ONE).partial_fit(BATCHES[0])
        assert [*tmp_path.iterdir()]
        del found
        gc.collect()
        assert sorted(path.name for path in tmp_path.iterdir()) == left
    with pytest.raises(InputError, match=r"m: exists already"):
        LRJSMF(K, store=tmp_path / "m", **ONE).partial_fit(BATCHES[0])


def test_copies_have_no_temporary_rows(tmp_path: Path) -> None:
    first, second = COUNTS[:300], COUNTS[300:]
    found = LRJSMF(K, **ONE).partial_fit(first)
    copied = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(copied.transform(second), found.transform(second))
    with pytest.raises(InputError, match="store="):
        copied.partial_fit(second)
    shared = LRJSMF(K, store=tmp_path / "moments", **ONE).partial_fit(first)
    kept = pickle.loads(pickle.dumps(shared))
    np.testing.assert_array_equal(kept.partial_fit(second).components_, found.partial_fit(second).components_)
    with pytest.raises(InputError, match="another copy of the estimator has added batches since"):
        shared.partial_fit(second[:9])


def test_a_refused_batch_changes_nothing(tmp_path: Path) -> None:
    store = tmp_path / "m"
    found = LRJSMF(K, store=store, **ONE)
    with pytest.raises(ValueError, match="at most 2 topics"):
        found.partial_fit(BATCHES[0][:2])
    assert not hasattr(found, "components_")
    assert [*tmp_path.iterdir()] == []
    found.partial_fit(BATCHES[0])
    before = found.components_
    for bad, line in (
        (BATCHES[2][:, 1:], "X has 59 features, but LRJSMF is expecting 60 features as input"),
        (-BATCHES[2], "Negative values"),
        (np.zeros((3, N), int), "would be an empty corpus"),
    ):
        with pytest.raises(ValueError, match=line):
            found.partial_fit(bad)
        np.testing.assert_array_equal(found.components_, before)
    other = write_corpus(matrix_blocks(csr_array(COUNTS)), [f"o{i}" for i in range(N)], tmp_path / "other")
    with pytest.raises(ValueError, match="has other words"):
        found.partial_fit(other)
    found.partial_fit(BATCHES[2])
    again = LRJSMF(K, **ONE).partial_fit(BATCHES[0]).partial_fit(BATCHES[2])
    np.testing.assert_array_equal(found.components_, again.components_)
    with pytest.raises(ValueError, match="settings of its own, which cannot change"):
        found.set_params(document_weights="uniform").partial_fit(BATCHES[2])


def test_batches_may_be_corpora_behind_urls(tmp_path: Path) -> None:
    counts, memory = (BATCHES[0], BATCHES[2]), "memory://batches"
    for number, batch in enumerate(counts):
        write_corpus(matrix_blocks(csr_array(batch)), words(N), tmp_path / f"{number}")
        fsspec.filesystem("memory").put(str(tmp_path / f"{number}"), f"/batches/{number}", recursive=True)
    far, here = (
        LRJSMF(K, **ONE).partial_fit(f"{place}/0").partial_fit(f"{place}/1") for place in (memory, tmp_path)
    )
    np.testing.assert_array_equal(far.components_, here.components_)
    assert far.metrics_["n_documents"] == sum(map(len, counts))


def test_after_fit_there_is_nothing_to_add_to() -> None:
    with pytest.raises(ValueError, match="no rows to add others to"):
        LRJSMF(K, **ONE).fit(BATCHES[0]).partial_fit(BATCHES[2])


@pytest.mark.parametrize(
    "texts", [["a text", "another"], np.array(["a", "b"]), (["a", "text"], ["of", "tokens"])]
)
def test_texts_and_counts_are_distinguished(texts: Any) -> None:
    with pytest.raises(ValueError, match="CountVectorizer"):
        LRJSMF(K).fit(texts)
