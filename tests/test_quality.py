"""The size of modules, what they import, and that scripts can be imported; ``.ci/checks`` has the other rules."""

from __future__ import annotations

import ast
import importlib
import re
import sys
import tomllib
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

SCRIPTS = sorted(
    f"{folder}.{path.stem}"
    for folder in ("benchmarks", "pipelines")
    for path in (ROOT / folder).iterdir()
    if path.stem[0] != "_" and path.suffix in ("", ".py")
)


def test_most_modules_have_at_most_400_lines_and_all_500() -> None:
    """A concept is not cut to meet a number."""
    files = [*(ROOT / "streaming_jsmf").rglob("*.py")]
    lengths = {file: len(file.read_text(encoding="utf-8").splitlines()) for file in files}
    long = [f"{file}: {length} lines" for file, length in lengths.items() if length > 400]
    assert len(long) <= 0.02 * len(files), long
    assert max(lengths.values()) <= 500, long


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_can_be_imported(name: str) -> None:
    """Benchmarks and most pipelines are not run by the tests."""
    assert importlib.import_module(name).__doc__


def modules_imported(file: Path, modules: Mapping[str, Path]) -> set[str]:
    """The ``modules`` that a module imports, also in functions and for type checkers."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            parts = (f"{node.module}.{each.name}" for each in node.names)
            names |= {part if part in modules else node.module or "" for part in parts}
    return names & modules.keys()


@pytest.mark.slow
def test_no_module_imports_itself_in_a_circle() -> None:
    files = (ROOT / "streaming_jsmf").rglob("*.py")
    modules = {
        ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
        for file in files
    }
    imports = {name: modules_imported(file, modules) for name, file in modules.items()}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' <- '.join(error.args[1])}")


#: Modules of packages that a dependency requires and uses in its own signatures.
PART_OF = {
    "distributed": "dask",
    "llvmlite": "numba",
    "markupsafe": "jinja2",
    "pydantic_core": "pydantic",
    "h5py": "anndata",
}


def imported(file: Path) -> set[str]:
    """The packages that a module imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func):
            found |= {each.value for each in node.args if isinstance(each, ast.Constant)}
    return {name.partition(".")[0] for name in found} - sys.stdlib_module_names


@pytest.mark.slow
def test_every_package_that_is_imported_is_a_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = (
        each for name, extra in project["optional-dependencies"].items() if name != "test" for each in extra
    )
    names = (re.match(r"[\w.-]+", each) for each in (*project["dependencies"], *extras))
    declared = {re.sub("[-_.]+", "-", name[0]).lower() for name in names if name}
    packages = packages_distributions()
    for file in (ROOT / "streaming_jsmf").rglob("*.py"):
        for name in imported(file) - {"streaming_jsmf"}:
            owner = PART_OF.get(name, name)
            known = {re.sub("[-_.]+", "-", each).lower() for each in packages[owner]}
            assert known & declared, f"{file} imports {name}, which pyproject.toml does not declare"
    for part, owner in PART_OF.items():
        assert any(
            re.match(f"{part}\\b", each.replace("-", "_").lower()) for each in requires(owner) or ()
        ), part
