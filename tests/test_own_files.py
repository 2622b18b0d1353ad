"""Texts as programs of an office leave them: other encodings, other separators, a document a line."""

from __future__ import annotations

import csv
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_jsmf import transform
from streaming_jsmf.config import IngestRequest
from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.corpus.format import read_manifest
from streaming_jsmf.documents.shares import SharesFile
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.topics.fit import fit
from tests.outcomes import Command, refused
from tests.test_own_texts import words_of, write_documents

DOCUMENTS = [text.replace("moon", "café") for text in write_documents(120)]


def write_csv(path: Path, delimiter: str = ",", encoding: str = "utf-8") -> Path:
    with path.open("w", newline="", encoding=encoding) as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(["number", "what", "year"])
        writer.writerows([i, text, 1990] for i, text in enumerate(DOCUMENTS))
    return path


def write_folder(root: Path, *encodings: str) -> Path:
    root.mkdir()
    for i, text in enumerate(DOCUMENTS):
        (root / f"{i}.txt").write_text(text, encoding=encodings[i % len(encodings)])
    return root


@pytest.fixture
def ingested(invoke: Command, tmp_path: Path) -> Command:
    return lambda source, *options: invoke(
        "ingest", source, tmp_path / "c", "--scheduler", "synchronous", *options
    )


def count_of(word: str, corpus: Path) -> int:
    vocabulary = open_corpus(corpus).vocabulary()
    return int(vocabulary.term_count[vocabulary.words.index(word)])


EXPECTED = sum(text.count("café") for text in DOCUMENTS)


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
    shown = "" if delimiter == "," else f" of fields separated by {delimiter!r}"
    assert f"the texts are taken from the column 'what'{shown}; --read text=NAME names another" in done.err
    assert open_corpus(tmp_path / "c").n_documents == len(DOCUMENTS)
    assert count_of("café", tmp_path / "c") == EXPECTED
    assert read_manifest(tmp_path / "c").settings.get("read_delimiter") == (
        None if delimiter == "," else delimiter
    )


def test_a_separator_in_a_header_alone_is_none(ingested: Command, tmp_path: Path) -> None:
    """Fields with semicolons, and a comma that cuts every record: the usual one is kept."""
    rows = [f'"{text}; and; more",{i}' for i, text in enumerate(DOCUMENTS)]
    (tmp_path / "t.csv").write_text("\n".join(["a text; with; notes,number", *rows]))
    assert ingested(tmp_path / "t.csv").code == 0
    assert "read_delimiter" not in read_manifest(tmp_path / "c").settings


def test_ratings_with_semicolons(ingested: Command, tmp_path: Path) -> None:
    rows = [f"{u};{i};{1 + (u + i) % 5}" for u in range(40) for i in range(12)]
    (tmp_path / "r.csv").write_text("\n".join(["userId;movieId;rating", *rows]))
    done = ingested(tmp_path / "r.csv")
    assert done.code == 0, done.err
    assert "the ratings are read with delimiter=;, user=userId, item=movieId (--read KEY=VALUE" in done.err
    assert open_corpus(tmp_path / "c").n_documents == 40
    (tmp_path / "t.tsv").write_text("\n".join(["userId;movieId;rating", *rows]).replace(";", "\t"))
    assert ingested(tmp_path / "t.tsv", "--overwrite").code == 0


@pytest.mark.parametrize("delimiter", [";;", '"', ""])
def test_what_is_no_separator(delimiter: str, ingested: Command, tmp_path: Path) -> None:
    given = ("--reader", "text", "--read", f"delimiter={delimiter}", "--read", "text=what")
    refused(ingested(write_csv(tmp_path / "t.csv"), *given), 2, "a delimiter is one character, such as ;")


def test_delimited_texts_of_any_name(ingested: Command, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "export.txt", "\t")
    refused(ingested(path, "--reader", "text"), 2, "its suffix is '.txt'", "--read delimiter=CHARACTER")
    assert ingested(path, "--reader", "text", "--read", "delimiter=\\t", "--read", "text=what").code == 0
    assert count_of("café", tmp_path / "c") == EXPECTED


def test_a_folder_in_another_encoding(ingested: Command, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "in", "utf-8", "cp1252", "utf-16", "utf-8-sig")
    first = next(i for i, text in enumerate(DOCUMENTS) if i % 4 == 1 and "café" in text)
    refused(
        ingested(folder).without_progress(),
        2,
        ".txt: byte ",
        "of the file is not UTF-8 (name its encoding, such as --encoding cp1252, or utf-8,cp1252 where files differ)",
    )
    assert ingested(folder, "--encoding", "utf-8,cp1252").code == 0
    assert count_of("café", tmp_path / "c") == EXPECTED
    assert read_manifest(tmp_path / "c").settings["read_encoding"] == "utf-8,cp1252"
    aside = ingested(folder, "--on-bad-record", "quarantine", "--overwrite")
    assert aside.code == 0
    assert open_corpus(tmp_path / "c").n_documents < len(DOCUMENTS), first


