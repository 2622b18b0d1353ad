"""Readers of count files against dense matrices, and what they say about files that are wrong."""

from __future__ import annotations

import contextlib
import gzip
import io
import pickle
import sys
import zipfile

import anndata
import fsspec
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_jsmf.errors import InputError, StreamingJSMFError
from streaming_jsmf.ingestion.readers import limits, number_lines
from streaming_jsmf.ingestion.readers import matrices as matrix_files
from streaming_jsmf.ingestion.readers.base import BadRecords, Unit
from streaming_jsmf.ingestion.readers.h5ad import H5adOptions, H5adSource
from streaming_jsmf.ingestion.readers.matrices import NpzOptions, NpzSource
from streaming_jsmf.ingestion.readers.number_files import (
    DocwordOptions,
    DocwordSource,
    MatrixMarketOptions,
    MatrixMarketSource,
)
from streaming_jsmf.ingestion.readers.number_lines import EntryParser

WORDS = ("ant", "bee", "cat", "dog", "eel")
# Three documents, the second one empty; the lines after the header are 4 to 8.
DOCWORD = ["3", "5", "5", "1 1 2", "1 3 1", "1 5 4", "3 2 1", "3 4 7"]
TRUTH = [[2, 0, 1, 0, 4], [0, 0, 0, 0, 0], [0, 1, 0, 7, 0]]


class Read:
    """All that a source gives: dense rows, ids, rows, types, batches and bad records."""

    def __init__(self, source, policy="fail", units=None):
        n_words = len(source.vocabulary)
        self.bags, self.ids, self.rows, self.bad, self.dtypes = [], [], [], [], set()
        self.n_batches, self.most = 0, 0
        self.metadata = {}
        self.units = source.units() if units is None else units
        for unit in self.units:
            bad = BadRecords(policy, unit, source.place)
            for batch in source.read(unit, bad):
                assert batch.indptr.dtype == np.int64
                assert batch.codes.dtype == np.int32
                assert batch.indptr[0] == 0
                assert batch.indptr[-1] == len(batch.codes) == len(batch.counts)
                assert batch.n_documents == len(batch.indptr) - 1
                self.dtypes.add(batch.counts.dtype)
                self.n_batches += 1
                self.most = max(self.most, len(batch.codes))
                for i in range(batch.n_documents):
                    inside = slice(batch.indptr[i], batch.indptr[i + 1])
                    codes, counts = batch.codes[inside], batch.counts[inside]
                    assert len(set(codes.tolist())) == len(codes)
                    assert (counts > 0).all()
                    dense = np.zeros(n_words)
                    dense[codes] = counts
                    self.bags.append(dense.tolist())
                self.rows += (batch.rows + source.first_row(unit)).tolist()
                if batch.document_id is not None:
                    assert len(batch.document_id) == batch.n_documents
                    self.ids += batch.document_id.to_pylist()
                for name, column in batch.metadata.items():
                    self.metadata.setdefault(name, []).extend(column.to_pylist())
            self.bad += bad.records

    @property
    def reasons(self):
        return [(record.row, record.reason, record.record) for record in self.bad]


def write_lines(path, lines, end="\n"):
    data = ("\n".join(lines) + end).encode("utf-8", "surrogateescape")
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def docword_file(tmp_path, lines, name="docword.x.txt", words=WORDS):
    (tmp_path / "vocab.x.txt").write_text("\n".join(words) + "\n")
    return DocwordSource((str(write_lines(tmp_path / name, lines)),))


def market_file(tmp_path, lines, name="x.mtx", **options):
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    path = write_lines(tmp_path / name, lines)
    return MatrixMarketSource((str(path),), MatrixMarketOptions(**options))


def npz_file(tmp_path, matrix, compressed=True, name="x.npz", words=WORDS):
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    sp.save_npz(tmp_path / name, matrix, compressed=compressed)
    return NpzSource((str(tmp_path / name),))


def h5ad_file(tmp_path, matrix, words=WORDS, name="x.h5ad", layers=None, obs=None, **options):
    index = [f"c{i}" for i in range(matrix.shape[0])]
    obs = pd.DataFrame(obs or {}, index=index)
    data = anndata.AnnData(matrix, obs=obs, var=pd.DataFrame(index=list(words)), layers=layers)
    data.write_h5ad(tmp_path / name)
    return H5adSource((str(tmp_path / name),), H5adOptions(**options))


@contextlib.contextmanager
def small_blocks(size_of_block, values):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "BATCH_BYTES", size_of_block)
        patch.setattr(limits, "BATCH_VALUES", values)
        patch.setattr(matrix_files, "BATCHES_PER_UNIT", 2)
        yield


def triples(matrix, order=None):
    """Lines (row, column, value) from 1, grouped by row; columns in a given order."""
    for i, row in enumerate(matrix):
        for j in order or range(len(row)):
            if row[j]:
                yield i + 1, j + 1, row[j]


