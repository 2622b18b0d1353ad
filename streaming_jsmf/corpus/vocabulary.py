"""The vocabulary beside a corpus: ``vocabulary.parquet``, or a plain list of words in a text file."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from streaming_jsmf.errors import InputError, StoreError, first_line, pass_on_machine
from streaming_jsmf.storage.paths import read_bytes

VOCABULARY_NAME = "vocabulary.parquet"
TEXT_NAMES = ("vocab.txt", "vocabulary.txt")
NOT_RECORDED = -1


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """N words, row number = word id, with their counts over the corpus.

    A vocabulary file with words alone gives -1, NaN and NaN for the counts and the score; ``counted`` tells.

    Attributes
    ----------
    words
        N distinct strings.
    document_frequency
        (N,) int64; documents a word is in.
    term_count
        (N,) float64; tokens of a word.
    tf_idf
        (N,) float64; the score of ``tf_idf``.
    """

    words: tuple[str, ...]
    document_frequency: NDArray[np.int64]
    term_count: NDArray[np.float64]
    tf_idf: NDArray[np.float64]

    @property
    def counted(self) -> bool:
        """Whether the file recorded document frequencies and term counts."""
        return bool((self.document_frequency >= 0).all())


def tf_idf(
    term_count: NDArray[np.float64], document_frequency: NDArray[np.int64], n_documents: int
) -> NDArray[np.float64]:
    """Score of each word (N): term_count * ln(floor(M / document_frequency)), 0 for a word in no document.

    The floor makes it 0 for every word in more than half of the M documents.
    """
    ratio = n_documents // np.maximum(document_frequency, 1)
    score = term_count * np.log(np.maximum(ratio, 1))
    return np.where(document_frequency > 0, score, 0.0)


def make_vocabulary(
    words: Sequence[str],
    document_frequency: NDArray[np.int64],
    term_count: NDArray[np.float64],
    n_documents: int,
) -> Vocabulary:
    """A vocabulary with the tf-idf of its counts over ``n_documents`` documents. All arrays have length N."""
    score = tf_idf(term_count, document_frequency, n_documents)
    return Vocabulary(tuple(words), document_frequency, term_count, score)


def write_vocabulary(vocabulary: Vocabulary, path: str) -> None:
    """Write ``vocabulary.parquet``: one row a word, the same bytes for the same vocabulary."""
    table = pa.table(
        {
            "word": pa.array(vocabulary.words, pa.string()),
            "document_frequency": pa.array(vocabulary.document_frequency, pa.int64()),
            "term_count": pa.array(vocabulary.term_count, pa.float64()),
            "tf_idf": pa.array(vocabulary.tf_idf, pa.float64()),
        }
    )
    pq.write_table(table, path, compression="zstd", use_dictionary=False, write_page_checksum=True)


def read_vocabulary(path: str, expected_sha256: str | None = None) -> tuple[Vocabulary, str]:
    """The vocabulary and the hex SHA-256 of its file. Reads the file once.

    Raises
    ------
    StoreError
        If the file is missing, damaged, or differs from ``expected_sha256``.
    InputError
        If its words are no vocabulary (none, empty, repeated, not UTF-8).
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
    _check_words(vocabulary.words, path)
    return vocabulary, digest


def _from_text(data: bytes, path: str) -> Vocabulary:
    if path.endswith(".parquet"):
        raise StoreError(f"the vocabulary {path} is no Parquet file; it is truncated or damaged: restore it")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"the vocabulary {path} is not UTF-8 (byte {error.start}); convert it") from error
    # Not splitlines: it would also cut at characters such as U+2028 inside a word.
    lines = text.removesuffix("\n").replace("\r\n", "\n").removesuffix("\r").split("\n")
    return _uncounted(tuple(lines) if text else ())


def _uncounted(words: tuple[str, ...]) -> Vocabulary:
    unknown = np.full(len(words), np.nan)
    return Vocabulary(words, np.full(len(words), NOT_RECORDED, np.int64), unknown, unknown)


def _from_parquet(data: bytes, path: str) -> Vocabulary:
    try:
        # Not pq.read_table: its threads may still hold the bytes when the interpreter ends, which then aborts.
        with pq.ParquetFile(pa.BufferReader(data)) as file:
            table = file.read(use_threads=False)
    except (OSError, pa.ArrowException) as error:
        pass_on_machine(error)
        raise StoreError(
            f"the vocabulary {path} cannot be read as Parquet ({first_line(error)}); restore it"
        ) from error
    column = table.column("word") if "word" in table.column_names else None
    if column is None or not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise InputError(f"the vocabulary {path} has no string column 'word'; it has {table.column_names}")
    if column.null_count:
        raise InputError(f"the vocabulary {path} has {column.null_count} null words; give each row a word")
    blank = _uncounted(tuple(column.to_pylist()))

    def numbers(name: str, otherwise: NDArray[np.generic]) -> NDArray[np.generic]:
        return np.asarray(table.column(name)) if name in table.column_names else otherwise

    return Vocabulary(
        blank.words,
        numbers("document_frequency", blank.document_frequency).astype(np.int64),
        numbers("term_count", blank.term_count).astype(np.float64),
        numbers("tf_idf", blank.tf_idf).astype(np.float64),
    )


def _check_words(words: tuple[str, ...], path: str) -> None:
    if not words:
        raise InputError(f"the vocabulary {path} has no words; give one word a line, in the order of the ids")
    if "" in words:
        row = words.index("")
        raise InputError(f"the vocabulary {path} has an empty word at id {row}; every id needs a word")
    if len(set(words)) < len(words):
        word, times = Counter(words).most_common(1)[0]
        raise InputError(f"the vocabulary {path} has the word {word!r} {times} times; words must be distinct")
