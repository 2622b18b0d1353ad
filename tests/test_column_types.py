"""Numbers, dates and times in strings of any source become typed columns of the corpus once all rows are read."""

from __future__ import annotations

import datetime
import json
import logging
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streaming_jsmf as sj
from streaming_jsmf.config import IngestRequest
from streaming_jsmf.ingestion.columns import ColumnSummary, as_type, choose_types, summarize
from streaming_jsmf.ingestion.sources.protocol import limits
from streaming_jsmf.ingestion.sources.values import from_python
from tests.cases import each_once, first_cases

DRAW = random.Random(0)
TEXTS = [
    " ".join(DRAW.choices([f"{'abc'[i % 3] * 3}{'xyzuvwrst'[w]}" for w in range(9)], k=20))
    for i in range(240)
]
DATES = [datetime.date(1999, 12, 1) + datetime.timedelta(days=i) for i in range(240)]
DAY, TIME, UTC = pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")

#: Name, strings that are repeated over the documents, type of the column, and its first value if not that of a cast.
STRINGS: dict[str, tuple[Sequence[str], Any, str]] = {
    "year": (["1980", "1981", "", "-44", "0"], pa.int64(), ""),
    "price": (["1.50", "3", "-0.25", ""], pa.float64(), ""),
    "day": (["1999-12-31", "2000-02-29", ""], DAY, ""),
    "at": (["1999-12-31 23:59", "1999-12-31T23:59:59.25", "2000-01-01"], TIME, ""),
    "zoned": (
        ["1999-12-31T23:59:59Z", "2000-01-01 00:59 +0200", "2000-01-01 00:59 UTC"],
        UTC,
        "1999-12-31 23:59:59+00:00",
    ),
    "monthly": (["2015-02", "", "2015-12"], DAY, "2015-02-01"),
    "eight": (["20150203", "19991231"], DAY, "2015-02-03"),
    "american": (["2/3/2015", "12-31-2015", ""], DAY, "2015-02-03"),
    "german": (["3.2.2015", "31.12.2015"], DAY, "2015-02-03"),
    "dotted": (["3.2.2015", "4.5.2015"], DAY, "2015-02-03"),
    "either": (["2/3/2015", "4/5/2015"], DAY, "2015-02-03"),
    "slashes": (["2015/2/3", "2015/12/31"], DAY, "2015-02-03"),
    "office": (["2/3/2015 1:05:09 PM", "12/31/15, 12:00\u202fa.m.", "1/1/2015"], TIME, "2015-02-03 13:05:09"),
    "named": (
        ["February 3, 2015", "Dec. 31 2015", "Thursday, Dec 31, 2015", "Dec 31, 2015 Thursday"],
        DAY,
        "2015-02-03",
    ),
    "english": (["3 February 2015", "31-DEC-15"], DAY, "2015-02-03"),
    "mail": (
        ["Tue, 3 Feb 2015 10:00:00 +0100", "3 Feb 2015 10:00 EST (east)"],
        UTC,
        "2015-02-03 09:00:00+00:00",
    ),
    "twitter": (["Tue Feb 03 13:08:45 +0000 2015"], UTC, "2015-02-03 13:08:45+00:00"),
    "ts": (["1355517523.000005", "1355517524.25"], UTC, "2012-12-14 20:38:43.000005+00:00"),
    "created_utc": (["1355517523", ""], UTC, "2012-12-14 20:38:43+00:00"),
    "updatedAt": (["1355517523000"], UTC, "2012-12-14 20:38:43+00:00"),
    "seconds of no name": (["1355517523"], pa.int64(), ""),
    "time too early": (["255517523", "1355517523"], pa.int64(), ""),
    "eight but no days": (["20150230", "20150203"], pa.int64(), ""),
    "zip": (["10001", "94110", "00501"], pa.string(), ""),
    "long": (["1234567890123456789", "1"], pa.string(), ""),
    "wide": (["1234567890123456.5", "1"], pa.string(), ""),
    "label": (["1e5", "2"], pa.string(), ""),
    "nan": (["NA", "1.5", "#DIV/0!"], pa.float64(), "None"),
    "infinite": (["inf", "1"], pa.string(), ""),
    "plus": (["+1", "2"], pa.string(), ""),
    "spaced": (["1 ", "2"], pa.int64(), "1"),
    "true": (["true", "false"], pa.string(), ""),
    "no day": (["2001-02-28", "2001-02-29"], pa.string(), ""),
    "no month": (["2001-12", "2001-13"], pa.string(), ""),
    "no american day": (["2/28/2001", "2/29/2001"], pa.string(), ""),
    "no order": (["13/1/2001", "1/13/2001"], pa.string(), ""),
    "no hour": (["2/3/2001 1:00 PM", "2/3/2001 13:00 PM"], pa.string(), ""),
    "no time": (["2001-02-28 23:59", "2001-02-28 24:01"], pa.string(), ""),
    "both": (["2001-02-28 23:59", "2001-02-28 23:59Z"], pa.string(), ""),
    "early": (["0001-02-28"], pa.string(), ""),
    "empty": ([""], pa.string(), ""),
    "word": (["red", "blue"], pa.string(), ""),
}
#: What is logged for some of them.
SAID = (
    "year: 192 values read as integers",
    "day: 160 values read as dates; ",
    "american: 160 values read as dates (month first); ",
    "german: 240 values read as dates (day first); ",
    "either: 240 values read as dates (month first); all days are below 13, so date_format='day-first' would fit",
    "; 4 more columns",
)
ROWS = [
    {"id": f"{i}", "text": text, **{name: values[i % len(values)] for name, (values, *_) in STRINGS.items()}}
    for i, text in enumerate(TEXTS)
]


