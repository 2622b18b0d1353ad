"""Base class of both estimators: scan, inference and the topic shares of documents."""

from __future__ import annotations

import math
import weakref
from contextlib import ExitStack
from copy import copy
from dataclasses import KW_ONLY, dataclass, fields
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from streaming_jsmf.config import (
    DEFAULT_WORDS,
    DocumentWeights,
    ExecutionOptions,
    InferSettings,
    PolishSettings,
    ScanSettings,
    StodSettings,
    declared,
    parse_memory,
)
from streaming_jsmf.config.fields import Field, setting
from streaming_jsmf.errors import InputError, taking
from streaming_jsmf.estimators.inputs import (
    DocumentInput,
    as_value_errors,
    begin_rows,
    checked_shares,
    is_dask_array,
    map_documents,
    n_columns,
    seed_of,
    shares_of,
    temporary_directory,
)
from streaming_jsmf.inference.completion import Completion
from streaming_jsmf.inference.cvb0 import MAX_ITERATIONS, TOLERANCE
from streaming_jsmf.inference.perplexity import Completer
from streaming_jsmf.interface.fit import DEFAULT_TOPICS
from streaming_jsmf.jobs.cluster import address_of
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.moments.scan import scan
from streaming_jsmf.reporting.topics import frame_of
from streaming_jsmf.storage.paths import store_path
from streaming_jsmf.topics.infer import fit_moments
from streaming_jsmf.topics.plan import TopicsPlan
from streaming_jsmf.topics.requirements import Requirements
from streaming_jsmf.topics.store import Model, dataset_of, read_model, save_model, write_model


