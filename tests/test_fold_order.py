"""The tree of folds has the shape of a slow oracle, and neither the order of tasks nor a kill changes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streaming_jsmf.jobs.checkpoints import Checkpoints, Committed, PartialResult
from streaming_jsmf.jobs.order import FAN_IN, FoldOrder
from streaming_jsmf.jobs.run import WINDOW_PER_WORKER, Job, Part, commit_part
from streaming_jsmf.storage.arrays import create_group

Fold = Callable[[Any, Any], Any]


def slow_total(values: Sequence[Any], fan_in: int, fold: Fold) -> Any:
    """The oracle splits into groups from above, where the package builds them from below."""
    if len(values) == 1:
        return values[0]
    size = 1
    while size * fan_in < len(values):
        size *= fan_in
    return reduce(fold, [slow_total(values[i : i + size], fan_in, fold) for i in range(0, len(values), size)])


def symbolic(order: FoldOrder) -> dict[str, str]:
    """The contents of each fold, as text."""
    made: dict[str, str] = {}
    for step in order.steps:
        made[step.fold] = reduce(
            lambda a, b: f"({a}{b})", [*(made[fold] for fold in step.folds), *step.parts]
        )
    return made


def letters(number: int) -> tuple[str, ...]:
    return tuple(chr(ord("a") + i) for i in range(number))


@pytest.mark.parametrize(("fan_in", "number"), [(2, 7), *((3, n) for n in (1, 3, 4, 10, 26)), (8, 17)])
def test_the_shape_is_groups_of_groups(fan_in: int, number: int) -> None:
    keys = letters(number)
    order = FoldOrder(keys, "salt", fan_in)
    made = symbolic(order)
    assert made[order.total] == slow_total(keys, fan_in, lambda a, b: f"({a}{b})")
    assert order.folded(keys, lambda a, b: f"({a}{b})") == made[order.total]
    assert len(made) == len(order.steps), "a key stands for one fold"
    assert [part for step in order.steps for part in step.parts] == [*keys]
    for step in order.steps:
        assert made[step.fold].replace("(", "").replace(")", "") == "".join(keys[step.first : step.last + 1])


def test_other_parts_and_another_salt_have_other_keys() -> None:
    keys = letters(12)
    orders = [FoldOrder(keys, "salt", 3), FoldOrder(keys[:11], "salt", 3), FoldOrder(keys, "other", 3)]
    orders.append(FoldOrder((*keys[:10], keys[11], keys[10]), "salt", 3))
    assert len({order.total for order in orders}) == len(orders)


def test_parts_within_a_known_fold_are_not_folded_again() -> None:
    order = FoldOrder(letters(10), "", fan_in=3)
    by_parts = {(step.first, step.last): step.fold for step in order.steps}
    known = {by_parts[0, 2], by_parts[6, 8]}
    assert order.covered([*known, "of another"]) == {0, 1, 2, 6, 7, 8}
    assert [(step.first, step.last) for step in order.missing(known)] == [(3, 5), (0, 8), (0, 9)]
    assert order.missing({order.total}) == []


# -- jobs -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Brackets:
    """A fold leaves a trace: -1, both operands, -2."""

    def compute(self, number: int) -> PartialResult:
        return PartialResult({"trace": np.array([number])}, {"parts": 1})

    def fold(self, folded: PartialResult | None, partial: PartialResult) -> PartialResult:
        if folded is None:
            return partial
        trace = np.concatenate([[-1], folded.arrays["trace"], partial.arrays["trace"], [-2]])
        return PartialResult({"trace": trace}, {"parts": folded.scalars["parts"] + partial.scalars["parts"]})


def brackets(parts: int, fan_in: int) -> list[int]:
    values = [[number] for number in range(parts)]
    return list(slow_total(values, fan_in, lambda a, b: [-1, *a, *b, -2]))


def job_in(folder: Path, number: int, fan_in: int, *, keep: bool = False) -> Job:
    if not folder.exists():
        create_group(folder, {})
    checkpoints = Checkpoints(folder, "brackets", "make it again", keep)
    parts = [Part(f"{each:02d}", 1, each, {"number": each}) for each in range(number)]
    return Job(checkpoints, Brackets(), parts, FoldOrder(tuple(p.key for p in parts), "", fan_in))


def run_in_some_order(job: Job, workers: int, rng: np.random.Generator, stop_after: float = np.inf) -> None:
    """Run the tasks of a job in a random order that their dependencies allow; stop after some of them."""
    lacking = job.graph(workers, job.checkpoints.committed())
    tasks = {} if lacking is None else dict(lacking.__dask_graph__())
    done: set[Any] = set()
    while len(done) < min(len(tasks), stop_after):
        ready = [key for key, task in tasks.items() if key not in done and task.dependencies <= done]
        key = ready[rng.integers(len(ready))]
        tasks[key](dict.fromkeys(tasks[key].dependencies, ""))
        done.add(key)


@pytest.mark.parametrize("keep", [False, True], ids=["dropped", "kept"])
def test_no_order_of_tasks_and_no_kill_changes_a_fold(keep: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for turn in range(3):
        job = job_in(tmp_path / str(turn), 15, 3, keep=keep)
        while job.order is not None and job.order.total not in job.checkpoints.committed().folds:
            # Killed, and resumed by another number of workers.
            run_in_some_order(job, int(rng.integers(1, 4)), rng, stop_after=int(rng.integers(1, 12)))
        assert job.result().arrays["trace"].tolist() == brackets(15, 3)
        assert job.checkpoints.committed().folds == {job.order.total}
        assert job.done(job.checkpoints.committed()) == set(range(15))
        assert [
            note["number"]
            for note in job.checkpoints.history(job.order.keys, job.checkpoints.committed().parts)
        ] == list(range(15))
        stored = [path.name for path in (tmp_path / str(turn) / "partials").iterdir() if path.is_dir()]
        assert sum("part-" in name for name in stored) == (15 if keep else 0)


def tasks_of(job: Job, workers: int) -> list[tuple[Any, Any]]:
    """Keys and tasks in the order of parts."""
    return [*dict(job.graph(workers, Committed()).__dask_graph__()).items()]  # type: ignore[union-attr]


@pytest.mark.parametrize("keep", [False, True], ids=["dropped", "kept"])
def test_a_task_that_runs_again_does_nothing(keep: bool, tmp_path: Path) -> None:
    """Dask runs a task again whose token is lost, and those before it whose tokens it has released."""
    job = job_in(tmp_path / "w", 7, 2, keep=keep)
    tasks = tasks_of(job, 2)
    for _, task in (*tasks, *reversed(tasks)):
        task(dict.fromkeys(task.dependencies, ""))
    assert job.result().arrays["trace"].tolist() == brackets(7, 2)


def test_a_slow_part_does_not_fill_the_disk(tmp_path: Path) -> None:
    """Run all tasks that do not wait for one part: the window bounds how many parts lie unfolded."""
    job, window = job_in(tmp_path / "w", 600, FAN_IN), 9 * WINDOW_PER_WORKER
    slow, done, held = 17, set[Any](), 0
    for key, task in tasks_of(job, 9):
        computes = task.args[1] is commit_part
        late = computes and task.args[4].source == slow
        if not late and task.dependencies <= done:
            done.add(key)
            held += computes
    assert slow + window - 1 <= held <= slow + 2 * window + FAN_IN


# -- stores -----------------------------------------------------------------------------------------------------------
