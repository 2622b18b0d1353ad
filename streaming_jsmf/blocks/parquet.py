"""Opening Parquet so that damage is named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streaming_jsmf.errors import StoreError


@contextmanager
def damage_named(place: str) -> Iterator[None]:
    """Turn what pyarrow raises on a missing, truncated or corrupt file into a ``StoreError`` naming ``place``."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise StoreError(
            f"{place}: cannot be read ({reason[:160]}); restore the file from its source"
        ) from error


@contextmanager
def parquet_file(path: str) -> Iterator[Any]:
    """Yield the ``ParquetFile`` at a local path or fsspec URL; page checksums are verified where there are any."""
    with damage_named(path):
        if "://" in path:
            import fsspec

            source: Any = fsspec.open(path, "rb").open()
        else:
            source = path
        file = pq.ParquetFile(source, page_checksum_verification=True, memory_map=False)
    try:
        yield file
    finally:
        file.close(force=True)
