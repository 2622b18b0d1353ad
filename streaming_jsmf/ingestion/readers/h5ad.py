"""AnnData files (.h5ad) of cells by genes, read in slices of rows with h5py, which comes with the package anndata."""

from __future__ import annotations

import inspect
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
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

from streaming_jsmf.errors import InputError, first_line, option
from streaming_jsmf.ingestion.readers.base import BadRecords, Batch, Unit, UnreadableError, limits
from streaming_jsmf.ingestion.readers.files import open_raw, read_as, trial
from streaming_jsmf.ingestion.readers.matrices import (
    CountFiles,
    CsrMatrix,
    Rows,
    bags_of_rows,
    row_cuts,
    row_units,
)
from streaming_jsmf.storage.local import require_regular
from streaming_jsmf.storage.paths import is_url

_OF_RAW = "adata.raw has others, which adata.raw.to_adata().write_h5ad(PATH) writes as X"
#: CPU seconds and memory of the trial besides those for the size of the file; a million names take one or two seconds.
TRIAL_SECONDS, _MEMORY = 5, 1 << 30


class H5adSource(CountFiles):
    """Reader "h5ad": counts in X or a layer, CSR or dense; genes are words and cells are documents.

    ``document_id`` is the name of the cell. All files have the same genes. Only the requested ``obs`` columns are read.
    """

    reader = "h5ad"
    patterns = ("*.h5ad",)

    def words_of(self, path: str) -> tuple[str, ...]:
        """Return the gene names of one file. Raises InputError if a name is empty or duplicated."""
        try:
            with self._open(path) as cells:
                names = tuple(cells.names("var").to_pylist())
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
        with self._open(path) as cells:
            units = row_units(path, cells.matrix.indptr())
            return [replace(unit, notes=cells.notes) for unit in units]

    def read(self, unit: Unit, bad: BadRecords) -> Iterator[Batch]:
        """Stream the cells of a unit. Memory: a slice of the matrix, and the names and columns of the unit."""
        with bad.unreadable_file(), self._open(unit.path) as cells:
            matrix, start = cells.matrix, unit.start
            stop = unit.stop or matrix.n_rows
            names = cells.names("obs", start, stop)
            metadata = {name: cells.column("obs", name, start, stop) for name in self.options.metadata}
            for rows in matrix.rows(start, stop):
                batch = bags_of_rows(rows, matrix.n_columns, bad)
                kept = pa.array(batch.rows)
                columns = {name: column.take(kept) for name, column in metadata.items()}
                yield replace(batch, document_id=names.take(kept), metadata=columns)

    @contextmanager
    def _open(self, path: str) -> Iterator[_Cells]:
        """Open a file. Raises UnreadableError, also while the caller reads."""
        name, columns = self.options.matrix, self.options.metadata
        try:
            h5py = import_module("h5py")  # not at the top, because it is optional
        except ImportError as error:
            raise InputError("reading .h5ad needs a package; pip install anndata") from error
        try:
            with ExitStack() as stack:
                source = stack.enter_context(open_raw(path)) if is_url(path) else path
                stack.enter_context(read_as("HDF5"))
                if not is_url(path):
                    require_regular(Path(path))
                    _require_end(path, os.stat(path).st_mtime_ns, name, columns)  # noqa: PTH116
                yield _Cells(path, stack.enter_context(h5py.File(source, "r")), name, columns)
        except FileNotFoundError as error:
            raise InputError(f"{path} cannot be read ({first_line(error)}); check the path") from error


