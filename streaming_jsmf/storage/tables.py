"""Arrow tables in files, which are mapped into memory when they are read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from streaming_jsmf.errors import StoreError, pass_on_machine


def write_table(path: Path, table: Any) -> None:
    """Write an Arrow table that can be read in parts."""
    with table_writer(path, table.schema) as writer:
        writer.write_table(table.combine_chunks())


def table_writer(path: Path, schema: Any) -> Any:
    """Return the Arrow writer of a file, whose tables and batches follow each other; a context manager."""
    return pa.ipc.new_file(str(path), schema)


def read_table(path: Path) -> Any:
    """Memory-map a table; ``StoreError`` if the file is missing or damaged."""
    with own_file(path):
        return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


@contextmanager
def own_file(path: Path) -> Iterator[None]:
    """Convert errors of a file from an earlier step to ``StoreError``."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        pass_on_machine(error)
        raise damaged(path) from error


def damaged(path: Path) -> StoreError:
    root = next(
        parent for parent in (path, *path.parents) if parent.suffix == ".partial" or parent == parent.parent
    )
    return StoreError(f"{path} is missing or damaged; remove {root} and run again")
