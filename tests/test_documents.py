"""documents: what is answered from topic shares, compared with the same from the whole matrix."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from streaming_jsmf import Execution, InputError, documents_of_topic, shares_by, similar_documents, transform
from streaming_jsmf.documents import shares as share_files
from streaming_jsmf.documents.model_shares import ModelShares
from streaming_jsmf.documents.share_files import open_shares
from streaming_jsmf.reporting.views import views_of
from tests.corpora import planted, words
from tests.outcomes import Command, refused
from tests.stores import write_shares
from tests.test_transform import K, N, save_model, shares_of, write_named

YEARS = np.array([-1 if row == 5 else 1990 + row % 3 for row in range(90)])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(
        tmp_path_factory.mktemp("models") / "model", planted(90, N, K, length=30, seed=3).word_topic
    )


@pytest.fixture(scope="module", params=["s.parquet", "s.zarr", "s"])
def shares(request: pytest.FixtureRequest, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shares")
    corpus = write_named(folder / "corpus", planted(90, N, K, length=30, seed=3).counts, words(N))
    with pytest.MonkeyPatch.context() as patch:
        # Several row groups, so that the answers are put together from pieces.
        patch.setattr(share_files, "ROW_GROUP_ROWS", 16)
        transform(model, corpus, folder / request.param, execution=Execution("synchronous"))
    return folder / str(request.param)


@pytest.fixture(scope="module")
def theta(shares: Path) -> NDArray[np.float64]:
    return shares_of(shares)


def test_documents_of_a_topic(model: Path, shares: Path, theta: NDArray[np.float64]) -> None:
    frame = documents_of_topic(model, shares, 2, number=7)
    order = np.argsort(-theta[:, 2], kind="stable")[:7]
    assert list(frame.columns) == ["document_id", "share", "year", "title"]
    assert frame["document_id"].tolist() == [f"d{row}" for row in order]
    assert frame["title"].tolist() == [f"title {row}" for row in order]
    np.testing.assert_array_equal(frame["share"], theta[order, 2])
    assert len(documents_of_topic(model, shares, 0, number=1000)) == 90


@pytest.fixture(scope="module")
def plain(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shares beside their corpus ``c``."""
    folder = tmp_path_factory.mktemp("plain")
    corpus = write_named(folder / "c", planted(90, N, K, length=30, seed=3).counts, words(N))
    transform(model, corpus, folder / "s.parquet", execution=Execution("synchronous"))
    return folder / "s.parquet"


def shares_with(plain: Path, folder: Path, **columns: pa.Array) -> Path:
    """The plain shares with more columns of metadata."""
    table = pq.read_table(plain)
    for name, values in columns.items():
        table = table.add_column(table.num_columns - 1, name, values)
    write_shares(folder / "s.parquet", table, plain)
    return folder / "s.parquet"


def test_dates_are_grouped_by_periods(model: Path, plain: Path, tmp_path: Path) -> None:
    days = [f"19{99 if row % 2 else 98}-{1 + row % 12:02d}-{1 + row % 3:02d}" for row in range(89)]
    text = pa.array([*days, None])
    slashes = [day and f"{day.replace('-0', '/').replace('-', '/')} 7:11" for day in text.to_pylist()]
    kinds = {
        "date": text,
        "slashes": pa.array(slashes),
        "typed": text.cast(pa.date32()),
        "timestamp": text.cast(pa.timestamp("s")),
    }
    shares = shares_with(plain, tmp_path, **kinds, created=pa.array(["24-02-2015"] * 90))
    theta = shares_of(shares)[:, 0]
    for unit, cut in (("year", 4), ("quarter", 7), ("month", 7), ("day", 10)):
        keys = [f"{day[:4]}-Q{(int(day[5:7]) + 2) // 3}" if unit == "quarter" else day[:cut] for day in days]
        groups = {key: theta[:-1][[k == key for k in keys]] for key in sorted(set(keys))}
        for kind in kinds:
            frame = shares_by(model, shares, f"{kind}:{unit}", 0)
            assert frame.columns[0] == f"{unit} of {kind}"
            assert frame.iloc[:, 0].tolist() == [*groups, None]
            means = [*(group.mean() for group in groups.values()), theta[-1]]
            np.testing.assert_allclose(frame["share"], means)
    for kind in ("date", "typed", "timestamp"):
        assert shares_by(model, shares, kind).columns[0] == f"year of {kind}", "by default"
    with pytest.raises(InputError, match=r"has no column 'a\.no'.*read with metadata='a\.no'"):
        shares_by(model, shares, "a.no:month")
    with pytest.raises(
        InputError, match="'date:week' names no period; those of dates are year, quarter, month, day"
    ):
        shares_by(model, shares, "date:week")
    assert set(shares_by(model, shares, "created")["created"]) == {"24-02-2015"}, "not taken for dates"
    with pytest.raises(InputError, match="'created' holds '24-02-2015'; months are made of dates"):
        shares_by(model, shares, "created:month")


