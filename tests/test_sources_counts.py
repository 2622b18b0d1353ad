"""Readers of counts compared with dense matrices, and messages about bad lines, rows and files."""

from __future__ import annotations

import gzip
import io
import re
import sys
import zipfile

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import streaming_jsmf as sj
from streaming_jsmf.errors import InputError, options_named
from streaming_jsmf.ingestion.formats import npz
from streaming_jsmf.ingestion.readers.counted import DocwordSource, H5adSource, MatrixMarketSource, NpzSource
from streaming_jsmf.ingestion.sources.protocol import BadRecords
from tests.cases import each_once
from tests.sources import Read, opened, put, refused_by, small

WORDS = ("ant", "bee", "cat", "dog", "eel")
# Three documents, the second one empty; the lines after the header are 4 to 8.
DOCWORD = ["3", "5", "5", "1 1 2", "1 3 1", "1 5 4", "3 2 1", "3 4 7"]
TRUTH = [[2, 0, 1, 0, 4], [0, 0, 0, 0, 0], [0, 1, 0, 7, 0]]
BANNER = "%%MatrixMarket matrix coordinate"


def rows_of(read):
    """Return the bags as rows of a dense matrix."""
    return [[bag.get(word, 0) for word in read.source.vocabulary] for bag in read.bags]


def types_of(read):
    return {batch.bags.counts.dtype for batch in read.batches}


def put_lines(path, lines, end="\n"):
    data = ("\n".join(lines) + end).encode("utf-8", "surrogateescape")
    return put(path, gzip.compress(data) if path.suffix == ".gz" else data)


def docwords(*paths, **options):
    return opened(DocwordSource, *paths, **options)


def docword_file(tmp_path, lines, name="docword.x.txt", words=WORDS, end="\n"):
    put_lines(tmp_path / "vocab.x.txt", words)
    return docwords(put_lines(tmp_path / name, lines, end))


def market_file(tmp_path, lines, name="x.mtx", words=WORDS, **options):
    put_lines(tmp_path / "vocab.txt", words)
    return opened(MatrixMarketSource, put_lines(tmp_path / name, lines), **options)


def npz_file(tmp_path, matrix, compressed=True, name="x.npz", words=WORDS):
    put_lines(tmp_path / "vocab.txt", words)
    sp.save_npz(
        tmp_path / name, sp.csr_array(matrix) if isinstance(matrix, np.ndarray) else matrix, compressed
    )
    return opened(NpzSource, tmp_path / name)


def h5ad_file(tmp_path, matrix, words=WORDS, name="x.h5ad", layers=None, obs=None, **options):
    obs = pd.DataFrame(obs or {}, index=[f"c{i}" for i in range(matrix.shape[0])])
    data = anndata.AnnData(matrix, obs=obs, var=pd.DataFrame(index=list(words)), layers=layers)
    data.write_h5ad(tmp_path / name)
    return opened(H5adSource, tmp_path / name, **options)


def small_blocks(batch, values):
    return small(batch=batch, values=values)


def triples(matrix, order=None):
    """Yield (row, column, value) from 1, grouped by row; columns in a given order."""
    for i, row in enumerate(matrix):
        yield from ((i + 1, j + 1, row[j]) for j in order or range(len(row)) if row[j])


matrices = st.integers(1, 5).flatmap(
    lambda n: st.lists(
        st.lists(st.sampled_from([0, 0, 1, 2, 30]), min_size=n, max_size=n), min_size=1, max_size=12
    )
)
blocks = st.tuples(st.integers(1, 60), st.integers(1, 20))


@given(matrix=matrices, block=blocks, packed=st.booleans(), backwards=st.booleans(), ended=st.booleans())
def test_docword_equals_the_matrix(tmp_path_factory, matrix, block, packed, backwards, ended):
    order = list(range(len(matrix[0])))[:: -1 if backwards else 1]
    lines = [f"{d} {w} {c}" for d, w, c in triples(matrix, order)]
    header = [str(len(matrix)), str(len(matrix[0])), str(len(lines))]
    name, words = "docword.x.txt" + ".gz" * packed, WORDS[: len(matrix[0])]
    folder = tmp_path_factory.mktemp("docword")
    source = docword_file(folder, header + lines, name, words, "\n" * ended)
    with small_blocks(*block):
        read = Read(source)
    assert rows_of(read) == matrix
    assert (read.ids, read.rows) == ([], list(range(1, len(matrix) + 1)))
    assert types_of(read) == {np.dtype(np.int32)}


