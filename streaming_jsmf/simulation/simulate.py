"""Simulate a corpus with known topics. Parts are drawn in parallel and committed at the end; runs can be resumed.

Documents are drawn in batches, each with its own counter-based generator, keyed by the seed and the batch number, so
they do not depend on the size of the corpus, on the shards, or on the process.

Until it is committed, a simulation is a directory with this layout::

    zarr.json        the arguments
    records/         one group per completed part, with its shards
    simulate/00000/  shards and counts of part 0
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming_jsmf.config import SimulationSettings, settings_of, takes
from streaming_jsmf.corpus.bags import Bags, Documents
from streaming_jsmf.corpus.format import Corpus, open_corpus, read_manifest
from streaming_jsmf.corpus.manifest import Json
from streaming_jsmf.corpus.shards import (
    LAYOUT,
    TOKENS_PER_SHARD,
    ShardLimits,
    ShardWriter,
    link_shards,
    task_shards,
    total_counts,
    write_task_shards,
)
from streaming_jsmf.corpus.vocabulary import WordCounts
from streaming_jsmf.corpus.write import Origin, corpus_target, finish_directory, wanted_corpus
from streaming_jsmf.errors import InputError
from streaming_jsmf.fingerprint import fingerprint
from streaming_jsmf.jobs.checkpoints import Record
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.jobs.run import map_job, run_job
from streaming_jsmf.jobs.workspace import Workspace
from streaming_jsmf.linalg.probes import keyed_generator
from streaming_jsmf.process_limits import PROCESS_BYTES
from streaming_jsmf.simulation.truth import (
    BATCHES,
    TRUTH_NAME,
    read_truth,
    topic_rows,
    truth_of,
    word_names,
    write_truth,
)
from streaming_jsmf.storage.paths import AnyPath, StorePath, is_free

#: Increased whenever the same arguments would give different documents.
ALGORITHM_VERSION = 1

#: Memory of a task for one batch and one row group, including their copies.
TASK_BYTES = 128 * 2**20

#: Memory of one word of the vocabulary, as a Python string and in the derived tables.
WORD_BYTES = 250

STEP = "simulate"

BATCH_TOKENS = 1_000_000

#: Maximum guide cells: 1 MiB per topic, which fits into the cache of a core.
MOST_CELLS = 2**18

#: Key of the settings of a simulated corpus.
SIMULATED = "simulated"


@takes(SimulationSettings, Execution)
def simulate_lda(
    target: AnyPath,
    *,
    execution: Execution | None = None,
    listener: Listener = silent,
    overwrite: bool = False,
    **options: Any,
) -> Corpus:
    """Simulate a corpus from latent Dirichlet allocation and write it to ``target``, with its topics in ``truth.zarr``.

    The same arguments give the same bytes with any scheduler and number of workers. Words are named w0, w1, ... with
    leading zeros; unused words stay in the vocabulary, so that word ids are row numbers of the truth (see
    ``read_truth``). ``document_id`` starts at 0. Work is done in ``<target>.partial``; the same call resumes an
    interrupted run. Memory does not depend on the number of documents (see ``simulation_memory``).

    Parameters
    ----------
    target : Path or URL of the corpus. If the same call has made it, it is verified and returned; another simulated
        corpus is only replaced with ``overwrite``.
    execution : How to run; ``memory`` is compared with ``simulation_memory``. Its fields are also keyword arguments.
    listener : Called with each committed part; sizes are in documents.

    Raises ``InputError`` if a size or parameter is out of range, the target exists, or the memory budget is too small;
    ``SettingsMismatchError`` if ``<target>.partial`` is from an interrupted simulation with other arguments, and
    ``StoreError`` if it is damaged.
    """
    settings = SimulationSettings.of(options)
    execution = settings_of("execution", Execution, execution, options)
    path = corpus_target(target)
    simulation = plan(settings, Workspace.beside(path, "simulation"))
    if not is_free(path) and SIMULATED not in read_manifest(str(path)).settings:
        raise InputError(f"{path}: simulate did not make this corpus; give another path, or remove it")
    corpus = wanted_corpus(path, simulation.arguments, overwrite=overwrite)
    wanted = replace(corpus, is_intact=lambda: corpus.is_intact() and bool(read_truth(path)))
    arguments = simulation.arguments
    work = replace(simulation.folder, arguments={**arguments, **LAYOUT}, result=fingerprint(arguments))
    with work.acquire(wanted) as publish:
        if publish is not None:
            execution.require_memory(
                lambda workers: simulation_memory(settings, replace(execution, workers=workers)),
                "the simulation",
            )
            job = map_job(write_part, simulation, simulation.sizes, work.checkpoints(STEP), "documents")
            words = pa.array(word_names(settings.n_words), pa.string())
            try:
                with execution.executor(listener, target=work.root) as executor:
                    run_job(job, executor)
                totals = total_counts(work.root, STEP, len(simulation.sizes), words)
            finally:
                _last_sampler.cache_clear()
            with publish() as place:
                _assemble(place, simulation, job.records(), totals, execution.noted)
    return open_corpus(str(path))


def simulation_memory(settings: SimulationSettings, execution: Execution) -> int:
    """Estimate the peak memory of a simulation in bytes, over all its processes.

    Counts the topic tables per process, and a batch and arrays of length N per worker; independent of ``n_documents``.
    """
    workers = execution.concurrency
    tables = 8 * settings.n_words * settings.n_topics
    guide = 4 * settings.n_topics * guide_cells(settings.n_words)
    task = TASK_BYTES + 8 * 6 * settings.n_words
    words = WORD_BYTES * settings.n_words
    if execution.scheduler in ("threads", "synchronous"):
        # The truth is drawn, transposed and written after the last task, and then the vocabulary.
        return PROCESS_BYTES + max(2 * tables, tables + guide + workers * task) + words
    parent = PROCESS_BYTES + 2 * tables + words
    return parent + workers * (PROCESS_BYTES + tables + guide + task)


@dataclass(frozen=True)
class Simulation:
    """Everything that a task needs: the settings with the size of a shard, the parts (one per task), and the directory.

    ``shards_per_part`` exceeds 1 only if a shard is smaller than a batch, which would otherwise be drawn once per
    shard.
    """

    settings: SimulationSettings
    folder: Workspace
    documents_per_shard: int
    shards_per_part: int

    @property
    def sizes(self) -> list[int]:
        each, total = self.documents_per_shard * self.shards_per_part, self.settings.n_documents
        return [min(each, total - first) for first in range(0, total, each)]

    @property
    def arguments(self) -> dict[str, Any]:
        """JSON values that determine the bytes of the corpus."""
        alpha = self.settings.alpha
        return {
            **self.settings.fields(),
            "alpha": alpha if isinstance(alpha, float) else [*alpha],
            "documents_per_shard": self.documents_per_shard,
            "algorithm": ALGORITHM_VERSION,
            "numpy": np.__version__,
        }


def plan(settings: SimulationSettings, folder: Workspace) -> Simulation:
    """Divide the corpus into shards; by default shards of whole batches with about ``TOKENS_PER_SHARD`` tokens each."""
    batch, documents_per_shard = batch_documents(settings), settings.documents_per_shard
    if documents_per_shard is None:
        tokens = batch * max(settings.mean_length, 1.0)
        documents_per_shard = batch * max(1, round(TOKENS_PER_SHARD / tokens))
    return Simulation(settings, folder, documents_per_shard, -(-batch // documents_per_shard))


def write_part(simulation: Simulation, part: int) -> Record:
    """Task: draw and write the documents of one part; return the record to commit.

    Memory: the tables of ``process_sampler``, one batch, one row group, and six arrays of length N. Raises
    ``StoreError`` if the directory was removed in the meantime.
    """
    settings = simulation.settings
    sampler, size = process_sampler(settings), batch_documents(settings)
    first = part * simulation.shards_per_part * simulation.documents_per_shard
    stop = first + simulation.sizes[part]

    def fill(writer: ShardWriter) -> None:
        for number in range(first // size, -(-stop // size)):
            batch, start = simulate_batch(sampler, settings.n_documents, number), number * size
            writer.write(batch.slice(max(first - start, 0), min(stop - start, batch.n_documents)))

    limits = ShardLimits(tokens_per_shard=np.inf, documents_per_shard=simulation.documents_per_shard)
    return write_task_shards(simulation.folder.root, STEP, part, settings.n_words, limits, fill)


def _assemble(
    place: StorePath,
    simulation: Simulation,
    parts: Sequence[Record],
    totals: WordCounts,
    noted: Mapping[str, str],
) -> None:
    """Write the corpus with its topics."""
    settings = simulation.settings
    write_truth(place / TRUTH_NAME, truth_of(settings))
    shards = link_shards(task_shards(simulation.folder.root, STEP, parts), place)
    said: dict[str, Json] = {
        SIMULATED: "lda",
        "n_topics": settings.n_topics,
        "mean_length": settings.mean_length,
        "alpha": " ".join(map(repr, settings.prior)),
        "beta": settings.beta,
        "separable": settings.separable,
        "zipf": settings.zipf,
        "seed": settings.seed,
        **noted,
    }
    finish_directory(place, shards, totals, Origin(settings=said, request=simulation.arguments))


@dataclass(frozen=True, eq=False)
class Sampler:
    """Tables for drawing batches, shared by the threads of a process. Memory: 8 N K bytes, and the guide.

    Attributes
    ----------
    cumulative : (K, N) float64; cumulative distribution of each topic, ending with exactly 1.
    guide : (K, G + 1) int32, G a power of two; a uniform in [g / G, (g + 1) / G) selects a word from guide[k, g] to
        guide[k, g + 1]. These are usually the same word, which avoids the search.
    """

    settings: SimulationSettings
    cumulative: NDArray[np.float64]
    guide: NDArray[np.int32]

    def words(self, topic: int, uniforms: NDArray[np.float64]) -> NDArray[np.int32]:
        """Return the word ids of a topic for uniforms in [0, 1), by inverting its cumulative distribution."""
        guide = self.guide[topic]
        # Exact because G is a power of two, so no uniform falls into an adjacent cell.
        cell = (uniforms * (len(guide) - 1)).astype(np.int32)
        words: NDArray[np.int32] = guide[cell]
        several = np.flatnonzero(words != guide[1:][cell])
        words[several] = np.searchsorted(self.cumulative[topic], uniforms[several], side="right")
        return words


def make_sampler(settings: SimulationSettings) -> Sampler:
    """Draw the topics and build the tables. Memory: 8 N K bytes, and 4 K ``guide_cells`` bytes."""
    cumulative = topic_rows(settings)
    np.cumsum(cumulative, axis=1, out=cumulative)
    cumulative /= cumulative[:, -1:].copy()
    cells = guide_cells(settings.n_words)
    edges = np.arange(cells) / cells
    guide = np.empty((settings.n_topics, cells + 1), np.int32)
    for k, function in enumerate(cumulative):
        guide[k, :-1] = np.searchsorted(function, edges, side="right")
        # Uniforms are below 1, so the last word with positive probability is the last that can be drawn.
        guide[k, -1] = np.searchsorted(function, 1.0, side="left")
    return Sampler(settings, cumulative, guide)


def guide_cells(n_words: int) -> int:
    """Number of guide cells per topic, a power of two."""
    return int(min(max(1024, 2 ** (n_words - 1).bit_length()), MOST_CELLS))


def batch_documents(settings: SimulationSettings) -> int:
    """Documents per batch: about a million tokens, or fewer if there are more topics than tokens in a document."""
    # Topic shares take K numbers per document and dominate the memory if there are many topics.
    return max(1, int(BATCH_TOKENS // max(settings.mean_length, settings.n_topics)))


def simulate_batch(sampler: Sampler, n_documents: int, number: int) -> Documents:
    """Draw one batch of a corpus; its documents depend only on the settings and the batch number.

    Lengths are Poisson, topic shares Dirichlet, and tokens per topic multinomial; words are drawn by inverting the
    cumulative distributions of the topics. ``document_id`` counts from 0 over the corpus.
    """
    settings = sampler.settings
    size = batch_documents(settings)
    first = number * size
    random = keyed_generator(settings.seed, BATCHES + number)
    # Always draw a full batch, so that the documents of the last batch do not depend on n_documents.
    lengths = np.maximum(random.poisson(settings.mean_length, size), 1)
    per_topic = random.multinomial(lengths, random.dirichlet(settings.prior, size))
    bits = (settings.n_words - 1).bit_length()
    # Pack document and word into one small integer: sorting dominates the cost of counting.
    kind: Any = np.uint32 if bits + size.bit_length() <= 32 else np.uint64
    keys = np.empty(int(lengths.sum()), kind)
    document, start = np.arange(size, dtype=kind) << kind(bits), 0
    for k, tokens in enumerate(per_topic.T):
        stop = start + int(tokens.sum())
        words = sampler.words(k, random.random(stop - start))
        np.bitwise_or(np.repeat(document, tokens), words.astype(kind), out=keys[start:stop])
        start = stop
    count = min(size, n_documents - first)
    identity = pa.array(np.arange(first, first + size, dtype=np.int64))
    return _documents(keys, bits, size, identity).slice(0, count)


def _documents(
    keys: NDArray[np.uint32] | NDArray[np.uint64], bits: int, size: int, identity: pa.Array
) -> Documents:
    """Count tokens, encoded as unsigned (document << bits) + word, into ``size`` bags. Sorts ``keys`` in place."""
    keys.sort()
    begins = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    counts = np.diff(begins, append=len(keys)).astype(np.int32)
    pairs = keys[begins]
    kind = keys.dtype.type
    ids = (pairs & kind(2**bits - 1)).astype(np.int32)
    lengths = np.bincount((pairs >> kind(bits)).astype(np.int64), minlength=size)
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Documents(Bags(indptr, ids, counts), identity)


#: The sampler last used in this process: tasks carry only the settings, and the tables are built once.
_last_sampler = lru_cache(maxsize=1)(make_sampler)
_lock = Lock()


def process_sampler(settings: SimulationSettings) -> Sampler:
    """Return the sampler, cached per process and shared by its threads; keeps one at a time."""
    with _lock:  # other tasks wait for the tables instead of building them again
        return _last_sampler(settings)
