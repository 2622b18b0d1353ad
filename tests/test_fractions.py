"""Counts that are no whole numbers, such as tf-idf: one C, of sum 1 and nowhere negative, on every path to it."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from pipelines.common.matching import match_topics
from streaming_jsmf import infer
from streaming_jsmf.config import InferSettings, ScanSettings
from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.evaluation.counts import counts_of, representatives
from streaming_jsmf.moments.store import Moments
from streaming_jsmf.topics.store import read_model
from tests import reference
from tests.corpora import Planted, words
from tests.stores import SYNCHRONOUS, scanned

Floats = NDArray[np.float64]
#: Factors as wide as there are words lose nothing.
SETTINGS = ScanSettings(max_topics=20, partition_nonzeros=5000)
EXACT = ScanSettings(max_topics=20, partition_nonzeros=5000, exact=True)


def weighted(kind: str, counts: NDArray[np.int64]) -> NDArray[np.float32]:
    """The planted documents as weights; a part of "mixed" stays whole."""
    if kind == "tf-idf":
        found = counts * np.log(len(counts) / np.maximum((counts > 0).sum(axis=0), 1))
        found /= np.linalg.norm(found, axis=1, keepdims=True)
    elif kind == "tenth":
        found = counts * 0.1
    else:
        found = counts * np.where(np.arange(len(counts)) % 3, 0.4, 1.0)[:, None]
    return found.astype(np.float32)


def write(directory: Path, values: NDArray[np.float32]) -> Path:
    directory.mkdir()
    ids = [np.flatnonzero(row) for row in values]
    columns = {
        "ids": pa.array(ids, pa.list_(pa.int32())),
        "counts": pa.array(
            [row[chosen] for row, chosen in zip(values, ids, strict=True)], pa.list_(pa.float32())
        ),
    }
    pq.write_table(pa.table(columns), directory / "part-00000.parquet", row_group_size=70)
    (directory / "vocab.txt").write_text("\n".join(words(values.shape[1])) + "\n", encoding="utf-8")
    return directory


def oracle(values: NDArray[np.float32]) -> Floats:
    """Document by document: no word goes with itself less than never, and each document has its weight in all."""
    C, total = np.zeros((values.shape[1],) * 2), 0.0
    for h in values.astype(float):
        n = h.sum()
        if n < 2:
            continue
        pairs = np.outer(h, h)
        for word, count in enumerate(h):
            pairs[word, word] = max(count * count - count, 0.0)
        weight = min(n, 200.0)
        C += weight * pairs / pairs.sum()
        total += weight
    return C / total


KINDS = pytest.mark.parametrize(
    "kind", ["mixed", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("tf-idf", "tenth"))]
)


@KINDS
def test_all_paths_to_the_co_occurrences_agree(kind: str, documents: Planted, tmp_path: Path) -> None:
    values = weighted(kind, documents.counts)
    corpus, expected = write(tmp_path / "corpus", values), oracle(values)
    exact = scanned(corpus, tmp_path / "exact", EXACT)
    plain = scanned(corpus, tmp_path / "plain", SETTINGS)
    tolerance = 3e-7 * expected.max()
    np.testing.assert_allclose(exact.cooccurrence(), expected, atol=tolerance)
    np.testing.assert_allclose(dense(plain), expected, atol=20 * tolerance)
    assert exact.cooccurrence().min() >= 0
    for C in (exact.cooccurrence(), dense(plain)):
        assert C.sum() == pytest.approx(1, abs=1e-6)
    for moments in (exact, plain):
        np.testing.assert_allclose(moments.row_sum, expected.sum(axis=1), rtol=1e-9, atol=1e-15)
    infer(plain, tmp_path / "model", InferSettings(5))
    model = read_model(tmp_path / "model")
    counted = counts_of(tmp_path / "model", model, open_corpus(corpus), SYNCHRONOUS)
    assert counted.cooccurrence is not None
    anchors = representatives(model)
    np.testing.assert_allclose(counted.cooccurrence.rows(anchors), expected[anchors], atol=1e-9)
    np.testing.assert_allclose(counted.cooccurrence.row_sum, expected.sum(axis=1), rtol=1e-6, atol=1e-12)


def dense(moments: Moments) -> Floats:
    return moments.cooccurrence_rows(np.arange(moments.n_words))


def test_of_whole_numbers_it_is_equation_1(documents: Planted) -> None:
    values = documents.counts.astype(np.float32)
    weights = reference.document_weights(documents.counts.sum(axis=1), "capped")
    np.testing.assert_allclose(
        oracle(values), reference.cooccurrence(documents.counts, weights), rtol=1e-12, atol=1e-18
    )


@pytest.mark.parametrize(("kind", "largest"), [("tenth", 0.3), ("mixed", 0.15)])
def test_topics_of_counts_times_a_number_are_near_the_truth(
    kind: str, largest: float, documents: Planted, tmp_path: Path
) -> None:
    """Of the counts themselves the error is .10; by the letter of Eq. 1 that of a tenth of them would be .54."""
    scanned(write(tmp_path / "corpus", weighted(kind, documents.counts)), tmp_path / "m", SETTINGS)
    found = infer(tmp_path / "m", tmp_path / "model", InferSettings(5)).arrays["word_topic"]
    assert match_topics(found, documents.word_topic).mean_l1 < largest


@pytest.mark.slow
@KINDS
def test_a_scan_reports_fractions_once(
    kind: str, documents: Planted, corpus_path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    values = weighted(kind, documents.counts)
    with caplog.at_level(logging.WARNING):
        scanned(corpus_path, tmp_path / "whole", SETTINGS)
        assert caplog.messages == []
        scanned(write(tmp_path / "corpus", values), tmp_path / "moments", SETTINGS)
    [message] = caplog.messages
    short = np.count_nonzero(values.astype(float).sum(axis=1) < 2)
    assert "the counts are not whole numbers" in message
    assert f"({short} documents whose counts sum to less than 2 are left out)" in message
