"""One flipped bit in what a file system answers: the right results, or one line, and then the right results."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tests.campaigns import FEW_AND_ALL
from tests.outcomes import Outcome, invoked
from tests.verbs import RESULTS, VERBS, digests, lines, texts

PLACE = "memory://flipped"

#: One of so many reads of a verb is damaged: in the slow run, and by hand.
EVERY = {False: 45, True: 9}

LINES = lines(PLACE, "--scheduler", "synchronous")


class Flips:
    """Counts reads of everything but the texts, which have no checksum, and flips a bit in read ``number``."""

    def __init__(self) -> None:
        self.count, self.number, self.where = 0, 0, ""

    def __call__(self, path: str, data: bytes) -> bytes:
        if not data or "/texts/" in path:
            return data
        self.count += 1
        if self.count != self.number:
            return data
        random, damaged = Random(self.number), bytearray(data)
        at = random.randrange(len(damaged))
        damaged[at] ^= 1 << random.randrange(8)
        self.where = f"byte {at} of {len(damaged)} of {path}"
        return bytes(damaged)

    def start(self, number: int = 0) -> None:
        self.count, self.number = 0, number


@pytest.fixture(scope="module")
def flips() -> Iterator[Flips]:
    flips, answer, opened = Flips(), MemoryFileSystem.cat_file, MemoryFileSystem._open

    def cat_file(self: Any, path: str, *args: Any, **options: Any) -> bytes:
        return flips(path, answer(self, path, *args, **options))

    def _open(self: Any, path: str, mode: str = "rb", *args: Any, **options: Any) -> Any:
        if mode != "rb":
            return opened(self, path, mode, *args, **options)
        data = answer(self, path)
        stream: Any = io.BytesIO(flips(path, data))
        stream.size = len(data)
        return stream

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryFileSystem, "cat_file", cat_file)
        patch.setattr(MemoryFileSystem, "_open", _open)
        yield flips


@dataclass(frozen=True)
class Step:
    """The files before a command, the number of its reads, and the digests of what it makes."""

    before: dict[str, bytes]
    reads: int
    made: dict[str, Any]


def files() -> dict[str, bytes]:
    return {name: bytes(file.getvalue()) for name, file in MemoryFileSystem.store.items()}


def restore(before: dict[str, bytes]) -> None:
    memory = fsspec.filesystem("memory")
    memory.rm(PLACE, recursive=True)
    memory.pipe(before)


@pytest.fixture(scope="module")
def steps(flips: Flips, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Step]]:
    memory = fsspec.filesystem("memory")
    memory.put(str(texts(tmp_path_factory.mktemp("flipped") / "texts")), f"{PLACE}/texts", recursive=True)
    steps = list[Step]()
    for line in LINES:
        before = files()
        flips.start()
        done = invoked(*line)
        assert done.code == 0, done.err
        reads = flips.count
        made = [name for name in RESULTS if memory.exists(f"{PLACE}/{name}") and not known(name, before)]
        steps.append(Step(before, reads, digests(PLACE, made)))
    yield steps
    memory.rm(PLACE, recursive=True)


def known(name: str, before: dict[str, bytes]) -> bool:
    place = f"/flipped/{name}"
    return any(file == place or file.startswith(f"{place}/") for file in before)


def require(done: Outcome, step: Step, where: str) -> None:
    """Require the right results, or one line."""
    errors = [text for text in done.err.splitlines() if text.startswith("error: ")]
    assert "Traceback" not in done.err, where
    assert len(errors) == (done.code > 0), f"{where}: {done.err}"
    if done.code == 0:
        assert digests(PLACE, step.made) == step.made, where


@pytest.mark.parametrize("many", FEW_AND_ALL)
@pytest.mark.parametrize("number", range(len(VERBS)), ids=[line.split()[0] for line in VERBS])
def test_a_flipped_bit(number: int, many: bool, steps: list[Step], flips: Flips) -> None:
    step, every = steps[number], EVERY[many]
    for read in range(1 + number % min(every, step.reads), step.reads + 1, every):
        restore(step.before)
        flips.start(read)
        done = invoked(*LINES[number])
        flips.start()
        require(done, step, flips.where)
        if done.code != 0:
            done = invoked(*LINES[number])
            assert done.code == 0, f"after {flips.where}: {done.err}"
            require(done, step, flips.where)
