"""Triples and ratings, scattered and gathered, against dictionaries; and what is said about rows that are wrong."""

from __future__ import annotations

import csv
import gzip
import io
import os
import pickle
import re
import zipfile
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.ingestion.readers import grouping, limits, tables, triples
from streaming_jsmf.ingestion.readers.base import BadRecords, Unit
from streaming_jsmf.ingestion.readers.hashing import hash_values
from streaming_jsmf.ingestion.readers.ratings import RatingsOptions, RatingsSource
from streaming_jsmf.ingestion.readers.triples import TriplesOptions, TriplesSource

LARGEST = 2**31 - 1
BUCKET = Unit("the bucket")


class Read:
    """All that a source gives: bags by document, ids in order, bad records, batches and scattered files."""

    def __init__(self, source, directory, policy="fail", n_buckets=3, order=lambda files: files):
        self.bags, self.ids, self.bad, self.batches = {}, [], [], []
        self.files = []
        for number, unit in enumerate(source.units()):
            bad = BadRecords(policy, unit, source.place)
            target = directory / f"{number}.arrow"
            source.scatter(unit, bad, target, n_buckets)
            self.files.append(target)
            self.bad += bad.records
        for bucket in range(n_buckets):
            bad = BadRecords(policy, BUCKET, source.place)
            found = list(source.gather(order(self.files), bucket, bad))
            self.bad += bad.records
            self._take(found, bucket, n_buckets)

    def _take(self, batches, bucket, n_buckets):
        ids = [i for batch in batches for i in batch.document_id.to_pylist()]
        assert ids == sorted(ids, key=lambda i: i if isinstance(i, int) else i.encode())
        assert [r for batch in batches for r in batch.rows.tolist()] == list(range(len(ids)))
        for batch in batches:
            assert (hash_values(batch.document_id)[:, 0] % np.uint64(n_buckets) == bucket).all()
            assert (batch.indptr.dtype, batch.codes.dtype) == (np.int64, np.int32)
            assert batch.indptr[0] == 0
            assert batch.indptr[-1] == len(batch.codes) == len(batch.counts)
            words = batch.dictionary.to_pylist()
            assert sorted(set(batch.codes.tolist())) == list(range(len(words)))
            for i, document in enumerate(batch.document_id.to_pylist()):
                inside = slice(batch.indptr[i], batch.indptr[i + 1])
                bag = [words[code] for code in batch.codes[inside]]
                assert bag
                assert bag == sorted(set(bag), key=str.encode)
                assert document not in self.bags
                self.bags[document] = dict(zip(bag, batch.counts[inside].tolist(), strict=True))
        self.ids += ids
        self.batches += batches


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def csv_source(tmp_path, text, **options):
    return TriplesSource((write(tmp_path / "t.csv", text),), TriplesOptions(**options))


def parquet_source(tmp_path, table, row_group_size=None, **options):
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=row_group_size)
    return TriplesSource((str(tmp_path / "t.parquet"),), TriplesOptions(**options))


