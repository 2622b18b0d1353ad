"""The estimators: any form of a corpus gives the results of one scan and one inference."""

from __future__ import annotations

import copy
import gc
import io
import json
import pickle
import re
import shutil
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import dask.bag as db
import joblib
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from dask import delayed
from numpy.typing import NDArray
from scipy.sparse import coo_matrix, csr_array, csr_matrix
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import streaming_jsmf as sj
from pipelines.common.matching import match_topics
from streaming_jsmf import (
    LRJSMF,
    STOD,
    InferSettings,
    InputError,
    PolishSettings,
    ScanSettings,
    StodSettings,
    infer,
    open_corpus,
    open_model,
    open_moments,
    to_dask_array,
)
from streaming_jsmf.cli.main import run
from streaming_jsmf.corpus import write
from streaming_jsmf.inference.perplexity import Completer
from streaming_jsmf.topics.plan import TopicsPlan
from streaming_jsmf.topics.store import JsonAttribute
from tests.cases import first_cases
from tests.corpora import planted, words, write_corpus
from tests.stores import scanned

K = 4
ONE: dict[str, Any] = {"scheduler": "synchronous", "workers": 1}
# More words than a factor has columns: else probes, and with them the bytes of the corpus, would not matter.
N = 150
TRUTH = planted(500, N, K, length=90, seed=3)
# With a document of no words, which the scan leaves out, and one of a single token.
COUNTS = np.vstack([TRUTH.counts, np.zeros((1, N), np.int64), np.eye(1, N, dtype=np.int64)])
TEXTS = ["cat dog cat pet", "dog pet cat cat", "star moon star sky", "moon sky sky star"] * 30
ENGINES = pytest.mark.parametrize("engine", [LRJSMF, STOD])


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("estimators") / "corpus"
    return Path(sj.corpus_from_matrix(COUNTS, words(N), folder).root)


@pytest.fixture(scope="module")
def models(corpus: Path) -> dict[type, Any]:
    """Each engine fitted to the corpus."""
    return {engine: engine(K, **ONE).fit(corpus) for engine in (LRJSMF, STOD)}


def blocks(counts: NDArray[Any], rows: int = 90) -> Any:
    sparse = csr_array(counts)
    parts = [sparse[start : start + rows] for start in range(0, len(counts), rows)]
    lazy = [
        da.from_delayed(delayed(p), p.shape, p.dtype, meta=csr_array((0, 0), dtype=p.dtype)) for p in parts
    ]
    return da.concatenate(lazy)


@ENGINES
def test_an_estimator_is_scan_and_infer(engine: type, corpus: Path, tmp_path: Path) -> None:
    found, is_stod = engine(K, polish_steps=0, **ONE).fit(corpus), engine is STOD
    moments = scanned(corpus, tmp_path / "m", ScanSettings(max_topics=K, third_moment=is_stod))
    fitted = infer(moments, tmp_path / "model", StodSettings(K) if is_stod else InferSettings(K))
    np.testing.assert_array_equal(found.components_, fitted.arrays["word_topic"].T)
    assert match_topics(found.components_.T, TRUTH.word_topic).mean_l1 < 0.25
    found.save(tmp_path / "saved")
    expected, lazy = open_model(tmp_path / "model").load(), open_model(tmp_path / "saved")
    for made in (lazy.load(), found.model_):
        xr.testing.assert_equal(made.drop_attrs(), expected.drop_attrs())
    assert {name: lazy[name].attrs for name in lazy} == {
        name: made.attrs for name, made in found.model_.items()
    }
    about, saved = (
        {name: json_of(value) for name, value in each.items()} for each in (found.model_.attrs, lazy.attrs)
    )
    assert saved["provenance"].pop("committed"), "when it was; the estimator's own model was not"
    assert {name: saved[name] for name in saved.keys() - {"digests", "sha256"}} == about
    assert run(["topics", str(tmp_path / "saved")]) == 0
    (tmp_path / "taken").mkdir()
    with pytest.raises(InputError, match=re.escape(str(tmp_path / "taken"))):
        found.save(tmp_path / "taken")
    found.save(tmp_path / "saved")
    again = engine.load(tmp_path / "saved")
    np.testing.assert_array_equal(again.components_, found.components_)
    for X in (corpus, COUNTS):
        np.testing.assert_array_equal(again.transform(X), found.transform(corpus))
    assert again.n_topics == K
    with pytest.raises(InputError, match=re.escape(str(tmp_path / "saved"))):
        (LRJSMF if is_stod else STOD).load(tmp_path / "saved")


