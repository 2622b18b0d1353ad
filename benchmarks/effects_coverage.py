"""How often intervals of 95 % of `effects` contain the truth, on simulated corpora with known effects.

    python -m benchmarks.effects_coverage [--simulations 200] [--documents 2000] [--designs balanced,rare,short]

The shares of a document are drawn from a Dirichlet distribution whose mean is linear in a class and a year, and its
words from the true topics, which the model has, with the mean prior. Designs: 100 words a document and classes of equal
size (`balanced`); one class with 5 % of the documents (`rare`); 12 words a document (`short`). `effects` (unbiased
estimates) is compared with regressions of the true shares and of the shares themselves, without draws, and with the
method of composition (--draws 25). Coverage is the part of all intervals, and of those of terms with an effect, that
contain the truth (and the least one of a term); bias is the mean error of effects as a part of them. The last column is
the mean ratio of the standard errors to the deviation of the estimates.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy.special import stdtrit

from streaming_jsmf import transform
from streaming_jsmf.documents.effects import effects
from streaming_jsmf.documents.share_files import open_shares
from streaming_jsmf.linalg.least_squares import NormalEquations, Scores
from streaming_jsmf.topics.store import Model

Floats = NDArray[np.float64]
N_WORDS, N_TOPICS, FORMULA = 1_000, 10, "party + year"
#: Sum of the Dirichlet parameters of the shares of a document.
CONCENTRATION = 1.0
#: Effects of the class and of a year on the first topics.
OF_CLASS, OF_YEAR = (0.06, -0.04, -0.02), (0.0, 0.0, 0.0, 0.004, -0.004)
#: Words of a document, and part of the documents in the second class.
DESIGNS = {"balanced": (100, 0.5), "rare": (100, 0.05), "short": (12, 0.5)}


@dataclass(frozen=True)
class Simulated:
    """Counts (M, N), class and year of documents, true topics (N, K), shares (M, K) and coefficients (3, K)."""

    counts: NDArray[np.int64]
    party: NDArray[np.str_]
    year: NDArray[np.int64]
    word_topic: Floats
    shares: Floats
    coefficients: Floats

    @property
    def model(self) -> Model:
        """The model with the true topics and the mean prior."""
        mean = self.shares.mean(axis=0)
        words = np.array([f"word{number:04d}" for number in range(len(self.word_topic))], dtype=object)
        arrays = {
            "word": words,
            "word_topic": self.word_topic,
            "topic_probability": mean,
            "term_count": self.counts.sum(axis=0).astype(float),
            "alpha": np.maximum(CONCENTRATION * mean, 1e-3),
        }
        return Model(arrays, {}, {}, {"fingerprint": "simulated"})

    def write(self, folder: Path) -> Path:
        """Write the corpus."""
        corpus = folder / "corpus"
        corpus.mkdir()
        ids = [np.flatnonzero(row) for row in self.counts]
        columns = {
            "ids": pa.array([row.tolist() for row in ids], pa.list_(pa.int32())),
            "counts": pa.array(
                [counts[row].tolist() for counts, row in zip(self.counts, ids, strict=True)],
                pa.list_(pa.int32()),
            ),
            "party": pa.array(self.party.tolist()),
            "year": pa.array(self.year),
        }
        pq.write_table(pa.table(columns), corpus / "part-00000.parquet")
        (corpus / "vocab.txt").write_text("\n".join(self.model.arrays["word"]) + "\n", encoding="utf-8")
        return corpus


def simulate(n_documents: int, length: float, rare: float, seed: int) -> Simulated:
    """Draw a corpus; the topics are the same for all seeds. A third of the words of a topic are those of all."""
    of_topics = np.random.default_rng(7)
    common = 1 / np.arange(1, N_WORDS + 1) ** 0.8
    own = of_topics.dirichlet(np.full(N_WORDS, 0.1), N_TOPICS).T
    word_topic = 0.7 * own + 0.3 * (common / common.sum())[:, None]
    random = np.random.default_rng(seed)
    in_class = random.random(n_documents) < rare
    year = random.integers(2000, 2020, n_documents)
    coefficients = np.zeros((3, N_TOPICS))
    coefficients[0] = 1 / N_TOPICS
    coefficients[1, : len(OF_CLASS)], coefficients[2, : len(OF_YEAR)] = OF_CLASS, OF_YEAR
    coefficients[0] -= 2009.5 * coefficients[2]
    means = np.column_stack([np.ones(n_documents), in_class, year]) @ coefficients
    shares = np.stack([random.dirichlet(CONCENTRATION * row) for row in means])
    lengths = np.maximum(random.poisson(length, n_documents), 1)
    words = shares @ word_topic.T
    counts = np.stack([random.multinomial(n, row / row.sum()) for n, row in zip(lengths, words, strict=True)])
    return Simulated(counts, np.where(in_class, "right", "left"), year, word_topic, shares, coefficients)


def regressed(theta: Floats, drawn: Simulated) -> tuple[Floats, Floats]:
    """Coefficients of shares (3, K), and half of their intervals."""
    rows = np.column_stack([np.ones(len(theta)), drawn.party == "right", drawn.year - 2009.5]).astype(float)
    normal = NormalEquations.zeros(3, N_TOPICS)
    normal.add(rows, np.eye(3), theta)
    solution = normal.solved()
    scores = Scores.zeros(solution)
    scores.add(rows, theta)
    errors = np.sqrt(np.diagonal(scores.covariances(), axis1=1, axis2=2)).T
    return solution.coefficients, stdtrit(len(theta) - 3, 0.975) * errors


def one(design: str, n_documents: int, draws: int, seed: int) -> dict[str, tuple[Floats, Floats]]:
    """Errors (2, K) of the effects by each method in one simulation, and half the widths of their intervals."""
    length, rare = DESIGNS[design]
    drawn = simulate(n_documents, length, rare, seed)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        corpus, model = drawn.write(Path(folder)), drawn.model
        transform(model, corpus, Path(folder) / "shares.parquet", scheduler="synchronous")
        shares = open_shares(Path(folder) / "shares.parquet")
        [theta] = [theta for theta, _ in shares.dense()]
        found["true shares"], found["shares, without draws"] = (
            regressed(drawn.shares, drawn),
            regressed(theta, drawn),
        )
        for name, options in {
            "composition": {"draws": draws, "seed": seed},
            "effects": {"corpus": corpus},
        }.items():
            made = effects(model, shares, FORMULA, **options)
            found[name] = made.coefficients.T, made.quantile * made.errors.T
    return {
        name: (estimates[1:] - drawn.coefficients[1:], half[1:]) for name, (estimates, half) in found.items()
    }


def rows(design: str, simulations: int, n_documents: int, draws: int, processes: int) -> Iterator[str]:
    """A line for each method."""
    run: Callable[[int], dict[str, tuple[Floats, Floats]]] = partial(one, design, n_documents, draws)
    with ProcessPoolExecutor(processes) as pool:
        results = [*pool.map(run, range(simulations))]
    truth = simulate(2, 1, 0.5, 0).coefficients[1:]
    own = truth != 0
    for name in results[0]:
        errors, half = (np.stack([result[name][place] for result in results]) for place in (0, 1))
        covered = np.abs(errors) <= half
        ratio = half.mean(axis=0) / stdtrit(n_documents - 3, 0.975) / errors.std(axis=0)
        bias = (errors.mean(axis=0)[own] / truth[own]).mean()
        yield (
            f"| {design} | {name} | {covered.mean():.1%} | {covered[:, own].mean():.1%} | "
            f"{covered[:, own].mean(axis=0).min():.1%} | {bias:+.1%} | {ratio.mean():.2f} |"
        )


@click.command(help=__doc__)
@click.option("--simulations", default=200)
@click.option("--documents", "n_documents", default=2000)
@click.option("--draws", default=25)
@click.option("--designs", default=",".join(DESIGNS))
@click.option("--processes", default=1)
def main(simulations: int, n_documents: int, draws: int, designs: str, processes: int) -> None:
    print("| design | method | all | with an effect | least | bias | error / deviation |")
    print("|---|---|---|---|---|---|---|")
    for design in designs.split(","):
        for row in rows(design, simulations, n_documents, draws, processes):
            print(row, flush=True)


if __name__ == "__main__":
    main()