@given(
    matrix=matrices,
    block=blocks,
    kind=st.sampled_from(["integer", "real", "pattern"]),
    documents=st.sampled_from(["rows", "columns"]),
)
def test_matrix_market_equals_the_matrix(tmp_path_factory, matrix, block, kind, documents):
    change = {"integer": lambda c: c, "real": lambda c: c / 4, "pattern": lambda c: min(c, 1)}[kind]
    matrix = [[change(value) for value in row] for row in matrix]
    way = 1 if documents == "rows" else -1
    entries = [(*(d, w)[::way], *([] if kind == "pattern" else [c])) for d, w, c in triples(matrix)]
    sizes, words = (len(matrix), len(matrix[0]))[::way], WORDS[: len(matrix[0])]
    head = [f"{BANNER} {kind} general", "% who wrote it", "", f"{sizes[0]} {sizes[1]} {len(entries)}"]
    lines = head + [" ".join(map(str, entry)) for entry in entries]
    source = market_file(tmp_path_factory.mktemp("mtx"), lines, "x.mtx.gz", words, documents=documents)
    with small_blocks(*block):
        read = Read(source)
    assert (rows_of(read), read.ids, read.rows) == (matrix, [], list(range(len(matrix))))
    assert types_of(read) == {np.dtype(np.float32 if kind == "real" else np.int32)}


@given(matrix=matrices, block=blocks, compressed=st.booleans(), real=st.booleans())
def test_npz_equals_the_matrix(tmp_path_factory, matrix, block, compressed, real):
    dense = np.array(matrix) / 4 if real else np.array(matrix)
    source = npz_file(tmp_path_factory.mktemp("npz"), dense, compressed, words=WORDS[: len(matrix[0])])
    with small_blocks(*block):
        read = Read(source)
    assert (rows_of(read), read.rows) == (dense.tolist(), list(range(len(matrix))))
    assert types_of(read) == {np.dtype(np.float32 if real else np.int32)}


@pytest.mark.slow
@settings(max_examples=15)
@given(matrix=matrices, block=blocks, dense=st.booleans(), kind=st.sampled_from([np.int32, np.float32]))
def test_h5ad_equals_the_matrix(tmp_path_factory, matrix, block, dense, kind):
    values = np.array(matrix, kind)
    group = [["a", "b", None][i % 3] for i in range(len(matrix))]
    obs = {"group": pd.Categorical(group), "size": np.arange(len(matrix))}
    folder, held = tmp_path_factory.mktemp("h5ad"), values if dense else sp.csr_matrix(values)
    source = h5ad_file(folder, held, WORDS[: len(matrix[0])], obs=obs, metadata=("group", "size"))
    with small_blocks(*block):
        read = Read(source)
    assert source.vocabulary == WORDS[: len(matrix[0])]
    assert rows_of(read) == values.tolist()
    assert read.ids == [f"c{i}" for i in range(len(matrix))]
    assert types_of(read) == {np.dtype(kind)}
    assert read.metadata == {"group": group, "size": list(range(len(matrix)))}


def test_repeated_words_are_summed_across_blocks(tmp_path):
    values = ["0.1", "0.2", "0.3", "1e-3", "7.7", "0.1", "0.1"]
    lines = [f"1 {1 + i % 2} {value}" for i, value in enumerate(values)] + ["2 5 1", "2 5 1.5"]
    source = market_file(tmp_path, [f"{BANNER} real general", "2 5 9", *lines])
    whole = Read(source)
    assert whole.bags[0]["ant"] == pytest.approx(0.1 + 0.3 + 7.7 + 0.1)
    assert whole.bags[1] == {"eel": 2.5}
    for size in (1, 7, 20, 50):
        with small_blocks(size, 3):
            assert Read(source).bags == whole.bags
    doubled = docword_file(tmp_path, ["1", "5", "3", "1 2 3", "1 1 1", "1 2 4"])
    assert Read(doubled).bags == [{"ant": 1, "bee": 7}]


