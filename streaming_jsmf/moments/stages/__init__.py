"""The stages of a moments store, from the passes over the documents to the final arrays.

In the order of the papers: ``range`` (sums, documents, the basis Q), ``cooccurrence`` (the whole C, if it is asked
for), ``eigenpairs`` (C Q, and the eigenpairs) and ``third_moment``. A module defines *reductions*, which run on the
workers (``compute`` a partition, ``fold`` two results), and *stages* (see ``base``), which are listed in ``STAGES``.
"""

from __future__ import annotations

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.moments.stages.base import Stage
from streaming_jsmf.moments.stages.cooccurrence import CooccurrenceStage
from streaming_jsmf.moments.stages.eigenpairs import (
    DirectionsStage,
    EigenpairsStage,
    ProjectionStage,
    RefinementStage,
)
from streaming_jsmf.moments.stages.range import BasisStage, RangeStage
from streaming_jsmf.moments.stages.third_moment import ThirdMomentStage

#: Stages in the order in which they run; each may read the final arrays of earlier ones.
STAGES: tuple[Stage, ...] = (
    RangeStage(),
    CooccurrenceStage(),
    BasisStage(),
    ProjectionStage(),
    DirectionsStage(),
    RefinementStage(),
    EigenpairsStage(),
    ThirdMomentStage(),
)


def stages_of(settings: ScanSettings) -> tuple[Stage, ...]:
    """The stages of a complete store with these settings, in order."""
    return tuple(stage for stage in STAGES if stage.wanted(settings))
