"""The moments store against the dense oracle, and the properties that make it mergeable and resumable."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.corpus.units import Partition, list_units, plan_partitions
from streaming_jsmf.evaluation.matching import yy_error
from streaming_jsmf.moments.memory import scan_memory
from streaming_jsmf.moments.partition import load_partition
from streaming_jsmf.moments.stages.range import RangeReduction
from tests import reference
from tests.corpora import Planted, planted, write_corpus
from tests.stores import SMALL, half, scanned


@pytest.mark.parametrize("scheme", ["capped", "uniform", "length"])
def test_sums_are_exact(scheme: str, tmp_path: Path) -> None:
    counts = planted(120, 40, 4, length=9, seed=5).counts
    counts[3] = 0
    counts[4] = np.eye(40, dtype=int)[7]
    counts[5] = 300 * np.eye(40, dtype=int)[2]
    path = write_corpus(tmp_path / "c", counts, row_group_rows=11)
    settings = ScanSettings(max_topics=3, partition_nonzeros=250, document_weights=scheme)  # type: ignore[arg-type]
    moments = scanned(path, tmp_path / "m", settings)
    lengths = counts.sum(axis=1)
    weights, kept = reference.document_weights(lengths, scheme), counts[lengths >= 2]
    np.testing.assert_allclose(
        moments.row_sum, reference.cooccurrence(counts, weights).sum(axis=1), atol=1e-15
    )
    np.testing.assert_allclose(moments.row_sum, reference.mean_of_shares(counts, weights), atol=1e-15)
    n, w = lengths[lengths >= 2].astype(float), weights[lengths >= 2]
    np.testing.assert_allclose(moments.diagonal, (w / (n * (n - 1))) @ kept / w.sum(), atol=1e-15)
    np.testing.assert_array_equal(moments.term_count, kept.sum(axis=0))
    np.testing.assert_array_equal(moments.document_frequency, (kept > 0).sum(axis=0))
    assert moments.n_documents == len(kept)
    assert moments.words[7] == "word0007"


def test_the_largest_eigenvalues_are_algebraic_not_by_magnitude(tmp_path: Path) -> None:
    counts = planted(400, 30, 3, length=2.5, seed=2).counts
    c = reference.cooccurrence(counts, reference.document_weights(counts.sum(axis=1), "uniform"))
    values = np.linalg.eigvalsh(c)
    assert np.sort(values[np.argsort(-np.abs(values))[:6]])[0] < 0, "the case must bite"
    settings = ScanSettings(max_topics=6, document_weights="uniform", partition_nonzeros=300)
    moments = scanned(write_corpus(tmp_path / "c", counts), tmp_path / "m", settings)
    np.testing.assert_allclose(moments.eigenpairs(3, extra=0).values, values[::-1][:3], rtol=0.02)


def test_a_partition_has_the_same_bits_anywhere_and_folding_leaves_its_inputs_alone(
    corpus_path: Path,
) -> None:
    corpus = open_corpus(corpus_path)
    stage, partitions = RangeReduction(corpus.n_words, SMALL), plan_partitions(list_units(corpus), 3000)
    a, b, again = (stage.compute(p) for p in (*partitions[:2], Partition(17, partitions[0].units)))
    stage.fold(a, b)
    for name, values in again.arrays.items():
        np.testing.assert_array_equal(a.arrays[name], values)


@given(st.integers(1, 40), st.integers(1, 600))
def test_sums_and_blocks_do_not_depend_on_how_units_are_split(rows: int, budget: int) -> None:
    counts = planted(60, 25, 3, length=12, seed=rows).counts
    with tempfile.TemporaryDirectory() as folder:
        corpus = open_corpus(write_corpus(Path(folder) / "c", counts, row_group_rows=rows))
        units = list_units(corpus)
        block, sums = load_partition(Partition(0, units), 25, "capped")
        parts = [load_partition(p, 25, "capped") for p in plan_partitions(units, budget)]
    for name in ("row_sum", "diagonal"):
        added = sum(part.arrays[name] for _, part in parts)
        np.testing.assert_allclose(added, sums.arrays[name], rtol=1e-13)
    stacked = np.vstack([part.toarray() for part, _ in parts])
    np.testing.assert_array_equal(stacked, block.toarray())


def test_the_order_of_shards_changes_rounding_only(documents: Planted, tmp_path: Path) -> None:
    first = write_corpus(tmp_path / "a", documents.counts, shards=4)
    second = shutil.copytree(first, tmp_path / "b")
    names = sorted(path.name for path in first.glob("*.parquet"))
    for old, new in zip(names, reversed(names), strict=True):
        shutil.copy(first / old, second / new)
    a, b = scanned(first, tmp_path / "ma"), scanned(second, tmp_path / "mb")
    np.testing.assert_allclose(a.row_sum, b.row_sum, rtol=1e-13)
    assert yy_error(half(a, 5), half(b, 5)) < 0.003
    # The bits do differ, or the comparison would say nothing about folding in another order.
    assert a.digests()["basis"] != b.digests()["basis"]


def test_the_store_is_zarr_that_xarray_reads_and_keeps_parts_and_last_folds(
    corpus_path: Path, tmp_path: Path
) -> None:
    moments = scanned(corpus_path, tmp_path / "m", ScanSettings(max_topics=5))
    data = xr.open_zarr(str(tmp_path / "m"), consolidated=False)
    assert data["eigenvectors"].dims == ("word", "eigenpair")
    assert float(data["row_sum"].sel(word="word0003")) == moments.row_sum[3]
    kept = [p.name for p in sorted((tmp_path / "m" / "partials").iterdir()) if p.is_dir()]
    assert [name.rpartition("-")[0].rpartition("-")[0] for name in kept] == [
        "projection-fold",
        "range-fold",
        "range-part",
    ]
    assert kept[1].startswith(f"range-fold-{moments.order.total}")


def test_projected_memory_grows_by_the_documents_alone(documents: Planted, tmp_path: Path) -> None:
    sizes = []
    for copies in (1, 4):
        path = write_corpus(tmp_path / f"c{copies}", np.vstack([documents.counts] * copies))
        partitions = plan_partitions(list_units(open_corpus(path)), 3000)
        sizes.append([scan_memory(120, SMALL, partitions, 2, share) for share in (None, 0.0, 1.0)])
    assert sizes[1][:2] == pytest.approx(sizes[0][:2], rel=0.01)
    assert sizes[1][2] - sizes[0][2] == pytest.approx(3 * 16 * (documents.counts > 0).sum(), rel=0.1)
