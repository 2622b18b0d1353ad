"""The block of counts beside dense matrices."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from streaming_jsmf.corpus.bags import Bags
from streaming_jsmf.ingestion.sources.protocol import Batch

N_WORDS = 6
WORDS = pa.array([f"w{i}" for i in range(N_WORDS)])

blocks = st.lists(st.dictionaries(st.integers(0, N_WORDS - 1), st.integers(1, 9)), max_size=7)
seeds = st.integers(0, 2**32 - 1).map(np.random.default_rng)


def bags_of(block: list[dict[int, int]], kind: Any = np.int32) -> Bags:
    indptr = np.cumsum([0, *map(len, block)]).astype(np.int64)
    ids, counts = ([*chain.from_iterable(parts)] for parts in (block, map(dict.values, block)))
    return Bags(indptr, np.array(ids, np.int32), np.array(counts, kind), WORDS)


def dense(bags: Bags, n_words: int = N_WORDS) -> NDArray[np.float64]:
    table = np.zeros((len(bags), n_words))
    for row in range(len(bags)):
        for i in range(bags.indptr[row], bags.indptr[row + 1]):
            assert table[row, bags.ids[i]] == 0  # distinct
            table[row, bags.ids[i]] = bags.counts[i]
    assert (bags.indptr[0], bags.indptr[-1], bags.indptr.dtype) == (0, len(bags.ids), np.int64)
    assert len(bags.ids) == len(bags.counts)
    return table


@given(block=blocks, kind=st.sampled_from([np.int32, np.float32]), random=seeds)
def test_methods_equal_those_of_the_dense_matrix(block: Any, kind: Any, random: Any) -> None:
    bags = bags_of(block, kind)
    table, m = dense(bags), len(block)

    def same(found: Bags, expected: Any, n_words: int = N_WORDS) -> None:
        np.testing.assert_array_equal(dense(found, n_words), expected)
        assert (found.ids.dtype, found.counts.dtype) == (np.int32, kind)

    np.testing.assert_array_equal(bags.matrix(N_WORDS).toarray(), table)
    np.testing.assert_array_equal(bags.tokens(), table.sum(1))
    np.testing.assert_array_equal(bags.lengths, (table > 0).sum(1))
    frequency, total = np.zeros(N_WORDS, np.int64), np.zeros(N_WORDS)
    bags.count_words(frequency, total)
    np.testing.assert_array_equal([frequency, total], [(table > 0).sum(0), table.sum(0)])

    low, high = sorted(random.integers(0, m + 1, 2))
    mask, numbers = random.random(m) < 0.5, random.integers(0, m, 4 if m else 0)
    same(bags.slice(low, high), table[low:high])
    same(bags.take(mask), table[mask])
    same(bags.take(numbers), table[numbers])
    same(
        Bags.concatenated([bags, bags.take(mask), bags.slice(low, high)]),
        np.vstack([table, table[mask], table[low:high]]),
    )
    same(bags.where(bags.counts > 4), np.where(table > 4, table, 0))

    new_ids = random.permutation(N_WORDS) - int(random.integers(0, N_WORDS + 1))
    renamed = np.zeros_like(table)
    renamed[:, new_ids[new_ids >= 0]] = table[:, new_ids >= 0]
    same(bags.mapped(new_ids), renamed)
    used = table.any(0)
    same(bags.compact(), table[:, used], int(used.sum()))
    assert bags.compact().words.to_pylist() == WORDS.filter(pa.array(used)).to_pylist()
    same(bags.ordered(), table)
    assert all((np.diff(bag.ids) > 0).all() for i in range(m) for bag in [bags.ordered().slice(i, i + 1)])

    ids, counts = Bags(bags.indptr, bags.ids, bags.counts).lists()
    same(Bags.of_lists(ids[low:high], counts[low:high]), table[low:high])
    words = [{WORDS[i].as_py() for i in np.flatnonzero(row)} for row in table]
    assert [set(listed) for listed in bags.lists()[0].to_pylist()] == words

    columns = pa.array(range(m), pa.int64()), {"x": pa.array(map(str, range(m)), pa.string())}
    documents = Batch(bags, *columns, rows=np.arange(m), numbers=2 * np.arange(m))
    both = (documents.take(mask), np.flatnonzero(mask)), (documents.slice(low, high), range(low, high))
    for found, expected in both:
        same(found.bags, table[expected])
        assert found.rows.tolist() == (found.numbers // 2).tolist() == list(expected)
        assert (
            found.document_id.to_pylist()
            == [int(x) for x in found.metadata["x"].to_pylist()]
            == list(expected)
        )


@given(
    entries=st.lists(st.tuples(st.integers(0, 4), st.integers(0, N_WORDS - 1), st.integers(1, 9))),
    kind=st.sampled_from([np.int32, np.float32, np.float64]),
    by_size=st.booleans(),
)
def test_entries_in_any_order_are_summed(entries: Any, kind: Any, by_size: bool) -> None:
    rows, ids, counts = np.array(entries, np.int32).reshape(-1, 3).T
    found = Bags.summed(
        rows, ids, counts.astype(kind) / 3 if kind != np.int32 else counts, 5, WORDS, by_size=by_size
    )
    table = np.zeros((5, N_WORDS))
    np.add.at(table, (rows, ids), counts if kind == np.int32 else counts / 3)
    np.testing.assert_allclose(dense(found), table, rtol=1e-6)
    np.testing.assert_array_equal(found.ids, np.nonzero(table)[1])
    assert found.counts.dtype == (np.int64 if kind == np.int32 else np.float64)
