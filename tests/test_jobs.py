"""Jobs and workspaces: committed tasks are not computed again, and other people's files are left alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from streaming_jsmf.errors import InputError, SettingsMismatchError, StoreError
from streaming_jsmf.jobs.checkpoints import (
    FILES,
    Checkpoints,
    PartialResult,
    Record,
    added,
    key_of,
    write_record,
)
from streaming_jsmf.jobs.events import Event, PartitionCommitted
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.jobs.order import FoldOrder
from streaming_jsmf.jobs.run import Job, Part, commit_fold, commit_part, map_job, run_job, run_steps
from streaming_jsmf.jobs.workspace import Workspace
from streaming_jsmf.storage.paths import make_directory, sha256_of, store_path, write_bytes
from streaming_jsmf.storage.tables import read_table, write_table
from tests.damage import ALL, Damage
from tests.results import wanted_of

ALONE = Execution("synchronous")

# -- tasks without a reduction ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Squares:
    folder: Path
    bad: int = -1


def write_square(squares: Squares, index: int) -> Record:
    if index == squares.bad:
        raise OSError("no room")
    path = squares.folder / f"{index}.txt"
    path.write_text(str(index**2))
    return {"square": index**2, FILES: {path.name: sha256_of(path)}}


@pytest.fixture
def work(tmp_path: Path) -> Workspace:
    return Workspace.beside(tmp_path / "out", "test", {"power": 2, "words": "a" * 64})


def run_squares(work: Workspace, bad: int = -1, then: BaseException | None = None) -> list[int]:
    """Return the numbers that this run squares."""
    events: list[Event] = []
    with work.acquire(wanted_of(work)), ALONE.executor(events.append, on_bad_input=work.remove) as executor:
        job = map_job(write_square, Squares(work.directory, bad), [1] * 4, work.checkpoints("squares"))
        run_job(job, executor)
        if then is not None:
            raise then
        assert [record["square"] for record in job.records()] == [index**2 for index in range(4)]
    found = [event for event in events if isinstance(event, PartitionCommitted)]
    assert all(event.cost is not None for event in found)
    return sorted(event.index for event in found)


def test_committed_tasks_are_not_run_again(work: Workspace) -> None:
    with pytest.raises(OSError, match="no room"):
        run_squares(work, bad=2)
    done = {int(key) for key in work.checkpoints("squares").parts()}
    assert (2 in done, work.steps_done) == (False, {"squares": len(done)})
    assert set(run_squares(work)) == {0, 1, 2, 3} - done
    assert run_squares(work) == []


@pytest.mark.parametrize("name", ["1.txt", "records/squares-part-00001/zarr.json"])
@pytest.mark.parametrize("damage", ALL)
def test_a_damaged_task_is_run_again(name: str, damage: Damage, work: Workspace) -> None:
    run_squares(work)
    damage(work.directory / name)
    assert run_squares(work) == [1]
    assert (work.directory / "1.txt").read_text() == "1"
    assert run_squares(work) == []


@pytest.mark.parametrize(
    ("error", "stays"), [(KeyboardInterrupt(), True), (OSError(28, "no room"), True), (InputError(), False)]
)
def test_only_bad_input_removes_the_work(error: BaseException, stays: bool, work: Workspace) -> None:
    with pytest.raises(type(error)):
        run_squares(work, then=error)
    assert work.directory.exists() == stays


def test_work_without_commits_is_removed(work: Workspace, tmp_path: Path) -> None:
    with work.acquire(wanted_of(work)):
        assert work.exists()
    assert list(tmp_path.iterdir()) == []
    # A kill leaves it.
    Workspace(work.root, "test", {"power": 3}).start()
    (work.directory / "half").mkdir()
    with work.acquire(wanted_of(work)):
        assert not (work.directory / "half").exists()


# -- steps of parts and folds -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scaled:
    """Each part contributes its number times the result before, and logs that it was computed."""

    results: Checkpoints
    before: str
    log: Path

    def compute(self, number: int) -> PartialResult:
        with self.log.open("a") as file:
            file.write(f"{self.before} {number}\n")
        total = number * self.results.read_fold(self.before).arrays["total"]
        return PartialResult({"total": total}, {"parts": 1})

    def fold(self, folded: PartialResult | None, partial: PartialResult) -> PartialResult:
        return added(folded, partial)


def multiply(path: Path, *, interrupted: bool = False) -> list[float]:
    """Three steps, each of which multiplies by 0 + 1 + 2; ``interrupted`` in the third."""
    work = Workspace(path / "w", "test", {"seed": 1})
    with ALONE.executor(on_bad_input=work.remove) as executor:
        work.start()
        results, sums = work.checkpoints("results"), work.checkpoints("scaled")

        def step(number: int, key: str, before: PartialResult) -> PartialResult:
            assert before.arrays["total"].tolist() == [3**number]
            keys = [key_of(str(i), key) for i in range(3)]
            parts = [Part(part, 1, i) for i, part in enumerate(keys)]
            job = Job(sums, Scaled(results, key, path / "log"), parts, FoldOrder(tuple(keys), ""))
            run_job(job, executor)
            if interrupted and number == 2:
                raise KeyboardInterrupt
            total = job.result()
            assert total.scalars == {"parts": 3}
            sums.clear()
            return total

        total = run_steps(results, PartialResult({"total": np.ones(1)}), 3, step).arrays["total"]
    assert len(results.folds()) == 1
    return [float(value) for value in total]


def test_committed_steps_and_parts_are_not_computed_again(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        multiply(tmp_path, interrupted=True)
    assert multiply(tmp_path) == [27]
    log = (tmp_path / "log").read_text().splitlines()
    assert len(log) == len(set(log)) == 9
    assert multiply(tmp_path) == [27]
    assert (tmp_path / "log").read_text().splitlines() == log


def test_tasks_of_a_dead_worker_are_repeated_without_what_they_removed(tmp_path: Path) -> None:
    """Dask runs a task again whose token is lost, and those before it whose tokens it has released."""
    work = Workspace(tmp_path / "w", "test")
    work.start()
    results, sums = work.checkpoints("results"), work.checkpoints("scaled")
    run_steps(results, PartialResult({"total": np.array([2.0])}), 0, lambda *_: pytest.fail("no steps"))
    [before] = results.folds()
    stage, keys = Scaled(results, before, tmp_path / "log"), ("a", "b", "c")
    order = FoldOrder(keys, "")
    for number, key in enumerate(keys):
        commit_part(sums, stage, Part(key, 1, number))
    for turn in ([0, 1], [0, 1, 2], [0, 1, 2]):
        for number in turn:
            commit_fold(sums, stage, order.steps[number])
    assert sums.folds() == {order.total}
    assert sums.read_fold(order.total).arrays["total"].tolist() == [6]


# -- whose work it is -------------------------------------------------------------------------------------------------


def test_unfinished_work_of_other_arguments_is_refused(work: Workspace) -> None:
    work.start()
    write_record(work.root, "first-part-a", {"arrays": {}, "scalars": {}, "note": {}})
    other = Workspace(work.root, "test", {"power": 3, "words": "b" * 64})
    for begin in (other.start, other.acquire(wanted_of(other)).__enter__):
        with pytest.raises(SettingsMismatchError, match=r"power: stored 2, asked 3; words; "):
            begin()
    assert work.steps_done == {"first": 1}
    other.start(replace=True)
    assert other.steps_done == {}


def test_files_of_others_are_left_alone(work: Workspace) -> None:
    work.directory.mkdir()
    (work.directory / "thesis.txt").write_text("mine")
    for begin in (work.start, work.acquire(wanted_of(work)).__enter__):
        with pytest.raises(InputError, match=f"{work.directory}.* something else"):
            begin()
    assert [path.name for path in work.directory.iterdir()] == ["thesis.txt"]


# -- tables of tasks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("root", ["{folder}", "memory://{folder}"])
def test_a_table_of_a_task_is_read_back_or_its_damage_is_named(root: str, tmp_path: Path) -> None:
    place = store_path(f"{root.format(folder=tmp_path)}/c.partial")
    make_directory(place)
    write_table(place / "words.arrow", pa.table({"word": ["a", "b"]}))
    assert read_table(place / "words.arrow").to_pydict() == {"word": ["a", "b"]}
    write_bytes(place / "words.arrow", b"ARROW1")
    for name in ("words.arrow", "missing.arrow"):
        with pytest.raises(StoreError, match=f"{name}.*remove .*/c.partial and run again"):
            read_table(place / name)
