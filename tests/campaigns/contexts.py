"""A pytest plugin for ``mutations record``: which test executes which line, and how long each takes.

It sets the context of coverage.py to the test, or to a fixture shared by several tests. Child processes inherit it in
their environment.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import coverage
import pytest

#: Prefix of the contexts of fixtures.
FIXTURE = "fixture "


def _write(name: str, value: Any) -> None:
    (Path(os.environ["MUTATIONS_FOLDER"]) / name).write_text(json.dumps(value), encoding="utf-8")


def _name(context: str) -> str:
    """Set the context and return the previous one."""
    former = os.environ.get("MUTATIONS_CONTEXT", "")
    os.environ["MUTATIONS_CONTEXT"] = context
    running = coverage.Coverage.current()
    if running is not None:
        running.switch_context(context)
    return former


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _name(item.nodeid)
    try:
        return (yield)
    finally:
        _name("")


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
    """Seconds of passed tests, and names of failed ones."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome != "passed":
            self.failed.add(report.nodeid)
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration

    def pytest_sessionfinish(self) -> None:
        passed = {name: seconds for name, seconds in self.seconds.items() if name not in self.failed}
        _write("results.json", {"passed": passed, "failed": sorted(self.failed)})


def pytest_configure(config: pytest.Config) -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        config.pluginmanager.register(Results())
