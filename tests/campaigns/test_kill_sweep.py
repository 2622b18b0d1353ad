"""Running a killed command again succeeds with the arrays of an undisturbed run, without missing or leftover files."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

import pytest

from tests.campaigns import FEW_AND_ALL
from tests.campaigns.kills import CASES, Case, Server, Undisturbed, contents, left_after, server, undisturbed
from tests.damage import SOME

SEED = 14

#: Slow run: the last operations, random earlier ones, and second kills during the rerun; all operations by hand.
LAST, DRAWN, TWICE = 3, 1, {False: 1, True: 3}
#: Cases that the slow run interrupts: one of each way to finish; the other sweep interrupts choose-k.
INTERRUPTED = (
    *("ingest", "simulate", "scan-third-moment", "follow", "infer", "fit-texts", "polish-overwrite"),
    *("evaluate", "transform-zarr", "report-overwrite", "documents"),
)
EACH = [pytest.param(case, id=case.name) for case in CASES]

#: Cases whose finished results are damaged.
DAMAGED = ("ingest", "simulate", "transform-file", "transform-directory", "transform-zarr")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with server(tmp_path_factory.mktemp("kills")) as running:
        yield running


@pytest.fixture(scope="module")
def clean_run(served: Server) -> Callable[[Case], Undisturbed]:
    return cache(lambda case: undisturbed(case, served))


def named(wrong: dict[int, str], clean: Undisturbed) -> str:
    return "\n".join(f"killed at {n}, {clean.operations[n]}: {what}" for n, what in wrong.items() if what)


def operations_tried(clean: Undisturbed, seed: str, every: bool) -> list[int]:
    """The numbers of the last operations and some earlier ones, or of ``every`` one that can be tried."""
    numbers = list(range(clean.first, len(clean.operations)))
    if every:
        return numbers
    others = numbers[:-LAST]
    return sorted(random.Random(seed).sample(others, min(DRAWN, len(others)))) + numbers[-LAST:]


@pytest.mark.parametrize("every", FEW_AND_ALL)
@pytest.mark.parametrize("case", EACH)
def test_a_command_is_finished_by_itself_wherever_it_is_killed(
    case: Case, every: bool, served: Server, clean_run: Callable[[Case], Undisturbed]
) -> None:
    clean = clean_run(case)
    numbers = operations_tried(clean, f"{SEED} {case} some", every)
    served.place(clean.start)
    served.copies.mkdir()
    try:
        served.done(case.command, copy_from=clean.first)
        wrong = {}
        # Threads that write to Zarr may make an operation less than in the run before.
        copied = [number for number in numbers if (served.copies / str(number)).exists()]
        assert len(copied) >= len(numbers) - 2
        for number in copied:
            served.place(served.copies / str(number))
            wrong[number] = left_after(case, clean, served)
        assert not any(wrong.values()), named(wrong, clean)
        twice = killed_again(case, clean, served, TWICE[every])
        assert not any(twice.values()), named(twice, clean)
    finally:
        shutil.rmtree(served.copies)


@pytest.mark.parametrize(
    ("case", "every"),
    [
        pytest.param(*each.values, *few.values, id=f"{each.id}-{few.id}", marks=(*each.marks, *few.marks))
        for few in FEW_AND_ALL
        for each in EACH
        if few.id == "all" or each.id in INTERRUPTED
    ],
)
def test_a_command_that_is_interrupted_late_is_finished_by_itself(
    case: Case, every: bool, served: Server, clean_run: Callable[[Case], Undisturbed]
) -> None:
    clean = clean_run(case)
    numbers = operations_tried(clean, f"{SEED} {case} interrupts", every)
    wrong = {}
    for number in numbers:
        served.place(clean.start)
        code = served.run(case.command, interrupt_at=number)
        # An interrupt while files are removed behind the commit may be ignored with the errors of the removal.
        wrong[number] = left_after(case, clean, served) if code in (0, 130) else f"exit code {code}"
    assert not any(wrong.values()), named(wrong, clean)


@pytest.mark.slow
@pytest.mark.parametrize("name", DAMAGED)
def test_a_finished_result_that_is_damaged_is_made_again(name: str, served: Server) -> None:
    [case] = [case for case in CASES if case.name == name]
    clean = undisturbed(case, served)
    # A single file without its metadata does not say which request it is of.
    again = replace(case, line=f"{case.line} --overwrite") if name == "transform-file" else case
    served.place(clean.start)
    assert served.run(case.command, kill_at=len(clean.operations) - 1) == -9
    late = shutil.copytree(served.folder, served.base / "late")
    fresh = clean.contents.keys() - contents(clean.start).keys()
    made = sorted(
        path for path in fresh if path.endswith(".parquet") or ("/c/" in path and clean.contents[path])
    )
    assert made
    wrong = {}
    try:
        for number, damage in enumerate(SOME):
            served.place(late)
            damage(served.folder / made[number % len(made)])
            wrong[damage] = left_after(again, clean, served)
        assert not any(wrong.values()), wrong
    finally:
        shutil.rmtree(late)


def killed_again(case: Case, clean: Undisturbed, served: Server, times: int) -> dict[int, str]:
    """Describe what is wrong if the command is killed again during its rerun, so many times."""
    rng, wrong = random.Random(f"{SEED} {case} again"), {}
    for number in rng.sample(range(clean.first, len(clean.operations)), times):
        copy = served.copies / str(number)
        served.place(copy)
        more = len(served.done(case.command))
        served.place(copy)
        # Runs have random names and may list files in another order, so the number of operations varies a little.
        served.run(case.command, kill_at=rng.randrange(more))
        wrong[number] = left_after(case, clean, served)
    return wrong
