"""Stores with the whole C: counted in panels, committed and changed like the rest, refused where it does not fit."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.errors import InputError, SettingsMismatchError
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.linalg import csr, eigen
from streaming_jsmf.moments.select import select_partitions
from streaming_jsmf.moments.stages import cooccurrence as stage_module
from streaming_jsmf.moments.store import open_moments
from tests import reference
from tests.corpora import Planted, planted, write_corpus
from tests.outcomes import Command, refused
from tests.stores import SMALL, dense, digests, partial_names, scanned

EXACT = replace(SMALL, exact=True)


@pytest.fixture(scope="module")
def store(corpus_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exact") / "m"
    scanned(corpus_path, path, EXACT)
    return path


def test_the_matrix_is_that_of_equation_1(store: Path, documents: Planted) -> None:
    c = open_moments(store).cooccurrence()
    expected = dense(documents.counts)
    np.testing.assert_allclose(c, expected, atol=2e-7 * expected.max())
    np.testing.assert_array_equal(c, c.T)
    assert c.min() == 0.0
    np.testing.assert_allclose(c.sum(axis=1), open_moments(store).row_sum, rtol=1e-6)
    assert partial_names(store, "cooccurrence") == [], "what the panels were made of is gone"


def test_eigenpairs_are_those_of_the_matrix(store: Path, documents: Planted) -> None:
    pairs = open_moments(store).eigenpairs(5)
    expected = reference.truncated_eig(dense(documents.counts), 15)
    np.testing.assert_allclose(pairs.values, expected.values, rtol=1e-5, atol=1e-9)
    overlap = np.abs(np.sum(pairs.vectors[:, :5] * expected.vectors[:, :5], axis=0))
    np.testing.assert_allclose(overlap, 1, atol=1e-5)


def test_characteristic_words_come_from_exact_rows(store: Path) -> None:
    moments = open_moments(store)
    np.testing.assert_array_equal(moments.cooccurrence_rows([7, 3]), moments.cooccurrence()[[7, 3]])


def test_lanczos_gives_the_dense_eigenpairs_and_the_same_bits() -> None:
    rng = np.random.default_rng(0)
    left, _ = np.linalg.qr(rng.standard_normal((600, 600)))
    # The negative end is the larger in magnitude, where the wrong kind of solver would look.
    spectrum = np.concatenate([np.linspace(1, 0.5, 12), np.zeros(580), np.linspace(-1.5, -2, 8)])
    matrix = (left * spectrum) @ left.T
    matrix = (matrix + matrix.T) / 2
    first, second = (eigen.symmetric_eigenpairs(matrix, 12) for _ in range(2))
    np.testing.assert_allclose(first.values, spectrum[:12], atol=1e-9)
    np.testing.assert_allclose(matrix @ first.vectors, first.vectors * first.values, atol=1e-8)
    np.testing.assert_array_equal(first.vectors, second.vectors)


@pytest.mark.parametrize("scheduler", ["threads", pytest.param("processes", marks=pytest.mark.slow)])
def test_panels_and_workers_change_no_bit(
    scheduler: str, corpus_path: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scanned(corpus_path, tmp_path / "workers", EXACT, execution=Execution(scheduler, 2))
    assert digests(tmp_path / "workers") == digests(store)
    # 120 words in panels of 17 rows.
    monkeypatch.setattr(stage_module, "PANEL_BYTES", 8 * 120 * 17)
    assert len(list(stage_module.row_panels(120))) == 8
    scanned(corpus_path, tmp_path / "panels", EXACT, execution=Execution("threads", 2))
    assert digests(tmp_path / "panels") == digests(store)


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [pytest.param(3000, marks=pytest.mark.slow), 500])
def test_documents_multiplied_in_several_chunks(
    pairs: int, corpus_path: Path, documents: Planted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distinct = np.count_nonzero(documents.counts, axis=1)
    assert 500 < distinct.max() ** 2 < 3000, "fewer pairs than those of a document, and more"
    monkeypatch.setattr(csr, "PAIRS_AT_ONCE", pairs)
    scanned(corpus_path, tmp_path / "m", EXACT)
    expected = dense(documents.counts)
    np.testing.assert_allclose(
        open_moments(tmp_path / "m").cooccurrence(), expected, atol=2e-7 * expected.max()
    )


def test_a_matrix_that_does_not_fit_is_refused_before_the_scan(
    corpus_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match=r"exact=True needs about .*MiB.*memory allows 95.37 MiB; .*enn"):
        scanned(corpus_path, tmp_path / "m", EXACT, execution=Execution("synchronous", memory=100_000_000))
    monkeypatch.setattr(stage_module, "machine_memory", lambda: 10_000_000)
    with pytest.raises(InputError, match=r"120 x 120 co-occurrences and this machine has 9.54 MiB"):
        scanned(corpus_path, tmp_path / "m", EXACT)
    assert not (tmp_path / "m").exists()


def test_a_store_without_the_matrix_says_how_to_add_it(corpus_path: Path, tmp_path: Path) -> None:
    moments = scanned(corpus_path, tmp_path / "m")
    with pytest.raises(InputError, match=r"exact=True, or use rectify='enn'"):
        moments.cooccurrence()
    with pytest.raises(SettingsMismatchError, match="exact: stored None, asked True"):
        scanned(corpus_path, tmp_path / "m", EXACT)


def test_some_partitions_have_no_matrix_of_their_own(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    corpus = write_corpus(tmp_path / "corpus", planted(120, 60, 3, seed=1).counts, shards=1)
    [shard] = corpus.glob("part-*.parquet")
    table = pq.read_table(shard)
    pq.write_table(table.append_column("year", pa.array([1990 + i % 2 for i in range(120)])), shard)
    settings = replace(EXACT, max_topics=3, partition_by="year")
    selected = select_partitions(scanned(corpus, tmp_path / "m", settings), "1990")
    with pytest.raises(InputError, match=r"not of 1990; use rectify='enn'"):
        selected.cooccurrence()
    assert selected.cooccurrence_rows([1, 2]).shape == (2, 60)
    assert selected.eigenpairs(3).positive >= 3


@pytest.mark.parametrize(
    "settings", [EXACT, replace(SMALL, document_weights="uniform", seed=3)], ids=["exact", "one scan"]
)
def test_the_error_names_a_command_that_adds_the_third_moment(
    settings: ScanSettings, corpus_path: Path, tmp_path: Path, invoke: Command
) -> None:
    store = tmp_path / "my moments"
    scanned(corpus_path, store, settings)
    before = digests(store)
    infer = ("infer", store, tmp_path / "model", "--topics", 4, "--engine", "stod")
    outcome = invoke(*infer)
    refused(outcome, 2, "third moment", str(store))
    program, *arguments = shlex.split(outcome.err.partition("add it with ")[2])
    assert program == "streaming-jsmf"
    log = invoke(*arguments, "--scheduler", "synchronous").err
    assert "third_moment: partition" in log
    assert not re.search("(range|cooccurrence): partition", log), "one pass, for the third moment alone"
    assert {name: value for name, value in digests(store).items() if name in before} == before
    assert invoke(*infer).code == 0
