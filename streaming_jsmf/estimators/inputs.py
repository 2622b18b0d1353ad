"""Documents of the estimators: corpora and matrices with their words, and the batches that ``partial_fit`` keeps."""

from __future__ import annotations

import inspect
import operator
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from dask import array as da
from dask import delayed
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_array, check_random_state, validate_data

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.corpus import Corpus, open_corpus
from streaming_jsmf.corpus.units import iter_blocks, list_units
from streaming_jsmf.corpus.write import column_words, matrix_blocks, tidy_rows, wide, write_corpus
from streaming_jsmf.errors import InputError, SettingsMismatchError
from streaming_jsmf.inference.cvb0 import document_topics
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.linalg.typing import Floats
from streaming_jsmf.moments.scan import scan
from streaming_jsmf.moments.store import Moments
from streaming_jsmf.storage.paths import (
    StorePath,
    exists,
    is_free,
    is_url,
    make_directory,
    remove_file,
    remove_trees,
    store_path,
)
from streaming_jsmf.storage.replace import put_files, remove_store, temporary_place

#: Arguments of scikit-learn's matrix validation.
_MATRIX = {"accept_sparse": "csr", "ensure_non_negative": True}


class EstimatorError(InputError, ValueError):
    """An ``InputError`` that is also a ``ValueError``, as scikit-learn users expect."""


@contextmanager
def as_value_errors() -> Iterator[None]:
    """Re-raise an ``InputError`` from the block as ``EstimatorError``."""
    try:
        yield
    except InputError as error:
        raise EstimatorError(str(error)) from error


def checked_shares(X: Any, estimator: BaseEstimator, n_topics: int) -> Any:
    """Topic shares for ``inverse_transform``, with a column for each topic."""
    shares = check_array(wide(X), ensure_min_samples=0, estimator=estimator, input_name="X")
    if shares.shape[1] != n_topics:
        given = f"X has {shares.shape[1]} columns, and the model has {n_topics} topics"
        raise InputError(f"{given}; give the shares that transform returns")
    return shares


class DocumentInput(BaseEstimator):  # type: ignore[misc]
    """Mixin that reads the documents of an estimator."""

    feature_names: Any
    n_features_in_: int

    def _corpus(self, X: Any, place: StorePath) -> Corpus:
        """Return the corpus ``X``, or one written to ``place`` from counts; set ``n_features_in_`` and the names."""
        require_documents(X)
        corpus = _corpus_at(X)
        if corpus is not None:
            self._of_corpus = True
            self.n_features_in_ = corpus.n_words
            self.feature_names_in_ = np.array(corpus.vocabulary().words, dtype=object)
            return corpus
        self._of_corpus = False
        if is_dask_array(X):
            self.n_features_in_ = n_columns(X)
            self.__dict__.pop("feature_names_in_", None)
            blocks = _dask_blocks(X)
        else:
            blocks = matrix_blocks(
                validate_data(self, wide(X), **_MATRIX, ensure_min_samples=2, ensure_min_features=2)
            )
        if self.feature_names is None:
            words = _words_of_pipeline(self, self.n_features_in_)
        else:
            words = column_words(self.feature_names, self.n_features_in_, "feature_names")
        if words is None:
            numbered = [f"x{number}" for number in range(self.n_features_in_)]
            words = getattr(self, "feature_names_in_", numbered)
        return write_corpus(blocks, [str(word) for word in words], place)

    def _more(self, X: Any, place: StorePath, words: tuple[str, ...], first: int) -> Corpus:
        """Like ``_corpus``, for further documents with the words of the fit, numbered from ``first``."""
        corpus = _corpus_at(X)
        if corpus is not None:
            return self._same_words(corpus)
        return write_corpus(self._blocks(X), words, place, first)

    def _blocks(self, X: Any) -> Iterator[csr_array[Any]]:
        """Yield blocks of documents with the words of the fit."""
        require_documents(X)
        corpus = _corpus_at(X)
        if corpus is not None:
            self._same_words(corpus)
            return iter_blocks(list_units(corpus), corpus.n_words)
        if is_dask_array(X):
            self._require_features(n_columns(X))
            return _dask_blocks(X)
        if self._of_corpus and not hasattr(X, "columns"):
            # The fit took the names from a corpus; scikit-learn would warn that a matrix has none.
            checked = check_array(wide(X), **_MATRIX, estimator=self, input_name="X")
            self._require_features(checked.shape[1])
        else:
            checked = validate_data(self, wide(X), **_MATRIX, reset=False)
        return matrix_blocks(checked)

    def _require_features(self, found: int) -> None:
        if found != self.n_features_in_:
            raise InputError(
                f"X has {found} features, but {type(self).__name__} is expecting {self.n_features_in_} features as "
                "input: one for each word"
            )

    def _same_words(self, corpus: Corpus) -> Corpus:
        self._require_features(corpus.n_words)
        names = getattr(self, "feature_names_in_", None)
        if names is not None and tuple(names) != corpus.vocabulary().words:
            raise InputError(
                f"{corpus.root} lacks the words of the fit, or has them in another order; ingest it with the same "
                "vocabulary"
            )
        return corpus


