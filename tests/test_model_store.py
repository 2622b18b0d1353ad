"""Model stores, and the labels of their topics."""

from __future__ import annotations

import copy
import doctest
import json
import shutil
from dataclasses import replace
from pathlib import Path

import fsspec
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from pipelines.common.matching import match_topics, yy_error
from streaming_jsmf import InferSettings, ScanSettings, fit, infer, open_model, scan
from streaming_jsmf.cli.main import run
from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.inference import words
from streaming_jsmf.inference.words import label_words, topic_labels
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.moments.store import Moments
from streaming_jsmf.topics.infer import fit_moments
from streaming_jsmf.topics.store import model_names, read_model, write_model
from streaming_jsmf.topics.variables import MODEL_VARIABLES
from tests import reference, reference_anchors
from tests.corpora import Planted
from tests.damage import Damage, rewritten, truncated

SYNCHRONOUS = Execution("synchronous")
SETTINGS = InferSettings(n_topics=5)


@pytest.fixture(scope="module")
def moments(corpus_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Moments:
    path = tmp_path_factory.mktemp("moments") / "m"
    return scan(corpus_path, path, ScanSettings(max_topics=5), SYNCHRONOUS)


@pytest.fixture(scope="module")
def made(moments: Moments) -> Path:
    infer(moments, moments.path.parent / "model", SETTINGS)
    return Path(moments.path.parent / "model")


@pytest.fixture
def model_path(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "model"))


@pytest.mark.parametrize("remote", [False, True])
def test_a_model_that_is_removed_while_it_is_open_is_not_read_as_zeros(
    model_path: Path, remote: bool
) -> None:
    if remote:
        memory = fsspec.filesystem("memory")
        memory.put(str(model_path), "/removed-while-open", recursive=True)
    opened = open_model("memory://removed-while-open" if remote else model_path)
    memory.rm("/removed-while-open", recursive=True) if remote else shutil.rmtree(model_path)
    with pytest.raises(FileNotFoundError, match="word_topic/c/0/0"):
        opened["word_topic"].load()


@pytest.mark.parametrize("damage", [Path.unlink, truncated])
def test_a_model_without_the_metadata_of_an_array_is_not_opened(model_path: Path, damage: Damage) -> None:
    damage(model_path / "word_topic/zarr.json")
    with pytest.raises(StoreError, match=r"model: .*(metadata|word_topic).*; run infer again"):
        open_model(model_path)


def test_xarray_opens_a_labelled_model_without_this_package(model_path: Path) -> None:
    data = xr.open_zarr(str(model_path), consolidated=False)
    of_others = {"alpha", "topic_topic_of_documents", "cliques", "clique_weight", "shown_word"}
    of_others |= {"origin_words", "origin_probability"}
    assert {name: data[name].dims for name in data.variables} == {
        name: variable.dimensions for name, variable in MODEL_VARIABLES.items() if name not in of_others
    }
    assert "word" in data.coords
    assert data["word"].values[3] == "word0003"
    assert data["word_topic"].sel(word="word0003").shape == (5,)
    assert data["word_topic"].attrs["symbol"] == "B"
    xr.testing.assert_identical(data.load(), open_model(model_path).load())


def test_words_cast_join_and_index_as_in_pandas(model_path: Path) -> None:
    opened = open_model(model_path)
    words = [f"word{number:04d}" for number in range(len(opened.word))]
    assert opened.word.values.astype(str).tolist() == opened.word.astype(str).values.tolist() == words
    frame = opened.word_topic.to_pandas()
    chosen = pd.DataFrame({"mine": [1, 2]}, index=["word0007", "word0002"]).join(frame)
    np.testing.assert_array_equal(chosen[[0, 1]], opened.word_topic.values[[7, 2]][:, :2])
    listed = opened.word[opened.prominent_words]
    assert listed.dims == ("topic", "rank")
    assert listed.values[0].tolist() == [words[word] for word in opened.prominent_words.values[0]]
    assert "word0000" in repr(opened.word)
    assert "word0000" in opened._repr_html_()
    plain = xr.open_zarr(model_path, consolidated=False)
    plain = plain.assign_coords(word=plain.word.astype(object))  # as in the documentation
    assert plain.word.values.astype(str).tolist() == words
    assert plain.word_topic.to_pandas().loc["word0007"].tolist() == opened.word_topic.values[7].tolist()