def json_of(value: Any) -> Any:
    return json.loads(str(value)) if isinstance(value, JsonAttribute) else value


@ENGINES
def test_attributes(engine: type, models: dict[type, Any]) -> None:
    found = models[engine]
    assert found.components_.shape == (K, N)
    np.testing.assert_allclose(found.components_.sum(axis=1), 1)
    assert found.n_features_in_ == N
    assert found.feature_names_in_.tolist() == words(N)
    assert found.get_feature_names_out().tolist() == [f"{engine.__name__.lower()}{k}" for k in range(K)]
    assert found.topic_probability_.sum() == pytest.approx(1)
    assert found.alpha_.sum() == pytest.approx(found.alpha0_, rel=1e-3)
    assert found.alpha0_ == pytest.approx(0.3 * K, rel=0.6)
    assert found.metrics_["n_documents"] == 500
    assert (found.model_["word_topic"].sel(word="word0003").to_numpy() == found.components_[:, 3]).all()
    if engine is STOD:
        np.testing.assert_allclose(found.alpha_, found.alpha0_ * found.topic_probability_)
        assert found.duplicate_of_.tolist() == [-1] * K
    else:
        assert (found.components_[:, found.anchors_].argmax(axis=0) == np.arange(K)).all()
        assert found.topic_topic_.sum() == pytest.approx(1, abs=0.05)
    assert found.eigenvalues_.shape == (K,)


def scattered() -> coo_matrix:
    """Words of a document in falling order, one of them in two parts, and explicit zeros."""
    rows, columns = np.nonzero(COUNTS[:, ::-1] + 1)
    columns, half = N - 1 - columns, np.minimum(COUNTS, 1)
    values = np.concatenate([half[rows, columns], (COUNTS - half)[rows, columns]])
    return coo_matrix((values, (np.tile(rows, 2), np.tile(columns, 2))), COUNTS.shape)


def untidy() -> csr_matrix:
    """The same in CSR buffers, which ``tocsr`` would have tidied up."""
    found = scattered()
    order = np.argsort(found.row, kind="stable")
    return csr_matrix((found.data[order], found.col[order], np.arange(len(COUNTS) + 1) * 2 * N), COUNTS.shape)


KINDS: dict[str, Callable[[Path], Any]] = {
    "corpus": open_corpus,
    "dask of the corpus": lambda corpus: to_dask_array(open_corpus(corpus)),
    "dask of other blocks": lambda _: blocks(COUNTS),
    "dense dask": lambda _: da.from_array(COUNTS, chunks=(200, N)),
    "csr array": lambda _: csr_array(COUNTS),
    "csr matrix": lambda _: csr_matrix(COUNTS.astype(np.uint16)),
    "coo matrix": lambda _: scattered(),
    "untidy csr": lambda _: untidy(),
    "array": lambda _: COUNTS,
    "list": lambda _: COUNTS.tolist(),
}


@pytest.mark.parametrize("kind", first_cases(KINDS, 6))
def test_whatever_the_counts_come_as_the_bits_are_those_of_the_corpus(
    kind: str, corpus: Path, models: dict[type, Any]
) -> None:
    X = KINDS[kind](corpus)
    before = X.copy() if isinstance(X, csr_matrix) else None
    found = LRJSMF(K, scheduler="threads", workers=2).fit(X)
    np.testing.assert_array_equal(found.components_, models[LRJSMF].components_)
    np.testing.assert_array_equal(found.transform(X), models[LRJSMF].transform(corpus))
    if before is not None:
        for name in ("data", "indices", "indptr"):
            np.testing.assert_array_equal(getattr(X, name), getattr(before, name))


