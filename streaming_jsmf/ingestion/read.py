"""The first pass: read groups of units into pieces of bags, with the counts and keys needed to choose words."""

from __future__ import annotations

import logging
import shutil
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streaming_jsmf.config import AUTO
from streaming_jsmf.corpus.records import OWN_COLUMNS, free_name
from streaming_jsmf.corpus.shards import TOKENS_PER_SHARD
from streaming_jsmf.display import location
from streaming_jsmf.ingestion.pieces import PieceWriter, read_bags
from streaming_jsmf.ingestion.readers.base import BadRecords, Batch, Unit
from streaming_jsmf.ingestion.readers.values import KINDS, listed, require_few
from streaming_jsmf.ingestion.tokens.stop_words import count_languages, parts_of
from streaming_jsmf.ingestion.work import Group, Ingest, Piece, group_units
from streaming_jsmf.jobs.checkpoints import FILES, Record
from streaming_jsmf.jobs.execution import Executor
from streaming_jsmf.storage.paths import file_hashes

logger = logging.getLogger(__name__)

#: The languages of every so many batches of a group are counted, from the first.
LANGUAGE_BATCHES = 4
#: Bits for the number of a document within its group.
ORDER_BITS = 40

QUARANTINE_SCHEMA = pa.schema(
    [("file", pa.string()), ("row", pa.int64()), ("reason", pa.string()), ("record", pa.binary())]
)


def read_source(ingest: Ingest, executor: Executor) -> tuple[list[Piece], int, Counter[str]]:
    """Step: read all documents of the source into pieces, and save the first row number of each unit.

    Makes one pass over the source, or two over the rows of a shuffled source. Returns the number of bad records and the
    counts of languages (``count_languages``), too.
    """
    units, records = ingest.units, []
    groups = group_units(units)
    if hasattr(ingest.source, "scatter"):
        # The documents of a shuffled source are spread over its units and are gathered by bucket.
        ingest = replace(ingest, buckets=ingest.source.n_buckets())
        (ingest.folder.root / "scattered").mkdir(exist_ok=True)
        records = ingest.run(
            executor, "scatter", scatter_unit, [Group(i, i, (unit,)) for i, unit in enumerate(units)]
        )
        size = sum(unit.size for unit in units) // ingest.buckets
        buckets = (Unit(units[0].path, b, b + 1, size) for b in range(ingest.buckets))
        groups = [Group(b, b, (bucket,)) for b, bucket in enumerate(buckets)]
    read = ingest.run(executor, "read", read_group, groups)
    rows = [count for record in read for count in record["rows"]]
    np.save(ingest.folder.root / "first_rows.npy", np.concatenate([[0], np.cumsum(rows)]).astype(np.int64))
    pieces: list[Piece] = []
    for group, record in zip(groups, read, strict=True):
        for number, piece in enumerate(record["pieces"]):
            pieces.append(Piece(len(pieces), group, number, **piece))
    languages = sum((Counter(record["languages"]) for record in read), Counter[str]())
    return pieces, sum(record["bad"] for record in (*read, *records)), languages


def with_columns(ingest: Ingest, pieces: Sequence[Piece]) -> Ingest:
    """Return the ingest with its partial columns, new names, and the kind of each column of strings that has one.

    A column that the corpus of the vocabulary has as well gets its kind there, if all values have it. Raises
    ``InputError`` if there are too many partial columns.
    """
    common: dict[str, tuple[set[str], int]] = {}
    covered: Counter[str] = Counter()
    for piece in pieces:
        for name, (own, number, documents) in piece.metadata.items():
            before, total = common.get(name, (set(KINDS), 0))
            common[name] = before & set(own), total + number
            covered[name] += documents
    n_documents = sum(piece.documents for piece in pieces)
    partial = tuple(name for name, documents in covered.items() if documents < n_documents)
    require_few(partial)
    renamed = _new_names(dict.fromkeys(name for piece in pieces for name in piece.columns))
    kinds: dict[str, str] = {}
    notes = []
    for name, (found, number) in common.items():
        narrowest = "" if found == set(KINDS) else next((kind for kind in KINDS if kind in found), "")
        wanted = ingest.known_kinds.get(renamed.get(name, name), narrowest)
        if wanted in found:
            kinds[name] = wanted
            notes += [f"{name}: {number:,} values read as {wanted}"] * (number > 0)
        elif wanted:
            logger.warning(
                "%s: not all values are %s, as in the corpus of the vocabulary; they stay strings",
                name,
                wanted,
            )
    if notes:
        logger.info("%s", listed(notes))
    return replace(ingest, kinds=kinds, partial=partial, renamed=renamed)


def _new_names(columns: Collection[str]) -> dict[str, str]:
    """New names of metadata columns whose names corpora or topic shares need; they are logged."""
    taken = {*OWN_COLUMNS, *columns}
    renamed = {name: free_name(name, taken) for name in columns if name in OWN_COLUMNS}
    for name, new in renamed.items():
        logger.info("%s: the column is stored as %s, because results have a column of its name", name, new)
    return renamed


