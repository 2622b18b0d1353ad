"""Starts of LR-JSMF compared: the paper's single pass, power iterations, all documents, and samples.

    python -m pipelines.one_pass OUT --corpus nips=data_specs/uci_nips --corpus kos=KOS [--topics 20] [--seeds 5]

LR-JSMF computes K eigenpairs of C from the documents, and ENN starts from them. The paper uses the single-pass sketch
of Halko et al. (2011) and mentions power iterations. This script measures, for each start and seed, the error of the K
leading eigenpairs (of V D V' in the Frobenius norm, relative to the best matrix of rank K), and the anchors and topics
of the same ENN in comparison with those from exact eigenpairs.

`one pass, whole range` solves for all L columns of the sketch, as printed; `one pass` keeps the L / 2 leading columns
of its range, which is what `scan --range halko` does. `power` multiplies K + 10 columns by C, once per pass.
`authors' code` is what the code of the paper's authors computes (`randEig_Bows`, footnote 5 of the paper): 2 K probes
and T further multiplications by a shifted C; their default T is 50. `scan` is a scan of this package, whose store holds
all documents or a sample.

OUT keeps stores and results; it gets one_pass.parquet, one_pass.md, one_pass.svg and one_pass.json.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import click
import numpy as np

from pipelines.common import options, pictures, rand_eig
from pipelines.common.data import NIPS, prepared
from pipelines.common.matching import match_topics
from pipelines.common.methods import METHODS, Floats, Setup
from pipelines.common.results import Results, Row, publish
from pipelines.common.tables import markdown, spread
from pipelines.lr_jsmf_fig4 import SparseScorer
from streaming_jsmf import ScanSettings, scan
from streaming_jsmf.inference.law import low_rank_anchor_words
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.linalg.eigen import Eigenpairs, single_view_eigenpairs
from streaming_jsmf.rectification.enn import epsilon_nonnegative
from streaming_jsmf.topics.anchor_words import anchor_rules

#: Multiplications of C with K + 10 columns.
PASSES = (2, 3, 5, 9)

#: Power iterations T of the authors' code: none, as the text of the paper; some; their default.
ITERATIONS = (0, 10, rand_eig.ITERATIONS)

#: Shares of the documents that a scan holds.
SHARES = (0.1, 0.25, 0.5, 1.0)


@dataclass(frozen=True)
class Start:
    """A way to compute eigenpairs: ``method`` and ``detail`` as in the table, ``size`` on the axis of the figure."""

    method: str
    detail: str
    size: float
    passes: int
    pairs: Callable[[int], Eigenpairs]


@dataclass(frozen=True)
class Trial:
    setup: Setup
    n_topics: int

    @cached_property
    def matrix(self) -> Floats:
        return self.setup.moments().cooccurrence()

    @cached_property
    def exact(self) -> Eigenpairs:
        with single_blas_thread():
            values, vectors = np.linalg.eigh(self.matrix)
        leading = slice(None, -self.n_topics - 11, -1)
        return Eigenpairs(values[leading], vectors[:, leading])

    @cached_property
    def scaled(self) -> SparseScorer:
        return SparseScorer(self.setup)

    def times(self, block: Floats) -> Floats:
        """C times a block, from the documents as in a pass over them."""
        h, diagonal = self.scaled.scaled, self.setup.moments().diagonal
        product: Floats = h.T @ (h @ block) - diagonal[:, None] * block
        return product

    def one_pass(self, width: int, rank: int, seed: int) -> Eigenpairs:
        probes = np.random.default_rng(seed).standard_normal((self.setup.corpus.n_words, width))
        return single_view_eigenpairs(self.times(probes), probes, rank)

    def power(self, passes: int, seed: int) -> Eigenpairs:
        """Rayleigh-Ritz pairs after ``passes - 1`` multiplications by C."""
        width = self.n_topics + 10
        block = np.random.default_rng(seed).standard_normal((self.setup.corpus.n_words, width))
        for _ in range(passes - 1):
            block = np.linalg.qr(self.times(block)).Q
        values, rotation = np.linalg.eigh(block.T @ self.times(block))
        return Eigenpairs(values[::-1], block @ rotation[:, ::-1])

    @cached_property
    def shift(self) -> float:
        return rand_eig.shift_of(self.times, self.setup.corpus.n_words)

    def authors(self, iterations: int, seed: int) -> Eigenpairs:
        size = self.setup.corpus.n_words
        return rand_eig.rand_eig(self.times, size, self.n_topics, iterations, seed, self.shift)

    def scanned(self, name: str, settings: ScanSettings) -> Eigenpairs:
        path = self.setup.folder / f"moments-{name}-{settings.seed}"
        moments = scan(self.setup.corpus.root, path, settings, options.ONE_THREAD)
        return moments.eigenpairs(self.n_topics)

    def sampled(self, share: float, seed: int) -> Eigenpairs:
        settings = ScanSettings(
            max_topics=self.n_topics,
            document_weights="uniform",
            sample_share=share,
            seed=seed,
        )
        return self.scanned(f"sampled-{share}", settings)

    def starts(self, widths: Sequence[int]) -> Iterator[Start]:
        for width in sorted({self.n_topics + 10, *widths}):
            shown = f"L = {width}"
            yield Start("one pass, whole range", shown, width, 1, lambda s, w=width: self.one_pass(w, w, s))
            rank = max(self.n_topics, width // 2)
            yield Start("one pass", shown, width, 1, lambda s, w=width, r=rank: self.one_pass(w, r, s))
        for passes in PASSES:
            shown = f"L = {self.n_topics + 10}"
            yield Start("power", shown, self.n_topics + 10, passes, lambda s, p=passes: self.power(p, s))
        for steps in ITERATIONS:
            shown, width = f"L = {2 * self.n_topics}, T = {steps}", 2 * self.n_topics
            yield Start("authors' code", shown, width, 1 + steps, lambda s, t=steps: self.authors(t, s))
        width = ScanSettings(max_topics=self.n_topics).basis_width
        for share in SHARES:
            shown, passes = f"m = {width}, {share:.0%} of the documents", 3 if share < 1 else 2
            yield Start("scan", shown, width, passes, lambda s, part=share: self.sampled(part, s))

    def topics(self, pairs: Eigenpairs) -> tuple[Floats, Floats]:
        """Word topics and anchors of ENN and LAW from eigenpairs."""
        moments, k = self.setup.moments(), self.n_topics
        rules = anchor_rules(self.setup.settings(METHODS["ENN"], k), moments.n_documents)
        found = epsilon_nonnegative(pairs, k)
        law = low_rank_anchor_words(found.rectified, moments.row_sum, moments.document_frequency, rules)
        return law.word_topic, law.anchors.words

    @cached_property
    def reference(self) -> tuple[Floats, Floats]:
        with single_blas_thread():
            return self.topics(self.exact)

    def measured(self, start: Start, seed: int) -> Row:
        k = self.n_topics
        with single_blas_thread():
            pairs = start.pairs(seed)
            own, best = (self._half(each.leading(k)) for each in (pairs, self.exact))
            norm = float(np.sum((best.T @ best) ** 2))
            distance = norm + float(np.sum((own.T @ own) ** 2)) - 2 * float(np.sum((own.T @ best) ** 2))
            word_topic, anchors = self.topics(pairs)
            l1 = match_topics(word_topic, self.reference[0]).l1
        return {
            "eigen_error": float(np.sqrt(max(distance, 0.0) / norm)),
            "anchors_shared": len({*anchors.tolist()} & {*self.reference[1].tolist()}),
            "l1": float(l1.mean()),
        }

    @staticmethod
    def _half(pairs: Eigenpairs) -> Floats:
        half: Floats = pairs.vectors * np.sqrt(np.maximum(pairs.values, 0.0))
        return half

    def rows(self, name: str, widths: Sequence[int], seeds: int, results: Results) -> Iterator[Row]:
        for start in self.starts(widths):
            for seed in range(seeds):
                shown = {"method": start.method, "detail": start.detail, "passes": start.passes, "seed": seed}
                key = {"start": shown, "K": self.n_topics, "corpus": self.setup.corpus.fingerprint}
                row = results.row(key, lambda start=start, seed=seed: self.measured(start, seed))  # type: ignore[misc]
                yield {"corpus": name, "K": self.n_topics, "size": start.size, **shown, **row}


def table(rows: Sequence[Row]) -> str:
    groups: dict[tuple[str, int, str, str, int], list[Row]] = {}
    for row in rows:
        key = (row["corpus"], row["K"], row["method"], row["detail"], row["passes"])
        groups.setdefault(key, []).append(row)
    lines = []
    for group, several in groups.items():
        shared = sorted(row["anchors_shared"] for row in several)
        errors = (spread([row[name] for row in several]) for name in ("eigen_error", "l1"))
        lines.append(
            [*group, *errors, "-".join(f"{each}" for each in dict.fromkeys([shared[0], shared[-1]]))]
        )
    header = ["corpus", "K", "start", "size", "passes", "eigenpairs off", "L1 of topics", "anchors shared"]
    return markdown(header, lines, text=1)


def draw(rows: Sequence[Row], path: Path) -> None:
    """Errors against the columns of the sketch, with the other starts as labelled points."""
    corpora = list(dict.fromkeys((row["corpus"], row["K"]) for row in rows))
    figure, axes = pictures.panels(len(corpora), 2, width=3.6, height=2.4)
    labels = {"eigen_error": "relative error of K eigenpairs", "l1": "L1 of topics (of 2)"}
    for (corpus, k), line in zip(corpora, axes, strict=True):
        for (column, label), panel in zip(labels.items(), line, strict=True):
            there = [row for row in rows if (row["corpus"], row["K"]) == (corpus, k)]
            series: dict[str, dict[float, list[float]]] = {}
            for row in there:
                name = row["method"]
                if name == "power":
                    name = f"power, {row['passes']} passes"
                elif name == "authors' code":
                    name += f", {row['detail'].split(', ')[1]}"
                elif name == "scan":
                    name = f"scan, {row['detail'].split(', ')[1]}"
                series.setdefault(name, {}).setdefault(row["size"], []).append(row[column])
            for number, (name, points) in enumerate(series.items()):
                means = {x: float(np.mean(values)) for x, values in sorted(points.items())}
                style = {"marker": "Ds^vP<>oXhd*"[number % 12], "markersize": 4, "markerfacecolor": "none"}
                panel.plot([*means], [*means.values()], label=name, linewidth=1, **style)
            panel.set(xscale="log", yscale="log", xlabel="columns L")
            pictures.ticks(panel, [row["size"] for row in there])
            panel.set_title(f"{corpus}, K = {k}: {label}", fontsize=8)
    pictures.legend(figure, columns=3)
    pictures.save(figure, path)


@click.command(help=__doc__)
@options.DRAWN_OUT
@options.corpora(words=2000)
@options.several("topics", [20])
@options.several("widths", [100, 200, 400, 800], help="Columns of the single pass, next to K + 10.")
@options.SEEDS
@options.quick("the shipped corpus, 300 words")
def main(
    out: Path,
    corpora: tuple[str, ...],
    words: int,
    topics: list[int],
    widths: list[int],
    seeds: int,
    quick: bool,
) -> None:
    if quick:
        corpora, words, topics, widths, seeds = (f"nips={NIPS}",), 300, [4], [50, 100], 2
    rows: list[Row] = []
    used = {}
    for named in corpora:
        name, corpus = prepared(named, out / "corpora", words)
        used[name] = corpus
        for n_topics in topics:
            setup = Setup(corpus, out / f"{name}-{words}" / f"k{n_topics}", n_topics)
            rows += Trial(setup, n_topics).rows(name, widths, seeds, setup.results)
    publish(out, "one_pass", rows, table(rows), used)
    draw(rows, out / "one_pass.svg")
    click.echo(table(rows))


if __name__ == "__main__":
    main()
