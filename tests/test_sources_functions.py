"""Record batches of Arrow as a source, from objects and from functions: they give the corpus of the same table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import streaming_jsmf as sj
from streaming_jsmf.cli.main import run
from streaming_jsmf.corpus.format import open_corpus, read_manifest
from streaming_jsmf.ingestion.formats.functions import ARROW
from streaming_jsmf.ingestion.sources.protocol import BadRecords, Unit
from tests.cases import each_once
from tests.corpora import file_bytes
from tests.sources import small
from tests.test_in_memory import TEXTS

TABLE = pa.table(
    {
        "text": TEXTS,
        "document_id": [f"d{i}" for i in range(len(TEXTS))],
        "year": [1990 + i % 4 for i in range(len(TEXTS))],
        "day": [f"2020-01-{1 + i % 28:02d}" for i in range(len(TEXTS))],
    }
)
TOKENS = TABLE.set_column(0, "text", pa.array([text.split() for text in TEXTS]))
BAGS = TABLE.set_column(0, "text", pa.array([sorted({*text.split()}) for text in TEXTS])).append_column(
    "counts", pa.array([[text.split().count(word) for word in sorted({*text.split()})] for text in TEXTS])
)
TABLES = {"texts": TABLE, "tokens": TOKENS, "bags": BAGS}


def lazily(table: pa.Table) -> Iterator[pa.RecordBatch]:
    yield from table.to_batches(max_chunksize=40)


def in_duckdb(table: pa.Table) -> Any:  # noqa: ARG001  # which DuckDB finds by its name
    return pytest.importorskip("duckdb").sql("SELECT * FROM table")


WAYS: dict[str, Callable[[pa.Table], Any]] = {
    "table": lambda table: table,
    "reader": lambda table: pa.RecordBatchReader.from_batches(table.schema, lazily(table)),
    "dataset": ds.dataset,
    "scanner": lambda table: ds.dataset(table).scanner(batch_size=40),
    "list of batches": lambda table: [*lazily(table)],
    "list of tables": lambda table: [table.slice(0, 40), table.slice(40)],
    "generator": lazily,
    "callable": lambda table: lambda: lazily(table),
    "duckdb": in_duckdb,
    "polars": lambda table: pytest.importorskip("polars").from_arrow(table),
}


def documents(place: Path) -> dict[str, bytes]:
    return {name: data for name, data in file_bytes(place).items() if name.endswith(".parquet")}


@cache
def of_parquet(kind: str) -> dict[str, bytes]:
    with TemporaryDirectory() as folder:
        pq.write_table(TABLES[kind], Path(folder, "t.parquet"))
        sj.ingest(Path(folder, "t.parquet"), Path(folder, "file"), workers=1)
        return documents(Path(folder, "file"))


@pytest.mark.parametrize(("way", "kind"), each_once([*WAYS], [*TABLES]))
def test_every_way_in_gives_the_bytes_of_parquet(way: str, kind: str, tmp_path: Path) -> None:
    sj.ingest(WAYS[way](TABLES[kind]), tmp_path / "memory", workers=1)
    assert documents(tmp_path / "memory") == of_parquet(kind)


def test_large_batches_are_read_in_parts(tmp_path: Path) -> None:
    """Of a function, as which Arrow files are read; a file without batches has its columns."""
    for name, table in (("t", TABLE), ("none", TABLE.slice(0, 0))):
        with pa.ipc.new_file(tmp_path / f"{name}.arrow", TABLE.schema) as file:
            file.write_table(table)
    unit = Unit(str(tmp_path / "t.arrow"))
    with small(batch=2000):
        parts = [*ARROW.records(unit, None, BadRecords("fail", unit, ARROW.place), ["text"])]
    assert len(parts) > 5
    assert [row for part in parts for row in part.rows] == [*range(len(TEXTS))]
    assert [text for part in parts for text in part.columns["text"].to_pylist()] == TEXTS
    assert ARROW.names(str(tmp_path / "none.arrow"), None) == TABLE.schema.names


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module with a reader of files of lines, and two such files."""
    for number, part in enumerate((TEXTS[:70], TEXTS[70:])):
        (tmp_path / f"{number}.mine").write_text("\n".join(part))
    path = tmp_path / "readers_of_mine.py"
    path.write_text(
        "import pyarrow as pa\n"
        "def read(path):\n"
        "    with open(path) as file: texts = file.read().splitlines()\n"
        "    for start in range(0, len(texts), 30):\n"
        "        some = texts[start:start + 30]\n"
        "        yield pa.record_batch({'text': some, 'place': [path[-6]] * len(some)})\n"
        "def fail(path):\n"
        "    if path.endswith('1.mine'): raise KeyError('no such page')\n"
        "    yield from read(path)\n"
        "def text(path):\n"
        "    return ['no batch']\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield path
    sys.modules.pop(path.stem, None)


@pytest.mark.parametrize("scheduler", ["threads", pytest.param("processes", marks=pytest.mark.slow)])
def test_a_function_reads_each_file(module: Path, scheduler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(module.parent))
    pattern, place = str(module.parent / "*.mine"), module.parent / "corpus"
    line = ["ingest", pattern, str(place), "--reader", f"{module.stem}:read", "--scheduler", scheduler]
    assert run([*line, "--workers", "2"]) == 0
    table = pq.read_table(place / "documents")
    assert table.column("excerpt").to_pylist() == TEXTS
    assert table.column("place").to_pylist() == [0] * 70 + [1] * (len(TEXTS) - 70)
    assert run(line) == 0, "the same request"
    assert read_manifest(str(place)).settings["read_function"] == f"{module.stem}:read"


def test_a_function_of_a_notebook(module: Path) -> None:
    pattern = str(module.parent / "*.mine")
    made = sj.ingest(
        pattern,
        module.parent / "corpus",
        reader=lambda path: [pa.record_batch({"text": Path(path).read_text().splitlines()})],
        scheduler="threads",
    )
    assert made.n_documents == len(TEXTS)


def test_what_a_function_does_wrong(module: Path) -> None:
    pattern, place = str(module.parent / "*.mine"), module.parent / "corpus"
    for name, said in (
        ("fail", r"1\.mine: .*readers_of_mine:fail.*no such page"),
        ("text", r"0\.mine: readers_of_mine:text yields str for it; it must yield record batches"),
        ("none", r"cannot import the reader 'readers_of_mine:none'"),
    ):
        with pytest.raises(sj.InputError, match=said):
            sj.ingest(pattern, place, reader=f"{module.stem}:{name}")
    made = sj.ingest(pattern, place, reader=f"{module.stem}:fail", on_bad_record="quarantine")
    assert made.n_documents == 70
    [bad] = pq.read_table(place / "quarantine.parquet").to_pylist()
    assert bad["file"].endswith("1.mine")


def test_the_code_of_a_function_is_part_of_the_request(module: Path) -> None:
    pattern, place = str(module.parent / "*.mine"), module.parent / "corpus"
    sj.ingest(pattern, place, reader=f"{module.stem}:read")
    module.write_text(module.read_text() + "\n# another one\n")
    with pytest.raises(sj.InputError, match=r"has changed since it was imported"):
        sj.ingest(pattern, place, reader=f"{module.stem}:read")


@pytest.mark.parametrize(
    ("words", "counts", "said"),
    [
        (["a", "b"], [1], "it has 2 words and 1 counts"),
        (["a", None], [1, 1], "text holds a null"),
        (["a", "b"], [1, -1], "count -1 is not in"),
        (None, [1], "text is null"),
    ],
)
def test_bad_bags_of_words(words: Any, counts: Any, said: str, tmp_path: Path) -> None:
    table = pa.table(
        {
            "text": pa.array([["a", "c"], words], pa.list_(pa.string())),
            "counts": pa.array([[2, 1], counts], pa.list_(pa.int64())),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(sj.InputError, match=f"row group 0, row 1 from 0: {said}"):
        sj.ingest(tmp_path / "t.parquet", tmp_path / "corpus", preset="papers")


def test_only_the_user_names_code(module: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Neither a corpus that is updated nor a spec has its function executed."""
    place = tmp_path_factory.mktemp("made") / "corpus"
    source, name = str(module.parent / "*.mine"), f"{module.stem}:read"
    sj.fit(source, place.with_name("project"), 3, reader=name, preset="papers", polish=False)
    (module.parent / "2.mine").write_text("\n".join(TEXTS[:5]))
    with pytest.raises(sj.InputError, match=f"read by '{name}'; name it with reader=MODULE:FUNCTION"):
        sj.update(place.with_name("project"), source)
    sj.update(place.with_name("project"), source, reader=name)
    assert open_corpus(str(place.with_name("project.corpus"))).n_documents == len(TEXTS) + 5
    spec = place.with_name("spec.toml")
    spec.write_text(
        'name = "mine"\ntitle = "Mine"\nreader = "function"\n[source]\nurl = "https://example.org"\n'
        f'licence = "CC0"\nattribution = "None."\n[source.files]\n"0.mine" = {{}}\n[read]\nfunction = "{name}"\n'
    )
    with pytest.raises(sj.InputError, match=r"reader: .*'h5ad' or 'bag-of-words-parquet'"):
        sj.ingest(spec, place)
    assert not place.exists()
