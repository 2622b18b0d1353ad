"""Exchange of corpora and models with other libraries, none of which is imported: count matrices, gensim, pyLDAvis."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from streaming_jsmf.corpus.format import Corpus, open_corpus
from streaming_jsmf.corpus.units import iter_blocks, list_units
from streaming_jsmf.corpus.vocabulary import word_ids
from streaming_jsmf.corpus.write import column_words, corpus_target, matrix_blocks, wide, write_corpus
from streaming_jsmf.documents.model_shares import AnyShares, ModelShares
from streaming_jsmf.documents.transform import temporary_shares
from streaming_jsmf.errors import InputError, as_word, first_line
from streaming_jsmf.storage.paths import AnyPath
from streaming_jsmf.topics.store import AnyModel, model_path, read_model

_MATRIX = "give documents x words, of scipy or NumPy"
#: Number of gensim documents in memory.
BATCH = 10_000


def corpus_from_matrix(matrix: Any, words: Any, path: str | Path) -> Corpus:
    """Make a corpus from a matrix of counts, keeping all words and documents; documents are numbered from 0.

    Parameters
    ----------
    matrix
        (M, N), scipy or NumPy; non-negative. Integers become int32 and other numbers float32.
    words
        (N,), or an object with ``get_feature_names_out``, such as the ``CountVectorizer`` that made the matrix.
    path
        Path or URL of the corpus.

    Raises
    ------
    InputError
        If ``matrix`` is not two-dimensional or has a negative or non-finite count, ``words`` does not match its
        columns, or ``path`` exists.

    Examples
    --------
    >>> corpus_from_matrix(vectorizer.fit_transform(texts), vectorizer, "corpus")  # doctest: +SKIP
    """
    try:
        counts = csr_array(wide(matrix))
    except (TypeError, ValueError) as error:
        raise InputError(f"the matrix cannot be read as counts ({first_line(error)}); {_MATRIX}") from error
    if counts.ndim != 2:
        raise InputError(f"the matrix has {counts.ndim} dimension; {_MATRIX}")
    names = column_words(words, counts.shape[1], "words")
    if np.iscomplexobj(counts) or not (np.isfinite(counts.data).all() and (counts.data >= 0).all()):
        raise InputError("the matrix has a negative or non-finite count, or a complex one; correct it")
    return write_corpus(matrix_blocks(counts), names, corpus_target(path))


def corpus_to_matrix(corpus: AnyPath | Corpus) -> tuple[csr_array[Any], list[str]]:
    """Return a corpus as a matrix (M, N) and its words. One pass; see ``to_dask_array`` for large corpora.

    Raises ``InputError`` and ``StoreError`` as ``open_corpus``, and for a bad record.
    """
    opened = open_corpus(corpus)
    rows = [*iter_blocks(list_units(opened), opened.n_words)]
    return csr_array(vstack(rows, format="csr")), list(opened.vocabulary().words)


def corpus_from_gensim(
    documents: Iterable[Iterable[tuple[int, float]]], dictionary: Mapping[int, str], path: str | Path
) -> Corpus:
    """Make a corpus from gensim's bags of words, keeping all words in the order of their ids, with bounded memory.

    Documents are numbered from 0.

    Parameters
    ----------
    documents
        A list of (word id, count) per document: from ``doc2bow``, ``MmCorpus`` or another gensim corpus.
    dictionary
        A ``Dictionary``, or a mapping from ids to words.
    path
        Path or URL of the corpus.

    Raises
    ------
    InputError
        If a document is not a list of pairs, a word id is not in the dictionary, a count is negative or not finite, or
        ``path`` exists.

    Examples
    --------
    >>> corpus_from_gensim((dictionary.doc2bow(text) for text in texts), dictionary, "corpus")  # doctest: +SKIP
    """
    ids = np.sort(np.array([int(number) for number in dictionary], dtype=np.int64))
    if not ids.size:
        raise InputError("the dictionary has no words; give the one that the documents were made with")
    words = [as_word(dictionary[int(number)], "the dictionary") for number in ids]
    return write_corpus(_bags(iter(documents), ids), words, corpus_target(path))


def _bags(
    documents: Iterator[Iterable[tuple[int, float]]], ids: NDArray[np.int64]
) -> Iterator[csr_array[Any]]:
    first = 0
    while batch := [_entries(*numbered) for numbered in enumerate(islice(documents, BATCH), first)]:
        lengths = [len(document) for document in batch]
        entries = [entry for document in batch for entry in document]
        found, counts = np.array([e[0] for e in entries], np.int64), np.array([e[1] for e in entries])
        columns = np.minimum(np.searchsorted(ids, found), len(ids) - 1)
        wrong = np.flatnonzero((ids[columns] != found) | ~((counts >= 0) & np.isfinite(counts)))
        if wrong.size:
            document = first + int(np.searchsorted(np.cumsum(lengths), wrong[0], side="right"))
            raise InputError(
                f"document {document}, from 0, has {entries[wrong[0]]}, a word id that is not in the dictionary or a "
                "negative or non-finite count; give the dictionary that the documents were made with"
            )
        starts = np.concatenate([[0], np.cumsum(lengths)])
        yield from matrix_blocks(csr_array((counts, columns, starts), (len(batch), len(ids))))
        first += len(batch)


def _entries(number: int, document: Any) -> list[tuple[int, float]]:
    try:
        return [(operator.index(word), count + 0) for word, count in document]  # "+ 0" refuses texts
    except (TypeError, ValueError):
        raise InputError(
            f"document {number}, from 0, is no list of (word id, count); give one for each document"
        ) from None


@dataclass(frozen=True)
class GensimTopics:
    """Interface of a topic model for gensim's ``CoherenceModel(model=...)``, with K = ``num_topics``."""

    num_topics: int
    id2word: Any = field(repr=False)
    _topics: NDArray[np.float64] = field(repr=False)

    def get_topics(self) -> NDArray[np.float64]:
        """Return p(word | topic), (K, N), by the ids of the dictionary."""
        return self._topics


