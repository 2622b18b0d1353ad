"""Sizes that must agree: of a matrix and its words, of the tables of AnnData, of ids and counts.

What fits is read; a part that is one shorter or longer is refused in one line that names both numbers, before anything
is written.
"""

from __future__ import annotations

import re
import sys
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
from tests.processes import finished
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
        read(path, metadata="year,kind,known", **({"layer": "raw"} if "layers" in part else {}))

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


#: Matrices whose arrays do not fit together, in a process of its own, which SciPy's kernels may end.
UNSOUND = """
import sys
import dask.array as da
import numpy as np
import scipy.sparse as sp
import streaming_jsmf as sj

counts = np.random.default_rng(0).poisson(1.0, (60, 60))

def put(array, at, value):
    array[at] = value

def cut(X, name, n=-9):
    setattr(X, name, getattr(X, name)[:n])

FAULTS = {
    "a word above": lambda X: put(X.indices, 5, 60),
    "a word far above": lambda X: put(X.indices, 5, 2**31 - 1),
    "a negative word": lambda X: put(X.indices, 5, -1),
    "a word above int32": lambda X: setattr(X, "indices", np.append(X.indices[:-1].astype(np.int64), 2**32 + 1)),
    "beyond": lambda X: put(X.indptr, -1, 10**7),
    "decreasing": lambda X: put(X.indptr, 3, 0),
    "a later start": lambda X: put(X.indptr, 0, 2),
    "few rows": lambda X: cut(X, "indptr"),
    "few words": lambda X: cut(X, "indices"),
    "few counts": lambda X: cut(X, "data"),
}
OF_COO = {
    "a word above": lambda X: put(X.coords[1], 5, 60),
    "a row above": lambda X: put(X.coords[0], 5, 10**8),
    "a negative row": lambda X: put(X.coords[0], 5, -1),
    "few counts": lambda X: cut(X, "data"),
}
fitted = sj.LRJSMF(n_topics=2, random_state=0).fit(sp.csr_array(counts))

def as_dask(X):
    meta = sp.csr_array((0, 0), dtype=X.dtype)
    return da.map_blocks(lambda _: X, da.zeros(X.shape, chunks=X.shape), dtype=X.dtype, meta=meta)

USES = {
    "matrix": lambda X: sj.corpus_from_matrix(X, [f"w{n}" for n in range(60)], sys.argv[1]),
    "fit": lambda X: sj.LRJSMF(n_topics=2).fit(X),
    "transform": fitted.transform,
    "partial_fit": lambda X: sj.LRJSMF(n_topics=2).partial_fit(X),
    "fit of Dask": lambda X: sj.LRJSMF(n_topics=2).fit(as_dask(X)),
    "transform of Dask": lambda X: fitted.transform(as_dask(X)).compute(),
}
for kind in (sp.csr_array, sp.csc_array, sp.bsr_array, sp.coo_matrix):
    for fault, spoil in (OF_COO if "coo" in kind.__name__ else FAULTS).items():
        for use, call in USES.items():
            X = kind(counts.astype(np.float64 if fault == "beyond" else np.int64))
            spoil(X)
            print(kind.__name__, fault, use, file=sys.stderr, flush=True)
            try:
                call(X)
            except sj.InputError as error:
                assert "the matrix" in str(error) and "scipy.sparse" in str(error), error
            else:
                raise AssertionError("no error")
"""


@pytest.mark.slow
def test_matrices_whose_arrays_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    finished([sys.executable, "-c", UNSOUND, str(tmp_path / "c")])


def test_a_matrix_in_a_file_that_starts_later_is_refused(tmp_path: Path) -> None:
    matrix = sp.csr_array(COUNTS)
    matrix.indptr[0] = 2
    sp.save_npz(tmp_path / "a.npz", matrix)
    put(tmp_path / "a.vocab.txt", "\n".join(words(N)))
    with pytest.raises(InputError, match="index pointer should start with 0"):
        read(tmp_path / "a.npz")


@pytest.mark.parametrize("first", [0, 1])
def test_whole_numbers_and_fractions_in_small_files_name_the_file(tmp_path: Path, first: int) -> None:
    for number, matrix in enumerate((sp.csr_array(COUNTS), sp.csr_array(COUNTS) * 1.5)):
        sp.save_npz(tmp_path / f"{abs(number - first)}.npz", matrix)
    put(tmp_path / "vocab.txt", "\n".join(words(N)))
    with pytest.raises(InputError, match=r"1\.npz: counts are stored as .*; store all with the same type"):
        read(tmp_path)
