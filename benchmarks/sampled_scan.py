"""Scans of one corpus by each way of finding the range, beside scikit-learn's TruncatedSVD: time and error.

    python -m benchmarks.sampled_scan [CORPUS] [--max-topics 50] [--documents 250000] [--words 30000]

`scan` runs in this process with one thread; its seconds are those of the processor, from opened corpus to committed
store. TruncatedSVD (randomized, n_iter = 2, 2 K components) gets the matrix H of all documents in memory, without the
time to read and scale it. The error is ||Y Y' - Y* Y*'||_F / ||Y* Y*'||_F of the K leading eigenpairs, Y* from block
power steps with C over all documents until they move by less than a thousandth. Of TruncatedSVD the diagonal of C is
taken off its product V S^2 V', and the leading eigenpairs are those of what is left.

Without CORPUS one is simulated. Ratios of one run; the seconds belong to the machine.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.decomposition import TruncatedSVD

from streaming_jsmf import Execution, ScanSettings, open_corpus, scan
from streaming_jsmf.blocks.units import list_units, plan_partitions
from streaming_jsmf.corpus import Corpus
from streaming_jsmf.evaluation.matching import yy_error
from streaming_jsmf.linalg.blas import single_blas_thread
from streaming_jsmf.linalg.eigen import Eigenpairs, factor_eigenpairs
from streaming_jsmf.linalg.factor import apply_gram
from streaming_jsmf.moments.partition import load_partition
from streaming_jsmf.moments.reader import Moments
from streaming_jsmf.rectification.result import positive_half
from streaming_jsmf.simulation import simulate_lda

#: Settings that are compared, by name.
METHODS: dict[str, dict[str, Any]] = {
    "factors, 1 scan": {"range_finder": "factors", "scans": 1},
    "factors, 2 scans": {"range_finder": "factors"},
    "sample": {"range_finder": "sample"},
}

#: The reference is there when a step moves Y Y' by less; or after so many steps.
REFERENCE_CHANGE, REFERENCE_STEPS = 1e-3, 30

Floats = NDArray[np.float64]


def whole_matrix(corpus: Corpus, settings: ScanSettings) -> tuple[csr_array[Any], Floats, float]:
    """H of all documents as one partition, D and the total weight, both before the division."""
    (partition,) = plan_partitions(list_units(corpus), corpus.nonzeros + 1)
    loaded = load_partition(partition, corpus.n_words, settings.document_weights)
    return loaded.block, loaded.sums.diagonal, loaded.sums.total_weight


def reference_half(
    block: csr_array[Any], diagonal: Floats, weight: float, start: Floats, n_topics: int
) -> Floats:
    """Y* by block power steps with C and Ritz pairs, from the vectors of a scan."""
    vectors, half = start, np.zeros((start.shape[0], n_topics))
    for _ in range(REFERENCE_STEPS):
        basis, _ = np.linalg.qr(vectors)
        product = (apply_gram(block, basis.astype(np.float32)) - diagonal[:, None] * basis) / weight
        small = basis.T @ product
        values, rotation = np.linalg.eigh((small + small.T) / 2)
        pairs = Eigenpairs(values[::-1], (basis @ rotation)[:, ::-1])
        before, half = half, positive_half(pairs, n_topics)
        vectors = product
        if np.any(before) and yy_error(half, before) < REFERENCE_CHANGE:
            break
    return half


def svd_half(
    block: csr_array[Any], diagonal: Floats, weight: float, width: int, n_topics: int
) -> tuple[Floats, float]:
    """Y of TruncatedSVD, and the processor seconds of its fit."""
    started = time.process_time()
    fitted = TruncatedSVD(width, n_iter=2, random_state=0).fit(block)
    seconds = time.process_time() - started
    factor = (fitted.components_.T * fitted.singular_values_ / np.sqrt(weight)).astype(np.float32)
    return positive_half(factor_eigenpairs(factor, diagonal / weight, n_topics), n_topics), seconds


def scanned(corpus: Corpus, settings: ScanSettings, store: Path) -> tuple[Moments, float]:
    """A scan with one thread, and its processor seconds."""
    started = time.process_time()
    moments = scan(corpus.root, store, settings, Execution("synchronous"))
    return moments, time.process_time() - started


def simulated(folder: Path, documents: int, words: int) -> str:
    """A corpus of topics that share their words."""
    simulate_lda(folder, n_documents=documents, n_words=words, n_topics=80, mean_length=90, zipf=1.05, seed=0)
    return str(folder)


@click.command(help=__doc__)
@click.argument("corpus", required=False)
@click.option("--max-topics", default=50, show_default=True)
@click.option("--documents", default=250_000, show_default=True, help="To simulate.")
@click.option("--words", default=30_000, show_default=True, help="To simulate.")
@click.option("--sample-share", default=None, type=float, help="As of scan.")
def main(corpus: str | None, max_topics: int, documents: int, words: int, sample_share: float | None) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        opened = open_corpus(corpus or simulated(folder / "corpus", documents, words))
        click.echo(
            f"{opened.n_documents:,} documents, {opened.n_words:,} words, {opened.nonzeros:,} nonzeros, "
            f"K = {max_topics}"
        )
        halves, seconds = {}, {}
        for method, fields in METHODS.items():
            asked = sample_share if method == "sample" else None
            settings = ScanSettings(max_topics=max_topics, sample_share=asked, **fields)
            moments, seconds[method] = scanned(opened, settings, folder / method.replace(" ", "-"))
            halves[method] = positive_half(moments.eigenpairs(max_topics), max_topics)
            if method.startswith("factors"):
                start = moments.eigenpairs(max_topics, extra=settings.basis_width).vectors
            elif (share := moments.store.manifest.sample_share) is not None:
                told = moments.store.scalars("eigenpairs")["estimated_error"]
                click.echo(
                    f"share of the documents in the sample: {share:.3g}; error that it tells: {told:.4f}"
                )
        block, diagonal, weight = whole_matrix(opened, settings)
        with single_blas_thread():
            svd = f"TruncatedSVD, {settings.basis_width} components"
            halves[svd], seconds[svd] = svd_half(block, diagonal, weight, settings.basis_width, max_topics)
            reference = reference_half(block, diagonal, weight, start, max_topics)
    click.echo("| method | CPU seconds | beside TruncatedSVD | beside factors, 2 scans | error |")
    click.echo("|---|---:|---:|---:|---:|")
    for method, half in halves.items():
        each = (seconds[method], *(seconds[method] / seconds[other] for other in (svd, "factors, 2 scans")))
        click.echo(
            "| {} | {:.1f} | {:.2f} | {:.2f} | {:.4f} |".format(method, *each, yy_error(half, reference))
        )


if __name__ == "__main__":
    main()
