"""Triples and ratings compared with sums in dictionaries, and messages about bad rows and files."""

from __future__ import annotations

import gzip
import zipfile
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_jsmf.corpus.hashes import hash_values
from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.ingestion.readers import triples
from streaming_jsmf.ingestion.readers.triples import RatingsSource, TriplesSource
from streaming_jsmf.ingestion.sources.protocol import BadRecords
from tests.sources import BUCKET, Read, message, opened, put, put_parquet

LARGEST = 2**31 - 1
HEADER = "document,word,count\n"


def read(source, tmp_path, policy="fail", **options):
    """Read a source and check the order of its documents and words."""
    scratch = tmp_path / "out"
    scratch.mkdir(exist_ok=True)
    found = Read(source, policy, scratch=scratch, **options)
    n_buckets = options.get("n_buckets", 3)
    for batch in found.batches:
        ids = batch.document_id.to_pylist()
        assert ids == sorted(ids, key=lambda i: i if isinstance(i, int) else i.encode())
        assert len(set((hash_values(batch.document_id)[:, 0] % np.uint64(n_buckets)).tolist())) == 1
        assert sorted(set(batch.bags.ids.tolist())) == list(range(len(batch.bags.words)))
    for bag in found.bags:
        assert bag
        assert list(bag) == sorted(bag, key=str.encode)
    return found


def fails(source, tmp_path):
    """Return the message under the policy "fail", after which no scattered file may be left."""
    (tmp_path / "failed").mkdir(exist_ok=True)
    found = message(lambda: Read(source, scratch=tmp_path / "failed"))
    assert list((tmp_path / "failed").iterdir()) == []
    return found


def source_of(*paths, **options):
    return opened(TriplesSource, *paths, **options)


def csv_source(tmp_path, text, **options):
    return source_of(put(tmp_path / "t.csv", text), **options)


def parquet_source(tmp_path, table, row_group_size=None, **options):
    return source_of(put_parquet(tmp_path / "t.parquet", table, row_group_size=row_group_size), **options)


def ratings_source(path, **options):
    return opened(RatingsSource, path, **options)


def quoted(field):
    return '"' + field.replace('"', '""') + '"' if set(field) & set(',"') else field


texts = st.text(st.sampled_from('ab,"é 😀1'), min_size=1, max_size=4)
broken = st.sampled_from([0.1, 0.2, 0.3, 1e8, 7.0, 1e-3, 2.5])


def write_table(path, rows, integers, floats, data):
    """Write rows as Parquet or CSV in one of several equivalent ways."""
    if path.suffix == ".parquet":
        text = data.draw(st.sampled_from([pa.string(), pa.large_string()]))
        types = [pa.int64() if integers else text, pa.string(), pa.float64() if floats else pa.int64()]
        columns = list(zip(*rows, strict=True)) or [(), (), ()]
        arrays = [pa.array(c, t) for c, t in zip(columns, types, strict=True)]
        table = pa.table(arrays, names=["document", "word", "count"])
        put_parquet(path, table, row_group_size=7, use_dictionary=data.draw(st.booleans()))
        return
    lines = [f"{c},{quoted(str(d))},x,{quoted(w)}" for d, w, c in rows]
    end = data.draw(st.sampled_from(["\n", "\r\n", "\n\n"]))
    content = (end.join(["count,document,extra,word", *lines]) + end * data.draw(st.booleans())).encode()
    put(path, gzip.compress(content) if path.suffix == ".gz" else content)


def summed(rows, floats):
    """Return bags by document, summed in dictionaries."""
    truth = defaultdict(lambda: defaultdict(list))
    for d, w, c in rows:
        truth[d][w].append(float(np.float32(c)) if floats else c)
    return {
        d: {w: float(np.float32(np.cumsum(sorted(c))[-1])) if floats else sum(c) for w, c in bag.items()}
        for d, bag in truth.items()
    }