@pytest.mark.parametrize("kind", ["json", "csv", "lines"])
def test_bytes_of_no_character_name_the_option(kind: str, ingested: Command, tmp_path: Path) -> None:
    if kind == "json":
        (tmp_path / "t.jsonl").write_bytes('{"text": "café"}\n'.encode("cp1252"))
    elif kind == "csv":
        write_csv(tmp_path / "t.csv", encoding="cp1252")
    else:
        (tmp_path / "t.txt").write_bytes("a café\n".encode("cp1252"))
    [source] = tmp_path.glob("t.*")
    done = ingested(source, *(("--reader", "lines") if kind == "lines" else ()))
    assert done.code == 2
    assert "such as --encoding cp1252" in done.err


@pytest.mark.parametrize("encoding", ["klingon", "utf-16", "hex", "utf-8,klingon"])
def test_what_is_no_encoding(encoding: str, ingested: Command, tmp_path: Path) -> None:
    for source in (write_folder(tmp_path / "in", "utf-8"), write_csv(tmp_path / "t.csv")):
        assert "encoding" in (done := ingested(source, "--encoding", encoding)).err
        assert done.code == 2
        assert len(done.without_progress().err.splitlines()) == 1


def test_a_document_a_line(ingested: Command, tmp_path: Path) -> None:
    path = tmp_path / "tweets.txt"
    path.write_text("\n\n".join(DOCUMENTS) + "\n")
    refused(
        ingested(path),
        2,
        "tweets.txt could be one text per line, baskets or a table",
        "--reader lines (a text file for each document: give their folder)",
    )
    assert ingested(path, "--reader", "lines").code == 0
    assert open_corpus(tmp_path / "c").n_documents == len(DOCUMENTS)
    assert count_of("café", tmp_path / "c") == EXPECTED


def test_one_document_is_too_few(ingested: Command, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "novel.txt").write_text(DOCUMENTS[0])
    done = ingested(tmp_path / "in")
    assert done.code == 2
    assert "no word of the 1 document read is left" in done.err
    assert "give more documents" in done.err


def test_new_texts_of_another_encoding(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "in", "utf-8")
    fit(folder, tmp_path / "m", [6], polish=False, execution=Execution("synchronous"))
    assert "café" in words_of(tmp_path / "m.corpus")
    new = tmp_path / "new.txt"
    new.write_text("café rocket orbit\noven flour\n", encoding="cp1252")
    reading = IngestRequest("lines", {"encoding": "cp1252"})
    shares: SharesFile = transform(tmp_path / "m", new, tmp_path / "shares.parquet", reading=reading)
    assert shares.about.totals is not None
    assert (shares.about.totals.documents, shares.about.totals.tokens) == (2, 5)
    assert shares.about.totals.unknown_tokens == 0


def test_what_is_no_text_is_told(ingested: Command, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "in", "utf-8")
    (folder / "1.txt").write_bytes(b"%PDF-1.4 \xff")
    refused(ingested(folder).without_progress(), 2, "1.txt: it is not plain text; export the text of PDF")
    (folder / "1.txt").write_bytes(b"PK\x03\x04\0\0")
    refused(ingested(folder).without_progress(), 2, "1.txt: it is not plain text; export the text of PDF")
    (tmp_path / "sheet.xlsx").write_bytes(b"PK")
    refused(
        ingested(tmp_path / "sheet.xlsx"), 2, "sheet.xlsx: .xlsx files are not read; save the sheet as CSV"
    )
    (folder / "2.pdf").write_bytes(b"%PDF")
    refused(ingested(folder), 2, ".pdf files are not read; export them as plain text, one file each")


def test_a_few_short_documents_are_too_few(ingested: Command, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("".join(f"the cat {i} sat on mat{i}\n" for i in range(8)))
    done = ingested(tmp_path / "t.txt", "--reader", "lines")
    assert done.code == 2
    assert "no document is left after the curation (8 documents with fewer than" in done.err
    assert not (tmp_path / "c").exists()


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
    done = invoke(name, where, *(tmp_path / part if part == "out" else part for part in rest))
    if name == "infer":
        refused(done, 2)
    else:
        refused(
            done, 2, f"streaming-jsmf ingest {where} CORPUS", f"streaming-jsmf fit {where} MODEL --topics 20"
        )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ("infer", "m", "5"),
            "Missing option '--topics', as in: streaming-jsmf infer MOMENTS MODEL --topics 20; see",
        ),
        (("report", "m"), "Missing argument 'OUT.html', as in: streaming-jsmf report MODEL topics.html; see"),
        (
            ("fit", "news.csv"),
            "Missing argument 'MODEL', as in: streaming-jsmf fit news.csv MODEL --topics 20; see",
        ),
        (("topics", "nowhere"), "nowhere: "),
    ],
)
def test_what_is_missing_is_shown_by_an_example(
    arguments: tuple[str, ...], says: str, invoke: Command
) -> None:
    refused(invoke(*arguments), 2, says)


def test_ratings_without_a_known_column(ingested: Command, tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("who,movieId,rating\n1,2,3\n")
    refused(
        ingested(tmp_path / "r.csv", "--reader", "ratings"),
        2,
        "the columns who, movieId, rating",
        "--read user=NAME",
    )


def test_fit_can_be_quiet(invoke: Command, tmp_path: Path) -> None:
    source = write_csv(tmp_path / "t.csv")
    done = invoke(
        "fit", source, tmp_path / "m", "--topics", "6", "--quiet", "--no-polish", "--scheduler", "synchronous"
    )
    assert (done.code, done.err) == (0, "")
    assert "model: " in done.out
