"""Arrow tables in files. Local ones are mapped into memory when they are read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from streaming_jsmf.errors import StoreError, pass_on_machine
from streaming_jsmf.storage.objects import reaching
from streaming_jsmf.storage.paths import StorePath, read_bytes


def write_table(path: StorePath, table: Any) -> None:
    """Write an Arrow table that can be read in parts."""
    with table_writer(path, table.schema) as writer:
        writer.write_table(table.combine_chunks())


@contextmanager
def table_writer(path: StorePath, schema: Any) -> Iterator[Any]:
    """Yield the Arrow writer of a file, whose tables and batches follow each other."""
    if isinstance(path, Path):
        with pa.ipc.new_file(str(path), schema) as writer:
            yield writer
        return
    with reaching(path), path.fs.open(path.path, "wb") as file, pa.ipc.new_file(file, schema) as writer:
        yield writer


def read_table(path: StorePath) -> Any:
    """Read a table; ``StoreError`` if the file is missing or damaged."""
    with own_file(path):
        source = pa.memory_map(str(path)) if isinstance(path, Path) else pa.py_buffer(read_bytes(path))
        return pa.ipc.open_file(source).read_all()


@contextmanager
def own_file(path: StorePath) -> Iterator[None]:
    """Convert errors of a file from an earlier step to ``StoreError``."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        pass_on_machine(error)
        raise damaged(path) from error


def damaged(path: StorePath) -> StoreError:
    root = next(
        parent for parent in (path, *path.parents) if parent.suffix == ".partial" or parent == parent.parent
    )
    return StoreError(f"{path} is missing or damaged; remove {root} and run again")