@settings(max_examples=25, deadline=None)
@given(data=st.data(), integers=st.booleans(), floats=st.booleans(), n_buckets=st.integers(1, 5))
def test_random_triples_equal_sums_in_dictionaries(tmp_path_factory, data, integers, floats, n_buckets):
    tmp_path = tmp_path_factory.mktemp("triples")
    documents = st.integers(-3, 9).map(lambda i: i * 2**58) if integers else texts
    row = st.tuples(documents, texts, broken if floats else st.integers(1, 5))
    files = data.draw(st.lists(st.lists(row, max_size=25), min_size=1, max_size=4))
    rows = [row for part in files for row in part]
    suffix = data.draw(st.sampled_from([".csv", ".csv.gz", ".parquet"]))
    paths = [tmp_path / f"{number}{suffix}" for number in range(len(files))]
    for path, part in zip(paths, files, strict=True):
        write_table(path, part, integers, floats, data)
    options = {"count_type": "float" if floats else "int", "integer_ids": integers}
    source = source_of(*paths, **options)
    found = read(source, tmp_path, n_buckets=n_buckets, order=lambda paths: data.draw(st.permutations(paths)))
    assert found.documents == summed(rows, floats)
    kinds = {(batch.bags.counts.dtype, batch.document_id.type) for batch in found.batches}
    assert kinds <= {(np.dtype(np.float32 if floats else np.int32), pa.int64() if integers else pa.string())}
    # Neither the order of rows nor the format changes a bit.
    lines = [f"{quoted(str(d))},{quoted(w)},{c}\n" for d, w, c in data.draw(st.permutations(rows))]
    again = source_of(put(tmp_path / "x.csv", HEADER + "".join(lines)), **options)
    assert list(read(again, tmp_path, n_buckets=n_buckets).documents.items()) == list(found.documents.items())


@pytest.mark.parametrize("step", [1, -1])
@pytest.mark.parametrize("way", [1, -1])
def test_sums_of_floats_do_not_depend_on_the_order_of_files(tmp_path, step, way):
    # 2^30 + 64 lies between two float32 values; the small counts decide, unless they are added to 2^30 one by one.
    counts = np.array([2.0**30, 64, *[2.0**-24] * 64])
    parts = ["".join(f"d,w,{c!r}\n" for c in part.tolist()) for part in np.array_split(counts[::step], 4)]
    source = source_of(
        *(put(tmp_path / f"{i}.csv", HEADER + part) for i, part in enumerate(parts)), count_type="float"
    )
    assert read(source, tmp_path, order=lambda paths: paths[::way]).documents == {"d": {"w": 2.0**30 + 128}}


