"""How topics are made, for any number of them: inference from moments, then polish by passes over the documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from streaming_jsmf.config import InferSettings, PolishSettings, ScanSettings, StodSettings, declared
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.moments.store import Moments
from streaming_jsmf.storage.paths import StorePath
from streaming_jsmf.topics.infer import InferPlan
from streaming_jsmf.topics.polish import polish_model, polished_fingerprint
from streaming_jsmf.topics.requirements import EngineSettings
from streaming_jsmf.topics.store import Model, request_of_model


@dataclass(frozen=True)
class TopicsPlan:
    """What ``fit``, ``choose_k``, ``update`` and the estimators make topics with.

    Attributes
    ----------
    inferred : Settings of the inference, for any number of topics.
    polish : Settings of polish, or None for topics that are not polished.
    """

    inferred: EngineSettings
    polish: PolishSettings | None
    execution: Execution
    listener: Listener = silent

    @classmethod
    def of_model(cls, model: Model, execution: Execution, listener: Listener) -> Self:
        """How the topics of a model were made."""
        kind = StodSettings if model.engine == "stod" else InferSettings
        known = {name: value for name, value in model.settings.items() if name in declared(kind)}
        polish = model.settings.get("polish")
        return cls(kind(**known), None if polish is None else PolishSettings(**polish), execution, listener)

    def engine(self, n_topics: int) -> EngineSettings:
        """The settings of the inference of this number of topics; its rectification may stop early before polish."""
        settings = replace(self.inferred, n_topics=n_topics)
        if self.polish is None or isinstance(settings, StodSettings):
            return settings
        return settings.before_polish()

    def scan_settings(self, settings: ScanSettings, n_topics: int) -> ScanSettings:
        """The settings of a scan for up to this number of topics."""
        third_moment = settings.third_moment or isinstance(self.inferred, StodSettings)
        return replace(settings, max_topics=n_topics, third_moment=third_moment)

    def described(self, n_topics: int) -> dict[str, Any]:
        """The settings as a model stores them."""
        polish = {} if self.polish is None else {"polish": self.polish.fields()}
        return {**self.engine(n_topics).fields(), **polish}

    def inference(self, moments: Moments, n_topics: int) -> InferPlan:
        return InferPlan(moments, self.engine(n_topics), self.execution.threads_here)

    def request(self, moments: Moments, corpus: Corpus | None, n_topics: int) -> Mapping[str, Any]:
        """What identifies the model (``request_of_model``)."""
        made_by = self.inference(moments, n_topics).fingerprint
        if self.polish is not None:
            assert corpus is not None, "polish reads the documents"
            made_by = polished_fingerprint(made_by, corpus, self.polish)
        return request_of_model(made_by, self.described(n_topics))

    def model(self, moments: Moments, corpus: Corpus | None, target: StorePath, n_topics: int) -> Model:
        """Infer and polish a model in memory; polish needs the corpus, and a place for its work beside ``target``."""
        found = self.inference(moments, n_topics).fit(self.listener)
        if self.polish is None:
            return found
        assert corpus is not None, "polish reads the documents"
        name = str(moments.path)
        return polish_model(found, name, corpus, target, self.polish, self.execution, self.listener)
