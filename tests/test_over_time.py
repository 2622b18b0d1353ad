"""over-time: means, intervals, changes and words of topics per period, compared with the same from whole matrices."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import scipy.stats
from numpy.typing import NDArray

import streaming_jsmf as sj
from streaming_jsmf.documents import shares as share_files
from streaming_jsmf.documents.groups import Groups
from streaming_jsmf.documents.share_files import open_shares
from streaming_jsmf.topics.store import read_model
from tests.cases import first_cases
from tests.corpora import planted, words
from tests.html_pages import page_at, probabilities_of, values_of
from tests.outcomes import Command, refused
from tests.report_pages import UNDATED, YEARS, edited_model
from tests.stores import write_shares

Floats = NDArray[np.float64]
K, N, M = 4, 60, 240
MONTHS = [None if row == 7 else f"{2000 + row % 5}-{1 + row % 12:02d}-11" for row in range(M)]
COUNTS = planted(M, N, K, length=40, seed=11).counts


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, the corpus of its fit with dates, and shares of it, also in small row groups."""
    place = tmp_path_factory.mktemp("time")
    texts = [" ".join(np.repeat(words(N), row)) for row in COUNTS]
    table = pd.DataFrame({"text": texts, "date": MONTHS, "id": [f"d{row}" for row in range(M)]})
    table["country"] = ["de", "fr"] * (M // 2)
    given = {"text": "text", "id": "id", "metadata": ["date", "country"], "stop_words": "none", "max_df": 1.0}
    model = sj.fit(table, place / "model", K, min_df=1, progress=False, **given)
    sj.transform(model, place / "model.corpus", place / "shares.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(share_files, "ROW_GROUP_ROWS", 50)
        sj.transform(model, place / "model.corpus", place / "small.parquet")
    return place


def test_means_intervals_and_changes(folder: Path) -> None:
    frame = sj.over_time(folder / "model", folder / "shares.parquet", "date:year")
    found = open_shares(folder / "shares.parquet")
    [table] = found.tables([*found.columns, *found.about.columns])
    theta, dates = found.about.dense(table), table.column("date").to_pylist()
    assert list(frame)[:5] == ["year of date", "documents", "topic", "label", "share"]
    assert len(frame) == 5 * K
    for period, group in frame.groupby("year of date"):
        rows = theta[[str(date).startswith(str(period)) for date in dates]]
        error = rows.std(axis=0, ddof=1) / np.sqrt(len(rows))
        assert group["documents"].tolist() == [len(rows)] * K
        np.testing.assert_allclose(group["share"], rows.mean(axis=0))
        np.testing.assert_allclose(group["standard_error"], error, rtol=1e-9)
        np.testing.assert_allclose(group["low"], np.maximum(rows.mean(axis=0) - 1.96 * error, 0))
        np.testing.assert_allclose(group["high"], np.minimum(rows.mean(axis=0) + 1.96 * error, 1))
    one = sj.over_time(folder / "model", folder / "shares.parquet", "date", topic=2)
    pd.testing.assert_frame_equal(one, frame[frame["topic"] == 2].reset_index(drop=True))
    again = sj.TopicModel(folder / "model").over_time("date")
    pd.testing.assert_frame_equal(again, frame)


def changes(share: Floats, error: Floats, documents: NDArray[np.int64]) -> tuple[Floats, Floats]:
    return Groups("year", tuple(range(len(share))), documents, share, error).change


def test_the_change_is_that_from_the_first_to_the_last_third() -> None:
    rng = np.random.default_rng(0)
    documents, error = np.array([5, 20, 1, 9, 4, 3]), np.array([[0.1, 0.2, np.nan, 0.3, 0.1, 0.2]]).T
    share = rng.random((6, 1))
    change, deviation = changes(share, error, documents)
    first, last = (np.average(share[part, 0], weights=documents[part]) for part in (slice(2), slice(4, 6)))
    np.testing.assert_allclose(change, last - first)
    drawn = share + error * rng.standard_normal((6, 40_000))
    spread = changes(np.nan_to_num(drawn), np.broadcast_to(error, drawn.shape), documents)[0].std()
    np.testing.assert_allclose(spread, deviation[0], rtol=0.02)
    # A single document has the mean standard deviation of the others.
    one = np.array([[np.nan, 0.1, 0.1]]).T
    known = np.sqrt(0.1**2 * (4 * 4 + 9 * 9) / 13)
    np.testing.assert_allclose(changes(share[:3], one, np.array([1, 4, 9]))[1], np.hypot(known, 0.1))
    np.testing.assert_allclose(changes(share[:2], error[:2], documents[:2])[0], share[1] - share[0])
    assert np.isnan(changes(share[:1], error[:1], documents[:1])[0]).all()


@pytest.mark.parametrize("shares", ["shares.parquet", "small.parquet"])
def test_words_of_a_period_are_those_of_expected_counts(folder: Path, shares: str) -> None:
    model, corpus = folder / "model", sj.open_corpus(folder / "model.corpus")
    frame = sj.over_time(model, folder / shares, "date:year", corpus=corpus, words=3)
    counts, names = sj.corpus_to_matrix(corpus)
    stored = read_model(model).arrays
    order = [list(stored["word"]).index(name) for name in names]
    phi = stored["word_topic"][order]
    found = open_shares(folder / "shares.parquet")
    theta = np.concatenate([theta for theta, _ in found.dense()])
    dates = [date for table in found.tables(["date"]) for date in table.column("date").to_pylist()]
    tokens = counts.toarray()[:, :, None] * theta[:, None, :] * phi[None]
    tokens /= np.maximum((theta @ phi.T)[:, :, None], 1e-300)
    total = tokens.sum(axis=0)
    overall = (total + 1e-9) / (total + 1e-9).sum(axis=0)
    for period, topic, listed in zip(frame["year of date"], frame["topic"], frame["words"], strict=True):
        own = tokens[[str(date).startswith(str(period)) for date in dates], :, topic].sum(axis=0)
        smoothed = own + 50 * overall[:, topic]
        p = smoothed / smoothed.sum()
        relevance = 0.6 * np.log(p) + 0.4 * np.log(p / overall[:, topic])
        best = np.sort(relevance)[::-1][:3]
        np.testing.assert_allclose(
            [relevance[names.index(word)] for word in listed.split(", ")], best, rtol=1e-6
        )


def test_the_verb(folder: Path, tmp_path: Path, invoke: Command) -> None:
    def printed(*arguments: object) -> str:
        outcome = invoke("over-time", folder / "model", folder / "shares.parquet", *arguments)
        assert outcome.code == 0
        return outcome.out

    summary = printed("--by", "date")
    assert summary.startswith(f"5 values of year of date, 2000 to 2004; {M - 1} documents\n")
    frame = sj.over_time(folder / "model", folder / "shares.parquet", "date")
    rising = frame.loc[frame["change"].idxmax()]
    line = next(line for line in summary.splitlines() if line.split()[:1] == [str(rising["topic"])])
    assert f"{100 * rising['change']:+.1f} +- {196 * rising['change_error']:.1f}" in line
    assert line.endswith(rising["label"])
    series = printed("--by", "date:month", "--topic", 1, "--corpus", folder / "model.corpus", "--words", 2)
    assert len(series.splitlines()) == 2 + 60
    assert series.splitlines()[-1].count(", ") == 1
    rows = [*csv.DictReader(io.StringIO(printed("--by", "date", "--csv")))]
    assert [float(row["share"]) for row in rows] == frame["share"].tolist()
    assert len(json.loads(printed("--by", "date:quarter", "--json"))) == 20 * K
    out = tmp_path / "time.parquet"
    assert printed("--by", "date", "--out", out) == f"over-time: {out} ({5 * K} rows)\n"


def test_edits_apply(folder: Path, tmp_path: Path) -> None:
    model = sj.TopicModel(folder / "model").save(tmp_path / "model").merge([2, 0]).hide(1).label(3, "named")
    frame = model.over_time("date", folder / "shares.parquet", corpus=folder / "model.corpus", words=2)
    plain = sj.over_time(folder / "model", folder / "shares.parquet", "date")
    assert frame["topic"].unique().tolist() == [2, 3]
    assert set(frame.loc[frame["topic"] == 3, "label"]) == {"named"}
    both = plain[plain["topic"] == 0]["share"].values + plain[plain["topic"] == 2]["share"].values
    np.testing.assert_allclose(frame[frame["topic"] == 2]["share"], both)
    assert (frame["words"].str.count(", ") == 1).all()
    with pytest.raises(sj.InputError, match="by is missing"):
        model.over_time(None, folder / "shares.parquet")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--by", "country"), "'country' holds 'de'; give one of numbers or dates"),
        (("--by", "no"), "no column 'no'"),
        (("--by", "date", "--words", 3), "--words requires --corpus"),
        (("--by", "date", "--topic", 9), "there is no topic 9"),
        (("--by", "date", "--corpus", "{folder}/other"), "not shares of the corpus {folder}/other; give"),
    ],
)
def test_bad_requests(folder: Path, invoke: Command, arguments: tuple[object, ...], said: str) -> None:
    if not (folder / "other").exists():
        # Documents of the same ids, which lack most periods.
        texts = pa.table({"id": ["d0", "d1"], "text": [" ".join(words(N))] * 2, "date": MONTHS[:2]})
        pq.write_table(texts, folder / "other.parquet")
        options = {"text": "text", "id": "id", "stop_words": "none", "min_df": 1, "max_df": 1.0}
        sj.ingest(folder / "other.parquet", folder / "other", metadata=["date"], **options)
    given = [str(part).format(folder=folder) for part in arguments]
    outcome = invoke("over-time", folder / "model", folder / "shares.parquet", *given)
    *left_out, line = outcome.err.splitlines()
    assert left_out in ([], ["over-time: documents without date, which are left out: 1 of 240"])
    refused(replace(outcome, err=line), 2, said.format(folder=folder))


