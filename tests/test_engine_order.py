"""Tasks of the engine in an order that only some schedulers take."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from streaming_jsmf.blocks.units import Partition
from streaming_jsmf.moments.engine import Job, Link, Part, commit_fold, commit_part
from streaming_jsmf.moments.ledger import Ledger, Partial
from streaming_jsmf.storage.arrays import create_group


class Adding:
    """Each partition contributes its number."""

    name = "adding"

    def compute(self, partition: Partition) -> Partial:
        return Partial({"total": np.array([partition.index])})

    def fold(self, folded: Partial | None, partial: Partial) -> Partial:
        before = 0 if folded is None else folded.arrays["total"]
        return Partial({"total": before + partial.arrays["total"]})


def test_a_fold_that_the_next_one_has_dropped_is_not_looked_for(tmp_path: Path) -> None:
    create_group(tmp_path, {})
    job = Job(Ledger(tmp_path, "adding"), Adding())
    parts = [Part(f"part{i}", 1, Partition(i, ())) for i in range(3)]
    links = [Link(None, "fold0"), Link("fold0", "fold1"), Link("fold1", "fold2")]
    for part, link in zip(parts, links, strict=True):
        commit_part(job, part, link)
    # All folded at once; now come the tasks that would have folded them.
    for part, link in zip(parts, links, strict=True):
        commit_fold(job, part.key, link)
    assert job.ledger.folds() == {"fold2"}
    assert job.ledger.read_fold("fold2").arrays["total"].tolist() == [3]
