"""The scripts that repeat the experiments of STOD and SoftClique, and TOD, which one of them is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner
from scipy import sparse

from pipelines import softclique, stod_fig1, stod_fig2, stod_tables
from pipelines.common.tod import DocumentMoments, tod
from streaming_jsmf import StodSettings
from streaming_jsmf.inference.stod.recovery import MIXING_STEPS
from tests import reference_stod
from tests.corpora import planted

ALPHA0 = 1.5


@pytest.fixture(scope="module")
def counts() -> sparse.csr_array:
    return sparse.csr_array(planted(250, 24, 4, length=14, seed=3).counts)


@pytest.fixture(scope="module")
def explicit(counts: sparse.csr_array) -> reference_stod.Moments:
    dense = counts.toarray()
    return reference_stod.counted_moments(dense, reference_stod.tensor_weights(dense, "capped"))


def test_passes_over_documents_do_what_the_explicit_tensors_do(
    counts: sparse.csr_array, explicit: reference_stod.Moments
) -> None:
    moments = DocumentMoments(counts, ALPHA0)
    v = np.random.default_rng(0).standard_normal((24, 3))
    second = reference_stod.second_moment(explicit, ALPHA0)
    np.testing.assert_allclose(moments.second(v), second @ v, atol=1e-15)
    third = np.einsum("xyz,yr,zr->xr", reference_stod.third_moment(explicit, ALPHA0), v, v)
    np.testing.assert_allclose(moments.third(v), third, atol=1e-15)
    values, vectors = moments.whiten(4)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(second)[::-1][:4], rtol=1e-10)
    np.testing.assert_allclose(vectors.T @ second @ vectors, np.diag(values), atol=1e-12)


@pytest.mark.parametrize("by_passes", [True, False])
def test_tod_is_the_algorithm_of_the_paper(
    counts: sparse.csr_array, explicit: reference_stod.Moments, by_passes: bool
) -> None:
    found = tod(DocumentMoments(counts, ALPHA0), StodSettings(4, ALPHA0), by_passes=by_passes)
    exact = reference_stod.tod(explicit, 4, ALPHA0)
    np.testing.assert_allclose(np.sort(found.components.values), exact.eigenvalues, rtol=1e-8)
    assert (found.passes > 4 * 30) == by_passes
    topics, weights = reference_stod.mixed(
        reference_stod.less_noise(exact.word_topic, explicit.first),
        explicit.first,
        exact.alpha / exact.alpha.sum(),
        MIXING_STEPS,
    )
    order = np.argsort(-weights, kind="stable")
    np.testing.assert_allclose(found.recovered.word_topic, topics[:, order], atol=1e-6)


def test_errors_are_those_of_matched_topics(tmp_path: Path) -> None:
    truth = np.random.default_rng(0).dirichlet(np.ones(8), size=3).T
    trial = stod_fig1.Trial(stod_fig1.Law(5, 8, 3), tmp_path)
    trial.truth = truth
    assert trial.error(truth[:, [2, 0, 1]]) == pytest.approx(0, abs=1e-15)
    # A topic that is not found counts as the uniform one.
    assert trial.error(truth[:, [2, 0]]) == pytest.approx(abs(truth[:, 1] - 1 / 8).sum() / 3)


def test_a_corpus_without_its_cutoff_is_refused(tmp_path: Path) -> None:
    with pytest.raises(click.BadParameter, match="NAME=SOURCE@CUTOFF"):
        softclique.prepared_with_cutoff("kos=somewhere", tmp_path)


def run(command: click.Command, *options: str) -> str:
    done = CliRunner().invoke(command, options)
    assert done.exit_code == 0, done.output
    return done.stdout


def rows(text: str, first: str) -> list[dict[str, str]]:
    """The table whose header begins with ``first``."""
    lines = iter(text.splitlines())
    header = next(line for line in lines if line.startswith(f"| {first} "))
    names, found = _cells(header), []
    next(lines)
    for line in lines:
        if not line.startswith("|"):
            break
        found.append(dict(zip(names, _cells(line), strict=True)))
    return found


def _cells(line: str) -> Sequence[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.slow
def test_figure_1_falls_with_the_documents_and_tod_is_stod(tmp_path: Path) -> None:
    pytest.importorskip("tomotopy")
    first = run(stod_fig1.main, str(tmp_path), "--quick")
    few, many = rows(first, "documents")
    for at in (few, many):
        error = {name: float(cell.split()[0]) for name, cell in at.items() if "," not in cell or " s" in cell}
        assert error["STOD"] < error["uniform"]
        assert error["TOD"] == pytest.approx(error["STOD"], rel=0.02)
    assert float(many["STOD"].split()[0]) < float(few["STOD"].split()[0])
    # Everything is kept.
    vary = (
        "--vary",
        "documents",
        "--values",
        "300,1500",
        "--words",
        "500",
        "--topics",
        "3",
        "--gibbs",
        "200",
    )
    assert run(stod_fig1.main, str(tmp_path), *vary, "--only-kept") == first
    assert {path.name for path in tmp_path.iterdir()} >= {
        f"stod_fig1.{kind}" for kind in ("md", "svg", "parquet")
    }


@pytest.mark.slow
def test_figure_2_has_a_row_for_each_method(tmp_path: Path) -> None:
    first = run(stod_fig2.main, str(tmp_path), "--quick")
    table = rows(first, "corpus")
    assert len(table) == 2 * len(stod_fig2.METHODS)
    by = {(row["method"], row["K"]): row for row in table}
    for k in "35":
        assert float(by["TOD", k]["NPMI"]) == pytest.approx(float(by["STOD", k]["NPMI"]), abs=0.02)
    assert run(stod_fig2.main, str(tmp_path), "--quick", "--only-kept") == first


@pytest.mark.slow
def test_tables_1_and_2_tell_the_parts(tmp_path: Path) -> None:
    first = run(stod_tables.main, str(tmp_path), "--quick")
    stod, tod_row = rows(first, "corpus")
    # Which is less is for the full run to say: here all are a second or two.
    assert min(float(row["in memory, s"]) for row in (stod, tod_row)) > 0
    assert float(tod_row["not in memory, s"]) > 0
    shares = first.split("\n\n")[1]
    for row in rows(shares, "corpus"):
        assert sum(float(cell) for name, cell in row.items() if name.endswith("%")) == pytest.approx(
            100, abs=0.3
        )
    assert run(stod_tables.main, str(tmp_path), "--quick", "--only-kept") == first


@pytest.mark.slow
def test_softclique_tables(tmp_path: Path) -> None:
    first = run(softclique.main, str(tmp_path), "--quick")
    table = rows(first, "corpus")
    assert [row["method"] for row in table] == ["pivoting", "SC", "LR-JSMF"]
    assert all(float(row["H = 20"].split()[0]) < float(row["H = 5"].split()[0]) < 0 for row in table)
    assert [row["K"] for row in rows(first, "K")] == ["5", "10"]
    assert "different cliques in 100 searches" in first
    assert run(softclique.main, str(tmp_path), "--quick", "--only-kept") == first
