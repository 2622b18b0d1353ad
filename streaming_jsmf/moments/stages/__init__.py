"""The stages of a moments store, one module each, from the scan to the final arrays.

A module defines a *reduction*, which runs on the workers (``compute`` a partition, ``fold`` two results), and a
*stage* (see ``base``). Read ``projection`` first; it is the shortest. To add a stage, add a module and a line in
``STAGES``.
"""

from __future__ import annotations

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.moments.stages.basis import BasisStage
from streaming_jsmf.moments.stages.cooccurrence import CooccurrenceStage
from streaming_jsmf.moments.stages.directions import DirectionsStage
from streaming_jsmf.moments.stages.eigenpairs import EigenpairsStage
from streaming_jsmf.moments.stages.projection import ProjectionStage, RefinementStage
from streaming_jsmf.moments.stages.range import RangeStage
from streaming_jsmf.moments.stages.third_moment import ThirdMomentStage
from streaming_jsmf.moments.store import Stage

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
