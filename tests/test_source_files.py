"""Files of a source, also in archives: which are found, and which reader is guessed from names and contents."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_jsmf import ingest, open_corpus
from streaming_jsmf.corpus.format import read_manifest
from streaming_jsmf.ingestion.readers.guess import guess_reader, guess_source
from streaming_jsmf.ingestion.sources import streams
from streaming_jsmf.ingestion.sources.listing import find_files, list_files
from tests.outcomes import Command, Outcome, refused
from tests.readers import KEEP_ALL
from tests.sources import in_tar, in_zip, message, put, put_parquet
from tests.test_readers import npz, parquet

WORDS = [f"ant bee{i % 3} cat{i % 4} dog" for i in range(12)]
OBJECTS = "".join(json.dumps({"id": str(i), "url": "x", "text": text}) + "\n" for i, text in enumerate(WORDS))


@pytest.fixture
def ingested(invoke: Command, tmp_path: Path) -> Command:
    def call(source: Path | str, *options: object, out: str = "c") -> Outcome:
        command = ("ingest", source, tmp_path / out, "--quiet", "--scheduler", "synchronous", *KEEP_ALL)
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
    ("a.json-seq", "text", b""),
    ("a.geojsons", "text", b""),
    ("a.seq", "text", OBJECTS.replace("{", "\x1e{")),
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
        ([{"train": [[LONG, "a"]], "test": []}], "has no column of texts among train, test; name it"),
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
@pytest.mark.parametrize(("options", "packed"), [((), True), (("--reader", "text"), False), ((), False)])
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
    assert guess_source(two, None, {"member": "d/a.csv"}).reader == "text"
    assert ingested(two, "--member", "d/a.csv").code == 0
    assert open_corpus(tmp_path / "c").n_documents == 12
    made = ingest(two, tmp_path / "d", member="d/a.csv", delimiter=";", preset="papers", min_tokens=0)
    assert read_manifest(made.root).settings["read_delimiter"] == ";"


def test_an_archive_is_opened_once_for_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Path] = []
    made = streams.zipfile.ZipFile
    path = put(
        tmp_path / "t.zip", in_zip({f"{i}.csv": f"text\nant bee cat dog eel fox{i}\n" for i in range(40)})
    )

    def count(archive: Any, *arguments: Any, **named: Any) -> Any:
        opened.append(archive)
        return made(archive, *arguments, **named)

    monkeypatch.setattr(streams.zipfile, "ZipFile", count)
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
    path = path.rename(tmp_path / "not-read-before.jsonl.zst")
    refused(ingested(path), 2, "zstd --long=31", "pip install zstandard", "zstd -d --long=31")


# Archives

Files = Mapping[str, bytes]

#: What other programs put into archives and folders.
BESIDE: Files = {
    "__MACOSX/._a.csv": b"\0\xff",
    ".DS_Store": b"\0",
    "x/.hidden.csv": b"body\nhidden\n",
    "README.txt": b"what this is",
    "LICENSE": b"mine",
}


def table(start: int, kind: str) -> bytes:
    texts = [f"word{i} and word{i + 1} of them" for i in range(start, start + 5)]
    if kind == "jsonl":
        return "".join(f'{{"body": "{text}", "n": {i}}}\n' for i, text in enumerate(texts)).encode()
    if kind == "parquet":
        return parquet({"body": pa.array(texts), "n": pa.array(range(5))})
    data = "\n".join(["body,n", *(f"{text},{i}" for i, text in enumerate(texts)), ""]).encode()
    return gzip.compress(data, mtime=0) if kind.endswith("gz") else data


RATINGS = b"user,item,rating\n" + b"".join(b"%d,i%d,3\n" % (i, i % 3) for i in range(9))
#: Two files, in one of which the name of the folder is a column, and the number of documents.
HELD: list[tuple[Files, int]] = [
    *(
        ({f"a.{kind}": table(0, kind), f"x/year=1999/b.{kind}": table(20, kind)}, 10)
        for kind in ("csv", "jsonl", "parquet", "csv.gz")
    ),
    ({"a.csv": RATINGS, "b.csv": RATINGS.replace(b"\n", b"\n1")[:-1]}, 18),
    ({"d/docword.x.txt": b"3\n3\n3\n1 1 1\n2 2 1\n3 3 1\n", "d/vocab.x.txt": b"ant\nbee\ncat\n"}, 3),
    ({"m/t.npz": npz(np.array([[1, 0], [0, 2]])), "m/t.vocab.txt": b"ant\nbee\n"}, 2),
]


@pytest.mark.parametrize(("files", "n"), HELD)
def test_the_files_of_an_archive_are_those_of_its_folder(
    files: Files, n: int, ingested: Command, tmp_path: Path
) -> None:
    assert ingested(put_all(tmp_path / "in", {**files, **BESIDE}), out="expected").code == 0
    expected = open_corpus(tmp_path / "expected")
    assert expected.n_documents == n
    archive, ((first, data), (second, others)) = in_zip({**BESIDE, **files}), files.items()
    suffix = first.partition(".")[2]
    fsspec.filesystem("memory").pipe("/t_zip/t.zip", archive)
    sources: list[Any] = [put(tmp_path / name, archive) for name in ("t.zip", f"t.{suffix}.zip")]
    sources.append("memory://t_zip/t.zip")
    if "vocab" not in second:
        sources.append(
            put_all(tmp_path / "mixed", {first: data, f"b.{suffix}.zip": in_zip({second: others})})
        )
    for source in sources:
        assert ingested(source).code == 0, source
        assert open_corpus(tmp_path / "c").fingerprint == expected.fingerprint


def test_bad_records_in_an_archive_name_the_file(ingested: Command, tmp_path: Path) -> None:
    files = {"a.csv": b"text,n\nant bee,1\n", "x/b.csv": b"text,n\ncat,1\nant,1,1\n"}
    path = put(tmp_path / "t.zip", in_zip(files))
    refused(ingested(path), 2, f"zip://x/b.csv::{path}, line 3: ")
    assert ingested(path, "--on-bad-record", "quarantine").code == 0
    [bad] = pq.read_table(tmp_path / "c" / "quarantine.parquet").to_pylist()
    assert (bad["file"], bad["row"]) == (f"zip://x/b.csv::{path}", 2)


CSV, LINES = b"text\nant bee cat dog eel\n", b'{"text": "ant"}\n'


@pytest.mark.parametrize(
    ("name", "data", "parts"),
    [
        (
            "t.zip",
            in_zip({"a.csv": CSV, "b.jsonl": LINES}),
            (".csv (a.csv), .jsonl (b.jsonl)", "--member NAME"),
        ),
        ("t.csv.zip", in_zip({"a.csv": CSV, "notes.txt": b"n"}), (".csv (a.csv), .txt (notes.txt)",)),
        ("t.zip", in_zip({"a.csv": CSV, "b.zip": in_zip({"a.csv": CSV})}), ("'b.zip'", "unpack it")),
        ("t.zip", in_zip({"a.csv": CSV, "b.tar.gz": in_tar({})}), ("'b.tar.gz'", "unpack it")),
        ("t.zip", in_zip({"a.csv": CSV, "b::c.csv": CSV}), ("'b::c.csv'", "unpack it")),
        ("t.tar.gz", in_tar({"a.csv": CSV, "b.csv": CSV}), ("a.csv, b.csv", "unpack it")),
        ("t.csv.tgz", in_tar({"a.csv": CSV}), ("a.csv", "unpack it")),
        ("t.tar", in_tar({"n.txt": b"n", "a.parquet": b""}, "w:"), ("n.txt, a.parquet", "unpack it")),
        ("in/t.zip", in_zip({"a.csv": CSV, "b.jsonl": LINES}), (".csv (a.csv), .jsonl (b.jsonl)",)),
        ("in/t.zip", in_zip({"a.txt": b"ant"}), ("t.zip: it is not plain text; unpack it",)),
        (
            "t.zip",
            in_zip({"a.parquet": parquet({"ids": pa.array([[0]]), "counts": pa.array([[1]])})}),
            ("bags of words are not read from archives; unpack it",),
        ),
        ("t.zip", in_zip({"__MACOSX/._a.csv": CSV, ".b.csv": CSV}), ("no file",)),
        ("t.csv.zip", in_zip({"a.csv": CSV})[:60], ("t.csv.zip", "damaged")),
    ],
)
def test_other_archives_are_refused(
    name: str, data: bytes, parts: tuple[str, ...], ingested: Command, tmp_path: Path
) -> None:
    path = put(tmp_path / name, data)
    refused(ingested(path.parent if name.startswith("in/") else path), 2, *parts)


def test_two_files_of_one_name(ingested: Command, tmp_path: Path) -> None:
    data = in_zip({"a.csv": CSV, "b.csv": CSV}).replace(b"b.csv", b"a.csv")
    refused(ingested(put(tmp_path / "t.zip", data)), 2, "two files 'a.csv'", "rename")


def test_files_that_are_not_read_are_named(invoke: Command, tmp_path: Path) -> None:
    """With the reader given, other files are no mistake, but they are not left out without a word."""
    files = {"a.csv": CSV, "b.csv.lz4": pa.compress(CSV, "lz4", asbytes=True), "notes.doc": b"n", **BESIDE}
    for source in (put_all(tmp_path / "in", files), put(tmp_path / "t.zip", in_zip(files))):
        said = invoke("ingest", source, tmp_path / source.name[:1], "--reader", "text", "--preset", "papers")
        assert "not read, because the reader text takes other files: notes.doc\n" in said.err
        assert open_corpus(tmp_path / source.name[:1]).n_documents == 2


def test_files_whose_names_begin_like_those_of_descriptions(ingested: Command, tmp_path: Path) -> None:
    assert ingested(put(tmp_path / "citations.csv", CSV)).code == 0
    assert ingested(put(tmp_path / "in" / "licenses.csv", CSV).parent).code == 0
