"""What both estimators do: any corpus or matrix through the same scan and inference, and topic shares of documents."""

from __future__ import annotations

import weakref
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from streaming_jsmf.config import DocumentWeights, InferSettings, ScanSettings, StodSettings
from streaming_jsmf.errors import InputError
from streaming_jsmf.estimators import sources
from streaming_jsmf.estimators.inputs import DocumentInput
from streaming_jsmf.estimators.kept_rows import begin_rows
from streaming_jsmf.estimators.support import (
    Shares,
    as_value_errors,
    plain,
    require_counts,
    seed_of,
    temporary_directory,
)
from streaming_jsmf.evaluation.perplexity import Completer, Completion
from streaming_jsmf.inference.document_topics import MAX_ITERATIONS, TOLERANCE
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.jobs.lock import sole_writer
from streaming_jsmf.config import parse_memory
from streaming_jsmf.model.store import Model, dataset_of, read_model, write_model
from streaming_jsmf.model.word_lists import DEFAULT_WORDS
from streaming_jsmf.storage.paths import store_path
from streaming_jsmf.workflow.infer import fit_moments
from streaming_jsmf.workflow.scan import scan
from streaming_jsmf.workflow.topics import topic_frame

#: Settings of the scan that estimators have under the same names.
_OF_THE_SCAN = ("scans", "document_weights", "partition_nonzeros", "power_steps", "exact")


# Fields, since scikit-learn wants a constructor that names and keeps every parameter, and does nothing else.
@dataclass(eq=False, repr=False)
class TopicEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, DocumentInput):  # type: ignore[misc]
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
        with as_value_errors():
            settings, of_the_scan = self._settings()
            with temporary_directory(self.scratch) as folder:
                corpus = self._corpus(X, folder / "corpus")
                place = (
                    folder / "moments" if self.store is None else store_path(self.store, "a moments store")
                )
                moments = scan(corpus, place, of_the_scan, self._execution())
                self._keep(fit_moments(moments, settings, threads=self.workers))
        self.__dict__.pop("_rows", None)
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Add documents to those of the calls before, and find the topics of all of them.

        The batches are kept on the disk with their moments: at ``store`` and ``store`` with ``.rows`` appended, or in a
        temporary directory that goes with the estimator. The result has the bits of a store into which the same batches
        were scanned one after the other (``scan --add``); of one matrix of all rows that holds up to rounding where the
        scan is ``exact``, and elsewhere as far as it approximates. With ``scans=2`` every call reads all batches
        once more, unless the first was so large that its basis is of a sample; with ``scans=1`` only the new one. The
        inference is done in each call. So few large batches are better than many small ones.

        Parameters
        ----------
        X
            As in ``fit``, always over the same words. The first batch must carry the topics by itself.
        y
            Not used.

        Returns
        -------
        self

        Raises
        ------
        InputError
            As ``fit``, after which all is as before the call; after ``fit``, which keeps no rows; if ``store`` is there
            already, or its settings have changed since. It is a ``ValueError`` too.
        """
        del y
        with as_value_errors(), ExitStack() as stack:
            settings, of_the_scan = self._settings()
            rows = getattr(self, "_rows", None)
            if rows is None and hasattr(self, "components_"):
                raise InputError("fit keeps no rows to which others could be added; begin with partial_fit")
            kept = begin_rows(stack, self.store, self.scratch) if rows is None else rows
            with kept.place_of_next() as place:
                if rows is None:
                    corpus = self._corpus(X, place)
                else:
                    corpus = self._more(X, place, tuple(self._model.arrays["word"]), kept.n_documents)
                kept, moments = kept.added(corpus, of_the_scan, self._execution())
            if rows is not None:
                self._rows = kept  # whatever becomes of the inference, these documents have come
            self._keep(fit_moments(moments, settings, threads=self.workers))
            self._rows = kept
            begun = stack.pop_all()
            if rows is None and self.store is None:
                weakref.finalize(self, begun.close)
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
        with as_value_errors():
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
            As in ``fit``, over the same words; whole numbers. A Dask array is computed, a block at a time.
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
        with as_value_errors():
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
        with as_value_errors():
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
        with as_value_errors():
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

    def _settings(self) -> tuple[InferSettings | StodSettings, ScanSettings]:
        """Of the engine and of the scan, checked before any work."""
        require_counts(self, "n_topics", "n_components", "max_topics", "scans", "power_steps")
        require_counts(self, "partition_nonzeros", "workers")
        seed = seed_of(self.random_state)
        return self._settings_class(**plain(self._engine_parameters(seed))), self._scan_settings(seed)

    def _execution(self) -> Execution:
        memory = parse_memory(self.memory) if isinstance(self.memory, str) else self.memory
        return Execution(self.scheduler, self.workers, memory)

    def _keep(self, model: Model) -> None:
        """Set what both engines know; each adds its own."""
        self._model = model
        self.components_ = np.ascontiguousarray(model.arrays["word_topic"].T)
        self.topic_probability_ = model.arrays["topic_probability"]
        self.eigenvalues_ = model.arrays["eigenvalues"]
        self.metrics_ = dict(model.metrics)
