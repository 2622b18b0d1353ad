"""Curation of bags of words, stop words, specs, and the shipped corpus."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_jsmf.config import IngestRequest
from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.corpus.format import read_manifest
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.ingest import ingest
from streaming_jsmf.ingestion.spec import load_spec
from streaming_jsmf.ingestion.tokens.stop_words import load_stop_words
from tests.corpora import rows_of
from tests.outcomes import refused

ROOT = Path(__file__).parent.parent
WORDS = ("ant", "bee", "cat", "dog", "eel", "fox", "gnu", "the")


def source(directory: Path, bags) -> Path:
    directory.mkdir()
    columns = {
        "ids": pa.array([[WORDS.index(w) for w in sorted(bag)] for bag in bags], pa.list_(pa.int32())),
        "counts": pa.array([[bag[w] for w in sorted(bag)] for bag in bags], pa.list_(pa.int64())),
        "doc_id": [f"d{i}" for i in range(len(bags))],
        "length": [sum(bag.values()) for bag in bags],
    }
    table = pa.table(columns)
    half = len(bags) // 2
    for number, part in enumerate((table.slice(0, half), table.slice(half))):
        pq.write_table(part, directory / f"part-{number}.parquet", row_group_size=3)
    (directory / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    return directory


def test_the_column_of_ids_can_be_chosen(tmp_path):
    raw = source(tmp_path / "raw", [{"ant": 1}, {"bee": 2}])
    curation = {"stop_words": "none", "min_distinct_words": 1, "min_tokens": 1}
    request = IngestRequest(reader="bag-of-words-parquet", options={"id": "length"}, curation=curation)
    corpus = ingest(raw, tmp_path / "c", request)
    rows = rows_of(corpus)
    assert [list(row) for row in rows] == [["ids", "counts", "document_id", "doc_id"]] * 2
    assert [row["document_id"] for row in rows] == [1, 2]
    assert read_manifest(corpus.root).settings["reader"] == "bag-of-words-parquet"
    with pytest.raises(InputError, match="'nosuch'"):
        ingest(raw, tmp_path / "d", replace(request, options={"id": "nosuch"}))


def spec_text(directory: Path, curation="") -> str:
    listed = "\n".join(
        f'"{path.name}" = {{ sha256 = "{hashlib.sha256(path.read_bytes()).hexdigest()}" }}'
        for path in sorted(directory.iterdir())
    )
    return f"""
