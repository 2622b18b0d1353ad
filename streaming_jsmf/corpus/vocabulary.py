"""Words, word ids and word counts, and the vocabulary file of a corpus: ``vocabulary.parquet`` or a text file."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from streaming_jsmf.corpus.bags import Bags
from streaming_jsmf.corpus.footer import is_string
from streaming_jsmf.errors import InputError, StoreError, first_line, pass_on_machine
from streaming_jsmf.storage.paths import read_bytes

if TYPE_CHECKING:
    from scipy.sparse import csr_array

VOCABULARY_NAME = "vocabulary.parquet"
TEXT_NAMES = ("vocab.txt", "vocabulary.txt")

#: Columns of tables of the counts of words.
COUNTS = ("document_frequency", "term_count")


def word_ids(words: Any, vocabulary: Any) -> NDArray[np.int64]:
    """Return the id in ``vocabulary`` of each of ``words``, (n,); -1 if missing. Both are Arrow arrays or sequences."""
    # Importing it takes a thirtieth of the start-up time, and scans and inference do not need it.
    import pyarrow.compute as pc

    wanted, known = (
        each if isinstance(each, pa.Array) else pa.array(map(str, each), pa.string())
        for each in (words, vocabulary)
    )
    found = pc.index_in(wanted, value_set=known).fill_null(-1)
    return np.asarray(found).astype(np.int64)


def over_vocabulary(block: csr_array[Any], ids: NDArray[np.int64], n_words: int) -> csr_array[Any]:
    """Map counts to another vocabulary, (documents, ``n_words``); ``ids`` has the new id of each word, or -1.

    Words with -1 are dropped, documents are kept. Returns the block itself if the ids are unchanged.
    """
    if len(ids) == n_words and np.array_equal(ids, np.arange(n_words)):
        return block
    return Bags.of_matrix(block).mapped(ids).matrix(n_words)


@dataclass(frozen=True, eq=False)
class WordCounts:
    """Counts of n words over a set of documents.

    Attributes
    ----------
    words : Arrow array of n strings.
    document_frequency : (n,) int64; number of documents with the word.
    term_count : (n,) float64; tokens of the word.
    """

    words: Any
    document_frequency: NDArray[np.int64]
    term_count: NDArray[np.float64]

    @classmethod
    def of_tables(cls, tables: Sequence[WordCounts]) -> WordCounts:
        """Concatenate tables in order."""
        return cls(
            pa.concat_arrays([pa.array([], pa.string()), *(table.words for table in tables)]),
            np.concatenate([np.zeros(0, np.int64), *(table.document_frequency for table in tables)]),
            np.concatenate([np.zeros(0), *(table.term_count for table in tables)]),
        )

    def take(self, chosen: NDArray[Any]) -> WordCounts:
        """Select words by position, in that order, or by mask."""
        numbers = np.flatnonzero(chosen) if chosen.dtype == bool else chosen
        words = self.words.take(pa.array(numbers))
        return WordCounts(words, self.document_frequency[numbers], self.term_count[numbers])

    def tf_idf(self, n_documents: int) -> NDArray[np.float64]:
        """Return term_count * ln(floor(M / document_frequency)) of each word, (n,); 0 for a word in no document.

        Because of the floor, a word in more than half of the M documents scores 0.
        """
        ratio = n_documents // np.maximum(self.document_frequency, 1)
        score = self.term_count * np.log(np.maximum(ratio, 1))
        return np.where(self.document_frequency > 0, score, 0.0)


def used_counts(document_frequency: NDArray[np.int64], term_count: NDArray[np.float64]) -> Any:
    """Return the ids and counts of the words that occur, as an Arrow table."""
    used = np.flatnonzero(document_frequency)
    return pa.table(
        {"id": used, "document_frequency": document_frequency[used], "term_count": term_count[used]}
    )


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """N words with their counts over the corpus; row number = word id.

    Attributes
    ----------
    words : N distinct strings.
    document_frequency : (N,) int64; number of documents with the word; None if the file does not have them.
    term_count : (N,) float64; tokens of the word; None if the file does not have them.
    forms : N strings that are shown for words that are stems: the most frequent forms; None without a stemmer.
    """

    words: tuple[str, ...]
    document_frequency: Any = None
    term_count: Any = None
    forms: tuple[str, ...] | None = None


def write_vocabulary(counts: WordCounts, n_documents: int, path: Path, forms: Any = None) -> None:
    """Write ``vocabulary.parquet``, one row per word; the same counts over M documents give the same bytes."""
    table = pa.table(
        {
            "word": counts.words,
            "document_frequency": pa.array(counts.document_frequency, pa.int64()),
            "term_count": pa.array(counts.term_count, pa.float64()),
            "tf_idf": pa.array(counts.tf_idf(n_documents), pa.float64()),
        }
    )
    if forms is not None:
        table = table.append_column("form", forms)
    pq.write_table(table, path, compression="zstd", use_dictionary=False, write_page_checksum=True)


def read_vocabulary(path: str, expected_sha256: str | None = None) -> tuple[Vocabulary, str]:
    """Read a vocabulary in one pass; return it with the hex SHA-256 of its file.

    Raises ``StoreError`` if the file is missing, damaged, or differs from ``expected_sha256``, and ``InputError`` if
    there are no words, or a word is empty, repeated or not UTF-8.
    """
    try:
        data = read_bytes(path)
    except OSError as error:
        pass_on_machine(error)
        raise StoreError(f"cannot read the vocabulary {path}: {first_line(error)}; restore it") from error
    digest = hashlib.sha256(data).hexdigest()
    if expected_sha256 not in (None, digest):
        raise StoreError(
            f"the vocabulary {path} has sha256 {digest[:12]}..., expected {str(expected_sha256)[:12]}...; "
            "it was changed or damaged: restore it or build the corpus again"
        )
    vocabulary = _from_parquet(data, path) if data[:4] == b"PAR1" else _from_text(data, path)
    words = vocabulary.words
    if not words:
        raise InputError(
            f"the vocabulary {path} has no words; give one word per line, in the order of the ids"
        )
    if "" in words:
        row = words.index("")
        raise InputError(f"the vocabulary {path} has an empty word at id {row}; every id needs a word")
    if len(set(words)) < len(words):
        word, times = Counter(words).most_common(1)[0]
        raise InputError(f"the vocabulary {path} has the word {word!r} {times} times; words must be distinct")
    return vocabulary, digest


def _from_text(data: bytes, path: str) -> Vocabulary:
    if path.endswith(".parquet"):
        raise StoreError(
            f"the vocabulary {path} is not a Parquet file; it is truncated or damaged: restore it"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"the vocabulary {path} is not UTF-8 (byte {error.start}); convert it") from error
    # str.splitlines also splits at characters such as U+2028 inside a word.
    lines = text.removesuffix("\n").replace("\r\n", "\n").removesuffix("\r").split("\n")
    return Vocabulary(tuple(lines) if text else ())


def _from_parquet(data: bytes, path: str) -> Vocabulary:
    try:
        # pq.read_table may still use the bytes in threads at interpreter exit, which aborts the process.
        with pq.ParquetFile(pa.BufferReader(data)) as file:
            table = file.read(use_threads=False)
    except (OSError, pa.ArrowException) as error:
        pass_on_machine(error)
        raise StoreError(
            f"the vocabulary {path} cannot be read as Parquet ({first_line(error)}); restore it"
        ) from error
    column = table.column("word") if "word" in table.column_names else None
    if column is None or not is_string(column.type):
        raise InputError(f"the vocabulary {path} has no string column 'word'; it has {table.column_names}")
    if column.null_count:
        raise InputError(f"the vocabulary {path} has {column.null_count} null words; give each row a word")
    types = {"document_frequency": np.int64, "term_count": np.float64}
    present = {name: kind for name, kind in types.items() if name in table.column_names}
    numbers: Any = {name: np.asarray(table.column(name)).astype(kind) for name, kind in present.items()}
    forms = tuple(map(str, table.column("form").to_pylist())) if "form" in table.column_names else None
    return Vocabulary(tuple(column.to_pylist()), **numbers, forms=forms)
