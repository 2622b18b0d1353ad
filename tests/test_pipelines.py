"""Scripts of the papers' experiments: each runs with --quick, resumes, and measures what it says."""

from __future__ import annotations

import importlib
import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import click
import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from scipy.io import loadmat, savemat

from pipelines import authors_code, equal_time, jsmf_2015, lr_jsmf_fig4, softclique, stod_fig1, stod_fig2
from pipelines.common import data
from pipelines.common.methods import Setup
from pipelines.lr_jsmf_table1 import pairing
from pipelines.stale_results import changed_groups
from streaming_jsmf import open_corpus
from tests.corpora import planted, write_corpus

#: Script -> stem and suffix of its files, and the number of its rows with --quick.
SCRIPTS = {
    "lr_jsmf_fig2": ("fig2", ".png", 5 * 300),
    "lr_jsmf_fig3": ("fig3", ".svg", 2 * 10),  # eight methods, two of them with two seeds, at two K
    "lr_jsmf_fig4": ("fig4", ".svg", 2 * (5 + 4)),  # AP with the smaller vocabulary only
    "lr_jsmf_table1": ("words", "", 4 * 5),
    "lr_jsmf_convergence": ("convergence", ".svg", 6),
    "one_pass": ("one_pass", ".svg", 2 * (3 * 2 + 4 + 4)),
    "near_ties": ("near_ties", ".svg", 3 + 5),
    "jsmf_topics": ("jsmf_topics", ".svg", 3 * 5),
    "jsmf_2015": ("jsmf", ".svg", 2 * 2 * 4),
    "stod_fig1": ("stod_fig1", ".svg", None),
    "stod_fig2": ("stod_fig2", ".svg", 2 * 2 * len(stod_fig2.METHODS)),
    "stod_tables": ("stod_tables", ".svg", 2 * 3),
    "tod_dense": ("tod_dense", "", 3),
    "softclique": ("softclique", ".svg", None),
    "equal_time": ("equal_time", ".svg", 2 * len(equal_time.STEPS)),
    "coherence_repetition": ("coherence_repetition", ".svg", 2 * (len(stod_fig2.METHODS) + 1 + 4)),
}

Table = list[dict[str, str]]