def written(kind: str, path: Path, rows: Sequence[dict[str, Any]]) -> Any:
    """Write rows as a source of one kind, or return them as one in memory."""
    if kind == "csv":
        path = path.with_suffix(".csv")
        pd.DataFrame(rows).to_csv(path, index=False)
    elif kind == "json lines":
        path = path.with_suffix(".jsonl")
        path.write_text("\n".join(map(json.dumps, rows)))
    elif kind == "json array":
        path = path.with_suffix(".json")
        path.write_text(json.dumps(list(rows)))
    elif kind in ("parquet", "categories"):
        table = pa.Table.from_pylist(list(rows))
        coded = [c if kind == "parquet" or n == "text" else c.dictionary_encode() for n, c in _columns(table)]
        path = path.with_suffix(".parquet")
        pq.write_table(pa.table(coded, table.column_names), path)
    elif kind == "bags":  # as other programs write them
        path.mkdir()
        table = pa.Table.from_pylist(list(rows))
        table = table.rename_columns(["document_id", *table.column_names[1:]])
        for name, values in {"ids": [0, 1, 2], "counts": [2, 1, 3]}.items():
            table = table.append_column(name, pa.array([values] * len(rows), pa.list_(pa.int32())))
        pq.write_table(table, path / "part.parquet", row_group_size=50)
        (path / "vocab.txt").write_text("alpha\nbeta\ngamma\n")
    elif kind == "folders":  # the name of the folder has one of the columns
        folder = path / f"topics={rows[0]['topics']}"
        folder.mkdir(parents=True)
        pd.DataFrame(rows).drop(columns="topics").to_csv(folder / "t.csv", index=False)
    else:
        return pd.DataFrame(rows) if kind == "frame" else [dict(row) for row in rows]
    return path


def _columns(table: pa.Table) -> Iterable[tuple[str, Any]]:
    return zip(table.column_names, table.columns, strict=True)


