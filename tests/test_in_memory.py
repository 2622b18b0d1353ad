"""Corpora of what a notebook has at hand: the same as those of a file with the same texts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.dataframe
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streaming_jsmf as sj
from streaming_jsmf.config import IngestRequest
from streaming_jsmf.ingestion import in_memory

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
    made = pytest.importorskip("datasets").Dataset.from_dict({"text": TEXTS, "label": [1] * len(TEXTS)})
    return made.to_iterable_dataset() if streamed else made


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("texts")
    pq.write_table(pa.table({"text": TEXTS}), folder / "a.parquet")
    return sj.ingest(folder / "a.parquet", folder / "corpus")


KINDS: dict[str, Callable[[], Any]] = {
    "list": lambda: TEXTS,
    "tuple": lambda: tuple(TEXTS),
    "generator": lambda: (text for text in TEXTS),
    "series": lambda: pd.Series(TEXTS),
    "pandas": lambda: pd.DataFrame({"text": TEXTS}),
    "arrow": lambda: pa.table({"text": TEXTS}),
    "stream": lambda: pa.table({"text": TEXTS}).to_reader(max_chunksize=40),
    "column": lambda: pa.chunked_array([TEXTS[:40], TEXTS[40:]]),
    "views": _views,
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
}


@pytest.mark.parametrize("kind", KINDS)
def test_any_kind_of_texts_gives_the_same_corpus(kind: str, expected: Any, tmp_path: Path) -> None:
    made = sj.ingest(KINDS[kind](), tmp_path / "corpus")
    assert made.vocabulary().words == expected.vocabulary().words
    assert (made.n_documents, made.nonzeros) == (expected.n_documents, expected.nonzeros) != (0, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["corpus"], "nothing temporary is left"


def test_views_in_parquet_files(expected: Any, tmp_path: Path) -> None:
    pq.write_table(_views().drop_columns("d"), tmp_path / "a.parquet")
    made = sj.ingest(tmp_path / "a.parquet", tmp_path / "corpus")
    assert made.vocabulary().words == expected.vocabulary().words
    schema = pq.read_schema(next((tmp_path / "corpus").rglob("part-*.parquet")))
    assert schema.field("a").type == pa.string()


def test_options_name_the_columns(expected: Any, tmp_path: Path) -> None:
    table = pd.DataFrame({"body": TEXTS, "year": 1990})
    made = sj.ingest(table, tmp_path / "c", IngestRequest(read={"text": "body", "metadata": "year"}))
    assert made.vocabulary().words == expected.vocabulary().words
    assert "year" in pq.read_schema(next((tmp_path / "c").rglob("part-*.parquet"))).names


@pytest.mark.parametrize(
    ("columns", "kept"), [([], "index"), (["index"], "__index_level_0__"), (["year"], "index")]
)
def test_an_index_without_a_name_is_named(columns: list[str], kept: str, tmp_path: Path) -> None:
    table = pd.DataFrame({"text": TEXTS, **dict.fromkeys(columns, 1)}, index=range(9, 9 + 2 * len(TEXTS), 2))
    made = sj.ingest(table[1:].copy().set_index(table.index[1:].to_numpy()), tmp_path / "c")
    read = pq.read_table(next((tmp_path / "c").rglob("part-*.parquet")))
    assert made.n_documents == len(read) == len(TEXTS) - 1
    assert read.column(kept)[0].as_py() == 11
    assert ("__index_level_0__" in read.column_names) == (kept == "__index_level_0__")


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ([], "the source is empty"),
        (["a text", 3], "int, str; give texts only"),
        (pd.DataFrame([["a", "b"]], columns=["text", "text"]), "several columns text"),
        (pd.Series(["a text", 3]), "int, str; give texts only"),
        (["a text", "a \udce9"], r"a text has '\\udce9', which stands for a byte"),
        (pd.DataFrame({"text": ["\ud800"]}), r"a text has '\\ud800'"),
        (pd.DataFrame({"text": TEXTS, "m": ["x\udcff"] * 150}), r"'\\udcff'.*, as in 'x\\udcff'; decode"),
        (pd.DataFrame({"text": TEXTS, "m\udcff": [1] * 150}), r"'\\udcff'.*, as in 'm\\udcff'; decode"),
        ([{"text": "a", "m": {"k\ud800": 1}}], r"a text has '\\ud800'"),
        (
            pa.table({"text": ["a"], "m": pa.array([(1, 2, 3)], pa.month_day_nano_interval())}),
            "a type that cannot be stored .*; make it numbers, texts or dates",
        ),
        (
            pd.DataFrame({"text": TEXTS, "id": np.arange(150, dtype=np.uint64) + np.uint64(2**63)}),
            "row 0 from 0: id is above 9223372036854775807.*; write ids as strings",
        ),
        (17, "of type int; give a path, texts, rows or a table"),
        ({"text": TEXTS}, "of type dict"),
        (
            "ants and bees",
            "ants and bees: no such file or directory; check the path, or give texts as a list",
        ),
        ("Ants. " + "and bees. " * 999, "can be named 'Ants. and.*'.*; check the path"),
        (pa.Table.from_arrays([["x"], ["y"]], ["text", "text"]), "2 columns 'text'"),
    ],
)
def test_unusable_sources_are_refused_in_one_line(source: Any, line: str, tmp_path: Path) -> None:
    with pytest.raises(sj.InputError, match=line):
        sj.ingest(source, tmp_path / "c")
    assert not [*tmp_path.iterdir()]


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
        sj.LRJSMF(n_topics=2, max_topics=2).fit(pd.DataFrame(matrix, columns=words))
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
        patch.setattr("streaming_jsmf.ingestion.ingest.write_shards", interrupted)
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
    request = IngestRequest(preset="papers", curation={"min_tokens": 1, "min_distinct_words": 1})
    with pytest.warns(UserWarning, match=r"every text is the path of an existing file.*give their folder"):
        sj.ingest(paths, tmp_path / "corpus", request, sj.Execution("synchronous"))


@pytest.mark.parametrize("other", ["ants and bees", "x" * 5000, "x/" * 50_000, "a\0b", ""], ids=range(5))
@pytest.mark.parametrize("first", [True, False])
def test_texts_that_are_not_paths_cause_no_warning(
    other: str, first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what is too long for a path, or could be none. Warnings are errors in these tests."""
    monkeypatch.setattr("streaming_jsmf.ingestion.in_memory.BATCH", 2)
    path = tmp_path / "a.txt"
    path.write_text("ant")
    texts = [other, str(path), str(path)] if first else [str(path), str(path), other]
    assert sum(table.num_rows for table in in_memory._tables(texts)) == 3