@pytest.mark.parametrize("engine", first_cases([STOD, LRJSMF]))
def test_fractions_of_counts_are_floats_in_the_corpus(engine: type, tmp_path: Path) -> None:
    weighted = COUNTS * np.linspace(0.5, 1.5, N)
    found = engine(K, **ONE).fit(weighted)
    np.testing.assert_array_equal(engine(K, **ONE).fit(blocks(weighted)).components_, found.components_)
    path = write.write_corpus(write.matrix_blocks(weighted), words(N), tmp_path / "weighted").root
    np.testing.assert_array_equal(engine(K, **ONE).fit(path).components_, found.components_)
    # Another file has other probes: what differs is their error, not the counts.
    kinds = (
        engine(K, polish_steps=0, **ONE).fit(counts).components_.T
        for counts in (COUNTS, COUNTS.astype(float))
    )
    assert match_topics(*kinds).mean_l1 < 1e-3


@ENGINES
def test_transform(engine: type, models: dict[type, Any], corpus: Path) -> None:
    found = models[engine]
    shares = found.transform(corpus)
    assert shares.shape == (len(COUNTS), K)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    np.testing.assert_allclose(shares[500], found.alpha_ / found.alpha_.sum())
    for X in (COUNTS, csr_array(COUNTS), blocks(COUNTS), open_corpus(corpus)):
        np.testing.assert_array_equal(found.transform(X), shares)
    np.testing.assert_array_equal(found.transform(COUNTS[7:9]), shares[7:9])
    np.testing.assert_array_equal(engine(K, **ONE).fit_transform(corpus), shares)
    with pytest.warns(ConvergenceWarning, match="transform_iterations"):
        loose = clone(found).set_params(transform_iterations=1).fit(corpus).transform(corpus)
    assert abs(loose - shares).max() > 0.05
    for large in (np.full((2, N), 1e38), blocks(np.full((2, N), 1e38))):
        with pytest.raises(InputError, match="the largest allowed is 2147483647"):
            np.asarray(found.transform(large))
    for wrong in ("transform_iterations", "workers"):
        with pytest.raises(InputError, match=f"{wrong} is 0"):
            pickle.loads(pickle.dumps(found)).set_params(**{wrong: 0}).transform(COUNTS)


def test_the_number_of_topics_has_two_names_and_the_prior_can_be_given(
    models: dict[type, Any], corpus: Path, tmp_path: Path
) -> None:
    strong = LRJSMF(n_components=K, alpha0=1e4, **ONE).fit(corpus)
    np.testing.assert_array_equal(strong.components_, models[LRJSMF].components_)
    np.testing.assert_allclose(
        strong.transform(corpus), np.tile(strong.topic_probability_, (502, 1)), atol=0.01
    )
    strong.save(tmp_path / "model")
    np.testing.assert_array_equal(LRJSMF.load(tmp_path / "model").transform(corpus), strong.transform(corpus))
    with pytest.raises(InputError, match="made of other input or with other settings"):
        models[LRJSMF].save(tmp_path / "model")
    with pytest.raises(InputError, match=r"n_components is 2\.5"):
        LRJSMF(n_components=2.5, **ONE).fit(corpus)  # type: ignore[arg-type]


def test_in_a_pipeline_words_have_names() -> None:
    pipeline = make_pipeline(CountVectorizer(), LRJSMF(2, **ONE))
    shares = pipeline.fit_transform(TEXTS)
    assert len({row.argmax() for row in shares[:2]} | {row.argmax() for row in shares[2:4]}) == 2
    assert (shares.max(axis=1) > 0.7).all()
    names = pipeline.named_steps["countvectorizer"].get_feature_names_out()
    pipeline.named_steps["lrjsmf"].set_output(transform="pandas")
    assert list(pipeline.transform(TEXTS[:3]).columns) == ["lrjsmf0", "lrjsmf1"]
    table = pd.DataFrame(CountVectorizer().fit_transform(TEXTS).toarray(), columns=names)
    by_name = LRJSMF(2, anchor_words=["cat", ("moon", "star")], **ONE).fit(table)
    assert by_name.feature_names_in_.tolist() == list(names)
    assert by_name.model_["word"].to_numpy().tolist() == list(names)
    assert list(names).index("cat") in by_name.anchors_
    with pytest.raises(ValueError, match="feature names should match"):
        by_name.transform(table[names[::-1]])


