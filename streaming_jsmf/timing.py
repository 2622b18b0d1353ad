"""Named time spans in the code, measured only while a stopwatch runs. Imports nothing from the package."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field


@dataclass
class Stopwatch:
    """Processor seconds by span name, of all threads of this process.

    Nested spans are excluded from the outer span. Thread time excludes other programs and waiting for the disk.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _open: threading.local = field(default_factory=threading.local, repr=False)

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Measure the block under ``name``."""
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
    """Measure the block under ``name`` if a stopwatch is running."""
    return _NOTHING if _watch is None else _watch.span(name)


@contextmanager
def stopwatch() -> Iterator[Stopwatch]:
    """Measure the spans of this process during the block; ``RuntimeError`` if another stopwatch is running."""
    global _watch
    if _watch is not None:
        raise RuntimeError("a stopwatch is running already")
    _watch = watch = Stopwatch()
    try:
        yield watch
    finally:
        _watch = None
