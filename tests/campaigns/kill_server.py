"""A process that has imported the package once, and forks a child for each command, which may die in the middle.

It reads requests from standard input, a line of JSON each, and answers on standard output alike. A child counts the
operations that change files below a folder (``sys.addaudithook``) and kills itself in front of the one that is asked
for, as SIGKILL does it: nothing is flushed, closed or said. A file that is opened to be written counts twice: before it
is there, and when it is there and empty.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Events of the interpreter that change a directory, and which of their arguments are paths.
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
    """What a command does to files below ``root``, told one by one; the last thing it does is number ``kill_at``."""

    root: str
    kill_at: int | None
    told: list[str] = field(default_factory=list)

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if flags & WRITES and self._is_ours(path):
                self._count(f"create {path}")
                self._count(f"write {path}", unborn=path, flags=flags)
        elif event in CHANGES:
            paths = [arguments[i] for i in CHANGES[event]]
            # A name below an open directory comes from the removal of a tree, and there are no others.
            if arguments[-1] not in (-1, None) or any(map(self._is_ours, paths)):
                self._count(f"{event.removeprefix('os.')} {' '.join(map(os.fsdecode, paths))}")

    def _is_ours(self, path: object) -> bool:
        return isinstance(path, str | bytes | os.PathLike) and os.path.abspath(os.fsdecode(path)).startswith(
            self.root
        )

    def _count(self, what: str, unborn: Any = None, flags: int = 0) -> None:
        if len(self.told) == self.kill_at:
            if unborn is not None:
                self.kill_at = None
                os.close(os.open(unborn, (flags | os.O_CREAT) & ~os.O_EXCL))
            os.kill(os.getpid(), signal.SIGKILL)
        self.told.append(what)


@contextmanager
def _output_in(path: str) -> Iterator[None]:
    """Standard output and error of this process in a file."""
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
    operations = Operations(request["root"], request["kill_at"])
    with _output_in(request["log"]):
        sys.addaudithook(operations.hook)
        code = _run(request["command"])
    Path(request["operations"]).write_text("\n".join(operations.told), encoding="utf-8")
    os._exit(code)


def answer(request: dict[str, Any]) -> int:
    """Exit code of a command, in this process to warm it up, or in a child; minus the signal that ended the child."""
    os.chdir(request["folder"])
    if request["here"]:
        with _output_in(request["log"]):
            return _run(request["command"])
    child = os.fork()
    if not child:
        try:
            _child(request)
        finally:
            os._exit(70)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main() -> None:
    """Answer until standard input ends."""
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
