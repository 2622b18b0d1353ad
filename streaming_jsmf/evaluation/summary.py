"""All metrics of a model as one JSON-ready dict.

Shape of every value (``number`` is a finite float; ``null`` where the input it needs was not given):

=======================  =====================================================================================
recovery                 number (needs ``cooccurrence``)
relative_recovery        number (needs ``cooccurrence``)
approximation            number (needs ``cooccurrence`` and ``topic_topic``)
relative_approximation   number (needs ``cooccurrence`` and ``topic_topic``)
dominancy                number (needs ``topic_topic``)
relative_dominancy       number (needs ``topic_topic``)
specificity              {"2015": number, "2021": number or null (needs ``cooccurrence``)}
dissimilarity            number
coherence                {"mimno_2011": E, "jsmf_2015": E, "softclique": E} (needs ``counts``), where
                         E = {"epsilon": number, "mean": number, "per_topic": [number, K of them]}
u_mass                   {"mean": number, "per_topic": [number]} (needs ``counts``)
npmi                     {"mean": number, "per_topic": [number]} (needs ``counts``)
mst_incoherence          {"cooccurrence": M, "documents": M}; M = {"mean": number, "per_topic": [number]} or null
                         (the first needs ``cooccurrence``; the second ``counts``, and ``cooccurrence`` or anchor rows)
log_relative_volume      {"value": number, "standard_error": number}, or null (needs ``rectified``, ``cooccurrence``
                         or anchor rows; null too where two topics share an anchor, or the hull is flat)
recovery_error           number (needs ``truth``)
distinct_share           number
effective_topics         number (needs ``topic_probability``)
hoyer_sparsity           number
stability                {"value": number, "standard_error": number or null (one replica)} (needs ``replicas``)
=======================  =====================================================================================

``coherence``, ``u_mass`` and ``npmi`` are null too where topics have fewer than two words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streaming_jsmf.evaluation.inputs import Cooccurrence, Floats, SelectedCounts, TopicArrays


def evaluate_topics(
    topics: TopicArrays,
    *,
    cooccurrence: Cooccurrence | None = None,
    counts: SelectedCounts | None = None,
    truth: Floats | None = None,
    replicas: Sequence[Floats] = (),
    seed: int = 0,
) -> dict[str, Any]:
    """All metrics; see the module for the shape of the result."""
    raise NotImplementedError
