"""Compare a fitted model with a dense reference: alternating projections and the anchor word algorithm.

    python -m benchmarks.dense_reference CORPUS MODEL --topics 20
    python -m benchmarks.dense_reference CORPUS --topics 20        # the topics of the reference
    python -m benchmarks.dense_reference --check                   # compare the fast versions here with the test oracle

Builds the N x N co-occurrence (200 MB for N = 5000; the peak is a few times that), rectifies it in float64 with
Algorithm 2 of Lee et al. (ICML 2021), and runs Algorithm 1 with the guards and shrunken rows of the package.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import eigsh

from pipelines.common.bags import Bag, read_bag
from pipelines.common.matching import match_topics, yy_error
from streaming_jsmf.inference.words import prominent_words
from streaming_jsmf.linalg.simplex import simplex_least_squares

Floats = NDArray[np.float64]
#: Extra columns of the iterated basis; they speed up the convergence of the K leading ones.
EXTRA_COLUMNS = 10
RESIDUAL = 1e-9


@dataclass(frozen=True)
class Statistics:
    """C (N x N, Eq. 1 with weights), row sums u (N), document frequencies (N), and M documents with n >= 2."""

    C: Floats
    row_sum: Floats
    document_frequency: NDArray[np.int64]
    n_documents: int


@dataclass(frozen=True)
class Rectified:
    """Last C_t (N x N), its factor Y (N x K), and the last relative change of Y Y'."""

    matrix: Floats
    factor: Floats
    change: float


@dataclass(frozen=True)
class Reference:
    """Anchors (K), word_topic (N x K), and the sum of A, near 1 for good anchors."""

    anchors: NDArray[np.int64]
    word_topic: Floats
    topic_topic_sum: float


def statistics(counts: sparse.csr_array, scheme: str) -> Statistics:
    """Dense C, exact row sums and document frequencies of the documents with at least two tokens."""
    counts = counts[counts.sum(axis=1) >= 2]
    n = counts.sum(axis=1)
    weights = {"capped": np.minimum(n, 200.0), "uniform": np.ones_like(n), "length": n}[scheme]
    pair_weights = weights / (n * (n - 1)) / weights.sum()
    scaled = sparse.csr_array(sparse.diags_array(np.sqrt(pair_weights)) @ counts)
    C = (scaled.T @ scaled).toarray()
    C[np.diag_indices_from(C)] -= counts.T @ pair_weights
    row_sum = counts.T @ (weights / n / weights.sum())
    return Statistics(C, row_sum, np.bincount(counts.indices, minlength=len(C)), len(n))


def leading(matrix: Floats, K: int, start: Floats | None) -> tuple[Floats, Floats]:
    """Largest algebraic eigenpairs (values, vectors), K + EXTRA_COLUMNS of them if the matrix is large enough.

    From ``start``, subspace iteration with Rayleigh-Ritz until the K leading residuals are below RESIDUAL lambda_1;
    Lanczos without a start, or if the iteration does not converge (no spectral gap).
    """
    if start is not None:
        basis = start
        for _ in range(60):
            image = matrix @ basis
            small = basis.T @ image
            values, rotation = np.linalg.eigh((small + small.T) / 2)
            values, rotation = values[::-1], rotation[:, ::-1]
            residual = (image @ rotation - (basis @ rotation) * values)[:, :K]
            if np.linalg.norm(residual, axis=0).max() <= RESIDUAL * values[0]:
                return values, basis @ rotation
            basis = np.linalg.qr(image)[0]
    width = min(K + EXTRA_COLUMNS, len(matrix) - 1)
    first = np.ones(len(matrix)) if start is None else start.sum(axis=1)
    values, vectors = eigsh(
        matrix, width, which="LA", v0=first, ncv=min(4 * width, len(matrix)), tol=RESIDUAL
    )
    order = np.argsort(-values)
    return values[order], vectors[:, order]


def positive_part(values: Floats, vectors: Floats, K: int) -> Floats:
    """Y = U_K max(Lambda_K, 0)^(1/2), N x K."""
    return vectors[:, :K] * np.sqrt(np.maximum(values[:K], 0.0))


def alternating_projections(C: Floats, K: int, iterations: int) -> Rectified:
    """Algorithm 2: PSD_K, NOR and NN in turn, in one N x N array; ``change`` is the last change of Y Y'."""
    values, vectors = leading(C, K, None)
    Y, matrix = positive_part(values, vectors, K), np.empty_like(C)
    change = np.inf
    for _ in range(iterations):
        np.matmul(Y, Y.T, out=matrix)
        matrix += (1.0 - (Y.sum(axis=0) ** 2).sum()) / C.size
        np.maximum(matrix, 0.0, out=matrix)
        values, vectors = leading(matrix, K, vectors)
        following = positive_part(values, vectors, K)
        change, Y = yy_error(following, Y), following
    return Rectified(matrix, Y, change)