def test_damaged_scattered_files_are_refused(tmp_path):
    source = csv_source(tmp_path, HEADER + "".join(f"d{i},w,1\n" for i in range(50)))
    found = read(source, tmp_path, n_buckets=5)
    assert len(found.documents) == 50
    [file] = (tmp_path / "out").iterdir()
    bad = BadRecords("fail", BUCKET, source.place)
    whole = file.read_bytes()
    assert b"wwww" in whole
    for cut in (whole[: len(whole) // 2], whole[:-20], b"", whole.replace(b"wwww", b"\xff" * 4)):
        file.write_bytes(cut)
        with pytest.raises(StoreError, match=r"0\.arrow .*run again$"):
            list(source.gather([file], 0, 5, bad))
    file.write_bytes(whole)
    other = source_of(*source.files, count_type="float")
    other.scatter(other.units()[0], bad, tmp_path / "1.arrow", 5)
    with pytest.raises(InputError, match="string and int32 in some files and string and float in others"):
        list(source.gather([file, tmp_path / "1.arrow"], 0, 5, bad))


BAD_LINES = [
    (b",x,1", "document is empty"),
    (b"a,,1", "word is empty"),
    (b"a,x,", "count is empty"),
    (b"a,x,abc", "count 'abc' is not a number"),
    (b"a,x,0x10", "count '0x10' is not a number"),
    (b"a,x,inf", "count 'inf' is not a number"),
    *((b"a,x,%d" % count, f"count {count} is not in (0, {LARGEST}]") for count in (0, -3, LARGEST + 1)),
    (b"a,x,nan", "count nan is not in"),
    (b"a,x,1e999", "count 1e999 is not in"),
    (b"a,x,2.5", "count 2.5 is not a whole number; set count_type to float"),
    (b"a,x", "it has 2 fields, the header 3"),
    (b"a,x,1,9", "it has 4 fields, the header 3"),
    (b"a,\xff,1", "word holds bytes that are not UTF-8"),
    (b'a,"x,1', "a quote"),
    (b"a,x\ry,1", "it has 2 fields"),
]


@pytest.mark.parametrize(("line", "reason"), BAD_LINES)
@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\n\n"])
def test_bad_lines_of_triples(tmp_path, line, reason, ending):
    text = ending.join([HEADER.strip().encode(), b"a,x,1", line, b"b,y,2"]) + ending
    source = csv_source(tmp_path, text)
    number = 5 if ending == b"\n\n" else 3
    found = fails(source, tmp_path)
    assert found.startswith(f"{source.files[0]}, line {number}: ")
    assert reason in found
    kept = read(source, tmp_path, "quarantine")
    assert kept.documents == {"a": {"x": 1}, "b": {"y": 2}}
    assert (kept.bad[0][0], kept.bad[0][2]) == (number - 1, line.split(b"\r")[0])


def test_quoted_line_ends_and_carriage_returns(tmp_path):
    source = csv_source(tmp_path, HEADER + 'a,"x\ny",1\nb,z,1\rc,z,1\nd,z,1\n')
    assert read(source, tmp_path).documents == {"a": {"x\ny": 1}, "b": {"z": 1}, "c": {"z": 1}, "d": {"z": 1}}


ROWS = {"document": ["a", "b", "c"], "word": ["x", "y", "z"], "count": [1, 2, 3]}
NOT_UTF8 = pa.array([b"x", b"\xff", b"z"])
BAD_COLUMNS = [
    *((name, pa.array([values[0], None, values[2]]), f"{name} is null") for name, values in ROWS.items()),
    *((name, pa.array(["x", "", "z"]), f"{name} is empty") for name in ("document", "word")),
    *((name, NOT_UTF8, f"{name} holds bytes that are not UTF-8") for name in ("document", "word")),
    ("document", pa.array([1, 2**63, 3], pa.uint64()), "document is above 2"),
    *(
        (
            "count",
            pa.array([type(count)(1), count, type(count)(3)]),
            f"count {count} is not in (0, {LARGEST}]",
        )
        for count in (0, -1, 2**40, float("nan"), float("inf"), 1e-45)
    ),
]


@pytest.mark.parametrize(("column", "values", "reason"), BAD_COLUMNS)
@pytest.mark.parametrize("use_dictionary", [True, False])
def test_bad_rows_of_parquet_triples(tmp_path, column, values, reason, use_dictionary):
    table = pa.table({**ROWS, column: values})
    table = pa.concat_tables([table.slice(0, 1), table])
    path = put_parquet(tmp_path / "t.parquet", table, row_group_size=2, use_dictionary=use_dictionary)
    source = source_of(path)
    assert fails(source, tmp_path).startswith(f"{path}, row group 1, row 0 from 0: {reason}")
    found = read(source, tmp_path, "quarantine")
    [(row, _, record)] = found.bad
    assert row == 2
    assert b'"word": ' in record
    assert (b"\xff" in record) == (values is NOT_UTF8)
    assert sum(sum(bag.values()) for bag in found.bags) == 5


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_words_of_all_string_types(tmp_path, kind):
    words = pa.array(["x", "y", "x"]).cast(kind)
    table = pa.table({"document": [1, 1, 2], "word": words, "count": [1, 2, 3]})
    assert read(parquet_source(tmp_path, table), tmp_path).documents == {1: {"x": 1, "y": 2}, 2: {"x": 3}}


def test_numbers_as_words_and_no_count_column(tmp_path):
    table = pa.table({"d": pa.array([7, 7], pa.int16()), "w": pa.array([2**63, 5], pa.uint64())})
    source = parquet_source(tmp_path, table, document="d", word="w", count=None)
    assert read(source, tmp_path).documents == {7: {str(2**63): 1, "5": 1}}
    columns = {"header": "none", "columns": ["document", "word"], "count": None}
    layout = {"delimiter": "\t", "quoting": "none", **columns}
    text = 'u1\tsong a\nu1\tsong a\nu2\t"raw'
    found = read(csv_source(tmp_path, text, **layout), tmp_path)
    assert found.documents == {"u1": {"song a": 2}, "u2": {'"raw': 1}}
    assert ", line 4: it has 1 field, others 2" in fails(
        csv_source(tmp_path, text + "\nu3", **layout), tmp_path
    )


@pytest.mark.parametrize("delimiter", ["::", "\t|\t", ":::", "§"])
@pytest.mark.parametrize("separator_in_text", [False, True])
def test_delimiters_of_several_bytes(tmp_path, delimiter, separator_in_text):
    rows = [("a:b", 'say "hi', "2"), ("a:b", "x|y", "1"), ("c", ", d", "4")]
    # The byte that replaces the delimiter may also occur in the text.
    rows += [("d", "a\x1fb", "5")] * separator_in_text
    truth = {"a:b": {'say "hi': 2, "x|y": 1}, "c": {", d": 4}}
    truth |= {"d": {"a\x1fb": 5}} if separator_in_text else {}
    text = "\n".join(delimiter.join(row) for row in [("document", "word", "count"), *rows])
    assert read(csv_source(tmp_path, text, delimiter=delimiter), tmp_path).documents == truth
    source = csv_source(tmp_path, text + f"\nd{delimiter}a\x1f5", delimiter=delimiter)
    assert f", line {2 + len(rows)}: it has 2 fields, the header 3" in fails(source, tmp_path)


@pytest.mark.parametrize("bad", ["9223372036854775808", "x1"])
def test_integer_ids(tmp_path, bad):
    text = f"{HEADER}-9223372036854775808,w,1\n007,w,2\n7,w,3\n"
    expected = {-(2**63): {"w": 1}, 7: {"w": 5}}
    assert read(csv_source(tmp_path, text, integer_ids=True), tmp_path).documents == expected
    source = csv_source(tmp_path, f"{text}{bad},w,1\n", integer_ids=True)
    found = fails(source, tmp_path)
    assert f"line 5: document '{bad}' is not a 64-bit integer" in found
    assert read(source, tmp_path, "quarantine").documents == expected


def test_overflowing_sums_of_triples(tmp_path):
    lines = "".join(f"{row},{LARGEST}\n" for row in ("a,x", "a,x", "a,y", "b,x", "b,x"))
    source = csv_source(tmp_path, HEADER + lines)
    with pytest.raises(InputError, match=f"the bucket: .* 'x' .* {2 * LARGEST}"):
        read(source, tmp_path)
    found = read(source, tmp_path, "quarantine")
    assert found.documents == {"a": {"y": LARGEST}}
    assert sorted(record for _, _, record in found.bad) == [f"{d}\tx\t{2 * LARGEST}".encode() for d in "ab"]


def unusable_files():
    table = pa.table(ROWS)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    data = bytes(sink.getvalue())
    yield "bare.csv", b"document,count\na,1\n", "there is no column 'word'; it has document, count"
    yield "latin.csv", b"document,w\xf6rd,count\n", "its header is not UTF-8"
    yield "hurt.parquet", data[:4] + b"\xff" * 60 + data[64:], "Parquet"
    yield "less.parquet", table.drop_columns("word"), "there is no column 'word'; it has document, count"
    yield "twice.parquet", table.append_column("word", table["word"]), "it has 2 columns 'word'"
    yield "typed.parquet", pa.table({**ROWS, "word": [1.5, 2, 3]}), "column 'word' is double"
    yield "lists.parquet", pa.table({**ROWS, "word": [["x"]] * 3}), "column 'word' is list<"
    yield "truth.parquet", pa.table({**ROWS, "count": [True] * 3}), "column 'count' is bool"


@pytest.mark.parametrize(("name", "content", "reason"), list(unusable_files()))
def test_unusable_files_of_triples(tmp_path, name, content, reason):
    path = (put if isinstance(content, bytes) else put_parquet)(tmp_path / name, content)
    source = source_of(path)
    assert source.n_buckets() == 1
    found = fails(source, tmp_path)
    assert found.startswith(f"{path}: ")
    assert reason in found
    kept = read(source, tmp_path, "quarantine")
    assert ([row for row, _, _ in kept.bad], kept.bags) == ([None], [])


def test_files_must_agree_on_types_of_ids_and_counts(tmp_path):
    a = put_parquet(tmp_path / "a.parquet", ROWS)
    b = put_parquet(tmp_path / "b.parquet", {**ROWS, "document": [1, 2, 3]})
    c = put_parquet(tmp_path / "c.parquet", {**ROWS, "count": [1.0, 2, 3]})
    t = put(tmp_path / "t.csv", f"{HEADER}a,x,10\n")

    for other, kinds in (
        (b, "string and int32 .* int64 and int32"),
        (c, "string and int32 .* string and float"),
    ):
        with pytest.raises(InputError, match=f"documents and counts are {kinds} in others; make"):
            read(source_of(a, other), tmp_path, n_buckets=1)
    assert read(source_of(a, t), tmp_path).documents == {"a": {"x": 11}, "b": {"y": 2}, "c": {"z": 3}}
    with pytest.raises(InputError, match="files"):
        source_of().units()
    assert read(csv_source(tmp_path, HEADER), tmp_path).bags == []


def test_buckets_grow_with_the_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(triples, "BUCKET_BYTES", 100)
    text = (HEADER + "a,x,1\n" * 100).encode()
    assert csv_source(tmp_path, text).n_buckets() == 7  # 620 bytes
    packed = put(tmp_path / "t.csv.gz", gzip.compress(text))
    assert source_of(packed).n_buckets() == -(-5 * packed.stat().st_size // 100)
    assert parquet_source(tmp_path, ROWS).n_buckets() == 1
    big = {name: column * 10_000 for name, column in ROWS.items()}
    assert parquet_source(tmp_path, big).n_buckets() == 4096


NAMED = {
    **{"delimiter": "::", "header": "none", "columns": ("user", "item", "rating", "timestamp")},
    **{"names": "movies.dat", "names_delimiter": "::", "names_header": False},
    "names_columns": ("item", "name", "genres"),
}
RATINGS = "1::122::5::838985046\n1::185::0.5::838983525\n2::122::3.5::1\n2::7::1::2\n2::8::4.5::3\n"
MOVIES = (
    "122::Boomerang (1992)::Comedy\n185::Terminator 2: Judgment Day (1991)::Action\n"
    "7::Émile::Drama\n8::Émile::Drama\n9::Émile (7)::Drama\n"
)


def zipped(path, encoding="utf-8", ratings_text=RATINGS):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("ml-10M100K/ratings.dat", ratings_text)
        archive.writestr("ml-10M100K/movies.dat", MOVIES.encode(encoding))
    return f"zip://ml-10M100K/ratings.dat::{path}"


@pytest.mark.parametrize("names", ["movies.dat", "ml-10M100K/movies.dat"])
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_movielens_in_its_zip_with_titles_as_words(tmp_path, names, encoding):
    path = zipped(tmp_path / "ml-10m.zip", encoding)
    source = ratings_source(path, **{**NAMED, "names": names, "names_encoding": encoding})
    assert [unit.size for unit in source.units()] == [len(RATINGS)]
    assert source.n_buckets() == 1
    found = read(source, tmp_path)
    assert found.documents == {
        1: {"Boomerang (1992)": 10, "Terminator 2: Judgment Day (1991)": 1},
        2: {"Boomerang (1992)": 7, "Émile (7) (7)": 2, "Émile (8)": 9},
    }
    assert {batch.bags.counts.dtype for batch in found.batches} == {np.dtype(np.int32)}


def test_names_of_the_first_columns_are_enough(tmp_path):
    put(tmp_path / "u.item", "1|Toy Story|1995|0|1\n2|Get Shorty|1995|1|0\n")
    ratings = put(tmp_path / "u.data", "9\t1\t5\t0\n9\t2\t1\t0\n")
    layout = {"delimiter": "\t", "header": "none", "columns": ("user", "item", "rating", "time")}
    named = {
        "names": "u.item",
        "names_delimiter": "|",
        "names_header": False,
        "names_columns": ("item", "name"),
    }
    source = ratings_source(ratings, **layout, **named)
    assert read(source, tmp_path).documents == {9: {"Toy Story": 10, "Get Shorty": 2}}
    put(tmp_path / "u.item", "1|Toy Story|1995\n2|Get|Shorty|1995\n")
    with pytest.raises(InputError, match=r"u\.item, line 2: it has 4 fields, others 3; correct the line"):
        read(source, tmp_path)


def test_an_item_without_a_name_is_a_bad_record(tmp_path):
    path = zipped(tmp_path / "m.zip", ratings_text=RATINGS + "3::999::4::0\n")
    source = ratings_source(path, **NAMED)
    found = fails(source, tmp_path)
    assert f"{path}, line 6: item '999' " in found
    assert "zip://ml-10M100K/movies.dat::" in found
    kept = read(source, tmp_path, "quarantine")
    assert (sorted(kept.documents), kept.bad[0][2]) == ([1, 2], b"3::999::4::0")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1::A::g\n1::B::g\n", "line 2: item '1' has another name above"),
        ("1::A::g\n2::A\n", "line 2: it has 2 fields, others 3"),
        ("1:: ::g\n", "line 1: name is empty"),
        ("::A::g\n", "line 1: item is empty"),
        ("", "the file is empty"),
        (b"1::\xff::g\n", "line 1: name holds bytes that are not UTF-8"),
        (None, "; check names"),
    ],
)
@pytest.mark.parametrize("policy", ["fail", "quarantine"])
def test_unusable_files_of_names(tmp_path, text, reason, policy):
    if text is not None:
        put(tmp_path / "movies.dat", text)
    source = ratings_source(put(tmp_path / "r.dat", "1::1::5::0\n"), **NAMED)
    with pytest.raises(InputError, match=rf"movies\.dat.*{reason}"):
        read(source, tmp_path, policy)


def test_names_with_a_header_beside_parquet(tmp_path):
    columns = {"user": ["u", "v"], "item": [1, 2], "rating": pa.array([4.5, 5], pa.float32())}
    path = put_parquet(tmp_path / "r.parquet", columns)
    put(tmp_path / "movies.csv", '\ufeffmovieId,title\n1,"One, and only"\n2,Two\n')
    named = {"names": "movies.csv", "names_item": "movieId"}
    found = read(ratings_source(path, **named, names_name="title"), tmp_path)
    assert found.documents == {"u": {"One, and only": 9}, "v": {"Two": 10}}
    with pytest.raises(InputError, match=r"'name'.*movieId, title"):
        read(ratings_source(path, **named), tmp_path)


@pytest.mark.parametrize("rating", ["0", "-1", "5.5", "4.25", "nan", "x", "", "1e999", "1e308"])
def test_bad_ratings(tmp_path, rating):
    path = put(tmp_path / "r.csv", f"user,item,rating\n1,a,5\n1,b,{rating}\n")
    assert f"r.csv, line 3: rating {rating or 'is empty'}" in fails(ratings_source(path), tmp_path)
    found = read(ratings_source(path), tmp_path, "quarantine")
    assert found.documents == {1: {"a": 10}}
    assert [(row, record) for row, _, record in found.bad] == [(2, f"1,b,{rating}".encode())]
    if rating == "5.5":
        assert read(ratings_source(path, max_rating=10), tmp_path).documents == {1: {"a": 10, "b": 11}}