name = "animals"
title = "Animals"
reader = "bag-of-words-parquet"
[source]
url = "https://example.org"
licence = "CC0"
attribution = "nobody"
[source.files]
{listed}
[curation]
{curation}
"""


BAGS = [{"ant": 2, "bee": 1, "the": 3}, {"bee": 2, "cat": 1}, {"cat": 1, "dog": 2}, {"ant": 1, "dog": 1}]
LOOSE = "min_distinct_words = 1\nmin_tokens = 1\n"


def test_a_spec_builds_the_same_bytes_by_call_and_by_command(tmp_path, invoke):
    raw = source(tmp_path / "raw", BAGS)
    spec = tmp_path / "animals.toml"
    spec.write_text(spec_text(raw, LOOSE + 'stop_words = "mine.txt"'))
    (tmp_path / "mine.txt").write_text("ant\n")
    corpus = ingest(spec, tmp_path / "a", IngestRequest(files=raw))
    assert corpus.vocabulary().words == ("bee", "cat", "dog", "the")
    manifest = read_manifest(tmp_path / "a")
    assert (manifest.attribution, manifest.source["licence"]) == ("nobody", "CC0")
    assert manifest.settings["stop_words"] == "file"
    assert str(tmp_path) not in (tmp_path / "a" / "manifest.json").read_text()
    line = ("ingest", "--files", raw, spec, tmp_path / "b")
    done = invoke(*line)
    assert done.code == 0, done.err
    assert "4 documents, 4 words" in done.out
    assert (tmp_path / "b" / "manifest.json").read_bytes() == (tmp_path / "a" / "manifest.json").read_bytes()
    assert "complete and intact" in invoke(*line).err
    spec.write_text(spec.read_text() + "\n")
    refused(invoke(*line), 2, str(tmp_path / "b"), "spec")


def test_source_files_are_verified(tmp_path):
    raw = source(tmp_path / "raw", BAGS)
    spec = tmp_path / "s.toml"
    spec.write_text(spec_text(raw, LOOSE))
    request = IngestRequest(files=raw)
    (raw / "part-9.parquet").write_bytes((raw / "part-1.parquet").read_bytes())
    # A file that the spec does not list is no part of the source: its documents would repeat ids.
    assert ingest(spec, tmp_path / "a", request).n_documents == len(BAGS)
    (raw / "vocab.txt").write_text("\n".join(reversed(WORDS)))
    with pytest.raises(InputError, match=r"vocab\.txt has sha256"):
        ingest(spec, tmp_path / "c", request)
    (raw / "vocab.txt").unlink()
    with pytest.raises(InputError, match=r"vocab\.txt.* https://example.org"):
        ingest(spec, tmp_path / "c", request)
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("[curation]", "[curation]\nmin_token = 1", "curation has .* 'min_token'; did you mean .*min_tokens"),
        ("[curation]", "[curation]\nmin_tokens = -1", "min_tokens is -1; give .* at least 0"),
        ("[curation]", "[curation]\nduplicates = 'hide'", "duplicates is 'hide'; give one of keep, drop"),
        ("[curation]", "[curation]\nstop_words = 5", "stop_words is 5; give a string"),
        ("[curation]", "[curation]\nmax_document_frequency = 2.5", "max_document_frequency is 2.5"),
        (
            "[curation]",
            "[read]\nident = 'a'",
            "reader have .* 'ident'; give one of date_format, id, member, word_list",
        ),
        ("[curation]", "[read]\nvocabulary = '../v.txt'", r"read.vocabulary: '\.\./v\.txt'"),
        ("[curation]", "[read]\nword_list = '../v.txt'", r"read.word_list: '\.\./v\.txt'"),
        ("[curation]", "[output]\ntokens_per_shard = 'x'", "output.tokens_per_shard: "),
        ("[curation]", "[output]\nshards = 1", "output.shards; .*tokens_per_shard"),
        ("[curation]", "= 3", "not valid TOML"),
        ("title", "colour = 1\ntitle", "colour; .*curation, name, note, output"),
        (
            '"bag-of-words-parquet"',
            '"csv"',
            "reader: .*'text', .* 'h5ad' or 'bag-of-words-parquet', not 'csv'",
        ),
        ('licence = "CC0"', "", r"source\.licence"),
        ('"vocab.txt"', '"../vocab.txt"', r"'\.\./vocab\.txt'"),
        ('"vocab.txt" = { sha256 = "', '"vocab.txt" = { sha256 = "G', r"vocab\.txt\.sha256"),
    ],
)
def test_errors_of_a_spec_name_the_key_in_one_line(tmp_path, old, new, named):
    text = spec_text(source(tmp_path / "raw", BAGS))
    assert old in text
    (tmp_path / "s.toml").write_text(text.replace(old, new))
    with pytest.raises(InputError, match=named) as caught:
        load_spec(tmp_path / "s.toml")
    assert "\n" not in str(caught.value)


def test_a_spec_that_is_missing_is_named(tmp_path):
    with pytest.raises(InputError, match=r"none\.toml"):
        load_spec(tmp_path / "none.toml")


def test_shipped_corpus_agrees_with_its_spec():
    spec = load_spec(ROOT / "data_specs" / "uci_nips.toml")
    shipped = ROOT / "data_specs" / "uci_nips"
    manifest = read_manifest(shipped)
    words = open_corpus(shipped).vocabulary().words
    assert len(words) == spec.curation["vocabulary_size"]
    assert not load_stop_words("english") & set(words)
    assert manifest.attribution == spec.source.attribution
    assert manifest.source["note"] == spec.note
    listed = "\n".join(sorted(load_stop_words("english")))
    assert manifest.settings["stop_words_sha256"] == hashlib.sha256(listed.encode()).hexdigest()
    assert {key: manifest.settings[key] for key in spec.curation} == spec.curation
