"""What is known of files while a command plans what it reads: their status and first bytes, each requested once.

Planning looks at a file many times, to find its format, its layout, the names of its columns and its parts, and to
identify it. Within ``planning()`` the first look is kept, so that files must not be written there. Many files are
looked at side by side (``storage.objects.of_each_file``).
"""

from __future__ import annotations

import functools
import io
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeAlias, TypeVar

#: Bytes at the start of a file that are read at once, and of all starts that are held.
HEAD, _HELD = 1 << 20, 64 << 20

P = ParamSpec("P")
T = TypeVar("T")

#: Is called with the sizes of runs of files, and with how many of them have been looked at.
Progress: TypeAlias = Callable[[Sequence[int], int], None]


def silent(sizes: Sequence[int], done: int) -> None:
    """Report no progress."""


@dataclass
class Known:
    """Status of files behind URLs, first bytes of files, and what functions have found (``found_once``).

    ``progress`` is told how many of the files have been divided.
    """

    progress: Progress
    statuses: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    heads: dict[Any, bytes] = field(default_factory=dict)
    results: dict[Any, Any] = field(default_factory=dict)
    n_bytes: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def head(self, key: Any, read: Callable[[], bytes]) -> bytes:
        """The first bytes of the file with a key, which ``read`` returns; those read first are dropped first."""
        if (head := self.heads.get(key)) is None:
            head = read()
            with self.lock:
                while self.heads and self.n_bytes + len(head) > _HELD:
                    self.n_bytes -= len(self.heads.pop(next(iter(self.heads))))
                self.n_bytes += len(head) - len(self.heads.get(key, b""))
                self.heads[key] = head
        return head


_known: ContextVar[Known | None] = ContextVar("known", default=None)


@contextmanager
def planning(progress: Progress = silent) -> Iterator[None]:
    """Keep what is found out about files until the end of the outermost block, which may report ``progress``."""
    if _known.get() is not None:
        yield
        return
    token = _known.set(Known(progress))
    try:
        yield
    finally:
        _known.reset(token)


def known() -> Known | None:
    """What is known of files; None outside of ``planning``."""
    return _known.get()


def progress() -> Progress:
    """What is told about the progress of a plan."""
    held = known()
    return silent if held is None else held.progress


def found_once(function: Callable[P, T]) -> Callable[P, T]:
    """Call a function only once with the same arguments, which are hashable, while planning."""

    @functools.wraps(function)
    def found(*args: P.args, **kwargs: P.kwargs) -> T:
        held = known()
        if held is None:
            return function(*args, **kwargs)
        key = (function, args, *sorted(kwargs.items()))
        if key not in held.results:
            held.results[key] = function(*args, **kwargs)
        result: T = held.results[key]
        return result

    return found


class SizedStream(io.RawIOBase):
    """Base of raw streams of known size: a subclass reads at ``position``, at most to the end."""

    def __init__(self, size: int) -> None:
        self._size, self.position = size, 0

    def read_at(self, size: int) -> bytes:
        """Return at most ``size`` bytes at the position."""
        raise NotImplementedError

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self.position = max(0, offset + (0, self.position, self._size)[whence])
        return self.position

    def tell(self) -> int:
        return self.position

    def readinto(self, buffer: Any) -> int:
        size = min(len(buffer), self._size - self.position)
        data = self.read_at(size) if size > 0 else b""
        buffer[: len(data)] = data
        self.position += len(data)
        return len(data)


class FromHead(SizedStream):
    """A file of which the first bytes are held; ``open_rest`` opens all of it when more is read."""

    def __init__(self, head: Callable[[], bytes], size: int, open_rest: Callable[[], Any]) -> None:
        super().__init__(size)
        self._head, self._open_rest = head, open_rest
        self._rest: Any = None

    def read_at(self, size: int) -> bytes:
        if self.position < HEAD:
            return self._head()[self.position :][:size]
        if self._rest is None:
            self._rest = self._open_rest()
        self._rest.seek(self.position)
        return bytes(self._rest.read(size))

    def close(self) -> None:
        if self._rest is not None:
            self._rest.close()
        super().close()
