"""AnnData files (.h5ad) of cells by genes, read in slices of rows. Needs the optional package anndata."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_jsmf.config import H5adOptions
from streaming_jsmf.errors import InputError, first_line
from streaming_jsmf.ingestion.readers.base import BadRecords, Batch, Unit, UnreadableError, limits
from streaming_jsmf.ingestion.readers.counts import CountFiles, row_cuts
from streaming_jsmf.ingestion.readers.files import open_raw, read_as
from streaming_jsmf.ingestion.readers.h5ad_trial import TOO_LARGE
from streaming_jsmf.ingestion.readers.matrices import Rows, bags_of_rows, checked_indptr, row_units
from streaming_jsmf.storage.paths import is_url
from streaming_jsmf.storage.regular import require_regular

#: Script of the trial read.
TRIAL = Path(__file__).with_name("h5ad_trial.py")


class H5adSource(CountFiles):
    """Reader "h5ad": counts in X or a layer, CSR or dense; genes are words and cells are documents.

    ``document_id`` is the name of the cell. All files have the same genes. Only the requested ``obs`` columns are read.
    """

    reader = "h5ad"
    options_type = H5adOptions
    patterns = ("*.h5ad",)

    def words_of(self, path: str) -> tuple[str, ...]:
        """Return the gene names of one file. Raises InputError if a name is empty or duplicated."""
        try:
            with _open_cells(path, self.options) as cells:
                names = tuple(cells.names("var", 0, None).to_pylist())
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

    def parts(self, path: str) -> Sequence[Unit]:
        """Split a file by rows. Reads ``indptr``: 16 bytes per cell."""
        with _open_cells(path, self.options) as cells:
            return row_units(path, cells.indptr(0, cells.n_cells))

    def read(self, unit: Unit, bad: BadRecords) -> Iterator[Batch]:
        """Stream the cells of a unit. Memory: a slice of the matrix, and the names and columns of the unit."""
        with bad.unreadable_file(), _open_cells(unit.path, self.options) as cells:
            stop = unit.stop or cells.n_cells
            names = cells.names("obs", unit.start, stop)
            metadata = {name: cells.column(name, unit.start, stop) for name in self.options.metadata}
            for rows in cells.rows(unit.start, stop):
                batch = bags_of_rows(rows, cells.n_genes, bad)
                kept = pa.array(batch.rows)
                columns = {name: column.take(kept) for name, column in metadata.items()}
                yield replace(batch, document_id=names.take(kept), metadata=columns)


@contextmanager
def _open_cells(path: str, options: H5adOptions) -> Iterator[_Cells]:
    """Open the matrix and tables of a file. Raises UnreadableError, also while the caller reads."""
    try:
        # Not at the top, because the dependency is optional.
        import_module("anndata.io")
        h5py = import_module("h5py")
    except ImportError as error:
        raise InputError("reading .h5ad needs anndata; pip install 'streaming-jsmf[anndata]'") from error
    try:
        with ExitStack() as stack:
            source = stack.enter_context(open_raw(path)) if is_url(path) else path
            stack.enter_context(read_as("HDF5"))
            if not is_url(path):
                require_regular(Path(path))
                _require_end(path, os.stat(path).st_mtime_ns, options)  # noqa: PTH116
            yield _Cells(path, stack.enter_context(h5py.File(source, "r")), options)
    except FileNotFoundError as error:
        raise InputError(f"{path} cannot be read ({first_line(error)}); check the path") from error


@cache
def _require_end(path: str, changed: int, options: H5adOptions) -> None:  # noqa: ARG001
    """Refuse a file that HDF5 cannot finish reading; takes about 0.2 s, once per process and file version."""
    request = {"path": path, "matrix": options.matrix, "columns": options.metadata}
    ended = subprocess.run(
        [sys.executable, str(TRIAL)], input=json.dumps(request).encode(), capture_output=True, check=False
    )
    if ended.returncode == TOO_LARGE:
        raise UnreadableError("it declares a string of more bytes than it has; it is damaged: fetch it again")
    if ended.returncode < 0:
        name = signal.Signals(-ended.returncode).name
        raise UnreadableError(f"reading it as HDF5 is stopped ({name}); it is damaged: fetch it again")


def _require_own(group: Any, name: str, depth: int = 3) -> None:
    """Refuse links, external storage and virtual data sets, with which HDF5 would read any other file."""
    link = group.get(name, getlink=True) if name in group.keys() else None  # noqa: SIM118
    if link is None:
        return
    if type(link).__name__ != "HardLink":
        raise UnreadableError(f"its {name!r} is a link; write the file again with its own data")
    node = group[name]
    if not hasattr(node, "keys"):
        if node.external or node.is_virtual:
            raise UnreadableError(
                f"its {name!r} is kept in another file; write the file again with its own data"
            )
        stored, size = node.id.get_storage_size(), node.size * node.dtype.itemsize
        if size > limits.LARGEST_PACKING * stored + limits.BATCH_BYTES:
            raise UnreadableError(f"its {name!r} has {node.size} values in {stored} bytes; it is damaged")
    elif depth:
        for child in node:
            _require_own(node, child, depth - 1)


class _Cells:
    """An open AnnData file; the matrix stays on disk and is read in slices."""

    def __init__(self, path: str, file: Any, options: H5adOptions) -> None:
        self._path, self._file, self._options = path, file, options
        name = options.matrix
        for root in (name.partition("/")[0], "obs", "var"):
            _require_own(file, root)
        if name not in file:
            layers = ", ".join(file["layers"]) if "layers" in file else ""
            raise InputError(
                f"{path} has no {name}; set the option layer to one of its layers ({layers or 'none'})"
            )
        for column in options.metadata:
            if "obs" not in file or column not in file["obs"]:
                raise InputError(f"{path} has no column {column!r} in obs; see adata.obs.columns")
        self._stored = file[name]
        self._dense = not hasattr(self._stored, "keys")
        self._matrix = self._stored if self._dense else self._sparse(name)
        values = self._stored if self._dense else self._stored["data"]
        if len(self._matrix.shape) != 2 or values.dtype.kind not in "iubf":
            raise InputError(f"{path} has {name} of type {values.dtype}; it must be a matrix of numbers")
        self._n_values = values.size
        self.n_cells, self.n_genes = (int(size) for size in self._matrix.shape)
        self._require_sizes(name)

    def _sparse(self, name: str) -> Any:
        kind = str(self._stored.attrs.get("encoding-type", "of an unknown kind"))
        if kind != "csr_matrix":
            where = "adata.X" if name == "X" else f"adata.layers[{name.removeprefix('layers/')!r}]"
            raise InputError(
                f"{self._path} has {name} as {kind}, which cannot be read by cells; write it again with "
                f"{where} = {where}.tocsr()"
            )
        return import_module("anndata.io").sparse_dataset(self._stored)

    def _require_sizes(self, name: str) -> None:
        """Refuse a file whose tables do not match the numbers of cells and genes of the matrix."""
        if not self._dense:
            sizes = [self._stored[part].shape for part in ("indptr", "indices")]
            if sizes != [(self.n_cells + 1,), (self._n_values,)]:
                raise UnreadableError("the arrays of its matrix do not fit together; write the file again")
        for table, size, axis in (("obs", self.n_cells, "rows"), ("var", self.n_genes, "columns")):
            columns = self._options.metadata if table == "obs" else ()
            for column in (str(self._table(table).attrs["_index"]), *columns):
                node = self._table(table)[column]
                parts = (node[key] for key in ("codes", "values", "mask") if key in node)
                for part in parts if hasattr(node, "keys") else (node,):
                    if part.shape != (size,):
                        raise InputError(
                            f"{self._path} has {name} of {size} {axis}, and {table}[{column!r}] of shape {part.shape}; "
                            "each must have one value: make the AnnData object anew and write it again"
                        )

    def indptr(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return the start of rows start..stop-1 among the values, and the end of the last row."""
        if self._dense:
            return np.arange(start, stop + 1, dtype=np.int64) * self.n_genes
        ends = checked_indptr(np.asarray(self._stored["indptr"][start : stop + 1]), self._n_values)
        if stop == self.n_cells and ends[-1] != self._n_values:
            raise UnreadableError("indptr does not end with the number of values; write the matrix again")
        return ends

    def rows(self, start: int, stop: int) -> Iterator[Rows]:
        """Yield cells start..stop-1 in slices of about ``BATCH_VALUES`` values, including zeros of a dense matrix."""
        for a, b in pairwise(row_cuts(self.indptr(start, stop), limits.BATCH_VALUES)):
            part = self._matrix[start + a : start + b]
            if self._dense:
                filled = part != 0
                ends = np.concatenate([[0], np.cumsum(filled.sum(axis=1))])
                yield a, ends, np.nonzero(filled)[1], part[filled]
            else:
                yield a, part.indptr, part.indices, part.data

    def names(self, table: str, start: int, stop: int | None) -> Any:
        """Return the index of ``obs`` or ``var`` from ``start`` to before ``stop`` as Arrow strings."""
        index = str(self._table(table).attrs["_index"])
        names = self._values(self._table(table)[index], table, start, stop).cast(pa.string())
        if names.null_count:
            raise InputError(f"{self._path} has a name in the index of {table} that is null; set it")
        return names

    def column(self, name: str, start: int, stop: int) -> Any:
        return self._values(self._table("obs")[name], f"obs column {name!r}", start, stop)

    def _table(self, name: str) -> Any:
        if name not in self._file or "_index" not in self._file[name].attrs:
            raise InputError(f"{self._path} has no table {name}; read it with anndata and write it again")
        return self._file[name]

    def _values(self, element: Any, name: str, start: int, stop: int | None) -> Any:
        if not hasattr(element, "keys"):
            if import_module("h5py").check_string_dtype(element.dtype) is not None:
                return pa.array(element.asstr()[start:stop], pa.string())
            if element.dtype.kind in "biuf":
                return pa.array(element[start:stop])
        elif "codes" in element:
            codes = element["codes"][start:stop]
            categories = self._values(element["categories"], name, 0, None).cast(pa.string())
            return categories.take(pa.array(codes, mask=codes < 0))
        elif "mask" in element:
            values = self._values(element["values"], name, start, stop)
            return pc.if_else(pa.array(element["mask"][start:stop]), pa.scalar(None, values.type), values)
        raise InputError(
            f"{self._path} has values in {name} that cannot be read; make them numbers or strings"
        )