def test_words_come_from_the_steps_before_or_are_given() -> None:
    vectorizer = CountVectorizer()
    counts = vectorizer.fit_transform(TEXTS)
    names = vectorizer.get_feature_names_out().tolist()

    def words(found: Any) -> list[str]:
        return list(found.model_["word"].to_numpy())

    same = FunctionTransformer(feature_names_out="one-to-one")
    pipeline = make_pipeline(CountVectorizer(), same, LRJSMF(2, anchor_words=["cat"], **ONE))
    for fitted in (pipeline.fit(TEXTS), clone(pipeline).fit(TEXTS)):
        assert words(fitted[-1]) == names
        assert names.index("cat") in fitted[-1].anchors_
    assert words(STOD(2, feature_names=names, **ONE).fit(counts)) == names
    assert words(LRJSMF(2, feature_names=vectorizer, **ONE).fit(counts)) == names
    assert words(LRJSMF(2, **ONE).fit(counts))[:2] == ["x0", "x1"]
    for given, said in (
        (["a", "b", "c"], "has 3 words .* 6 columns"),
        ("cat", "feature_names is of type str"),
    ):
        with pytest.raises(InputError, match=said):
            LRJSMF(2, feature_names=given, **ONE).fit(counts)


def test_a_grid_search_scans_each_fold_once(tmp_path: Path) -> None:
    estimator = LRJSMF(max_topics=K, store=tmp_path / "{corpus}", **ONE)
    search = GridSearchCV(estimator, {"n_topics": [2, 3, K]}, cv=2, refit=False).fit(COUNTS)
    assert search.best_params_["n_topics"] == K
    assert [open_moments(path).settings.max_topics for path in tmp_path.iterdir()] == [K, K]


@pytest.mark.slow
def test_dask_ml_counts_splits_searches_and_predicts_with_topics(tmp_path: Path) -> None:
    """dask-ml's conventions: its vectorizers and splits before the estimator, its wrapper and its search around it."""
    from dask_ml.feature_extraction.text import CountVectorizer as BagVectorizer
    from dask_ml.model_selection import GridSearchCV as DaskGridSearch
    from dask_ml.model_selection import train_test_split
    from dask_ml.wrappers import Incremental, ParallelPostFit

    vectorizer = BagVectorizer()
    counts = vectorizer.fit_transform(db.from_sequence(TEXTS, npartitions=3)).compute_chunk_sizes()
    is_sky = da.from_array(np.array(["sky" in text for text in TEXTS], dtype=int), chunks=counts.chunks[0])
    train, test, known, asked = train_test_split(counts, is_sky, random_state=0, test_size=0.25)
    topics = LRJSMF(2, feature_names=vectorizer, **ONE).fit(train)
    assert topics.model_["word"].values.tolist() == list(vectorizer.get_feature_names_out())
    np.testing.assert_array_equal(topics.components_, LRJSMF(2, **ONE).fit(train.compute()).components_)

    # Fitted once, then lazily: a task for each block, equal to the pipeline on all rows at once.
    pipeline = make_pipeline(LRJSMF(2, feature_names=vectorizer, **ONE), LogisticRegression())
    wrapped = ParallelPostFit(pipeline, scoring="accuracy").fit(train, known)
    predicted = wrapped.predict(test)
    assert (predicted.chunks, predicted.dtype) == (asked.chunks, int)
    np.testing.assert_array_equal(predicted.compute(), pipeline.predict(test.compute()))
    np.testing.assert_array_equal(predicted.compute(), asked.compute())
    assert wrapped.score(test, asked) == 1.0
    np.testing.assert_array_equal(
        ParallelPostFit(topics).transform(test).compute(), topics.transform(test).compute()
    )

    classifier = Incremental(SGDClassifier(random_state=0), scoring="accuracy")
    classifier.fit(topics.transform(train), known, classes=[0, 1])
    assert classifier.score(topics.transform(test), asked) == 1.0

    wanted = {"n_topics": [1, 2]}
    estimator = LRJSMF(max_topics=2, feature_names=vectorizer, store=tmp_path / "{corpus}", **ONE)
    search = DaskGridSearch(estimator, wanted, cv=2, scheduler="synchronous").fit(counts)
    expected = GridSearchCV(estimator, wanted, cv=2).fit(counts.compute())
    assert search.cv_results_["mean_test_score"].tolist() == expected.cv_results_["mean_test_score"].tolist()
    assert search.best_estimator_.model_["word"].values.tolist() == topics.model_["word"].values.tolist()


