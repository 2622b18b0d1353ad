"""Tables that verbs answer with: printed as text, CSV or JSON, or written to a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import click

from streaming_jsmf.cli.verb import csv_options, json_option, json_text, option, require_one, together
from streaming_jsmf.display import cell_text, csv_text, table
from streaming_jsmf.errors import InputError

GROUP = "Output"

#: Key of the metadata of Parquet tables that ``--out`` wrote.
_MARK = b"streaming_jsmf.table"

answer_options = together(
    csv_options(group=GROUP),
    json_option(group=GROUP),
    option("--out", group=GROUP, type=click.Path(path_type=Path), default=None, metavar="FILE",
           help="Write the result to FILE.parquet or FILE.csv.  [default: print it]"),
    option("--overwrite", group=GROUP, is_flag=True, help="With --out: replace FILE, a table of the same columns."),
)  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """The options ``answer_options`` of a verb, checked before any work; raises ``InputError``."""

    as_csv: bool = False
    raw: bool = False
    as_json: bool = False
    out: Path | None = None
    overwrite: bool = False

    @classmethod
    def pop(cls, options: dict[str, Any]) -> Self:
        """Take them out of the options of a verb."""
        return cls(**{name: options.pop(name) for name in cls.__dataclass_fields__ if name in options})

    def __post_init__(self) -> None:
        written = self.out is not None
        in_csv = written and self.out.suffix == ".csv"  # type: ignore[union-attr]
        require_one(self.raw and not in_csv, csv=self.as_csv, json=self.as_json, out=written)
        if self.overwrite and not written:
            raise InputError("--overwrite is for --out; give both or neither")
        if self.out is not None and (
            self.out.suffix not in (".parquet", ".csv") or not self.out.parent.is_dir()
        ):
            raise InputError(f"--out {self.out}: give FILE.parquet or FILE.csv in an existing directory")

    @property
    def is_text(self) -> bool:
        """Whether the answer is printed as text."""
        return not (self.as_csv or self.as_json or self.out)

    def text(self, found: Any, what: str) -> str:
        """What the verb prints: an Arrow table, or where it was written."""
        if self.out is not None:
            self._write(found, self.out)
            return f"{what}: {self.out} ({found.num_rows} rows)"
        if self.as_json:
            return json_text(found.to_pylist())
        if self.as_csv:
            return self._csv(found).removesuffix("\n")
        columns = found.to_pydict()
        align = "".join(
            ">" if all(value is None or isinstance(value, int | float) for value in values) else "<"
            for values in columns.values()
        )
        rows = zip(*columns.values(), strict=True)
        return table([[*columns], *([*map(cell_text, row)] for row in rows)], align)

    def _csv(self, found: Any) -> str:
        columns = found.to_pydict()
        return csv_text([columns, *zip(*columns.values(), strict=True)], raw=self.raw)

    def _write(self, found: Any, path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        from streaming_jsmf.storage.results import write_alone

        if path.suffix == ".csv":
            data = self._csv(found).encode()
        else:
            sink = pa.BufferOutputStream()
            pq.write_table(found.replace_schema_metadata({_MARK: _MARK}), sink, compression="zstd")
            data = sink.getvalue().to_pybytes()
        write_alone(path, data, lambda: _require_table(path, data), overwrite=self.overwrite)


def _require_table(path: Path, data: bytes) -> None:
    """Raise ``InputError`` unless a file is a table that this option wrote; one of CSV has the header of ``data``."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if path.suffix == ".csv":
            with path.open("rb") as file:
                own = file.readline() == data[: data.index(b"\n") + 1]
        else:
            own = _MARK in (pq.read_schema(path).metadata or {})
    except (OSError, pa.ArrowException):
        own = False
    if not own:
        raise InputError(f"--out {path}: is not a table that this command wrote; give another path")