@pytest.fixture(scope="module")
def edited(tmp_path_factory: pytest.TempPathFactory) -> tuple[sj.TopicModel, Path]:
    return edited_model(tmp_path_factory.mktemp("edited"))


YEAR_OF_ROW = [YEARS[row % 5] if row % 3 else None for row in range(3 * UNDATED)]
COLUMNS = {
    "int": pa.array(YEAR_OF_ROW),
    "float": pa.array([float("nan") if year is None else float(year) for year in YEAR_OF_ROW]),
    "date": pa.array([None if year is None else date(year, 5, 1) for year in YEAR_OF_ROW]),
    "text date": pa.array(["undated" if year is None else f"{year}/5/1" for year in YEAR_OF_ROW]),
    "category": pa.array([None if year is None else str(year) for year in YEAR_OF_ROW]).dictionary_encode(),
    "single": pa.array([1990 if year else None for year in YEAR_OF_ROW]),
    "all null": pa.nulls(len(YEAR_OF_ROW), pa.string()),
    "nested": pa.array([[year] for year in YEAR_OF_ROW]),
    "number:month": pa.array(YEAR_OF_ROW),
}


REFUSED = {
    "nested": "holds lists; groups are made of texts, numbers and dates",
    "number:month": "column 'number' holds 1991; months are made of dates",
}


