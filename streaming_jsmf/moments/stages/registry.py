"""The stages in their order."""

from __future__ import annotations

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.moments.stages.base import Stage
from streaming_jsmf.moments.stages.basis import BasisStage
from streaming_jsmf.moments.stages.cooccurrence import CooccurrenceStage
from streaming_jsmf.moments.stages.eigenpairs import EigenpairsStage
from streaming_jsmf.moments.stages.projection import ProjectionStage
from streaming_jsmf.moments.stages.range import RangeStage
from streaming_jsmf.moments.stages.third_moment import ThirdMomentStage

#: In the order in which they run: each may read the final arrays of those before it.
STAGES: tuple[Stage, ...] = (
    RangeStage(),
    CooccurrenceStage(),
    BasisStage(),
    ProjectionStage(),
    EigenpairsStage(),
    ThirdMomentStage(),
)


def stages_of(settings: ScanSettings) -> tuple[Stage, ...]:
    """The stages that make a store of these settings complete, in order."""
    return tuple(stage for stage in STAGES if stage.wanted(settings))


def stage_named(name: str) -> Stage:
    """The stage of this name."""
    return next(stage for stage in STAGES if stage.name == name)
