"""What an estimator is given, as a corpus or as blocks of documents, and what scikit-learn keeps of its features."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, validate_data

from streaming_jsmf.corpus import Corpus
from streaming_jsmf.corpus.matrices import matrix_blocks, write_corpus
from streaming_jsmf.errors import InputError
from streaming_jsmf.estimators import sources
from streaming_jsmf.estimators.feature_names import feature_words

#: What scikit-learn is to check of a matrix.
_MATRIX = {"accept_sparse": "csr", "ensure_non_negative": True}


class DocumentInput(BaseEstimator):  # type: ignore[misc]
    """The part of an estimator that reads documents."""

    feature_names: Any
    n_features_in_: int

    def _corpus(self, X: Any, place: Path) -> Corpus:
        """The corpus itself, or one at ``place`` of the counts; sets what scikit-learn keeps of the features."""
        require_documents(X)
        if sources.is_corpus(X):
            corpus = sources.opened(X)
            self._of_corpus = True
            self.n_features_in_ = corpus.n_words
            self.feature_names_in_ = np.array(corpus.vocabulary().words, dtype=object)
            return corpus
        self._of_corpus = False
        if sources.is_dask_array(X):
            self.n_features_in_ = sources.dask_shape(X)[1]
            self.__dict__.pop("feature_names_in_", None)
            blocks = sources.dask_blocks(X)
        else:
            blocks = matrix_blocks(
                validate_data(self, X, **_MATRIX, ensure_min_samples=2, ensure_min_features=2)
            )
        words = feature_words(self.feature_names, self, self.n_features_in_)
        if words is None:
            numbered = [f"x{number}" for number in range(self.n_features_in_)]
            words = getattr(self, "feature_names_in_", numbered)
        return write_corpus(blocks, [str(word) for word in words], place)

    def _more(self, X: Any, place: Path, words: tuple[str, ...], first: int) -> Corpus:
        """As ``_corpus``, of further documents over the words of the fit, numbered from ``first``."""
        if sources.is_corpus(X):
            corpus = sources.opened(X)
            self._require_words(corpus)
            return corpus
        return write_corpus(self._blocks(X), words, place, first)

    def _blocks(self, X: Any) -> Iterator[csr_array[Any]]:
        """Blocks of documents over the words of the fit."""
        require_documents(X)
        if sources.is_corpus(X):
            corpus = sources.opened(X)
            self._require_words(corpus)
            return sources.corpus_blocks(corpus)
        if sources.is_dask_array(X):
            self._require_features(sources.dask_shape(X)[1])
            return sources.dask_blocks(X)
        if self._of_corpus and not hasattr(X, "columns"):
            # Words of a corpus are no names of columns: scikit-learn would warn that a matrix has none.
            checked = check_array(X, **_MATRIX, estimator=self, input_name="X")
            self._require_features(checked.shape[1])
        else:
            checked = validate_data(self, X, **_MATRIX, reset=False)
        return matrix_blocks(checked)

    def _require_features(self, found: int) -> None:
        if found != self.n_features_in_:
            raise InputError(
                f"X has {found} features, but {type(self).__name__} is expecting {self.n_features_in_} features as "
                "input: one for each word"
            )

    def _require_words(self, corpus: Corpus) -> None:
        self._require_features(corpus.n_words)
        names = getattr(self, "feature_names_in_", None)
        if names is not None and tuple(names) != corpus.vocabulary().words:
            raise InputError(
                f"{corpus.root} has other words than the fit, or in another order; ingest it with the same vocabulary"
            )


def require_documents(X: Any) -> None:
    """Tell texts from counts, where scikit-learn would say that a text is no number.

    Raises
    ------
    InputError
        For texts: says what counts them.
    """
    values = getattr(X, "values", X)  # of a data frame or a series
    if isinstance(values, np.ndarray) and values.dtype.kind in "OTU":
        values = values.ravel()
    elif not isinstance(values, list | tuple):
        return
    first = next(iter(values), None)
    if isinstance(first[0] if isinstance(first, list | tuple) and first else first, str | bytes):
        raise InputError(
            "X holds texts, and counts are needed: put a CountVectorizer before this in a pipeline, or give the texts "
            "to streaming_jsmf.fit"
        )
