"""Jobs of both shapes, and where they work: what is committed is not done again, and nobody's work is lost."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from streaming_jsmf.errors import InputError, SettingsMismatchError
from streaming_jsmf.jobs.checkpoints import Checkpoints, PartialResult, added, key_of
from streaming_jsmf.jobs.events import Event, PartitionCommitted
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.jobs.fold import FoldJob, Part, commit_fold, commit_part
from streaming_jsmf.jobs.folder import WorkFolder, WorkStore
from streaming_jsmf.jobs.order import FoldOrder
from streaming_jsmf.jobs.records import FILES, Record
from streaming_jsmf.jobs.run import run_job, run_steps
from streaming_jsmf.jobs.tasks import TaskJob
from streaming_jsmf.storage.paths import sha256_of
from tests.damage import ALL, Damage

ALONE = Execution("synchronous")
KIND = "tests.unfinished"


def committed(events: list[Event]) -> list[int]:
    return sorted(event.index for event in events if isinstance(event, PartitionCommitted))


# -- numbered tasks ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Squares:
    """Fails at one of its tasks."""

    folder: Path
    bad: int = -1


def write_square(squares: Squares, index: int) -> Record:
    if index == squares.bad:
        raise OSError("no room")
    path = squares.folder / f"{index}.txt"
    path.write_text(str(index**2))
    return {"square": index**2, FILES: {path.name: sha256_of(path)}}


def run_squares(work: WorkFolder, bad: int = -1, then: BaseException | None = None) -> list[int]:
    """The numbers that are squared by this run."""
    events: list[Event] = []
    job = TaskJob("squares", write_square, Squares(work.root, bad), [1] * 4, work.records(), "documents")
    with (
        work.acquire({"power": 2}),
        ALONE.executor(events.append, on_bad_input=work.remove) as executor,
    ):
        run_job(job, executor)
        if then is not None:
            raise then
        assert [record["square"] for record in job.result()] == [index**2 for index in range(4)]
        assert all(job.cost(index) is not None for index in range(4))
    return committed(events)


def test_tasks_that_are_committed_are_not_done_again(tmp_path: Path) -> None:
    work = WorkFolder.beside(tmp_path / "out", "test")
    with pytest.raises(OSError, match="no room"):
        run_squares(work, bad=2)
    done = work.records().committed()
    assert 2 not in done
    assert set(run_squares(work)) == {0, 1, 2, 3} - done
    assert run_squares(work) == []


@pytest.mark.parametrize("name", ["1.txt", "records/00001.json"])
@pytest.mark.parametrize("damage", ALL)
def test_what_is_damaged_is_done_again(name: str, damage: Damage, tmp_path: Path) -> None:
    work = WorkFolder.beside(tmp_path / "out", "test")
    run_squares(work)
    damage(work.root / name)
    assert run_squares(work) == [1]
    assert (work.root / "1.txt").read_text() == "1"
    assert run_squares(work) == []


@pytest.mark.parametrize(
    ("error", "stays"), [(KeyboardInterrupt(), True), (OSError(28, "no room"), True), (InputError(), False)]
)
def test_a_bad_input_takes_the_work_with_it_and_an_interruption_does_not(
    error: BaseException, stays: bool, tmp_path: Path
) -> None:
    work = WorkFolder.beside(tmp_path / "out", "test")
    with pytest.raises(type(error)):
        run_squares(work, then=error)
    assert work.root.exists() == stays


def test_a_folder_in_which_nothing_is_committed_goes(tmp_path: Path) -> None:
    with WorkFolder.beside(tmp_path / "out", "test").acquire({"power": 2}):
        assert (tmp_path / "out.partial").is_dir()
    assert list(tmp_path.iterdir()) == []


def test_unfinished_tasks_of_other_arguments_are_refused(tmp_path: Path) -> None:
    work = WorkFolder.beside(tmp_path / "out", "test")
    with work.acquire({"power": 2, "words": "a" * 64}), ALONE.executor() as executor:
        run_job(TaskJob("squares", write_square, Squares(work.root), [1], work.records("first")), executor)
    with (
        pytest.raises(SettingsMismatchError, match=r"unfinished test .* power: stored 2, asked 3; words; "),
        work.acquire({"power": 3, "words": "b" * 64}),
    ):
        pass
    assert work.steps_done == {"first": 1}


def test_what_a_kill_left_before_the_first_commit_is_cleared(tmp_path: Path) -> None:
    work = WorkFolder.beside(tmp_path / "out", "test")
    (work.root / "half").mkdir(parents=True)
    (work.root / "test.json").write_text('{"arguments": {"power": 2}}')
    with work.acquire({"power": 3}):
        assert not (work.root / "half").exists()
        assert work.arguments() == {"power": 3}


# -- sums of parts, one after the other -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scaled:
    """Each part contributes its number times the result before; it is said in a file that it was computed."""

    results: Checkpoints
    before: str
    said: Path
    name: str = "scaled"

    def compute(self, number: int) -> PartialResult:
        with self.said.open("a") as file:
            file.write(f"{self.before} {number}\n")
        return PartialResult(
            {"total": number * self.results.read_fold(self.before).arrays["total"]}, {"parts": 1}
        )

    def fold(self, folded: PartialResult | None, partial: PartialResult) -> PartialResult:
        return added(folded, partial)


def multiply(path: Path, *, interrupted: bool = False, seed: float = 1.0) -> list[float]:
    """Three steps, of which each multiplies by 0 + 1 + 2; or an interruption in the third."""
    store = WorkStore(path / "w", KIND, "test", {"seed": seed})
    with ALONE.executor(on_bad_input=store.remove) as executor:
        store.start({})
        results, sums = store.checkpoints("results"), store.checkpoints("scaled")

        def step(number: int, key: str, before: PartialResult) -> PartialResult:
            assert before.arrays["total"].tolist() == [seed * 3**number]
            keys = [key_of(str(i), key) for i in range(3)]
            parts = [Part(part, 1, i) for i, part in enumerate(keys)]
            job = FoldJob(sums, Scaled(results, key, path / "said"), parts, FoldOrder(tuple(keys), ""))
            run_job(job, executor)
            if interrupted and number == 2:
                raise KeyboardInterrupt
            total = job.result()
            assert total.scalars == {"parts": 3}
            sums.clear()
            return total

        total = run_steps(results, PartialResult({"total": np.array([seed])}), 3, step).arrays["total"]
    assert len(results.folds()) == 1
    return [float(value) for value in total]


def test_steps_and_parts_that_are_committed_are_not_done_again(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        multiply(tmp_path, interrupted=True)
    assert multiply(tmp_path) == [27]
    said = (tmp_path / "said").read_text().splitlines()
    assert len(said) == len(set(said)) == 9
    assert multiply(tmp_path) == [27]
    assert (tmp_path / "said").read_text().splitlines() == said


def test_folds_that_a_dead_worker_had_made_are_not_asked_of_what_they_dropped(tmp_path: Path) -> None:
    """Dask runs a task again whose token is lost, and those before it whose tokens it has let go of."""
    store = WorkStore(tmp_path / "w", KIND, "test", {"seed": 1})
    with ALONE.executor(on_bad_input=store.remove):
        store.start({})
        results, sums = store.checkpoints("results"), store.checkpoints("scaled")
        run_steps(
            results,
            PartialResult({"total": np.array([2.0])}),
            0,
            lambda *_: pytest.fail("no step was asked for"),
        )
        [before] = results.folds()
        stage, keys = Scaled(results, before, tmp_path / "said"), ["a", "b", "c"]
        order = FoldOrder(tuple(keys), "")
        for number, key in enumerate(keys):
            commit_part(sums, stage, Part(key, 1, number), None)
        for turn in ([0, 1], [0, 1, 2], [0, 1, 2]):
            for number in turn:
                commit_fold(sums, stage, order.steps[number])
        assert sums.read_fold(order.total).arrays["total"].tolist() == [6]


def test_unfinished_sums_of_other_arguments_are_refused(tmp_path: Path) -> None:
    multiply(tmp_path)
    with pytest.raises(SettingsMismatchError, match=r"unfinished test that differs in seed: stored 1.0, ask"):
        multiply(tmp_path, seed=5.0)
    other = WorkStore(tmp_path / "w", KIND, "test", {"seed": 5.0})
    other.start({}, replace=True)
    assert not other.checkpoints("results").folds()


def test_what_is_somebody_elses_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out.partial").mkdir()
    (tmp_path / "out.partial" / "thesis.txt").write_text("mine")
    store = WorkStore(tmp_path / "out.partial", KIND, "test", {})
    with pytest.raises(InputError, match="holds something else"):
        store.start({})
    with (
        pytest.raises(InputError, match="holds something else"),
        WorkFolder.beside(tmp_path / "out", "test").acquire({}),
    ):
        pass
    assert [path.name for path in (tmp_path / "out.partial").iterdir()] == ["thesis.txt"]
