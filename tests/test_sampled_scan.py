"""Scans whose basis comes from a sample of the documents: against the dense oracle, and what a store must survive."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from numpy.typing import NDArray

from streaming_jsmf.blocks.units import list_units, plan_partitions
from streaming_jsmf.config import ScanSettings
from streaming_jsmf.config.scan import SAMPLED_DOCUMENTS
from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.evaluation.matching import yy_error
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.linalg.eigen import refined_basis
from streaming_jsmf.linalg.probes import drawn_rows
from streaming_jsmf.moments.reader import open_moments
from streaming_jsmf.moments.soundness import require_sound
from streaming_jsmf.moments.stages.projection import ProjectionReduction
from streaming_jsmf.moments.store import read_store
from streaming_jsmf.workflow.scan import scan
from tests import reference
from tests.corpora import planted, write_corpus
from tests.stores import SYNCHRONOUS, changed, dense, digests, half, scanned

K = 5
SAMPLED = ScanSettings(
    max_topics=K, partition_nonzeros=3000, range_finder="sample", sample_share=0.3, scans=3
)
COUNTS = planted(900, 120, K, length=30, seed=8).counts


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("sampled") / "corpus", COUNTS, row_group_rows=50)


@pytest.fixture(scope="module")
def undisturbed(corpus: Path) -> Path:
    path = corpus.parent / "undisturbed"
    scanned(corpus, path, SAMPLED)
    return path


def exact_half(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    pairs = reference.truncated_eig(dense(counts), K)
    return np.asarray(pairs.vectors * np.sqrt(pairs.values))


def test_rows_are_drawn_one_by_one_and_never_none() -> None:
    drawn = drawn_rows(20_000, 0.2, 1, "a")
    assert drawn.mean() == pytest.approx(0.2, abs=0.015)
    # Neighbours are drawn independently.
    assert (drawn[1:] & drawn[:-1]).mean() == pytest.approx(0.04, abs=0.01)
    np.testing.assert_array_equal(drawn, drawn_rows(20_000, 0.2, 1, "a"))
    for seed, label in ((2, "a"), (1, "b")):
        assert (drawn != drawn_rows(20_000, 0.2, seed, label)).any()
    assert drawn_rows(3, 1e-9, 0, "few").sum() == 1
    assert drawn_rows(7, 1.0, 0, "all").all()
    assert drawn_rows(0, 0.5, 0, "none").size == 0


def test_the_sums_are_of_all_documents_and_the_factor_of_the_sample(corpus: Path, tmp_path: Path) -> None:
    # As many columns as words: the factor is exact.
    settings = replace(SAMPLED, max_topics=60, scans=1)
    moments = scanned(corpus, tmp_path / "m", settings)
    c = dense(COUNTS)
    np.testing.assert_allclose(moments.row_sum, c.sum(axis=1), atol=1e-15)
    np.testing.assert_array_equal(moments.document_frequency, (COUNTS > 0).sum(axis=0))
    partitions = plan_partitions(list_units(open_corpus(corpus)), 3000)
    assert len(partitions) > 3
    drawn = np.concatenate([drawn_rows(p.rows, 0.3, 0, f"sample {p.content}") for p in partitions])
    lengths = COUNTS.sum(axis=1).astype(float)
    scale = reference.document_weights(lengths, "capped") / (lengths * (lengths - 1))
    sample = COUNTS[drawn] * np.sqrt(scale[drawn])[:, None]
    weight = reference.document_weights(lengths, "capped").sum()
    factor = moments.factor()
    assert factor is not None
    expected = sample.T @ sample / 0.3 / weight
    np.testing.assert_allclose(factor @ factor.T, expected, atol=3e-6 * expected.max())


def test_each_scan_brings_the_eigenpairs_nearer(corpus: Path, tmp_path: Path) -> None:
    expected = exact_half(COUNTS)
    errors = [
        yy_error(half(scanned(corpus, tmp_path / str(scans), replace(SAMPLED, scans=scans)), K), expected)
        for scans in (1, 2, 3)
    ]
    assert errors[0] > 3 * errors[1] > 3 * errors[2]
    assert errors[2] < 0.005


@pytest.mark.slow
def test_a_sorted_corpus_with_a_rare_topic_is_scanned_as_well(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    common = planted(2000, 110, 4, length=30, seed=3).counts
    # Ten documents in two thousand, at the end, of words that no other has.
    rare = np.hstack([np.zeros((10, 110), int), rng.poisson(3.0, (10, 10))])
    counts = np.vstack([np.hstack([common, np.zeros((2000, 10), int)]), rare])
    counts = counts[np.argsort(counts.argmax(axis=1), kind="stable")]
    corpus = write_corpus(tmp_path / "c", counts, row_group_rows=50)
    moments = scanned(corpus, tmp_path / "m", SAMPLED)
    assert yy_error(half(moments, K), exact_half(counts)) < 0.01


@pytest.mark.slow
def test_a_sample_of_all_is_no_sample(corpus: Path, tmp_path: Path) -> None:
    scanned(corpus, tmp_path / "all", replace(SAMPLED, sample_share=1.0, scans=2))
    scanned(
        corpus, tmp_path / "factors", replace(SAMPLED, range_finder="factors", sample_share=None, scans=2)
    )
    assert digests(tmp_path / "all") == digests(tmp_path / "factors")
    # The default: too small for a sample.
    moments = scanned(corpus, tmp_path / "default", replace(SAMPLED, sample_share=None, scans=2))
    assert moments.store.manifest.sample_share == 1.0
    assert digests(tmp_path / "default") == digests(tmp_path / "factors")


def test_large_negative_eigenvalues_do_not_enter_the_refined_basis() -> None:
    rng = np.random.default_rng(0)
    vectors, _ = np.linalg.qr(rng.standard_normal((80, 80)))
    values = np.concatenate([[1.0, 0.8, 0.6, 0.5], np.linspace(0.1, 0.0, 66), np.full(10, -0.7)])
    # D bounds C from below, as the diagonal of Eq. 1 does: C + diag(D) has no negative eigenvalue.
    c, diagonal = (vectors * values) @ vectors.T, np.full(80, 0.7)
    basis, _ = np.linalg.qr(vectors[:, :8] + 0.3 * vectors @ rng.standard_normal((80, 8)) / 8)
    refined = refined_basis(basis, c @ basis, diagonal)
    np.testing.assert_allclose(refined.T @ refined, np.eye(8), atol=1e-12)

    def share(span: NDArray[np.float64], wanted: NDArray[np.float64]) -> float:
        return float(np.linalg.norm(np.linalg.qr(span)[0].T @ wanted) ** 2)

    leading, negative = vectors[:, :4], vectors[:, 70:]
    assert share(refined, leading) > share(basis, leading)
    assert share(refined, negative) < share(basis, negative) < share(c @ basis, negative)


def test_the_share_of_the_sample_follows_the_corpus() -> None:
    settings = ScanSettings(range_finder="sample")
    assert settings.sampled_share(10 * SAMPLED_DOCUMENTS, 1000) == pytest.approx(0.1)
    assert settings.sampled_share(10 * SAMPLED_DOCUMENTS, 2 * SAMPLED_DOCUMENTS) == pytest.approx(0.2)
    assert settings.sampled_share(10**9, 1000) == 0.01
    assert settings.sampled_share(SAMPLED_DOCUMENTS * 3 // 2, 1000) == 1
    assert replace(settings, sample_share=0.03).sampled_share(10, 10) == 0.03
    assert ScanSettings().sampled_share(10**9, 1000) == 1


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"scans": 3}, "scans is 3; give 1 or 2, or 3 where range_finder is sample"),
        ({"range_finder": "sample", "scans": 4}, "scans is 4; give 1, 2 or 3"),
        ({"range_finder": "sample", "exact": True}, "give factors where exact counts all of C"),
        ({"range_finder": "sample", "sample_share": 0.0}, "sample_share is 0.0; give a number above 0"),
        ({"sample_share": 0.5}, "sample_share is 0.5; give range_finder sample with it"),
    ],
)
def test_settings_that_cannot_be_are_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        ScanSettings(**fields)


@pytest.mark.parametrize(
    "execution",
    [Execution("threads", 3), pytest.param(Execution("processes", 2), marks=pytest.mark.slow)],
    ids=["threads", "processes"],
)
def test_the_scheduler_changes_no_bit(
    execution: Execution, corpus: Path, undisturbed: Path, tmp_path: Path
) -> None:
    scanned(corpus, tmp_path / "m", SAMPLED, execution=execution)
    assert digests(tmp_path / "m") == digests(undisturbed)


@pytest.mark.parametrize("name", ["projection", "refined_projection"])
def test_a_scan_that_was_cut_off_is_finished_to_the_same_bits(
    name: str, corpus: Path, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute, done = ProjectionReduction.compute, []

    def failing(reduction: ProjectionReduction, partition: Any) -> Any:
        if reduction.name == name and len(done) == 3:
            raise OSError("no space left")
        done.append(partition.index) if reduction.name == name else None
        return compute(reduction, partition)

    store = tmp_path / "m"
    monkeypatch.setattr(ProjectionReduction, "compute", failing)
    with pytest.raises(OSError, match="no space left"):
        scanned(corpus, store, SAMPLED)
    assert read_store(store).missing_stages[0] == name
    again: list[int] = []
    monkeypatch.setattr(
        ProjectionReduction,
        "compute",
        lambda r, p: (again.append(p.index) if r.name == name else None, compute(r, p))[1],
    )
    scanned(corpus, store, SAMPLED)
    assert digests(store) == digests(undisturbed)
    assert not set(again) & set(done), "computed again"


@pytest.mark.parametrize("name", ["refined_basis", "refined_projection"])
def test_what_is_damaged_is_found_and_mended(
    name: str, corpus: Path, undisturbed: Path, tmp_path: Path
) -> None:
    store = tmp_path / "m"
    shutil.copytree(undisturbed, store)
    for chunk in (store / name / "c").rglob("*"):
        if chunk.is_file():
            chunk.write_bytes(b"nothing")
    with pytest.raises(StoreError, match=name):
        require_sound(read_store(store))
    scan(corpus, store, SAMPLED, SYNCHRONOUS, keep_partitions=True, repair=True)
    assert digests(store) == digests(undisturbed)


def test_growing_and_shrinking_leave_the_bits_of_a_single_scan(tmp_path: Path) -> None:
    a, b = write_corpus(tmp_path / "a", COUNTS[:500]), write_corpus(tmp_path / "b", COUNTS[500:])
    for name in ("a", "b"):
        scanned(tmp_path / name, tmp_path / f"of-{name}", SAMPLED)
    shutil.copytree(tmp_path / "of-a", tmp_path / "added")
    shutil.copytree(tmp_path / "of-a", tmp_path / "merged")
    changed(a, tmp_path / "added", add=[b])
    changed(a, tmp_path / "merged", merge=[tmp_path / "of-b"])
    assert digests(tmp_path / "added") == digests(tmp_path / "merged") != digests(tmp_path / "of-a")
    moments = changed(a, tmp_path / "added", remove=[b])
    assert digests(tmp_path / "added") == digests(tmp_path / "of-a")
    assert moments.n_documents == 500


@pytest.mark.slow
def test_samples_of_other_shares_are_not_merged(corpus: Path, tmp_path: Path) -> None:
    other = write_corpus(tmp_path / "b", COUNTS[:100])
    # The default: all of so few documents, and with a lower border not all of more.
    settings = replace(SAMPLED, sample_share=None)
    scanned(other, tmp_path / "of-b", settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streaming_jsmf.config.scan.SAMPLED_DOCUMENTS", 200)
        scanned(corpus, tmp_path / "sampled", settings)
    assert read_store(tmp_path / "sampled").manifest.sample_share == pytest.approx(200 / 900)
    with pytest.raises(InputError, match="the same --sample-share"):
        changed(corpus, tmp_path / "sampled", merge=[tmp_path / "of-b"])
    assert not read_store(tmp_path / "sampled").missing_stages


def test_the_store_says_what_it_holds_and_serves_inference(undisturbed: Path) -> None:
    with xr.open_zarr(undisturbed, consolidated=False) as opened:
        assert opened["refined_projection"].dims == ("word", "refined_component")
    moments = open_moments(undisturbed)
    basis, product = moments.projected_basis() or pytest.fail("no product")
    np.testing.assert_allclose(product, dense(COUNTS) @ basis, atol=1e-6 * np.abs(product).max())
