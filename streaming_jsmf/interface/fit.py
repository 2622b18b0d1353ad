"""``fit``: from a source or corpus to models, with one scan for all numbers of topics."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from streaming_jsmf.config import (
    ENGINE_SETTINGS,
    INGEST_SETTINGS,
    InferSettings,
    IngestRequest,
    PolishSettings,
    ScanSettings,
    StodSettings,
    engine_settings_of,
    request_of,
    settings_of,
    takes,
)
from streaming_jsmf.corpus.format import Corpus, is_corpus, open_corpus, read_manifest
from streaming_jsmf.display import location
from streaming_jsmf.errors import InputError, names_options, option
from streaming_jsmf.jobs.events import Listener, combine, progress_shown, silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.moments.scan import scan
from streaming_jsmf.moments.store import Moments
from streaming_jsmf.storage.paths import StorePath, exists, node_exists, store_path
from streaming_jsmf.storage.replace import temporary_folder
from streaming_jsmf.storage.results import Found, Wanted
from streaming_jsmf.topics.plan import TopicsPlan
from streaming_jsmf.topics.requirements import Requirements
from streaming_jsmf.topics.store import EDITS, beside, model_targets, read_model, wanted_model, write_model

if TYPE_CHECKING:
    from streaming_jsmf.interface.topic_model import TopicModel

logger = logging.getLogger(__name__)

#: Default number of topics.
DEFAULT_TOPICS = 20


@dataclass(frozen=True)
class Fitted:
    """Result of ``fit`` for several K: the moments store, the models in the order of the topics, and the corpus."""

    moments: StorePath
    models: tuple[StorePath, ...]
    corpus: str


@dataclass(frozen=True)
class FitPlan:
    """What ``fit`` makes, checked before any work.

    Attributes
    ----------
    models : The path of the model for each number of topics.
    topics : How the topics are made.
    moments : The path of the moments store.
    overwrite : Whether to replace models that exist, and the corpus beside them.
    """

    models: Mapping[int, StorePath]
    topics: TopicsPlan
    scan_settings: ScanSettings
    moments: StorePath
    overwrite: bool = False

    @property
    def most(self) -> int:
        """The largest number of topics."""
        return max(self.models)

    def require_possible(self, corpus: Corpus) -> None:
        """Refuse before the scan what the corpus cannot support, and models that exist and differ."""
        for k, path in self.models.items():
            if not self.overwrite and node_exists(path):
                _require_same(path, {"corpus": corpus.fingerprint, **self.topics.described(k)})
        settings = self.topics.engine(self.most)
        requirements = Requirements.of_corpus(settings, corpus, self.scan_settings)
        execution = self.topics.execution
        requirements.require(execution.threads_here)
        is_there = not self.overwrite and all(map(node_exists, self.models.values()))
        if execution.memory is not None and not is_there:
            execution.require_memory(lambda _: requirements.memory, f"the inference of {self.most:,} topics")
        requirements.announce()

    def scanned(self, corpus: Corpus, **options: Any) -> Moments:
        """Scan the corpus for the largest number of topics."""
        settings = self.topics.scan_settings(self.scan_settings, self.most)
        return scan(corpus, self.moments, settings, self.topics.execution, self.topics.listener, **options)

    def write_models(self, moments: Moments, corpus: Corpus | None) -> tuple[StorePath, ...]:
        """Fit, polish and write each model that is not there already; return their paths. Polish needs the corpus."""
        for k, path in self.models.items():
            wanted = wanted_model(path, self.topics.request(moments, corpus, k), overwrite=self.overwrite)
            with wanted.writing() as found:
                if found is not Found.MADE:
                    write_model(path, self.topics.model(moments, corpus, path, k))
        return tuple(self.models.values())


@overload
def fit(
    source: Any, path: str | Path | None = ..., n_topics: int | None = ..., **options: Any
) -> TopicModel: ...


@overload
def fit(source: Any, path: str | Path, n_topics: Sequence[int], **options: Any) -> Fitted: ...


@takes(
    *INGEST_SETTINGS,
    ScanSettings,
    PolishSettings,
    *ENGINE_SETTINGS,
    Execution,
    without=("max_topics", "third_moment"),
)
def fit(
    source: Any,
    path: str | Path | None = None,
    n_topics: int | Sequence[int] | None = None,
    *,
    ingest_request: IngestRequest | None = None,
    scan_settings: ScanSettings | None = None,
    infer_settings: InferSettings | StodSettings | None = None,
    polish: bool | PolishSettings | None = None,
    moments: str | Path | None = None,
    execution: Execution | None = None,
    overwrite: bool | Literal["auto"] = False,
    progress: bool | None = None,
    listener: Listener = silent,
    **options: Any,
) -> TopicModel | Fitted:
    """Find the topics of a corpus, or of any source of ``ingest``: scan, infer and polish.

    A single K writes ``path`` itself; several write ``path/k=5``, ``path/k=10``, ... from one scan. The same call
    completes an interrupted run: the scan resumes, and models with the same fingerprint are kept. The result is
    bit-identical to that of ``streaming-jsmf fit``. Returns a ``TopicModel``, or for a sequence of K ``Fitted`` with
    the paths of the store and the models.

    Raises ``InputError`` and ``StoreError`` as ``ingest``, ``scan`` and ``infer``; before any work if a model exists
    or ``n_topics`` is not a number. Warns if the source is a list of texts, each of which is the path of an existing
    file.

    Parameters
    ----------
    source
        Path or URL of a corpus, or an open corpus; or any source of ``ingest`` (texts, tables, files), whose corpus is
        written to ``path`` with ``.corpus`` appended, unless an earlier run wrote it.
    path
        Path or URL of the result. None: a temporary directory, removed with the returned model; ``save`` keeps it.
    n_topics
        K, or several of them. None: that of ``infer_settings``, or 20.
    ingest_request
        How to ingest a source; not allowed for a corpus.
    scan_settings, infer_settings
        All settings except the numbers of topics. ``StodSettings`` select the tensor engine and a scan with the third
        moment.
    polish
        Whether, or how, to polish the topics by passes over the documents. None: only for LR-JSMF, since polish does
        not always improve the topics of the tensor engine.
    moments
        Path of the moments store. None: ``path`` with ``.moments`` appended. A store of more topics and otherwise
        equal settings is reused.
    execution
        How the scan and the inference run; the result does not depend on it.
    overwrite
        Replace existing models, and the corpus and the moments next to them if they were made in another way. auto:
        only those that ``fit`` made with this ``path`` and whose topics were not edited, so that a cell of a notebook
        can be run again.
    progress
        Whether to show progress bars. None: in notebooks and on terminals.
    listener
        Called with each event of ``jobs.events``.
    **options
        Fields of all these settings, such as ``text="body"``, ``min_df=5``, ``seed=3`` or ``workers=4``, and
        ``engine``. ``seed`` applies to the scan, the engine and polish.

    Examples
    --------
    >>> model = fit(["the cat sat on the mat", ...], n_topics=20)  # doctest: +SKIP
    >>> model = fit("news.csv", "news", 20, text="body", id="url", metadata=["date"])  # doctest: +SKIP
    """
    if isinstance(path, Integral | Sequence) and not isinstance(path, str):
        raise InputError(f"the second argument is where the model goes; write n_topics={path!r}")
    several = isinstance(n_topics, Iterable) and not isinstance(n_topics, str)
    temporary = path is None
    # The bars end with the call, and a temporary directory with the model.
    with ExitStack() as stack, progress_shown(progress) as bars:
        if path is None:
            if several:
                raise InputError("models of several numbers of topics need a path: the directory of all")
            path = stack.enter_context(temporary_folder()) / "model"
        target = store_path(path, "a model")
        if n_topics is None:
            n_topics = DEFAULT_TOPICS if infer_settings is None else infer_settings.n_topics
        topics = numbers_of_topics(n_topics)
        engine = engine_settings_of(
            topics[0], infer_settings, options, name="infer_settings", shared=("seed",)
        )
        place = beside(target, "moments") if moments is None else store_path(moments, "a moments store")
        models = model_targets(target, topics)
        plan = FitPlan(
            models,
            TopicsPlan(
                engine,
                _polish_settings(polish, engine, options),
                settings_of("execution", Execution, execution, options),
                combine(bars, listener),
            ),
            settings_of("scan_settings", ScanSettings, scan_settings, options),
            place,
            _replaceable(overwrite, target, models.values(), place),
        )
        corpus = _corpus(source, target, request_of(ingest_request, options), plan)
        plan.require_possible(corpus)
        store = plan.scanned(corpus, overwrite=plan.overwrite and moments is None)
        fitted = Fitted(store.path, plan.write_models(store, corpus), corpus.root)
        if not names_options.get():
            _warn_of(fitted.models)  # a command does so below the topics
        if several:
            return fitted
        model = _opened(fitted)
        model._temporary = temporary
        weakref.finalize(model, stack.pop_all().close)
    return model


def _warn_of(models: Sequence[StorePath]) -> None:
    """Warn of models that do not pass their certificates, and of topics that may be doubted."""
    from streaming_jsmf.reporting.topics import read_topics, warnings_about

    for path in models:
        for sentence in warnings_about(path, read_topics(path, probabilities=False)):
            logger.warning("%s%s", f"{path.name}: " if len(models) > 1 else "", sentence)


def _opened(fitted: Fitted) -> TopicModel:
    """Open the only model."""
    # The command line prints topics without loading what draws a report.
    from streaming_jsmf.interface.topic_model import TopicModel

    model = TopicModel(fitted.models[0])
    model._corpus = fitted.corpus
    return model


def _require_same(path: StorePath, asked: Mapping[str, Any]) -> None:
    """Refuse a model of another corpus or with other settings; only the scan determines the full request."""

    def stored() -> dict[str, Any]:
        model = read_model(path, ())
        return {"corpus": next(iter(model.corpora), ""), **model.settings}

    # Whether the model is intact is not asked yet.
    Wanted(path, asked, stored, lambda: False).find()


def _replaceable(
    overwrite: bool | Literal["auto"], target: StorePath, models: Iterable[StorePath], moments: StorePath
) -> bool:
    """Whether what exists may be replaced; with "auto", not models whose topics were edited since."""
    if overwrite != "auto":
        if overwrite not in (True, False):
            raise InputError(f"overwrite is {overwrite!r}; give True, False or 'auto'")
        return bool(overwrite)
    existing = [path for path in models if node_exists(path)]
    made = {path: _is_at(moments, read_model(path, ()).provenance.get("moments")) for path in existing}
    corpus = beside(target, "corpus")
    if exists(corpus):
        made[corpus] = read_manifest(str(corpus)).settings.get("made_for") == "fit"
    for path, by_fit in made.items():
        if not by_fit:
            raise InputError(
                f"{path}: not made by fit with this path; give another path, or {option.overwrite(True)} to replace it"
            )
    return not any(node_exists(path / EDITS) for path in existing)


def _is_at(place: StorePath, recorded: object) -> bool:
    """Whether a store is at the location that a model recorded, however either is spelled."""
    if isinstance(place, Path):
        return Path(str(recorded)).resolve() == place.resolve()
    return recorded == location(place)


def numbers_of_topics(given: int | Sequence[int]) -> tuple[int, ...]:
    """One number of topics or several; raise ``InputError`` if they are not integers, of Python or NumPy."""
    found = np.atleast_1d(np.asarray(given))
    if found.ndim > 1 or not np.issubdtype(found.dtype, np.integer):
        raise InputError(f"{option.n_topics} is {given!r}; give a whole number, or several")
    return tuple(found.tolist())


def _polish_settings(
    given: bool | PolishSettings | None, engine: InferSettings | StodSettings, options: dict[str, Any]
) -> PolishSettings | None:
    """Settings of polish, or None for no polish; by default only LR-JSMF models are polished."""
    if given is False or (given is None and isinstance(engine, StodSettings)):
        return None
    settings = None if isinstance(given, bool) else given
    return settings_of("polish", PolishSettings, settings, options)


def _corpus(source: Any, model: StorePath, request: IngestRequest | None, plan: FitPlan) -> Corpus:
    """The corpus; a source that is not a corpus is ingested next to the model."""
    if isinstance(source, str | os.PathLike) and is_corpus(source):
        if request not in (None, IngestRequest()):
            raise InputError(
                f"{source} is already a corpus; leave out the options of ingest, or give the source of the corpus"
            )
        return open_corpus(source)
    # Importing the readers takes a quarter of the start-up time, and a corpus does not need them.
    from streaming_jsmf.ingestion.ingest import ingest

    target = beside(model, "corpus")
    request = replace(request or IngestRequest(), made_for="fit")
    # The ingest starts its own cluster, which needs its own report.
    execution = plan.topics.execution.reporting_on("ingest")
    found = ingest(source, target, request, execution, plan.topics.listener, overwrite=plan.overwrite)
    logger.info("%s: the corpus of the source, which later runs reuse", target)
    return found
