"""The benchmark of other libraries: every method computes topics or a basis, and its cost is measured."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from scipy import sparse

from benchmarks.peers.__main__ import main
from benchmarks.peers.apart import FitError, fit_apart
from benchmarks.peers.methods import METHODS, Arrays, diagonal_of, scaled
from benchmarks.peers.scores import LISTED, reference_basis, topic_scores
from benchmarks.peers.tables import write_pictures
from pipelines.common.bags import write_corpus
from pipelines.common.held_out import Split
from pipelines.common.matching import match_topics, yy_error
from tests import reference
from tests.corpora import Planted, planted
from tests.processes import PATIENCE

K, N_WORDS = 3, 40


@pytest.fixture(scope="module")
def documents() -> Planted:
    return planted(300, N_WORDS, K, length=40, seed=6)


@pytest.fixture(scope="module")
def corpus(documents: Planted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("peers") / "corpus"
    write_corpus(path, counts_of(documents), documents_per_shard=70)
    return path


def counts_of(documents: Planted) -> sparse.csr_array:
    return sparse.csr_array(documents.counts.astype(np.int32))


def exact(documents: Planted) -> np.ndarray:
    """C of the oracle."""
    lengths = documents.counts.sum(axis=1)
    return reference.cooccurrence(documents.counts, reference.document_weights(lengths, "capped"))


def fitted(name: str, corpus: Path, folder: Path) -> Arrays:
    pytest.importorskip(METHODS[name].package)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other libraries
        return METHODS[name].fit(corpus, K, 0, folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.makes == "topics"])
def test_planted_topics_are_found(name: str, documents: Planted, corpus: Path, tmp_path: Path) -> None:
    found = fitted(name, corpus, tmp_path)
    assert found["word_topic"].shape == (N_WORDS, K)
    np.testing.assert_allclose(found["word_topic"].sum(axis=0), 1, atol=1e-6)
    assert found["prior"].shape == (K,)
    assert match_topics(found["word_topic"], documents.word_topic).mean_l1 <= 1.0


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.makes == "basis"])
def test_a_basis_of_all_words_is_that_of_the_oracle(
    name: str, documents: Planted, corpus: Path, tmp_path: Path
) -> None:
    found = fitted(name, corpus, tmp_path)
    values, vectors = np.linalg.eigh(exact(documents))
    best = vectors[:, ::-1][:, :K] * np.sqrt(values[::-1][:K])
    # Factors of other libraries have a few components fewer than there are words.
    assert yy_error(found["half"], best) < 0.05


def test_the_scaled_rows_and_their_diagonal_are_the_co_occurrences(documents: Planted) -> None:
    counts = counts_of(documents)
    rows = scaled(counts).toarray().astype(np.float64)
    expected = exact(documents)
    np.testing.assert_allclose(rows.T @ rows - np.diag(diagonal_of(counts)), expected, atol=1e-7)


def test_the_reference_does_not_depend_on_its_start(documents: Planted) -> None:
    values, vectors = np.linalg.eigh(exact(documents))
    best = vectors[:, ::-1][:, :K] * np.sqrt(values[::-1][:K])
    start = np.random.default_rng(0).standard_normal((N_WORDS, K))
    assert yy_error(reference_basis(counts_of(documents), start)["half"], best) < 2e-3


def test_scores_use_fitted_and_held_out_documents() -> None:
    # Words 2k and 2k + 1 always occur together, and never in held-out documents.
    pairs = np.kron(np.eye(LISTED, dtype=np.int32), np.ones((1, 2), np.int32))
    found = Split(sparse.csr_array(pairs), sparse.csr_array(np.eye(2 * LISTED, dtype=np.int32)))
    topics = np.zeros((2 * LISTED, 2))
    topics[:LISTED, 0] = topics[LISTED:, 1] = 1 / LISTED
    scores = topic_scores({"word_topic": topics, "prior": np.ones(2)}, found)
    assert scores["npmi"] > scores["held_out_npmi"] == -1.0
    assert scores["distinct"] == 1.0


@pytest.mark.slow
def test_cells_are_stored_and_written_to_tables(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run() -> str:
        arguments = [str(tmp_path), "--corpus", f"c={corpus}", "--topics", "3", "--parts", "2,1"]
        done = CliRunner().invoke(main, [*arguments, "--methods", "MiniBatchNMF,TruncatedSVD"])
        assert done.exit_code == 0, done.output
        return done.output

    first = run()
    assert (tmp_path / "topics.md").read_text().count("MiniBatchNMF") == 2
    assert all(row["load"] > 0 for row in pq.read_table(tmp_path / "topics.parquet").to_pylist())
    record = json.loads((tmp_path / "topics.json").read_text())
    assert (record["corpora"]["c"]["documents"], record["seeds"]) == (300, [0])
    assert record["entry"] == "benchmarks/peers"
    assert "decode twice" in (tmp_path / "basis.md").read_text()
    assert (tmp_path / "time.svg").exists()
    monkeypatch.setattr("benchmarks.peers.__main__.fit_apart", None)  # nothing is fitted again
    assert run() == first


def test_a_method_is_stopped_after_its_time(corpus: Path) -> None:
    with pytest.raises(FitError, match="Gibbs 1000"):
        fit_apart("Gibbs 1000", corpus, K, 0, longest=0.2)


@pytest.mark.slow
def test_a_method_without_a_result_is_an_error(corpus: Path) -> None:
    with pytest.raises(FitError, match="ended with 1"):
        fit_apart("none of them", corpus, K, 0, longest=PATIENCE)


def test_figures_show_the_documents_of_most_methods_and_several_sizes(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    measured = dict.fromkeys(("npmi", "held_out_npmi", "distinct", "perplexity", "cpu"), 0.5)
    cells = [("c", 1, "LR-JSMF"), ("c", 4, "LR-JSMF"), ("c", 4, "Gibbs 1000"), ("d", 1, "LR-JSMF")]
    rows = [
        {
            "makes": "topics",
            "K": 5,
            "corpus": name,
            "part": part,
            "method": method,
            "nonzeros": 100 // part,
            **measured,
        }
        for name, part, method in cells
    ]
    write_pictures(tmp_path, rows)
    assert "c, K = 5, topics" in (tmp_path / "time.svg").read_text()
    assert "d, K = 5, topics" not in (tmp_path / "time.svg").read_text()  # it has one size
    drawn = (tmp_path / "quality.svg").read_text()
    assert [f"{name}, K = 5" in drawn for name in ("c / 4", "c", "d")] == [True, False, True]
