"""LR-JSMF as an estimator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from streaming_jsmf.config import (
    ANCHOR_ROW_SUM,
    AUTO,
    Acceleration,
    AnchorMethod,
    CorrelationMethod,
    InferSettings,
    MissingMass,
    Rectifier,
    SimplexMethod,
)
from streaming_jsmf.errors import InputError
from streaming_jsmf.estimators.base import TopicEstimator
from streaming_jsmf.inference.prior import dirichlet_prior, prior_sum
from streaming_jsmf.model.store import Model


@dataclass(eq=False, repr=False)
class LRJSMF(TopicEstimator):
    """Topics by anchor words from the rectified co-occurrence (Lee et al., ICML 2021), out of core.

    Parameters
    ----------
    n_topics
        K.
    alpha0
        Sum of the Dirichlet prior with which ``transform`` weighs topics against words; its mean are the shares of the
        topics in the corpus. ``auto``: the one under which topics would be as mixed in documents as the correlations
        that were found say. The topics themselves do not depend on it.
    rectify, max_iterations, tolerance, anchor_min_df, acceleration, missing_mass, left_out, anchors, \
anchor_shrinkage, anchor_row_sum, simplex, correlations, cliques, clique
        Of the inference, see ``InferSettings``.
    anchor_words
        Anchors that are given, one for a topic: words, or several words that count as one.
    scans, document_weights, partition_nonzeros, power_steps, exact
        Of the scan, see ``ScanSettings``.
    max_topics
        The largest K that the scan is to serve; None: ``n_topics``. With ``store`` several K can be fitted on one scan.
    scheduler, workers, memory
        How the scan runs, see ``Execution``; ``memory`` in bytes, or a size such as ``4GB``. They change no bit, but
        for ``memory``, which may make a new store's partitions smaller. ``workers`` are also the threads of the
        inference and of ``transform``; None: one for each core.
    store
        Path or URL of the moments store. One that is there and was made of the same corpus with the same settings is
        used without a scan. One made of a matrix serves fits to that matrix; to let it grow, give a corpus that stays.
        None: a temporary one. ``partial_fit`` begins a new one, with its batches beside it.
    scratch
        Directory for temporary files, which are removed when the fit ends; None: that of the system. Workers on other
        machines must see it under the same path.
    n_components
        Another name of ``n_topics``, as scikit-learn has it; None: ``n_topics`` counts.
    feature_names
        The words of a matrix: a list with one for each column, or what has ``get_feature_names_out``, such as a fitted
        ``CountVectorizer``. None: those of the steps before in a pipeline, the columns of a data frame, or x0, x1, ...
    transform_iterations, transform_tolerance
        When ``transform`` is done with a document, see ``inference.document_topics``.
    random_state
        Seed of the probes of the scan: a number, or a generator from which one is drawn. None is 0: the same input
        gives the same bits.

    Attributes
    ----------
    components_
        K x N, p(word | topic); rows sum to 1.
    topic_probability_, topic_topic_
        (K,) shares of topics in the corpus; K x K joint probabilities of topics, A.
    anchors_
        (K,) word ids of the anchors.
    eigenvalues_
        (K,) leading eigenvalues of the co-occurrence.
    alpha_, alpha0_
        (K,) the prior of ``transform``, and its sum.
    metrics_
        Certificates of the result.
    model_
        All of it, as ``open_model`` shows it; ``save`` writes it.
    n_features_in_, feature_names_in_
        N; the words, where the input has them.
    """

    _: KW_ONLY
    rectify: Rectifier = "enn"
    max_iterations: int = 150
    tolerance: float = 1e-5
    anchor_min_df: float | None = None
    acceleration: Acceleration = "momentum"
    missing_mass: MissingMass = "uniform"
    left_out: float | None = None
    anchors: AnchorMethod = "pivoted-qr"
    anchor_shrinkage: float | None = None
    anchor_words: Sequence[str | Sequence[str]] = ()
    anchor_row_sum: float = ANCHOR_ROW_SUM
    simplex: SimplexMethod = "auto"
    correlations: CorrelationMethod = "diagonal"
    cliques: int = 1
    clique: int = 1

    _settings_class: ClassVar[type[InferSettings]] = InferSettings

    def _engine_parameters(self, seed: int) -> dict[str, Any]:
        self._given_sum()  # before the work, not after it
        return super()._engine_parameters(seed)

    def _given_sum(self) -> float | None:
        """The sum of the prior, if it is given."""
        if isinstance(self.alpha0, str) and self.alpha0 == AUTO:
            return None
        if isinstance(self.alpha0, str) or not 0 < self.alpha0 < float("inf"):
            raise InputError(f"alpha0 is {self.alpha0!r}; give {AUTO}, or a number above 0")
        return float(self.alpha0)

    def _keep(self, model: Model) -> None:
        super()._keep(model)
        self.topic_topic_ = model.arrays["topic_topic"]
        self.anchors_ = model.arrays["anchors"]
        self.alpha0_ = self._given_sum() or prior_sum(self.topic_topic_, self.topic_probability_)
        self.alpha_ = dirichlet_prior(self.topic_probability_, self.alpha0_)
