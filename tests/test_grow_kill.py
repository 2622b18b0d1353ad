"""Changes of a store that are killed: the same command again gives the bits of a change that nothing disturbed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from streaming_jsmf.cli.main import run
from streaming_jsmf.moments.store import read_store
from tests.corpora import planted, words, write_corpus
from tests.processes import command, finished, killed
from tests.stores import digests, partial_names, rename_words

#: Wide factors and small partitions, so that every moment lasts long enough to be hit.
SETTINGS = ("--max-topics", "40", "--partition-nonzeros", "4000")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Corpora a, b and c (of other words), the stores of each, and undisturbed changes."""
    root, counts = tmp_path_factory.mktemp("grow-kill"), planted(1000, 1000, 20, seed=7).counts
    for name, rows in zip("abc", np.array_split(counts, 3), strict=True):
        write_corpus(root / name, rows, row_group_rows=30)
    rename_words(root / "c", [f"other{i}" if i % 2 else word for i, word in enumerate(words(1000))])
    for name in "abc":
        done(root, "scan", root / name, root / f"of-{name}", *SETTINGS, "--keep-partitions")
    for name, wish in WISHES.items():
        shutil.copytree(root / wish.start, root / name)
        done(root, *wish.arguments(root, root / name))
    return root


def done(root: Path, *arguments: object) -> None:
    assert run([str(argument) for argument in (*arguments, "--scheduler", "synchronous")]) == 0, root


@dataclass(frozen=True)
class Wish:
    """A change: the store it starts from, and options in which names stand for paths of the folder."""

    start: str
    options: tuple[str, ...]

    def arguments(self, root: Path, store: Path) -> list[str]:
        changes = [option if option.startswith("--") else str(root / option) for option in self.options]
        return ["scan", str(root / "a"), str(store), *changes]


WISHES = {
    "added": Wish("of-a", ("--add", "b")),
    "removed": Wish("added", ("--remove", "b")),
    "merged": Wish("of-a", ("--merge", "of-b")),
    "united": Wish("of-a", ("--merge", "of-c")),
    "replaced": Wish("of-a", ("--remove", "a", "--add", "b", "--merge", "of-c")),
}


def records(store: Path, pattern: str) -> int:
    return len(list((store / "records").glob(f"{pattern}/zarr.json")))


def manifest_mark(store: Path) -> object:
    try:
        root = json.loads((store / "zarr.json").read_text(encoding="utf-8"))
    except FileNotFoundError:  # between two renames
        return None
    return root["attributes"]["manifest"].get("change")


def is_projecting(store: Path, before: object) -> bool:
    return manifest_mark(store) != before and records(store, "projection-part-*") > 0


#: What the store looks like when the kill comes, given the number of its parts and its mark before.
MOMENTS: dict[str, Callable[[Path, int, object], bool]] = {
    "at once": lambda store, _, before: manifest_mark(store) != before,
    "scan 1": lambda store, parts, _: records(store, "range-part-*") >= parts + 3,
    "copying": lambda store, parts, _: records(store, "range-part-*") > parts,
    "beside": lambda store, *_: store.with_name(f".{store.name}.merging").exists(),
    "scan 2": lambda store, _, before: is_projecting(store, before),
    "last": lambda store, _, before: is_projecting(store, before) and read_store(store).n_words > 1000,
}

CASES = [
    ("added", "at once"),
    *(
        pytest.param(*case, marks=pytest.mark.slow)
        for case in (
            ("added", "scan 1"),
            ("removed", "scan 2"),
            ("merged", "copying"),
            ("united", "beside"),
            ("united", "scan 2"),
            ("replaced", "beside"),
            ("replaced", "last"),
        )
    ),
]


@pytest.mark.parametrize(("wish", "moment"), CASES, ids=lambda name: name.replace(" ", "-"))
def test_a_killed_change_is_finished_by_the_same_command(
    wish: str, moment: str, folder: Path, tmp_path: Path
) -> None:
    store = shutil.copytree(folder / WISHES[wish].start, tmp_path / "m")
    parts, before = records(store, "range-part-*"), manifest_mark(store)
    line = command(*WISHES[wish].arguments(folder, store))
    with killed(line, lambda: MOMENTS[moment](store, parts, before)):
        pass
    finished(line)
    assert digests(store) == digests(folder / wish)
    names = [{name.rsplit("-", 1)[0] for name in partial_names(path, "")} for path in (store, folder / wish)]
    assert names[0] == names[1]
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    assert read_store(store).manifest.corpora == read_store(folder / wish).manifest.corpora


def test_a_change_that_is_done_is_not_done_again(folder: Path, tmp_path: Path) -> None:
    store = shutil.copytree(folder / "added", tmp_path / "m")
    assert run(WISHES["added"].arguments(folder, store)) == 2
    assert digests(store) == digests(folder / "added")
