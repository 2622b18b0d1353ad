"""Over-complete start of polish, behind a gate: more topics than wanted, of which the least useful are removed.

    python -m pipelines.over_complete OUT --corpus kos=KOS --corpus un=UN@2 [--topics 20,50] [--seeds 5]

Both starts come from one scan, and both get the ten steps of `polish`:

- *usual*: the K spectral topics of `infer`;
- *over-complete*: 1.25 K spectral topics after 15 steps of ENN, two plain steps of CVB0, and removal of the topics
  whose absence lowers the likelihood of a sample (60,000 nonzeros, shares fitted again) the least. The prior is that of
  the 1.25 K topics, its sum shared out by the tokens of the topics that are left.

The over-complete start is *accepted* if, after five steps, its perplexity of the fitted documents is more than 2 %
below that of the usual start. A seed also orders the documents, of which every fifth is held out. CPU seconds are those
of one thread: scan, inference and steps of the usual start, and of the gated one, which continues with one of both.
Measures are those of `pipelines.quality`, also where the start is rejected. NAME=SOURCE@2 uses every other document.
OUT gets over_complete.parquet, over_complete.md and over_complete.json; an interrupted command continues.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from pipelines.common import options
from pipelines.common.bags import read_counts, write_corpus
from pipelines.common.data import NIPS, prepared
from pipelines.common.held_out import Split
from pipelines.common.quality_tables import METRICS, difference, shown
from pipelines.common.results import Results, Row, publish
from pipelines.common.tables import markdown, spread
from pipelines.quality import load_compiled_code, quality
from streaming_jsmf import InferSettings, ScanSettings, scan
from streaming_jsmf.inference import polish
from streaming_jsmf.inference.cvb0 import smoothed
from streaming_jsmf.linalg.typing import Floats
from streaming_jsmf.moments.store import Moments
from streaming_jsmf.topics.infer import fit_moments
from streaming_jsmf.topics.parameters import prior_of

#: Topics of the over-complete start for each wanted one, and its steps of ENN.
MORE, ENN_STEPS = 1.25, 15
#: Nonzeros of the documents that decide which topics are removed.
REMOVAL_NONZEROS = 60_000
#: Steps of the over-complete start before the removal, and after it and before the gate; the usual start takes as many
#: before the gate in all. Ratio of perplexities below which the over-complete start is accepted.
PLAIN_STEPS, GATE_STEPS, GATE = 2, 3, 0.98


@dataclass
class Run:
    """A start (B, alpha) with its CPU seconds; then the polished topics, and what each step tells."""

    topics: Floats
    prior: Floats
    seconds: float
    likelihoods: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def polish(self, counts: sparse.csr_array, seed: int) -> None:
        """Take the steps of `polish`, in memory and in one thread; keep their log-likelihoods and CPU seconds."""
        steps, started = polish.plan_steps(counts.nnz, counts.shape[0]), time.process_time()
        schedule = polish.Schedule(steps, self.prior, longest(counts, self.prior.size))
        draws = polish.document_draws("over-complete", counts.shape[0], polish.SAMPLE_DRAW, seed)

        def told(_: int, sums: polish.StepSums) -> None:
            self.likelihoods.append(sums.mean_log_likelihood)
            self.times.append(time.process_time() - started)

        self.topics, _ = schedule.in_memory(len(steps), self.topics, counts, draws, threads=1, told=told)


def longest(counts: sparse.csr_array, n_topics: int) -> float:
    return polish.longest_document(*polish.log_lengths(counts), n_topics)


def spectral(moments: Moments, counts: sparse.csr_array, settings: InferSettings) -> Run:
    started = time.process_time()
    model = fit_moments(moments, settings, threads=1)
    common = np.asarray(counts.sum(axis=0), np.float64).ravel()
    topics = smoothed(np.asarray(model.arrays["word_topic"], np.float64), common)
    return Run(topics, prior_of(model), time.process_time() - started)


def over_complete(moments: Moments, counts: sparse.csr_array, n_topics: int, seed: int) -> Run:
    """The over-complete start without the topics that are removed."""
    settings = InferSettings(int(MORE * n_topics), max_iterations=ENN_STEPS)
    start, started = spectral(moments, counts, settings), time.process_time()
    # The last step of a schedule has another word prior, and is not taken.
    plain = (polish.Step(1.0, polish.ROUNDS, relaxed=False),) * (PLAIN_STEPS + 1)
    schedule = polish.Schedule(plain, start.prior, longest(counts, n_topics))
    topics, sums = schedule.in_memory(PLAIN_STEPS, start.topics, counts, np.zeros(counts.shape[0]), threads=1)
    kept = np.sort(np.argsort(likelihood_without(sample_of(counts, seed), topics, start.prior))[:n_topics])
    shares = sums.tokens.sum(axis=0)[kept] / sums.tokens.sum()
    seconds = start.seconds + time.process_time() - started
    return Run(polish.next_topics(sums.tokens[:, kept]), start.prior.sum() * shares, seconds)


def sample_of(counts: sparse.csr_array, seed: int) -> sparse.csr_array:
    """Random documents with ``REMOVAL_NONZEROS``, or all."""
    order = np.random.default_rng(seed).permutation(counts.shape[0])
    ends = np.cumsum(np.diff(counts.indptr)[order])
    return counts[order[: np.searchsorted(ends, REMOVAL_NONZEROS) + 1]]


def likelihood_without(counts: sparse.csr_array, topics: Floats, prior: Floats) -> Floats:
    """Log-likelihood of documents without each topic, (K,)."""
    left = [(np.delete(topics, k, axis=1), np.delete(prior, k)) for k in range(prior.size)]
    return np.array([polish.step_sums(counts, *each, threads=1).log_likelihood for each in left])


def measured(counts: sparse.csr_array, n_topics: int, seed: int) -> Row:
    """Gate, CPU seconds, and measures of both starts."""
    split = Split.of(counts[np.random.default_rng(seed).permutation(counts.shape[0])])
    with tempfile.TemporaryDirectory() as name:
        write_corpus(Path(name) / "fitted", split.fitted)
        started = time.process_time()
        wide = ScanSettings(max_topics=int(MORE * n_topics), seed=seed)
        moments = scan(Path(name) / "fitted", Path(name) / "moments", wide, options.ONE_THREAD)
        scanned = time.process_time() - started
        usual = spectral(moments, split.fitted, InferSettings(n_topics))
        other = over_complete(moments, split.fitted, n_topics, seed)
    for run in (usual, other):
        run.polish(split.fitted, seed)
    # The sums of a step tell the likelihood of the topics before it.
    early, late = PLAIN_STEPS + GATE_STEPS, GATE_STEPS
    gate = float(np.exp(usual.likelihoods[early] - other.likelihoods[late]))
    rest = other.times[-1] - other.times[late] if gate < GATE else usual.times[-1] - usual.times[early]
    gated = other.seconds + usual.times[early] + other.times[late] + rest
    measures = {
        f"{each}_{name}": value
        for each, run in {"usual": usual, "other": other}.items()
        for name, value in quality(split, {"word_topic": run.topics, "prior": run.prior}).items()
    }
    seconds = scanned + usual.seconds
    return {
        "gate": gate, "seconds": seconds + usual.times[-1], "gated_seconds": seconds + gated, **measures
    }  # fmt: skip


def table(rows: Sequence[Row]) -> str:
    """Accepted, rejected and all runs of a corpus and K: the over-complete start minus the usual one."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        for key in ((row["corpus"], row["K"]), ("all", "")):
            groups.setdefault((*key, "accepted" if row["gate"] < GATE else "rejected"), []).append(row)
    lines = []
    for key, several in sorted(groups.items(), key=lambda each: (each[0][0] == "all", *each[0])):
        found = {name: [_change(name, row) for row in several] for name in METRICS}
        gates = [100 * (row["gate"] - 1) for row in several]
        changes = (shown(found[name], 1 if "perplexity" in name else 3) for name in METRICS)
        cost = spread([row["gated_seconds"] / row["seconds"] for row in several], 3)
        lines.append([*key, len(several), shown(gates, 1), *changes, cost])
    labels = [f"{label}, %" if "perplexity" in name else label for name, label in METRICS.items()]
    header = ["corpus", "K", "gate", "seeds", "perplexity at the gate, %", *labels, "CPU, times"]
    return markdown(header, lines, text=3)


