"""Tell Dask how much memory scipy's sparse arrays take.

Dask's own ``sizeof(csr_array)`` is 56 bytes, so a distributed worker neither spills nor counts its blocks. Dask calls
``register_sizeof`` through the entry point ``dask.sizeof`` in every process; ``corpus.csr`` calls it, too.
"""

from __future__ import annotations

from typing import Any


def sparse_nbytes(array: Any) -> int:
    """Return the bytes of the buffers of a scipy sparse array or matrix of any format."""
    return sum(int(getattr(value, "nbytes", 0)) for value in vars(array).values())


def register_sizeof(sizeof: Any) -> None:
    """Register ``sparse_nbytes`` with Dask's ``sizeof`` dispatcher. May be repeated."""
    import scipy.sparse

    sizeof.register(scipy.sparse.sparray)(sparse_nbytes)
    sizeof.register(scipy.sparse.spmatrix)(sparse_nbytes)