@pytest.mark.parametrize("name", first_cases(COLUMNS, 3))
def test_documents_over_time_and_the_report_agree_where_dates_are_missing(
    edited: tuple[sj.TopicModel, Path], tmp_path: Path, invoke: Command, name: str
) -> None:
    model, given = edited
    page = tmp_path / "page.html"
    table = pq.read_table(given).add_column(1, name.removesuffix(":month"), COLUMNS[name])
    write_shares(shares := tmp_path / "shares.parquet", table, given)
    by = f"{name}:year" if name == "text date" else name
    verbs = (
        ("documents", model.path, shares, "--by", by, "--csv"),
        ("over-time", model.path, shares, "--by", by, "--csv"),
        ("report", model.path, page, "--shares", shares, "--by", by),
    )
    outcomes = [invoke(*verb) for verb in verbs]
    if said := REFUSED.get(name):
        for outcome in outcomes:
            refused(outcome, 2, said)
        return
    documents = pd.read_csv(io.StringIO(outcomes[0].out))
    groups = values_of(page_at(page))["groups"]
    column = re.sub("^year of .*", lambda name: name[0].replace(" ", "_"), groups["column"])
    unknown = documents[column].isna()
    assert documents.loc[unknown, "documents"].unique().tolist() == [
        len(YEAR_OF_ROW) if name == "all null" else UNDATED
    ]
    for field, packed in (("share", "shares"), ("standard_error", "errors")):
        np.testing.assert_allclose(probabilities_of(groups[packed]), documents[field], rtol=4e-4)
    assert np.repeat(groups["documents"], 4).tolist() == documents["documents"].tolist()
    assert groups["names"][-1] == "not known"
    if name in ("int", "float"):
        assert groups["names"][:-1] == [str(year) for year in sorted(YEARS)]
        assert f"\n{min(YEARS)}," in outcomes[1].out
    if name == "all null":
        refused(replace(outcomes[1], err=outcomes[1].err.splitlines()[-1]), 2, "'all null' holds no dates")
        return
    over_time = pd.read_csv(io.StringIO(outcomes[1].out))
    assert (
        outcomes[1].err
        == f"over-time: documents without {by}, which are left out: {UNDATED} of {len(YEAR_OF_ROW)}\n"
    )
    same = ["documents", "topic", "label", "share", "standard_error", column]
    pd.testing.assert_frame_equal(
        over_time[same], documents.loc[~unknown, same].reset_index(drop=True), check_dtype=False
    )
    pd.testing.assert_frame_equal(model.over_time(by, shares), sj.over_time(model, shares, by))
    if name == "single":
        assert (groups["drawn"], groups["trend"]) == (2, None)
        assert over_time["change"].isna().all()
        return
    assert groups["drawn"] == len(YEARS) == len(over_time) / 4
    np.testing.assert_allclose(groups["trend"]["change"], over_time["change"][:4], rtol=1e-4)


