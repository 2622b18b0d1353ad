"""Curation as the papers' authors do it: the words that carry a subject, no documents too short to tell one.

Every rule can be switched off, and what each took away is written down. Words are chosen from counts alone, which may
come in any number of tables, so the choice needs memory for the words kept and one table, not for all words there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_jsmf.config import ALL_DOCUMENTS, Curation
from streaming_jsmf.corpus.manifest import Dropped, as_number
from streaming_jsmf.corpus.vocabulary import tf_idf

AUTO: Final = "auto"
CURATION_KEYS = tuple(field.name for field in fields(Curation))

#: What stays of texts when nothing is said: what gave topics that can be read in four kinds of texts (docs/ingest.md).
TEXT_CURATION = Curation(
    stop_words=AUTO,
    numbers="drop",
    min_word_length=AUTO,
    min_document_frequency=AUTO,
    max_document_frequency=0.2,
    duplicates="drop",
)


def automatic_minimum(n_documents: int) -> int:
    """Documents a word must be in, of M: 5; fewer where that is over a twentieth of M, more beyond 10,000 documents.

    Examples
    --------
    >>> [automatic_minimum(m) for m in (4, 60, 2_000, 10_000, 100_000, 10_000_000)]
    [1, 3, 5, 5, 15, 158]
    """
    few = -(-n_documents // 20)
    return max(min(5, few), math.isqrt(n_documents // 400))


def least_documents(curation: Curation, n_documents: int) -> int:
    """Documents of M that a word must be in."""
    least = curation.min_document_frequency
    return (
        automatic_minimum(n_documents)
        if isinstance(least, str)
        else _documents(least, n_documents, math.ceil)
    )


@dataclass(frozen=True, eq=False)
class WordTable:
    """Counts of some words over all documents.

    Attributes
    ----------
    words
        Arrow array of n strings.
    ids
        (n,) int64; word ids in the source, or places in the sorted order of words.
    document_frequency
        (n,) int64.
    term_count
        (n,) float64.
    """

    words: Any
    ids: NDArray[np.int64]
    document_frequency: NDArray[np.int64]
    term_count: NDArray[np.float64]

    def take(self, places: NDArray[Any]) -> WordTable:
        """The words at these places (integers or a mask), in that order."""
        chosen = np.flatnonzero(places) if places.dtype == bool else places
        return WordTable(
            self.words.take(pa.array(chosen)),
            self.ids[chosen],
            self.document_frequency[chosen],
            self.term_count[chosen],
        )


@dataclass(frozen=True, eq=False)
class Selection:
    """The words kept, in the order they came, and what each rule took away."""

    table: WordTable
    dropped: tuple[Dropped, ...]


def select_words(
    tables: Iterable[WordTable],
    n_documents: int,
    curation: Curation,
    stop_words: frozenset[str],
    *,
    ngrams: bool = False,
) -> Selection:
    """Choose the vocabulary. Tables come in order of ids, and no word twice.

    A word is compared with the stop words in lower case. The best ``vocabulary_size`` by
    term_count * ln(floor(M / document_frequency)) are kept, equal scores by the smaller id; a word in more than
    half of the documents scores 0 and so comes last.

    Parameters
    ----------
    tables
        Counts of the words.
    n_documents
        M, the documents counted.
    curation
        The rules.
    stop_words
        The words of ``curation.stop_words``, in lower case.
    ngrams
        Whether a word with spaces is a run of words, to be left out if one of them is a stop word.

    Memory: the words kept so far, twice at most, and one table.
    """
    rules = _Rules(n_documents, curation, stop_words, ngrams)
    kept: list[WordTable] = []
    n_kept = 0
    for table in tables:
        kept.append(rules.apply(table))
        n_kept += len(kept[-1].ids)
        if curation.vocabulary_size is not None and n_kept > 2 * curation.vocabulary_size + _SLACK:
            kept = [rules.best(concatenate(kept))]
            n_kept = len(kept[0].ids)
    table = rules.best(concatenate(kept))
    return Selection(table, rules.dropped())


def match_words(tables: Iterable[WordTable], vocabulary: Sequence[str]) -> Selection:
    """Exactly the words of a vocabulary, in its order; a word that no document has gets id -1 and counts of 0.

    Memory: the vocabulary and one table.
    """
    wanted = pa.array(vocabulary, pa.string())
    ids = np.full(len(vocabulary), -1, np.int64)
    document_frequency, term_count = np.zeros(len(vocabulary), np.int64), np.zeros(len(vocabulary))
    words, tokens = 0, 0.0
    for table in tables:
        found = pc.index_in(table.words, value_set=wanted)
        known = np.asarray(found.is_valid())
        places = np.asarray(found.drop_null())
        ids[places] = table.ids[known]
        document_frequency[places] = table.document_frequency[known]
        term_count[places] = table.term_count[known]
        words += int((~known).sum())
        tokens += float(table.term_count[~known].sum())
    reason = f"not among the {len(vocabulary)} words given"
    dropped = Dropped(step="vocabulary", reason=reason, words=words, tokens=as_number(tokens))
    return Selection(WordTable(wanted, ids, document_frequency, term_count), (dropped,))


def may_stay(words: Any, curation: Curation, stop_words: frozenset[str]) -> NDArray[np.bool_]:
    """Which words (Arrow strings) no rule about a word by itself takes out: stop words, numbers, short ones."""
    rules = _Rules(1, curation, stop_words, ngrams=False)
    gone = np.logical_or.reduce([taken(words) for _, taken in rules.of_a_word()])
    stays: NDArray[np.bool_] = ~gone
    return stays


#: Characters of a word when nothing is said, and the scripts whose words do with one less.
_LEAST_LETTERS = 3
_SHORT_WORDS = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}]"

#: Words beyond the vocabulary that may be held before the worst are let go.
_SLACK = 200_000


class _Rules:
    """The rules in their order, each counting what it took."""

    def __init__(
        self, n_documents: int, curation: Curation, stop_words: frozenset[str], ngrams: bool
    ) -> None:
        self._n_documents = n_documents
        self._curation = curation
        self._ngrams = ngrams
        self._n_stop_words = len(stop_words)
        self._stop_array = pa.array(sorted(stop_words), pa.string())
        self._least = least_documents(curation, n_documents)
        most = curation.max_document_frequency
        self._most = (
            None if most is None or most >= ALL_DOCUMENTS else _documents(most, n_documents, math.floor)
        )
        self._words = dict.fromkeys(self._reasons(), 0)
        self._tokens = dict.fromkeys(self._reasons(), 0.0)

    def apply(self, table: WordTable) -> WordTable:
        """All rules but the size."""
        for step, taken in self.of_a_word():
            table = self._drop(table, step, taken(table.words))
        table = self._drop(table, "min_document_frequency", table.document_frequency < self._least)
        if self._most is not None:
            table = self._drop(table, "max_document_frequency", table.document_frequency > self._most)
        return table

    def of_a_word(self) -> list[tuple[str, Callable[[Any], NDArray[np.bool_]]]]:
        """Steps, each with which of some words it takes; those that look at a word by itself."""
        numbers = [("numbers", _is_number)] if self._curation.numbers == "drop" else []
        return [("stop_words", self._is_stop_word), *numbers, ("min_word_length", self._is_short)]

    def best(self, table: WordTable) -> WordTable:
        """The best ``vocabulary_size`` words, in their order."""
        size = self._curation.vocabulary_size
        if size is None:
            return table
        score = tf_idf(table.term_count, table.document_frequency, self._n_documents)
        below = np.ones(len(score), bool)
        below[np.argsort(-score, kind="stable")[:size]] = False
        return self._drop(table, "vocabulary_size", below)

    def dropped(self) -> tuple[Dropped, ...]:
        """What each rule took away."""
        return tuple(
            Dropped(step=step, reason=reason, words=self._words[step], tokens=as_number(self._tokens[step]))
            for step, reason in self._reasons().items()
            # A length of 1 leaves out what no vocabulary can hold, the empty word; few sources have it.
            if step != "min_word_length" or self._curation.min_word_length != 1 or self._words[step]
        )

    def _drop(self, table: WordTable, step: str, gone: NDArray[np.bool_]) -> WordTable:
        if not gone.any():
            return table
        self._words[step] += int(gone.sum())
        self._tokens[step] += float(table.term_count[gone].sum())
        return table.take(~gone)

    def _is_short(self, words: Any) -> NDArray[np.bool_]:
        lengths, least = np.asarray(pc.utf8_length(words)), self._curation.min_word_length
        if not isinstance(least, str):
            short: NDArray[np.bool_] = lengths < least
            return short
        dense = np.asarray(pc.match_substring_regex(words, _SHORT_WORDS))
        return lengths < np.where(dense, _LEAST_LETTERS - 1, _LEAST_LETTERS)

    def _is_stop_word(self, words: Any) -> NDArray[np.bool_]:
        lower = pc.utf8_lower(words)
        found: NDArray[np.bool_] = np.asarray(pc.is_in(lower, value_set=self._stop_array))
        if not self._ngrams:
            return found
        parts = pc.split_pattern(lower, " ")
        hits = np.asarray(pc.is_in(parts.flatten(), value_set=self._stop_array))
        offsets = np.asarray(parts.offsets)
        if len(words):
            found = found | (np.add.reduceat(hits, offsets[:-1]) > 0)
        return found

    def _reasons(self) -> dict[str, str]:
        curation, least = self._curation, self._least
        reasons = {"stop_words": f"in the list of {self._n_stop_words} stop words"}
        if curation.numbers == "drop":
            reasons["numbers"] = "without a letter"
        length = _LEAST_LETTERS if isinstance(curation.min_word_length, str) else curation.min_word_length
        shorter = f"shorter than {length} characters"
        reasons["min_word_length"] = shorter if length > 1 else "empty"
        reasons["min_document_frequency"] = (
            f"in fewer than {least} documents" if least > 1 else "in no document"
        )
        if self._most is not None:
            reasons["max_document_frequency"] = f"in more than {self._most} documents"
        if curation.vocabulary_size is not None:
            reasons["vocabulary_size"] = f"not among the {curation.vocabulary_size} best by tf-idf"
        return reasons


def _is_number(words: Any) -> NDArray[np.bool_]:
    return ~np.asarray(pc.match_substring_regex(words, r"\p{L}"))


def _documents(limit: float, n_documents: int, whole: Any) -> int:
    """A limit on document frequency as a number of documents."""
    # In decimals as it was written: 0.07 of 100 is 7, but 0.07 * 100 is a little more in floats.
    return int(whole(Fraction(repr(float(limit))) * n_documents)) if limit < 1 else int(limit)


def concatenate(tables: list[WordTable]) -> WordTable:
    """Tables as one, in their order."""
    if not tables:
        none = np.zeros(0, np.int64)
        return WordTable(pa.array([], pa.string()), none, none, np.zeros(0, np.float64))
    return WordTable(
        pa.concat_arrays([table.words for table in tables]),
        np.concatenate([table.ids for table in tables]),
        np.concatenate([table.document_frequency for table in tables]),
        np.concatenate([table.term_count for table in tables]),
    )
