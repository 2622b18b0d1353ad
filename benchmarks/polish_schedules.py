"""Quality and CPU time of schedules of polish.

    python -m benchmarks.polish_schedules OUT --corpus kos=KOS --corpus news=NEWS --topics 20,50 [--seeds 3]

A schedule such as 10x4 has ten steps of four rounds; on more nonzeros than a sample has, all but the last two steps
use samples, and with many documents they draw topics, as in `polish`. 10x4d draws them for any number of documents,
10x4c for none. --relaxation 0 makes all steps plain. Each seed holds out another fifth of the documents,
and is the seed of the scan and of the samples. Prints NPMI@10 in the fitted and in the held-out documents, the share of
distinct words and perplexity by completion, means over the seeds, and CPU seconds of the steps in one thread. Starts
and results are stored in OUT.
"""

from __future__ import annotations

import re
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from benchmarks.peers.scores import topic_scores
from pipelines.common import options
from pipelines.common.bags import read_counts, write_corpus
from pipelines.common.held_out import HELD_OUT, Split
from pipelines.common.options import ONE_THREAD
from pipelines.common.results import Arrays, Results, Row
from streaming_jsmf import InferSettings, ScanSettings, infer, scan
from streaming_jsmf.inference.polish import (
    DRAWN_DOCUMENTS,
    RELAXATION,
    ROUNDS,
    SAMPLE_DRAW,
    STEPS,
    document_draws,
    document_keys,
    first_topics,
    in_sample,
    log_lengths,
    longest_document,
    next_topics,
    over_relaxed,
    plan_steps,
    step_sums,
)
from streaming_jsmf.topics.parameters import prior_of

MEASURES = ("npmi", "held_out_npmi", "distinct", "perplexity", "cpu")


@dataclass(frozen=True)
class Schedule:
    """Number of steps, rounds per document, whether to draw topics, and the exponent of over-relaxed steps or 0."""

    steps: int
    rounds: int
    drawn: str
    relaxation: float

    @classmethod
    def parse(cls, text: str, relaxation: float) -> Schedule:
        if not (found := re.fullmatch(r"(\d+)x(\d+)([cd]?)", text)):
            raise click.BadParameter(f"{text} is not a schedule such as 10x4")
        return cls(int(found[1]), int(found[2]), found[3], relaxation)

    def run(self, counts: sparse.csr_array, start: Arrays, seed: int) -> Arrays:
        """The steps of ``polish`` in memory, in one thread."""
        topics, prior, longest = start["word_topic"], start["prior"], longest_document(*log_lengths(counts))
        draws = document_draws("benchmark", counts.shape[0], SAMPLE_DRAW, seed)
        n_documents = {"c": 0, "d": DRAWN_DOCUMENTS, "": counts.shape[0]}[self.drawn]
        steps = plan_steps(counts.nnz, n_documents, self.steps, self.rounds)
        for number, step in enumerate(steps):
            rows = np.flatnonzero(in_sample(draws, number, step.share))
            used = counts if step.share == 1 else counts[rows]
            keys = document_keys(draws[rows], number) if step.drawn else None
            sums = step_sums(used, topics, prior, rounds=step.rounds, longest=longest, keys=keys, threads=1)
            before, topics = topics, next_topics(sums.tokens, last=number + 1 == len(steps))
            if step.relaxed and self.relaxation:
                topics = over_relaxed(topics, before, self.relaxation)
        return {"word_topic": topics, "prior": prior}


def start_of(counts: sparse.csr_array, n_topics: int, seed: int) -> Arrays:
    """Topics before the first step, and the prior, by scan and inference with the defaults."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_corpus(root / "corpus", counts)
        settings = ScanSettings(max_topics=n_topics, seed=seed)
        moments = scan(root / "corpus", root / "moments", settings, ONE_THREAD)
        model = infer(moments, root / "model", InferSettings(n_topics), workers=1)
        used = np.asarray(counts.sum(axis=0), np.float64).ravel()
        return {
            "word_topic": first_topics(model.arrays["word_topic"], used / used.sum()),
            "prior": prior_of(model),
        }


def split_of(counts: sparse.csr_array, seed: int) -> Split:
    """Hold out every fifth document, starting elsewhere for each seed."""
    held = np.arange(counts.shape[0]) % HELD_OUT == HELD_OUT - 1 - seed % HELD_OUT
    return Split(counts[~held], counts[held])


@dataclass(frozen=True)
class Cells:
    """Results of schedules for a corpus, K and a seed, each computed once."""

    results: Results
    name: str
    counts: sparse.csr_array
    n_topics: int
    relaxation: float

    def row(self, schedule: str, seed: int) -> Row:
        split = split_of(self.counts, seed)
        key = {"corpus": self.name, "K": self.n_topics, "seed": seed}
        start = self.results.arrays(
            {**key, "start": True}, lambda: start_of(split.fitted, self.n_topics, seed)
        )

        def make() -> Row:
            began = time.process_time()
            found = Schedule.parse(schedule, self.relaxation).run(split.fitted, start, seed)
            seconds = time.process_time() - began
            return {**topic_scores(found, split), "cpu": seconds}

        return self.results.row({**key, "schedule": schedule, "relaxation": self.relaxation}, make)


@click.command(help=__doc__)
@options.OUT
@click.option("--corpus", "corpora", multiple=True, required=True, help="NAME=PATH; may be repeated.")
@options.several("topics", [20, 50])
@options.several("schedules", [f"{STEPS}x{ROUNDS}", "30x4"])
@click.option("--relaxation", default=RELAXATION, show_default=True, help="Exponent of every other step.")
@click.option("--seeds", default=3, show_default=True, help="Number of seeds, from 0 on.")
def main(
    out: Path,
    corpora: tuple[str, ...],
    topics: list[int],
    schedules: list[str],
    relaxation: float,
    seeds: int,
) -> None:
    click.echo("| corpus | K | schedule | NPMI | held out | distinct | perplexity | CPU s |")
    click.echo("|---|---:|---|---:|---:|---:|---:|---:|")
    for corpus in corpora:
        name, _, path = corpus.partition("=")
        counts = read_counts(Path(path))
        for n_topics in topics:
            cells = Cells(Results(out), name, counts, n_topics, relaxation)
            for schedule in schedules:
                rows = [cells.row(schedule, seed) for seed in range(seeds)]
                npmi, held_out, distinct, perplexity, cpu = (
                    np.mean([row[measure] for row in rows]) for measure in MEASURES
                )
                click.echo(
                    f"| {name} | {n_topics} | {schedule} | {npmi:.4f} | {held_out:.4f} | {distinct:.3f} "
                    f"| {perplexity:,.0f} | {cpu:.2f} |"
                )


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
