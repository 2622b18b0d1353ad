"""The verb ``documents``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from streaming_jsmf.cli.results import column_text, csv_text, require_csv
from streaming_jsmf.cli.verb import csv_options, json_option, option, options_of, path, verb
from streaming_jsmf.config import DocumentQuery
from streaming_jsmf.errors import InputError


@verb(
    "streaming-jsmf documents MODEL SHARES.parquet --topic 3 --number 20",
    "streaming-jsmf documents MODEL SHARES.parquet --by year --csv",
)
@path("model")
@path("shares")
@options_of(DocumentQuery)
@csv_options(group="Answer")
@json_option(group="Answer")
@option("--out", group="Answer", type=click.Path(), default=None, metavar="FILE.parquet",
        help="Write the answer to a file.  [default: print it]")  # fmt: skip
def documents(
    model: str,
    shares: str,
    as_csv: bool = False,
    raw: bool = False,
    as_json: bool = False,
    out: str | None = None,
    *,
    listener: object,
    **question: Any,
) -> str:
    """Query SHARES, which transform wrote with MODEL: documents of a topic, shares by group, similar documents.

    Without --topic, --by and --similar: the mean share of each topic over all documents.
    """
    del listener
    from streaming_jsmf.documents.queries import query
    from streaming_jsmf.storage.lock import is_left, write_alone

    if as_csv + as_json + (out is not None) > 1:
        raise InputError("--csv, --json and --out exclude each other; give one")
    require_csv(as_csv, raw)
    if out is not None and not is_left(Path(out)):
        _require_new(Path(out))
    table = query(model, shares, **question)
    if out is not None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        write_alone(Path(out), sink.getvalue().to_pybytes(), lambda: _require_new(Path(out)))
        return f"documents: {out} ({table.num_rows} rows)"
    if as_csv:
        rows = (row.values() for row in table.to_pylist())
        return csv_text([table.column_names, *rows], raw=raw).removesuffix("\n")
    if as_json:
        return json.dumps(table.to_pylist(), ensure_ascii=False, indent=1, default=str)
    return column_text(table.to_pydict())


def _require_new(path: Path) -> None:
    if path.suffix != ".parquet" or not path.parent.is_dir() or path.exists():
        raise InputError(f"--out {path}: give a new FILE.parquet in an existing directory")
