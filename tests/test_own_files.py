"""Texts as office programs write them: other encodings, other separators, one document per line."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from unittest.mock import ANY

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_jsmf import transform
from streaming_jsmf.config import IngestRequest
from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.corpus.format import read_manifest
from streaming_jsmf.ingestion.readers.sources import Guess, guess_source
from streaming_jsmf.interface.fit import fit
from streaming_jsmf.jobs.execution import Execution
from tests.cases import each_once
from tests.outcomes import Command, Outcome, refused
from tests.sources import put, small
from tests.test_own_texts import words_of, write_documents

DOCUMENTS = [text.replace("moon", "café") for text in write_documents(120)]
EXPECTED = sum(text.count("café") for text in DOCUMENTS)
RATINGS = [f"{u};{i};{1 + (u + i) % 5}" for u in range(40) for i in range(12)]
LINES = ("--reader", "lines")


def write_csv(path: Path, delimiter: str = ",", encoding: str = "utf-8") -> Path:
    with path.open("w", newline="", encoding=encoding) as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(["number", "what", "year"])
        # Commas in some of the texts are no separators where there is another one.
        writer.writerows([i, text + ", more" * (i % 2), 1990] for i, text in enumerate(DOCUMENTS))
    return path


def write_folder(root: Path, *encodings: str) -> Path:
    root.mkdir()
    for i, text in enumerate(DOCUMENTS):
        (root / f"{i}.txt").write_text(text, encoding=encodings[i % len(encodings)])
    return root


@pytest.fixture
def ingested(invoke: Command, tmp_path: Path) -> Command:
    """Ingest a source into ``tmp_path/c``; a refusal comes without progress."""

    def call(source: Path, *options: object) -> Outcome:
        done = invoke("ingest", source, tmp_path / "c", "--scheduler", "synchronous", *options)
        return done.without_progress() if done.code else done

    return call


def require_documents(corpus: Path) -> None:
    """The corpus has all documents, and their accented letters."""
    vocabulary = open_corpus(corpus).vocabulary()
    assert open_corpus(corpus).n_documents == len(DOCUMENTS)
    assert vocabulary.term_count[vocabulary.words.index("café")] == EXPECTED


@pytest.mark.parametrize(
    ("delimiter", "encoding", "options"),
    [
        (";", "utf-8", ()),
        ("\t", "utf-8", ()),
        ("|", "utf-8-sig", ()),
        ("\t", "utf-16", ()),  # what Excel calls Unicode text
        (";", "cp1252", ("--encoding", "cp1252")),
        (";", "cp1252", ("--encoding", "utf-8,cp1252")),
        (",", "utf-8", ("--encoding", "utf-8,cp1252")),
    ],
)
def test_csv_of_other_separators_and_encodings(
    delimiter: str, encoding: str, options: tuple[str, ...], ingested: Command, tmp_path: Path
) -> None:
    done = ingested(write_csv(tmp_path / "t.csv", delimiter, encoding), *options)
    assert done.code == 0, done.err
    assert "'what'" in done.err
    assert "--text NAME" in done.err
    assert (f"separated by {delimiter!r}" in done.err) == (delimiter != ",")
    require_documents(tmp_path / "c")


def test_a_separator_that_is_only_in_the_header_is_ignored(ingested: Command, tmp_path: Path) -> None:
    """Fields hold semicolons, and a comma cuts every record."""
    rows = [f'"{text}; and; more",{i}' for i, text in enumerate(DOCUMENTS)]
    path = put(tmp_path / "t.csv", "\n".join(["a text; with; notes,number", *rows]))
    assert ingested(path).code == 0
    assert "read_delimiter" not in read_manifest(tmp_path / "c").settings


@pytest.mark.parametrize(("name", "delimiter"), [("r.csv", ";"), ("t.tsv", "\t"), ("u.data", "\t")])
def test_ratings_with_other_separators(name: str, delimiter: str, ingested: Command, tmp_path: Path) -> None:
    text = "\n".join(["userId;movieId;rating", *RATINGS])
    done = ingested(put(tmp_path / name, text.replace(";", delimiter)), "--reader", "ratings")
    assert done.code == 0, done.err
    assert "the source is read with user=userId, item=movieId (--read KEY=VALUE" in done.err
    assert (f"separated by {delimiter!r}" in done.err) == (not name.endswith(".tsv"))
    assert open_corpus(tmp_path / "c").n_documents == 40


@pytest.mark.parametrize(
    ("separator", "read"), [(",", {"separator": ","}), ("\t", {"separator": "\t"}), (" ", {})]
)
def test_separators_of_baskets_are_detected(separator: str, read: dict[str, str], tmp_path: Path) -> None:
    items = [f"item{i % 7}{separator}item{i % 5}{separator}item{i % 3}" for i in range(40)]
    path = put(
        tmp_path / "b.csv", "\n".join(["alone", "", *items, "one, two" if separator == " " else "alone"])
    )
    assert guess_source(path, "baskets") == Guess("baskets", read, ANY)
    assert guess_source(path, "baskets", {"separator": ";"}).read == {}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8"])
@pytest.mark.parametrize("name", ["export.txt", "part-00000", "in/a.dat"])
def test_delimited_texts_of_any_name(name: str, encoding: str, ingested: Command, tmp_path: Path) -> None:
    path = write_csv(put(tmp_path / name, ""), "\t", encoding)
    assert ingested(path.parent if name.startswith("in/") else path).code == 0
    require_documents(tmp_path / "c")
    path.write_text(path.read_text(encoding).partition("\n")[2])
    refused(ingested(path), 2, "a table", "--reader lines", "--read delimiter=CHARACTER")
    options = ("--read", "delimiter=\\t", "--columns", "number,what,year")
    assert ingested(path, "--overwrite", *options).code == 0
    require_documents(tmp_path / "c")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le"])
@pytest.mark.parametrize(
    "before",
    ["Report generated 2020-01-01\n\n", "# one, two, it's\n#\n", '"Report, of",,\r\n,,\r\n', "ant\nbee\n"],
)
def test_lines_before_the_header(before: str, encoding: str, ingested: Command, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "t.csv")
    path.write_bytes((before + path.read_text()).encode(encoding))
    done = ingested(path)
    assert done.code == 0, done.err
    assert "its header is line 3; --read skip_lines=0 reads what is above, too" in done.err
    require_documents(tmp_path / "c")
    # Without numbers, the header is not certain.
    before = before.replace(", two,", "")
    path.write_text(
        f"{before}what,of\n" + "".join(f"{text},{'abc'[i % 3]}\n" for i, text in enumerate(DOCUMENTS))
    )
    refused(ingested(path), 2, "t.csv", "--read skip_lines=N")
    for options in (("--read", "skip_lines=2"), ("--text", "what")):
        assert ingested(path, "--overwrite", *options).code == 0
    require_documents(tmp_path / "c")


def test_a_folder_in_several_encodings(ingested: Command, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "in", "utf-8", "cp1252", "utf-16", "utf-16-be", "utf-8-sig")
    refused(ingested(folder), 2, ".txt: byte ", "UTF-8", "--encoding cp1252, or utf-8,cp1252")
    assert ingested(folder, "--encoding", "utf-8,cp1252").code == 0
    require_documents(tmp_path / "c")
    assert read_manifest(tmp_path / "c").settings["read_encoding"] == "utf-8,cp1252"
    assert ingested(folder, "--on-bad-record", "quarantine", "--overwrite").code == 0
    assert open_corpus(tmp_path / "c").n_documents < len(DOCUMENTS)


def marked(path: Path, text: str, encoding: str) -> Path:
    data = text.encode(encoding)
    return put(path, gzip.compress(data) if path.suffix == ".gz" else data)


ENCODED: list[tuple[str, str, tuple[str, ...]]] = [
    ("t.jsonl", "text", ()),
    ("t.jsonl.gz", "text", ("--encoding", "cp1252")),
    ("t.json", "text", ()),
    ("t.csv", "text", ("--encoding", "cp1252")),
    ("t.txt", "lines", ()),
    ("t.txt.gz", "lines", ("--encoding", "cp1252,utf-8")),
    ("t.baskets", "baskets", ()),
    ("triples.tsv", "triples", ()),
]


@pytest.mark.parametrize(
    ("encoding", "made"), each_once(["utf-16", "utf-16-le", "utf-32", "utf-8-sig"], ENCODED)
)
def test_a_byte_order_mark_gives_the_encoding(
    made: tuple[str, str, tuple[str, ...]], encoding: str, ingested: Command, tmp_path: Path
) -> None:
    """Also of files that are split into parts, and against the option."""
    name, reader, options = made
    rows = [{"text": text, "n": i} for i, text in enumerate(DOCUMENTS)]
    text = "\n".join(DOCUMENTS) + "\n"
    if name == "t.csv":
        text = "text\n" + text
    elif name == "t.json":
        text = json.dumps(rows, ensure_ascii=False)
    elif name.startswith("t.jsonl"):
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    elif name == "triples.tsv":
        words = [(i, word) for i, one in enumerate(DOCUMENTS) for word in one.split()]
        text = "document\tword\tcount\n" + "".join(f"{i}\t{word}\t1\n" for i, word in words)
    plain = marked(tmp_path / "plain" / name, text, "utf-8")
    assert ingested(plain, "--reader", reader).code == 0
    expected = open_corpus(tmp_path / "c").fingerprint
    path = marked(tmp_path / name, text, encoding)
    for size in (8 << 20, 500):
        with small(unit=size):
            done = ingested(path, "--reader", reader, *options, "--overwrite")
        assert done.code == 0, done.err
        assert open_corpus(tmp_path / "c").fingerprint == expected


def test_damaged_utf_16(ingested: Command, tmp_path: Path) -> None:
    data = '{"text": "ant bee"}\n{"text": "cat"}\n'.encode("utf-16")
    refused(ingested(put(tmp_path / "a.jsonl", data[:-3])), 2, "a.jsonl", "it is not UTF-16")
    spoilt = data.replace("cat".encode("utf-16-le"), b"c\0\0\xd8t\0")
    refused(ingested(put(tmp_path / "b.jsonl", spoilt)), 2, "b.jsonl", "it is not UTF-16")


SHORT = "".join(f"the cat {i} sat on mat{i}\n" for i in range(8))
TEXT = ("--reader", "text", "--read", "text=what", "--read")
TWEET = '{"text": "café"}\n'.encode("cp1252")

#: Name and bytes of a source, options, and what the refusal must name.
REFUSED: tuple[tuple[str, str | bytes, tuple[str, ...], tuple[str, ...]], ...] = (
    *(("t.csv", "what\na\n", (*TEXT, f"delimiter={d}"), ("character",)) for d in ('"', "")),
    *(
        (name, "what\na\n", ("--encoding", encoding), ("encoding",))
        for name in ("in/t.txt", "t.csv")
        for encoding in ("klingon", "utf-16", "hex", "utf-8,klingon")
    ),
    ("t.jsonl", TWEET, (), ("--encoding cp1252",)),
    ("t.csv", b"what\n" + TWEET * 3, (*TEXT[:2], "--read", "text=what"), ("--encoding cp1252",)),
    ("t.txt", TWEET, LINES, ("--encoding cp1252",)),
    ("in/novel.txt", DOCUMENTS[0], ("--quiet",), ("1 document ", "more documents")),
    (
        "t.txt",
        SHORT,
        (*LINES, "--quiet", "--min-tokens", "5"),
        ("no document is left", "8 documents with fewer than"),
    ),
    ("in/1.txt", b"%PDF-1.4 \xff", (), ("1.txt: ", "plain text", "PDF")),
    ("in/1.txt", b"PK\x03\x04\0\0", (), ("1.txt: ", "plain text", "PDF")),
    ("sheet.xlsx", b"PK", (), ("sheet.xlsx: ", "spreadsheet")),
    ("in/2.pdf", b"%PDF", (), (".pdf files", "plain text, one file each")),
    ("r.csv", "who,movieId,rating\n1,2,3\n", ("--reader", "ratings"), ("who, movieId", "--read user=NAME")),
)


@pytest.mark.parametrize(("name", "content", "options", "parts"), REFUSED)
def test_a_source_that_cannot_be_read_is_refused(
    name: str,
    content: str | bytes,
    options: tuple[str, ...],
    parts: tuple[str, ...],
    ingested: Command,
    tmp_path: Path,
) -> None:
    path = put(tmp_path / name, content)
    refused(ingested(path.parent if name.startswith("in/") else path, *options), 2, *parts)
    assert not (tmp_path / "c").exists()


def test_new_texts_of_another_encoding(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "in", "utf-8")
    fit(folder, tmp_path / "m", [6], polish=False, execution=Execution("synchronous"))
    assert "café" in words_of(tmp_path / "m.corpus")
    new = put(tmp_path / "new.txt", "café rocket orbit\noven flour\n".encode("cp1252"))
    reading = IngestRequest("lines", {"encoding": "cp1252"})
    totals = transform(tmp_path / "m", new, tmp_path / "shares.parquet", reading=reading).about.totals
    assert totals is not None
    assert (totals.documents, totals.tokens, totals.unknown_tokens) == (2, 5, 0)


@pytest.mark.parametrize("source", ["t.csv", "in", "parquet"])
@pytest.mark.parametrize(
    "verb", [("scan", "out"), ("infer", "out", "--topics", "5"), ("choose-k", "--topics", "2,3")]
)
def test_a_verb_that_wants_a_corpus_names_those_that_make_one(
    source: str, verb: tuple[str, ...], invoke: Command, tmp_path: Path
) -> None:
    write_csv(tmp_path / "t.csv")
    write_folder(tmp_path / "in", "utf-8")
    (tmp_path / "parquet").mkdir()
    pq.write_table(pa.table({"text": DOCUMENTS}), tmp_path / "parquet" / "t.parquet")
    name, *rest = verb
    where = tmp_path / source
    verbs = (f"ingest {where} CORPUS", f"fit {where} MODEL --topics 20") if name != "infer" else ()
    refused(invoke(name, where, *(tmp_path / part if part == "out" else part for part in rest)), 2, *verbs)


def test_fit_can_be_quiet(invoke: Command, tmp_path: Path) -> None:
    source, quick = write_csv(tmp_path / "t.csv"), ("--quiet", "--no-polish", "--scheduler", "synchronous")
    done = invoke("fit", source, tmp_path / "m", "--topics", "6", *quick)
    assert (done.code, done.err) == (0, "")
    assert "model: " in done.out