def piece_batches(ingest: Ingest, piece: Piece) -> Iterator[tuple[int, Batch]]:
    """Yield unit number and good documents of a piece, from its bags or again from the source."""
    if not ingest.rereads:
        yield from read_bags(ingest.stem(piece))
        return
    for number, unit in piece.group.numbered():
        for batch in ingest.source.read(unit, BadRecords("quarantine", unit, ingest.source.place)):
            if batch.n_documents:
                yield number, batch


def scatter_unit(ingest: Ingest, group: Group) -> Record:
    """Task: distribute the rows of the unit of a shuffled source to buckets."""
    [unit] = group.units
    bad = BadRecords(ingest.on_bad_record, unit, ingest.source.place)
    target = ingest.folder.root / "scattered" / f"{group.index:05d}.arrow"
    target.unlink(missing_ok=True)
    ingest.source.scatter(unit, bad, target, ingest.buckets)
    quarantined = target.with_suffix(".bad")
    n_bad = _save_bad(bad, ingest, unit, quarantined)
    return {"bad": n_bad, FILES: file_hashes(ingest.folder.root, [target, quarantined])}


@dataclass
class _Seen:
    """Records of each unit, good and bad; bad records; documents by language; batches: the numbers of each."""

    rows: list[int] = field(default_factory=list)
    bad: int = 0
    languages: Counter[str] = field(default_factory=Counter)
    batches: int = 0


def read_group(ingest: Ingest, group: Group) -> Record:
    """Task: read the units of a group into pieces, in one pass. ``rows`` has the number of records of each unit."""
    directory = ingest.folder.stem(group.index, 0).parent
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    seen = _Seen()
    batches = _batches(ingest, group, directory, seen)
    pieces = [
        {
            "documents": writer.documents,
            "nonzeros": writer.nonzeros,
            "tokens": writer.tokens,
            "columns": list(writer.columns),
            "metadata": {
                name: (kinds, writer.strings[name], writer.covered[name])
                for name, kinds in writer.kinds.items()
            },
        }
        for writer in _written_pieces(ingest, group.index, batches)
    ]
    files = file_hashes(ingest.folder.root, sorted(directory.iterdir()))
    return {
        "pieces": pieces,
        "rows": seen.rows,
        "bad": seen.bad,
        "languages": dict(seen.languages),
        FILES: files,
    }


def _batches(ingest: Ingest, group: Group, directory: Path, seen: _Seen) -> Iterator[tuple[int, Batch]]:
    """Yield all batches of a group by unit; updates ``seen`` after each unit."""
    detects = AUTO in parts_of(ingest.curation.stop_words)
    for number, unit in group.numbered():
        bad, n_records = BadRecords(ingest.on_bad_record, unit, ingest.source.place), 0
        if ingest.buckets:
            scattered = sorted((ingest.folder.root / "scattered").glob("*.arrow"))
            batches = ingest.source.gather(scattered, number, bad)
        else:
            batches = ingest.source.read(unit, bad)
        for batch in batches:
            if batch.n_documents:
                n_records += batch.n_documents
                if detects and batch.dictionary is not None and seen.batches % LANGUAGE_BATCHES == 0:
                    seen.languages += count_languages(batch)
                seen.batches += 1
                yield number, batch
        if ingest.source.refuses_documents:
            n_records += sum(record.row is not None for record in bad.records)
        seen.rows.append(n_records)
        seen.bad += _save_bad(bad, ingest, unit, directory / f"{number:06d}.bad")


def _written_pieces(
    ingest: Ingest, index: int, batches: Iterator[tuple[int, Batch]]
) -> Iterator[PieceWriter]:
    """Write the pieces in turn; yield each when it is closed."""
    number = documents = 0
    writer: PieceWriter | None = None
    tokens_per_piece = max(TOKENS_PER_SHARD, ingest.tokens_per_shard)
    with ExitStack() as stack:
        for unit, batch in batches:
            if writer is None:
                writer = PieceWriter(
                    ingest.folder.stem(index, number),
                    ingest.n_words,
                    spill=not ingest.rereads,
                    first_order=(index << ORDER_BITS) + documents,
                )
                stack.callback(writer.abort)
            writer.add(unit, batch)
            if writer.tokens >= tokens_per_piece and not ingest.rereads:
                writer.close()
                yield writer
                number, documents, writer = number + 1, documents + writer.documents, None
        if writer is not None:
            writer.close()
            yield writer


def _save_bad(bad: BadRecords, ingest: Ingest, unit: Unit, path: Path) -> int:
    """Save the bad records of a unit, with row numbers from the start of the file."""
    if not bad.records:
        return 0
    first = ingest.source.first_row(unit) if any(record.row is not None for record in bad.records) else 0
    write_quarantined(
        path,
        [
            {
                "file": location(record.path),
                "row": None if record.row is None else first + record.row,
                "reason": record.reason,
                "record": record.record,
            }
            for record in bad.records
        ],
    )
    return len(bad.records)


def write_quarantined(path: Path, rows: list[dict[str, Any]]) -> None:
    pq.write_table(pa.Table.from_pylist(rows, QUARANTINE_SCHEMA), path)
