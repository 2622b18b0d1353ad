"""Corpora and models of other libraries: matrices of counts, gensim, pyLDAvis. None of them is imported."""

from __future__ import annotations

import operator
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from streaming_jsmf.corpus.csr import iter_blocks
from streaming_jsmf.corpus.format import Corpus, open_corpus
from streaming_jsmf.corpus.matrices import column_words, matrix_blocks, write_corpus
from streaming_jsmf.corpus.units import list_units
from streaming_jsmf.documents.answers import open_shares_of
from streaming_jsmf.documents.shares import SharesFile, dense, share_columns
from streaming_jsmf.documents.transform_verb import transform
from streaming_jsmf.errors import InputError, first_line
from streaming_jsmf.storage.paths import AnyPath, local_path, normalise
from streaming_jsmf.topics.store import AnyModel, model_path, read_model

_MATRIX = "give documents x words, of scipy or NumPy"

#: Documents of gensim that are in memory at a time.
BATCH = 10_000


def corpus_from_matrix(matrix: Any, words: Any, path: str | Path) -> Corpus:
    """Make a corpus of counts, documents x words: all words stay, and documents without any.

    Parameters
    ----------
    matrix
        (M, N), of scipy or NumPy; at least 0. Integers become int32 and other numbers float32.
    words
        (N,), or what has ``get_feature_names_out``, such as the ``CountVectorizer`` that made the matrix.
    path
        Local path of the corpus. Documents are numbered from 0.

    Raises
    ------
    InputError
        If the matrix has not two dimensions or not a word for each column, a count is negative or not finite, or
        something is at ``path``.

    Examples
    --------
    >>> corpus_from_matrix(vectorizer.fit_transform(texts), vectorizer, "corpus")  # doctest: +SKIP
    """
    try:
        counts = csr_array(matrix)
    except (TypeError, ValueError) as error:
        raise InputError(f"the matrix cannot be read as counts ({first_line(error)}); {_MATRIX}") from error
    if counts.ndim != 2:
        raise InputError(f"the matrix has {counts.ndim} dimension; {_MATRIX}")
    names = column_words(words, counts.shape[1], "words")
    if not (np.isfinite(counts.data).all() and (counts.data >= 0).all()):
        raise InputError("the matrix has a count that is negative or not finite; mend it")
    return write_corpus(matrix_blocks(counts), names, _free(path))


def corpus_to_matrix(corpus: AnyPath | Corpus) -> tuple[csr_array[Any], list[str]]:
    """All documents of a corpus as one matrix, M x N, and its words. One pass; for larger ones ``to_dask_array``.

    Raises
    ------
    InputError, StoreError
        As ``open_corpus``, and for a bad record.
    """
    opened = corpus if isinstance(corpus, Corpus) else open_corpus(corpus)
    rows = [*iter_blocks(list_units(opened), opened.n_words)]
    return csr_array(vstack(rows, format="csr")), list(opened.vocabulary().words)


def corpus_from_gensim(
    documents: Iterable[Iterable[tuple[int, float]]], dictionary: Mapping[int, str], path: str | Path
) -> Corpus:
    """Make a corpus of gensim's bags of words, some thousand documents in memory at a time.

    Parameters
    ----------
    documents
        A list of (word id, count) for each: of ``doc2bow``, ``MmCorpus`` or any other corpus of gensim.
    dictionary
        A ``Dictionary``, or the words by their ids. All of them stay, by rising id.
    path
        Local path of the corpus. Documents are numbered from 0.

    Raises
    ------
    InputError
        If a document is no list of pairs or has an id that the dictionary lacks, a count is negative or not finite, or
        something is at ``path``.

    Examples
    --------
    >>> corpus_from_gensim((dictionary.doc2bow(text) for text in texts), dictionary, "corpus")  # doctest: +SKIP
    """
    ids = np.sort(np.array([int(number) for number in dictionary], dtype=np.int64))
    if not ids.size:
        raise InputError("the dictionary has no words; give the one that the documents were made with")
    return write_corpus(
        _bags(iter(documents), ids), [str(dictionary[int(number)]) for number in ids], _free(path)
    )


def _bags(
    documents: Iterator[Iterable[tuple[int, float]]], ids: NDArray[np.int64]
) -> Iterator[csr_array[Any]]:
    first = 0
    while batch := [_entries(*numbered) for numbered in enumerate(islice(documents, BATCH), first)]:
        lengths = [len(document) for document in batch]
        entries = [entry for document in batch for entry in document]
        found, counts = np.array([e[0] for e in entries], np.int64), np.array([e[1] for e in entries])
        places = np.minimum(np.searchsorted(ids, found), len(ids) - 1)
        wrong = np.flatnonzero((ids[places] != found) | ~((counts >= 0) & np.isfinite(counts)))
        if wrong.size:
            document = first + int(np.searchsorted(np.cumsum(lengths), wrong[0], side="right"))
            raise InputError(
                f"document {document}, from 0, has {entries[wrong[0]]}, a word id that the dictionary lacks or a count "
                "that is negative or not finite; give the dictionary that the documents were made with"
            )
        starts = np.concatenate([[0], np.cumsum(lengths)])
        yield from matrix_blocks(csr_array((counts, places, starts), (len(batch), len(ids))))
        first += len(batch)