@cache
def _require_end(path: str, changed: int, matrix: str, columns: Sequence[str]) -> None:  # noqa: ARG001
    """Refuse a file that HDF5 cannot finish reading; takes about 0.2 s, once per process and file version."""
    # With a damaged byte in a heap of strings, HDF5 can loop within one call, ignoring signals, or allocate gigabytes.
    code, size = f"{inspect.getsource(read_strings)}\nread_strings(*given)", os.stat(path).st_size  # noqa: PTH116
    ended = trial(code, [path, matrix, columns], size + _MEMORY, TRIAL_SECONDS + size // 10_000_000)
    if ended == 3:
        raise UnreadableError("it declares a string of more bytes than it has; it is damaged: fetch it again")
    if ended < 0:
        name = signal.Signals(-ended).name
        raise UnreadableError(f"reading it as HDF5 is stopped ({name}); it is damaged: fetch it again")


def read_strings(path: str, matrix: str, columns: list[str]) -> None:
    """Read all strings of a file in a process without this package. Exits with 3 if they take more than its memory."""
    import sys

    import h5py

    def read(name: str, depth: int = 3) -> None:
        try:
            node = file[name]
            attributes = dict(node.attrs)
            if hasattr(node, "keys"):
                for child in node if depth else [str(attributes["_index"])]:
                    read(f"{name}/{child}", depth - 1)
            elif node.dtype.kind == "O" and node.ndim == 1:
                for start in range(0, node.shape[0], 100_000):
                    node[start : start + 100_000]
        except Exception as error:  # the real read reports others
            if isinstance(error, MemoryError) or "allocat" in str(error):
                sys.exit(3)

    with h5py.File(path, "r") as file:
        for name in (matrix, *(f"obs/{column}" for column in columns)):
            read(name)
        for name in ("obs", "var"):
            read(name, depth=0)


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

    def __init__(self, path: str, file: Any, name: str, columns: Sequence[str]) -> None:
        self._path, self._file = path, file
        for root in (name.partition("/")[0], "obs", "var"):
            _require_own(file, root)
        if name not in file:
            layers = ", ".join(file["layers"]) if "layers" in file else ""
            raise InputError(
                f"{path} has no {name}; its layers, for {option.read({'layer': 'NAME'})}, are: {layers or 'none'}"
                f"{f'; {_OF_RAW}' * ('raw' in file)}"
            )
        self.notes = (f"the values of {name} are read; {_OF_RAW}",) * ("raw" in file)
        for column in columns:
            if "obs" not in file or column not in file["obs"]:
                raise InputError(f"{path} has no column {column!r} in obs; see adata.obs.columns")
        self.matrix = self._matrix(name)
        self._require_sizes(name, columns)

    def _matrix(self, name: str) -> _Sparse | _Dense:
        node = self._file[name]
        if not hasattr(node, "keys"):
            return _Dense(self._path, name, node)
        kind = str(node.attrs.get("encoding-type", "of an unknown kind"))
        if kind != "csr_matrix":
            where = "adata.X" if name == "X" else f"adata.layers[{name.removeprefix('layers/')!r}]"
            raise InputError(
                f"{self._path} has {name} as {kind}, which cannot be read by cells; write it again with "
                f"{where} = {where}.tocsr()"
            )
        return _Sparse(self._path, node)

    def _require_sizes(self, name: str, metadata: Sequence[str]) -> None:
        """Refuse a file whose tables do not match the numbers of cells and genes of the matrix."""
        cells, genes = self.matrix.n_rows, self.matrix.n_columns
        for table, size, axis in (("obs", cells, "rows"), ("var", genes, "columns")):
            for column in (self._index(table), *(metadata if table == "obs" else ())):
                node = self._file[table][column]
                parts = (node[key] for key in ("codes", "values", "mask") if key in node)
                for part in parts if hasattr(node, "keys") else (node,):
                    if part.shape != (size,):
                        raise InputError(
                            f"{self._path} has {name} of {size} {axis}, and {table}[{column!r}] of shape {part.shape}; "
                            "each must have one value: make the AnnData object anew and write it again"
                        )

    def names(self, table: str, start: int = 0, stop: int | None = None) -> Any:
        """Return the index of ``obs`` or ``var`` from ``start`` to before ``stop`` as Arrow strings."""
        names = self.column(table, self._index(table), start, stop).cast(pa.string())
        if names.null_count:
            raise InputError(f"{self._path} has a name in the index of {table} that is null; set it")
        return names

    def column(self, table: str, name: str, start: int, stop: int | None) -> Any:
        """Return a column as an Arrow array. Raises InputError if its values are neither numbers nor strings."""
        values = _values(self._file[table][name], start, stop)
        if values is None:
            raise InputError(
                f"{self._path} has values in {table}[{name!r}] that cannot be read; make them numbers or strings"
            )
        return values

    def _index(self, table: str) -> str:
        if table not in self._file or "_index" not in self._file[table].attrs:
            raise InputError(f"{self._path} has no table {table}; read it with anndata and write it again")
        return str(self._file[table].attrs["_index"])


def _values(node: Any, start: int, stop: int | None) -> Any:
    if not hasattr(node, "keys"):
        if import_module("h5py").check_string_dtype(node.dtype) is not None:
            return pa.array(node.asstr()[start:stop], pa.string())
        return pa.array(node[start:stop]) if node.dtype.kind in "biuf" else None
    if "codes" in node:
        codes, categories = node["codes"][start:stop], _values(node["categories"], 0, None)
        if categories is not None:
            return categories.cast(pa.string()).take(pa.array(codes, mask=codes < 0))
    elif "mask" in node and (values := _values(node["values"], start, stop)) is not None:
        return pc.if_else(pa.array(node["mask"][start:stop]), pa.scalar(None, values.type), values)
    return None


class _Sparse(CsrMatrix):
    """CSR matrix in an open file."""

    def __init__(self, path: str, group: Any) -> None:
        self._group = group
        arrays = {name: group[name] for name in ("indptr", "indices", "data")}
        sizes = {name: (node.size if node.ndim == 1 else -1, node.dtype) for name, node in arrays.items()}
        super().__init__(path, [int(size) for size in group.attrs["shape"]], sizes)

    def array(self, name: str, first: int) -> Callable[[int], NDArray[Any]]:
        def take(n: int) -> NDArray[Any]:
            nonlocal first
            first += n
            return np.asarray(self._group[name][first - n : first])

        return take


class _Dense:
    """Dense matrix in an open file, with the interface of ``CsrMatrix``."""

    def __init__(self, path: str, name: str, node: Any) -> None:
        if len(node.shape) != 2 or node.dtype.kind not in "iubf":
            raise InputError(f"{path} has {name} of type {node.dtype}; it must be a matrix of numbers")
        self._node = node
        self.n_rows, self.n_columns = (int(size) for size in node.shape)

    def indptr(self) -> NDArray[np.int64]:
        return self.n_columns * np.arange(self.n_rows + 1, dtype=np.int64)

    def rows(self, start: int, stop: int) -> Iterator[Rows]:
        """Yield rows start..stop-1 in slices of about ``BATCH_VALUES`` values, including zeros."""
        for a, b in pairwise(row_cuts(self.indptr()[start : stop + 1], limits.BATCH_VALUES)):
            part = self._node[start + a : start + b]
            filled = part != 0
            ends = np.concatenate([[0], np.cumsum(filled.sum(axis=1))])
            yield a, ends, np.nonzero(filled)[1], part[filled]
