"""Run the notebooks and store them with their outputs: ``python docs/store_notebooks.py [NAME ...]``.

The site runs them again. Needs the extra ``docs``. Reports, which GitHub does not show, progress bars and messages are
left out.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"

#: Longest HTML of an output; reports have half a megabyte.
MOST_CHARACTERS = 50_000

#: Directories whose names differ in every run.
_TEMPORARY = re.compile(rf"{re.escape(tempfile.gettempdir())}/[\w-]+")


def shown(output: Any) -> Any | None:
    """An output as it is stored; None if it is a message."""
    if output.get("name") == "stderr":
        return None
    if len(output.get("data", {}).get("text/html", "")) > MOST_CHARACTERS:
        del output["data"]["text/html"]
    for holder, name in (
        (output, "text"),
        *((output.get("data", {}), kind) for kind in ("text/plain", "text/html")),
    ):
        if name in holder:
            holder[name] = _TEMPORARY.sub("folder", holder[name].replace(str(NOTEBOOKS.parent), ".."))
    return output


def store(path: Path) -> None:
    """Run a notebook; an error in a cell is raised."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook, timeout=600, resources={"metadata": {"path": str(NOTEBOOKS)}}, record_timing=False
    ).execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in map(shown, cell.outputs) if output is not None]
    notebook.metadata.language_info = {"name": "python"}
    nbformat.write(notebook, path)


if __name__ == "__main__":
    os.environ["TQDM_DISABLE"] = "1"
    chosen = sys.argv[1:] or sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))
    for name in chosen:
        store(NOTEBOOKS / f"{name}.ipynb")
        print(name)
