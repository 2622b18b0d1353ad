"""The pipelines: what they share, the comparisons, and the two that print topics."""

from __future__ import annotations

import doctest
import importlib
import json
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from scipy import sparse
from scipy.io import loadmat, savemat

from pipelines import (
    authors_code,
    jsmf_2015,
    lr_jsmf_fig4,
    over_complete,
    quality,
    softclique,
    stale_results,
    stod_fig1,
    stod_fig2,
)
from pipelines.common import as_printed, data, peers, pictures, provenance, quality_tables, results, tables
from pipelines.common.chains import chain
from pipelines.common.matching import match_topics
from pipelines.common.methods import Setup
from pipelines.common.results import CellMissing, Results, publish
from pipelines.common.scores import Scorer, distances, pivot_gap
from pipelines.common.sequential import sampled_perplexity, sweeps
from pipelines.common.tod import DocumentMoments, tod
from pipelines.lr_jsmf_fig4 import SparseScorer
from pipelines.lr_jsmf_table1 import pairing
from pipelines.stale_results import changed_groups
from streaming_jsmf import StodSettings, open_corpus
from streaming_jsmf.evaluation.topic_shape import recovery_error
from streaming_jsmf.inference.perplexity import Completer, observed_half
from tests import reference_stod
from tests.cases import first_cases
from tests.corpora import planted, write_corpus

ALPHA0 = 1.5

#: Steps of ``reference_stod.mixed``, as many as the package takes.
MIXING_STEPS = 50


@pytest.mark.parametrize("module", [provenance, pytest.param(results, marks=pytest.mark.slow), tables])
def test_examples_hold(module: object) -> None:
    found = doctest.testmod(module)  # type: ignore[arg-type]
    assert found.attempted > 0
    assert found.failed == 0


def test_a_result_is_computed_once_per_key(tmp_path: Path) -> None:
    stored, made = Results(tmp_path), []

    def make() -> dict[str, float]:
        made.append(1)
        return {"error": len(made) / 4, "undefined": float("nan")}

    key = {"method": "AP", "K": 5, "corpus": "0123456789abcdef" * 4}
    for _ in range(2):
        assert stored.row(key, make) == {"error": 0.25, "undefined": None}
    assert stored.row({**key, "corpus": "f" * 64}, make)["error"] == 0.5
    assert len([*tmp_path.glob("AP_5-*.json")]) == 2
    with pytest.raises(CellMissing):
        Results(tmp_path, only_kept=True).row({**key, "K": 6}, make)


def test_an_interrupted_result_is_computed_again(tmp_path: Path) -> None:
    stored = Results(tmp_path)

    def killed() -> dict[str, float]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stored.row({"K": 5}, killed)
    assert stored.row({"K": 5}, lambda: {"error": 1.0}) == {"error": 1.0}
    for made in ({"B": np.eye(2)}, {}):
        np.testing.assert_array_equal(stored.arrays({"K": 5}, lambda made=made: made)["B"], np.eye(2))
    assert not list(tmp_path.glob("*.part"))


def test_a_stored_result_of_another_key_is_refused(tmp_path: Path) -> None:
    stored = Results(tmp_path)
    stored.row({"K": 5}, lambda: {"error": 1.0})
    [path] = tmp_path.glob("5-*.json")
    path.write_text(path.read_text().replace('"K": 5', '"K": 6'))
    with pytest.raises(ValueError, match=r"'K': 6"):
        stored.row({"K": 5}, lambda: {"error": 1.0})


def test_results_are_stale_once_their_code_has_changed(tmp_path: Path) -> None:
    stored = Results(tmp_path / "cells")
    stored.row({"K": 5}, lambda: {"error": 1.0})
    publish(tmp_path, "fig", [{"K": 5, "seed": 1}], "| K |")
    record = json.loads((tmp_path / "fig.json").read_text())
    assert (record["seeds"], changed_groups(record)) == ([1], [])
    # Results in the same folder that an older version computed.
    older = {**provenance.code_hashes("streaming_jsmf"), "streaming_jsmf/linalg": "0"}
    (tmp_path / "cells" / provenance.COMPUTED_BY).write_text(json.dumps([older]))
    publish(tmp_path, "fig", [], "| K |")
    done = CliRunner().invoke(stale_results.main, [str(tmp_path)])
    assert "fig (" in done.stdout
    assert done.stdout.rstrip().endswith("changed: streaming_jsmf/linalg")


