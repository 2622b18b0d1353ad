"""What notebooks show: each cell its own bars and tables, and an error in one line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

import streaming_jsmf as sj

SETUP = """
import time
import numpy as np
import streaming_jsmf as sj

generator = np.random.default_rng(0)
words = np.array([f"{a}{b}" for a in ("mo", "ga", "ri") for b in ("nor", "tel", "lud", "sta", "pir")])
texts = [" ".join(generator.choice(words[row % 3 * 5 : row % 3 * 5 + 5], 20)) for row in range(120)]
"""
LATER = "time.sleep(1.5); print('later')"


def executed(folder: Path, *cells: str) -> list[list[Any]]:
    """The outputs of each cell."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=300, allow_errors=True, resources=resources).execute()
    return [cell.outputs for cell in notebook.cells]


def texts_of(outputs: list[Any]) -> str:
    """What is printed or shown in a cell, as text."""
    return "\n".join(
        output.get("text") or output.get("data", {}).get("text/plain") or "\n".join(output["traceback"])
        for output in outputs
    )


@pytest.mark.slow
@pytest.mark.parametrize("widgets", [True, False], ids=["ipywidgets", "text"])
def test_bars_and_tables_belong_to_their_cells(widgets: bool, tmp_path: Path) -> None:
    """Bars are redrawn by a thread each second, so a cell that comes later would show one that was left."""
    without = "" if widgets else "import sys; sys.modules['ipywidgets'] = None\n"
    shown = executed(
        tmp_path,
        without + SETUP,
        "model = sj.fit(texts + ['', ''], 'model', 3, min_df=1, max_df=1.0, polish=True)",
        LATER,
        "found = sj.choose_k('model.corpus', [2, 3], 'several')",
        LATER,
        "model.label(0, 'first')\nmodel.ingest_report",
        "sj.fit(texts, 'again', 3, min_df=1, max_df=1.0, progress=False)",
        "corpus = sj.ingest(texts, 'corpus', min_df=1, max_df=1.0)",
        "import os; os.environ['TQDM_DISABLE'] = '1'\nsj.fit(texts, 'third', 3, min_df=1, max_df=1.0)",
        "import threading; [each for each in threading.enumerate() if 'tqdm' in type(each).__module__]",
    )
    first, later, chosen, still, report, quiet, ingested, disabled, threads = map(texts_of, shown[1:])
    for bars in (first, chosen):
        assert "finding topics" in bars
    assert "writing the corpus" in first
    assert (later, still) == ("later\n", "later\n")
    for table in (first, ingested):
        assert re.search(r"^read +12\d +15 +2,400$", table, re.M)
        assert re.search(r"^kept +\d+ +15 +2,3\d\d$", table, re.M)
    for without_bars in (quiet, disabled):
        assert "finding topics" not in without_bars
        assert "TopicModel of 3 topics" in without_bars
    assert re.search(r"^read +122 +15 +2400$", report, re.M)
    assert threads == "[]"


@pytest.mark.slow
def test_errors_are_one_line_until_all_is_asked_for(tmp_path: Path) -> None:
    one, again, _, whole, other = executed(
        tmp_path,
        "import streaming_jsmf as sj\nsj.TopicModel('nowhere')",
        "%tb",
        "%xmode Verbose",
        "%tb",
        "sj.fit(['a b'], num_topics=3)",
    )
    with pytest.raises(sj.InputError) as raised:
        sj.TopicModel(tmp_path / "nowhere")
    assert texts_of(one) == texts_of(again) == f"InputError: {raised.value}"
    assert "topic_model.py" in texts_of(whole)
    assert str(raised.value) in texts_of(whole)
    assert "num_topics" in texts_of(other)