def ingested(source: Any, path: Path, **options: Any) -> Any:
    """Ingest a source and return the documents of the corpus as a table."""
    corpus = sj.ingest(source, path, preset="papers", min_distinct_words=0, min_tokens=0, **options)
    return pa.concat_tables(pq.read_table(corpus.shard_path(shard)) for shard in corpus.shards)


RENAMED = {"ids": "ids_", "counts": "counts_", "topics": "topics__", "topic_shares": "topic_shares_"}


@pytest.mark.parametrize("kind", first_cases(["parquet", "bags", "csv", "folders", "frame"], 2))
def test_columns_with_the_names_of_results_are_renamed(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In every reader, with one line each; topic shares are computed and can be grouped."""
    renamed = {**RENAMED, "topic": "topic_"}
    if kind == "bags":  # whose ids and counts are no metadata
        del renamed["ids"], renamed["counts"]
    values = {name: f"of {name}" for name in (*renamed, "topics_")}
    rows = [{"id": f"{i}", "text": text, **values} for i, text in enumerate(TEXTS)]
    with caplog.at_level(logging.INFO):
        table = ingested(written(kind, tmp_path / "s", rows), tmp_path / "c")
    for name, new in renamed.items():
        assert table.column(new).to_pylist() == [values[name]] * 240
        line = f"{name}: the column is stored as {new}, because results have a column of its name"
        assert caplog.messages.count(line) == 1
    assert table.column("topics_").to_pylist() == [values["topics_"]] * 240
    assert len(set(table.column_names)) == len(table.column_names)
    if kind == "csv":
        sj.fit(tmp_path / "c", tmp_path / "m", 2, polish=False)
        sj.transform(tmp_path / "m", tmp_path / "c", tmp_path / "s.parquet")
        found = sj.shares_by(tmp_path / "m", tmp_path / "s.parquet", "topics__")
        assert set(found["topics__"]) == {"of topics"}


def test_a_second_column_of_ids_is_renamed(tmp_path: Path) -> None:
    rows = [{"text": text, "document_id": i, "key": f"k{i}"} for i, text in enumerate(TEXTS)]
    table = ingested(rows, tmp_path / "c", id="key")
    assert table.column("document_id").to_pylist() == [f"k{i}" for i in range(240)]
    assert table.column("document_id_").to_pylist() == list(range(240))


@pytest.mark.parametrize("kind", first_cases(["csv", "json lines", "records", "categories", "bags"], 3))
def test_strings_of_numbers_and_dates_become_typed(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        table = ingested(written(kind, tmp_path / "s", ROWS), tmp_path / "c")
    for line in SAID:
        assert line in caplog.text
    assert "zip" not in caplog.text
    assert table.schema.field("document_id").type == pa.string(), "ids stay what they are"
    for name, (values, expected, first) in STRINGS.items():
        assert table.schema.field(name).type == expected, name
        given = [values[i % len(values)] for i in range(240)]
        if first:
            assert str(table.column(name)[0]) == first, name
            assert table.column(name).null_count == sum(map(given.count, ("", "NA", "#DIV/0!"))), name
            continue
        wanted = pa.array(given if expected == pa.string() else [value or None for value in given])
        assert table.column(name).to_pylist() == wanted.cast(expected).to_pylist(), name


FEBRUARY = datetime.date(2015, 2, 3)
SENT = datetime.datetime(2012, 12, 14, 20, 38, 43, tzinfo=datetime.UTC)
FORMATS: list[tuple[str, list[Any], Any]] = [
    ("day-first", ["2/3/2015", "4/5/2015"], FEBRUARY.replace(month=3, day=2)),
    ("month-first", ["2/3/2015", "4/5/2015"], FEBRUARY),
    ("day-first", ["2/13/2015", "4/5/2015"], "2/13/2015"),
    ("none", ["2/3/2015", "4/5/2015"], "2/3/2015"),
    ("none", ["2015-02-03"], "2015-02-03"),
    ("none", [20150203, 20150204], 20150203),
    ("none", [1355517523], 1355517523),
    ("none", [DATES[0]], DATES[0]),
    ("day-first", ["2015-02-03"], FEBRUARY),
    ("%d|%b|%y", ["03|Feb|15", "28|Feb|15"], FEBRUARY),
    ("%d|%b|%y", ["03|Feb|15", "30|Feb|15"], "03|Feb|15"),
    ("%H.%M on %d %m %Y", ["23.59 on 03 02 2015"], datetime.datetime(2015, 2, 3, 23, 59)),
    ("%Y%m%d %z", ["20150203 +0100"], datetime.datetime(2015, 2, 2, 23, tzinfo=datetime.UTC)),
    ("%m/%d/%y", ["2/3/15", None, ""], FEBRUARY),
]


@pytest.mark.parametrize(("date_format", "values", "first"), FORMATS)
def test_a_format_of_dates_overrules(date_format: str, values: list[Any], first: Any) -> None:
    """However the values are divided."""
    array = from_python(values)
    for n in range(len(values) + 1):
        parts = [summarize(part, date_format) for part in (array[n:], array[:n])]
        restored = [ColumnSummary(*json.loads(json.dumps(part))) for part in parts]
        chosen, *lines = choose_types({"date": restored[0].joined(restored[1])}, {}, date_format)
        found = as_type(array, chosen["date"])[0].as_py()
        assert (str(found), type(found)) == (str(first), type(first))
        assert any(lines) == (first != values[0] or "%" in date_format)


#: Values of a column of dates that stays strings, the format that is asked for, and what is said of them.
MESSY: list[tuple[list[str], str | None, str]] = [
    (
        ["1999-12-31"] * 60 + ["12/31/1999"] * 30 + ["31 Dec 1999"] * 20 + ["soon"] * 2 + ["1999-02-30", ""],
        None,
        "110 of 113 values are dates, 60 such as '1999-12-31', 30 such as '12/31/1999', 20 such as '31 Dec 1999', and "
        "3 are not, such as 'soon'",
    ),
    (
        ["31.12.1999", "1.2.2000", "", "2.2.2000"] * 30 + ["spring", "31.11.1999", "2000", "n.d."],
        None,
        "90 of 94 values are dates, 90 such as '31.12.1999', and 4 are not, such as 'spring'",
    ),
    (
        ["31|12|99"] * 40 + ["30|02|99", "a", "b", "c"],
        "%d|%m|%y",
        "40 of 44 values are dates, 40 such as '31|12|99', and 4 are not, such as '30|02|99'",
    ),
    (["1999-12-31", "2000-02-28"] * 20 + ["2000-02-30"], None, "only 40 of 41 values are dates, not '2000-02-30' (1)"),
    (["1999-12-31", "12/31/1999"] * 20, "none", ""),
    (["Rome", "1999-12-31", "Oslo"] * 40, None, ""),
]  # fmt: skip


@pytest.mark.parametrize(("values", "date_format", "said"), MESSY)
def test_dates_that_are_not_read_are_named(values: list[str], date_format: str | None, said: str) -> None:
    """However the values are divided, with the first of each kind in the order of the values."""
    array = from_python(values)
    for n in (0, 1, 50, len(values)):
        first, second = (summarize(part, date_format) for part in (array[:n], array[n:]))
        kinds, _, lines = choose_types({"date": second.joined(first)}, {}, date_format)
        assert kinds == {"date": ""}
        if date_format != "none" and not said:
            assert lines == []
        elif said:
            assert lines[0].startswith(f"date: strings, because {said}"), (n, lines)


def test_dates_of_added_documents_that_are_not_read_are_named(caplog: pytest.LogCaptureFixture) -> None:
    values = from_python(
        ["2000-01-01", "1/2/2000", "soon", "later", "2000-02-30", "2.1.00"] + ["2000-01-02"] * 9
    )
    kinds, _, lines = choose_types({"date": summarize(values)}, {"date": "dates"})
    assert kinds == {"date": ""}
    assert caplog.messages == [
        "date: not all values are dates, as in the corpus of the vocabulary; they stay strings"
    ]
    assert lines[0].startswith("date: strings, because 12 of 15 values are dates, 10 such as '2000-01-01'")


#: Values of a column, the last of which occurs late; its type; and what is stored for the first and the last.
JSON = {
    "integers": ([1, None, -(2**63), 7], pa.int64(), 1, 7),
    "numbers": ([1, 2, 1e-7], pa.float64(), 1.0, 1e-7),
    "exact": ([0.1 + 0.2, 1e300], pa.float64(), 0.1 + 0.2, 1e300),
    "infinite": ([1, 1e400], pa.float64(), 1.0, float("inf")),
    "booleans": ([True, None, False], pa.bool_(), True, False),
    "years": ([1980, 1981, "1982"], pa.int64(), 1980, 1982),
    "late word": ([1, 2, "abc"], pa.string(), "1", "abc"),
    "late number": (["abc", "", 2.5], pa.string(), "abc", "2.5"),
    "late switch": ([1, True], pa.string(), "1", "true"),
    "large": ([1, 2**63], pa.string(), "1", str(2**63)),
    "huge": ([1, 10**400], pa.string(), "1", "1" + "0" * 400),
    "list": ([1, ["é"]], pa.string(), "1", '["é"]'),
    "object": ([1, {"é": None}], pa.string(), "1", '{"é": null}'),
    "from none": ([None, 3], pa.int64(), None, 3),
    "eight": ([20150203, "20150204"], DAY, FEBRUARY, FEBRUARY.replace(day=4)),
    "ts": ([1355517523, 1355517524.5, "1355517525"], UTC, SENT, SENT.replace(second=45)),
    "created_at": ([1355517523000], UTC, SENT, SENT),
    "n_at": ([1355517523, 1], pa.int64(), 1355517523, 1),
    "none": ([None, None], pa.string(), None, None),
}


@pytest.mark.parametrize("small_batches", [False, True], ids=["one batch", "many batches"])
@pytest.mark.parametrize("kind", first_cases(["json lines", "records", "json array"], 2))
def test_values_of_another_type_come_late(
    kind: str, small_batches: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if small_batches:
        monkeypatch.setattr(limits, "BATCH_BYTES", 3000)
        monkeypatch.setattr("streaming_jsmf.ingestion.in_memory.BATCH", 40)
    rows = [
        {
            "id": i,
            "text": text,
            **{name: v[-1 if i == 239 else i % max(1, len(v) - 1)] for name, (v, *_) in JSON.items()},
        }
        for i, text in enumerate(TEXTS)
    ]
    table = ingested(written(kind, tmp_path / "s", rows), tmp_path / "c")
    assert table.num_rows == 240
    for name, (_, expected, first, last) in JSON.items():
        column = table.column(name)
        assert (column.type, column[0].as_py(), column[239].as_py()) == (expected, first, last), name


def test_files_of_several_formats_share_types(tmp_path: Path) -> None:
    """The types of a Parquet file and the strings of other files determine the type together."""
    (tmp_path / "s").mkdir()
    years = [
        {"id": f"p{i}", "text": text, "year": 1990 + i % 5, "day": DATES[i], "n": 1}
        for i, text in enumerate(TEXTS)
    ]
    texts = [{**row, "id": f"c{row['id']}", "year": "2001", "day": "2001-02-03", "n": "x"} for row in years]
    written("parquet", tmp_path / "s" / "a", years)
    written("csv", tmp_path / "s" / "b", texts)
    written(
        "json lines",
        tmp_path / "s" / "c",
        [{**row, "id": f"j{row['id']}", "year": 2002, "n": None} for row in texts],
    )
    table = ingested(tmp_path / "s", tmp_path / "c", reader="text")
    assert table.num_rows == 720
    assert [table.schema.field(name).type for name in ("year", "day", "n")] == [
        pa.int64(),
        pa.date32(),
        pa.string(),
    ]
    assert set(table.column("year").to_pylist()) == {*range(1990, 1995), 2001, 2002}
    assert set(table.column("n").to_pylist()) == {"1", "x", None}


@pytest.mark.parametrize(("lacking", "kind"), each_once(range(3), ["csv", "json lines", "parquet"]))
def test_metadata_that_a_file_lacks_are_null(lacking: int, kind: str, tmp_path: Path) -> None:
    """One of three files lacks the metadata of the others, and has others."""
    (tmp_path / "s").mkdir()
    for number in range(3):
        about = {"other": "x"} if number == lacking else {"n": number, "day": "2001-02-03", "name": "y"}
        rows = [{"id": f"{number}-{i}", "text": text, **about} for i, text in enumerate(TEXTS[:40])]
        written(kind, tmp_path / "s" / str(number), rows)
    all_of = {"id": "id", "text": "text"}
    for name, read in (("all", all_of), ("some", {**all_of, "metadata": ("n", "day", "name")})):
        table = ingested(tmp_path / "s", tmp_path / name, **read)
        stored = {each: table.column(each).to_pylist()[::40] for each in ("n", "day", "name")}
        day = datetime.date(2001, 2, 3)
        for each, values in {"n": [0, 1, 2], "day": [day] * 3, "name": ["y"] * 3}.items():
            values[lacking] = None
            assert stored[each] == values
        assert ("other" in table.column_names) == (name == "all")
    table = ingested(tmp_path / "s", tmp_path / "again", **all_of)
    assert table.column("other").to_pylist()[::40] == [("x" if i == lacking else None) for i in range(3)]


def test_bags_of_words_get_the_columns_of_texts(tmp_path: Path) -> None:
    """Files of bags with missing, additional and differently typed columns, beside files of texts with the same."""
    files: list[dict[str, Any]] = [
        {
            "year": [1990, 1991],
            "name": pa.array(["a", None]).dictionary_encode(),
            "n": [1, 2],
            "day": DATES[:2],
        },
        {"year": [1992.0, None], "late": [5, 6], "day": ["2001-02-03", None]},
        {"name": ["b", "c"], "n": ["x", "7"], "late": [None, 7], "tags": [["t"], None], "day": [None, None]},
    ]
    bags = {"ids": [[0, 1], [1, 2]], "counts": [[1, 2], [3, 1]]}
    for kind, columns in (("text", {"text": ["ant bee bee", "bee bee bee cat"]}), ("bags", bags)):
        (tmp_path / kind).mkdir()
        for number, about in enumerate(files):
            pq.write_table(pa.table({**columns, **about}), tmp_path / kind / f"{number}.parquet")
    (tmp_path / "bags" / "vocab.txt").write_text("ant\nbee\ncat\n")
    stored = {}
    for kind in ("text", "bags"):
        table = ingested(tmp_path / kind, tmp_path / f"of-{kind}", stop_words="none")
        stored[kind] = table.drop_columns(["ids", "counts"])
    assert stored["bags"].schema == stored["text"].schema
    assert stored["bags"].equals(stored["text"])
    assert stored["bags"].column("late").to_pylist() == [None, None, 5, 6, None, 7]
    assert stored["bags"].column("n").to_pylist() == ["1", "2", None, None, "x", "7"]
    assert stored["bags"].column("year").to_pylist() == [1990.0, 1991.0, 1992.0, None, None, None]
    days = [*DATES[:2], datetime.date(2001, 2, 3), None, None, None]
    assert stored["bags"].column("day").to_pylist() == days


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"counts": [[0.5, 2.0], [3.0, 1.0]]},
            "counts are floating-point numbers, those of the first file integers",
        ),
        ({"doc_id": [1.5, 2]}, "column 'doc_id' is double; document ids are strings or integers"),
        ({"doc_id": None}, "there is no column 'doc_id'; it has ids, counts, n"),
    ],
)
def test_bags_of_words_with_other_counts_or_ids_are_refused(
    change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    columns = {"ids": [[0, 1], [1, 2]], "counts": [[1, 2], [3, 1]], "doc_id": ["a", "b"], "n": [1, 2]}
    other = {name: values for name, values in {**columns, **change}.items() if values is not None}
    for number, table in enumerate((columns, other)):
        pq.write_table(pa.table(table), tmp_path / f"{number}.parquet")
    (tmp_path / "vocab.txt").write_text("ant\nbee\ncat\n")
    target = tmp_path.parent / f"{tmp_path.name}-corpus"
    with pytest.raises(sj.InputError, match=rf"1\.parquet: .*{said}"):
        sj.ingest(tmp_path, target, reader="bag-of-words-parquet", id="doc_id")


def test_columns_of_added_documents_are_those_of_the_corpus(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Documents over the vocabulary of a corpus get the types of its columns; each misfit column is one warning."""
    rows = [{"id": i, "text": text, "n": "1.5", "code": "x", "m": "2"} for i, text in enumerate(TEXTS)]
    ingested(written("csv", tmp_path / "a", rows), tmp_path / "c")
    later = [{**row, "id": f"l{row['id']}", "n": "3", "code": "7", "m": "two"} for row in rows]
    table = ingested(written("csv", tmp_path / "b", later), tmp_path / "d", vocabulary=tmp_path / "c")
    assert [table.schema.field(name).type for name in ("n", "code", "m")] == [
        pa.float64(),
        pa.string(),
        pa.string(),
    ]
    assert table.num_rows == 240
    (line,) = [each.message for each in caplog.records if each.levelname == "WARNING"]
    assert line.startswith("m: not all values are integers")
    for corpus, label in (("c", 2), ("d", "two")):
        store = sj.scan(tmp_path / corpus, tmp_path / f"of-{corpus}", max_topics=3, partition_by="m")
        assert [partition.label for partition in store.manifest.partitions] == [label]


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_types_do_not_depend_on_how_the_work_is_divided(
    scheduler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{**row, "mixed": 5 if i % 2 else "x", "score": i / 7} for i, row in enumerate(ROWS[:90])]
    for i in range(60, 90):
        rows[i]["late"] = i
    source = written("json lines", tmp_path / "s", rows)
    whole = ingested(source, tmp_path / "whole")
    monkeypatch.setattr(limits, "BATCH_BYTES", 8000)
    monkeypatch.setattr(limits, "UNIT_BYTES", 40_000)
    parts = ingested(source, tmp_path / "parts", scheduler=scheduler, workers=2)
    assert parts.schema == whole.schema
    assert parts.equals(whole)
    assert whole.column("late").to_pylist() == [None] * 60 + [*range(60, 90)]


def test_partitions_of_numbers_and_dates(tmp_path: Path) -> None:
    """Numbers with a fraction and times label partitions like strings; integers can be given as ranges."""
    rows = [
        {
            "id": i,
            "text": TEXTS[i],
            "year": "" if i % 4 == 3 else f"{1980 + i % 4}.0",
            "score": f"{i % 2}.5",
            "at": f"199{i % 3}-01-01 10:00",
        }
        for i in range(240)
    ]
    sj.ingest(written("csv", tmp_path / "s", rows), tmp_path / "c", IngestRequest(preset="papers"))
    expected = {
        "year": [1980, 1981, 1982, None],
        "score": ["0.5", "1.5"],
        "at": [f"199{i}-01-01T10:00:00" for i in range(3)],
    }
    for column, labels in expected.items():
        store = sj.scan(tmp_path / "c", tmp_path / column, max_topics=3, partition_by=column)
        assert [partition.label for partition in store.manifest.partitions] == labels