def test_a_stale_result_tells_how_topics_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def commit(norm: float) -> str:
        topics = {"array": {"sha256": str(norm), "about": [norm, 1.0]}}
        (tmp_path / "golden.json").write_text(
            json.dumps({"cases": {"infer": {"word_topic": topics}, "scan": {}}})
        )
        by = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        for command in (("init", "-q"), ("add", "."), (*by, "commit", "-qm", "golden")):
            subprocess.run(["git", *command], cwd=tmp_path, check=True)
        return subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=tmp_path, text=True).strip()

    older, newer = commit(0.25), commit(0.5)
    monkeypatch.setattr(stale_results, "ROOT", tmp_path)
    monkeypatch.setattr(stale_results, "GOLDEN", "golden.json")
    assert (stale_results.since(older), stale_results.since(newer)) == ("0.2 (infer)", "same bits")
    assert "unknown" in stale_results.since(None)


#: A checkout with one script. The package linalg imports its public name ``lazy`` on first use.
TREE = {
    "pipelines/fig.py": "from pipelines.common import bags, tables\nfrom streaming_jsmf.linalg import lazy\n",
    "pipelines/common/bags.py": "def read():\n    import streaming_jsmf.corpus.format\n",
    "pipelines/common/tables.py": "from streaming_jsmf.corpus import shown\n",
    "pipelines/common/other.py": "",
    "streaming_jsmf/errors.py": "",
    "streaming_jsmf/corpus/__init__.py": "",
    "streaming_jsmf/corpus/format.py": "from streaming_jsmf.errors import InputError\n",
    "streaming_jsmf/corpus/shown.py": "",
    "streaming_jsmf/linalg/__init__.py": "if TYPE_CHECKING:\n"
    "    from streaming_jsmf.linalg.eigen import lazy as lazy\n"
    "    from streaming_jsmf.linalg.panels import other as other\n",
    "streaming_jsmf/linalg/eigen.py": "from numpy import linalg\nfrom streaming_jsmf.linalg import sparse\n",
    "streaming_jsmf/linalg/gram.py": "",
    "streaming_jsmf/linalg/sparse.py": "",
}


@pytest.mark.parametrize(
    ("edited", "changed"),
    [
        ("pipelines/fig.py", ["pipelines/fig"]),
        ("pipelines/common/bags.py", ["pipelines/common"]),
        ("pipelines/common/tables.py", []),  # it only shows results
        ("pipelines/common/other.py", []),
        ("streaming_jsmf/errors.py", ["streaming_jsmf/errors"]),
        ("streaming_jsmf/corpus/__init__.py", ["streaming_jsmf/corpus"]),
        ("streaming_jsmf/corpus/format.py", ["streaming_jsmf/corpus"]),
        ("streaming_jsmf/corpus/shown.py", []),
        ("streaming_jsmf/linalg/eigen.py", ["streaming_jsmf/linalg"]),
        ("streaming_jsmf/linalg/sparse.py", ["streaming_jsmf/linalg"]),
        ("streaming_jsmf/linalg/gram.py", []),
    ],
)
def test_only_edits_of_imported_modules_make_a_result_stale(
    edited: str, changed: list[str], tmp_path: Path
) -> None:
    for name, code in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(code)
    provenance.code_hashes.cache_clear()
    record = {
        "entry": "pipelines/fig",
        "code": [provenance.code_hashes("pipelines/fig", tmp_path)],
    }
    for added, found in (("# a comment\n", []), ("x = 1\n", changed)):
        (tmp_path / edited).write_text(TREE[edited] + added)
        provenance.code_hashes.cache_clear()
        assert changed_groups(record, tmp_path) == found
    (tmp_path / "pipelines/fig.py").unlink()
    provenance.code_hashes.cache_clear()
    assert changed_groups(record, tmp_path) == sorted(record["code"][0])