def epsilon_non_negative(C: Floats, K: int, iterations: int) -> Rectified:
    """Algorithm 3 with |I| = 10 K + 1000, stored densely."""
    values, vectors = leading(C, K, None)
    Y, matrix = positive_part(values, vectors, K), np.empty_like(C)
    change = np.inf
    for _ in range(iterations):
        chosen = np.zeros(len(C), dtype=bool)
        chosen[np.argsort(-np.linalg.norm(Y, axis=1), kind="stable")[: 10 * K + 1000]] = True
        np.matmul(Y, Y.T, out=matrix)
        np.maximum(matrix, 0.0, out=matrix, where=chosen[:, None] | chosen)
        matrix += (1.0 - matrix.sum()) / C.size
        values, vectors = leading(matrix, K, vectors)
        following = positive_part(values, vectors, K)
        change, Y = yy_error(following, Y), following
    return Rectified(matrix, Y, change)


def anchor_guard(d: Floats, data: Statistics, minimum: float | None) -> NDArray[np.bool_]:
    """Mask of possible anchors: d > 0.1 u, in at least ``minimum`` documents (None: 1 %, at least min(20, M / 50))."""
    if minimum is None:
        minimum = max(0.01 * data.n_documents, min(20.0, data.n_documents / 50.0))
    return (d > 0.1 * data.row_sum) & (data.document_frequency >= minimum)


def kept_distance(data: Statistics) -> Floats:
    """Fraction of a row's distance from the mean row that pivoting uses: df / (df + 2 M^(1/2)), N."""
    return data.document_frequency / (data.document_frequency + 2.0 * data.n_documents**0.5)


def anchor_word_algorithm(
    C: Floats, K: int, allowed: NDArray[np.bool_], kept: Floats | float = 1.0
) -> Reference:
    """Algorithm 1 on a non-negative C; ``kept`` as returned by `kept_distance`, 1 as in the paper."""
    d = C.sum(axis=1)
    usable = allowed & (d > 0)
    rows = np.divide(C, d[:, None], out=np.zeros_like(C), where=d[:, None] > 0)
    centre = C.sum(axis=0) / C.sum()
    residual = centre + (rows - centre) * np.broadcast_to(kept, len(C))[:, None]
    anchors: list[int] = []
    for _ in range(K):
        squares = np.where(usable, np.einsum("ij,ij->i", residual, residual), -1.0)
        squares[anchors] = -1.0
        best = int(np.argmax(squares))
        direction = residual[best] / np.linalg.norm(residual[best])
        residual -= np.outer(residual @ direction, direction)
        anchors.append(best)
    S = np.array(anchors)
    shares = np.where(d[:, None] > 0, simplex_least_squares(rows, rows[S]).weights, 0.0)
    joint = shares * d[:, None]
    B = joint / joint.sum(axis=0)
    diagonal = B[S, np.arange(K)]
    A = np.maximum(C[np.ix_(S, S)], 0.0) / np.outer(diagonal, diagonal)
    return Reference(S, B, float(A.sum()))


def check() -> None:
    """Compare the functions of this file with the oracle on a small corpus; raises AssertionError."""
    from tests import reference as oracle

    rng = np.random.default_rng(0)
    H = np.array([rng.multinomial(rng.poisson(25), rng.dirichlet(np.full(80, 0.1))) for _ in range(150)])
    data = statistics(sparse.csr_array(H.astype(float)), "capped")
    C = oracle.cooccurrence(H, oracle.document_weights(H.sum(axis=1), "capped"))
    np.testing.assert_allclose(data.C, C, atol=1e-16)
    np.testing.assert_allclose(data.row_sum, C.sum(axis=1), atol=1e-15)
    fast, slow = alternating_projections(C, 5, 40), oracle.alternating_projection(C, 5, 40)
    assert np.linalg.norm(fast.matrix - slow.matrix) < 1e-7 * np.linalg.norm(slow.matrix)
    dense = oracle.enn(C, 5, 1050, 40)
    assert yy_error(epsilon_non_negative(C, 5, 40).factor, dense) < 1e-7
    allowed = anchor_guard(slow.matrix.sum(axis=1), data, None)
    found, expected = (
        anchor_word_algorithm(slow.matrix, 5, allowed),
        oracle.anchor_word_algorithm(slow.matrix, 5, allowed),
    )
    np.testing.assert_array_equal(found.anchors, expected.anchors)
    np.testing.assert_allclose(found.word_topic, expected.word_topic, atol=1e-8)
    click.echo("the dense versions agree with the oracle")


