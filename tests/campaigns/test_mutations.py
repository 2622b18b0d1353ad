"""Mutants are valid, and a suite with more checks kills more of them."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.campaigns import mutations
from tests.campaigns.mutants import draw, mutants_of
from tests.campaigns.probes import insert_probes, reaching

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


def test_functions_that_are_compiled_are_known() -> None:
    source = b"@compiled(nogil=True)\ndef f(x):\n    return x < 1\n\ndef g(x):\n    return x < 1\n"
    assert {m.function: m.compiled for m in mutants_of("m.py", source)} == {"f": True, "g": False}


def test_mutants_are_spread_by_lines_of_code_and_depend_on_the_seed_alone(tmp_path: Path) -> None:
    for package, functions in (("small", 10), ("large", 30)):
        (tmp_path / "streaming_jsmf" / package).mkdir(parents=True)
        code = "".join(f"def f{number}(x):\n    return x < {number}\n\n" for number in range(functions))
        (tmp_path / "streaming_jsmf" / package / "code.py").write_text(code, encoding="utf-8")
    drawn = draw(tmp_path, seed=1, number=8)
    assert [Path(mutant.file).parts[1] for mutant in drawn] == ["large"] * 6 + ["small"] * 2
    assert drawn == draw(tmp_path, seed=1, number=8) != draw(tmp_path, seed=2, number=8)


def test_the_fastest_tests_are_chosen_file_by_file() -> None:
    reached = [("b::1", 0.1), ("a::1", 0.2), ("b::2", 0.3), ("a::2", 0.4), ("c::1", 9.0)]
    assert mutations.chosen_of(reached, 1.0) == ["b::1", "b::2", "a::1", "a::2"]


PROBED = """
from __future__ import annotations
from streaming_jsmf.limit import LIMIT

@compiled
def f(x):
    return x + 1

def g(x):
    "Text."
    if x < 0:
        return f(x)
    elif x > LIMIT:
        return 0
    return 1
"""


def test_probes_are_where_mutants_are_reached(tmp_path: Path) -> None:
    package = tmp_path / "streaming_jsmf"
    package.mkdir()
    (package / "code.py").write_text(PROBED, encoding="utf-8")
    (package / "limit.py").write_text("LIMIT = 3\n", encoding="utf-8")
    mutants = [m for m in draw(tmp_path, seed=0, number=100) if m.kind == "constant"]
    lines = {(Path(m.file).stem, m.line): m for m in mutants}
    drawn = [lines[place] for place in (("code", 7), ("limit", 1), ("code", 14), ("code", 15))]
    insert_probes(tmp_path, drawn, tmp_path / "reached")
    (package / "__init__.py").touch()
    calls = "import os; __builtins__.compiled = lambda f: f; from streaming_jsmf.code import g\n" + (
        "for x in (-1, 4, 0): os.environ['MUTATIONS_CONTEXT'] = str(x); g(x)"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", calls], check=True, cwd=tmp_path, env=environment)
    found = reaching(tmp_path / "reached", {})
    assert found == {0: {"-1"}, 1: {"-1", "4", "0"}, 2: {"4"}, 3: {"0"}}


@pytest.mark.slow
def test_a_loop_that_does_not_end_exceeds_its_cpu_seconds(tmp_path: Path) -> None:
    (tmp_path / "test_loop.py").write_text("def test_loop():\n    while True:\n        pass\n")
    assert mutations.tests_of(tmp_path, ["test_loop.py"], 5)[0] is None


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
