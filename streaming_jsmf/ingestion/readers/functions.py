"""Formats that are functions: from the path of a file to record batches of Arrow, one row a document.

A function yields these columns, by name: ``text``, strings or lists of tokens; or bags of words, lists ``text`` of
words and lists ``counts`` of the same lengths; ``document_id``, strings or integers, if there are ids; all others are
metadata. Words keep the order of a dictionary that is ``ordered``, and otherwise that of the alphabet.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np

from streaming_jsmf.ingestion.readers.base import BadRecords, Format, Records, Unit, UnreadableError
from streaming_jsmf.ingestion.readers.files import read_as, size_of

#: From the path of a file to its record batches.
Function = Callable[[str], Iterator[Any]]


class FunctionFormat(Format):
    """The record batches of a function, of which a file is a unit."""

    def __init__(self, function: Function, name: str) -> None:
        self._function, self._name = function, name

    def names(self, path: str, options: Any) -> list[str]:  # noqa: ARG002
        return list(self.first(path).schema.names)

    def first(self, path: str) -> Any:
        """Return the first record batch of a file. Raises UnreadableError if there is none."""
        found = next(self._batches(path), None)
        if found is None:
            raise UnreadableError(f"{self._name} yields nothing for it")
        return found

    def units(self, path: str, options: Any) -> list[Unit]:  # noqa: ARG002
        return [Unit(path, size=size_of(path))]

    def records(
        self, unit: Unit, options: Any, bad: BadRecords, wanted: Collection[str] | None = None  # noqa: ARG002
    ) -> Iterator[Records]:  # fmt: skip
        row = 0
        for batch in self._batches(unit.path):
            columns = zip(batch.schema.names, batch.columns, strict=True)
            kept = {name: values for name, values in columns if wanted is None or name in wanted}
            yield Records(row + np.arange(batch.num_rows), kept)
            row += batch.num_rows

    def _batches(self, path: str) -> Iterator[Any]:
        with read_as(f"what {self._name} reads"):
            yield from self._function(path)
