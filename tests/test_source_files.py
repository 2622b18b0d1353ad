"""Files of a source: which are found, and which reader is guessed from names, contents and first records."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest

from streaming_jsmf import InputError, ingest, open_corpus
from streaming_jsmf.ingestion.readers import files
from streaming_jsmf.ingestion.readers.listing import find_files, list_files
from streaming_jsmf.ingestion.readers.sources import guess_reader, guess_source
from tests.outcomes import Command, Outcome, refused
from tests.readers import KEEP_ALL
from tests.sources import in_tar, in_zip, message, put, put_parquet

WORDS = [f"ant bee{i % 3} cat{i % 4} dog" for i in range(12)]
OBJECTS = "".join(json.dumps({"id": str(i), "url": "x", "text": text}) + "\n" for i, text in enumerate(WORDS))


@pytest.fixture
def ingested(invoke: Command, tmp_path: Path) -> Command:
    def call(source: Path | str, *options: object) -> Outcome:
        command = ("ingest", source, tmp_path / "c", "--quiet", "--scheduler", "synchronous", *KEEP_ALL)
        return invoke(*command, "--preset", "papers", "--overwrite", *options)

    return call


def put_all(folder: Path, contents: Mapping[str, str | bytes]) -> Path:
    for name, content in contents.items():
        put(folder / name, content)
    return folder


def test_files_of_a_source(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    for name in [
        "b.csv",
        "a.csv",
        "in/c.csv",
        "in/d.txt",
        "_SUCCESS",
        ".a.csv.crc",
        "__MACOSX/e.csv",
        "in/.git/f.csv",
    ]:
        put(plain / name, name)
    seen = ["a.csv", "b.csv", "in/c.csv", "in/d.txt"]
    assert list(find_files(plain).values()) == seen
    assert list(find_files(plain / "**" / "*.csv").values()) == seen[:3]
    odd = put(tmp_path / "a[1]*.csv", "x")
    for location, found in (
        (plain / "*.csv", ("a.csv", "b.csv")),
        (plain / "i?" / "[cd].*", ("in/c.csv", "in/d.txt")),
        (plain / "_SUCCESS", ("_SUCCESS",)),
        (f"file://{plain}/a.csv", ("a.csv",)),
        (odd, (f"../{odd.name}",)),
    ):
        assert [Path(path) for path in list_files(location)] == [(plain / name).resolve() for name in found]
    # Only names below the given folder hide a file.
    root = tmp_path / "_cache" / ".hidden" / "odd[1]"
    root.parent.mkdir(parents=True)
    plain.rename(root)
    assert list(find_files(root).values()) == seen
    (tmp_path / "void").mkdir()
    for nothing in (tmp_path / "void", tmp_path / "absent.csv", tmp_path / "*.absent", "no-such://a"):
        assert str(nothing).rsplit("/", 1)[-1] in message(lambda nothing=nothing: list_files(nothing))


def test_files_behind_urls(tmp_path: Path, ingested: Command) -> None:
    memory = fsspec.filesystem("memory")
    others = gzip.compress(OBJECTS.replace(': "', ': "x').encode())
    for name, data in (("a.jsonl", OBJECTS.encode()), ("b.jsonl.gz", others), ("_temporary/c.jsonl", b"{")):
        memory.pipe(f"/t_src/{name}", data)
    assert list_files("memory://t_src/*.gz") == list_files("memory://t_src")[1:]
    assert ingested("memory://t_src").code == 0
    assert open_corpus(tmp_path / "c").n_documents == 24
    archive = put(tmp_path / "a.zip", in_zip({"d/a.jsonl": OBJECTS, "e.jsonl": b"{"}))
    assert list_files(f"zip://d/*.jsonl::{archive}") == (f"zip://d/a.jsonl::{archive}",)
    assert ingested(f"zip://d/*.jsonl::{archive}").code == 0


GUESSES: list[tuple[str, str, Any]] = [
    ("a.jsonl", "text", '{"text": "a"}'),
    ("a.ndjson.gz", "text", b""),
    ("a.csv", "text", "id,text\n"),
    ("b.csv", "text", b'\xef\xbb\xbf"text","n"\r\n'),
    ("c.csv", "ratings", "user,item,rating\n"),
    ("d.tsv", "triples", "document\tword\tcount\n"),
    ("f.csv", "text", "Headline,Full_Text\n"),
    ("g.csv", "text", "what,url\nsome words that make a text,https://example.org/what-is-longer-than-it\n"),
    ("h.csv", "ratings", "userId,movieId,rating,timestamp\n"),
    ("e.csv.gz", "text", gzip.compress(b"text\n", mtime=0)),
    ("zipped.csv", "text", gzip.compress(b"text\n", mtime=0)),
    ("a.npz", "npz", b""),
    ("a.mtx.gz", "matrix-market", b""),
    ("a.h5ad", "h5ad", b""),
    ("docword.a.txt.gz", "docword", b""),
    *((name, "text-files", b"") for name in ("a.zip", "a.tar.gz", "a.tgz")),
    ("a.parquet", "text", {"text": ["a"], "n": [1]}),
    ("b.parquet", "text", {"n": [1], "Body": ["a"]}),
    ("part-00000", "text", {"n": [1], "what": ["some words that make a text"]}),
    ("h.parquet", "text", {"n": [1], "what": [b"some words that make a text"]}),
    ("d.parquet", "bag-of-words-parquet", {"ids": [[1]], "counts": [[1]]}),
    ("e.parquet", "ratings", {"user": [1], "item": [1], "rating": [1]}),
    ("f.parquet", "triples", {"document": [1], "word": ["a"], "count": [1]}),
    ("g.parquet", "baskets", {"items": [["a"]]}),
    ("wiki_00", "text", OBJECTS),
    ("tweets.txt", "text", OBJECTS),
    ("dump", "text", gzip.compress(b"[\n" + OBJECTS.strip().replace("\n", ",\n").encode() + b"]", mtime=0)),
    ("RC_2019-01.zst", "text", pa.compress(OBJECTS.encode(), "zstd", asbytes=True)),
    ("Inbox", "mail", "From a@b.c Thu Jan  1 00:00:00 1970\nFrom: a@b.c\n\nant\n"),
    ("00001.7c53", "mail", "Return-Path: <a@b.c>\nSubject: ant\n\nbee\n"),
    ("a.eml", "mail", "bee\n"),
]


@pytest.mark.parametrize(("name", "reader", "content"), GUESSES, ids=[name for name, _, _ in GUESSES])
def test_guessed_readers(tmp_path: Path, name: str, reader: str, content: Any) -> None:
    """A word list and marker files beside the file make no difference."""
    path = (put_parquet if isinstance(content, dict) else put)(tmp_path / "in" / name, content)
    assert guess_reader(path) == reader
    put(path.with_name("vocab.txt"), "a\n")
    put(path.with_name("_SUCCESS"), "")
    if reader != "text-files":
        assert guess_reader(path.parent) == reader
    if reader == "mail":
        assert guess_reader(put(tmp_path / "t.tar", in_tar({name: content.encode()}, "w:"))) == reader


LONG = "some words that make a text"


@pytest.mark.parametrize(
    ("records", "text"),
    [
        ([{"said": {"text": LONG, "n": 1}, "labels": [{"slot": LONG}]}] * 3, "said.text"),
        ([{"said": {"text": LONG}, "what": LONG}], "what"),
        ([{"labels": [[LONG]], "tokens": ["ant", "bee"]}], "tokens"),
        ([{"labels": [{"slot": LONG}], "said": {"short": "a"}}], "said.short; name it with text='said.short'"),
        ([{"train": [[LONG, "a"]], "test": []}], "holds one object with the lists train, test, and no records"),
    ],
)  # fmt: skip
def test_guessed_columns_of_json(tmp_path: Path, records: list[Any], text: str) -> None:
    path = put(tmp_path / "a.json", json.dumps(records[0] if "train" in records[0] else records, indent=1))
    if " " in text:
        assert text in message(lambda: guess_source(path))
    else:
        assert guess_source(path).read == {"text": [text]}


def test_guessed_readers_of_folders(tmp_path: Path) -> None:
    assert guess_reader(put_all(tmp_path / "folder", {"a.txt": "one\n", "b/51121": "two\n"})) == "text-files"
    put(tmp_path / "some" / "a.parquet", b"broken")
    put_parquet(tmp_path / "some" / "b.parquet", {"text": ["a"]})
    assert guess_reader(tmp_path / "some") == "text"
    put(tmp_path / "corpus" / "manifest.json", "{}")
    assert guess_reader(tmp_path / "corpus") == "bag-of-words-parquet"


@pytest.mark.parametrize(
    "names", [("AA/wiki_00", "AB/wiki_01"), ("part-00000", "part-00001"), ("a.txt", "b.log.1")]
)
@pytest.mark.parametrize("options", [(), ("--reader", "text")])
@pytest.mark.parametrize("packed", [False, True])
def test_records_in_files_of_any_name(
    names: tuple[str, ...], options: tuple[str, ...], packed: bool, ingested: Command, tmp_path: Path
) -> None:
    contents = {name: OBJECTS.replace('"id": "', f'"id": "{i}') for i, name in enumerate(names)}
    held = {name: gzip.compress(text.encode()) if packed else text for name, text in contents.items()}
    for source in (put_all(tmp_path / "in", held), put(tmp_path / "t.zip", in_zip(held))):
        done = ingested(source, *options)
        assert done.code == 0, done.err
        corpus = open_corpus(tmp_path / "c")
        assert corpus.n_documents == 24
        assert "url" not in corpus.vocabulary().words
    assert ingested(tmp_path / "in" / names[0], *options).code == 0
    assert open_corpus(tmp_path / "c").n_documents == 12


LINES = {
    "chat.txt": "".join(f"1/3/20, 10:{i:02d} - Bob: {text}\n" for i, text in enumerate(WORDS)),
    "app.log": "".join(f"[2020-01-01 00:00:{i:02d}] INFO {text}\n" for i, text in enumerate(WORDS)),
    "mallet": "".join(f"doc{i}\tx\t{text}\n" for i, text in enumerate(WORDS)),
}


@pytest.mark.parametrize("name", LINES)
def test_a_folder_of_one_file_of_lines_is_treated_as_the_file(
    name: str, ingested: Command, tmp_path: Path
) -> None:
    path = put(tmp_path / "in" / name, LINES[name])
    for source in (path, path.parent):
        refused(ingested(source), 2, name, "one text per line", "--reader lines")
        assert ingested(source, "--reader", "lines").code == 0
        assert open_corpus(tmp_path / "c").n_documents == 12
    assert ingested(path.parent, "--reader", "text-files").code == 0
    assert open_corpus(tmp_path / "c").n_documents == 1


TWICE = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        *((name, "1 2\n", ["text", "baskets", "table", "reader="]) for name in ("a.txt", "a.dat", "noext")),
        ("a.csv", 'who,"x"\n1,2\n', ["has the columns who, x"]),
        ("e.csv", 'body,"x\n', ["header is not CSV"]),
        ("b.csv", "", ["the file is empty"]),
        ("c.csv.gz", gzip.compress(b"text\n", mtime=0)[:5], ["ends early"]),
        ("d.csv", "\x1b[31m,b\n", [r"has the columns '\x1b[31m', b"]),
        ("a.parquet", b"broken", ["Parquet"]),
        ("vocab.txt", "a\n", ["word list"]),
        ("absent", None, ["no such file or directory"]),
        ("c.parquet", {"items": ["a"]}, ["has the columns items"]),
        ("d.parquet", {f"c{i}": [i] for i in range(99)}, ["has the columns c0, c1"]),
    ],
)
def test_sources_whose_reader_cannot_be_guessed(
    tmp_path: Path, name: str, content: Any, parts: list[str]
) -> None:
    path = tmp_path / name
    if content is not None:
        (put if isinstance(content, str | bytes) else put_parquet)(path, content)
    found = message(lambda: guess_reader(path))
    assert all(part in found for part in (str(path), *parts)), found
    assert len(found.replace(str(path), "")) < 500


def test_a_folder_with_two_formats_needs_a_reader(tmp_path: Path) -> None:
    found = message(lambda: guess_reader(put_all(tmp_path / "in", {"a.csv": "text\n", "b.jsonl": "{}"})))
    assert all(part in found for part in (".csv (a.csv), .jsonl (b.jsonl)", "reader="))


def test_a_table_in_an_archive_is_named(tmp_path: Path, ingested: Command) -> None:
    table = "text;n\n" + "".join(f"{text};1\n" for text in WORDS)
    two = put(tmp_path / "two.zip", in_zip({"d/a.csv": table, "b.csv": "id,body\n", "__MACOSX/c.txt": "c"}))
    assert guess_source(two, read={"path": "d/a.csv"}).reader == "text"
    assert ingested(two, "--read", "path=d/a.csv").code == 0
    assert open_corpus(tmp_path / "c").n_documents == 12


def test_an_archive_is_opened_once_for_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Path] = []
    made = files.zipfile.ZipFile
    path = put(
        tmp_path / "t.zip", in_zip({f"{i}.csv": f"text\nant bee cat dog eel fox{i}\n" for i in range(40)})
    )

    def count(archive: Any, *arguments: Any, **named: Any) -> Any:
        opened.append(archive)
        return made(archive, *arguments, **named)

    monkeypatch.setattr(files.zipfile, "ZipFile", count)
    ingest(path, tmp_path / "c", preset="papers", scheduler="synchronous")
    assert len(opened) < 10
    path.write_bytes(in_zip({"a.csv": "text\nant bee cat dog eel\n"}))
    ingest(path, tmp_path / "d", preset="papers", scheduler="synchronous")
    assert open_corpus(tmp_path / "d").n_documents == 1


def test_zstd_with_a_long_window(ingested: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zstandard = pytest.importorskip("zstandard")
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=31, enable_ldm=True)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    data = stream.compress(OBJECTS.encode()) + stream.flush()
    path = put(tmp_path / "RC_2019-01.jsonl.zst", data + data.replace(b"zzz", b""))
    done = ingested(path)
    assert done.code == 0, done.err
    assert open_corpus(tmp_path / "c").n_documents == 24
    refused(
        ingested(put(tmp_path / "cut.jsonl.zst", data[:-4])), 2, "cut.jsonl.zst", "ends early", "cut short"
    )
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    refused(ingested(path), 2, "zstd --long=31", "streaming-jsmf[zstd]", "zstd -d --long=31")


def test_an_unknown_encoding_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="encoding"):
        guess_source(put(tmp_path / "a.csv", "text\n"), read={"encoding": "klingon"})
