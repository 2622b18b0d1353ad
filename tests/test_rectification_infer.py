"""Rectifications as `infer` selects them: what they need of a store, and what they leave in the model."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from scipy.sparse import csr_array

import streaming_jsmf as sj
from streaming_jsmf.cli.main import run
from streaming_jsmf.config import InferSettings, Rectifier, ScanSettings
from streaming_jsmf.errors import InputError, TooFewFactorsError
from streaming_jsmf.evaluation.matching import yy_error
from streaming_jsmf.moments.store import Moments
from streaming_jsmf.topics import rectify as module
from streaming_jsmf.topics.infer import fit_moments
from streaming_jsmf.topics.store import Model, read_model
from tests import reference
from tests.corpora import Planted, planted, write_corpus
from tests.stores import SMALL, dense, scanned

K = 5
NEED_THE_WHOLE = ("ap", "dykstra", "dc")


@pytest.fixture(scope="module")
def exact(corpus_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Moments:
    settings = ScanSettings(max_topics=K, partition_nonzeros=5000, exact=True)
    return scanned(corpus_path, tmp_path_factory.mktemp("infer") / "exact", settings)


@pytest.fixture(scope="module")
def usual(corpus_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Moments:
    return scanned(corpus_path, tmp_path_factory.mktemp("infer") / "usual", SMALL)


def fitted(moments: Moments, name: str, **settings: object) -> Model:
    return fit_moments(moments, InferSettings(K, rectify=name, **settings), threads=1)  # type: ignore[arg-type]


def oracle(name: str, documents: Planted) -> np.ndarray:
    """Y of an algorithm by the oracle, 40 steps."""
    c = dense(documents.counts)
    if name == "enn":
        return reference.enn(c, K, len(c), 40)
    if name == "ap":
        return reference.alternating_projection(c, K, 40).factor
    if name == "dykstra":
        return reference.positive_factor(reference.dykstra(c, K, 40), K)
    if name == "palm":
        return reference.palm(c, K, 40)[-1].Y
    return reference.positive_factor(c, K)


@pytest.mark.parametrize("name", ["enn", "ap", "dykstra", "palm", "none"])
def test_the_model_holds_what_the_oracle_finds(name: str, exact: Moments, documents: Planted) -> None:
    model = fitted(exact, name, max_iterations=40, tolerance=0.0, acceleration="none")
    assert yy_error(model.arrays["rectified"], oracle(name, documents)) < 2e-3
    told = model.metrics["rectification"]
    assert told["iterations"] == (0 if name == "none" else 40)
    assert {"epsilon", "change", "converged", "objective", "checked_words", "left_out"} <= told.keys()
    assert (told["objective"] is not None) == (name == "palm")
    assert told["epsilon"] == 0.0, "all rows are checked"


@pytest.mark.parametrize("name", get_args(Rectifier))
def test_topics_are_proper_and_the_bits_do_not_depend_on_threads(name: str, exact: Moments) -> None:
    settings = InferSettings(K, rectify=name, max_iterations=25)  # type: ignore[arg-type]
    one, three = (fit_moments(exact, settings, threads=t) for t in (1, 3))
    for array, values in one.arrays.items():
        np.testing.assert_array_equal(values, three.arrays[array], err_msg=array)
    np.testing.assert_allclose(one.arrays["word_topic"].sum(axis=0), 1)
    assert np.isfinite(one.arrays["topic_topic"]).all()


@pytest.mark.parametrize("name", NEED_THE_WHOLE)
def test_a_store_without_the_whole_matrix_says_what_adds_it(name: str, usual: Moments) -> None:
    wanted = rf"{usual.path}: rectify='{name}' needs the whole co-occurrences; .* --exact, or use rectify='enn' or palm"
    with pytest.raises(InputError, match=wanted) as raised:
        fitted(usual, name)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", NEED_THE_WHOLE)
def test_too_many_words_are_sent_elsewhere(
    name: str, usual: Moments, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "machine_memory", lambda: 50_000)
    with pytest.raises(
        InputError, match=r"120 words and this machine has 48.83 kiB; use rectify='enn' or palm"
    ):
        fitted(usual, name)


@pytest.mark.parametrize("name", ["palm", "ipalm"])
def test_palm_runs_on_the_factor_where_there_is_no_matrix(name: str, usual: Moments, exact: Moments) -> None:
    low_rank, whole = (fitted(m, name, max_iterations=60).arrays["rectified"] for m in (usual, exact))
    assert yy_error(low_rank, whole) < 1e-3
    assert low_rank.min() >= 0


def test_palm_runs_on_eigenpairs_of_a_sketch(corpus_path: Path, tmp_path: Path, exact: Moments) -> None:
    settings = ScanSettings(max_topics=K, partition_nonzeros=5000, range_finder="halko")
    sketched = scanned(corpus_path, tmp_path / "m", settings)
    found = fitted(sketched, "palm", max_iterations=60).arrays["rectified"]
    assert yy_error(found, fitted(exact, "palm", max_iterations=60).arrays["rectified"]) < 0.2


def test_options_of_enn_reach_it(usual: Moments) -> None:
    plain = fitted(usual, "enn")
    by_words = fitted(usual, "enn", missing_mass="marginals")
    assert not np.array_equal(plain.arrays["rectified"], by_words.arrays["rectified"])
    assert plain.metrics["rectification"]["checked_words"] == 120
    steps = fitted(usual, "enn", acceleration="none", tolerance=1e-6).metrics["rectification"]["iterations"]
    assert steps > fitted(usual, "enn", tolerance=1e-6).metrics["rectification"]["iterations"]


def test_more_topics_than_the_corpus_has_directions(tmp_path: Path) -> None:
    # Three different documents, so C has at most three positive eigenvalues.
    counts = np.repeat(planted(3, 60, 3, length=30, seed=1).counts, 20, axis=0)
    corpus = write_corpus(tmp_path / "corpus", counts)
    for exactly in (False, True):
        moments = scanned(corpus, tmp_path / f"m{exactly}", ScanSettings(max_topics=K, exact=exactly))
        for name in get_args(Rectifier):
            with pytest.raises(
                TooFewFactorsError, match=r"have 3 positive eigenvalues, 5 topics were asked for"
            ):
                fitted(moments, name)


def test_halving_needs_words(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", planted(200, 9, 5, length=30, seed=1).counts)
    moments = scanned(corpus, tmp_path / "m", ScanSettings(max_topics=K, exact=True))
    found = moments.eigenpairs(1).positive
    if found < K:
        pytest.skip("too few eigenpairs to come so far")
    with pytest.raises(InputError, match="9 words are too few for 5 topics"):
        fitted(moments, "dc")


@pytest.mark.slow
def test_the_command_line_takes_them_all(
    corpus_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(tmp_path / "m")
    assert run(["scan", str(corpus_path), store, "--max-topics", "5", "--exact"]) == 0
    options = ["--max-iterations", "20", "--missing-mass", "marginals"]
    for name in ("enn", "ap", "ipalm"):
        assert run(["infer", store, str(tmp_path / name), "--topics", "5", "--rectify", name, *options]) == 0
        stored = read_model(tmp_path / name, ())
        assert stored.settings["rectify"] == name
        assert stored.settings["missing_mass"] == "marginals"
    fit = ["fit", str(corpus_path), str(tmp_path / "f"), "--topics", "3,5", "--exact", "--rectify", "dc"]
    assert run([*fit, "--acceleration", "none"]) == 0
    assert read_model(tmp_path / "f" / "k=3", ()).settings["acceleration"] == "none"
    capsys.readouterr()
    assert run(["scan", str(corpus_path), str(tmp_path / "usual"), "--max-topics", "5"]) == 0
    assert (
        run(["infer", str(tmp_path / "usual"), str(tmp_path / "x"), "--topics", "5", "--rectify", "ap"]) == 2
    )
    assert "--exact" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("name", ["none", "enn", "palm"])
def test_words_whose_row_sum_is_lost_are_counted_and_never_nan(name: str, tmp_path: Path) -> None:
    # Documents of four words: truncation leaves rare words below zero, a projection some at zero.
    corpus = write_corpus(tmp_path / "corpus", planted(500, 150, 3, length=4, seed=4).counts)
    moments = scanned(corpus, tmp_path / "m", ScanSettings(max_topics=3))
    model = fit_moments(moments, InferSettings(3, rectify=name), threads=1)  # type: ignore[arg-type]
    d = model.arrays["rectified_row_sum"]
    lost = d <= 0
    assert model.metrics["words_without_mass"] == lost.sum()
    assert lost.any(), "a case without lost words says nothing"
    np.testing.assert_array_equal(model.arrays["topic_given_word"][lost], 0.0)
    for array, values in model.arrays.items():
        if values.dtype.kind == "f":
            assert np.isfinite(values).all(), array


DEGENERATE = {
    "identical documents": np.tile([[2, 1, 1, 3, 1, 2]], (3, 1)),
    "one word": np.array([[3], [2], [5]]),
    "two words": np.array([[2, 1], [1, 2], [3, 0]]),
    "one word per document": 3 * np.eye(6, dtype=int),
    "proportional documents": np.outer(np.arange(1, 9), np.arange(1, 9)),
    "one document": np.array([[2, 3, 1, 1, 4, 2]]),
    "two disjoint blocks": np.kron(np.eye(2, dtype=int), np.full((5, 4), 2)),
    "every word once": np.ones((4, 8), dtype=int),
    "pairs of words": np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 0, 0]]),
    "three random documents": np.random.default_rng(0).poisson(0.7, (3, 6)) + 2 * np.eye(1, 6, dtype=int),
    "two documents of many words": np.tile(np.random.default_rng(0).integers(0, 3, (2, 402)), (5, 1)),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_stores_give_topics_or_one_line(name: str, tmp_path: Path) -> None:
    counts = DEGENERATE[name]
    names = [f"w{word}" for word in range(counts.shape[1])]
    corpus = sj.corpus_from_matrix(csr_array(counts.astype(np.int32)), names, tmp_path / "corpus")
    most = min(3, len(names))
    exact = sj.scan(corpus, tmp_path / "exact", exact=True, max_topics=most)
    third = sj.scan(corpus, tmp_path / "third", third_moment=True, max_topics=min(2, most))

    def tried(path: Path, store: Path, n_topics: int, **options: object) -> bool:
        with suppress(InputError):
            sj.infer(store, path, n_topics, **options)
        if not path.exists():
            return False
        topics = read_model(path).arrays["word_topic"]
        np.testing.assert_allclose(topics.sum(axis=0), 1)
        return True

    for n_topics in (1, 3):
        for method in get_args(Rectifier):
            model = tmp_path / f"{method}-{n_topics}"
            if tried(model, exact, n_topics, rectify=method) and method in ("enn", "dc"):
                sj.polish(model, corpus, tmp_path / f"polished-{method}-{n_topics}", steps=2)
        tried(tmp_path / f"stod-{n_topics}", third, n_topics, engine="stod")


def test_dc_says_that_no_document_has_two_different_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = csr_array(DEGENERATE["one word per document"].astype(np.int32))
    sj.corpus_from_matrix(counts, [*"abcdef"], tmp_path / "corpus")
    sj.scan(tmp_path / "corpus", tmp_path / "store", exact=True)
    arguments = [str(tmp_path / "store"), str(tmp_path / "model"), "--topics", "2", "--rectify", "dc"]
    assert run(["infer", *arguments]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line == (
        f"error: {tmp_path / 'store'}: --rectify dc completes the diagonal from pairs of different words, and no "
        "document has two different words; use --rectify enn"
    )
