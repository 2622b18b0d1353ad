"""Readers of texts and baskets: records, byte ranges, options, and messages about bad records and files."""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
import tarfile
import zipfile
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streaming_jsmf as sj
from streaming_jsmf.config import IngestRequest, check_options
from streaming_jsmf.config.reading import TextFilesOptions
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.ingest import ingest
from streaming_jsmf.ingestion.readers.bag_of_words import BasketSource
from streaming_jsmf.ingestion.readers.guess import open_source
from streaming_jsmf.ingestion.readers.record_files import TextSource
from streaming_jsmf.ingestion.readers.text_files import TextFilesSource
from streaming_jsmf.ingestion.sources.listing import list_files
from streaming_jsmf.jobs.execution import Execution
from tests.sources import (
    Read,
    in_tar,
    in_zip,
    message,
    opened,
    put,
    put_parquet,
    refused_by,
    small,
    tokenizing,
)


def texts(*paths, **options):
    return opened(TextSource, *paths, **options)


def baskets(*paths, **options):
    return opened(BasketSource, *paths, **options)


def files_of(root, **options):
    return TextFilesSource.open(str(root), (), TextFilesOptions(**options), tokenizing())


def rows_of(bad):
    return [row for row, _, _ in bad]


def noise_of(length, seed=0):
    """Return incompressible bytes, the same in every run."""
    return np.random.default_rng(seed).bytes(length)


def raw_strings(values, kind=None):
    """Return a string array with bytes that need not be UTF-8."""
    large = kind is not None and pa.types.is_large_string(kind)
    held = pa.array(values, pa.large_binary() if large else pa.binary())
    return pa.Array.from_buffers(kind or pa.string(), len(held), held.buffers(), held.null_count)


# Parquet


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), "dictionary"]
)
def test_parquet_texts_of_all_types(tmp_path, kind):
    values = ["Ein Wort é", "", "drei drei", None]
    column = pa.array(values).dictionary_encode() if kind == "dictionary" else pa.array(values, kind)
    keys = pa.array(["k0", "k1", "k2", "k3"])
    keys = keys.dictionary_encode() if kind == "dictionary" else keys
    read = Read(texts(put_parquet(tmp_path / "a.parquet", {"text": column, "id": keys})))
    assert read.bags == [{"ein": 1, "wort": 1, "é": 1}, {}, {"drei": 2}, {}]
    assert read.ids == ["k0", "k1", "k2", "k3"]


@pytest.mark.parametrize("kind", [pa.list_(pa.string()), pa.large_list(pa.large_string()), "json"])
def test_lists_of_tokens_are_words_as_they_are(tmp_path, kind):
    lists = [["New York", "A", "A"], [], None, ["", "<b>", None]]
    lists = (
        [None if each is None else [item for item in each if item] for each in lists]
        if kind == "json"
        else lists
    )
    if kind == "json":
        path = put(tmp_path / "a.json", json.dumps([{"text": each} for each in lists]))
    else:
        path = put_parquet(tmp_path / "a.parquet", {"text": pa.array(lists, kind)})
    source = texts(path)
    assert Read(source).bags == [{"New York": 1, "A": 2}, {}, {}, {"<b>": 1}]
    whole = tokenizing("sklearn", boilerplate="drop", excerpt=5)
    assert Read(dataclasses.replace(source, tokenizer=whole)).metadata["excerpt"][0] == "New Y"
    with pytest.raises(InputError, match=r"lists of tokens, which .* does not cut"):
        Read(dataclasses.replace(source, tokenizer=tokenizing(split=2)))


def test_several_text_columns_are_joined(tmp_path):
    columns = {"title": ["A", None, None, ""], "body": ["b c", "d", None, "e"], "n": [["x"]] * 4}
    path = put_parquet(tmp_path / "a.parquet", columns)
    assert Read(texts(path, text=("title", "body"))).words == ["a b c", "d", "", "e"]
    assert "'n' holds lists of tokens" in message(lambda: Read(texts(path, text=("title", "n"))))
    rows = [{"title": "A", "content": {"body": "b", "by": "x"}}, {"title": None}, {"content": 5, "n": 1}]
    path = put(tmp_path / "a.json", json.dumps(rows, indent=2))
    read = Read(texts(path, text=("title", "content.body")))
    beside = {"content.by": ["x", None, None], "content": [None, None, 5], "n": [None, None, 1]}
    assert (read.words, read.metadata) == (["a b", "", ""], beside)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.list_(pa.string())])
