"""A corpus that follows its source, and what it records of the documents and files that it was made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_jsmf.corpus.bags import Documents, Place, checked_bags
from streaming_jsmf.corpus.footer import Shard, open_parquet
from streaming_jsmf.corpus.format import Corpus, open_corpus, read_manifest
from streaming_jsmf.corpus.manifest import Manifest
from streaming_jsmf.corpus.metadata import OWN_COLUMNS
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.repeats import ENTRIES_NAME, ENTRY, add_ids, read_entries
from streaming_jsmf.ingestion.source_files import (
    FILES_NAME,
    Grown,
    one_row_each,
)
from streaming_jsmf.storage.paths import StorePath, exists, store_path
from streaming_jsmf.storage.tables import read_table


@dataclass
class Known:
    """A corpus, its manifest, and the ``files`` that it was made of."""

    corpus: Corpus
    manifest: Manifest
    files: Any

    @classmethod
    def at(cls, place: StorePath) -> Known:
        corpus, path = open_corpus(str(place)), place / FILES_NAME
        if not exists(path):
            raise InputError(
                f"{place}: does not record the files that it was made of, so it cannot grow; make it again with fit"
            )
        return cls(corpus, read_manifest(str(place)), one_row_each(read_table(path)))

    @property
    def grown(self) -> Grown:
        return Grown.of(self.files, int(self.manifest.settings["documents_read"] or 0))

    @cached_property
    def entries(self) -> NDArray[Any]:
        """An ``ENTRY`` for each document that was read; in corpora of earlier versions, for each that was kept."""
        place = store_path(self.corpus.root, "a corpus")
        if exists(place / ENTRIES_NAME):
            return read_entries(place / ENTRIES_NAME)
        entries = np.zeros(self.corpus.n_documents, ENTRY)
        runs = read_table(place / FILES_NAME)
        numbers = pc.index_in(runs["path"], value_set=self.files["path"].combine_chunks())
        entries["file"] = np.repeat(np.asarray(numbers), np.asarray(runs["documents"]))
        entries["place"] = np.arange(len(entries))
        if not self.grown.numbered:
            add_ids(entries, self._ids(), passages="read_split" in self.manifest.settings)
        return entries

    def documents(self, shard: Shard) -> Iterator[Documents]:
        """Yield the documents of a shard, one row group at a time."""
        path = self.corpus.shard_path(shard)
        with open_parquet(path, sha256=shard.sha256) as file:
            for number in range(file.num_row_groups):
                table = file.read_row_group(number, use_threads=False)
                columns = {name: table.column(name).combine_chunks() for name in table.column_names}
                place = Place(path, number)
                bags = checked_bags(columns["ids"], columns["counts"], self.corpus.n_words, place)
                rest = {name: values for name, values in columns.items() if name not in OWN_COLUMNS}
                yield Documents(bags, columns["document_id"], rest)

    def _ids(self) -> Any:
        chunks = []
        for shard in self.corpus.shards:
            path = self.corpus.shard_path(shard)
            with open_parquet(path) as file:
                chunks += file.read(["document_id"], use_threads=False).column(0).chunks
        return pa.chunked_array(chunks)