def _entries(number: int, document: Any) -> list[tuple[int, float]]:
    try:
        return [(operator.index(word), count + 0) for word, count in document]  # a text is no number
    except (TypeError, ValueError):
        raise InputError(
            f"document {number}, from 0, is no list of (word id, count); give one for each document"
        ) from None


@dataclass(frozen=True)
class GensimTopics:
    """What gensim asks of a topic model: ``CoherenceModel(model=...)`` and all that calls ``get_topics`` take it.

    Attributes
    ----------
    num_topics
        K.
    id2word
        The dictionary.
    """

    num_topics: int
    id2word: Any = field(repr=False)
    _topics: NDArray[np.float64] = field(repr=False)

    def get_topics(self) -> NDArray[np.float64]:
        """K x N, p(word | topic) by the ids of the dictionary."""
        return self._topics


def model_to_gensim(model: AnyModel, dictionary: Mapping[int, str]) -> GensimTopics:
    """The topics of a model by the word ids of a gensim ``Dictionary``: words are matched by string.

    Words that the model lacks have probability 0; rows sum to less than 1 by what the dictionary lacks. Topics are the
    stored ones, merged or not.

    Raises
    ------
    InputError
        If there is no model, or the dictionary has none of its words.
    """
    arrays = read_model(model_path(model), ("word", "word_topic")).arrays
    places = {str(word): place for place, word in enumerate(arrays["word"])}
    spelled = {int(number): str(dictionary[number]) for number in dictionary}
    known = {number: places[word] for number, word in spelled.items() if word in places}
    if not known:
        raise InputError("the dictionary has none of the model's words; give the one of the same texts")
    topics = np.zeros((arrays["word_topic"].shape[1], max(spelled) + 1))
    topics[:, list(known)] = arrays["word_topic"][list(known.values())].T
    return GensimTopics(len(topics), dictionary, topics)


def model_to_pyldavis(
    model: AnyModel, corpus: AnyPath | Corpus, shares: str | Path | None = None
) -> dict[str, Any]:
    """The arguments of ``pyLDAvis.prepare``: ``pyLDAvis.prepare(**model_to_pyldavis(model, corpus))``.

    All in memory: M x K and K x N numbers. One pass over the corpus, another one without ``shares``. Topics are the
    stored ones, merged or not.

    Parameters
    ----------
    model
        Of any engine.
    corpus
        Its documents; words are matched by string.
    shares
        What ``transform`` wrote of this corpus with this model. None: they are found now.

    Returns
    -------
    ``topic_term_dists`` (K, N), ``doc_topic_dists`` (M, K), ``doc_lengths`` (M,), ``vocab`` (N,) and ``term_frequency``
    (N,).

    Raises
    ------
    InputError
        If there is no model, or the shares are of another one or of another corpus.
    """
    place = model_path(model)
    opened = corpus if isinstance(corpus, Corpus) else open_corpus(corpus)
    arrays = read_model(place, ("word", "word_topic", "term_count")).arrays
    with tempfile.TemporaryDirectory(prefix="streaming-jsmf-") as folder:
        file = Path(folder) / "shares" if shares is None else shares
        found = transform(place, opened, file) if shares is None else open_shares_of(place, shares)
        document_topic = _all_shares(found)
    lengths = _lengths(opened, arrays["word"])
    if len(lengths) != len(document_topic):
        raise InputError(
            f"the shares are of {len(document_topic)} documents and the corpus has {len(lengths)}; give those of this "
            "corpus"
        )
    return {
        "topic_term_dists": arrays["word_topic"].T,
        "doc_topic_dists": document_topic / document_topic.sum(axis=1, keepdims=True),
        "doc_lengths": lengths,
        "vocab": [str(word) for word in arrays["word"]],
        "term_frequency": np.asarray(arrays["term_count"], np.float64),
    }


def _all_shares(shares: SharesFile) -> NDArray[np.float64]:
    tables = shares.tables(share_columns(shares.about))
    return np.concatenate([dense(shares.about, table) for table in tables])


def _lengths(corpus: Corpus, words: NDArray[Any]) -> NDArray[np.float64]:
    """(M,) tokens of words of the model."""
    known = np.isin(np.array(corpus.vocabulary().words, dtype=object), words).astype(np.float64)
    return np.concatenate([block @ known for block in iter_blocks(list_units(corpus), corpus.n_words)])


def _free(path: str | Path) -> Path:
    place = local_path(normalise(path, "a corpus"), "a corpus")
    if place.exists():
        raise InputError(f"{place}: exists already; give another path for the corpus")
    return place