def test_overflowing_sums_are_refused(tmp_path):
    source = docword_file(tmp_path, ["2", "5", "4", "1 2 2147483647", "1 2 1", "1 3 1", "2 1 1"])
    read = refused_by(source, "x.txt, document 1: ", "count 2147483648 is not in")
    assert read.bags == [{"ant": 1}]
    counts = (np.array([2147483647, 1, 5]), np.array([0, 0, 1]), np.array([0, 2, 3]))
    source = npz_file(tmp_path, sp.csr_array(counts, shape=(2, 5)))
    assert refused_by(source, "row 0 from 0: ", "word 0 ", "2147483648").rows == [1]


def test_empty_documents_are_kept_in_order(tmp_path):
    source = docword_file(tmp_path, ["7", "5", "2", "3 1 1", "5 2 1"])
    for size, values in ((1, 2), (8 << 20, 1_000_000)):
        with small_blocks(size, values):
            read = Read(source)
        assert read.bags == [{}, {}, {"ant": 1}, {}, {"bee": 1}, {}, {}]
        assert read.rows == [1, 2, 3, 4, 5, 6, 7]
    assert Read(docword_file(tmp_path, ["2", "5", "0"])).bags == [{}, {}]
    assert Read(docword_file(tmp_path, ["0", "5", "0"])).bags == []


def test_empty_documents_are_read_in_batches(tmp_path):
    # Enough lines for a file of its size to declare that many empty documents.
    lines = [f"{number} 1 1" for number in range(1, 5001)]
    source = docword_file(tmp_path, ["2500000", "5", "5001", *lines, "2500000 2 1"])
    [unit] = source.units()
    sizes = [len(b.rows) for b in source.read(unit, BadRecords("fail", unit, source.place))]
    assert sum(sizes) == 2_500_000
    assert max(sizes) <= 1_000_000


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([], "declares 2000000000 documents and 0 counts, so more than "),
        (["1 2 3", "1999999999 2 3"], "declares 2000000000 documents and 2 counts, "),
    ],
)
@pytest.mark.parametrize("make", [docword_file, market_file])
def test_too_many_declared_documents_are_refused(tmp_path, lines, reason, make):
    header = ["2000000000", "5", str(len(lines))]
    if make is market_file:
        header = [f"{BANNER} integer general", " ".join(header)]
    read = refused_by(make(tmp_path, [*header, *lines]), reason)
    assert (read.bags, len(read.bad)) == ([], 1)


NO_NUMBERS = " is not 3 numbers "
BAD_LINES = {
    "3 2": f"{NO_NUMBERS}(Expected 3 columns, got 2: 3 2)",
    "3 2 1 1": f"{NO_NUMBERS}(Expected 3 columns, got 4",
    "4 2 1": ": document 4 is outside 1..3",
    "0 2 1": ": document 0 is outside 1..3",
    "3 6 1": ": word 6 is not in the vocabulary of 5 words",
    "3 0 1": ": word 0 is not in the vocabulary of 5 words",
    **{f"3 2 {n}": f": count {n} is not in" for n in (0, -1, 2147483648)},
    **{
        f"3 2 {n}": f"{NO_NUMBERS}(CSV conversion error to int64: invalid value '{n}'"
        for n in ("9" * 20, "NaN", "1.5", "1_0")
    },
    "3 \udcff\udcfe 1": f"{NO_NUMBERS}(CSV conversion error to int64",
    "three 2 1": f"{NO_NUMBERS}(CSV conversion error to int64: invalid value 'three'",
    "2 2 1": ": document 2 comes after document 3; ",
}


@pytest.mark.parametrize("size", [5, 8 << 20])
@pytest.mark.parametrize("line", BAD_LINES)
def test_a_bad_line_of_docword_refuses_the_file(tmp_path, line, size):
    lines = [*DOCWORD[:2], "6", *DOCWORD[3:-1], line, DOCWORD[-1]]
    source = docword_file(tmp_path, lines)
    with small_blocks(size, 10):
        read = refused_by(source, f"docword.x.txt: line 8{BAD_LINES[line]}")
    assert [row for row, _, _ in read.bad] == [None]