def fails(source, tmp_path):
    """The message under the policy "fail"; nothing may be left of the scattered file."""
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError) as caught:
        Read(source, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
    assert "\n" not in str(caught.value)
    return str(caught.value)


def quoted(field):
    return '"' + field.replace('"', '""') + '"' if set(field) & set(',"') else field


texts = st.text(st.sampled_from('ab,"é 😀1'), min_size=1, max_size=4)
whole = st.integers(1, 5)
broken = st.sampled_from([0.1, 0.2, 0.3, 1e8, 7.0, 1e-3, 2.5])


def write_table(path, rows, integers, floats, data):
    """Write rows as Parquet or CSV, in one of the ways that say the same."""
    if path.suffix == ".parquet":
        text = data.draw(st.sampled_from([pa.string(), pa.large_string()]))
        types = [pa.int64() if integers else text, pa.string(), pa.float64() if floats else pa.int64()]
        columns = list(zip(*rows, strict=True)) or [(), (), ()]
        arrays = [pa.array(c, t) for c, t in zip(columns, types, strict=True)]
        table = pa.table(arrays, names=["document", "word", "count"])
        pq.write_table(table, path, row_group_size=7, use_dictionary=data.draw(st.booleans()))
        return
    lines = [f"{c},{quoted(str(d))},x,{quoted(w)}" for d, w, c in rows]
    end = data.draw(st.sampled_from(["\n", "\r\n", "\n\n"]))
    content = (end.join(["count,document,extra,word", *lines]) + end * data.draw(st.booleans())).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def summed(rows, floats):
    """Bags by document, out of dictionaries."""
    truth = defaultdict(lambda: defaultdict(list))
    for d, w, c in rows:
        truth[d][w].append(float(np.float32(c)) if floats else c)
    return {
        d: {w: float(np.float32(np.cumsum(sorted(c))[-1])) if floats else sum(c) for w, c in bag.items()}
        for d, bag in truth.items()
    }


@settings(max_examples=60, deadline=None)
@given(data=st.data(), integers=st.booleans(), floats=st.booleans(), n_buckets=st.integers(1, 5))
def test_random_triples_equal_the_dictionaries(tmp_path_factory, data, integers, floats, n_buckets):
    tmp_path = tmp_path_factory.mktemp("triples")
    documents = st.integers(-3, 9).map(lambda i: i * 2**58) if integers else texts
    row = st.tuples(documents, texts, broken if floats else whole)
    files = data.draw(st.lists(st.lists(row, max_size=25), min_size=1, max_size=4))
    rows = [row for part in files for row in part]
    suffix = data.draw(st.sampled_from([".csv", ".csv.gz", ".parquet"]))
    paths = [tmp_path / f"{number}{suffix}" for number in range(len(files))]
    for path, part in zip(paths, files, strict=True):
        write_table(path, part, integers, floats, data)
    options = TriplesOptions(count_type="float" if floats else "int", integer_ids=integers)
    source = pickle.loads(pickle.dumps(TriplesSource(tuple(map(str, paths)), options)))
    read = Read(source, tmp_path, n_buckets=n_buckets, order=lambda found: data.draw(st.permutations(found)))
    assert read.bags == summed(rows, floats)
    kinds = {(batch.counts.dtype, batch.document_id.type) for batch in read.batches}
    id_type = pa.int64() if integers else pa.string()
    assert kinds <= {(np.dtype(np.float32 if floats else np.int32), id_type)}
    # The order of rows changes nothing, to the last bit, and neither does the kind of file.
    other = tmp_path / "other"
    other.mkdir()
    lines = [f"{quoted(str(d))},{quoted(w)},{c}" for d, w, c in data.draw(st.permutations(rows))]
    text = "\n".join(["document,word,count", *lines])
    again = Read(TriplesSource((write(other / "x.csv", text),), options), other, n_buckets=n_buckets)
    assert list(again.bags.items()) == list(read.bags.items())


def test_sums_of_floats_do_not_depend_on_the_order_of_files(tmp_path):
    # 2^30 + 64 lies between two float32; the crumbs decide, unless they are lost by coming after 2^30.
    counts = np.array([2.0**30, 64, *[2.0**-24] * 64])
    for step in (1, -1):
        files = []
        for number, part in enumerate(np.array_split(counts[::step], 4)):
            text = "document,word,count\n" + "".join(f"d,w,{c!r}\n" for c in part.tolist())
            files.append(write(tmp_path / f"{number}.csv", text))
        source = TriplesSource(tuple(files), TriplesOptions(count_type="float"))
        for way in (1, -1):
            read = Read(source, tmp_path, order=lambda paths, way=way: paths[::way])
            assert read.bags == {"d": {"w": 2.0**30 + 128}}


def test_blocks_batches_and_flushes_may_end_anywhere(tmp_path, monkeypatch):
    rows = [(f"d{i % 7}", f"w{i % 11}", 1 + i % 3) for i in range(400)]
    truth = defaultdict(lambda: defaultdict(int))
    for d, w, c in rows:
        truth[d][w] += c
    text = "document,word,count\n" + "".join(f"{d},{w},{c}\n" for d, w, c in rows)
    table = pa.table([list(c) for c in zip(*rows, strict=True)], names=["document", "word", "count"])
    monkeypatch.setattr(limits, "BATCH_BYTES", 37)
    monkeypatch.setattr(limits, "BATCH_ROWS", 13)
    monkeypatch.setattr(limits, "BATCH_VALUES", 20)
    monkeypatch.setattr(grouping, "_FLUSH_BYTES", 15)
    for source in (csv_source(tmp_path, text), parquet_source(tmp_path, table, row_group_size=50)):
        read = Read(source, tmp_path, n_buckets=2)
        assert read.bags == truth
        # 11 words a document: one to a batch, and every batch brings the words it uses only.
        assert len(read.batches) == 7
        with pa.memory_map(str(read.files[0])) as mapped:
            assert pa.ipc.open_file(mapped).num_record_batches > 2 * 400 / 20


def test_one_scattered_file_gives_any_bucket_and_nothing_half_written(tmp_path):
    source = csv_source(tmp_path, "document,word,count\n" + "".join(f"d{i},w,1\n" for i in range(50)))
    read = Read(source, tmp_path, n_buckets=5)
    assert len(read.bags) == 50
    assert {p.name for p in tmp_path.iterdir()} == {"t.csv", "0.arrow"}
    whole = read.files[0].read_bytes()
    assert b"wwww" in whole
    for cut in (whole[: len(whole) // 2], whole[:-20], b"", whole.replace(b"wwww", b"\xff" * 4)):
        read.files[0].write_bytes(cut)
        with pytest.raises(StoreError, match=r"0\.arrow is missing, truncated or damaged .*run again$"):
            list(source.gather(read.files, 0, BadRecords("fail", BUCKET, source.place)))
    read.files[0].write_bytes(whole)
    with pytest.raises(StoreError, match="does not hold bucket 5"):
        list(source.gather(read.files, 5, BadRecords("fail", BUCKET, source.place)))
    with pytest.raises(ValueError, match="1 to 4096"):
        source.scatter(source.units()[0], BadRecords("fail", BUCKET, source.place), tmp_path / "x", 4097)


def test_files_of_other_columns_are_not_mixed(tmp_path):
    one = csv_source(tmp_path, "document,word,count\nd,w,1\n")
    read = Read(one, tmp_path, n_buckets=1)
    two = TriplesSource(one.files, TriplesOptions(count_type="float"))
    two.scatter(two.units()[0], BadRecords("fail", BUCKET, two.place), tmp_path / "1.arrow", 1)
    with pytest.raises(StoreError, match="different columns"):
        list(one.gather([*read.files, tmp_path / "1.arrow"], 0, BadRecords("fail", BUCKET, one.place)))


GOOD = [b"a,x,1", b"b,y,2"]
BAD_LINES = [
    (b",x,1", "document is empty"),
    (b"a,,1", "word is empty"),
    (b"a,x,", "count is empty"),
    (b"a,x,abc", "count 'abc' is not a number"),
    (b"a,x,0x10", "count '0x10' is not a number"),
    (b"a,x,0", r"count 0 is not in \(0, 2147483647\]"),
    (b"a,x,-3", r"count -3 is not in \(0, 2147483647\]"),
    (b"a,x,nan", "count nan is not in"),
    (b"a,x,inf", "count 'inf' is not a number"),
    (b"a,x,1e999", r"count 1e999 is not in"),
    (b"a,x,2147483648", r"count 2147483648 is not in"),
    (b"a,x,2.5", "count 2.5 is not a whole number; set count_type to float"),
    (b"a,x", "2 fields, not 3"),
    (b"a,x,1,9", "4 fields, not 3"),
    (b"a,\xff,1", "byte 2 of the line is not UTF-8"),
    (b'a,"x,1', "a quote is opened and not closed"),
    (b'a,"x\nb",1', "a quote is opened"),
    (b"a,x\ry,1", "cannot be split"),
]


@pytest.mark.parametrize(("line", "reason"), BAD_LINES)
@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\n\n"])
def test_a_bad_line_is_named_and_can_be_left_out(tmp_path, line, reason, ending):
    text = ending.join([b"document,word,count", GOOD[0], line, GOOD[1]]) + ending
    source = csv_source(tmp_path, text)
    number = 5 if ending == b"\n\n" else 3
    message = fails(source, tmp_path)
    assert re.match(rf"{re.escape(source.files[0])}, line {number}: .*{reason}", message), message
    assert message.endswith("; mend the record or use --on-bad-record quarantine")
    read = Read(source, tmp_path, "quarantine")
    assert read.bags == {"a": {"x": 1}, "b": {"y": 2}}
    first = read.bad[0]
    assert first.row == number - 2
    assert re.search(reason, first.reason)
    assert first.record == line.split(b"\n")[0]


def test_a_bad_line_far_down_keeps_its_number(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "BATCH_BYTES", 64)
    monkeypatch.setattr(limits, "BATCH_VALUES", 9)  # some rows are written before the run ends
    lines = [f"d{i},w,1" for i in range(100)]
    lines[60], lines[80], lines[90] = "d,w,x", "d,w", ""
    source = csv_source(tmp_path, "document,word,count\n" + "\n".join(lines))
    assert ", line 62: count 'x'" in fails(source, tmp_path)
    read = Read(source, tmp_path, "quarantine")
    assert [(r.row, r.record) for r in read.bad] == [(60, b"d,w,x"), (80, b"d,w")]
    assert len(read.bags) == 97


ROWS = {"document": ["a", "b", "c"], "word": ["x", "y", "z"], "count": [1, 2, 3]}
NOT_UTF8 = pa.array([b"x", b"\xff", b"z"])
BAD_COLUMNS = [
    ("document", pa.array(["a", None, "c"]), "document is null"),
    ("word", pa.array(["x", None, "z"]), "word is null"),
    ("count", pa.array([1, None, 3]), "count is null"),
    ("document", pa.array(["a", "", "c"]), "document is empty"),
    ("word", pa.array(["x", "", "z"]), "word is empty"),
    ("word", NOT_UTF8, "word holds bytes that are not UTF-8"),
    ("document", NOT_UTF8, "document holds bytes that are not UTF-8"),
    ("count", pa.array([1, 0, 3]), r"count 0 is not in \(0, 2147483647\]"),
    ("count", pa.array([1, -1, 3]), "count -1 is not in"),
    ("count", pa.array([1.0, float("nan"), 3.0]), "count nan is not in"),
    ("count", pa.array([1.0, float("inf"), 3.0]), "count inf is not in"),
    ("count", pa.array([1.0, 1e-45, 3.0]), "count 1e-45 is not in"),
    ("count", pa.array([1, 2**40, 3]), f"count {2**40} is not in"),
    ("document", pa.array([1, 2**63, 3], pa.uint64()), "document is above 2"),
]


@pytest.mark.parametrize(("column", "values", "reason"), BAD_COLUMNS)
@pytest.mark.parametrize("use_dictionary", [True, False])
def test_a_bad_row_of_parquet_is_named_and_can_be_left_out(tmp_path, column, values, reason, use_dictionary):
    good = pa.table(ROWS)
    table = pa.table({**ROWS, column: values})
    path = tmp_path / "t.parquet"
    with pq.ParquetWriter(path, table.schema, use_dictionary=use_dictionary) as writer:
        writer.write_table(good.slice(0, 1).cast(table.schema) if column != "document" else table.slice(0, 1))
        writer.write_table(table)
    source = TriplesSource((str(path),), TriplesOptions())
    assert re.match(rf"{path}, row group 1, row 1 from 0: {reason}", fails(source, tmp_path))
    read = Read(source, tmp_path, "quarantine")
    assert [r.row for r in read.bad] == [2]
    assert b'"word": ' in read.bad[0].record
    assert (b"\xff" in read.bad[0].record) == (values is NOT_UTF8)
    assert sum(sum(bag.values()) for bag in read.bags.values()) == 5


def test_strings_as_bytes_categories_or_views_and_words_as_numbers_are_read(tmp_path):
    words = pa.array(["x", "y", "x"])
    for number, kind in enumerate([pa.binary(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())]):
        table = pa.table({"document": [1, 1, 2], "word": words.cast(kind), "count": [1, 2, 3]})
        directory = tmp_path / str(number)
        directory.mkdir()
        assert Read(parquet_source(directory, table), directory).bags == {1: {"x": 1, "y": 2}, 2: {"x": 3}}
    table = pa.table({"d": pa.array([7, 7], pa.int16()), "w": pa.array([2**63, 5], pa.uint64())})
    read = Read(parquet_source(tmp_path, table, document="d", word="w", count=None), tmp_path)
    assert read.bags == {7: {str(2**63): 1, "5": 1}}


def test_every_row_counts_one_without_a_count_column_and_headers_may_be_missing(tmp_path):
    text = "\n".join(["u1\tsong a", "u1\tsong a", 'u2\t"raw'])
    options = {
        "delimiter": "\\t",
        "header": False,
        "columns": ["document", "word"],
        "count": None,
        "quote": "",
    }
    assert Read(csv_source(tmp_path, text, **options), tmp_path).bags == {
        "u1": {"song a": 2},
        "u2": {'"raw': 1},
    }
    message = fails(csv_source(tmp_path, text + "\nu3", **options), tmp_path)
    assert ", line 4: 1 fields, not 2" in message


@pytest.mark.parametrize("delimiter", ["::", "\t|\t", ":::", "§"])
def test_delimiters_of_several_bytes(tmp_path, delimiter):
    rows = [("a:b", 'say "hi', "2"), ("a:b", "x|y", "1"), ("c", ", d", "4")]
    truth = {"a:b": {'say "hi': 2, "x|y": 1}, "c": {", d": 4}}
    text = "\n".join(delimiter.join(row) for row in [("document", "word", "count"), *rows])
    assert Read(csv_source(tmp_path, text, delimiter=delimiter), tmp_path).bags == truth
    # The byte that stands in for the delimiter may be in the text as well.
    text += "\n" + delimiter.join(["d", "a\x1fb", "5"])
    truth["d"] = {"a\x1fb": 5}
    assert Read(csv_source(tmp_path, text, delimiter=delimiter), tmp_path).bags == truth
    message = fails(csv_source(tmp_path, text + f"\nd{delimiter}a\x1f5", delimiter=delimiter), tmp_path)
    assert ", line 6: 2 fields, not 3" in message


def parsed(text, n_columns, quote='"'):
    """Columns of a block by Arrow, or None, and those of its good lines by ``split``; what the latter refuse."""
    layout, names = tables.Delimited(quote=quote), tuple("abc"[:n_columns])
    parser = tables.BlockParser(layout, names, names)
    bad = BadRecords("quarantine", BUCKET, lambda *_: "")
    exact = parser.parse_by_line(text.encode(), 0, bad)
    quick = parser.parse(text.encode())
    columns = [exact.columns[name].to_pylist() for name in names]
    return quick and [quick[name].to_pylist() for name in names], columns, bad.records


@settings(max_examples=300)
@given(
    st.text(st.sampled_from('a,"\n'), min_size=1, max_size=24), st.integers(1, 3), st.sampled_from(['"', ""])
)
def test_what_arrow_takes_of_a_block_is_what_its_lines_hold(text, n_columns, quote):
    quick, exact, bad = parsed(text, n_columns, quote)
    if quick is not None:
        assert (quick, bad) == (exact, [])


@given(st.lists(st.tuples(*[st.text(st.sampled_from('a,"'), max_size=4)] * 3), min_size=1, max_size=4))
def test_well_formed_quotes_are_read_by_arrow(rows):
    stream = io.StringIO(newline="")
    csv.writer(stream, quoting=csv.QUOTE_ALL).writerows(rows)
    columns = [list(column) for column in zip(*rows, strict=True)]
    assert parsed(stream.getvalue(), 3) == (columns, columns, [])


def test_lines_joined_by_a_quote_and_cut_by_a_stray_line_end_do_not_make_up_for_each_other(tmp_path):
    source = csv_source(tmp_path, 'document,word,count\na,"x\ny",1\nb,z,1\rc,z,1\nd,z,1\n')
    assert ", line 2: a quote is opened and not closed on its line" in fails(source, tmp_path)
    read = Read(source, tmp_path, "quarantine")
    assert ([r.row for r in read.bad], read.bags) == ([0, 1, 2], {"d": {"z": 1}})


def test_integer_ids_and_what_does_not_fit(tmp_path):
    text = "document,word,count\n-9223372036854775808,w,1\n007,w,2\n7,w,3\n"
    read = Read(csv_source(tmp_path, text, integer_ids=True), tmp_path)
    assert read.bags == {-(2**63): {"w": 1}, 7: {"w": 5}}
    for bad, reason in [("9223372036854775808", "does not fit 64 bits"), ("x1", "'x1' is not an integer")]:
        source = csv_source(tmp_path, f"{text}{bad},w,1\n", integer_ids=True)
        directory = tmp_path / bad
        directory.mkdir()
        assert re.search(
            rf"line 5: document {bad}|line 5: document '{bad}'", message := fails(source, directory)
        )
        assert reason in message
        assert len(Read(source, directory, "quarantine").bags) == 2


@pytest.mark.parametrize("policy", ["fail", "quarantine"])
def test_a_sum_may_be_too_large(tmp_path, policy):
    lines = "".join(f"{row},{LARGEST}\n" for row in ("a,x", "a,x", "a,y", "b,x", "b,x"))
    source = csv_source(tmp_path, f"document,word,count\n{lines}")
    if policy == "fail":
        with pytest.raises(
            InputError, match=r"the bucket: the counts of word 'x' in document '.' add up to 4294"
        ):
            Read(source, tmp_path)
        return
    read = Read(source, tmp_path, policy)
    assert read.bags == {"a": {"y": LARGEST}}
    assert sorted(r.record for r in read.bad) == [f"{d}\tx\t{2 * LARGEST}".encode() for d in "ab"]


def whole_file(tmp_path, source, reason):
    """The file is refused as a whole, and nothing of it kept."""
    message = fails(source, tmp_path)
    assert re.match(rf"{re.escape(source.files[0])}: .*{reason}", message), message
    assert message.endswith("; mend the file or use --on-bad-record quarantine")
    read = Read(source, tmp_path, "quarantine")
    assert [r.row for r in read.bad] == [None]
    assert read.bags == {}


def test_files_that_cannot_be_used(tmp_path):
    good = b"document,word,count\na,x,1\n"
    table = pa.table(ROWS)
    pq.write_table(table, tmp_path / "whole.parquet")
    parquet = (tmp_path / "whole.parquet").read_bytes()
    pq.write_table(table.drop_columns("word"), tmp_path / "less.parquet")
    pq.write_table(table.append_column("word", table["word"]), tmp_path / "twice.parquet")
    pq.write_table(pa.table({**ROWS, "word": [1.5, 2, 3]}), tmp_path / "typed.parquet")
    pq.write_table(pa.table({**ROWS, "count": [True] * 3}), tmp_path / "truth.parquet")
    cases = {
        "bare.csv": (b"document,count\na,1\n", "there is no column 'word'; it has document, count"),
        "double.csv": (b"document,word,word,count\n", "it has 2 columns 'word'"),
        "latin.csv": (b"document,w\xf6rd,count\n", "line 1: byte 10 of the line is not UTF-8"),
        "hurt.parquet": (parquet[:4] + b"\xff" * 60 + parquet[64:], "cannot be read as Parquet"),
        "less.parquet": (None, "there is no column 'word'; it has document, count"),
        "twice.parquet": (None, "it has 2 columns 'word'"),
        "typed.parquet": (None, "column 'word' is double; it must hold strings or integers"),
        "truth.parquet": (None, "column 'count' is bool; it must hold numbers"),
    }
    for name, (content, reason) in cases.items():
        directory = tmp_path / f"in_{name}"
        directory.mkdir()
        path = str(tmp_path / name) if content is None else write(directory / name, content)
        source = TriplesSource((path,), TriplesOptions())
        assert source.n_buckets() == 1
        whole_file(directory, source, reason)
    assert Read(csv_source(tmp_path, good.splitlines()[0]), tmp_path).bags == {}
    with pytest.raises(InputError, match="there are no files"):
        TriplesSource((), TriplesOptions()).units()


def test_files_of_a_source_have_one_kind_of_ids_and_counts(tmp_path):
    pq.write_table(pa.table(ROWS), tmp_path / "a.parquet")
    pq.write_table(pa.table({**ROWS, "document": [1, 2, 3]}), tmp_path / "b.parquet")
    pq.write_table(pa.table({**ROWS, "count": [1.0, 2, 3]}), tmp_path / "c.parquet")
    a, b, c = (str(tmp_path / f"{name}.parquet") for name in "abc")
    with pytest.raises(
        InputError, match=r"b\.parquet has int64 ids and int counts, .*a\.parquet has string ids"
    ):
        TriplesSource((a, b), TriplesOptions()).units()
    with pytest.raises(InputError, match=r"c\.parquet has string ids and float counts"):
        TriplesSource((a, c), TriplesOptions()).units()
    text = write(tmp_path / "t.csv", "document,word,count\na,x,10\n")
    read = Read(TriplesSource((a, text), TriplesOptions()), tmp_path)
    assert read.bags == {"a": {"x": 11}, "b": {"y": 2}, "c": {"z": 3}}


def test_buckets_grow_with_the_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(triples, "BUCKET_BYTES", 100)
    text = "document,word,count\n" + "a,x,1\n" * 100
    assert csv_source(tmp_path, text).n_buckets() == 7  # 620 bytes
    packed = write(tmp_path / "t.csv.gz", gzip.compress(text.encode()))
    size = os.path.getsize(packed)  # noqa: PTH202
    assert TriplesSource((packed,), TriplesOptions()).n_buckets() == -(-5 * size // 100)
    assert parquet_source(tmp_path, pa.table(ROWS)).n_buckets() == 1
    big = pa.table({name: column * 10_000 for name, column in ROWS.items()})
    assert parquet_source(tmp_path, big).n_buckets() == 4096


def test_row_groups_are_units_and_their_rows_have_places(tmp_path, monkeypatch):
    monkeypatch.setattr("streaming_jsmf.ingestion.readers.limits.UNIT_BYTES", 1)
    table = pa.table({**ROWS, "count": [1, 2, 0]})
    source = parquet_source(tmp_path, table, row_group_size=1)
    units = source.units()
    assert [(unit.start, unit.stop) for unit in units] == [(0, 1), (1, 2), (2, 3)]
    assert [source.first_row(unit) for unit in units] == [0, 1, 2]
    assert "row group 2, row 0 from 0: count 0" in fails_at(source, units[2], tmp_path)
    assert Read(source, tmp_path, "quarantine").bags == {"a": {"x": 1}, "b": {"y": 2}}


def fails_at(source, unit, tmp_path):
    with pytest.raises(InputError) as caught:
        source.scatter(unit, BadRecords("fail", unit, source.place), tmp_path / "x.arrow", 2)
    return str(caught.value)


MOVIELENS = {"delimiter": "::", "header": False, "columns": ("user", "item", "rating", "timestamp")}
NAMED = {
    **MOVIELENS,
    "names": "movies.dat",
    "names_delimiter": "::",
    "names_header": False,
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
def test_movielens_in_its_zip_with_titles_for_words(tmp_path, names, encoding):
    path = zipped(tmp_path / "ml-10m.zip", encoding)
    source = RatingsSource((path,), RatingsOptions(**{**NAMED, "names": names, "names_encoding": encoding}))
    source = pickle.loads(pickle.dumps(source))
    assert source.units() == [Unit(path, size=len(RATINGS))]
    assert source.n_buckets() == 1
    read = Read(source, tmp_path)
    assert read.bags == {
        1: {"Boomerang (1992)": 10, "Terminator 2: Judgment Day (1991)": 1},
        2: {"Boomerang (1992)": 7, "Émile (7) (7)": 2, "Émile (8)": 9},
    }
    assert {batch.counts.dtype for batch in read.batches} == {np.dtype(np.int32)}


def test_an_item_without_a_name_is_a_bad_record(tmp_path):
    path = zipped(tmp_path / "m.zip", ratings_text=RATINGS + "3::999::4::0\n")
    source = RatingsSource((path,), RatingsOptions(**NAMED))
    assert f"{path}, line 6: item '999' has no name in zip://ml-10M100K/movies.dat::" in fails(
        source, tmp_path
    )
    read = Read(source, tmp_path, "quarantine")
    assert (sorted(read.bags), read.bad[0].record) == ([1, 2], b"3::999::4::0")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1::A::g\n1::B::g\n", "line 2: item '1' has another name above"),
        ("1::A::g\n2::A\n", "line 2: 2 fields, not 3"),
        ("1:: ::g\n", "line 1: name is empty"),
        ("::A::g\n", "line 1: item is empty"),
        ("", "it holds no names"),
        (b"1::\xff::g\n", "line 1: byte 3 of the line is not UTF-8"),
        ("1::A::g\n" * 100, "names take more than"),
    ],
)
def test_names_that_cannot_be_used_end_the_run(tmp_path, monkeypatch, text, reason):
    monkeypatch.setattr(limits, "LARGEST_NAMES", 500)
    write(tmp_path / "movies.dat", text)
    source = RatingsSource((write(tmp_path / "r.dat", "1::1::5::0\n"),), RatingsOptions(**NAMED))
    for policy in ("fail", "quarantine"):
        with pytest.raises(InputError, match=rf"movies\.dat: {reason}"):
            Read(source, tmp_path, policy)
    (tmp_path / "movies.dat").unlink()
    with pytest.raises(
        InputError, match=r"there is no file of names at .*movies\.dat; check the option names"
    ):
        Read(source, tmp_path)


def test_names_with_a_header_beside_parquet(tmp_path):
    table = pa.table({"user": ["u", "v"], "item": [1, 2], "rating": pa.array([4.5, 5], pa.float32())})
    pq.write_table(table, tmp_path / "r.parquet")
    write(tmp_path / "movies.csv", '\ufeffmovieId,title\n1,"One, and only"\n2,Two\n')
    options = RatingsOptions(names="movies.csv", names_item="movieId", names_name="title")
    read = Read(RatingsSource((str(tmp_path / "r.parquet"),), options), tmp_path)
    assert read.bags == {"u": {"One, and only": 9}, "v": {"Two": 10}}
    options = RatingsOptions(names="movies.csv", names_item="movieId")
    with pytest.raises(InputError, match="there is no column 'name'; it has movieId, title"):
        Read(RatingsSource((str(tmp_path / "r.parquet"),), options), tmp_path)


def test_half_stars_become_whole_counts(tmp_path):
    scale = [i / 2 for i in range(1, 11)]
    text = "user,item,rating\n" + "".join(f"1,i{2 * r:02.0f},{r}\n" for r in scale)
    source = RatingsSource((write(tmp_path / "r.csv", text),), RatingsOptions())
    assert Read(source, tmp_path).bags == {1: {f"i{i:02d}": i for i in range(1, 11)}}


@pytest.mark.parametrize("rating", ["0", "-1", "5.5", "4.25", "nan", "x", "", "1e999"])
def test_what_is_no_rating_is_a_bad_record(tmp_path, rating):
    text = f"user,item,rating\n1,a,5\n1,b,{rating}\n"
    source = RatingsSource((write(tmp_path / "r.csv", text),), RatingsOptions())
    message = fails(source, tmp_path)
    assert f"r.csv, line 3: rating {rating or 'is empty'}" in message
    read = Read(source, tmp_path, "quarantine")
    assert read.bags == {1: {"a": 10}}
    assert (read.bad[0].row, read.bad[0].record) == (1, f"1,b,{rating}".encode())
    if rating == "5.5":
        ten = RatingsSource(source.files, RatingsOptions(max_rating=10))
        assert Read(ten, tmp_path).bags == {1: {"a": 10, "b": 11}}


@pytest.mark.parametrize(
    "options",
    [
        {"delimiter": ""},
        {"delimiter": "\n"},
        {"header": False},
        {"columns": ["a", "b"]},
        {"quote": "''"},
        {"quote": ","},
        {"max_rating": 0},
        {"max_rating": 4.7},
        {"names_encoding": "utf-99"},
        {"names": "x", "names_header": False},
        {"unknown": 1},
    ],
)
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(ValidationError):
        RatingsOptions(**options)