NO_DATES = [
    *("1990-24-03", "1990-02-30", "1900-02-29", "1990-04-31", "1990-12-312", "0000-01-01"),
    *("1990-03-24T25:00", "1990-03-24 23:60", "1990-03-24 12:00:61"),
]


def test_dates_that_do_not_exist_are_no_dates(
    model: Path, plain: Path, tmp_path: Path, invoke: Command
) -> None:
    days = ["2000-02-29", *NO_DATES, "2000-02-29 23:59:60", "2000-00-00"]
    dates = pa.array([days[row % len(days)] for row in range(90)])
    shares = shares_with(plain, tmp_path, date=dates, when=pa.array(["1990-11", "1990-24"] * 45))
    for unit, period in (
        ("year", "2000"),
        ("quarter", "2000-Q1"),
        ("month", "2000-02"),
        ("day", "2000-02-29"),
    ):
        undated = sum(day in NO_DATES or (unit != "year" and day == days[-1]) for day in dates.to_pylist())
        frame = shares_by(model, shares, f"date:{unit}", 0)
        assert frame.iloc[:, 0].tolist() == [period, None]
        assert frame["documents"].tolist() == [90 - undated, undated]
        over_time = json.loads(invoke("over-time", model, shares, "--by", f"date:{unit}", "--json").out)
        assert {row[f"{unit} of date"] for row in over_time} == {period}
    refused(invoke("over-time", model, shares, "--by", "when"), 2, "'when' holds '1990-24'")


#: Values that have no groups, and what is said to hold.
NESTED: dict[str, tuple[pa.Array, str]] = {
    "objects": (pa.array([{"name": "a"}] * 90), "objects; groups are made of texts, numbers and dates"),
    "lists": (pa.array([["a"]] * 90), "lists"),
    "mappings": (pa.array([[("a", 1)]] * 90, pa.map_(pa.string(), pa.int32())), "mappings"),
    "bytes": (pa.array([b"\xff"] * 90), "binary"),
    "coded": (pa.array([b"\xff"] * 90).dictionary_encode(), ""),
    "uuid": (pa.array([b"\xff" * 16] * 90, pa.uuid()), ""),
}

#: Values that have no periods.
UNDATED: dict[str, tuple[pa.Array, str]] = {
    "integers": (pa.array([1355517523] * 90), "1355517523; months are made of dates: ingest the texts again"),
    "years": (pa.array([1999] * 90), "1999; months are"),
    "floats": (pa.array([1.5] * 90), "1.5; months are"),
    "texts": (pa.array(["May 4"] * 90), "'May 4'; months are"),
}


def test_groups_are_not_made_of_objects_nor_periods_of_numbers(
    model: Path, plain: Path, tmp_path: Path, invoke: Command
) -> None:
    shares = shares_with(
        plain, tmp_path, **{name: values for name, (values, _) in (NESTED | UNDATED).items()}
    )
    of_report = ModelShares.open(model, shares).of_shown
    for name, (_, held) in (NESTED | UNDATED).items():
        by = f"{name}:month" if name in UNDATED else name
        for verb in ("documents", "over-time"):
            refused(invoke(verb, model, shares, "--by", by), 2, f"column {name!r}", f"holds {held}")
        with pytest.raises(InputError, match=f"column {name!r} "):
            views_of(of_report, by)
    [[found]] = views_of(of_report, None)
    assert found.column == "year", "without --by, a report takes a column of time"