@pytest.mark.parametrize(
    ("line", "reasons"),
    [
        ("2 1 nan", ["count nan is not in"]),
        ("2 1 inf", ["count inf is"]),
        ("2 1 1e-42", ["count 1e-42 is"]),
        ("2 1 -0.5", ["count -0.5 is"]),
        ("2 1 1.5d0", ["line 5 is not 3 numbers", "invalid value '1.5d0'"]),
        ("1 1 1", ["document 1 comes after document 2; ", "columns"]),
    ],
)
def test_a_bad_line_of_matrix_market_refuses_the_file(tmp_path, line, reasons):
    head = [f"{BANNER} real general", "2 5 4"]
    source = market_file(tmp_path, [*head, "1 2 0.5", "2 2 .5", line, "2 3 5."])
    refused_by(source, "x.mtx: line 5", *reasons)


LOOSE = ["3", " 5", "5 ", "  1\t1 2", "1  3 1 ", "1 5 4\r", "   3          2 1", "003 4 7"]


@pytest.mark.parametrize("size", [4, 8 << 20])
def test_several_blanks_and_tabs_are_accepted(tmp_path, size):
    """MATLAB's mmwrite pads numbers."""
    with small_blocks(size, 10):
        assert rows_of(Read(docword_file(tmp_path, LOOSE))) == TRUTH


def test_carriage_returns_and_leading_zeros_are_accepted(tmp_path):
    lines = [*DOCWORD[:-1], "003 4 7"]
    assert rows_of(Read(docword_file(tmp_path, [f"{line}\r" for line in lines]))) == TRUTH


@pytest.mark.parametrize("said", [4, 6])
def test_a_wrong_number_of_lines_in_the_header(tmp_path, said):
    source = docword_file(tmp_path, [*DOCWORD[:2], str(said), *DOCWORD[3:]])
    read = refused_by(source, f"line 3: the header says NNZ = {said}, the number of lines of counts is 5")
    assert [row for row, _, _ in read.bad] == [None]


HEADERS = [
    ("docword", ["three", "5", "5"], "line 1 .*'three'.* D"),
    ("docword", ["3", "-5", "5"], "line 2 .*'-5'.* W"),
    ("docword", ["3", "5", "1 1 2"], "line 3 .*'1 1 2'.* NNZ"),
    ("docword", ["3", "5"], "ends in its header"),
    (
        "docword",
        ["3", "4", *DOCWORD[2:]],
        r"number of words is 4 in the file and 5 in its word list",
    ),
    ("docword", ["99999999999", "5", "0"], "declares 99999999999 documents and 0 counts,"),
    ("mtx", ["%%MatrixMarket matrix array real general", "2 2"], "line 1 .*'%%MatrixMarket matrix array"),
    ("mtx", [f"{BANNER} real symmetric", "5 5 0"], "line 1 .* only %%MatrixMarket"),
    ("mtx", [f"{BANNER} complex general", "5 5 0"], "line 1 .* complex .*only"),
    ("mtx", ["1 2 3", "1 2 3"], "line 1 .*'1 2 3'; only"),
    ("mtx", [f"{BANNER} real general", "% c", "5 5"], "line 3 .*'5 5'"),
    ("mtx", [f"{BANNER} real general", "% c"], "ends in its header"),
    (
        "mtx",
        [f"{BANNER} real general", "5 7 0"],
        "is 7 in the file .*; if the columns are the documents, use ",
    ),
]


@pytest.mark.parametrize(("kind", "lines", "reason"), HEADERS)
def test_bad_headers(tmp_path, kind, lines, reason):
    source = (docword_file if kind == "docword" else market_file)(tmp_path, lines)
    read = refused_by(source, f"{source.files[0]}: ")
    assert re.search(reason, read.bad[0][1])
    assert (read.bags, [row for row, _, _ in read.bad]) == ([], [None])


@pytest.mark.parametrize(("name", "writer"), [("counts.npz", "npz"), ("counts.mm", "market")])
def test_the_message_on_a_missing_word_list_can_be_followed(tmp_path, name, writer):
    """``--vocabulary`` is another option; ``.mm`` is the suffix of gensim."""
    matrix = sp.csr_matrix(np.full((30, 4), 2))
    (sp.save_npz if writer == "npz" else scipy.io.mmwrite)(tmp_path / "made", matrix)
    next(tmp_path.glob("made*")).rename(tmp_path / name)
    (tmp_path / "list.txt").write_text("a\nb\nc\nd\n")
    with options_named(), pytest.raises(InputError) as caught:
        sj.ingest(tmp_path / name, tmp_path / "corpus")
    key = re.search("with --(.*) FILE", str(caught.value))[1].replace("-", "_")
    made = sj.ingest(tmp_path / name, tmp_path / "corpus", **{key: "list.txt"}, duplicates="keep")
    assert (made.n_documents, made.n_words) == (30, 4)