def run(name: str, out: Path) -> str:
    script = importlib.import_module(f"pipelines.{name}")
    done = CliRunner().invoke(script.main, [str(out), "--quick"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def tables(path: Path) -> list[Table]:
    """The Markdown tables of a file, each as its rows by the header."""
    found = []
    for part in path.read_text().split("\n\n"):
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines()]
        if part.startswith("|"):
            found.append([dict(zip(cells[0], row, strict=True)) for row in cells[2:]])
    return found


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    counts = planted(60, 90, 3, length=40, seed=5).counts
    return Setup(open_corpus(write_corpus(tmp_path / "corpus", counts)), tmp_path, 3, max_iterations=30)


def check_fig3(out: Path) -> None:
    rows = pq.read_table(out / "fig3.parquet").to_pylist()
    for k in (3, 5):
        of_k = {row["method"]: row for row in rows if row["K"] == k}
        assert of_k["AP"]["l1"] == 0
        assert of_k["ENN"]["l1"] < 0.05
        assert of_k["LR-JSMF"]["yy_error"] < 0.01
        # If bare AW looked like the others, the table would compare nothing.
        assert of_k["baseline"]["l1"] > 10 * of_k["ENN"]["l1"]
        assert of_k["baseline"]["specificity_2021"] < of_k["ENN"]["specificity_2021"] / 2


def check_stod_fig1(out: Path) -> None:
    [few, many] = [
        {name: float(cell.split()[0]) for name, cell in row.items() if name != "documents"}
        for row in tables(out / "stod_fig1.md")[0]
    ]
    for error in (few, many):
        assert error["STOD, negatives cut"] < error["STOD as printed"] < error["uniform"]
        assert error["TOD as printed"] == pytest.approx(error["STOD as printed"], rel=0.02)
        assert error["TOD, noise removed"] == pytest.approx(error["STOD"], rel=0.02)
    assert many["STOD"] < few["STOD"]
    rows = pq.read_table(out / "stod_fig1.parquet").to_pylist()
    assert all(np.mean(row["topic_errors"]) == pytest.approx(row["error"]) for row in rows)


def check_stod_fig2(out: Path) -> None:
    npmi = {
        (row["method"], row["K"]): float(row["NPMI"].split()[0]) for row in tables(out / "stod_fig2.md")[0]
    }
    for k in "35":
        assert npmi["TOD", k] == pytest.approx(npmi["STOD", k], abs=0.02)


def check_stod_tables(out: Path) -> None:
    seconds, shares = tables(out / "stod_tables.md")
    # Only the full run can say which method is faster.
    rows = pq.read_table(out / "stod_tables.parquet").to_pylist()
    assert min(row["seconds"] for row in rows) > 0
    assert all(row["not_in_memory"] > row["seconds"] for row in rows if row["method"] != "STOD")
    assert [row["seeds"] for row in seconds] == ["2"] * 3
    for row in shares:
        assert sum(float(cell) for name, cell in row.items() if name.endswith("%")) == pytest.approx(
            100, abs=0.3
        )


def check_softclique(out: Path) -> None:
    coherence, times = tables(out / "softclique.md")[:2]
    assert [row["method"] for row in coherence] == ["FAW", "SC", "LR-JSMF", "random words"]
    assert all(float(row["H = 20"].split()[0]) < float(row["H = 5"].split()[0]) < 0 for row in coherence)
    assert [row["K"] for row in times] == ["5", "10"]
    assert "different cliques in 100 searches" in (out / "softclique.md").read_text()


CHECKS = {
    "lr_jsmf_fig3": check_fig3,
    "stod_fig1": check_stod_fig1,
    "stod_fig2": check_stod_fig2,
    "stod_tables": check_stod_tables,
    "softclique": check_softclique,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_runs_and_resumes_from_stored_results(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    if name in ("jsmf_2015", "jsmf_topics", "stod_fig1"):
        pytest.importorskip("tomotopy")
    stem, picture, rows = SCRIPTS[name]
    first = run(name, tmp_path)
    assert rows in (None, pq.read_table(tmp_path / f"{stem}.parquet").num_rows)
    assert (tmp_path / f"{stem}.md").read_text() == first
    record = json.loads((tmp_path / f"{stem}.json").read_text())
    assert record["command"].startswith(f"python -m pipelines.{name} ")
    assert record["corpora"] or name in ("stod_fig1", "tod_dense")
    assert not changed_groups(record)
    if picture:
        assert (tmp_path / f"{stem}{picture}").stat().st_size > 10_000
    if name in CHECKS:
        CHECKS[name](tmp_path)
    # The results contain seconds: if all are equal, nothing was computed again.
    cells = sorted(tmp_path.rglob("cells/*"))
    assert run(name, tmp_path) == first
    assert sorted(tmp_path.rglob("cells/*")) == cells


def test_topics_are_matched_with_the_papers_by_their_words() -> None:
    chosen, shared = pairing(np.array([["d", "e", "x"], ["a", "y", "z"]]), ("a b c", "d e f"))
    assert (chosen, shared) == ([1, 0], [[0, 1], [2, 0]])


def test_the_error_of_stod_is_that_of_matched_topics(tmp_path: Path) -> None:
    truth = np.random.default_rng(0).dirichlet(np.ones(8), size=3).T
    trial = stod_fig1.Trial(stod_fig1.Law(5, 8, 3), tmp_path)
    trial.truth = truth
    exact = stod_fig1.scores(trial.found(truth[:, [2, 0, 1]], 1.0))
    assert (exact["error"], exact["merged"]) == (pytest.approx(0, abs=1e-15), 0)
    # A missing topic counts as the uniform one.
    missing = stod_fig1.scores(trial.found(truth[:, [2, 0]], 1.0))
    assert missing["error"] == pytest.approx(abs(truth[:, 1] - 1 / 8).sum() / 3)
    # One estimate serves two true topics.
    merged = np.column_stack([truth[:, :2].mean(axis=1), truth[:, 2], np.eye(8)[0]])
    assert stod_fig1.scores(trial.found(merged, 1.0))["merged"] == 2


@pytest.mark.slow
def test_the_results_of_the_authors_code_are_read_and_compared(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Octave is not needed: its output is written here, from our own topics with ids from 1."""
    own = setup.topics("baseline", 3)

    def octave(command: list[str], *, cwd: Path, **_: object) -> SimpleNamespace:
        assert command[0] == "octave-cli"
        given = loadmat(cwd / "in.mat")
        assert given["C"].sum() == pytest.approx(1)
        np.testing.assert_allclose(given["C"] @ given["V"], given["V"] @ given["D"], atol=1e-6)
        assert (np.maximum(given["V"], 0) ** 2).sum(axis=0).min() >= 0.5
        found = {
            "S": own["anchors"][None] + 1,
            "B": own["word_topic"],
            "A": own["topic_topic"],
            "P": own["topic_probability"],
            "Y": np.empty((0, 0)),
            "seconds": 2.0,
            "metrics": dict.fromkeys(authors_code.COMPARED, 0.25),
        }
        savemat(cwd / "out.mat", found)
        return SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(subprocess, "run", octave)
    row = authors_code.compared(tmp_path, setup, "baseline", 3)
    assert (row["anchors_shared"], row["l1"], row["words_shared"]) == (3, 0.0, 20.0)
    assert row["their_seconds"] == 2.0
    assert row["recovery: theirs of theirs"] == 0.25
    assert row["recovery: ours of theirs"] == pytest.approx(row["recovery: ours of ours"])


def test_the_order_of_the_words_changes_no_topics_of_anchor_words(setup: Setup) -> None:
    assert (jsmf_2015.reordered(setup, 1).counts != setup.counts).nnz
    truth = setup.topics("baseline", 3)["word_topic"]
    rows = [*jsmf_2015.rows_of_orders("planted", setup, [3], ["AP", "baseline"], 3, truth)]
    assert [row["seed"] for row in rows] == [0, 0, 1, 1, 2, 2]
    for row in rows[2:]:
        assert row["order_anchors"] == 3
        assert row["order_l1"] < 1e-5
    assert all(row["mean_l1"] < 1e-5 for row in rows if row["method"] == "baseline")


@pytest.mark.slow
def test_figure_4_measures_scans_and_the_distance_to_simulated_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setitem(data.SIMULATED, "small", data.Simulated(400, 60, 3, 60, 0.1, 0.5))
    of = ["--corpus", "few=simulated:small", "--sizes", "30,60", "--topics", "3", "--methods", "AP,LR-JSMF"]
    CliRunner().invoke(lr_jsmf_fig4.main, [str(tmp_path), *of, "--seeds", "1"], catch_exceptions=False)
    rows = pq.read_table(tmp_path / "fig4.parquet").to_pylist()
    assert [(row["words"], row["method"]) for row in rows] == [
        (30, "AP"), (30, "LR-JSMF"), (60, "AP"), (60, "LR-JSMF")
    ]  # fmt: skip
    # The topics are known for all words only.
    assert [row["mean_l1"] is None for row in rows] == [True, True, False, False]
    assert max(row["mean_l1"] for row in rows[2:]) < 0.5
    assert min(row["scan_seconds"] for row in rows) > 0
    assert [row["anchors_shared"] for row in rows] == [3] * 4


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(click.BadParameter, match="NAME=SOURCE@CUTOFF"):
        softclique.prepared_with_cutoff("kos=somewhere", tmp_path)
    done = CliRunner().invoke(authors_code.main, [str(tmp_path), str(tmp_path / "out"), "--quick"])
    assert (done.exit_code, "+rectification" in done.output) == (2, True)
