"""Readers of texts and baskets: records, byte ranges, options, and messages about bad records and files."""

from __future__ import annotations

import datetime
import decimal
import gzip
import io
import json
import tarfile
import zipfile
from collections import Counter
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_jsmf.config import IngestRequest, TextFilesOptions
from streaming_jsmf.ingestion.ingest import ingest
from streaming_jsmf.ingestion.readers import text
from streaming_jsmf.ingestion.readers.bags import BasketSource
from streaming_jsmf.ingestion.readers.base import BadRecords
from streaming_jsmf.ingestion.readers.files import bare_suffix, find_files, list_files
from streaming_jsmf.ingestion.readers.guess import Guess, guess_reader, guess_source
from streaming_jsmf.ingestion.readers.registry import check_options, open_source
from streaming_jsmf.ingestion.readers.text import TextSource
from streaming_jsmf.ingestion.readers.text_files import TextFilesSource
from streaming_jsmf.ingestion.tokens.tokenizer import Tokenizer
from streaming_jsmf.jobs.execution import Execution
from tests.sources import Read, in_tar, in_zip, message, opened, put, put_parquet, refused_by, small


def texts(*paths, **options):
    return opened(TextSource, *paths, **options)


def baskets(*paths, **options):
    return opened(BasketSource, *paths, **options)


def files_of(root, **options):
    return TextFilesSource.open(str(root), (), TextFilesOptions(**options), Tokenizer())


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
    values = ["Ein Wort é", "", "drei drei"]
    column = pa.array(values).dictionary_encode() if kind == "dictionary" else pa.array(values, kind)
    keys = pa.array(["k0", "k1", "k2"])
    keys = keys.dictionary_encode() if kind == "dictionary" else keys
    read = Read(texts(put_parquet(tmp_path / "a.parquet", {"text": column, "id": keys})))
    assert read.bags == [{"ein": 1, "wort": 1, "é": 1}, {}, {"drei": 2}]
    assert read.ids == ["k0", "k1", "k2"]


def test_parquet_metadata_keep_their_types(tmp_path):
    now = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    values = {
        "bool": (True, pa.bool_()),
        "int8": (-1, pa.int8()),
        "uint64": (2**64 - 1, pa.uint64()),
        "float": (1.5, pa.float32()),
        "date": (datetime.date(2020, 2, 29), pa.date32()),
        "time": (now, pa.timestamp("us", tz="UTC")),
        "money": (decimal.Decimal("1.25"), pa.decimal128(3, 2)),
        "bytes": (b"\xff\x00", pa.binary()),
        "fixed": (b"ab", pa.binary(2)),
        "large": ("é", pa.large_string()),
        "view": ("é", pa.string_view()),
        "list": (["a", None], pa.list_(pa.string())),
        "struct": ({"a": ["é"], "b": 1}, pa.struct({"a": pa.list_(pa.string()), "b": pa.int64()})),
        "map": ([("k", 1)], pa.map_(pa.string(), pa.int64())),
        "nothing": (None, pa.null()),
        "a.b": ("dotted", pa.string()),
    }
    kinds = {name: pa.array([value, None], kind) for name, (value, kind) in values.items()}
    coded = pa.array(["p", None]).dictionary_encode()
    path = put_parquet(tmp_path / "a.parquet", {"text": ["x", "y"], "coded": coded, **kinds})
    source = texts(path)
    with small(batch=1):
        read = Read(source)
    assert read.metadata == {"coded": ["p", None]} | {name: a.to_pylist() for name, a in kinds.items()}
    unit = source.units()[0]
    batch = next(iter(source.read(unit, BadRecords("fail", unit, source.place))))
    assert {name: array.type for name, array in batch.metadata.items()} == source.columns.metadata
    assert source.columns.metadata["coded"] == pa.string()
    assert source.columns.metadata["money"] == kinds["money"].type
    assert list(Read(texts(path, metadata=("list", "bool"))).metadata) == ["bool", "list"]
    assert Read(texts(path, metadata=())).metadata == {}


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()])
def test_bad_parquet_records(tmp_path, kind):
    good = [b"a", b"b", b"c", b"d", "é".encode()]

    def with_one(value, kind=kind):
        values = [*good[:4], value, good[4]]
        return pa.array(values, kind) if pa.types.is_binary(kind) else raw_strings(values, kind)

    fine = {"text": with_one(b"e"), "id": with_one(b"e", pa.string()), "m": with_one(b"e", pa.string())}
    nested = pa.ListArray.from_arrays(pa.array(range(7), pa.int32()), raw_strings([*good[:4], b"\xff", b"f"]))
    cases = [
        ("text", with_one(b"\xff"), "text holds bytes that are not UTF-8"),
        ("id", with_one(None), "id is null"),
        ("id", with_one(b"\xc3", pa.string()), "id holds bytes that are not UTF-8"),
        ("m", with_one(b"\xed\xa0\x80", pa.string()), "m holds bytes that are not UTF-8"),
        ("m", nested, "m holds bytes that are not UTF-8"),
        ("m", pa.StructArray.from_arrays([nested], ["in"]), "m holds bytes that are not UTF-8"),
    ]
    for number, (name, column, reason) in enumerate(cases):
        path = put_parquet(tmp_path / f"{number}.parquet", {**fine, name: column}, row_group_size=3)
        read = refused_by(texts(path), f"{path}, row group 1, row 1 from 0", reason)
        assert (read.rows, [bad[:2] for bad in read.bad]) == ([0, 1, 2, 3, 5], [(4, reason)])
        assert read.words == ["a", "b", "c", "d", "é"]
        assert read.bad[0][2].startswith(b'{"text": ')


