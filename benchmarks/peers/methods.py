"""The methods: each reads a corpus directory, works in one thread, and returns its result as arrays.

Methods of topics return ``word_topic`` (N x K, columns sum to 1) and ``prior`` (K,). Methods of the basis return
``half``, Y (N x K), whose Y Y' approximates the leading part of the co-occurrences C of Eq. 1. Other libraries use
their defaults unless the name of the method says otherwise. Those that cannot subtract the diagonal of Eq. 1 get
sqrt(w / (n (n - 1))) h for each document; the Gram matrix of these rows is C plus that diagonal, which is then
subtracted from their factor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pipelines.common import peers
from pipelines.common.bags import read_counts
from pipelines.common.options import ONE_THREAD
from pipelines.common.peers import PeerTopics
from streaming_jsmf import (
    InferSettings,
    PolishSettings,
    ScanSettings,
    StodSettings,
    infer,
    open_corpus,
    polish,
    scan,
    to_dask_array,
)
from streaming_jsmf.linalg.csr import document_weights
from streaming_jsmf.linalg.eigen import block_width
from streaming_jsmf.linalg.probes import uniform_probes
from streaming_jsmf.linalg.sampled import sample_eigenpairs
from streaming_jsmf.rectification.result import positive_half
from streaming_jsmf.topics.parameters import prior_of

Floats = NDArray[np.float64]
Arrays = dict[str, NDArray[Any]]

#: (corpus, K, seed, an empty directory) -> arrays.
Fit = Callable[[Path, int, int, Path], Arrays]


@dataclass(frozen=True)
class Method:
    """``makes`` is "topics" or "basis"; ``package`` is the required package."""

    makes: str
    fit: Fit
    package: str = "streaming_jsmf"


# -- topics -------------------------------------------------------------------------------------------------------


def anchored(weights: str = "capped", steps: int = 0) -> Fit:
    """Scan and infer with the defaults, then ``steps`` of polish."""

    def fit(corpus: Path, n_topics: int, seed: int, folder: Path) -> Arrays:
        settings = ScanSettings(max_topics=n_topics, document_weights=weights, seed=seed)
        moments = scan(corpus, folder / "moments", settings, ONE_THREAD)
        model = infer(moments, folder / "model", InferSettings(n_topics), workers=1)
        if steps:
            wanted = PolishSettings(steps=steps, seed=seed)
            model = polish(folder / "model", corpus, folder / "polished", wanted, execution=ONE_THREAD)
        return {"word_topic": model.arrays["word_topic"], "prior": prior_of(model)}

    return fit


def tensor(corpus: Path, n_topics: int, seed: int, folder: Path) -> Arrays:
    """Scan with the third moment and infer with the tensor engine."""
    settings = ScanSettings(max_topics=n_topics, third_moment=True, seed=seed)
    moments = scan(corpus, folder / "moments", settings, ONE_THREAD)
    model = infer(moments, folder / "model", StodSettings(n_topics, seed=seed), workers=1)
    return {"word_topic": model.arrays["word_topic"], "prior": prior_of(model)}


def of_counts(topics: Callable[[sparse.csr_array, int, int], PeerTopics]) -> Fit:
    def fit(corpus: Path, n_topics: int, seed: int, folder: Path) -> Arrays:
        del folder
        found = topics(read_counts(corpus), n_topics, seed)
        return {"word_topic": found.word_topic, "prior": found.prior}

    return fit


def gibbs(sweeps: int) -> Fit:
    return of_counts(lambda counts, n_topics, seed: next(peers.gibbs(counts, n_topics, seed, [sweeps])))


def gensim_lda(passes: int) -> Fit:
    return of_counts(lambda counts, n_topics, seed: peers.gensim_lda(counts, n_topics, seed, passes))


# -- the basis ----------------------------------------------------------------------------------------------------


def scanned(**fields: Any) -> Fit:
    def fit(corpus: Path, n_topics: int, seed: int, folder: Path) -> Arrays:
        moments = scan(
            corpus, folder / "moments", ScanSettings(max_topics=n_topics, seed=seed, **fields), ONE_THREAD
        )
        return {"half": positive_half(moments.eigenpairs(n_topics), n_topics)}

    return fit


def lengths_of(rows: Any) -> Floats:
    return np.asarray(rows.sum(axis=1), dtype=np.float64).ravel()


def weights_of(lengths: Floats) -> Floats:
    """Default document weights by length, 0 below two tokens."""
    return np.where(lengths >= 2, document_weights(lengths, "capped"), 0.0)


def pair_weights(lengths: Floats, total: float) -> Floats:
    """w / (W n (n - 1)) of Eq. 1 with total weight W."""
    n = np.maximum(lengths, 2.0)
    return np.asarray(weights_of(lengths) / (n * (n - 1)) / total)


def scaled(counts: sparse.csr_array) -> sparse.csr_array:
    """Rows sqrt(w / (W n (n - 1))) h, float32."""
    lengths = lengths_of(counts)
    rows = np.sqrt(pair_weights(lengths, weights_of(lengths).sum()))
    return sparse.csr_array(sparse.diags_array(rows) @ counts, dtype=np.float32)


def diagonal_of(counts: sparse.csr_array) -> Floats:
    """D (N,), which Eq. 1 subtracts from the diagonal of the Gram matrix of the scaled rows."""
    lengths = lengths_of(counts)
    diagonal: Floats = counts.T @ pair_weights(lengths, weights_of(lengths).sum())
    return diagonal


def width(n_topics: int) -> int:
    """Number of components, as in a scan."""
    return ScanSettings(max_topics=n_topics).basis_width


def decomposed(decompose: Callable[[Path, sparse.csr_array, int, int], Floats]) -> Fit:
    """A library that computes a factor F (N x R) with F F' close to the Gram matrix of the scaled rows."""

    def fit(corpus: Path, n_topics: int, seed: int, folder: Path) -> Arrays:
        del folder
        counts = read_counts(corpus)
        factor = decompose(corpus, counts, width(n_topics), seed)
        probes = uniform_probes(counts.shape[1], block_width(width(n_topics)), seed, "peers")
        rows = sparse.csr_array(factor.T.astype(np.float32))
        pairs = sample_eigenpairs(rows, diagonal_of(counts), probes, n_topics, steps=6)
        return {"half": positive_half(pairs, n_topics)}

    return fit


