"""What the experiments of the papers share: stored results, tables, figures, other libraries, data, metrics, TOD."""

from __future__ import annotations

import doctest
import json
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner
from scipy import sparse

from pipelines.common import as_printed, data, peers, pictures, provenance, results, tables
from pipelines.common.chains import chain
from pipelines.common.methods import Setup
from pipelines.common.results import CellMissing, Results, publish
from pipelines.common.scores import Scorer, distances, pivot_gap
from pipelines.common.tod import DocumentMoments, tod
from pipelines.lr_jsmf_fig4 import SparseScorer
from pipelines.stale_results import UNKNOWN, changed_groups
from pipelines.stale_results import main as stale_results
from streaming_jsmf import StodSettings, open_corpus
from streaming_jsmf.evaluation.matching import match_topics
from tests import reference_stod
from tests.corpora import planted, write_corpus

ALPHA0 = 1.5

#: Steps of ``reference_stod.mixed``, as many as the package takes.
MIXING_STEPS = 50


@pytest.mark.parametrize("module", [provenance, results, tables])
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
    done = CliRunner().invoke(stale_results, [str(tmp_path)])
    assert "fig (" in done.stdout
    assert done.stdout.rstrip().endswith("): streaming_jsmf/linalg")
    # Results of a time when whole packages were recorded.
    del record["entry"]
    (tmp_path / "fig.json").write_text(json.dumps(record))
    done = CliRunner().invoke(stale_results, [str(tmp_path)])
    assert done.stdout.rstrip().endswith(f"): {UNKNOWN}")


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
    "    from streaming_jsmf.linalg.gram import other as other\n",
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
        ("streaming_jsmf/errors.py", []),  # it determines no number
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
        "script": {},
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
    c = Scorer(setup).cooccurrence
    dense = c.factor.astype(np.float64) @ c.factor.T - np.diag(c.diagonal)
    np.testing.assert_allclose(dense, setup.moments().cooccurrence(), atol=1e-7)


def test_metrics_without_a_dense_cooccurrence_are_the_same(setup: Setup) -> None:
    scorer, whole = SparseScorer(setup), Scorer(setup).row("LR-JSMF", 3)
    row = scorer.row("LR-JSMF", 3)
    assert abs(row["relative_recovery"] - whole["relative_recovery"]) < 4 * row["recovery_error"] + 1e-3
    # The same spanning trees, with as many prominent words.
    topics = Scorer(setup)._topics(setup.topics("LR-JSMF", 3))
    assert scorer._incoherence(topics) == pytest.approx(whole["incoherence"], rel=1e-6)


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


@pytest.mark.parametrize("by_passes", [True, False])
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
