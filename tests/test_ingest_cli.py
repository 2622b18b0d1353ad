"""``ingest`` on the command line: sources, specs, options and one-line errors; and bags of words ingested again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_jsmf.config import IngestRequest
from streaming_jsmf.corpus import Corpus, open_corpus
from streaming_jsmf.corpus.format import read_manifest
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion import job
from streaming_jsmf.ingestion.ingest import ingest
from streaming_jsmf.ingestion.readers import bag_of_words as bag_reader
from streaming_jsmf.jobs.execution import Execution
from tests.corpora import BAD_BAGS, bags_of, write_texts
from tests.outcomes import Command
from tests.processes import finished
from tests.readers import KEEP_ALL

LOOSE = ("--preset", "papers", *KEEP_ALL)


@pytest.fixture
def command(invoke: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run ``ingest`` in this process, started in the test's own directory."""
    monkeypatch.chdir(tmp_path)
    options = ("--quiet", "--scheduler", "synchronous")
    return lambda *arguments: invoke("ingest", *options, *arguments).without_progress()


@pytest.fixture
def refused(command: Command, tmp_path: Path) -> Callable[..., None]:
    """Run a command that must fail with one line, and leave the directory as it was."""

    def call(arguments: Sequence[object], *named: str, code: int = 2) -> None:
        before = sorted(tmp_path.rglob("*"))
        outcome = command(*arguments)
        assert outcome.code == code, outcome.err
        assert outcome.err.startswith("error: ")
        assert outcome.err.count("\n") == 1, outcome.err
        for name in named:
            assert name in outcome.err
        assert sorted(tmp_path.rglob("*")) == before

    return call


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A directory of two files of texts, and files that other tools leave behind."""
    write_texts(tmp_path / "in" / "a.jsonl", {"1": "the sun and the moon", "2": "moon and stars"})
    write_texts(tmp_path / "in" / "more" / "b.jsonl", {"3": "sun, sun; rain\u2028snow", "4": "snow"})
    (tmp_path / "in" / "_SUCCESS").touch()
    (tmp_path / "in" / ".a.jsonl.swp").write_bytes(b"\xff")
    return tmp_path / "in"


def words(path: Path) -> list[str]:
    return list(open_corpus(path).vocabulary().words)


def documents(path: Path) -> dict[Any, dict[str, float]]:
    return bags_of(open_corpus(path))


@pytest.mark.usefixtures("texts")
def test_a_directory_becomes_a_corpus(command: Command, tmp_path: Path) -> None:
    few = ("--min-tokens", "1", "--min-distinct-words", "1")
    done = command("in", "deep/er/out", "--preset", "papers", *few)
    assert (done.code, done.err) == (0, "")
    assert done.out == "corpus: deep/er/out (4 documents, 5 words, 8 nonzeros)\n"
    assert words(tmp_path / "deep" / "er" / "out") == ["moon", "rain", "snow", "stars", "sun"]
    assert documents(tmp_path / "deep" / "er" / "out")["3"] == {"rain": 1, "snow": 1, "sun": 2}
    settings = read_manifest(tmp_path / "deep" / "er" / "out").settings
    assert (settings["reader"], settings["stop_words"], settings["documents_read"]) == ("text", "english", 4)


@pytest.mark.usefixtures("texts")
def test_a_glob_and_options_of_the_reader(command: Command, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('name;body;year\nx;"sun; moon";1999\ny;rain;2000\n')
    read = ("--reader", "text", "--text", "body", "--id", "name", "--metadata", "year")
    # The delimiter is detected from the first records; with another one, each record is a single field.
    assert command("*.csv", "semicolons", *read, *LOOSE).code == 0
    done = command("*.csv", "out", *read, "--delimiter", ",", *LOOSE)
    assert done.code == 2
    assert "'body'; it has name;body;year" in done.err
    (tmp_path / "t.csv").write_text('name,body,year\nx,"sun, moon",1999\ny,rain,2000\n')
    assert command("*.csv", "out", *read, *LOOSE).code == 0
    table = pq.read_table(tmp_path / "out" / "documents")
    assert table.schema.names == ["ids", "counts", "document_id", "year"]
    assert table.column("year").to_pylist() == [1999, 2000]
    assert command("in/*.jsonl", "glob", *LOOSE).out == "corpus: glob (2 documents, 5 words, 7 nonzeros)\n"


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ("--header none --columns label,title,text", ["label", "title"]),
        ("--header false --columns label,title,text", ["label", "title"]),
        ("--columns label,body,title --id none", ["label", "title"]),
        ("--columns doc_id,user,text --metadata user", ["user"]),
    ],
)
def test_texts_without_a_header(options: str, columns: list[str], command: Command, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('1,sky,"sun, moon"\n2,sea,rain and wind\n3,sun,moon and stars\n')
    assert command("t.csv", "out", *options.split(), "--excerpt", "0", *LOOSE).code == 0
    table = pq.read_table(tmp_path / "out" / "documents")
    assert [name for name in table.schema.names if name not in ("ids", "counts", "document_id")] == columns
    assert table.num_rows == 3


@pytest.mark.usefixtures("texts")
@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("in out --reader csv", ["'csv'", "text-files"]),
        ("in out --column body", ["'--column'", "'--columns'"]),
        ("in out --reader lines --user who", ["lines takes no --user (ratings does); leave --user out, or"]),
        ("in out --reader lines --header none", ["lines takes no --header (text, triples and ratings do)"]),
        ("in out --text body", ["a.jsonl: ", "'body'", "--text NAME"]),
        ("in out --ngrams 4", ["--ngrams is '4'"]),
        ("in out --min-df 9", ["4 documents", "9 documents"]),
        ("in out --min-df few", ["--min-document-frequency is 'few'"]),
        ("in out --vocabulary nowhere", ["nowhere: no such file or directory"]),
        ("in out --vocabulary in/a.jsonl --min-df 2", ["--min-document-frequency out"]),
        ("in out --tokenizer greedy", ["tokenizer is 'greedy'", "arrow, sklearn, chinese, japanese"]),
        ("in out --files in", ["--files", "spec (.toml)"]),
        ("in in/out", ["out lies inside the source"]),
        ("in s3://bucket/out", ["s3://bucket/out"]),
        # Too little memory is refused with both numbers.
        (
            "in out --memory 100MB --workers 2 --scheduler threads",
            ["--memory 712MiB", "95.37 MiB"],
        ),
        ("in there", ["there", "an empty folder, not a corpus"]),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(
    arguments: str, named: list[str], refused: Callable[..., None], tmp_path: Path
) -> None:
    (tmp_path / "there").mkdir()
    refused(arguments.split(), *named)


TOKENIZER = "def split(text):\n    return [word.upper() for word in text.split()]\n"


@pytest.mark.slow
@pytest.mark.usefixtures("texts")
@pytest.mark.parametrize("scheduler", ["threads", pytest.param("processes", marks=pytest.mark.slow)])
def test_a_tokenizer_of_the_current_directory(scheduler: str, tmp_path: Path) -> None:
    (tmp_path / "ours_to_try.py").write_text(TOKENIZER)
    options = ["--tokenizer", "ours_to_try:split", "--scheduler", scheduler, *LOOSE]
    arguments = [sys.executable, "-P", "-m", "streaming_jsmf", "ingest", "in", "out", *options]
    # -P: that Python itself adds the current directory would prove nothing.
    finished(arguments, folder=tmp_path)
    assert words(tmp_path / "out") == ["AND", "MOON", "RAIN", "SNOW", "STARS", "SUN", "SUN,", "SUN;", "THE"]
    assert read_manifest(tmp_path / "out").settings["read_tokenizer"] == "ours_to_try:split"


SPEC = """
name = "weather"
title = "Weather"
reader = "text"
[source]
url = "https://example.org"
licence = "CC0"
attribution = "nobody"
files = { "a.jsonl" = {}, "more/b.jsonl" = {} }
[read]
ngrams = 2
[curation]
stop_words = "none"
min_distinct_words = 1
min_tokens = 2
vocabulary_size = 3
"""


@pytest.mark.usefixtures("texts")
def test_a_spec_and_options_that_override_it(
    command: Command, refused: Callable[..., None], tmp_path: Path
) -> None:
    (tmp_path / "weather.toml").write_text(SPEC)
    assert command("weather.toml", "out", "--files", "in").code == 0
    manifest = read_manifest(tmp_path / "out")
    assert (manifest.totals.words, manifest.settings["min_tokens"]) == (3, 2)
    assert manifest.source["name"] == "weather"
    options = (
        "--vocabulary-size 5 --min-tokens 0 --min-distinct-words 0 --duplicates drop --tokens-per-shard 3"
    )
    assert command("weather.toml", "more", "--files", "in", *options.split()).code == 0
    manifest = read_manifest(tmp_path / "more")
    assert (manifest.totals.words, manifest.totals.documents) == (5, 4)
    assert (manifest.settings["min_tokens"], manifest.settings["duplicates"]) == (0, "drop")
    assert len(manifest.shards) > 1
    assert (
        command("weather.toml", "words", "--files", "in", "--ngrams", "1", "--vocabulary-size", "9").code == 0
    )
    assert words(tmp_path / "words") == ["and", "moon", "rain", "snow", "stars", "sun", "the"]
    for arguments, *named in (
        ("x --files in --reader text", "--reader out"),
        ("x --files in --preset papers", "--preset out"),
        ("x --files in --text body", "a.jsonl: ", "'body'"),
        ("x --files in/more", "b.jsonl; ", "https://example.org"),
        ("in/x --files in", "lies inside the source"),
    ):
        refused(("weather.toml", *arguments.split()), *named)


# -- existing bags of words -------------------------------------------------------------------------------------------


def again(source: Path, target: Path, **more: Any) -> Corpus:
    rules = {"stop_words": "none", "min_distinct_words": 0, "min_tokens": 0}
    return ingest(
        source, target, IngestRequest(curation=rules, max_dropped=1, **more), Execution("synchronous")
    )


@pytest.mark.usefixtures("texts")
def test_a_corpus_is_given_another_vocabulary(command: Command, tmp_path: Path) -> None:
    assert command("in", "out", *LOOSE, "--tokens-per-shard", "4").code == 0
    assert len(open_corpus(tmp_path / "out").shards) == 3
    before = documents(tmp_path / "out")
    done = command("out", "small", "--vocabulary-size", "4", "--min-distinct-words", "2", "--min-tokens", "0")
    assert done.code == 0
    assert (
        "50% of the documents are dropped: 2 with fewer than 2 distinct kept words (--stop-words)" in done.err
    )
    # The English stop words are gone; of the others sun scores best, and the rest alike, so that stars comes last.
    assert words(tmp_path / "small") == ["moon", "rain", "snow", "sun"]
    kept = set(words(tmp_path / "small"))
    expected = {key: {w: c for w, c in bag.items() if w in kept} for key, bag in before.items()}
    assert documents(tmp_path / "small") == {key: bag for key, bag in expected.items() if len(bag) > 1}
    settings = read_manifest(tmp_path / "small").settings
    assert settings["source_fingerprint"] == open_corpus(tmp_path / "out").fingerprint
    assert settings["tokens_read"] == sum(sum(bag.values()) for bag in before.values())
    # Keeping everything gives the same corpus.
    same = again(tmp_path / "out", tmp_path / "same", tokens_per_shard=4)
    assert same.fingerprint == open_corpus(tmp_path / "out").fingerprint


def write_bags(folder: Path, bags: Sequence[tuple[Any, Any]], files: int = 2) -> Path:
    folder.mkdir()
    (folder / "vocab.txt").write_text("ant\nbee\ncat\n")
    ids, counts = zip(*bags, strict=True)
    columns = {"ids": pa.array(ids, pa.list_(pa.int16())), "counts": pa.array(counts, pa.list_(pa.float64()))}
    table = pa.table({**columns, "doc_id": [f"d{i}" for i in range(len(bags))]})
    size = -(-len(bags) // files)
    for number in range(files):
        pq.write_table(table.slice(number * size, size), folder / f"{number}.parquet", row_group_size=4)
    return folder


GOOD = ([0, 2], [1.0, 2.5])
#: Ids whose column the user names must be usable.
NAMED: dict[str, Any] = {"reader": "bag-of-words-parquet", "options": {"id": "doc_id"}}


def test_all_faults_at_once(tmp_path: Path) -> None:
    bags = [bag for ids, counts, _ in BAD_BAGS.values() for bag in ((ids, counts), GOOD)]
    again(write_bags(tmp_path / "in", bags, files=1), tmp_path / "out", on_bad_record="quarantine")
    found = pq.read_table(tmp_path / "out" / "quarantine.parquet").to_pylist()
    assert [bad["row"] for bad in found] == list(range(0, len(bags), 2))
    for bad, (_, _, reason) in zip(found, BAD_BAGS.values(), strict=True):
        assert bad["reason"].startswith(reason)
    assert len(documents(tmp_path / "out")) == len(BAD_BAGS)
    with pytest.raises(InputError, match="row 0 from 0: ids is null"):
        again(tmp_path / "in", tmp_path / "fail")


def test_a_batch_of_bad_bags_takes_few_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_bags(tmp_path / "in", [([0, 9], [1.0, 1.0])] * 512 + [GOOD], files=1)
    pq.write_table(pq.read_table(source / "0.parquet"), source / "0.parquet")
    calls = []
    looked = bag_reader.checked_bags
    monkeypatch.setattr(bag_reader, "checked_bags", lambda *a: calls.append(len(a[0])) or looked(*a))
    again(source, tmp_path / "out", on_bad_record="quarantine")
    # Halves of halves; one record after the other would look at 512 * 513 / 2 of them.
    assert sum(calls) < 513 * 12


@pytest.mark.parametrize(
    ("column", "other", "named"),
    [
        (
            "counts",
            pa.array([[1]], pa.list_(pa.int32())),
            "its counts are integers, those of the first file float",
        ),
        ("doc_id", pa.array([0.5]), "'doc_id' is double; "),
        ("ids", pa.array([1]), "'ids' is int64; "),
    ],
)
@pytest.mark.parametrize("group_bytes", [1, 1 << 24])
def test_a_file_with_other_columns_is_named(
    column: str, other: Any, named: str, group_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "GROUP_BYTES", (group_bytes, group_bytes))
    source = write_bags(tmp_path / "in", [GOOD] * 4)
    table = pq.read_table(source / "1.parquet").slice(0, 1)
    odd = table.set_column(table.schema.get_field_index(column), column, other)
    pq.write_table(odd, source / "9.parquet")
    with pytest.raises(InputError, match=rf"9\.parquet: .*{named}"):
        again(source, tmp_path / "out", **NAMED)
    assert again(source, tmp_path / "out", on_bad_record="quarantine", **NAMED).n_documents == 4
    assert read_manifest(tmp_path / "out").dropped[0].documents == 1


def test_columns_in_another_order_and_ids_that_do_not_fit(tmp_path: Path) -> None:
    source = write_bags(tmp_path / "in", [GOOD] * 4)
    table = pq.read_table(source / "1.parquet")
    pq.write_table(table.select(["doc_id", "counts", "ids"]), source / "1.parquet")
    assert list(bags_of(again(source, tmp_path / "out"))) == ["d0", "d1", "d2", "d3"]
    for name, first in (("0.parquet", 0), ("1.parquet", 2**63 - 1)):
        ids = pa.array([first, first + 1], pa.uint64())
        pq.write_table(table.set_column(2, "doc_id", ids), source / name)
    with pytest.raises(InputError, match="row 1 from 0: doc_id is above 9223372036854775807"):
        again(source, tmp_path / "more", **NAMED)
    guessed = again(source, tmp_path / "guessed")
    assert list(bags_of(guessed)) == [0, 1, 2, 3]
    unnamed = table.slice(0, 1).set_column(2, "doc_id", pa.array([""]))
    empty = write_bags(tmp_path / "empty", [GOOD])
    pq.write_table(unnamed, empty / "0.parquet")
    with pytest.raises(InputError, match="row 0 from 0: doc_id is empty"):
        again(empty, tmp_path / "more", **NAMED)
    kept = again(source, tmp_path / "more", on_bad_record="quarantine", **NAMED)
    assert list(bags_of(kept)) == [0, 1, 2**63 - 1]