def _change(name: str, row: Row) -> float:
    return difference(name, *({name: row[f"{each}_{name}"]} for each in ("other", "usual")))


@click.command(help=__doc__)
@options.OUT
@options.corpora(words=10_000)
@options.several("topics", [20, 50])
@options.SEEDS
@options.quick("300 words of the shipped corpus")
def main(
    out: Path, corpora: tuple[str, ...], words: int, topics: list[int], seeds: int, quick: bool
) -> None:  # fmt: skip
    if quick:
        corpora, words, topics, seeds = (f"nips={NIPS}",), 300, [4], 2
    results, rows, used = Results(out / "cells"), [], {}
    for named in corpora:
        source, _, part = named.partition("@")
        name, corpus = prepared(source, out / "corpora", words)
        name, counts = f"{name}/{part}" if part else name, read_counts(Path(corpus.root))[:: int(part or 1)]
        used[name] = corpus
        for n_topics, seed in ((n_topics, seed) for n_topics in topics for seed in range(seeds)):
            key = {"corpus": corpus.fingerprint, "part": part, "K": n_topics, "seed": seed}
            with threadpool_limits(1):
                load_compiled_code()
                row = results.row(key, lambda k=n_topics, s=seed, c=counts: measured(c, k, s))  # type: ignore[misc]
            rows.append({"corpus": name, "K": n_topics, "seed": seed, **row})
    publish(out, "over_complete", rows, table(rows), used)
    click.echo(table(rows))


if __name__ == "__main__":
    main()