def test_parquet_ids(tmp_path):
    numbers = pa.array([1, 2**63 - 1, 2**63, None], pa.uint64())
    path = put_parquet(tmp_path / "a.parquet", {"text": list("abcd"), "doc_id": numbers})
    read = refused_by(texts(path), "row group 0, row 2", "doc_id is above 9223372036854775807")
    assert (read.ids, rows_of(read.bad)) == ([1, 2**63 - 1], [2, 3])
    coded = pa.array(["x", "y", None]).dictionary_encode()
    path = put_parquet(tmp_path / "b.parquet", {"text": list("abc"), "key": coded, "id": [1, 2, 3]})
    assert Read(texts(path)).ids == [1, 2, 3]
    assert Read(texts(path, id="key"), "quarantine").ids == ["x", "y"]
    path = put_parquet(tmp_path / "c.parquet", {"text": ["a"], "id": [1.5]})
    assert "document ids" in message(lambda: texts(path))


def test_unreadable_parquet_files(tmp_path):
    good = put_parquet(tmp_path / "a.parquet", {"text": ["a", "b"] * 500, "n": list(range(1000))})
    data = good.read_bytes()
    # A page with another checksum.
    page = put(tmp_path / "e.parquet", data[:44] + noise_of(60) + data[104:])
    read = refused_by(texts(good, page), str(page))
    assert (rows_of(read.bad), read.words[:1000]) == ([None], ["a", "b"] * 500)
    cut, other = put(tmp_path / "b.parquet", data[:-20]), put(tmp_path / "c.parquet", b"no parquet at all")
    assert str(cut) in message(lambda: texts(cut, other))


@pytest.mark.parametrize(
    ("columns", "parts"),
    [
        ({"text": ["b"], "n": [["1"]]}, ["n: list<element: string>", "n: int64"]),
        ({"text": [1], "n": [1]}, ["column 'text' is int64"]),
    ],
)
def test_parquet_files_with_different_schemas(tmp_path, columns, parts):
    first = put_parquet(tmp_path / "a.parquet", {"text": ["a"], "n": [1]})
    path = put_parquet(tmp_path / "b.parquet", columns)
    assert refused_by(texts(first, path), str(path), *parts).words == ["a"]


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize("column", ["text", "id"])
def test_a_file_without_the_text_or_the_id_is_refused(tmp_path, kind, column):
    first, row = tmp_path / f"a.{kind}", {"text": "b", "id": "x", "n": 1}
    del row[column]
    path = tmp_path / f"b.{kind}"
    if kind == "parquet":
        put_parquet(first, {"text": ["a"], "id": ["y"], "n": [1]})
        put_parquet(path, pa.Table.from_pylist([row]))
    else:
        put(first, "text,id,n\na,y,1\n")
        put(path, f"{','.join(row)}\nx,1\n")
    reason = f"there is no column {column!r}; it has {', '.join(row)}"
    read = refused_by(texts(first, path), str(path), reason)
    assert (read.words, read.bad[-1][1]) == (["a"], reason)