def model_to_gensim(model: AnyModel, dictionary: Mapping[int, str]) -> GensimTopics:
    """Return the stored topics of a model by the word ids of a gensim ``Dictionary``; words are matched as strings.

    Words that are not in the model have probability 0; rows sum to less than 1 if the dictionary lacks words. Raises
    ``InputError`` if there is no model, or the dictionary has none of its words.
    """
    arrays = read_model(model_path(model), ("word", "word_topic")).arrays
    numbers = np.array([int(number) for number in dictionary], dtype=np.int64)
    ids = word_ids([as_word(dictionary[number], "the dictionary") for number in dictionary], arrays["word"])
    if not (ids >= 0).any():
        raise InputError("the dictionary has none of the model's words; give the one of the same texts")
    topics = np.zeros((arrays["word_topic"].shape[1], numbers.max() + 1))
    topics[:, numbers[ids >= 0]] = arrays["word_topic"][ids[ids >= 0]].T
    return GensimTopics(len(topics), dictionary, topics)


def model_to_pyldavis(
    model: AnyModel, corpus: AnyPath | Corpus, shares: str | Path | None = None
) -> dict[str, Any]:
    """Return the arguments of ``pyLDAvis.prepare``: ``pyLDAvis.prepare(**model_to_pyldavis(model, corpus))``.

    Uses the stored topics of any engine and M x K + K x N numbers of memory. One pass over the corpus, and another one
    without ``shares``, the result of ``transform`` for this corpus and model. Words are matched as strings.

    Returns
    -------
    dict
        ``topic_term_dists`` (K, N), ``doc_topic_dists`` (M, K), ``doc_lengths`` (M,), ``vocab`` (N,) and
        ``term_frequency`` (N,); for a single topic also ``mds``, since pyLDAvis places only several.

    Raises
    ------
    InputError
        If there is no model, or the shares are of another model or corpus.
    """
    path = model_path(model)
    opened = open_corpus(corpus)
    arrays = read_model(path, ("word", "word_topic", "term_count")).arrays
    given: AbstractContextManager[AnyShares] = (
        temporary_shares(path, opened) if shares is None else nullcontext(shares)
    )
    with given as file:
        found = ModelShares.open(path, file)
        found.require_corpus(opened)
        document_topic = np.concatenate([theta for theta, _ in found.file.dense()])
    known = (word_ids(opened.vocabulary().words, arrays["word"]) >= 0).astype(np.float64)
    lengths = np.concatenate([block @ known for block in iter_blocks(list_units(opened), opened.n_words)])
    single = {"mds": lambda distances: np.zeros((len(distances), 2))}
    return {
        **(single if arrays["word_topic"].shape[1] == 1 else {}),
        "topic_term_dists": arrays["word_topic"].T,
        "doc_topic_dists": document_topic / document_topic.sum(axis=1, keepdims=True),
        "doc_lengths": lengths,
        "vocab": [str(word) for word in arrays["word"]],
        "term_frequency": np.asarray(arrays["term_count"], np.float64),
    }