def test_score_is_the_log_likelihood_of_completed_documents(models: dict[type, Any], corpus: Path) -> None:
    found = models[LRJSMF]
    expected = Completer.of(found.components_.T, found.alpha_, COUNTS.sum(axis=0)).complete(csr_array(COUNTS))
    assert found.score(COUNTS) == pytest.approx(-np.log(expected.perplexity))
    assert found.perplexity(COUNTS) == pytest.approx(expected.perplexity)
    assert found.score(corpus) == pytest.approx(found.score(COUNTS))
    shuffled = np.random.default_rng(0).permuted(COUNTS, axis=1)
    assert found.score(shuffled) < found.score(COUNTS)
    with pytest.raises(InputError, match="two tokens"):
        found.score(np.eye(N, dtype=int)[:3])
    with pytest.raises(InputError, match="2 documents of X have fractional counts"):
        found.score(COUNTS * np.where(np.arange(len(COUNTS)) < 2, 0.5, 1.0)[:, None])


def test_shares_are_turned_back_into_words(models: dict[type, Any]) -> None:
    found = models[LRJSMF]
    words = found.inverse_transform(found.transform(COUNTS))
    assert words.shape == COUNTS.shape
    np.testing.assert_allclose(words.sum(axis=1), 1)
    np.testing.assert_array_equal(found.inverse_transform(np.eye(K)), found.components_)
    assert found.inverse_transform(np.empty((0, K))).shape == (0, N)
    for wrong, kind, said in (
        (np.eye(2, K - 1), InputError, f"{K - 1} columns, .* {K} topics"),
        (np.eye(2, K + 1), InputError, f"{K + 1} columns, .* {K} topics"),
        (np.full(K, 1 / K), ValueError, "Expected 2D array"),
        (np.full((2, K), np.nan), ValueError, "contains NaN"),
    ):
        with pytest.raises(kind, match=said) as refused:
            found.inverse_transform(wrong)
        assert isinstance(refused.value, ValueError)


def test_topics_as_a_data_frame(models: dict[type, Any]) -> None:
    found = models[LRJSMF]
    table = found.topics(words=25)
    assert list(table.columns) == ["topic", "share", "label", "words"]
    assert table["topic"].tolist() == np.argsort(-found.topic_probability_, kind="stable").tolist()
    for topic, listed in zip(table["topic"], table["words"], strict=True):
        values = [value for _, value in listed]
        np.testing.assert_array_equal(values, np.sort(found.components_[topic])[::-1][:25])


