"""JSON files: an object on each line, or one array of objects; values within objects."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import streaming_jsmf as sj
from streaming_jsmf.ingestion.readers import limits
from tests.test_in_memory import TEXTS

ROWS: list[dict[str, Any]] = [
    {
        "content": {"body": f'{text} [brackets], {{braces}} "quotes" \\ end', "tags": ["a", "b"]},
        "meta": {"year": 1990 + number % 4, "who": {"name": f"n{number}"}} if number % 5 else None,
        "id": number,
    }
    for number, text in enumerate(TEXTS)
]
NESTED: dict[str, Any] = {"text": "content.body", "metadata": ["meta.year", "meta.who.name"]}


def table_of(path: Path, place: Path, **options: Any) -> Any:
    sj.ingest(path, place, min_df=1, max_df=1.0, stop_words="none", **options)
    return pq.read_table(place / "documents")


@pytest.mark.parametrize("block", [3, 1 << 20])
@pytest.mark.parametrize("indent", [None, 2])
def test_an_array_gives_the_same_corpus_as_lines(
    block: int, indent: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming_jsmf.ingestion.readers.lines._BLOCK", block)
    rows = ROWS[:30] if block == 3 else ROWS
    (tmp_path / "lines.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (tmp_path / "array.json").write_text(f"\ufeff {json.dumps(rows, indent=indent)}\n", encoding="utf-8")
    (tmp_path / "array.json.gz").write_bytes(gzip.compress((tmp_path / "array.json").read_bytes()))
    lines = table_of(tmp_path / "lines.jsonl", tmp_path / "1", **NESTED)
    assert lines.column("meta.year").to_pylist() == [row["meta"] and row["meta"]["year"] for row in rows]
    assert lines.column("meta.who.name")[1].as_py() == "n1"
    for name in ("array.json", "array.json.gz"):
        assert table_of(tmp_path / name, tmp_path / name.replace(".", "-"), **NESTED).equals(lines)


def test_other_values_are_kept_with_a_nested_text(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(ROWS), encoding="utf-8")
    names = table_of(tmp_path / "a.json", tmp_path / "corpus", text="content.body").column_names
    assert names == ["ids", "counts", "document_id", "meta", "excerpt"], "the object of the text is left out"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (json.dumps(ROWS)[:-50], r"element 150 of the array: the JSON array breaks off"),
        (json.dumps(ROWS) + "x", r"element 151 of the array: something follows the JSON array"),
        (
            json.dumps([*ROWS[:9], {"content": {"body": 5}, "id": 9}]),
            r"element 10 of the array: .*is of type int",
        ),
        ("[1, 2]", "it holds no JSON objects"),
        ("[]", "it holds no JSON objects"),
    ],
    ids=["cut", "followed", "number", "numbers", "empty"],
)
def test_bad_arrays(content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(content, encoding="utf-8")
    with pytest.raises(sj.InputError, match=said) as caught:
        sj.ingest(tmp_path / "a.json", tmp_path / "corpus", text="content.body")
    assert "a.json" in str(caught.value)
    assert not (tmp_path / "corpus").exists()


def test_a_large_element_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.json").write_text(json.dumps([{"text": "a b c"}, {"text": "x " * 3000}]), encoding="utf-8")
    monkeypatch.setattr("streaming_jsmf.ingestion.readers.lines._BLOCK", 100)
    monkeypatch.setattr(limits, "LONGEST_LINE", 1000)
    with pytest.raises(
        sj.InputError, match=r"element 2 of the array: an element .* has more than 1,000 bytes"
    ):
        sj.ingest(tmp_path / "a.json", tmp_path / "corpus")


def test_a_missing_nested_name(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(ROWS), encoding="utf-8")
    with pytest.raises(sj.InputError, match=r"no column 'content\.bodx'"):
        sj.ingest(tmp_path / "a.json", tmp_path / "corpus", text="content.bodx")