def test_parquet_files_with_more_columns_or_no_rows(tmp_path):
    first = put_parquet(tmp_path / "a.parquet", {"text": ["a"], "n": [1]})
    coded = pa.array(["b"]).dictionary_encode()
    more = {"n": pa.array([2], pa.int64()), "id": [7.5], "text": coded, "x": [1]}
    path = put_parquet(tmp_path / "c.parquet", more)
    read = Read(texts(first, path))
    assert (read.words, read.ids, read.metadata) == (["a", "b"], [], {"n": [1, 2], "id": ["7.5"], "x": ["1"]})
    empty = put_parquet(tmp_path / "d.parquet", pa.table({"text": ["a"], "n": [1]}).slice(1))
    assert Read(texts(first, empty)).words == ["a"]


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "csv"])
def test_missing_columns(tmp_path, kind):
    row, path = {"text": "a", "ids": 1, "a\nb": 2, "id": "x"}, tmp_path / f"a.{kind}"
    if kind == "parquet":
        put_parquet(path, pa.Table.from_pylist([row]))
    else:
        header = ",".join(f'"{name}"' for name in row)
        put(path, f"{header}\na,1,2,x\n" if kind == "csv" else json.dumps(row) + "\n")
    for options in ({"text": "body"}, {"id": "body"}, {"metadata": ("ids2", "body")}):
        found = message(lambda options=options: texts(path, **options))
        assert str(path) in found
        assert "there is no column" in found
        assert r"'a\nb'" in found
    read = Read(texts(path, metadata=("a\nb",)))
    assert (read.ids, [str(v) for v in read.metadata["a\nb"]]) == (["x"], ["2"])


def test_duplicate_and_invalid_column_names(tmp_path):
    twice = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    assert "2 columns 'text'" in message(lambda: texts(put_parquet(tmp_path / "b.parquet", twice)))
    for name, content, part in (
        ("b.csv", "text,m,m\na,b,c\n", "2 columns 'm'"),
        ("c.jsonl", '{"text": "a", "\\ud800": 1}\n', r"'\ud800' is not UTF-8"),
    ):
        path = put(tmp_path / name, content)
        assert part in message(lambda path=path: texts(path))
        assert Read(texts(path, metadata=())).words == ["a"]
    assert "'.doc'" in message(lambda: texts(put(tmp_path / "a.doc", "a")))


# JSON lines

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
    plain = put(path.with_suffix(".txt"), "\n".join(made))
    with small(unit=unit, line=40):
        read = Read(texts(path), "quarantine")
        lines = Read(baskets(plain, separator="|"), "quarantine")
    assert read.rows == lines.rows == good
    assert rows_of(read.bad) == [i for i in range(len(made)) if i not in good]
    assert all("the line is longer than" in reason for _, reason, _ in read.bad + lines.bad)


def test_json_values(tmp_path):
    records = [
        {"text": "a", "id": 1, "year": 1999, "score": 1, "ok": True, "tags": ["é", 1], "late": None},
        {"text": "b", "id": 2, "score": 1.5, "new": 3},
        {"text": "c", "id": -(2**63), "year": None, "score": -1, "ok": False, "tags": "plain", "late": "x"},
    ]
    lines = [json.dumps(record, ensure_ascii=False) for record in records]
    path = put(tmp_path / "a.json", b"\xef\xbb\xbf" + "\r\n".join(["", *lines, "  "]).encode())
    source = texts(path)
    assert set(source.columns.metadata.values()) == {pa.string()}, (
        "types are known at the end: test_column_types"
    )
    assert source.columns.id_type == pa.int64()
    read = Read(source)
    assert (read.ids, read.rows) == ([1, 2, -(2**63)], [1, 2, 3])
    assert read.metadata == {
        "year": ["1999", None, None],
        "score": ["1", "1.5", "-1"],
        "ok": ["true", None, "false"],
        "tags": ['["é", 1]', None, "plain"],
        "late": [None, None, "x"],
        "new": [None, "3", None],
    }
    chosen = {name: read.metadata[name] for name in ("late", "year")}
    assert Read(texts(path, metadata=tuple(chosen))).metadata == chosen
    mixed = put(tmp_path / "b.jsonl", '{"text": "a", "id": 1}\n{"text": "b", "id": "x"}\n')
    assert Read(texts(mixed)).ids == ["1", "x"]
    latin = put(tmp_path / "c.jsonl", '{"text": "café"}\n'.encode("latin-1"))
    assert Read(texts(latin, encoding="latin-1")).words == ["café"]


