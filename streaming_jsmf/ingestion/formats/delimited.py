"""Delimited text as a format of records; see ``csv_layout`` and ``csv_scan``."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from streaming_jsmf.ingestion.formats.csv_layout import (
    CsvLayout,
    fault,
    layout_of,
    opened,
)
from streaming_jsmf.ingestion.formats.csv_scan import BAD, ENDLESS, Block, blocks
from streaming_jsmf.ingestion.sources.protocol import (
    BadRecords,
    Format,
    Records,
    Unit,
    UnreadableError,
    limits,
)
from streaming_jsmf.ingestion.sources.streams import (
    is_divisible,
    open_raw,
    read_pieces,
    size_of,
)

_CUT_BYTES = 1 << 20  # that are scanned for cuts at once, which stay in caches


class DelimitedFormat(Format):
    """The format of delimited text. The row of a record is its first line."""

    counted, in_bytes = "line", True

    def names(self, path: str, options: Any) -> list[str]:
        return [name for name in layout_of(path, options).names if name]

    def units(self, path: str, options: Any) -> list[Unit]:
        """Return the file, or if it is large parts of about ``UNIT_BYTES``, for which it is read once."""
        layout, size = layout_of(path, options), size_of(path)
        cuts = [(layout.start, layout.line)]
        if size > limits.UNIT_BYTES and not layout.recoded and is_divisible(path):
            with open_raw(path) as stream:
                cuts += [cut for cut in _cuts(stream, layout) if cut[0] < size] if stream.seekable() else []
        stops = [*(start for start, _ in cuts[1:]), size if len(cuts) > 1 else 0]
        parts = [
            Unit(path, start, stop, stop - start if stop else size, layout=layout, first=line)
            for (start, line), stop in zip(cuts, stops, strict=True)
        ]
        return [replace(parts[0], notes=layout.notes), *parts[1:]]

    def records(
        self, unit: Unit, options: Any, bad: BadRecords, wanted: Collection[str] | None = None
    ) -> Iterator[Records]:
        layout, first = unit.layout, 0
        if layout is None:  # a whole file, in which lines are counted from its start
            layout = layout_of(unit.path, options)
            unit, first = replace(unit, start=layout.start), layout.line
        columns = chosen(layout.names, wanted)
        try:
            # Only files that are read as they are stored have several parts.
            is_later = unit.start > layout.start
            with open_raw(unit.path) if is_later else opened(unit.path, layout.encoding) as stream:
                _skip(stream, unit.start)
                left = unit.stop - unit.start if unit.stop else ENDLESS
                for block in blocks(stream, layout.dialect, len(layout.names), left):
                    for record in np.flatnonzero(block.kinds == BAD).tolist():
                        original = _in_encoding(block.original(record), layout)
                        bad.refuse(first + int(block.lines[record]), fault(block, record, layout), original)
                    if block.good.size:
                        strings = dict(zip(columns, block.columns([*columns.values()]), strict=True))
                        rows = first + block.lines[block.good]
                        yield Records(rows, strings, partial(_original, block, layout))
        except UnreadableError as error:
            if error.line is None:
                raise
            bad.refuse(first + error.line, str(error), error.record)

    def first_row(self, unit: Unit) -> int:
        return unit.first


def _cuts(stream: Any, layout: CsvLayout) -> Iterator[tuple[int, int]]:
    """Yield byte and line of each first record that is ``UNIT_BYTES`` after the one before, or after the start."""
    _skip(stream, layout.start)
    cut = 0
    for block in blocks(stream, layout.dialect, len(layout.names), size=_CUT_BYTES):
        places = block.place + block.starts[:-1]
        places[np.diff(block.starts) > limits.LONGEST_LINE] = -1
        while (further := np.flatnonzero(places >= cut + limits.UNIT_BYTES)).size:
            cut = int(places[further[0]])
            yield layout.start + cut, layout.line + int(block.lines[further[0]])


def _skip(stream: Any, size: int) -> None:
    if stream.seekable():
        stream.seek(size)
    else:
        read_pieces(stream, size)


def _original(block: Block, layout: CsvLayout, i: int) -> bytes:
    """Return a good record of a block as it is in the file."""
    return _in_encoding(block.original(int(block.good[i])), layout)


def _in_encoding(data: bytes, layout: CsvLayout) -> bytes:
    if not layout.recoded:
        return data
    return data.decode("utf-8", "surrogateescape").encode(layout.encoding, "surrogateescape")


def chosen(names: Sequence[str], wanted: Collection[str] | None) -> dict[str, int]:
    """Return the numbers of the columns to read, by name."""
    return {name: i for i, name in enumerate(names) if name and (wanted is None or name in wanted)}


DELIMITED = DelimitedFormat()
