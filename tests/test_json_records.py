"""JSON files: an object on each line, or one array of objects; values within objects, and names that appear late."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

import streaming_jsmf as sj
from streaming_jsmf.ingestion.sources.protocol import limits
from tests.cases import each_once
from tests.test_in_memory import TEXTS

ROWS: list[dict[str, Any]] = [
    {
        "content": {"body": f'{one} [brackets], {{braces}} "quotes" \\ end', "tags": ["a", "b"]},
        "meta": {"year": 1990 + number % 4, "who": {"name": f"n{number}"}} if number % 5 else None,
        "id": number,
    }
    for number, one in enumerate(TEXTS)
]
NESTED: dict[str, Any] = {"text": "content.body", "metadata": ["meta.year", "meta.who.name"]}


def table_of(path: Path, place: Path, **options: Any) -> Any:
    sj.ingest(path, place, min_df=1, max_df=1.0, stop_words="none", **options)
    return pq.read_table(place / "documents")


@pytest.mark.parametrize("unit", [1000, 1 << 20])
@pytest.mark.parametrize("indent", [None, 2])
def test_an_array_gives_the_same_corpus_as_lines(
    unit: int, indent: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "UNIT_BYTES", unit)
    rows = ROWS
    (tmp_path / "lines.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (tmp_path / "array.json").write_text(f"\ufeff {json.dumps(rows, indent=indent)}\n", encoding="utf-8")
    (tmp_path / "array.json.gz").write_bytes(gzip.compress((tmp_path / "array.json").read_bytes()))
    lines = table_of(tmp_path / "lines.jsonl", tmp_path / "1", **NESTED)
    assert lines.column("meta.year").to_pylist() == [row["meta"] and row["meta"]["year"] for row in rows]
    assert lines.column("meta.who.name")[1].as_py() == "n1"
    for name in ("array.json", "array.json.gz"):
        assert table_of(tmp_path / name, tmp_path / name.replace(".", "-"), **NESTED).equals(lines)


_LINES = [json.dumps({"text": one, "n": number}) for number, one in enumerate(TEXTS)]
_RECORDS = [json.loads(line) for line in _LINES]
_HALF = len(TEXTS) // 2


#: Records as other programs write them, and what is said of them.
LAYOUTS: dict[str, tuple[Any, str]] = {
    "in an object": (
        {"version": 1, "about": {"a": [{"b": 1}] * 2}, "data": _RECORDS, "n": 3},
        "objects in data; what",
    ),
    "two levels down": (
        {"head": {"status": 0}, "response": {"docs": _RECORDS}},
        "objects in response.docs; what",
    ),
    "in lists": (
        {"data": [{"name": "a", "parts": _RECORDS[:_HALF]}, {"name": "b", "parts": _RECORDS[_HALF:]}]},
        "objects in data.parts; what",
    ),
    "by name": ({f"d{i}": record for i, record in enumerate(_RECORDS)}, "the values of one object; id"),
    "by name, with ids": (
        {f"d{i}": {"id": i, **record} for i, record in enumerate(_RECORDS)},
        "one object; key",
    ),
    "strings by name": ({f"d{i}": one for i, one in enumerate(TEXTS)}, "the values of one object; id"),
    "columns": ({"text": TEXTS, "n": [*range(len(TEXTS))]}, "its values are columns"),
    "columns of pandas": (
        {name: {str(i): record[name] for i, record in enumerate(_RECORDS)} for name in ("text", "n")},
        "its values are columns",
    ),
    "strings": (TEXTS, ""),
    "lines of strings": ("\n".join(map(json.dumps, TEXTS)), ""),
    "one line": ("".join(_LINES), ""),
    "parts": ([{"text": [text[:9], {"text": text[9:]}]} for text in TEXTS], ""),
    "two on a line": ("\n".join(map("".join, zip(_LINES[::2], _LINES[1::2], strict=True))), ""),
    "commas": (",\n".join(_LINES) + ",\n", ""),
    "sequence": ("".join(f"\x1e{line}\n" for line in _LINES), ""),
    "sequence without line ends": ("".join(f"\x1e{line}" for line in _LINES), ""),
    "sequence of several lines": ("".join(f"\x1e{json.dumps(row, indent=1)}\n" for row in _RECORDS), ""),
    "joined arrays": (f"\ufeff{json.dumps(_RECORDS[:9])}\n\ufeff{json.dumps(_RECORDS[9:])}", ""),
}


@pytest.mark.parametrize(("kind", "indent"), each_once([*LAYOUTS], [None, 1]))
def test_other_layouts_give_the_same_texts(
    kind: str,
    indent: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("streaming_jsmf.ingestion.formats.json_records._HEAD", 10_000)
    caplog.set_level("INFO")
    content, said = LAYOUTS[kind]
    text = content if isinstance(content, str) else json.dumps(content, indent=indent)
    (tmp_path / "a.json").write_text(text, encoding="utf-8")
    found = table_of(tmp_path / "a.json", tmp_path / "corpus", excerpt=1000)
    assert found.column("excerpt").to_pylist() == TEXTS
    assert said in caplog.text
    if "name" in kind:
        name = "key" if "ids" in kind else "document_id"
        assert found.column(name).to_pylist() == [f"d{i}" for i in range(len(TEXTS))]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"train": _RECORDS, "test": _RECORDS}, "the list test of objects after train"),
        ({"text": TEXTS, "n": [1]}, "lists text, n have 150, 1 values"),
        (
            {"data": _RECORDS, "more": {"a": "m" * 3000}, "test": _RECORDS},
            "the list test of objects after data",
        ),
        (f"{_RECORDS[0]}\n" * 2, "the line is a dict of Python"),
        ("// of 2020\n" + "\n".join(_LINES), "line 1: the line is a comment"),
        (f"of({json.dumps(_RECORDS)});\n", "it holds no JSON objects .the line is not JSON"),
        (
            f"window.a.b0 = {json.dumps({'a': _RECORDS}, indent=2)}",
            "it holds no JSON objects .the line is not JSON",
        ),
    ],
    ids=["two lists", "unequal", "a later list", "dict", "comment", "call", "script"],
)
def test_unclear_layouts_are_refused(
    content: Any, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming_jsmf.ingestion.formats.json_records._HEAD", 10_000)
    (tmp_path / "a.json").write_text(
        content if isinstance(content, str) else json.dumps(content), encoding="utf-8"
    )
    with pytest.raises(sj.InputError, match=said):
        sj.ingest(tmp_path / "a.json", tmp_path / "corpus")


def test_channels_of_slack(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    files: dict[str, Any] = {"users.json": [{"id": "U1"}], "channels.json": [{"id": "C1", "name": "a"}]}
    of_channels = {"a": TEXTS[:_HALF], "b": TEXTS[_HALF:]}
    files |= {f"{name}/2020-01-31.json": [{"text": one} for one in of_channels[name]] for name in of_channels}
    for name, rows in files.items():
        (tmp_path / "export" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "export" / name).write_text(json.dumps(rows), encoding="utf-8")
    found = table_of(tmp_path / "export", tmp_path / "corpus").column("channel").to_pylist()
    assert found == ["a"] * _HALF + ["b"] * (len(TEXTS) - _HALF)
    assert "no messages: channels.json, users.json" in caplog.text


def test_other_values_are_kept_with_a_nested_text(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(ROWS), encoding="utf-8")
    table = table_of(tmp_path / "a.json", tmp_path / "corpus", text="content.body")
    assert table.column_names == ["ids", "counts", "document_id", "content.tags", "meta", "excerpt"]
    assert json.loads(table.column("content.tags")[0].as_py()) == ["a", "b"]


def test_mappings_in_memory_are_no_texts(tmp_path: Path) -> None:
    with pytest.raises(sj.InputError):
        sj.ingest([{"content": {"body": one}, "id": n} for n, one in enumerate(TEXTS)], tmp_path / "1")
    rows = [{"about": {"place": one * 3}, "story_of": one} for one in TEXTS]
    for number, source in enumerate((rows, pd.DataFrame(rows))):
        sj.ingest(source, tmp_path / f"of_{number}")
        words = pq.read_table(tmp_path / f"of_{number}" / "vocabulary.parquet").column("word").to_pylist()
        assert "place" not in words


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (json.dumps(ROWS)[:-50], "the JSON is incomplete or damaged"),
        (json.dumps(ROWS) + "x", "there is other data after the JSON"),
        (
            json.dumps([*ROWS[:9], {"content": {"body": 5}, "id": 9}]),
            r"record 10: .*is of type int",
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


def test_a_large_document_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.json").write_text(json.dumps(ROWS), encoding="utf-8")
    monkeypatch.setattr("streaming_jsmf.ingestion.formats.json_documents.LARGEST", 1000)
    with pytest.raises(
        sj.InputError, match=r"a\.json: it is a JSON document of more than 1,000 bytes, .* jq -c"
    ):
        sj.ingest(tmp_path / "a.json", tmp_path / "corpus")


def test_a_missing_nested_name(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(ROWS), encoding="utf-8")
    with pytest.raises(sj.InputError, match=r"no column 'content\.bodx'"):
        sj.ingest(tmp_path / "a.json", tmp_path / "corpus", text="content.bodx")


def test_a_late_excerpt_stands_for_the_beginning_of_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BATCH_BYTES", 2000)
    rows = [{"text": one, **({"excerpt": "mine"} if i == 70 else {})} for i, one in enumerate(TEXTS)]
    (tmp_path / "a.json").write_text(json.dumps(rows), encoding="utf-8")
    found = table_of(tmp_path / "a.json", tmp_path / "corpus").column("excerpt").to_pylist()
    assert found == [*TEXTS[:70], "mine", *TEXTS[71:]]
    none = table_of(tmp_path / "a.json", tmp_path / "without", excerpt=0).column("excerpt").to_pylist()
    assert none == [None] * 70 + ["mine"] + [None] * (len(TEXTS) - 71)


def test_late_names_that_cannot_be_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BATCH_BYTES", 2000)
    late = {f"k{i}": 1 for i in range(201)}
    rows = [{"text": one, **(late if i == 70 else {})} for i, one in enumerate(TEXTS)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    with pytest.raises(sj.InputError, match=r"more than 200 names .*, such as k0, k1, k2; .* metadata"):
        table_of(tmp_path / "a.jsonl", tmp_path / "corpus")
    kept = table_of(tmp_path / "a.jsonl", tmp_path / "corpus", metadata=[])
    assert kept.column_names == ["ids", "counts", "document_id", "excerpt"], "only what is asked for"


def test_late_names_of_many_files_are_limited_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        rows = [{"text": one, **{f"{number}-{i % 90}": i}} for i, one in enumerate(TEXTS)]
        (tmp_path / f"{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr(limits, "BATCH_BYTES", 2000)
    with pytest.raises(sj.InputError, match="more than 200 names"):
        table_of(tmp_path, tmp_path.parent / f"{tmp_path.name}-corpus")
