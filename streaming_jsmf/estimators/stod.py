"""STOD as an estimator."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from streaming_jsmf.config import Refinement, StodSettings
from streaming_jsmf.estimators.base import TopicEstimator
from streaming_jsmf.model.store import Model


@dataclass(eq=False, repr=False)
class STOD(TopicEstimator):
    """Topics and their Dirichlet prior by tensor decomposition (Wang et al., ECML-PKDD 2014), out of core.

    Parameters
    ----------
    n_topics
        K. Fewer topics are found where the corpus holds no more: ``components_`` tells.
    alpha0
        Sum of the Dirichlet prior of the topic shares of documents. ``auto`` and ``shares`` find it, see
        ``StodSettings``.
    restarts, iterations, threshold, refine
        Of the inference, see ``StodSettings``.
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
        Seed of the scan's probes and of the random starts: a number, or a generator from which one is drawn. None is
        0: the same input gives the same bits.

    Attributes
    ----------
    components_
        K x N, p(word | topic); rows sum to 1.
    alpha_, alpha0_
        (K,) the prior, and the sum that it was found for.
    topic_probability_
        (K,) shares of topics in the corpus.
    lambda_
        (K,) strength of the component of each topic.
    duplicate_of_
        (K,) a larger topic with nearly the same words, or -1.
    eigenvalues_
        Leading eigenvalues of the second moment.
    metrics_
        Certificates of the result.
    model_
        All of it, as ``open_model`` shows it; ``save`` writes it.
    n_features_in_, feature_names_in_
        N; the words, where the input has them.
    """

    _: KW_ONLY
    restarts: int = 30
    iterations: int = 30
    threshold: float = 6.0
    refine: Refinement = "none"

    _settings_class: ClassVar[type[StodSettings]] = StodSettings
    _third_moment: ClassVar[bool] = True

    def _keep(self, model: Model) -> None:
        super()._keep(model)
        self.alpha_ = model.arrays["alpha"]
        self.alpha0_ = float(model.metrics["alpha0"])
        self.lambda_ = model.arrays["lambda"]
        self.duplicate_of_ = model.arrays["duplicate_of"]