def require_documents(X: Any) -> None:
    """Raise ``InputError`` if ``X`` contains texts rather than counts."""
    values = getattr(X, "values", X)  # of a data frame or a series
    if isinstance(values, np.ndarray) and values.dtype.kind in "OTU":
        values = values.ravel()
    elif not isinstance(values, list | tuple):
        return
    first = next(iter(values), None)
    if isinstance(first[0] if isinstance(first, list | tuple) and first else first, str | bytes):
        raise InputError(
            "X holds texts, but counts are needed: put a CountVectorizer before this estimator in a pipeline, or pass "
            "the texts to streaming_jsmf.fit"
        )


def _corpus_at(X: Any) -> Corpus | None:
    """Return the corpus that ``X`` is or names; None for a matrix."""
    return open_corpus(X) if isinstance(X, str | os.PathLike) else None


def is_dask_array(X: object) -> bool:
    return isinstance(X, da.Array)


def n_columns(X: Any) -> int:
    """Return the number of words of a Dask array; ``InputError`` unless it is a matrix chunked by rows only."""
    if X.ndim != 2:
        raise InputError(f"X is a Dask array with {X.ndim} dimensions; give documents x words")
    if X.numblocks[1] != 1:
        raise InputError(
            f"X is a Dask array with {X.numblocks[1]} blocks across the words; rechunk it with X.rechunk({{1: -1}})"
        )
    return int(X.shape[1])


def _dask_blocks(X: Any) -> Iterator[csr_array[Any]]:
    """Compute the blocks of a Dask array one by one, so that only one is in memory."""
    # Dask copies the block of an array, for which SciPy refuses some unsound ones in words of its own.
    for number, [block] in enumerate(X.to_delayed()):
        yield _checked(block.compute(), number, X.shape[1])


def _checked(block: Any, number: int, n_words: int) -> csr_array[Any]:
    counts = tidy_rows(block)
    if counts.shape[1] != n_words:
        raise InputError(
            f"block {number} of X, counted from 0, has {counts.shape[1]} columns, and X has {n_words}; correct it"
        )
    if not (np.isfinite(counts.data).all() and (counts.data >= 0).all()):
        raise InputError(
            f"block {number} of X, counted from 0, has a negative or non-finite count; correct it"
        )
    return counts


def shares_of(block: csr_array[Any], word_topic: Floats, prior: Floats, **options: Any) -> Floats:
    """Return the topic shares of a block of documents; warn if some have not converged."""
    found = document_topics(block, word_topic, prior, **options)
    if found.unconverged:
        warnings.warn(
            f"the topic shares of {found.unconverged} documents still change by more than {options['tolerance']} "
            f"after {options['max_iterations']} rounds; increase transform_iterations",
            ConvergenceWarning,
            stacklevel=2,
        )
    return found.shares


def map_documents(X: Any, function: Callable[[csr_array[Any]], Floats], width: int) -> Any:
    """Map a function lazily over the row blocks of a Dask array; the result has shape (n_documents, ``width``).

    The function is one key of the graph, not copied for each block. Blocks are checked when computed.
    """
    carried, n_words = delayed(function, pure=True, traverse=False), X.shape[1]

    def of_block(block: Any, apply: Callable[[csr_array[Any]], Floats], block_id: tuple[int, int]) -> Floats:
        return apply(_checked(block, block_id[0], n_words))

    return X.map_blocks(
        of_block, carried, dtype=np.float64, chunks=(X.chunks[0], (width,)), meta=np.empty((0, 0))
    )


def _words_of_pipeline(estimator: object, n_features: int) -> list[str] | None:
    """Return the previous pipeline step's names, from the call stack: sparse matrices carry no names."""
    frame = inspect.currentframe()
    while frame is not None:
        pipeline = frame.f_locals.get("self")
        if isinstance(pipeline, Pipeline) and pipeline.steps and pipeline.steps[-1][1] is estimator:
            try:
                names = pipeline[:-1].get_feature_names_out()
            except (AttributeError, ValueError):
                return None  # a step without names
            return None if names is None or len(names) != n_features else [str(word) for word in names]
        frame = frame.f_back
    return None


