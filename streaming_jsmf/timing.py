"""Where the time of a run goes: named spans inside the code, measured only while somebody asks.

The kernels carry the spans, so this module stands below them and knows nothing of the package.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field


@dataclass
class Stopwatch:
    """Seconds by name of span, of all threads of this process.

    A span inside another counts for itself only. Seconds are processor time of the thread, so that other programs on
    the machine do not count; waiting for the disk does not count either.

    Attributes
    ----------
    seconds
        Processor time by name.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _open: threading.local = field(default_factory=threading.local, repr=False)

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Count the block under ``name``."""
        inner: list[float] = self._open.__dict__.setdefault("inner", [])
        inner.append(0.0)
        started = time.thread_time()
        try:
            yield
        finally:
            whole = time.thread_time() - started
            own = whole - inner.pop()
            if inner:
                inner[-1] += whole
            with self._lock:
                self.seconds[name] = self.seconds.get(name, 0.0) + own


_watch: Stopwatch | None = None
_NOTHING = nullcontext()


def span(name: str) -> AbstractContextManager[None]:
    """A block that is counted under ``name`` while a stopwatch runs; otherwise nothing."""
    return _NOTHING if _watch is None else _watch.span(name)


@contextmanager
def stopwatch() -> Iterator[Stopwatch]:
    """Measure the spans of this process while the block runs; one at a time."""
    global _watch
    if _watch is not None:
        raise RuntimeError("a stopwatch is running already")
    _watch = watch = Stopwatch()
    try:
        yield watch
    finally:
        _watch = None
