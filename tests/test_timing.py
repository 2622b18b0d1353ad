"""Spans of time: exclusive, of all threads, and nothing while nobody measures."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from streaming_jsmf.timing import span, stopwatch


def work(seconds: float) -> None:
    started = time.thread_time()
    while time.thread_time() - started < seconds:
        pass


def nested() -> None:
    with span("outer"):
        work(0.02)
        with span("inner"):
            work(0.06)
        time.sleep(0.05)


def test_a_span_inside_another_counts_for_itself_in_every_thread_and_sleep_does_not_count() -> None:
    with stopwatch() as watch, ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(nested) for _ in range(2)]:
            done.result()
    assert watch.seconds == {
        "outer": pytest.approx(0.04, abs=0.015),
        "inner": pytest.approx(0.12, abs=0.015),
    }


def test_a_span_that_fails_is_closed() -> None:
    with stopwatch() as watch:
        with pytest.raises(ValueError, match="no"), span("a"):
            raise ValueError("no")
        nested()
    assert list(watch.seconds) == ["a", "inner", "outer"]
    assert watch.seconds["outer"] == pytest.approx(0.02, abs=0.1)


def test_nothing_is_measured_while_nobody_asks_and_only_one_may() -> None:
    assert span("a") is span("b")
    with stopwatch() as watch, pytest.raises(RuntimeError, match="already"), stopwatch():
        pass
    nested()
    assert watch.seconds == {}
