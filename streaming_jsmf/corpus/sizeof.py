"""Tell Dask how much memory scipy's sparse arrays hold.

Without this ``sizeof(csr_array)`` answers 56 bytes, and a distributed worker neither spills nor counts
its blocks. Dask loads the registration through the entry point ``dask.sizeof``, in every process and
before the first use; importing ``streaming_jsmf.blocks`` registers it too.
"""

from __future__ import annotations

from typing import Any


def sparse_nbytes(array: Any) -> int:
    """Return the bytes of the buffers of a scipy sparse array or matrix, whatever its format."""
    return sum(int(getattr(value, "nbytes", 0)) for value in vars(array).values())


def register_sizeof(sizeof: Any) -> None:
    """Register ``sparse_nbytes`` with Dask's ``sizeof`` dispatcher. Harmless if repeated."""
    import scipy.sparse

    sizeof.register(scipy.sparse.sparray)(sparse_nbytes)
    sizeof.register(scipy.sparse.spmatrix)(sparse_nbytes)
