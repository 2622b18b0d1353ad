"""The project's own rules, run like any other test: lint, format, types, layers, the README's commands."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
CHECKS = {
    "lint": ["ruff", "check", "."],
    "format": ["ruff", "format", "--check", "."],
    "types": ["mypy"],
    "layers": ["lint-imports", "--no-cache"],
}


@pytest.mark.parametrize("name", CHECKS)
def test_the_code_passes(name: str) -> None:
    program, *arguments = CHECKS[name]
    result = subprocess.run(
        [BIN / program, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("name", ["topics", "tests"])
def test_ci_finds_each_command_once_in_the_readme(name: str) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    [block] = re.findall(rf"<!-- command: {name} -->\n```sh\n(.+)\n```", readme)
    assert block.startswith("python3 -m venv .venv && ")


def test_the_python_of_the_readme_runs(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    [code] = re.findall(r"```python\n(.+?)```", readme, re.DOTALL)
    code = code.replace("data_specs/", f"{ROOT}/data_specs/").replace(
        "n_topics=50", "n_topics=50, max_iterations=5"
    )
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr


def test_the_notebook_runs() -> None:
    notebook = json.loads((ROOT / "notebooks" / "explore_model.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    command = [sys.executable, "-W", "error", "-c", "\n".join(cells)]
    result = subprocess.run(command, cwd=ROOT / "notebooks", capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "sum of A 1.0" in result.stdout


def test_modules_and_functions_stay_readable() -> None:
    long = [
        f"{path.relative_to(ROOT)}: {count} lines"
        for path in sorted((ROOT / "streaming_jsmf").rglob("*.py"))
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > 400
    ]
    assert long == []