def test_bad_parquet_records(tmp_path, kind):
    def with_one(value, kind=kind):
        values = [b"a", b"b", b"c", b"d", value, "é".encode()]
        if pa.types.is_list(kind):
            return pa.ListArray.from_arrays(pa.array(range(7), pa.int32()), raw_strings(values))
        return pa.array(values, kind) if pa.types.is_binary(kind) else raw_strings(values, kind)

    fine = {"text": with_one(b"e"), "id": with_one(b"e", pa.string())}
    for number, (name, column, reason) in enumerate([
        ("text", with_one(b"\xff"), "text holds a byte that is not UTF-8"),
        ("id", with_one(None, pa.string()), "id is null"),
        ("id", with_one(b"", pa.string()), "id is empty"),
        ("id", with_one(b"\xc3", pa.string()), "id holds a byte or an escape that is not UTF-8"),
        ("id", pa.array([1, 2, 3, 4, 2**63, 5], pa.uint64()), "id is above 9223372036854775807"),
    ]):  # fmt: skip
        path = put_parquet(tmp_path / f"{number}.parquet", {**fine, name: column}, row_group_size=3)
        read = refused_by(texts(path, id="id"), f"{path}, row group 1, row 1 from 0", reason)
        assert (read.rows, rows_of(read.bad)) == ([0, 1, 2, 3, 5], [4])
        assert read.words == ["a", "b", "c", "d", "é"]
        assert read.bad[0][2].startswith(b'{"text": ')
        assert [batch.numbers.tolist() for batch in read.batches] == [[0, 1, 2], [3, 5]]


def test_ids(tmp_path):
    """A named id is checked; a guessed one goes through as it is."""
    coded = pa.array(["x", "y", None]).dictionary_encode()
    path = put_parquet(tmp_path / "b.parquet", {"text": list("abc"), "key": coded, "id": [1.5, None, 3]})
    assert Read(texts(path)).ids == [1.5, None, 3]
    assert Read(texts(path, id="key"), "quarantine").ids == ["x", "y"]
    none = Read(texts(path, id="none"))
    assert (none.ids, none.metadata) == ([], {"key": ["x", "y", None], "id": [1.5, None, 3]})
    assert "column 'id' is double; document ids are" in message(lambda: Read(texts(path, id="id")))
    path = put(
        tmp_path / "a.jsonl", '{"text": "a", "id": {"$oid": "5"}}\n{"text": "b", "id": 7}\n{"text": "c"}'
    )
    assert Read(texts(path)).ids == ['{"$oid": "5"}', "7", None]
    assert Read(texts(path, id="id"), "quarantine").ids == ['{"$oid": "5"}', "7"]
    assert [(type(each), each) for each in Read(texts(path, metadata=())).ids][1] == (str, "7")


def test_passages_keep_id_and_metadata(tmp_path):
    rows = [
        {"text": "a b c d e", "n": 1, "id": 7},
        {"text": "", "n": 2, "id": 8},
        {"text": "f", "n": 3, "id": 9},
    ]
    path = put(tmp_path / "x.jsonl", "\n".join(map(json.dumps, rows)))
    source = dataclasses.replace(texts(path), tokenizer=tokenizing(split=2, excerpt=9))
    read = Read(source)
    assert read.words == ["a b", "c d", "e", "", "f"]
    assert read.ids == ["7/1", "7/2", "7/3", "8/1", "9/1"]
    assert read.metadata == {
        "n": [1, 1, 1, 2, 3], "id": [7, 7, 7, 8, 9], "excerpt": ["a b", "c d", "e", "", "f"],
    }  # fmt: skip
    keep_all = dict.fromkeys(("min_tokens", "min_distinct_words", "min_word_length", "min_df"), 1)
    with small(unit=30):
        sj.ingest(path, tmp_path / "c", split=2, id="none", stop_words="none", max_df=1.0, **keep_all)
    found = pq.read_table(tmp_path / "c" / "documents").column("document_id")
    assert found.to_pylist() == ["0/1", "0/2", "0/3", "2/1"], "of whole records, over several units"


