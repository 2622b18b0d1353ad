"""TOD with M2 as a dense matrix: memory, time and the same eigenpairs as without the matrix, against the vocabulary.

    python -m pipelines.tod_dense OUT [--values 3000,10000,30000,100000] [--memory 4]

The STOD paper reports that TOD fails at 100,000 words, because it forms M2, a dense V x V matrix, which
`pipelines.common.tod` does not. Here it is formed (float64) for simulated documents, with its K = 50 eigenpairs by
Lanczos iterations, in a process of its own. A vocabulary whose matrix needs more than --memory GB is refused before
anything is allocated.

OUT keeps the results, so an interrupted command can be run again; it gets tod_dense.parquet and tod_dense.md.
"""

from __future__ import annotations

import multiprocessing
import resource
import tempfile
import time
from pathlib import Path

import click
import numpy as np
from scipy import sparse
from scipy.sparse.linalg import eigsh

from pipelines.common import options
from pipelines.common.bags import read_counts
from pipelines.common.results import CellMissing, Results, Row, publish
from pipelines.common.tables import markdown, number
from pipelines.common.tod import DocumentMoments
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.simulation import simulate_lda

ALPHA0 = 1.0


def needed(n_words: int) -> int:
    """Bytes of M2."""
    return 8 * n_words**2


def dense_second(moments: DocumentMoments) -> np.ndarray:
    """M2 (Eq. 4), V x V, from products with blocks of unit vectors; no second matrix of that size."""
    n = len(moments.word_mean)
    matrix = np.empty((n, n))
    for start in range(0, n, 200):
        rows = slice(start, min(start + 200, n))
        units = np.zeros((n, rows.stop - rows.start))
        units[np.arange(rows.start, rows.stop), np.arange(units.shape[1])] = 1.0
        matrix[rows] = moments.second(units).T
    return matrix


def measured(counts: sparse.csr_array, n_topics: int) -> Row:
    """CPU seconds with and without the matrix, largest relative difference of eigenvalues, peak memory in GB."""
    with single_blas_thread():
        moments = DocumentMoments(counts, ALPHA0, "uniform")
        started = time.process_time()
        values, _ = moments.whiten(n_topics)
        without = time.process_time() - started
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        started = time.process_time()
        matrix = dense_second(moments)
        found = eigsh(matrix, n_topics, which="LA", v0=np.sqrt(moments.word_mean), return_eigenvectors=False)
        seconds = time.process_time() - started
    found = np.sort(found)[::-1][: len(values)]
    return {
        "without": without,
        "seconds": seconds,
        "difference": float(np.abs(found / values - 1).max()),
        "without_peak": before / 1e6,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


def _apart(documents: int, words: int, topics: int) -> Row:
    with tempfile.TemporaryDirectory() as name:
        corpus = Path(name) / "corpus"
        simulate_lda(corpus, n_documents=documents, n_words=words, n_topics=topics, mean_length=100, seed=0)
        return measured(read_counts(corpus), topics)


def row(documents: int, words: int, topics: int, limit: float, results: Results) -> Row:
    """Measurements, or the refusal, of one vocabulary."""
    told: Row = {"words": words, "needed": needed(words) / 1e9, "refused": needed(words) > limit * 1e9}
    if told["refused"]:
        return told
    key = {"documents": documents, "words": words, "topics": topics}

    def make() -> Row:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            return pool.apply(_apart, (documents, words, topics))

    return told | results.row(key, make)


def table(rows: list[Row]) -> str:
    lines = []
    for each in rows:
        cells = ["refused", "", "", "", ""]
        if not each["refused"]:
            cells = [
                number(each[name], 2) for name in ("seconds", "without", "peak", "without_peak", "difference")
            ]
        lines.append([f"{each['words']:,}", number(each["needed"], 2), *cells])
    header = [
        "seconds",
        "without M2, s",
        "peak, GB",
        "peak without M2, GB",
        "largest difference of eigenvalues",
    ]
    return markdown(["words", "M2, GB", *header], lines, text=0)


@click.command(help=__doc__)
@options.OUT
@options.several("values", [3000, 10_000, 30_000, 100_000], help="Numbers of words.")
@click.option("--documents", default=5000, show_default=True)
@click.option("--topics", default=50, show_default=True)
@click.option("--memory", default=4.0, show_default=True, help="Largest M2 in GB.")
@options.quick("small vocabularies")
@options.ONLY_KEPT
def main(
    out: Path, values: list[int], documents: int, topics: int, memory: float, quick: bool, only_kept: bool
) -> None:
    if quick:
        values, documents, topics, memory = [200, 400, 100_000], 300, 3, 0.01
    results, rows = Results(out / "tod_dense", only_kept), []
    for words in values:
        try:
            rows.append(row(documents, words, topics, memory, results))
        except CellMissing:
            continue
    text = table(rows)
    publish(out, "tod_dense", rows, text)
    click.echo(text)


if __name__ == "__main__":
    main()