def test_a_model_is_written_as_netcdf(model_path: Path, tmp_path: Path) -> None:
    model = open_model(model_path)
    model.to_netcdf(tmp_path / "model.nc")
    with xr.open_dataset(tmp_path / "model.nc") as again:
        np.testing.assert_array_equal(again["word_topic"].values, model["word_topic"].values)
        assert again["word"].values.tolist() == model["word"].values.tolist()
        assert json.loads(again.attrs["settings"]) == model.attrs["settings"]
    settings = model.attrs["settings"]
    assert (settings["n_topics"], settings.get("none"), "n_topics" in settings) == (5, None, True)
    assert dict(settings) == settings == {**settings} == copy.deepcopy(settings)
    assert InferSettings(**settings).n_topics == 5


def test_the_distributions_are_distributions(model_path: Path) -> None:
    model = read_model(model_path)
    arrays = model.arrays
    assert model.metrics["largest_simplex_gap"] < 1e-9
    np.testing.assert_allclose(arrays["word_topic"].sum(axis=0), 1.0, atol=1e-10)
    np.testing.assert_allclose(arrays["topic_probability"].sum(), 1.0, atol=1e-10)
    with_mass = arrays["rectified_row_sum"] > 0
    np.testing.assert_allclose(arrays["topic_given_word"][with_mass].sum(axis=1), 1.0, atol=1e-10)
    for name in ("word_topic", "topic_given_word", "topic_topic", "topic_probability"):
        assert arrays[name].min() >= 0, name
    # The documented tolerance of A: it is recovered from the anchors' rows alone.
    assert arrays["topic_topic"].sum() == pytest.approx(1.0, abs=0.1)


def test_the_whole_line_finds_planted_topics(model_path: Path, documents: Planted) -> None:
    arrays = read_model(model_path).arrays
    rows = documents.word_topic[arrays["anchors"]]
    shares = rows / rows.sum(axis=1, keepdims=True)
    assert sorted(shares.argmax(axis=1)) == list(range(5)), "one anchor for each planted topic"
    assert shares.max(axis=1).min() > 0.9
    assert match_topics(arrays["word_topic"], documents.word_topic).mean_l1 < 0.35
    oracle = reference.lr_jsmf(
        documents.counts, 5, weights="capped", I_size=120, iterations=150, tolerance=0.0
    )
    assert yy_error(arrays["rectified"], oracle.rectified) < 0.01
    # Near-ties between pivots may go either way, and take a little of the topics with them ...
    assert match_topics(arrays["word_topic"], oracle.topics.word_topic).mean_l1 < 0.25
    # ... but from the same factor the topics are the same.
    y = arrays["rectified"]
    allowed = reference.anchor_guard(y @ y.sum(axis=0), arrays["row_sum"], arrays["document_frequency"], 12)
    frequency = arrays["document_frequency"]
    n_documents = int((documents.counts.sum(axis=1) >= 2).sum())
    topics = reference_anchors.shrunken_law(y, 5, allowed, frequency, 2 * n_documents**0.5)
    np.testing.assert_array_equal(arrays["anchors"], topics.anchors)
    np.testing.assert_allclose(arrays["word_topic"], topics.word_topic, atol=1e-8)
    np.testing.assert_allclose(arrays["topic_topic"], topics.topic_topic, rtol=1e-8)


def test_word_lists_come_from_the_arrays(model_path: Path, documents: Planted) -> None:
    arrays = read_model(model_path).arrays
    top = np.argsort(-arrays["word_topic"], axis=0, kind="stable")[:20].T
    np.testing.assert_array_equal(arrays["prominent_words"], top)
    weights = reference.document_weights(documents.counts.sum(axis=1), "capped")
    rows = reference.cooccurrence(documents.counts, weights)[arrays["anchors"]]
    for listed, exact in zip(arrays["characteristic_words"], np.argsort(-rows, axis=1), strict=True):
        assert len({*listed[:10]} & {*exact[:10]}) >= 8


