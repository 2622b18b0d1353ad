"""Every reader compares sizes: of a matrix and its words, of ids and counts, of columns and their names.

One contract for all: parts that fit are read; a part that is one shorter or longer is refused in one line that names
both numbers, before anything is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
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
import pyarrow.parquet as pq
import pytest
import scipy.io
import scipy.sparse as sp

from streaming_jsmf import (
    LRJSMF,
    Execution,
    InputError,
    corpus_from_gensim,
    corpus_from_matrix,
    ingest,
    open_corpus,
)
from streaming_jsmf.ingestion.ingest import IngestRequest
from streaming_jsmf.ingestion.readers import h5ad

M, N = 8, 6
#: Of two topics: words 0..2 are frequent in odd documents, the others in even ones.
COUNTS = np.arange(1, M * N + 1).reshape(M, N) % 7 + 1 + 20 * (np.arange(M)[:, None] % 2 == np.arange(N) // 3)
CSR = ("indptr", "indices", "data")
CURATION = {"min_tokens": 0, "min_distinct_words": 0, "stop_words": "none"}


def words(n: int) -> list[str]:
    return [f"word{i}" for i in range(n)]


def read(source: Path, **request: Any) -> None:
    """Ingest a source."""
    asked = IngestRequest(curation=CURATION, **request)
    ingest(source, source.parent / "corpus", asked, Execution("synchronous"))


# -- files of counts beside a list of words ---------------------------------------------------------------------------


def counted(name: str, write: Callable[[Path], None]) -> Callable[[Path, int], None]:
    """Return a writer of a matrix of N words beside a list of ``listed`` words."""

    def make(folder: Path, listed: int) -> None:
        write(folder / name)
        (folder / ("vocab.t.txt" if name == "docword.t.txt" else "vocab.txt")).write_text(
            "\n".join(words(listed))
        )
        read(folder / name)

    return make


def docword(path: Path) -> None:
    lines = [f"{m + 1} {n + 1} {COUNTS[m, n]}" for m in range(M) for n in range(N)]
    path.write_text("\n".join([str(M), str(N), str(M * N), *lines, ""]))


# -- AnnData ----------------------------------------------------------------------------------------------------------


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
        path = folder / "t.h5ad"
        path.write_bytes(sound_cells(dense))
        with h5py.File(path, "a") as file:
            values, kept = file[part][:], dict(file[part].attrs)
            resized = values[: len(values) + size - N]
            if size > N:
                resized = np.concatenate([values, [b"more"] if values.dtype == object else values[-1:]])
            del file[part]
            file.create_dataset(part, data=resized).attrs.update(kept)
        read(path, read={"metadata": "year,kind,known", **({"layer": "raw"} if "layers" in part else {})})

    return write


# -- tables -----------------------------------------------------------------------------------------------------------


def bags(folder: Path, n_ids: int, n_counts: int, listed: int) -> Path:
    """Write a folder of bags with ``n_ids`` ids and ``n_counts`` counts each, beside a word list."""
    ids = pa.array([range(n_ids)] * M, pa.list_(pa.int32()))
    counts = pa.array([range(1, n_counts + 1)] * M, pa.list_(pa.int32()))
    (folder / "shards").mkdir()
    pq.write_table(pa.table({"ids": ids, "counts": counts}), folder / "shards" / "t.parquet")
    (folder / "shards" / "vocab.txt").write_text("\n".join(words(listed)))
    return folder / "shards"


def ids_of_bags(folder: Path, used: int) -> None:
    """Write ids beyond the words; fewer are valid, because the last word may be unused."""
    open_corpus(bags(folder, max(used, N), max(used, N), min(used, N)))


def named_columns(folder: Path, size: int) -> None:
    """Name the fields of a file without a header with the option ``columns``."""
    (folder / "t.csv").write_text("1,ant,2\n2,bee,3\n")
    names = ["document", "word", "count", "more"][: 3 + size - N]
    read(folder / "t.csv", reader="triples", read={"header": False, "columns": names})


# -- Python -----------------------------------------------------------------------------------------------------------


def matrix(kind: Callable[[Any], Any]) -> Callable[[Path, int], None]:
    return lambda folder, listed: corpus_from_matrix(kind(COUNTS), words(listed), folder / "corpus")


def gensim(folder: Path, size: int) -> None:
    """Make the pairs of a document too short or too long by one."""
    entries = [tuple([0, 1, 2][: 2 + size - N])] * 3
    corpus_from_gensim([[(1, 1), (2, 2)], entries], dict(enumerate(words(N))), folder / "corpus")


def fitted(**arguments: Any) -> Any:
    return LRJSMF(2, random_state=0, max_iterations=2, scheduler="synchronous", **arguments)


@cache
def of_counts() -> Any:
    return fitted().fit(COUNTS)


def feature_names(kind: Callable[[Any], Any]) -> Callable[[Path, int], None]:
    return lambda folder, listed: fitted(feature_names=words(listed), scratch=folder).fit(kind(COUNTS))


def blocks(folder: Path, width: int) -> None:
    """Fit a Dask array that has a block of another width than declared."""
    X = da.from_array(COUNTS, chunks=(4, N)).map_blocks(
        lambda block: np.resize(block, (4, width)), dtype=int, meta=np.empty((0, 0), int)
    )
    fitted(scratch=folder).fit(X)


def inverse(_: Path, width: int) -> None:
    topics = width - N + 2
    of_counts().inverse_transform(np.full((3, topics), 1 / topics))


@dataclass(frozen=True)
class Reader:
    """``write`` writes parts of a given size and reads them; ``told`` returns what the message must contain."""

    name: str
    write: Callable[[Path, int], None]
    told: Callable[[int], list[object]] = lambda size: [N, size]


def _of_cells(name: str, part: str, dense: bool, usual: int = M) -> Reader:
    return Reader(f"h5ad-{name}", cells(part, dense), lambda size: [usual, usual + size - N])


READERS = (
    Reader("docword", counted("docword.t.txt", docword)),
    Reader("matrix-market", counted("t.mtx", lambda path: scipy.io.mmwrite(path, sp.csr_array(COUNTS)))),
    Reader("npz", counted("t.npz", lambda path: sp.save_npz(path, sp.csr_matrix(COUNTS)))),
    _of_cells("sparse-var", "var/_index", False, N),
    _of_cells("dense-var", "var/_index", True, N),
    _of_cells("sparse-obs", "obs/_index", False),
    _of_cells("dense-obs", "obs/_index", True),
    _of_cells("column", "obs/year", False),
    _of_cells("codes", "obs/kind/codes", True),
    _of_cells("values", "obs/known/values", False),
    _of_cells("mask", "obs/known/mask", True),
    _of_cells("layer", "layers/raw", True),
    *(Reader(f"h5ad-{part}", cells(f"X/{part}", False), lambda _: ["do not fit"]) for part in CSR),
    Reader("bags-counts", lambda folder, size: read(bags(folder, N, size, N))),
    Reader("bags-ids", ids_of_bags, lambda size: [f"is outside 0..{min(size, N) - 1}"]),
    Reader("columns", named_columns, lambda size: [4, 3] if size > N else [3, 2]),
    Reader("matrix-sparse", matrix(sp.csr_matrix)),
    Reader("matrix-dense", matrix(np.asarray)),
    Reader("gensim", gensim, lambda _: ["document 1, from 0, is no list of (word id, count)"]),
    Reader("feature-names", feature_names(sp.csr_array)),
    Reader("feature-names-dask", feature_names(lambda counts: da.from_array(counts, chunks=(4, N)))),
    Reader("dask-blocks", blocks),
    Reader("inverse-transform", inverse, lambda size: [2, 2 + size - N]),
)


@pytest.mark.parametrize("reader", READERS, ids=[reader.name for reader in READERS])
def test_inconsistent_sizes_are_refused(
    reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It starts a process for each file; see test_hostile_inputs.
    monkeypatch.setattr(h5ad, "_require_end", lambda *_: None)
    for size in (N, N - 1, N + 1):
        folder = tmp_path / str(size)
        folder.mkdir()
        if size == N:
            reader.write(folder, N)
            continue
        with pytest.raises(InputError) as refused:
            reader.write(folder, size)
        message = str(refused.value)
        assert "\n" not in message
        message = message.replace(str(folder), "")
        for part in reader.told(size):
            assert re.search(rf"(?<!\w){re.escape(str(part))}(?!\w)", message), message
        assert not list(folder.glob("corpus*"))


@pytest.mark.parametrize(
    ("counts", "listed", "reason"),
    [
        (COUNTS[0], words(N), "the matrix has 1 dimension"),
        ([[1, 2], [3]], words(2), "the matrix cannot be read as counts"),
        (COUNTS[None], words(N), "the matrix cannot be read as counts"),
        (COUNTS, None, "words is None"),
        (COUNTS, "abcdef", "words is 'abcdef'"),
    ],
)
def test_invalid_matrices_and_word_lists(tmp_path: Path, counts: Any, listed: Any, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        corpus_from_matrix(counts, listed, tmp_path / "corpus")
