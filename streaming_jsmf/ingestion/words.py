"""Detect the language and choose the words to keep from the counts of all pieces, in bounded memory."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_jsmf.config import AUTO
from streaming_jsmf.corpus.curation import Selection, match_words, select_words, with_enough_words
from streaming_jsmf.corpus.vocabulary import WordCounts, word_ids
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.ingestion.job import CHOSEN_WORDS, Ingest, Piece
from streaming_jsmf.ingestion.tokens.stop_words import (
    LANGUAGES,
    LEAST_DOCUMENTS,
    RUNS,
    UNKNOWN,
    Bags,
    chosen_languages,
    count_languages,
    load_stop_words,
    parts_of,
    with_languages,
)
from streaming_jsmf.ingestion.tokens.tokenizer import lack_of_spaces
from streaming_jsmf.storage.paths import make_directory
from streaming_jsmf.storage.tables import read_table, table_writer, write_table

logger = logging.getLogger(__name__)

#: Rows of all tables in memory during a merge.
MERGE_ROWS = 1_000_000
#: Tables open at the same time.
MERGE_TABLES = 256

_COUNTS = ("document_frequency", "term_count")


def with_language(ingest: Ingest, found: Counter[str], counts: Iterable[WordCounts] = ()) -> Ingest:
    """Replace "auto" stop words by those of the languages that the passes over the source found.

    ``counts`` are those of a source whose words are given, which counts as one document.
    """
    if AUTO not in parts_of(ingest.curation.stop_words) or ingest.vocabulary is not None:
        return ingest
    for table in counts if not found else ():
        every, used = np.arange(len(table.words), dtype=np.int32), table.term_count.astype(np.float32)
        found = found + count_languages(Bags(np.array([0, len(every)]), every, used, table.words))
    languages, shares = chosen_languages(found)
    gone = ", ".join(name.capitalize() for name in languages)
    advice = f"the stop words of {gone} are removed" if languages else "no stop words are known"
    logger.info(f"languages: {shares or UNKNOWN}; {advice} ({option.stop_words} names others)")
    total = sum(number for name, number in found.items() if name in (*LANGUAGES, UNKNOWN))
    for name, number in found.items() if ingest.source.tokenizer.name == "arrow" else ():
        if name.startswith(RUNS) and number >= LEAST_DOCUMENTS * total:
            text, missing = lack_of_spaces(name.removeprefix(RUNS), number / total)
            advice = missing or f"find their words with {option.tokenizer(name.removeprefix(RUNS))}"
            logger.warning("%s; %s", text, advice)
    stop_words = with_languages(ingest.curation.stop_words, languages)
    return replace(ingest, curation=replace(ingest.curation, stop_words=stop_words))


def choose_words(ingest: Ingest, pieces: Sequence[Piece]) -> Selection:
    """Choose the words to keep and save them for the tasks."""
    counts, n_documents = word_counts(ingest, pieces), sum(piece.documents for piece in pieces)
    if ingest.vocabulary is not None:
        selection = match_words(counts, ingest.vocabulary)
    else:
        stop_words = load_stop_words(ingest.curation.stop_words)
        ngrams = ingest.source.tokenizer.ngrams > 1
        curation = with_enough_words(
            partial(word_counts, ingest, pieces),
            n_documents,
            ingest.curation,
            stop_words,
            ngrams=ngrams,
        )
        selection = select_words(counts, n_documents, curation, stop_words, ngrams=ngrams)
    chosen = selection.counts.words
    table = (
        {"word": chosen} if ingest.words is None else {"id": word_ids(ingest.words, chosen).astype(np.int32)}
    )
    write_table(ingest.folder.root / CHOSEN_WORDS, pa.table(table))
    if not selection.counts.document_frequency.any() and not ingest.keeps_any_document:
        dropped = ", ".join(f"{step.words} {step.reason}" for step in selection.dropped if step.words)
        read = f"{n_documents} document" + "s" * (n_documents != 1)
        advice = f"give more documents, or loosen its settings, such as {option.max_df('100%')}"
        if ingest.vocabulary is not None:
            advice = "give documents that contain words of the vocabulary"
        raise InputError(
            f"no word of the {read} read is left after the curation ({dropped or 'there are no words'}); {advice}"
        )
    return selection


def word_counts(ingest: Ingest, pieces: Sequence[Piece]) -> Iterable[WordCounts]:
    """Return the counts of all words over all pieces, one table at a time."""
    words = ingest.words
    tables = [ingest.stem(piece).with_suffix(".words") for piece in pieces]
    if words is None:
        return found_word_counts(tables, ingest.folder.root / "merged")
    counts = WordCounts(pa.array(words, pa.string()), np.zeros(len(words), np.int64), np.zeros(len(words)))
    for path in tables:
        table = read_table(path)
        codes = np.asarray(table.column("code"))
        counts.document_frequency[codes] += np.asarray(table.column("document_frequency"))
        counts.term_count[codes] += np.asarray(table.column("term_count"))
    return [counts]


def found_word_counts(tables: Sequence[Path], scratch: Path) -> Iterator[WordCounts]:
    """Yield counts of words, sorted by word, in tables of about ``MERGE_ROWS`` rows.

    Makes one pass over the sorted tables of the pieces; more than ``MERGE_TABLES`` are first merged in groups to files
    in ``scratch``. Counts are added in the order of the pieces.
    """
    level = 0
    while len(tables) > MERGE_TABLES:
        make_directory(scratch)
        groups = [tables[i : i + MERGE_TABLES] for i in range(0, len(tables), MERGE_TABLES)]
        tables = [scratch / f"{level}-{number:05d}.words" for number in range(len(groups))]
        for group, path in zip(groups, tables, strict=True):
            schema = read_table(group[0]).select(["word", *_COUNTS]).schema
            with table_writer(path, schema) as file:
                for merged in _merged(group):
                    file.write_table(merged)
        level += 1
    for merged in _merged(tables):
        yield WordCounts(
            merged.column("word").combine_chunks(), *(np.asarray(merged.column(name)) for name in _COUNTS)
        )


def _merged(tables: Sequence[Path]) -> Iterator[Any]:
    """Merge sorted tables; each result is complete for its words, up to the smallest last word of the loaded rows."""
    rows = max(1, MERGE_ROWS // max(len(tables), 1))
    rest = [read_table(path).select(["word", *_COUNTS]) for path in tables]
    while rest := [table for table in rest if table.num_rows]:
        held = [table.slice(0, rows) for table in rest]
        last = min(table.column("word")[-1].as_py() for table in held)
        taken = [int(pc.sum(pc.less_equal(table.column("word"), last)).as_py()) for table in held]
        yield sorted_counts(
            pa.concat_tables([table.slice(0, n) for table, n in zip(held, taken, strict=True)])
        )
        rest = [table.slice(n) for table, n in zip(rest, taken, strict=True)]


def sorted_counts(counts: Any) -> Any:
    """Sum a table of counts by word and sort it by word."""
    grouped = counts.group_by("word", use_threads=False).aggregate([(name, "sum") for name in _COUNTS])
    return grouped.rename_columns({f"{name}_sum": name for name in _COUNTS}).sort_by("word")