NO_JSON, NO_OBJECT = "the line is not JSON", "the line is not a JSON object"
NO_CHARACTER = "holds a byte or an escape that is not a character"
BAD_JSON = {
    **dict.fromkeys(("{", '{"text": "a"} x', '{"text": "a\nb", "id": 1}', "[" * 100_000), NO_JSON),
    '{"text": "a", "id": 1' + "0" * 5000 + "}": NO_JSON,
    **dict.fromkeys(("[1, 2]", '"text"', "null"), NO_OBJECT),
    '{"text": 5, "id": 1}': "text is of type int, not a string",
    '{"text": ["a"], "id": 1}': "text is of type list, not a string",
    **dict.fromkeys(('{"text": "a"}', '{"text": "a", "id": null}'), "id is null"),
    '{"text": "a", "id": "x"}': "id is 'x', but int64",
    '{"text": "a", "id": 9223372036854775808}': "id 9223372036854775808 does not fit 64 bits; write",
    '{"text": "a", "id": true}': "id is 'True', but int64",
    '{"text": "a\\ud800", "id": 1}': f"text {NO_CHARACTER}",
    '{"text": "a", "id": 1, "s": "\\udc80"}': f"s {NO_CHARACTER}",
    '{"text": "a", "id": 1, "s": ["\\ud800"]}': f"s {NO_CHARACTER}",
}


@pytest.mark.parametrize("line", BAD_JSON, ids=[line[:30] for line in BAD_JSON])
def test_bad_json_records(tmp_path, line):
    first = {"text": "a", "id": 1, "s": "s"}
    path = put(tmp_path / "a.jsonl", f"{json.dumps(first)}\n\n{line}\n" + '{"text": "z", "id": 9}')
    # The sample that determines the type of the ids ends before the bad record.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "SAMPLE_RECORDS", 1)
        read = refused_by(texts(path), f"{path}, line 3: ", BAD_JSON[line])
    assert read.ids == [1, 9]
    assert read.bad[0][2] == line.split("\n")[0].encode()


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


@pytest.mark.parametrize(
    ("kind", "first", "blank", "words"),
    [("jsonl", '{"text": "a"}\n', "\n \n", ["a"]), ("csv", "text,id\n", "\n", [])],
)
def test_files_without_records(tmp_path, kind, first, blank, words):
    good, blank = put(tmp_path / f"a.{kind}", first), put(tmp_path / f"c.{kind}", blank)
    found = message(lambda: texts(blank))
    assert f"{blank}: " in found
    assert ("no JSON objects" if kind == "jsonl" else "empty") in found
    read = refused_by(texts(good, blank), f"{blank}: ", "the file is empty")
    assert (read.words, rows_of(read.bad)) == (words, [None])


# CSV


