"""Quality of polished topics, of other schedules of polish and of Gibbs sampling, against CPU seconds.

    python -m pipelines.quality OUT --corpus kos=KOS --corpus news=NEWS [--topics 20,50] [--seeds 5] [--processes 8]

Seed s holds out every fifth document, beginning with document 4 - s, and determines scan, samples and chains. All
methods but Gibbs sampling start from the spectral topics (scan and inference with the defaults of `infer`):

- *polished*: `polish` with several numbers of steps; 10 is the default, and 0 the spectral topics;
- *plain*, *relaxed*, *drawn*: the same with CVB0 alone, CVB0 with every other step over-relaxed, and draws of topics
  for any number of documents. The default of `polish` is drawn from 10,000 documents on, and relaxed below;
- *sequential*, *annealed*: sweeps of Gibbs sampling token by token after 10 steps of polish, and two steps of CVB0 at
  the end; annealed sweeps begin with a temperature above 1;
- *Gibbs*: tomotopy, sweeps of one chain; *anchortopics* and *MiniBatchNMF* (scikit-learn) with their defaults.

NAME=SOURCE@8 uses one of every eight documents. Measures: perplexity of held-out documents by completion (the same
halves for all) with shares by CVB0 and by Gibbs sampling, NPMI of the 10 top words in fitted and held-out documents,
the share of distinct words, and seconds of one thread.

Each of the --processes runs a cell (a corpus, K, a seed, and a method or all those with the spectral start) at a time,
in the order of seeds, and stores its rows in OUT/cells once it is finished. After --minutes no cell is started. An
interrupted command continues; --only-kept writes the tables of what is there. OUT gets quality.parquet, quality.md and
quality.svg.
"""

from __future__ import annotations

import multiprocessing
import re
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from itertools import islice, product
from pathlib import Path

import click
import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from pipelines.common import options, peers
from pipelines.common.bags import read_counts, write_corpus
from pipelines.common.data import NIPS, prepared
from pipelines.common.held_out import Split, scores_of
from pipelines.common.quality_tables import STEPS, draw, tables
from pipelines.common.results import Arrays, Results, Row, publish
from pipelines.common.sequential import sampled_perplexity, sweeps
from streaming_jsmf import InferSettings, PolishSettings, ScanSettings, infer, polish, scan
from streaming_jsmf.corpus import Corpus
from streaming_jsmf.inference.cvb0 import smoothed
from streaming_jsmf.inference.perplexity import Completer
from streaming_jsmf.inference.polish import (
    DRAWN_DOCUMENTS,
    ROUNDS,
    SAMPLE_DRAW,
    Schedule,
    Step,
    document_draws,
    log_lengths,
    longest_document,
    next_topics,
    plan_steps,
)
from streaming_jsmf.inference.words import prominent_words
from streaming_jsmf.topics.parameters import prior_of
from streaming_jsmf.topics.store import Model

#: The methods of --quick.
QUICK = ("polished", "plain", "annealed")

#: Annealing: highest temperature, and share of the sweeps after which it is 1.
HOTTEST, COOLING = 1.5, 0.5

#: Steps after which sweeps begin, and of CVB0 after them.
BEFORE, AFTER = 10, 2

LISTED = 10

#: Models of other libraries: (counts, K, seed, steps) -> topics after each number of steps.
PEERS: dict[str, Callable[[sparse.csr_array, int, int, Sequence[int]], Iterable[peers.PeerTopics]]] = {
    "Gibbs": peers.gibbs,
    "anchortopics": lambda counts, n_topics, seed, _: [peers.anchor_topics(counts, n_topics, seed)],
    "MiniBatchNMF": lambda counts, n_topics, seed, _: [peers.scikit_nmf(counts, n_topics, seed)],
}


