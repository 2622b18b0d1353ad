"""The estimators LRJSMF and STOD."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar, Literal, TypeVar

from streaming_jsmf.config import (
    AUTO,
    Acceleration,
    AnchorMethod,
    CorrelationMethod,
    InferSettings,
    MissingMass,
    PolishSettings,
    Rectifier,
    StodSettings,
)
from streaming_jsmf.config.fields import parameters_text, setting
from streaming_jsmf.estimators.base import TopicEstimator
from streaming_jsmf.fingerprint import fingerprint
from streaming_jsmf.inference.correlations import dirichlet_prior
from streaming_jsmf.topics.parameters import prior_of
from streaming_jsmf.topics.store import Model

Estimator = TypeVar("Estimator", bound=TopicEstimator)


def with_parameters(kind: type[Estimator]) -> type[Estimator]:
    """Class decorator that lists all parameters and attributes in the docstring."""
    parameters = textwrap.indent(parameters_text(kind._fields().values()), "    ")
    section = "    Attributes\n    ----------\n"
    head, _, attributes = (kind.__doc__ or "").partition(section)
    common = (TopicEstimator.__doc__ or "").partition(section)[2].rstrip()
    summary = head.partition("    Parameters\n")[0].rstrip()
    kind.__doc__ = f"{summary}\n\n{parameters}\n\n{section}{common}\n{attributes}"
    return kind


@with_parameters
@dataclass(eq=False, repr=False)
class LRJSMF(TopicEstimator):
    """Anchor-word topics from the rectified co-occurrence matrix (Lee et al., ICML 2021), out of core.

    Parameters
    ----------
    alpha0
        Sum of the Dirichlet prior of the document-topic shares in ``transform``, ``score`` and the model that is saved;
        its mean is ``topic_probability_``. auto: estimated from the topic correlations. The topics do not depend on it.

    Attributes
    ----------
    topic_topic_ : ndarray of shape (n_topics, n_topics)
        Joint probabilities of topics, A.
    anchors_ : ndarray of shape (n_topics,)
        Word ids of the anchors.
    eigenvalues_ : ndarray of shape (n_topics,)
        Leading eigenvalues of the co-occurrence matrix.
    alpha_, alpha0_ : ndarray of shape (n_topics,) and float
        Dirichlet prior used by ``transform``, and its sum.
    """

    _: KW_ONLY
    polish_steps: int = setting(PolishSettings.steps, ge=0)
    alpha0: float | Literal["auto"] = setting(AUTO, gt=0)
    rectify: Rectifier = InferSettings.rectify
    max_iterations: int = InferSettings.max_iterations
    tolerance: float | None = InferSettings.tolerance
    anchor_min_df: float | None = InferSettings.anchor_min_df
    acceleration: Acceleration = InferSettings.acceleration
    missing_mass: MissingMass = InferSettings.missing_mass
    anchors: AnchorMethod = InferSettings.anchors
    anchor_shrinkage: float | None = InferSettings.anchor_shrinkage
    anchor_words: Sequence[str | Sequence[str]] = InferSettings.anchor_words
    anchor_row_sum: float = InferSettings.anchor_row_sum
    correlations: CorrelationMethod = InferSettings.correlations
    cliques: int = InferSettings.cliques
    clique: int = InferSettings.clique

    _settings_class: ClassVar[type[InferSettings]] = InferSettings

    def _keep(self, model: Model) -> None:
        if not isinstance(self.alpha0, str):  # the prior of all that takes the estimator as a model
            prior = dirichlet_prior(model.arrays["topic_probability"], self.alpha0)
            made_by = fingerprint({"model": model.fingerprint, "alpha0": float(self.alpha0)})
            provenance = {**model.provenance, "fingerprint": made_by}
            model = replace(model, arrays={**model.arrays, "alpha": prior}, provenance=provenance)
        super()._keep(model)
        self.topic_topic_ = model.arrays["topic_topic"]
        self.anchors_ = model.arrays["anchors"]
        self.alpha_ = prior_of(model)
        self.alpha0_ = float(self.alpha_.sum())


@with_parameters
@dataclass(eq=False, repr=False)
class STOD(TopicEstimator):
    """Topics and their Dirichlet prior by tensor decomposition (Wang et al., ECML-PKDD 2014), out of core.

    The fit may find fewer than ``n_topics`` topics; see the shape of ``components_``.

    Attributes
    ----------
    alpha_, alpha0_ : ndarray of shape (n_topics,) and float
        Dirichlet prior, and the value of its sum used by the decomposition.
    lambda_ : ndarray of shape (n_topics,)
        Strength of the component of each topic.
    duplicate_of_ : ndarray of shape (n_topics,)
        A larger topic with nearly the same words, or -1.
    eigenvalues_ : ndarray
        Leading eigenvalues of the second moment.
    """

    _: KW_ONLY
    alpha0: float | Literal["auto"] = StodSettings.alpha0
    restarts: int = StodSettings.restarts
    iterations: int = StodSettings.iterations
    threshold: float = StodSettings.threshold

    _settings_class: ClassVar[type[StodSettings]] = StodSettings

    def _keep(self, model: Model) -> None:
        super()._keep(model)
        self.alpha_ = model.arrays["alpha"]
        self.alpha0_ = float(model.metrics["alpha0"])
        self.lambda_ = model.arrays["lambda"]
        self.duplicate_of_ = model.arrays["duplicate_of"]
