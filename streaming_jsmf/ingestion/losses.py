"""What an ingest loses: the table of losses, the quarantine, warnings and refusals."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streaming_jsmf.corpus.format import QUARANTINE_NAME, Corpus, open_corpus, read_manifest
from streaming_jsmf.corpus.manifest import CorpusTotals, Dropped, as_number, losses, losses_table
from streaming_jsmf.display import location
from streaming_jsmf.errors import LAST, InputError, as_event, names_options, option
from streaming_jsmf.ingestion.job import Ingest
from streaming_jsmf.ingestion.sources.protocol import BadRecord, Unit
from streaming_jsmf.jobs.checkpoints import FILES, Record
from streaming_jsmf.jobs.events import in_notebook
from streaming_jsmf.storage.objects import in_threads
from streaming_jsmf.storage.paths import StorePath
from streaming_jsmf.storage.replace import file_written
from streaming_jsmf.storage.tables import read_table, write_table

logger = logging.getLogger(__name__)

#: Share of dropped documents above which a warning is logged, and share of tokens above which it names boilerplate.
LARGEST_LOSS = 0.1

#: Reasons for dropping documents, in the order of the checks; the first entry counts kept documents.
STEPS = ("kept", "repeated_id", "replaced", "duplicates", "min_distinct_words", "min_tokens")

#: Documents that lost to another one, by the number of their step: why, and in the record of what was read.
REPEATED, REPLACED, DUPLICATE, DISTINCT, TOKENS = range(1, len(STEPS))
REASONS = {
    REPLACED: "documents whose id is that of a later file",
    DUPLICATE: "documents with the words of another",
}

_QUARANTINE = pa.schema(
    [("file", pa.string()), ("row", pa.int64()), ("reason", pa.string()), ("record", pa.binary())]
)
_BOILERPLATE, _BAD = "boilerplate", "bad_records"
_NONE_KEPT, _EMPTY = "documents without kept words", "empty documents"


def losses_of_reading(ingest: Ingest, bad: int, boilerplate: tuple[int, int]) -> list[Dropped]:
    """Manifest entries for bad records and boilerplate; records that are no documents are only in the text."""
    documents = bad if ingest.source.refuses_documents else 0
    rows = "" if documents else f"{bad:,} row{'s' * (bad > 1)} "
    changed, tokens = boilerplate
    text = f"boilerplate of {changed:,} document{'s' * (changed != 1)}"
    found = [
        (bad, Dropped(step=_BAD, reason=f"{rows}in quarantine.parquet", documents=documents)),
        (changed, Dropped(step=_BOILERPLATE, reason=text, tokens=tokens)),
    ]
    return [entry for number, entry in found if number]


def losses_of_writing(ingest: Ingest, written: Sequence[Record], n_unused: int) -> list[Dropped]:
    """Manifest entries for the steps that drop documents, and for words in no kept document."""
    documents = {step: sum(record["documents"][step] for record in written) for step in STEPS}
    tokens = {step: sum(record["tokens"][step] for record in written) for step in STEPS}
    curation = ingest.curation
    distinct, least = curation.min_distinct_words, curation.min_tokens
    few = f"documents with fewer than {distinct} distinct kept words" if distinct > 1 else _NONE_KEPT
    empty = sum(record["empty"] for record in written)
    if empty:
        few = _EMPTY if empty == documents["min_distinct_words"] else f"{few}, {empty:,} of them empty"
    reasons = [
        (
            ingest.on_bad_record == "quarantine",
            "repeated_id",
            "in quarantine.parquet: the id of an earlier document",
        ),
        (documents["replaced"] > 0, "replaced", REASONS[REPLACED]),
        (curation.duplicates == "drop", "duplicates", REASONS[DUPLICATE]),
        (distinct > 0, "min_distinct_words", few),
        (least > 0, "min_tokens", f"documents with fewer than {least} tokens of kept words"),
    ]
    return [
        *(
            Dropped(step=step, reason=reason, documents=documents[step], tokens=as_number(tokens[step]))
            for applies, step, reason in reasons
            if applies
        ),
        Dropped(step="unused_words", reason="in none of the documents kept", words=n_unused),
    ]


def require_few_losses(ingest: Ingest, dropped: Sequence[Dropped], n_read: int) -> None:
    """Raise ``InputError`` if more than ``max_dropped`` of the documents are lost without a choice of the user.

    Such losses are bad records, ids that repeat or come again, and documents without any word that the curation keeps.
    """
    steps = {_BAD, "repeated_id", "replaced"}
    if ingest.vocabulary is None and ingest.curation.min_distinct_words == 1:
        steps.add("min_distinct_words")
    lost = [step for step in dropped if step.step in steps]
    number = sum(step.documents for step in lost)
    if number > ingest.max_dropped * n_read:
        raise InputError(
            f"{ingest.folder.target} would lack {number:,} of {n_read:,} documents ({number / n_read:.0%}): "
            f"{_reasons(lost, dropped)}{first_bad_record(ingest)}; correct that, or accept the loss with "
            f"{option.max_dropped('100%')}"
        )


def report_losses(read: Mapping[str, Any], dropped: Sequence[Dropped], kept: CorpusTotals) -> None:
    """Log what was read, dropped and kept, one message per line and an event; ``read`` are settings of a corpus.

    Warns if more than a tenth of the documents is dropped; in Python, which shows only warnings, if any is.
    """
    first, *lines = losses_table(losses(read, dropped, kept)).splitlines()
    logger.info("%s", first, extra=_event(read, dropped, kept))
    for line in lines:
        logger.info("%s", line)
    number = sum(step.documents for step in dropped)
    n_read = number + kept.documents
    reasons = _reasons(dropped, dropped, read.get("tokens_read"))
    if number > LARGEST_LOSS * n_read:
        share = f"{number / n_read:.0%}"
        logger.warning("%s of the documents are dropped: %s", share, reasons, extra=LAST)
    elif number and not names_options.get():
        logger.warning("%s of %s documents are dropped: %s", f"{number:,}", f"{n_read:,}", reasons)


def shown(built: Corpus) -> Corpus:
    """Return a corpus; in a notebook, print the table that the command line logs."""
    if in_notebook():
        manifest = read_manifest(built.root)
        print(losses_table(losses(manifest.settings, manifest.dropped, manifest.totals)))
    return built


def _event(read: Mapping[str, Any], dropped: Sequence[Dropped], kept: CorpusTotals) -> dict[str, Any]:
    """What was read = kept + each kind of loss, as an event; of an old or foreign corpus what was read is unknown."""
    counted = ("documents", "words", "tokens")
    return as_event(
        "losses",
        read={"documents": read.get("documents_read"), "tokens": read.get("tokens_read")},
        kept={name: getattr(kept, name) for name in counted},
        lost=[{name: getattr(step, name) for name in ("step", "reason", *counted)} for step in dropped],
    )


def nothing_left(ingest: Ingest, dropped: Sequence[Dropped]) -> str:
    """The message if no document is left."""
    reasons = ", ".join(f"{step.documents:,} {step.reason}" for step in dropped if step.documents)
    return (
        f"{ingest.folder.target} would be an empty corpus: no document is left after the curation "
        f"({reasons or 'they have no words'}); "
        f"give more documents, or loosen its settings, such as {option.max_df('100%')} and {option.min_tokens(1)}"
    )


def _reasons(lost: Sequence[Dropped], dropped: Sequence[Dropped], n_tokens: Any = None) -> str:
    """Reasons for lost documents, the largest first, each with what changes it; and boilerplate, if it is much."""
    ordered = sorted((step for step in lost if step.documents), key=lambda step: -step.documents)
    texts = [
        f"{step.documents:,} {step.reason.removeprefix('documents ')}{_remedy(step, dropped)}"
        for step in ordered
    ]
    removed = sum(step.tokens for step in dropped if step.step == _BOILERPLATE)
    if n_tokens and removed > LARGEST_LOSS * n_tokens:
        texts.append(f"{removed / n_tokens:.0%} of the tokens are boilerplate ({option.boilerplate('keep')})")
    return ", ".join(texts)


def _remedy(lost: Dropped, dropped: Sequence[Dropped]) -> str:
    """The options that change how many documents a step drops, those of the rules with most tokens first."""
    words = {
        "min_document_frequency": option.min_df,
        "max_document_frequency": option.max_df,
        "vocabulary": option.vocabulary,
    }
    rules = sorted(
        (each for each in dropped if each.step in words and each.tokens), key=lambda each: -each.tokens
    )
    few = [words[rule.step] for rule in rules] or [option.stop_words]
    remedies: dict[str, list[Any]] = {
        _BAD: ["its column reason says why"],
        **{key: [option.id("none")] for key in ("repeated_id", "replaced")},
        "duplicates": [option.duplicates("keep")],
        "min_distinct_words": few,
        "min_tokens": [option.min_tokens, *few],
    }
    known = lost.step in remedies and lost.reason != _EMPTY
    return f" ({', '.join(map(str, remedies[lost.step]))})" if known else ""


def save_bad(path: Path, ingest: Ingest, bad: Sequence[tuple[Unit, BadRecord]]) -> int:
    """Save bad records of units, if any, with row numbers from the start of the file; return their number."""
    if bad:
        units = {unit for unit, record in bad if record.row is not None}
        first = {unit: ingest.source.first_row(unit) for unit in units}
        rows = [
            {
                "file": location(record.path),
                "row": None if record.row is None else first[unit] + record.row,
                "reason": record.reason,
                "record": record.record,
            }
            for unit, record in bad
        ]
        write_table(path, pa.Table.from_pylist(rows, _QUARANTINE))
    return len(bad)


def first_bad_record(ingest: Ingest) -> str:
    """The place of the first bad record, and why it is bad, for a message; empty without bad records."""
    for table in bad_records(ingest):
        [row] = table.slice(0, 1).to_pylist()
        place = "" if row["row"] is None else f", row {row['row']} from 0"
        return f"; the first is {row['file']}{place}: {row['reason']}"
    return ""


def write_quarantine(corpus: StorePath, tables: Iterator[Any]) -> None:
    """Write bad records, if there are any, to the quarantine of a corpus, with one table in memory at a time."""
    if (first := next(tables, None)) is not None:
        with (
            file_written(corpus / QUARANTINE_NAME) as place,
            pq.ParquetWriter(place, _QUARANTINE, compression="zstd") as writer,
        ):
            for table in chain([first], tables):
                writer.write_table(table)


def bad_records(ingest: Ingest) -> Iterator[Any]:
    """Yield the tables of the bad records, in the order of units."""
    return map(read_table, _saved(ingest))


def _saved(ingest: Ingest) -> Iterator[StorePath]:
    """Yield the files with the bad records of all units."""
    for step in ("scatter", "read", "write"):
        checkpoints = ingest.folder.checkpoints(step)
        for record in in_threads(checkpoints.read_metadata, sorted(checkpoints.committed().parts, key=int)):
            yield from (ingest.root / name for name in sorted(record[FILES]) if name.endswith(".bad"))


def reported(target: StorePath) -> Corpus:
    """Open a corpus, and log what was lost when it was made."""
    built, manifest = open_corpus(str(target)), read_manifest(str(target))
    report_losses(manifest.settings, manifest.dropped, manifest.totals)
    return built
