"""Which tests reach which mutants: calls in front of the statements that mutants change.

A probe writes the number of its mutant and the context (the test or the fixture, from the environment) when it is
reached for the first time in a process. It writes at once, so that processes that are killed lose nothing.

- A statement that is executed on import counts as reached by the tests that call a function of its file. If no test
  calls one, it counts as reached by the tests that call a function of a file that imports it.
- Compiled functions have no probes. Their statements count as reached by the tests that reach a call of the function.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.campaigns.contexts import FIXTURE
from tests.campaigns.mutants import Mutant, is_compiled, places

#: Module of the probes, in the package so that every process finds it. Tests may replace functions of ``os``.
MODULE = """
import os

_environment, _write = os.environ, os.write
_file = os.open({folder!r} + f"/{{os.getpid()}}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
_written = set()


def reached(*mutants):
    context = _environment.get("MUTATIONS_CONTEXT", "")
    for mutant in mutants:
        if (context, mutant) not in _written:
            _written.add((context, mutant))
            try:
                _write(_file, f"{{mutant}} {{context}}\\n".encode())
            except OSError:
                pass
"""

IMPORT = "from streaming_jsmf._reached import reached as _reached"

#: File and first line of a statement; None instead of a line for any function of the file.
Site = tuple[str, int | None]


def insert_probes(tree: Path, mutants: Sequence[Mutant], folder: Path) -> None:
    """Insert calls into the package of a tree, which write into ``folder``."""
    folder.mkdir()
    (tree / "streaming_jsmf" / "_reached.py").write_text(MODULE.format(folder=str(folder)), encoding="utf-8")
    package = _Package(tree)
    sites: dict[str, dict[int | None, set[str]]] = {}
    for number, mutant in enumerate(mutants):
        for name, found in ((f"{number}", package.sites(mutant)), (f"{number}*", package.importers(mutant))):
            for file, line in found:
                sites.setdefault(file, {}).setdefault(line, set()).add(name)
    for file, by_line in sites.items():
        syntax = package.syntax[file]
        _probe(syntax.body, by_line, inside=False)
        after = [number for number, statement in enumerate(syntax.body) if _precedes_imports(statement)]
        syntax.body.insert(max(after, default=-1) + 1, ast.parse(IMPORT).body[0])
        (tree / file).write_text(ast.unparse(ast.fix_missing_locations(syntax)) + "\n", encoding="utf-8")


def _precedes_imports(statement: ast.stmt) -> bool:
    return _is_text(statement) or (isinstance(statement, ast.ImportFrom) and statement.module == "__future__")


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _probe(
    body: list[ast.stmt], by_line: Mapping[int | None, set[str]], *, inside: bool, whole: bool = False
) -> None:
    """Insert calls into a block; ``inside`` a function, ``whole`` if the block is the body of one."""
    for statement in list(body):
        names = set(by_line.get(statement.lineno, ())) if inside else set()
        if whole and not _is_text(statement):
            names |= by_line.get(None, set())
            whole = False
        if names:
            call = f"_reached({', '.join(repr(name) for name in sorted(names))})"
            body.insert(next(n for n, each in enumerate(body) if each is statement), ast.parse(call).body[0])
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            if not is_compiled(statement):
                _probe(statement.body, by_line, inside=True, whole=True)
            continue
        for name in ("body", "orelse", "finalbody"):
            _probe(getattr(statement, name, []), by_line, inside=inside)
        for part in getattr(statement, "handlers", getattr(statement, "cases", [])):
            _probe(part.body, by_line, inside=inside)


class _Package:
    """Where mutants are reached: uses of each name (site, and the function if it is compiled), and imports."""

    def __init__(self, tree: Path) -> None:
        self.syntax: dict[str, ast.Module] = {}
        self._uses: dict[str, list[tuple[Site, str | None]]] = {}
        self._importers: dict[str, set[str]] = {}
        for path in sorted((tree / "streaming_jsmf").rglob("*.py")):
            file = path.relative_to(tree).as_posix()
            self.syntax[file] = ast.parse(path.read_bytes())
            self._read(file, self.syntax[file])

    def _read(self, file: str, syntax: ast.Module) -> None:
        for place in places(syntax):
            site = file, None if place.function is None else place.lines[0]
            for name in {name for head in place.heads for name in _names(head)} - {place.function}:
                self._uses.setdefault(name, []).append((site, place.function if place.compiled else None))
        for node in ast.walk(syntax):
            if isinstance(node, ast.ImportFrom) and node.module:
                base = node.module.replace(".", "/")
                for module in (f"{base}.py", *(f"{base}/{alias.name}.py" for alias in node.names)):
                    self._importers.setdefault(module, set()).add(file)

    def sites(self, mutant: Mutant) -> set[Site]:
        if mutant.function is None:
            return {(mutant.file, None)}
        return self._calls(mutant.function, set()) if mutant.compiled else {(mutant.file, mutant.lines[0])}

    def importers(self, mutant: Mutant) -> set[Site]:
        return set() if mutant.function else {(file, None) for file in self._importers.get(mutant.file, ())}

    def _calls(self, function: str, seen: set[str]) -> set[Site]:
        seen.add(function)
        found: set[Site] = set()
        for site, caller in self._uses.get(function, []):
            if caller is None:
                found.add(site)
            elif caller not in seen:
                found |= self._calls(caller, seen)
        return found


def _names(head: ast.expr) -> Iterator[str]:
    for node in ast.walk(head):
        if isinstance(node, ast.Name | ast.Attribute):
            yield node.id if isinstance(node, ast.Name) else node.attr


def reaching(folder: Path, fixtures: Mapping[str, Sequence[str]]) -> dict[int, set[str]]:
    """Tests by the number of the mutant; what a fixture reaches, the tests with this fixture reach."""
    users: dict[str, set[str]] = {}
    for test, names in fixtures.items():
        for name in names:
            users.setdefault(FIXTURE + name, set()).add(test)
    found: dict[str, set[str]] = {}
    for path in folder.iterdir():
        for line in path.read_text(encoding="utf-8").splitlines():
            number, _, context = line.partition(" ")
            found.setdefault(number, set()).update(users.get(context, {context} if context else ()))
    # Names of mutants that are reached through a file that imports theirs end in an asterisk.
    numbers = {int(name.rstrip("*")) for name in found}
    return {number: found.get(f"{number}") or found.get(f"{number}*", set()) for number in numbers}