def test_a_change_without_an_error_is_in_the_report_as_in_over_time(
    edited: tuple[sj.TopicModel, Path], tmp_path: Path
) -> None:
    """A single document in each period."""
    model, given = edited
    table = pq.read_table(given).slice(0, 3)
    place = table.schema.get_field_index("year")
    dated = table.set_column(place, "year", pa.array([1, 2, 3]))
    write_shares(tmp_path / "three.parquet", dated, given)
    frame = sj.over_time(model, tmp_path / "three.parquet", "year")
    assert frame["change"].notna().all()
    assert frame["change_error"].isna().all()
    sj.report(model, tmp_path / "page.html", shares=tmp_path / "three.parquet")
    table_of_changes = page_at(tmp_path / "page.html").one("table", "changes").text
    assert "±" not in table_of_changes
    assert "nan" not in table_of_changes
    assert "%" in table_of_changes


def test_a_week_belongs_to_the_year_in_its_name(folder: Path, tmp_path: Path, invoke: Command) -> None:
    """ISO week 2020-W01 begins in 2019."""
    table = pq.read_table(folder / "shares.parquet")
    weeks = [("2020-W01", "2020-W53", "2021-W01")[row % 3] for row in range(len(table))]
    write_shares(
        tmp_path / "weeks.parquet", table.add_column(1, "week", pa.array(weeks)), folder / "shares.parquet"
    )
    by_year = sj.over_time(folder / "model", tmp_path / "weeks.parquet", "week:year")
    assert by_year["year of week"].unique().tolist() == ["2020", "2021"]
    by_week = sj.over_time(folder / "model", tmp_path / "weeks.parquet", "week")
    assert by_week["week"].unique().tolist() == ["2020-W01", "2020-W53", "2021-W01"]
    quarters = pa.array([f"{2019 + row % 2}-Q{1 + row % 4}" for row in range(len(table))])
    write_shares(
        tmp_path / "quarters.parquet", table.add_column(1, "when", quarters), folder / "shares.parquet"
    )
    by_quarter = sj.over_time(folder / "model", tmp_path / "quarters.parquet", "when:quarter")
    assert by_quarter["quarter of when"].unique().tolist() == sorted({*quarters.to_pylist()})
    refused(
        invoke("over-time", folder / "model", tmp_path / "weeks.parquet", "--by", "week:week"),
        2,
        "names no period; those of dates are year, quarter, month, day",
    )