def seed_of(random_state: Any, drawn: int | None = None) -> int:
    """Return an integer unchanged, otherwise the seed ``drawn`` before, or one from the generator (None: of NumPy)."""
    try:
        return operator.index(random_state)
    except TypeError:
        if drawn is not None:
            return drawn
        if isinstance(random_state, np.random.Generator):
            return int(random_state.integers(2**31 - 1))
        return int(check_random_state(random_state).randint(2**31 - 1))


@dataclass(frozen=True)
class KeptRows:
    """The corpus in ``folder`` that batches are added to, and its moments store."""

    folder: StorePath
    moments: StorePath
    batches: int = 0
    n_documents: int = 0

    @contextmanager
    def place_of_next(self) -> Iterator[StorePath]:
        """Yield the path of the next batch, a corpus of its own, which is removed when the block ends.

        Raises InputError if earlier batches are missing or an earlier call was interrupted.
        """
        if self.batches and not exists(self.folder):
            raise InputError(
                f"{self.folder}: the rows of earlier batches are missing; start again with a new estimator, and with "
                "store= to keep them"
            )
        path = self.folder / "batch"
        if not is_free(path):
            raise InputError(
                f"{self.folder}: an earlier partial_fit was interrupted; start again with a new estimator"
            )
        try:
            yield path
        finally:
            remove_trees(path)

    def added(self, batch: Corpus, settings: ScanSettings, execution: Execution) -> tuple[KeptRows, Moments]:
        """Add a batch to the corpus, and let the store follow; if that fails, both are as before.

        Raises ``InputError`` if the batch has other words, and the errors of ``scan``.
        """
        rows = self.folder / "corpus"
        if not self.batches:
            make_directory(rows)
            vocabulary = store_path(batch.vocabulary_path, "a file")
            put_files([(vocabulary, rows / vocabulary.name)])
        elif batch.vocabulary().words != open_corpus(str(rows)).vocabulary().words:
            raise InputError(
                f"{batch.root} has other words than the batches before; ingest it with their words"
            )
        new = {
            store_path(batch.shard_path(shard), "a file"): rows
            / f"batch-{self.batches:05d}-{number:05d}.parquet"
            for number, shard in enumerate(batch.shards)
        }
        if any(map(exists, new.values())):
            raise InputError(
                f"{self.folder}: another copy of the estimator has added batches since; continue with that one"
            )
        try:
            put_files([*new.items()])
            moments = scan(str(rows), self.moments, settings, execution, follow=True)
        except BaseException as error:
            for path in new.values():
                remove_file(path)
            if isinstance(error, SettingsMismatchError):
                raise InputError(
                    f"{self.moments}: the store of earlier batches has settings of its own, which cannot change; set "
                    "them as they were, or start again with a new estimator"
                ) from error
            raise
        found = replace(self, batches=self.batches + 1, n_documents=self.n_documents + batch.n_documents)
        return found, moments


def begin_rows(stack: ExitStack, store: str | Path | None, scratch: str | Path | None) -> KeptRows:
    """Start without batches; ``stack`` removes what is created. Raises InputError if ``store`` or its rows exist."""
    if store is None:
        folder = stack.enter_context(temporary_directory(scratch))
        return KeptRows(folder, folder / "moments")
    moments = store_path(store, "a moments store").absolute()
    folder = moments.with_name(f"{moments.name}.rows")
    taken = next((place for place in (moments, folder) if not is_free(place)), None)
    if taken is not None:
        raise InputError(
            f"{taken}: exists already; partial_fit starts with a new store, so give another path"
        )
    make_directory(folder)
    stack.callback(remove_trees, folder)
    stack.callback(remove_store, moments, ignore_errors=True)
    return KeptRows(folder, moments)


@contextmanager
def temporary_directory(scratch: str | Path | None) -> Iterator[StorePath]:
    """Yield a temporary directory in ``scratch``, a path or URL; ``InputError`` if it cannot be created."""
    parent: StorePath | None = None
    if scratch is not None:
        parent = store_path(scratch, "a directory") if is_url(scratch) else Path(scratch)
    with ExitStack() as held:
        try:
            folder = held.enter_context(temporary_place(parent))
        except OSError as error:
            raise InputError(
                f"scratch is {str(scratch)!r}, which is not writable ({error.strerror}); give another directory"
            ) from error
        yield folder
