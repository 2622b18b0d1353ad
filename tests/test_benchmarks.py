"""Benchmarks are not run by the tests, but they must at least come up: what they import moves now and then."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
MODULES = sorted(path.stem for path in FOLDER.iterdir() if path.stem[0] != "_" and path.suffix in ("", ".py"))


@pytest.mark.parametrize("name", MODULES)
def test_a_benchmark_can_be_imported(name: str) -> None:
    assert importlib.import_module(f"benchmarks.{name}").__doc__