@dataclass(frozen=True)
class Cell:
    """Methods for a corpus, or one of every ``part`` documents of it, K and a seed."""

    corpus: str
    path: str
    fingerprint: str
    part: int
    K: int
    seed: int
    methods: tuple[str, ...]

    def row_keys(self) -> list[Row]:
        """The key of each row."""
        base = {
            name: value
            for name, value in asdict(self).items()
            if name in ("fingerprint", "part", "K", "seed")
        }
        return [{**base, "method": method, "steps": n} for method in self.methods for n in STEPS[method]]

    def rows(self) -> list[Row]:
        """Compute all rows, in one thread."""
        split = Split.of(read_counts(Path(self.path))[:: self.part], self.seed)
        found = self._started(split) if self.methods[0] not in PEERS else self._of_peer(split)
        return [{"seconds": float(arrays["seconds"]), **quality(split, arrays)} for arrays in found]

    def _of_peer(self, split: Split) -> Iterator[Arrays]:
        wanted = [key["steps"] for key in self.row_keys()]
        for each in PEERS[self.methods[0]](split.fitted, self.K, self.seed, wanted):
            yield {"word_topic": each.word_topic, "prior": each.prior, "seconds": np.array(each.cpu_seconds)}

    def _started(self, split: Split) -> Iterator[Arrays]:
        """Arrays of the methods that begin with the spectral topics, in the order of ``row_keys``."""
        load_compiled_code()
        wanted = {key["steps"] for key in self.row_keys() if key["method"] == "polished"} | {0, BEFORE}
        with tempfile.TemporaryDirectory() as name:
            write_corpus(Path(name) / "fitted", split.fitted)
            found = dict(polished(Path(name) / "fitted", self.K, self.seed, Path(name), sorted(wanted)))
        for key in self.row_keys():
            method, steps = key["method"], key["steps"]
            if method == "polished":
                yield found[steps]
            elif method in ("sequential", "annealed"):
                yield swept(split.fitted, found[BEFORE], self.seed, steps, hot=method == "annealed")
            else:
                yield scheduled(split.fitted, found[0], self.seed, method, steps)


def polished(
    corpus: Path, n_topics: int, seed: int, folder: Path, steps: Sequence[int]
) -> Iterator[tuple[int, Arrays]]:
    """Topics, prior and seconds of scan, inference and steps, for each number of steps; 0: the spectral topics."""
    started = time.process_time()
    moments = scan(
        corpus, folder / "moments", ScanSettings(max_topics=n_topics, seed=seed), options.ONE_THREAD
    )
    start = infer(moments, folder / "start", InferSettings(n_topics), workers=1)
    spectral = time.process_time() - started
    for n in steps:
        started = time.process_time()
        wanted = PolishSettings(steps=max(n, 1), seed=seed)
        where = folder / "start", corpus, folder / str(n)
        model = polish(*where, wanted, execution=options.ONE_THREAD) if n else start
        yield n, _arrays(model, spectral + time.process_time() - started)


def _arrays(model: Model, seconds: float) -> Arrays:
    topics = np.asarray(model.arrays["word_topic"], np.float64)
    return {"word_topic": topics, "prior": prior_of(model), "seconds": np.array(seconds)}


@cache
def load_compiled_code() -> None:
    """Fit few documents, so that the seconds of the first model do not include it."""
    counts = sparse.csr_array(np.random.default_rng(0).poisson(0.5, (300, 60)).astype(np.int32))
    with tempfile.TemporaryDirectory() as name:
        write_corpus(Path(name) / "few", counts)
        found = dict(polished(Path(name) / "few", 3, 0, Path(name), [0, BEFORE]))
    for method in ("plain", "drawn"):
        scheduled(counts, found[0], 0, method, 3)
    swept(counts, found[BEFORE], 0, 2, hot=False)


def scheduled(counts: sparse.csr_array, start: Arrays, seed: int, method: str, steps: int) -> Arrays:
    """The steps of ``polish`` in memory, in one thread: plain, relaxed or drawn."""
    started = time.process_time()
    common = np.asarray(counts.sum(axis=0), np.float64).ravel()
    planned = plan_steps(counts.nnz, DRAWN_DOCUMENTS if method == "drawn" else 0, steps)
    if method == "plain":
        planned = tuple(replace(step, relaxed=False) for step in planned)
    schedule = Schedule(planned, start["prior"], longest_document(*log_lengths(counts), start["prior"].size))
    draws = document_draws("quality", counts.shape[0], SAMPLE_DRAW, seed)
    topics, _ = schedule.in_memory(steps, smoothed(start["word_topic"], common), counts, draws, threads=1)
    seconds = start["seconds"] + time.process_time() - started
    return {**start, "word_topic": topics, "seconds": seconds}


def swept(counts: sparse.csr_array, start: Arrays, seed: int, n_sweeps: int, *, hot: bool) -> Arrays:
    """Sweeps of Gibbs sampling from given topics, and steps of CVB0 after them."""
    started = time.process_time()
    cooling = max(1, int(COOLING * n_sweeps))
    heat = np.maximum(0, 1 - np.arange(n_sweeps) / cooling) if hot else np.zeros(n_sweeps)
    temperatures = (1 + (HOTTEST - 1) * heat).tolist()
    [tokens] = deque(sweeps(counts, start["word_topic"], start["prior"], temperatures, seed), maxlen=1)
    steps = (Step(1.0, ROUNDS, relaxed=False),) * AFTER
    schedule = Schedule(steps, start["prior"], longest_document(*log_lengths(counts), start["prior"].size))
    topics, _ = schedule.in_memory(AFTER, next_topics(tokens), counts, np.zeros(counts.shape[0]), threads=1)
    seconds = start["seconds"] + time.process_time() - started
    return {**start, "word_topic": topics, "seconds": seconds}