def test_files_share_one_vocabulary(tmp_path):
    files = tuple(str(put_lines(tmp_path / f"docword.{name}.txt", DOCWORD)) for name in "ab")
    for name in "ab":
        put_lines(tmp_path / f"vocab.{name}.txt", WORDS)
    read = Read(docwords(*files))
    assert rows_of(read) == TRUTH * 2
    assert [unit.size for unit in read.units] == [(tmp_path / "docword.a.txt").stat().st_size] * 2
    for words, at in ((("ant", "bee", "cow", "dog", "eel"), 2), ((*WORDS, "fox"), 5)):
        put_lines(tmp_path / "vocab.b.txt", words)
        with pytest.raises(InputError, match=rf"docword\.b\.txt .*docword\.a\.txt.*\bword {at}\b"):
            docwords(*files).units()
    with pytest.raises(InputError, match="no files"):
        docwords().units()


def test_the_word_list_is_found_or_reported_missing(tmp_path):
    path = str(put_lines(tmp_path / "docword.x.txt", DOCWORD))
    with pytest.raises(InputError, match=r"\bvocab\.x\.txt\b"):
        docwords(path).units()
    put_lines(tmp_path / "lists" / "w.txt", WORDS)
    for wanted in ("lists/w.txt", str(tmp_path / "lists" / "w.txt")):
        assert rows_of(Read(docwords(path, word_list=wanted))) == TRUTH
    with pytest.raises(InputError, match=r"\bw\.txt\b"):
        docwords(path, word_list="w.txt").units()
    for place in ("in/vocab.txt", "vocab.txt"):  # beside the file in its archive, or at the root
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
            archive.write(path, "in/docword.x.txt")
            archive.writestr(place, "\n".join(WORDS))
        assert rows_of(Read(docwords(f"zip://in/docword.x.txt::{tmp_path / 'a.zip'}"))) == TRUTH
    source = npz_file(tmp_path, np.array(TRUTH), words=("of another file",))
    put_lines(tmp_path / "x.vocab.txt", WORDS)
    assert rows_of(Read(source)) == TRUTH


#: In a matrix of four rows: where the third one is bad, the word and the count there, and the reason.
BAD_ROWS = [
    (3, 2, -4, "count -4"),
    (3, 2, np.nan, "count nan is not in"),
    (4, 3, np.inf, "count inf is not in"),
    (4, 3, 3e9, "count 3000000000"),
]
ROWS_KEPT = [[2, 0, 0, 0, 1], [0, 3, 0, 0, 0], [6, 0, 0, 0, 0]]


@pytest.mark.parametrize(("values", "bad"), each_once([3, 1000], BAD_ROWS))
def test_a_bad_row_is_named_or_quarantined(tmp_path, values, bad):
    at, word, count, reason = bad
    kind = np.int64 if np.isfinite(count) else np.float64
    matrix = sp.csr_array((4, 5), dtype=kind)
    matrix.indptr, matrix.indices = np.array([0, 2, 3, 5, 6]), np.array([4, 0, 1, 2, 3, 0])
    matrix.data = np.array([1, 2, 3, 4, 5, 6], kind)
    matrix.indices[at], matrix.data[at] = word, count
    sources = [
        npz_file(tmp_path, matrix),
        h5ad_file(tmp_path, sp.csr_matrix(matrix), obs={"n": [1, 2, 3, 4]}, metadata=("n",)),
        h5ad_file(tmp_path, matrix.toarray(), name="dense.h5ad"),
    ]
    for source in sources:
        with small_blocks(100, values):
            read = refused_by(source, f"{source.files[0]}, row 2 from 0: {reason}")
        assert (rows_of(read), read.rows, len(read.bad)) == (ROWS_KEPT, [0, 1, 3], 1)
        assert read.ids in ([], ["c0", "c1", "c3"])
        assert read.metadata.get("n", [1, 2, 4]) == [1, 2, 4]
        assert read.bad[0][2].count(b":") == 2


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.uint64, np.float16, np.float64, bool])
def test_all_types_of_numbers_are_read(tmp_path, kind):
    dense = (np.array(TRUTH) > 0).astype(kind)
    source = npz_file(tmp_path, dense.astype(np.float64))
    rewrite(source.files[0], data=dense[dense > 0])
    read = Read(source)
    assert rows_of(read) == dense.tolist()
    assert types_of(read) == {np.dtype(np.float32 if np.dtype(kind).kind == "f" else np.int32)}