def test_a_figure_has_one_legend_and_the_same_bytes(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("first.svg", "again.svg"):
        figure, axes = pictures.panels(1, 2)
        for panel in axes[0]:
            pictures.curve(panel, "ENN", {5: [1.0, 2.0], 10: [None], 20: [3.0]})
            pictures.curve(panel, "AP", {5: [1.0], 20: [2.0]})
            pictures.ticks(panel, [5, 20])
        pictures.curve(axes[0][0], "PALM", {5: [None]})
        pictures.legend(figure)
        pictures.save(figure, tmp_path / name)
    first, again = ((tmp_path / name).read_text() for name in ("first.svg", "again.svg"))
    assert first == again
    # The order is that of LOOKS; methods without a value are omitted.
    assert [first.count(f">{name}<") for name in ("AP", "ENN", "PALM")] == [1, 1, 0]
    assert first.index(">AP<") < first.index(">ENN<")


def test_gibbs_sampling_yields_topics_after_each_number_of_sweeps() -> None:
    pytest.importorskip("tomotopy")
    counts = sparse.csr_array(np.array([[9, 1, 0, 0], [0, 0, 0, 9]] * 10))
    few, many = peers.gibbs(counts, 2, 0, [5, 50])
    assert (few.steps, many.steps) == (5, 50)
    for found in (few, many):
        np.testing.assert_allclose(found.word_topic.sum(axis=0), 1, rtol=1e-5)
        assert (found.word_topic[2] == 0).all()  # in no document
    assert (many.word_topic.max(axis=0) > 0.8).all()


@pytest.mark.slow
def test_shares_by_gibbs_sampling_predict_as_all_assignments_of_topics_do() -> None:
    """Two observed tokens have four assignments, whose posterior gives the exact probability of the others."""
    topics, prior = np.array([[0.6, 0.1], [0.3, 0.2], [0.1, 0.7]]), np.array([0.3, 0.2])
    counts = sparse.csr_array(np.tile(np.array([[2, 1, 1], [1, 1, 2]]), (2000, 1)))
    completer = Completer.of(topics, prior, np.ones(3))
    halves, logs = observed_half(counts, completer.keys, 0), []
    for row, observed in zip(counts.toarray(), halves.toarray(), strict=True):
        words, shares, total = np.repeat(np.arange(3), observed.astype(int)), np.zeros(2), 0.0
        for chosen in np.ndindex(2, 2):
            first, second = prior[chosen[0]], prior[chosen[1]] + (chosen[0] == chosen[1])
            weight = completer.topics[words, chosen].prod() * first * second
            shares += weight * (prior + np.bincount(chosen, minlength=2)) / (prior.sum() + 2)
            total += weight
        logs.append((row - observed) @ np.log(completer.topics @ (shares / total)))
    assert sampled_perplexity(completer, counts) == pytest.approx(np.exp(-np.mean(logs) / 2), rel=0.01)


@pytest.mark.slow
def test_sweeps_keep_all_tokens_and_find_topics() -> None:
    documents = planted(400, 60, 3, length=40, seed=6)
    counts = sparse.csr_array(documents.counts.astype(np.int32))
    start = 0.7 * documents.word_topic + 0.3 / 60
    *_, found = sweeps(counts, start, np.full(3, 0.1), [1.5] * 10 + [1.0] * 20, seed=1)
    np.testing.assert_allclose(found.sum(axis=1), counts.sum(axis=0))
    errors = [recovery_error(each / each.sum(axis=0), documents.word_topic) for each in (start, found)]
    assert errors[1] < 0.7 * errors[0]


def test_drawn_documents_have_the_given_lengths_and_topics() -> None:
    word_topic = np.array([[0.7, 0.0], [0.3, 0.0], [0.0, 0.4], [0.0, 0.6]])
    shares, lengths = np.repeat([[1.0, 0.0], [0.5, 0.5]], 400, axis=0), [30] * 800
    counts = data.draw_documents(word_topic, shares, lengths, seed=1).toarray()
    assert (counts.sum(axis=1) == 30).all()
    np.testing.assert_allclose(counts[:400].mean(axis=0) / 30, word_topic[:, 0], atol=0.02)
    np.testing.assert_allclose(counts[400:].mean(axis=0) / 30, word_topic.mean(axis=1), atol=0.02)


def test_simulated_ratings_are_half_stars_of_distinct_items(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(data.SIMULATED, "ratings", data.Simulated(50, 40, 3, 20, 0.1, 0.7))
    name, corpus = data.prepared("films=simulated:ratings", tmp_path, 40)
    counts = data.read_counts(Path(corpus.root))
    assert (name, corpus.n_documents) == ("films", 50)
    assert set(np.unique(counts.data)) <= set(range(1, 11))
    assert counts.data.mean() > 4
    assert data.planted_topics("ratings", Path(corpus.root)).shape == (40, 3)
    # An existing corpus is not drawn again.
    assert data.prepared("films=simulated:ratings", tmp_path, 40)[1].fingerprint == corpus.fingerprint


def test_a_source_that_cannot_be_ingested_is_refused_in_one_line(tmp_path: Path) -> None:
    spec = data.NIPS.parent / "uci_kos.toml"
    with pytest.raises(click.ClickException, match="takes no ngrams"):
        data.prepared(f"kos={spec}", tmp_path, 40, ngrams=2)


@pytest.fixture(scope="module", params=[(60, 90), (400, 30)], ids=["few documents", "many documents"])
def setup(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Setup:
    documents, words = request.param
    folder = tmp_path_factory.mktemp("setup")
    counts = planted(documents, words, 3, length=40, seed=5).counts
    return Setup(open_corpus(write_corpus(folder / "corpus", counts)), folder, 3, max_iterations=30)


def test_metrics_use_the_whole_cooccurrence(setup: Setup) -> None:
    words = np.arange(setup.corpus.n_words)
    dense = Scorer(setup).cooccurrence.rows(words)
    np.testing.assert_allclose(SparseScorer(setup).cooccurrence.rows(words), dense, atol=1e-7)


def test_metrics_without_a_dense_cooccurrence_are_the_same(setup: Setup) -> None:
    scorer, whole = SparseScorer(setup), Scorer(setup).row("LR-JSMF", 3)
    row = scorer.row("LR-JSMF", 3)
    assert row["relative_recovery"] == pytest.approx(whole["relative_recovery"], rel=1e-6)
    assert row["recovery_error"] is None, "of all rows"
    assert row["incoherence"] == pytest.approx(whole["incoherence"], rel=1e-6)


def test_the_order_of_topics_does_not_affect_distances(setup: Setup) -> None:
    found, order = setup.topics("ENN", 3), [2, 0, 1]
    turned = {"word_topic": found["word_topic"][:, order], "anchors": found["anchors"][order]}
    measured = distances(found, {**found, **turned})
    assert (measured["anchors_shared"], measured["l1"]) == (3, 0.0)
    assert measured["yy_error"] < 1e-12


def test_the_pivot_gap_is_the_relative_difference_of_the_residuals() -> None:
    # Rows of the normalized Y Y' along three axes; word 3 is word 1 with an eighth of word 0, word 4 equals word 2.
    Y = np.array([[1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0], [0.125, 0.875, 0], [0, 0, 1.0]])
    first = {"rectified": Y, "anchors": np.array([0, 1, 2])}
    assert pivot_gap(first, np.array([0, 1, 2])) is None
    assert pivot_gap(first, np.array([0, 1, 4])) == pytest.approx(0, abs=1e-12)
    X = Y @ np.linalg.qr(Y).R.T / (Y @ Y.sum(axis=0))[:, None]
    left = [row - (row @ X[0]) / (X[0] @ X[0]) * X[0] for row in (X[1], X[3])]
    expected = 1 - np.linalg.norm(left[1]) / np.linalg.norm(left[0])
    assert pivot_gap(first, np.array([0, 3, 2])) == pytest.approx(expected)
    assert expected > 0.01


@pytest.fixture(scope="module")
def counts() -> sparse.csr_array:
    return sparse.csr_array(planted(250, 24, 4, length=14, seed=3).counts)


@pytest.fixture(scope="module")
def explicit(counts: sparse.csr_array) -> reference_stod.Moments:
    dense = counts.toarray()
    return reference_stod.counted_moments(dense, reference_stod.tensor_weights(dense, "capped"))


@pytest.mark.slow
def test_products_of_tod_are_those_of_the_explicit_tensors(
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


@pytest.mark.parametrize("by_passes", first_cases([True, False]))
def test_tod_is_the_algorithm_of_the_paper(
    counts: sparse.csr_array, explicit: reference_stod.Moments, by_passes: bool
) -> None:
    found = tod(DocumentMoments(counts, ALPHA0), StodSettings(4, ALPHA0), by_passes=by_passes)
    exact = reference_stod.tod(explicit, 4, ALPHA0)
    np.testing.assert_allclose(np.sort(found.components.values), exact.eigenvalues, rtol=1e-8)
    assert (found.passes > 4 * 30) == by_passes
    denoised = reference_stod.less_noise(exact.word_topic, explicit.first)
    prior = exact.alpha / exact.alpha.sum()
    topics, weights = reference_stod.mixed(denoised, explicit.first, prior, MIXING_STEPS)
    order = np.argsort(-weights, kind="stable")
    np.testing.assert_allclose(found.recovered.word_topic, topics[:, order], atol=1e-6)


@pytest.mark.slow
def test_topics_as_printed_are_those_of_both_algorithms(counts: sparse.csr_array) -> None:
    """STOD sees the moments only in the span of the K leading eigenvectors of E2, TOD all of them."""
    dense = counts.toarray()
    whole = reference_stod.counted_moments(dense, reference_stod.tensor_weights(dense, "uniform"))
    basis = np.linalg.eigh(whole.second)[1][:, -4:]
    span = basis @ basis.T
    third = np.einsum("xyz,xi,yj,zk->ijk", whole.third, span, span, span, optimize=True)
    projected = reference_stod.Moments(span @ whole.first, span @ whole.second @ span, third)
    moments = DocumentMoments(counts, ALPHA0, "uniform")
    for found, explicit in (
        (as_printed.tod_as_printed(moments, 4, 0), whole),
        (as_printed.stod_as_printed(moments, 4, 0), projected),
    ):
        exact = reference_stod.tod(explicit, 4, ALPHA0).word_topic
        np.testing.assert_allclose(match_topics(found.phi, exact).l1, 0, atol=1e-6)
        assert found.phi.min() < 0
        topics = as_printed.cut(found.phi)
        assert topics.min() == 0
        np.testing.assert_allclose(topics.sum(axis=0), 1)


def test_a_chain_is_stored_at_its_checkpoints(counts: sparse.csr_array, tmp_path: Path) -> None:
    pytest.importorskip("tomotopy")
    kept = Results(tmp_path)
    found = dict(chain(counts, "a corpus", 3, 0, 20, kept))
    assert list(found) == [10, 20]
    np.testing.assert_allclose(found[20]["word_topic"].sum(axis=0), 1, rtol=1e-5)
    # Seconds are measured, so equal seconds mean that nothing was sampled again.
    again = dict(chain(counts, "a corpus", 3, 0, 20, Results(tmp_path, only_kept=True)))
    assert [again[n]["seconds"] for n in again] == [found[n]["seconds"] for n in found]
    assert not dict(chain(counts, "a corpus", 4, 0, 20, Results(tmp_path, only_kept=True)))


# -- Scripts of the papers' experiments: each runs with --quick, resumes, and measures what it says --


#: Script -> stem and suffix of its files, and the number of its rows with --quick.
SCRIPTS = {
    "lr_jsmf_fig2": ("fig2", ".png", 5 * 300),
    "lr_jsmf_fig3": ("fig3", ".svg", 2 * 10),  # eight methods, two of them with two seeds, at two K
    "lr_jsmf_fig4": ("fig4", ".svg", 2 * (5 + 4)),  # AP with the smaller vocabulary only
    "lr_jsmf_table1": ("words", "", 4 * 5),
    "lr_jsmf_convergence": ("convergence", ".svg", 6),
    "one_pass": ("one_pass", ".svg", 2 * (3 * 2 + 4 + 3 + 4)),
    "near_ties": ("near_ties", ".svg", 3 + 5),
    "jsmf_topics": ("jsmf_topics", ".svg", 3 * 5),
    "jsmf_2015": ("jsmf", ".svg", 2 * 2 * 5),
    "stod_fig1": ("stod_fig1", ".svg", None),
    "stod_fig2": ("stod_fig2", ".svg", 2 * 2 * len(stod_fig2.METHODS)),
    "stod_tables": ("stod_tables", ".svg", 2 * 3),
    "tod_dense": ("tod_dense", "", 3),
    "stod_any_k": ("stod_any_k", "", 2),
    "softclique": ("softclique", ".svg", None),
    "quality": ("quality", ".svg", 2 * sum(len(quality_tables.STEPS[name]) for name in quality.QUICK)),
    "over_complete": ("over_complete", "", 2),
    "update_steps": ("update_steps", "", 5 + 1),
    "rectification_steps": ("rectification_steps", "", 2 + 3),
    "later_papers": ("later_papers", "", 2 * 8 + (2 + 1) * 5 + 2 * 6),
    "coherence_repetition": ("coherence_repetition", ".svg", 2 * (len(stod_fig2.METHODS) + 1 + 4)),
}

Table = list[dict[str, str]]


def run(name: str, out: Path) -> str:
    script = importlib.import_module(f"pipelines.{name}")
    done = CliRunner().invoke(script.main, [str(out), "--quick"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def tables_in(path: Path) -> list[Table]:
    """The Markdown tables_in of a file, each as its rows by the header."""
    found = []
    for part in path.read_text().split("\n\n"):
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines()]
        if part.startswith("|"):
            found.append([dict(zip(cells[0], row, strict=True)) for row in cells[2:]])
    return found


@pytest.fixture
def small_setup(tmp_path: Path) -> Setup:
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
        for row in tables_in(out / "stod_fig1.md")[0]
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
        (row["method"], row["K"]): float(row["NPMI"].split()[0]) for row in tables_in(out / "stod_fig2.md")[0]
    }
    for k in "35":
        assert npmi["TOD", k] == pytest.approx(npmi["STOD", k], abs=0.02)


def check_stod_tables(out: Path) -> None:
    seconds, shares = tables_in(out / "stod_tables.md")
    # Only the full run can say which method is faster.
    rows = pq.read_table(out / "stod_tables.parquet").to_pylist()
    assert min(row["seconds"] for row in rows) > 0
    assert all(row["not_in_memory"] > row["seconds"] for row in rows if row["method"] != "STOD")
    assert [row["seeds"] for row in seconds] == ["2"] * 3
    for row in shares:
        assert sum(float(cell) for name, cell in row.items() if name.endswith("%")) == pytest.approx(
            100, abs=0.3
        )


def check_quality(out: Path) -> None:
    rows = pq.read_table(out / "quality.parquet").to_pylist()
    of_first = {(row["method"], row["steps"]): row for row in rows if row["seed"] == 0}
    start, better = of_first["polished", 0], of_first["polished", 10]
    for name in ("perplexity", "sampled_perplexity"):
        assert better[name] < start[name]
        assert of_first["annealed", 200][name] < start[name]
    assert all(row["sampled_perplexity"] == pytest.approx(row["perplexity"], rel=0.01) for row in rows)
    [_, _, schedules, *_] = tables_in(out / "quality.md")
    assert [(row["minus"], row["seeds"]) for row in schedules] == [("polished", "2"), ("plain", "2")]


def check_over_complete(out: Path) -> None:
    rows = pq.read_table(out / "over_complete.parquet").to_pylist()
    assert all(row["gated_seconds"] > row["seconds"] > 0 for row in rows)
    assert all(row["other_perplexity"] == pytest.approx(row["usual_perplexity"], rel=0.05) for row in rows)
    accepted = sum(row["gate"] < over_complete.GATE for row in rows)
    [table] = tables_in(out / "over_complete.md")
    assert (
        sum(int(row["seeds"]) for row in table if row["gate"] == "accepted") == 2 * accepted
    )  # of K, and of all


def check_rectification_steps(out: Path) -> None:
    end, other, none, printed, early = pq.read_table(out / "rectification_steps.parquet").to_pylist()
    assert (none["rectified"], printed["rectified"]) == (0, 5)
    assert 5 < early["rectified"] < end["rectified"]
    assert end["l1"] == 0
    assert early["l1"] < none["l1"]
    assert other["perplexity"] == pytest.approx(end["perplexity"], rel=0.01)
    assert [len(table) for table in tables_in(out / "rectification_steps.md")] == [5, 2, 5]


def check_softclique(out: Path) -> None:
    coherence, times = tables_in(out / "softclique.md")[:2]
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
    "quality": check_quality,
    "over_complete": check_over_complete,
    "rectification_steps": check_rectification_steps,
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
    assert record["corpora"] or name in ("stod_fig1", "tod_dense", "stod_any_k")
    assert not changed_groups(record)
    if picture:
        assert (tmp_path / f"{stem}{picture}").stat().st_size > 10_000
    if name in CHECKS:
        CHECKS[name](tmp_path)
    # The results contain seconds: if all are equal, nothing was computed again.
    cells = sorted(tmp_path.rglob("cells/*"))
    assert run(name, tmp_path) == first
    assert sorted(tmp_path.rglob("cells/*")) == cells


@pytest.mark.parametrize("script", [lr_jsmf_fig4, quality])
def test_a_script_that_draws_is_refused_at_once_without_matplotlib(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = CliRunner().invoke(script.main, [str(tmp_path / "out"), "--quick"])
    assert (done.exit_code, "matplotlib" in done.output) == (2, True)
    assert not (tmp_path / "out").exists()


def test_a_topic_that_no_document_uses_is_the_first_to_be_removed() -> None:
    counts = sparse.csr_array(np.array([[5, 4, 0, 0, 0, 0], [0, 0, 4, 5, 0, 0]] * 10))
    topics = np.kron(np.eye(3), np.full((2, 1), 0.49)) + 0.02 / 6
    likelihood = over_complete.likelihood_without(counts, topics, np.full(3, 0.1))
    assert likelihood.argmax() == 2
    assert likelihood[:2].max() < likelihood[2] - 20


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
    small_setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Octave is not needed: its output is written here, from our own topics with ids from 1."""
    own = small_setup.topics("baseline", 3)

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
    row = authors_code.compared(tmp_path, small_setup, "baseline", 3)
    assert (row["anchors_shared"], row["l1"], row["words_shared"]) == (3, 0.0, 20.0)
    assert row["their_seconds"] == 2.0
    assert row["recovery: theirs of theirs"] == 0.25
    assert row["recovery: ours of theirs"] == pytest.approx(row["recovery: ours of ours"])


def test_the_order_of_the_words_changes_no_topics_of_anchor_words(small_setup: Setup) -> None:
    assert (jsmf_2015.reordered(small_setup, 1).counts != small_setup.counts).nnz
    truth = small_setup.topics("baseline", 3)["word_topic"]
    rows = [*jsmf_2015.rows_of_orders("planted", small_setup, [3], ["AP", "baseline"], 3, truth)]
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


# -- The pipeline that sets topics of both engines side by side: matched ones, by their words --


EXAMPLE_SCRIPT = Path(__file__).parent.parent / "pipelines" / "example_topics.py"


@pytest.fixture(scope="module")
def example_script() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLE_SCRIPT))


def test_both_engines_side_by_side(example_script: dict[str, Any], tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", planted(800, 60, 3, length=60, seed=1).counts)
    done = CliRunner().invoke(
        example_script["main"], [str(corpus), str(tmp_path / "out"), "--topics", "3", "--shown", "2"]
    )
    assert done.exit_code == 0, done.output
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines()[2:]]
    assert [row[:2] for row in rows] == [[n, name] for n in "12" for name in ("STOD", "LR-JSMF")]
    for tensor, anchored in zip(rows[::2], rows[1::2], strict=True):
        assert len(tensor[2].split()) == example_script["LISTED"]
        assert len({*tensor[2].split()} & {*anchored[2].split()}) >= 6
        assert float(anchored[3]) < 0.5


def test_columns_are_in_the_order_of_the_first(example_script: dict[str, Any]) -> None:
    first = np.random.default_rng(0).dirichlet(np.ones(9), size=4).T
    order = np.array([2, 0, 3, 1])
    other = example_script["beside"]("other", first[:, order], order[:, None], first)
    assert other.listed.ravel().tolist() == [0, 1, 2, 3]
    assert np.array_equal(other.distances, np.zeros(4))


# -- The pipeline that follows topics from period to period: chains, and where they are cut --


CHAINS_SCRIPT = Path(__file__).parent.parent / "pipelines" / "topics_over_time.py"


@pytest.fixture(scope="module")
def chains_script() -> dict[str, Any]:
    return runpy.run_path(str(CHAINS_SCRIPT))


def test_a_chain_is_cut_where_the_next_topic_is_another_subject(chains_script: dict[str, Any]) -> None:
    period, eye = chains_script["Period"], np.eye(6)
    # One subject stays and moves to another column, one drifts, one is replaced by a stranger.
    first = period("a", eye[:, [0, 1, 2]], np.array([0.2, 0.5, 0.3]))
    second = period(
        "b", np.column_stack([0.6 * eye[1] + 0.4 * eye[3], eye[0], eye[5]]), np.array([0.6, 0.3, 0.1])
    )
    chains = chains_script["chains_of"]([first, second])
    told = [[(link.period.name, link.topic, link.step) for link in chain] for chain in chains]
    assert told == [
        [("a", 1, None), ("b", 0, pytest.approx(0.8))],
        [("a", 2, None)],
        [("a", 0, None), ("b", 1, 0.0)],
        [("b", 2, None)],
    ]
    assert [len(chain) for chain in chains_script["chains_of"]([first, second], 2.0)] == [2, 2, 2]
    assert [len(chain) for chain in chains_script["chains_of"]([first, second], 0.5)] == [1, 1, 2, 1, 1]


@pytest.mark.parametrize("label", ["{}-07-01", None])
def test_every_topic_of_every_period_is_in_one_chain(
    chains_script: dict[str, Any], tmp_path: Path, label: str | None
) -> None:
    corpus = write_corpus(tmp_path / "corpus", planted(900, 60, 3, length=60, seed=1).counts, shards=3)
    for number, shard in enumerate(sorted(corpus.glob("*.parquet"))):
        table = pq.read_table(shard)
        # Numbers, or texts as CSV files have them.
        year = 1990 + 10 * number
        labels = pa.array([year if label is None else label.format(year)] * len(table))
        pq.write_table(
            table.append_column("year", labels).append_column("word", pa.array(["x"] * len(table))), shard
        )
    done = CliRunner().invoke(chains_script["main"], [str(corpus), str(tmp_path / "out"), "--topics", "3"])
    assert done.exit_code == 0, done.output
    lines = [line for line in done.stdout.splitlines() if ".." in line]
    assert sorted(line.split()[0] for line in lines) == sorted(3 * ["1990..1999", "2000..2009", "2010..2019"])
    assert sum(line.startswith("chain") for line in done.stdout.splitlines()) == 3, (
        "the topics stay what they are"
    )
    assert all(line.count(", ") == chains_script["LISTED"] - 1 for line in lines)
    other = [str(corpus), str(tmp_path / "other"), "--by", "word", "--topics", "3"]
    refused = CliRunner().invoke(chains_script["main"], other)
    assert refused.exit_code == 1
    assert "years and ISO dates, not of values such as 'x'" in refused.output