@pytest.mark.parametrize("unit", ["s", "us", "day"])
def test_dates_that_python_cannot_show_are_left_out_with_their_number(
    unit: str, model: Path, plain: Path, tmp_path: Path, invoke: Command
) -> None:
    """Some of Parquet are of years after 9999, or before 1."""
    days = np.where(np.arange(90) % 3 == 0, 4_000_000, np.where(np.arange(90) % 3 == 1, -800_000, 10_957))
    per_day = {"s": 86_400, "us": 86_400 * 10**6, "day": 1}[unit]
    values = pa.array(days.astype(np.int32)).view(pa.date32())
    if unit != "day":
        values = pa.array(days * per_day).view(pa.timestamp(unit))
    shares = shares_with(plain, tmp_path, at=values)
    for options in (
        ("documents", "--by", "at:month"),
        ("over-time", "--by", "at"),
        ("documents", "--topic", "1"),
    ):
        verb, *others = options
        outcome = invoke(verb, model, shares, *others, "--json")
        assert outcome.code == 0, outcome.err
        held = {
            str(row.get("at", row.get("month of at", row.get("year of at"))))[:4]
            for row in json.loads(outcome.out)
        }
        assert held <= {"2000", "None"}
        assert "2000" in held


def test_groups_of_categories(model: Path, plain: Path, tmp_path: Path) -> None:
    kinds = pa.array(["a", "b", None] * 30).dictionary_encode()
    frame = shares_by(model, shares_with(plain, tmp_path, kind=kinds), "kind", 0)
    assert frame["kind"].tolist()[:2] == ["a", "b"]
    assert frame["kind"].isna().tolist() == [False, False, True]
    assert frame["documents"].tolist() == [30] * 3


def test_whole_numbers_beside_missing_ones_are_exact(model: Path, plain: Path, tmp_path: Path) -> None:
    large = pa.array([2**53 + 1, None, 2**53] * 30)
    shares = shares_with(plain, tmp_path, large=large)
    assert shares_by(model, shares, "large", 0)["large"].tolist() == [2**53, 2**53 + 1, None]
    listed = documents_of_topic(model, shares, 0, 90, columns=["large"])["large"]
    assert {*listed} == {2**53, 2**53 + 1, None}


def test_numbers_that_json_lacks_are_null(model: Path, plain: Path, tmp_path: Path, invoke: Command) -> None:
    shares = shares_with(plain, tmp_path, number=pa.array([1.5, float("nan"), float("inf")] * 30))
    for asked in (("--by", "number"), ("--topic", "0", "--columns", "number", "--number", "90")):
        rows = json.loads(
            invoke("documents", model, shares, *asked, "--json").out, parse_constant=pytest.fail
        )
        assert {row["number"] for row in rows} == {1.5, None}


@pytest.mark.parametrize(
    "command",
    [
        ("documents", "--by", "label"),
        ("over-time", "--by", "low"),
        ("documents", "--topic", "1"),
        ("documents", "--similar", "d3"),
        ("documents", "--outliers", "c"),
    ],
)
def test_metadata_with_the_name_of_a_column_of_the_answer(
    command: tuple[str, ...], model: Path, plain: Path, tmp_path: Path, invoke: Command
) -> None:
    """Both columns are in the answer; that of the documents has another name."""
    years = pa.array([1990 + row % 3 for row in range(90)])
    shares = shares_with(
        plain, tmp_path, **dict.fromkeys(("label", "low", "share", "distance", "gain"), years)
    )
    verb, option, value = command
    column = {"--topic": "share", "--similar": "distance", "--outliers": "gain"}.get(option, value)
    said = invoke(verb, model, shares, option, plain.parent / "c" if value == "c" else value, "--json")
    assert said.code == 0, said.err
    rows = json.loads(said.out)
    assert {row[f"{column}_"] for row in rows} <= {1990, 1991, 1992}
    assert all(column in row for row in rows)


