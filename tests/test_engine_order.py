"""Tasks of a chain of folds in an order that only some schedulers take."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from streaming_jsmf.jobs.fold import Part, commit_fold, commit_part
from streaming_jsmf.jobs.ledger import Ledger, Partial, added
from streaming_jsmf.jobs.order import FoldOrder
from streaming_jsmf.storage.arrays import create_group


class Adding:
    """Each partition contributes its number."""

    name = "adding"

    def compute(self, number: int) -> Partial:
        return Partial({"total": np.array([number])})

    def fold(self, folded: Partial | None, partial: Partial) -> Partial:
        return added(folded, partial)


def test_a_fold_that_the_next_one_has_dropped_is_not_looked_for(tmp_path: Path) -> None:
    create_group(tmp_path, {})
    ledger, stage = Ledger(tmp_path, "adding", "make it again"), Adding()
    parts = [Part(f"part{i}", 1, i) for i in range(3)]
    order = FoldOrder(tuple(part.key for part in parts), "")
    for part, step in zip(parts, order.steps, strict=True):
        commit_part(ledger, stage, part, step)
    # All folded at once; now come the tasks that would have folded them.
    for step in order.steps:
        commit_fold(ledger, stage, step)
    assert ledger.folds() == {order.total}
    assert ledger.read_fold(order.total).arrays["total"].tolist() == [3]
