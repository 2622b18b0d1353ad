"""STOD as an estimator."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal

from streaming_jsmf.config import Refinement, StodSettings
from streaming_jsmf.estimators.base import TopicEstimator, with_parameters
from streaming_jsmf.topics.store import Model


@with_parameters
@dataclass(eq=False, repr=False)
class STOD(TopicEstimator):
    """Topics and their Dirichlet prior by tensor decomposition (Wang et al., ECML-PKDD 2014), out of core.

    Fewer topics than ``n_topics`` are found if the corpus does not hold more; see ``components_``.

    Attributes
    ----------
    components_ : ndarray of shape (n_topics, n_words)
        p(word | topic); rows sum to 1.
    topic_probability_ : ndarray of shape (n_topics,)
        Share of each topic in the corpus.
    alpha_, alpha0_ : ndarray of shape (n_topics,) and float
        Dirichlet prior, and the sum with which it was found.
    lambda_ : ndarray of shape (n_topics,)
        Strength of the component of each topic.
    duplicate_of_ : ndarray of shape (n_topics,)
        A larger topic with nearly the same words, or -1.
    eigenvalues_ : ndarray
        Leading eigenvalues of the second moment.
    metrics_ : dict
        Certificates of the result.
    model_ : xarray.Dataset
        The whole model, as returned by ``open_model``; ``save`` writes it.
    n_features_in_, feature_names_in_ : int and ndarray of str
        Number of words, and the words if the input has them.
    """

    _: KW_ONLY
    alpha0: float | Literal["auto", "shares"] = StodSettings.alpha0
    restarts: int = StodSettings.restarts
    iterations: int = StodSettings.iterations
    threshold: float = StodSettings.threshold
    refine: Refinement = StodSettings.refine

    _settings_class: ClassVar[type[StodSettings]] = StodSettings

    def _keep(self, model: Model) -> None:
        super()._keep(model)
        self.alpha_ = model.arrays["alpha"]
        self.alpha0_ = float(model.metrics["alpha0"])
        self.lambda_ = model.arrays["lambda"]
        self.duplicate_of_ = model.arrays["duplicate_of"]
