"""Files of records, some in Parquet and some in lines: how they are cut into units, and where a record is."""

from __future__ import annotations

from collections.abc import Sequence

from streaming_jsmf.ingestion.readers.base import Unit
from streaming_jsmf.ingestion.readers.lines import line_first_row, line_place, line_units
from streaming_jsmf.ingestion.readers.parquet import (
    is_parquet,
    parquet_first_row,
    parquet_place,
    parquet_units,
)


class RecordFiles:
    """What readers of such files have in common; they say which files end a record with each line.

    Attributes
    ----------
    files
        Local paths or URLs; the suffix says whether one is Parquet.
    """

    files: tuple[str, ...]

    def splittable(self, path: str) -> bool:
        """Whether each line of the file is a record, so that it can be cut at any line."""
        raise NotImplementedError

    def units(self) -> Sequence[Unit]:
        """Row groups of Parquet, byte ranges of lines that are records, other files and compressed ones whole."""
        found: list[Unit] = []
        for path in self.files:
            plain = not is_parquet(path)
            found += line_units(path, splittable=self.splittable(path)) if plain else parquet_units(path)
        return found

    def first_row(self, unit: Unit) -> int:
        """Row (Parquet) or line of the file where the unit starts."""
        return parquet_first_row(unit) if is_parquet(unit.path) else line_first_row(unit)

    def place(self, unit: Unit, row: int) -> str:
        """File, row group and row, or file and line from 1."""
        return parquet_place(unit, row) if is_parquet(unit.path) else line_place(unit, row)