def test_shares_by_a_column(model: Path, shares: Path, theta: NDArray[np.float64]) -> None:
    frame = shares_by(model, shares, "year")
    # The year of document 5 is not known: its group is the last.
    assert frame["topic"].tolist() == list(range(K)) * 4
    for place, year in enumerate([1990, 1991, 1992, -1]):
        rows = theta[year == YEARS]
        group = frame.iloc[K * place : K * (place + 1)]
        assert group["documents"].tolist() == [len(rows)] * K
        np.testing.assert_allclose(group["share"], rows.mean(axis=0), rtol=1e-12)
        if year < 0:
            assert group["year"].isna().all()
            assert group["standard_error"].isna().all()
        else:
            assert group["year"].tolist() == [year] * K
            errors = rows.std(axis=0, ddof=1) / np.sqrt(len(rows))
            np.testing.assert_allclose(group["standard_error"], errors, rtol=1e-9)
    one = shares_by(model, shares, "year", topic=3)
    np.testing.assert_array_equal(one["share"], frame["share"][3::K])
    np.testing.assert_allclose(shares_by(model, shares)["share"], theta.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(shares_by(model, shares, topic=3)["share"], [theta[:, 3].mean()], rtol=1e-12)


def test_similar_documents(model: Path, shares: Path, theta: NDArray[np.float64]) -> None:
    frame = similar_documents(model, shares, "d40", number=5)
    distance = np.sqrt(((np.sqrt(theta) - np.sqrt(theta[40])) ** 2).sum(axis=1) / 2)
    distance[40] = np.inf
    order = np.argsort(distance, kind="stable")[:5]
    assert frame["document_id"].tolist() == [f"d{row}" for row in order]
    np.testing.assert_allclose(frame["distance"], distance[order], rtol=1e-12)


def test_shares_that_were_not_kept_count_as_none(model: Path, shares: Path, tmp_path: Path) -> None:
    out = tmp_path / "top.parquet"
    transform(model, shares.parent / "corpus", out, top=1, execution=Execution("synchronous"))
    kept = shares_of(out)
    np.testing.assert_allclose(shares_by(model, out)["share"], kept.mean(axis=0), rtol=1e-12)
    frame = documents_of_topic(model, out, 1, number=90)
    assert (frame["share"] > 0).sum() == (kept[:, 1] > 0).sum() < 90


def test_the_verb_prints(
    model: Path, shares: Path, theta: NDArray[np.float64], tmp_path: Path, invoke: Command
) -> None:
    def printed(*arguments: str) -> str:
        outcome = invoke("documents", model, shares, *arguments)
        assert outcome.code == 0
        return outcome.out

    best = int(np.argmax(theta[:, 2]))
    lines = printed("--topic", "2", "--number", "3").splitlines()
    assert lines[0].split() == ["document_id", "share"]
    assert len(lines) == 1 + 3 * 3
    assert lines[1].split() == [f"d{best}", f"{theta[best, 2]:.4f}"]
    assert lines[3].split() == ["title:", "title", str(best)]
    titles = printed("--topic", "2", "--number", "3", "--columns", "title").splitlines()
    assert titles == [line for line in lines if "year" not in line]
    rows = list(csv.DictReader(io.StringIO(printed("--topic", "2", "--csv"))))
    assert len(rows) == 10
    assert (rows[0]["document_id"], float(rows[0]["share"])) == (f"d{best}", theta[best, 2])
    told = json.loads(printed("--by", "year", "--topic", "1", "--json"))
    assert [row["documents"] for row in told] == [30, 30, 29, 1]
    assert told[3]["standard_error"] is None
    assert json.loads(printed("--similar", "d3", "--number", "1", "--json"))[0]["document_id"] != "d3"
    assert len(printed().splitlines()) == K + 1
    out = tmp_path / "answer.parquet"
    assert printed("--by", "title", "--out", str(out)) == f"documents: {out} ({90 * K} rows)\n"
    assert pq.read_table(out).column_names == [
        "title",
        "documents",
        "topic",
        "label",
        "share",
        "standard_error",
    ]
    refused(invoke("documents", model, shares, "--out", out), 2, "--overwrite")
    printed("--out", str(out), "--overwrite")
    assert pq.read_table(out).num_rows == K
    printed("--topic", "1", "--raw", "--out", str(out.with_suffix(".csv")))
    assert out.with_suffix(".csv").read_text() == printed("--topic", "1", "--raw", "--csv")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--topic", "4"], "there is no topic 4; the model has topics 0 to 3"),
        (["--topic", "-1"], "there is no topic -1"),
        (["--by", "month"], "no column 'month'; it has document_id, year, title"),
        (["--similar", "nobody"], "no document 'nobody'"),
        (["--topic", "1", "--number", "0"], "number is 0"),
        (["--by", "year", "--number", "3"], "--number"),
        (["--by", "year", "--columns", "title"], "--columns"),
        (["--topic", "1", "--columns", "month"], "no column 'month'; it has document_id, year, title"),
        (["--topic", "1", "--text", "body"], "leave out --text"),
        (["--similar", "d1", "--topic", "1"], "--similar"),
        (["--csv", "--json"], "exclude each other"),
        (["--out", "answer.txt"], "FILE.parquet or FILE.csv"),
        (["--overwrite"], "--overwrite is for --out"),
        (["--raw"], "--raw is for --csv"),
    ],
)
def test_bad_requests(model: Path, plain: Path, invoke: Command, arguments: list[str], text: str) -> None:
    refused(invoke("documents", model, plain, *arguments), 2, text)


