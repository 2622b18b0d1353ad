"""The verb ``documents``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from streaming_jsmf.cli.results import RAW_HELP, column_text, csv_text, require_csv
from streaming_jsmf.cli.verb import json_option, option, path, verb
from streaming_jsmf.errors import InputError


@verb(
    "streaming-jsmf documents MODEL SHARES.parquet --topic 3 --number 20",
    "streaming-jsmf documents MODEL SHARES.parquet --by year --csv",
)
@path("model")
@path("shares")
@option("--topic", group="Question", type=int, default=None, metavar="K",
        help="Documents with the largest shares of topic K, counted from 0.  [default: all topics]")  # fmt: skip
@option("--by", group="Question", default=None, metavar="COLUMN",
        help="Mean topic shares, or those of --topic, by the values of a metadata column.  "
             "[default: over all documents]")  # fmt: skip
@option("--similar", group="Question", default=None, metavar="DOCUMENT_ID",
        help="Documents with the shares most similar to those of this document.  [default: none]")  # fmt: skip
@option("--number", group="Question", type=int, default=None, help="Number of documents.  [default: 10]")
@option("--csv", "as_csv", group="Answer", is_flag=True, help="Print CSV instead of a table.")
@option("--raw", group="Answer", is_flag=True, help=RAW_HELP)
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
