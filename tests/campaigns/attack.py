"""Attacks on the bytes of a file and odd files in its place, and what every command must satisfy afterwards."""

from __future__ import annotations

import faulthandler
import os
import random
import re
import resource
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.outcomes import Command, Outcome
from tests.processes import PATIENCE

#: Time limit of a command in seconds, and memory limit in bytes.
LONGEST = PATIENCE
LARGEST = 2 << 30

_NUMBER = re.compile(rb"[0-9]+")
_NUMBERS = (b"0", b"-1", b"1e999", b"nan", b"2147483648", b"9" * 25, b"1.5")
_WORDS = (
    bytes(8),
    b"\xff" * 8,
    b"\x7f" + bytes(7),
    (1 << 31).to_bytes(8, "little"),
    (2**64 - 16).to_bytes(8, "little"),
)


def _cut(data: bytes, draw: random.Random) -> bytes:
    return data[: draw.randrange(len(data))]


def _flipped(data: bytes, draw: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 4, 32))):
        changed[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _overwritten(data: bytes, draw: random.Random) -> bytes:
    at, word = draw.randrange(len(data)), draw.choice((*_WORDS, draw.randbytes(8)))
    return (data[:at] + word + data[at + 8 :])[: len(data)]


def _moved(data: bytes, draw: random.Random) -> bytes:
    a, b, at = (draw.randrange(len(data)) for _ in range(3))
    return data[:at] + data[min(a, b) : max(a, b)] + data[at:]


def _without(data: bytes, draw: random.Random) -> bytes:
    a, b = (draw.randrange(len(data)) for _ in range(2))
    return data[: min(a, b)] + data[max(a, b) :]


def _recounted(data: bytes, draw: random.Random) -> bytes:
    found = list(_NUMBER.finditer(data))
    if not found:
        return _flipped(data, draw)
    number = draw.choice(found)
    return data[: number.start()] + draw.choice(_NUMBERS) + data[number.end() :]


_ATTACKS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _cut, _flipped, _flipped, _overwritten, _overwritten, _moved, _without, _recounted, _recounted,
)  # fmt: skip


def spoilt(data: bytes, draw: random.Random) -> bytes:
    """The bytes after a random attack, which always changes them."""
    while data:
        changed = draw.choice(_ATTACKS)(data, draw)
        if changed != data:
            return changed
    return b"\0"


def _socket(path: Path) -> None:
    # The path of a socket has at most 107 bytes.
    place = os.open(path.parent, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(f"/proc/self/fd/{place}/{path.name}")
    os.close(place)


#: What takes the place of a file, and is never read.
ODD: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "socket": _socket,
    "device": lambda path: path.symlink_to("/dev/zero"),
}


@dataclass
class Campaign:
    """Runs commands with ``invoke``, counts them by exit code and collects failures to report them together."""

    invoke: Command
    ended: dict[int, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def __call__(self, case: str, *arguments: object) -> Outcome | None:
        """Run a command and check it; None if it crashed or its exit code or messages are wrong."""
        before = _peak()
        # Works even if native code hangs: it ends the process and prints the stack.
        faulthandler.dump_traceback_later(LONGEST, exit=True, file=sys.__stderr__)
        try:
            said = self.invoke(*arguments)
        except Exception:
            self.fail(case, traceback.format_exc(limit=-3))
            return None
        finally:
            faulthandler.cancel_dump_traceback_later()
        self.ended[said.code] = self.ended.get(said.code, 0) + 1
        if _peak() > max(before, LARGEST):
            self.fail(case, f"the process grew to {_peak() >> 20} MiB")
        told = [line for line in said.err.splitlines() if line.startswith("error: ")]
        if said.code not in (0, 2, 3) or len(told) != bool(said.code) or "Traceback" in said.err:
            self.fail(case, f"exit code {said.code}: {said.err}")
            return None
        return said

    def fail(self, case: str, fault: str) -> None:
        self.failures.append(f"{case}: {fault}")


@contextmanager
def campaign(invoke: Command) -> Iterator[Campaign]:
    """Context of a campaign; fails at the end with all failed cases."""
    tried = Campaign(invoke)
    yield tried
    print(f"exit codes: {dict(sorted(tried.ended.items()))}, peak {_peak() >> 20} MiB")
    assert not tried.failures, f"{len(tried.failures)} cases:\n" + "\n".join(tried.failures)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
