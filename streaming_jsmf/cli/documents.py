"""The verb ``documents``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from streaming_jsmf.cli.verb import (
    csv_options,
    json_option,
    json_text,
    option,
    options_of,
    path,
    require_one,
    verb,
)
from streaming_jsmf.config import DocumentQuery
from streaming_jsmf.display import cell_text, csv_text, table
from streaming_jsmf.errors import InputError

ANSWER = "Output"


@verb(
    "streaming-jsmf documents MODEL SHARES.parquet --topic 3 --number 20",
    "streaming-jsmf documents MODEL SHARES.parquet --by year --csv",
)
@path("model")
@path("shares")
@options_of(DocumentQuery)
@csv_options(group=ANSWER)
@json_option(group=ANSWER)
@option("--out", group=ANSWER, type=click.Path(path_type=Path), default=None, metavar="FILE.parquet",
        help="Write the result to a file.  [default: print it]")  # fmt: skip
def documents(
    model: str,
    shares: str,
    as_csv: bool = False,
    raw: bool = False,
    as_json: bool = False,
    out: Path | None = None,
    *,
    listener: object,
    **question: Any,
) -> str:
    """Query SHARES, which transform wrote with MODEL: documents of a topic, shares by group, similar documents.

    Without --topic, --by and --similar: the mean share of each topic over all documents.
    """
    del listener
    from streaming_jsmf.documents.queries import query
    from streaming_jsmf.storage.lock import is_left

    require_one(raw, csv=as_csv, json=as_json, out=out is not None)
    if out is not None and not is_left(out):
        _require_new(out)
    found = query(model, shares, **question)
    if out is not None:
        _write(found, out)
        return f"documents: {out} ({found.num_rows} rows)"
    if as_json:
        return json_text(found.to_pylist())
    columns = found.to_pydict()
    rows = [*zip(*columns.values(), strict=True)]
    if as_csv:
        return csv_text([columns, *rows], raw=raw).removesuffix("\n")
    align = "".join(
        ">" if all(value is None or isinstance(value, int | float) for value in values) else "<"
        for values in columns.values()
    )
    return table([[*columns], *([*map(cell_text, row)] for row in rows)], align)


def _write(found: Any, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from streaming_jsmf.storage.lock import write_alone

    sink = pa.BufferOutputStream()
    pq.write_table(found, sink, compression="zstd")
    write_alone(path, sink.getvalue().to_pybytes(), lambda: _require_new(path))


def _require_new(path: Path) -> None:
    if path.suffix != ".parquet" or not path.parent.is_dir() or path.exists():
        raise InputError(f"--out {path}: give a new FILE.parquet in an existing directory")
