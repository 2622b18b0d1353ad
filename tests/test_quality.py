"""The size of modules, and that scripts can be imported; ``.ci/checks`` has the other rules."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

SCRIPTS = sorted(
    f"{folder}.{path.stem}"
    for folder in ("benchmarks", "pipelines")
    for path in (ROOT / folder).iterdir()
    if path.stem[0] != "_" and path.suffix in ("", ".py")
)


def test_no_module_is_longer_than_400_lines() -> None:
    files = (ROOT / "streaming_jsmf").rglob("*.py")
    lengths = {file: len(file.read_text(encoding="utf-8").splitlines()) for file in files}
    assert [f"{file}: {length} lines" for file, length in lengths.items() if length > 400] == []


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_can_be_imported(name: str) -> None:
    """Benchmarks and most pipelines are not run by the tests."""
    assert importlib.import_module(name).__doc__
