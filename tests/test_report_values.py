"""What a report reads besides the table of topics: many words, documents, groups, models of several K, checks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from streaming_jsmf import Execution, InputError, documents_of_topic, over_time, shares_by, transform
from streaming_jsmf.documents import shares as share_files
from streaming_jsmf.documents.model_shares import ModelShares
from streaming_jsmf.documents.shares import SharesFile
from streaming_jsmf.evaluation.choice import Measures, choose, fields_of
from streaming_jsmf.evaluation.verdicts import checks_of, warnings_of
from streaming_jsmf.reporting import topics as report_words
from streaming_jsmf.reporting import views
from streaming_jsmf.reporting.contents import documents_of, flow
from streaming_jsmf.reporting.page import packed_probabilities
from streaming_jsmf.reporting.topics import BY_RELEVANCE, LAMBDAS, WordLists, read_word_topic
from streaming_jsmf.reporting.views import views_of
from streaming_jsmf.storage.paths import store_path
from streaming_jsmf.topics.store import Model, read_model, read_model_panels, write_model
from tests import reference
from tests.corpora import planted, words
from tests.html_pages import integers_of, page_at, probabilities_of, values_of
from tests.outcomes import Command, refused
from tests.stores import write_shares
from tests.test_transform import K, N, write_named

Floats = NDArray[np.float64]


def saved(path: Path, word_topic: Floats, spelled: list[str] | None = None) -> Path:
    """A model with no more than a report must have, and what transform needs."""
    n_topics = word_topic.shape[1]
    prior = np.arange(1.0, n_topics + 1) / n_topics
    arrays = {
        "word": np.array(spelled or words(len(word_topic)), dtype=object),
        "topic": np.arange(n_topics),
        "word_topic": word_topic,
        "topic_probability": prior / prior.sum(),
        "term_count": np.ones(len(word_topic)),
        "alpha": prior,
        "prominent_words": np.argsort(-word_topic, axis=0, kind="stable")[:20].T,
    }
    write_model(path, Model(arrays, {}, {}, {"fingerprint": "f"}))
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("values") / "model", planted(90, N, K, length=30, seed=3).word_topic)


@pytest.fixture(scope="module")
def shares(model: Path) -> Path:
    return shares_beside(model)


@pytest.fixture(scope="module")
def opened(model: Path, shares: Path) -> SharesFile:
    return ModelShares.open(model, shares).file


def shares_beside(model: Path) -> Path:
    """Topic shares of 90 documents with a year and a title, in several row groups."""
    folder = model.parent
    corpus = write_named(folder / "corpus", planted(90, N, K, length=30, seed=3).counts, words(N))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(share_files, "ROW_GROUP_ROWS", 16)
        transform(model, corpus, folder / "shares.parquet", execution=Execution("synchronous"))
    return folder / "shares.parquet"


def lists_of(model: Path) -> tuple[WordLists, Floats, Floats, list[str]]:
    arrays = read_model(model).arrays
    panels = read_model_panels(store_path(model), "word_topic")
    found = read_word_topic(panels, arrays["prominent_words"], arrays["topic_probability"], arrays["word"])
    return found.lists, arrays["word_topic"], arrays["topic_probability"], arrays["word"].tolist()


def first_by_relevance(
    word_topic: Floats, shares: Floats, weight: float, topic: int, count: int
) -> list[int]:
    """The obvious way: all words, sorted."""
    overall = word_topic @ shares
    known = [word for word in range(len(word_topic)) if word_topic[word, topic] > 0]

    def relevance(word: int) -> float:
        return float(np.log(word_topic[word, topic]) - (1 - weight) * np.log(overall[word]))

    return sorted(known, key=lambda word: (-relevance(word), word))[:count]


@pytest.mark.parametrize("rows", [7, 1000])
def test_lists_hold_the_first_words_by_every_relevance(
    rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Most words of a thousand, few of the most relevant, and as few rows in a panel.
    monkeypatch.setattr("streaming_jsmf.storage.arrays.CHUNK_BYTES", rows * 8 * 3)
    monkeypatch.setattr(report_words, "MOST_WORDS", 20)
    monkeypatch.setattr(report_words, "BY_RELEVANCE", 6)
    generator = np.random.default_rng(2)
    word_topic = generator.dirichlet(np.full(90, 0.1), size=3).T
    word_topic[5] = 0.0
    lists, stored, shares, spelled = lists_of(saved(tmp_path / "model", word_topic / word_topic.sum(axis=0)))
    for topic in range(3):
        wanted = set(first_by_relevance(stored, shares, 1.0, topic, 20))
        for weight in LAMBDAS:
            wanted |= set(first_by_relevance(stored, shares, weight, topic, 6))
        order = sorted(wanted, key=lambda word: (-stored[word, topic], word))
        assert [lists.vocabulary[place] for place in lists.ids[topic]] == [spelled[word] for word in order]
        np.testing.assert_array_equal(lists.probabilities[topic], stored[order, topic])
    places = [spelled.index(word) for word in lists.vocabulary]
    assert places == sorted(places)
    np.testing.assert_allclose(lists.probability, (stored @ shares)[places], rtol=1e-12)


def test_lists_are_cut_to_their_budget(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(lists_of(model)[0].ids[0]) > BY_RELEVANCE + 10
    monkeypatch.setattr(report_words, "MOST_WORDS", 50)
    monkeypatch.setattr(report_words, "BY_RELEVANCE", 3)
    monkeypatch.setattr(report_words, "BUDGET", 900)
    lists = lists_of(model)[0]
    assert 3 <= min(map(len, lists.ids)) < max(map(len, lists.ids)) < 30


def test_probabilities_keep_their_order_and_zero() -> None:
    values = np.sort(np.random.default_rng(0).dirichlet(np.full(500, 0.01)))
    values[:3] = 0.0
    back = probabilities_of(packed_probabilities(values))
    np.testing.assert_array_equal(back[:3], 0)
    assert (np.diff(back) >= 0).all()
    # Below 2^-64 there is one smallest number.
    np.testing.assert_allclose(back, np.where(values > 0, np.maximum(values, 2.0**-64), 0), rtol=1e-2)


def test_documents_and_groups_are_those_of_the_queries(model: Path, shares: Path, opened: SharesFile) -> None:
    found = documents_of(opened)
    assert found.columns == ("year", "title")
    for topic, listed in enumerate(found.lists):
        frame = documents_of_topic(model, shares, topic)
        rows = [(document.name, document.value, document.values[1]) for document in listed]
        assert rows == [*zip(frame["document_id"], frame["share"], frame["title"], strict=True)]
    frame = shares_by(model, shares, "year")
    [[years]], [[titles]] = views_of(opened, None), views_of(opened, "title")
    assert (years.column, years.ordered) == ("year", True)
    assert years.names == ("1990", "1991", "1992", "not known")
    np.testing.assert_array_equal(years.shares.ravel(), frame["share"])
    np.testing.assert_array_equal(years.errors.ravel(), frame["standard_error"])
    assert (titles.ordered, len(titles.names)) == (False, 90)
    assert not replace(years, values=(0, 1, None)).ordered


def test_years_are_made_of_dates(model: Path, shares: Path, opened: SharesFile, tmp_path: Path) -> None:
    table = pq.read_table(shares)
    days = pa.array([f"{1990 + row % 3}-0{1 + row % 9}-11" for row in range(len(table))])
    [[expected]] = views_of(opened, "year")
    for name, column in (("date", days), ("seen", days.cast(pa.date32()))):
        place = table.schema.get_field_index("year")
        write_shares(tmp_path / f"{name}.parquet", table.set_column(place, name, column), shares)
        [[found]] = views_of(ModelShares.open(model, tmp_path / f"{name}.parquet").file, None)
        assert (found.column, found.ordered) == (f"year of {name}", True)
        assert found.names == ("1990", "1991", "1992")
        np.testing.assert_array_equal(found.shares[0], expected.shares[0])


def test_the_page_has_words_documents_and_groups(
    invoke: Command, model: Path, shares: Path, tmp_path: Path
) -> None:
    pages = [tmp_path / "page.html", tmp_path / "again.html"]
    for page in pages:
        assert invoke("report", model, page, "--shares", shares).code == 0
    assert pages[0].read_bytes() == pages[1].read_bytes()
    page = page_at(pages[0])
    values, lists = values_of(page), lists_of(model)[0]
    assert values["documents"]["of_topic"][1][0][0] == documents_of_topic(model, shares, 1)["document_id"][0]
    assert values["groups"]["column"] == "year"
    assert [link.text for link in page.one("nav").all("a")][4:6] == ["Documents", "By year"]
    series = over_time(model, shares, "year").sort_values("change", ascending=False).drop_duplicates("topic")
    rows = [row.all("th")[0].text.split()[0] for row in page.one("table", "changes").all("tr")[1:]]
    rising, falling = series[series["change"] > 0], series[series["change"] < 0]
    assert rows == [*map(str, rising["topic"][:5]), *map(str, falling["topic"][::-1][:5])]
    first = page.one("table", "changes").all("tr")[1].all("td")
    change, error = series["change"].iloc[0], series["change_error"].iloc[0]
    assert first[-1].text == f"{100 * change:+.2f} ± {196 * error:.2f}"
    found = values["words"]
    assert tuple(found["vocabulary"]) == lists.vocabulary
    assert found["counts"] == [len(ids) for ids in lists.ids]
    np.testing.assert_array_equal(integers_of(found["ids"], found["bytes"]), np.concatenate(lists.ids))
    expected = np.concatenate(lists.probabilities)
    np.testing.assert_allclose(probabilities_of(found["probabilities"]), expected, rtol=4e-4)


def test_wrong_shares_and_columns_end_in_one_line(
    invoke: Command, model: Path, shares: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "MOST_GROUPS", 80)
    other = saved(tmp_path / "other", planted(90, N, K, length=30, seed=4).word_topic)
    for chosen, column, parts in (
        (model, "colour", ("'colour'", "year")),
        (model, "title", ("'title'", "90", "80")),
        (other, "year", (str(shares), "model")),
    ):
        page = tmp_path / "page.html"
        refused(invoke("report", chosen, page, "--shares", shares, "--by", column), 2, *parts)
        assert not page.exists()
    monkeypatch.setattr(views, "MOST_GROUPS", 100)
    monkeypatch.setattr(views, "MOST_CELLS", 80)
    refused(
        invoke("report", model, page, "--shares", shares, "--by", "title,year"), 2, "90 combinations", "80"
    )


def test_shares_with_two_columns_of_one_name_or_without_a_column_are_refused(
    invoke: Command, model: Path, shares: Path, tmp_path: Path
) -> None:
    table, out = pq.read_table(shares), tmp_path / "foreign.parquet"
    for changed in (
        table.append_column("year", table.column("year")),
        table.drop(["topic_shares"]),
        table.drop(["document_id"]),
    ):
        pq.write_table(changed, out)
        refused(invoke("documents", model, out), 3, f"{out} has other columns than transform wrote")


def test_a_topic_flows_to_what_it_was_mixed_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fine = np.random.default_rng(5).dirichlet(np.full(80, 0.2), size=4).T
    mixture = np.array([[0.7, 0.3, 0.0, 0.0], [0.0, 0.0, 0.4, 0.6]])
    shares = np.array([0.25, 0.75])
    monkeypatch.setattr("streaming_jsmf.storage.arrays.CHUNK_BYTES", 9 * 8 * 4)
    second = saved(tmp_path / "k=4", fine)
    # Panels of other lengths than those of the first.
    monkeypatch.setattr("streaming_jsmf.storage.arrays.CHUNK_BYTES", 7 * 8 * 2)
    first = saved(tmp_path / "k=2", fine @ mixture.T)
    np.testing.assert_allclose(flow(first, second, shares), shares[:, None] * mixture, atol=1e-6)


def test_a_flow_weights_words_by_inverse_probability(tmp_path: Path) -> None:
    """A topic that is no mixture of the others flows as weighted least squares say."""
    draw, shares = np.random.default_rng(6), np.array([0.3, 0.7])
    coarse, fine = (draw.dirichlet(np.full(50, 0.3), size=k).T for k in (2, 3))
    weights = 1 / np.sqrt(coarse @ shares)[:, None]
    expected = reference.simplex_least_squares((coarse * weights).T, (fine * weights).T)
    unweighted = reference.simplex_least_squares(coarse.T, fine.T)
    assert np.abs(expected - unweighted).max() > 0.05
    found = flow(saved(tmp_path / "k=2", coarse), saved(tmp_path / "k=3", fine), shares)
    np.testing.assert_allclose(found, shares[:, None] * expected, atol=1e-5)


def test_models_of_other_words_are_not_levels(tmp_path: Path) -> None:
    saved(tmp_path / "k=1", np.full((5, 1), 0.2))
    saved(tmp_path / "k=3", np.full((5, 2), 0.2), [f"x{word}" for word in range(5)])
    with pytest.raises(InputError, match=r"k=1 and .*k=3"):
        flow(tmp_path / "k=1", tmp_path / "k=3", np.ones(1))


def test_a_directory_of_models_has_a_page_with_their_flows_and_their_comparison(
    invoke: Command, tmp_path: Path
) -> None:

    word_topic = planted(90, N, K, length=30, seed=3).word_topic
    models, out = tmp_path / "models", tmp_path / "page.html"
    for count in (2, 3, 4):
        saved(models / f"k={count}", word_topic[:, :count])
    for options, own in (((), 2), (("--topics", 3), 1)):
        assert invoke("report", models, out, "--overwrite", *options).code == 0
        page = page_at(out)
        levels = values_of(page)["levels"]
        assert page.one("h1").text.startswith(f"{own + 2} topics")
        assert levels["own"] == own
        assert [len(model["names"]) for model in levels["models"]] == [2, 3, 4]
        assert [len(values) for values in levels["flows"]] == [6, 12]
        assert {name for name, _ in levels["models"][0]["metrics"]} >= {
            "distinct words",
            "effective number of topics",
        }
    choice = choose([Measures(2, 900.0, 0.1, 1.0), Measures(4, 700.0, 0.2, 0.9)])
    found = models / "choose-k.json"
    found.write_text(json.dumps(fields_of(choice, {"stability": "<no> replicas"})), encoding="utf-8")
    assert invoke("report", models, out, "--overwrite").code == 0
    [section] = [part for part in page_at(out).all("section") if part.attributes["id"] == "levels"]
    [_, *rows] = section.one("table", "choice").all("tr")
    assert [(row.one("th").text, row.classes) for row in rows] == [("2", []), ("4", ["suggested"])]
    assert len(section.all("svg", "measure")) == 3
    assert choice.reason in section.text
    assert "<no> replicas" in section.text
    for damaged in ("{", '{"format_version": 2}', '{"format_version": 1, "rows": [3], "missing": {}}'):
        found.write_text(damaged, encoding="utf-8")
        refused(invoke("report", models, tmp_path / "no.html"), 3, str(found), "choose-k again")


def test_checks_agree_with_the_warnings() -> None:
    good = {
        "topic_topic_sum": 1.02,
        "ritz_residual": 0.01,
        "range_change": 0.002,
        "eigenvalue_gap": 0.03,
        "largest_simplex_gap": 1e-15,
        "rectification": {
            "change": 9e-6,
            "converged": True,
            "omitted_mass": {"value": 1e-5, "standard_error": 0},
        },
    }
    assert warnings_of(good) == []
    checks = checks_of(good)
    assert len(checks) == 6
    assert all(check.passed for check in checks)
    bad = good | {"ritz_residual": 0.4, "eigenvalue_gap": 1e-5}
    assert len(warnings_of(bad)) == sum(not check.passed for check in checks_of(bad)) == 2
    assert checks_of({}) == ()