def test_one_scan_serves_several_estimators(corpus: Path, tmp_path: Path, models: dict[type, Any]) -> None:
    store = tmp_path / "moments"
    first = LRJSMF(K, store=store, **ONE).fit(corpus)
    np.testing.assert_array_equal(first.components_, models[LRJSMF].components_)
    commits = sorted(path.name for path in (store / "records").iterdir())
    fewer = LRJSMF(2, max_topics=K, store=store, **ONE).fit(corpus)
    assert fewer.components_.shape == (2, N)
    assert sorted(path.name for path in (store / "records").iterdir()) == commits, "nothing was scanned again"
    # The other engine adds what it needs.
    tensor = STOD(K, store=store, **ONE).fit(corpus)
    np.testing.assert_array_equal(tensor.components_, models[STOD].components_)
    assert open_moments(store).settings.third_moment
    for wrong, X, said in (
        ({}, COUNTS[:100], "other input .*corpus is another one"),
        ({"document_weights": "uniform"}, corpus, "document_weights: .*'capped', .*'uniform'"),
    ):
        with pytest.raises(InputError, match=said):
            LRJSMF(K, store=store, **wrong, **ONE).fit(X)
    # A matrix of the same counts is the same corpus elsewhere.
    one, other = (LRJSMF(K, store=tmp_path / "of-matrix", **ONE).fit(X) for X in (COUNTS, csr_array(COUNTS)))
    np.testing.assert_array_equal(one.components_, other.components_)


def test_temporary_files_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def watched(*arguments: Any) -> Any:
        seen.append(sorted(path.name for path in tmp_path.glob("*/*")))
        return make(*arguments)

    make = TopicsPlan.model
    monkeypatch.setattr(TopicsPlan, "model", watched)
    LRJSMF(2, scratch=tmp_path, **ONE).fit(COUNTS)
    assert seen == [["corpus", "moments"]]
    with pytest.raises(InputError, match="no document has two tokens"):
        LRJSMF(2, scratch=tmp_path, **ONE).fit(np.eye(5))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match=r"scratch is .*nowhere'"):
        LRJSMF(2, scratch=tmp_path / "nowhere", **ONE).fit(COUNTS)


def test_blocks_of_a_dask_array_are_made_once_and_held_one_by_one() -> None:
    made: list[weakref.ref[Any]] = []
    alive: list[int] = []

    def block(number: int) -> Any:
        gc.collect()
        alive.append(sum(ref() is not None for ref in made))
        rows = csr_array(COUNTS[number * 100 : number * 100 + 100])
        made.append(weakref.ref(rows))
        return rows

    parts = [da.from_delayed(delayed(block)(i), (100, N), np.int64, meta=csr_array((0, 0))) for i in range(5)]
    found = LRJSMF(K, **ONE).fit(da.concatenate(parts))
    assert alive == [0] * 5
    np.testing.assert_array_equal(found.components_, LRJSMF(K, **ONE).fit(COUNTS[:500]).components_)
    shares = found.transform(da.concatenate(parts))
    assert alive == [0] * 5, "nothing is made before it is asked for"
    assert shares.chunks == ((100,) * 5, (K,))
    assert shares.compute(scheduler="synchronous").shape == (500, K)
    assert len(alive) == 10


def _through_joblib(value: Any) -> Any:
    stream = io.BytesIO()
    joblib.dump(value, stream)
    stream.seek(0)
    return joblib.load(stream)


@pytest.mark.parametrize("engine", first_cases([LRJSMF, STOD]))
def test_a_fitted_estimator_serves_as_a_model(engine: type, models: dict[type, Any], tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        sj.report(engine(K), tmp_path / "page.html")
    models[engine].save(tmp_path / "model")
    sj.report(models[engine], tmp_path / "page.html")
    evaluation = {**sj.evaluate(tmp_path / "model"), "model": 0}
    assert {**sj.evaluate(models[engine]), "model": 0} == evaluation
    for form in (copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it)), _through_joblib):
        found = form(models[engine])
        assert found.topics().equals(models[engine].topics())
        model = sj.TopicModel(found)
        place = Path(model.path)
        del found
        gc.collect()
        assert model.topics().equals(sj.TopicModel(tmp_path / "model").topics())
        assert copy.copy(model).path != model.path, "a copy does not depend on the estimator"
        del model
        gc.collect()
        assert not place.exists()