def test_unreadable_parquet_files(tmp_path):
    good = put_parquet(tmp_path / "a.parquet", {"text": ["a", "b"] * 500, "n": list(range(1000))})
    data = good.read_bytes()
    # A page with another checksum.
    page = put(tmp_path / "e.parquet", data[:44] + noise_of(60) + data[104:])
    read = refused_by(texts(good, page), str(page))
    assert (rows_of(read.bad), read.words[:1000]) == ([None], ["a", "b"] * 500)
    empty = put_parquet(tmp_path / "d.parquet", {"text": pa.array([], pa.string())})
    assert Read(texts(good, empty)).words == ["a", "b"] * 500
    cut, other = put(tmp_path / "b.parquet", data[:-20]), put(tmp_path / "c.parquet", b"no parquet at all")
    assert str(cut) in message(lambda: texts(cut, other))


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize("column", ["text", "id"])
def test_a_file_without_the_text_or_the_id_is_refused(tmp_path, kind, column):
    """Other columns may differ between files; only the first one that can be read is opened to find them."""
    first, row = tmp_path / f"a.{kind}", {"text": "b", "id": "x", "n": 1}
    del row[column]
    path = tmp_path / f"b.{kind}"
    if kind == "parquet":
        put_parquet(first, {"text": ["a"], "id": ["y"], "m": [1]})
        put_parquet(path, pa.Table.from_pylist([row]))
    else:
        put(first, "text,id,m\na,y,1\n")
        put(path, f"{','.join(row)}\nx,1\n")
    reason = f"there is no column {column!r}; it has {', '.join(row)}"
    read = refused_by(texts(first, path, id="id"), str(path), reason)
    assert (read.words, read.bad[-1][1]) == (["a"], reason)
    numbers = put_parquet(tmp_path / "c.parquet", {"text": [1], "n": [["1"]]})
    read = refused_by(
        texts(first, numbers), str(numbers), "column 'text' is int64; it must hold strings or lists"
    )
    assert read.words == ["a"]


def test_repeated_and_invalid_column_names(tmp_path):
    twice = pa.Table.from_arrays(
        [pa.array(["a"]), pa.array(["b"]), pa.array(["c"])], names=["text", "m", "m"]
    )
    read = Read(texts(put_parquet(tmp_path / "b.parquet", twice)))
    assert (read.words, read.metadata) == (["a"], {"m": ["b"], "m (2)": ["c"]})
    read = Read(texts(put(tmp_path / "c.jsonl", '{"text": "a", "n\\ud800": 1}\n')))
    assert (read.words, read.metadata, [*read.batches[0].notes]) == (["a"], {"n\ufffd": [1]}, ["n\ufffd"])


# JSON

json_lines = st.lists(
    st.one_of(st.integers(0, 30), st.sampled_from(["", "  ", "{", "[1]", "é\udcff"])), max_size=8
)


