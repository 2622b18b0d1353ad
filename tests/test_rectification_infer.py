"""Rectifications as `infer` selects them: what they need of a store, and what they leave in the model."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from scipy.sparse import csr_array

import streaming_jsmf as sj
from streaming_jsmf.config import InferSettings, Rectifier, ScanSettings, StodSettings
from streaming_jsmf.errors import InputError, TooFewFactorsError
from streaming_jsmf.evaluation.matching import yy_error
from streaming_jsmf.moments.store import Moments
from streaming_jsmf.topics import requirements
from streaming_jsmf.topics.infer import fit_moments
from streaming_jsmf.topics.store import Model
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


def test_what_a_method_lacks_is_said_before_it_runs(
    usual: Moments, exact: Moments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = f"{usual.path}: rectify='ap' needs the whole co-occurrences; scan with exact=True, or use"
    with pytest.raises(InputError, match=wanted):
        fitted(usual, "ap")
    for counts, said in (
        (np.repeat(DEGENERATE["one word per document"], 9, axis=0), "no document has two different words"),
        (planted(200, 9, 5, length=30, seed=1).counts, "9 words are too few for 5 topics"),
    ):
        corpus = write_corpus(tmp_path / said, counts)
        moments = scanned(corpus, tmp_path / f"m {said}", ScanSettings(max_topics=K, exact=True))
        with pytest.raises(InputError, match=said):
            fit_moments(moments, InferSettings(2 if "two" in said else K, rectify="dc"))
    monkeypatch.setattr(requirements, "machine_memory", lambda: 50_000)
    with pytest.raises(InputError, match=r"120 words and this machine has 48.83 kiB; use rectify='enn'"):
        fitted(exact, "dc")


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
        for name in {*get_args(Rectifier)} - {*(() if exactly else NEED_THE_WHOLE)}:
            with pytest.raises(
                TooFewFactorsError, match=r"have 3 positive eigenvalues, 5 topics were asked for"
            ):
                fitted(moments, name)


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
    "one word": np.array([[3], [2], [5]]),
    "two words": np.array([[2, 1], [1, 2], [3, 0]]),
    "one word per document": 3 * np.eye(6, dtype=int),
    "proportional documents": np.outer(np.arange(1, 9), np.arange(1, 9)),
    "one document": np.array([[2, 3, 1, 1, 4, 2]]),
    "two disjoint blocks": np.kron(np.eye(2, dtype=int), np.full((5, 4), 2)),
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

    for n_topics in (1, 3):
        for method in get_args(Rectifier):
            with suppress(InputError):
                topics = fit_moments(exact, InferSettings(n_topics, rectify=method)).arrays["word_topic"]
                np.testing.assert_allclose(topics.sum(axis=0), 1)
        with suppress(InputError):
            topics = fit_moments(third, StodSettings(n_topics)).arrays["word_topic"]
            np.testing.assert_allclose(topics.sum(axis=0), 1)
        with suppress(InputError):
            polished = sj.fit(corpus, tmp_path / f"polished-{n_topics}", n_topics, steps=2)
            np.testing.assert_allclose(polished.dataset.word_topic.sum("word"), 1)
