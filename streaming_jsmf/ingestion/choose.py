"""The choice: which words stay, and which documents repeat another; over all pieces, in bounded memory."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from streaming_jsmf.config import Curation
from streaming_jsmf.corpus.curation import Selection, WordTable, match_words, select_words
from streaming_jsmf.display import location
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.pieces import KEY, read_table, within, write_table
from streaming_jsmf.ingestion.plan import Ingest, IngestSettings, Piece
from streaming_jsmf.ingestion.read import QUARANTINE_SCHEMA, piece_batches
from streaming_jsmf.ingestion.tokens.stop_words import AUTO, NONE, guess_language, load_stop_words

logger = logging.getLogger(__name__)

#: Rows of all tables held at once while they are merged.
MERGE_ROWS = 1_000_000
#: Tables open at once.
MERGE_TABLES = 256

#: Keys held at once.
BUCKET_KEYS = 1_000_000

REPEATED_ID = "its document id is that of an earlier document"


def settled_curation(settings: IngestSettings, tables: Iterable[WordTable]) -> Curation:
    """The curation with the language of the source in place of "auto"; one pass over the word counts for that."""
    curation = settings.curation
    if curation.stop_words != AUTO or settings.vocabulary is not None:
        return curation
    language = guess_language((table.words, table.term_count) for table in tables)
    if language is None:
        logger.info(
            "the language is none whose stop words are known; --stop-words names one or a list, and texts without "
            "spaces between words need --tokenizer chinese, japanese or MODULE:FUNCTION"
        )
    else:
        logger.info(
            "the language is taken to be %s, whose stop words are left out; --stop-words names others",
            language.capitalize(),
        )
    return replace(curation, stop_words=language or NONE)


def choose_words(
    ingest: Ingest, pieces: Sequence[Piece], words: Sequence[str] | None, curation: Curation
) -> Selection:
    """The words that stay, left where the tasks find them; ``words`` are those of a source that knows its own."""
    folder, vocabulary = ingest.folder, ingest.settings.vocabulary
    counts = word_counts(ingest, pieces, words)
    if vocabulary is not None:
        selection = match_words(counts, vocabulary)
    else:
        n_documents = sum(piece.documents for piece in pieces)
        stop_words = load_stop_words(curation.stop_words)
        selection = select_words(counts, n_documents, curation, stop_words, ngrams=ingest.settings.ngrams)
    if words is None:
        write_table(folder.vocabulary.with_suffix(".arrow"), pa.table({"word": selection.table.words}))
    else:
        new_ids = np.full(len(words), -1, np.int32)
        there = selection.table.ids >= 0
        new_ids[selection.table.ids[there]] = np.flatnonzero(there)
        np.save(folder.vocabulary.with_suffix(".npy"), new_ids)
    if not selection.table.document_frequency.any():
        raise InputError(_nothing_left(selection, sum(piece.documents for piece in pieces)))
    return selection


def _nothing_left(selection: Selection, n_documents: int) -> str:
    took = ", ".join(f"{step.words} {step.reason}" for step in selection.dropped if step.words)
    found = f"{n_documents} document" + "s" * (n_documents != 1)
    return (
        f"no word of the {found} read is left after the curation ({took or 'there is none'}); give more documents, or "
        "loosen its settings, such as --max-df 100%"
    )


def word_counts(ingest: Ingest, pieces: Sequence[Piece], words: Sequence[str] | None) -> Iterable[WordTable]:
    """Counts of all words of the source over all pieces, a table at a time."""
    folder = ingest.folder
    tables = [folder.piece(piece.group, piece.number).with_suffix(".words") for piece in pieces]
    if words is None:
        return found_word_counts(tables, folder.root / "merged")
    return [known_word_counts(tables, words)]


def known_word_counts(tables: Sequence[Path], words: Sequence[str]) -> WordTable:
    """Counts of the words of a source that knows them, in order of their ids."""
    document_frequency = np.zeros(len(words), np.int64)
    term_count = np.zeros(len(words), np.float64)
    for path in tables:
        table = read_table(path)
        codes = np.asarray(table.column("code"))
        document_frequency[codes] += np.asarray(table.column("document_frequency"))
        term_count[codes] += np.asarray(table.column("term_count"))
    return WordTable(pa.array(words, pa.string()), np.arange(len(words)), document_frequency, term_count)


def found_word_counts(tables: Sequence[Path], scratch: Path) -> Iterator[WordTable]:
    """Counts of the words found, in sorted order of the words, in tables of up to about ``MERGE_ROWS``.

    One pass over the tables of the pieces, which are sorted; more than ``MERGE_TABLES`` are first merged in groups
    to files under ``scratch``. Counts are added in the order of the pieces.
    """
    level = 0
    while len(tables) > MERGE_TABLES:
        scratch.mkdir(parents=True, exist_ok=True)
        groups = [tables[i : i + MERGE_TABLES] for i in range(0, len(tables), MERGE_TABLES)]
        tables = [
            _merge_to_file(group, scratch / f"{level}-{number:05d}.words")
            for number, group in enumerate(groups)
        ]
        level += 1
    first = 0
    for merged in _merge(tables):
        count = merged.num_rows
        yield WordTable(
            merged.column("word").combine_chunks(),
            np.arange(first, first + count),
            np.asarray(merged.column("document_frequency")),
            np.asarray(merged.column("term_count")),
        )
        first += count


class _Run:
    """One sorted table, read from the front."""

    def __init__(self, path: Path, rows: int) -> None:
        self._table = read_table(path).select(["word", "document_frequency", "term_count"])
        self._rows = rows
        self._start = 0

    @property
    def empty(self) -> bool:
        return bool(self._start >= self._table.num_rows)

    @property
    def last_held(self) -> str:
        """The last word of the rows that may be held."""
        place = min(self._start + self._rows, self._table.num_rows) - 1
        return str(self._table.column("word")[place].as_py())

    def take_through(self, word: str) -> Any:
        """The held rows up to ``word``, which are then behind us."""
        held = self._table.slice(self._start, self._rows)
        count = int(pc.sum(pc.less_equal(held.column("word"), word)).as_py() or 0)
        self._start += count
        return held.slice(0, count)


def _merge(tables: Sequence[Path]) -> Iterator[Any]:
    """Merged tables, each complete for the words in it: up to the first word at which some table's held rows end."""
    rows = max(1, MERGE_ROWS // max(len(tables), 1))
    runs = [run for run in (_Run(path, rows) for path in tables) if not run.empty]
    while runs:
        limit = min(run.last_held for run in runs)
        yield sorted_counts(pa.concat_tables([run.take_through(limit) for run in runs]))
        runs = [run for run in runs if not run.empty]


def sorted_counts(counts: Any) -> Any:
    """A table of counts with each word once, in order of the words."""
    grouped = counts.group_by("word", use_threads=False).aggregate(
        [("document_frequency", "sum"), ("term_count", "sum")]
    )
    named = grouped.rename_columns(
        {"document_frequency_sum": "document_frequency", "term_count_sum": "term_count"}
    )
    return named.sort_by("word")


def _merge_to_file(tables: Sequence[Path], path: Path) -> Path:
    merged = _merge(tables)
    first = next(merged, None)
    if first is None:
        write_table(path, read_table(tables[0]).select(["word", "document_frequency", "term_count"]))
        return path
    with pa.ipc.new_file(str(path), first.schema) as file:
        file.write_table(first)
        for table in merged:
            file.write_table(table)
    return path


@dataclass(frozen=True, eq=False)
class Repeats:
    """The documents that repeat another, by piece: ordinals, units and rows, in order of ordinals."""

    ordinals: Mapping[int, NDArray[np.int64]]
    units: Mapping[int, NDArray[np.int64]]
    rows: Mapping[int, NDArray[np.int64]]

    def of(self, piece: int) -> NDArray[np.int64]:
        """Ordinals in a piece."""
        return self.ordinals.get(piece, np.zeros(0, np.int64))

    @property
    def total(self) -> int:
        """Over all pieces."""
        return sum(len(ordinals) for ordinals in self.ordinals.values())


def find_repeated_documents(
    ingest: Ingest, pieces: Sequence[Piece], words: Sequence[str] | None
) -> tuple[Repeats, Repeats]:
    """Documents that repeat an id, and of the others those that repeat contents; saved for the tasks.

    Raises
    ------
    InputError
        For a repeated id, unless bad records are kept aside.
    """
    stems = [ingest.folder.piece(piece.group, piece.number) for piece in pieces]
    identities = find_repeats(piece_files(stems, "identities"))
    for index, ordinals in identities.ordinals.items():
        if ingest.settings.on_bad_record == "fail":
            unit = ingest.folder.load_units(pieces[index].group)[int(identities.units[index][0])]
            where = ingest.source.place(unit, int(identities.rows[index][0]))
            raise InputError(f"{where}: {REPEATED_ID}; correct the record or use --on-bad-record quarantine")
        _save_repeated(ingest, index, ordinals, words)
    contents = find_repeats(piece_files(stems, "contents"), without=identities)
    dropped = contents.ordinals if ingest.settings.curation.duplicates == "drop" else {}
    for piece in {*identities.ordinals, *dropped}:
        left_out = {"repeated_id": identities.of(piece)}
        if piece in dropped:
            left_out["duplicates"] = dropped[piece]
        ingest.folder.save_repeats(piece, left_out)
    return identities, contents


def find_repeats(files: Mapping[int, Path], without: Repeats | None = None) -> Repeats:
    """All documents but the first, by ``order``, of each group of equal keys.

    One pass over the keys, which are sorted by their hash in every file, one range of hashes at a time.

    Parameters
    ----------
    files
        File of keys by piece; missing ones are passed over.
    without
        Documents that do not count.
    """
    present = {piece: path for piece, path in files.items() if path.exists()}
    total = sum(path.stat().st_size for path in present.values()) // KEY.itemsize
    found: dict[int, list[NDArray[Any]]] = {}
    for bucket in _buckets(present, max(1, -(-total // BUCKET_KEYS))):
        for piece, repeated in _repeats_in(bucket, without):
            found.setdefault(piece, []).append(repeated)
    ordinals, units, rows = {}, {}, {}
    for piece, parts in sorted(found.items()):
        joined = np.concatenate(parts)
        joined = joined[np.argsort(joined["ordinal"])]
        ordinals[piece], rows[piece] = joined["ordinal"].copy(), joined["row"].copy()
        units[piece] = joined["unit"].copy()
    return Repeats(ordinals, units, rows)


def _buckets(files: Mapping[int, Path], count: int) -> Iterator[dict[int, NDArray[Any]]]:
    """The keys whose first 64 bits lie in each of ``count`` equal ranges; read, as maps would fill the memory."""
    edges = np.array([(i << 64) // count for i in range(1, count)], np.uint64)
    cuts = {piece: _cuts(path, edges) for piece, path in files.items()}
    for i in range(count):
        yield {
            piece: np.fromfile(
                path, KEY, count=cuts[piece][i + 1] - cuts[piece][i], offset=cuts[piece][i] * KEY.itemsize
            )
            for piece, path in files.items()
        }


def _cuts(path: Path, edges: NDArray[np.uint64]) -> list[int]:
    if not len(edges):
        return [0, path.stat().st_size // KEY.itemsize]
    keys = np.memmap(path, KEY, mode="r")
    return [0, *np.searchsorted(keys["high"], edges).tolist(), len(keys)]


def _repeats_in(
    bucket: Mapping[int, NDArray[Any]], without: Repeats | None
) -> Iterator[tuple[int, NDArray[Any]]]:
    parts = [
        array if without is None else array[~np.isin(array["ordinal"], without.of(piece))]
        for piece, array in bucket.items()
    ]
    pieces = np.repeat(list(bucket), [len(part) for part in parts])
    keys = np.concatenate([*parts, np.empty(0, KEY)])
    # Equal order (no ids, or one id twice): the earlier piece, then the earlier document.
    order = np.lexsort((keys["ordinal"], pieces, keys["order"], keys["low"], keys["high"]))
    keys, pieces = keys[order], pieces[order]
    same = (keys["high"][1:] == keys["high"][:-1]) & (keys["low"][1:] == keys["low"][:-1])
    repeated = np.concatenate([[False], same]) if len(keys) else np.zeros(0, bool)
    for piece in np.unique(pieces[repeated]).tolist():
        yield piece, keys[repeated & (pieces == piece)]


def piece_files(stems: Sequence[Path], kind: str) -> dict[int, Path]:
    """Files of keys of a kind ("contents" or "identities") by piece."""
    return {piece: stem.with_suffix(f".{kind}") for piece, stem in enumerate(stems)}


def _save_repeated(
    ingest: Ingest, index: int, ordinals: NDArray[np.int64], known: Sequence[str] | None
) -> None:
    """Keep aside the documents of a piece that repeat an id.

    What is kept of such a document is its id and its words with their counts, before any are left out.
    """
    source, folder = ingest.source, ingest.folder
    piece = folder.load_piece(index)
    units = folder.load_units(piece.group)
    words = pa.array(known, pa.string()) if known is not None else _words_by_code(ingest, piece)
    rows, first = [], 0
    for held in piece_batches(source, folder, piece):
        batch, unit = held.batch, units[held.unit]
        for i in within(ordinals, first, batch.n_documents).tolist():
            low, high = batch.indptr[i], batch.indptr[i + 1]
            names = words.take(pa.array(batch.codes[low:high].astype(np.int64))).to_pylist()
            bag = dict(zip(names, batch.counts[low:high].tolist(), strict=True))
            record = {"document_id": batch.document_id[i].as_py(), "words": bag}
            data = json.dumps(record, ensure_ascii=False).encode()
            row = source.first_row(unit) + int(batch.rows[i])
            rows.append({"file": location(unit.path), "row": row, "reason": REPEATED_ID, "record": data})
        first += batch.n_documents
    pq.write_table(pa.Table.from_pylist(rows, QUARANTINE_SCHEMA), folder.root / f"repeated-{index:05d}.bad")


def _words_by_code(ingest: Ingest, piece: Piece) -> Any:
    """Arrow array of the words of a piece."""
    table = read_table(ingest.folder.piece(piece.group, piece.number).with_suffix(".words"))
    words = np.full(int(pc.max(table.column("code")).as_py() or 0) + 1, "", object)
    words[np.asarray(table.column("code"))] = table.column("word").to_pylist()
    return pa.array(words, pa.string())
