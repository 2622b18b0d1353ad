"""Benchmarks and pipelines are not run here, but must at least come up: what they import moves now and then."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted(
    f"{folder}.{path.stem}"
    for folder in ("benchmarks", "pipelines")
    for path in (ROOT / folder).iterdir()
    if path.stem[0] != "_" and path.suffix in ("", ".py")
)


@pytest.mark.parametrize("name", MODULES)
def test_a_script_can_be_imported(name: str) -> None:
    assert importlib.import_module(name).__doc__