matrices = st.integers(1, 5).flatmap(
    lambda n: st.lists(
        st.lists(st.sampled_from([0, 0, 1, 2, 30]), min_size=n, max_size=n), min_size=1, max_size=12
    )
)
blocks = st.tuples(st.integers(1, 60), st.integers(1, 20))


@given(matrix=matrices, block=blocks, packed=st.booleans(), backwards=st.booleans(), ended=st.booleans())
def test_docword_equals_the_matrix(tmp_path_factory, matrix, block, packed, backwards, ended):
    tmp_path = tmp_path_factory.mktemp("docword")
    order = list(range(len(matrix[0])))[:: -1 if backwards else 1]
    lines = [f"{d} {w} {c}" for d, w, c in triples(matrix, order)]
    header = [str(len(matrix)), str(len(matrix[0])), str(len(lines))]
    (tmp_path / "vocab.x.txt").write_text("\n".join(WORDS[: len(matrix[0])]))
    path = tmp_path / ("docword.x.txt.gz" if packed else "docword.x.txt")
    write_lines(path, header + lines, "\n" if ended else "")
    with small_blocks(*block):
        read = Read(DocwordSource((str(path),)))
    assert read.bags == matrix
    assert read.ids == list(range(1, len(matrix) + 1))
    assert read.dtypes == {np.dtype(np.int32)}
    # The line of the first count, for an empty document that of the next one.
    starts = [int(line.split()[0]) for line in lines]
    assert read.rows == [3 + sum(start <= d for start in starts) for d in range(len(matrix))]


@given(
    matrix=matrices,
    block=blocks,
    kind=st.sampled_from(["integer", "real", "pattern"]),
    documents=st.sampled_from(["rows", "columns"]),
)
def test_matrix_market_equals_the_matrix(tmp_path_factory, matrix, block, kind, documents):
    tmp_path = tmp_path_factory.mktemp("mtx")
    (tmp_path / "vocabulary.txt").write_text("\n".join(WORDS[: len(matrix[0])]))
    if kind == "real":
        matrix = [[value / 4 for value in row] for row in matrix]
    elif kind == "pattern":
        matrix = [[min(value, 1) for value in row] for row in matrix]
    lines = []
    for d, w, c in triples(matrix):
        pair = (d, w) if documents == "rows" else (w, d)
        lines.append(" ".join(str(x) for x in (pair if kind == "pattern" else (*pair, c))))
    sizes = (len(matrix), len(matrix[0]))[:: 1 if documents == "rows" else -1]
    head = [
        f"%%MatrixMarket matrix coordinate {kind} general",
        "% who wrote it",
        "",
        f"{sizes[0]} {sizes[1]} {len(lines)}",
    ]
    path = write_lines(tmp_path / "x.mtx.gz", head + lines)
    with small_blocks(*block):
        read = Read(MatrixMarketSource((str(path),), MatrixMarketOptions(documents=documents)))
    assert read.bags == matrix
    assert read.ids == []
    assert read.dtypes == {np.dtype(np.float32 if kind == "real" else np.int32)}


@given(matrix=matrices, block=blocks, compressed=st.booleans(), real=st.booleans())
def test_npz_equals_the_matrix(tmp_path_factory, matrix, block, compressed, real):
    tmp_path = tmp_path_factory.mktemp("npz")
    dense = np.array(matrix, np.float64 if real else np.int64) / (4 if real else 1)
    source = npz_file(
        tmp_path,
        sp.csr_array(dense if real else dense.astype(np.int64)),
        compressed,
        words=WORDS[: len(matrix[0])],
    )
    with small_blocks(*block):
        read = Read(source)
        if not compressed and dense.astype(bool).sum() > 2 * block[1] + len(matrix[0]):
            assert len(read.units) > 1
    assert read.bags == dense.tolist()
    assert read.rows == list(range(len(matrix)))
    assert read.dtypes == {np.dtype(np.float32 if real else np.int32)}
    assert len(read.units) == 1 or not compressed


@pytest.mark.slow
@settings(max_examples=15)
@given(matrix=matrices, block=blocks, dense=st.booleans(), kind=st.sampled_from([np.int32, np.float32]))
def test_h5ad_equals_the_matrix(tmp_path_factory, matrix, block, dense, kind):
    tmp_path = tmp_path_factory.mktemp("h5ad")
    values = np.array(matrix, kind)
    group = [["a", "b", None][i % 3] for i in range(len(matrix))]
    source = h5ad_file(
        tmp_path,
        values if dense else sp.csr_matrix(values),
        WORDS[: len(matrix[0])],
        obs={"group": pd.Categorical(group), "size": np.arange(len(matrix))},
        metadata=("group", "size"),
    )
    with small_blocks(*block):
        read = Read(source)
    assert source.vocabulary == WORDS[: len(matrix[0])]
    assert read.bags == values.tolist()
    assert read.ids == [f"c{i}" for i in range(len(matrix))]
    assert read.dtypes == {np.dtype(kind)}
    assert read.metadata == {"group": group, "size": list(range(len(matrix)))}


