"""What the README and the notebook promise, and the size of modules; the rest of the rules is in ``.ci/checks``."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tests.processes import ended, finished

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


#: Each notebook and something that it prints.
NOTEBOOKS = {
    "explore_model": "sum of A 1.0",
    "sklearn_pipeline": "report of 8 topics",
    "data_frame": "400 rows; shares of the first sum to 1.000",
}


def test_every_notebook_is_run() -> None:
    assert {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")} == NOTEBOOKS.keys()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "said"), NOTEBOOKS.items())
def test_a_notebook_runs(name: str, said: str) -> None:
    notebook = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    done = ended([sys.executable, "-W", "error", "-c", "\n".join(cells)], folder=ROOT / "notebooks")
    assert done.code == 0, done.err
    assert said in done.out


def test_no_module_is_longer_than_400_lines() -> None:
    long = [
        f"{path.relative_to(ROOT)}: {count} lines"
        for path in sorted((ROOT / "streaming_jsmf").rglob("*.py"))
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > 400
    ]
    assert long == []
