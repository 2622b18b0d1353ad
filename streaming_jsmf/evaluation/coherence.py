"""How well the top words of a topic go together, and how much the topics repeat each other.

NPMI rises when topics repeat each other's words: always show the distinct share beside it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def cooccurrence_counts(blocks: Iterable[Any], word_ids: ArrayLike) -> Integers:
    """In how many documents two words occur together, additive over blocks.

    Parameters
    ----------
    blocks
        CSR matrices or arrays, documents x words, any values (a stored zero counts as absent).
    word_ids
        Distinct word ids.

    Returns
    -------
    ``len(word_ids) x len(word_ids)`` int64; the diagonal holds the document frequencies.

    Raises
    ------
    ValueError
        For repeated ids and for ids outside a block.
    """
    ids = np.asarray(word_ids, dtype=np.int64)
    if len(np.unique(ids)) != len(ids):
        raise ValueError("word_ids has repeated ids")
    total = np.zeros((len(ids), len(ids)), dtype=np.int64)
    for block in blocks:
        if len(ids) and (ids.min() < 0 or ids.max() >= block.shape[1]):
            raise ValueError(f"word_ids must lie in 0 to {block.shape[1] - 1}")
        chosen = sparse.csr_matrix(block)[:, ids]
        chosen.eliminate_zeros()
        present = sparse.csr_array(
            (np.ones(chosen.nnz, dtype=np.int64), chosen.indices, chosen.indptr), shape=chosen.shape
        )
        total += (present.T @ present).toarray()
    return total


def npmi(
    document_frequency: ArrayLike, pair_counts: ArrayLike, n_documents: int, top_words: ArrayLike
) -> Floats:
    """Normalised pointwise mutual information of the top words, a value in [-1, 1] per topic.

    For a pair of words with p = share of documents: log(p_ij / (p_i p_j)) / -log p_ij (Bouma 2009; with
    documents as windows Lau, Newman and Baldwin 2014), -1 where they never meet, 1 where both are in every
    document; the mean over the pairs of a topic.

    Parameters
    ----------
    document_frequency
        (P,) number of documents with a word.
    pair_counts
        (P, P) number of documents with both words.
    n_documents
        Number of documents counted.
    top_words
        (K, n) *places* in those arrays, not word ids of a vocabulary.

    Returns
    -------
    (K,) float64.

    Raises
    ------
    ValueError
        With fewer than two words a topic or with no documents.
    """
    frequency = np.asarray(document_frequency, dtype=np.float64)
    pairs = np.asarray(pair_counts, dtype=np.float64)
    words = np.asarray(top_words, dtype=np.int64)
    if words.ndim != 2 or words.shape[1] < 2:
        raise ValueError(f"top_words must be topics x at least two words, not of shape {words.shape}")
    if n_documents < 1:
        raise ValueError("NPMI needs at least one document")
    left, right = np.triu_indices(words.shape[1], k=1)
    together = pairs[words[:, left], words[:, right]] / n_documents
    apart = frequency[words[:, left]] * frequency[words[:, right]] / n_documents**2
    values = np.full(together.shape, -1.0)
    values[together >= 1.0] = 1.0
    some = (together > 0.0) & (together < 1.0)
    values[some] = np.log(together[some] / apart[some]) / -np.log(together[some])
    means: Floats = values.mean(axis=1)
    return means


def distinct_share(top_words: ArrayLike) -> float:
    """Share of distinct words among all top words (K x n ids): 1 where no topic repeats another's.

    Raises
    ------
    ValueError
        If there are no words.
    """
    words = np.asarray(top_words)
    if words.size == 0:
        raise ValueError("top_words is empty")
    return len(np.unique(words)) / words.size
