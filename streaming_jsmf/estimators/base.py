"""What both estimators do: any corpus or matrix through the same scan and inference, and topic shares of documents."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from streaming_jsmf.config import DocumentWeights, InferSettings, ScanSettings, StodSettings
from streaming_jsmf.corpus import Corpus
from streaming_jsmf.errors import InputError
from streaming_jsmf.estimators import sources
from streaming_jsmf.estimators.feature_names import feature_words
from streaming_jsmf.estimators.support import Shares, plain, require_counts, seed_of, temporary_directory
from streaming_jsmf.evaluation.perplexity import Completer, Completion
from streaming_jsmf.inference.document_topics import MAX_ITERATIONS, TOLERANCE
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.jobs.lock import sole_writer
from streaming_jsmf.jobs.memory import parse_memory
from streaming_jsmf.model.store import Model, dataset_of, read_model, write_model
from streaming_jsmf.model.word_lists import DEFAULT_WORDS
from streaming_jsmf.storage.paths import store_path
from streaming_jsmf.workflow.infer import fit_moments
from streaming_jsmf.workflow.scan import scan
from streaming_jsmf.workflow.topics import topic_frame

#: What scikit-learn is to check of a matrix.
_MATRIX = {"accept_sparse": "csr", "ensure_non_negative": True}

#: Settings of the scan that estimators have under the same names.
_OF_THE_SCAN = ("scans", "document_weights", "partition_nonzeros", "power_steps", "exact")


class EstimatorError(InputError, ValueError):
    """An ``InputError`` that is the ``ValueError`` which users of scikit-learn look for."""


@contextmanager
def _as_value_errors() -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise EstimatorError(str(error)) from error


# Fields, since scikit-learn wants a constructor that names and keeps every parameter, and does nothing else.
@dataclass(eq=False, repr=False)
class TopicEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Base of the estimators; their own pages tell the parameters."""

    n_topics: int = 50
    _: KW_ONLY
    alpha0: float | str = "auto"
    scans: int = 2
    document_weights: DocumentWeights = "capped"
    max_topics: int | None = None
    partition_nonzeros: int | None = None
    power_steps: int = 3
    exact: bool = False
    scheduler: str = "threads"
    workers: int | None = None
    memory: int | str | None = None
    store: str | Path | None = None
    scratch: str | Path | None = None
    feature_names: Any = None
    n_components: int | None = None
    transform_iterations: int = MAX_ITERATIONS
    transform_tolerance: float = TOLERANCE
    random_state: int | np.random.RandomState | None = 0

    #: Class of the settings of the engine; the estimator has parameters of the same names.
    _settings_class: ClassVar[type[InferSettings] | type[StodSettings]]
    _third_moment: ClassVar[bool] = False

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find the topics of a corpus: its scans, then the inference.

        Parameters
        ----------
        X
            Path or URL of a corpus, or one that is open, which is read out of core; or counts, documents x words: a
            Dask array of CSR or dense blocks, of which one is in memory at a time, or a matrix of scipy or NumPy.
            Counts are written as a temporary corpus first, integers as int32 and others as float32.
        y
            Not used.

        Returns
        -------
        self

        Raises
        ------
        InputError
            As ``scan`` and ``infer``; it is a ``ValueError`` too.
        StoreError
            If the corpus, or the moments at ``store``, are damaged.
        """
        del y
        with _as_value_errors():
            require_counts(
                self,
                "n_topics",
                "n_components",
                "max_topics",
                "scans",
                "power_steps",
                "partition_nonzeros",
                "workers",
            )
            seed, execution = seed_of(self.random_state), self._execution()
            settings = self._settings_class(**plain(self._engine_parameters(seed)))
            of_the_scan = self._scan_settings(seed)
            with temporary_directory(self.scratch) as folder:
                corpus = self._corpus(X, folder)
                place = store_path(
                    folder / "moments" if self.store is None else self.store, "a moments store"
                )
                moments = scan(corpus, place, of_the_scan, execution)
                self._keep(fit_moments(moments, settings, threads=self.workers))
        return self

    def transform(self, X: Any) -> Any:
        """Topic shares of documents, given the topics: see ``inference.document_topics``.

        Parameters
        ----------
        X
            As in ``fit``, over the same words. A corpus is read once, a block at a time. Of a Dask array nothing is
            read yet: the shares are a Dask array with the same blocks of documents, as dask-ml's estimators have it.

        Returns
        -------
        Documents x K, rows sum to 1: an array, or of a Dask array a Dask array. A document without words gets the mean
        of the prior ``alpha_``.

        Warns
        -----
        ConvergenceWarning
            If documents ran out of steps before they were known to be within ``transform_tolerance``; of a Dask array
            when its blocks are computed.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        InputError
            If the words are others than those of the fit; it is a ``ValueError`` too.
        """
        check_is_fitted(self, "components_")
        with _as_value_errors():
            require_counts(self, "transform_iterations", "workers")
            shares = Shares(
                np.ascontiguousarray(self.components_.T),
                self.alpha_,
                self.transform_tolerance,
                self.transform_iterations,
                self.workers,
            )
            if sources.is_dask_array(X):
                self._require_features(sources.dask_shape(X)[1])
                return sources.map_documents(X, shares, len(self.components_))
            blocks = [shares(block) for block in self._blocks(X)]
        return np.concatenate([np.empty((0, len(self.components_))), *blocks])

    def inverse_transform(self, X: Any) -> Any:
        """The word probabilities of documents that have these topic shares: documents x words, rows sum to 1.

        Parameters
        ----------
        X
            Documents x K, as ``transform`` gives them.
        """
        check_is_fitted(self, "components_")
        return np.asarray(X) @ self.components_

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log-likelihood of a token of documents that are completed: higher is better.

        The topic shares of each document are found from one half of its tokens, and the other half is predicted; see
        ``evaluation.perplexity``, which is exp of minus this. Held-out documents tell more than those of the fit.

        Parameters
        ----------
        X
            As in ``fit``, over the same words; no Dask array, and whole numbers.
        y
            Not used.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        InputError
            If the words are others than those of the fit, or no document has two tokens; it is a ``ValueError`` too.
        """
        del y
        check_is_fitted(self, "components_")
        with _as_value_errors():
            completer = Completer.of(
                np.ascontiguousarray(self.components_.T), self.alpha_, self._model.arrays["term_count"]
            )
            done = Completion()
            for block in self._blocks(X):
                done = done.merge(completer.complete(block))
            if not done.tokens:
                raise InputError("X has no document of two tokens, of which one could be predicted")
        return done.log_likelihood / done.tokens

    def topics(self, words: int = DEFAULT_WORDS) -> Any:
        """The topics as a pandas ``DataFrame`` by falling share: ``topic``, ``share``, ``label``, ``words``.

        Parameters
        ----------
        words
            Of each topic, the most probable ones.
        """
        check_is_fitted(self, "components_")
        return topic_frame(self._model, words)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The estimator as it was after the fit of a model store that ``save``, ``infer`` or ``fit`` wrote.

        Parameters of the engine are those of the model; those of the scan are the defaults, and play no part in
        ``transform``.

        Raises
        ------
        InputError
            If there is no model, or one of the other engine; it is a ``ValueError`` too.
        StoreError
            If the model is damaged.
        """
        with _as_value_errors():
            model = read_model(store_path(path, "a model"))
            if model.engine != cls._settings_class.engine:
                raise InputError(
                    f"{path} is a model of {model.engine}; load it with the estimator of that engine"
                )
        known = {field.name for field in fields(cls)}
        found = cls(**{name: value for name, value in model.settings.items() if name in known})
        found._keep(model)
        found._of_corpus = True
        found.n_features_in_ = int(model.arrays["word"].size)
        found.feature_names_in_ = np.array(model.arrays["word"], dtype=object)
        return found

    @property
    def model_(self) -> Any:
        """The model as ``open_model`` shows it: an ``xarray.Dataset`` with the words as a coordinate."""
        check_is_fitted(self, "components_")
        return dataset_of(self._model)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the model as a model store, for ``open_model`` and the verbs of the command line.

        Some metrics of ``evaluate`` need the moments, too: fit with ``store`` to keep them.

        Raises
        ------
        InputError
            If something is at ``path``, unless it is a model that may be overwritten.
        """
        check_is_fitted(self, "components_")
        with _as_value_errors():
            place = store_path(path, "a model")
            with sole_writer(place):
                write_model(place, self._model, overwrite=overwrite)

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        return tags

    def _engine_parameters(self, seed: int) -> dict[str, Any]:
        """Values of the engine's settings: those of the parameters that have the same names."""
        own = {field.name: getattr(self, field.name, None) for field in fields(self._settings_class)}
        return {**own, "n_topics": self._n_topics, **({"seed": seed} if "seed" in own else {})}

    @property
    def _n_topics(self) -> int:
        return self.n_topics if self.n_components is None else self.n_components

    def _scan_settings(self, seed: int) -> ScanSettings:
        given = {name: getattr(self, name) for name in _OF_THE_SCAN}
        given["max_topics"] = self._n_topics if self.max_topics is None else self.max_topics
        return ScanSettings(seed=seed, third_moment=self._third_moment, **plain(given))

    def _execution(self) -> Execution:
        memory = parse_memory(self.memory) if isinstance(self.memory, str) else self.memory
        return Execution(self.scheduler, self.workers, memory)

    def _corpus(self, X: Any, folder: Path) -> Corpus:
        """The corpus itself, or one in ``folder`` of the counts; sets what scikit-learn keeps of the features."""
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
            blocks = sources.matrix_blocks(
                validate_data(self, X, **_MATRIX, ensure_min_samples=2, ensure_min_features=2)
            )
        words = feature_words(self.feature_names, self, self.n_features_in_)
        if words is None:
            numbered = [f"x{number}" for number in range(self.n_features_in_)]
            words = getattr(self, "feature_names_in_", numbered)
        return sources.write_corpus(blocks, [str(word) for word in words], folder / "corpus")

    def _blocks(self, X: Any) -> Iterator[csr_array[Any]]:
        """Blocks of documents over the words of the fit."""
        if sources.is_corpus(X):
            corpus = sources.opened(X)
            self._require_words(corpus)
            return sources.corpus_blocks(corpus)
        if self._of_corpus and not hasattr(X, "columns"):
            # Words of a corpus are no names of columns: scikit-learn would warn that a matrix has none.
            checked = check_array(X, **_MATRIX, estimator=self, input_name="X")
            self._require_features(checked.shape[1])
        else:
            checked = validate_data(self, X, **_MATRIX, reset=False)
        return sources.matrix_blocks(checked)

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

    def _keep(self, model: Model) -> None:
        """Set what both engines know; each adds its own."""
        self._model = model
        self.components_ = np.ascontiguousarray(model.arrays["word_topic"].T)
        self.topic_probability_ = model.arrays["topic_probability"]
        self.eigenvalues_ = model.arrays["eigenvalues"]
        self.metrics_ = dict(model.metrics)