def test_what_scipy_writes_is_read(tmp_path):
    dense = np.random.default_rng(0).poisson(0.4, (40, 5))
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    scipy.io.mmwrite(tmp_path / "x.mtx", sp.csr_matrix(dense).tocoo())
    text = (tmp_path / "x.mtx").read_text()
    assert text.startswith("%%MatrixMarket matrix coordinate integer general")
    assert Read(MatrixMarketSource((str(tmp_path / "x.mtx"),))).bags == dense.tolist()


def test_repeated_words_are_added_whatever_the_blocks(tmp_path):
    lines = ["%%MatrixMarket matrix coordinate real general", "2 5 9"]
    values = ["0.1", "0.2", "0.3", "1e-3", "7.7", "0.1", "0.1"]
    lines += [f"1 {1 + i % 2} {value}" for i, value in enumerate(values)] + ["2 5 1", "2 5 1.5"]
    source = market_file(tmp_path, lines)
    whole = Read(source)
    assert whole.bags[0][0] == pytest.approx(0.1 + 0.3 + 7.7 + 0.1)
    assert whole.bags[1] == [0, 0, 0, 0, 2.5]
    for size in (1, 7, 20, 50):
        with small_blocks(size, 3):
            assert Read(source).bags == whole.bags
    doubled = docword_file(tmp_path, ["1", "5", "3", "1 2 3", "1 1 1", "1 2 4"])
    assert Read(doubled).bags == [[1, 7, 0, 0, 0]]


def test_a_sum_that_does_not_fit_is_refused(tmp_path):
    lines = ["2", "5", "4", "1 2 2147483647", "1 2 1", "1 3 1", "2 1 1"]
    source = docword_file(tmp_path, lines)
    with pytest.raises(InputError, match=r"x\.txt, line 4: the counts of word 2 add up to 2147483648"):
        Read(source)
    assert Read(source, "quarantine").bags == [[0, 0, 1, 0, 0], [1, 0, 0, 0, 0]]
    matrix = sp.csr_array(
        (np.array([2147483647, 1, 5]), np.array([0, 0, 1]), np.array([0, 2, 3])), shape=(2, 5)
    )
    source = npz_file(tmp_path, matrix)
    with pytest.raises(InputError, match="row 0 from 0: the counts of word 0"):
        Read(source)
    assert Read(source, "quarantine").rows == [1]


def test_empty_documents_have_their_place(tmp_path):
    source = docword_file(tmp_path, ["7", "5", "2", "3 1 1", "5 2 1"])
    for size, values in ((1, 2), (8 << 20, 1_000_000)):
        with small_blocks(size, values):
            read = Read(source)
        assert [sum(bag) for bag in read.bags] == [0, 0, 1, 0, 1, 0, 0]
        assert read.rows == [3, 3, 3, 4, 4, 5, 5]
    assert Read(docword_file(tmp_path, ["2", "5", "0"])).bags == [[0] * 5] * 2
    assert Read(docword_file(tmp_path, ["0", "5", "0"])).bags == []


def test_millions_of_empty_documents_come_in_batches(tmp_path):
    # So many that the file is large enough for the empty ones that it declares.
    lines = [f"{number} 1 1" for number in range(1, 5001)]
    source = docword_file(tmp_path, ["2500000", "5", "5001", *lines, "2500000 2 1"])
    unit = source.units()[0]
    sizes = [len(b.rows) for b in source.read(unit, BadRecords("fail", unit, source.place))]
    assert sum(sizes) == 2_500_000
    assert max(sizes) <= 1_000_000


@pytest.mark.parametrize(
    ("lines", "n_entries", "reasons"),
    [
        ([], 0, ["2000000000 documents up to number 2000000000 have no counts, more than"]),
        (["1 2 3"], 1, ["1999999999 documents up to number 2000000000 have no counts"]),
        (["1 2 3", "1999999999 2 3"], 2, ["1999999997 documents up to number 1999999998 have no counts"]),
        (
            ["1 2 3"],
            2_000_000_000,
            ["the header says NNZ = 2000000000, the file has 1 lines", "have no counts"],
        ),
    ],
)
def test_documents_that_are_declared_cost_nothing(tmp_path, lines, n_entries, reasons):
    """Billions of empty documents are not given out, wherever they would be and whatever else the header says."""
    sizes = f"2000000000 5 {n_entries}"
    for source in (
        docword_file(tmp_path, [*sizes.split(), *lines]),
        market_file(tmp_path, ["%%MatrixMarket matrix coordinate integer general", sizes, *lines]),
    ):
        with pytest.raises(InputError, match=reasons[0]):
            Read(source)
        read = Read(source, "quarantine")
        assert read.bags in ([], [[0, 3, 0, 0, 0]])
        for found, reason in zip(read.reasons, reasons, strict=True):
            assert reason in found[1]


