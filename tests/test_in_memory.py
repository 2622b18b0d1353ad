"""Objects in memory: texts and tables as sources, and results for other libraries."""

from __future__ import annotations

import datetime
import decimal
import json
import logging
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.dataframe
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from scipy.sparse import coo_matrix, csr_array, csr_matrix

import streaming_jsmf as sj
from streaming_jsmf.config import IngestRequest
from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.documents import interop
from tests.cases import first_cases
from tests.corpora import planted, words
from tests.processes import command, finished

SYLLABLES = ("mo", "sta", "ga", "ri", "pla", "nor", "de", "lu")
SPELLED = np.array([a + b + "n" for a in SYLLABLES for b in SYLLABLES])
GENERATOR = np.random.default_rng(0)
TEXTS = [" ".join(GENERATOR.choice(SPELLED[number % 8 :: 8], 20)) for number in range(150)]


class Rows:
    """Like a Hugging Face data set: rows as mappings, again and again."""

    def __iter__(self) -> Any:
        return ({"text": text} for text in TEXTS)


def _polars() -> Any:
    return pytest.importorskip("polars").DataFrame({"text": TEXTS, "year": 1990})


def _views() -> pa.Table:
    """Views of strings, as newer releases of polars export them, whose rows Arrow cannot select."""
    view = pa.string_view()
    words = pa.array(["x", None] * (len(TEXTS) // 2), view)
    columns = {
        "text": pa.array(TEXTS, view),
        "a": words,
        "b": pa.array([[word] for word in words], pa.large_list(view)),
        "c": pa.array([{"of": [b"bytes"]}] * len(TEXTS), pa.struct({"of": pa.list_(pa.binary_view())})),
        "d": pa.DictionaryArray.from_arrays(pa.array([0, None] * (len(TEXTS) // 2)), pa.array(["x"], view)),
    }
    return pa.table(columns)


def _hugging_face(streamed: bool) -> Any:
    datasets = pytest.importorskip("datasets")
    image = pytest.importorskip("PIL.Image").new("RGB", (4, 4))
    columns = {"text": TEXTS, "label": [1] * 150, "image": [image] * 150, "tags": [["a"]] * 150}
    made = datasets.Dataset.from_dict(columns).cast_column("image", datasets.Image())
    made = made.cast_column("label", datasets.ClassLabel(names=["no", "yes"]))
    return made.to_iterable_dataset() if streamed else made


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("texts")
    pq.write_table(pa.table({"text": TEXTS}), folder / "a.parquet")
    return sj.ingest(folder / "a.parquet", folder / "corpus")


KINDS: dict[str, Callable[[], Any]] = {
    "list": lambda: TEXTS,
    "generator": lambda: (text for text in TEXTS),
    "series": lambda: pd.Series(TEXTS),
    "pandas": lambda: pd.DataFrame({"text": TEXTS}),
    "arrow": lambda: pa.table({"text": TEXTS}),
    "stream": lambda: pa.table({"text": TEXTS}).to_reader(max_chunksize=40),
    "column": lambda: pa.chunked_array([TEXTS[:40], TEXTS[40:]]),
    "views": _views,
    "array of Arrow": lambda: pa.array(TEXTS),
    "views of texts": lambda: pa.chunked_array([TEXTS], pa.string_view()),
    "dask": lambda: dask.dataframe.from_pandas(pd.DataFrame({"text": TEXTS, "year": 1990}), npartitions=3),
    "dask series": lambda: dask.dataframe.from_pandas(pd.Series(TEXTS), npartitions=3),
    "array": lambda: np.array(TEXTS),
    "missing": lambda: [None, pd.NA, float("nan"), *TEXTS],
    "rows": lambda: [{"text": text} for text in TEXTS],
    "dataset": Rows,
    "polars": _polars,
    "polars series": lambda: _polars()["text"],
    "datasets": lambda: _hugging_face(streamed=False),
    "datasets streamed": lambda: _hugging_face(streamed=True),
    "tokens": lambda: [text.split() for text in TEXTS],
    "tokens of pandas": lambda: pd.DataFrame({"text": [text.split() for text in TEXTS], "year": 1990}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_any_kind_of_texts_gives_the_same_corpus(kind: str, expected: Any, tmp_path: Path) -> None:
    made = sj.ingest(KINDS[kind](), tmp_path / "corpus")
    assert made.vocabulary().words == expected.vocabulary().words
    assert (made.n_documents, made.nonzeros) == (expected.n_documents, expected.nonzeros) != (0, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["corpus"], "nothing temporary is left"


def test_options_name_the_columns(expected: Any, tmp_path: Path) -> None:
    table = pd.DataFrame({"body": TEXTS, "year": 1990})
    made = sj.ingest(table, tmp_path / "c", IngestRequest(options={"text": "body", "metadata": "year"}))
    assert made.vocabulary().words == expected.vocabulary().words
    assert "year" in pq.read_schema(next((tmp_path / "c").rglob("part-*.parquet"))).names


@pytest.mark.parametrize(
    ("columns", "kept"),
    [
        ([], "document_id"),
        (["index"], "document_id"),
        (["id"], "index"),
        (["ID"], "index"),
        (["id", "index"], "__index_level_0__"),
        (["odd"], "document_id"),
        ("series", "document_id"),
    ],
)
def test_the_index_has_the_ids(columns: Any, kept: str, tmp_path: Path) -> None:
    table = pd.DataFrame({"text": TEXTS}, index=range(9, 9 + 2 * len(TEXTS), 2))
    for name in columns if columns != "series" else ():
        table[name] = range(len(TEXTS)) if name != "odd" else 1j
    table = table[1:]
    if columns != ["index"]:  # the numbers of other rows than the first are ids, too
        table = table.set_index(table.index.to_numpy())
    made = sj.ingest(table["text"] if columns == "series" else table, tmp_path / "c")
    read = pq.read_table(next((tmp_path / "c").rglob("part-*.parquet")))
    assert made.n_documents == len(read) == len(TEXTS) - 1
    assert read.column(kept)[0].as_py() == 11
    assert ("__index_level_0__" in read.column_names) == (kept == "__index_level_0__")


REFUSED: dict[str, tuple[Any, str]] = {
    "empty": ([], "the source is empty"),
    "no columns": (pd.DataFrame(), "the source is empty"),
    "mixed": (["a text", 3], "int, str; give texts, lists of tokens, or mappings"),
    "numbers": ([[1, 2]], "rows of type list; give texts"),
    "columns of a name": (
        pd.DataFrame([["a", "b"]], columns=["text", "text"]),
        "several columns text; rename",
    ),
    "of Arrow": (pa.Table.from_arrays([["x"], ["y"]], ["text", "text"]), "several columns text; rename"),
    "large ids": (
        pd.DataFrame({"text": TEXTS, "id": np.arange(150, dtype=np.uint64) + np.uint64(2**63)}),
        "id is above 9223372036854775807",
    ),
    "number": (17, "of type int; give a path, texts, rows or a table"),
    "mapping": ({"text": TEXTS}, "of type dict"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_unusable_sources_are_refused_in_one_line(kind: str, tmp_path: Path) -> None:
    source, line = REFUSED[kind]
    with pytest.raises(sj.InputError, match=line):
        sj.ingest(source, tmp_path / "c", id="id" if kind == "large ids" else None)
    assert not [*tmp_path.iterdir()]


INTERVAL, EPOCH = pa.month_day_nano_interval(), datetime.datetime(1970, 1, 1)
BROKEN = pa.array([b"x\xed\xb3\xbf\xff"] * 150, pa.binary()).view(pa.string())
REPLACED, AS_JSON = (
    "bytes that are not UTF-8 are replaced by U\\+FFFD",
    "m: lists and objects are kept as JSON",
)

#: Metadata, what is stored of their first value (None: no column), and what is said.
METADATA: dict[str, tuple[Any, Any, str]] = {
    "surrogates": (["x\udcff"] * 150, "x\ufffd", f"m: {REPLACED}"),
    "keys": ([{"k\ud800": 1}] * 150, '{"k\ufffd": 1}', f"m: {REPLACED}"),
    "bytes as strings": (BROKEN, "x\ufffd\ufffd", f"m: {REPLACED}"),
    "broken lists": ([["x\udcff", None], None] * 75, '["x\ufffd", null]', f"m: {REPLACED}"),
    "lists": ([["a", "b"]] * 150, '["a", "b"]', AS_JSON),
    "numbers": ([[1, 2]] * 150, "[1, 2]", ""),
    "objects": (pa.array([{"a": 1}] * 150), '{"a": 1}', AS_JSON),
    "no fields": (pa.array([{}] * 150, pa.struct([])), "{}", AS_JSON),
    "mappings": (pa.array([[("a", 1)]] * 150, pa.map_(pa.string(), pa.int64())), '{"a": 1}', AS_JSON),
    "pairs": (
        pa.array([[(b"a", 1)]] * 150, pa.map_(pa.binary(), pa.int64())),
        None,
        "m: .*images and other bytes",
    ),
    "images": ([{"bytes": b"\xff", "path": "a.png"}] * 150, None, "m: .*cannot hold images and other bytes"),
    "images of Arrow": (
        pa.array([{"bytes": b"\xff"}] * 150),
        None,
        "m: .*cannot hold images and other bytes",
    ),
    "bytes": (pa.array([b"a", b"\xff"] * 75), "a", "m: .*cannot hold images and other bytes"),
    "texts": (pa.array([b"a"] * 150, pa.large_binary()), "a", ""),
    "digests": (pa.array([b"ab"] * 150, pa.binary(2)), None, "m: .*cannot hold images and other bytes"),
    "intervals": (pa.array([(1, 2, 3)] * 150, INTERVAL), None, "m: .*cannot hold month_day_nano_interval"),
    "decimals": (pa.array([decimal.Decimal("3.30")] * 150), 3.3, ""),
    "durations": ([datetime.timedelta(minutes=1)] * 150, 60.0, ""),
    "times of day": ([datetime.time(1, 2)] * 150, "01:02:00", ""),
    "ns": (pa.array([1] * 150, pa.timestamp("ns")), EPOCH, ""),
    "zone": (
        pa.array([0] * 150, pa.timestamp("s", "Asia/Tokyo")),
        datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC),
        "",
    ),
    "late": (pa.array([0, 10**17] * 75, pa.timestamp("s")), EPOCH, "m: dates before year 1"),
    "coded": (pa.array(["a"] * 150).dictionary_encode(), "a", ""),
    "runs": (pc.run_end_encode(pa.array([7] * 150)), 7, ""),
    "uuid": (pa.array([b"a" * 16] * 150, pa.uuid()), "61616161-6161-6161-6161-616161616161", ""),
    "periods of pandas": (
        pa.array(pd.period_range("1600-02", periods=150, freq="M")),
        datetime.datetime(1600, 2, 1),
        "",
    ),
    "intervals of pandas": (pa.array(pd.interval_range(0, 150)), "(0, 1]", ""),
    "bins of pandas": (pa.array(pd.cut(range(150), [-1, 200])), "(-1, 200]", ""),
    "halves": (pa.array(np.full(150, 1.5, np.float16)), 1.5, ""),
    "nulls": (pa.nulls(150), None, ""),
}


@pytest.mark.parametrize("kind", METADATA)
def test_metadata_never_stop_texts(
    kind: str, expected: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """From a table if Arrow holds them, else from a generator of rows; and from a file of Parquet if that has them."""
    values, stored, line = METADATA[kind]
    source: Any = ({"text": text, "m": value} for text, value in zip(TEXTS, values, strict=True))
    if isinstance(values, pa.Array):
        source = pa.table({"text": TEXTS, "m": values})
    with caplog.at_level(logging.INFO):
        made = sj.ingest(source, tmp_path / "c")
    assert made.vocabulary().words == expected.vocabulary().words
    found = pq.read_table(made.shard_path(made.shards[0]))
    assert (found.column("m")[0].as_py() if "m" in found.column_names else None) == stored
    said = [text for text in caplog.messages if text.startswith("m: ") and "values read as" not in text]
    assert len(said) == bool(line)
    assert re.match(line, "".join(said))


#: Without pandas, which is for its own objects and the tables of results.
WITHOUT_PANDAS = """
import sys

class Without:
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] == "pandas":
            raise ImportError(name)

sys.meta_path.insert(0, Without())
import streaming_jsmf as sj

model = sj.fit(sj.ingest({source!r}, {corpus!r}, min_df=1, max_df=1.0), {model!r}, n_topics=2)
assert model.n_topics == 2
"""


@pytest.mark.slow
def test_texts_are_ingested_and_fitted_without_pandas(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,when\n" + "".join(f"{text},2020-01-01\n" for text in TEXTS))
    places = {name: str(tmp_path / name) for name in ("corpus", "model")}
    finished([sys.executable, "-c", WITHOUT_PANDAS.format(source=str(tmp_path / "a.csv"), **places)])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.parquet", pytest.param("b.arrow", marks=pytest.mark.slow)])
def test_files_with_periods_of_pandas_are_read_by_a_process_that_has_not_imported_it(
    name: str, tmp_path: Path
) -> None:
    table = pa.table({"text": TEXTS, "m": METADATA["periods of pandas"][0]})
    pq.write_table(table, tmp_path / "a.parquet")
    pa.feather.write_feather(table, str(tmp_path / "b.arrow"))
    finished(command("ingest", tmp_path / name, tmp_path / "c"))
    made = open_corpus(tmp_path / "c")
    found = pq.read_table(made.shard_path(made.shards[0])).column("m")
    assert found[0].as_py() == datetime.datetime(1600, 2, 1)


def test_lone_surrogates_of_texts_and_names_are_replaced(tmp_path: Path) -> None:
    rows = [{"text": f"{text} br\udce9d", "n\ud800": 1} for text in TEXTS]
    texts = [row["text"] for row in rows]
    (tmp_path / "a.json").write_text(json.dumps(rows), encoding="utf-8")
    # pandas 3 refuses such texts and names unless they are objects.
    names = pd.Index([*rows[0]], dtype=object)
    table = pd.DataFrame([[*row.values()] for row in rows], columns=names, dtype=object)
    for source in (rows, table, texts, tmp_path / "a.json"):
        made = sj.ingest(source, tmp_path / "c", min_df=1, overwrite=True, max_df=1.0)
        assert {"br", "d"} >= {*made.vocabulary().words} - {*SPELLED.tolist()}
        found = pq.read_table(made.shard_path(made.shards[0]))
        assert "br\ufffdd" in found.column("excerpt")[0].as_py()
        assert ("n\ufffd" in found.column_names) == (source is not texts)


def test_cells(tmp_path: Path) -> None:
    """As the reader "h5ad" takes them from a file."""
    anndata = pytest.importorskip("anndata")
    obs = pd.DataFrame({"mixed": [1, "x", None] * 5}, [f"c{i}" for i in range(15)])
    genes = pd.DataFrame({"odd": [{}] * 3}, index=["a", "b", "c"])
    cells = anndata.AnnData(np.arange(9.0, 54.0).reshape(15, 3), obs, genes, uns={"odd": object()})
    for source in (cells, cells[1:]):
        made = sj.ingest(source, tmp_path / "c", overwrite=True, metadata="mixed", preset="papers")
        found = pq.read_table(made.shard_path(made.shards[0]))
        assert made.vocabulary().words == ("a", "b", "c")
        assert found.column("document_id").to_pylist() == source.obs_names.tolist()
        assert found.column("mixed").to_pylist()[-3:] == ["1", "x", None]


@pytest.mark.parametrize(
    ("values", "stored"),
    [
        (np.arange(150) * 1j, [f"{i}j" for i in range(150)]),
        ([2**70 + i for i in range(150)], [str(2**70 + i) for i in range(150)]),
        ([-(2**63) - 1, 1] * 75, [str(-(2**63) - 1), "1"] * 75),
        (np.arange(150, dtype=np.uint64) + np.uint64(2**63), [2**63 + i for i in range(150)]),
    ],
    ids=["complex", "large", "small", "uint64"],
)
@pytest.mark.parametrize("kind", ["frame", "rows", "dask"])
def test_numbers_that_are_no_column_of_arrow_are_strings(
    kind: str, values: Any, stored: list[Any], tmp_path: Path
) -> None:
    frame = pd.DataFrame({"text": TEXTS, "n": values})
    source: Any = frame if kind == "frame" else frame.to_dict("records")
    if kind == "dask":
        source = dask.dataframe.from_pandas(frame, npartitions=2)
    sj.ingest(source, tmp_path / "c", id=None, min_df=1)
    found = pq.read_table(next((tmp_path / "c").rglob("part-*.parquet"))).column("n").to_pylist()
    assert [str(value) for value in found] == [str(value) for value in stored]


def test_words_and_counts_of_no_text_are_refused(tmp_path: Path) -> None:
    matrix, words = np.ones((3, 2)), ["ant", "x\udcff"]
    line = r"a word is 'x\\udcff', where .* UTF-8"
    with pytest.raises(sj.InputError, match=line):
        sj.corpus_from_matrix(matrix, words, tmp_path / "c")
    with pytest.raises(sj.InputError, match=line):
        sj.corpus_from_gensim([[(0, 1)]], dict(enumerate(words)), tmp_path / "c")
    with pytest.raises(sj.InputError, match=line):
        sj.LRJSMF(n_topics=2, max_topics=2).fit(pd.DataFrame(matrix, columns=pd.Index(words, dtype=object)))
    with pytest.raises(sj.InputError, match=r"vocabulary is .* UTF-8"):
        sj.ingest(TEXTS, tmp_path / "c", vocabulary=words)
    with pytest.raises(sj.InputError, match=r"phrases is .* UTF-8"):
        sj.ingest(TEXTS, tmp_path / "c", phrases=["ant x\udcff"])
    with pytest.raises(sj.InputError, match="non-finite count, or a complex"):
        sj.corpus_from_matrix(matrix * 1j, ["a", "b"], tmp_path / "c")
    assert not [*tmp_path.iterdir()]


def test_an_interrupted_run_starts_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file would be there again; what was in memory is written to another one."""
    commits = []

    def interrupted(*_: Any, **__: Any) -> Any:
        commits.append((tmp_path / "m.corpus.partial").exists())
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("streaming_jsmf.ingestion.steps.write_shards", interrupted)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                sj.fit(TEXTS, tmp_path / "m", 3, polish=False)
    assert commits == [True, True]
    assert [*tmp_path.iterdir()] == []
    assert sj.fit(TEXTS, tmp_path / "m", 3, polish=False).n_topics == 3


def test_a_lazy_table_is_refused(tmp_path: Path) -> None:
    lazy = _polars().lazy()
    with pytest.raises(
        sj.InputError, match=r"type LazyFrame; .* a table with a column of text, collected if it is lazy"
    ):
        sj.ingest(lazy, tmp_path / "c")


def test_a_list_of_paths_causes_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming_jsmf.ingestion.in_memory.BATCH", 2)
    paths = [str(tmp_path / f"{number}.txt") for number in range(3)]
    for path in paths:
        Path(path).write_text("ant bee cat")
    few: dict[str, Any] = {"preset": "papers", "min_tokens": 1, "min_distinct_words": 1}
    with pytest.warns(UserWarning, match=r"every text is the path of an existing file.*give their folder"):
        sj.ingest(paths, tmp_path / "corpus", **few)
    # Also what is too long for a path, or could be none. Warnings are errors in these tests.
    others = ["ants and bees", "x" * 5000, "x/" * 5000, "a\0b", ""]
    assert (
        sj.ingest(
            [*others, *paths], tmp_path / "others", **few | {"min_tokens": 0, "min_distinct_words": 0}
        ).n_documents
        == 8
    )


# -- Corpora and models of other libraries in and out, with the libraries themselves where they are installed --


K, N = 3, 40
#: With a document of no words and a word of no document.
COUNTS = np.vstack([planted(200, N - 1, K, length=50, seed=2).counts, np.zeros((1, N - 1), np.int64)])
COUNTS = np.hstack([COUNTS, np.zeros((201, 1), np.int64)])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("interop")
    corpus = sj.corpus_from_matrix(COUNTS, words(N), folder / "corpus")
    return sj.fit(corpus, folder / "model", K, polish=False)


@pytest.mark.parametrize("kind", [np.array, csr_array, coo_matrix, lambda X: csr_matrix(X.astype(np.uint8))])
def test_a_matrix_and_its_words_go_there_and_back(kind: Any, tmp_path: Path) -> None:
    made = sj.corpus_from_matrix(kind(COUNTS), words(N), tmp_path / "c")
    matrix, names = sj.corpus_to_matrix(tmp_path / "c")
    assert names == words(N)
    assert made.n_documents == 201
    np.testing.assert_array_equal(matrix.toarray(), COUNTS)


@pytest.mark.parametrize(
    ("matrix", "names", "line"),
    [
        (COUNTS, words(N - 1), "39 words and the matrix has 40 columns"),
        (-COUNTS, words(N), "negative or non-finite"),
        (COUNTS * np.nan, words(N), "negative or non-finite"),
        (COUNTS, ["w"] * N, "have 'w' 40 times"),
        (
            COUNTS,
            {word: i for i, word in enumerate(reversed(words(N)))},
            "words is of type dict; .* in the order",
        ),
        (COUNTS, {*words(N)}, "words is of type set"),
    ],
)
def test_a_matrix_that_is_none_is_refused(matrix: Any, names: list[str], line: str, tmp_path: Path) -> None:
    with pytest.raises(sj.InputError, match=line):
        sj.corpus_from_matrix(matrix, names, tmp_path / "c")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("dtype", first_cases([np.int8, np.uint8, np.bool_]))
def test_sums_of_repeated_entries_are_exact(dtype: Any, tmp_path: Path) -> None:
    whole = coo_matrix(COUNTS * 300)
    places = [np.repeat(index, whole.data) for index in (whole.row, whole.col)]
    repeated = coo_matrix((np.ones(whole.data.sum(), dtype), places), shape=COUNTS.shape)
    sj.corpus_from_matrix(repeated, words(N), tmp_path / "c")
    np.testing.assert_array_equal(sj.corpus_to_matrix(tmp_path / "c")[0].toarray(), COUNTS * 300)
    topics = [sj.LRJSMF(K).fit(X).components_ for X in (repeated, COUNTS * 300)]
    np.testing.assert_array_equal(*topics)


def bags() -> list[list[tuple[int, int]]]:
    return [[(int(word) * 3, int(row[word])) for word in np.flatnonzero(row)] for row in COUNTS]


def test_bags_of_gensim_are_read_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids need not follow each other; a generator is enough."""
    monkeypatch.setattr(interop, "BATCH", 7)
    dictionary = {3 * place: word for place, word in reversed([*enumerate(words(N))])}
    sj.corpus_from_gensim(iter(bags()), dictionary, tmp_path / "c")
    matrix, names = sj.corpus_to_matrix(tmp_path / "c")
    assert names == words(N)
    np.testing.assert_array_equal(matrix.toarray(), COUNTS)
    for document, bad in ((12, [(1, 1)]), (0, [(999, 1)]), (200, [(0, -1)])):
        wrong = bags()
        wrong[document] = bad
        with pytest.raises(sj.InputError, match=rf"document {document}, from 0, has \({bad[0][0]}, "):
            sj.corpus_from_gensim(wrong, dictionary, tmp_path / "d")
    with pytest.raises(sj.InputError, match="exists already"):
        sj.corpus_from_gensim(bags()[1:], dictionary, tmp_path / "c")


def test_topics_are_given_by_the_ids_of_a_dictionary(model: Any) -> None:
    dictionary = {0: "strange", 2: words(N)[5], 3: words(N)[1]}
    topics = sj.model_to_gensim(model, dictionary)
    expected = np.zeros((K, 4))
    expected[:, 2] = model.dataset["word_topic"].values[5]
    expected[:, 3] = model.dataset["word_topic"].values[1]
    np.testing.assert_array_equal(topics.get_topics(), expected)
    assert topics.num_topics == K
    with pytest.raises(sj.InputError, match="none of the model's words"):
        sj.model_to_gensim(model, {0: "strange"})


def test_gensim_reads_what_is_made_for_it(model: Any, tmp_path: Path) -> None:
    gensim = pytest.importorskip("gensim", reason="gensim is not installed")
    from gensim.models import CoherenceModel

    texts = [[word for word, n in zip(words(N), row, strict=True) for _ in range(n)] for row in COUNTS[:200]]
    dictionary = gensim.corpora.Dictionary(texts)
    bags = [dictionary.doc2bow(text) for text in texts]
    topics = sj.model_to_gensim(model, dictionary)
    assert topics.get_topics().shape == (K, len(dictionary))
    found = CoherenceModel(model=topics, corpus=bags, dictionary=dictionary, coherence="u_mass", topn=5)
    assert -5 < found.get_coherence() <= 0
    shown = [{dictionary[number] for number in topic} for topic in found.topics]
    for topic, listed in zip(shown, model.topics(5).sort_values("topic")["words"], strict=True):
        assert topic == {word for word, _ in listed}
    made = sj.corpus_from_gensim(bags, dictionary, tmp_path / "c")
    matrix, names = sj.corpus_to_matrix(made)
    assert set(names) == {word for word, used in zip(words(N), COUNTS.any(axis=0), strict=True) if used}
    np.testing.assert_array_equal(matrix.toarray(), COUNTS[:200, [words(N).index(word) for word in names]])


def test_pyldavis_takes_its_arguments(model: Any, tmp_path: Path) -> None:
    shares = sj.transform(model, model.corpus, tmp_path / "shares.parquet")
    found = sj.model_to_pyldavis(model, model.corpus)
    np.testing.assert_array_equal(found["doc_lengths"], COUNTS.sum(axis=1))
    np.testing.assert_array_equal(found["term_frequency"], COUNTS.sum(axis=0))
    np.testing.assert_allclose(found["doc_topic_dists"].sum(axis=1), 1, atol=1e-12)
    np.testing.assert_allclose(found["topic_term_dists"].sum(axis=1), 1, atol=1e-12)
    assert found["doc_topic_dists"].shape == (201, K)
    again = sj.model_to_pyldavis(model, model.corpus, shares)
    np.testing.assert_array_equal(again["doc_topic_dists"], found["doc_topic_dists"])
    other = sj.corpus_from_matrix(COUNTS[:50], words(N), tmp_path / "other")
    with pytest.raises(sj.InputError, match="not shares of the corpus"):
        sj.model_to_pyldavis(model, other, shares)


@pytest.mark.parametrize("word", [None, float("nan"), pd.NA, pd.NaT, np.ma.masked, b"bytes", True, ("a",)])
def test_what_is_not_a_word_is_refused(word: Any, tmp_path: Path) -> None:
    given = [*words(N - 1), word]
    bags = [[(0, 1), (1, 2)]] * 3
    calls: dict[str, Callable[[], Any]] = {
        "words": lambda: sj.corpus_from_matrix(COUNTS, given, tmp_path / "matrix"),
        "the dictionary": lambda: sj.corpus_from_gensim(bags, dict(enumerate(given)), tmp_path / "gensim"),
        "feature_names": lambda: sj.LRJSMF(K, feature_names=given).fit(COUNTS),
    }
    if not isinstance(word, tuple):  # lists of stop words may be nested
        calls["stop_words"] = lambda: sj.ingest(TEXTS, tmp_path / "texts", stop_words=["auto", word])
    for name, call in calls.items():
        with pytest.raises(
            sj.InputError, match=rf"^{name} has .* \(\w+\), which is not a word; give words as text$"
        ):
            call()
    assert [*tmp_path.iterdir()] == []


def test_numbers_of_items_are_words(tmp_path: Path) -> None:
    corpus = sj.corpus_from_matrix(COUNTS, np.arange(N), tmp_path / "matrix")
    assert corpus.vocabulary().words == tuple(map(str, range(N)))


def test_masked_values_are_missing(tmp_path: Path) -> None:
    with pytest.raises(sj.InputError, match=r"has masked values; replace them, such as by X.filled\(0\)"):
        sj.corpus_from_matrix(np.ma.masked_greater(COUNTS, 2), words(N), tmp_path / "matrix")
    found = sj.corpus_from_matrix(np.ma.masked_array(COUNTS), words(N), tmp_path / "matrix")
    assert found.nonzeros == np.count_nonzero(COUNTS)
    first = np.arange(len(TEXTS)) == 0
    texts = sj.ingest(np.ma.masked_array(TEXTS, first), tmp_path / "texts")
    assert texts.n_documents == len(TEXTS) - 1
    years = np.ma.masked_array(np.full(len(TEXTS), 1999), first)
    rows = [{"text": text, "year": year} for text, year in zip(TEXTS, years, strict=True)]
    sj.ingest(rows, tmp_path / "rows")
    stored = pq.read_table(tmp_path / "rows" / "documents")["year"]
    assert (stored[0].as_py(), stored.null_count, stored[1].as_py()) == (None, 1, 1999)
    estimator = sj.LRJSMF(K).fit(COUNTS)
    for call in (estimator.transform, estimator.score):
        with pytest.raises(ValueError, match="has masked values"):
            call(np.ma.masked_greater(COUNTS, 2))
    with pytest.raises(ValueError, match="has masked values"):
        estimator.inverse_transform(np.ma.masked_greater(np.eye(K), 0.5))


@pytest.mark.filterwarnings("ignore")
def test_pyldavis_draws_it(model: Any) -> None:
    pyldavis = pytest.importorskip("pyLDAvis", reason="pyLDAvis is not installed")
    drawn = pyldavis.prepare(**sj.model_to_pyldavis(model, model.corpus), n_jobs=1)
    assert len(drawn.topic_coordinates) == K
    shares = model.topics()["share"]
    np.testing.assert_allclose(drawn.topic_coordinates["Freq"] / 100, shares, atol=0.15)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("n_topics", first_cases([1, 2]))
def test_pyldavis_draws_one_topic_and_two(n_topics: int) -> None:
    pyldavis = pytest.importorskip("pyLDAvis", reason="pyLDAvis is not installed")
    model = sj.fit(TEXTS, None, n_topics, polish=False)
    drawn = pyldavis.prepare(**sj.model_to_pyldavis(model, model.corpus), n_jobs=1)
    assert len(drawn.topic_coordinates) == n_topics
    assert np.isfinite(drawn.topic_coordinates[["x", "y"]]).all(axis=None)
