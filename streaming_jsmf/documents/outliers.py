"""Outliers: the documents whose words the topics explain least."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array

from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.documents.model_shares import ModelShares
from streaming_jsmf.documents.shares import Least
from streaming_jsmf.inference.perplexity import SMOOTHING
from streaming_jsmf.topics.parameters import Floats

#: Column of the result.
GAIN = "gain"

#: Documents with less than this part of the mean number of distinct words are left out: few words say too little.
SHORTEST = 0.5

#: Nonzeros whose probabilities are computed together.
NONZEROS = 100_000


def least_explained(shares: ModelShares, corpus: Corpus, number: int) -> Any:
    """Return the ``number`` documents with the smallest ``gains`` as an Arrow table, with their metadata."""
    topics, columns = shares.topics, shares.file.columns
    unigram = topics.term_count / topics.term_count.sum()
    fewest = SHORTEST * corpus.nonzeros / max(corpus.n_documents, 1)
    least = Least(number)
    for counts, theta, table in shares.documents(corpus, columns):
        gain = gains(counts, theta, topics.word_topic, unigram)
        rows = np.flatnonzero(np.diff(counts.indptr) >= max(fewest, 1))
        least.add(gain[rows], table.select(columns).take(pa.array(rows)).append_column(GAIN, [gain[rows]]))
    return least.result(GAIN)


def gains(counts: csr_array[Any], theta: Floats, word_topic: Floats, unigram: Floats) -> Floats:
    """Mean of log(p(w | theta) / p(w)) over the tokens of each document, (M,); 0 without tokens.

    ``counts`` are M x N, ``theta`` M x K, ``word_topic`` N x K, and ``unigram`` p(w), (N,).
    """
    rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    sums, tokens = np.zeros(counts.shape[0]), np.zeros(counts.shape[0])
    for start in range(0, rows.size, NONZEROS):
        part = slice(start, start + NONZEROS)
        words, weights = counts.indices[part], counts.data[part]
        given = np.einsum("nk,nk->n", theta[rows[part]], word_topic[words])
        ratio = np.divide(given, unigram[words], out=np.ones(given.size), where=unigram[words] > 0)
        logs = np.log((1 - SMOOTHING) * ratio + SMOOTHING)
        sums += np.bincount(rows[part], weights * logs, counts.shape[0])
        tokens += np.bincount(rows[part], weights, counts.shape[0])
    return sums / np.maximum(tokens, 1e-300)
