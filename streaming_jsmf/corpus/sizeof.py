"""Register the memory size of scipy sparse arrays with Dask.

Dask's own ``sizeof(csr_array)`` returns 56 bytes, so that workers neither count nor spill the blocks. Dask calls
``register_sizeof`` through the entry point ``dask.sizeof`` in every process; ``corpus.units.to_dask_array`` calls it as
well.
"""

from __future__ import annotations

from typing import Any


def sparse_nbytes(array: Any) -> int:
    """Bytes of the buffers of a scipy sparse array or matrix of any format."""
    return sum(int(getattr(value, "nbytes", 0)) for value in vars(array).values())


def register_sizeof(sizeof: Any) -> None:
    """Register ``sparse_nbytes`` with Dask's ``sizeof`` dispatcher. May be called repeatedly."""
    import scipy.sparse

    sizeof.register(scipy.sparse.sparray)(sparse_nbytes)
    sizeof.register(scipy.sparse.spmatrix)(sparse_nbytes)
