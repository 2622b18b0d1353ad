"""A pytest plugin for ``mutations record``: the running test, for the probes, and the CPU time of each test.

The context is the test, or a fixture shared by several tests. Child processes inherit it in their environment.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from typing import Any

import pytest

#: Prefix of the contexts of fixtures.
FIXTURE = "fixture "

#: Property of a report: CPU seconds of the test, with its fixtures and the processes it has waited for.
SECONDS = "CPU seconds"

_started = pytest.StashKey[float]()


def _write(name: str, value: Any) -> None:
    (Path(os.environ["MUTATIONS_FOLDER"]) / name).write_text(json.dumps(value), encoding="utf-8")


def _name(context: str) -> str:
    """Set the context and return the previous one."""
    former = os.environ.get("MUTATIONS_CONTEXT", "")
    os.environ["MUTATIONS_CONTEXT"] = context
    return former


def _cpu_seconds() -> float:
    """User and system time of this process and of its children that have ended."""
    usages = map(getrusage, (RUSAGE_SELF, RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _name(item.nodeid)
    item.stash[_started] = _cpu_seconds()
    try:
        return (yield)
    finally:
        _name("")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Iterator[None]:
    if call.when == "teardown":
        item.user_properties.append((SECONDS, _cpu_seconds() - item.stash[_started]))
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any) -> Iterator[None]:
    if fixturedef.scope == "function":
        return (yield)
    former = _name(FIXTURE + fixturedef.argname)
    try:
        return (yield)
    finally:
        _name(former)


def pytest_collection_finish(session: pytest.Session) -> None:
    if os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0":
        fixtures = {item.nodeid: getattr(item, "fixturenames", []) for item in session.items}
        _write("fixtures.json", fixtures)


class Results:
    """CPU seconds of passed tests, and names of failed ones."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome != "passed":
            self.failed.add(report.nodeid)
        if report.when == "teardown":
            self.seconds[report.nodeid] = dict(report.user_properties)[SECONDS]

    def pytest_sessionfinish(self) -> None:
        passed = {name: seconds for name, seconds in self.seconds.items() if name not in self.failed}
        _write("results.json", {"passed": passed, "failed": sorted(self.failed)})


def pytest_configure(config: pytest.Config) -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        config.pluginmanager.register(Results())
