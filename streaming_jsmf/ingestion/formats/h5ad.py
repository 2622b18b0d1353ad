"""AnnData files (.h5ad), read in slices of rows by the package anndata: genes are words, and cells are documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array

from streaming_jsmf.errors import InputError, option
from streaming_jsmf.ingestion.sources.matrices import batches_of, row_cuts
from streaming_jsmf.ingestion.sources.protocol import UnreadableError, limits
from streaming_jsmf.ingestion.sources.streams import open_raw, read_as

_OF_RAW = "adata.raw has others, which adata.raw.to_adata().write_h5ad(PATH) writes as X"


def words(path: str, options: Any) -> Sequence[str]:  # noqa: ARG001
    """Return the names of the genes. Raises InputError if a name is empty or repeated, or anndata is missing."""
    try:
        with _opened(path) as (file, anndata):
            names = tuple(map(str, _index(file, "var", anndata)))
    except UnreadableError as error:
        raise InputError(f"{path}: {error}") from error
    name, times = Counter(names).most_common(1)[0] if names else ("", 1)
    if times > 1:
        raise InputError(
            f"{path} has the gene {name!r} {times} times; call adata.var_names_make_unique() and write it again"
        )
    if not all(names) or not names:
        raise InputError(
            f"{path} has no genes, or one without a name; set adata.var_names and write it again"
        )
    return names


def notes(path: str, options: Any) -> tuple[str, ...]:
    """Return what a user may have expected to be read instead."""
    with _opened(path) as (file, _):
        return (f"the values of {options.matrix} are read; {_OF_RAW}",) * ("raw" in file)


def read(path: str, options: Any) -> Iterator[pa.RecordBatch]:
    """Yield the cells, with their names as ids and the ``obs`` columns of ``options.metadata``. Memory: a slice."""
    genes, where = words(path, options), options.matrix
    with _opened(path) as (file, anndata):
        matrix = _matrix(path, file, where, anndata)
        names, columns = _index(file, "obs", anndata), {}
        for name in options.metadata:
            if name not in file["obs"]:
                raise UnreadableError(f"there is no column {name!r} in obs; see adata.obs.columns")
            values = anndata.io.read_elem(file["obs"][name])
            if hasattr(values, "categories"):  # names, also those that are numbers
                values = values.rename_categories([*map(str, values.categories)])
            columns[name] = pa.array(np.asarray(values, object), from_pandas=True)
        columns["document_id"] = pa.array(map(str, names), pa.string())
        n_rows = matrix.shape[0]
        for name, values in columns.items():
            if len(values) != n_rows:
                of = "names of cells" if name == "document_id" else f"values of {name!r}"
                raise UnreadableError(f"its {where} has {n_rows} rows for {len(values)} {of}; write it again")
        for start, stop in pairwise(_cuts(matrix)):
            some = {name: values.slice(start, stop - start) for name, values in columns.items()}
            yield from batches_of(csr_array(matrix[start:stop]), genes, some)


def _cuts(matrix: Any) -> list[int]:
    """Return cuts of the rows into slices of about ``BATCH_VALUES`` values."""
    n_rows, n_words = matrix.shape
    dense = n_words * np.arange(n_rows + 1, dtype=np.int64)
    indptr = getattr(matrix, "group", {}).get("indptr")
    return row_cuts(dense if indptr is None else indptr[:].astype(np.int64), limits.BATCH_VALUES)


def _matrix(path: str, file: Any, name: str, anndata: Any) -> Any:
    """Return X or a layer, sliced by rows: an array of HDF5, or a sparse data set of anndata."""
    if name not in file:
        layers = ", ".join(file["layers"]) if "layers" in file else ""
        raise InputError(
            f"{path} has no {name}; its layers, for {option.layer('NAME')}, are: {layers or 'none'}"
            f"{f'; {_OF_RAW}' * ('raw' in file)}"
        )
    node = file[name]
    if not hasattr(node, "keys"):
        if len(node.shape) != 2 or node.dtype.kind not in "iubf":
            raise InputError(f"{path} has {name} of type {node.dtype}; it must be a matrix of numbers")
        return node
    matrix = anndata.io.sparse_dataset(node)
    if matrix.format != "csr":
        where = "adata.X" if name == "X" else f"adata.layers[{name.removeprefix('layers/')!r}]"
        raise InputError(
            f"{path} has {name} as {matrix.format}_matrix, which cannot be read by cells; write it again with {where} "
            f"= {where}.tocsr()"
        )
    values, rows = len(node["data"]), node["indptr"]
    if (len(node["indices"]), len(rows), rows[-1]) != (values, matrix.shape[0] + 1, values):
        raise UnreadableError(f"the arrays of {name} do not fit together; write it again")
    return matrix


def _index(file: Any, table: str, anndata: Any) -> Any:
    if table not in file or "_index" not in file[table].attrs:
        raise UnreadableError(f"it has no table {table}; read it with anndata and write it again")
    return anndata.io.read_elem(file[table][str(file[table].attrs["_index"])])


@contextmanager
def _opened(path: str) -> Iterator[tuple[Any, Any]]:
    """Open a file of HDF5; yield it and the package anndata. Raises UnreadableError, also while the caller reads."""
    try:
        import anndata
        import anndata.io
        import h5py
    except ImportError as error:
        raise InputError("reading .h5ad needs a package; pip install anndata") from error
    with open_raw(path) as stream, read_as("HDF5"), h5py.File(stream, "r") as file:
        yield file, anndata
