"""What a fit will need: memory, disk, passes and time, from the sizes of a corpus or a sample of a source."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from dask.utils import format_bytes

from streaming_jsmf.config import INGEST_SETTINGS, IngestRequest, ScanSettings, request_of, settings_of, takes
from streaming_jsmf.corpus.bags import BATCH_NONZEROS
from streaming_jsmf.corpus.format import Corpus, is_corpus, open_corpus
from streaming_jsmf.display import table
from streaming_jsmf.inference.polish import SAMPLE_NONZEROS, plan_steps
from streaming_jsmf.moments.needs import scan_disk, scan_peak
from streaming_jsmf.moments.stages.cooccurrence import row_panels
from streaming_jsmf.process_limits import PROCESS_BYTES
from streaming_jsmf.topics.document_job import documents_peak
from streaming_jsmf.topics.polish import polish_needs
from streaming_jsmf.topics.requirements import inference_bytes

#: CPU seconds (docs/sizing.md) of a pass of a scan for a nonzero, and for a nonzero and column of the basis; of the
#: eigenpairs for a word and column, and for a word and pair of columns; of the inference for a word and topic, and
#: for a word and pair of topics; of a step of polish for a nonzero, and for a nonzero and topic; and of polish for a
#: word and topic.
PASS, PASS_COLUMN = 3e-8, 9e-10
PAIRS_COLUMN, PAIRS_COLUMNS = 4.5e-7, 2e-10
INFER_TOPIC, INFER_TOPICS = 3e-6, 3e-8
STEP, STEP_TOPIC, POLISH_TOPIC = 1e-7, 1e-9, 7e-7
#: CPU seconds of the start of a command.
START = 1.6
#: The stage that reads no documents.
INFER = "infer"


@dataclass(frozen=True)
class Sizes:
    """Sizes of a corpus, those of a source from a sample of ``sample_bytes`` (0: exact).

    ``source_bytes`` and ``ingest_disk`` are 0 for a corpus; ``row_group`` is the largest number of nonzeros in one.
    """

    documents: int
    words: int
    nonzeros: int
    shard_bytes: int
    row_group: int
    source_bytes: int = 0
    sample_bytes: int = 0
    ingest_disk: int = 0
    ingest_seconds: float = 0.0

    @classmethod
    def of_corpus(cls, corpus: Corpus) -> Sizes:
        """Sizes that the manifest and the footers of a corpus have."""
        groups = [group.nonzeros for shard in corpus.shards for group in shard.row_groups]
        shard_bytes = sum(shard.bytes for shard in corpus.shards)
        return cls(corpus.n_documents, corpus.n_words, corpus.nonzeros, shard_bytes, max(groups))

    @classmethod
    def of_source(cls, source: Any, request: IngestRequest) -> Sizes:
        """Sizes that an ingest of parts of a source lets expect."""
        from streaming_jsmf.ingestion.sample import sampled

        return cls(row_group=BATCH_NONZEROS, **vars(sampled(source, request)))


@dataclass(frozen=True)
class StagePlan:
    """A stage of a fit: passes over the documents, bytes of memory on one machine and of disk, CPU seconds."""

    stage: str
    passes: int
    memory: int
    disk: int
    cpu_seconds: float


@dataclass(frozen=True)
class Plan:
    """What a fit of ``n_topics`` will need. Estimates; see ``docs/sizing.md`` for how good they are.

    Attributes
    ----------
    source : Path or URL.
    n_topics, workers : K, and the number of workers that memory and hours are for.
    threads : Threads of the inference, which runs in the process of the command.
    sizes : Sizes of the corpus.
    stages : The stages in order; each keeps the disk of the results before it.
    result_bytes : Disk of corpus, moments store and model together, once it is finished.
    """

    source: str
    n_topics: int
    workers: int
    threads: int
    sizes: Sizes
    stages: tuple[StagePlan, ...]
    result_bytes: int

    @property
    def memory(self) -> int:
        """Bytes of the stage that needs most."""
        return max(stage.memory for stage in self.stages)

    @property
    def disk(self) -> int:
        """Bytes at the peak, without the source."""
        return max(stage.disk for stage in self.stages)

    @property
    def cpu_seconds(self) -> float:
        return sum(stage.cpu_seconds for stage in self.stages)

    @property
    def hours(self) -> float:
        """Hours, if storage and network are fast enough."""
        seconds = (
            stage.cpu_seconds / (self.threads if stage.stage == INFER else self.workers)
            for stage in self.stages
        )
        return sum(seconds) / 3600

    def fields(self) -> dict[str, Any]:
        """JSON values."""
        whole = {name: getattr(self, name) for name in ("memory", "disk", "cpu_seconds", "hours")}
        return {**asdict(self), **whole}

    def __str__(self) -> str:
        sizes = self.sizes
        about, read = (
            ("", "") if not sizes.source_bytes else ("about ", f"{format_bytes(sizes.source_bytes)}, ")
        )
        if sizes.sample_bytes:
            read += f"of which {format_bytes(sizes.sample_bytes)} were read; "
        rows = [
            (
                each.stage,
                f"{each.passes}",
                *map(format_bytes, (each.memory, each.disk)),
                _duration(each.cpu_seconds),
            )
            for each in self.stages
        ]
        last = ("all", "", format_bytes(self.memory), format_bytes(self.disk), _duration(self.cpu_seconds))
        return "\n".join([
            f"{self.source}: {read}{about}{sizes.documents:,} documents, {sizes.words:,} words, "
            f"{sizes.nonzeros:,} nonzeros",
            table([("", "passes", "memory", "disk", "CPU time"), *rows, last], "<>>>>"),
            f"{self.n_topics} topics on {self.workers} workers: about {_duration(3600 * self.hours)}; "
            f"{format_bytes(self.result_bytes)} stay on disk",
        ])  # fmt: skip


def _duration(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:,.0f} s"


@takes(*INGEST_SETTINGS, ScanSettings, without=("max_topics", "third_moment"))
def plan(
    source: Any,
    n_topics: int = 20,
    *,
    engine: Literal["lr-jsmf", "stod"] = "lr-jsmf",
    polish: bool | None = None,
    workers: int | None = None,
    ingest_request: IngestRequest | None = None,
    scan_settings: ScanSettings | None = None,
    **options: Any,
) -> Plan:
    """Estimate the memory, disk, passes and time of a ``fit`` with these arguments. Keeps nothing.

    A corpus is not read, only its sizes. Of a source the starts of up to eight of its parts, 32 MB together, are
    ingested twice, as a whole and in half, from which documents, words and nonzeros of all follow.

    Parameters
    ----------
    source
        Path or URL of a corpus, or any source of ``ingest``.
    n_topics
        K.
    engine, polish
        As for ``fit``.
    workers
        Number of workers. None: one for each core.
    ingest_request, scan_settings
        As for ``fit``; their fields are also keyword arguments.

    Raises
    ------
    InputError
        If the source cannot be read, or is large and has no parts that can be read alone.

    Examples
    --------
    >>> print(plan("news.csv", 50))  # doctest: +SKIP
    """
    settings = settings_of("scan_settings", ScanSettings, scan_settings, options)
    settings = replace(settings, max_topics=n_topics, third_moment=engine == "stod")
    workers = workers or os.cpu_count() or 1
    if isinstance(source, str | os.PathLike) and is_corpus(source):
        sizes = Sizes.of_corpus(open_corpus(source))
    else:
        sizes = Sizes.of_source(source, request_of(ingest_request, options) or IngestRequest())
    polished = polish if polish is not None else engine == "lr-jsmf"
    name = str(source) if isinstance(source, str | os.PathLike) else "data in memory"
    threads = min(workers, os.cpu_count() or 1)
    return planned(name, sizes, settings, workers, threads, polished=polished)


def planned(
    source: str,
    sizes: Sizes,
    settings: ScanSettings,
    workers: int,
    threads: int = 1,
    *,
    polished: bool = True,
) -> Plan:
    """The plan of a corpus with these sizes; computes only."""
    model = 3 * 8 * sizes.words * settings.max_topics
    scanned, store = _scan(sizes, settings, workers)
    stages = [*_ingest(sizes, workers), scanned, _infer(sizes, settings, store + model)]
    if polished:
        stages.append(_polish(sizes, settings, workers, store + model))
    result_bytes = sizes.shard_bytes + store + model
    return Plan(source, settings.max_topics, workers, threads, sizes, tuple(stages), result_bytes)


def _ingest(sizes: Sizes, workers: int) -> Iterator[StagePlan]:
    if sizes.source_bytes:
        from streaming_jsmf.ingestion.steps import ingest_memory

        disk = sizes.ingest_disk + sizes.shard_bytes
        yield StagePlan("ingest", 1, ingest_memory(workers), disk, START + sizes.ingest_seconds)


def _scan(sizes: Sizes, settings: ScanSettings, workers: int) -> tuple[StagePlan, int]:
    """The scan, and the bytes of its store."""
    n_words, nonzeros = sizes.words, sizes.nonzeros
    share = _share(sizes, settings)
    count = max(1, math.ceil(nonzeros / settings.partition_budget(nonzeros, n_words)))
    memory = scan_peak(n_words, settings, [-(-nonzeros // count)] * count, sizes.row_group, workers, share)
    peak, store = scan_disk(n_words, settings, sizes.shard_bytes, share, count, workers)
    later = [
        2 * (settings.has_projection and share is not None and share < 1),
        len(list(row_panels(n_words))) * settings.exact,
        int(settings.third_moment),
    ]
    width = min(settings.basis_width, n_words)
    # The power steps multiply the documents that the store holds.
    held = nonzeros * (1 if share is None else share)
    multiplied = (1 + settings.third_moment) * nonzeros + 2 * settings.has_projection * held
    seconds = multiplied * (PASS + PASS_COLUMN * width)
    seconds += n_words * width * (PAIRS_COLUMN + PAIRS_COLUMNS * width)
    return StagePlan("scan", 1 + sum(later), memory, sizes.shard_bytes + peak, START + seconds), store


def _share(sizes: Sizes, settings: ScanSettings) -> float | None:
    """The share of the documents that the store holds."""
    if settings.range_finder != "sample":
        return None
    return settings.held_share(sizes.documents, sizes.words, sizes.nonzeros)


def _infer(sizes: Sizes, settings: ScanSettings, results: int) -> StagePlan:
    n_words, n_topics = sizes.words, settings.max_topics
    seconds = n_words * n_topics * (INFER_TOPIC + INFER_TOPICS * n_topics)
    held = int((_share(sizes, settings) or 0) * sizes.nonzeros)
    memory, files = inference_bytes(n_words, n_topics, held=held, stod=settings.third_moment)
    disk = sizes.shard_bytes + results + files
    return StagePlan(INFER, 0, PROCESS_BYTES + memory, disk, START + seconds)


def _polish(sizes: Sizes, settings: ScanSettings, workers: int, results: int) -> StagePlan:
    n_topics, nonzeros = settings.max_topics, sizes.nonzeros
    steps = plan_steps(nonzeros, sizes.documents)
    whole = nonzeros <= SAMPLE_NONZEROS
    passes = 1 if whole else 1 + sum(step.share == 1 for step in steps)
    needs = polish_needs(sizes.words, n_topics, nonzeros)
    memory = documents_peak(sizes.row_group, needs, workers)
    seconds = (STEP + STEP_TOPIC * n_topics) * nonzeros * sum(step.share for step in steps)
    seconds += POLISH_TOPIC * sizes.words * n_topics
    disk = sizes.shard_bytes + results + 8 * sizes.words * n_topics * (workers + 1)
    return StagePlan("polish", passes, memory, disk, START + seconds)
