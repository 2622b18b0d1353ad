"""Topic models beside each other: each fits the same matrix of counts, in one thread, and gives its top words.

Peers have the defaults of their libraries but for the number of topics, the seed and what their names say.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy import sparse

from streaming_jsmf.inference.words import prominent_words

#: Words of a topic that are scored.
LISTED = 10

#: (documents x words counts, K, seed) -> (K, LISTED) word ids, best first.
Fit = Callable[[sparse.csr_array, int, int], NDArray[np.int64]]


def spectral(engine: str, weights: str) -> Fit:
    """An engine of this package with its defaults: documents on the disk as Parquet, two scans, inference."""

    def fit(counts: sparse.csr_array, n_topics: int, seed: int) -> NDArray[np.int64]:
        from streaming_jsmf import Execution, InferSettings, ScanSettings, StodSettings, infer, scan

        with tempfile.TemporaryDirectory() as directory:
            root = Path(directory)
            write_corpus(root / "corpus", counts)
            tensor = engine == "stod"
            settings = ScanSettings(
                max_topics=n_topics, document_weights=weights, third_moment=tensor, seed=seed
            )
            moments = scan(root / "corpus", root / "moments", settings, Execution("synchronous"))
            wanted = StodSettings(n_topics, seed=seed) if tensor else InferSettings(n_topics)
            model = infer(moments, root / "model", wanted, threads=1)
        return model.arrays["prominent_words"][:, :LISTED]

    return fit


def write_corpus(path: Path, counts: sparse.csr_array, documents_per_shard: int = 50_000) -> None:
    """Write a CSR matrix as a corpus to be used in place; words are named by their ids."""
    path.mkdir()
    for number, start in enumerate(range(0, counts.shape[0], documents_per_shard)):
        rows = counts[start : start + documents_per_shard]
        offsets = pa.array(rows.indptr, pa.int32())
        columns = {
            "ids": pa.ListArray.from_arrays(offsets, pa.array(rows.indices, pa.int32())),
            "counts": pa.ListArray.from_arrays(offsets, pa.array(rows.data, pa.int32())),
        }
        pq.write_table(pa.table(columns), path / f"part-{number:05d}.parquet", row_group_size=5_000)
    (path / "vocab.txt").write_text("\n".join(map(str, range(counts.shape[1]))) + "\n", encoding="utf-8")


def scikit_lda(counts: sparse.csr_array, n_topics: int, seed: int) -> NDArray[np.int64]:
    """scikit-learn's online variational LDA."""
    from sklearn.decomposition import LatentDirichletAllocation

    model = LatentDirichletAllocation(n_topics, learning_method="online", random_state=seed)
    return prominent_words(model.fit(counts).components_.T, LISTED)


def scikit_nmf(counts: sparse.csr_array, n_topics: int, seed: int) -> NDArray[np.int64]:
    """scikit-learn's MiniBatchNMF (Frobenius) on the counts."""
    from sklearn.decomposition import MiniBatchNMF

    model = MiniBatchNMF(n_topics, random_state=seed)
    return prominent_words(model.fit(counts.astype(np.float64)).components_.T, LISTED)


def gensim_lda(passes: int) -> Fit:
    """gensim's online variational LDA; its default of one pass is for streams larger than these."""

    def fit(counts: sparse.csr_array, n_topics: int, seed: int) -> NDArray[np.int64]:
        from gensim.matutils import Sparse2Corpus
        from gensim.models import LdaModel

        words = {i: str(i) for i in range(counts.shape[1])}
        corpus = Sparse2Corpus(counts.tocsr(), documents_columns=False)
        model = LdaModel(corpus, n_topics, id2word=words, passes=passes, random_state=seed)
        return prominent_words(np.asarray(model.get_topics(), dtype=np.float64).T, LISTED)

    return fit


def tomotopy_lda(sweeps: int) -> Fit:
    """tomotopy's collapsed Gibbs sampler."""

    def fit(counts: sparse.csr_array, n_topics: int, seed: int) -> NDArray[np.int64]:
        import tomotopy

        model = tomotopy.LDAModel(k=n_topics, seed=seed)
        for start, end in zip(counts.indptr[:-1], counts.indptr[1:], strict=True):
            tokens = np.repeat(counts.indices[start:end], counts.data[start:end]).astype(str).tolist()
            if tokens:
                model.add_doc(tokens)
        model.train(sweeps, workers=1)
        ids = np.array([int(word) for word in model.used_vocabs], dtype=np.int64)
        shares = np.array([model.get_topic_word_dist(topic) for topic in range(n_topics)], dtype=np.float64)
        return ids[prominent_words(shares.T, LISTED)]

    return fit


MODELS: dict[str, Fit] = {
    "lr-jsmf-capped": spectral("lr-jsmf", "capped"),
    "lr-jsmf-uniform": spectral("lr-jsmf", "uniform"),
    "stod": spectral("stod", "capped"),
    "scikit-lda": scikit_lda,
    "scikit-nmf": scikit_nmf,
    "gensim-lda": gensim_lda(passes=10),
    "tomotopy-200": tomotopy_lda(200),
    "tomotopy-1000": tomotopy_lda(1000),
}
