"""documents --outliers: the documents that the topics explain least, compared with dense formulas."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import zarr

import streaming_jsmf as sj
from streaming_jsmf.documents.share_files import open_shares
from streaming_jsmf.topics.store import read_model
from tests.corpora import planted, words
from tests.outcomes import Command, refused

#: More words than documents.
K, N, M = 4, 80, 75
SHORT = 31


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, its corpus with a document of two words, and shares of it."""
    place = tmp_path_factory.mktemp("outliers")
    counts = planted(M, N, K, length=60, seed=5).counts.copy()
    counts[SHORT, np.flatnonzero(counts[SHORT])[2:]] = 0
    table = pd.DataFrame({"text": [" ".join(np.repeat(words(N), row)) for row in counts]})
    table["id"], table["kind"] = [f"d{row}" for row in range(M)], "plain"
    options = {
        "text": "text",
        "id": "id",
        "metadata": ["kind"],
        "stop_words": "none",
        "max_df": 1.0,
        "min_df": 1,
    }
    model = sj.fit(table, place / "model", K, progress=False, excerpt=0, **options)
    sj.transform(model, place / "model.corpus", place / "shares.parquet")
    return place


def dense_gains(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Gain of each document, and its number of distinct words."""
    counts, names = sj.corpus_to_matrix(sj.open_corpus(folder / "model.corpus"))
    dense, arrays = counts.toarray(), read_model(folder / "model").arrays
    order = [list(arrays["word"]).index(name) for name in names]
    unigram = arrays["term_count"][order] / arrays["term_count"].sum()
    found = open_shares(folder / "shares.parquet")
    theta = np.concatenate([theta for theta, _ in found.dense()])
    probability = 0.99 * theta @ arrays["word_topic"][order].T + 0.01 * unigram
    return (dense * np.log(probability / unigram)).sum(axis=1) / dense.sum(axis=1), (dense > 0).sum(axis=1)


def test_outliers_are_the_documents_of_least_gain(folder: Path) -> None:
    model, shares, corpus = folder / "model", folder / "shares.parquet", folder / "model.corpus"
    gain, distinct = dense_gains(folder)
    long_enough = np.flatnonzero(distinct >= distinct.mean() / 2)
    assert SHORT not in long_enough
    expected = long_enough[np.argsort(gain[long_enough], kind="stable")][:5]
    found = sj.least_explained_documents(model, shares, corpus, number=5)
    assert list(found) == ["document_id", "gain", "kind"]
    assert found["document_id"].tolist() == [f"d{row}" for row in expected]
    np.testing.assert_allclose(found["gain"], gain[expected], rtol=1e-6)
    edited = sj.TopicModel(model).save(folder / "edited").merge([0, 1])
    pd.testing.assert_frame_equal(edited.documents(shares, outliers=corpus, number=5), found)


def test_the_report_lists_them(folder: Path, invoke: Command, tmp_path: Path) -> None:
    page, shares = tmp_path / "page.html", folder / "shares.parquet"
    sj.report(folder / "model", page, shares=shares, corpus=folder / "model.corpus")
    section = page.read_text().partition('id="outliers"')[2].partition("</section>")[0]
    found = sj.least_explained_documents(folder / "model", shares, folder / "model.corpus")
    listed = re.findall(
        r'<li><p><span class="word">(d\d+)</span> <span class="faint">gain</span> <span class="number">([\d.]+)',
        section,
    )
    assert listed == [
        (name, f"{gain:.3f}") for name, gain in zip(found["document_id"], found["gain"], strict=True)
    ]
    assert section.count('<span class="word">plain</span>') == len(found) == 10
    outcome = invoke("report", folder / "model", tmp_path / "other.html", "--corpus", folder / "model.corpus")
    refused(outcome, 2, "--corpus", "--shares")


def test_the_verb_and_its_refusals(folder: Path, invoke: Command) -> None:
    line = ("documents", folder / "model", folder / "shares.parquet", "--outliers")
    rows = json.loads(invoke(*line, folder / "model.corpus", "--number", 3, "--json").out)
    found = sj.least_explained_documents(*line[1:3], folder / "model.corpus", number=3)
    assert [row["document_id"] for row in rows] == found["document_id"].tolist()
    refused(invoke(*line, folder / "model.corpus", "--topic", 1), 2, "--outliers", "--topic")


def test_the_corpus_must_be_that_of_the_shares(folder: Path, invoke: Command, tmp_path: Path) -> None:
    model, shares, other = folder / "model", folder / "shares.parquet", tmp_path / "other"
    # The same ids and columns, and other texts.
    texts = pd.DataFrame({"text": [" ".join(words(N))] * M, "id": [f"d{row}" for row in range(M)]})
    reading = {"text": "text", "id": "id", "min_df": 1, "max_df": 1.0, "stop_words": "none"}
    sj.ingest(texts.assign(year=2000), other, metadata=["year"], **reading)
    said = (f"{shares}: these are not shares of the corpus {other}; ",)
    refused(invoke("documents", model, shares, "--outliers", other), 2, *said)
    page = tmp_path / "page.html"
    refused(invoke("report", model, page, "--shares", shares, "--corpus", other), 2, *said)
    assert not page.exists()
    with pytest.raises(sj.InputError, match=re.escape(*said)):
        sj.model_to_pyldavis(model, other, shares)


def test_shares_are_verified_before_they_are_used(folder: Path, invoke: Command, tmp_path: Path) -> None:
    shares = tmp_path / "s.zarr"
    sj.transform(folder / "model", folder / "model.corpus", shares)
    [chunk] = [path for path in (shares / "topic_shares" / "c").rglob("*") if path.is_file()]
    line = ("documents", folder / "model", shares, "--outliers", folder / "model.corpus")
    zarr.open_array(shares / "topic_shares", mode="r+")[:] = np.nan
    refused(invoke(*line), 3, f"{shares}/topic_shares: values differ")
    chunk.unlink()
    refused(invoke(*line), 3, f"{shares}/topic_shares/c/0/0: chunk is missing")
