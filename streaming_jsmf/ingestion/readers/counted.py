"""Readers of counts over one vocabulary: each file has its words, or a list of words beside it, and is a unit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from functools import cached_property, partial
from typing import Any, ClassVar

from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.formats import docword, h5ad, matrix_market, npz
from streaming_jsmf.ingestion.formats.functions import FunctionFormat
from streaming_jsmf.ingestion.sources.adapter import RecordReader
from streaming_jsmf.ingestion.sources.matrices import BAGS
from streaming_jsmf.ingestion.sources.protocol import BadRecords, Batch, Unit
from streaming_jsmf.ingestion.sources.streams import size_of
from streaming_jsmf.ingestion.tokens.stop_words import ENGLISH


class CountedSource(RecordReader):
    """Base of the readers; a subclass names the module whose functions ``words`` and ``read`` read a file.

    ``first_number`` is that of the first document, if documents have no ids.
    """

    form: ClassVar[Any]
    first_number: ClassVar[int] = 0
    contents = BAGS

    @cached_property
    def vocabulary(self) -> Sequence[str]:
        """Words of all files; reads every word list once. Raises InputError if one is missing, invalid or different."""
        first = self.files[0]
        words: Sequence[str] = self.form.words(first, self.options)
        for path in self.files[1:]:
            others = self.form.words(path, self.options)
            if others != words:
                pairs = enumerate(zip(words, others, strict=False))
                at = next((i for i, (ours, theirs) in pairs if ours != theirs), min(len(words), len(others)))
                raise InputError(
                    f"{path} has other words than {first} from word {at} on, counted from 0; files that are ingested "
                    "together must share one vocabulary: ingest them separately"
                )
        return words

    def __reduce__(self) -> tuple[Any, ...]:
        # Exclude the words to keep tasks small; each task reads them itself.
        return type(self), tuple(getattr(self, field.name) for field in fields(self))

    def units(self) -> Sequence[Unit]:
        """Return the units of all files. Raises InputError if words are missing or differ."""
        units = super().units()
        _ = self.vocabulary
        return units

    def parts(self, path: str) -> Sequence[Unit]:
        return [Unit(path, size=size_of(path))]

    def place(self, unit: Unit, row: int) -> str:
        return f"{unit.path}, row {row} from 0"

    def read(self, unit: Unit, bad: BadRecords) -> Iterator[Batch]:
        """Stream the documents of a file."""
        form = FunctionFormat(partial(self.form.read, options=self.options), f"the reader {self.reader}")
        with bad.unreadable_file():
            for records in form.records(unit, self.options, bad):
                batch = self.bags(records, bad)
                bags = replace(batch.bags, words=None)  # those of the vocabulary
                yield replace(batch, bags=bags, rows=batch.rows + self.first_number)


class NpzSource(CountedSource):
    """Reader "npz": matrices of ``scipy.sparse.save_npz`` over the same words; documents have no ids."""

    reader = "npz"
    patterns = ("*.npz",)
    form: ClassVar[Any] = npz


class DocwordSource(CountedSource):
    """Reader "docword": UCI bags of words. Ids are the numbers of the documents, which count on from file to file."""

    reader = "docword"
    patterns = ("docword*.txt",)
    stop_words = ENGLISH
    form: ClassVar[Any] = docword
    first_number = 1

    def place(self, unit: Unit, row: int) -> str:
        return f"{unit.path}, document {row + 1}"


class MatrixMarketSource(CountedSource):
    """Reader "matrix-market": a sparse matrix. Integers stay integers, reals become float32, and others count 1."""

    reader = "matrix-market"
    patterns = ("*.mtx", "*.mm")
    form: ClassVar[Any] = matrix_market


class H5adSource(CountedSource):
    """Reader "h5ad": counts in X or a layer of AnnData. Ids are the names of the cells."""

    reader = "h5ad"
    patterns = ("*.h5ad",)
    form: ClassVar[Any] = h5ad

    @property
    def id_column(self) -> str:
        return "document_id"

    def parts(self, path: str) -> Sequence[Unit]:
        return [replace(unit, notes=h5ad.notes(path, self.options)) for unit in super().parts(path)]
