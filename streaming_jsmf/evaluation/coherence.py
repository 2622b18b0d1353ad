"""How well the top words of a topic go together, and how much the topics repeat each other.

All of it from documents as windows. Coherence and NPMI rise when topics repeat each other's words: always show the
distinct share beside them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from streaming_jsmf.evaluation.inputs import Floats, Integers

#: What gensim adds to the share of documents that hold both words, in ``u_mass`` and in ``c_npmi``.
GENSIM_SMOOTHING = 1e-12


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

    Examples
    --------
    Words 0 and 2 of three documents; they meet in the first.

    >>> documents = sparse.csr_array(np.array([[2, 1, 1], [0, 1, 0], [0, 0, 4]]))
    >>> cooccurrence_counts([documents], [0, 2]).tolist()
    [[1, 1], [1, 2]]
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
    document_frequency: ArrayLike,
    pair_counts: ArrayLike,
    n_documents: int,
    top_words: ArrayLike,
    *,
    smoothing: float = 0.0,
) -> Floats:
    """Normalised pointwise mutual information of the top words, a value in [-1, 1] per topic.

    For a pair of words with p = share of documents: log(p_ij / (p_i p_j)) / -log p_ij (Bouma 2009; with
    documents as windows Lau, Newman and Baldwin 2014, OC-Auto-NPMI), -1 where they never meet, 1 where both are in
    every document; the mean over the pairs of a topic. Equation 17 of the STOD paper names this metric and prints it
    without its division by -log p_ij.

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
    smoothing
        Added to every p_ij. With ``GENSIM_SMOOTHING`` this is gensim's ``c_npmi`` over whole documents, where a pair
        that never meets comes out above -1. (gensim gives -1 to a pair that is in every document; here it is 1.)

    Returns
    -------
    (K,) float64.

    Raises
    ------
    ValueError
        With fewer than two words a topic or with no documents.

    Examples
    --------
    Of eight documents four hold word 0, two word 1, one both: log((1/8) / (1/2 1/4)) = 0.

    >>> npmi([4, 2], [[4, 1], [1, 2]], 8, [[0, 1]]).tolist()
    [0.0]

    If both documents with word 1 hold word 0: log(2) / log(4).

    >>> print(npmi([4, 2], [[4, 2], [2, 2]], 8, [[0, 1]]).round(4).tolist())
    [0.5]
    """
    pairs = _pairs(document_frequency, pair_counts, top_words, n_documents)
    means: Floats = pair_npmi(pairs.together, pairs.first * pairs.second, smoothing).mean(axis=1)
    return means


def pair_npmi(together: Floats, apart: Floats, smoothing: float = 0.0) -> Floats:
    """NPMI of pairs from p_ij and p_i p_j (arrays of one shape), held within [-1, 1]; see ``npmi``.

    -1 where p_ij or p_i p_j is not positive (with ``smoothing``: p_i p_j alone), 1 where p_ij is 1.

    Examples
    --------
    >>> pair_npmi(np.array([0.25, 0.0, 1.0]), np.array([0.25, 0.25, 1.0])).tolist()
    [0.0, -1.0, 1.0]
    """
    values = np.full(together.shape, -1.0)
    values[together >= 1.0] = 1.0
    some = (together + smoothing > 0.0) & (together < 1.0) & (apart > 0.0)
    joint = together[some] + smoothing
    values[some] = np.log(joint / apart[some]) / -np.log(joint)
    return np.asarray(np.clip(values, -1.0, 1.0))


def coherence(
    document_frequency: ArrayLike, pair_counts: ArrayLike, top_words: ArrayLike, *, epsilon: float = 1.0
) -> Floats:
    """Sum over pairs of top words of log((D(i, j) + epsilon) / D(j)), j the more probable one (Mimno et al. 2011).

    Parameters
    ----------
    document_frequency, pair_counts, top_words
        As for ``npmi``; the words of a topic best first.
    epsilon
        In documents. 1 in Mimno et al. (2011), 0.01 in JSMF 2015, 1e-8 in SoftClique (its Eq. 5).

    Returns
    -------
    (K,) float64, one sum for each topic; at most about 0.

    Raises
    ------
    ValueError
        With fewer than two words a topic.

    Notes
    -----
    A word of no document, as held-out documents may lack it, is treated as if it had one: log epsilon.

    Examples
    --------
    Words 0 and 1 are in four and two documents, in one together: log((1 + 1) / 4).

    >>> print(coherence([4, 2], [[4, 1], [1, 2]], [[0, 1]]).round(4).tolist())
    [-0.6931]
    """
    pairs = _pairs(document_frequency, pair_counts, top_words)
    sums: Floats = np.log((pairs.together + epsilon) / np.maximum(pairs.first, 1.0)).sum(axis=1)
    return sums


def u_mass(
    document_frequency: ArrayLike,
    pair_counts: ArrayLike,
    n_documents: int,
    top_words: ArrayLike,
    *,
    smoothing: float = GENSIM_SMOOTHING,
) -> Floats:
    """The coherence of Mimno et al. as gensim has it: the mean over pairs of log((p_ij + smoothing) / p_j).

    Pairs whose more probable word j is in no document count 0, as there.

    Parameters
    ----------
    document_frequency, pair_counts, n_documents, top_words
        As for ``npmi``; the words of a topic best first.
    smoothing
        Added to p_ij, a share of documents.

    Returns
    -------
    (K,) float64.

    Raises
    ------
    ValueError
        With fewer than two words a topic or with no documents.

    Examples
    --------
    Words 0 and 1 are in four and two documents, in one together: log(1 / 4).

    >>> print(u_mass([4, 2], [[4, 1], [1, 2]], 8, [[0, 1]]).round(4).tolist())
    [-1.3863]
    """
    pairs = _pairs(document_frequency, pair_counts, top_words, n_documents)
    given = pairs.first
    ratio = np.divide(pairs.together + smoothing, given, out=np.ones_like(given), where=given > 0)
    means: Floats = np.log(ratio).mean(axis=1)
    return means


def distinct_share(top_words: ArrayLike) -> float:
    """Share of distinct words among all top words (K x n ids): 1 where no topic repeats another's.

    Raises
    ------
    ValueError
        If there are no words.

    Examples
    --------
    >>> distinct_share([[1, 2], [2, 3]])
    0.75
    """
    words = np.asarray(top_words)
    if words.size == 0:
        raise ValueError("top_words is empty")
    return len(np.unique(words)) / words.size


@dataclass(frozen=True)
class _Pairs:
    """Pairs of top words, K x pairs: documents with the more probable word, with the other, and with both."""

    first: Floats
    second: Floats
    together: Floats


def _pairs(
    document_frequency: ArrayLike, pair_counts: ArrayLike, top_words: ArrayLike, n_documents: int = 1
) -> _Pairs:
    """The pairs of each topic, in shares of ``n_documents``."""
    words = np.asarray(top_words, dtype=np.int64)
    if words.ndim != 2 or words.shape[1] < 2:
        raise ValueError(f"top_words must be topics x at least two words, not of shape {words.shape}")
    if n_documents < 1:
        raise ValueError("shares of documents need at least one document")
    left, right = (words[:, places] for places in np.triu_indices(words.shape[1], k=1))
    frequency = np.asarray(document_frequency, dtype=np.float64) / n_documents
    counts = np.asarray(pair_counts, dtype=np.float64) / n_documents
    return _Pairs(frequency[left], frequency[right], counts[left, right])
