"""Topic models beside each other: each fits the same matrix of counts, in one thread, and gives its top words.

Peers have the defaults of their libraries but for the number of topics, the seed and what their names say.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pipelines.common import peers
from pipelines.common.bags import write_corpus
from pipelines.common.peers import PeerTopics
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


def peer(topics: Callable[[sparse.csr_array, int, int], PeerTopics]) -> Fit:
    """The top words of a peer's topics."""

    def fit(counts: sparse.csr_array, n_topics: int, seed: int) -> NDArray[np.int64]:
        return prominent_words(topics(counts, n_topics, seed).word_topic, LISTED)

    return fit


def gibbs(sweeps: int) -> Fit:
    """Gibbs sampling with so many sweeps."""
    return peer(lambda counts, n_topics, seed: next(peers.gibbs(counts, n_topics, seed, [sweeps])))


MODELS: dict[str, Fit] = {
    "lr-jsmf-capped": spectral("lr-jsmf", "capped"),
    "lr-jsmf-uniform": spectral("lr-jsmf", "uniform"),
    "stod": spectral("stod", "capped"),
    "scikit-lda": peer(peers.scikit_lda),
    "scikit-nmf": peer(peers.scikit_nmf),
    "gensim-lda": peer(partial(peers.gensim_lda, passes=10)),
    "tomotopy-200": gibbs(200),
    "tomotopy-1000": gibbs(1000),
}
