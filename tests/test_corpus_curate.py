"""Curation against a slow dictionary-based reference, stop words, specs, and the shipped corpus."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_jsmf.cli.main import run
from streaming_jsmf.config import IngestRequest
from streaming_jsmf.corpus import Corpus, Curation, open_corpus
from streaming_jsmf.corpus.format import read_manifest
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.ingest import ingest
from streaming_jsmf.ingestion.spec import load_spec
from streaming_jsmf.ingestion.tokens.stop_words import load_stop_words
from tests.corpora import bags_of
from tests.processes import command, ended

ROOT = Path(__file__).parent.parent
WORDS = ("ant", "bee", "cat", "dog", "eel", "fox", "gnu", "the")


def reference(bags, curation: Curation, stop):
    """The same curation over dictionaries word -> count; returns kept documents and the vocabulary in order."""
    tf, df = Counter(), Counter()
    for bag in bags:
        tf.update(bag)
        df.update(bag.keys())
    words = [w for w in WORDS if w not in stop and df[w] >= curation.min_document_frequency]
    score = {w: tf[w] * math.log(len(bags) // df[w]) for w in words}
    best = set(sorted(words, key=lambda w: (-score[w], w))[: curation.vocabulary_size])
    pruned = [{w: c for w, c in bag.items() if w in best} for bag in bags]
    kept = {
        i: bag
        for i, bag in enumerate(pruned)
        if len(bag) >= curation.min_distinct_words and sum(bag.values()) >= curation.min_tokens
    }
    return kept, [w for w in WORDS if any(w in bag for bag in kept.values())]


def source(directory: Path, bags, row_group_size=3) -> Path:
    directory.mkdir()
    columns = {
        "ids": pa.array([[WORDS.index(w) for w in sorted(bag)] for bag in bags], pa.list_(pa.int32())),
        "counts": pa.array([[bag[w] for w in sorted(bag)] for bag in bags], pa.list_(pa.int64())),
        "doc_id": pa.array([f"d{i}" for i in range(len(bags))]),
        "length": pa.array([sum(bag.values()) for bag in bags]),
    }
    table = pa.table(columns)
    half = len(bags) // 2
    for number, part in enumerate((table.slice(0, half), table.slice(half))):
        pq.write_table(part, directory / f"part-{number}.parquet", row_group_size=row_group_size)
    (directory / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    return directory


def curate(directory: Path, target: Path, curation: Curation, *, id_column=None) -> Corpus:
    read = {} if id_column is None else {"id": id_column}
    return ingest(
        directory,
        target,
        IngestRequest(reader="bag-of-words-parquet", read=read, curation=asdict(curation)),
    )


bag_lists = st.lists(
    st.dictionaries(st.sampled_from(WORDS), st.integers(1, 5), max_size=8), min_size=2, max_size=25
).filter(any)
curations = st.builds(
    Curation,
    stop_words=st.sampled_from(["english", "none"]),
    vocabulary_size=st.none() | st.integers(1, 9),
    min_document_frequency=st.integers(1, 3),
    min_distinct_words=st.integers(1, 3),
    min_tokens=st.integers(1, 6),
)


@settings(max_examples=40, deadline=None)
@given(bags=bag_lists, curation=curations)
def test_curation_equals_the_reference(tmp_path_factory, bags, curation):
    tmp_path = tmp_path_factory.mktemp("curate")
    raw = source(tmp_path / "raw", bags)
    kept, words = reference(bags, curation, {"the"} if curation.stop_words == "english" else set())
    if not kept:
        with pytest.raises(InputError, match=r"no word of|empty corpus"):
            curate(raw, tmp_path / "c", curation)
        assert [p.name for p in tmp_path.iterdir()] == ["raw"]
        return
    curated = curate(raw, tmp_path / "c", curation)
    vocabulary = curated.vocabulary()
    assert list(vocabulary.words) == words
    assert bags_of(curated) == {f"d{i}": bag for i, bag in kept.items()}
    df = [sum(w in bag for bag in kept.values()) for w in words]
    tf = [sum(bag.get(w, 0) for bag in kept.values()) for w in words]
    assert vocabulary.document_frequency.tolist() == df
    assert vocabulary.term_count.tolist() == tf
    expected = [t * math.log(len(kept) // d) for t, d in zip(tf, df, strict=True)]
    assert vocabulary.tf_idf.tolist() == pytest.approx(expected, rel=1e-14)
    manifest = read_manifest(tmp_path / "c")
    assert sum(s.tokens for s in manifest.dropped) + sum(tf) == sum(sum(bag.values()) for bag in bags)
    assert sum(s.words for s in manifest.dropped) + len(words) == len(WORDS)
    assert sum(s.documents for s in manifest.dropped) + len(kept) == len(bags)


def test_each_step_is_recorded(tmp_path):
    bags = [
        {"ant": 2, "bee": 1, "cat": 3, "the": 9},
        {"ant": 1, "bee": 1, "dog": 1, "the": 1},
        {"fox": 4, "the": 2},  # too few words once "the" is gone, and with it goes fox
        {"ant": 1, "cat": 1},  # 2 tokens
        {"cat": 1, "dog": 2, "gnu": 1},
    ]
    curation = Curation(vocabulary_size=6, min_distinct_words=2, min_tokens=3)
    raw = source(tmp_path / "raw", bags)
    curated = curate(raw, tmp_path / "c", curation)
    manifest = read_manifest(tmp_path / "c")
    steps = {step.step: (step.words, step.documents, step.tokens) for step in manifest.dropped}
    assert steps == {
        "stop_words": (1, 0, 12),
        "min_document_frequency": (1, 0, 0),  # eel
        "vocabulary_size": (0, 0, 0),
        "min_distinct_words": (0, 1, 4),
        "min_tokens": (0, 1, 2),
        "unused_words": (1, 0, 0),
    }
    assert curated.vocabulary().words == ("ant", "bee", "cat", "dog", "gnu")
    assert manifest.settings["tokens_read"] == 15 + 4 + 6 + 2 + 4
    assert manifest.settings["reader"] == "bag-of-words-parquet"
    table = pq.read_table(curated.shard_path(curated.shards[0]))
    assert table.column("document_id").to_pylist() == ["d0", "d1", "d4"]
    assert table.column("length").to_pylist() == [15, 4, 4]
    # Its own output can be curated again, and nothing more goes.
    again = curate(tmp_path / "c", tmp_path / "d", curation)
    assert read_manifest(tmp_path / "d").settings["source_fingerprint"] == curated.fingerprint
    assert [s.sha256 for s in again.shards] == [s.sha256 for s in curated.shards]


def test_words_of_half_the_documents_come_last_and_ties_go_by_id(tmp_path):
    bags = [{"ant": 99, "bee": 1}, {"ant": 99, "cat": 1}, {"ant": 99, "dog": 1}, {"eel": 1, "fox": 1}]
    raw = source(tmp_path / "raw", bags)
    curation = Curation("none", vocabulary_size=3, min_distinct_words=1, min_tokens=1)
    assert curate(raw, tmp_path / "c", curation).vocabulary().words == ("bee", "cat", "dog")


def test_id_column(tmp_path):
    raw = source(tmp_path / "raw", [{"ant": 1}, {"bee": 2}])
    curation = Curation("none", min_distinct_words=1, min_tokens=1)
    curated = curate(raw, tmp_path / "c", curation, id_column="length")
    table = pq.read_table(curated.shard_path(curated.shards[0]))
    assert table.schema.names == ["ids", "counts", "document_id", "doc_id"]
    assert table.column("document_id").to_pylist() == [1, 2]
    with pytest.raises(InputError, match="no column 'nosuch' for document ids"):
        curate(raw, tmp_path / "d", curation, id_column="nosuch")


def test_settings_are_checked():
    for value in (0, 1.5, -0.5, float("nan")):
        with pytest.raises(InputError, match="max_document_frequency is "):
            Curation(max_document_frequency=value)
    with pytest.raises(InputError, match="vocabulary_size is -5"):
        Curation(vocabulary_size=-5)


def test_stop_words(tmp_path):
    english = load_stop_words("english")
    assert 300 <= len(english) <= 570
    listed = "a about above according across actually after don ll ve z"
    assert {*listed.split()} <= english
    assert all(word == word.lower().strip() and word[0] != "#" for word in english)
    assert not english & {"cell", "neuron", "model", "data", "network", "game", "result", "president"}
    lines = (
        (ROOT / "streaming_jsmf" / "ingestion" / "tokens" / "stop_words_english.txt").read_text().splitlines()
    )
    body = [line for line in lines if not line.startswith("#")]
    assert lines[0].startswith("#")
    assert body == sorted(set(body))
    assert load_stop_words("none") == frozenset()
    (tmp_path / "list.txt").write_text("# mine\nFoo\n\nbar \n")
    assert load_stop_words(str(tmp_path / "list.txt")) == {"foo", "bar"}
    assert {"und", "nicht"} <= load_stop_words("german") - english
    assert load_stop_words("German, english") == load_stop_words("german") | english
    with pytest.raises(InputError, match="give auto, none, languages such as"):
        load_stop_words("klingon")


def spec_text(directory: Path, curation="", more="") -> str:
    listed = "\n".join(
        f'"{path.name}" = {{ sha256 = "{hashlib.sha256(path.read_bytes()).hexdigest()}" }}'
        for path in sorted(directory.iterdir())
    )
    return f"""
