"""What an ingest of a source would keep, from ingests of the starts of some of its parts."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dask.utils import format_bytes

from streaming_jsmf.config import IngestRequest
from streaming_jsmf.corpus.curation import least_documents
from streaming_jsmf.display import logging_only
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.in_memory import located
from streaming_jsmf.ingestion.job import Ingest
from streaming_jsmf.ingestion.plan import plan_ingest
from streaming_jsmf.ingestion.sources.protocol import Unit
from streaming_jsmf.ingestion.steps import ingest_disk, run_steps
from streaming_jsmf.jobs.events import silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.storage.replace import temporary_folder

#: Bytes of a source that are read, from the starts of so many of its parts.
SAMPLE_BYTES, SAMPLE_PARTS = 32 << 20, 8
#: A source of whose files no part can be read alone is read as a whole up to this size.
WHOLE_BYTES = 256 << 20
#: CPU seconds of an ingest for a byte, at least.
LEAST_RATE = 1e-8
#: Largest exponent of the growth of a vocabulary.
MOST_GROWTH = 0.8


@dataclass(frozen=True)
class SourceSizes:
    """Estimates for a whole source, of which ``sample_bytes`` were read (0: all, so that sizes are exact)."""

    documents: int
    words: int
    nonzeros: int
    shard_bytes: int
    source_bytes: int
    sample_bytes: int
    ingest_disk: int
    ingest_seconds: float


def sampled(source: Any, request: IngestRequest) -> SourceSizes:
    """Ingest samples of a source in a temporary folder; two, of which one is half of the other, if it is large.

    Documents, nonzeros and bytes are proportional to the size, words grow as from the half to the whole sample. Raises
    ``InputError`` as ``ingest``, or if the source is large and has no parts that can be read alone.
    """
    with temporary_folder() as folder, located(source) as location:
        ingest, _ = plan_ingest(location, folder / "corpus", request)
        total = sum(unit.size for unit in ingest.units)
        units, fewer = _sample(ingest)
        with logging_only(logging.ERROR):  # what a sample lost is of no interest
            half = _Kept.of(ingest, fewer) if fewer else None
            made = _Kept.of(ingest, units)
        times, words, rate = total / max(made.size, 1), made.words, made.seconds / max(made.size, 1)
        documents = round(made.documents * times)
        if half is not None:  # what both take, such as compilation, does not grow
            rate = (made.seconds - half.seconds) / (made.size - half.size)
        if half is not None and ingest.vocabulary is None:
            wider = _effective(ingest, documents) / _effective(ingest, made.documents)
            words = round(words * max(wider, 1.0) ** _growth(half, made, ingest))
            words = min(words, ingest.curation.vocabulary_size or words)
        return SourceSizes(
            documents,
            words,
            round(made.nonzeros * times),
            round(made.shard_bytes * times),
            total,
            made.size if times > 1 else 0,
            ingest_disk(ingest.units),
            max(rate, LEAST_RATE) * total,
        )


@dataclass(frozen=True)
class _Kept:
    """What an ingest of some units kept; ``size`` in bytes of the source, ``seconds`` of CPU time."""

    size: int
    documents: int
    words: int
    nonzeros: int
    shard_bytes: int
    seconds: float

    @classmethod
    def of(cls, ingest: Ingest, units: Sequence[Unit]) -> _Kept:
        began = time.process_time()
        sample = replace(ingest, units=units, max_dropped=1.0)
        sample.folder.start(replace=True)
        made = run_steps(sample, Execution("synchronous"), silent)
        shards = [entry for _, entry in made.parts()]
        rows, nonzeros, size = (
            sum(getattr(each, name) for each in shards) for name in ("rows", "nonzeros", "bytes")
        )
        sample.folder.remove()
        read = sum(unit.size for unit in units)
        return cls(read, rows, len(made.totals.words), nonzeros, size, time.process_time() - began)


def _sample(ingest: Ingest) -> tuple[list[Unit], list[Unit]]:
    """The starts of some units, and half of them; all units, and none, of a source that is small or has no parts.

    Raises ``InputError`` if it is large and has none.
    """
    units, total = list(ingest.units), sum(unit.size for unit in ingest.units)
    if total <= SAMPLE_BYTES:
        return units, []
    chosen = units[:: max(1, len(units) // SAMPLE_PARTS)][:SAMPLE_PARTS]
    if ingest.buckets or ingest.words is not None:
        chosen = units
    piece = SAMPLE_BYTES // len(chosen)
    starts, halves = ([_start(ingest, unit, size) for unit in chosen] for size in (piece, piece // 2))
    if (size := sum(unit.size for unit in starts)) > WHOLE_BYTES:
        raise InputError(
            f"{units[0].path}: {format_bytes(size)} would be read, because files of this kind have no parts that can "
            "be read alone; ingest it, and give the corpus"
        )
    if starts == halves:
        halves = chosen[::2] if len(chosen) > 1 and chosen is not units else []
    return starts, halves


def _start(ingest: Ingest, unit: Unit, piece: int) -> Unit:
    """The first bytes of a unit, if it has parts."""
    if ingest.buckets or unit.size <= piece or ingest.source.beginning(unit) == unit:
        return unit
    return replace(unit, stop=unit.start + piece, size=piece)


def _effective(ingest: Ingest, documents: int) -> float:
    """Documents for each one that a word must be in."""
    return documents / max(least_documents(ingest.curation, documents), 1)


def _growth(half: _Kept, made: _Kept, ingest: Ingest) -> float:
    """Exponent of the growth of the vocabulary with the documents for each that a word must be in (Heaps' law)."""
    wider = _effective(ingest, made.documents) / _effective(ingest, half.documents)
    if wider <= 1 or not half.words:
        return 0.5
    return min(max(math.log(made.words / half.words) / math.log(wider), 0.0), MOST_GROWTH)
