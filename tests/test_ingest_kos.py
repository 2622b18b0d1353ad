"""A real data set in its published form: the KOS blog entries as UCI docword files, through the reader and the spec."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from streaming_jsmf.config import IngestRequest
from streaming_jsmf.corpus.format import read_manifest
from streaming_jsmf.ingestion.ingest import ingest
from tests.corpora import rows_of

ROOT = Path(__file__).parent.parent
KOS = Path(__file__).parent / "data" / "uci_kos"
SIZES = {"documents": 3430, "words": 6906, "nonzeros": 353_160, "tokens": 467_714}
NOTHING = {"stop_words": "none", "min_distinct_words": 0, "min_tokens": 0}


@pytest.fixture(scope="module")
def table():
    read = pq.read_table(sorted(KOS.glob("part-*.parquet")))
    return sorted(read.to_pylist(), key=lambda row: row["doc_id"])


@pytest.fixture(scope="module")
def docword(tmp_path_factory, table) -> Path:
    """The four Parquet files written back as docword.kos.txt.gz and vocab.kos.txt."""
    directory = tmp_path_factory.mktemp("kos")
    lines = [
        f"{number} {word + 1} {count}\n"
        for number, row in enumerate(table, 1)
        for word, count in zip(row["ids"], row["counts"], strict=True)
    ]
    header = f"{SIZES['documents']}\n{SIZES['words']}\n{len(lines)}\n"
    (directory / "docword.kos.txt.gz").write_bytes(gzip.compress((header + "".join(lines)).encode(), 6))
    (directory / "vocab.kos.txt").write_bytes((KOS / "vocab.txt").read_bytes())
    return directory


def test_docword_and_parquet_give_the_published_documents(tmp_path, docword, table):
    corpus = ingest(docword, tmp_path / "a", IngestRequest(curation=NOTHING))
    manifest = read_manifest(tmp_path / "a")
    assert manifest.totals.model_dump() == SIZES
    assert all((step.words, step.documents, step.tokens) == (0, 0, 0) for step in manifest.dropped)
    assert corpus.vocabulary().words == tuple((KOS / "vocab.txt").read_text().split())
    rows = rows_of(corpus)
    assert [(row["ids"], row["counts"]) for row in rows] == [(row["ids"], row["counts"]) for row in table]
    assert [row["document_id"] for row in rows] == list(range(1, 3431))
    other = ingest(KOS, tmp_path / "b", IngestRequest(curation=NOTHING))
    assert (other.vocabulary_sha256, other.nonzeros) == (corpus.vocabulary_sha256, SIZES["nonzeros"])


def test_the_spec_curates_the_same_files(tmp_path, docword):
    ingest(ROOT / "data_specs" / "uci_kos.toml", tmp_path / "c", IngestRequest(files=docword))
    manifest = read_manifest(tmp_path / "c")
    assert manifest.totals.words == 5000
    assert "CC BY 4.0" in str(manifest.attribution)
    kept = manifest.totals.tokens + sum(step.tokens for step in manifest.dropped)
    assert kept == manifest.settings["tokens_read"] == SIZES["tokens"]
    # What was found is on record, since no hash is published for these files.
    assert len(str(manifest.source["sha256 docword.kos.txt.gz"])) == 64