name = "animals"
title = "Animals"
reader = "bag-of-words-parquet"
{more}
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


def test_spec_builds_the_same_bytes_and_the_script_too(tmp_path, capsys):
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
    line = command("ingest", "--files", raw, spec, tmp_path / "b")
    done = ended(line, folder=ROOT)
    assert done.code == 0, done.err
    assert "4 documents, 4 words" in done.out
    assert (tmp_path / "b" / "manifest.json").read_bytes() == (tmp_path / "a" / "manifest.json").read_bytes()
    assert run(line[3:]) == 2
    assert "exists; remove it" in capsys.readouterr().err


def test_source_files_are_verified(tmp_path):
    raw = source(tmp_path / "raw", BAGS)
    spec = tmp_path / "s.toml"
    spec.write_text(spec_text(raw, LOOSE))
    (raw / "part-9.parquet").write_bytes((raw / "part-1.parquet").read_bytes())
    # A file that the spec does not list is no part of the source: its documents would repeat ids.
    assert ingest(spec, tmp_path / "a", IngestRequest(files=raw)).n_documents == len(BAGS)
    (raw / "vocab.txt").write_text("\n".join(reversed(WORDS)))
    with pytest.raises(InputError, match=r"vocab\.txt has sha256 .* expected"):
        ingest(spec, tmp_path / "c", IngestRequest(files=raw))
    (raw / "vocab.txt").unlink()
    with pytest.raises(InputError, match=r"vocab\.txt; find what is missing at https://example.org"):
        ingest(spec, tmp_path / "c", IngestRequest(files=raw))
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("curation", "more", "message"),
    [
        (
            "min_token = 1",
            "",
            "unknown key curation.min_token; allowed: duplicates, max_document_frequency",
        ),
        ("min_tokens = -1", "", "curation.min_tokens: input should be greater than or equal to 0, not '-1'"),
        ("duplicates = 'hide'", "", "curation.duplicates: input should be 'keep' or 'drop', not 'hide'"),
        ("max_document_frequency = 2.5", "", "max_document_frequency is 2.5"),
        (
            "[read]\nident = 'a'",
            "",
            r"\[read\] of the spec animals: unknown key ident; allowed: id, vocabulary",
        ),
        ("[read]\nvocabulary = '../v.txt'", "", r"read.vocabulary: '\.\./v\.txt' leaves the source"),
        ("", "colour = 1", "unknown key colour; allowed: curation, name, note, output"),
        ("[output]\ntokens_per_shard = 'x'", "", "output.tokens_per_shard: .* valid integer"),
        ("[output]\nshards = 1", "", "unknown key output.shards; allowed: tokens_per_shard"),
        ("= 3", "", "is not valid TOML"),
    ],
)
def test_spec_errors_name_the_key(tmp_path, curation, more, message):
    raw = source(tmp_path / "raw", BAGS)
    (tmp_path / "s.toml").write_text(spec_text(raw, curation, more))
    with pytest.raises(InputError, match=message) as caught:
        load_spec(tmp_path / "s.toml")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('"bag-of-words-parquet"', '"csv"', "reader: .*'text', .* 'bag-of-words-parquet', not 'csv'"),
        ('licence = "CC0"', "", r"source\.licence"),
        ('"vocab.txt"', '"../vocab.txt"', r"'\.\./vocab\.txt'"),
        ('"vocab.txt" = { sha256 = "', '"vocab.txt" = { sha256 = "G', r"vocab\.txt\.sha256"),
        ("name", "", "not valid TOML"),
    ],
)
def test_spec_values_are_checked(tmp_path, old, new, named):
    text = spec_text(source(tmp_path / "raw", BAGS))
    assert old in text
    (tmp_path / "s.toml").write_text(text.replace(old, new))
    with pytest.raises(InputError, match=named):
        load_spec(tmp_path / "s.toml")
    with pytest.raises(InputError, match=r"none\.toml"):
        load_spec(tmp_path / "none.toml")


def test_shipped_corpus_agrees_with_its_spec():
    spec = load_spec(ROOT / "data_specs" / "uci_nips.toml")
    shipped = ROOT / "data_specs" / "uci_nips"
    manifest = read_manifest(shipped)
    words = open_corpus(shipped).vocabulary().words
    assert len(words) == spec.curation.vocabulary_size
    assert not load_stop_words("english") & set(words)
    assert manifest.attribution == spec.source.attribution
    assert manifest.source["note"] == spec.note
    listed = "\n".join(sorted(load_stop_words("english")))
    assert manifest.settings["stop_words_sha256"] == hashlib.sha256(listed.encode()).hexdigest()
    for key, value in spec.curation.model_dump().items():
        assert manifest.settings.get(key, "keep") == value
