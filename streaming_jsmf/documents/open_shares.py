"""Opens topic shares of any form."""

from __future__ import annotations

from pathlib import Path

from streaming_jsmf.documents.shares import SharesFile, open_parquet_shares
from streaming_jsmf.documents.shares_zarr import open_zarr_shares
from streaming_jsmf.errors import InputError
from streaming_jsmf.storage.paths import node_exists


def open_shares(path: Path) -> SharesFile:
    """Open what ``transform`` wrote: a Parquet file, a directory of them, or a Zarr group. Reads no shares.

    Raises
    ------
    InputError
        If there is nothing, or something else.
    StoreError
        If a file is missing or damaged.
    """
    if not path.exists():
        raise InputError(f"there are no topic shares at {path}; make them with transform")
    return open_zarr_shares(path) if node_exists(path) else open_parquet_shares(path)
