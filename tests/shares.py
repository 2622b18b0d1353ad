"""Topic shares with other rows and columns than those of their corpus."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from streaming_jsmf.documents.share_files import open_shares, shares_schema, write_parquet
from streaming_jsmf.documents.shares import DOCUMENT_ID, SHARES, TOPICS, SharesFile


def write_shares(table: Any, out: Path, like: Path) -> Path:
    """Write an Arrow table as a Parquet file of shares of the same model and corpus as others."""
    before = open_shares(like).about
    about = replace(before, totals=replace(before.all_totals, documents=table.num_rows))
    columns = tuple(name for name in table.column_names if name not in (TOPICS, SHARES))
    fields = [table.schema.field(name) for name in columns if name != DOCUMENT_ID]
    schema = shares_schema(about, table.schema.field(DOCUMENT_ID).type, fields)
    shares = SharesFile(out, about, columns, lambda names: iter([table.select(list(names))]))
    write_parquet(out, shares, about, schema)
    return out
