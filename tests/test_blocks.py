"""Units, partitions and blocks: documents are read as they were written, and bad records are named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dask.sizeof import sizeof
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_array, csr_array, csr_matrix, vstack

from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.corpus.csr import iter_blocks, read_block, to_dask_array
from streaming_jsmf.corpus.units import list_units, partition_units, plan_partitions
from streaming_jsmf.errors import InputError, StoreError
from tests.corpora import BAD_BAGS, Planted, write_lists


def test_blocks_hold_the_documents_in_order(corpus_path: Path, documents: Planted) -> None:
    corpus = open_corpus(corpus_path)
    units = list_units(corpus)
    assert len(units) == 12
    blocks = list(iter_blocks(units, corpus.n_words))
    assert [block.shape[0] for block in blocks] == [unit.rows for unit in units]
    np.testing.assert_array_equal(vstack(blocks).toarray(), documents.counts)


def test_blocks_are_views_of_what_arrow_read(corpus_path: Path) -> None:
    corpus = open_corpus(corpus_path)
    block = read_block(list_units(corpus)[0], corpus.n_words)
    assert block.data.dtype == np.int32
    assert block.indices.dtype == np.int32
    # Arrow's buffers are read-only; a copy would not be.
    assert not block.data.flags.writeable
    assert not block.indices.flags.writeable


def test_the_dask_array_is_lazy_blocks_of_csr(corpus_path: Path, documents: Planted) -> None:
    h = to_dask_array(open_corpus(corpus_path))
    assert h.shape == documents.counts.shape
    assert h.numblocks == (12, 1)
    assert isinstance(h._meta, csr_array)
    lengths = h.map_blocks(
        lambda block: np.asarray(block.sum(axis=1))[:, None],
        dtype=np.int64,
        chunks=(h.chunks[0], (1,)),
        meta=np.empty((0, 0), np.int64),
    )
    np.testing.assert_array_equal(
        lengths.compute(scheduler="synchronous").ravel(), documents.counts.sum(axis=1)
    )
    whole = h.compute(scheduler="synchronous")
    np.testing.assert_array_equal(whole.toarray(), documents.counts)


@pytest.mark.parametrize("make", [csr_array, csr_matrix, coo_array])
def test_dask_measures_the_size_of_a_sparse_array(make: type) -> None:
    array = make(np.eye(1000))
    held = sum(value.nbytes for value in vars(array).values() if isinstance(value, np.ndarray))
    assert sizeof(array) >= max(held, 8000)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=80), st.integers(1, 3000))
def test_partitions_cover_all_units_in_order_and_keep_the_budget(sizes: list[int], budget: int) -> None:
    ranges = partition_units(sizes, budget)
    assert [number for group in ranges for number in group] == list(range(len(sizes)))
    assert all(len(group) for group in ranges)
    assert max(sum(sizes[i] for i in group) for group in ranges) < budget + max(max(sizes), 1)
    assert len(ranges) <= max(1, -(-sum(sizes) // budget))


def test_a_partition_is_known_by_its_content(corpus_path: Path, tmp_path: Path) -> None:
    first = plan_partitions(list_units(open_corpus(corpus_path)), 2000)
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for path in corpus_path.iterdir():
        (moved / path.name).write_bytes(path.read_bytes())
    second = plan_partitions(list_units(open_corpus(moved)), 2000)
    assert [p.content for p in first] == [p.content for p in second]
    assert len({p.content for p in first}) == len(first) > 1


GOOD_IDS, GOOD_COUNTS = [[0, 2], [1], [0, 1, 2]], [[1, 1], [4], [1, 2, 3]]


def bad_corpus(directory: Path, ids: list[object], counts: list[object], *, statistics: bool = False) -> Path:
    """Two good row groups of three rows, then one with the given lists; no statistics that would give it away."""
    table = pa.table(
        {
            "ids": pa.array([*GOOD_IDS, *GOOD_IDS, *ids], pa.list_(pa.int32())),
            "counts": pa.array([*GOOD_COUNTS, *GOOD_COUNTS, *counts], pa.list_(pa.float32())),
        }
    )
    directory.mkdir()
    pq.write_table(table, directory / "a.parquet", row_group_size=3, write_statistics=statistics)
    (directory / "vocab.txt").write_text("x\ny\nz\n", encoding="utf-8")
    return directory


@pytest.mark.parametrize("kind", BAD_BAGS)
def test_a_bad_record_is_named_with_file_row_group_and_row(kind: str, tmp_path: Path) -> None:
    ids, counts, reason = BAD_BAGS[kind]
    corpus = open_corpus(bad_corpus(tmp_path / "c", [[0], ids, [1]], [[1], counts, [1]]))
    with pytest.raises(InputError) as caught:
        list(iter_blocks(list_units(corpus), corpus.n_words))
    assert f"a.parquet, row group 2, row 1 from 0: {reason}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_empty_documents_at_every_place_are_rows_of_zeros(tmp_path: Path) -> None:
    directory = tmp_path / "c"
    directory.mkdir()
    write_lists(
        directory / "a.parquet", [[], [0, 1], [], [0], []], [[], [1, 2], [], [3], []], row_group_rows=2
    )
    (directory / "vocab.txt").write_text("x\ny\n", encoding="utf-8")
    corpus = open_corpus(directory)
    blocks = vstack(list(iter_blocks(list_units(corpus), 2))).toarray()
    np.testing.assert_array_equal(blocks, [[0, 0], [1, 2], [0, 0], [3, 0], [0, 0]])


def test_a_damaged_page_is_named(tmp_path: Path) -> None:
    directory = bad_corpus(tmp_path / "c", GOOD_IDS, GOOD_COUNTS)  # type: ignore[arg-type]
    corpus = open_corpus(directory)
    units = list_units(corpus)
    path = directory / "a.parquet"
    data = bytearray(path.read_bytes())
    start = pq.ParquetFile(path).metadata.row_group(1).column(0).data_page_offset
    data[start : start + 20] = b"\xff" * 20
    path.write_bytes(bytes(data))
    with pytest.raises(StoreError, match=r"a\.parquet"):
        list(iter_blocks(units, 3))
