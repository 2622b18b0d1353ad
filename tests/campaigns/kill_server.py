"""A process that imports the package once and forks a child for each command, which can be killed at any operation.

It reads requests from standard input and writes answers to standard output, as JSON lines. A child counts the
operations that change files in a folder (``sys.addaudithook``) and kills itself before a given one, like SIGKILL:
without flushing, closing or output. Opening a file for writing counts twice: before and after it is created.

Killing one command at a hundred operations requires a hundred runs. Since the files after each kill are those of one
run at the same moment, a child can instead copy the folder before the given operations and continue.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Audit events that change a directory, and the positions of their path arguments.
CHANGES = {
    "os.rename": (0, 1),
    "os.remove": (0,),
    "os.rmdir": (0,),
    "os.mkdir": (0,),
    "os.link": (0, 1),
    "os.symlink": (0, 1),
}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


@dataclass
class Operations:
    """Records the file operations of a command below ``root``.

    Kills the process before operation ``kill_at``, or interrupts it before ``interrupt_at`` as Ctrl-C does; copies the
    folder before each operation from ``copy_from`` on.
    """

    root: str
    kill_at: int | None
    interrupt_at: int | None
    copy_from: int | None
    copies: Path
    told: list[str] = field(default_factory=list)
    is_copying: bool = False

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.is_copying:
            return
        if event == "open":
            path, _, flags = arguments
            if flags & WRITES and self._is_ours(path):
                self._count(f"create {path}")
                self._count(f"write {path}", unborn=path, flags=flags)
        elif event in CHANGES:
            paths = [arguments[i] for i in CHANGES[event]]
            # Only the removal of trees uses names relative to an open directory, so these always count.
            if arguments[-1] not in (-1, None) or any(map(self._is_ours, paths)):
                self._count(f"{event.removeprefix('os.')} {' '.join(map(os.fsdecode, paths))}")

    def _is_ours(self, path: object) -> bool:
        return isinstance(path, str | bytes | os.PathLike) and _absolute(path).startswith(self.root)

    def _count(self, what: str, unborn: Any = None, flags: int = 0) -> None:
        self.is_copying = True
        number = len(self.told)
        if number == self.kill_at:
            if unborn is not None:
                _open_and_leave(os.fspath(unborn), flags)
            os.kill(os.getpid(), signal.SIGKILL)
        if number == self.interrupt_at:
            self.told.append(what)
            self.is_copying = False
            signal.raise_signal(signal.SIGINT)
        if self.copy_from is not None and number >= self.copy_from:
            copy = shutil.copytree(self.root, self.copies / str(number), symlinks=True)
            if unborn is not None:
                _open_and_leave(str(copy / _absolute(unborn).removeprefix(self.root)), flags)
        self.told.append(what)
        self.is_copying = False


def _absolute(path: Any) -> str:
    return os.path.join(os.getcwd(), os.fsdecode(path))  # noqa: PTH109, PTH118 - pathlib would be seen by the hook


def _open_and_leave(path: str, flags: int) -> None:
    os.close(os.open(path, (flags | os.O_CREAT) & ~os.O_EXCL))


@contextmanager
def _output_in(path: str) -> Iterator[None]:
    """Redirect standard output and error of this process to a file."""
    sys.stdout.flush()
    kept = os.dup(1), os.dup(2)
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(target, 1)
    os.dup2(target, 2)
    os.close(target)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, descriptor in zip((1, 2), kept, strict=True):
            os.dup2(descriptor, number)
            os.close(descriptor)


def _run(line: list[str]) -> int:
    from streaming_jsmf.cli.main import run

    try:
        return run(line)
    except BaseException:
        traceback.print_exc()
        return 1


def _child(request: dict[str, Any]) -> None:
    copies = Path(request["copies"])
    signals = request["kill_at"], request["interrupt_at"]
    operations = Operations(request["root"], *signals, request["copy_from"], copies)
    with _output_in(request["log"]):
        sys.addaudithook(operations.hook)
        code = _run(request["command"])
    Path(request["operations"]).write_text("\n".join(operations.told), encoding="utf-8")
    os._exit(code)


def answer(request: dict[str, Any]) -> int:
    """Exit code of a command, run in this process (to warm it up) or in a child; negative if a signal ended it."""
    os.chdir(request["folder"])
    if request["here"]:
        with _output_in(request["log"]):
            return _run(request["command"])
    child = os.fork()
    if not child:
        _child(request)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