# A dataclass, because scikit-learn requires a constructor that only stores its named parameters. Parameters that the
# docstring omits are documented in the settings.
@dataclass(eq=False, repr=False)
class TopicEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, DocumentInput):  # type: ignore[misc]
    """Base class of the estimators.

    Parameters
    ----------
    n_topics
        Number of topics K.
    max_topics
        Largest K for which the scan can be used; None stands for ``n_topics``. With ``store``, several K can be fitted
        from one scan.
    workers
        Number of tasks that run at the same time, and of threads of the inference, ``transform`` and ``score``. None
        stands for one for each core.
    memory
        Memory that all workers together may use: bytes, or a size such as 4GB. The fit is refused if it needs more.
    store
        Path or URL of the moments store. An existing store of the same corpus and settings is used without a scan.
        ``{corpus}`` in it stands for the fingerprint of the corpus: with it and ``max_topics``, a grid search over
        ``n_topics`` scans each fold once. ``partial_fit`` creates a new one, with its batches beside it. None stands
        for a temporary store.
    scratch
        Path or URL of a directory for temporary files, which are removed after the fit. Workers on other machines must
        see it. None stands for the directory of the system.
    feature_names
        Words of the columns of a matrix: a list, or an object with ``get_feature_names_out``. None stands for the
        names of the previous pipeline step or of a data frame, or x0, x1, ...
    polish_steps
        Number of steps with which ``fit`` polishes the topics, as ``streaming_jsmf.fit`` does. ``partial_fit`` makes
        none.
    n_components
        Alias of ``n_topics``, as in scikit-learn; takes precedence if given.
    transform_iterations
        Maximum number of rounds of CVB0 for a document in ``transform``.
    transform_tolerance
        Sum of the changes of a document's topic shares at which ``transform`` stops.
    random_state
        Seed of all random draws, or a generator of NumPy from which ``fit``, or the first ``partial_fit``, draws one.
        None stands for NumPy's global generator.

    Attributes
    ----------
    components_ : ndarray of shape (n_topics, n_words)
        p(word | topic); rows sum to 1.
    topic_probability_ : ndarray of shape (n_topics,)
        Share of each topic in the corpus.
    metrics_ : dict
        Certificates of the result.
    random_state_ : int
        The seed that was given or drawn.
    model_ : xarray.Dataset
        The whole model, as returned by ``open_model``; ``save`` writes it. Functions that take the path of a model,
        such as ``report``, also take the fitted estimator.
    n_features_in_, feature_names_in_ : int and ndarray of str
        Number of words, and the words if the input has them.
    """

    n_topics: int = setting(DEFAULT_TOPICS, ge=1)
    _: KW_ONLY
    document_weights: DocumentWeights = ScanSettings.document_weights
    max_topics: int | None = setting(None, ge=1)
    partition_nonzeros: int | None = ScanSettings.partition_nonzeros
    sample_share: float | None = ScanSettings.sample_share
    exact: bool = ScanSettings.exact
    scheduler: str = ExecutionOptions.scheduler
    workers: int | None = setting(None, ge=1)
    memory: int | str | None = setting(None)
    store: str | Path | None = setting(None)
    scratch: str | Path | None = setting(None)
    feature_names: Any = setting(None)
    polish_steps: int = setting(0, ge=0)
    n_components: int | None = setting(None, ge=1)
    transform_iterations: int = setting(MAX_ITERATIONS, ge=1)
    transform_tolerance: float = setting(TOLERANCE, ge=0)
    random_state: int | np.random.RandomState | np.random.Generator | None = setting(0)

    #: Class of the settings of the engine, whose fields are parameters of the estimator.
    _settings_class: ClassVar[type[InferSettings] | type[StodSettings]]

    def fit(self, X: Any, y: Any = None) -> Self:
        """Scan the documents and infer their topics.

        Parameters
        ----------
        X
            Path or URL of a corpus, or an open corpus, which is read out of core; or counts of shape (n_documents,
            n_words): a Dask array of CSR or dense blocks, computed one by one, or a SciPy or NumPy matrix. Counts are
            first written to a temporary corpus, integers as int32 and others as float32.

        Raises
        ------
        InputError, StoreError
            As ``scan`` and ``infer`` (also a ``ValueError``); if the corpus, or the moments store at ``store``, is
            damaged.
        """
        del y
        with as_value_errors(), taking(self._fields()):
            settings, scan_settings, execution = self._settings()
            with temporary_directory(self.scratch) as folder:
                corpus = self._corpus(X, folder / "corpus")
                Requirements.of_corpus(settings, corpus, scan_settings).require()
                place = str(folder / "moments" if self.store is None else self.store)
                store = store_path(place.replace("{corpus}", corpus.fingerprint[:16]), "a moments store")
                moments = scan(corpus, store, scan_settings, execution)
                polish = (
                    PolishSettings(self.polish_steps, seed=scan_settings.seed) if self.polish_steps else None
                )
                plan = TopicsPlan(settings, polish, execution)
                self._keep(plan.model(moments, corpus, folder / "model", settings.n_topics))
        self.__dict__.pop("_rows", None)
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Add a batch of documents to those of earlier calls, and infer the topics of all of them.

        Batches and their moments are kept: in ``store`` and ``store`` + ``.rows``, or in a temporary directory
        that is removed with the estimator. The result has the bits of a corpus of the same batches
        that ``scan --follow`` has followed. It equals a fit to all rows, up to rounding.

        Of earlier batches a call reads the documents that the moments hold. It computes the basis and the topics again,
        so prefer few large batches.

        Parameters
        ----------
        X
            As in ``fit``, with the same words in every call. The first batch alone must support ``n_topics``.

        Raises
        ------
        InputError
            As ``fit``, in which case nothing has changed; after ``fit``, which keeps no rows; or if ``store`` exists or
            its settings have changed. Also a ``ValueError``.
        """
        del y
        with as_value_errors(), taking(self._fields()), ExitStack() as stack:
            rows = getattr(self, "_rows", None)
            settings, scan_settings, execution = self._settings(None if rows is None else self.random_state_)
            if rows is None and hasattr(self, "components_"):
                raise InputError(
                    "this estimator has no rows to add others to, since fit keeps none and copies lack temporary ones; "
                    "start with partial_fit, and with store= to keep the rows"
                )
            kept = begin_rows(stack, self.store, self.scratch) if rows is None else rows
            with kept.place_of_next() as place:
                if rows is None:
                    corpus = self._corpus(X, place)
                    Requirements.of_corpus(settings, corpus, scan_settings).require()
                else:
                    corpus = self._more(X, place, tuple(self._model.arrays["word"]), kept.n_documents)
                kept, moments = kept.added(corpus, scan_settings, execution)
            if rows is not None:
                self._rows = kept  # the store has these documents even if the inference fails
            self._keep(fit_moments(moments, settings, threads=execution.threads_here))
            self._rows = kept
            begun = stack.pop_all()
            if rows is None and self.store is None:
                weakref.finalize(self, begun.close)
        return self

    def transform(self, X: Any) -> Any:
        """Estimate the topic shares of documents for the fitted topics; see ``inference.cvb0.document_topics``.

        Parameters
        ----------
        X
            As in ``fit``, with the same words. A corpus is read once, one block at a time.

        Returns
        -------
        ndarray or dask.array of shape (n_documents, n_topics)
            Rows sum to 1. A document without words gets the mean of the prior ``alpha_``. For a Dask array the result
            is lazy, with the same blocks of documents.

        Warns
        -----
        ConvergenceWarning
            If documents did not reach ``transform_tolerance``; for a Dask array, when its blocks are computed.

        Raises
        ------
        NotFittedError, InputError
            Before ``fit``; if the words differ from those of the fit (also a ``ValueError``).
        """
        check_is_fitted(self, "components_")
        with as_value_errors():
            self._values()
            shares = partial(
                shares_of,
                word_topic=np.ascontiguousarray(self.components_.T),
                prior=self.alpha_,
                tolerance=self.transform_tolerance,
                max_iterations=self.transform_iterations,
                threads=1 if is_dask_array(X) else self._threads,  # Dask computes several blocks at a time
            )
            if is_dask_array(X):
                self._require_features(n_columns(X))
                return map_documents(X, shares, len(self.components_))
            return np.concatenate([np.empty((0, len(self.components_))), *map(shares, self._blocks(X))])

    def inverse_transform(self, X: Any) -> Any:
        """Return word probabilities (n_documents, n_words) of topic shares (n_documents, n_topics).

        Raises ``NotFittedError`` before ``fit``, ``ValueError`` if ``X`` is not finite or lacks a column for a topic.
        """
        check_is_fitted(self, "components_")
        with as_value_errors():
            return checked_shares(X, self, len(self.components_)) @ self.components_

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean log-likelihood per token in document completion; higher is better.

        Shares estimated from one half of a document's tokens predict the other half. Use documents not in the fit.

        Parameters
        ----------
        X
            As in ``fit``, with the same words and integer counts. A Dask array is computed block by block.

        Raises
        ------
        NotFittedError, InputError
            Before ``fit``; if the words differ, or no document has two tokens (also a ``ValueError``).
        """
        del y
        check_is_fitted(self, "components_")
        with as_value_errors():
            word_topic, counts = np.ascontiguousarray(self.components_.T), self._model.arrays["term_count"]
            completer = Completer.of(word_topic, self.alpha_, counts)
            done, threads = Completion(), self._threads
            for block in self._blocks(X):
                done = done.merge(completer.complete(block, threads=threads))
            if done.fractional:
                raise InputError(
                    f"{done.fractional:,} documents of X have fractional counts, whose tokens cannot be predicted one "
                    "by one; give whole numbers"
                )
            if not done.tokens:
                raise InputError("no document of X has two tokens, one of which could be predicted")
        return done.log_likelihood / done.tokens

    def perplexity(self, X: Any) -> float:
        """Return exp(-score), a perplexity; lower is better. Arguments and errors as ``score``.

        ``evaluate`` halves the tokens at random, too, but otherwise: of few documents it gives another value.
        """
        return math.exp(-self.score(X))

    def topics(self, words: int = DEFAULT_WORDS) -> Any:
        """Return a ``DataFrame`` by decreasing share: ``topic``, ``share``, ``label`` and the top ``words`` words."""
        check_is_fitted(self, "components_")
        return frame_of(self._model, words)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Load a fitted estimator from a model store written by ``save``, ``infer`` or ``fit``.

        Engine parameters come from the model; scan parameters have their defaults. Raises ``InputError`` (also a
        ``ValueError``) if there is no model or it belongs to the other engine, and ``StoreError`` if it is damaged.
        """
        with as_value_errors():
            model = read_model(store_path(path, "a model"))
            if model.engine != cls._settings_class.engine:
                raise InputError(f"{path} is a model of {model.engine}; load it with its estimator")
        known = {field.name for field in fields(cls)}
        found = cls(**{name: value for name, value in model.settings.items() if name in known})
        found._keep(model)
        found._of_corpus = True
        found.n_features_in_ = int(model.arrays["word"].size)
        found.feature_names_in_ = np.array(model.arrays["word"], dtype=object)
        return found

    @property
    def model_(self) -> Any:
        """The model as an ``xarray.Dataset``, as returned by ``open_model``."""
        check_is_fitted(self, "components_")
        return dataset_of(self._model)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the model to a model store, for ``open_model`` and the command line.

        Raises ``InputError`` if something else is there, or another model without ``overwrite``. Some metrics of
        ``evaluate`` also need the moments; fit with ``store`` to keep them.
        """
        check_is_fitted(self, "components_")
        with as_value_errors():
            save_model(store_path(path, "a model"), self._model, overwrite=overwrite)

    def __fspath__(self) -> str:
        """Path of the model in a temporary directory, where the first call writes it; raises ``NotFittedError``."""
        check_is_fitted(self, "components_")
        if not hasattr(self, "_place"):
            folder = TemporaryDirectory(prefix="streaming-jsmf-")
            weakref.finalize(self, folder.cleanup)
            write_model(Path(folder.name) / "model", self._model)
            self._place = str(Path(folder.name) / "model")
        return self._place

    def __getstate__(self) -> dict[str, Any]:
        temporary = {"_place", "_rows"} if self.store is None else {"_place"}
        state = super().__getstate__() | {"scheduler": address_of(self.scheduler)}
        return {name: value for name, value in state.items() if name not in temporary}

    def __sklearn_clone__(self) -> Self:
        # A copy has the address of a client instead of the client, and a fitted vectorizer keeps its words.
        found = super(TopicEstimator, copy(self)).__sklearn_clone__()
        return found.set_params(feature_names=self.feature_names)  # type: ignore[no-any-return]

    _n_features_out = property(lambda self: len(self.components_))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.positive_only = True
        return tags

    @classmethod
    def _fields(cls) -> dict[str, Field]:
        declarations = (ExecutionOptions, ScanSettings, cls._settings_class, cls)
        known = {name: field for kind in declarations for name, field in declared(kind).items()}
        return {field.name: known[field.name] for field in fields(cls)}

    def _values(self) -> dict[str, Any]:
        """Return the parameters as plain Python values; ``InputError`` if one is out of range."""
        given = {name: getattr(self, name) for name in self._fields()}
        given |= {"memory": parse_memory(self.memory), "scheduler": address_of(self.scheduler)}
        return {name: field.checked(given[name]) for name, field in self._fields().items()}

    def _settings(self, drawn: int | None = None) -> tuple[Any, ScanSettings, Execution]:
        """The settings of the engine, the scan and the execution, checked before any work; ``drawn`` is their seed."""
        values, seed = self._values(), seed_of(self.random_state, drawn)
        values["n_topics"] = values["n_components"] or values["n_topics"]
        values["max_topics"] = values["max_topics"] or values["n_topics"]
        values |= {"seed": seed, "third_moment": self._settings_class is StodSettings}

        def of(kind: type[Any]) -> Any:
            return kind(**{name: values[name] for name in declared(kind) if name in values})

        return of(self._settings_class), of(ScanSettings), of(Execution)

    _threads = property(lambda self: Execution(self.scheduler, self.workers).threads_here)

    def _keep(self, model: Model) -> None:
        """Set the attributes common to both engines."""
        self._model = model
        self.__dict__.pop("_place", None)
        self.components_ = np.ascontiguousarray(model.arrays["word_topic"].T)
        self.topic_probability_ = model.arrays["topic_probability"]
        self.eigenvalues_ = model.arrays["eigenvalues"]
        self.metrics_ = dict(model.metrics)
        self.random_state_ = int((model.provenance.get("scan_settings") or {}).get("seed", 0))