@given(
    lines=json_lines,
    unit=st.integers(1, 60),
    batch=st.integers(1, 200),
    ends=st.sampled_from(["\n", "\r\n"]),
    last=st.booleans(),
)
def test_byte_ranges_of_json_give_each_record_once(tmp_path_factory, lines, unit, batch, ends, last):
    made = ['{"id": 1, "text": "start"}']
    made += [json.dumps({"id": i, "text": f"l{i} {'é' * v}"}, ensure_ascii=False) if isinstance(v, int) else v
             for i, v in enumerate(lines, 2)]  # fmt: skip
    data = (ends.join(made) + (ends if last else "")).encode("utf-8", "surrogateescape")
    path = put(tmp_path_factory.mktemp("json") / "a.jsonl", data)
    whole = Read(texts(path), "quarantine")
    good = [i for i, v in enumerate(lines, 2) if isinstance(v, int)]
    bad = [i for i, v in enumerate(lines, 2) if isinstance(v, str) and v.strip()]
    assert [words.split()[0] for words in whole.words] == ["start", *(f"l{i}" for i in good)]
    with small(unit=unit, batch=batch):
        cut = Read(texts(path), "quarantine")
        assert len(cut.units) == max(1, -(-len(data) // unit))
        assert sum(u.size for u in cut.units) == len(data)
        assert (cut.words, cut.rows, cut.bad) == (whole.words, whole.rows, whole.bad)
        assert cut.places == [f"{path}, line {i}" for i in [1, *good]]
        assert rows_of(cut.bad) == [i - 1 for i in bad]
        if bad:
            assert f"{path}, line {bad[0]}: " in message(lambda: Read(texts(path)))


@given(lengths=st.lists(st.integers(0, 60), min_size=1, max_size=6), unit=st.integers(5, 80))
def test_a_long_line_is_one_bad_record(tmp_path_factory, lengths, unit):
    made = [json.dumps({"text": f"l{i} {'x' * length}"}) for i, length in enumerate([1, *lengths])]
    path = put(tmp_path_factory.mktemp("long") / "a.jsonl", "\n".join(made))
    good = [i for i, line in enumerate(made) if len(line) <= 40]
    plain = put(path.with_suffix(".txt"), "\n".join(made).replace("{", "("))
    with small(unit=unit, line=40):
        read = Read(texts(path), "quarantine")
        lines = Read(baskets(plain, separator="|"), "quarantine")
    assert read.rows == lines.rows == good
    assert rows_of(read.bad) == [i for i in range(len(made)) if i not in good]
    assert all("the line is longer than" in reason for _, reason, _ in read.bad + lines.bad)


@pytest.mark.parametrize("layout", ["lines", "array", "objects"])
def test_json_values(tmp_path, layout):
    records = [
        {"text": "a", "id": 1, "year": 1999, "score": 1, "ok": True, "tags": ["é", 1], "late": None},
        {"text": "b", "id": 2, "score": 1.5, "new": 3},
        {"text": "c", "id": -(2**63), "year": None, "score": -1, "ok": False, "tags": "plain", "late": "x"},
    ]
    data = {
        "lines": "\r\n".join(["", *(json.dumps(each, ensure_ascii=False) for each in records), "  "]),
        "array": json.dumps(records, indent=1),
        "objects": "\n".join(json.dumps(each, indent=1) for each in records),
    }[layout]
    path = put(tmp_path / "a.json", b"\xef\xbb\xbf" + data.encode())
    first = 2 if layout == "lines" else 1
    where = {"lines": "line {}", "array": "record {}", "objects": "record {}"}[layout]
    read = Read(texts(path))
    assert (read.ids, read.places[1]) == ([1, 2, -(2**63)], f"{path}, {where.format(first + 1)}")
    assert read.metadata == {
        "year": [1999, None, None],
        "score": [1, 1.5, -1],
        "ok": [True, None, False],
        "tags": ['["é", 1]', None, "plain"],
        "late": [None, None, "x"],
        "new": [None, 3, None],
    }
    chosen = {name: read.metadata[name] for name in ("late", "year")}
    assert Read(texts(path, metadata=tuple(chosen))).metadata == chosen
    latin = put(tmp_path / "c.json", data.encode("latin-1"))
    found = Read(texts(latin, encoding="utf-8,latin-1")).metadata["tags"]
    assert found == read.metadata["tags"]


NO_JSON, NO_OBJECT = "the line is not JSON", "the line is not a JSON object"
BAD_JSON = {
    **dict.fromkeys(("{", '{"text": "a"} x', '{"text": "a\nb", "id": 1}', "[" * 100_000), NO_JSON),
    '{"text": "a", "id": 1' + "0" * 5000 + "}": NO_JSON,
    **dict.fromkeys(("[1, 2]", "5", "null"), NO_OBJECT),
    '{"text": 5, "id": 1}': "text is of type int, not a string",
    '{"text": ["a", 5], "id": 1}': "text is of type list, not a string",
    **dict.fromkeys(('{"text": "a"}', '{"text": "a", "id": null}'), "id is null"),
}


@pytest.mark.parametrize("line", BAD_JSON, ids=[line[:30] for line in BAD_JSON])
def test_bad_json_records(tmp_path, line):
    first = {"text": "a", "id": 1, "s": "s"}
    path = put(tmp_path / "a.jsonl", f"{json.dumps(first)}\n\n{line}\n" + '{"text": "z", "id": 9}')
    read = refused_by(texts(path, id="id"), f"{path}, line 3: ", BAD_JSON[line])
    assert read.ids == [1, 9]
    assert read.bad[0][2] == line.split("\n")[0].encode()


def test_bad_elements_of_an_array(tmp_path):
    """An element that is no document does not stop the others; a document that is no JSON is refused."""
    elements = ['{"text": "a"}', "5", '{"text": "b\\ud800"}', "{}", '{"text": ["c", 1]}']
    path = put(tmp_path / "a.json", f"[{', '.join(elements)}]")
    read = refused_by(texts(path), f"{path}, record 2: the record is not a JSON object")
    assert (read.rows, read.words) == ([0, 2, 3], ["a", "b", ""])
    assert [(row, original) for row, _, original in read.bad] == [(1, b"5"), (4, elements[4].encode())]
    for wrong in (b"x", b'"caf\xe9"'):
        put(path, b"[" + elements[0].encode() + b", " + wrong + b"]")
        assert f"{path}: " in message(lambda: texts(path))


@pytest.mark.parametrize("suffix", ["zip", "lz4"])
def test_codecs_of_single_files(tmp_path, suffix):
    data = b"".join(b'{"text": "word%d"}\n' % i for i in range(5000))
    # The first entry of the archive is a folder.
    packed = in_zip({"en/a.jsonl": data}) if suffix == "zip" else pa.compress(data, "lz4", asbytes=True)
    path = put(tmp_path / f"a.jsonl.{suffix}", packed)
    assert Read(texts(*list_files(path))).words == [f"word{i}" for i in range(5000)]
    path = put(tmp_path / "cut" / f"a.jsonl.{suffix}", packed[: len(packed) // 2])
    found = message(lambda: Read(texts(path)))
    assert str(path) in found
    assert "damaged" in found
    bare = put(tmp_path / "bare.jsonl.zip", in_zip({}))
    assert "holds no file" in message(lambda: Read(texts(bare)))


# Files as documents

FILES = {
    "de/b.txt": b"Zwei",
    "en/1999_a.txt": b"One one",
    "en/deep/c.md": b"",
    "top.txt": b"Top",
    "en/.hidden.txt": b"never",
    "_temporary/d.txt": b"never",
    "__MACOSX/en/._1999_a.txt": b"never",
}
SEEN = ["de/b.txt", "en/1999_a.txt", "en/deep/c.md", "top.txt"]


def laid_out(root, kind, files):
    """Write the files as a folder or an archive below ``root``; return its path."""
    if kind == "folder":
        for name, data in files.items():
            put(root / "docs" / name, data)
        return str(root / "docs")
    pack = {
        "docs.tar.gz": lambda: in_tar(files),
        "docs.tgz": lambda: in_tar(files, prefix="./"),
        "docs.zip": lambda: in_zip(files),
    }
    return str(put(root / kind, pack[kind]()))


@pytest.mark.parametrize("kind", ["folder", "docs.tgz", "docs.zip"])
def test_text_files(tmp_path, kind):
    root = laid_out(tmp_path / "_work", kind, FILES)
    read = Read(files_of(root))
    assert read.ids == SEEN
    assert read.bags == [{"zwei": 1}, {"one": 2}, {}, {"top": 1}]
    assert read.metadata == {"label": ["de", "en", "deep", ""]}
    assert read.rows == [0, 1, 2, 3]
    named = Read(files_of(root, members="en/*", name_pattern=r"(?P<year>\d{4})_(?P<who>\w+)"))
    assert named.ids == ["en/1999_a.txt", "en/deep/c.md"]
    assert named.metadata == {"label": ["en", "deep"], "year": ["1999", None], "who": ["a", None]}
    assert "'*.pdf'" in message(lambda: Read(files_of(root, members="*.pdf")))


@pytest.mark.parametrize("kind", ["folder", "docs.tar.gz", "docs.zip"])
def test_text_files_in_another_encoding(tmp_path, kind):
    files = {"a.md": b"skip me", "a.txt": b"a", "b.txt": "café".encode("latin-1"), "c.txt": b"c"}
    root = laid_out(tmp_path, kind, files)
    assert Read(files_of(root, encoding="latin-1")).words == ["skip me", "a", "café", "c"]
    source = files_of(root, members="*.txt")
    place = {"folder": f"{root}/b.txt: ", "docs.zip": f"zip://b.txt::{root}: b.txt"}.get(
        kind, f"{root}, file 2: b.txt"
    )
    read = refused_by(
        source, place, "b.txt: byte 3 of the file is not UTF-8 (name its encoding, such as encoding='cp1252'"
    )
    assert (read.ids, read.bad[0][0], read.bad[0][2]) == (["a.txt", "c.txt"], 1, b"caf\xe9")
    with small(file=2):
        read = refused_by(files_of(root, encoding="latin-1", members="?.txt"), "b.txt", "larger than")
    assert read.ids == ["a.txt", "c.txt"]


THREE = {"a.txt": b"a", "b.txt": b"b", "c.txt": b"c"}


@pytest.mark.parametrize("cut", [0, 1, 100, 511, "flipped"])
def test_damaged_tar_headers(tmp_path, cut):
    data = bytearray(in_tar(THREE, "w"))
    at = data.index(b"c.txt")
    if cut == "flipped":
        data[at + 150] ^= 1
    else:
        del data[at + cut :]
    path = put(tmp_path / "a.tar", bytes(data))
    assert refused_by(files_of(path), "a.tar, file 3", "damaged").ids == ["a.txt", "b.txt"]


def test_a_tar_that_continues_after_an_end_mark(tmp_path):
    data = in_tar(THREE, "w")
    at = data.index(b"b.txt") // tarfile.BLOCKSIZE * tarfile.BLOCKSIZE
    damaged = data[:at] + bytes(2 * tarfile.BLOCKSIZE) + data[at + 2 * tarfile.BLOCKSIZE :]
    for name, packed in (("a.tar", damaged), ("b.tar.gz", gzip.compress(damaged))):
        read = refused_by(
            files_of(put(tmp_path / name, packed)), name, "continues after its end-of-archive marker"
        )
        assert read.ids == ["a.txt"]


def test_a_tar_header_that_declares_gigabytes(tmp_path):
    """tarfile reads long headers whole, and a few compressed KB can declare gigabytes."""
    long = tarfile.TarInfo("long")
    long.type, long.size = tarfile.XHDTYPE, 3 << 30
    data = in_tar({"a.txt": b"a"}, "w:")[:2048] + long.tobuf() + b"\0" * 4096
    path = put(tmp_path / "a.tar.gz", gzip.compress(data))
    assert refused_by(files_of(path), f"{path}, file 2", "a header of 3221225472 bytes").ids == ["a.txt"]


def test_unreadable_zip_members(tmp_path):
    data = bytearray(in_zip({"a.txt": b"a", "b.txt": b"bee " * 50, "c.txt": b"c"}))
    at = data.index(b"b.txt") + 5
    data[at : at + 4] = b"\xff\xff\xff\xff"
    path = put(tmp_path / "a.zip", bytes(data))
    read = refused_by(files_of(path), f"zip://b.txt::{path}: b.txt: ", "damaged here")
    assert (read.ids, read.rows) == (["a.txt", "c.txt"], [0, 2])
    stored = bytearray(in_zip({"a.txt": b"secret", "b.txt": b"b"}, zipfile.ZIP_STORED))
    for mark, back in ((b"PK\x03\x04", 24), (b"PK\x01\x02", 38)):  # from the name to the flags of its header
        stored[stored.index(b"a.txt", stored.index(mark)) - back] |= 1
    path = put(tmp_path / "b.zip", bytes(stored))
    read = refused_by(files_of(path), f"zip://a.txt::{path}: a.txt: ", "password")
    assert read.ids == ["b.txt"]


def test_names_of_text_files(tmp_path):
    name = b"caf\xe9.txt".decode("utf-8", "surrogateescape")
    data = tarfile.TarInfo(name)
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as archive:
        archive.addfile(data, io.BytesIO())
    assert Read(files_of(put(tmp_path / "a.tar", stream.getvalue()))).ids == [r"caf\xe9.txt"]
    # A message is one line for any name of a member.
    lined = put(tmp_path / "a.zip", in_zip({"a\nb.txt": b"\xff", "c.txt": b"c"}))
    assert refused_by(files_of(lined), r"a\nb.txt: byte 0 of the file").ids == ["c.txt"]
    one = put(tmp_path / "x" / "one.txt", b"One")
    assert Read(files_of(one)).ids == ["one.txt"]
    assert Read(files_of(put(tmp_path / "_asked.txt", b"for"))).ids == ["_asked.txt"]
    assert Read(files_of(tmp_path / "x" / "*.txt")).ids == ["one.txt"]


# Baskets


def test_baskets_of_lines(tmp_path):
    path = put(tmp_path / "a.dat", "\ufeffb a b\r\n\r\n  é\tc\u3000x \nlast".encode())
    read = Read(baskets(path))
    assert read.bags == [{"b": 2, "a": 1}, {}, {"é": 1, "c": 1, "x": 1}, {"last": 1}]
    assert read.places == [f"{path}, line {i}" for i in range(1, 5)]
    path = put(tmp_path / "b.dat", "new york; boston ;;new york\n;\nx\n")
    assert Read(baskets(path, separator=";")).bags == [{"new york": 2, "boston": 1}, {}, {"x": 1}]
    for separator in ("york", "; "):
        assert len(Read(baskets(path, separator=separator)).bags) == 3


WORDS = pa.dictionary(pa.int32(), pa.string())


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.int32(), pa.uint64(), WORDS])
@pytest.mark.parametrize("make", [pa.list_, pa.large_list])
def test_baskets_of_parquet_lists(tmp_path, kind, make):
    values = [[1, 2, 1], [], None, [3, None], [2], [4] * 5]
    if not pa.types.is_integer(kind):
        values = [v and [None if i is None else f"i{i}" for i in v] for v in values]
    path = put_parquet(tmp_path / "a.parquet", {"basket": pa.array(values, make(kind))}, row_group_size=2)
    read = Read(baskets(path, items="basket"))
    good = [[item for item in document or () if item is not None] for document in values]
    assert read.bags == [{str(item): n for item, n in Counter(document).items()} for document in good]
    assert read.rows == [0, 1, 2, 3, 4, 5]
    broken = pa.array([b"a", b"\xff"]).view(pa.string())
    path = put_parquet(tmp_path / "b.parquet", {"items": pa.ListArray.from_arrays([0, 1, 2], broken)})
    assert refused_by(baskets(path), f"{path}, row group 0, row 1 from 0").bags == [{"a": 1}]


@pytest.mark.parametrize(
    ("columns", "parts"),
    [
        ({"basket": [["a"]]}, ["'items' is missing", "items=NAME"]),
        ({"items": ["a"]}, ["'items' is string"]),
        ({"items": [[1.5]]}, ["'items' is list", "double"]),
    ],
)
def test_invalid_columns_of_parquet_baskets(tmp_path, columns, parts):
    path = put_parquet(tmp_path / "b.parquet", columns)
    refused_by(baskets(path), f"{path}: ", *parts)


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_names_of_folders_are_metadata(tmp_path, kind):
    """As Hive, Spark and pandas write partitions; a column of the file takes precedence."""
    for folder in ("year=1999/who=a%20b", "year=__HIVE_DEFAULT_PARTITION__/plain/=x"):
        path = tmp_path / "run=1" / folder / f"0.{kind}"
        if kind == "parquet":
            put_parquet(path, {"text": [folder[:6]], "k": ["v"]})
        else:
            put(path, "text,k\na,v\n" if kind == "csv" else '{"text": "a", "k": "v"}\n')
    root = tmp_path / "run=1"

    def found(source, **options):
        opened = open_source(source, "text", check_options("text", options))
        return Read(opened).metadata

    assert found(root) == {"k": ["v", "v"], "year": ["1999", None], "who": ["a b"]}
    assert found(root, metadata=("year",)) == {"year": ["1999", None]}
    assert found(f"{root}/y*/*/*.{kind}") == {"k": ["v"], "year": ["1999"], "who": ["a b"]}
    assert found(root / "year=1999") == {"k": ["v"], "who": ["a b"]}
    assert found(root, metadata=("k",)) == {"k": ["v", "v"]}
    assert "there is no column 'run'" in message(lambda: found(root, metadata=("run", "year")))
    keep_all = {"min_tokens": 0, "min_distinct_words": 0, "stop_words": "none"}
    ingest(
        root, tmp_path / "corpus", IngestRequest(preset="papers", curation=keep_all), Execution("synchronous")
    )
    table = pq.read_table(tmp_path / "corpus" / "documents")
    columns = {name: table[name].to_pylist() for name in ("k", "year", "who")}
    assert columns == {"k": ["v", "v"], "year": [1999, None], "who": ["a b", None]}


def test_an_index_that_pandas_wrote_is_named(tmp_path):
    read = Read(texts(put(tmp_path / "a.csv", ",text\n7,a\n")))
    assert read.metadata == {"index": ["7"]}
    assert Read(texts(put(tmp_path / "b.csv", ",text,index\n7,a,8\n"))).metadata["index"] == ["8"]
