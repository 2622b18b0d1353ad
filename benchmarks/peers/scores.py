"""Scores: coherence, distinct words and perplexity of topics; distance of a basis to the best one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from benchmarks.peers.methods import Arrays, diagonal_of, scaled
from pipelines.common.held_out import Split, coherence_of
from pipelines.common.matching import yy_error
from streaming_jsmf.evaluation.coherence import distinct_share
from streaming_jsmf.inference.perplexity import Completer
from streaming_jsmf.inference.words import prominent_words
from streaming_jsmf.linalg.eigen import Eigenpairs
from streaming_jsmf.rectification.result import positive_half

Floats = NDArray[np.float64]

#: Scored words per topic.
LISTED = 10

#: The reference has converged when a step changes Y Y' by less than this; maximum number of steps.
REFERENCE_CHANGE, REFERENCE_STEPS = 1e-3, 30


def topic_scores(found: Arrays, documents: Split) -> dict[str, float]:
    """NPMI of the top words in fitted and held-out documents, share of distinct words, held-out perplexity."""
    top = prominent_words(found["word_topic"], LISTED)
    counted = np.asarray(documents.fitted.sum(axis=0), np.float64).ravel()
    completer = Completer.of(found["word_topic"], found["prior"], counted)
    return {
        "npmi": coherence_of(documents.fitted, top),
        "held_out_npmi": coherence_of(documents.held_out, top),
        "distinct": distinct_share(top),
        "perplexity": completer.complete(documents.held_out).perplexity,
    }


def basis_scores(found: Arrays, reference: Arrays) -> dict[str, float]:
    """||Y Y' - Y* Y*'||_F / ||Y* Y*'||_F."""
    return {"yy_error": yy_error(found["half"], reference["half"])}


def reference_basis(counts: sparse.csr_array, start: Floats) -> Arrays:
    """Y* by block power steps with C in memory and Ritz pairs, from ``start`` (N x K or wider)."""
    rows, diagonal = scaled(counts), diagonal_of(counts)
    n_topics = start.shape[1]
    extra = np.random.Generator(np.random.Philox(key=7)).standard_normal(start.shape)
    vectors, half = np.hstack([start, extra]), np.zeros_like(start)
    for _ in range(REFERENCE_STEPS):
        basis, _ = np.linalg.qr(vectors)
        product = rows.T @ (rows @ basis.astype(np.float32)) - diagonal[:, None] * basis
        small = basis.T @ product
        values, rotation = np.linalg.eigh((small + small.T) / 2)
        pairs = Eigenpairs(values[::-1], (basis @ rotation)[:, ::-1])
        before, half = half, positive_half(pairs, n_topics)
        vectors = product
        if np.any(before) and yy_error(half, before) < REFERENCE_CHANGE:
            break
    return {"half": half}