def test_stored_zeros_are_dropped(tmp_path):
    counts = (np.array([1, 0, 2, 0]), np.array([3, 1, 3, 0]), np.array([0, 3, 4]))
    source = npz_file(tmp_path, sp.csr_array(counts, shape=(2, 5)))
    assert zipfile.ZipFile(source.files[0]).read("data.npy").endswith(counts[0].tobytes())
    assert Read(source).bags == [{"dog": 3}, {}]


@pytest.mark.parametrize("kind", ["csc", "coo", "bsr", "dia"])
def test_matrices_not_stored_by_rows_are_read(tmp_path, kind):
    assert rows_of(Read(npz_file(tmp_path, sp.coo_matrix(np.array(TRUTH)).asformat(kind)))) == TRUTH


@pytest.mark.parametrize("word", [-1, 5])
def test_a_word_outside_the_vocabulary_refuses_the_file(tmp_path, word):
    source = npz_file(tmp_path, np.array(TRUTH))
    rewrite(source.files[0], indices=[0, 2, word, 1, 3])
    assert [row for row, _, _ in refused_by(source, "x.npz: ", "do not fit together").bad] == [None]


def test_a_matrix_that_is_larger_than_the_memory_is_refused(tmp_path, monkeypatch):
    source = npz_file(tmp_path, np.array(TRUTH))
    monkeypatch.setattr(npz, "machine_memory", lambda: 1000)
    refused_by(source, "x.npz: ", " bytes, and the machine has 1,000 bytes of memory")


