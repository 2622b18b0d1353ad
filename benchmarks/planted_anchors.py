"""Error of topics on planted separable data by number of documents and rule for selecting anchors.

    python -m benchmarks.planted_anchors [--documents 3000,10000,30000,100000] [--seeds 5] [--chart FILE.svg]

N = 2,000 words, K = 20 topics, each with an anchor of 1 % of its mass, documents of about 100 tokens. Topics are
`broad`, as in `simulate --separable` (Dirichlet parameters of 0.1 per word), or `narrow` (0.01), with few words of
which many are nearly anchors. Moments are exact (Lanczos on the co-occurrence), followed by ENN and LAW with default
settings; only the selection of anchors differs. Prints the mean L1 distance (at most 2) of matched topics over seeds,
and the largest ratio to the error with the planted anchors. The chart requires matplotlib (extra `notebook`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import eigsh

from pipelines.common.matching import match_topics
from streaming_jsmf.config import InferSettings, SimulationSettings
from streaming_jsmf.inference.anchors import DegenerateAnchorsError
from streaming_jsmf.inference.law import AnchorRules, low_rank_anchor_words
from streaming_jsmf.linalg.eigen import with_fixed_signs
from streaming_jsmf.rectification.enn import epsilon_nonnegative
from streaming_jsmf.simulation.simulate import batch_documents, make_sampler, simulate_batch
from streaming_jsmf.simulation.truth import truth_of

Floats = NDArray[np.float64]
N_WORDS, N_TOPICS = 2_000, 20
BETA = {"broad": 0.1, "narrow": 0.01}
TRUE = "planted anchors given"


@dataclass(frozen=True)
class Counted:
    """C (N x N, capped weights), row sums u (N), document frequencies (N), and M documents with two or more tokens."""

    C: Floats
    row_sum: Floats
    document_frequency: NDArray[np.int64]
    n_documents: int


def count(simulated: SimulationSettings) -> Counted:
    """Eq. 1 for simulated documents, in batches."""
    sampler = make_sampler(simulated)
    n, n_documents = simulated.n_words, simulated.n_documents
    C, diagonal, row_sum = np.zeros((n, n)), np.zeros(n), np.zeros(n)
    frequency, total, kept = np.zeros(n, dtype=np.int64), 0.0, 0
    for number in range(-(-n_documents // batch_documents(simulated))):
        drawn = simulate_batch(sampler, n_documents, number)
        counts = drawn.bags.matrix(n).astype(np.float64)
        counts = counts[counts.sum(axis=1) >= 2]
        lengths = counts.sum(axis=1)
        weights = np.minimum(lengths, 200.0)
        pairs = weights / (lengths * (lengths - 1))
        scaled = sparse.csr_array(sparse.diags_array(np.sqrt(pairs)) @ counts)
        C += (scaled.T @ scaled).toarray()
        diagonal += counts.T @ pairs
        row_sum += counts.T @ (weights / lengths)
        frequency += np.bincount(counts.indices, minlength=n)
        total, kept = total + float(weights.sum()), kept + counts.shape[0]
    C[np.diag_indices_from(C)] -= diagonal
    return Counted(C / total, row_sum / total, frequency, kept)


def rules_to_compare(counted: Counted, anchors: NDArray[np.int64]) -> dict[str, AnchorRules]:
    """The default rules, those of the papers, a mask only, SoftClique, and the true anchors."""
    settings, m = InferSettings(N_TOPICS), counted.n_documents
    return {
        TRUE: AnchorRules(given=[[int(word)] for word in anchors]),
        "default": AnchorRules("pivoted-qr", settings.anchor_floor(m), settings.shrinkage(m)),
        "mask of 1 %, no shrinkage": AnchorRules("pivoted-qr", 0.01 * m),
        "mask of 2 %, no shrinkage": AnchorRules("pivoted-qr", 0.02 * m),
        "papers: no mask": AnchorRules(),
        "SoftClique, mask of 1 %": AnchorRules("soft-clique", 0.01 * m),
    }


def errors(law_name: str, n_documents: int, seed: int) -> dict[str, float]:
    """Mean L1 of matched topics for each rule on one corpus."""
    settings = SimulationSettings(n_documents, N_WORDS, N_TOPICS, seed, beta=BETA[law_name], separable=True)
    truth, counted = truth_of(settings), count(settings)
    assert truth.anchors is not None
    values, vectors = eigsh(counted.C, N_TOPICS + 10, which="LA", v0=np.ones(N_WORDS))
    y = epsilon_nonnegative(with_fixed_signs(values, vectors), N_TOPICS).rectified
    found = {}
    for name, rules in rules_to_compare(counted, truth.anchors).items():
        try:
            topics = low_rank_anchor_words(y, counted.row_sum, counted.document_frequency, rules)
            found[name] = match_topics(topics.word_topic, truth.word_topic).mean_l1
        except DegenerateAnchorsError:
            found[name] = np.nan
    return found


def draw(results: Mapping[str, Mapping[int, Mapping[str, Sequence[float]]]], path: Path) -> None:
    """Draw mean error against number of documents: a panel per law, a line per rule."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams.update({"svg.hashsalt": "planted", "svg.fonttype": "none", "font.size": 9})
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    axes = figure.subplots(1, len(results), sharey=True, squeeze=False)[0]
    for axis, (law_name, by_size) in zip(axes, results.items(), strict=True):
        for name in next(iter(by_size.values())):
            means = [float(np.mean(values[name])) for values in by_size.values()]
            style = {"color": "black", "linestyle": "--"} if name == TRUE else {}
            width = 2.5 if name == "default" else 1.2
            axis.loglog(list(by_size), means, marker="o", markersize=3, linewidth=width, label=name, **style)
        axis.set(title=f"{law_name} topics", xlabel="documents")
    axes[0].set_ylabel("L1 of matched topics (of 2)")
    axes[-1].legend(fontsize=7)
    figure.savefig(path, metadata={"Date": None})


@click.command(help=__doc__)
@click.option("--documents", default="3000,10000,30000,100000", show_default=True)
@click.option("--seeds", default=5, show_default=True)
@click.option("--chart", type=click.Path(dir_okay=False, path_type=Path), default=None)
def main(documents: str, seeds: int, chart: Path | None) -> None:
    results: dict[str, dict[int, dict[str, list[float]]]] = {}
    click.echo(
        "| topics | M | anchors | L1 | to the planted anchors, mean | largest |\n|---|---:|---|---:|---:|---:|"
    )
    for law_name in BETA:
        results[law_name] = {}
        for m in (int(text) for text in documents.split(",")):
            gathered: dict[str, list[float]] = defaultdict(list)
            for seed in range(seeds):
                for name, error in errors(law_name, m, seed).items():
                    gathered[name].append(error)
            results[law_name][m] = gathered
            for name, values in gathered.items():
                ratio = np.array(values) / np.array(gathered[TRUE])
                click.echo(
                    f"| {law_name} | {m:,} | {name} | {np.mean(values):.3f} | {ratio.mean():.2f} "
                    f"| {ratio.max():.2f} |"
                )
    if chart is not None:
        draw(results, chart)


if __name__ == "__main__":
    main()