def test_periods_of_groups(folder: Path, tmp_path: Path, invoke: Command) -> None:
    """Each group of documents has the periods and changes that it has alone."""
    model, shares = folder / "model", folder / "shares.parquet"
    frame = sj.over_time(model, shares, "date:year,country", corpus=folder / "model.corpus", words=2)
    assert list(frame)[:3] == ["country", "year of date", "documents"]
    pd.testing.assert_frame_equal(
        frame.drop(columns="words"), sj.over_time(model, shares, ["country", "date"])
    )
    [table] = (found := open_shares(shares)).tables([*found.columns, *found.about.columns])
    for country, group in frame.groupby("country"):
        own = tmp_path / f"{country}.parquet"
        write_shares(own, table.filter(pc.equal(table.column("country"), country)), shares)
        alone = sj.over_time(model, own, "date")
        pd.testing.assert_frame_equal(group[[*alone]].reset_index(drop=True), alone)
        few, spread = group["documents"] < 30, (group["share"] - group["low"]) / group["standard_error"]
        assert few.all()
        inside = (group["low"] > 0) & (group["high"] < 1)
        wide = scipy.stats.t.ppf(0.975, group["documents"] - 1)
        np.testing.assert_allclose(spread[inside], wide[inside], rtol=1e-6)
    assert frame["words"].str.count(", ").eq(1).all()
    # The column of dates is the time wherever it stands, also beside numbers.
    stars = table.add_column(1, "stars", pa.array([1 + row % 3 for row in range(table.num_rows)]))
    write_shares(tmp_path / "stars.parquet", stars, shares)
    for by in ("stars,date", "date,stars"):
        assert list(sj.over_time(model, tmp_path / "stars.parquet", by))[:2] == ["stars", "year of date"]
    text = invoke("over-time", model, shares, "--by", "country,date").out
    assert "country: de; 5 values of year of date, 2000 to 2004; " in text
    text = invoke("over-time", model, shares, "--by", "country,date", "--topic", 1).out
    assert "country: fr; topic 1: " in text
    assert "; * fewer than 30 documents\n" in text
    assert len(text.splitlines()) == 2 * (2 + 5)
    refused(
        invoke("over-time", model, shares, "--by", "country,document_id"), 2, "holds ", "numbers or dates"
    )
    page = tmp_path / "page.html"
    assert invoke("report", model, page, "--shares", shares, "--by", "country,date").code == 0
    tree = page_at(page)
    links = [link.text for link in tree.one("nav").all("a")]
    assert links[5:8] == ["By year of date", "By country", "By country and year of date"]
    values = values_of(tree)
    [countries, cells] = values["views"]
    assert (values["groups"]["names"][0], countries["names"]) == ("2000", ["de", "fr"])
    assert cells["names"][:2] == ["de, 2000", "de, 2001"]
    assert cells["lines"]["periods"] == ["2000", "2001", "2002", "2003", "2004"]
    assert [line["name"] for line in cells["lines"]["of"]] == ["de", "fr"]
    assert sum(cells["documents"]) == M
    assert all(cells["few"])
