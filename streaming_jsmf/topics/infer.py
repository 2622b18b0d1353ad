"""Inference: one or several models from a moments store, by either engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from streaming_jsmf.config import InferSettings, StodSettings
from streaming_jsmf.display import location
from streaming_jsmf.errors import TooFewFactorsError
from streaming_jsmf.fingerprint import fingerprint
from streaming_jsmf.inference.anchors import DegenerateAnchorsError, RejectedAnchorError
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.moments.select import SelectedMoments, select_partitions
from streaming_jsmf.moments.store import Moments, open_moments
from streaming_jsmf.process_limits import peak_memory
from streaming_jsmf.rectification.enn import ALGORITHM_VERSION as ENN_ALGORITHM
from streaming_jsmf.storage.large_arrays import large_arrays_in_files
from streaming_jsmf.storage.paths import StorePath, store_path
from streaming_jsmf.storage.results import Found, package_versions
from streaming_jsmf.topics.anchor_words import Arrays, anchor_rules, fit_anchor_words
from streaming_jsmf.topics.requirements import EngineSettings, Requirements
from streaming_jsmf.topics.store import (
    Model,
    model_targets,
    read_model,
    request_of_model,
    require_model_or_free,
    wanted_model,
    write_model,
)

#: Increase when the tensor engine computes other topics from the same moments and settings.
STOD_ALGORITHM = 2


@dataclass(frozen=True)
class InferPlan:
    """A model to infer from moments: its identity, what it requires, and the computation. Made once for each K."""

    moments: Moments
    settings: EngineSettings
    threads: int

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of the moments, the settings and the algorithm, which determine the arrays of the model."""
        settings = self.settings
        stod = isinstance(settings, StodSettings)
        fields: dict[str, Any] = {
            "moments": self.moments.digests(third_moment=stod),
            "settings": settings.fields(),
        }
        if stod:
            fields["algorithm"] = STOD_ALGORITHM
        # The prior sum of STOD may be estimated from rectified co-occurrences (``estimate_alpha0``).
        inferred = settings.prior_settings if isinstance(settings, StodSettings) else settings
        if inferred is not None and inferred.rectify == "enn":
            fields["enn"] = ENN_ALGORITHM
        return fingerprint(fields)

    @cached_property
    def requirements(self) -> Requirements:
        """The settings beside the words and documents of the store."""
        return Requirements.of_moments(self.settings, self.moments)

    def fit(self, listener: Listener = silent) -> Model:
        """Fit the model in memory. No pass over the corpus. Raises ``InputError`` as ``infer``."""
        self.requirements.require(self.threads)
        stages: dict[str, dict[str, float]] = {}
        last = time.perf_counter()

        def lap(stage: str) -> None:
            nonlocal last
            now = time.perf_counter()
            stages[stage] = {"seconds": round(now - last, 3), "peak_memory": peak_memory()}
            last = now

        # The bits of a product depend on the number of BLAS threads; our threads compute fixed blocks instead.
        with single_blas_thread(), large_arrays_in_files():
            try:
                arrays, metrics = self._computed(lap, listener)
            except DegenerateAnchorsError as error:
                raise TooFewFactorsError(f"{self.moments.path}: {error}") from error
            except RejectedAnchorError as error:
                raise self.requirements.rejected(error) from None
        manifest = self.moments.manifest
        provenance = {
            "engine": self.settings.engine,
            "moments": location(self.moments.path),
            "fingerprint": self.fingerprint,
            "corpus_fingerprints": [manifest.corpus.fingerprint],
            "tokens": manifest.corpus.tokens,
            "scan_settings": manifest.settings,
            "settings_fingerprint": manifest.range_key,
            "partitions": self.moments.partitions if isinstance(self.moments, SelectedMoments) else None,
            "versions": package_versions(),
            "stages": stages,
        }
        return Model(arrays, self.settings.fields(), metrics, provenance)

    def _computed(self, lap: Callable[[str], None], listener: Listener) -> tuple[Arrays, dict[str, Any]]:
        """Arrays and metrics of the model."""
        if isinstance(self.settings, InferSettings):
            given = self.requirements.given_anchors()
            rules = anchor_rules(self.settings, self.moments.n_documents, given)
            arrays, metrics = fit_anchor_words(
                self.moments, self.settings, rules, self.threads, lap, listener
            )
            self.requirements.warn_of_omitted(metrics.get("given_anchors", ()))
            return arrays, metrics
        # Its kernels take a tenth of the start-up time, and the other engine does not need them.
        from streaming_jsmf.topics.tensor import fit_tensor

        return fit_tensor(self.moments, self.settings, self.threads, lap, listener)


def fit_moments(
    moments: Moments, settings: EngineSettings, *, threads: int | None = None, listener: Listener = silent
) -> Model:
    """Fit a model in memory; see ``infer``. ``threads`` is None for one per core."""
    return InferPlan(moments, settings, Execution(workers=threads).concurrency).fit(listener)


def infer_model(
    moments: Moments,
    model: str | Path | StorePath,
    settings: EngineSettings,
    *,
    workers: int | None = None,
    overwrite: bool = False,
    listener: Listener = silent,
) -> Model:
    """Fit a model and write it, unless the same call has done so; errors are those of ``infer``."""
    threads = Execution(workers=workers).threads_here
    target = store_path(model, "a model")
    require_model_or_free(target)
    plan = InferPlan(moments, settings, threads)
    request = request_of_model(plan.fingerprint, settings.fields())
    with wanted_model(target, request, overwrite=overwrite).writing() as found:
        if found is Found.MADE:
            return read_model(target)
        plan.requirements.announce()
        fitted = plan.fit(listener)
        write_model(target, fitted)
    return fitted


def infer_each(
    moments: str | Path | StorePath | Moments,
    model: str | Path | StorePath,
    n_topics: Sequence[int],
    settings: EngineSettings,
    *,
    partitions: str | None = None,
    workers: int | None = None,
    overwrite: bool = False,
    listener: Listener = silent,
) -> tuple[StorePath, ...]:
    """Fit a model for each K of ``n_topics``, and return their paths (``model_targets``). No pass over the corpus.

    The same call completes an interrupted run. Other arguments and errors are those of ``infer``.
    """
    targets = model_targets(store_path(model, "a model"), n_topics)
    opened = opened_moments(moments, partitions)
    for k, path in targets.items():
        wanted = replace(settings, n_topics=k)
        infer_model(opened, path, wanted, workers=workers, overwrite=overwrite, listener=listener)
    return tuple(targets.values())


def opened_moments(moments: str | Path | StorePath | Moments, partitions: str | None) -> Moments:
    """Open a moments store, or only partitions of it."""
    opened = moments if isinstance(moments, Moments) else open_moments(moments)
    return opened if partitions is None else select_partitions(opened, partitions)
