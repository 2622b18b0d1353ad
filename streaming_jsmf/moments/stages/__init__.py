"""The stages of a moments store: each is a pass over the documents, with the final arrays that follow from it.

In the order of the papers: ``sums`` (sums, documents, the basis Q), ``cooccurrence`` (the whole C, if it is asked
for), ``eigenpairs`` (C Q, C W and the eigenpairs) and ``third_moment``. A module defines *reductions*, which run on the
workers (``compute`` a partition, ``fold`` two results), and *stages* (see ``base``), which are listed in ``STAGES``.
"""

from __future__ import annotations

from streaming_jsmf.moments.records import Records
from streaming_jsmf.moments.stages.base import Stage
from streaming_jsmf.moments.stages.cooccurrence import CooccurrenceStage
from streaming_jsmf.moments.stages.eigenpairs import ProjectionStage, RefinementStage
from streaming_jsmf.moments.stages.sums import SumsStage
from streaming_jsmf.moments.stages.third_moment import ThirdMomentStage

#: Each stage, by name.
STAGES: dict[str, Stage] = {
    stage.name: stage
    for stage in (SumsStage(), CooccurrenceStage(), ProjectionStage(), RefinementStage(), ThirdMomentStage())
}


def stages_of(store: Records) -> tuple[Stage, ...]:
    """The stages of a complete store, in order; each may read the final arrays of earlier ones."""
    return tuple(STAGES[name] for name in store.stage_names)
