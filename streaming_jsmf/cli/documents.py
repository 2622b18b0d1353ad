"""The verb ``documents``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from streaming_jsmf.cli.observation import observed
from streaming_jsmf.cli.tables import RAW_HELP, csv_text, require_csv
from streaming_jsmf.cli.verb import option, verb
from streaming_jsmf.errors import InputError


@verb(
    "streaming-jsmf documents MODEL SHARES.parquet --topic 3 --number 20",
    "streaming-jsmf documents MODEL SHARES.parquet --by year --csv",
)
@click.argument("model", type=click.Path())
@click.argument("shares", type=click.Path())
@option("--topic", group="Question", type=int, default=None, metavar="K",
        help="The documents in which topic K, from 0, is largest.  [default: all topics]")  # fmt: skip
@option("--by", group="Question", default=None, metavar="COLUMN",
        help="Mean topic shares by the values of a metadata column; with --topic of that one.  "
             "[default: over all documents]")  # fmt: skip
@option("--similar", group="Question", default=None, metavar="DOCUMENT_ID",
        help="The documents whose shares are most similar to those of this one.  [default: none]")  # fmt: skip
@option("--number", group="Question", type=int, default=None, help="How many documents.  [default: 10]")
@option("--csv", "as_csv", group="Answer", is_flag=True, help="CSV instead of a table.")
@option("--raw", group="Answer", is_flag=True, help=RAW_HELP)
@option("--json", "as_json", group="Answer", is_flag=True, help="JSON instead of a table.")
@option("--out", group="Answer", type=click.Path(), default=None, metavar="FILE.parquet",
        help="Write the answer to a file.  [default: print it]")  # fmt: skip
def documents(
    model: str,
    shares: str,
    topic: int | None,
    by: str | None,
    similar: str | None,
    number: int | None,
    as_csv: bool,
    raw: bool,
    as_json: bool,
    out: str | None,
) -> None:
    """Answer from SHARES, which transform wrote with MODEL: documents of a topic, shares by group, similar documents.

    Without --topic, --by and --similar: the mean share of each topic over all documents.
    """
    if similar is not None and (by is not None or topic is not None):
        raise InputError("--similar goes with neither --topic nor --by; leave one out")
    listed = similar is not None or (topic is not None and by is None)
    if number is not None and not listed:
        raise InputError("--number says how many documents; give it with --topic or --similar, without --by")
    if as_csv + as_json + (out is not None) > 1:
        raise InputError("--csv, --json and --out exclude each other; give one")
    require_csv(as_csv, raw)
    if out is not None:
        _require_place(Path(out))
    with observed(None):
        table = _answer(model, shares, topic, by, similar, number)
    if as_csv:
        rows = (row.values() for row in table.to_pylist())
        click.echo(csv_text([table.column_names, *rows], raw=raw), nl=False)
    else:
        _show(table, as_json, out)


def _answer(
    model: str, shares: str, topic: int | None, by: str | None, similar: str | None, number: int | None
) -> Any:
    from streaming_jsmf.documents import queries
    from streaming_jsmf.workflow.documents import DEFAULT_NUMBER, by_group, largest, open_shares_of

    count = DEFAULT_NUMBER if number is None else number
    if similar is not None:
        return queries.similar(open_shares_of(model, shares), similar, count)
    if topic is not None and by is None:
        return largest(model, shares, topic, count)
    return by_group(model, shares, by, topic)


def _require_place(path: Path) -> None:
    from streaming_jsmf.jobs.lock import is_left

    if path.suffix != ".parquet" or not path.parent.is_dir():
        raise _taken(path)
    if not is_left(path):
        _require_free(path)


def _require_free(path: Path) -> None:
    if path.exists():
        raise _taken(path)


def _taken(path: Path) -> InputError:
    return InputError(f"--out {path}: give FILE.parquet that is not there, in a directory that is")


def _show(table: Any, as_json: bool, out: str | None) -> None:
    if out is not None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        from streaming_jsmf.jobs.lock import write_alone

        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        write_alone(Path(out), sink.getvalue().to_pybytes(), lambda: _require_free(Path(out)))
        click.echo(f"documents: {out} ({table.num_rows} rows)")
    elif as_json:
        click.echo(json.dumps(table.to_pylist(), ensure_ascii=False, indent=1, default=str))
    else:
        click.echo(_laid_out(table))


def _laid_out(table: Any) -> str:
    """The table in columns; numbers to the right."""
    columns = []
    for name in table.column_names:
        values = table.column(name).to_pylist()
        cells = [name, *map(_cell, values)]
        width = max(map(len, cells))
        right = all(value is None or isinstance(value, (int, float)) for value in values)
        columns.append([cell.rjust(width) if right else cell.ljust(width) for cell in cells])
    return "\n".join("  ".join(row).rstrip() for row in zip(*columns, strict=True))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    text = f"{value:.4f}" if isinstance(value, float) else " ".join(str(value).split())
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 3]}..."


#: Of a cell on a terminal.
MOST_CHARACTERS = 48
