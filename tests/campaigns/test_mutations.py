"""Mutants are valid, and a suite with more checks kills more of them."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from tests.campaigns import mutations
from tests.campaigns.mutants import mutants_of

SOURCE = b'''"""Docs 1."""
import logging
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from numpy import ndarray as limit
__all__ = ["f"]
logger = logging.getLogger(__name__)
LIMIT: int = 3

def f(x: "list[1]", y=True):
    """Docs 2."""
    if x and y:
        logger.info("%d", 4)
        return f"{x + 5}"
    total = x - y
    total += 1.5
    x.send(total)
    return total if x <= y else None
'''


def test_each_kind_of_change_and_what_stays() -> None:
    found = mutants_of("m.py", SOURCE)
    assert {(m.line, m.kind, m.after) for m in found} == {
        (8, "constant", "4"),
        (10, "constant", "False"),
        (12, "negation", "(not (x and y))"),
        (12, "and/or", "(x or y)"),
        (14, "deletion", "pass"),
        (15, "+/-", "(x + y)"),
        (16, "constant", "3.0"),
        (16, "deletion", "pass"),
        (17, "deletion", "pass"),
        (18, "comparison", "(x < y)"),
        (18, "negation", "(not (x <= y))"),
    }
    assert {m.function for m in found if m.line < 11} == {None}
    for mutant in found:
        changed = mutant.applied(SOURCE)
        assert changed != SOURCE
        ast.parse(changed)


CODE = """
def larger(a, b):
    if a > b:
        return True
    return False
"""

TEST = """
from streaming_jsmf.code import larger

def test_here():
    assert {check}
"""

PROCESS = """
import subprocess, sys

def test_in_a_process():
    subprocess.run([sys.executable, "-c", "import streaming_jsmf.code as c; c.larger(1, 2)"], check=True)
"""


def _tried(tree: Path, check: str) -> dict[str, Any]:
    """Record and run mutations of a tree of one function with two tests, one mutant per line."""
    files = {"streaming_jsmf/__init__.py": "", "streaming_jsmf/code.py": CODE}
    files |= {"test_here.py": TEST.format(check=check), "test_process.py": PROCESS}
    for name, content in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(content, encoding="utf-8")
    contexts, out = tree.with_suffix(".contexts.json"), tree.with_suffix(".json")
    mutations.record(tree, contexts, {"seed": 0, "number": 3}, workers=1)
    mutations.run(tree, contexts, out, seconds=60, jobs=1)
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found


@pytest.mark.slow
def test_a_suite_that_checks_more_kills_more(tmp_path: Path) -> None:
    weak = _tried(tmp_path / "weak", "larger(2, 1)")
    strong = _tried(tmp_path / "strong", "(larger(2, 1), larger(1, 1), larger(1, 2)) == (1, 0, 0)")
    reached = {found["mutant"]["line"]: found["reached"] for found in weak["mutants"].values()}
    assert reached == {3: 2, 4: 1, 5: 1}, "the last line is reached in a process that a test starts"
    assert weak["shares"]["killed or timeout"] < strong["shares"]["killed or timeout"] == 1