@pytest.mark.parametrize(
    ("state", "seed"),
    [
        (7, 7),
        (np.int64(7), 7),
        (np.random.RandomState(7), np.random.RandomState(7).randint(2**31 - 1)),
        (np.random.default_rng(7), np.random.default_rng(7).integers(2**31 - 1)),
        (None, np.random.RandomState(3).randint(2**31 - 1)),
    ],
)
def test_random_states_are_seeds(state: Any, seed: int, corpus: Path, tmp_path: Path) -> None:
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(3)  # noqa: NPY002
    try:
        estimator = LRJSMF(K, random_state=state, **ONE).fit(corpus)
    finally:
        np.random.set_state(before)  # noqa: NPY002
    stored = estimator.model_.attrs["provenance"]["scan_settings"]
    # What `auto` has become is in the store.
    assert stored == ScanSettings(max_topics=K, seed=int(seed)).fields()
    assert estimator.random_state_ == seed
    assert estimator.get_params()["random_state"] is state
    assert not hasattr(clone(estimator), "random_state_")
    estimator.save(tmp_path / "saved")
    assert LRJSMF.load(tmp_path / "saved").random_state_ == seed


@pytest.mark.parametrize("state", first_cases([np.random.default_rng(7), None]))
def test_a_seed_is_drawn_once_for_all_batches_and_anew_for_each_fit(state: Any) -> None:
    estimator = LRJSMF(K, random_state=state, polish_steps=0, **ONE).partial_fit(COUNTS[:200])
    seed = estimator.random_state_
    again = LRJSMF(K, random_state=seed, polish_steps=0, **ONE).partial_fit(COUNTS[:200])
    estimator.partial_fit(COUNTS[200:])
    assert estimator.random_state_ == seed
    np.testing.assert_array_equal(estimator.components_, again.partial_fit(COUNTS[200:]).components_)
    assert estimator.fit(COUNTS).random_state_ != seed


def test_parameters_are_the_settings(corpus: Path) -> None:
    given = LRJSMF(
        np.int64(3), max_topics=np.int32(4), document_weights="uniform", partition_nonzeros=4000,
        rectify="palm", max_iterations=np.int64(20), anchor_min_df=np.float32(0.02), alpha0=2,
        memory="4GB", polish_steps=4, **ONE,
    )  # fmt: skip
    found = pickle.loads(pickle.dumps(clone(given).fit(corpus)))
    about = found.model_.attrs
    expected = InferSettings(3, rectify="palm", max_iterations=20, anchor_min_df=float(np.float32(0.02)))
    polish = PolishSettings(4).fields()
    assert about["settings"] == json.loads(json.dumps({**expected.fields(), "polish": polish}))
    scan_settings = ScanSettings(4, document_weights="uniform", partition_nonzeros=4000)
    assert about["provenance"]["scan_settings"] == scan_settings.fields()
    assert found.alpha0_ == 2
    tensor = STOD(3, alpha0=1, restarts=5, random_state=2, **ONE).fit(corpus)
    assert tensor.model_.attrs["settings"] == StodSettings(3, 1, restarts=5, seed=2).fields()


def test_polished_topics_are_those_of_fit(corpus: Path, tmp_path: Path) -> None:
    found = LRJSMF(K, polish_steps=3, random_state=1, **ONE).fit(corpus)
    model = sj.fit(corpus, tmp_path / "m", K, steps=3, seed=1, **ONE)
    arrays = model.dataset.load()
    np.testing.assert_array_equal(found.components_, arrays.word_topic.to_numpy().T)
    np.testing.assert_array_equal(found.alpha_, arrays.alpha.to_numpy())
    assert found.metrics_["polish"]["steps"] == model.dataset.attrs["metrics"]["polish"]["steps"]
    np.testing.assert_array_equal(LRJSMF.load(tmp_path / "m").alpha_, found.alpha_)
    other = LRJSMF(K, polish_steps=0, random_state=1, **ONE).fit(corpus)
    assert abs(other.components_ - found.components_).max() > 1e-4