def test_the_result_does_not_depend_on_threads(moments: Moments) -> None:
    models = [fit_moments(moments, SETTINGS, threads=t) for t in (1, 3)]
    for name, values in models[0].arrays.items():
        np.testing.assert_array_equal(values, models[1].arrays[name], err_msg=name)


def test_without_rectification_the_factor_is_the_eigenpairs(moments: Moments, tmp_path: Path) -> None:
    model = infer(moments, tmp_path / "none", replace(SETTINGS, rectify="none"))
    pairs = moments.eigenpairs(5, extra=0)
    np.testing.assert_array_equal(model.arrays["rectified"], pairs.vectors * np.sqrt(pairs.values))
    assert model.metrics["rectification"]["iterations"] == 0


def test_unfinished_work_is_not_a_model(model_path: Path) -> None:
    for name in ("k=10", "k=3", "k=5.partial", "k=x"):
        shutil.copytree(model_path, model_path.parent / name)
    assert model_names(model_path.parent) == ["k=3", "k=10"]


@pytest.mark.parametrize(
    ("field", "change", "error"),
    [
        *((name, None, StoreError) for name in ("format_version", "settings", "digests", "sha256")),
        ("metrics", {"a": 1}, StoreError),
        ("format_version", 99, InputError),
        ("kind", "other", InputError),
    ],
)
def test_altered_metadata_of_a_model_are_refused(
    field: str, change: object, error: type[Exception], model_path: Path
) -> None:
    root = model_path / "zarr.json"
    stored = json.loads(root.read_text())
    del stored["attributes"][field]
    if change is not None:
        stored["attributes"][field] = change
    root.write_text(json.dumps(stored))
    with pytest.raises(error, match=str(model_path)) as raised:
        read_model(model_path)
    assert type(raised.value) is error


def test_a_failed_write_leaves_nothing(moments: Moments, tmp_path: Path) -> None:
    infer(moments, tmp_path / "a", SETTINGS)
    broken = replace(read_model(tmp_path / "a"), metrics={"bad": object()})
    with pytest.raises(TypeError):
        write_model(tmp_path / "b", broken)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]


def test_provenance_says_what_made_it(model_path: Path, moments: Moments) -> None:
    model = read_model(model_path)
    corpus = moments.manifest.corpus
    assert model.provenance["corpus_fingerprints"] == [corpus.fingerprint]
    assert model.provenance["versions"]["numpy"] == np.__version__
    assert set(model.provenance["stages"]) == {"eigenpairs", "rectification", "anchor_words", "words"}
    assert all(stage["peak_memory"] > 0 for stage in model.provenance["stages"].values())
    assert model.settings["n_topics"] == 5


# -- Labels of topics: prominent and characteristic words, none twice --


def test_words_on_both_lists_come_first_and_a_shared_word_goes_where_it_suits_best() -> None:
    prominent = np.array([[9, 1, 2], [9, 4, 5]])
    characteristic = np.array([[1, 2, 9], [9, 6, 4]])
    # Ranks: topic 0 has 1 at 1 + 0, 2 at 2 + 1 and 9 at 0 + 2; topic 1 has 9 at 0 + 0, 4 at 1 + 2, 6 at 3 + 1.
    np.testing.assert_array_equal(label_words(prominent, characteristic, 3), [[1, 2, -1], [9, 4, 6]])


def test_words_on_only_one_list_fill_up_the_label() -> None:
    prominent, characteristic = np.array([[0, 1, 2]]), np.array([[3, 1, 4]])
    np.testing.assert_array_equal(label_words(prominent, characteristic, 5), [[1, 0, 3, 2, 4]])


