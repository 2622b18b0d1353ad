"""Sizes that must agree: of a matrix and its words, of the tables of AnnData, of ids and counts.

What fits is read; a part that is one shorter or longer is refused in one line that names both numbers, before anything
is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anndata
import dask.array as da
import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp

from streaming_jsmf import LRJSMF, InputError, corpus_from_gensim, corpus_from_matrix, ingest
from tests.sources import put, put_parquet

M, N = 8, 6
#: Of two topics: words 0..2 are frequent in odd documents, the others in even ones.
COUNTS = np.arange(1, M * N + 1).reshape(M, N) % 7 + 1 + 20 * (np.arange(M)[:, None] % 2 == np.arange(N) // 3)


def words(n: int) -> list[str]:
    return [f"word{i}" for i in range(n)]


def read(source: Path, **options: Any) -> None:
    ingest(source, source.parent / "corpus", min_tokens=0, min_distinct_words=0, stop_words="none", **options)


@cache
def sound_cells(dense: bool) -> bytes:
    obs = {"year": np.arange(M), "kind": pd.Categorical(["a", "b"] * (M // 2))}
    obs["known"] = pd.array([1, None] * (M // 2), dtype="Int64")
    data = anndata.AnnData(
        COUNTS.astype(np.float32) if dense else sp.csr_matrix(COUNTS),
        obs=pd.DataFrame(obs, index=[f"cell{i}" for i in range(M)]),
        var=pd.DataFrame(index=words(N)),
        layers={"raw": COUNTS} if dense else {},
    )
    with TemporaryDirectory() as folder:
        data.write_h5ad(Path(folder) / "t.h5ad")
        return (Path(folder) / "t.h5ad").read_bytes()


def cells(part: str, dense: bool) -> Callable[[Path, int], None]:
    """Return a writer of an .h5ad file with one dataset that is too long by ``size`` - N."""

    def write(folder: Path, size: int) -> None:
        path = put(folder / "t.h5ad", sound_cells(dense))
        with h5py.File(path, "a") as file:
            values, kept = file[part][:], dict(file[part].attrs)
            resized = values[: len(values) + size - N]
            if size > N:
                resized = np.concatenate([values, [b"more"] if values.dtype == object else values[-1:]])
            del file[part]
            file.create_dataset(part, data=resized).attrs.update(kept)
        read(path, read={"metadata": "year,kind,known", **({"layer": "raw"} if "layers" in part else {})})

    return write


def npz(folder: Path, listed: int) -> None:
    sp.save_npz(folder / "t.npz", sp.csr_matrix(COUNTS))
    put(folder / "vocab.txt", "\n".join(words(listed)))
    read(folder / "t.npz")


def bags(folder: Path, n_counts: int) -> None:
    """Write N ids and ``n_counts`` counts in each document."""
    ids = pa.array([range(N)] * M, pa.list_(pa.int32()))
    counts = pa.array([range(1, n_counts + 1)] * M, pa.list_(pa.int32()))
    put(
        put_parquet(folder / "in" / "t.parquet", {"ids": ids, "counts": counts}).with_name("vocab.txt"),
        "\n".join(words(N)),
    )
    read(folder / "in")


def matrix(folder: Path, listed: int) -> None:
    corpus_from_matrix(COUNTS, words(listed), folder / "corpus")


def gensim(folder: Path, size: int) -> None:
    """Make the pairs of a document too short or too long by one."""
    entries = [tuple([0, 1, 2][: 2 + size - N])] * 3
    corpus_from_gensim([[(1, 1), (2, 2)], entries], dict(enumerate(words(N))), folder / "corpus")


def blocks(folder: Path, width: int) -> None:
    """Fit a Dask array that has a block of another width than declared."""
    X = da.from_array(COUNTS, chunks=(4, N)).map_blocks(
        lambda block: np.resize(block, (4, width)), dtype=int, meta=np.empty((0, 0), int)
    )
    LRJSMF(2, random_state=0, max_iterations=2, scheduler="synchronous", scratch=folder).fit(X)


def both(size: int) -> list[object]:
    return [N, size]


def of_cells(size: int) -> list[object]:
    return [M, M + size - N]


@pytest.mark.parametrize(
    ("write", "said"),
    [
        *((cells("var/_index", dense), both) for dense in (False, True)),
        *((cells("obs/_index", dense), of_cells) for dense in (False, True)),
        (cells("obs/year", False), of_cells),
        (cells("obs/kind/codes", True), of_cells),
        (cells("obs/known/values", False), lambda _: ["mask"]),
        (cells("obs/known/mask", True), lambda _: ["mask"]),
        (cells("layers/raw", True), of_cells),
        *((cells(f"X/{part}", False), lambda _: ["do not fit"]) for part in ("indptr", "indices", "data")),
        (npz, both),
        (bags, both),
        (matrix, both),
        (gensim, lambda _: ["document 1, from 0, is no list of (word id, count)"]),
        (blocks, both),
    ],
)
def test_inconsistent_sizes_are_refused(
    write: Callable[[Path, int], None],
    said: Callable[[int], Sequence[object]],
    tmp_path: Path,
) -> None:
    for size in (N, N - 1, N + 1):
        folder = tmp_path / str(size)
        folder.mkdir()
        if size == N:
            write(folder, N)
            continue
        with pytest.raises(InputError) as refused:
            write(folder, size)
        message = str(refused.value).replace(str(folder), "")
        assert "\n" not in message
        for part in said(size):
            assert re.search(rf"(?<!\w){re.escape(str(part))}(?!\w)", message), message
        assert not list(folder.glob("corpus*"))


@pytest.mark.parametrize(
    ("counts", "listed", "reason"),
    [
        (COUNTS[0], words(N), "the matrix has 1 dimension"),
        ([[1, 2], [3]], words(2), "the matrix cannot be read as counts"),
        (COUNTS[None], words(N), "the matrix cannot be read as counts"),
        (COUNTS, None, "words is of type NoneType"),
        (COUNTS, "abcdef", "words is of type str"),
    ],
)
def test_invalid_matrices_and_word_lists(tmp_path: Path, counts: Any, listed: Any, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        corpus_from_matrix(counts, listed, tmp_path / "corpus")
