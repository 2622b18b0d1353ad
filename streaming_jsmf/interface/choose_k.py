"""Compare models of several K from one scan, and suggest one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from streaming_jsmf.config import (
    ComparisonRequest,
    InferSettings,
    PolishSettings,
    ScanSettings,
    settings_of,
    takes,
)
from streaming_jsmf.corpus import Corpus, open_corpus
from streaming_jsmf.corpus.format import is_corpus
from streaming_jsmf.corpus.units import list_units
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.evaluation.choice import Choice, Measures, choose, fields_of
from streaming_jsmf.evaluation.coherence import distinct_share
from streaming_jsmf.evaluation.counts import COUNTED, counts_of
from streaming_jsmf.evaluation.metrics import TOP_WORDS, Unavailable, top_word_metrics
from streaming_jsmf.evaluation.topic_shape import exclusivity, stability
from streaming_jsmf.interface.fit import FitPlan, numbers_of_topics
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.jobs.events import Listener, combine, progress_shown, silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.moments.select import FEWEST_PARTS, require_parts, resampled
from streaming_jsmf.moments.store import Moments, open_moments
from streaming_jsmf.reporting.page import render_comparison, require_report
from streaming_jsmf.storage.kinds import CORPUS, MOMENTS, is_at, unsuitable
from streaming_jsmf.storage.paths import StorePath, is_free, json_bytes, read_bytes, store_path
from streaming_jsmf.storage.results import write_alone
from streaming_jsmf.topics.infer import fit_moments
from streaming_jsmf.topics.plan import TopicsPlan
from streaming_jsmf.topics.requirements import Requirements
from streaming_jsmf.topics.store import COMPARISON, Model, model_targets, read_model

#: Default suffix of the output directory, appended to the source.
SUFFIX = ".choose-k"

#: Number of partitions of a scan; stability resamples them. A corpus with too few row groups for that is cut by rows.
PARTITIONS = 16
BY_ROWS = f"rows % {PARTITIONS}"


@dataclass(frozen=True)
class Comparison:
    """Result of ``choose_k``.

    ``choice`` is the table with the suggestion, ``missing`` the reason for each column without values, ``models`` the
    paths by ascending K, and ``page`` the HTML page of the table and its drawings; ``choose-k.json`` next to it is for
    programs.
    """

    choice: Choice
    missing: dict[str, str]
    models: tuple[StorePath, ...]
    page: StorePath


@takes(ComparisonRequest, Execution)
def choose_k(
    source: str | Path | Corpus,
    topics: Sequence[int],
    out: str | Path | None = None,
    *,
    execution: Execution | None = None,
    listener: Listener = silent,
    overwrite: bool = False,
    progress: bool | None = None,
    **options: Any,
) -> Comparison:
    """Fit a model for each of several K from one scan, compare them by the same measures, and suggest one.

    The scan is for the largest K. Each K then takes the inference, the passes of polish, one pass that counts the top
    words, and ``replicas`` more inferences without a pass. Results of an earlier run are reused. Raises ``InputError``
    if there are fewer than two K or the source does not support the largest, and as ``fit``; ``StoreError`` if a store
    is damaged.

    Parameters
    ----------
    source
        Path or URL of a corpus, or of a moments store made from one.
    topics
        At least two different numbers of topics.
    out
        Directory for the models (``k=5``, ...), the page and, for a corpus, the moments store with its partitions.
        None: ``source`` with ``.choose-k`` appended.
    overwrite
        Whether to replace models of the same K and the moments store if their settings differ. Other files in the
        directory stay.
    progress
        Whether to show progress bars. None: in notebooks and on terminals.
    """
    numbers = sorted(set(numbers_of_topics(topics)))
    if len(numbers) < 2:
        raise InputError("a single number of topics is given; give several to compare, such as 5,10,20,50")
    wanted = ComparisonRequest.of(options)
    place = store_path(source, "a corpus or a moments store")
    target = place.with_name(place.name + SUFFIX) if out is None else store_path(out, "a directory of models")
    execution = settings_of("execution", Execution, execution, options)
    models = model_targets(target, numbers)  # raises before any work
    page, table = target / "choose-k.html", target / COMPARISON
    for path, require_own in ((page, require_report), (table, _require_comparison)):
        if not is_free(path):
            require_own(path)
    # The bars end with the call.
    with progress_shown(progress) as bars:
        plan = FitPlan(
            models,
            TopicsPlan(
                InferSettings(numbers[-1]),
                PolishSettings(seed=wanted.seed),
                execution,
                combine(bars, listener),
            ),
            ScanSettings(
                seed=wanted.seed,
                partition_nonzeros=wanted.partition_nonzeros,
                sample_share=wanted.sample_share,
            ),
            target / "moments",
            overwrite,
        )
        candidates = _candidates(source, place, plan, wanted)
        paths = replace(plan, topics=candidates.plan).write_models(candidates.moments, candidates.corpus)
        choice = choose([candidates.measure(path) for path in paths])
    missing, shown = candidates.missing, render_comparison(choice, candidates.missing)
    write_alone(page, shown.encode(), lambda: require_report(page), overwrite=True)
    data = json_bytes(fields_of(choice, missing))
    write_alone(table, data, lambda: _require_comparison(table), overwrite=True)
    return Comparison(choice, missing, paths, page)


def _candidates(
    source: str | Path | Corpus, place: StorePath, plan: FitPlan, wanted: ComparisonRequest
) -> _Candidates:
    """The moments of the source, which is scanned if it is a corpus, and how their models are made and measured."""
    topics = plan.topics
    if (there := is_at(place)) == MOMENTS:
        if wanted.partition_nonzeros or wanted.sample_share:
            raise InputError(
                f"{place}: is scanned already; {option.partition_nonzeros} and {option.sample_share} are for a corpus"
            )
        moments = open_moments(place)
        moments.eigenpairs(plan.most)  # raises before any work
        opened, reason = _corpus_of(moments, wanted.corpus)
        topics = topics if opened else replace(topics, polish=None)
        Requirements.of_moments(topics.engine(plan.most), moments).announce()
    else:
        if not is_corpus(source, either := f"{CORPUS} or {MOMENTS}"):
            raise unsuitable(place, either, there)
        opened, reason = open_corpus(source), ""
        moments = _scan(opened, plan, in_parts=wanted.replicas > 0)
    return _Candidates(moments, opened, reason, topics, wanted.seed, wanted.replicas)


def _require_comparison(path: StorePath) -> None:
    """Raise ``InputError`` unless a file is a comparison, also a damaged one."""
    data = read_bytes(path)
    if data and not (b'"format_version"' in data and b'"suggested"' in data):
        raise InputError(f"{path}: is not a comparison of numbers of topics; move it away")


def _corpus_of(moments: Moments, corpus: str | Path | None) -> tuple[Corpus | None, str]:
    if corpus is not None:
        return open_corpus(corpus), ""
    try:
        return open_corpus(moments.manifest.corpus.path), ""
    except InputError as error:
        return None, f"{error}; name it with {option.corpus('CORPUS')}"


def _scan(corpus: Corpus, plan: FitPlan, *, in_parts: bool) -> Moments:
    plan.require_possible(corpus)
    settings = plan.scan_settings
    if in_parts:
        usual = settings.partition_budget(corpus.nonzeros, corpus.n_words)
        budget = max(1, min(usual, math.ceil(corpus.nonzeros / PARTITIONS)))
        by = BY_ROWS if len(list_units(corpus)) < FEWEST_PARTS else None
        settings = replace(settings, partition_nonzeros=budget, partition_by=by)
    plan = replace(plan, scan_settings=settings)
    return plan.scanned(corpus, overwrite=plan.overwrite)


@dataclass(frozen=True)
class _Candidates:
    """Models of several K and their measures; without ``corpus`` they are neither polished nor counted."""

    moments: Moments
    corpus: Corpus | None
    reason: str
    plan: TopicsPlan
    seed: int
    replicas: int
    missing: dict[str, str] = field(default_factory=dict)

    @single_blas_thread()
    def measure(self, path: StorePath) -> Measures:
        model = read_model(path, ("word", "word_topic", "prominent_words", "topic_probability"), COUNTED)
        top_words = model.arrays["prominent_words"]
        measures: dict[str, Callable[[], float]] = {
            "perplexity": lambda: self._perplexity(model),
            "npmi": lambda: self._of_top_words(path, model)["npmi"]["mean"],
            "coherence": lambda: self._of_top_words(path, model)["coherence"]["mimno_2011"]["mean"],
            "stability": lambda: self._stability(len(top_words)),
        }
        values: dict[str, float] = {}
        for name, measure in measures.items():
            try:
                values[name] = measure()
            except Unavailable as reason:
                self.missing.setdefault(name, str(reason))
        return Measures(
            len(top_words),
            distinct_share=distinct_share(top_words[:, :TOP_WORDS]),
            eigengap=model.metrics.get("eigenvalue_gap"),
            exclusivity=float(exclusivity(model.arrays["word_topic"], top_words[:, :TOP_WORDS]).mean()),
            **values,
        )

    def _perplexity(self, model: Model) -> float:
        """Perplexity of the documents held out by polish, after its last step."""
        if self.corpus is None:
            raise Unavailable(self.reason)
        held_out = (model.metrics.get("polish") or {}).get("perplexity")
        if not held_out:
            raise Unavailable(
                "the corpus has too few documents to hold some out of polish, or counts are fractions"
            )
        return float(held_out[-1]["perplexity"])

    def _of_top_words(self, path: StorePath, model: Model) -> dict[str, Any]:
        if self.corpus is None:
            raise Unavailable(self.reason)
        counts = counts_of(path, model, self.corpus, self.plan.execution, self.plan.listener)
        return top_word_metrics(model.arrays["prominent_words"], counts)

    def _stability(self, n_topics: int) -> float:
        """Stability before polish, because models of resampled partitions are not polished."""
        if not self.replicas:
            raise Unavailable(f"no replicas were asked for ({option.replicas})")
        try:
            require_parts(self.moments)
        except InputError as error:
            raise Unavailable(str(error)) from error
        drawn = (resampled(self.moments, self.seed, number) for number in range(self.replicas))
        own, *others = (
            fit_moments(
                moments,
                InferSettings(n_topics),
                threads=self.plan.execution.threads_here,
                listener=self.plan.listener,
            ).arrays["word_topic"]
            for moments in (self.moments, *drawn)
        )
        return stability(own, others).value
