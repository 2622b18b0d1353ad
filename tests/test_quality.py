"""What the README promises, and the size of modules; the rest of the rules is in ``.ci/checks``."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.processes import finished

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("name", ["topics", "tests"])
def test_ci_finds_each_command_once_in_the_readme(name: str) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    [block] = re.findall(rf"<!-- command: {name} -->\n```sh\n(.+)\n```", readme)
    assert block.startswith("python3 -m venv .venv && ")


@pytest.mark.slow
def test_the_python_of_the_readme_runs(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    [code] = re.findall(r"```python\n(.+?)```", readme, re.DOTALL)
    code = code.replace("data_specs/", f"{ROOT}/data_specs/").replace(
        "n_topics=50", "n_topics=50, max_iterations=5"
    )
    finished([sys.executable, "-W", "error", "-c", code], folder=tmp_path)


def test_no_module_is_longer_than_400_lines() -> None:
    long = [
        f"{path.relative_to(ROOT)}: {count} lines"
        for path in sorted((ROOT / "streaming_jsmf").rglob("*.py"))
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > 400
    ]
    assert long == []
