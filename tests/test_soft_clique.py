"""SoftClique against all cliques, and what it promises about its searches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from streaming_jsmf import ScanSettings, open_model, scan
from streaming_jsmf.cli.main import run
from streaming_jsmf.inference.anchors import (
    Clique,
    DegenerateAnchorsError,
    dense_similarity,
    low_rank_similarity,
    soft_cliques,
)
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.moments.store import Moments
from streaming_jsmf.topics.store import read_model
from tests import reference_anchors as oracle
from tests.corpora import planted, write_corpus

Floats = NDArray[np.float64]


def graph(n: int, seed: int, empty: float = 0.3) -> Floats:
    """Symmetric weights of which a share is zero, as in a raw co-occurrence."""
    rng = np.random.default_rng(seed)
    weights = rng.gamma(0.5, size=(n, n)) * (rng.random((n, n)) > empty)
    return (weights + weights.T) / 2


def search(C: Floats, K: int, allowed: NDArray[np.bool_], **options: int) -> tuple[Clique, ...]:
    return soft_cliques(dense_similarity(C, np.flatnonzero(allowed)), allowed, K, **options)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 4), st.sampled_from([0.0, 0.3, 0.7]))
def test_no_exchange_of_one_word_is_left(seed: int, K: int, empty: float) -> None:
    C = graph(14, seed, empty)
    allowed = np.random.default_rng(seed).random(14) > 0.2
    clique = search(C, K, allowed)[0]
    words = tuple(clique.words.tolist())
    assert len(set(words)) == K
    assert allowed[list(words)].all()
    assert clique.weight == pytest.approx(oracle.clique_weight(C, words), abs=1e-12)
    assert oracle.best_exchange(C, words, allowed) >= clique.weight - 1e-10
    assert clique.weight >= oracle.lightest_clique(C, K, allowed) - 1e-12


def test_most_searches_end_in_the_lightest_clique() -> None:
    allowed = np.ones(16, dtype=bool)
    weights, lightest = [], []
    for seed in range(40):
        C = graph(16, seed, 0.0)
        weights.append(search(C, 3, allowed, multiple=8)[0].weight)
        lightest.append(oracle.lightest_clique(C, 3, allowed))
    reached = np.isclose(weights, lightest, atol=1e-12)
    assert reached.mean() > 0.8


def test_a_planted_clique_is_found() -> None:
    C = graph(60, 5, 0.0) + 0.1
    planted = [3, 17, 40, 41, 58]
    C[np.ix_(planted, planted)] = 1e-4
    np.testing.assert_array_equal(search(C, 5, np.ones(60, dtype=bool))[0].words, planted)


def test_ties_go_to_the_lowest_ids_whatever_the_start() -> None:
    for clique in search(np.zeros((30, 30)), 4, np.arange(30) >= 2, multiple=5):
        assert clique.weight == 0.0
    first = search(np.zeros((30, 30)), 4, np.arange(30) >= 2)[0]
    again = search(np.zeros((30, 30)), 4, np.arange(30) >= 2)[0]
    np.testing.assert_array_equal(first.words, again.words)
    np.testing.assert_array_equal(first.words, [2, 3, 4, 5])


def test_several_searches_give_different_cliques_the_lightest_first() -> None:
    C = graph(80, 9, 0.0)
    found = search(C, 4, np.ones(80, dtype=bool), multiple=12)
    assert len(found) > 1
    assert [clique.weight for clique in found] == sorted(clique.weight for clique in found)
    assert len({tuple(clique.words.tolist()) for clique in found}) == len(found)


def test_rows_on_demand_give_the_cliques_of_the_stored_matrix() -> None:
    rng = np.random.default_rng(1)
    Y = rng.gamma(0.3, size=(90, 6))
    allowed = rng.random(90) > 0.3
    stored = search(np.maximum(Y @ Y.T, 0.0), 6, allowed, multiple=3)
    made = soft_cliques(low_rank_similarity(Y, np.flatnonzero(allowed)), allowed, 6, multiple=3)
    assert [clique.words.tolist() for clique in stored] == [clique.words.tolist() for clique in made]


def test_one_topic_and_as_many_topics_as_words() -> None:
    C = graph(6, 0)
    assert search(C, 1, np.ones(6, dtype=bool))[0].weight == 0.0
    np.testing.assert_array_equal(search(C, 6, np.ones(6, dtype=bool))[0].words, range(6))
    with pytest.raises(DegenerateAnchorsError, match="5 words may be anchors for 6 topics"):
        search(C, 6, np.arange(6) > 0)


@pytest.fixture(scope="module")
def moments(tmp_path_factory: pytest.TempPathFactory) -> Moments:
    folder = tmp_path_factory.mktemp("cliques")
    corpus = write_corpus(folder / "corpus", planted(400, 150, 6, length=30, seed=2).counts)
    return scan(corpus, folder / "moments", ScanSettings(max_topics=3), Execution("synchronous"))


def test_a_model_lists_all_cliques_and_any_of_them_can_have_the_anchors(
    moments: Moments, tmp_path: Path
) -> None:
    infer_ = ["infer", str(moments.path)]
    options = ["--topics", "3", "--anchors", "soft-clique", "--cliques", "20"]
    assert run([*infer_, str(tmp_path / "first"), *options]) == 0
    assert run([*infer_, str(tmp_path / "second"), *options, "--clique", "2"]) == 0
    first, second = (read_model(tmp_path / name).arrays for name in ("first", "second"))
    assert len(first["cliques"]) == len(first["clique_weight"]) > 1
    assert (np.diff(first["clique_weight"]) >= 0).all()
    np.testing.assert_array_equal(first["cliques"], second["cliques"])
    for model, listed in ((first, first["cliques"][0]), (second, first["cliques"][1])):
        np.testing.assert_array_equal(np.sort(model["anchors"]), listed)
    assert {*first["anchors"].tolist()} != {*second["anchors"].tolist()}
    # The weights are those of the words in Y Y' (edges below 0 count as 0).
    chosen = first["rectified"][first["cliques"][1]]
    block = np.maximum(chosen @ chosen.T, 0.0)
    assert first["clique_weight"][1] == pytest.approx((block.sum() - np.trace(block)) / 2)
    sizes = {"clique": len(first["cliques"]), "topic_": 3}
    assert dict(open_model(tmp_path / "first")["cliques"].sizes) == sizes


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--cliques", "3"), "soft-clique"),
        (("--anchors", "soft-clique", "--cliques", "400", "--clique", "400"), "400 searches found"),
    ],
)
def test_wrong_cliques_end_in_one_line(
    moments: Moments, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], line: str
) -> None:
    assert run(["infer", str(moments.path), str(tmp_path / "m"), "--topics", "3", *options]) == 2
    error = capsys.readouterr().err.strip()
    assert line in error
    assert "\n" not in error
    assert not (tmp_path / "m").exists()