def most_frequent(bag: Bag, count: int) -> Bag:
    """Keep the ``count`` words with the largest document frequency, in vocabulary order."""
    frequency = np.bincount(bag.counts.indices, minlength=len(bag.words))
    kept = np.sort(np.argsort(-frequency, kind="stable")[:count])
    return Bag(sparse.csr_array(bag.counts[:, kept]), [bag.words[i] for i in kept])


@dataclass(frozen=True)
class Fitted:
    """Arrays of a model: word_topic (N x K), anchors (K), Y (N x K)."""

    word_topic: Floats
    anchors: NDArray[np.int64]
    rectified: Floats


def read_fitted(model: Path, n_words: int, n_topics: int) -> Fitted:
    """Read the model's arrays; raises if their shape differs from that of the reference."""
    import zarr

    group = zarr.open_group(str(model), mode="r")
    arrays = [np.asarray(group[name]) for name in ("word_topic", "anchors", "rectified")]
    if arrays[0].shape != (n_words, n_topics):
        raise click.ClickException(f"{model} is {arrays[0].shape}, not {n_words} words x {n_topics} topics")
    return Fitted(*arrays)


def compare(fitted: Fitted, reference: Reference, factor: Floats) -> None:
    matching = match_topics(fitted.word_topic, reference.word_topic)
    shared = len(np.intersect1d(fitted.anchors, reference.anchors))
    click.echo(f"mean L1 of matched topics (of 2): {matching.mean_l1:.4f}, largest {matching.l1.max():.4f}")
    click.echo(f"anchors in common: {shared} of {len(reference.anchors)}")
    click.echo(f"YYerr of the model's factor against AP: {yy_error(fitted.rectified, factor):.2e}")


def solve(
    data: Statistics, topics: int, iterations: int, anchor_min_df: float | None
) -> tuple[Rectified, Reference]:
    """Run AP, AW and, to compare the two rectifications, ENN; prints progress."""
    started = time.perf_counter()
    projected = alternating_projections(data.C, topics, iterations)
    click.echo(f"AP: last change {projected.change:.1e}, {time.perf_counter() - started:.1f} s")
    allowed = anchor_guard(projected.matrix.sum(axis=1), data, anchor_min_df)
    reference = anchor_word_algorithm(projected.matrix, topics, allowed, kept_distance(data))
    click.echo(f"AW: sum(A) {reference.topic_topic_sum:.3f}, {time.perf_counter() - started:.1f} s")
    enn = epsilon_non_negative(data.C, topics, iterations)
    click.echo(
        f"ENN (dense) against AP: YYerr {yy_error(enn.factor, projected.factor):.1e}, "
        f"last change {enn.change:.1e}, {time.perf_counter() - started:.1f} s"
    )
    return projected, reference


@click.command(help=__doc__)
@click.argument("corpus", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("model", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--topics", default=20, show_default=True)
@click.option(
    "--document-weights", "weights", default="capped", type=click.Choice(["capped", "uniform", "length"])
)
@click.option("--anchor-min-df", default=None, type=float, help="Default: 1 % of M, at least 20 up to M/50.")
@click.option("--iterations", default=150, show_default=True)
@click.option("--words", default=None, type=int, help="Keep only the words in the most documents.")
@click.option("--check", "only_check", is_flag=True)
def main(
    corpus: Path | None,
    model: Path | None,
    topics: int,
    weights: str,
    anchor_min_df: float | None,
    iterations: int,
    words: int | None,
    only_check: bool,
) -> None:
    if only_check:
        check()
        return
    if corpus is None:
        raise click.UsageError("CORPUS is missing")
    bag = read_bag(corpus)
    bag = bag if words is None else most_frequent(bag, words)
    fitted = None if model is None else read_fitted(model, len(bag.words), topics)
    data = statistics(bag.counts, weights)
    click.echo(f"C: {len(data.C)} words, {data.n_documents} documents")
    projected, reference = solve(data, topics, iterations, anchor_min_df)
    for topic, ids in enumerate(prominent_words(reference.word_topic, 8)):
        listed = " ".join(bag.words[i] for i in ids)
        click.echo(f"{topic:3d} {bag.words[reference.anchors[topic]]:>16s}: {listed}")
    if fitted is not None:
        compare(fitted, reference, projected.factor)


if __name__ == "__main__":
    main()
