"""Tasks of a chain of folds in an order that only some schedulers take."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from streaming_jsmf.jobs.checkpoints import Checkpoints, PartialResult, added
from streaming_jsmf.jobs.fold import Part, commit_fold, commit_part
from streaming_jsmf.jobs.order import FoldOrder
from streaming_jsmf.storage.arrays import create_group


class Adding:
    """Each partition contributes its number."""

    name = "adding"

    def compute(self, number: int) -> PartialResult:
        return PartialResult({"total": np.array([number])})

    def fold(self, folded: PartialResult | None, partial: PartialResult) -> PartialResult:
        return added(folded, partial)


def test_a_fold_that_the_next_one_has_dropped_is_not_looked_for(tmp_path: Path) -> None:
    create_group(tmp_path, {})
    checkpoints, stage = Checkpoints(tmp_path, "adding", "make it again"), Adding()
    parts = [Part(f"part{i}", 1, i) for i in range(3)]
    order = FoldOrder(tuple(part.key for part in parts), "")
    for part, step in zip(parts, order.steps, strict=True):
        commit_part(checkpoints, stage, part, step)
    # All folded at once; now come the tasks that would have folded them.
    for step in order.steps:
        commit_fold(checkpoints, stage, step)
    assert checkpoints.folds() == {order.total}
    assert checkpoints.read_fold(order.total).arrays["total"].tolist() == [3]