def test_shares_of_another_model_are_refused(
    model: Path, plain: Path, tmp_path: Path, invoke: Command
) -> None:
    other = save_model(tmp_path / "other", planted(9, N, K, seed=8).word_topic)
    refused(invoke("documents", other, plain), 2, f"{plain}: these are shares of another model than {other}")
    with pytest.raises(InputError, match="is a model, not topic shares; streaming-jsmf transform"):
        shares_by(model, model)
    with pytest.raises(InputError, match="nothing: no such file or directory"):
        shares_by(model, tmp_path / "nothing")


def test_shares_by_several_columns(model: Path, plain: Path, tmp_path: Path, invoke: Command) -> None:
    """Cells, compared with those of pandas; a text and a list name the same columns."""
    days = [None if row == 5 else f"{1999 + row % 2}-0{1 + row % 3}-11" for row in range(90)]
    party = ["a,b" if row < 40 else "c" if row < 88 else None for row in range(90)]
    shares = shares_with(plain, tmp_path, **{"the party, then": pa.array(party), "date": pa.array(days)})
    found = open_shares(shares)
    theta = np.concatenate([part for part, _ in found.dense()])
    rows = pd.DataFrame(theta).assign(
        party=party, month=[day and day[:7] for day in days], documents=1, square=np.square(theta[:, 2])
    )
    by = rows.groupby(["party", "month"], dropna=False, sort=True)
    frame = shares_by(model, shares, ["the party, then", "date:month"])
    spelled = '"the party, then",date:month'
    pd.testing.assert_frame_equal(frame, shares_by(model, shares, spelled))
    assert list(frame)[:4] == ["the party, then", "month of date", "documents", "topic"]
    cells = frame[frame["topic"] == 2]
    # Cells without documents have no row, and values that are not known come last.
    known = [*zip(cells.iloc[:, 0].fillna(""), cells.iloc[:, 1].fillna(""), strict=True)]
    expected = by.sum().reset_index()
    assert sorted(known) == sorted(
        zip(expected["party"].fillna(""), expected["month"].fillna(""), strict=True)
    )
    assert [name for name, _ in known] == ["a,b"] * 7 + ["c"] * 6 + [""] * 2
    assert [name for _, name in known[5:8]] == ["2000-03", "", "1999-01"]
    place = known.index(("c", "2000-02"))
    group = by.get_group(("c", "2000-02"))
    assert cells["documents"].iloc[place] == len(group)
    np.testing.assert_allclose(cells["share"].iloc[place], group[2].mean())
    error = group[2].std(ddof=1) / np.sqrt(len(group))
    np.testing.assert_allclose(cells["standard_error"].iloc[place], error, rtol=1e-6)
    arguments = ("documents", model, shares, "--topic", 2, "--by", spelled)
    listed = json.loads(invoke(*arguments, "--json").out)
    assert [row["share"] for row in listed] == cells["share"].tolist()
    *lines, note = invoke(*arguments).out.splitlines()
    assert note == "* fewer than 30 documents"
    assert all(re.search(r" [0-9]+\* ", line) for line in lines[1:])
    refused(
        invoke(*arguments[:-1], "the party, then"),
        2,
        "no column 'the party'",
        "a name with a comma is quoted",
    )
    refused(invoke(*arguments[:-1], "title,date:decade"), 2, "'date:decade' names no period")
