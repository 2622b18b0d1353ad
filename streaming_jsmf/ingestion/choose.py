"""Choose words and find repeated documents over all pieces, in bounded memory."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_jsmf.config import AUTO
from streaming_jsmf.corpus.curation import Selection, match_words, select_words, with_enough_words
from streaming_jsmf.corpus.vocabulary import WordCounts, word_ids
from streaming_jsmf.display import location
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.ingestion.pieces import KEY, in_batch, read_table, write_table
from streaming_jsmf.ingestion.read import piece_batches, write_quarantined
from streaming_jsmf.ingestion.readers.base import Batch
from streaming_jsmf.ingestion.tokens.stop_words import (
    LANGUAGES,
    LEAST_DOCUMENTS,
    RUNS,
    UNKNOWN,
    chosen_languages,
    count_languages,
    load_stop_words,
    parts_of,
    with_languages,
)
from streaming_jsmf.ingestion.tokens.tokenizer import lack_of_spaces
from streaming_jsmf.ingestion.work import Ingest, Piece

logger = logging.getLogger(__name__)

#: Rows of all tables in memory during a merge.
MERGE_ROWS = 1_000_000
#: Tables open at the same time.
MERGE_TABLES = 256
#: Keys in memory at the same time.
BUCKET_KEYS = 1_000_000

REPEATED_ID = "its document id is that of an earlier document"

_COUNTS = ("document_frequency", "term_count")


def with_language(ingest: Ingest, found: Counter[str], counts: Iterable[WordCounts] = ()) -> Ingest:
    """Replace "auto" stop words by those of the languages that the passes over the source found.

    ``counts`` are those of a source whose words are given, which counts as one document.
    """
    if AUTO not in parts_of(ingest.curation.stop_words) or ingest.vocabulary is not None:
        return ingest
    for table in counts if not found else ():
        every, used = np.arange(len(table.words), dtype=np.int32), table.term_count.astype(np.float32)
        one = np.array([0, len(every)])
        found = found + count_languages(Batch(one, every, used, one[:1], None, {}, table.words))
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
    if ingest.words is None:
        write_table(ingest.folder.root / "vocabulary.arrow", pa.table({"word": chosen}))
    else:
        np.save(ingest.folder.root / "vocabulary.npy", word_ids(ingest.words, chosen).astype(np.int32))
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
        scratch.mkdir(parents=True, exist_ok=True)
        groups = [tables[i : i + MERGE_TABLES] for i in range(0, len(tables), MERGE_TABLES)]
        tables = [scratch / f"{level}-{number:05d}.words" for number in range(len(groups))]
        for group, path in zip(groups, tables, strict=True):
            schema = read_table(group[0]).select(["word", *_COUNTS]).schema
            with pa.ipc.new_file(str(path), schema) as file:
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


#: Keys of repeated documents, by piece and sorted by ordinal.
Repeats = Mapping[int, NDArray[Any]]


def find_repeated_documents(ingest: Ingest, pieces: Sequence[Piece]) -> int:
    """Save which documents repeat an id and which others repeat contents; return the number of the latter.

    Raises ``InputError`` if an id is repeated, unless bad records are quarantined.
    """
    stems = [ingest.stem(piece) for piece in pieces]
    identities = find_repeats([stem.with_suffix(".identities") for stem in stems])
    for index, keys in identities.items():
        if ingest.on_bad_record == "fail":
            unit = dict(pieces[index].group.numbered())[int(keys["unit"][0])]
            where = ingest.source.place(unit, int(keys["row"][0]))
            raise InputError(
                f"{where}: {REPEATED_ID}; correct the record or use {option.on_bad_record('quarantine')}"
            )
        _quarantine_repeated(ingest, pieces[index], keys["ordinal"])
    contents = find_repeats([stem.with_suffix(".contents") for stem in stems], without=identities)
    dropped = contents if ingest.curation.duplicates == "drop" else {}
    for index in {*identities, *dropped}:
        left_out = {"repeated_id": identities, "duplicates": dropped}
        ordinals: dict[str, Any] = {
            step: keys[index]["ordinal"] for step, keys in left_out.items() if index in keys
        }
        path = ingest.folder.root / "repeats" / f"{index:05d}.npz"
        path.parent.mkdir(exist_ok=True)
        np.savez(path, **ordinals)
    return sum(map(len, contents.values()))


def find_repeats(files: Sequence[Path], without: Repeats | None = None) -> Repeats:
    """Find all documents but the first, by ``order``, of each group of equal keys.

    Makes one pass over the keys, which are sorted by hash in every file, one range of hashes at a time. ``files`` has
    one file per piece, some of which may be missing; documents in ``without`` are ignored.
    """
    present = {piece: path for piece, path in enumerate(files) if path.exists() and path.stat().st_size}
    total = sum(path.stat().st_size for path in present.values()) // KEY.itemsize
    found: dict[int, list[NDArray[Any]]] = {}
    for bucket in _buckets(present, max(1, -(-total // BUCKET_KEYS))):
        if without is not None:
            bucket = {
                piece: keys[~np.isin(keys["ordinal"], without[piece]["ordinal"])]
                if piece in without
                else keys
                for piece, keys in bucket.items()
            }
        for piece, repeated in _repeats_in(bucket):
            found.setdefault(piece, []).append(repeated)
    joined = {piece: np.concatenate(parts) for piece, parts in sorted(found.items())}
    return {piece: keys[np.argsort(keys["ordinal"])] for piece, keys in joined.items()}


def _buckets(files: Mapping[int, Path], count: int) -> Iterator[dict[int, NDArray[Any]]]:
    """Yield the keys in each of ``count`` equal hash ranges; reads them, because memory maps would fill the memory."""
    edges = np.array([(i << 64) // count for i in range(1, count)], np.uint64)
    cuts = {}
    for piece, path in files.items():
        inner = np.searchsorted(np.memmap(path, KEY, mode="r")["high"], edges).tolist() if len(edges) else []
        cuts[piece] = [0, *inner, path.stat().st_size // KEY.itemsize]
    for i in range(count):
        yield {
            piece: np.fromfile(
                path, KEY, count=cuts[piece][i + 1] - cuts[piece][i], offset=cuts[piece][i] * KEY.itemsize
            )
            for piece, path in files.items()
        }


def _repeats_in(bucket: Mapping[int, NDArray[Any]]) -> Iterator[tuple[int, NDArray[Any]]]:
    pieces = np.repeat(list(bucket), [len(keys) for keys in bucket.values()])
    keys = np.concatenate([*bucket.values(), np.empty(0, KEY)])
    # Nearly all keys are distinct, and equal ones have equal first halves.
    high = np.sort(keys["high"])
    shared = np.isin(keys["high"], high[1:][high[1:] == high[:-1]])
    keys, pieces = keys[shared], pieces[shared]
    # Ties in order (no ids, or a repeated id) are resolved by piece, then by document.
    order = np.lexsort((keys["ordinal"], pieces, keys["order"], keys["low"], keys["high"]))
    keys, pieces = keys[order], pieces[order]
    repeated = np.zeros(len(keys), bool)
    repeated[1:] = (keys["high"][1:] == keys["high"][:-1]) & (keys["low"][1:] == keys["low"][:-1])
    for piece in np.unique(pieces[repeated]).tolist():
        yield piece, keys[repeated & (pieces == piece)]


def _quarantine_repeated(ingest: Ingest, piece: Piece, ordinals: NDArray[np.int64]) -> None:
    """Quarantine the documents of a piece that repeat an id: the id and all words with their counts."""
    units, names = dict(piece.group.numbered()), np.array(ingest.words or (), object)
    if ingest.words is None:
        table = read_table(ingest.stem(piece).with_suffix(".words"))
        names = np.full(int(pc.max(table.column("code")).as_py() or 0) + 1, "", object)
        names[np.asarray(table.column("code"))] = table.column("word").to_pylist()
    rows, first = [], 0
    for number, batch in piece_batches(ingest, piece):
        for i in in_batch(ordinals, first, batch.n_documents).tolist():
            low, high = batch.indptr[i], batch.indptr[i + 1]
            bag = dict(zip(names[batch.codes[low:high]], batch.counts[low:high].tolist(), strict=True))
            record = {"document_id": batch.document_id[i].as_py(), "words": bag}
            data = json.dumps(record, ensure_ascii=False).encode()
            row = ingest.source.first_row(units[number]) + int(batch.rows[i])
            rows.append(
                {"file": location(units[number].path), "row": row, "reason": REPEATED_ID, "record": data}
            )
        first += batch.n_documents
    write_quarantined(ingest.folder.root / f"repeated-{piece.index:05d}.bad", rows)
