"""A scan that is killed goes on where it was: same bits, nothing done twice, nothing left lying about."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from streaming_jsmf.cli.main import run
from tests.corpora import planted, write_corpus
from tests.outcomes import described
from tests.processes import command, finished, killed

#: Wide factors, so that a partition takes long enough to be hit.
SETTINGS = ("--max-topics", "40", "--partition-nonzeros", "5000", "--third-moment")


@dataclass(frozen=True)
class Moment:
    """When to kill: in which stage, and once how many of its partitions (a share) are committed."""

    stage: str
    share: float

    def reached(self, store: Path, partitions: int) -> bool:
        committed = len(list((store / "records").glob(f"{self.stage}-part-*/zarr.json")))
        return committed >= max(1, self.share * partitions)


EARLY, LATE, PROJECTION = Moment("range", 0), Moment("range", 0.7), Moment("projection", 0)
THIRD = Moment("third_moment", 0.1)
STAGES = ("range", "projection", "third_moment")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    counts = planted(1200, 1000, 20, length=60, seed=7).counts
    return write_corpus(tmp_path_factory.mktemp("kill") / "corpus", counts, row_group_rows=40)


@pytest.fixture(scope="module")
def undisturbed(corpus: Path) -> Path:
    path = corpus.parent / "undisturbed"
    assert run(["scan", str(corpus), str(path), *SETTINGS]) == 0
    return path


@pytest.fixture(scope="module")
def partitions(undisturbed: Path) -> int:
    attributes = json.loads((undisturbed / "zarr.json").read_text(encoding="utf-8"))["attributes"]
    number = len(attributes["manifest"]["partitions"])
    assert number >= 12
    return number


def scan_command(corpus: Path, store: Path, scheduler: str) -> list[str]:
    return command("scan", corpus, store, *SETTINGS, "--scheduler", scheduler, "--workers", "2")


def read_attributes(record: Path) -> dict[str, Any]:
    attributes: dict[str, Any] = json.loads((record / "zarr.json").read_text(encoding="utf-8"))["attributes"]
    return attributes


def notes(store: Path, stage: str) -> dict[int, dict[str, Any]]:
    """Note of each committed partition: its seconds and peak memory tell one computation from another."""
    if (store / "records" / stage / "zarr.json").exists():
        history = read_attributes(store / "records" / stage)["history"]
        return {note.pop("partition"): note for note in history}
    records = (path.parent for path in (store / "records").glob(f"{stage}-part-*/zarr.json"))
    known = [read_attributes(record)["note"] for record in records]
    # A kill may come when a part is folded but not yet recorded by itself; the fold has its note.
    folds = [path.parent for path in (store / "records").glob(f"{stage}-fold-*/zarr.json")]
    known += [told["note"] for told in (read_attributes(fold)["note"] for fold in folds) if told]
    places = {
        partition["content"]: index
        for index, partition in enumerate(read_attributes(store)["manifest"]["partitions"])
    }
    return {places[note["content"]]: note for note in known}


def require_kept(log: str, stage: str, kept: set[int], partitions: int, orphans: int) -> None:
    """The log names the kept partitions as not done again, and commits the others.

    A worker process that has lost its parent may just have ended its task, which is then one more that is kept.
    """
    said = re.search(
        rf"^{stage}: (\d+) of {partitions} partitions were committed by an earlier run .*: (.*)$", log, re.M
    )
    assert said is not None, log
    named = {int(index) for index in said[2].split(", ")}
    assert kept <= named
    assert len(named - kept) <= orphans
    committed = re.findall(rf"^{stage}: partition (\d+) committed", log, re.M)
    assert sorted(map(int, committed)) == sorted(set(range(partitions)) - named)


def require_nothing_left(store: Path) -> None:
    """But the last fold, from which the store can grow."""
    [fold] = [path.name for path in (store / "records").glob("range-fold-*")]
    [partial] = [path.name for path in (store / "partials").iterdir() if path.is_dir()]
    assert partial.startswith(fold)
    records = {path.name for path in (store / "records").iterdir()}
    assert records == {"basis", *STAGES, "words", "zarr.json", fold}
    assert [str(path) for path in store.parent.rglob(".*")] == []
    assert [path.name for path in store.parent.iterdir()] == [store.name]


@pytest.mark.parametrize(
    ("scheduler", "moment"),
    [
        pytest.param("threads", EARLY, marks=pytest.mark.slow),
        pytest.param("threads", LATE, marks=pytest.mark.slow),
        ("threads", PROJECTION),
        pytest.param("threads", THIRD, marks=pytest.mark.slow),
        pytest.param("processes", LATE, marks=pytest.mark.slow),
    ],
    ids=["early", "late", "projection", "third", "processes"],
)
def test_a_killed_scan_is_finished_by_the_same_command(
    scheduler: str,
    moment: Moment,
    corpus: Path,
    undisturbed: Path,
    partitions: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store = tmp_path / "moments"
    line = scan_command(corpus, store, scheduler)
    with killed(line, lambda: moment.reached(store, partitions)):
        left = described(store, capsys)
        before = {stage: notes(store, stage) for stage in STAGES}
        log = finished(line)
    assert not left["complete"]
    assert [stage for stage in left["missing"] if stage in STAGES] == [*STAGES[STAGES.index(moment.stage) :]]
    kept = before[moment.stage]
    assert 0 < len(kept) < partitions, "killed in the middle"
    require_kept(log, moment.stage, set(kept), partitions, orphans=2 if scheduler == "processes" else 0)
    for stage, known in before.items():
        after = notes(store, stage)
        assert sorted(after) == list(range(partitions))
        assert {index: after[index] for index in known} == known, "computed again"
    shown = described(store, capsys)
    assert shown["complete"]
    assert shown["digests"] == described(undisturbed, capsys)["digests"]
    require_nothing_left(store)