def test_csv_fields(tmp_path):
    content = 'id,text,note\r\n1,"Say ""a"",\nthen b",x\r\n\r\n2,"",\r\n3, c ,"y,z"'
    path = put(tmp_path / "a.csv", b"\xef\xbb\xbf" + content.encode())
    for encoding in ("utf-8", "UTF8"):
        read = Read(texts(path, encoding=encoding))
        assert read.bags == [{"say": 1, "a": 1, "then": 1, "b": 1}, {}, {"c": 1}]
        assert read.ids == ["1", "2", "3"]
        assert read.metadata == {"note": ["x", "", "y,z"]}
        assert read.places == [f"{path}, line {i}" for i in (3, 5, 6)]
    tabs = put(tmp_path / "a.TSV", "text\tn\na,b\t1\n")
    assert Read(texts(tabs)).bags == [{"a": 1, "b": 1}]
    latin = put(tmp_path / "b.csv", "text,größe\ncafé,1\n".encode("latin-1"))
    assert Read(texts(latin, encoding="latin-1")).metadata == {"größe": ["1"]}
    found = message(lambda: texts(latin))
    assert "header" in found
    assert "encoding='cp1252'" in found
    long = put(tmp_path / "c.csv", f"text\n{'a ' * 200_000}\n")
    assert Read(texts(long)).bags == [{"a": 200_000}]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (b"2", "1 fields, the header 3"),
        (b"2,b,c,d", "4 fields, the header 3"),
        (b",b,c", "id is empty"),
        (b"2,caf\xe9,c", f"text {NO_CHARACTER}"),
        (b"2\xff,b,c", f"id {NO_CHARACTER}"),
        (b"2,b,\xff", f"note {NO_CHARACTER}"),
        (b'2,"b"x,c', "expected after '\"'"),
    ],
)
def test_bad_csv_records(tmp_path, row, reason):
    path = put(tmp_path / "a.csv", b'id,text,note\n1,"a\n",x\n' + row + b"\n3,c,z\n")
    read = refused_by(texts(path), f"{path}, line 4: ", reason)
    assert (read.ids, read.rows, read.bad[0][0]) == (["1", "3"], [2, 4], 3)
    if "expected" not in reason:
        assert read.bad[0][2] == row


def test_unterminated_csv(tmp_path):
    path = put(tmp_path / "a.csv", 'text,id\na,1\n"b,2\nc,3\n')
    read = refused_by(texts(path), f"{path}, line 4: ", "unexpected end of data")
    assert read.ids == ["1"]
    other = put(tmp_path / "b.csv", '"text\na\n')
    read = refused_by(texts(path, other), "", "unexpected end of data")
    assert read.bad[-1][:2] == (None, "its header is not CSV (unexpected end of data)")
    assert "header" in message(lambda: texts(other))
    with small(line=30):
        wide = put(tmp_path / "d.csv", "text\na\n" + "b" * 31 + "\nc\n")
        assert refused_by(texts(wide), str(wide), "the line is longer than").words == ["a"]
        open_quote = put(tmp_path / "e.csv", 'text\na\n"b\n' + "c\n" * 40 + "d\n")
        read = refused_by(texts(open_quote), f"{open_quote}, line ", "field larger than field limit (30)")
        assert read.words[0] == "a"
        assert read.words[-1] == "d"


# Files as documents