BAD_LINES = {
    "3 2": "the line has 2 fields, not 3: '3 2'",
    "3 2 1 1": "the line has 4 fields, not 3",
    "3 2 1\r3 3 1": "the line has 6 fields",
    "4 2 1": r"document 4 is outside 1\.\.3",
    "0 2 1": r"document 0 is outside 1\.\.3",
    "3 6 1": "word 6 is not in the vocabulary of 5 words",
    "3 0 1": "word 0 is not in the vocabulary",
    "3 2 0": r"count 0 is not in \(0, 2147483647\]",
    "3 2 -1": "count -1 is not in",
    "3 2 2147483648": "count 2147483648 is not in",
    "3 2 99999999999999999999": "count 99999999999999999999 is not in",
    "3 2 NaN": "the count 'NaN' is no whole number",
    "3 2 1.5": r"the count '1\.5' is no whole number",
    "3 2 0x1F": "the count '0x1F' is no whole number",
    "3 2 1_0": "the count '1_0' is no whole number",
    "3 \udcff\udcfe 1": r"the word '\\\\xff\\\\xfe' is no whole number",
    "three 2 1": "the document 'three' is no whole number",
    "2 2 1": "document 2 comes after document 3; lines must be grouped",
}


@pytest.mark.parametrize("size", [5, 8 << 20])
@pytest.mark.parametrize("line", BAD_LINES)
def test_a_bad_line_is_named_or_put_aside_alone(tmp_path, line, size):
    lines = [*DOCWORD[:-1], line, DOCWORD[-1]]
    lines[2] = "6"
    source = docword_file(tmp_path, lines)
    with small_blocks(size, 10):
        with pytest.raises(InputError, match=rf"docword\.x\.txt, line 8: {BAD_LINES[line]}") as caught:
            Read(source)
        read = Read(source, "quarantine")
    assert len(str(caught.value).splitlines()) == 1
    assert read.bags == TRUTH
    assert [(row, record) for row, _, record in read.reasons] == [
        (7, line.encode("utf-8", "surrogateescape"))
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [("2 1 nan", "count nan is not in"), ("2 1 inf", "count inf is"), ("2 1 1e-42", "count 1e-42 is"),
     ("2 1 -0.5", r"count -0\.5 is"), ("2 1 1.5d0", r"the count '1\.5d0' is no number"),
     ("1 1 1", "document 1 comes after document 2; entries must be grouped.*set the option documents to 'columns'")],
)  # fmt: skip
def test_bad_reals_and_falling_rows_of_matrix_market(tmp_path, line, reason):
    head = ["%%MatrixMarket matrix coordinate real general", "2 5 4"]
    source = market_file(tmp_path, [*head, "1 2 0.5", "2 2 .5", line, "2 3 5."])
    with pytest.raises(InputError, match=rf"x\.mtx, line 5: {reason}"):
        Read(source)
    read = Read(source, "quarantine")
    assert read.bags == [[0, 0.5, 0, 0, 0], [0, 0.5, 5, 0, 0]]
    assert read.reasons[0][0] == 4


def test_blanks_and_other_line_ends_do_no_harm(tmp_path):
    loose = ["3", " 5", "5 ", "  1\t1 2", "1  3 1 ", "", "1 5 +4\r", "3 2 1", "003 4 7", "  "]
    for size in (4, 8 << 20):
        with small_blocks(size, 10):
            assert Read(docword_file(tmp_path, loose)).bags == TRUTH
    with_returns = docword_file(tmp_path, [line + "\r" for line in DOCWORD])
    assert Read(with_returns).bags == TRUTH


def test_the_same_document_again_is_put_aside_line_by_line(tmp_path):
    source = docword_file(tmp_path, ["3", "5", "5", "1 1 1", "2 1 1", "1 2 1", "1 3 1", "3 1 1"])
    read = Read(source, "quarantine")
    assert [record for _, _, record in read.reasons] == [b"1 2 1", b"1 3 1"]
    assert [sum(bag) for bag in read.bags] == [1, 1, 1]


@pytest.mark.parametrize("said", [4, 6])
def test_a_header_that_lies_is_noted(tmp_path, said):
    source = docword_file(tmp_path, [*DOCWORD[:2], str(said), *DOCWORD[3:]])
    message = f"line 3: the header says NNZ = {said}, the file has 5 lines of counts"
    with pytest.raises(InputError, match=message):
        Read(source)
    read = Read(source, "quarantine")
    assert read.bags == TRUTH
    assert [row for row, _, _ in read.reasons] == [2]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["three", "5", "5"], "line 1 is 'three', not the number of documents D"),
        (["3", "-5", "5"], "line 2 is '-5', not the number of words W"),
        (["3", "5", "1 1 2"], "line 3 is '1 1 2', not the number of counts NNZ"),
        (["3", "5"], "it ends in its header"),
        (["3", "4", *DOCWORD[2:]], "line 2 says W = 4, the word list .*vocab.x.txt has 5 words"),
        (["99999999999", "5", "0"], "99999999999 documents up to number 99999999999 have no counts"),
    ],
)
def test_a_header_that_cannot_be_right_ends_the_file(tmp_path, lines, reason):
    source = docword_file(tmp_path, lines)
    with pytest.raises(InputError, match=rf"docword\.x\.txt: {reason}"):
        Read(source)
    read = Read(source, "quarantine")
    assert (read.bags, [record.row for record in read.bad]) == ([], [None])


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["%%MatrixMarket matrix array real general", "2 2"], "line 1 is '%%MatrixMarket matrix array"),
        (["%%MatrixMarket matrix coordinate real symmetric", "5 5 0"], "line 1 is .* only %%MatrixMarket"),
        (
            ["%%MatrixMarket matrix coordinate complex general", "5 5 0"],
            "line 1 says the numbers are 'complex'",
        ),
        (["1 2 3", "1 2 3"], "line 1 is '1 2 3'; only"),
        (["%%MatrixMarket matrix coordinate real general", "% c", "5 5"], "line 3 is '5 5'; it must have"),
        (["%%MatrixMarket matrix coordinate real general", "% c"], "it ends in its header"),
        (["%%MatrixMarket matrix coordinate real general", "5 7 0"], "the matrix has 7 columns for words"),
    ],
)
def test_headers_of_matrix_market_that_are_refused(tmp_path, lines, reason):
    source = market_file(tmp_path, lines)
    with pytest.raises(InputError, match=rf"x\.mtx: {reason}"):
        Read(source)
    read = Read(source, "quarantine")
    assert (read.bags, [record.row for record in read.bad]) == ([], [None])


