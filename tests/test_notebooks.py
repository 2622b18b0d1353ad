"""The notebooks: kept without outputs, in the gallery; the site runs them and has their pictures."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tests.processes import ended

ROOT = Path(__file__).parent.parent

#: Each notebook and something that it prints.
NOTEBOOKS = {
    "quick_start": "1,200 documents, 292 words",
    "explore_model": "sum of A 1.0",
    "choose_k": "suggested: 8 topics",
    "topics_over_time": "from the plan on average",
    "documents_search": "half of the documents have a topic of",
    "dask_cluster": "of one thread",
    "two_engines": "stod has a mean L1 of 0.0",
    "sklearn_pipeline": "report of 8 topics",
    "data_frame": "400 rows; shares of the first sum to 1.000",
}


def cells_of(name: str) -> list[dict[str, object]]:
    cells = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def test_every_notebook_is_run_and_in_the_gallery() -> None:
    assert {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")} == NOTEBOOKS.keys()
    gallery = (ROOT / "docs" / "notebooks" / "index.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^## \[.+\]\((\w+)\.ipynb\)$", gallery, re.M)) == NOTEBOOKS.keys()


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_kept_without_what_it_printed(name: str) -> None:
    for cell in cells_of(name):
        assert cell["outputs"] == []
        assert cell["execution_count"] is None


@pytest.mark.slow
def test_the_quick_start_runs() -> None:
    """Without its last lines, which show: the site runs all of every notebook, see ``test_site``."""
    code = "\n".join("".join(cell["source"]) for cell in cells_of("quick_start"))  # type: ignore[arg-type]
    done = ended([sys.executable, "-W", "error", "-c", code], folder=ROOT / "notebooks")
    assert done.code == 0, done.err
    assert NOTEBOOKS["quick_start"] in done.out