def quality(split: Split, found: Arrays) -> Row:
    """Both perplexities, both NPMI and distinct words."""
    counted = np.asarray(split.fitted.sum(axis=0), np.float64).ravel()
    completer = Completer.of(found["word_topic"], found["prior"], counted)
    return {
        "perplexity": completer.complete(split.held_out, threads=1).perplexity,
        "sampled_perplexity": sampled_perplexity(completer, split.held_out),
        **scores_of(split, prominent_words(found["word_topic"], LISTED)),
    }


def computed(cell: Cell) -> list[Row]:
    """The rows of a cell, in a process of its own."""
    with threadpool_limits(1):
        return cell.rows()


@cache
def processor() -> str:
    """Model of the processor, as far as the system tells it."""
    path = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.*)", path.read_text()) if path.exists() else None
    return found[1] if found else "unknown"


def compute(cells: Sequence[Cell], results: Results, processes: int, minutes: float) -> None:
    """Compute and store the cells that are not stored; start none after ``minutes``."""
    ends = time.monotonic() + 60 * minutes
    left = iter([cell for cell in cells if not all(results.has_row(key) for key in cell.row_keys())])
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        running = {pool.submit(computed, cell): cell for cell in islice(left, processes)}
        while running:
            done = next(as_completed(running))
            cell = running.pop(done)
            for key, row in zip(cell.row_keys(), done.result(), strict=True):
                results.row(key, partial(dict, row, processor=processor()))
            click.echo(f"{cell.corpus} K={cell.K} seed {cell.seed}: {','.join(cell.methods)}", err=True)
            if time.monotonic() < ends:
                running |= {pool.submit(computed, cell): cell for cell in islice(left, 1)}


def cells_of(
    named: Sequence[str], folder: Path, words: int, topics: Sequence[int], seeds: int, methods: Sequence[str]
) -> tuple[list[Cell], dict[str, Corpus]]:
    """Cells in the order in which they are computed, by seed, and the corpora by name."""
    corpora: dict[str, tuple[Corpus, int]] = {}
    for each in named:
        source, _, part = each.partition("@")
        name, corpus = prepared(source, folder, words)
        corpora[f"{name}/{part}" if part else name] = corpus, int(part or 1)
    groups: list[tuple[str, ...]] = [(name,) for name in methods if name in PEERS]
    groups += [tuple(rest)] if (rest := [name for name in methods if name not in PEERS]) else []
    cells = [
        Cell(name, str(corpus.root), corpus.fingerprint, part, n_topics, seed, group)
        for seed, (name, (corpus, part)), n_topics, group in product(
            range(seeds), corpora.items(), topics, groups
        )
    ]
    return cells, {name: corpus for name, (corpus, _) in corpora.items()}


def rows_of(cells: Sequence[Cell], results: Results) -> Iterator[Row]:
    """The stored rows."""
    for cell in cells:
        for key in filter(results.has_row, cell.row_keys()):
            shown = {"corpus": cell.corpus, **{name: key[name] for name in ("K", "method", "steps", "seed")}}
            yield shown | results.row(key, dict)


@click.command(help=__doc__)
@options.OUT
@options.corpora(words=10_000)
@options.several("topics", [20, 50])
@options.SEEDS
@options.several("methods", STEPS)
@click.option(
    "--processes", default=1, show_default=True, help="Number of cells that are computed at a time."
)
@click.option("--minutes", default=1e9, help="Start no cell after this time.")
@options.PICTURE
@options.quick("300 words of the shipped corpus, without Gibbs sampling")
@options.ONLY_KEPT
def main(
    out: Path, corpora: tuple[str, ...], words: int, topics: list[int], seeds: int, methods: list[str],
    processes: int, minutes: float, picture: bool, quick: bool, only_kept: bool,
) -> None:  # fmt: skip
    if quick:
        corpora, words, topics, seeds, methods = (f"nips={NIPS}",), 300, [5], 2, [*QUICK]
    if unknown := {*methods} - STEPS.keys():
        raise click.UsageError(f"unknown methods {', '.join(unknown)}; there are {', '.join(STEPS)}")
    results = Results(out / "cells")
    cells, used = cells_of(corpora, out / "corpora", words, topics, seeds, methods)
    if not only_kept:
        compute(cells, results, processes, minutes)
    rows = [*rows_of(cells, results)]
    text = tables(rows)
    publish(out, "quality", rows, text, used)
    click.echo(text)
    if picture:
        draw(rows, out / "quality.svg")


if __name__ == "__main__":
    main()