def test_little_is_held_at_once(tmp_path):
    n = 60_000
    lines = [f"{i // 4 + 1} {i % 4 + 1} 1" for i in range(n)]
    source = docword_file(tmp_path, [str(n // 4), "5", str(n), *lines])
    with small_blocks(10_000, 1_000_000):
        read = Read(source)
    assert read.n_batches > 50
    assert read.most < 2500
    matrix = sp.csr_array(np.ones((1000, 5), np.int64))
    source = npz_file(tmp_path, matrix)
    with small_blocks(10_000, 100):
        read = Read(source)
    assert read.most <= 100


def test_one_long_document_is_held_once(tmp_path, monkeypatch):
    """A document over many blocks must not pile up its repeated words."""
    lines = [f"1 {i % 5 + 1} 1" for i in range(5000)]
    source = docword_file(tmp_path, ["1", "5", "5000", *lines])
    sizes = []
    before = number_lines.merge_entries
    monkeypatch.setattr(
        number_lines, "merge_entries", lambda e, n: (sizes.append(len(e.word)), before(e, n))[1]
    )
    with small_blocks(300, 100):
        assert Read(source).bags == [[1000] * 5]
    assert len(sizes) > 20
    assert max(sizes) < 120


def test_files_share_one_vocabulary(tmp_path):
    for name in ("a", "b"):
        write_lines(tmp_path / f"docword.{name}.txt", DOCWORD)
        (tmp_path / f"vocab.{name}.txt").write_text("\n".join(WORDS))
    files = tuple(str(tmp_path / f"docword.{name}.txt") for name in "ab")
    read = Read(DocwordSource(files))
    assert read.bags == TRUTH * 2
    assert [unit.size for unit in read.units] == [(tmp_path / "docword.a.txt").stat().st_size] * 2
    (tmp_path / "vocab.b.txt").write_text("\n".join(("ant", "bee", "cow", "dog", "eel")))
    with pytest.raises(
        InputError, match=r"docword\.b\.txt has other words than .*docword\.a\.txt, from word 2"
    ):
        DocwordSource(files).units()
    (tmp_path / "vocab.b.txt").write_text("\n".join((*WORDS, "fox")))
    with pytest.raises(InputError, match="from word 5"):
        DocwordSource(files).units()
    with pytest.raises(InputError, match="no files"):
        DocwordSource(()).units()


def test_the_word_list_is_found_or_missed(tmp_path):
    path = write_lines(tmp_path / "docword.x.txt", DOCWORD)
    with pytest.raises(InputError, match=r"no word list \(vocab\.x\.txt\); set the option vocabulary"):
        DocwordSource((str(path),)).units()
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "w.txt").write_text("\n".join(WORDS))
    for wanted in ("lists/w.txt", str(tmp_path / "lists" / "w.txt")):
        assert Read(DocwordSource((str(path),), DocwordOptions(vocabulary=wanted))).bags == TRUTH
    with pytest.raises(InputError, match=r"no word list \(w\.txt\)"):
        DocwordSource((str(path),), DocwordOptions(vocabulary="w.txt")).units()
    sp.save_npz(tmp_path / "x.npz", sp.csr_array(np.array(TRUTH)))
    (tmp_path / "x.vocab.txt").write_text("\n".join(WORDS))
    (tmp_path / "vocab.txt").write_text("of another file\n")
    assert Read(NpzSource((str(tmp_path / "x.npz"),))).bags == TRUTH


def test_files_behind_urls_are_read(tmp_path):
    fs = fsspec.filesystem("memory")
    docword_file(tmp_path, DOCWORD, "docword.x.txt.gz")
    npz_file(tmp_path, sp.csr_array(np.array(TRUTH)), compressed=False)
    h5ad_file(tmp_path, sp.csr_matrix(np.array(TRUTH)))
    for path in tmp_path.iterdir():
        fs.pipe_file(f"/counts/{path.name}", path.read_bytes())
    assert Read(DocwordSource(("memory://counts/docword.x.txt.gz",))).bags == TRUTH
    with small_blocks(10, 3):
        assert Read(NpzSource(("memory://counts/x.npz",))).bags == TRUTH
    assert Read(H5adSource(("memory://counts/x.h5ad",))).bags == TRUTH
    fs.rm("/counts", recursive=True)


def test_sources_are_picklable_and_small(tmp_path):
    words = [f"w{i}" for i in range(5000)]
    matrix = sp.csr_matrix((3, 5000), dtype=np.int64)
    sources = [
        docword_file(tmp_path, ["3", "5000", "0"], words=words),
        npz_file(tmp_path, matrix, words=words),
        h5ad_file(tmp_path, matrix, words),
        MatrixMarketSource((str(tmp_path / "x.mtx"),), MatrixMarketOptions(documents="columns")),
    ]
    for source, name in zip(sources, ["docword", "npz", "h5ad", "matrix-market"], strict=True):
        assert source.reader == name
        assert len(source.vocabulary) == 5000
        data = pickle.dumps(source)
        assert len(data) < 1000
        again = pickle.loads(data)
        assert again == source
        assert again.vocabulary == source.vocabulary
    assert len(Read(pickle.loads(pickle.dumps(sources[1]))).bags) == 3


def test_units_of_a_matrix_can_be_read_alone(tmp_path):
    dense = np.random.default_rng(2).poisson(1.0, (50, 5))
    with small_blocks(100, 20):
        for source in (
            npz_file(tmp_path, sp.csr_array(dense), compressed=False),
            h5ad_file(tmp_path, sp.csr_matrix(dense)),
            h5ad_file(tmp_path, dense, name="dense.h5ad"),
        ):
            units = source.units()
            assert len(units) > 3
            assert [unit.start for unit in units[1:]] == [unit.stop for unit in units[:-1]]
            for unit in units[::-1]:
                assert Read(source, units=[unit]).bags == dense[unit.start : unit.stop].tolist()
            total = (tmp_path / units[0].path).stat().st_size
            assert abs(sum(unit.size for unit in units) - total) <= len(units)
            assert source.place(units[1], 2).endswith(f"row {units[1].start + 2} from 0")


def bad_matrices():
    """A matrix of four rows, the third one bad, and the reason."""
    indptr, ints = np.array([0, 2, 3, 5, 6]), np.array([1, 2, 3, 4, 5, 6])
    words = np.array([4, 0, 1, 2, 3, 0])
    for at, word, count, reason in (
        (3, 2, -4, r"count -4\S* is not in"),
        (3, 2, np.nan, "count nan is not in"),
        (4, 3, np.inf, "count inf is not in"),
        (4, 3, 3e9, r"count 3000000000\S* is not in"),
        (3, 5, 4, r"word 5 \(from 0\) is not in the vocabulary of 5 words"),
        (3, -1, 4, r"word -1 \(from 0\) is not in"),
    ):
        values, columns = ints.astype(np.float64), words.copy()
        values[at], columns[at] = count, word
        if np.isfinite(count):
            values = values.astype(np.int64)
        matrix = sp.csr_array((4, 5), dtype=values.dtype)
        matrix.data, matrix.indices, matrix.indptr = values, columns, indptr
        yield pytest.param(matrix, reason, id=f"{word}:{count}")


ROWS_KEPT = [[2, 0, 0, 0, 1], [0, 3, 0, 0, 0], [6, 0, 0, 0, 0]]


@pytest.mark.parametrize(("matrix", "reason"), list(bad_matrices()))
def test_a_bad_row_is_named_or_put_aside(tmp_path, matrix, reason):
    sources = [npz_file(tmp_path, matrix)]
    if matrix.indices.min() >= 0 and matrix.indices.max() < 5:
        sources.append(h5ad_file(tmp_path, sp.csr_matrix(matrix), obs={"n": [1, 2, 3, 4]}, metadata=("n",)))
        sources.append(h5ad_file(tmp_path, matrix.toarray(), name="dense.h5ad"))
    for source in sources:
        for values in (3, 1000):
            with small_blocks(100, values):
                with pytest.raises(InputError, match=rf"{source.files[0]}, row 2 from 0: {reason}") as caught:
                    Read(source)
                read = Read(source, "quarantine")
            assert len(str(caught.value).splitlines()) == 1
            assert read.bags == ROWS_KEPT
            assert read.rows == [0, 1, 3]
            assert len(read.bad) == 1
            assert read.ids in ([], ["c0", "c1", "c3"])
            assert read.metadata.get("n", [1, 2, 4]) == [1, 2, 4]
    assert Read(sources[0], "quarantine").bad[0].record.count(b":") == 2


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.uint64, np.float16, np.float64, bool])
def test_all_types_of_numbers_are_read(tmp_path, kind):
    dense = (np.array(TRUTH) > 0).astype(kind)
    real = np.dtype(kind).kind == "f"
    expected = {np.dtype(np.float32 if real else np.int32)}
    source = npz_file(tmp_path, sp.csr_array(dense.astype(np.float64)))
    rewrite(source.files[0], data=dense[dense > 0])
    read = Read(source)
    assert read.bags == dense.tolist()
    assert read.dtypes == expected


