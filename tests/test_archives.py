"""Tables in archives: the files of one kind are one source, as in a folder; anything else is refused by name."""

from __future__ import annotations

import gzip
import io
from collections.abc import Mapping
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_jsmf.corpus.format import open_corpus
from tests.outcomes import Command, Outcome, refused
from tests.readers import KEEP_ALL
from tests.sources import in_tar, in_zip, put
from tests.test_readers import npz, parquet

Files = Mapping[str, bytes]

#: What other programs put into archives and folders.
BESIDE: Files = {
    "__MACOSX/._a.csv": b"\0\xff",
    ".DS_Store": b"\0",
    "x/.hidden.csv": b"body\nhidden\n",
    "README.txt": b"what this is",
    "LICENSE": b"mine",
}
NUMBERS = b"3\n3\n3\n1 1 1\n2 2 1\n3 3 1\n"


def table(start: int, kind: str) -> bytes:
    texts = [f"word{i} and word{i + 1} of them" for i in range(start, start + 5)]
    if kind == "jsonl":
        return "".join(f'{{"body": "{text}", "n": {i}}}\n' for i, text in enumerate(texts)).encode()
    if kind == "parquet":
        sink = io.BytesIO()
        pq.write_table(pa.table({"body": texts, "n": list(range(5))}), sink, row_group_size=2)
        return sink.getvalue()
    data = "\n".join(["body,n", *(f"{text},{i}" for i, text in enumerate(texts)), ""]).encode()
    return gzip.compress(data, mtime=0) if kind.endswith("gz") else data


def tables(kind: str) -> Files:
    """Two tables, one of them in a folder whose name is a column, and a word list."""
    return {f"a.{kind}": table(0, kind), f"x/year=1999/b.{kind}": table(20, kind)}


def write(folder: Path, files: Files) -> Path:
    for name, data in files.items():
        put(folder / name, data)
    return folder


@pytest.fixture
def ingest(invoke: Command, tmp_path: Path) -> Command:
    def call(source: Path | str, *options: object, out: str = "c") -> Outcome:
        command = ("ingest", source, tmp_path / out, "--quiet", "--scheduler", "synchronous", *KEEP_ALL)
        return invoke(*command, "--preset", "papers", "--overwrite", *options)

    return call


def fingerprint(tmp_path: Path, name: str) -> str:
    return open_corpus(tmp_path / name).fingerprint


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "csv.gz"])
def test_the_tables_of_an_archive_are_those_of_its_folder(kind: str, ingest: Command, tmp_path: Path) -> None:
    made = tables(kind)
    folder = write(tmp_path / "folder", {**made, **BESIDE})
    assert ingest(folder, out="expected").code == 0
    expected = fingerprint(tmp_path, "expected")
    assert open_corpus(tmp_path / "expected").n_documents == 10
    first, second = made.items()
    sources = {
        "t.zip": in_zip({**BESIDE, **made}),
        f"t.{kind}.zip": in_zip({**BESIDE, **made}),
    }
    for name, data in sources.items():
        path = put(tmp_path / name, data)
        for options in ((), ("--reader", "text", "--text", "body")):
            assert ingest(path, *options).code == 0, name
            assert fingerprint(tmp_path, "c") == expected, name
    mixed = write(tmp_path / "mixed", {first[0]: first[1], f"b.{kind}.zip": in_zip({second[0]: second[1]})})
    assert ingest(mixed).code == 0
    assert fingerprint(tmp_path, "c") == expected
    fsspec.filesystem("memory").pipe("/t_zip/t.zip", sources["t.zip"])
    assert ingest("memory://t_zip/t.zip").code == 0
    assert fingerprint(tmp_path, "c") == expected


def test_counts_in_an_archive(ingest: Command, tmp_path: Path) -> None:
    files = {"d/docword.x.txt": NUMBERS, "d/vocab.x.txt": b"ant\nbee\ncat\n"}
    assert ingest(put(tmp_path / "x.zip", in_zip(files))).code == 0
    assert ingest(write(tmp_path / "in", files), out="expected").code == 0
    assert fingerprint(tmp_path, "c") == fingerprint(tmp_path, "expected")
    ratings = b"user,item,rating\n" + b"".join(b"%d,i%d,3\n" % (i, i % 3) for i in range(9))
    matrix = npz(np.array([[1, 0], [0, 2]]))
    files = {"m/t.npz": matrix, "m/t.vocab.txt": b"ant\nbee\n"}
    assert ingest(put(tmp_path / "m.zip", in_zip(files))).code == 0
    assert ingest(write(tmp_path / "m", files), out="expected").code == 0
    assert fingerprint(tmp_path, "c") == fingerprint(tmp_path, "expected")
    files = {"a.csv": ratings, "b.csv": ratings.replace(b"\n", b"\n1")[:-1], "README.txt": b"about"}
    assert ingest(put(tmp_path / "r.zip", in_zip(files))).code == 0
    assert ingest(write(tmp_path / "r", files), out="expected").code == 0
    assert fingerprint(tmp_path, "c") == fingerprint(tmp_path, "expected")


def test_bad_records_in_an_archive_name_the_file(ingest: Command, tmp_path: Path) -> None:
    files = {"a.csv": b"text,n\nant bee,1\n", "x/b.csv": b"text,n\ncat,1\nant,1,1\n"}
    path = put(tmp_path / "t.zip", in_zip(files))
    refused(ingest(path), 2, f"zip://x/b.csv::{path}, line 3: ")
    assert ingest(path, "--on-bad-record", "quarantine").code == 0
    [bad] = pq.read_table(tmp_path / "c" / "quarantine.parquet").to_pylist()
    assert (bad["file"], bad["row"]) == (f"zip://x/b.csv::{path}", 2)


CSV, LINES = b"text\nant bee cat dog eel\n", b'{"text": "ant"}\n'


@pytest.mark.parametrize(
    ("name", "data", "parts"),
    [
        ("t.zip", in_zip({"a.csv": CSV, "b.jsonl": LINES}), (".csv (a.csv), .jsonl (b.jsonl)", "path=NAME")),
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
    name: str, data: bytes, parts: tuple[str, ...], ingest: Command, tmp_path: Path
) -> None:
    path = put(tmp_path / name, data)
    refused(ingest(path.parent if name.startswith("in/") else path), 2, *parts)


def test_two_files_of_one_name(ingest: Command, tmp_path: Path) -> None:
    data = in_zip({"a.csv": CSV, "b.csv": CSV}).replace(b"b.csv", b"a.csv")
    refused(ingest(put(tmp_path / "t.zip", data)), 2, "two files 'a.csv'", "rename")


def test_files_that_are_not_read_are_named(invoke: Command, tmp_path: Path) -> None:
    """With the reader given, other files are no mistake, but they are not left out without a word."""
    files = {"a.csv": CSV, "b.csv.lz4": pa.compress(CSV, "lz4", asbytes=True), "notes.doc": b"n", **BESIDE}
    for source in (write(tmp_path / "in", files), put(tmp_path / "t.zip", in_zip(files))):
        said = invoke("ingest", source, tmp_path / source.name[:1], "--reader", "text", "--preset", "papers")
        assert "not read, because the reader text takes other files: notes.doc\n" in said.err
        assert open_corpus(tmp_path / source.name[:1]).n_documents == 2


def test_files_whose_names_begin_like_those_of_descriptions(ingest: Command, tmp_path: Path) -> None:
    assert ingest(put(tmp_path / "citations.csv", CSV)).code == 0
    assert ingest(put(tmp_path / "in" / "licenses.csv", CSV).parent).code == 0
