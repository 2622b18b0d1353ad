"""Detect the languages, find phrases, and choose the words to keep from the summed counts of all pieces.

Phrases are neighboring words with a high NPMI, which take a pass of their own before the first.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_jsmf.config import AUTO, Curation, TokenOptions
from streaming_jsmf.corpus.curation import (
    Selection,
    least_documents,
    match_words,
    may_stay,
    select_words,
    with_enough_words,
)
from streaming_jsmf.corpus.totals import (
    merged,
    sum_files,
    summed,
)
from streaming_jsmf.corpus.vocabulary import WordCounts, word_ids
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.ingestion.job import Group, Ingest, Piece, group_units
from streaming_jsmf.ingestion.sources.protocol import BadRecords
from streaming_jsmf.ingestion.sources.values import listed
from streaming_jsmf.ingestion.tokens.split import TokenLists, with_ngrams
from streaming_jsmf.ingestion.tokens.stop_words import (
    LANGUAGES,
    LEAST_DOCUMENTS,
    RUNS,
    UNKNOWN,
    chosen_languages,
    count_languages,
    load_stop_words,
    parts_of,
    sampled,
    with_languages,
)
from streaming_jsmf.ingestion.tokens.tokenizer import Tokenizer, lack_of_spaces
from streaming_jsmf.jobs.checkpoints import FILES, Record
from streaming_jsmf.jobs.execution import Executor
from streaming_jsmf.jobs.workspace import TaskFiles
from streaming_jsmf.storage.paths import StorePath
from streaming_jsmf.storage.tables import read_table, write_table

logger = logging.getLogger(__name__)

#: Rows of counts that a task buffers before it writes them.
TABLE_ROWS = 1_000_000
_SHOWN = 8

#: Settings with words that the vocabulary of a growing corpus lacks, and the number of their tokens.
NEW_WORDS, NEW_TOKENS = "new_words", "new_tokens"
#: Setting with the words that were left out because they are in too many documents, one per line.
FREQUENT_WORDS = "frequent_words"

#: Minimum document frequency of a new word, and number of them that are recorded.
LEAST_NEW, SHOWN_NEW = 3, 20

#: Counts of the forms of words; see ``TokenLists``.
FORMS = pa.schema({"word": pa.string(), "form": pa.string(), "count": pa.int64()}.items())


def with_language(ingest: Ingest, found: Counter[str]) -> Ingest:
    """Replace "auto" stop words by those of the languages that the passes over the source found."""
    if AUTO not in parts_of(ingest.curation.stop_words) or ingest.vocabulary is not None:
        return ingest
    languages, shares = chosen_languages(found)
    gone = ", ".join(name.capitalize() for name in languages)
    advice = f"the stop words of {gone} are removed" if languages else "no stop words are known"
    logger.info(f"languages: {shares or UNKNOWN}; {advice} ({option.stop_words} names others)")
    total = sum(number for name, number in found.items() if name in (*LANGUAGES, UNKNOWN))
    for name, number in found.items() if ingest.source.tokenizer.options.tokenizer == "arrow" else ():
        if name.startswith(RUNS) and number >= LEAST_DOCUMENTS * total:
            text, missing = lack_of_spaces(name.removeprefix(RUNS), number / total)
            advice = missing or f"find their words with {option.tokenizer(name.removeprefix(RUNS))}"
            logger.warning("%s; %s", text, advice)
    stop_words = with_languages(ingest.curation.stop_words, languages)
    return replace(ingest, curation=replace(ingest.curation, stop_words=stop_words))


def choose_words(ingest: Ingest, n_documents: int, totals: Sequence[StorePath]) -> Selection:
    """Choose the words to keep, from the tables of ``counts_of``. Memory: the kept words, and ``MERGE_ROWS`` rows."""
    counts = word_counts(ingest, totals)
    if ingest.vocabulary is not None:
        selection = match_words(counts, ingest.vocabulary)
        if isinstance(ingest.source.options, TokenOptions):
            _warn_of_capitals(selection.counts)
    else:
        stop_words = load_stop_words(ingest.curation.stop_words)
        ngrams = ingest.source.tokenizer.options.ngrams > 1
        curation = with_enough_words(
            partial(word_counts, ingest, totals), n_documents, ingest.curation, stop_words, ngrams=ngrams
        )
        selection = select_words(counts, n_documents, curation, stop_words, ngrams=ngrams)
    may_lack_words = ingest.grows or ingest.keeps_any_document
    if not (may_lack_words or selection.counts.document_frequency.any()):
        dropped = ", ".join(f"{step.words} {step.reason}" for step in selection.dropped if step.words)
        read = f"{n_documents} document" + "s" * (n_documents != 1)
        advice = f"give more documents, or loosen its settings, such as {option.max_df('100%')}"
        if ingest.vocabulary is not None:
            advice = "give documents that contain words of the vocabulary"
        raise InputError(
            f"no word of the {read} read is left after the curation ({dropped or 'there are no words'}); {advice}"
        )
    return selection


def _warn_of_capitals(given: WordCounts) -> None:
    absent = given.words.filter(pa.array(given.document_frequency == 0))
    capital = absent.filter(pc.not_equal(absent, pc.utf8_lower(absent)))
    if len(capital):
        logger.warning(
            "%d of the %d words given have capital letters and are in no document: %s; texts are read in lower case",
            len(capital),
            len(given.words),
            listed(capital.to_pylist()),
        )


def new_words(ingest: Ingest, n_documents: int, totals: Sequence[StorePath]) -> dict[str, Any]:
    """Words that the rules of the curation would choose from these documents alone, and that the vocabulary lacks.

    Those of ``ingest.left_out`` were left out of it on purpose, and are not new.
    Returns settings for the manifest: ``new_words``, those in most documents first, and the ``new_tokens`` of all.
    """
    stop_words = load_stop_words(ingest.curation.stop_words)
    ngrams = ingest.source.tokenizer.options.ngrams > 1
    # A word has to occur in several documents, however few there are.
    least = max(LEAST_NEW, least_documents(ingest.curation, n_documents))
    curation = replace(ingest.curation, min_document_frequency=least, vocabulary_size=None)
    found = select_words(word_counts(ingest, totals), n_documents, curation, stop_words, ngrams=ngrams).counts
    for known in (ingest.vocabulary, ingest.left_out):
        found = found.take(word_ids(found.words, pa.array(known, pa.string())) < 0)
    order = np.argsort(-found.document_frequency, kind="stable")[:SHOWN_NEW]
    return {
        NEW_WORDS: "\n".join(found.take(order).words.to_pylist()),
        NEW_TOKENS: float(found.term_count.sum()),
    }


def counts_of(ingest: Ingest, executor: Executor, pieces: Sequence[Piece], kind: str) -> list[StorePath]:
    """Step: sum the counts of all words, or forms of stems, over all pieces; return a table for each range, if any."""
    if kind == "forms" and ingest.source.tokenizer.options.stemmer is None:
        return []
    key = "form" if kind == "forms" else "word"
    files, rows = [piece.file(kind) for piece in pieces], [piece.words for piece in pieces]
    return sum_files(ingest.folder, executor, kind, files, rows, key)


def word_counts(ingest: Ingest, totals: Sequence[StorePath]) -> Iterable[WordCounts]:
    """Return the counts of all words, one table at a time, in the order of the words.

    A fixed vocabulary is one table, in its order, with the words that do not occur.
    """
    if ingest.words is None:
        return merged(totals)
    words = pa.array(ingest.words, pa.string())
    found = WordCounts(words, np.zeros(len(words), np.int64), np.zeros(len(words)))
    for counts in merged(totals):
        ids = word_ids(counts.words, words)
        found.document_frequency[ids], found.term_count[ids] = counts.document_frequency, counts.term_count
    return [found]


def full_forms(tables: Sequence[StorePath], words: Any) -> Any:
    """The most frequent form of each of the stems ``words``, first in order among equals; None without ``tables``.

    Words of several stems have that of each. Keeps the forms of the words in memory, and one table.
    """
    if not tables:
        return None
    stems = pc.unique(pc.list_flatten(pc.split_pattern(words, " ")))
    found = pa.table({"word": stems, "form": stems, "count": pa.array(np.zeros(len(stems), np.int64))})
    for table in map(read_table, tables):
        held = table.filter(pc.is_in(table.column("word"), value_set=stems))
        found = summed(pa.concat_tables([found, held]), "form")
    order = [("count", "ascending"), ("form", "descending")]
    form = {row["word"]: row["form"] for row in found.sort_by(order).to_pylist()}
    return pa.array(
        [" ".join(form[part] for part in word.split(" ")) for word in words.to_pylist()], pa.string()
    )


@dataclass(frozen=True)
class _WithNeighbors:
    """Tokenizer that adds pairs of neighboring words that could become phrases."""

    tokenizer: Tokenizer
    curation: Curation

    def __call__(self, texts: Any) -> TokenLists:
        tokens = self.tokenizer(texts)
        # Stop words are unknown until the language is detected; pairs with stop words are dropped later.
        stop_words = load_stop_words(self.curation.stop_words)
        return with_ngrams(tokens, 2, among=may_stay(tokens.dictionary, self.curation, stop_words))


def with_found_phrases(ingest: Ingest, executor: Executor) -> Ingest:
    """Find phrases in the source; return the ingest with them in its tokenizer, and with its language detected.

    A phrase is a pair of neighbors with NPMI = log(p(ab) / (p(a) p(b))) / -log p(ab) of at least ``source.phrases``
    (Bouma, Normalized (pointwise) mutual information in collocation extraction, 2009), where p are shares of all
    tokens. Both words must pass the rules for single words, and the pair must occur in twice as many documents as a
    word must by ``min_document_frequency`` or ``automatic_minimum``, whichever is more.

    Makes one pass over the source. Counts are exact, and summed by ranges of words. Memory: the words and pairs that
    are frequent enough.
    """
    threshold = ingest.source.phrases
    assert threshold is not None
    groups = group_units(ingest.units)
    counting = _WithNeighbors(ingest.source.tokenizer, ingest.curation)
    counted = replace(ingest, source=replace(ingest.source, tokenizer=counting))
    records = counted.run(executor, "phrases", count_group, groups)
    n_documents = sum(record["documents"] for record in records)
    automatic = replace(ingest.curation, min_document_frequency=AUTO)
    least = max(least_documents(given, n_documents) for given in (ingest.curation, automatic))
    n_tokens = sum(record["tokens"] for record in records)
    files = [name for record in records for name in sorted(record[FILES])]
    rows = [number for record in records for number in record["rows"]]
    totals = sum_files(ingest.folder, executor, "frequent", files, rows, "word", least)
    frequent = WordCounts.of_tables([_frequent(counts, least) for counts in merged(totals)])
    paired = np.asarray(pc.match_substring(frequent.words, " "))
    found = sum((Counter(record["languages"]) for record in records), Counter[str]())
    ingest = with_language(ingest, found)
    words, pairs = frequent.take(~paired), frequent.take(paired)
    phrases = _phrases(words, pairs, n_tokens, ingest.curation, threshold)
    if phrases:
        shown = ", ".join(phrases[:_SHOWN]) + (" ..." if len(phrases) > _SHOWN else "")
        logger.info("%d pairs of adjacent words are joined into one word each: %s", len(phrases), shown)
    else:
        logger.info(f"no adjacent words have such a high NPMI; a lower value of {option.phrases} finds more")
    source = replace(ingest.source, tokenizer=replace(ingest.source.tokenizer, phrases=tuple(phrases)))
    return replace(ingest, source=source)


def _frequent(counts: WordCounts, least: int) -> WordCounts:
    """The words in ``least`` documents, and the pairs in twice as many."""
    paired = np.asarray(pc.match_substring(counts.words, " "))
    return counts.take(counts.document_frequency >= np.where(paired, 2 * least, least))


def count_group(ingest: Ingest, group: Group) -> Record:
    """Task: write the counts of a group of units, by range. Makes one pass over them."""
    files = TaskFiles(ingest.root, f"neighbors/{group.index:05d}")
    documents, tokens, languages = 0, 0.0, Counter[str]()
    held, rows = list[Any](), list[int]()
    with files.local() as directory:
        # The next pass quarantines bad records.
        bad = ((unit, BadRecords(ingest.on_bad_record, unit, ingest.source.place)) for unit in group.units)
        for batch in (batch for unit in bad for batch in ingest.source.read(*unit)):
            documents += batch.n_documents
            languages += count_languages(sampled(batch.bags))
            words = batch.bags.words.cast(pa.string())
            frequency, total = np.zeros(len(words), np.int64), np.zeros(len(words))
            batch.bags.count_words(frequency, total)
            held.append(pa.table({"word": words, "document_frequency": frequency, "term_count": total}))
            if sum(table.num_rows for table in held) >= TABLE_ROWS:
                tokens += _write(held, directory, rows)
        if held:
            tokens += _write(held, directory, rows)
    read = {"documents": documents, "tokens": tokens, "rows": rows, "languages": dict(languages)}
    return {**read, **files.record()}


def _write(held: list[Any], directory: Path, rows: list[int]) -> float:
    """Write counts of words and pairs, and note their number; return the number of tokens of the words."""
    table = summed(pa.concat_tables(held), "word")
    write_table(directory / f"{len(rows):04d}.words", table)
    rows.append(table.num_rows)
    held.clear()
    words = table.filter(pc.invert(pc.match_substring(table.column("word"), " ")))
    return float(pc.sum(words.column("term_count")).as_py() or 0)


def _phrases(
    words: WordCounts, pairs: WordCounts, n_tokens: float, curation: Curation, least: float
) -> list[str]:
    """Return the pairs with NPMI of at least ``least``, most frequent first."""
    words = words.take(may_stay(words.words, curation, load_stop_words(curation.stop_words)))
    # A custom tokenizer may return words with spaces.
    pairs = pairs.take(np.asarray(pc.equal(pc.count_substring(pairs.words, " "), 1)))
    halves = pc.split_pattern(pairs.words, " ")
    ids = np.stack([word_ids(pc.list_element(halves, i), words.words) for i in (0, 1)])
    known = (ids[0] >= 0) & (ids[1] >= 0)
    pairs = pairs.take(known)
    first, second = words.term_count[ids[:, known]]
    chosen = np.flatnonzero(_npmi(pairs.term_count, first, second, n_tokens) >= least)
    order = chosen[np.argsort(-pairs.term_count[chosen], kind="stable")]
    return list(pairs.take(order).words.to_pylist())


def _npmi(
    together: NDArray[np.float64], first: NDArray[np.float64], second: NDArray[np.float64], tokens: float
) -> NDArray[np.float64]:
    """NPMI of pairs, (n,): 1 if neither word occurs without the other, 0 if they are independent."""
    share = together / tokens
    # A single pair with share 1 carries no information; this avoids 0 / 0.
    information = np.where(share < 1, -np.log(share), np.inf)
    found: NDArray[np.float64] = np.log(together * tokens / (first * second)) / information
    return found
