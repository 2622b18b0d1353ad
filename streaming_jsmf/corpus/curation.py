"""Words that are chosen for a vocabulary by their counts, with what is dropped."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_jsmf.config import ALL_DOCUMENTS, AUTO, Curation
from streaming_jsmf.corpus.manifest import Dropped, as_number
from streaming_jsmf.corpus.vocabulary import WordCounts, word_ids
from streaming_jsmf.display import percent

#: The automatic minimum document frequency is lowered, at most to 2, until so many words are left: ten for each of the
#: default number of topics.
FEWEST_WORDS = 200

#: Default minimum length of a word; one less in the dense scripts.
_MIN_LENGTH = 3
_DENSE_SCRIPTS = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}]"

#: Name of the rule for words in too many documents, and maximum number of these words that a corpus records.
_TOO_FREQUENT, MOST_FREQUENT = "max_document_frequency", 1_000

#: Buffer of words beyond ``vocabulary_size`` before the lowest scores are dropped.
_SLACK = 200_000


def automatic_minimum(n_documents: int) -> int:
    """Return the default minimum document frequency for M documents.

    It is 5, less if that exceeds M / 20, and sqrt(M / 400) if that is more (above 10,000 documents).

    Examples
    --------
    >>> [automatic_minimum(m) for m in (4, 60, 2_000, 10_000, 100_000, 10_000_000)]
    [1, 3, 5, 5, 15, 158]
    """
    few = -(-n_documents // 20)
    return max(min(5, few), math.isqrt(n_documents // 400))


def least_documents(curation: Curation, n_documents: int) -> int:
    """Minimum document frequency of a word, given M documents."""
    least = curation.min_document_frequency
    return (
        automatic_minimum(n_documents)
        if isinstance(least, str)
        else _documents(least, n_documents, math.ceil)
    )


def with_enough_words(
    tables: Callable[[], Iterable[WordCounts]],
    n_documents: int,
    curation: Curation,
    stop_words: frozenset[str],
    *,
    ngrams: bool,
) -> Curation:
    """Lower an automatic minimum document frequency that leaves fewer than ``FEWEST_WORDS``; one pass if it applies.

    ``tables`` returns the tables; other arguments as in ``select_words``.
    """
    least = automatic_minimum(n_documents)
    if curation.min_document_frequency != AUTO or least <= 2:
        return curation
    any_frequency = replace(curation, min_document_frequency=1)
    rules = list(_rules(n_documents, any_frequency, stop_words, ngrams))
    kept = np.zeros(least + 1, np.int64)
    for counts in tables():
        gone = np.logical_or.reduce([rule(counts) for _, _, rule in rules])
        kept += np.bincount(np.minimum(counts.document_frequency[~gone], least), minlength=least + 1)
    enough = [low for low in range(2, least + 1) if kept[low:].sum() >= FEWEST_WORDS]
    return replace(curation, min_document_frequency=max(enough, default=2))


@dataclass(frozen=True, eq=False)
class Selection:
    """The kept words, in input order, what each rule dropped, and the words that are in too many documents."""

    counts: WordCounts
    dropped: tuple[Dropped, ...]
    frequent: tuple[str, ...] = ()


def select_words(
    tables: Iterable[WordCounts],
    n_documents: int,
    curation: Curation,
    stop_words: frozenset[str],
    *,
    ngrams: bool = False,
) -> Selection:
    """Choose the vocabulary. Tables are in order of word ids, and no word is in two tables.

    Words are compared with the stop words in lower case; with ``ngrams``, a word with spaces is dropped if one of its
    parts is a stop word. If ``vocabulary_size`` is set, the words with the highest ``WordCounts.tf_idf`` are kept; ties
    go to the smaller id. Memory: at most twice the kept words, and one table.
    """
    size = curation.vocabulary_size
    rules = list(_rules(n_documents, curation, stop_words, ngrams))
    words, tokens = np.zeros(len(rules) + 1, np.int64), np.zeros(len(rules) + 1)

    def drop(counts: WordCounts, rule: int, gone: NDArray[np.bool_]) -> WordCounts:
        words[rule] += gone.sum()
        tokens[rule] += counts.term_count[gone].sum()
        return counts.take(~gone) if gone.any() else counts

    def best(kept: Sequence[WordCounts]) -> WordCounts:
        counts = WordCounts.of_tables(kept)
        if size is None:
            return counts
        gone = np.ones(len(counts.words), bool)
        gone[np.argsort(-counts.tf_idf(n_documents), kind="stable")[:size]] = False
        return drop(counts, len(rules), gone)

    kept, frequent = list[WordCounts](), list[WordCounts]()
    for counts in tables:
        for number, (step, _, rule) in enumerate(rules):
            gone = rule(counts)
            if step == _TOO_FREQUENT and gone.any():
                frequent = [_most_frequent([*frequent, counts.take(gone)])]
            counts = drop(counts, number, gone)
        kept.append(counts)
        if size is not None and sum(len(each.words) for each in kept) > 2 * size + _SLACK:
            kept = [best(kept)]
    chosen = best(kept)
    reasons = [(step, reason) for step, reason, _ in rules]
    if size is not None:
        reasons.append(("vocabulary_size", f"not among the {size} best by tf-idf"))
    dropped = tuple(
        Dropped(step=step, reason=reason, words=int(words[number]), tokens=as_number(tokens[number]))
        for number, (step, reason) in enumerate(reasons)
        # A minimum length of 1 drops only the empty word, which is rare.
        if step != "min_word_length" or curation.min_word_length != 1 or words[number]
    )
    return Selection(chosen, dropped, tuple(word for each in frequent for word in each.words.to_pylist()))


def _most_frequent(tables: Sequence[WordCounts]) -> WordCounts:
    """The words in most documents, in order, at most ``MOST_FREQUENT``."""
    counts = WordCounts.of_tables(tables)
    return counts.take(np.sort(np.argsort(-counts.document_frequency, kind="stable")[:MOST_FREQUENT]))


def match_words(tables: Iterable[WordCounts], vocabulary: Sequence[str]) -> Selection:
    """Select exactly the words of a vocabulary, in its order, with counts of 0 for words in no document."""
    wanted = pa.array(vocabulary, pa.string())
    document_frequency, term_count = np.zeros(len(vocabulary), np.int64), np.zeros(len(vocabulary))
    words, tokens = 0, 0.0
    for table in tables:
        ids = word_ids(table.words, wanted)
        known = ids >= 0
        document_frequency[ids[known]] = table.document_frequency[known]
        term_count[ids[known]] = table.term_count[known]
        words += int((~known).sum())
        tokens += float(table.term_count[~known].sum())
    reason = f"not among the {len(vocabulary)} words given"
    dropped = Dropped(step="vocabulary", reason=reason, words=words, tokens=as_number(tokens))
    return Selection(WordCounts(wanted, document_frequency, term_count), (dropped,))


def may_stay(words: Any, curation: Curation, stop_words: frozenset[str]) -> NDArray[np.bool_]:
    """Mask of words (Arrow strings) that pass the rules for single words: stop words, numbers, minimum length."""
    counts = WordCounts(words, np.zeros(0, np.int64), np.zeros(0))
    gone = [rule(counts) for _, _, rule in _word_rules(curation, stop_words, ngrams=False)]
    stays: NDArray[np.bool_] = ~np.logical_or.reduce(gone)
    return stays


#: Spellings of a letter that lists and texts mix (Arabic alef, ya, kaf and ta marbuta, Hindi nasal signs, Cyrillic yo,
#: Romanian commas and cedillas), and marks that either may leave out.
_SPELLINGS = {
    "[\u0622\u0623\u0625\u0671]": "\u0627",
    "[\u0649\u06cc]": "\u064a",
    "\u06a9": "\u0643",
    "\u0629": "\u0647",
    "\u0901": "\u0902",
    "\u0451": "\u0435",
    "\u0219": "\u015f",
    "\u021b": "\u0163",
    "[\u0591-\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u093c\u200c\u200d]+": "",
}
_MIXED = "|".join(_SPELLINGS)


def folded(words: Any) -> Any:
    """Return words (Arrow strings) as stop words are compared: lower-case, and spellings of a letter alike."""
    lower = pc.utf8_lower(words)
    mixed = pc.match_substring_regex(lower, _MIXED)
    composed = [unicodedata.normalize("NFC", word) for word in lower.filter(mixed).to_pylist()]
    others = pa.array(composed, lower.type)
    for pattern, letter in _SPELLINGS.items() if len(others) else ():
        others = pc.replace_substring_regex(others, pattern, letter)
    return pc.replace_with_mask(lower, mixed, others)


#: A step of the curation, the reason for dropping words, and the mask of the dropped words of a table.
_Rule = tuple[str, str, Callable[[WordCounts], NDArray[np.bool_]]]


def _rules(n_documents: int, curation: Curation, stop_words: frozenset[str], ngrams: bool) -> Iterator[_Rule]:
    """All rules except the vocabulary size, in order."""
    yield from _word_rules(curation, stop_words, ngrams)
    least, most = least_documents(curation, n_documents), curation.max_document_frequency
    reason = f"in fewer than {least} documents" if least > 1 else "in no document"
    yield "min_document_frequency", reason, lambda counts: counts.document_frequency < least
    if most is not None and most < ALL_DOCUMENTS:
        limit = _documents(most, n_documents, math.floor)
        none = f"in any document, as {percent(most)} of {n_documents:,} is less than one"
        reason = f"in more than {limit} document{'s' * (limit != 1)}" if limit else none
        yield _TOO_FREQUENT, reason, lambda counts: counts.document_frequency > limit


def _word_rules(curation: Curation, stop_words: frozenset[str], ngrams: bool) -> Iterator[_Rule]:
    """The rules for single words."""
    listed, least = folded(pa.array(sorted(stop_words), pa.string())), curation.min_word_length

    def is_stop_word(counts: WordCounts) -> NDArray[np.bool_]:
        lower = folded(counts.words)
        found: NDArray[np.bool_] = np.asarray(pc.is_in(lower, value_set=listed))
        if ngrams and len(lower):
            parts = pc.split_pattern(lower, " ")
            hits = np.asarray(pc.is_in(parts.flatten(), value_set=listed))
            found = found | (np.add.reduceat(hits, np.asarray(parts.offsets)[:-1]) > 0)
        return found

    def is_short(counts: WordCounts) -> NDArray[np.bool_]:
        lengths = np.asarray(pc.utf8_length(counts.words))
        if not isinstance(least, str):
            return np.asarray(lengths < least)
        dense = np.asarray(pc.match_substring_regex(counts.words, _DENSE_SCRIPTS))
        return np.asarray(lengths < np.where(dense, _MIN_LENGTH - 1, _MIN_LENGTH))

    yield "stop_words", f"in the list of {len(stop_words)} stop words", is_stop_word
    if curation.numbers == "drop":
        letter = r"\p{L}"
        yield (
            "numbers",
            "without a letter",
            lambda counts: ~np.asarray(pc.match_substring_regex(counts.words, letter)),
        )
    length = _MIN_LENGTH if isinstance(least, str) else least
    yield "min_word_length", f"shorter than {length} characters" if length > 1 else "empty", is_short


def _documents(limit: float, n_documents: int, whole: Any) -> int:
    """Convert a limit on document frequency to a number of documents."""
    # Exact decimal arithmetic: 0.07 of 100 is 7, but 0.07 * 100 is slightly more in floats.
    return int(whole(Fraction(repr(float(limit))) * n_documents)) if limit < 1 else int(limit)
