"""Documents of a corpus beside their topic shares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from scipy.sparse import csr_array

from streaming_jsmf.corpus.csr import read_block
from streaming_jsmf.corpus.footer import open_parquet
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.corpus.records import Place, document_ids, id_column
from streaming_jsmf.corpus.units import WorkUnit, list_units
from streaming_jsmf.documents.shares import DOCUMENT_ID, SharesFile
from streaming_jsmf.errors import InputError


def matched_documents(
    shares: SharesFile, corpus: Corpus, columns: Sequence[str]
) -> Iterator[tuple[csr_array[Any], Any]]:
    """Yield the counts of the documents of each row group of a corpus, and the Arrow table of their shares.

    The table has ``columns`` and those of the shares (``shares.about.dense``). Documents are matched by id; those of
    the shares may be more, in the same order. One pass over both. Raises ``InputError`` if a document has no shares.
    """
    rows, first = _Rows(shares, corpus, columns), 0
    for unit in list_units(corpus):
        yield read_block(unit, corpus.n_words), rows.take(_ids(unit, first))
        first += unit.rows


class _Rows:
    """The rows of the shares in order; those before the last one taken are forgotten."""

    def __init__(self, shares: SharesFile, corpus: Corpus, columns: Sequence[str]) -> None:
        self._path, self._root = shares.path, corpus.root
        self._tables = shares.tables(list(dict.fromkeys([DOCUMENT_ID, *columns, *shares.about.columns])))
        self._held: Any = None
        self._names: list[Any] = []

    def take(self, ids: Sequence[Any]) -> Any:
        rows, place = [], 0
        for name in ids:
            while place == len(self._names) or self._names[place] != name:
                if place < len(self._names):
                    place += 1
                else:
                    self._read(name)
            rows.append(place)
            place += 1
        found = self._held.take(pa.array(rows, pa.int64()))
        self._held, self._names = self._held.slice(place), self._names[place:]
        return found

    def _read(self, name: Any) -> None:
        more = next(self._tables, None)
        if more is None:
            raise InputError(
                f"{self._root}: document {name!r} has no shares in {self._path}; give the corpus of these shares"
            )
        self._held = more if self._held is None else pa.concat_tables([self._held, more])
        self._names += more.column(DOCUMENT_ID).to_pylist()


def _ids(unit: WorkUnit, first: int) -> Sequence[Any]:
    with open_parquet(unit.path, unit.path) as file:
        name = id_column(file.schema_arrow.names)
        if name is None:
            return range(first, first + unit.rows)
        column = file.read_row_group(unit.row_group, columns=[name], use_threads=False).column(name)
    return document_ids(column, name, Place(unit.path, unit.row_group)).to_pylist()  # type: ignore[no-any-return]
