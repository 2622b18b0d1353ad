"""Spans of time: exclusive, of all threads, and nothing while nobody measures."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from streaming_jsmf import timing
from streaming_jsmf.timing import span, stopwatch


class ThreadClock:
    """Processor time as the test says it: a second of work is a second of this thread and of no other."""

    def __init__(self) -> None:
        self._own = threading.local()

    def thread_time(self) -> float:
        return getattr(self._own, "seconds", 0.0)

    def work(self, seconds: float) -> None:
        self._own.seconds = self.thread_time() + seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ThreadClock:
    clock = ThreadClock()
    monkeypatch.setattr(timing, "time", clock)
    return clock


def nested(clock: ThreadClock) -> None:
    with span("outer"):
        clock.work(2)
        with span("inner"):
            clock.work(6)


def test_a_span_inside_another_counts_for_itself_in_every_thread(clock: ThreadClock) -> None:
    both = threading.Barrier(2)

    def work() -> None:
        both.wait()
        with span("around"):
            nested(clock)
            nested(clock)

    with stopwatch() as watch, ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(work) for _ in range(2)]:
            done.result()
    assert watch.seconds == {"around": 0, "outer": 8, "inner": 24}


def test_a_span_that_fails_is_closed(clock: ThreadClock) -> None:
    with stopwatch() as watch:
        with pytest.raises(ValueError, match="no"), span("a"):
            raise ValueError("no")
        nested(clock)
    assert watch.seconds == {"a": 0, "inner": 6, "outer": 2}


def test_nothing_is_measured_while_nobody_asks_and_only_one_may(clock: ThreadClock) -> None:
    assert span("a") is span("b")
    with stopwatch() as watch, pytest.raises(RuntimeError, match="already"), stopwatch():
        pass
    nested(clock)
    assert watch.seconds == {}