def scikit_svd(corpus: Path, counts: sparse.csr_array, rank: int, seed: int) -> Floats:
    """scikit-learn's TruncatedSVD, randomized, two iterations."""
    from sklearn.decomposition import TruncatedSVD

    del corpus
    fitted = TruncatedSVD(rank, n_iter=2, random_state=seed).fit(scaled(counts))
    factor: Floats = fitted.components_.T * fitted.singular_values_
    return factor


def gensim_lsi(corpus: Path, counts: sparse.csr_array, rank: int, seed: int) -> Floats:
    from gensim.matutils import Sparse2Corpus
    from gensim.models import LsiModel

    del corpus
    names = {i: str(i) for i in range(counts.shape[1])}
    rows = Sparse2Corpus(scaled(counts), documents_columns=False)
    model = LsiModel(rows, num_topics=rank, id2word=names, random_seed=seed)
    factor: Floats = model.projection.u * model.projection.s
    return factor


def dask_svd(corpus: Path, counts: sparse.csr_array, rank: int, seed: int) -> Floats:
    """dask-ml's TruncatedSVD of a Dask array with dense blocks, because it fails on sparse ones."""
    from dask_ml.decomposition import TruncatedSVD

    total = weights_of(lengths_of(counts)).sum()

    def dense(block: Any) -> NDArray[np.float32]:
        rows = np.sqrt(pair_weights(lengths_of(block), total))
        return np.asarray(block.toarray() * rows[:, None], dtype=np.float32)

    array = to_dask_array(open_corpus(corpus)).map_blocks(
        dense, dtype=np.float32, meta=np.empty((0, 0), np.float32)
    )
    fitted = TruncatedSVD(rank, algorithm="randomized", n_iter=2, random_state=seed).fit(array)
    factor: Floats = np.asarray(fitted.components_).T * np.asarray(fitted.singular_values_)
    return factor


METHODS: dict[str, Method] = {
    "LR-JSMF": Method("topics", anchored()),
    "LR-JSMF uniform": Method("topics", anchored("uniform")),
    "LR-JSMF polished": Method("topics", anchored(steps=10)),
    "LR-JSMF polished 30": Method("topics", anchored(steps=30)),
    "anchortopics": Method("topics", of_counts(peers.anchor_topics), "anchortopics"),
    "STOD": Method("topics", tensor),
    "gensim LDA": Method("topics", gensim_lda(10), "gensim"),
    "gensim LDA 1 pass": Method("topics", gensim_lda(1), "gensim"),
    "online LDA": Method("topics", of_counts(peers.scikit_lda), "sklearn"),
    "MiniBatchNMF": Method("topics", of_counts(peers.scikit_nmf), "sklearn"),
    "Gibbs 10": Method("topics", gibbs(10), "tomotopy"),
    "Gibbs 20": Method("topics", gibbs(20), "tomotopy"),
    "Gibbs 200": Method("topics", gibbs(200), "tomotopy"),
    "Gibbs 1000": Method("topics", gibbs(1000), "tomotopy"),
    "scan": Method("basis", scanned()),
    "TruncatedSVD": Method("basis", decomposed(scikit_svd), "sklearn"),
    "gensim LSI": Method("basis", decomposed(gensim_lsi), "gensim"),
    "dask-ml SVD": Method("basis", decomposed(dask_svd), "dask_ml"),
}
