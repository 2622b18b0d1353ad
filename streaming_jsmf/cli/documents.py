"""The verb ``documents``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from streaming_jsmf.cli.options import json_option
from streaming_jsmf.cli.tables import column_text, csv_text
from streaming_jsmf.cli.verb import option, path, verb
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
@json_option(group="Answer")
@option("--out", group="Answer", type=click.Path(), default=None, metavar="FILE.parquet",
        help="Write the answer to a file.  [default: print it]")  # fmt: skip
def documents(
    model: str,
    shares: str,
    as_csv: bool = False,
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
    from streaming_jsmf.workflow.documents import query

    if as_csv + as_json + (out is not None) > 1:
        raise InputError("--csv, --json and --out exclude each other; give one")
    if out is not None and (
        Path(out).suffix != ".parquet" or Path(out).exists() or not Path(out).parent.is_dir()
    ):
        raise InputError(f"--out {out}: give a new FILE.parquet in an existing directory")
    table = query(model, shares, **question)
    if out is not None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        from streaming_jsmf.storage.paths import write_bytes

        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        write_bytes(Path(out), sink.getvalue().to_pybytes())
        return f"documents: {out} ({table.num_rows} rows)"
    if as_csv:
        return csv_text(table.column_names, (row.values() for row in table.to_pylist())).removesuffix("\n")
    if as_json:
        return json.dumps(table.to_pylist(), ensure_ascii=False, indent=1, default=str)
    return column_text(table.to_pydict())