@given(st.integers(1, 8), st.integers(1, 6), st.integers(0, 1000))
def test_no_word_labels_two_topics(n_topics: int, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    lists = [np.array([rng.permutation(12)[:6] for _ in range(n_topics)]) for _ in range(2)]
    labels = label_words(lists[0], lists[1], count)
    assert labels.shape == (n_topics, count)
    used = labels[labels >= 0]
    assert len(set(used.tolist())) == used.size
    for topic, row in enumerate(labels):
        assert set(row[row >= 0].tolist()) <= {*lists[0][topic].tolist(), *lists[1][topic].tolist()}
        # What is missing is missing at the end.
        assert (np.diff((row < 0).astype(int)) >= 0).all()


def test_topics_shows_labels_and_a_model_without_them_is_shown_too(
    corpus_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model"
    assert run(["fit", str(corpus_path), str(model), "--topics", "5"]) == 0
    arrays = read_model(model, ("word", "label_words")).arrays
    spelled = [[str(arrays["word"][word]) for word in row if word >= 0] for row in arrays["label_words"]]
    assert len({word for row in spelled for word in row}) == sum(map(len, spelled))
    printed = capsys.readouterr().out
    for row in spelled:
        assert f"%  {', '.join(row)}" in printed
    assert run(["topics", str(model), "--json"]) == 0
    assert [row["label"] for row in json.loads(capsys.readouterr().out)] == spelled
    rewritten(model, lambda about: about["digests"].pop("label_words"))
    assert run(["topics", str(model), "--json"]) == 0
    assert [row["label"] for row in json.loads(capsys.readouterr().out)] == [[]] * 5


@pytest.mark.parametrize(
    ("label", "others", "shown"),
    [
        ("game games team", "year hockey", "game, team, year"),
        ("game games cities", "city gaming hockey", "game, cities, hockey"),
        ("game games", "gamers", "game, other"),
        ("president white house", "white white_house congress", "president, white house, congress"),
        ("president white house", "white congress law white_house", "president, white, house"),
        ("white_house houses gun", "guns law", "white house, gun, law"),
        ("white white_house gun", "white white_house guns law", "white house, gun, law"),
        ("gun guns_gun", "law", "gun, law"),
        ("car care cart", "cars", "car, care, cart"),
        ("armenia armenian turkish", "taken", "armenia, turkish, other"),
    ],
)
def test_a_label_has_no_two_words_of_one_stem_and_phrases_for_their_parts(
    label: str, others: str, shown: str
) -> None:
    rows = [[word.replace("_", " ") for word in text.split()] for text in (label, others)]
    words = [*rows[0], *rows[1], "other", "taken"]
    # The second topic is labeled by the last word, which the first may not use.
    ids = [[words.index(word) for word in row] for row in rows]
    n = len(ids[0])
    arrays = {
        "word": np.array(words),
        "label_words": np.array([ids[0], [words.index("taken")] + [-1] * (n - 1)]),
        "prominent_words": np.array([[*ids[1], words.index("other")]] * 2),
    }
    found = topic_labels(arrays)
    assert ", ".join(found[0]) == shown
    assert found[1] == ("taken",)


def test_phrases_of_the_corpus_label_its_topics() -> None:
    rng = np.random.default_rng(0)
    themes = (
        "space station orbit orbits rocket",
        "white house senate senates vote",
        "ice hockey goal goals team",
    )
    texts = []
    for i in range(150):
        first, second, *rest = themes[i % 3].split()
        texts.append(" ".join([f"{first} {second}", *rng.choice(rest, 12), f"{first} {second}"]))
    model = fit(texts, n_topics=3, ngrams=2, max_df=1.0, stop_words="none", polish=False)
    shown = model.topics()["label"].tolist()
    assert {
        phrase for phrase in ("space station", "white house", "ice hockey") if phrase in " | ".join(shown)
    } == {"space station", "white house", "ice hockey"}
    for label in shown:
        parts = [part for word in label.split(", ") for part in word.split()]
        assert len({part.rstrip("s") for part in parts}) == len(parts)


def test_examples_hold() -> None:
    assert doctest.testmod(words).failed == 0
