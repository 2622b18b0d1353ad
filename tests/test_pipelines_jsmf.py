"""The scripts of LR-JSMF's and JSMF's experiments: each runs with --quick, goes on from what it kept, and measures what
it says it does.
"""

from __future__ import annotations

import importlib
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from scipy.io import loadmat, savemat

from pipelines import authors_code, lr_jsmf_table1
from pipelines.common import data
from pipelines.common.methods import Setup
from pipelines.common.scores import Scorer, distances, pivot_gap
from pipelines.lr_jsmf_fig4 import SparseScorer
from streaming_jsmf import open_corpus
from tests.corpora import planted, write_corpus

#: Script -> its files and the number of its rows with --quick.
SCRIPTS = {
    "lr_jsmf_fig2": ("fig2", ".png", 5 * 300),
    # Five methods and one more seed at two K.
    "lr_jsmf_fig3": ("fig3", ".png", 2 * 6),
    "lr_jsmf_fig4": ("fig4", ".png", 2 * (3 + 2)),
    "lr_jsmf_table1": ("words", "", 4 * 5),
    "lr_jsmf_convergence": ("convergence", "", 6),
    "jsmf_2015": ("jsmf", ".png", 2 * 4),
}


def run(name: str, out: Path, *options: str) -> str:
    script = importlib.import_module(f"pipelines.{name}")
    done = CliRunner().invoke(script.main, [str(out), "--quick", *options], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_runs_and_goes_on_from_what_it_kept(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    if name == "jsmf_2015":
        pytest.importorskip("tomotopy")
    stem, picture, rows = SCRIPTS[name]
    first = run(name, tmp_path)
    assert pq.read_table(tmp_path / f"{stem}.parquet").num_rows == rows
    assert (tmp_path / f"{stem}.md").read_text() == first
    if picture:
        assert (tmp_path / f"{stem}{picture}").stat().st_size > 10_000
    # Seconds are among what is kept, so that nothing was worked out again if all is the same.
    cells = sorted(path for path in tmp_path.rglob("cells/*"))
    assert run(name, tmp_path) == first
    assert sorted(path for path in tmp_path.rglob("cells/*")) == cells


@pytest.mark.slow
def test_rectification_is_what_the_paper_says_it_is(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    run("lr_jsmf_fig3", tmp_path)
    rows = pq.read_table(tmp_path / "fig3.parquet").to_pylist()
    for k in (3, 5):
        of_k = {row["method"]: row for row in rows if row["K"] == k}
        assert of_k["AP"]["l1"] == 0
        assert of_k["ENN"]["l1"] < 0.05
        assert of_k["LR-JSMF"]["yy_error"] < 0.01
        # A table in which bare AW looks like the others would compare nothing.
        assert of_k["baseline"]["l1"] > 10 * of_k["ENN"]["l1"]
        assert of_k["baseline"]["specificity_2021"] < of_k["ENN"]["specificity_2021"] / 2


@pytest.fixture(scope="module", params=[(60, 90), (400, 30)], ids=["few documents", "many documents"])
def setup(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Setup:
    documents, words = request.param
    folder = tmp_path_factory.mktemp("setup")
    counts = planted(documents, words, 3, length=40, seed=5).counts
    return Setup(open_corpus(write_corpus(folder / "corpus", counts)), folder, 3, max_iterations=30)


def test_metrics_see_the_whole_cooccurrence(setup: Setup) -> None:
    c = Scorer(setup).cooccurrence
    dense = c.factor.astype(np.float64) @ c.factor.T - np.diag(c.diagonal)
    np.testing.assert_allclose(dense, setup.moments().cooccurrence(), atol=1e-7)


def test_metrics_without_an_array_of_words_by_words_are_the_same(setup: Setup) -> None:
    row, whole = SparseScorer(setup).row("LR-JSMF", 3), Scorer(setup).row("LR-JSMF", 3)
    assert abs(row["relative_recovery"] - whole["relative_recovery"]) < 4 * row["recovery_error"] + 1e-3
    found, scorer = setup.topics("LR-JSMF", 3), SparseScorer(setup)
    # The same trees, of as many prominent words.
    topics = Scorer(setup)._topics(found)
    assert scorer._incoherence(topics) == pytest.approx(whole["incoherence"], rel=1e-6)


def test_distances_of_the_same_topics_in_another_order(setup: Setup) -> None:
    found = setup.topics("ENN", 3)
    turned = {
        **found,
        "word_topic": found["word_topic"][:, [2, 0, 1]],
        "anchors": found["anchors"][[2, 0, 1]],
    }
    measured = distances(found, turned)
    assert (measured["anchors_shared"], measured["l1"]) == (3, 0.0)
    assert measured["yy_error"] < 1e-12


def test_the_gap_of_two_pivots_is_what_one_is_shorter_by() -> None:
    # Rows of the normalised Y Y' along three axes; word 3 is word 1 with an eighth of word 0, word 4 word 2 again.
    Y = np.array([[1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0], [0.125, 0.875, 0], [0, 0, 1.0]])
    first = {"rectified": Y, "anchors": np.array([0, 1, 2])}
    assert pivot_gap(first, np.array([0, 1, 2])) is None
    assert pivot_gap(first, np.array([0, 1, 4])) == pytest.approx(0, abs=1e-12)
    X = Y @ np.linalg.qr(Y).R.T / (Y @ Y.sum(axis=0))[:, None]
    left = [row - (row @ X[0]) / (X[0] @ X[0]) * X[0] for row in (X[1], X[3])]
    expected = 1 - np.linalg.norm(left[1]) / np.linalg.norm(left[0])
    assert pivot_gap(first, np.array([0, 3, 2])) == pytest.approx(expected)
    assert expected > 0.01


def test_drawn_documents_have_the_lengths_and_topics_asked_for() -> None:
    word_topic = np.array([[0.7, 0.0], [0.3, 0.0], [0.0, 0.4], [0.0, 0.6]])
    shares, lengths = np.repeat([[1.0, 0.0], [0.5, 0.5]], 400, axis=0), [30] * 800
    counts = data.draw_documents(word_topic, shares, lengths, seed=1).toarray()
    assert (counts.sum(axis=1) == 30).all()
    np.testing.assert_allclose(counts[:400].mean(axis=0) / 30, word_topic[:, 0], atol=0.02)
    np.testing.assert_allclose(counts[400:].mean(axis=0) / 30, word_topic.mean(axis=1), atol=0.02)


def test_ratings_are_half_stars_of_distinct_items(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(data.SIMULATED, "ratings", data.Simulated(50, 40, 3, 20, 0.1, 0.7))
    name, corpus = data.prepared("films=simulated:ratings", tmp_path, 40)
    counts = data.read_counts(Path(corpus.root))
    assert (name, corpus.n_documents) == ("films", 50)
    assert set(np.unique(counts.data)) <= set(range(1, 11))
    assert counts.data.mean() > 4
    truth = data.planted_topics("ratings", Path(corpus.root))
    assert truth.shape == (40, 3)
    # What is there is not drawn again.
    assert data.prepared("films=simulated:ratings", tmp_path, 40)[1].fingerprint == corpus.fingerprint


def test_topics_are_paired_with_the_papers_by_their_words() -> None:
    paper = ("a b c", "d e f")
    chosen, shared = lr_jsmf_table1.pairing(np.array([["d", "e", "x"], ["a", "y", "z"]]), paper)
    assert chosen == [1, 0]
    assert shared == [[0, 1], [2, 0]]


def test_the_authors_results_are_read_and_compared(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Octave is not needed: what it would write is written here, from our own topics with ids from 1."""
    own = setup.topics("baseline", 3)

    def octave(command: list[str], *, cwd: Path, **_: object) -> SimpleNamespace:
        assert command[0] == "octave-cli"
        given = loadmat(Path(cwd) / "in.mat")
        assert given["C"].sum() == pytest.approx(1)
        metrics = dict.fromkeys(authors_code.COMPARED, 0.25)
        found = {
            "S": own["anchors"][None] + 1,
            "B": own["word_topic"],
            "A": own["topic_topic"],
            "P": own["topic_probability"],
            "Y": np.empty((0, 0)),
            "seconds": 2.0,
            "metrics": metrics,
        }
        savemat(Path(cwd) / "out.mat", found)
        return SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(subprocess, "run", octave)
    row = authors_code.compared(tmp_path, setup, "baseline", 3)
    assert (row["anchors_shared"], row["l1"], row["words_shared"]) == (3, 0.0, 20.0)
    assert row["their_seconds"] == 2.0
    assert row["recovery: theirs of theirs"] == 0.25
    assert row["recovery: ours of theirs"] == pytest.approx(row["recovery: ours of ours"])


def test_a_folder_that_is_not_the_authors_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(authors_code.main, [str(tmp_path), str(tmp_path / "out"), "--quick"])
    assert done.exit_code == 2
    assert "no +rectification" in done.output
