"""The pass before the first, where it is asked for: neighbouring words that are one word are found by their NPMI."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_jsmf.config import Curation, OnBadRecord
from streaming_jsmf.corpus.curation import WordTable, concatenate, least_documents, may_stay
from streaming_jsmf.ingestion.choose import found_word_counts, settled_curation, sorted_counts
from streaming_jsmf.ingestion.pieces import write_table
from streaming_jsmf.ingestion.plan import Ingest, IngestFolder, group_units
from streaming_jsmf.ingestion.readers.base import BadRecords, SourceBatch, Unit
from streaming_jsmf.ingestion.tokens.lists import TokenLists, with_ngrams
from streaming_jsmf.ingestion.tokens.stop_words import load_stop_words
from streaming_jsmf.ingestion.tokens.tokenizer import Tokenizer
from streaming_jsmf.jobs.checkpoints import FILES, Record
from streaming_jsmf.storage.paths import file_hashes

logger = logging.getLogger(__name__)

#: Rows of counts that a task holds before it writes them.
TABLE_ROWS = 1_000_000
_TOLD = 8


@dataclass(frozen=True)
class _WithNeighbours:
    """A tokenizer that gives, besides the words, the pairs of neighbours that could become a phrase."""

    tokenizer: Tokenizer
    curation: Curation

    def __call__(self, texts: Any) -> TokenLists:
        tokens = self.tokenizer(texts)
        # A language that is not known yet has no stop words: pairs with one go when it is.
        stop_words = load_stop_words(self.curation.stop_words)
        return with_ngrams(tokens, 2, among=may_stay(tokens.dictionary, self.curation, stop_words))


@dataclass(frozen=True)
class _CountContext:
    """What the tasks need: a source that gives pairs as words, where to write, what becomes of bad records."""

    source: Any
    folder: IngestFolder
    on_bad_record: OnBadRecord


def with_found_phrases(ingest: Ingest, units: Sequence[Unit]) -> Ingest:
    """The ingest with the phrases of its source in the tokenizer, and with its language settled.

    A phrase is a pair of neighbours with NPMI = log(p(ab) / (p(a) p(b))) / -log p(ab) of at least ``settings.phrases``
    (Bouma, Normalized (pointwise) mutual information in collocation extraction, 2009), where p are shares of all
    tokens. Both words may stay by the rules about a word by itself, and the pair is in at least twice as many
    documents as a word must be, by ``min_document_frequency`` or, if that is more, ``automatic_minimum``.

    One pass over the source. Counts are exact and put together from sorted files. Memory: the words and pairs that are
    in so many documents, and ``choose.MERGE_ROWS`` rows.
    """
    assert ingest.settings.phrases is not None
    records = _count(ingest, units)
    n_documents = sum(record["documents"] for record in records)
    least = 2 * max(least_documents(given, n_documents) for given in (ingest.settings.curation, _AUTOMATIC))
    tables = sorted(ingest.folder.neighbours.glob("*/*.words"))
    kept = _Kept(least // 2, least)
    words = kept.words_of(found_word_counts(tables, ingest.folder.neighbours / "merged"))
    curation = settled_curation(ingest.settings, words)
    for _ in words:
        pass  # settling the language may have read them all, or none
    phrases = kept.phrases(curation, ingest.settings.phrases)
    _tell(phrases)
    source = replace(ingest.source, tokenizer=replace(ingest.source.tokenizer, phrases=tuple(phrases)))
    return replace(ingest, source=source, settings=replace(ingest.settings, curation=curation))


_AUTOMATIC = Curation(min_document_frequency="auto")


def _count(ingest: Ingest, units: Sequence[Unit]) -> list[Record]:
    """The step: counts of words and pairs."""
    groups = group_units(units)
    ingest.folder.save_units("units", units)
    ingest.folder.save_list("groups", groups)
    counting = _WithNeighbours(ingest.source.tokenizer, ingest.settings.curation)
    source = replace(ingest.source, tokenizer=counting)
    context = _CountContext(source, ingest.folder, ingest.settings.on_bad_record)
    return ingest.run("phrases", count_group, context, [group.size for group in groups])


def count_group(context: _CountContext, index: int) -> Record:
    """Task: write the counts of a group of units, in tables sorted by word. One pass over them."""
    directory = context.folder.neighbours / f"{index:05d}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    documents = number = rows = 0
    held: list[Any] = []
    for batch in _batches(context, index):
        documents += batch.n_documents
        held.append(_counts_of(batch))
        rows += held[-1].num_rows
        if rows >= TABLE_ROWS:
            _write(held, directory, number)
            held, rows, number = [], 0, number + 1
    if held:
        _write(held, directory, number)
    return {"documents": documents, FILES: file_hashes(context.folder.root, sorted(directory.iterdir()))}


def _batches(context: _CountContext, index: int) -> Iterator[SourceBatch]:
    for unit in context.folder.load_units(index).values():
        # What is bad is kept aside by the pass that follows.
        yield from context.source.read(unit, BadRecords(context.on_bad_record, unit, context.source.place))


def _counts_of(batch: SourceBatch) -> Any:
    size = len(batch.dictionary)
    term_count = np.bincount(batch.codes, weights=batch.counts, minlength=size)
    return pa.table(
        {
            "word": batch.dictionary.cast(pa.string()),
            "document_frequency": np.bincount(batch.codes, minlength=size),
            "term_count": term_count,
        }
    )


def _write(held: Sequence[Any], directory: Path, number: int) -> None:
    write_table(directory / f"{number:04d}.words", sorted_counts(pa.concat_tables(held)))


class _Kept:
    """The words and pairs that are in enough documents, and the number of all tokens."""

    def __init__(self, least_of_words: int, least_of_pairs: int) -> None:
        self._least = least_of_words, least_of_pairs
        self._tables: tuple[list[WordTable], list[WordTable]] = [], []
        self._tokens = 0.0

    def words_of(self, tables: Iterable[WordTable]) -> Iterator[WordTable]:
        """The counts of words alone; both are kept on the way."""
        for table in tables:
            paired = np.asarray(pc.match_substring(table.words, " "))
            parts = table.take(~paired), table.take(paired)
            self._tokens += float(parts[0].term_count.sum())
            for kept, part, least in zip(self._tables, parts, self._least, strict=True):
                kept.append(part.take(part.document_frequency >= least))
            yield parts[0]

    def phrases(self, curation: Curation, least: float) -> list[str]:
        """The pairs with NPMI ``least`` or more, the most frequent first."""
        words, pairs = map(concatenate, self._tables)
        stop_words = load_stop_words(curation.stop_words)
        words = words.take(may_stay(words.words, curation, stop_words))
        # A tokenizer of the user's own may give words with spaces.
        pairs = pairs.take(np.asarray(pc.equal(pc.count_substring(pairs.words, " "), 1)))
        halves = pc.split_pattern(pairs.words, " ")
        places = [
            np.asarray(pc.index_in(pc.list_element(halves, i), value_set=words.words).fill_null(-1))
            for i in (0, 1)
        ]
        known = np.flatnonzero((places[0] >= 0) & (places[1] >= 0))
        pairs = pairs.take(known)
        first, second = (words.term_count[place[known]] for place in places)
        chosen = np.flatnonzero(pair_npmi(pairs.term_count, first, second, self._tokens) >= least)
        order = chosen[np.argsort(-pairs.term_count[chosen], kind="stable")]
        return list(pairs.take(order).words.to_pylist())


def pair_npmi(
    together: NDArray[np.float64], first: NDArray[np.float64], second: NDArray[np.float64], tokens: float
) -> NDArray[np.float64]:
    """NPMI of pairs, (n,), from how often each occurs and each of its words does among all ``tokens``.

    1: neither word occurs without the other; 0: as often as by chance.
    """
    share = together / tokens
    # A single pair that is all there is has share 1, of which nothing can be said.
    spread = np.where(share < 1, -np.log(share), np.inf)
    found: NDArray[np.float64] = np.log(together * tokens / (first * second)) / spread
    return found


def _tell(phrases: Sequence[str]) -> None:
    if not phrases:
        logger.info("no neighbouring words have so high an NPMI; --phrases with a lower one finds more")
        return
    shown = ", ".join(phrases[:_TOLD]) + (" ..." if len(phrases) > _TOLD else "")
    logger.info("%d pairs of neighbours become one word each: %s", len(phrases), shown)