def test_zeros_that_are_stored_are_dropped(tmp_path):
    matrix = sp.csr_array((np.array([1, 0, 2, 0]), np.array([3, 1, 3, 0]), np.array([0, 3, 4])), shape=(2, 5))
    source = npz_file(tmp_path, matrix)
    assert zipfile.ZipFile(source.files[0]).read("data.npy").endswith(np.array([1, 0, 2, 0]).tobytes())
    assert Read(source).bags == [[0, 0, 0, 3, 0], [0] * 5]


@pytest.mark.parametrize("kind", ["csc", "coo", "bsr"])
def test_matrices_that_are_not_in_rows_are_refused(tmp_path, kind):
    source = npz_file(tmp_path, sp.coo_matrix(np.array(TRUTH)).asformat(kind))
    for policy in ("fail", "quarantine"):
        with pytest.raises(InputError, match=rf"x\.npz holds a matrix in {kind} format.*tocsr"):
            Read(source, policy)


def rewrite(path, compression=zipfile.ZIP_DEFLATED, **arrays):
    """Replace arrays of an .npz file."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for name, array in arrays.items():
        stream = io.BytesIO()
        np.lib.format.write_array(stream, array, allow_pickle=True)
        members[f"{name}.npy"] = stream.getvalue()
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def test_python_objects_are_not_read(tmp_path):
    source = npz_file(tmp_path, sp.csr_array(np.array(TRUTH)))
    rewrite(source.files[0], data=np.array([1, 2, 3, 4, 5], object))
    with pytest.raises(InputError, match="has 'data' of type object; write the matrix with numbers"):
        Read(source)
    rewrite(source.files[0], data=np.arange(5) * 1j)
    with pytest.raises(InputError, match="has 'data' of type complex128"):
        Read(source)
    rewrite(source.files[0], format=np.array("csr", object))
    with pytest.raises(InputError, match="Object arrays cannot be loaded"):
        Read(source)


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize(
    "arrays",
    [{"indptr": [0, 3, 2, 5]}, {"indptr": [0, 3, 3, 6]}, {"indptr": [0, 3, 5]}, {"indptr": [-1, 3, 3, 5]},
     {"indptr": [0, 3, 3, 4]}, {"indices": [1, 2, 3]}, {"shape": [2, 5]}, {"shape": [3]}, {"shape": [2, 2, 2]}],
)  # fmt: skip
def test_arrays_that_do_not_fit_together_are_refused(tmp_path, arrays, compression):
    source = npz_file(tmp_path, sp.csr_array(np.array(TRUTH)))
    rewrite(source.files[0], compression, **{name: np.array(values) for name, values in arrays.items()})
    with pytest.raises(InputError, match=r"x\.npz: .*write"):
        Read(source)
    assert [record.row for record in Read(source, "quarantine").bad] == [None]


def test_another_number_of_columns_is_refused(tmp_path):
    source = npz_file(tmp_path, sp.csr_array(np.array(TRUTH)), words=WORDS[:4])
    with pytest.raises(
        InputError, match=r"x\.npz: the matrix has 5 columns, the word list .*vocab\.txt 4 words"
    ):
        Read(source)


def test_damaged_matrices_are_one_line(tmp_path):
    dense = np.random.default_rng(3).poisson(1.0, (400, 5))
    for source, what in (
        (npz_file(tmp_path, sp.csr_array(dense)), "a matrix of scipy.*cut or damaged"),
        (h5ad_file(tmp_path, sp.csr_matrix(dense)), "HDF5.*truncated"),
    ):
        assert Read(source).bags == dense.tolist()
        data = (tmp_path / source.files[0]).read_bytes()
        (tmp_path / source.files[0]).write_bytes(data[: len(data) // 2])
        again = type(source)(source.files)
        with pytest.raises(InputError, match=rf"{source.files[0]}: it cannot be read as {what}") as caught:
            Read(again)
        assert len(str(caught.value).splitlines()) == 1
        unit = Unit(source.files[0])
        bad = BadRecords("quarantine", unit, source.place)
        assert list(again.read(unit, bad)) == []
        assert [record.row for record in bad.records] == [None]


def test_a_wrong_checksum_in_an_npz_is_found(tmp_path):
    source = npz_file(tmp_path, sp.csr_array(np.arange(1, 2001).reshape(400, 5)), compressed=False)
    path = tmp_path / "x.npz"
    data = path.read_bytes()
    at = data.index(np.arange(1000, 1010).tobytes())
    path.write_bytes(data[:at] + b"\x07" + data[at + 1 :])
    with pytest.raises(InputError, match=r"it cannot be read as a matrix.*CRC"):
        Read(source)


def test_any_damage_is_an_error_of_ours(tmp_path):
    """Bytes changed at random: wrong numbers may pass, other exceptions may not."""
    rng = np.random.default_rng(4)
    dense = rng.poisson(1.0, (60, 5))
    docword_file(tmp_path, ["3", "5", "5"])
    sources = [
        npz_file(tmp_path, sp.csr_array(dense), compressed=bool(i), name=f"{i}.npz") for i in range(2)
    ] + [docword_file(tmp_path, DOCWORD, name) for name in ("docword.x.txt", "docword.x.txt.gz")]
    for source in sources:
        path = tmp_path / source.files[0]
        data = bytearray(path.read_bytes())
        for _ in range(60):
            broken = data.copy()
            for at in rng.integers(0, len(data), 3):
                broken[at] = rng.integers(256)
            path.write_bytes(broken)
            for policy in ("fail", "quarantine"):
                with contextlib.suppress(StreamingJSMFError):
                    Read(type(source)(source.files), policy)


@pytest.mark.slow
def test_layers_and_columns_of_h5ad(tmp_path):
    counts = np.array(TRUTH)
    obs = {
        "name": ["u", "v", "w"],
        "level": pd.Categorical([2, 1, 2]),
        "kept": [True, False, True],
        "batch": pd.array([1, None, 3], dtype="Int64"),
        "score": [0.5, 1.5, 2.5],
    }
    layers = {
        "raw": sp.csr_matrix(counts),
        "byGene": sp.csc_matrix(counts),
        "dense": counts.astype(np.float32),
    }
    normal = sp.csr_matrix(counts / 8.0)

    def source(**options):
        return h5ad_file(tmp_path, normal, layers=layers, obs=obs, **options)

    read = Read(source())
    assert read.bags == (counts / 8).tolist()
    assert read.dtypes == {np.dtype(np.float32)}
    read = Read(source(layer="raw", metadata=tuple(obs)))
    assert read.bags == TRUTH
    assert read.metadata == {
        "name": ["u", "v", "w"],
        "level": ["2", "1", "2"],
        "kept": [True, False, True],
        "batch": [1, None, 3],
        "score": [0.5, 1.5, 2.5],
    }
    assert Read(source(layer="dense")).bags == TRUTH
    with pytest.raises(InputError, match=r"layers/byGene as csc_matrix.*adata\.layers\['byGene'\].*tocsr"):
        source(layer="byGene").units()
    with pytest.raises(InputError, match=r"no layers/x; set the option layer .*byGene, dense, raw"):
        source(layer="x").units()
    with pytest.raises(InputError, match="no column 'age' in obs"):
        source(metadata=("age",)).units()
    with pytest.raises(InputError, match=r"has X as csc_matrix.*adata\.X = adata\.X\.tocsr"):
        h5ad_file(tmp_path, sp.csc_matrix(counts)).units()


def test_gene_names_must_be_distinct_and_shared(tmp_path):
    with pytest.warns(UserWarning, match="not unique"):
        source = h5ad_file(tmp_path, sp.csr_matrix(np.array(TRUTH)), ("ant", "bee", "ant", "dog", "eel"))
    with pytest.raises(InputError, match=r"the gene 'ant' 2 times; call adata\.var_names_make_unique"):
        source.units()
    one = h5ad_file(tmp_path, np.array(TRUTH), name="1.h5ad").files
    two = h5ad_file(tmp_path, np.array(TRUTH), WORDS[::-1], name="2.h5ad").files
    with pytest.raises(InputError, match=r"2\.h5ad has other words than .*1\.h5ad, from word 0"):
        H5adSource(one + two).units()


def test_h5ad_that_is_no_anndata_is_refused(tmp_path):
    with h5py.File(tmp_path / "x.h5ad", "w") as file:
        file["X"] = np.array(TRUTH)
    with pytest.raises(InputError, match="has no table obs"):
        H5adSource((str(tmp_path / "x.h5ad"),)).units()


def test_without_anndata_the_message_says_what_to_install(tmp_path, monkeypatch):
    source = h5ad_file(tmp_path, np.array(TRUTH))
    monkeypatch.setitem(sys.modules, "anndata.io", None)
    with pytest.raises(InputError, match=r"needs anndata; pip install 'streaming-jsmf\[anndata\]'"):
        source.units()


def test_the_quick_and_the_exact_parser_agree(monkeypatch, tmp_path):
    """Each line that one accepts the other must read as the same numbers."""
    lines = [*DOCWORD[:3], "01 1 2", "1 3 1", "1 5 4", "3 2 1", "3 4 7"]
    quick = Read(docword_file(tmp_path, lines))
    monkeypatch.setattr(EntryParser, "_parse_block", lambda _self, _data: None)
    assert Read(docword_file(tmp_path, lines)).bags == quick.bags == TRUTH


def test_options_are_strict():
    for model in (DocwordOptions, MatrixMarketOptions, NpzOptions, H5adOptions):
        with pytest.raises(ValueError, match="extra"):
            model(nothing=1)
    with pytest.raises(ValueError, match="rows"):
        MatrixMarketOptions(documents="both")