def rewrite(path, compression=zipfile.ZIP_DEFLATED, **arrays):
    """Replace arrays of an .npz file."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for name, array in arrays.items():
        stream = io.BytesIO()
        if not isinstance(array, bytes):
            np.lib.format.write_array(stream, np.asarray(array), allow_pickle=True)
        members[f"{name}.npy"] = stream.getvalue() or array
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


DEEP = b"{'descr': '<i4', 'fortran_order': False, 'shape': " + b"(" * 4000 + b")" * 4000 + b"}"
NO_ARRAYS = [
    ("indptr", np.array([0, 3, 3, 4]), "its indptr ends at 4 of 5 values"),
    ("data", np.array([1, 2, 3, 4, 5], object), "Object arrays cannot be loaded"),
    ("data", np.arange(5) * 1j, "values are of type complex128"),
    ("data", b"\x93NUMPY\x01\x00" + len(DEEP).to_bytes(2, "little") + DEEP, "damaged"),
    ("format", np.array("csr", object), "Object arrays cannot be loaded"),
    ("format", "csr\u00e9", "damaged"),
    ("format", np.array(b"cs\xe9"), "damaged"),
    *(("shape", shape, "damaged") for shape in ([np.nan, 5.0], [np.inf, 5.0], ["3", "words"])),
    ("indptr", b"\x93NUMPY\x09\x00" + bytes(20), "damaged"),
]


@pytest.mark.parametrize(("name", "array", "reason"), NO_ARRAYS, ids=range(len(NO_ARRAYS)))
def test_invalid_arrays_and_python_objects_are_refused(tmp_path, name, array, reason):
    source = npz_file(tmp_path, np.array(TRUTH))
    rewrite(source.files[0], **{name: array})
    with pytest.raises(InputError, match=rf"x\.npz.*{reason}"):
        Read(source)


INDPTRS = ([0, 3, 2, 5], [0, 3, 3, 6], [0, 3, 5], [-1, 3, 3, 5], [0, 3, 3, 5, 5])
BAD_ARRAYS = [
    *(("indptr", values) for values in INDPTRS),
    *(("indices", values) for values in ([0, 2, 4, 1], [0, 2, 4, 1, 3, 3])),
    *(("data", values) for values in ([2, 1, 4, 1], [2, 1, 4, 1, 7, 7])),
    *(("shape", values) for values in ([2, 5], [3], [2, 2, 2])),
]


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize(("name", "values"), BAD_ARRAYS)
def test_inconsistent_arrays_are_refused(tmp_path, name, values, compression):
    source = npz_file(tmp_path, np.array(TRUTH))
    rewrite(source.files[0], compression, **{name: values})
    assert [row for row, _, _ in refused_by(source, "x.npz: ").bad] == [None]


def test_a_wrong_checksum_of_npz(tmp_path):
    source = npz_file(tmp_path, np.arange(1, 2001).reshape(400, 5), compressed=False)
    data = (tmp_path / "x.npz").read_bytes()
    at = data.index(np.arange(1000, 1010).tobytes())
    (tmp_path / "x.npz").write_bytes(data[:at] + b"\x07" + data[at + 1 :])
    with pytest.raises(InputError, match=r"x\.npz.*CRC"):
        Read(source)


@pytest.mark.slow
def test_layers_and_columns_of_h5ad(tmp_path):
    counts = np.array(TRUTH)
    dense = counts.astype(np.float32)
    layers = {"raw": sp.csr_matrix(counts), "byGene": sp.csc_matrix(counts), "dense": dense}
    columns = {"name": ["u", "v", "w"], "kept": [True, False, True], "score": [0.5, 1.5, 2.5]}
    levels, batches = pd.Categorical([2, 1, 2]), pd.array([1, None, 3], dtype="Int64")
    obs = {**columns, "level": levels, "batch": batches}

    def source(matrix=sp.csr_matrix(counts / 8.0), **options):  # noqa: B008
        return h5ad_file(tmp_path, matrix, layers=layers, obs=obs, **options)

    read = Read(source())
    assert rows_of(read) == (counts / 8).tolist()
    assert types_of(read) == {np.dtype(np.float32)}
    read = Read(source(layer="raw", metadata=tuple(obs)))
    assert rows_of(read) == TRUTH
    assert read.metadata == {**columns, "level": ["2", "1", "2"], "batch": [1, None, 3]}
    assert rows_of(Read(source(layer="dense"))) == TRUTH
    for wrong, reason in (
        (source(layer="byGene"), r"layers/byGene as csc_matrix.*adata\.layers\['byGene'\].*tocsr"),
        (source(layer="x"), r"no layers/x; .*byGene, dense, raw"),
        (source(metadata=("age",)), "no column 'age' in obs"),
    ):
        with pytest.raises(InputError, match=reason):
            Read(wrong)
    with pytest.raises(InputError, match=r"\bX\b.*csc_matrix.*adata\.X\.tocsr"):
        Read(source(sp.csc_matrix(counts)))


def test_gene_names_must_be_distinct_and_shared(tmp_path):
    with pytest.warns(UserWarning, match="not unique"):
        source = h5ad_file(tmp_path, sp.csr_matrix(np.array(TRUTH)), ("ant", "bee", "ant", "dog", "eel"))
    with pytest.raises(InputError, match=r"'ant' 2 .*adata\.var_names_make_unique"):
        source.units()
    one = h5ad_file(tmp_path, np.array(TRUTH), name="1.h5ad").files
    two = h5ad_file(tmp_path, np.array(TRUTH), WORDS[::-1], name="2.h5ad").files
    with pytest.raises(InputError, match=r"2\.h5ad .*1\.h5ad.*\bword 0\b"):
        opened(H5adSource, *one, *two).units()


def test_hdf5_that_is_not_anndata_is_refused(tmp_path, monkeypatch):
    source = h5ad_file(tmp_path, np.array(TRUTH))
    with h5py.File(tmp_path / "y.h5ad", "w") as file:
        file["X"] = np.array(TRUTH)
    with pytest.raises(InputError, match=r"\bvar\b"):
        opened(H5adSource, tmp_path / "y.h5ad").units()
    monkeypatch.setitem(sys.modules, "anndata", None)
    with pytest.raises(InputError, match=r"pip install anndata"):
        source.units()