@pytest.mark.parametrize(
    ("estimator", "X", "said"),
    [
        (LRJSMF(2.0), COUNTS, "n_topics is 2.0"),  # type: ignore[arg-type]
        (STOD(5, max_topics=0), COUNTS, "max_topics is 0"),
        (LRJSMF(3, alpha0="much"), COUNTS, "alpha0 is 'much'"),
        (LRJSMF(3, scheduler="x"), COUNTS, "scheduler is 'x'"),
        (LRJSMF(3, memory="much"), COUNTS, "memory is 'much'"),
        (LRJSMF(3, anchor_words=["x150"]), COUNTS, "the anchor word 'x150' is not in"),
        (STOD(50, **ONE), COUNTS[:, :30], "30 words, which support at most 30 topics"),
        (LRJSMF(3, rectify="ap"), COUNTS, "rectify='ap' .*exact=True"),
        (LRJSMF(9, anchor_min_df=len(COUNTS)), COUNTS, "topics is 9 .* anchor word in at least"),
        (LRJSMF(20, **ONE), np.repeat(COUNTS[:1], 30, axis=0), "positive eigenvalues, 20 topics were asked for"),
        (LRJSMF(3), np.ma.masked_array(COUNTS, COUNTS > 9), r"has masked values; .* X.filled\(0\)"),
        (LRJSMF(3), da.from_array(np.ma.masked_equal(COUNTS, 1), chunks=(90, N), asarray=False), "masked values"),
        (LRJSMF(3, feature_names=[*words(N - 1), None]), COUNTS, "feature_names has None .*, which is not a word"),
        (LRJSMF(3), -COUNTS, "Negative values in data passed to X in LRJSMF"),
        (LRJSMF(3), np.full((4, 5), 2.0**31), "2147483647"),
        (LRJSMF(3), np.zeros((4, 5)), "no document with a word"),
        (LRJSMF(3), "nowhere/at/all", "nowhere/at/all"),
        (LRJSMF(3), da.from_array(COUNTS, chunks=(100, 20)), "8 blocks across the words; rechunk it"),
        (LRJSMF(3), da.from_array(COUNTS[0], chunks=30), "1 dimensions"),
        (LRJSMF(3), da.from_array(COUNTS - (COUNTS > 20), chunks=(100, N)) * -1, "block 0 of X"),
        (LRJSMF(3), da.from_array(np.where(COUNTS == 0, np.nan, 1.0), chunks=(100, N)), "block 0 of X"),
    ],
)  # fmt: skip
def test_errors_are_one_line_and_value_errors(estimator: Any, X: Any, said: str) -> None:
    for begin in (estimator.fit, estimator.partial_fit):
        with pytest.raises(ValueError, match=said) as error:
            begin(X)
        assert "\n" not in str(error.value)
    with pytest.raises(NotFittedError):
        estimator.transform(X)


def test_other_words_are_refused(models: dict[type, Any], tmp_path: Path) -> None:
    found = models[LRJSMF]
    for X in (COUNTS[:, :-1], csr_array(COUNTS[:, :-1]), blocks(COUNTS[:, :-1])):
        with pytest.raises(ValueError, match=r"\b149\b.*\b150\b"):
            found.transform(X)
    other = write_corpus(tmp_path / "other", COUNTS[:50])
    (other / "vocab.txt").write_text("\n".join(words(N)[::-1]) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=re.escape(str(other))) as error:
        found.transform(other)
    assert isinstance(error.value, ValueError)
    # Fitted to a matrix, words have no names; their number is all that can be wrong.
    assert LRJSMF(2, **ONE).fit(COUNTS).transform(other).shape == (50, 2)


def test_a_corpus_with_its_vocabulary_elsewhere(tmp_path: Path) -> None:
    place = write_corpus(tmp_path / "corpus", TRUTH.counts)
    shutil.move(place / "vocab.txt", tmp_path / "names.txt")
    found = STOD(K, **ONE).fit(open_corpus(place, tmp_path / "names.txt"))
    assert found.feature_names_in_.tolist() == words(N)
