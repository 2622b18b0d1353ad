"""What to evaluate a model with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streaming_jsmf.config.fields import LARGEST_SEED, Settings, setting

#: Models of resampled partitions unless told otherwise.
DEFAULT_REPLICAS = 5


@dataclass(frozen=True)
class EvaluationRequest(Settings):
    """What to evaluate a model with. Corpora and stores are paths or URLs, or open ones.

    Parameters
    ----------
    corpus
        Corpus in which the words of the model are counted and whose documents are predicted. The results are
        kept with the model.
    moments
        Moments store from which the model was inferred.
    truth
        Simulated corpus whose topics the model should have recovered.
    replicas
        Number of models of resampled partitions that measure the stability; requires a store that keeps its
        partitions.
    seed
        Seed of the resampling and of estimated metrics.
    words
        List each topic with its NPMI and this many words.
    """

    corpus: Any = setting(None, absent="the stored results of the training corpus", metavar="CORPUS")
    moments: Any = setting(None, absent="its path at that time", metavar="MOMENTS")
    truth: Any = setting(None, absent="none", metavar="CORPUS")
    replicas: int = setting(DEFAULT_REPLICAS, ge=0)
    seed: int = setting(0, ge=0, le=LARGEST_SEED)
    words: int | None = setting(None, absent="topics are not listed", ge=1)
