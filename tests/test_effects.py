"""effects: regressions of topic shares on covariates, compared with statsmodels; formulas; coverage of intervals."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import statsmodels.api as sm
from formulaic import model_matrix
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import streaming_jsmf as sj
from benchmarks import effects_coverage
from streaming_jsmf.documents import covariates, shares
from streaming_jsmf.documents.share_files import open_shares
from streaming_jsmf.inference.share_draws import draw_shares
from streaming_jsmf.inference.unbiased_shares import estimating
from streaming_jsmf.linalg.least_squares import NormalEquations, Scores, orthogonalizing
from streaming_jsmf.topics.store import read_model
from tests.cases import first_cases
from tests.corpora import planted, words, write_corpus
from tests.outcomes import Command, refused
from tests.stores import write_shares

Floats = NDArray[np.float64]
K, N, M = 4, 60, 240
COUNTS = planted(M, N, K, length=40, seed=11).counts
FORMULA = "party * log(`two words`) + bs(year, df=4)"
RANDOM = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "text": [" ".join(np.repeat(words(N), row)) for row in COUNTS],
        "id": [f"d{row}" for row in range(M)],
        "party": [["left", "right", "green"][row] for row in RANDOM.integers(0, 3, M)],
        "year": RANDOM.integers(1990, 2020, M),
        "two words": RANDOM.random(M) + 0.1,
        "speaker": [f"s{row % 20}" for row in range(M)],
        "date": [f"{2000 + row % 5}-{1 + row % 12:02d}-11" for row in range(M)],
        "member": RANDOM.integers(0, 2, M) == 1,
    }
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, the corpus of its fit with covariates, and shares of it, also in small row groups."""
    place = tmp_path_factory.mktemp("effects")
    given = {
        "text": "text",
        "id": "id",
        "metadata": [*TABLE.columns[2:]],
        "stop_words": "none",
        "max_df": 1.0,
    }
    model = sj.fit(TABLE, place / "model", K, min_df=1, progress=False, **given)
    sj.transform(model, place / "model.corpus", place / "shares.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shares, "ROW_GROUP_ROWS", 50)
        sj.transform(model, place / "model.corpus", place / "small.parquet")
    return place


@pytest.fixture(scope="module")
def model(folder: Path) -> sj.TopicModel:
    return sj.TopicModel(folder / "model")


def estimates_of(folder: Path) -> Floats:
    """Unbiased shares of the documents by weighted least squares with one matrix."""
    counts, names = sj.corpus_to_matrix(folder / "model.corpus")
    arrays = read_model(folder / "model").arrays
    order = [list(arrays["word"]).index(name) for name in names]
    topics = np.asarray(arrays["word_topic"][order], float)
    weight = 1 / np.sqrt(topics @ arrays["topic_probability"])
    frequencies = counts.toarray() / counts.toarray().sum(axis=1, keepdims=True)
    return np.linalg.lstsq(topics * weight[:, None], (frequencies * weight).T)[0].T


def oracle(formula: str, responses: Floats, table: pd.DataFrame, **kind: Any) -> tuple[Floats, Floats]:
    """Coefficients (p, K) and errors (p, K) by statsmodels."""
    rows = np.asarray(model_matrix(formula, table), float)
    found = [sm.OLS(column, rows).fit(**(kind or {"cov_type": "HC1"})) for column in responses.T]
    return np.stack([one.params for one in found], axis=1), np.stack([one.bse for one in found], axis=1)


def values(found: sj.Effects, column: str) -> Floats:
    """A column of the result, (p, K)."""
    return found.frame[column].to_numpy().reshape(len(found.topics), -1).T


@pytest.mark.parametrize("name", ["shares.parquet", "small.parquet"])
def test_estimates_and_errors_are_those_of_statsmodels(folder: Path, name: str) -> None:
    found = sj.effects(folder / "model", folder / name, FORMULA)
    assert list(found.frame) == ["topic", "label", "term", "estimate", "error", "lower", "upper", "n"]
    estimates, errors = oracle(FORMULA, estimates_of(folder), TABLE)
    np.testing.assert_allclose(values(found, "estimate"), estimates, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(values(found, "error"), errors, rtol=1e-8)
    free = M - len(found.terms)
    np.testing.assert_allclose(found.quantile, sm.stats.stattools.stats.t.ppf(0.975, free))
    np.testing.assert_allclose(
        values(found, "upper"), estimates + found.quantile * errors, rtol=1e-7, atol=1e-9
    )
    assert set(found.frame["n"]) == {M}
    assert found.terms == tuple(model_matrix(FORMULA, TABLE).columns)


def test_errors_by_cluster_are_those_of_statsmodels(folder: Path) -> None:
    found = sj.effects(folder / "model", folder / "small.parquet", "party + center(year)", cluster="speaker")
    groups = pd.factorize(TABLE["speaker"])[0]
    kind = {"cov_type": "cluster", "cov_kwds": {"groups": groups}}
    estimates, errors = oracle("party + center(year)", estimates_of(folder), TABLE, **kind)
    np.testing.assert_allclose(values(found, "estimate"), estimates, rtol=1e-8)
    np.testing.assert_allclose(values(found, "error"), errors, rtol=1e-8)
    np.testing.assert_allclose(found.quantile, sm.stats.stattools.stats.t.ppf(0.975, 19))


def drawn_of(folder: Path, draws: int, seed: int) -> list[Floats]:
    [theta] = [theta for theta, _ in open_shares(folder / "shares.parquet").dense()]
    prior = read_model(folder / "model").arrays["alpha"].sum()
    found = []
    for draw in range(draws):
        shares = np.empty_like(theta)
        parameters = theta * (COUNTS.sum(axis=1, keepdims=True) + prior)
        draw_shares(parameters, np.uint64(seed), np.uint64(0), np.uint64(draw), shares)
        found.append(shares)
    return found


@pytest.mark.parametrize("name", first_cases(["small.parquet", "shares.parquet"]))
def test_composition_combines_regressions_of_the_draws(folder: Path, model: sj.TopicModel, name: str) -> None:
    found = sj.effects(model, folder / name, "party + center(year)", draws=6, seed=3)
    each = [oracle("party + center(year)", drawn, TABLE) for drawn in drawn_of(folder, 6, 3)]
    estimates, errors = (np.stack(one) for one in zip(*each, strict=True))
    total = np.square(errors).mean(axis=0) + (1 + 1 / 6) * estimates.var(axis=0, ddof=1)
    np.testing.assert_allclose(values(found, "estimate"), estimates.mean(axis=0), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(values(found, "error"), np.sqrt(total), rtol=1e-8)
    again = sj.effects(model, folder / name, "party + center(year)", draws=6, seed=3)
    np.testing.assert_array_equal(again.covariances, found.covariances)
    other = sj.effects(model, folder / name, "party + center(year)", draws=6, seed=4)
    assert (other.coefficients != found.coefficients).all()


def test_draws_are_dirichlet_and_depend_on_the_document_alone() -> None:
    parameters = np.tile([0.05, 0.7, 3.0, 0.0, 40.0], (100_000, 1))
    drawn, few = np.empty_like(parameters), np.empty((9, 5))
    draw_shares(parameters, np.uint64(1), np.uint64(0), np.uint64(2), drawn)
    draw_shares(parameters[:9], np.uint64(1), np.uint64(500), np.uint64(2), few)
    np.testing.assert_array_equal(few, drawn[500:509])
    total = parameters[0].sum()
    mean = parameters[0] / total
    variance = mean * (1 - mean) / (total + 1)
    np.testing.assert_allclose(drawn.sum(axis=1), 1)
    np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=5 * np.sqrt(variance.max() / len(drawn)))
    np.testing.assert_allclose(drawn.var(axis=0), variance, rtol=0.1, atol=1e-12)


def test_estimates_of_shares_are_unbiased_and_sum_to_1() -> None:
    random = np.random.default_rng(2)
    topics = random.dirichlet(np.full(50, 0.1), 5).T
    weights, mixed = estimating(topics, np.array([0.4, 0.3, 0.1, 0.1, 0.1]), [[0], [3, 1], [2], [4]])
    assert mixed == []
    sums = np.eye(5)[:, [0, 3, 2, 4]] + np.eye(5)[:, [1]] * [0, 1, 0, 0]
    np.testing.assert_allclose(topics.T @ weights, sums, atol=1e-9)
    np.testing.assert_allclose(weights.sum(axis=1)[topics.any(axis=1)], 1, rtol=1e-9)
    # Two topics with the same words have no estimates of their own, but one together.
    double = np.column_stack([topics, topics[:, 0]])
    share = np.full(6, 1 / 6)
    assert estimating(double, share, [[0], [1], [5]])[1] == [0, 2]
    weights, mixed = estimating(double, share, [[0, 5], [1]])
    assert mixed == []
    np.testing.assert_allclose(double.T @ weights, np.eye(6)[:, :2] + np.eye(6)[:, [5]] * [1, 0], atol=1e-8)


@settings(max_examples=25)
@given(seed=st.integers(0, 1_000), parts=st.integers(1, 9), clusters=st.integers(0, 12), extra=st.booleans())
def test_sums_over_batches_are_those_of_whole_matrices(
    seed: int, parts: int, clusters: int, extra: bool
) -> None:
    random = np.random.default_rng(seed)
    year = random.integers(1990, 2020, 60).astype(float)
    rows = np.column_stack([np.ones(60), year, year**2, random.random(60)])
    rows = np.column_stack([rows, 3 * year - 2]) if extra else rows
    responses, groups = random.random((60, 3)), random.permutation(60) % clusters if clusters > 1 else None
    change = orthogonalizing(rows[:20])
    pieces = np.array_split(np.arange(60), parts)
    normal = NormalEquations.zeros(rows.shape[1], 3)
    for piece in pieces:
        normal.add(rows[piece], change, responses[piece])
    solution = normal.solved()
    assert solution.kept.tolist() == [True] * 4 + [False] * extra
    scores = Scores.zeros(solution, clusters if groups is not None else 0)
    for piece in pieces:
        scores.add(rows[piece] @ change, responses[piece], None if groups is None else groups[piece])
    basis = np.linalg.qr(rows[:, :4])[0]
    fitted = basis @ basis.T @ responses
    np.testing.assert_allclose(rows @ change @ solution.coefficients, fitted, rtol=1e-7)
    kind = {"cov_type": "HC1"} if groups is None else {"cov_type": "cluster", "cov_kwds": {"groups": groups}}
    errors = sm.OLS(responses[:, 1], (rows @ change)[:, :4]).fit(**kind).bse
    found = np.sqrt(np.diagonal(scores.covariances()[1]))[:4]
    np.testing.assert_allclose(found, errors, rtol=1e-6)


def test_a_sample_of_documents_fixes_knots_and_all_documents_levels(
    folder: Path, model: sj.TopicModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    formula = "party + C(year) + speaker + poly(`two words`, 2)"
    whole = sj.effects(model, folder / "small.parquet", formula)
    monkeypatch.setattr(covariates, "SAMPLED", 40)
    sampled = sj.effects(model, folder / "small.parquet", formula)
    assert sampled.terms == whole.terms
    plain = [
        place for place, term in enumerate(whole.terms) if term.startswith(("party", "C(year)", "speaker"))
    ]
    np.testing.assert_allclose(
        sampled.coefficients[:, plain], whole.coefficients[:, plain], rtol=1e-6, atol=1e-9
    )
    spline = sj.effects(model, folder / "small.parquet", "bs(year, df=4)")
    assert np.isfinite(spline.coefficients).all()


def test_edits_apply_and_topics_are_chosen(model: sj.TopicModel, tmp_path: Path) -> None:
    edited = model.save(tmp_path / "model").merge([2, 0]).hide(1).label(3, "named")
    options = {"shares": Path(model.path).parent / "shares.parquet", "corpus": f"{model.path}.corpus"}
    found, plain = edited.effects("party", **options), model.effects("party", **options)
    assert found.topics == (2, 3)
    assert found.labels[1] == "named"
    np.testing.assert_allclose(found.coefficients[0], plain.coefficients[2] + plain.coefficients[0])
    drawn = edited.effects("party", draws=3, **options)
    apart = model.effects("party", draws=3, **options)
    np.testing.assert_allclose(drawn.coefficients[0], apart.coefficients[2] + apart.coefficients[0])
    only = edited.effects("party", topics=[3], **options)
    np.testing.assert_allclose(only.covariances[0], plain.covariances[3])
    with pytest.raises(sj.InputError, match="topic 1 is hidden; unhide it first"):
        edited.effects("party", topics=1, **options)
    with pytest.raises(sj.InputError, match="topic 0 was merged into topic 2"):
        edited.effects("party", topics=[0], **options)


def test_effects_of_all_topics_cancel(model: sj.TopicModel) -> None:
    found = model.effects("party + date + member")
    assert found.terms == ("Intercept", "party[T.left]", "party[T.right]", "date", "member[T.true]")
    np.testing.assert_allclose(found.coefficients.sum(axis=0), [1, 0, 0, 0, 0], atol=1e-6)


def test_what_is_left_out_is_counted(
    model: sj.TopicModel, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    party, year = TABLE["party"].tolist(), TABLE["year"].astype(float).tolist()
    party[3:6], year[5], year[6] = [None, "", "only here"], None, None
    counts = COUNTS.copy()
    counts[9] = 0
    corpus = write_corpus(tmp_path / "corpus", counts, shards=1)
    part = next(corpus.glob("*.parquet"))
    columns = {"party": party, "year": year, "zero": [row % 10 for row in range(M)]}
    table = pq.read_table(part)
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values))
    pq.write_table(table, part)
    sj.transform(model, corpus, tmp_path / "shares.parquet")
    caplog.clear()
    found = sj.effects(model, tmp_path / "shares.parquet", "party + year + log(zero)", corpus=corpus)
    assert caplog.messages == [
        f"effects: documents without party, which are left out: 2 of {M}",
        f"effects: documents without year, which are left out: 2 of {M}",
        f"effects: documents without one or more of these: 4 of {M}",
        "effects: levels of party that only documents without other covariates have, left out: only here",
        "effects: documents without words of the model, which are left out: 1",
        "effects: documents for which a term is infinite or no number, which are left out: 24",
    ]
    assert found.documents == M - 4 - 1 - 24
    caplog.clear()
    by = sj.effects(model, tmp_path / "shares.parquet", "zero", corpus=corpus, cluster="party")
    assert caplog.messages[0] == f"effects: documents without party, which are left out: 2 of {M}"
    assert by.documents == M - 2 - 1
    assert found.terms == ("Intercept", "party[T.left]", "party[T.right]", "year", "log(zero)")


def test_terms_that_depend_on_others_have_no_estimate(
    model: sj.TopicModel, caplog: pytest.LogCaptureFixture
) -> None:
    found = model.effects("year + I(2 * year + 1) + party")
    assert [message for message in caplog.messages if message.startswith("effects:")] == [
        "effects: terms that depend on those before them, or that no document has, are left out: I(2 * year + 1)"
    ]
    assert found.dropped == ("I(2 * year + 1)",)
    rows = found.frame[found.frame["term"] == "I(2 * year + 1)"]
    assert rows[["estimate", "error", "lower", "upper"]].isna().all(axis=None)
    plain = model.effects("year + party")
    np.testing.assert_allclose(found.coefficients[:, [0, 1, 3, 4]], plain.coefficients, rtol=1e-7)
    predicted = found.predicted("year")
    pd.testing.assert_frame_equal(predicted, plain.predicted("year"), rtol=1e-6)


def test_expected_shares_over_a_covariate(folder: Path, model: sj.TopicModel) -> None:
    found = model.effects("party * year + `two words`")
    rows = np.asarray(model_matrix("party * year + `two words`", TABLE), float)
    fit = sm.OLS(estimates_of(folder)[:, 1], rows).fit(cov_type="HC1")
    predicted = found.predicted("year", at={"party": ["left", "right"]})
    assert list(predicted) == ["topic", "label", "year", "party", "share", "lower", "upper"]
    one = predicted[(predicted["topic"] == 1) & (predicted["party"] == "right")]
    assert one["year"].tolist() == np.linspace(1990, 2019, 50).tolist()
    year, two = one["year"].to_numpy(), TABLE["two words"].median()
    ones, zeros = np.ones(50), np.zeros(50)
    grid = np.column_stack([ones, zeros, ones, year, two * ones, zeros, year])
    assert found.terms[4:] == ("two words", "party[T.left]:year", "party[T.right]:year")
    share = grid @ fit.params
    error = np.sqrt(np.einsum("mi,ij,mj->m", grid, fit.cov_params(), grid))
    np.testing.assert_allclose(one["share"], share, rtol=1e-6)
    np.testing.assert_allclose(one["upper"], share + found.quantile * error, rtol=1e-6)
    by_party = found.predicted("party", at={"year": 2000})
    assert by_party["party"].tolist() == ["green", "left", "right"] * K
    assert by_party["year"].unique().tolist() == [2000]
    again = model.predicted("party", at={"year": 2000}, formula="party * year + `two words`")
    pd.testing.assert_frame_equal(again, by_party)
    dated = model.effects("date").predicted("date", at={"date": ["2000-07-01", "2004-01-01"]})
    np.testing.assert_allclose(dated["date"], [2000 + 182 / 366, 2004] * K)
    for variable, at, message in (
        ("nothing", {}, "'nothing' is no covariate of"),
        ("year", {"party": "blue"}, "'party' has no level 'blue'; it has green, left, right"),
        ("year", {"year": "early"}, "the value of 'year' is 'early'; give a number"),
    ):
        with pytest.raises(sj.InputError, match=message):
            found.predicted(variable, at)
    with pytest.raises(sj.InputError, match="cannot be evaluated: Some field values extend beyond"):
        model.effects("bs(year, df=4)").predicted("year", {"year": 2050})


REFUSED = {
    "partty": "has no column 'partty'; did you mean 'party'?",
    "`two wrds`": "has no column 'two wrds'; did you mean 'two words'?",
    "": "the formula has 0 characters; give covariates",
    "1": "has no covariate; give columns",
    "party:": "cannot be read: Operator `:` has",
    "bs(year, df=4": "cannot be read",
    "log(two words)": "cannot be read",
    "bs(party, df=4)": "cannot be evaluated: ",
    "bs(year, df=1000)": "bs(year, df=1000) has more than 100 columns",
    "year ~ party": "has '~'",
    "party | year": "has '|'",
    "(party + year)^9": "has '9'",
    "I(9**9**9)": "has '9 ** 9 ** 9'",
    "I(year ** 3000)": "has 'year ** 3000'",
    "I('a' * 1000000000)": "has \"'a' * 1000000000\"",
    "I([1] * 1000000000)": "has '[1] * 1000000000'",
    "log(" + "-" * 1500 + "year)": "cannot be",
    "year" + "*year" * 11: "has more than 10 *; give fewer interactions",
    "np.log(year)": "has 'np.log'; put a name with a dot in backticks: `np.log`",
    "__import__('os').system('true')": "has ",
    "year.__class__": "has no column 'year.__class__'",
    "I(year.__class__)": "has 'year.__class__'",
    "open('x')": "has 'open(...)'",
    "eval('1')": "has 'eval(...)'",
    "I((lambda: 1)())": "has ",
    "I([x for x in year])": "has ",
    "I(f'{year}')": "has ",
    "year[0]": "has 'year[0]'",
    "hashed(party)": "has 'hashed(...)'",
    "lag(year)": "has 'lag(...)'",
    "C(party, contr.custom([1]))": "has 'contr.custom'",
    "C(party, levels=['\"]'])": "has '\"]'",
    "log(year, _state={})": "has ",
    "year + 'text'": "has \"'text'\"",
    "id_": "has no column 'id_'",
    "document_id": f"column 'document_id' has {M} levels in {M} documents, too many to compare",
}  # fmt: skip


@pytest.mark.parametrize("formula", REFUSED)
def test_refused_formulas(model: sj.TopicModel, formula: str) -> None:
    with pytest.raises(sj.InputError) as error:
        model.effects(formula)
    assert REFUSED[formula] in str(error.value)
    assert "\n" not in str(error.value)


@given(text=st.text(alphabet="party year`(){}[]'\"\\+*:~|.^_,=1029;@bsC\n", max_size=30))
def test_any_text_is_a_formula_or_refused(text: str) -> None:
    from streaming_jsmf.documents.formula import Formula

    try:
        read = Formula.read(text, ["party", "year", "a`b", "__import__"], "shares")
    except sj.InputError:
        return
    assert {*read.columns} <= {"party", "year", "__import__"}


def test_names_of_columns_are_never_evaluated(tmp_path: Path) -> None:
    names = ["open('evil', 'w')", "log", "a b", "a_b", "x.y", "C", "]\"'"]
    table = TABLE.assign(**{name: RANDOM.random(M) for name in names})
    given = {"metadata": names, "stop_words": "none", "max_df": 1.0}
    model = sj.fit(table, tmp_path / "m", K, min_df=1, progress=False, text="text", id="id", **given)
    found = model.effects(
        "`open('evil', 'w')` + log(`log` + 1) + `a b`:a_b + x.y + log(`x.y`) + `C` + `]\"'`"
    )
    assert not Path("evil").exists()
    assert sorted(found.terms) == sorted(
        ["Intercept", "open('evil', 'w')", "log(`log` + 1)", "x.y", "log(`x.y`)", "C", "]\"'", "a b:a_b"]
    )


def test_other_refusals(folder: Path, model: sj.TopicModel, tmp_path: Path) -> None:
    shares, texts = folder / "shares.parquet", TABLE["text"][:30].tolist()
    with pytest.raises(sj.InputError, match="has no column 'nobody'; it has document_id"):
        sj.effects(model, shares, "party", cluster="nobody")
    with pytest.raises(sj.InputError, match="has no column ''"):
        sj.effects(model, shares, "party", cluster="")
    with pytest.raises(sj.InputError, match="topics is empty"):
        sj.effects(model, shares, "party", topics=[])
    with pytest.raises(sj.InputError, match=r"240 clusters are too many for .* terms|too many"):
        sj.effects(model, shares, "C(year) + C(year):party + speaker", topics=range(K), draws=500)
    other = sj.ingest(TABLE[:100], tmp_path / "other", text="text", metadata=["party"], min_df=1, max_df=1.0)
    sj.transform(model, other, tmp_path / "other.parquet")
    message = "these are not shares of the corpus that fit made next to the model; give corpus=CORPUS, which transform"
    with pytest.raises(sj.InputError, match=message):
        sj.effects(model, tmp_path / "other.parquet", "party")
    with pytest.raises(
        sj.InputError, match=r"these are not shares of .*model.corpus; give .* or use draws=25, which"
    ):
        model.effects("party", tmp_path / "other.parquet")
    assert sj.effects(model, tmp_path / "other.parquet", "party", corpus=other).documents == 100
    assert sj.effects(model, tmp_path / "other.parquet", "party", draws=2).documents == 100
    assert model.effects("party", tmp_path / "other.parquet", corpus=other).documents == 100
    sj.transform(model, other, tmp_path / "top.parquet", top=2)
    assert sj.effects(model, tmp_path / "top.parquet", "party", corpus=other).documents == 100
    with pytest.raises(sj.InputError, match="has only the 2 largest shares of each document; draws need all"):
        sj.effects(model, tmp_path / "top.parquet", "party", draws=2)
    with pytest.raises(sj.InputError, match="has no column 'party'"):
        model.effects("party", texts, draws=2)
    with pytest.raises(sj.InputError, match="has 20 terms for 20 documents; give fewer terms"):
        sj.effects(model, shares_of_few(folder, tmp_path, 20), "speaker", draws=2)


def shares_of_few(folder: Path, place: Path, rows: int) -> Path:
    found = open_shares(folder / "shares.parquet")
    [table] = found.tables([*found.columns, *found.about.columns])
    write_shares(place / "few.parquet", table[:rows], folder / "shares.parquet")
    return place / "few.parquet"


def test_the_verb(folder: Path, model: sj.TopicModel, tmp_path: Path, invoke: Command) -> None:
    def printed(*arguments: object) -> str:
        outcome = invoke("effects", folder / "model", folder / "shares.parquet", *arguments)
        assert outcome.code == 0
        return outcome.out

    frame = model.effects("party + year").frame
    lines = printed("--formula", "party + year").splitlines()
    assert lines[0] == f"party + year; {M} documents; percentage points"
    row = frame.iloc[1]
    assert lines[3].split()[:3] == ["0", "party[T.left]", f"{100 * row['estimate']:+.3g}"]
    rows = [*csv.DictReader(io.StringIO(printed("--formula", "party + year", "--csv")))]
    assert [float(one["error"]) for one in rows] == frame["error"].tolist()
    found = json.loads(printed("--formula", "party", "--json", "--topics", "2,1", "--draws", "3"))
    assert [one["topic"] for one in found] == [2, 2, 2, 1, 1, 1]
    out = tmp_path / "effects.parquet"
    assert (
        printed("--formula", "party", "--cluster", "speaker", "--out", out)
        == f"effects: {out} ({3 * K} rows)\n"
    )
    given = ("effects", folder / "model", folder / "shares.parquet", "--formula")
    refused(invoke(*given, "party", "--topics", "9"), 2, "there is no topic 9")
    refused(invoke(*given, "party", "--topics", "x"), 2, "--topics is 'x'; give numbers of topics")
    refused(invoke(*given, "import os"), 2, "has no column 'import'")


def test_pictures(model: sj.TopicModel) -> None:
    found = model.effects("party * year")
    [axes] = sj.plot_effects(found).axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [*found.terms[1:]]
    assert len(axes.get_yticks()) == K
    [axes] = model.plot_effects("party * year", "year", at={"party": ["left", "right"]}, topics=[1, 2]).axes
    assert len(axes.lines) == len(axes.collections) == 4
    np.testing.assert_allclose(axes.lines[0].get_ydata()[0], 100 * _first_share(found, "left"))
    assert axes.get_legend().get_texts()[0].get_text().startswith("1 ")
    figure = sj.plot_effects(found, "party", title="Parties", figsize=(4, 3))
    assert figure.axes[0].get_title() == "Parties"
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == ["green", "left", "right"]
    assert sj.plot_effects(found, ax=figure.axes[0]) is figure
    with pytest.raises(
        sj.InputError, match="has 19 terms; a picture of coefficients has 1 to 12: name a covariate"
    ):
        model.plot_effects("speaker")


def _first_share(found: sj.Effects, party: str) -> float:
    frame = found.predicted("year", at={"party": party})
    return float(frame.loc[frame["topic"] == 1, "share"].iloc[0])


def test_the_report_has_a_table_of_effects(
    folder: Path, model: sj.TopicModel, invoke: Command, tmp_path: Path
) -> None:
    shares, page = folder / "shares.parquet", tmp_path / "page.html"
    sj.report(model, page, shares=shares, effects="party + year")
    text = page.read_text(encoding="utf-8").partition('<section id="effects"')[2].partition("</section>")[0]
    frame = model.effects("party + year").frame
    rows = frame[frame["term"] != "Intercept"]
    half = (rows["upper"] - rows["lower"]) / 2
    cells = [
        f"{100 * value:+.3g} ± {100 * width:.2g}" for value, width in zip(rows["estimate"], half, strict=True)
    ]
    bold = rows["estimate"].abs() > half
    assert bold.any()
    assert not bold.all()
    assert re.findall(r'<td class="number">(.*?)</td>', text) == [
        f"<strong>{cell}</strong>" if strong else cell for cell, strong in zip(cells, bold, strict=True)
    ]
    message = "--effects takes columns of --shares; give the file that transform wrote, too"
    refused(invoke("report", model.path, tmp_path / "other.html", "--effects", "party"), 2, message)


@pytest.mark.slow
@pytest.mark.parametrize("design", effects_coverage.DESIGNS)
def test_intervals_contain_the_truth_as_often_as_they_say(design: str) -> None:
    """60 of the 200 simulations of the benchmark, whose results are in docs/effects.md."""
    results = [effects_coverage.one(design, 1_000, 10, seed) for seed in range(60)]
    truth = effects_coverage.simulate(2, 1, 0.5, 0).coefficients[1:]

    def covered(name: str) -> float:
        parts = [np.abs(result[name][0]) <= result[name][1] for result in results]
        return float(np.mean([part[truth != 0] for part in parts]))

    assert 0.91 <= covered("effects") <= 0.99
    if design == "short":
        assert covered("shares, without draws") < 0.9
        assert covered("composition") < covered("effects")