FILES = {
    "de/b.txt": b"Zwei",
    "en/1999_a.txt": b"One one",
    "en/deep/c.md": b"",
    "top.txt": b"Top",
    "en/.hidden.txt": b"never",
    "_tools/d.txt": b"never",
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
    place = f"{root}/b.txt: " if kind == "folder" else f"{root}, file 2: b.txt"
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
    read = refused_by(files_of(path), f"{path}, file 2: b.txt: ", "it cannot be unpacked")
    assert (read.ids, read.rows) == (["a.txt", "c.txt"], [0, 2])
    stored = bytearray(in_zip({"a.txt": b"secret", "b.txt": b"b"}, zipfile.ZIP_STORED))
    for mark, back in ((b"PK\x03\x04", 24), (b"PK\x01\x02", 38)):  # from the name to the flags of its header
        stored[stored.index(b"a.txt", stored.index(mark)) - back] |= 1
    path = put(tmp_path / "b.zip", bytes(stored))
    read = refused_by(files_of(path), f"{path}, file 1: a.txt: ", "password")
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
    source = baskets(path, items="basket")
    read = refused_by(source, f"{path}, row group 1, row 0 from 0", "the list is null")
    good = [values[i] for i in (0, 1, 4, 5)]
    assert read.bags == [{str(item): n for item, n in Counter(document).items()} for document in good]
    assert read.rows == [0, 1, 4, 5]
    assert [bad[:2] for bad in read.bad] == [(2, "the list is null"), (3, "the list holds a null")]
    assert [bad[2] for bad in read.bad] == [None, json.dumps(values[3]).encode()]


@pytest.mark.parametrize(
    ("columns", "parts"),
    [
        ({"basket": [["a"]]}, ["'items'", "it has basket", "read={'items': 'NAME'}"]),
        ({"items": ["a"]}, ["'items' is string"]),
        ({"items": [[1.5]]}, ["'items' holds double"]),
    ],
)
def test_invalid_columns_of_parquet_baskets(tmp_path, columns, parts):
    path = put_parquet(tmp_path / "b.parquet", columns)
    refused_by(baskets(path), f"{path}: ", *parts)


# Finding files and guessing readers


def test_files_of_a_source(tmp_path):
    plain = tmp_path / "plain"
    names = "b.csv a.csv in/c.csv in/d.txt _SUCCESS .a.csv.crc _tmp/e.csv in/.git/f.csv"
    for name in names.split():
        put(plain / name, name)
    seen = ["a.csv", "b.csv", "in/c.csv", "in/d.txt"]
    assert list(find_files(plain).values()) == seen
    assert list(find_files(plain / "**" / "*.csv").values()) == seen[:3]
    odd = put(tmp_path / "a[1]*.csv", "x")
    for location, found in (
        (plain / "*.csv", ("a.csv", "b.csv")),
        (plain / "*", ("a.csv", "b.csv")),
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
    absent = [
        *(tmp_path / name for name in ("void", "absent.csv", "*.absent")),
        "memory://absent_t",
        "no-such://a",
    ]
    for nothing in absent:
        assert str(nothing).rsplit("/", 1)[-1] in message(lambda nothing=nothing: list_files(nothing))


def test_files_behind_urls(tmp_path):
    memory = fsspec.filesystem("memory")
    lines = b'{"text": "a"}\n{"text": "b b"}\n'
    for name, data in (("a.jsonl", lines), ("b.jsonl.gz", gzip.compress(lines)), ("_x/c.jsonl", b"{")):
        memory.pipe(f"/t_src/{name}", data)
    found = list_files("memory://t_src")
    assert [path.rsplit("/", 1)[-1] for path in found] == ["a.jsonl", "b.jsonl.gz"]
    assert list_files("memory://t_src/*.gz") == found[1:]
    with small(unit=7):
        read = Read(texts(*found))
    assert read.bags == [{"a": 1}, {"b": 2}] * 2
    assert len(read.units) == 6
    archive = put(tmp_path / "a.zip", in_zip({"d/a.jsonl": lines, "d/b.jsonl": lines, "e.jsonl": b"{"}))
    chained = list_files(f"zip://d/*.jsonl::{archive}")
    assert chained == (f"zip://d/a.jsonl::{archive}", f"zip://d/b.jsonl::{archive}")
    assert Read(texts(*chained)).bags == read.bags
    assert [bare_suffix(path) for path in (*found, *chained)] == [".jsonl"] * 4
    assert bare_suffix("simplecache::memory://t_src/b.csv.gz") == ".csv"


GUESSES = [
    ("a.jsonl", "text", '{"text": "a"}'),
    ("a.ndjson.gz", "text", b""),
    ("a.json", "text", ""),
    ("a.csv", "text", "id,text\n"),
    ("b.csv", "text", b'\xef\xbb\xbf"text","n"\r\n'),
    ("c.csv", "ratings", "user,item,rating\n"),
    ("d.tsv", "triples", "document\tword\tcount\n"),
    ("f.csv", "text", "Headline,Full_Text\n"),
    ("g.csv", "text", "what,url\nsome words that make a text,https://example.org/what-is-longer-than-it\n"),
    ("h.csv", "ratings", "userId,movieId,rating,timestamp\n"),
    ("e.csv.gz", "text", gzip.compress(b"text\n", mtime=0)),
    ("a.npz", "npz", b""),
    ("a.mtx.gz", "matrix-market", b""),
    ("a.h5ad", "h5ad", b""),
    ("docword.a.txt.gz", "docword", b""),
    *((name, "text-files", b"") for name in ("a.zip", "a.tar.gz", "a.tgz")),
    ("a.parquet", "text", {"text": ["a"], "n": [1]}),
    ("b.parquet", "text", {"n": [1], "Body": ["a"]}),
    ("c.parquet", "text", {"n": [1], "what": ["some words that make a text"]}),
    ("h.parquet", "text", {"n": [1], "what": [b"some words that make a text"]}),
    ("d.parquet", "bag-of-words-parquet", {"ids": [[1]], "counts": [[1]]}),
    ("e.parquet", "ratings", {"user": [1], "item": [1], "rating": [1]}),
    ("f.parquet", "triples", {"document": [1], "word": ["a"], "count": [1]}),
    ("g.parquet", "baskets", {"items": [["a"]]}),
]


@pytest.mark.parametrize(("name", "reader", "content"), GUESSES)
def test_guessed_readers_of_files(tmp_path, name, reader, content):
    """A word list and marker files beside the file make no difference."""
    path = (put_parquet if isinstance(content, dict) else put)(tmp_path / "in" / name, content)
    assert guess_reader(path) == reader
    put(path.with_name("vocab.txt"), "a\n")
    put(path.with_name("_SUCCESS"), "")
    if reader != "text-files":
        assert guess_reader(path.parent) == reader


def test_tables_in_zip_archives_are_named(tmp_path):
    table = "text;n\nsome words;1\n"
    two = put(tmp_path / "two.zip", in_zip({"d/a.csv": table, "b.csv": "id,body\n", "_x/c.txt": "c"}))
    found = guess_source(two, read={"path": "d/a.csv"})
    assert (found.reader, dict(found.read)) == ("text", {"delimiter": ";"})
    chained = f"zip://d/a.csv::{two}"
    assert open_source(chained, "text", check_options("text", {"delimiter": ";"})).files == (chained,)
    one = put(tmp_path / "a.csv.zip", in_zip({"a.csv": table}))
    assert guess_source(one) == Guess("text", found.read, found.note)


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


def test_guessed_readers_of_folders_and_urls(tmp_path):
    put(tmp_path / "folder" / "a.txt", "one\n")
    put(tmp_path / "folder" / "b" / "51121", "two\n")
    assert guess_reader(tmp_path / "folder") == "text-files"
    put(tmp_path / "some" / "a.parquet", b"broken")
    put_parquet(tmp_path / "some" / "b.parquet", {"text": ["a"]})
    assert guess_reader(tmp_path / "some") == "text"
    put(tmp_path / "corpus" / "manifest.json", "{}")
    assert guess_reader(tmp_path / "corpus") == "bag-of-words-parquet"
    fsspec.filesystem("memory").pipe("/t_guess/a.csv", b"text\n")
    assert guess_reader("memory://t_guess") == "text"


TWICE = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        *((name, "1 2\n", ["text", "baskets", "table", "reader="]) for name in ("a.txt", "a.dat", "noext")),
        ("a.csv", 'who,"x"\n1,2\n', ["has the columns who, x"]),
        ("e.csv", 'body,"x\n', [": line 1: ", "quote"]),
        ("b.csv", "", ["the file is empty"]),
        ("c.csv.gz", gzip.compress(b"text\n", mtime=0)[:5], ["ends early"]),
        ("d.csv", "\x1b[31m,b\n", [r"has the columns '\x1b[31m', b"]),
        ("a.parquet", b"broken", ["Parquet"]),
        ("vocab.txt", "a\n", ["word list"]),
        ("absent", None, ["no such file or directory"]),
        ("b.parquet", TWICE, ["has the columns a"]),
        ("c.parquet", {"items": ["a"]}, ["has the columns items"]),
        ("d.parquet", {f"c{i}": [i] for i in range(99)}, ["has the columns c0, c1"]),
    ],
)
def test_sources_whose_reader_cannot_be_guessed(tmp_path, name, content, parts):
    path = tmp_path / name
    if content is not None:
        (put if isinstance(content, str | bytes) else put_parquet)(path, content)
    found = message(lambda: guess_reader(path))
    assert all(part in found for part in (str(path), *parts)), found
    assert len(found.replace(str(path), "")) < 500


def test_a_folder_with_two_formats_needs_a_reader(tmp_path):
    put(tmp_path / "a.csv", "text\n")
    put(tmp_path / "b.jsonl", "{}")
    found = message(lambda: guess_reader(tmp_path))
    assert all(part in found for part in (str(tmp_path), ".csv (a.csv), .jsonl (b.jsonl)", "reader="))
