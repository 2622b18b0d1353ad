"""Topic shares in CSV: a column per topic, for other programs; they are not read again."""

from __future__ import annotations

import csv
import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from streaming_jsmf.corpus.records import free_name
from streaming_jsmf.display import escaped_cell
from streaming_jsmf.documents.shares import DOCUMENT_ID, SHARES, About, SharesFile, is_text, not_shares
from streaming_jsmf.errors import InputError

logger = logging.getLogger(__name__)


def is_csv(path: Path) -> bool:
    """Whether shares at ``path`` are or will be a CSV file."""
    return path.suffix.lower() == ".csv"


def not_read(path: Path) -> InputError:
    return InputError(f"{path}: shares in CSV are for other programs; transform to .parquet, and give that")


def csv_shares(path: Path, about: About) -> SharesFile:
    """Return the shares in a CSV file, which cannot be read again."""

    def read(columns: Sequence[str]) -> Iterator[Any]:
        del columns
        raise not_read(path)

    return SharesFile(path, about, (), read)


def require_csv(path: Path) -> None:
    """Raise ``InputError`` unless the header of a file is one of ``write_csv``."""
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        header = next(csv.reader(file), [])
    if header[:1] != [DOCUMENT_ID] or not re.match("[0-9]+(: |$)", header[-1]):
        raise not_shares(path)


def write_csv(path: Path, shares: SharesFile, schema: Any, names: Sequence[str]) -> None:
    """Write shares as CSV: id, metadata as in ``schema``, and a column for each topic with its name. One pass.

    Texts that a spreadsheet would evaluate get a leading apostrophe. Lists and other nested columns are skipped with a
    warning.
    """
    kinds = {}
    for name in shares.columns:
        kind = schema.field(name).type
        if is_text(kind):
            kinds[name] = pa.string()
        elif pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            logger.warning("%s: column %r is %s and is left out of CSV", path, name, kind)
        else:
            kinds[name] = kind
    columns = [
        *((escaped_cell(free_name(name, names)), kind) for name, kind in kinds.items()),
        *((name, pa.float32()) for name in names),
    ]
    path.unlink(missing_ok=True)
    with pa_csv.CSVWriter(path, pa.schema(columns)) as file:
        for table in shares.tables([*kinds, SHARES]):
            known = [_csv_values(table.column(name), kind) for name, kind in kinds.items()]
            values = shares.about.matrix(table, SHARES).astype(np.float32)
            file.write_table(pa.table([*known, *map(pa.array, values.T)], schema=pa.schema(columns)))


def _csv_values(column: Any, kind: Any) -> Any:
    if kind != pa.string():
        return column
    return pa.array([escaped_cell(text) for text in column.to_pylist()], kind)
