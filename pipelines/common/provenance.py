"""Where published results come from: command, corpora, seeds, version, commit, and the code that computed them.

Code is identified by hashes of the script and of all modules that it imports, directly or not, in groups such as
``streaming_jsmf/linalg`` and without comments, docstrings and blank lines. A result is stale if one of them changes.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import click

import streaming_jsmf
from streaming_jsmf.corpus import Corpus

ROOT = Path(__file__).parents[2]

#: Hashed if no script runs.
PACKAGE = "streaming_jsmf"

#: Modules that only show results.
SHOWING = ("pictures", "provenance", "quality_tables", "results", "tables")

#: File among stored results: the versions of the code that computed them.
COMPUTED_BY = "versions.json"

#: Group of source files -> hash.
Hashes = dict[str, str]


@cache
def code_of(source: str) -> str:
    """Source code without comments, docstrings and blank lines.

    Examples
    --------
    >>> code_of('def f(x):\\n    "Add one."\\n\\n    return x + 1  # one\\n')
    'def f(x):\\n    return x + 1'
    """
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            for row in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1):
                lines[row - 1] = ""
    return "\n".join(line.rstrip() for line in lines if line.strip())


def hash_of(paths: Iterable[Path]) -> str:
    """Hash of the code of several files and of their names."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(f"{path.name}\n{code_of(path.read_text(encoding='utf-8'))}\n".encode())
    return digest.hexdigest()[:12]


@cache
def code_hashes(script: str, root: Path = ROOT) -> Hashes:
    """Hashes of a script, such as ``pipelines/near_ties`` or ``benchmarks/peers``, and of the modules that it imports.

    A script that does not exist has no hashes.
    """
    path = root / script
    start = {*path.rglob("*.py")} if path.is_dir() else {path.with_suffix(".py")}
    if not all(file.exists() for file in start):
        return {}
    groups: dict[str, list[Path]] = {}
    for file in imported(start, root):
        group = "/".join(file.relative_to(root).with_suffix("").parts[:2])
        groups.setdefault(group, []).append(file)
    return {group: hash_of(files) for group, files in sorted(groups.items())}


def imported(start: Iterable[Path], root: Path = ROOT) -> set[Path]:
    """Files and all modules below ``root`` that they import, also in functions, except those that show results."""
    found: set[Path] = set()
    left = [*start]
    while left:
        path = left.pop()
        if path not in found and path.stem not in SHOWING:
            found.add(path)
            for module, name in _imports(path):
                left += _files_of(module, name, root)
    return found


def _imports(path: Path, *, types: bool = False) -> Iterator[tuple[str, str]]:
    """Modules and names that a file imports; ``types`` includes imports for type checkers."""
    left: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while left:
        node = left.pop()
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)
        elif types or not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            left += ast.iter_child_nodes(node)


def _files_of(module: str, name: str, root: Path) -> list[Path]:
    """Files that importing a name of a module loads: the module, its packages, and the module that defines the name."""
    parts = [*module.split("."), *([name] if name else [])]
    places = [root.joinpath(*parts[: n + 1]) for n in range(len(parts))]
    files = [file for place in places for file in (place.with_suffix(".py"), place / "__init__.py")]
    found = [file for file in files if file.exists()]
    if found and name and found[-1] == places[-2] / "__init__.py":
        # Packages import their public names on first use, and list them for type checkers.
        exports = {alias: source for source, alias in _imports(found[-1], types=True)}
        if exports.get(name, module) != module:
            found += _files_of(exports[name], name, root)
    return found


def note_version(folder: Path) -> None:
    """Add the present version of the code to those that computed results in ``folder``."""
    path = folder / COMPUTED_BY
    known: list[Hashes] = json.loads(path.read_text()) if path.exists() else []
    now = code_hashes(_script() or PACKAGE)
    if now not in known:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps([*known, now], indent=1) + "\n")


def record(out: Path, rows: Iterable[Mapping[str, Any]], corpora: Mapping[str, Corpus]) -> dict[str, Any]:
    """Provenance of results in ``out``: where several versions of the code computed them, all are listed."""
    versions: list[Hashes] = []
    for path in _found(out):
        with suppress(FileNotFoundError):
            versions += [each for each in json.loads(path.read_text()) if each not in versions]
    script = _script()
    return {
        "command": _command(script),
        "corpora": {name: _described(corpus) for name, corpus in corpora.items()},
        "seeds": sorted({row["seed"] for row in rows if row.get("seed") is not None}),
        "version": streaming_jsmf.__version__,
        "commit": _commit(),
        "entry": script or PACKAGE,
        "code": versions or [code_hashes(script or PACKAGE)],
    }


def _found(folder: Path) -> list[Path]:
    """The files of versions in a folder; it is not an error if another command removes folders meanwhile."""
    return sorted(Path(place) / COMPUTED_BY for place, _, names in os.walk(folder) if COMPUTED_BY in names)


def _described(corpus: Corpus) -> dict[str, Any]:
    return {"documents": corpus.n_documents, "words": corpus.n_words, "sha256": corpus.fingerprint}


def _script() -> str | None:
    """The running script, such as ``pipelines/near_ties`` or ``benchmarks/peers``, also if a test runs it."""
    context = click.get_current_context(silent=True)
    called = context.command.callback if context else None
    if called is None:
        return None
    path = Path(inspect.getfile(called)).with_suffix("")
    path = path.parent if path.name == "__main__" else path
    return f"{path.parent.name}/{path.name}" if path.parent.parent == ROOT else None


def _command(script: str | None) -> str:
    """The command line, with the name of a corpus (NAME=SOURCE) or OUT in place of absolute paths."""
    shown = [re.sub(r"^(\w+)=/.*$", lambda m: f"{m[1]}={m[1].upper()}", each) for each in sys.argv[1:]]
    if script is None:
        return ""
    shown = ["OUT" if each.startswith("/") else each for each in shown]
    return f"python -m {script.replace('/', '.')} {shlex.join(shown)}"


def _commit() -> str | None:
    """Commit of the checkout, with ``+`` if tracked source files were changed; None outside a checkout."""
    try:
        head, changed = (
            subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=True).stdout
            for command in (
                ("rev-parse", "--short=10", "HEAD"),
                (
                    "status",
                    "--porcelain",
                    "--untracked-files=no",
                    "streaming_jsmf",
                    "pipelines",
                    "benchmarks",
                ),
            )
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return head.strip() + ("+" if changed.strip() else "")
